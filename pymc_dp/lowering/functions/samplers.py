"""Scalar draws in nopython code, for the distributions of PyMC that numba cannot draw from.

PyMC draws these through SciPy, which PyTensor's numba backend can only reach by going back to the
interpreter (some 20 us a draw). Each function here takes a generator and the parameters of the
RandomVariable ``Op`` in its own order, and returns one draw in 5 to 100 ns. :func:`core_sampler`
finds the function of an ``Op``: from the table below, else from PyTensor's own scalar draws.

A parameter that is not a number gives a draw that is not a number (of counts: -1), never an endless loop. A
draw too large for a number is infinite, never an error: division by zero is NumPy's throughout, not Python's.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor.random.basic as ptr
from pymc.distributions import continuous, discrete
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.random.op import RandomVariable

from pymc_dp.lowering.compiling.keys import key_of, version_of
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random, standard_exponential, standard_normal
from pymc_dp.upstream.pytensor_private import hash_from_pickle_dump, numba_core_rv_funcify, properties

_TINY, _ONE = float(np.finfo(np.float64).tiny), float(1 - np.finfo(np.float64).epsneg)

# Parameters below which a beta variable is drawn from logarithms.
_SMALL = 1e-4


@njit(forceinline=True)
def _normal(rng, mu, sigma):  # type: ignore[no-untyped-def]
    return mu + sigma * standard_normal(rng)


@njit(forceinline=True)
def _half_normal(rng, loc, sigma):  # type: ignore[no-untyped-def]
    return loc + sigma * abs(standard_normal(rng))


@njit(forceinline=True)
def _log_normal(rng, mu, sigma):  # type: ignore[no-untyped-def]
    return math.exp(mu + sigma * standard_normal(rng))


@njit(forceinline=True)
def _uniform(rng, lower, upper):  # type: ignore[no-untyped-def]
    return lower + (upper - lower) * random(rng)


@njit(forceinline=True)
def _exponential(rng, scale):  # type: ignore[no-untyped-def]
    return scale * standard_exponential(rng)


@njit(forceinline=True)
def _bernoulli(rng, p):  # type: ignore[no-untyped-def]
    return 0 if p < random(rng) else 1


@njit
def _tail_normal(rng, a, b):  # type: ignore[no-untyped-def]
    """Draw a standard normal on [a, b], 0 < a: Robert (1995), one- and two-sided tails."""
    if a > 1e9:  # the draw differs from it by 1/a, which rounds to nothing, and its square may be infinite
        return a
    root = math.sqrt(a * a + 4.0)
    rate = 0.5 * (a + root)
    if b - a > math.exp(0.25 * (a * a - a * root) + 0.5) / rate:
        while True:
            x = a + standard_exponential(rng) / rate
            if x <= b and random(rng) <= math.exp(-0.5 * (x - rate) ** 2):
                return x
    while True:
        x = a + (b - a) * random(rng)
        if random(rng) <= math.exp(0.5 * (a - x) * (a + x)):
            return x


@njit
def _truncated_normal(rng, mu, sigma, lower, upper):  # type: ignore[no-untyped-def]
    a, b = (lower - mu) / sigma, (upper - mu) / sigma
    if not (a <= b and sigma > 0.0):
        return np.nan
    if a > 0.0:
        x = mu + sigma * _tail_normal(rng, a, b)
    elif b < 0.0:
        x = mu - sigma * _tail_normal(rng, -b, -a)
    elif b - a > 2.5:
        while True:
            z = standard_normal(rng)
            if a <= z <= b:
                break
        x = mu + sigma * z
    else:
        while True:
            z = a + (b - a) * random(rng)
            if random(rng) <= math.exp(-0.5 * z * z):
                break
        x = mu + sigma * z
    return min(max(x, lower), upper)  # mu + sigma * z may round to just outside


@njit
def _skew_normal(rng, mu, sigma, alpha):  # type: ignore[no-untyped-def]
    # Azzalini (1985): a normal plus the absolute value of another
    scale = math.sqrt(1.0 + alpha * alpha)
    z = (alpha * abs(standard_normal(rng)) + standard_normal(rng)) / scale
    return mu + sigma * z


@njit
def standard_gamma(rng, shape):  # type: ignore[no-untyped-def]
    """Draw a gamma variable of unit rate; NumPy's own rejection does not end without a finite shape."""
    return rng.standard_gamma(shape) if 0.0 <= shape < np.inf else np.nan


