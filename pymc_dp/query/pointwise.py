"""Queries whose entries are one function of one record each, the same for all: recoded categories."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.readings import AS_WRITTEN


def record_behind(query: Variable, records: Collection[Variable]) -> Variable | None:
    """Return the record that entries of a query are a function of, where nothing else but constants is in it.

    Parameters
    ----------
    query : Variable
        Such as ``pt.eq(c, 2)``, ``dp.clamp(c, 0, 3)`` or ``pt.as_tensor([0, 0, 1])[c]``.
    records : collection of Variable
        Records, vectors.

    Returns
    -------
    Variable or None
        None where entries read other entries, several records or what may be set anew.
    """
    if query in records:
        return query
    node = query.owner
    if node is None:
        return None
    if isinstance(node.op, AdvancedSubtensor):
        table, *index = node.inputs
        by_value = isinstance(table, Constant) and table.type.ndim == len(index) == 1  # type: ignore[attr-defined]
        return record_behind(index[0], records) if by_value else None
    if not isinstance(node.op, Elemwise | ViewOp):  # the latter makes a Deterministic
        return None
    found = {record_behind(v, records) for v in node.inputs if not _is_one_number(v)}
    return found.pop() if len(found) == 1 else None


def of_values(query: Variable, record: Any, values: TensorVariable) -> TensorVariable:
    """Return such a query as a function of values of the record, a vector of any length."""
    (graph,) = clone_replace([query], {record: pt.cast(values, record.dtype)}, rebuild_strict=False)
    return graph  # type: ignore[no-any-return]


def at_values(query: Variable, record: Any, values: np.ndarray) -> np.ndarray:
    """Return the numbers of such a query where the record has some values."""
    return np.asarray(pytensor.function([], of_values(query, record, pt.constant(values)), mode=AS_WRITTEN)())


def _is_one_number(v: Variable) -> bool:
    """Whether a graph is a constant for all records."""
    if not all(v.type.broadcastable):  # type: ignore[attr-defined]
        return False
    return all(isinstance(a, Constant) for a in ancestors([v]) if a.owner is None)
