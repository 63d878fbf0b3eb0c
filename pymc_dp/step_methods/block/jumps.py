"""Which variables make values of positive probability vanish at once, where a log density cannot tell.

Between two values of a variable a repeated number may no longer be drawn for two reasons. Its probability has
become small: with the same random numbers, draws leave it one by one on the way. Or it is no such value any
more: they leave it together, as soon as the variable crosses a point (``pt.floor(c)``), which bisection
finds. There, or between two whole numbers, the log density is asked about the number that is gone. Minus
infinity is right: the density counts that value, and nothing is drawn there. A density is wrong: it is
continuous at that number from a side from which it was not while the number had a probability, or promises
draws that are missing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from pymc.model.core import Model
from pytensor.graph.basic import Variable

from pymc_dp.query.supports import finite_support
from pymc_dp.step_methods.block.lawdraws import OFTEN, LawDraws, compile_natural, repeated

# Changes of a real variable in value space, one for each place; and of a whole number whose support is large,
# which is also drawn from its prior, so often, of which so many values are tried.
_SIZES = (1.0, 10.0, 100.0, 1000.0, 3.0, 30.0)
_STEPS = (1, 2, 10)
_PRIOR, _MOST_OF_PRIOR = 200, 30
# Repeated numbers that are looked at, the most frequent ones, and halvings of a change.
_NUMBERS, _HALVINGS = 2, 60
# A step to a side of a number, as a part of how far draws are from it; and how much a log density may change.
_SIDE, _CONTINUOUS = 1e-9, 1e-7
# Draws that a log density has to promise: if it is right, none of them comes with a probability of exp(-30).
_PROMISED = 30
# Draws that are tried for a density elsewhere, and the first places only, which are near the starting values:
# far from there floating point may leave nothing of it.
_TRIED, _NEAR = 50, 3

type Values = Sequence[np.ndarray]


class Jumps:
    """Larger changes of the variables behind a law.

    Parameters
    ----------
    draws : LawDraws
    given : sequence of Variable
        Variables behind the law, in the order of its inputs.
    model : pymc.Model
    """

    def __init__(self, draws: LawDraws, given: Sequence[Variable], model: Model):
        self.natural = compile_natural(model, given)
        self._draws, self._given = draws, given
        self._names = {v: model.rvs_to_values[v].name for v in given if v in model.free_RVs}  # type: ignore[index]
        self._seen: set[Variable] = set()
        self._failed: dict[Variable, Exception] = {}

    @property
    def failed(self) -> dict[Variable, Exception]:
        """Variables of which all changes failed, and how."""
        return {v: error for v, error in self._failed.items() if v not in self._seen}

    def behind(
        self,
        seed: int,
        point: Mapping[str, np.ndarray],
        values: Values,
        among: Collection[Variable],
        enough: bool,
    ) -> set[Variable]:
        """Return the variables that move a repeated number, from a point of the model.

        Parameters
        ----------
        seed : int
            Of the draws, and of the direction and the size of changes.
        point : mapping of str to np.ndarray
            A point of the model.
        values : sequence of np.ndarray
            Values there of the variables behind the law.
        among : collection of Variable
            Those that are in question.
        enough : bool
            Whether variables that have been changed before are left as they are.
        """
        found: set[Variable] = set()
        asked = [v for v in self._names if v in among and not (enough and v in self._seen)]
        if not asked:
            return found
        before = self._draws.at(seed, values)
        if not repeated(before).size:
            asked = [v for v in asked if not v.type.dtype.startswith("float")]  # type: ignore[attr-defined]
        if not np.array_equal(before, self._draws.at(seed, values), equal_nan=True):
            return found  # draws of a generator of its own, which tell nothing here
        for v in asked:
            k = self._given.index(v)
            for path, whole in self._paths(k, seed, point, values):
                near = seed < _NEAR and not (whole and np.any(np.abs(path(1.0)[k] - values[k]) > 1))
                try:
                    with np.errstate(all="ignore"):
                        wrong = self._is_wrong(seed, path, before, whole, near)
                except NotImplementedError:  # no density: no step can move a variable by it
                    wrong = False
                except Exception as error:  # of a user's function: no law, or no density, after this change
                    self._failed.setdefault(v, error)
                    continue
                self._seen.add(v)
                if wrong:
                    found.add(v)
                    break
        return found

    def _paths(
        self, k: int, seed: int, point: Mapping[str, np.ndarray], values: Values
    ) -> list[tuple[Callable[[float], Values], bool]]:
        """Return changes of a variable, as functions of how much of one is made, and if by whole numbers."""
        name = self._names[self._given[k]]

        def with_own(own: Any) -> list[np.ndarray]:
            return [own if j == k else value for j, value in enumerate(values)]

        def chosen(other: np.ndarray, t: float) -> Values:
            return with_own(other if t else value)

        value = np.asarray(values[k])
        if value.dtype.kind in "iub":
            return [(partial(chosen, other), True) for other in self._whole(k, value)]
        rng = np.random.default_rng(seed)
        shift = rng.uniform(0.5, 1, np.shape(point[name])) * rng.choice([-1, 1], np.shape(point[name]))
        shift *= _SIZES[seed % len(_SIZES)]

        def moved(t: float) -> Values:
            return with_own(self.natural({**point, name: point[name] + t * shift})[k])

        return [(moved, False), (lambda t: moved(-t), False)]

    def _whole(self, k: int, value: np.ndarray) -> list[np.ndarray]:
        """Return other values of a variable of whole numbers."""
        variable: Any = self._given[k]
        support = finite_support(variable)
        if support is None:
            drawn = pm.draw(variable, draws=_PRIOR, mode="FAST_COMPILE", random_seed=0)
            others = np.unique(drawn, axis=0)[:_MOST_OF_PRIOR].astype(value.dtype)
            return [value ^ 1, *(value + step for step in _STEPS), *others]
        at = np.searchsorted(support, value)
        return [support[(at + shift) % len(support)].astype(value.dtype) for shift in range(1, len(support))]

    def _is_wrong(
        self, seed: int, path: Callable[[float], Values], before: np.ndarray, whole: bool, near: bool
    ) -> bool:
        """Whether the law changes on a path in such a way as its log density cannot tell."""
        if whole:
            return self._differ(seed, path(0.0), path(1.0), near)
        after = self._draws.at(seed, path(1.0))
        for number in [a for a in repeated(before) if not np.any(after == a)][:_NUMBERS]:
            ends = self._jump(seed, path, number)
            if ends is not None and self._differ(seed, *ends, near):
                return True
        return False

    def _jump(
        self, seed: int, path: Callable[[float], Values], number: float
    ) -> tuple[Values, Values] | None:
        """Return values on both sides of the point at which all draws leave a number at once, if they do."""
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            count = np.count_nonzero(self._draws.at(seed, path(middle)) == number)
            if 0 < count < OFTEN:
                return None
            low, high = (middle, high) if count else (low, middle)
        return path(low), path(high)

    def _differ(self, seed: int, here: Values, there: Values, near: bool) -> bool:
        """Whether two laws have other values of positive probability, by one log density that cannot tell."""
        before, after = self._draws.at(seed, here), self._draws.at(seed, there)
        sides = [(before, here, after, there), (after, there, before, here)]
        gone = [
            (number, draws, own, other)
            for draws, own, others, other in sides
            for number in [a for a in repeated(draws) if not np.any(others == a)][:_NUMBERS]
        ]
        if any(self._is_density(*each) and self._draws.is_alone(each[0], each[2]) for each in gone):
            return True
        # nor does a chain come from one law to the next if no draw of either is possible under the other
        if not near or any(self._any_possible(draws, own, other) for draws, own, _, other in sides):
            return False
        return any(self._draws.is_alone(number, own) for number, _, own, _ in gone)

    def _is_density(self, number: float, draws: np.ndarray, own: Values, other: Values) -> bool:
        """Whether the log density under other values speaks of draws near a number that is not drawn."""
        first = np.argmax([np.count_nonzero(draw == number) for draw in draws])
        draw, at = draws[first], draws[first] == number
        distance = np.abs(draws[np.isfinite(draws)] - number)
        far = np.median(distance[distance > 0]) if np.any(distance > 0) else max(abs(number), 1.0)
        side = at * max(_SIDE * far, 1e-12 * abs(number))
        before, after = self._draws.logp(draw, own), self._draws.logp(draw, other)
        is_wrong = False
        if after.shape == draw.shape:  # of single numbers, not of vectors
            promised = np.exp(np.minimum(after[at & np.isfinite(after)], 0))
            is_wrong = len(draws) * np.sum(promised) >= _PROMISED
        for beside in (draw - side, draw + side):
            was, now = self._draws.logp(beside, own), self._draws.logp(beside, other)
            is_wrong |= bool(np.any(np.isfinite(after) & _close(now, after) & ~_close(was, before)))
        # on a grid, probabilities of two neighbours may be the same
        return is_wrong and not self._draws.is_drawn(number, other)

    def _any_possible(self, draws: np.ndarray, own: Values, other: Values) -> bool:
        """Whether some draws of a law have a density under another, but for those with none under either."""
        for draw in draws[:_TRIED]:
            gone = np.isneginf(self._draws.logp(draw, other)) & ~np.isneginf(self._draws.logp(draw, own))
            if not np.any(gone):
                return True
        return False


def _close(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | (np.abs(a - b) <= _CONTINUOUS * (1 + np.abs(b)))
