"""Convergence of draws: effective draws and R-hat of a density at every point, and of the worst parameter."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.stats._draws import SAMPLE_DIMS, group_of
from pymc_dp.stats._printing import entry_name

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


def slowest(idata: Any, names: list[str], counts: Collection[str] = ()) -> tuple[str | None, float, float]:
    """Return the parameter with the fewest effective draws, their number, and the iterations per draw.

    Counts that stand still, as those that exact numbers leave no choice, are not looked at.
    """
    posterior = group_of(idata, "posterior")
    kept = [name for name in names if name in posterior]
    if not kept:
        return None, math.nan, math.nan
    import arviz as az

    sizes = az.ess(posterior[kept], method="bulk")
    worst, fewest = None, math.inf
    for name in kept:
        values = sizes[name]
        # ArviZ counts every draw of a constant as effective, but a chain that never moved has no effective
        # draws.
        moved = posterior[name].max(("chain", "draw")) > posterior[name].min(("chain", "draw"))
        standing = math.inf if name in counts else 0.0
        flat = np.where(moved, np.nan_to_num(values, nan=0.0), standing).ravel()
        i = int(flat.argmin())
        if flat[i] < fewest:
            fewest = float(flat[i])
            at = np.unravel_index(i, values.shape)
            worst = entry_name(name, at)
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    return worst, fewest, draws / fewest if fewest > 0 else math.inf


def least_alike(idata: Any, names: list[str]) -> tuple[float, str | None]:
    """Return the largest R-hat, and whose it is; of what stands still, and of one chain, there is none."""
    posterior = group_of(idata, "posterior")
    kept = [name for name in names if name in posterior]
    largest, whose = math.nan, None
    if not kept or posterior.sizes["chain"] < 2:
        return largest, whose
    import arviz as az

    with np.errstate(divide="ignore", invalid="ignore"):
        found = az.rhat(posterior[kept])
    for name in kept:
        values = np.asarray(found[name])
        if np.isfinite(values).any():
            at = np.unravel_index(np.nanargmax(values), values.shape)
            if whose is None or values[at] > largest:
                largest, whose = float(values[at]), entry_name(name, at)
    return largest, whose
