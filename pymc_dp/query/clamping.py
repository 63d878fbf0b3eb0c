"""Clamping what one record contributes to a query, and by how much it can then change the query."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Sum
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.contributions import clamp, record_sum, says_its_records
from pymc_dp.query.counts import counted_rows, first_of
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.locality import fault_in_locality, is_local
from pymc_dp.query.publicshapes import public_array
from pymc_dp.query.sums import Multiple, Negative, Reading, Stack, Total, Turned, read_sums

# Nothing in an array of counts tells its cells from people, so that the message has the remedy for both.
ROWS_SHOW_THE_NUMBER = (
    "neighbours='add-remove' hides how many people there are, which a release with a row for each of them "
    "shows, and the rows of this query are taken for people: release sums over people, as in "
    "dp.record_sum(x). For a table of counts, add up a row of zeros and a single 1 for each person, "
    "dp.record_sum(category[:, None] == np.arange(k)), with sensitivity=1: a person who comes or goes "
    "changes one count by 1. Without `neighbours` the promise is another, replace-one: one person is "
    "exchanged for another, and how many there are is public."
)


def clamp_query(
    query: TensorVariable, bounds: tuple[Any, Any], neighbours: str = "replace-one"
) -> tuple[TensorVariable, np.ndarray]:
    """Clamp what one record can contribute to a query, and say by how much it can change it.

    Rows of a local query are clamped elementwise. Of a sum or mean over the leading axis (possibly
    scaled by a constant, negated, or stacked), each record's contribution is clamped before it is summed.

    Parameters
    ----------
    query : TensorVariable
        Query over the records.
    bounds : tuple of array_like
        Lower and upper ends, scalars or one per statistic.
    neighbours : {"replace-one", "add-remove"}
        Whether one record is exchanged for another, or there is one more or less.

    Returns
    -------
    clamped : TensorVariable
        The query of clamped values.
    width : ndarray
        How much each statistic can change with one record, in the shape of the statistics (central) or of
        one row (local).

    Raises
    ------
    ValueError
        If the query is neither local nor a plain sum or mean, so that clamping it is ambiguous; or if it is
        local, so that it shows how many records there are, and they may be added or removed.
    """
    lo, hi = (np.asarray(b, dtype=float) for b in bounds)
    change = _CHANGES[neighbours]
    reading = read_sums(query)
    if reading is not None:
        return _clamp(reading, lo, hi, change)
    if not is_local(query):
        raise ValueError(
            "`bounds` cannot be applied to this query: it is neither local (row i computed from "
            "record i only) nor a plain sum or mean over the records, whichever of the arrays in it hold "
            f"the records, so what one record can change does not follow from them: {_why(query)}. Or clamp "
            "the contributions yourself (dp.record_sum(dp.clamp(x, lo, hi)); sums by a public group, of "
            "which one record changes one: pt.zeros(k)[group].inc(dp.clamp(x, lo, hi))) and pass "
            "`sensitivity=`."
        )
    if neighbours == "add-remove":
        raise ValueError(ROWS_SHOW_THE_NUMBER)
    row = lengths_of(query)[1:]
    _check_broadcast(lo, hi, query.ndim - 1, row)
    return clamp(query, public_array(lo), public_array(hi)), np.broadcast_to(hi - lo, row)


def largest(query: TensorVariable, bounds: tuple[Any, Any]) -> np.ndarray:
    """Return a bound of the absolute value of a query that :func:`clamp_query` clamps, for each statistic.

    With an unknown number of people it is that of all slots.
    """
    lo, hi = (np.asarray(b, dtype=float) for b in bounds)
    reading, most = read_sums(query), _CHANGES["add-remove"]
    if reading is None:
        return most(lo, hi)
    return _most_rows(reading) * _clamp(reading, lo, hi, most)[1]


def _most_rows(reading: Reading) -> int:
    """Return how many records are added up, in the longest of several sums."""
    match reading:
        case Total():
            return lengths_of(reading.contributions)[0]
        case Stack():
            return max(map(_most_rows, reading.parts))
        case _:
            return _most_rows(reading.part)


type _Change = Callable[[np.ndarray, np.ndarray], np.ndarray]

# By how much a sum of numbers within bounds changes when one of them becomes another, or comes or goes.
_CHANGES: dict[str, _Change] = {
    "replace-one": lambda lo, hi: hi - lo,
    "add-remove": lambda lo, hi: np.maximum(np.abs(lo), np.abs(hi)),
}


def _why(query: TensorVariable) -> str:
    """Return what keeps the rows of a query from being one record's each, with a remedy."""
    rows, total = query, None
    for v in ancestors([query], blockers=rvs_in_graph([query])):
        if v.owner is not None and isinstance(v.owner.op, Sum) and v.owner.inputs[0].ndim:
            rows, total = v.owner.inputs[0], v
            break
    fault = fault_in_locality(rows, total is not None and says_its_records(total))
    return fault or "what is computed of the sum is more than a public multiple of it: release the sum itself"


