"""Clamping what one record contributes to a query, and by how much it can then change the query."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast, Mul, Neg, TrueDiv
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.datarows import fault_in_rows, is_row_by_row, number_of_rows
from pymc_dp.query.publicshapes import is_fixed, is_number, is_shape, public_array, value_is_public
from pymc_dp.query.records import clamp, record_sum, says_its_records
from pymc_dp.query.rowlocal import RowAnalysis, joined_lengths, leaves_of, lengths_of

_MIXED = (
    "rows mix several records, repeat one, or are along another axis than the leading one of the records: "
    "write them so that row i is computed from record i"
)
_TOTALS = "rows are computed from a dp.record_sum, which leaves no records: release that sum itself"


def clamp_query(query: TensorVariable, bounds: tuple[Any, Any]) -> tuple[TensorVariable, np.ndarray]:
    """Clamp what one record can contribute to a query, and say by how much it can change it.

    Rows of a local query are clamped elementwise. Of a sum or mean over the leading axis (possibly
    scaled by a constant, negated, or stacked), each record's contribution is clamped before it is summed.

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
    if not is_local(query):
        raise ValueError(
            "`bounds` cannot be applied to this query: it is neither local (row i computed from "
            "record i only) nor a plain sum or mean over the records, whichever of the arrays in it hold "
            f"the records, so what one record can change does not follow from them: {_why(query)}. Or clamp "
            "the contributions yourself (dp.record_sum(dp.clamp(x, lo, hi)); sums by a public group, of "
            "which one record changes one: pt.zeros(k)[group].inc(dp.clamp(x, lo, hi))) and pass "
            "`sensitivity=`."
        )
    row = lengths_of(query)[1:]
    _check_broadcast(lo, hi, query.ndim - 1, row)
    return clamp(query, public_array(lo), public_array(hi)), np.broadcast_to(hi - lo, row)


def is_local(t: TensorVariable) -> bool:
    """Whether row i of `t` is computed from row i of the variables that have its leading axis.

    Which of several variables hold the records is not known, so that the verdict must hold whichever
    do: another one may at most be broadcast along axes of its own. Without random variables these are
    the arrays of data behind `t`; see :mod:`pymc_dp.query.datarows`.
    """
    return _fault_in_rows(t) is None


def _fault_in_rows(t: TensorVariable, declared: bool = False) -> str | None:
    """Return why rows are not one record's each; `declared` says that their axis is that of the people."""
    variables = {v for v in rvs_in_graph([t]) if isinstance(v, TensorVariable)}
    if _adds_up_records(t, variables):
        return _TOTALS
    if not variables:
        return fault_in_rows(t, declared)
    return None if t.ndim and _is_local_in_records(t, variables) else _MIXED


def _adds_up_records(t: TensorVariable, variables: Collection[Variable]) -> bool:
    """Whether `t` has a sum behind it that was said to be over the records, which leaves no rows."""
    totals = [v for v in ancestors([t], blockers=variables) if says_its_records(v)]
    return bool(totals) and (not variables or bool(leaves_of(totals, variables)))


def _is_local_in_records(t: TensorVariable, variables: Collection[Variable]) -> bool:
    lengths = {
        v: lengths_of(v)[0]
        for v in leaves_of([t], variables)
        if v.owner is not None and v.type.ndim - getattr(v.owner.op, "ndim_supp", 0) >= 1
    }
    lengths.update(joined_lengths([t], variables))  # type: ignore[arg-type]
    roles = {
        n: RowAnalysis({v for v in lengths if lengths[v] == n}, n, variables).role(t)
        for n in set(lengths.values())
    }
    rows = {n: role for n, role in roles.items() if role.kind != "free"}
    if not rows or not all(map(is_row_by_row, rows.values())):
        return False
    # where PyTensor does not know the length, one record could be repeated over many rows
    return t.type.shape[0] is not None or {number_of_rows(role, n) for n, role in rows.items()} == {
        lengths_of(t)[0]
    }


