"""PyMC's transform of probability tables as two loops.

Written out in PyTensor, it is a dozen operations on arrays of one more axis than the table's rows have,
which take ten seconds to compile where these take one. The way back to probabilities is a rewrite of our
modes (``modes.py``).
"""

from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.transforms import simplex
from pytensor.graph.basic import Apply, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.keys import version_of
from pymc_dp.lowering.compiling.nopython import njit_for_graphs
from pymc_dp.lowering.functions.normals import sum_of
from pymc_dp.upstream.pytensor_private import register_funcify_default_op_cache_key


def probability(values: list[TensorVariable], which: int) -> TensorVariable:
    """Return one of the probabilities that a row of values stands for, as a graph of its numbers."""
    every = [*values, -sum_of(values)]
    top = reduce(pt.maximum, every)
    weights = [pt.exp(v - top) for v in every]
    return weights[which] / sum_of(weights)


class _RowsToProbabilities(Op):
    """Rows of values (m, k - 1) to rows of probabilities (m, k)."""

    __props__ = ()

    def make_node(self, rows: Any) -> Apply:
        """Apply it to a matrix."""
        rows = pt.as_tensor(rows)
        m, k = rows.type.shape
        return Apply(self, [rows], [pt.matrix(shape=(m, None if k is None else k + 1), dtype="float64")])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute it in NumPy."""
        rows = np.column_stack([inputs[0], -inputs[0].sum(axis=1)])
        weights = np.exp(rows - rows.max(axis=1, keepdims=True))
        outputs[0][0] = weights / weights.sum(axis=1, keepdims=True)


class _ProbabilitiesToRows(Op):
    """Rows of probabilities (m, k) to rows of values (m, k - 1)."""

    __props__ = ()

    def make_node(self, rows: Any) -> Apply:
        """Apply it to a matrix."""
        rows = pt.as_tensor(rows)
        m, k = rows.type.shape
        return Apply(self, [rows], [pt.matrix(shape=(m, None if k is None else k - 1), dtype="float64")])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute it in NumPy."""
        logs = np.log(inputs[0])
        outputs[0][0] = logs[:, :-1] - logs.mean(axis=1, keepdims=True)


@register_funcify_default_op_cache_key(_RowsToProbabilities)
def _funcify_backward(op: Any, **kwargs: Any) -> Any:
    @njit_for_graphs
    def rows_to_probabilities(rows):  # type: ignore[no-untyped-def]
        m, k = rows.shape
        out = np.empty((m, k + 1))
        for i in range(m):
            total = 0.0
            for j in range(k):
                total += rows[i, j]
            largest = -total
            for j in range(k):
                largest = max(largest, rows[i, j])
            out[i, k] = np.exp(-total - largest)
            total = out[i, k]
            for j in range(k):
                out[i, j] = np.exp(rows[i, j] - largest)
                total += out[i, j]
            for j in range(k + 1):
                out[i, j] /= total
        return out

    return rows_to_probabilities, version_of(rows_to_probabilities)


@register_funcify_default_op_cache_key(_ProbabilitiesToRows)
def _funcify_forward(op: Any, **kwargs: Any) -> Any:
    @njit_for_graphs
    def probabilities_to_rows(rows):  # type: ignore[no-untyped-def]
        m, k = rows.shape
        out = np.empty((m, k - 1))
        for i in range(m):
            mean = np.log(rows[i, k - 1]) / k
            for j in range(k - 1):
                out[i, j] = np.log(rows[i, j])
                mean += out[i, j] / k
            for j in range(k - 1):
                out[i, j] -= mean
        return out

    return probabilities_to_rows, version_of(probabilities_to_rows)


@node_rewriter(tracks=[pt.true_div])
def tables_by_loops(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Recognise ``transforms.simplex.backward(value)`` as PyMC writes it, in double precision.

    A gradient shares its exponentials, and would not be spared them.
    """
    joined = node.inputs[0]
    for _ in ("exponentials", "differences from the largest"):
        if joined.owner is None or not isinstance(joined.owner.op, Elemwise):
            return None
        joined = joined.owner.inputs[0]
    if joined.owner is None or not isinstance(joined.owner.op, Join):
        return None
    value: Any = joined.owner.inputs[0]
    if value.type.shape[-1] == 0:  # one category: there is nothing to compute
        return None
    if value.type.dtype != "float64" or len(fgraph.clients[node.inputs[0]]) > 2:
        return None
    if not equal_computations(node.outputs, [simplex.backward(value)]):
        return None
    return [_by_rows(_RowsToProbabilities(), value, 1)]


def simplex_forward(probabilities: TensorVariable) -> TensorVariable:
    """Return the values (..., k - 1) of probabilities (..., k), as ``transforms.simplex.forward`` does."""
    return _by_rows(_ProbabilitiesToRows(), probabilities, -1)


def _by_rows(op: Op, x: TensorVariable, more: int) -> TensorVariable:
    *shape, k = [n if known is None else known for n, known in zip(x.shape, x.type.shape, strict=True)]
    rows: Any = op(pt.cast(x, "float64").reshape((-1, k)))
    return pt.cast(rows.reshape((*shape, k + more)), x.dtype)
