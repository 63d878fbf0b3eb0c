"""PyMC's transform of probability tables as two loops.

Written out in PyTensor, it is a dozen operations on arrays of one more axis than the table's rows have,
which take ten seconds to compile where these take one.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.version import SOURCE


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
    @numba_njit
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

    return rows_to_probabilities, SOURCE


@register_funcify_default_op_cache_key(_ProbabilitiesToRows)
def _funcify_forward(op: Any, **kwargs: Any) -> Any:
    @numba_njit
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

    return probabilities_to_rows, SOURCE


def simplex_backward(value: TensorVariable) -> TensorVariable:
    """Return the probabilities (..., k) of values (..., k - 1), as ``transforms.simplex.backward`` does."""
    return _by_rows(_RowsToProbabilities(), value, 1)


def simplex_forward(probabilities: TensorVariable) -> TensorVariable:
    """Return the values (..., k - 1) of probabilities (..., k), as ``transforms.simplex.forward`` does."""
    return _by_rows(_ProbabilitiesToRows(), probabilities, -1)


def _by_rows(op: Op, x: TensorVariable, more: int) -> TensorVariable:
    *shape, k = [n if known is None else known for n, known in zip(x.shape, x.type.shape, strict=True)]
    rows: Any = op(pt.cast(x, "float64").reshape((-1, k)))
    return pt.cast(rows.reshape((*shape, k + more)), x.dtype)