@njit
def _skew_student_t(rng, a, b, mu, sigma):  # type: ignore[no-untyped-def]
    # Jones & Faddy (2003), section 2: a transformed beta variable. From two gammas, because the
    # beta itself rounds to 0 or 1 in the tails
    g, h = standard_gamma(rng, a), standard_gamma(rng, b)
    return mu + sigma * 0.5 * math.sqrt(a + b) * (g - h) / math.sqrt(g * h)


@njit
def _rice(rng, b, sigma):  # type: ignore[no-untyped-def]
    return sigma * math.hypot(b + standard_normal(rng), standard_normal(rng))


@njit
def _moyal(rng, mu, sigma):  # type: ignore[no-untyped-def]
    z = standard_normal(rng)
    return mu - sigma * math.log(z * z)


@njit
def _wald(rng, mu, lam, alpha):  # type: ignore[no-untyped-def]
    return rng.wald(mu, lam) + alpha


@njit
def _student_t(rng, nu, mu, sigma):  # type: ignore[no-untyped-def]
    if not 0.0 < nu < np.inf:
        return mu + sigma * standard_normal(rng) if nu == np.inf else np.nan
    return mu + sigma * rng.standard_t(nu)


@njit
def _inverse_gamma(rng, shape, scale):  # type: ignore[no-untyped-def]
    return scale / standard_gamma(rng, shape)


@njit
def log_gamma(rng, shape):  # type: ignore[no-untyped-def]
    """Draw the logarithm of a gamma variable."""
    # a gamma variable of shape a is one of shape a + 1 times the power 1/a of a uniform one
    if shape >= 1.0:
        return math.log(standard_gamma(rng, shape))
    return math.log(standard_gamma(rng, shape + 1.0)) - standard_exponential(rng) / shape


@njit
def _plain_beta(rng, alpha, beta):  # type: ignore[no-untyped-def]
    if not (0.0 < alpha < np.inf and 0.0 < beta < np.inf):
        return np.nan
    if max(alpha, beta) < _SMALL:  # NumPy's way rejects all pairs that underflow, which are nearly all
        return 1.0 / (1.0 + math.exp(log_gamma(rng, beta) - log_gamma(rng, alpha)))
    return rng.beta(alpha, beta)


@njit
def _beta(rng, alpha, beta):  # type: ignore[no-untyped-def]
    # as PyMC does, keep the draw off the end points, where the density may be infinite
    return min(max(_plain_beta(rng, alpha, beta), _TINY), _ONE)


