"""Sums over the first of a number of slots: how many people there are may be a variable of the model.

The records of the slots beyond that number have their law and enter no release, as the atoms of the empty
slots of a mixture do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import ARange
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.variable import TensorVariable


class Counted(NamedTuple):
    """Rows of which the first `count` are people's, and the others nobody's."""

    rows: TensorVariable
    count: TensorVariable


def as_count(count: Any) -> TensorVariable:
    """Return the argument `count` of :func:`pymc_dp.record_sum`: an integer variable of a model."""
    is_integer = isinstance(count, TensorVariable) and count.dtype.startswith(("int", "uint"))
    if not is_integer or count.ndim or count not in rvs_in_graph([count]):
        what = f"{count!r}" if not isinstance(count, Variable) else f"a tensor of type {count.type}"
        raise TypeError(
            "`count` must be one whole-numbered random variable of the model, such as N = "
            f"pm.Poisson('N', 1000) or pm.DiscreteUniform('N', 0, n); got {what}. Where the number of people "
            "is known, leave `count` out and give that many rows."
        )
    return count


def first_of(rows: TensorVariable, count: TensorVariable) -> TensorVariable:
    """Return rows with zeros in all but the first `count`."""
    n = rows.shape[0] if rows.type.shape[0] is None else rows.type.shape[0]
    inside = pt.arange(n) < count
    return pt.switch(inside.dimshuffle(0, *"x" * (rows.ndim - 1)), rows, pt.constant(0, dtype=rows.dtype))


def counted_rows(rows: Variable) -> Counted | None:
    """Return what :func:`first_of` was made of; None if some rows are no result of it."""
    node = rows.owner
    if node is None or not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, ps.Switch):
        return None
    inside, inner, zero = node.inputs
    inside, zero = _unturned(inside), _unturned(zero)
    compared = None if inside.owner is None else getattr(inside.owner.op, "scalar_op", None)
    if not isinstance(compared, ps.LT) or not isinstance(zero, Constant) or np.any(zero.data != 0):
        return None
    index, count = map(_unturned, inside.owner.inputs)
    if count.ndim or index.owner is None or not isinstance(index.owner.op, ARange):
        return None
    return Counted(inner, count)


def counts_behind(query: Variable, variables: Collection[Variable]) -> list[TensorVariable | None]:
    """Return the variables that count the people of sums over a leading axis, None where all rows count."""
    found: list[TensorVariable | None] = []
    for v in ancestors([query], blockers=variables):
        op = getattr(v.owner, "op", None)
        if isinstance(op, Sum) and (op.axis is None or 0 in op.axis):
            counted = counted_rows(v.owner.inputs[0])  # type: ignore[union-attr]
            found.append(None if counted is None or counted.count not in variables else counted.count)
    return found


def count_of_people(
    model: Model, releases: Sequence[tuple[str, Variable, str]], records: Sequence[Variable], n: int
) -> TensorVariable | None:
    """Return the variable that counts the people among some records, and refuse what would not fit it.

    Parameters
    ----------
    model : pymc.Model
    releases : sequence of (str, Variable, str)
        Name, query and kind of each release of the records.
    records : sequence of Variable
    n : int
        Number of slots.

    Raises
    ------
    ValueError
        If one release counts people and another one all slots, or others; if slots differ by what is known
        of them; or if the records are released one by one.
    """
    variables = set(model.basic_RVs)
    counts = {name: counts_behind(query, variables) for name, query, _ in releases}
    known = {v for found in counts.values() for v in found if v is not None}
    if not known:
        return None
    count, *others = sorted(known, key=lambda v: str(v.name))
    names = ", ".join(str(v.name) for v in records)
    if others:
        raise ValueError(
            f"The releases of {names} count people by {count.name} and by {others[0].name}: the records of "
            "one block are the same people. Give count= the same variable in every dp.record_sum."
        )
    for name, _, kind in releases:
        if kind not in ("central", "function"):
            raise ValueError(
                f"{name} releases the records {names} one by one, or is no function of sums of them, but how "
                f"many are people is unknown ({count.name}): a release by each person shows how many there "
                "are. Give the records that many rows and leave count= out."
            )
        if None in counts[name]:
            raise ValueError(
                f"{name} adds up all {n} slots of {names}, and another release the first {count.name} only: "
                f"slots without a person would be in it. Write dp.record_sum(t, count={count.name}) there."
            )
    graphs = [v for _, query, _ in releases for v in _summed(query, variables)]
    graphs += [v for rv in records for v in rv.owner.inputs]  # type: ignore[union-attr]
    for v in ancestors(graphs, blockers=variables):
        if _differs_by_slot(v, n):
            raise ValueError(
                f"The records {names} are slots, of which the first {count.name} are people, but a constant "
                f"or data of shape {v.type.shape} differ between them, so that the first people would "  # type: ignore[attr-defined]
                "be others than the last. Covariates that are known for each person say how many people "
                "there are: leave count= out. Those that are not known are records themselves, with a law."
            )
    return count


def _summed(query: Variable, variables: Collection[Variable]) -> list[Variable]:
    """Return what counted sums add up, without what tells people from empty slots."""
    found: list[Variable] = []
    for v in ancestors([query], blockers=variables):
        if v.owner is not None and isinstance(v.owner.op, Sum):
            counted = counted_rows(v.owner.inputs[0])
            found += [] if counted is None else [counted.rows]
    return found


def _differs_by_slot(v: Variable, n: int) -> bool:
    """Whether an array, or the index of slots, has n rows that are not all equal."""
    if v.owner is not None:
        return isinstance(v.owner.op, ARange)
    value = v.data if isinstance(v, Constant) else v.get_value() if isinstance(v, SharedVariable) else None
    if not isinstance(value, np.ndarray) or n < 2:
        return False
    along = [axis for axis, length in enumerate(value.shape) if length == n]
    return any(bool((np.diff(value, axis=axis) != 0).any()) for axis in along[:1])


def is_count_alone(leaves: Sequence[Variable]) -> bool:
    """Whether a query is of whole numbers only, which stand for how many people there are."""
    return bool(leaves) and all(v.ndim == 0 and v.dtype.startswith(("int", "uint")) for v in leaves)  # type: ignore[attr-defined]


def _unturned(v: Variable) -> Variable:
    """Return a variable without the axes of length 1 that it was given to be compared."""
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        if len([axis for axis in v.owner.op.new_order if axis != "x"]) != v.owner.inputs[0].ndim:  # type: ignore[attr-defined]
            return v
        v = v.owner.inputs[0]
    return v
