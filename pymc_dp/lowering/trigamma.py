"""The second derivative of the logarithm of the gamma function in nopython code, for curvatures."""

from typing import Any

import numpy as np
from pytensor.link.numba.dispatch.basic import register_funcify_and_cache_key
from pytensor.scalar.math import TriGamma

from pymc_dp.lowering.keys import key_of
from pymc_dp.lowering.nopython import njit_for_graphs


@register_funcify_and_cache_key(TriGamma)
def _funcify_trigamma(op: TriGamma, **kwargs: Any) -> Any:
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
