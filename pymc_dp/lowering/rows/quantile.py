"""Distribution functions of counts, and their inverses, in one arithmetic."""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.random import basic as rb
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.graphs import jit_scalar
from pymc_dp.lowering.compiling.keys import digest, key_of
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.truncated_counts import RATIOS
from pymc_dp.lowering.rows.domains import parameter_checks_to_values
from pymc_dp.upstream.pytensor_private import compile_numba_function_src, register_funcify_and_cache_key

# Largest count that is looked for.
LARGEST = 2.0**52

# Standard deviations that a table of a distribution function reaches on both sides, and its length, at most,
# per entry that it serves: a number of a table costs some ns, and a quantile without one a microsecond.
_REACH, _LENGTH = 6.0, 128


class _Law(NamedTuple):
    """What is known of a law on counts, as expressions of its parameters p0, p1."""

    mean: str
    variance: str
    skewness: str
    last: str  # its last value, or the largest that is looked for


_LAWS: dict[type, _Law] = {
    rb.PoissonRV: _Law("p0", "p0", "p0**-0.5", "LARGEST"),
    rb.BinomialRV: _Law(
        "p0 * p1",
        "p0 * p1 * (1.0 - p1)",
        "(1.0 - 2.0 * p1) / np.sqrt(p0 * p1 * (1.0 - p1))",
        "min(p0, LARGEST)",
    ),
    rb.NegBinomialRV: _Law(
        "p0 * (1.0 - p1) / p1",
        "p0 * (1.0 - p1) / p1**2",
        "(2.0 - p1) / np.sqrt(p0 * (1.0 - p1))",
        "LARGEST",
    ),
}

# The distribution function just below the first count of a table, and at this and those that follow: sums of
# probabilities from below, which keep all digits in the lower tail, on a scale that meets both its ends.
_TABLE = """
def table(n, {params}):
    mean, variance = {mean}, {variance}
    nothing = np.empty(0)
    if not (0.0 <= mean < LARGEST and 0.0 <= variance < LARGEST):
        return 0.0, nothing
    first = max(np.floor(mean - REACH * np.sqrt(variance)), 0.0)
    last = min(np.ceil(mean + REACH * np.sqrt(variance)), {last})
    if not 0.0 <= last - first < LENGTH * (n - 1):
        return 0.0, nothing
    size = int(last - first) + 1
    ratios, out = np.empty(size), np.empty(size + 1)
    for i in range(size):
        k = first + i
        ratios[i] = ratio(k, {params})
    out[0] = cdf(first - 1.0, {params})[0]
    at = cdf(last, {params})[0]
    probability, total = 1.0, 0.0
    for i in range(size):
        total += probability
        out[1 + i] = total
        probability *= ratios[i]
    scale = (at - out[0]) / total
    if not 0.0 < scale < np.inf:
        return 0.0, nothing
    for i in range(1, size):
        out[i] = min(out[0] + scale * out[i], at)
    out[size] = at
    return first, out
"""

# Entries with the same parameters, one after the other, have one table, if they are enough for it.
_RUNS = """
    stop, first, known = 0, 0.0, np.empty(0)
    for i in range(n):
        {params} = {entries}
        if i == stop:
            stop += 1
            while stop < n and {same}:
                stop += 1
            first, known = table(stop - i, {params})
"""

