"""Credible bands of a function: at every point by itself, and at all points at once."""

from __future__ import annotations

import numpy as np
import scipy


def pointwise_band(draws: np.ndarray, prob: float) -> tuple[np.ndarray, np.ndarray]:
    """Equal-tailed interval at every point.

    Parameters
    ----------
    draws : ndarray, shape (draws, points)
    prob : float
        Posterior probability at every point by itself.

    Returns
    -------
    lower, upper : ndarray, shape (points,)
    """
    lower, upper = np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    return lower, upper


def simultaneous_band(draws: np.ndarray, prob: float) -> tuple[np.ndarray, np.ndarray]:
    """Band that holds a share `prob` of the draws entirely, and of the others none.

    A draw is as extreme as its most extreme rank, from either end, at any point; draws alike in that are
    told apart by how often they have this rank, then by the next one. The band spans the least extreme draws.
    Ranks make it free of scale, so that points where the draws have long tails do not widen it elsewhere.

    Parameters
    ----------
    draws : ndarray, shape (draws, points)
    prob : float
        Share of the draws, rounded up to whole draws.

    Returns
    -------
    lower, upper : ndarray, shape (points,)

    References
    ----------
    Myllymäki, Mrkvička, Grabarnik, Seijo & Hahn (2017), "Global envelope tests for spatial processes",
    section 4, for the order of the draws ("extreme rank lengths").
    """
    size = draws.shape[0]
    wanted = min(size, int(np.ceil(prob * size - 1e-9)))
    # equal values share the rank that is less extreme
    depth = np.minimum(
        scipy.stats.rankdata(draws, "max", axis=0), size + 1 - scipy.stats.rankdata(draws, "min", axis=0)
    )
    depth.sort(axis=1)
    kept = draws[np.lexsort(depth.T[::-1])[size - wanted :]]
    return kept.min(axis=0), kept.max(axis=0)
