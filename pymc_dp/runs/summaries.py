"""What is kept of one fit: summaries of its draws, thinned draws where asked, and how well it went."""

from typing import Any

import numpy as np
from xarray import DataTree

QUANTILES = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
SUMMARY = ("mean", "sd", "ess_bulk", "ess_tail", "r_hat", *(f"q{q:g}" for q in QUANTILES))
# Tails whose effective draws are counted: ArviZ's, whatever a worker has set for its own.
_TAIL = 0.89
# Above or below which PyMC warns of a chain.
MOST_RHAT, LEAST_ESS = 1.01, 100


def summarised(draws: np.ndarray) -> np.ndarray:
    """Return the statistics `SUMMARY` of draws, shape (chains, draws, ...), along a leading axis."""
    from arviz_stats.base import array_stats  # here, because it takes a while and most sessions need none

    flat = np.ascontiguousarray(np.moveaxis(draws.reshape(*draws.shape[:2], -1).astype(float), 2, 0))
    pooled = flat.reshape(len(flat), draws.shape[0] * draws.shape[1])
    statistics = [
        pooled.mean(axis=1),
        pooled.std(axis=1, ddof=1) if pooled.shape[1] > 1 else np.full(len(flat), np.nan),
        array_stats.ess(flat, method="bulk"),
        array_stats.ess(flat, method="tail", prob=_TAIL),
        array_stats.rhat(flat, method="rank") if draws.shape[0] > 1 else np.full(len(flat), np.nan),
        *np.quantile(pooled, QUANTILES, axis=1),
    ]
    return np.array(statistics).reshape(len(SUMMARY), *draws.shape[2:])


def acceptances(idata: DataTree) -> dict[str, float]:
    """Return the means of all statistics of steps that are rates of acceptance, by name."""
    statistics = idata["sample_stats"].dataset
    return {
        str(name): float(np.mean(values.values.astype(float)))
        for name, values in statistics.data_vars.items()
        if "accept" in str(name) and values.dtype.kind in "bf"
    }


def complaints(summaries: dict[str, np.ndarray], idata: DataTree) -> str:
    """Say what speaks against convergence, as PyMC would warn of it; an empty string if nothing does."""
    found = []
    r_hat = _extreme(summaries, "r_hat", np.nanmax)
    if r_hat > MOST_RHAT:
        found.append(f"R-hat up to {r_hat:.3f}")
    n_chains = idata["posterior"].sizes["chain"]
    ess = _extreme(summaries, "ess_bulk", np.nanmin)
    if ess < LEAST_ESS * n_chains:
        found.append(f"as few as {ess:.0f} effective draws")
    statistics = idata["sample_stats"].dataset
    if "diverging" in statistics and (n := int(statistics["diverging"].sum())):
        found.append(f"{n} divergences")
    return "; ".join(found)


def _extreme(summaries: dict[str, np.ndarray], name: str, of: Any) -> float:
    values = np.concatenate([np.ravel(s[SUMMARY.index(name)]) for s in summaries.values()] or [np.empty(0)])
    return float(of(values)) if np.isfinite(values).any() else np.nan


def thinned(draws: np.ndarray, kept: int | None) -> np.ndarray:
    """Return that many draws of each chain, evenly spread; all of them for None."""
    n = draws.shape[1]
    if kept is None or kept >= n:
        return draws
    return draws[:, np.linspace(0, n - 1, kept).round().astype(int)]
