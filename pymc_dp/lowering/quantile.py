"""Quantile functions of count distributions that PyMC knows by their distribution function only."""

from hashlib import sha256
from typing import Any

import numba
import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import register_funcify_and_cache_key
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.graphs import jit_scalar, parameter_checks_to_values
from pymc_dp.lowering.version import SOURCE

# Largest count that is looked for.
_LARGEST = 2**52

_SOURCE = """
def quantile({args}):
    n = u.shape[0]
    out = np.empty(n, np.int64)
    for i in range(n):
        target = np.log(u[i])
        low, high = -1, 1
        while high < {largest} and logcdf(float(high), {entries})[0] < target:
            low = high
            high = 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if logcdf(float(middle), {entries})[0] < target:
                low = middle
            else:
                high = middle
        out[i] = high
    return out
"""


class CountQuantile(Op):
    """Smallest count whose distribution function reaches u, entry by entry: u, parameters -> counts.

    All inputs are vectors of one length. Doubling and bisection: about 2 log2(count) evaluations of the
    distribution function per entry.
    """

    __props__ = ("rv_op",)

    def __init__(self, rv_op: RandomVariable):
        self.rv_op = rv_op

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply it to u and parameters."""
        return Apply(self, list(inputs), [pt.vector(dtype="int64", shape=inputs[0].type.shape)])  # type: ignore[attr-defined]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Refuse: there is no interpreted form."""
        raise NotImplementedError("compiled by numba only")


def _scalar_logcdf(rv_op: RandomVariable, n_params: int) -> tuple[Any, str | None]:
    value, *params = (ps.float64(f"p{k}") for k in range(n_params + 1))
    law = rv_op.make_node(
        pt.random.shared_rng(seed=None), NoneConst, *(pt.tensor_from_scalar(p) for p in params)
    )
    graph = pm.logcdf(law.default_output(), pt.cast(pt.tensor_from_scalar(value), "int64"))
    # a check would end the chain where there is no law; who asks for a quantile there does not use it
    graph = parameter_checks_to_values(graph)
    function, key, _ = jit_scalar([value, *params], [pt.cast(graph, "float64")])
    return function, key


@register_funcify_and_cache_key(CountQuantile)
def _funcify_quantile(op: CountQuantile, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    n_params = len(node.inputs) - 1
    logcdf, inner_key = _scalar_logcdf(op.rv_op, n_params)
    args = ", ".join(["u", *(f"p{k}" for k in range(n_params))])
    entries = ", ".join(f"p{k}[i]" for k in range(n_params))
    source = _SOURCE.format(args=args, entries=entries, largest=_LARGEST)
    key = None
    if inner_key is not None:
        key = sha256(f"{SOURCE}{inner_key}{source}".encode()).hexdigest()
    names = {"logcdf": logcdf, "np": np, "__name__": __name__}
    return numba.njit(compile_numba_function_src(source, "quantile", names)), key


def count_quantile(rv: TensorVariable, u: TensorVariable) -> TensorVariable:
    """Return the quantile of a univariate law on 0, 1, 2, ... at u.

    Parameters
    ----------
    rv : TensorVariable
        The law; its operation must be a univariate ``RandomVariable`` with a ``logcdf`` in PyMC.
    u : TensorVariable
        Probabilities in (0, 1), in the shape of `rv`.

    Returns
    -------
    TensorVariable
        Counts, int64, in the shape of `u`.
    """
    assert rv.owner is not None
    params = rv.owner.op.dist_params(rv.owner)
    flat = [pt.cast(pt.broadcast_to(p, u.shape), "float64").ravel() for p in params]
    counts = CountQuantile(rv.owner.op)(u.ravel(), *flat)
    return counts.reshape(u.shape, ndim=u.ndim)  # type: ignore[union-attr]
