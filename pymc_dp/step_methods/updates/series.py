"""Series of parameters as a function of parameter-free noise: autoregressions and random walks.

Each entry follows from those before it and from noise of its own. Given the series itself, the scale of its
steps can hardly leave where it is small, nor get there: such regions were not visited at all.
"""

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.step_methods.updates.noncentred import NoiseForm, NoNoiseForm, noise_form


def smooth_form(rv: TensorVariable, moving: Callable[[TensorVariable], bool]) -> NoiseForm | None:
    """Return the noise form of a parameter whose entries act one by one, or in series; None without one."""
    series = is_series(rv)
    try:
        form = (series_form if series else noise_form)(rv, moving)
    except NoNoiseForm:
        return None
    by_entry = series or getattr(rv.owner.op, "ndim_supp", 0) == 0
    return form if form.smooth and by_entry else None


def is_series(rv: TensorVariable) -> bool:
    """Whether a law is an autoregression or a random walk of numbers."""
    op: Any = rv.owner.op
    return isinstance(op, AutoRegressiveRV | RandomWalkRV) and op.ndim_supp == 1


def series_form(rv: TensorVariable, moving: Callable[[TensorVariable], bool]) -> NoiseForm:
    """Return how a series is a function of noise, with an entry of noise for each of its own.

    Raises
    ------
    NoNoiseForm
        If its first entries, or the steps of a random walk, have no smooth form.
    """
    op: Any = rv.owner.op
    params = op.dist_params(rv.owner)
    laws = [params[2]] if isinstance(op, AutoRegressiveRV) else params[:2]
    forms = [noise_form(law, moving) for law in laws]
    if not all(form.smooth and law.owner.op.ndim_supp == 0 for form, law in zip(forms, laws, strict=True)):
        raise NoNoiseForm(f"{rv.name} is a series whose entries have no smooth form")
    return _autoregression(op, *forms) if isinstance(op, AutoRegressiveRV) else _random_walk(*forms)


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

    return NoiseForm(to_noise, to_record, steps=steps)


def _random_walk(start: NoiseForm, step: NoiseForm) -> NoiseForm:
    """The laws of its entries have the axis of time in front, and the walk has it last."""

    def steps(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
        first, innovation, *_ = rv.owner.op.dist_params(rv.owner)
        u = pt.moveaxis(u, -1, 0)
        each = [start.to_record(u[:1], first), step.to_record(u[1:], innovation)]
        return pt.moveaxis(pt.concatenate(each, axis=0), 0, -1)

    def to_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
        first, innovation, *_ = rv.owner.op.dist_params(rv.owner)
        x = pt.moveaxis(x, -1, 0)
        each = [start.to_noise(x[:1], first), step.to_noise(x[1:] - x[:-1], innovation)]
        return pt.moveaxis(pt.concatenate(each, axis=0), 0, -1)

    def to_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
        return pt.cumsum(steps(u, rv), axis=-1)

    return NoiseForm(to_noise, to_record, steps=steps)


def _length(x: TensorVariable) -> int:
    length = x.type.shape[-1]
    if length is None:
        raise NoNoiseForm("a series of unknown length")
    return length
