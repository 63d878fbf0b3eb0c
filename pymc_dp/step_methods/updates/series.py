"""Autoregressions and random walks, of records or of parameters, as a function of parameter-free noise.

Each entry follows from those before it and from noise of its own. Given the series itself, the scale of its
steps can hardly leave where it is small, nor get there: such regions were not visited at all.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.records import parameters_of
from pymc_dp.step_methods.updates.noncentred import NoiseForm, NoNoiseForm, Piece, family_form

# Part of a walk's own size below which its steps are known to few digits only.
_FEW_DIGITS = 1e-8


def noise_form(rv: TensorVariable, moving: Callable[[TensorVariable], bool]) -> NoiseForm:
    """Return how a variable is a function of parameter-free noise, which has an entry for each of its own.

    Parameters
    ----------
    rv : TensorVariable
        Record variable or parameter of the model.
    moving : callable
        Whether a graph depends on the parameters that are to move.

    Raises
    ------
    NoNoiseForm
        If its law has no known form, nor the laws that it is made of; the message says which.
    """
    laws = _laws(rv)
    forms = [_form_of_part(law, moving, name) for name, law in laws.items()]
    op: Any = rv.owner.op
    if isinstance(op, AutoRegressiveRV):
        return _autoregression(op, *forms)
    if isinstance(op, RandomWalkRV):
        if len({np.dtype(law.dtype).kind == "f" for law in laws.values()}) > 1:
            raise NoNoiseForm(f"{rv.name} adds whole numbers to others, which are no whole numbers again")
        return _random_walk(-op.ndim_supp, *forms)
    return forms[0]


def _form_of_part(law: TensorVariable, moving: Callable[[TensorVariable], bool], name: str) -> NoiseForm:
    """Return the noise form of a law; one without, that nothing moves, is noise as it is."""
    try:
        return family_form(law, moving, name)
    except NoNoiseForm:
        if any(moving(p) for p in parameters_of(law)):
            raise
        return NoiseForm(lambda x, rv: x, lambda u, rv: u)


def smooth_form(rv: TensorVariable, moving: Callable[[TensorVariable], bool]) -> NoiseForm | None:
    """Return the noise form of a parameter whose entries act one by one, or in series; None without one."""
    try:
        form = noise_form(rv, moving)
    except NoNoiseForm:
        return None
    by_entry = all(getattr(law.owner.op, "ndim_supp", 0) == 0 for law in _laws(rv).values())
    return form if form.smooth and by_entry else None


def _laws(rv: TensorVariable) -> dict[str, TensorVariable]:
    """Return the laws that a variable is made of, those of a series by what they are of: start and steps."""
    op: Any = rv.owner.op
    if isinstance(op, AutoRegressiveRV):
        return {f"the start of {rv.name}": op.dist_params(rv.owner)[2]}  # its steps are normal
    if isinstance(op, RandomWalkRV):
        first, innovation, *_ = op.dist_params(rv.owner)
        return {f"the start of {rv.name}": first, f"each step of {rv.name}": innovation}
    return {str(rv.name): rv}


def _autoregression(op: Any, start: NoiseForm) -> NoiseForm:
    order, constant = op.ar_order, int(op.constant_term)

    def mean(past: list[TensorVariable], rhos: TensorVariable) -> TensorVariable:
        """Mean of an entry given those before it, the last first."""
        of_past = sum(rhos[..., constant + k] * past[k] for k in range(order))
        return rhos[..., 0] + of_past if constant else of_past

    def to_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
        rhos, sigma, first, *_ = rv.owner.op.dist_params(rv.owner)
        n = _length(x)
        past = [x[..., order - 1 - k : n - 1 - k] for k in range(order)]
        centre = mean(past, rhos[..., None, :])
        return pt.concatenate(
            [start.to_noise(x[..., :order], first), (x[..., order:] - centre) / sigma[..., None]], axis=-1
        )

    def to_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
        rhos, sigma, first, *_ = rv.owner.op.dist_params(rv.owner)
        begin = start.to_record(u[..., :order], first)
        x = [begin[..., k] for k in range(order)]
        for t in range(order, _length(u)):
            x.append(mean(x[: -order - 1 : -1], rhos) + sigma * u[..., t])
        return pt.stack(x, axis=-1)

    def steps(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
        _, sigma, first, *_ = rv.owner.op.dist_params(rv.owner)
        return pt.concatenate(
            [start.to_record(u[..., :order], first), sigma[..., None] * u[..., order:]], axis=-1
        )

    def pieces(u: TensorVariable, x: TensorVariable) -> list[Piece]:
        return [(start, u[..., :order], x[..., :order])]

    return NoiseForm(to_noise, to_record, start.smooth, steps=steps, pieces=pieces)


def _random_walk(time: int, start: NoiseForm, step: NoiseForm) -> NoiseForm:
    """The laws of its entries have the axis of time in front, and the walk has it elsewhere."""

    def each(to: str, values: list[TensorVariable], rv: TensorVariable) -> TensorVariable:
        """Noise of start and steps, or these from noise."""
        laws = rv.owner.op.dist_params(rv.owner)
        parts = [
            getattr(form, to)(value, law)
            for form, value, law in zip((start, step), values, laws[:2], strict=True)
        ]
        return pt.moveaxis(pt.concatenate(parts, axis=0), 0, time)

    def cut(u: TensorVariable) -> list[TensorVariable]:
        u = pt.moveaxis(u, time, 0)
        return [u[:1], u[1:]]

    def differences(x: TensorVariable) -> list[TensorVariable]:
        x = pt.moveaxis(x, time, 0)
        return [x[:1], x[1:] - x[:-1]]

    def steps(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
        return each("to_record", cut(u), rv)

    def to_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
        return each("to_noise", differences(x), rv)

    def to_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
        return pt.cumsum(steps(u, rv), axis=time)

    def pieces(u: TensorVariable, x: TensorVariable) -> list[Piece]:
        (begin, by), (of_start, of_steps) = differences(x), cut(u)
        size = _FEW_DIGITS * pt.abs(pt.moveaxis(x, time, 0)[1:])
        told = pt.switch(pt.lt(pt.abs(by), size), 0, by)  # as none: where that is an end, nothing moves
        return [(start, of_start, begin), (step, of_steps, told)]

    return NoiseForm(to_noise, to_record, start.smooth and step.smooth, steps=steps, pieces=pieces)


def _length(x: TensorVariable) -> int:
    length = x.type.shape[-1]
    if length is None:
        raise NoNoiseForm("a series of unknown length")
    return length
