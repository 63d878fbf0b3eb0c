"""Sums over the first of a number of slots: how many people there are may be a variable of the model.

The records of the slots beyond that number have their law and enter no release, as the atoms of the empty
slots of a mixture do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import ARange
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.variable import TensorVariable


class Counted(NamedTuple):
    """Rows of which the first `count` are people's, and the others nobody's."""

    rows: TensorVariable
    count: TensorVariable


def as_count(count: Any) -> TensorVariable:
    """Return the argument `count` of :func:`pymc_dp.record_sum`: an integer variable of a model."""
    is_integer = isinstance(count, TensorVariable) and count.dtype.startswith(("int", "uint"))
    model = Model.get_context(error_if_none=False)
    if (
        not is_integer
        or count.ndim
        or count not in rvs_in_graph([count])
        or (model is not None and count not in model.basic_RVs)
    ):
        # of what is no variable, a value may be confidential
        what = f"a tensor of type {count.type}" if isinstance(count, Variable) else type(count).__name__
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
    zero = _unturned(zero)
    if not isinstance(zero, Constant) or np.any(zero.data != 0):
        return None
    along_rows = (0, *"x" * (rows.type.ndim - 1))  # type: ignore[attr-defined]
    if isinstance(getattr(inside.owner, "op", None), DimShuffle):
        if tuple(inside.owner.op.new_order) != along_rows:  # type: ignore[union-attr]
            return None
        inside = inside.owner.inputs[0]  # type: ignore[union-attr]
    compared = None if inside.owner is None else getattr(inside.owner.op, "scalar_op", None)
    if not isinstance(compared, ps.LT) or inside.type.ndim != 1 or len(along_rows) != rows.type.ndim:  # type: ignore[attr-defined]
        return None
    index, count = inside.owner.inputs[0], _unturned(inside.owner.inputs[1])  # type: ignore[union-attr]
    return Counted(inner, count) if count.ndim == 0 and _from_zero(index) else None  # type: ignore[arg-type, attr-defined]


def _from_zero(index: Variable) -> bool:
    """Whether a variable is 0, 1, 2, and so on."""
    if index.owner is None or not isinstance(index.owner.op, ARange):
        return False
    start, _, step = index.owner.inputs
    ends = [v.data if isinstance(v, Constant) else None for v in (start, step)]
    return ends[0] is not None and ends[1] is not None and ends[0] == 0 and ends[1] == 1


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
