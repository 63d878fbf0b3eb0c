"""Clamping what one record contributes to a query, and by how much it can then change the query."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast, Mul, TrueDiv
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.records import clamp
from pymc_dp.rowlocal import RowAnalysis, is_shape, joined_lengths, leaves_of


def clamp_query(query: TensorVariable, bounds: tuple[Any, Any]) -> tuple[TensorVariable, np.ndarray]:
    """Clamp what one record can contribute to a query, and say by how much it can change it.

    Rows of a local query are clamped elementwise. Of a sum or mean over the leading axis (possibly
    scaled by a constant, or stacked), each record's contribution is clamped before it is summed.

    Parameters
    ----------
    query : TensorVariable
        Query over the records.
    bounds : tuple of array_like
        Lower and upper ends, scalars or one per statistic.

    Returns
    -------
    clamped : TensorVariable
        The query of clamped values.
    width : ndarray
        How much each statistic can change when one record is replaced, in the shape of the
        statistics (central) or of one row (local).

    Raises
    ------
    ValueError
        If the query is neither local nor a plain sum or mean, so that clamping it is ambiguous.
    """
    lo, hi = (np.asarray(b, dtype=float) for b in bounds)
    clamped = _clamp_sum(query, lo, hi)
    if clamped is not None:
        graph, width = clamped
        return graph, width
    if not _is_local(query):
        raise ValueError(
            "`bounds` cannot be applied to this query: it is neither local (row i computed from "
            "record i only) nor a plain sum or mean over the records, so what one record can "
            "change does not follow from them. Clamp the contributions yourself "
            "(dp.record_sum(dp.clamp(x, lo, hi))) and pass `sensitivity=`."
        )
    row = _lengths(query)[1:]
    _check_broadcast(lo, hi, query.ndim - 1, row)
    return clamp(query, lo, hi), np.broadcast_to(hi - lo, row)


def _is_local(t: TensorVariable) -> bool:
    """Whether row i of `t` is computed from row i of the variables that have its leading axis.

    Without random variables these are the longest arrays of data behind `t`.
    """
    if t.ndim == 0:
        return False
    variables = {v for v in rvs_in_graph([t]) if isinstance(v, TensorVariable)}
    if variables:
        lengths = {
            v: _lengths(v)[0]
            for v in leaves_of([t], variables)
            if v.owner is not None and v.type.ndim - getattr(v.owner.op, "ndim_supp", 0) >= 1
        }
        lengths.update(joined_lengths([t], variables))  # type: ignore[arg-type]
    else:
        data = _data_behind(t)
        longest = max((_lengths(v)[0] for v in data), default=0)
        lengths = {v: longest for v in data if _lengths(v)[0] == longest}
        variables = set(lengths)  # type: ignore[arg-type]
    # rows of a query over some of the records (y[:50]) are fewer than the records
    for n in {k for k in lengths.values() if k >= _lengths(t)[0]}:
        role = RowAnalysis({v for v in lengths if lengths[v] == n}, n, variables).role(t)
        once = role.rows is None or len(set(role.rows)) == len(role.rows)
        if role.kind == "row" and role.axis == 0 and once:
            return True
    return False


def _data_behind(t: Variable) -> list[TensorVariable]:
    """Arrays of data, constant or shared, whose values a graph is computed from; numbers are none."""
    shapes = [v for v in ancestors([t]) if v.owner is not None and isinstance(v.owner.op, Shape | Shape_i)]
    leaves = (v for v in ancestors([t], blockers=shapes) if v.owner is None)
    return [
        v for v in leaves if isinstance(v, TensorConstant | TensorSharedVariable) and np.prod(_lengths(v)) > 1
    ]


def is_public(factor: TensorVariable, query: TensorVariable) -> bool:
    """Whether a factor of a query is known without any record: a number written there, or a shape.

    In a query of data every array may be confidential, and what is computed from one is too.
    """
    if not is_shape(factor):  # evaluating it would take one random draw for the scale
        return False
    return bool(rvs_in_graph([query])) or not _data_behind(factor)


def _lengths(t: TensorVariable) -> tuple[int, ...]:
    """Lengths of the axes now: a width counts every statistic, also of resizable `pm.Data`."""
    shape = t.type.shape
    return tuple(int(k) for k in (t.shape.eval() if None in shape else shape))


def _clamp_sum(
    query: TensorVariable, lo: np.ndarray, hi: np.ndarray
) -> tuple[TensorVariable, np.ndarray] | None:
    node = query.owner
    if node is None:
        return None
    if isinstance(node.op, Sum):
        (t,) = node.inputs
        axes = tuple(range(t.ndim)) if node.op.axis is None else tuple(node.op.axis)
        if 0 not in axes or not _is_local(t):
            return None
        rest = [a for a in axes if a != 0]
        rows = t.sum(axis=rest) if rest else t
        _check_broadcast(lo, hi, rows.ndim - 1, _lengths(rows)[1:])
        width = np.broadcast_to(hi - lo, _lengths(query))
        return clamp(rows, lo, hi).sum(axis=0), width
    if isinstance(node.op, DimShuffle):
        inner = _clamp_sum(node.inputs[0], lo.squeeze(), hi.squeeze())
        if inner is None:
            return None
        return node.op(inner[0]), inner[1].reshape(_lengths(query))
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Cast):
        inner = _clamp_sum(node.inputs[0], lo, hi)
        return None if inner is None else (pt.cast(inner[0], query.dtype), inner[1])
    if (
        isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, TrueDiv | Mul)
        and len(node.inputs) == 2
    ):
        for position, part in enumerate(node.inputs):
            inner = _clamp_sum(part, lo, hi)
            if inner is None or (position == 1 and isinstance(node.op.scalar_op, TrueDiv)):
                continue
            other = node.inputs[1 - position]
            if not is_public(other, query):
                return None
            factor = np.asarray(other.eval())
            args = [inner[0], other] if position == 0 else [other, inner[0]]
            scale = 1 / factor if isinstance(node.op.scalar_op, TrueDiv) else factor
            return node.op(*args), np.abs(scale) * inner[1]
        return None
    if isinstance(node.op, MakeVector | Join):
        if isinstance(node.op, Join) and query.ndim != 1:
            return None
        sizes = [1 if v.ndim == 0 else _lengths(v)[0] for v in node.inputs]
        total = sum(sizes)
        los, his = np.broadcast_to(lo, total), np.broadcast_to(hi, total)
        parts, widths, start = [], [], 0
        for v, size in zip(node.inputs, sizes, strict=True):
            stop = start + size  # type: ignore[operator]
            inner = _clamp_sum(v, los[start:stop].reshape(_lengths(v)), his[start:stop].reshape(_lengths(v)))
            if inner is None:
                return None
            parts.append(inner[0])
            widths.append(np.ravel(inner[1]))
            start = stop
        return node.op(*parts) if isinstance(node.op, MakeVector) else pt.concatenate(parts), np.concatenate(
            widths
        )
    return None


def _check_broadcast(lo: np.ndarray, hi: np.ndarray, ndim: int, shape: Sequence[int | None]) -> None:
    for name, b in (("lower", lo), ("upper", hi)):
        fits = b.ndim <= ndim and all(
            s in (1, k) or k is None for s, k in zip(b.shape[::-1], tuple(shape)[::-1], strict=False)
        )
        if not fits:
            raise ValueError(
                f"`bounds` has a {name} end of shape {b.shape}, but one record contributes an "
                f"array of shape {tuple(shape)}: give scalars or one pair per statistic."
            )