# The distribution function is below u at `low`, and not below it at `high`.
_QUANTILE = """
def quantile(u, {args}):
    n = u.shape[0]
    out = np.empty(n, np.int64)
{runs}
        if known.shape[0] > 0 and known[0] < u[i] <= known[-1]:
            below, at = 0, known.shape[0] - 1
            while at - below > 1:
                half = (below + at) // 2
                if known[half] < u[i]:
                    below = half
                else:
                    at = half
            out[i] = int(first) + at - 1
            continue
        mean, variance = {mean}, {variance}
        if not (0.0 <= mean < np.inf and variance >= 0.0):
            out[i] = 0
            continue
        last, step = {last}, 1.0
        at = max(min(guess(u[i], mean, variance, {skewness}), last), 0.0)
        if cdf(at, {params})[0] < u[i]:
            low, high = at, min(at + step, last)
            while high < last and cdf(high, {params})[0] < u[i]:
                step *= 2.0
                low, high = high, min(high + step, last)
        else:
            low, high = max(at - step, -1.0), at
            while low >= 0.0 and not cdf(low, {params})[0] < u[i]:
                step *= 2.0
                low, high = max(low - step, -1.0), low
        while high - low > 1.0:
            middle = np.floor(0.5 * (low + high))
            if cdf(middle, {params})[0] < u[i]:
                low = middle
            else:
                high = middle
        out[i] = int(high)
    return out
"""

_STEPS = """
def steps(x, {args}):
    n = x.shape[0]
    below, at = np.empty(n), np.empty(n)
{runs}
        if first <= x[i] < first + (known.shape[0] - 1):
            k = int(x[i] - first)
            below[i], at[i] = known[k], known[k + 1]
        else:
            below[i], at[i] = cdf(x[i] - 1.0, {params})[0], cdf(x[i], {params})[0]
    return below, at
"""


