"""Log sums with exact derivatives, and densities that are computed once for equal releases."""

from collections.abc import Callable, Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorConstant, TensorVariable


def log_sum(terms: TensorVariable) -> TensorVariable:
    """Return the log of the sum of exponentials over the last axis; terms and result may be -inf."""
    # derivatives ignore the shift by the largest term, since the sum does not depend on the shift
    top = pt.max(terms, axis=-1, keepdims=True)
    top = disconnected_grad(pt.switch(pt.isinf(top), 0.0, top))
    total = pt.sum(pt.exp(terms - top), axis=-1)
    nothing = pt.le(total, 0.0)
    return pt.switch(nothing, -np.inf, pt.log(pt.switch(nothing, 1.0, total)) + top[..., 0])


def log_probability(p: TensorVariable) -> TensorVariable:
    """Return the log of probabilities; at 0 it is minus infinity, but its derivative is not NaN."""
    p = pt.cast(p, "float64")  # constants in a graph may be of float32
    none = pt.le(p, 0.0)
    return pt.switch(none, -np.inf, pt.log(pt.switch(none, 1.0, p)))


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
