"""How many records a query is of, where that is public and the noise depends on it."""

from __future__ import annotations

import math
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.tensor.math import Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.query.rowlocal import lengths_of


def records_added(query: TensorVariable) -> int | None:
    """Return how many records a query adds up; None where it does not, or not as many everywhere.

    Parameters
    ----------
    query : TensorVariable
        Of data, or of the variables of a model.

    Returns
    -------
    int or None
    """
    return _added(query)[0]


def records_averaged(query: TensorVariable) -> int | None:
    """Return how many records a query is a mean over; None where it does not divide by their number.

    The number of records of a sum is not told: under other neighbours, or in a subset of the people, it
    may be confidential, and the noise on the sum does not show it.

    Parameters
    ----------
    query : TensorVariable
        Of data, or of the variables of a model.

    Returns
    -------
    int or None
    """
    n, by_length, factors = _added(query)
    if n is None or n < 1:
        return None
    by_number = any(math.isclose(f, n) or math.isclose(f * n, 1) for f in factors)
    return n if by_length or by_number else None


def check_number_of_records(stated: Any, query: TensorVariable) -> None:
    """Refuse a query over another number of records than a release states."""
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


def _added(query: TensorVariable) -> tuple[int | None, bool, list[float]]:
    """Return the number of records added up, whether a length enters, and the numbers that enter."""
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
            lengths.add(lengths_of(rows)[0])
        elif op is not None and not isinstance(op, RandomVariable):
            queue += v.owner.inputs  # type: ignore[union-attr]
    n = lengths.pop() if len(lengths) == 1 else None
    return n, by_length, factors
