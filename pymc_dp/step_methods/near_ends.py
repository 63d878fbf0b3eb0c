"""Numbers so near an end of their support that floating point has hardly any beyond them.

A record that rounds to an end of its support has an infinite density there, or none, in PyMC's density as
well: steps refuse moves that lead to one. What they draw is the posterior of the model cut off where floating
point ends, which differs from the model's own only where numbers come near. So that is counted, and said.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from pymc.logprob.transforms import IntervalTransform, LogOddsTransform, LogTransform
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dp.lowering.functions.truncated_counts import truncated_count
from pymc_dp.step_methods.model_density import difference_to_pymc, impossible_among, is_possible

_log = logging.getLogger("pymc")
# Numbers near an end in one draw, on average, of which nothing is said.
_FEW = 1e-3
# Errors of a log density that matter.
_ROUGH = 0.01
# Draws are looked at so seldom: a look at few numbers takes 5 us, as long as a sweep over a hundred records.
EVERY = 10
# Of values: logarithms of the smallest and largest numbers, of the distance of a number from 1, and numbers.
_LOG, _BESIDE, _LARGE = 600.0, 30.0, 1e270

Ends = tuple[str, float, float]


def ends_of(model: Model, variables: Iterable[Variable]) -> list[Ends]:
    """Return the names of the values of continuous variables, and between which they are not near."""
    found: list[Ends] = []
    for rv in variables:
        value: Any = model.rvs_to_values[rv]
        transform = model.rvs_to_transforms.get(rv)
        if value.type.dtype.startswith("float"):
            limits = _limits(rv, transform)
            if limits is not None:
                found.append((str(value.name), *limits))
    return found


def _limits(rv: Any, transform: Any) -> tuple[float, float] | None:
    if transform is None:
        return -_LARGE, _LARGE
    if isinstance(transform, LogTransform):
        return -_LOG, _LOG
    if isinstance(transform, LogOddsTransform):
        return -_LOG, _BESIDE
    if isinstance(transform, IntervalTransform):
        low, high = transform.args_fn(*rv.owner.inputs)
        return (-_BESIDE if low is not None else -_LOG), (_BESIDE if None not in (low, high) else _LOG)
    return None


class NearEnds:
    """Counts numbers near the ends of their support in the draws that it looks at; O(n), some 1 ns a number.

    Parameters
    ----------
    ends : sequence of (str, float, float)
        Names of values, and the smallest and largest that are not near.
    message : str
        What is said of one of them; ``{name}`` and ``{number}``, how many are in a draw on average.
    """

    def __init__(self, ends: Sequence[Ends], message: str):
        self._ends, self._message = list(ends), message
        self._looks, self._near = 0, dict.fromkeys((name for name, _, _ in ends), 0)

    def look(self, point: dict[str, np.ndarray]) -> None:
        """Count those of a draw."""
        self._looks += 1
        for name, low, high in self._ends:
            v = point[name]
            if v.size and (v.min() < low or v.max() > high):
                self._near[name] += int(np.count_nonzero((v < low) | (v > high)))

    def say(self) -> None:
        """Warn of those that are many."""
        for name, near in self._near.items():
            if near > _FEW * self._looks:
                _log.warning(self._message.format(name=name, number=f"{near / self._looks:.2g}"))


def is_cut(rv: Variable, model: Model) -> bool:
    """Whether the law of a record is that of truncated counts, or made of one."""
    inside = ancestors([rv], blockers=set(model.basic_RVs) - {rv})
    return any(v.owner is not None and truncated_count(v.owner) is not None for v in inside)


class FarCuts:
    """Tells where densities of truncated counts have no digits, in the draws that it looks at.

    Ours have none where less than 1e-307 of a law is within its ends, and a draw there is refused. PyMC's, by
    which NUTS moves the parameters, divides by a difference of distribution functions: it has none where next
    to nothing is above the lower end, where PyMC's steps do not go, and few shortly before. That is said.

    Parameters
    ----------
    model : pymc.Model
    records : sequence of Variable
        Records whose law is truncated.
    mine : collection of Variable
        Variables of the step; whether they are all that the records' law depends on.
    """

    def __init__(self, model: Model, records: Sequence[Variable], mine: Collection[Variable]):
        self._model, self._names = model, [str(rv.name) for rv in records]
        others = {rv.name for rv in model.free_RVs} - {rv.name for rv in mine}
        self._by_pymc = any(v.name in others for v in ancestors(records) if v.name is not None)
        self._looks = self._rough = 0

    def look(self, point: dict[str, np.ndarray]) -> None:
        """Raise an error that says what prior to give, where a density is infinite or no number."""
        if not is_possible(self._model, point):
            lacking = impossible_among(self._model, point, self._names)
            if lacking:
                raise ValueError(
                    f"The chain came to where the density of {', '.join(lacking)} is no number: it is "
                    "divided by how much of the law is within its ends, which rounds to zero for parameters "
                    "under which the ends are far out in a tail. Give the parameters a prior that keeps well "
                    "away from there, as pm.Truncated(..., lower=...) does, or move the ends."
                )
        self._looks += 1
        if self._by_pymc:
            self._rough += difference_to_pymc(self._model, point, self._names) > _ROUGH

    def say(self) -> None:
        """Warn of draws at which PyMC's density is not that of the law."""
        if self._rough:
            _log.warning(_BY_PYMC.format(names=", ".join(self._names), share=self._rough / self._looks))


RECORDS = (
    "Records are near the limits of floating point: {number} of {name} in a draw, on average. Where one "
    "rounds to an end of its support, or is too large, it has no density, and chains do not go there. What "
    "was drawn is the posterior of the model without such records: give the parameters of their law a prior "
    "that keeps away from where they are common."
)
ATOMS = (
    "Atoms round to an end of their support: {number} of {name} in a draw, on average. Draws of the unknown "
    "parameters of their law are not exact then: give them a prior that keeps away from values under which "
    "so many do."
)
_BY_PYMC = (
    "PyMC's density of {names}, by which another step moved the parameters, has lost its digits at "
    "{share:.1%} of the draws that were looked at: next to all of the law is below its lower end there. What "
    "was drawn is not quite the posterior. Let dp.AncillaryUpdate() move these parameters, as steps that "
    "pm.sample chooses do, or give them a prior that keeps away from there."
)


def watched(
    model: Model, mine: Collection[Variable], records: Sequence[Variable]
) -> list[NearEnds | FarCuts]:
    """Return what looks, in draws of a step, for numbers where densities have no digits.

    Parameters
    ----------
    model : pymc.Model
    mine : collection of Variable
        Variables of the step.
    records : sequence of Variable
        Records among them, in rows that are released.
    """
    names = {rv.name for rv in records}  # a model whose lengths are known by now is a copy
    ends = ends_of(model, [rv for rv in mine if rv.name in names])
    near: list[NearEnds | FarCuts] = [NearEnds(ends, RECORDS)] if ends else []
    cut = [rv for rv in records if is_cut(rv, model)]
    return [*near, FarCuts(model, cut, mine)] if cut else near
