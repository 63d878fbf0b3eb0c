"""Inverse gamma variables above a lower end.

PyMC draws them by the inverse of a distribution function that has no scalar code.
"""

import math
from typing import Any

import numpy as np
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.basic import InvGammaRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random, standard_exponential
from pymc_dp.lowering.functions.samplers import register_draw_of


@njit
def truncated_inverse_gamma(rng, shape, scale, lower):  # type: ignore[no-untyped-def]
    """Draw from an inverse gamma law restricted to [lower, infinity), by rejection."""
    if not (0.0 < shape < np.inf and 0.0 < scale < np.inf and lower < np.inf):
        return np.nan
    if lower <= 0.0:
        return scale / rng.standard_gamma(shape)
    end = scale / lower  # of a gamma variable of unit rate, from above
    if end < 1.0:
        while True:  # powers, tilted by at most e
            x = end * random(rng) ** (1.0 / shape)
            if standard_exponential(rng) > x:
                return max(scale / x, lower)
    # nearer to the mode the tangent is so flat that hardly any of its draws would be within the support
    if end < shape - 1.0 - math.sqrt(shape):
        slope = (shape - 1.0) / end - 1.0  # of the logarithm, which is concave, at the end
        while True:
            back = standard_exponential(rng) / slope
            x = end - back
            if x > 0.0 and -standard_exponential(rng) < (shape - 1.0) * math.log1p(-back / end) + back * (
                1.0 + slope
            ):
                return max(scale / x, lower)
    while True:
        x = rng.standard_gamma(shape)
        if x <= end:
            return max(scale / x, lower)


class TruncatedInverseGammaRV(RandomVariable):
    """An inverse gamma variable restricted to values above a lower end."""

    name = "truncated_inverse_gamma"
    signature = "(),(),()->()"
    dtype = "float64"


register_draw_of(TruncatedInverseGammaRV, lambda op: truncated_inverse_gamma)
truncated_inverse_gamma_law = TruncatedInverseGammaRV()


def parameters_above(rv: Any) -> list[Variable] | None:
    """Shape, scale and lower end of an inverse gamma variable that is cut off from below; None for others."""
    node = rv.owner
    if not isinstance(node.op, TruncatedRV) or not isinstance(node.op.base_rv_op, InvGammaRV):
        return None
    *_, shape, scale, lower, upper = (v for v in node.inputs if not isinstance(v.type, RandomGeneratorType))
    if not (isinstance(upper, Constant) and np.all(np.isposinf(upper.data))):
        return None
    return [shape, scale, lower]
