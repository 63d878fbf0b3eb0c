"""Values from the nearer tail, for laws whose distribution function has no inverse in closed form."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.distributions import continuous
from pymc.distributions.dist_math import normal_lccdf, normal_lcdf
from pymc.math import logdiffexp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.math import owens_t
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.graphs import jit_scalar
from pymc_dp.lowering.compiling.keys import digest, key_of
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.rows.domains import parameter_checks_to_values
from pymc_dp.upstream.pytensor_private import compile_numba_function_src, register_funcify_and_cache_key

Of = Callable[..., TensorVariable]


@dataclass(frozen=True)
class Solved:
    """A law by its log tails and log density, functions of a value and of its parameters.

    Solving begins at ``start``; ``least`` is the lower end of the support, if it has one, from which the
    logarithm of the distance is what is solved for.
    """

    below: Of
    above: Of
    density: Of
    start: Of
    least: Of | None = None


def _ex_gaussian_tail(sign: float) -> Of:
    """Log tail of a normal variable plus an exponential one; PyMC takes it for normal if that is short."""

    def tail(x: TensorVariable, mu: Any, sigma: Any, nu: Any) -> TensorVariable:
        own = normal_lcdf(mu, sigma, x) if sign < 0 else normal_lccdf(mu, sigma, x)
        other = (mu - x) / nu + 0.5 * (sigma / nu) ** 2 + normal_lcdf(mu + sigma**2 / nu, sigma, x)
        both = logdiffexp(own, other) if sign < 0 else pt.logaddexp(own, other)
        return pt.switch(pt.gt(nu, 0.05 * sigma), both, own)

    return tail


def _wald_tail(sign: float) -> Of:
    def tail(x: TensorVariable, mu: Any, lam: Any, alpha: Any) -> TensorVariable:
        q, r = (x - alpha) / mu, pt.sqrt((x - alpha) / lam)
        other = 2 * lam / mu + normal_lcdf(0, 1, -(q + 1) / r)
        if sign < 0:
            return pt.logaddexp(normal_lcdf(0, 1, (q - 1) / r), other)
        return logdiffexp(normal_lccdf(0, 1, (q - 1) / r), other)

    return tail


def _skew_normal_tail(sign: float) -> Of:
    def tail(x: TensorVariable, mu: Any, sigma: Any, alpha: Any) -> TensorVariable:
        z = (x - mu) / sigma
        normal = 0.5 * pt.erfc(sign * z / np.sqrt(2))
        return pt.log(pt.maximum(normal + 2 * sign * owens_t(z, alpha), 0.0))

    return tail


LAWS: dict[type, Solved] = {
    continuous.ExGaussianRV: Solved(
        _ex_gaussian_tail(-1),
        _ex_gaussian_tail(1),
        continuous.ExGaussian.logp,
        lambda mu, sigma, nu: mu + nu,
    ),
    continuous.WaldRV: Solved(
        _wald_tail(-1),
        _wald_tail(1),
        continuous.Wald.logp,
        lambda mu, lam, alpha: mu + alpha,
        lambda mu, lam, alpha: alpha,
    ),
    continuous.SkewNormalRV: Solved(
        _skew_normal_tail(-1),
        _skew_normal_tail(1),
        continuous.SkewNormal.logp,
        lambda mu, sigma, alpha: mu + sigma * pt.sgn(alpha) / 2,
    ),
}

# Newton's steps on the logarithm of a tail, in a bracket that they narrow. The gap is the relative error of
# the tail: the step from where it is 1e-7 leaves its square.
_SOLVE = """
def solve(u, {args}):
    n = u.shape[0]
    out = np.empty(n)
    for i in range(n):
        {params} = {entries}
        out[i] = np.nan
        low, p = u[i] > 0.0, abs(u[i])
        y = start({params})[0]
        if not (p > 0.0 and abs(y) < np.inf):
            continue
        target, lower, upper, width = np.log(p), -np.inf, np.inf, 0.0
        for _ in range(200):
            tail, density = below(y, {params}) if low else above(y, {params})
            gap = tail - target
            if gap != gap:
                break
            if (gap < 0.0) == low:
                lower = y
            else:
                upper = y
            scale = np.exp(tail - density)
            step = -gap * scale if low else gap * scale
            if abs(gap) < 1e-7 and abs(step) < np.inf:
                out[i] = value(y + step, {params})[0]
                break
            if width == 0.0:
                width = 4.0 * scale if 0.0 < scale < np.inf else 1.0
            move = y + step
            if not (lower < move < upper and abs(step) <= width):
                if upper == np.inf:
                    move = y + width
                    width *= 2.0
                elif lower == -np.inf:
                    move = y - width
                    width *= 2.0
                else:
                    move = 0.5 * (lower + upper)
            y = move
    return out
"""


class TailValue(Op):
    """Values from tails, entry by entry: those tails, minus the upper ones, and parameters -> values.

    All inputs are vectors of one length. What cannot be solved is no number.
    """

    __props__ = ("rv_type",)
    by_entry = True

    def __init__(self, rv_type: type):
        self.rv_type = rv_type

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply it to tails and parameters."""
        return Apply(self, list(inputs), [pt.vector(dtype="float64", shape=inputs[0].type.shape)])  # type: ignore[attr-defined]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Refuse: there is no interpreted form."""
        raise NotImplementedError("compiled by numba only")


@register_funcify_and_cache_key(TailValue)
def _funcify(op: TailValue, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    law, names = LAWS[op.rv_type], [f"p{k}" for k in range(len(node.inputs) - 1)]
    at, *given = (ps.float64(name) for name in ("y", *names))
    y, *params = (pt.tensor_from_scalar(v) for v in (at, *given))
    x, slope, begin = y, pt.constant(0.0), law.start(*params)
    if law.least is not None:
        least = law.least(*params)
        x, slope, begin = least + pt.exp(y), y, pt.log(begin - least)
    density = parameter_checks_to_values(law.density(x, *params) + slope)
    graphs: dict[str, tuple[list[Variable], list[Any]]] = {
        "below": ([at, *given], [law.below(x, *params), density]),
        "above": ([at, *given], [law.above(x, *params), density]),
        "value": ([at, *given], [x]),
        "start": (list(given), [begin]),
    }
    scope: dict[str, Any] = {"np": np, "__name__": __name__}
    keys = []
    for name, (inputs, outputs) in graphs.items():
        scope[name], key, _ = jit_scalar(inputs, [pt.cast(o, "float64") for o in outputs])
        keys.append(key)
    arrays = [f"a{k}" for k in range(len(names))]
    source = _SOLVE.format(
        args=", ".join(arrays), params=", ".join(names), entries=", ".join(f"{a}[i]" for a in arrays)
    )
    function = njit(compile_numba_function_src(source, "solve", scope))
    return function, digest([*keys, key_of(function)])


def value_of_tail(rv: TensorVariable, u: TensorVariable) -> TensorVariable:
    """Return the values whose nearer tail under a law of :data:`LAWS` is `u`, minus that if it is the upper.

    Parameters
    ----------
    rv : TensorVariable
        The law.
    u : TensorVariable
        Probabilities up to a half, in the shape of `rv`.
    """
    params = rv.owner.op.dist_params(rv.owner)  # type: ignore[union-attr]
    flat = [pt.cast(pt.broadcast_to(p, u.shape), "float64").ravel() for p in params]
    found: Any = TailValue(type(rv.owner.op))(u.ravel(), *flat)  # type: ignore[union-attr]
    return found.reshape(u.shape, ndim=u.ndim)