def is_public(factor: TensorVariable, query: TensorVariable) -> bool:
    """Whether a factor of a query is known without any record: a number written there, or a shape.

    In a query of data every array may be confidential, and what is computed from one is too. In a
    model data are known, but one that can be set anew would change what the guarantee was computed from.
    """
    if rvs_in_graph([query]):  # evaluating a random factor would take one draw for the scale
        return is_shape(factor) and is_fixed(factor)
    return value_is_public(factor, is_number, in_model=False)


def resizable_lengths(query: TensorVariable) -> tuple[int, ...] | None:
    """Lengths that what one record can change depends on; None where no resizable data set them.

    The first is the number of records where the query divides by a length, otherwise -1; then the
    lengths of the statistics; then all lengths that the query computes with, if it divides by one.
    """
    summed = _summed(query)
    if summed is None:
        return None if None not in query.type.shape[1:] else present_lengths(query, False)
    divides = any(None in v.type.shape for v in _measured(query))
    if not divides and None not in query.type.shape:
        return None
    return present_lengths(query, divides)


def present_lengths(query: TensorVariable, divides: bool) -> tuple[int, ...]:
    """Return the lengths of :func:`resizable_lengths` as they are now."""
    summed = _summed(query)
    if summed is None:  # a local query, to which one person contributes one row
        return (-1, *lengths_of(query)[1:])
    if not divides:
        return (-1, *lengths_of(query))
    measured = sorted({lengths_of(v) for v in _measured(query)})
    return (lengths_of(summed)[0], *lengths_of(query), *(n for lengths in measured for n in lengths))


def _measured(query: TensorVariable) -> list[TensorVariable]:
    """Return the variables whose lengths a query computes with."""
    nodes = (v.owner for v in ancestors([query], blockers=rvs_in_graph([query])))
    return [node.inputs[0] for node in nodes if node is not None and isinstance(node.op, Shape | Shape_i)]


def _why(query: TensorVariable) -> str:
    """Return what keeps the rows of a query from being one record's each, with a remedy."""
    rows, total = query, None
    for v in ancestors([query], blockers=rvs_in_graph([query])):
        if v.owner is not None and isinstance(v.owner.op, Sum) and v.owner.inputs[0].ndim:
            rows, total = v.owner.inputs[0], v
            break
    fault = _fault_in_rows(rows, total is not None and says_its_records(total))
    return fault or "what is computed of the sum is more than a public multiple of it: release the sum itself"


def _summed(query: TensorVariable) -> TensorVariable | None:
    """Return what a query adds up over the records."""
    for v in ancestors([query], blockers=rvs_in_graph([query])):
        if v.owner is not None and isinstance(v.owner.op, Sum):
            axis = v.owner.op.axis
            if axis is None or 0 in axis:
                return v.owner.inputs[0]  # type: ignore[return-value]
    return None


def contributions(node: Apply) -> tuple[TensorVariable, tuple[int, ...]] | None:
    """Return what a sum over the records adds up, row by row, and over which axes; None for others."""
    if not isinstance(node.op, Sum):
        return None
    (t,) = node.inputs
    axes = tuple(range(t.ndim)) if node.op.axis is None else tuple(node.op.axis)
    if 0 not in axes:
        return None
    rest = [a for a in axes if a != 0]
    rows = t.sum(axis=rest) if rest else t
    return (t, axes) if _fault_in_rows(rows, says_its_records(node.outputs[0])) is None else None


