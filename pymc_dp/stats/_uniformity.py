"""Whether ranks are uniform: a simultaneous test on their distribution function."""

from functools import lru_cache

import numpy as np


def ecdf_p_value(ranks: np.ndarray, n_draws: int, *, simulations: int = 20_000) -> float:
    """p-value of the hypothesis that ranks are uniform on 0, ..., n_draws.

    The statistic is the smallest pointwise binomial tail over the ECDF; its null distribution is simulated,
    which is the simulation form of simultaneous bands. Below the resolution of the simulation, the union
    bound over the evaluation points, which is always valid, takes over.

    Parameters
    ----------
    ranks : ndarray of int, shape (n,)
    n_draws : int
    simulations : int

    References
    ----------
    Säilynoja, Bürkner & Vehtari (2022), "Graphical test for discrete uniformity".
    """
    ranks = np.asarray(ranks)
    count = min(n_draws, 50)
    points = tuple(np.unique(np.linspace(0, n_draws - 1, count).astype(int)).tolist())
    at = np.asarray(points)
    below = (ranks[:, None] <= at).sum(0)
    value = float(_ecdf_statistic(below, ranks.size, (at + 1) / (n_draws + 1)))
    null = _ecdf_null(ranks.size, n_draws, points, simulations)
    simulated = (1 + np.searchsorted(null, value, side="right")) / (1 + simulations)
    return float(min(simulated, value * at.size))


def _ecdf_statistic(below: np.ndarray, n: int, point: np.ndarray) -> np.ndarray:
    """Smallest pointwise two-sided binomial tail over the evaluation points (last axis)."""
    from scipy import stats  # here, because it takes a while and most sessions need none

    lower = stats.binom.cdf(below, n, point)
    upper = stats.binom.sf(below - 1, n, point)
    return np.minimum(1.0, 2 * np.minimum(lower, upper)).min(-1)


@lru_cache(maxsize=32)
def _ecdf_null(n: int, n_draws: int, points: tuple[int, ...], simulations: int) -> np.ndarray:
    """Null distribution of the statistic, sorted (the counts between points are multinomial)."""
    rng = np.random.default_rng(20220331)
    at = np.asarray(points)
    share = np.diff(np.concatenate([[-1], at, [n_draws]])) / (n_draws + 1)
    counts = rng.multinomial(n, share, simulations)[:, :-1].cumsum(1)
    return np.sort(_ecdf_statistic(counts, n, (at + 1) / (n_draws + 1)))
