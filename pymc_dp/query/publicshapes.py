"""What is known without any record: numbers written in a graph, and shapes that no record decides.

Lengths of arrays are public, but a length can be computed from data: how many entries of ``x`` are in
``x[x > 0]`` is a count of people. A shape is public only where it follows from the lengths of the arrays
at the leaves of a graph, through operations whose output shape depends on the shapes of their inputs.
Those are listed here; every other operation is taken to show its inputs' values in its shape.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.compile.builders import SymbolicOp
from pytensor.compile.ops import DeepCopyOp, FromFunctionOp, ViewOp
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.random.op import RandomVariable, RNGConsumerOp
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.variable import TensorConstant, TensorVariable

# The output shape follows from the shapes of all inputs, and from what is written in the operation.
_OF_ALL = (
    Argmax, CAReduce, CumOp, DeepCopyOp, DimShuffle, Dot, Elemwise, Join, LogSoftmax, MakeVector,
    ScalarFromTensor, Softmax, TensorFromScalar, ViewOp,
)  # fmt: skip
# It is the shape of the first input.
_OF_FIRST = (AdvancedIncSubtensor, CheckAndRaise, IncSubtensor, SpecifyShape)


def is_shape(variable: Variable) -> bool:
    """Whether a variable is known before sampling: computed from no random variable but for its shape."""
    return value_is_public(variable, lambda leaf: True, in_model=True)


def value_is_public(
    variable: Variable, leaf_is_public: Callable[[Variable], bool], *, in_model: bool
) -> bool:
    """Whether the value of a variable follows from public leaves, and from shapes that show no record.

    Parameters
    ----------
    variable : Variable
    leaf_is_public : callable
        Whether the value of a leaf of the graph is public. Its lengths always are.
    in_model : bool
        Whether the records are random variables. Then what is known in advance of a shape was not
        computed from records; of data, PyTensor may have computed it from their values.

    Returns
    -------
    bool
    """
    return Public(leaf_is_public, in_model).value(variable)


def shape_is_public(
    variable: Variable, leaf_is_public: Callable[[Variable], bool], *, in_model: bool
) -> bool:
    """Whether the shape of a variable shows no record; arguments as of :func:`value_is_public`."""
    return Public(leaf_is_public, in_model).shape(variable)


def is_fixed(factor: Variable) -> bool:
    """Whether the value of a variable cannot be set anew, but for the lengths of data in it."""
    shapes = [v for v in ancestors([factor]) if _is_shape_of(v)]
    leaves = (v for v in ancestors([factor], blockers=shapes) if v not in shapes and v.owner is None)
    return all(isinstance(v, Constant) for v in leaves)


def public_array(values: Any) -> TensorConstant:
    """Return an array of a mechanism's settings as a constant that is no array of data."""
    constant = pt.constant(np.asarray(values))
    constant.tag.public = True
    return constant


def data_behind(t: Variable) -> list[TensorVariable]:
    """Arrays of data, or inputs for them, whose values a graph is computed from, however short they are."""
    public_shapes = [
        v
        for v in ancestors([t])
        if _is_shape_of(v) and shape_is_public(v.owner.inputs[0], is_number, in_model=False)
    ]
    leaves = (v for v in ancestors([t], blockers=public_shapes) if v.owner is None)
    return [
        v
        for v in leaves
        if isinstance(v, TensorVariable) and not is_number(v) and not getattr(v.tag, "public", False)
    ]


def is_number(leaf: Variable) -> bool:
    """Whether a leaf of a graph is a number, or no tensor at all: arrays may be confidential.

    An array with one entry is no number: it may hold the only person of a group.
    """
    return not isinstance(leaf, TensorVariable) or leaf.ndim == 0


