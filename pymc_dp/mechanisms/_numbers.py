"""How many records a query is of, and the other lengths that the noise on it depends on."""

from __future__ import annotations

import math
from typing import Any

from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import Alloc, ARange
from pytensor.tensor.math import Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.mechanisms._checks import check_setting
from pymc_dp.privacy.guarantee import NEIGHBOURS
from pymc_dp.query.clamping import ROWS_SHOW_THE_NUMBER
from pymc_dp.query.counts import counted_rows
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.locality import is_local
from pymc_dp.query.sums import read_sums, rows_added_up
from pymc_dp.query.tables import are_cells


def records_added(query: TensorVariable) -> int | None:
    """Return how many records a query adds up; None if it adds up none, or different numbers in its parts.

    Parameters
    ----------
    query : TensorVariable
        Of data, or of the variables of a model.

    Returns
    -------
    int or None
    """
    return _only(_added(query)[0])


def records_averaged(query: TensorVariable) -> int | None:
    """Return how many records a query averages; None if it does not divide by their number.

    For a sum the number is not returned: under add-remove neighbours, or in a subset of the people, it may be
    confidential, and the noise on the sum does not reveal it.

    Parameters
    ----------
    query : TensorVariable
        Of data, or of the variables of a model.

    Returns
    -------
    int or None
    """
    lengths, by_length, factors = _added(query)
    n = _only(lengths)
    if n is None or n < 1:
        return None
    by_number = any(math.isclose(f, n) or math.isclose(f * n, 1) for f in factors)
    return n if by_length or by_number else None


def check_neighbours(neighbours: Any, query: TensorVariable, sensitivity: Any = None) -> None:
    """Refuse neighbours that are none, and means where people may be added or removed.

    Counts of people, with a sensitivity of the whole release, are cells of a table: how many there are is
    public. Otherwise rows are people.
    """
    check_setting("neighbours", neighbours, NEIGHBOURS)
    if neighbours != "add-remove":
        return
    lengths, _, factors = _added(query)
    is_mean = any(math.isclose(f, n) or math.isclose(f * n, 1) for n in lengths if n for f in factors)
    if is_mean or _measured(query):
        raise ValueError(
            "neighbours='add-remove' hides how many people there are, and query divides by that number, or "
            "computes with a length. Release the sum, and the count beside it: dp.record_sum(x) and "
            "dp.record_sum(np.ones(n)), each with noise."
        )
    if sensitivity is not None and are_cells(query):
        return
    if query.ndim and query.owner is not None and read_sums(query) is None and is_local(query):
        raise ValueError(ROWS_SHOW_THE_NUMBER)


def resizable_lengths(query: TensorVariable) -> tuple[int, ...] | None:
    """Lengths that what one record can change depends on; None where no resizable data set them.

    The first is the number of records where the query divides by a length, otherwise -1; then the
    lengths of the statistics; then all lengths that the query computes with, if it divides by one.
    """
    summed = rows_added_up(query)
    if summed is None:
        return None if None not in query.type.shape[1:] else present_lengths(query, False)
    divides = any(None in v.type.shape for v in _measured(query))
    if not divides and None not in query.type.shape:
        return None
    return present_lengths(query, divides)


def present_lengths(query: TensorVariable, divides: bool) -> tuple[int, ...]:
    """Return the lengths of :func:`resizable_lengths` as they are now."""
    summed = rows_added_up(query)
    if summed is None:  # a local query, to which one person contributes one row
        return (-1, *lengths_of(query)[1:])
    if not divides:
        return (-1, *lengths_of(query))
    measured = sorted({lengths_of(v) for v in _measured(query)})
    return (lengths_of(summed)[0], *lengths_of(query), *(n for lengths in measured for n in lengths))


def check_number_of_records(stated: Any, query: TensorVariable) -> None:
    """Refuse a query whose number of records is not the one that a release states."""
    if stated is None:
        return
    if isinstance(stated, bool) or not isinstance(stated, int) or stated < 1:
        raise ValueError(
            f"observed states n_records = {stated!r}, which is no number of records: the release is damaged. "
            "Ask for it again."
        )
    n = records_added(query)
    if n is not None and n != stated:
        raise ValueError(
            f"observed is a release of {stated} records, but the query is of {n}: the noise was worked out "
            f"for {stated}, a number that is public. Declare as many, or pass the release of this query."
        )


def _measured(query: TensorVariable) -> list[TensorVariable]:
    """Return the variables whose lengths a query computes with, not only to make an array of their length."""
    found, seen, queue = [], set(rvs_in_graph([query])), [query]
    while queue:
        v = queue.pop()
        if v in seen or v.owner is None:
            continue
        seen.add(v)
        if isinstance(v.owner.op, Shape | Shape_i):
            found.append(v.owner.inputs[0])
        elif isinstance(v.owner.op, Alloc | Reshape):
            queue.append(v.owner.inputs[0])
        elif not isinstance(v.owner.op, ARange):
            queue += v.owner.inputs
    return found


def _only(lengths: set[int | None]) -> int | None:
    """Return the one number in a set, None if there are none or several."""
    return next(iter(lengths)) if len(lengths) == 1 else None


def _added(query: TensorVariable) -> tuple[set[int | None], bool, list[float]]:
    """Return the numbers of records added up, whether a length enters the query, and its factors.

    Sums over the first of some slots are left out: how many slots there are is not how many people.
    """
    lengths: set[int | None] = set()
    by_length, factors = False, []
    queue: list[Variable] = [query]
    seen: set[Variable] = set()
    while queue:
        v = queue.pop()
        if v in seen:
            continue
        seen.add(v)
        op = None if v.owner is None else v.owner.op
        if isinstance(v, TensorConstant) and v.data.size == 1:
            factors.append(float(v.data.item()))
        elif isinstance(op, Shape | Shape_i):
            by_length = True
        elif isinstance(op, Sum) and (op.axis is None or 0 in op.axis):
            (rows,) = v.owner.inputs  # type: ignore[union-attr]
            if counted_rows(rows) is None:
                lengths.add(lengths_of(rows)[0])
        elif op is not None and not isinstance(op, RandomVariable):
            queue += v.owner.inputs  # type: ignore[union-attr]
    return lengths, by_length, factors
