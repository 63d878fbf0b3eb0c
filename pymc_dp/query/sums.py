"""Reading a query as sums over the records: public multiples of them, turned axes, stacks.

Of these, and no other functions of sums, it is known what one record changes once it is known what it adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast, Mul, Neg, TrueDiv
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.contributions import says_its_records
from pymc_dp.query.counts import counted_rows
from pymc_dp.query.locality import fault_in_locality
from pymc_dp.query.publicshapes import is_fixed, is_number, is_shape, value_is_public


@dataclass(frozen=True)
class Total:
    """A sum over the records: of `rows`, record i in row i, over `axes`, of which 0 is one."""

    rows: TensorVariable
    axes: tuple[int, ...]
    declared: bool

    @property
    def other_axes(self) -> tuple[int, ...]:
        """Axes that are added up within each record."""
        return tuple(a for a in self.axes if a != 0)

    @property
    def contributions(self) -> TensorVariable:
        """What each record adds to the sum, one to a row."""
        return self.rows.sum(axis=self.other_axes) if self.other_axes else self.rows


@dataclass(frozen=True)
class Negative:
    """A reading with its sign changed."""

    part: Reading


@dataclass(frozen=True)
class Multiple:
    """A reading times (or over, if `divided`) public numbers, broadcast against it by `op`."""

    part: Reading
    numbers: TensorVariable
    divided: bool
    op: Any


@dataclass(frozen=True)
class Turned:
    """A reading whose axes are exchanged, added or dropped by `op`, which turns `source`."""

    part: Reading
    source: TensorVariable
    op: DimShuffle


@dataclass(frozen=True)
class Stack:
    """Readings of `sources`, one after the other in a vector."""

    parts: tuple[Reading, ...]
    sources: tuple[TensorVariable, ...]
    joined: bool


Reading = Total | Negative | Multiple | Turned | Stack


def read_sums(query: TensorVariable) -> Reading | None:
    """Return how a query is made of sums over the records; None if it is more than public multiples of them.

    Casts are left out: fractions would be truncated by some, and sums be rounded by others to the gaps of
    few digits, over which one record counts for more than its own share.

    Parameters
    ----------
    query : TensorVariable
        Of a model, or of data.

    Returns
    -------
    Total, Negative, Multiple, Turned, Stack or None
    """
    node = query.owner
    if node is None:
        return None
    op = node.op
    if isinstance(op, Sum):
        return _total(node)
    if isinstance(op, DimShuffle):
        part = read_sums(node.inputs[0])
        return None if part is None else Turned(part, node.inputs[0], op)
    if isinstance(op, MakeVector) or (isinstance(op, Join) and query.ndim == 1):
        parts = [read_sums(v) for v in node.inputs]
        known = tuple(part for part in parts if part is not None)
        return Stack(known, tuple(node.inputs), isinstance(op, Join)) if len(known) == len(parts) else None
    return _elementwise(node, query) if isinstance(op, Elemwise) else None


def rows_added_up(query: TensorVariable) -> TensorVariable | None:
    """Return what a query adds up over the records, if it adds up."""
    for v in ancestors([query], blockers=rvs_in_graph([query])):
        if v.owner is not None and isinstance(v.owner.op, Sum):
            axis = v.owner.op.axis
            if axis is None or 0 in axis:
                return v.owner.inputs[0]  # type: ignore[return-value]
    return None


def _total(node: Apply) -> Total | None:
    """Read a sum; one that adds up other than rows of records would have many rows changed by one."""
    (rows,), out = node.inputs, node.outputs[0]
    axes = tuple(range(rows.ndim)) if node.op.axis is None else tuple(node.op.axis)
    if 0 not in axes:
        return None
    total = Total(rows, axes, says_its_records(out))
    counted = counted_rows(rows)
    if counted is not None and not rvs_in_graph([counted.rows]):
        return total  # of public numbers, as many as there are people
    return total if fault_in_locality(total.contributions, total.declared) is None else None


def _elementwise(node: Apply, query: TensorVariable) -> Reading | None:
    scalar_op = node.op.scalar_op
    first: TensorVariable = node.inputs[0]
    target = np.dtype(query.type.dtype)
    if isinstance(scalar_op, Cast):  # others truncate, which jumps by 1, or wrap around
        return read_sums(first) if target.kind == "f" or np.can_cast(first.type.dtype, target) else None
    if isinstance(scalar_op, Neg):
        part = None if target.kind == "u" else read_sums(first)  # unsigned numbers wrap around
        return None if part is None else Negative(part)
    if not isinstance(scalar_op, TrueDiv | Mul) or len(node.inputs) != 2:
        return None
    divided = isinstance(scalar_op, TrueDiv)
    for position, source in enumerate(node.inputs[:1] if divided else node.inputs):
        other = node.inputs[1 - position]
        if is_public(other, query) and (part := read_sums(source)) is not None:
            return Multiple(part, other, divided, node.op)
    return None


def is_public(factor: TensorVariable, query: TensorVariable) -> bool:
    """Whether a factor of a query is known without any record: a number written there, or a shape.

    In a query of data every array may be confidential, and what is computed from one is too: to decide by
    its value would show something of it. In a model data are known, but one that can be set anew would
    change what the guarantee was computed from.
    """
    if rvs_in_graph([query]):  # evaluating a random factor would take one draw for the scale
        return is_shape(factor) and is_fixed(factor)
    return value_is_public(factor, is_number, in_model=False)
