"""Convergence of draws of a density at every point: the effective draws of its mean, and R-hat."""

from __future__ import annotations

import numpy as np
import xarray as xr

from pymc_dp.stats._draws import SAMPLE_DIMS

# Length of the shortest chains from which ArviZ computes estimates.
_SHORTEST = 4


def effective_draws(chains: np.ndarray) -> np.ndarray:
    """Return the effective number of draws of a mean, at every point.

    It is the number of draws where all draws are equal. Where chains are too short for an estimate, it is the
    number of chains, which are independent.

    Parameters
    ----------
    chains : ndarray, shape (chains, draws, points)

    Returns
    -------
    ndarray, shape (points,)
        Between 1 and the number of draws.
    """
    import arviz as az  # imported here, since it takes longer to load than all other imports together

    n_chains, n_draws, _ = chains.shape
    estimated = np.full(chains.shape[2], float(n_chains))
    if n_draws >= _SHORTEST:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = az.ess(_dataset(chains), method="mean")["f"].values
        estimated = np.where(np.isfinite(found), found, estimated)
    estimated[(chains == chains[:1, :1]).all(axis=(0, 1))] = n_chains * n_draws
    return np.clip(estimated, 1.0, n_chains * n_draws)


def r_hat(chains: np.ndarray) -> np.ndarray:
    """Return R-hat at every point of draws (chains, draws, points); nan for one chain, or equal draws."""
    if chains.shape[0] < 2 or chains.shape[1] < _SHORTEST:
        return np.full(chains.shape[2], np.nan)
    import arviz as az

    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = az.rhat(_dataset(chains))["f"].values
    return found


def _dataset(chains: np.ndarray) -> xr.Dataset:
    return xr.Dataset({"f": ((*SAMPLE_DIMS, "point"), chains)})
