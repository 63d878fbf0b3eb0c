"""The gamma function in nopython code: its logarithm, that of the incomplete one, second derivatives."""

import math
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.math import TriGamma
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.lowering.compiling.keys import key_of
from pymc_dp.lowering.compiling.nopython import njit, njit_for_graphs
from pymc_dp.upstream.pytensor_private import register_funcify_and_cache_key


@njit
def log_gamma(x):  # type: ignore[no-untyped-def]
    """Logarithm of the gamma function: Stirling's series is exact to rounding from 16 on, and faster."""
    if x < 16.0:
        return math.lgamma(x)
    y = 1.0 / (x * x)
    series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y * (1.0 / 1680.0 - y / 1188.0)))) / x
    return (x - 0.5) * np.log(x) - x + 0.9189385332046727 + series


@njit
def log_gamma_p(a, x):  # type: ignore[no-untyped-def]
    """Logarithm of the regularised lower incomplete gamma function: a series below, a fraction above."""
    if not (a > 0.0 and x > 0.0):
        return -np.inf if x <= 0.0 else np.nan
    front = a * math.log(x) - x - math.lgamma(a)
    if x < a + 1.0:
        term = total = 1.0 / a
        n = a
        while term > total * 1e-17:
            n += 1.0
            term *= x / n
            total += term
        return front + math.log(total)
    if front < -745.0:
        return 0.0
    # modified Lentz's method for the continued fraction of the upper function
    b = x + 1.0 - a
    c, e = 1e300, 1.0 / b
    h = e
    for i in range(1, 10_000):
        an = -i * (i - a)
        b += 2.0
        e = 1.0 / (an * e + b)
        c = b + an / c
        h *= e * c
        if abs(e * c - 1.0) < 1e-16:
            break
    return math.log1p(-math.exp(front) * h)


class _TriGamma(TriGamma):
    """PyTensor's operation, which has no native code."""


@register_funcify_and_cache_key(_TriGamma)
def _funcify_trigamma(op: _TriGamma, **kwargs: Any) -> Any:
    @njit_for_graphs
    def trigamma(x):  # type: ignore[no-untyped-def]
        if not x > 0.0:
            return np.nan
        total = 0.0
        while x < 12.0:
            total += 1.0 / (x * x)
            x += 1.0
        # the asymptotic series, by Bernoulli numbers: exact to rounding from here on
        y = 1.0 / (x * x)
        series = 1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * (5 / 66 - y * 691 / 2730))))
        return total + 1.0 / x + 0.5 * y + y / x * series

    return trigamma, key_of(trigamma)


@node_rewriter(tracks=[Elemwise])
def trigamma_in_native_code(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Replace PyTensor's operation."""
    if type(node.op.scalar_op) is not TriGamma:
        return None
    own = _TriGamma(node.op.scalar_op.output_types_preference, name=node.op.scalar_op.name)
    return [Elemwise(own)(*node.inputs)]
