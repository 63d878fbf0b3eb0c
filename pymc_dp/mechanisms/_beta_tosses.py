r"""Beta records behind the binomial mechanism, integrated out.

Each of the m tosses succeeds with probability a + c y, a and c being fixed by the bounds and the bias, and
fails with probability (1 - a - c) + c (1 - y). In other words, with probability c a toss is honest, which
means that it succeeds with probability y. So the probability of z successes is a sum over the number i of
honest successes and the number j of honest failures,

.. math:: \binom{m}{z} \sum_{i \le z} \sum_{j \le m - z} \binom{z}{i} c^i a^{z - i}
    \binom{m - z}{j} c^j (1 - a - c)^{m - z - j} \frac{B(\alpha + i, \beta + j)}{B(\alpha, \beta)},

in which all terms are positive. Given i and j, the record has a beta law with parameters alpha + i and beta +
j.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pytensor.gradient import disconnected_grad
from pytensor.tensor.random.basic import BetaRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorConstant, TensorVariable
from scipy.special import gammaln

from pymc_dp.mechanisms.marginals import Ends, MarginalOp, RecordMarginal, call
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS
from pymc_dp.upstream.pymc_private import _logprob, _support_point

MAX_TRIALS = 64


class BetaTossesRV(MarginalOp, RandomVariable):
    """Draws a beta record, then the number of successes; parameters: alpha, beta, theta."""

    name = "beta_tosses"
    signature = "(),(),()->()"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", "channel", *MECHANISM_PROPS)
    _print_name = ("BetaTosses", "\\operatorname{BetaTosses}")

    def __init__(self, name: str | None = None, *, channel: Any = None, **kwargs: Any) -> None:
        self.channel = channel
        super().__init__(name, **kwargs)

    def rng_fn(self, rng: np.random.Generator, alpha: Any, beta: Any, theta: Any, size: Any) -> np.ndarray:
        """Draw the record, then its release."""
        shape = np.broadcast_shapes(*map(np.shape, (alpha, beta, theta))) if size is None else tuple(size)
        query = np.clip(rng.beta(alpha, beta, shape), *self.channel.interval)
        return self.channel.rng_fn(rng, query, np.broadcast_to(theta, shape), size=shape)


def _terms(channel: Any, alpha: Any, beta: Any, theta: Any, value: Any) -> TensorVariable:
    """Return the logs of the sum's terms, shape (..., m + 1, m + 1); -inf where there is no term."""
    m, (lo, hi) = channel.n_trials, channel.interval
    alpha, beta, theta, value = (pt.as_tensor_variable(v) for v in (alpha, beta, theta, value))
    log_factorial = pt.constant(gammaln(np.arange(m + 1) + 1.0))
    honest = 2 * theta / (hi - lo)
    low = (0.5 - theta) + honest * (0.0 - lo)
    high = (0.5 - theta) + honest * (hi - 1.0)
    count = pt.arange(m + 1)

    def rising(a: TensorVariable) -> TensorVariable:
        """Return the logs of a (a + 1) ... (a + k - 1), for k = 0, ..., m."""
        logs = pt.cumsum(pt.log(a[..., None] + pt.arange(m)), axis=-1)
        return pt.concatenate([pt.zeros_like(logs[..., :1]), logs], axis=-1)

    def one_side(n: TensorVariable, dishonest: TensorVariable, a: TensorVariable) -> TensorVariable:
        rest = n[..., None] - count
        possible = pt.ge(rest, 0)
        rest = pt.maximum(rest, 0)
        ways = log_factorial[n][..., None] - log_factorial - log_factorial[rest]
        powers = count * pt.log(honest)[..., None] + rest * pt.log(dishonest)[..., None]
        return pt.switch(possible, ways + powers + rising(a), -np.inf)

    value = pt.clip(pt.cast(value, "int64"), 0, m)
    both = one_side(value, low, alpha)[..., :, None] + one_side(m - value, high, beta)[..., None, :]
    used = np.minimum(np.arange(m + 1)[:, None] + np.arange(m + 1), m)
    ways = log_factorial[m] - log_factorial[value] - log_factorial[m - value]
    return ways[..., None, None] + both - rising(alpha + beta)[..., used]


@_logprob.register(BetaTossesRV)
def _log_probability(
    op: Any, values: Any, rng: Any, size: Any, alpha: Any, beta: Any, theta: Any, **kwargs: Any
) -> TensorVariable:
    """Return the log probability of each count; equal ones are computed once if they share parameters."""
    (value,) = values

    def density(value: TensorVariable) -> TensorVariable:
        terms = _terms(op.channel, alpha, beta, theta, value)
        top = disconnected_grad(pt.max(terms, axis=(-2, -1)))
        return top + pt.log(pt.sum(pt.exp(terms - top[..., None, None]), axis=(-2, -1)))

    m = op.channel.n_trials
    if (
        isinstance(value, TensorConstant)
        and value.ndim
        and not any(p.type.ndim for p in (alpha, beta, theta))
    ):
        found = density(pt.arange(m + 1))[pt.clip(pt.cast(value, "int64"), 0, m)]
    else:
        found = density(value)
    possible = pt.eq(value, pt.floor(value)) & pt.ge(value, 0) & pt.le(value, m)
    found = pt.switch(possible, found, -np.inf)
    return check_parameters(
        found, alpha > 0, beta > 0, theta > 0, theta < 0.5, msg="alpha > 0, beta > 0, 0 < theta < 1/2"
    )


@_support_point.register(BetaTossesRV)
def _half(op: Any, rv: Any, *inputs: Any) -> TensorVariable:
    """Return half of the tosses, a count that is possible for every record."""
    return pt.full(rv.shape, op.channel.n_trials // 2, dtype="int64")


def _release(
    op: Any, promise: dict[str, Any], params: list, noise: list, size: Any, ends: Ends
) -> TensorVariable:
    return call(BetaTossesRV(channel=op, **promise), *params, *noise, size=size)


def _record(op: Any, params: list, noise: list, released: TensorVariable, ends: Ends) -> TensorVariable:
    (alpha, beta), (theta,) = params, noise
    terms = _terms(op, alpha, beta, theta, released).flatten(released.type.ndim + 1)
    chances = pt.special.softmax(terms, axis=-1)
    rng = pt.random.shared_rng(seed=None)
    index = pt.random.categorical(chances, rng=rng, return_next_rng=True)[1]
    return call(BetaRV(), alpha + index // (op.n_trials + 1), beta + index % (op.n_trials + 1))


def _refuse(op: Any, ends: Ends) -> str | None:
    lo, hi = op.interval
    if lo > 0 or hi < 1:
        return f"beta records are clamped to ({lo:g}, {hi:g}), which is less than (0, 1)"
    if op.n_trials > MAX_TRIALS:
        return f"the sum over its {op.n_trials} tosses has more than {(MAX_TRIALS + 1) ** 2} terms"
    return None


BETA_BINOMIAL = RecordMarginal(_release, _record, refuse=_refuse)