def _clamp(
    reading: Reading, lo: np.ndarray, hi: np.ndarray, change: _Change
) -> tuple[TensorVariable, np.ndarray]:
    """Return sums of clamped contributions, and by how much one record can change them."""
    match reading:
        case Total():
            counted = counted_rows(reading.contributions)  # slots without a person contribute 0, not a bound
            rows = reading.contributions if counted is None else counted.rows
            row = lengths_of(rows)[1:]
            _check_broadcast(lo, hi, rows.ndim - 1, row)
            clamped = clamp(rows, public_array(lo), public_array(hi))
            added = clamped if counted is None else first_of(clamped, counted.count)
            graph = record_sum(added) if reading.declared else added.sum(axis=0)
            return graph, np.broadcast_to(change(lo, hi), row)
        case Negative():
            graph, width = _clamp(reading.part, lo, hi, change)
            return -graph, width
        case Multiple():
            return _clamp_multiple(reading, lo, hi, change)
        case Turned():
            return _clamp_turned(reading, lo, hi, change)
        case Stack():
            return _clamp_stack(reading, lo, hi, change)


def _clamp_multiple(
    reading: Multiple, lo: np.ndarray, hi: np.ndarray, change: _Change
) -> tuple[TensorVariable, np.ndarray]:
    numbers, (graph, width) = reading.numbers, _clamp(reading.part, lo, hi, change)
    # in few bits the least whole number has no absolute value, and an inverse is rounded
    factor = np.asarray(numbers.eval(), dtype=float)
    if not reading.divided:
        return reading.op(graph, numbers), np.abs(factor) * width
    if not factor.all():
        raise ValueError(
            "query divides by 0, as a mean over no record does: add up with dp.record_sum(...) "
            "instead, which is 0 for an empty group, or leave such a group out."
        )
    return reading.op(graph, numbers), np.abs(1 / factor) * width


def _clamp_stack(
    reading: Stack, lo: np.ndarray, hi: np.ndarray, change: _Change
) -> tuple[TensorVariable, np.ndarray]:
    shapes = [lengths_of(v) for v in reading.sources]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
    bounds = (np.split(np.broadcast_to(b, ends[-1]), ends[:-1]) for b in (lo, hi))
    pieces = zip(reading.parts, shapes, *bounds, strict=True)
    graphs, widths = zip(
        *(
            _clamp(part, lower.reshape(shape), upper.reshape(shape), change)
            for part, shape, lower, upper in pieces
        ),
        strict=True,
    )
    whole = pt.concatenate(graphs) if reading.joined else pt.stack(graphs)
    return whole, np.concatenate([np.ravel(width) for width in widths])


def _clamp_turned(
    reading: Turned, lo: np.ndarray, hi: np.ndarray, change: _Change
) -> tuple[TensorVariable, np.ndarray]:
    """Clamp a sum whose axes were exchanged, added or dropped; bounds are of the axes as they are now."""
    order = reading.op.new_order
    before, kept = lengths_of(reading.source), [axis for axis in order if axis != "x"]
    added = tuple(k for k, axis in enumerate(order) if axis == "x")
    dropped = tuple(k for k in range(len(before)) if k not in kept)
    now = tuple(1 if axis == "x" else before[axis] for axis in order)
    _check_broadcast(lo, hi, len(now), now)

    def turned_back(bound: np.ndarray) -> np.ndarray:
        if bound.ndim == 0:
            return bound
        own = np.broadcast_to(bound, now).squeeze(axis=added)
        return np.expand_dims(np.transpose(own, np.argsort(kept)), dropped)

    graph, width = _clamp(reading.part, turned_back(lo), turned_back(hi), change)
    return reading.op(graph), np.expand_dims(np.transpose(width.squeeze(axis=dropped), kept), added)


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
