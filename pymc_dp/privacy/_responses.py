"""The law of the summed log ratio of independent randomized responses, the worst releases of pure guarantees.

While the sum has few values the law is exact. Otherwise it is computed on a lattice: the mass of a value is
moved to the two lattice points around it such that P and Q both keep their totals, and such a pair dominates
the first (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, *Connect the Dots*). Laws are convolved by
sums of positive numbers, so that no digits of small chances are lost.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
import scipy
from scipy.special import expit

_MOST_EXACT = 1 << 11
_MOST_POINTS = 1 << 15  # if more were needed, the lattice is coarser, so that the cost is larger but valid
_POINTS_PER_LOSS = 32.0  # one loss of root mean square size; those above 2 say little about the width needed


def summed_losses(epsilons: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return values of the summed loss, ascending, and their chances.

    Parameters
    ----------
    epsilons : list of float
        Of the releases.

    Returns
    -------
    losses, chances : ndarray
        Exact, or of a law that dominates the exact one. Not to be written to.
    """
    return _summed(tuple(sorted(Counter(epsilons).items())))


@lru_cache(maxsize=8)
def _summed(counts: tuple[tuple[float, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    counts = tuple((epsilon, count) for epsilon, count in counts if epsilon > 0)
    exact = math.prod(count + 1 for _, count in counts) <= _MOST_EXACT
    law = _exact(counts) if exact or len(counts) == 1 else _on_lattice(counts)
    for part in law:
        part.flags.writeable = False
    return law


def _of_equal(epsilon: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    truths = np.arange(count + 1)
    return (2 * truths - count) * epsilon, scipy.stats.binom.pmf(truths, count, expit(epsilon))


def _exact(counts: tuple[tuple[float, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    loss, chance = np.zeros(1), np.ones(1)
    for epsilon, count in counts:
        one = _of_equal(epsilon, count)
        loss, where = np.unique(np.add.outer(loss, one[0]).ravel(), return_inverse=True)
        chance = np.bincount(where.ravel(), weights=np.multiply.outer(chance, one[1]).ravel())
    return loss, chance


def _on_lattice(counts: tuple[tuple[float, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    epsilon, count = np.array(counts).T
    with np.errstate(under="ignore"):
        size = math.sqrt(float(count @ np.minimum(epsilon, 2.0) ** 2) / count.sum())
    width = max(size / _POINTS_PER_LOSS, 2 * float(count @ epsilon) / _MOST_POINTS)
    lowest, chance = 0, np.ones(1)
    for each, times in counts:
        first, one = _split(*_of_equal(each, times), width)
        lowest, chance = lowest + first, np.convolve(chance, one)
    return width * (lowest + np.arange(chance.size)), chance


def _split(loss: np.ndarray, chance: np.ndarray, width: float) -> tuple[int, np.ndarray]:
    """Return a law on the lattice: the index of its first point, and chances."""
    below = np.floor(loss / width)
    upper = chance * upper_share(loss, below * width, (below + 1) * width)
    at = (below - below[0]).astype(int)
    on = np.bincount(at, weights=chance - upper, minlength=at[-1] + 2)
    return int(below[0]), on + np.bincount(at + 1, weights=upper, minlength=at[-1] + 2)


def upper_share(loss: Any, below: Any, above: Any) -> np.ndarray:
    """Return the share of a loss that goes to the upper of two around it: P and Q keep their totals."""
    return np.clip(np.expm1(below - loss) / np.expm1(below - above), 0.0, 1.0)
