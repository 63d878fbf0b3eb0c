"""Logarithms of probabilities, and densities that are computed once for equal releases."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.scalar import basic as ps
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorConstant, TensorVariable

# What takes numbers as they are to other places.
_PICKING = (AdvancedSubtensor, DimShuffle, SpecifyShape, Subtensor)


def log_probability(p: TensorVariable) -> TensorVariable:
    """Return the log of probabilities; at 0 it is minus infinity, but its derivative is not NaN.

    Of logits it has all digits, where the probability itself is 0 or 1 in floating point.
    """
    found = _from_logits(p, lambda x: -pt.softplus(-x), lambda x, axis: LogSoftmax(axis=axis)(x))
    if found is not None:
        return found
    p = pt.cast(p, "float64")  # constants in a graph may be of float32
    none = pt.le(p, 0.0)
    return pt.switch(none, -np.inf, pt.log(pt.switch(none, 1.0, p)))


def log_probabilities_of_two(p: TensorVariable) -> TensorVariable:
    """Return the logs of 1 - p and p, shape (..., 2)."""
    no = _from_logits(p, lambda x: -pt.softplus(x))
    return pt.stack([log_probability(1.0 - p) if no is None else no, log_probability(p)], axis=-1)


def _from_logits(p: Any, of_sigmoid: Callable[..., Any], of_softmax: Callable[..., Any] | None = None) -> Any:
    """Return a function of the logits of which a sigmoid or softmax gives probabilities, or None."""
    node = p.owner
    if node is None:
        return None
    op = node.op
    scalar = op.scalar_op if isinstance(op, Elemwise) else None
    if isinstance(op, Softmax) and of_softmax is not None:
        return of_softmax(pt.cast(node.inputs[0], "float64"), op.axis)
    if isinstance(scalar, Sigmoid):
        return of_sigmoid(pt.cast(node.inputs[0], "float64"))
    if isinstance(op, _PICKING) or isinstance(scalar, ps.Cast):
        inner = _from_logits(node.inputs[0], of_sigmoid, of_softmax)
        if inner is not None:
            return inner if scalar is not None else op(inner, *node.inputs[1:])
    return None


def by_distinct(
    density: Callable[[TensorVariable], TensorVariable],
    value: TensorVariable,
    params: Sequence[TensorVariable],
    cores: Sequence[int],
    ndim_supp: int = 0,
) -> TensorVariable:
    """Evaluate a density at distinct releases only, if its parameters are the same for all releases."""
    # PyTensor adds axes of length 1 to the parameters, one for each axis of the size
    shared = all(
        set(p.type.shape[: p.type.ndim - core]) <= {1} for p, core in zip(params, cores, strict=True)
    )
    if not shared or not isinstance(value, TensorConstant) or value.type.ndim != ndim_supp + 1:
        return density(value)
    distinct, where = np.unique(value.data, axis=0, return_inverse=True)
    if 2 * len(distinct) > len(value.data):
        return density(value)
    return density(pt.constant(distinct))[pt.constant(where.ravel())]
