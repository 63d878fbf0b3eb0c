"""Short vectors inside a scalar graph, written out as numbers.

Mixture weights, component densities and category probabilities are vectors of a few entries.
PyTensor allocates an array for each, 50 to 100 ns a call; written out, the graph stays plain scalar
code.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import AND, OR, Add, Maximum, Minimum, Mul
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Shape
from pytensor.tensor.special import LogSumExp
from pytensor.tensor.subtensor import (
    AdvancedSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_dp.lowering.graphs import as_tensor

LONGEST = 16  # beyond this, arrays are the better code

_FOLDS: list[tuple[type, Callable[[Any, Any], Any]]] = [
    (Add, pt.add),
    (Mul, pt.mul),
    (AND, pt.and_),
    (OR, pt.or_),
    (Maximum, pt.maximum),
    (Minimum, pt.minimum),
]


def entries(vector: Variable) -> list[Any] | None:
    """Return the entries of a short vector as 0-d variables, or None where they are not known."""
    if vector.type.ndim != 1 or not vector.type.shape[0] or vector.type.shape[0] > LONGEST:
        return None
    length = vector.type.shape[0]
    if isinstance(vector, Constant):
        return [pt.constant(v, dtype=vector.type.dtype) for v in np.asarray(vector.data)]
    node = vector.owner
    if node is None:
        return None
    if isinstance(node.op, MakeVector):
        return [pt.cast(i, vector.type.dtype) for i in node.inputs]
    if isinstance(node.op, DimShuffle) and node.op.new_order == ("x",):
        return [node.inputs[0]]
    if isinstance(node.op, Join):
        parts = [entries(p) for p in node.inputs if p.type.ndim == 1]
        return None if None in parts else [e for part in parts for e in part or []]
    if isinstance(node.op, Shape) and None not in node.inputs[0].type.shape:
        return [pt.constant(n, dtype="int64") for n in node.inputs[0].type.shape]
    if isinstance(node.op, Subtensor) and len(node.op.idx_list) == 1:
        [given] = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        bounds = [_constant(b) for b in (given.start, given.stop, given.step)]
        whole = entries(node.inputs[0])
        return None if whole is None or _UNKNOWN in bounds else whole[slice(*bounds)]
    if isinstance(node.op, AdvancedSubtensor) and len(node.inputs) == 2:
        whole, indices = entries(node.inputs[0]), entries(node.inputs[1])
        if whole is None or indices is None or not vector.type.dtype == whole[0].type.dtype:
            return None
        return [choose(i, whole) for i in indices]
    if isinstance(node.op, Elemwise) and len(node.outputs) == 1:
        rows = [entries(i) for i in node.inputs]
        if any(r is None for r in rows):
            return None
        op = Elemwise(node.op.scalar_op)
        return [op(*(r[k if len(r) > 1 else 0] for r in rows if r)) for k in range(length)]
    return None


_UNKNOWN = object()


def _constant(bound: Any) -> Any:
    if bound is None or isinstance(bound, int):
        return bound
    return int(bound.data) if isinstance(bound, Constant) else _UNKNOWN


def choose(index: Any, parts: list[Any]) -> Any:
    """Return the entry at a 0-d index, which may be negative; what is too large gives the last."""
    index = pt.switch(pt.lt(index, 0), index + len(parts), index)
    out = parts[-1]
    for k in range(len(parts) - 2, -1, -1):
        out = pt.switch(pt.le(index, k), parts[k], out)
    return out


@node_rewriter(tracks=[CAReduce, LogSumExp, Subtensor, AdvancedSubtensor, DimShuffle])
def _write_out(fgraph: Any, node: Apply) -> list[Variable] | None:
    if node.outputs[0].type.ndim != 0:
        return None
    parts = entries(node.inputs[0])
    if parts is None:
        return None
    dtype = node.outputs[0].type.dtype
    if isinstance(node.op, LogSumExp):
        return [pt.cast(_log_sum_exp(parts), dtype)]
    if isinstance(node.op, CAReduce):
        fold = [f for kind, f in _FOLDS if isinstance(node.op.scalar_op, kind)]
        if not fold:
            return None
        total = parts[0]
        for part in parts[1:]:
            total = fold[0](total, part)
        return [pt.cast(total, dtype)]
    if isinstance(node.op, DimShuffle):  # a squeezed vector of one entry
        return [pt.cast(parts[0], dtype)]
    if len(node.inputs) != 2 or not isinstance(node.op, Subtensor | AdvancedSubtensor):
        return None
    return [pt.cast(choose(as_tensor(node.inputs[1]), parts), dtype)]


def _log_sum_exp(parts: list[Any]) -> Any:
    largest = parts[0]
    for part in parts[1:]:
        largest = pt.maximum(largest, part)
    # the result does not depend on the shift, nor does its derivative
    shift = disconnected_grad(pt.switch(pt.isinf(largest), 0.0, largest))
    return pt.log(sum((pt.exp(p - shift) for p in parts[1:]), pt.exp(parts[0] - shift))) + shift


def write_out_vectors(graph: Variable) -> Variable:
    """Replace reductions and elements of short vectors by expressions of their entries."""
    if all(v.type.ndim == 0 for v in ancestors([graph]) if hasattr(v.type, "broadcastable")):
        return graph
    recognised = rewrite_graph(
        graph, include=("canonicalize", "stabilize", "symbolic_op_recognition"), clone=False
    )
    written: Any = rewrite_graph(recognised, include=(), custom_rewrite=dfs_rewriter(_write_out), clone=False)
    # what was written out may be simpler than it looks: an element of a stack is its entry
    simplified: Any = rewrite_graph(written, include=("canonicalize",), clone=False)
    return simplified
