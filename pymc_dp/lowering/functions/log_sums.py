"""Logarithms of sums of exponentials as graphs, with exact derivatives."""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable


def log_sum(terms: TensorVariable) -> TensorVariable:
    """Return the log of the sum of exponentials over the last axis; terms and result may be -inf."""
    # derivatives ignore the shift by the largest term, since the sum does not depend on the shift
    top = pt.max(terms, axis=-1, keepdims=True)
    top = disconnected_grad(pt.switch(pt.isinf(top), 0.0, top))
    total = pt.sum(pt.exp(terms - top), axis=-1)
    nothing = pt.le(total, 0.0)
    return pt.switch(nothing, -np.inf, pt.log(pt.switch(nothing, 1.0, total)) + top[..., 0])
