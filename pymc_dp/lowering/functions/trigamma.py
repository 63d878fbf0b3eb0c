"""The second derivative of the logarithm of the gamma function in nopython code, for curvatures."""

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.math import TriGamma
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.lowering.compiling.keys import key_of
from pymc_dp.lowering.compiling.nopython import njit_for_graphs
from pymc_dp.upstream.pytensor_private import register_funcify_and_cache_key


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