def may_hold_data(op: Any) -> bool:
    """Whether an operation may compute with data that are no inputs of it, since its inside is not seen.

    Functions and loops may, and operations that neither PyTensor nor PyMC brought, also in batches.
    PyTensor's own functions, such as softmax, are built from their inputs alone.
    """
    op = getattr(op, "core_op", op)
    written = getattr(op, "scalar_op", op)
    if type(written).__module__.split(".")[0] not in ("pytensor", "pymc", "pymc_dp"):
        return True
    return isinstance(op, FromFunctionOp | HasInnerGraph) and not isinstance(op, SymbolicOp)


def _may_be_lengths(v: Variable) -> bool:
    return isinstance(v, TensorVariable) and v.ndim <= 1 and v.dtype.startswith(("int", "uint"))


def _is_shape_of(v: Variable) -> bool:
    return v.owner is not None and isinstance(v.owner.op, Shape | Shape_i)


class Public:
    """Whether values and shapes of a graph are public, each variable asked once.

    Parameters
    ----------
    leaf_is_public, in_model
        As of :func:`value_is_public`.
    """

    def __init__(self, leaf_is_public: Callable[[Variable], bool], in_model: bool) -> None:
        self.leaf_is_public, self.in_model = leaf_is_public, in_model
        self.values: dict[Variable, bool] = {}
        self.shapes: dict[Variable, bool] = {}

    def value(self, variable: Variable) -> bool:
        """Whether the value of a variable is public."""
        if variable not in self.values:
            self.values[variable] = self._value(variable)
        return self.values[variable]

    def shape(self, variable: Variable) -> bool:
        """Whether its shape is."""
        if variable not in self.shapes:
            self.shapes[variable] = self._shape(variable)
        return self.shapes[variable]

    def _value(self, variable: Variable) -> bool:
        node = variable.owner
        if node is None:
            return self.leaf_is_public(variable)
        if isinstance(node.op, RNGConsumerOp) or may_hold_data(node.op):
            return False
        if isinstance(node.op, Shape | Shape_i):
            return self.shape(node.inputs[0])
        return all(map(self.value, node.inputs))

    def _shape(self, variable: Variable) -> bool:
        node = variable.owner
        known = getattr(variable.type, "shape", ())
        if node is None or known == () or (self.in_model and None not in known):
            return True
        closed = isinstance(node.op, RNGConsumerOp) or may_hold_data(node.op)
        if not closed and all(map(self.value, node.inputs)):
            return True
        return self._follows(node.op, node)

    def _follows(self, op: Any, node: Any) -> bool:
        first, *others = node.inputs
        if isinstance(op, _OF_ALL) or (isinstance(op, Blockwise) and isinstance(op.core_op, Dot)):
            return all(map(self.shape, node.inputs))
        if isinstance(op, _OF_FIRST):
            return self.shape(first)
        if isinstance(op, Reshape):
            return self.shape(first) and all(map(self._written, others))
        if isinstance(op, Alloc | Subtensor):
            return self.shape(first) and all(map(self.value, others))
        if isinstance(op, AdvancedSubtensor):
            sliced = any(isinstance(entry, slice) and entry != slice(None) for entry in op.idx_list)
            return self.shape(first) and all(map(self.value if sliced else self._index, others))
        if isinstance(op, RandomVariable):
            parameters = op.dist_params(node)
            return self._written(op.size_param(node)) and all(map(self.shape, parameters))
        if isinstance(op, SymbolicRandomVariable):
            lengths = [v for v in node.inputs if _may_be_lengths(v)]
            return all(map(self._written, lengths)) and all(map(self.shape, node.inputs))
        return False

    def _index(self, index: Variable) -> bool:
        """Whether what an array of indices picks has a public shape; a mask shows how often it is true."""
        of_values = getattr(index.type, "dtype", "bool") == "bool"
        return self.value(index) if of_values else self.shape(index)

    def _written(self, lengths: Variable) -> bool:
        """Whether lengths are written in the graph, as a constant array or as public numbers."""
        return isinstance(lengths, Constant) or self.value(lengths)