@njit
def _hypergeometric(rng, good, bad, n):  # type: ignore[no-untyped-def]
    """Invert, walking outwards from the mode: the steps are some standard deviations."""
    lower, upper = max(0, n - bad), min(n, good)
    mode = min(max(((n + 1) * (good + 1)) // (good + bad + 2), lower), upper)
    log_p = (
        math.lgamma(good + 1.0) - math.lgamma(mode + 1.0) - math.lgamma(good - mode + 1.0)
        + math.lgamma(bad + 1.0) - math.lgamma(n - mode + 1.0) - math.lgamma(bad - n + mode + 1.0)
        - math.lgamma(good + bad + 1.0) + math.lgamma(n + 1.0) + math.lgamma(good + bad - n + 1.0)
    )  # fmt: skip
    u = random(rng) - math.exp(log_p)
    left, right = mode, mode
    p_left = p_right = math.exp(log_p)
    while u >= 0.0 and (left > lower or right < upper):
        if right < upper:
            k = right
            p_right *= (good - k) * (n - k) / ((k + 1.0) * (bad - n + k + 1.0))
            right += 1
            u -= p_right
            if u < 0.0:
                return right
        if left > lower:
            k = left
            p_left *= k * (bad - n + k) / ((good - k + 1.0) * (n - k + 1.0))
            left -= 1
            u -= p_left
            if u < 0.0:
                return left
    return mode  # reached within rounding of 1 only, or at once


@njit
def _discrete_uniform(rng, lower, upper):  # type: ignore[no-untyped-def]
    return rng.integers(np.int64(lower), np.int64(upper) + 1)


@njit
def _beta_binomial(rng, n, alpha, beta):  # type: ignore[no-untyped-def]
    p = _plain_beta(rng, alpha, beta)
    return rng.binomial(n, p) if p >= 0.0 else -1  # no law, and no count


SAMPLERS: dict[type[RandomVariable], Callable[..., Any]] = {
    # these numba has too, with calls for their bits
    ptr.NormalRV: _normal,
    ptr.HalfNormalRV: _half_normal,
    ptr.LogNormalRV: _log_normal,
    ptr.UniformRV: _uniform,
    ptr.ExponentialRV: _exponential,
    ptr.BernoulliRV: _bernoulli,
    continuous.TruncatedNormalRV: _truncated_normal,
    continuous.SkewNormalRV: _skew_normal,
    continuous.SkewStudentTRV: _skew_student_t,
    continuous.RiceRV: _rice,
    continuous.MoyalRV: _moyal,
    continuous.WaldRV: _wald,
    continuous.BetaClippedRV: _beta,
    ptr.BetaRV: _plain_beta,
    ptr.StudentTRV: _student_t,
    ptr.InvGammaRV: _inverse_gamma,
    discrete.DiscreteUniformRV: _discrete_uniform,
    ptr.HyperGeometricRV: _hypergeometric,
    ptr.BetaBinomialRV: _beta_binomial,
}


def register_draw(kind: type[RandomVariable], function: Callable[..., Any]) -> None:
    """Tell PyTensor's numba backend how a random variable operation is drawn.

    Parameters
    ----------
    kind : type
        The operation's class.
    function : njit function
        ``(rng, *parameters) -> draw`` of one entry.
    """
    register_draw_of(kind, lambda op: function)


def register_draw_of(kind: type[RandomVariable], factory: Callable[[Any], Callable[..., Any]]) -> None:
    """Tell how an operation with static settings is drawn, which its properties have to name.

    Parameters
    ----------
    kind : type
        The operation's class.
    factory : callable
        From an operation to the njit function ``(rng, *parameters) -> draw`` of one entry.
    """

    @numba_core_rv_funcify.register(kind)
    def funcify(op: RandomVariable, node: Apply) -> Any:
        function = factory(op)
        return function, version_of(function)


# Draws of arrays go through PyTensor, whose functions for these divide by what may be zero, or do not end.
class _StudentTRV(ptr.StudentTRV):
    pass


class _InvGammaRV(ptr.InvGammaRV):
    pass


class _BetaRV(ptr.BetaRV):
    pass


_REPLACED: dict[type[RandomVariable], type[RandomVariable]] = {
    ptr.StudentTRV: _StudentTRV,
    ptr.InvGammaRV: _InvGammaRV,
    ptr.BetaRV: _BetaRV,
}
for _kind, _own in _REPLACED.items():
    register_draw(_own, SAMPLERS[_kind])


@node_rewriter(tracks=[*_REPLACED])
def draws_without_errors(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Let random variables be drawn by the functions of this module."""
    own = _REPLACED.get(type(node.op))
    return None if own is None else own(**properties(node.op)).make_node(*node.inputs).outputs


def core_sampler(
    op: RandomVariable, node: Apply
) -> tuple[Callable[..., Any], str | None] | tuple[None, None]:
    """Return the nopython function ``(rng, *parameters) -> draw`` of an ``Op``, and its cache key.

    Parameters
    ----------
    op : RandomVariable
        The distribution.
    node : Apply
        An application of it (PyTensor's own table asks for the dtype of its output).

    Returns
    -------
    function : callable or None
        None where there is no such function.
    key : str or None
        None where the function must not be kept on disk.
    """
    if type(op) in SAMPLERS:
        return SAMPLERS[type(op)], key_of(SAMPLERS[type(op)])
    try:
        found = numba_core_rv_funcify(op, node)
    except NotImplementedError:
        return None, None
    function, version = found if isinstance(found, tuple) else (found, "")
    # a sampler may depend on what the Op holds, so all of it is part of the key
    props = tuple(getattr(op, name) for name in op.__props__)
    try:
        key = hash_from_pickle_dump((type(op), props, version))
    except Exception:  # a class of __main__ or of a function: works, but is compiled every time
        key = None
    return function, None if version is None else key
