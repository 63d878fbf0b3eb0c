"""Which part of a variable each entry of a graph depends on, told by the graph and by indices that are known.

A part is a number. Each entry of a graph gets the least and the greatest part that it depends on, so that an
entry of one part only is told from one of several, whatever operations are in between: an operation that is
not known to act entry by entry, or to move entries about, makes all of what it returns depend on all that it
reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Second
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor, get_idx_list
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
        of_none = pt.eq(self._parts, NONE)
        known: dict[Variable, Parts] = {
            variable: (pt.switch(of_none, np.inf, self._parts), pt.switch(of_none, -np.inf, self._parts))
        }
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
            To which part each entry of the variable belongs, from 0 on, or `NONE`.
        """
        ends = self._function(*values, np.asarray(parts, dtype=np.float64))
        return [_told(lowest, highest) for lowest, highest in zip(ends[::2], ends[1::2], strict=True)]


def ways(shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield ways to divide an array into parts: into its entries, and along each axis."""
    size = int(np.prod(shape))
    if size > 1:
        yield np.arange(size).reshape(shape)
    for axis, n in enumerate(shape if len(shape) > 1 else ()):
        if n > 1:
            yield np.moveaxis(np.broadcast_to(np.arange(n), (*np.delete(shape, axis), n)), -1, axis)


def _told(lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    one = np.where(lowest == highest, lowest, SEVERAL)
    return np.where(lowest > highest, NONE, one).astype(np.int64)


def _behind(node: Apply, known: Mapping[Variable, Parts], fixed: Public) -> list[Parts]:
    """Return the least and the greatest part behind each entry of what an operation returns."""
    op, held = node.op, [v for v in node.inputs if v in known]
    # an array whose length depends on entries depends on them even where it is empty
    if not all(fixed.shape(v) for v in held if hasattr(v.type, "ndim")):
        return [_all_of(v, (-np.inf, np.inf)) for v in node.outputs]
    if isinstance(op, Elemwise) or getattr(op, "by_entry", False):
        scalar = getattr(op, "scalar_op", op)
        seen = held if not isinstance(scalar, Second) else node.inputs[1:]  # of the first, the shape
        each = (known[v] if v in seen and v in known else _nothing(v) for v in node.inputs)
        lowest, highest = zip(*each, strict=True)
        return [(_extreme(pt.minimum, lowest), _extreme(pt.maximum, highest))] * len(node.outputs)
    if isinstance(op, CAReduce):
        ((lowest, highest),) = (known[v] for v in held)
        reduced = (_never_empty(side, op.axis, none) for side, none in ((lowest, np.inf), (highest, -np.inf)))
        return [tuple(of(side, axis=op.axis) for of, side in zip((pt.min, pt.max), reduced, strict=True))]
    sources = _sources(node)
    if all(v in sources for v in held) and _moves_alike(node, sources, fixed):
        if _adds(op):
            return [(_added(node, known, 0), _added(node, known, 1))]
        return [(_moved(node, known, sources, 0), _moved(node, known, sources, 1))]
    ends = _ends([known[v] for v in held])
    return [_all_of(v, ends) for v in node.outputs]


def _never_empty(side: Any, axes: Sequence[int] | None, none: float) -> TensorVariable:
    """Return an array with an entry of no part at the end of some axes, or of all, if these may be empty."""
    if not all(side.type.shape):
        for axis in range(side.ndim) if axes is None else axes:
            lengths = [1 if k == axis else n for k, n in enumerate(tuple(side.shape))]
            side = pt.concatenate([side, pt.alloc(none, *lengths)], axis=axis)
    return side


def _sources(node: Apply) -> list[Any]:
    """Return the inputs whose entries an operation moves about; none of an operation that does more."""
    op: Any = node.op
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
        return [] if getattr(op, "ignore_duplicates", False) else node.inputs[:2]
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


def _adds(op: Op) -> bool:
    """Whether entries are added to others, which stay in the sum."""
    return isinstance(op, IncSubtensor | AdvancedIncSubtensor) and not op.set_instead_of_inc


def _added(node: Apply, known: Mapping[Variable, Parts], end: int) -> TensorVariable:
    into, added = (known.get(v, _nothing(v))[end] for v in node.inputs[:2])
    op, size = node.op, pt.prod(into.shape)
    index = get_idx_list([node.inputs[0], *node.inputs[2:]], op.idx_list)  # type: ignore[attr-defined]
    at = pt.arange(size).reshape(into.shape)[tuple(index)]
    spread = pt.broadcast_to(added, at.shape)
    return _EXTREMES[end](into.ravel(), at.ravel(), spread.ravel()).reshape(into.shape)


class _ExtremeAt(Op):
    """The least or the greatest of entries and of what is added at their places."""

    __props__ = ("greatest",)

    def __init__(self, greatest: bool):
        self.greatest = greatest

    def make_node(self, into: Any, at: Any, added: Any) -> Apply:
        return Apply(self, [into, at, added], [into.type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        into, at, added = inputs
        output_storage[0][0] = out = into.copy()
        (np.maximum if self.greatest else np.minimum).at(out, at, added)


_EXTREMES = (_ExtremeAt(False), _ExtremeAt(True))


def _extreme(of: Any, sides: Sequence[TensorVariable]) -> TensorVariable:
    return reduce(of, sides)


def _ends(of: Sequence[Parts]) -> Parts:
    """Return the least and the greatest part behind any entry of some variables."""
    lowest = pt.min(pt.concatenate([pt.as_tensor([np.inf]), *(low.ravel() for low, _ in of)]))
    highest = pt.max(pt.concatenate([pt.as_tensor([-np.inf]), *(high.ravel() for _, high in of)]))
    return lowest, highest


def _nothing(v: Any) -> Parts:
    return pt.alloc(np.inf, *v.shape), pt.alloc(-np.inf, *v.shape)


def _all_of(v: Any, ends: Any) -> Parts:
    shape = v.shape if hasattr(v.type, "ndim") else ()
    return pt.alloc(ends[0], *shape), pt.alloc(ends[1], *shape)
