"""Logarithms of probabilities, and densities that are computed once for equal releases."""

from collections.abc import Callable, Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorConstant, TensorVariable


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
