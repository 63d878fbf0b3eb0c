"""Graphs read as polynomials in some variables, and small products written out.

A second derivative that is free of a variable does not make a graph quadratic in it: |x| and rounding have
none. So the degree is worked out operation by operation, and everything unknown is no polynomial.
"""

from collections.abc import Collection, Sequence
from typing import Any

import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import io_toposort
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

# Products with a shared axis, or a result, of at most this length are written out.
_SMALL = 16

_LINEAR = (DimShuffle, Sum, SpecifyShape, ViewOp, ScalarFromTensor, TensorFromScalar, Join, MakeVector)
_LINEAR_IN_FIRST = (Reshape, Subtensor, AdvancedSubtensor, Alloc)


def degree(graph: Variable, variables: Collection[Variable]) -> int | None:
    """Degree of a graph as a polynomial in some root variables; None if it is none."""
    degrees: dict[Variable, int | None] = dict.fromkeys(variables, 1)
    for node in io_toposort(list(variables), [graph]):
        found = _degree_of_node(node, [degrees.get(v, 0) for v in node.inputs])
        for out in node.outputs:
            degrees[out] = found
    return degrees.get(graph, 0)


def _degree_of_node(node: Apply, inputs: list[int | None]) -> int | None:
    op = node.op
    if isinstance(op, Shape | Shape_i) or all(d == 0 for d in inputs):
        return 0
    if any(d is None for d in inputs):
        return None
    known: list[int] = [d for d in inputs if d is not None]
    if isinstance(op, _LINEAR):
        return max(known)
    if isinstance(op, CheckParameterValue) or isinstance(op, _LINEAR_IN_FIRST):
        return known[0] if not any(known[1:]) else None
    if isinstance(op, IncSubtensor):
        return max(known[:2]) if not any(known[2:]) else None
    if isinstance(op, Dot) or (isinstance(op, Blockwise) and isinstance(op.core_op, Dot)):
        return sum(known)
    if isinstance(op, Elemwise):
        return _degree_of_scalar(op.scalar_op, node, known)
    return None


def _degree_of_scalar(op: Any, node: Apply, inputs: list[int]) -> int | None:
    if isinstance(op, ps.Add | ps.Sub | ps.Neg | ps.Identity):
        return max(inputs)
    if isinstance(op, ps.Mul):
        return sum(inputs)
    if isinstance(op, ps.Sqr):
        return 2 * inputs[0]
    if isinstance(op, ps.Pow):
        exponent = _number(node.inputs[1])
        return int(exponent) * inputs[0] if exponent in (0.0, 1.0, 2.0) else None
    if isinstance(op, ps.TrueDiv):
        return inputs[0] if inputs[1] == 0 else None
    if isinstance(op, ps.Second):
        return inputs[1]
    if isinstance(op, ps.Switch):
        return max(inputs[1:]) if inputs[0] == 0 else None
    if isinstance(op, ps.Cast) and node.outputs[0].type.dtype.startswith("float"):
        return inputs[0]
    return None


def _number(variable: Variable) -> float | None:
    """Value of a constant number, which PyTensor may have given more axes."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    if isinstance(variable, Constant) and variable.data.size == 1:
        return float(variable.data.item())
    return None


@node_rewriter(tracks=[Dot, Blockwise])
def _write_out_product(fgraph: Any, node: Apply) -> list[Variable] | None:
    op = node.op
    if isinstance(op, Blockwise) and not isinstance(op.core_op, Dot):
        return None
    a, b = node.inputs
    if a.type.ndim not in (1, 2) or b.type.ndim not in (1, 2):
        return None
    left = a if a.type.ndim == 2 else a[None, :]
    right = b if b.type.ndim == 2 else b[:, None]
    (p, inner), (_, q) = left.type.shape, right.type.shape
    if inner is not None and inner <= _SMALL:
        terms = [left[:, k][:, None] * right[k, :][None, :] for k in range(inner)]
        result = sum(terms[1:], start=terms[0])
    elif p is not None and q is not None and p * q <= _SMALL:
        sums = [pt.sum(left[i, :] * right[:, j]) for i in range(p) for j in range(q)]
        result = pt.stack(sums).reshape((p, q))
    else:
        return None
    if b.type.ndim == 1:
        result = result[:, 0]
    if a.type.ndim == 1:
        result = result[0]
    return [pt.specify_shape(pt.cast(result, node.outputs[0].type.dtype), node.outputs[0].type.shape)]


def without_products(graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Write small matrix products out as sums of products, in several graphs at once.

    They fuse with what surrounds them, and calling BLAS for them costs seconds of compilation each. Graphs
    that share random draws have to be given together, or they would no longer share them.
    """
    rewritten: Any = rewrite_graph(
        list(graphs), include=(), custom_rewrite=dfs_rewriter(_write_out_product), clone=False
    )
    return list(rewritten)