@njit
def normal_quantile(p: float) -> float:
    """Return the quantile of the standard normal law, with an error below 1e-6.

    Algorithm AS 241, PPND7: Wichura (1988), "The percentage points of the normal distribution".
    """
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        above = ((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179
        below = ((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0
        return q * above / below
    tail = min(p, 1.0 - p)
    if not tail > 0.0:
        return np.copysign(np.inf, q)
    r = np.sqrt(-np.log(tail))
    if r <= 5.0:
        r -= 1.6
        above = ((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777
        below = (0.12021132975 * r + 0.73700164250) * r + 1.0
    else:
        r -= 5.0
        above = ((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150
        below = (0.012258202635 * r + 0.24197894225) * r + 1.0
    return float(np.copysign(above / below, q))


@njit
def guess(u: float, mean: float, variance: float, skewness: float) -> float:
    """Return about the quantile at u of a law on counts, as a number that may be none of them.

    The normal quantile, bent by the law's skewness: Wilson & Hilferty (1931) for gamma variables, Kirby
    (1972) for others. It is where a search begins, and nothing else depends on it.
    """
    if not 0.25 < variance < np.inf:
        return float(np.floor(mean))
    z = normal_quantile(u)
    bend = max(skewness * (z - skewness / 6.0) / 6.0, -1.0)
    at = 2.0 * (z - skewness / 6.0) / 6.0 * (3.0 + bend * (3.0 + bend)) if bend > -1.0 else -2.0 / skewness
    at = np.ceil(mean + np.sqrt(variance) * at - 0.5)
    return float(at if abs(at) < np.inf else np.floor(mean))


class CountQuantile(Op):
    """Smallest count whose distribution function reaches u, entry by entry: u, parameters -> counts.

    All inputs are vectors of one length. Where many entries in a row have the same parameters, a table of the
    distribution function serves all of them. Elsewhere, and beyond it, counts are tried from a guess on in
    steps that double, and then by bisection: two or three evaluations of the distribution function per entry
    where the guess is good, as it is for laws of many counts. Where the parameters give no law, it is 0.
    """

    __props__ = ("rv_op",)
    by_entry = True

    def __init__(self, rv_op: RandomVariable):
        self.rv_op = rv_op

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply it to u and parameters."""
        return Apply(self, list(inputs), [pt.vector(dtype="int64", shape=inputs[0].type.shape)])  # type: ignore[attr-defined]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Refuse: there is no interpreted form."""
        raise NotImplementedError("compiled by numba only")


class CountSteps(CountQuantile):
    """The distribution function just below counts and at them, entry by entry: counts, parameters -> two.

    The numbers are those that :class:`CountQuantile` compares u with, so that a number between them finds the
    count again.
    """

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply it to counts, as float64, and parameters."""
        shape = inputs[0].type.shape  # type: ignore[attr-defined]
        return Apply(self, list(inputs), [pt.vector(dtype="float64", shape=shape) for _ in range(2)])


def _scalar_cdf(rv_op: RandomVariable, n_params: int) -> tuple[Any, str | None]:
    value, *params = (ps.float64(f"p{k}") for k in range(n_params + 1))
    law = rv_op.make_node(
        pt.random.shared_rng(seed=None), NoneConst, *(pt.tensor_from_scalar(p) for p in params)
    )
    logcdf = pm.logcdf(law.default_output(), pt.cast(pt.tensor_from_scalar(value), "int64"))
    graph = pt.exp(parameter_checks_to_values(logcdf))
    function, key, _ = jit_scalar([value, *params], [pt.cast(graph, "float64")])
    return function, key


@register_funcify_and_cache_key(CountQuantile)
@register_funcify_and_cache_key(CountSteps)
def _funcify(op: CountQuantile, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    law, names = _LAWS[type(op.rv_op)], [f"p{k}" for k in range(len(node.inputs) - 1)]
    cdf, inner_key = _scalar_cdf(op.rv_op, len(names))
    arrays = [f"a{k}" for k in range(len(names))]
    parts = {
        **law._asdict(),
        "args": ", ".join(arrays),
        "entries": ", ".join(f"{a}[i]" for a in arrays),
        "same": " and ".join(f"{a}[stop] == {a}[i]" for a in arrays),
        "params": ", ".join(names),
    }
    parts["runs"] = _RUNS.format(**parts)
    name, template = ("steps", _STEPS) if isinstance(op, CountSteps) else ("quantile", _QUANTILE)
    sources = [text.format(**parts) for text in (_TABLE, template)]
    scope = {
        "cdf": cdf, "ratio": RATIOS[type(op.rv_op)], "guess": guess, "LARGEST": LARGEST, "REACH": _REACH,
        "LENGTH": _LENGTH, "np": np, "__name__": __name__,
    }  # fmt: skip
    scope["table"] = njit(compile_numba_function_src(sources[0], "table", scope))
    function = njit(compile_numba_function_src(sources[1], name, scope))
    return function, digest([inner_key, key_of(function)])


def _flat(rv: TensorVariable, at: TensorVariable) -> list[TensorVariable]:
    assert rv.owner is not None
    params = rv.owner.op.dist_params(rv.owner)
    return [pt.cast(pt.broadcast_to(p, at.shape), "float64").ravel() for p in params]


def count_quantile(rv: TensorVariable, u: TensorVariable) -> TensorVariable:
    """Return the quantile of a univariate law on 0, 1, 2, ... at u.

    Parameters
    ----------
    rv : TensorVariable
        The law: Poisson, binomial or negative binomial.
    u : TensorVariable
        Probabilities in (0, 1), in the shape of `rv`.

    Returns
    -------
    TensorVariable
        Counts, int64, in the shape of `u`.
    """
    counts = CountQuantile(rv.owner.op)(u.ravel(), *_flat(rv, u))  # type: ignore[union-attr]
    return counts.reshape(u.shape, ndim=u.ndim)  # type: ignore[union-attr]


def count_steps(rv: TensorVariable, x: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Return the distribution function of such a law just below counts, and at them.

    Parameters
    ----------
    rv : TensorVariable
        The law.
    x : TensorVariable
        Counts, in the shape of `rv`.
    """
    flat = CountSteps(rv.owner.op)(pt.cast(x, "float64").ravel(), *_flat(rv, x))  # type: ignore[union-attr]
    below, at = (each.reshape(x.shape, ndim=x.ndim) for each in flat)  # type: ignore[union-attr]
    return below, at
