"""Parameters that move at once, with the counts whose law they enter: how far, and what tuning learns of it.

Groups are of two kinds. The entries of a parameter that each have cells of their own are accepted or refused
one by one. Parameters that have cells in common move together, and those of the first kind follow them in
proportion, as tuning has seen them to: where an intercept and the effects of rows hold each other, neither
could move alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from pymc_dp.step_methods.updates.walks import adapt

# Acceptance that walks of one number and of several aim at, and how fast they learn (Vihola 2012).
_ALONE, _TOGETHER, _DECAY = 0.44, 0.3, 0.6
# A walk of this acceptance has so many times the variance of what it moves in, over the number of numbers.
_OPTIMAL = 2.38**2
# Numbers seen from which proportions are learnt, and each time that there are twice as many.
_SEEN = 50


class Group:
    """Parameters that move at once, part by part.

    Parameters
    ----------
    names : list of str
        Of their values.
    parts : ndarray of int
        The part that each number belongs to.
    cells, terms : ndarray of int
        The part that each cell, and each term of the density, depends on; negative where it is none.
    known : ndarray of bool
        Cells in something that is known exactly: parts with such a cell do not move.

    Attributes
    ----------
    leading : list of str
        Those of them that do not follow others.
    begins, members : ndarray of int32
        The cells of each part.
    movable : ndarray of bool
        Which parts move.
    on : ndarray, shape (1,)
        Whether it is worth while to move them.
    """

    factor: np.ndarray
    spread: np.ndarray

    def __init__(
        self,
        names: Sequence[str],
        parts: np.ndarray,
        cells: np.ndarray,
        terms: np.ndarray,
        known: np.ndarray,
    ):
        self.names, self.leading, self.parts = list(names), list(names), np.ravel(parts)
        n, touched = int(self.parts.max()) + 1, cells >= 0
        counted = np.bincount(cells[touched], minlength=n)
        self.begins = np.concatenate([[0], np.cumsum(counted)]).astype(np.int32)
        self.members = np.argsort(cells, kind="stable")[cells.size - counted.sum() :].astype(np.int32)
        self.terms = np.where(terms >= 0, terms, n)
        self.movable = (counted > 0) & (np.bincount(cells[touched], known[touched], n) == 0)
        # numbers seen, and moves learnt from, since the adaptation last began anew
        self.n_seen, self.n_learnt, self.on = np.zeros(1), np.zeros(1), np.ones(1)
        self.mean = np.zeros(self.parts.size)

    def change_of(self, terms: np.ndarray) -> np.ndarray:
        """Return the sum of the terms of each part, minus infinity for those that do not move."""
        sums = np.bincount(self.terms, terms, self.movable.size + 1)[:-1]
        return np.where(self.movable, sums, -np.inf)

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return a step, symmetric about 0, and the standard normal numbers that it was made of."""

    @abstractmethod
    def learn(self, z: np.ndarray, theta: np.ndarray, probability: np.ndarray) -> None:
        """Learn from one move."""

    @abstractmethod
    def reach(self) -> float:
        """Return the largest share of the variance of a number that moves go through."""

    def again(self) -> None:
        """Begin anew to learn, from what is known."""
        self.n_learnt[:], self.n_seen[:], self.mean[:], self.spread[:] = 0.0, 0.0, 0.0, 0.0

    def _seen(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take numbers into the mean; return their distances to what it was, and to what it is."""
        self.n_seen += 1
        before = theta - self.mean
        self.mean += before / self.n_seen
        return before, theta - self.mean

    @property
    def arrays(self) -> list[np.ndarray]:
        """What it has learnt."""
        return [self.factor, self.spread, self.mean, self.n_seen, self.n_learnt, self.on]


class OneByOne(Group):
    """Parts that are accepted or refused one by one; the parameters are those of :class:`Group`."""

    def __init__(self, *of: object):
        super().__init__(*of)  # type: ignore[arg-type]
        self.factor, self.spread = np.full(self.movable.size, 0.1), np.zeros(self.parts.size)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return a step: each part has a length of its own."""
        z = rng.standard_normal(self.parts.size)
        return self.factor[self.parts] * z, z

    def learn(self, z: np.ndarray, theta: np.ndarray, probability: np.ndarray) -> None:
        """Learn the lengths from one move."""
        self.factor *= np.exp((self.n_learnt[0] + 1.0) ** -_DECAY * (probability - _ALONE))
        self.n_learnt += 1
        before, after = self._seen(theta)
        self.spread += before * after

    def reach(self) -> float:
        """Return the largest share of the variance of a number that moves go through."""
        variance = np.maximum(self.spread / max(self.n_seen[0], 1.0), 1e-300)
        share = self.factor[self.parts] ** 2 / _OPTIMAL / variance
        return float(np.max(share[self.movable[self.parts]]))


class Together(Group):
    """One part, of numbers that lead and others that follow in proportion.

    Parameters
    ----------
    leading : list of str
        Names of the parameters that lead: the first ones.
    n_leading : int
        How many numbers these are.
    *of
        As of :class:`Group`.

    Attributes
    ----------
    slopes : ndarray
        Steps of all numbers for those of the leading ones.
    """

    def __init__(self, leading: Sequence[str], n_leading: int, *of: object):
        super().__init__(*of)  # type: ignore[arg-type]
        self.leading = list(leading)
        self.factor, self.slopes = 0.1 * np.eye(n_leading), np.eye(self.parts.size, n_leading)
        self.spread = np.zeros((self.parts.size, n_leading))

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return a step of all numbers."""
        z = rng.standard_normal(len(self.factor))
        return self.slopes @ (self.factor @ z), z

    def learn(self, z: np.ndarray, theta: np.ndarray, probability: np.ndarray) -> None:
        """Learn the covariance of the steps from one move, and from time to time the proportions."""
        k = len(z)
        rate = min(0.5, k * (self.n_learnt[0] + 1.0) ** -_DECAY)
        adapt(self.factor, z, rate * (probability[0] - (_ALONE if k == 1 else _TOGETHER)))
        self.n_learnt += 1
        before, after = self._seen(theta)
        self.spread += before[:, None] * after[:k]
        doubled = np.log2(self.n_seen[0] / _SEEN)
        if len(theta) > k and doubled >= 0.0 and doubled == np.floor(doubled):
            self._learn_proportions()

    def _learn_proportions(self) -> None:
        k = len(self.factor)
        among, with_others = self.spread[:k], self.spread[k:]
        if np.linalg.cond(among) < 1e10:  # else some have not moved, or only all of them along one line
            self.slopes[k:] = np.linalg.solve(among, with_others.T).T
            self.n_learnt[:] = 0.0

    def reach(self) -> float:
        """Return the largest share of the variance of a leading number that moves go through."""
        k = len(self.factor)
        variance = np.diag(self.spread[:k]) / max(self.n_seen[0], 1.0)
        width = np.sum(self.factor**2, axis=1) * k / _OPTIMAL
        return float(np.max(width / np.maximum(variance, 1e-300)))

    @property
    def arrays(self) -> list[np.ndarray]:
        """What it has learnt."""
        return [*super().arrays, self.slopes]
