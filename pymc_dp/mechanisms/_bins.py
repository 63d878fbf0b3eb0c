"""Cells of an interval, for the mechanisms that use only the bin of a record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_dp.privacy.bounds import parse_bounds
from pymc_dp.query.clamping import clamp_query
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.locality import fault_in_locality
from pymc_dp.query.publicshapes import public_array


def interval(bounds: Any) -> tuple[float, float]:
    """Return the ends of the interval that all records share."""
    lo, hi = parse_bounds(bounds)
    if lo.ndim:
        raise ValueError(
            f"bounds must be one interval (lo, hi) for a single number per record, got {lo.size} pairs."
        )
    return float(lo), float(hi)


def equal_edges(lo: float, hi: float, n_bins: int, name: str = "n_bins") -> tuple[float, ...]:
    """Return the edges of bins of equal width, `lo` and `hi` themselves included.

    `name` is the argument that sets the number of bins.
    """
    inner = lo + (hi - lo) * (np.arange(1, n_bins) / n_bins)
    edges = (lo, *inner.tolist(), hi)
    _check_distinct(edges, name)
    return edges


def parse_edges(edges: Any) -> tuple[float, ...]:
    """Return given edges of bins as a tuple of floats."""
    try:
        array = np.asarray(edges)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"edges must be known numbers, got {type(edges).__name__}: they are fixed, without looking "
            "at the data, when the release is declared."
        )
    if array.ndim != 1 or array.size < 3:
        raise ValueError(
            f"edges must be a vector of at least 3 numbers (2 bins), got shape {array.shape}: the "
            "count of a single bin is the number of records, which is public."
        )
    if not np.isfinite(array).all():
        raise ValueError("edges must be finite: values beyond the ends are counted in the end bins.")
    result = tuple(array.astype(float).tolist())
    _check_distinct(result, "edges")
    return result


def _check_distinct(edges: tuple[float, ...], name: str) -> None:
    steps = np.diff(edges)
    if not (steps > 0).all():
        where = int(np.flatnonzero(~(steps > 0))[0])
        raise ValueError(
            f"{name} must give ascending edges, got {edges[where]:g} followed by {edges[where + 1]:g}."
        )


def clamped_rows(mechanism: str, query: TensorVariable, lo: float, hi: float) -> TensorVariable:
    """Clamp a query of one number per record, and refuse any other query."""
    reason = f"got shape {tuple('?' if k is None else k for k in query.type.shape)}"
    if query.ndim == 1:
        fault = fault_in_locality(query)
        reason = f"and its rows are not one record's each: {fault}"
        if fault is None:
            return clamp_query(query, (lo, hi))[0]
    raise ValueError(
        f"{mechanism} needs a query of one number per record, shape (n,), {reason}. Pass the records "
        "themselves (row i computed from record i only)."
    )


def number_of_rows(query: TensorVariable) -> int:
    """Return a query's present number of records, on which its noise depends; refuse 0."""
    n = lengths_of(query)[0]
    if n == 0:
        raise ValueError(
            "query is of no records, and the noise level follows from their number: leave an empty group "
            "out, or release dp.record_sum(...) or a dp.PerturbedHistogram, with the noise for one record."
        )
    return n


def cell_of(y: TensorVariable, edges: tuple[float, ...]) -> TensorVariable:
    """Return the number of the cell that contains each value; the last cell includes its upper edge.

    Values are compared with the edges, here as in all other places: a computation from the width could put a
    value at an edge (a rounded or discrete record) into the neighbouring cell.
    """
    inner = public_array(np.asarray(edges[1:-1], dtype=pytensor.config.floatX))
    return pt.cast(pt.searchsorted(inner, y, side="right"), "int64")


def one_hot(y: TensorVariable, edges: tuple[float, ...]) -> TensorVariable:
    """Return the indicator (n, n_bins) of each row's bin.

    Values beyond the ends belong to the end bins, as if they had been clamped. Two comparisons per entry keep
    rows in a form that the analysis of queries reads as additive contributions.
    """
    inner = np.asarray(edges[1:-1], dtype=pytensor.config.floatX)
    lower = public_array(np.concatenate([[-np.inf], inner])[None, :])
    upper = public_array(np.concatenate([inner, [np.inf]])[None, :])
    column = y[:, None]
    return pt.cast(pt.ge(column, lower) & pt.lt(column, upper), pytensor.config.floatX)
