"""Credible bands of a function: pointwise, and simultaneous over all points."""

from __future__ import annotations

import numpy as np
import scipy


def pointwise_band(draws: np.ndarray, prob: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the equal-tailed interval at every point.

    Parameters
    ----------
    draws : ndarray, shape (draws, points)
    prob : float
        Posterior probability of the interval at each point.

    Returns
    -------
    lower, upper : ndarray, shape (points,)
    """
    lower, upper = np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    return lower, upper


def simultaneous_band(draws: np.ndarray, prob: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the band that contains a share `prob` of the draws entirely, and none of the others.

    Draws are ordered by their most extreme rank, from either end, at any point; ties are broken by how often
    a draw has this rank, then by its next rank. The band spans the least extreme draws. Ranks do not depend
    on scale, so that points where the draws have long tails do not widen the band elsewhere.

    Parameters
    ----------
    draws : ndarray, shape (draws, points)
    prob : float
        Share of the draws in the band, rounded up to whole draws.

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
    # equal values share the less extreme rank
    depth = np.minimum(
        scipy.stats.rankdata(draws, "max", axis=0), size + 1 - scipy.stats.rankdata(draws, "min", axis=0)
    )
    depth.sort(axis=1)
    kept = draws[np.lexsort(depth.T[::-1])[size - wanted :]]
    return kept.min(axis=0), kept.max(axis=0)