def _clamp_sum(
    query: TensorVariable, lo: np.ndarray, hi: np.ndarray
) -> tuple[TensorVariable, np.ndarray] | None:
    node = query.owner
    if node is None:
        return None
    summed = contributions(node)
    if summed is not None:
        t, axes = summed
        rest = [a for a in axes if a != 0]
        rows = t.sum(axis=rest) if rest else t
        _check_broadcast(lo, hi, rows.ndim - 1, lengths_of(rows)[1:])
        width = np.broadcast_to(hi - lo, lengths_of(query))
        clamped = clamp(rows, public_array(lo), public_array(hi))
        return record_sum(clamped) if says_its_records(query) else clamped.sum(axis=0), width
    if isinstance(node.op, DimShuffle):
        return _clamp_turned(query, lo, hi)
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Cast):
        source, target = np.dtype(node.inputs[0].type.dtype), np.dtype(query.type.dtype)
        if target.kind != "f" and not np.can_cast(source, target):  # truncation jumps by 1, or around
            return None
        # not cast again: fractions must not be truncated, nor a sum rounded to the gaps of few digits,
        # over which one record counts for more than its own share
        return _clamp_sum(node.inputs[0], lo, hi)
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Neg):
        if np.dtype(query.type.dtype).kind == "u":  # would wrap around
            return None
        inner = _clamp_sum(node.inputs[0], lo, hi)
        return None if inner is None else (-inner[0], inner[1])
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
            if isinstance(node.op.scalar_op, TrueDiv) and not np.all(other.eval()):
                raise ValueError(
                    "query divides by 0, as a mean over no record does: add up with dp.record_sum(...) "
                    "instead, which is 0 for an empty group, or leave such a group out."
                )
            # in few bits the least whole number has no absolute value, and an inverse is rounded
            factor = np.asarray(other.eval(), dtype=float)
            args = [inner[0], other] if position == 0 else [other, inner[0]]
            scale = 1 / factor if isinstance(node.op.scalar_op, TrueDiv) else factor
            return node.op(*args), np.abs(scale) * inner[1]
        return None
    if isinstance(node.op, MakeVector | Join):
        if isinstance(node.op, Join) and query.ndim != 1:
            return None
        sizes = [1 if v.ndim == 0 else lengths_of(v)[0] for v in node.inputs]
        total = sum(sizes)
        los, his = np.broadcast_to(lo, total), np.broadcast_to(hi, total)
        parts, widths, start = [], [], 0
        for v, size in zip(node.inputs, sizes, strict=True):
            stop = start + size  # type: ignore[operator]
            inner = _clamp_sum(
                v, los[start:stop].reshape(lengths_of(v)), his[start:stop].reshape(lengths_of(v))
            )
            if inner is None:
                return None
            parts.append(inner[0])
            widths.append(np.ravel(inner[1]))
            start = stop
        whole = pt.stack(parts) if isinstance(node.op, MakeVector) else pt.concatenate(parts)
        return whole, np.concatenate(widths)
    return None


def _clamp_turned(
    query: TensorVariable, lo: np.ndarray, hi: np.ndarray
) -> tuple[TensorVariable, np.ndarray] | None:
    """Clamp a sum whose axes were exchanged, added or dropped; bounds are of the axes as they are now."""
    op, source = query.owner.op, query.owner.inputs[0]
    if _clamp_sum(source, np.zeros(()), np.ones(())) is None:
        return None
    now, kept = lengths_of(query), [axis for axis in op.new_order if axis != "x"]
    _check_broadcast(lo, hi, len(now), now)
    added = tuple(k for k, axis in enumerate(op.new_order) if axis == "x")
    dropped = tuple(k for k in range(source.ndim) if k not in kept)

    def turned_back(bound: np.ndarray) -> np.ndarray:
        if bound.ndim == 0:
            return bound
        own = np.broadcast_to(bound, now).squeeze(axis=added)
        return np.expand_dims(np.transpose(own, np.argsort(kept)), dropped)

    inner = _clamp_sum(source, turned_back(lo), turned_back(hi))
    if inner is None:
        return None
    width = np.transpose(inner[1].squeeze(axis=dropped), kept)
    return op(inner[0]), np.expand_dims(width, added)


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
