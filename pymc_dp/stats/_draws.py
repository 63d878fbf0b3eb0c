"""Posterior draws of a mixture, read from what ``pm.sample`` returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

SAMPLE_DIMS = ("chain", "draw")


def group_of(idata: Any, name: str) -> xr.Dataset:
    """Return a group of results, or raise an error that says what is wrong with the results."""
    groups = getattr(idata, "children", None)
    if groups is None:
        raise TypeError(
            f"idata must be the xarray.DataTree that pm.sample returns, got {type(idata).__name__}."
        )
    if name not in groups:
        raise ValueError(f"idata has no group {name!r}: pass what pm.sample returned, with that group.")
    return groups[name].dataset


def posterior_of(idata: Any, names: Sequence[str]) -> xr.Dataset:
    """Return the posterior with its sample dimensions first; refuse one without draws of the variables."""
    posterior = group_of(idata, "posterior")
    missing = [name for name in names if name not in posterior]
    if missing:
        raise ValueError(
            f"idata.posterior has no {' and no '.join(missing)}: sample again, with var_names left out or "
            "with these names in it."
        )
    absent = [d for d in SAMPLE_DIMS if d not in posterior.dims]
    if absent:
        raise ValueError(
            f"idata.posterior has no dimension {' and no '.join(absent)}: pass what pm.sample returned."
        )
    posterior = posterior[list(names)].transpose(*SAMPLE_DIMS, ...)
    if not posterior.sizes["chain"] * posterior.sizes["draw"]:
        raise ValueError("idata holds no draws: sample with draws > 0.")
    return posterior


def thinned(posterior: xr.Dataset, n_draws: int | None) -> xr.Dataset:
    """Keep about `n_draws` draws, evenly spaced and the same ones of every chain."""
    if n_draws is None:
        return posterior
    if isinstance(n_draws, bool) or not isinstance(n_draws, int | np.integer) or n_draws < 1:
        raise ValueError(f"n_draws must be a positive integer, or None for all draws, got {n_draws!r}.")
    total = posterior.sizes["draw"]
    kept = min(total, -(-int(n_draws) // posterior.sizes["chain"]))
    return posterior.isel(draw=np.arange(kept) * total // kept)


def stacked(array: xr.DataArray) -> np.ndarray:
    """Return the values with all draws along one leading axis."""
    values = array.values
    return values.reshape(-1, *values.shape[2:])


def values_of(posterior: xr.Dataset, rv: Any) -> np.ndarray:
    """Return the draws of a variable of a model along one leading axis, in its own dtype."""
    values = stacked(posterior[str(rv.name)])
    shape = values.shape[1:]
    if len(shape) != rv.type.ndim or any(
        length not in (None, size) for length, size in zip(rv.type.shape, shape, strict=True)
    ):
        raise ValueError(
            f"idata.posterior has {rv.name} of shape {shape}, the model of shape {rv.type.shape}: pass the "
            "draws of this model."
        )
    return values.astype(rv.type.dtype, copy=False)


def labels_of(idata: Any, labels: str | None) -> xr.DataArray:
    """Return the draws of the labels, (chain, draw, n): those of the given name, or the only ones."""
    posterior = group_of(idata, "posterior")
    if labels is None:
        found = [str(name) for name, v in posterior.data_vars.items() if v.dtype.kind in "iu" and v.ndim == 3]
        if not found:
            raise ValueError(
                "idata.posterior holds no labels of records: sample again with var_names left out, or with "
                "the labels in it."
            )
        if len(found) > 1 and "labels" not in found:
            raise ValueError(
                f"labels= must say which partition is meant, idata.posterior holds {', '.join(found)}."
            )
        labels = "labels" if "labels" in found else found[0]
    elif not isinstance(labels, str):
        raise TypeError(f"labels must be the name of a variable, got {type(labels).__name__}.")
    draws = posterior_of(idata, [labels])[labels]
    if draws.ndim != 3 or draws.dtype.kind not in "iu" or not draws.size:
        raise ValueError(
            f"labels must name whole numbers, one for each record, but {labels} has dtype {draws.dtype} and "
            f"dimensions {draws.dims}."
        )
    return draws


def canonical(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rename the labels of each draw to 0, 1, ... without gaps.

    Parameters
    ----------
    labels : ndarray of int, shape (draws, n)

    Returns
    -------
    labels : ndarray of int64, shape (draws, n)
        New labels, in the order of the old ones.
    n_clusters : ndarray of int64, shape (draws,)
    """
    order = np.argsort(labels, axis=1, kind="stable")
    ordered = np.take_along_axis(labels, order, axis=1)
    ranks = np.zeros(labels.shape, dtype=np.int64)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=ranks[:, 1:])
    renamed = np.empty_like(ranks)
    np.put_along_axis(renamed, order, ranks, axis=1)
    return renamed, ranks[:, -1] + 1


def by_appearance(labels: np.ndarray) -> np.ndarray:
    """Rename labels to 0, 1, ... in the order in which they first appear."""
    _, first, renamed = np.unique(labels, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[np.argsort(first)] = np.arange(len(first))
    return ranks[renamed]
