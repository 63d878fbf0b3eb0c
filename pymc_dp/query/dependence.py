"""Which part of a variable each entry of a graph depends on, told by the graph and by indices that are known.

A part is a number. Each entry of a graph gets the least and the greatest part that it depends on, so that an
entry of one part only is told from one of several, whatever operations are in between: an operation that is
not known to act entry by entry, or to move entries about, makes all of what it returns depend on all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.linear import MOVES
from pymc_dp.query.publicshapes import Public

# What entries have that depend on no part, and on several.
NONE, SEVERAL = -1, -2

type Parts = tuple[TensorVariable, TensorVariable]


class Dependence:
    """Which part of a variable the entries of some graphs depend on.

    Parameters
    ----------
    graphs : sequence of TensorVariable
        Without random variables.
    variable : TensorVariable
        An input of theirs.
    inputs : sequence of Variable
        All inputs that have no value of their own.

    Notes
    -----
    Indices may be data, which are read whenever it is asked: it holds until they are set anew. Where entries
    are moved about by what depends on inputs, all of what is moved depends on all.
    """

    def __init__(self, graphs: Sequence[TensorVariable], variable: Any, inputs: Sequence[Any]):
        self._parts = pt.tensor("parts", shape=variable.type.shape, dtype="float64")
        known: dict[Variable, Parts] = {variable: (self._parts, self._parts)}
        open_ = {variable, *inputs}
        fixed = Public(lambda leaf: leaf not in open_, in_model=True)
        for node in toposort(list(graphs), blockers=[variable]):
            of_shape = isinstance(node.op, Shape | Shape_i) and fixed.shape(node.inputs[0])
            if not of_shape and any(v in known for v in node.inputs):
                known.update(zip(node.outputs, _behind(node, known, fixed), strict=True))
        found = [end.ravel() for graph in graphs for end in known.get(graph) or _nothing(graph)]
        self._function = pytensor.function(
            [*inputs, self._parts], found, mode="FAST_COMPILE", on_unused_input="ignore"
        )

    def of(self, values: Sequence[np.ndarray], parts: np.ndarray) -> list[np.ndarray]:
        """Return the part that each entry of the graphs depends on, or that it is none, or several.

        Parameters
        ----------
        values : sequence of ndarray
            Of the inputs.
        parts : ndarray of int
            To which part each entry of the variable belongs, from 0 on.
        """
        ends = self._function(*values, np.asarray(parts, dtype=np.float64))
        return [_told(lowest, highest) for lowest, highest in zip(ends[::2], ends[1::2], strict=True)]


def _told(lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    one = np.where(lowest == highest, lowest, SEVERAL)
    return np.where(lowest > highest, NONE, one).astype(np.int64)


def _behind(node: Apply, known: Mapping[Variable, Parts], fixed: Public) -> list[Parts]:
    """Return the least and the greatest part behind each entry of what an operation returns."""
    op, held = node.op, [v for v in node.inputs if v in known]
    if isinstance(op, Elemwise):
        lowest, highest = zip(*(known.get(v) or _nothing(v) for v in node.inputs), strict=True)
        return [(_extreme(pt.minimum, lowest), _extreme(pt.maximum, highest))] * len(node.outputs)
    if isinstance(op, CAReduce):
        ((lowest, highest),) = (known[v] for v in held)
        return [(pt.min(lowest, axis=op.axis), pt.max(highest, axis=op.axis))]
    sources = _sources(node)
    if all(v in sources for v in held) and _moves_alike(node, sources, fixed):
        return [(_moved(node, known, sources, 0), _moved(node, known, sources, 1))]
    return [_all_of(v) for v in node.outputs]


def _sources(node: Apply) -> list[Any]:
    """Return the inputs whose entries an operation moves about; none of an operation that does more."""
    op: Any = node.op
    if not str(getattr(node.outputs[0].type, "dtype", "")).startswith("float"):
        return []
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
        return node.inputs[:2] if op.set_instead_of_inc else []
    if isinstance(op, MOVES) and hasattr(node.inputs[0].type, "ndim"):
        return node.inputs if isinstance(op, Join | MakeVector) else node.inputs[:1]
    return []


def _moves_alike(node: Apply, sources: list[Any], fixed: Public) -> bool:
    """Whether entries go to the same places wherever the inputs of the graphs are.

    Indices and lengths may depend on other variables: an entry that is picked by one would be told as it is
    where these happen to stand.
    """
    return all(fixed.shape(v) if v in sources else fixed.value(v) for v in node.inputs)


def _moved(node: Apply, known: Mapping[Variable, Parts], sources: list[Any], end: int) -> TensorVariable:
    if isinstance(node.op, ScalarFromTensor | TensorFromScalar):  # numbers have their parts as tensors, too
        return known[node.inputs[0]][end]
    inputs = [known.get(v, _nothing(v))[end] if v in sources else v for v in node.inputs]
    if isinstance(node.op, MakeVector):  # of a type of its own, which may be shorter than that of parts
        return pt.stack(inputs)
    return node.op.make_node(*inputs).outputs[0]  # type: ignore[return-value]


def _extreme(of: Any, sides: Sequence[TensorVariable]) -> TensorVariable:
    return reduce(of, sides)


def _nothing(v: Any) -> Parts:
    return pt.alloc(np.inf, *v.shape), pt.alloc(-np.inf, *v.shape)


def _all_of(v: Any) -> Parts:
    shape = v.shape if hasattr(v.type, "ndim") else ()
    return pt.alloc(-np.inf, *shape), pt.alloc(np.inf, *shape)
