"""Random walks, trajectories or both in turn: what a chain goes on with, by what either was worth in tuning.

A few hundred draws tell how many independent ones they are worth to within a factor of two or three. Where
that does not say which updates are better for their cost, both are made in turn: whatever is true, at most
half of the time is lost.
"""

from typing import Literal

import numpy as np

Choice = Literal["walks", "both", "trajectories"]

# How much more random walks have to be worth for the same cost to be gone back to: theirs was poor, and a
# chain that has seen a part of the posterior only looks better than it is.
_BETTER = 2.0
# Variance of the logarithm of an estimate of the effective number of draws, times that number: (4 M + 2) / n
# for n draws with autocorrelations up to a lag M, which is taken as five times the autocorrelation time
# (Sokal 1997, section 3).
_UNCERTAIN = 10.0


def worth(draws: np.ndarray, variance: np.ndarray) -> float:
    """Return how many independent draws one of a chain is worth, for the parameter that mixes worst.

    Draws that have seen less than the variance of a parameter are worth as much less.
    """
    # imported here, because it takes a second to load, and few chains need it
    from arviz_stats.base import array_stats

    sizes = array_stats.ess(draws[None], chain_axis=0, draw_axis=1, method="bulk")
    return float(np.min(sizes * draws.var(axis=0) / np.maximum(variance, 1e-300))) / len(draws)


def choose(
    walks: np.ndarray, trajectories: np.ndarray, prices: tuple[float, float]
) -> tuple[Choice, float, float]:
    """Choose updates, given the draws of either.

    Parameters
    ----------
    walks, trajectories : ndarray, shapes (n, k) and (m, k)
        Draws of the parameters by random walks and by trajectories, while tuning.
    prices : tuple of float
        What a draw by either costs.

    Returns
    -------
    choice : {"walks", "both", "trajectories"}
        Trajectories if their draws were worth more for their cost, or hardly less; walks if they were worth
        more by a factor of two and a standard deviation of what was estimated; both in turn in between.
    by_walks, by_trajectories : float
        Independent draws that one is worth.
    """
    variance = np.maximum(walks.var(axis=0), trajectories.var(axis=0))
    by_walks, by_trajectories = worth(walks, variance), worth(trajectories, variance)
    with np.errstate(divide="ignore", invalid="ignore"):  # a parameter may have stood still
        better = np.log(by_walks / prices[0]) - np.log(by_trajectories / prices[1])
        sizes = np.array([by_walks * len(walks), by_trajectories * len(trajectories)])
        uncertain = np.sqrt(np.sum(_UNCERTAIN / sizes))
    if better < 0:
        return "trajectories", by_walks, by_trajectories
    if better < np.log(_BETTER) + uncertain:
        return "both", by_walks, by_trajectories
    return "walks", by_walks, by_trajectories
