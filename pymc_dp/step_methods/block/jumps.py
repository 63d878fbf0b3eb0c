"""Which variables make values of positive probability vanish, where a log density cannot tell.

A law is drawn at many settings of the variables behind it, with the same random numbers, and settings are
compared row by row. A number that is drawn repeatedly at one setting and never at another is gone for one of
two reasons: its probability has become small, or it is no such value any more. The log density at the other
setting says which, at that number. Minus infinity is right: the density counts that value, and nothing is
drawn there. A small probability is right, too. A density is wrong: it is continuous at that number from a
side from which it was not while the number had a probability, or promises draws that are missing.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable

from pymc_dp.query.supports import finite_support
from pymc_dp.step_methods.block.lawdraws import OFTEN, LawDraws

# How far apart, in their order, settings are that are compared; numbers looked at in each, the most frequent
# ones; and how many wrong pairs are taken apart. Then how often the density is asked, of how many numbers.
_APART, _NUMBERS, _WRONG = (1, 2, 3, 5, 8, 13, 21, 34), 3, 4
_ASKED, _ASKED_IN_ALL = (8, 60), 100_000
# Values of a variable of whole numbers that are looked at, others that each is compared with, and changes of
# its starting value.
_VALUES, _OTHERS, _STEPS = 64, 2, (1, 2, 10)
# A step to a side of a number, as a part of how far draws are from it; how much a log density may change; and
# how large it may be, beyond which rounding takes a probability and a density for the same.
_SIDE, _CONTINUOUS, _LARGE = 1e-9, 1e-7, 1e3
# Draws that a log density has to promise: if it is right, none of them comes with a probability of exp(-30).
_PROMISED = 30
# Changes of a real variable between whose ends a point is sought that no chain passes, and halvings of each.
_CUTS, _HALVINGS = 12, 40
# Draws that are tried for a density at another setting.
_TRIED = 50

type Values = Sequence[np.ndarray]


class Setting(NamedTuple):
    """Values of the variables behind a law, draws of it there, (draws, ...), and numbers that they repeat."""

    values: Values
    drawn: np.ndarray
    repeated: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """Draws by entry of the law, (draws, entries)."""
        return self.drawn.reshape((len(self.drawn), -1))


class Jumps:
    """Comparisons of settings of the variables behind a law.

    Parameters
    ----------
    draws : LawDraws
    given : sequence of Variable
        Variables behind the law, in the order of its inputs.
    at : callable
        Setting of values of these variables; None if the law fails there.
    """

    def __init__(self, draws: LawDraws, given: Sequence[Variable], at: Callable[[Values], Setting | None]):
        self._draws, self._given, self._at = draws, given, at
        self._asked = 0

    def behind(self, settings: Sequence[Setting]) -> set[Variable]:
        """Return the variables that move a repeated number between some settings."""
        found: set[Variable] = set()
        try:
            for k, v in enumerate(self._given):
                whole = settings[0].values[k].dtype.kind in "iub"
                if self._is_wrong_for_whole(k, settings) if whole else self._is_cut(k, settings):
                    found.add(v)
            return found | self._between(settings)
        except NotImplementedError:  # no density: no step can move a variable by it
            return found

    def _between(self, settings: Sequence[Setting]) -> set[Variable]:
        found: set[Variable] = set()
        wrong: list[tuple[Setting, Setting]] = []
        n, self._asked = len(settings), 0
        asked = np.clip(_ASKED_IN_ALL // max(settings[0].drawn[0].size, 1), *_ASKED)
        for apart in _APART:
            for k, here in enumerate(settings):
                there = settings[(k + apart) % n]
                for one, other in ((here, there), (there, here)):
                    if self._asked < asked and len(wrong) < _WRONG and self._is_wrong(one, other):
                        wrong.append((one, other))
                        found |= self._which(one, other)
        if wrong and not found:  # by several together
            one, other = wrong[0]
            pairs = zip(self._given, one.values, other.values, strict=True)
            found = {v for v, a, b in pairs if not np.array_equal(a, b)}
        return found

    def _which(self, here: Setting, there: Setting) -> set[Variable]:
        """Return which variable is it, where they change one after the other, in both orders."""
        found = set()
        for order in (range(len(self._given)), range(len(self._given))[::-1]):
            now = here
            for k in order:
                after = self._at(_with(now.values, k, there.values[k]))
                if after is None:
                    break
                if self._is_wrong(now, after):
                    found.add(self._given[k])
                    break
                now = after
        return found

    def _is_wrong_for_whole(self, k: int, settings: Sequence[Setting]) -> bool:
        """Whether other whole numbers for one variable are wrong, or leave a chain where it is."""
        rng, self._asked = np.random.default_rng(0), 0
        values = self._whole(k, settings)
        for j, value in enumerate(values):
            own = [s for s in settings if np.array_equal(s.values[k], value)]
            base = (own or settings)[int(rng.integers(len(own or settings)))]
            here = self._at(_with(base.values, k, value))
            beside = [other for other in values if np.max(np.abs(other - value), initial=0) == 1][:2]
            others = [values[i] for i in rng.integers(len(values), size=_OTHERS) if i != j]
            for other in [*beside, *others]:
                there = self._at(_with(base.values, k, other))
                if here is None or there is None:
                    continue
                if self._is_wrong(here, there) or self._is_wrong(there, here):
                    return True
                if any(other is each for each in beside) and self._are_apart(here, there):
                    return True
        return False

    def _is_cut(self, k: int, settings: Sequence[Setting]) -> bool:
        """Whether no chain passes a point of a real variable, which halving finds."""
        for here, other in pairwise(settings[: _CUTS + 1]):
            low: Setting | None = here
            high = self._at(_with(here.values, k, other.values[k]))
            for _ in range(_HALVINGS):
                if low is None or high is None or not self._are_apart(low, high):
                    break
                middle = self._at(_with(low.values, k, (low.values[k] + high.values[k]) / 2))
                low, high = (low, middle) if middle and self._are_apart(low, middle) else (middle, high)
            else:
                return True
        return False

    def _whole(self, k: int, settings: Sequence[Setting]) -> list[np.ndarray]:
        """Return what a whole number may be: of a small support, or of settings and some more."""
        variable: Any = self._given[k]
        start = settings[0].values[k]
        support = finite_support(variable) if np.ndim(start) == 0 else None
        if support is not None:
            return [np.asarray(value, dtype=start.dtype) for value in support]
        found = [np.asarray(start + step) for step in _STEPS] if finite_support(variable) is None else []
        found += [s.values[k] for s in settings]
        return list(np.unique(np.stack(found), axis=0)[:: max(len(found) // _VALUES, 1)])

    def _is_wrong(self, here: Setting, there: Setting) -> bool:
        """Whether a number has a probability at one setting, and the density is wrong at another."""
        before, after = here.rows, there.rows
        for number in here.repeated[:_NUMBERS]:
            at = before == number
            # what is no number now, or infinite, says nothing of where there was one
            gone = at.any(axis=0) & ~np.any((after == number) | (at & ~np.isfinite(after)), axis=0)
            if np.count_nonzero(at[:, gone]) >= OFTEN:
                self._asked += 1
                if self._is_density(number, here, at & gone, there):
                    return self._draws.is_alone(number, here.values)
        return False

    def _is_density(self, number: float, here: Setting, gone: np.ndarray, there: Setting) -> bool:
        """Whether the log density at another setting speaks of draws near a number that is not drawn."""
        own, other, shape = here.values, there.values, here.drawn.shape[1:]
        first = np.argmax(gone.sum(axis=1))
        draw, at = here.drawn[first], gone[first].reshape(shape)
        distance = np.abs(here.drawn[np.isfinite(here.drawn)] - number)
        far = np.median(distance[distance > 0]) if np.any(distance > 0) else max(abs(number), 1.0)
        side = at * max(_SIDE * far, 1e-12 * abs(number))
        before, after = self._draws.logp(draw, own), self._draws.logp(draw, other)
        told = np.abs(after) <= _LARGE
        by_entry = after.shape == shape  # single numbers, not vectors
        continuous = np.zeros(after.shape, dtype=bool)
        for beside in (draw - side, draw + side):
            was, now = self._draws.logp(beside, own), self._draws.logp(beside, other)
            continuous |= told & _close(now, after) & ~_close(was, before)
        # of rows that are chosen for what they lack, each has to promise enough; not if it is all of them
        promised = np.where(told & at, np.exp(np.minimum(after, 0)), 0) if by_entry else np.zeros(shape)
        promised *= self._draws.number_of_many(there.drawn)
        is_gone = not np.any(there.drawn == number)
        if not np.any(continuous) and max(np.max(promised), is_gone * np.sum(promised)) < _PROMISED:
            return False
        # on a grid, probabilities of two neighbours may be the same
        never = at & ~np.any(self._draws.many(other) == number, axis=0)
        if not by_entry:
            return bool(np.any(continuous) and np.any(never))
        missing = np.any(promised[never] >= _PROMISED)
        if is_gone and np.all(never == at):
            missing |= np.sum(promised) >= _PROMISED
        return bool(np.any(continuous & never) or missing)

    def _are_apart(self, here: Setting, there: Setting) -> bool:
        """Whether no draw of a law is possible under the next, so that a chain does not come there."""
        sides = ((here, there), (there, here))
        gone = [(a, s) for s, o in sides for a in s.repeated[:_NUMBERS] if not np.any(o.drawn == a)]
        if not gone or any(self._any_possible(s, o) for s, o in sides):
            return False
        return any(self._draws.is_alone(number, setting.values) for number, setting in gone)

    def _any_possible(self, here: Setting, there: Setting) -> bool:
        """Whether some draws of a law have a density under another, but for those with none under either."""
        for draw in here.drawn[:_TRIED]:
            own, other = (self._draws.logp(draw, s.values) for s in (here, there))
            if not np.any(np.isneginf(other) & ~np.isneginf(own)):
                return True
        return False


def _with(values: Values, k: int, value: np.ndarray) -> Values:
    return [value if j == k else each for j, each in enumerate(values)]


def _close(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | (np.abs(a - b) <= _CONTINUOUS * (1 + np.abs(b)))
