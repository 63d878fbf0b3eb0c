"""Summaries of a random partition: which records are together, and one partition for all draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import scipy
import xarray as xr

from pymc_dp.stats._draws import by_appearance, canonical, labels_of, stacked
from pymc_dp.stats._partition_search import BinderLoss, InformationLoss, PartitionLoss

# Number of entries of a block of cluster indicators.
_BLOCK = 10_000_000
# Number of sampled partitions whose expected loss is computed.
_CANDIDATES = 100


def similarity_matrix(idata: Any, labels: str | None = None) -> xr.DataArray:
    """Return the posterior probabilities that two records are in one cluster.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, with draws of the labels.
    labels : str, optional
        Name of the labels; by default the variable called ``labels``, or the only integer variable with one
        dimension.

    Returns
    -------
    xarray.DataArray, shape (n, n)
        Symmetric, with ones on the diagonal.

    Raises
    ------
    TypeError
        `idata` or `labels` is not of the right kind.
    ValueError
        `idata` holds no labels, or `labels` names none or is needed.

    Notes
    -----
    Memory is n^2 numbers. The number of operations is proportional to n^2 times the number of clusters in all
    draws.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> import pymc_dp as dp
    >>> draws = np.array([[[0, 0, 1], [2, 2, 2], [1, 0, 0], [3, 3, 0]]])
    >>> posterior = xr.Dataset({"labels": (("chain", "draw", "record"), draws)})
    >>> print(dp.similarity_matrix(xr.DataTree.from_dict({"posterior": posterior})).values)
    [[1.   0.75 0.25]
     [0.75 1.   0.5 ]
     [0.25 0.5  1.  ]]
    """
    draws = labels_of(idata, labels)
    renamed, clusters = canonical(stacked(draws))
    first = draws.dims[2]
    second = f"{first}_other"
    coords = {}
    if first in draws.coords:
        coords = {first: draws[first].values, second: draws[first].values}
    return xr.DataArray(
        _similarity(renamed, clusters), dims=(first, second), coords=coords, name="similarity"
    )


def _similarity(labels: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    size, n = labels.shape
    together = np.zeros((n, n))
    start = 0
    while start < size:
        columns = np.cumsum(clusters[start:])
        stop = start + max(1, int(np.searchsorted(columns, max(1, _BLOCK // n), side="right")))
        offset = np.append(0, columns[: stop - start])
        # single precision holds counts up to 16 million exactly
        member = np.zeros((n, offset[-1]), dtype=np.float32)
        member[np.arange(n), labels[start:stop] + offset[:-1, None]] = 1
        together += member @ member.T
        start = stop
    return together / size


def point_partition(
    idata: Any, loss: Literal["VI", "binder"] = "VI", labels: str | None = None
) -> xr.DataArray:
    r"""Return the partition of least posterior expected loss.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, with draws of the labels.
    loss : {"VI", "binder"}, default "VI"
        ``"VI"``: variation of information, the entropies of both partitions minus twice their mutual
        information, in bits. ``"binder"``: share of the pairs of records that are together in one partition
        and apart in the other; this loss tends to give tiny clusters.
    labels : str, optional
        Name of the labels, as for :func:`similarity_matrix`.

    Returns
    -------
    xarray.DataArray of int64, shape (n,)
        Clusters 0, 1, ... in the order of their first records. The attribute ``expected_loss`` is the
        posterior mean of the loss, ``loss`` the name of the loss.

    Raises
    ------
    TypeError
        `idata` or `labels` is not of the right kind.
    ValueError
        `loss` is not known, `idata` holds no labels, or `labels` names none or is needed.

    Notes
    -----
    The expected loss is an average over all draws, not a bound. There are too many partitions to try them
    all. The search compares up to a hundred sampled partitions and those of agglomerative clustering by
    similarity, and improves the best of each kind by moves of single records and mergers of clusters, until
    none of these lowers the loss. No Python package for this was found on the package index (the R packages
    are *salso* and *mcclust.ext*), so that the search is our own; it is tested against all partitions of few
    records. A sweep over n records takes time proportional to n times the number of draws times the number of
    clusters.

    References
    ----------
    Wade & Ghahramani (2018), "Bayesian cluster analysis: point estimation and credible balls", section 2;
    Binder (1978), "Bayesian cluster analysis"; Dahl, Johnson & Müller (2022), "Search algorithms and loss
    functions for Bayesian clustering".

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> import pymc_dp as dp
    >>> draws = np.array([[[0, 0, 1, 1], [2, 2, 3, 3], [1, 0, 0, 0], [3, 3, 0, 0]]])
    >>> posterior = xr.Dataset({"labels": (("chain", "draw", "record"), draws)})
    >>> partition = dp.point_partition(xr.DataTree.from_dict({"posterior": posterior}))
    >>> partition.values
    array([0, 0, 1, 1])
    >>> print(round(partition.attrs["expected_loss"], 3))
    0.297
    """
    if loss not in ("VI", "binder"):
        raise ValueError(f"loss must be 'VI' or 'binder', got {loss!r}.")
    draws = labels_of(idata, labels)
    renamed, clusters = canonical(stacked(draws))
    similarity = _similarity(renamed, clusters)
    searched: PartitionLoss = BinderLoss(similarity) if loss == "binder" else InformationLoss(renamed)
    best, least = _search(searched, renamed, int(clusters.max()), similarity)
    record = draws.dims[2]
    return xr.DataArray(
        best,
        dims=(record,),
        coords={record: draws[record].values} if record in draws.coords else {},
        name="partition",
        attrs={"loss": loss, "expected_loss": least},
    )


def _search(
    loss: PartitionLoss, draws: np.ndarray, most: int, similarity: np.ndarray
) -> tuple[np.ndarray, float]:
    starts = []
    for kind in (_sampled(draws), _cuts(similarity, most)):
        candidates = [(loss.expected(labels), tuple(labels)) for labels in kind]
        starts += [np.array(labels) for _, labels in sorted(set(candidates))[:2]]
    ends = [loss.improved(labels) for labels in starts]
    losses = [loss.expected(labels) for labels in ends]
    at = int(np.argmin(losses))
    return ends[at], float(losses[at])


def _sampled(draws: np.ndarray) -> Iterator[np.ndarray]:
    """Iterate over evenly spaced draws."""
    kept = min(len(draws), _CANDIDATES)
    for i in np.arange(kept) * len(draws) // kept:
        yield by_appearance(draws[i])


def _cuts(similarity: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Iterate over agglomerative clusterings, from one cluster to a few more than in any draw."""
    n = len(similarity)
    yield np.zeros(n, dtype=np.int64)
    if n > 1:
        # rounding may make the matrix slightly asymmetric
        distance = scipy.spatial.distance.squareform(1.0 - (similarity + similarity.T) / 2, checks=False)
        numbers = np.arange(2, min(n, most + 5) + 1)
        for labels in scipy.cluster.hierarchy.cut_tree(
            scipy.cluster.hierarchy.linkage(np.maximum(distance, 0.0), "average"), numbers
        ).T:
            yield by_appearance(labels)
