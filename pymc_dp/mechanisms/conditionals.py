"""Exact draws of a Normal record given its own noisy, possibly clamped, release.

For y ~ N(mu, s^2) and z = clamp(y, lo, hi) + noise, the law of y given z is a mixture of a few
truncated normals: one on [lo, hi] for Gaussian noise, two for Laplace noise (split at z), and the
two tails of the prior beyond lo and hi, on which the release does not depend on y.

Each piece is normal with centre m and standard deviation r on an interval. Its weight is anchored
at the point of the interval nearest to m, where the joint density is evaluated directly: nothing
overflows or cancels however far m is from the interval.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from pytensor.tensor.random.op import RandomVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random, standard_exponential, standard_normal
from pymc_dp.lowering.functions.normal_mass import erfcx
from pymc_dp.lowering.functions.samplers import register_draw

_ROOT_HALF_PI = math.sqrt(math.pi / 2)
_ROOT_HALF = math.sqrt(0.5)


@njit(cache=True)
def _log_mass(alpha, beta, width):
    """Return the log integral of exp(-(x^2 - a^2)/2) over [alpha, beta], with a its point nearest to 0.

    `width` is beta - alpha, an argument because the difference of two ends far out would lose its digits.
    """
    if alpha < 0.0 < beta:
        return math.log(_ROOT_HALF_PI * (math.erf(beta * _ROOT_HALF) - math.erf(alpha * _ROOT_HALF)))
    near = alpha if alpha >= 0.0 else -beta
    if width == math.inf:
        return math.log(_ROOT_HALF_PI * erfcx(near * _ROOT_HALF))
    drop = width * (near + 0.5 * width)
    if drop < 1e-5:
        return math.log(width) - width * (0.5 * near + width / 6.0)
    far = erfcx((near + width) * _ROOT_HALF)
    return math.log(_ROOT_HALF_PI * (erfcx(near * _ROOT_HALF) - math.exp(-drop) * far))


@njit(cache=True)
def _standard_tail(rng, near, width):
    """Draw t in [0, width] with density proportional to exp(-near t - t^2/2), near >= 0.

    Rejection with acceptance above .4 everywhere (Robert 1995, Simulation of truncated normal
    variables, with Marsaglia's simpler rate).
    """
    if near < 0.5 and width > 1.0:
        while True:
            t = abs(standard_normal(rng)) - near
            if 0.0 <= t <= width:
                return t
    if near < 0.5:
        while True:
            t = width * random(rng)
            if standard_exponential(rng) >= t * (near + 0.5 * t):
                return t
    span = -math.expm1(-near * width)
    while True:
        t = -math.log1p(-span * random(rng)) / near
        if t <= width and standard_exponential(rng) >= 0.5 * t * t:
            return t


@njit(cache=True)
def _truncated_normal(rng, m, r, lo, hi, alpha, beta):
    """Draw from N(m, r^2) on [lo, hi]; alpha and beta are the standardised ends."""
    width = (hi - lo) / r
    if alpha >= 0.0:
        y = lo + r * _standard_tail(rng, alpha, width)
    elif beta <= 0.0:
        y = hi - r * _standard_tail(rng, -beta, width)
    elif width > 2.5:
        while True:
            x = standard_normal(rng)
            if alpha <= x <= beta:
                break
        y = m + r * x
    else:
        while True:
            x = alpha + width * random(rng)
            if standard_exponential(rng) >= 0.5 * x * x:
                break
        y = m + r * x
    return min(max(y, lo), hi)


@njit(cache=True)
def _pick(rng, a, b, c, d):
    """Draw an index with probability proportional to exp of four log weights; -1 if all weights are 0."""
    top = max(max(a, b), max(c, d))
    if not -math.inf < top < math.inf or math.isnan(a + b + c + d):
        return -1
    a, b, c, d = math.exp(a - top), math.exp(b - top), math.exp(c - top), math.exp(d - top)
    u = random(rng) * (a + b + c + d)
    if u < a:
        return 0
    if u < a + b:
        return 1
    return 2 if (u < a + b + c or d == 0.0) else 3


@njit(cache=True)
def _improper(mu, s, z, noise, lo, hi):
    """Return whether a parameter is out of range; draws are then NaN, since rejection would never end."""
    return not (
        math.isfinite(mu) and 0.0 < s < math.inf and math.isfinite(z) and 0.0 < noise < math.inf and lo < hi
    )


@njit(cache=True)
def _log_tail(mu, s, lo, hi, log_release):
    """Return the log weight of a tail of the prior, anchored at its point nearest to mu."""
    alpha, beta = (lo - mu) / s, (hi - mu) / s
    offset = min(max(0.0, alpha), beta)
    return -0.5 * offset * offset + math.log(s) + _log_mass(alpha, beta, math.inf) + log_release


@njit(cache=True)
def normal_given_gaussian(rng, mu, s, z, sigma, lo, hi):
    """Draw y ~ N(mu, s^2) given z = clamp(y, lo, hi) + N(0, sigma^2); scalars."""
    if _improper(mu, s, z, sigma, lo, hi):
        return math.nan
    ratio = sigma / s
    m = mu + (z - mu) / (1.0 + ratio * ratio)
    r = sigma / math.hypot(1.0, ratio) if ratio < 1.0 else s / math.hypot(1.0, 1.0 / ratio)
    alpha, beta = (lo - m) / r, (hi - m) / r
    if lo == -math.inf and hi == math.inf:
        return m + r * standard_normal(rng)
    anchor = min(max(m, lo), hi)
    prior, release = (anchor - mu) / s, (z - anchor) / sigma
    middle = math.log(r) + _log_mass(alpha, beta, (hi - lo) / r)
    middle -= 0.5 * (prior * prior + release * release)
    below = above = -math.inf
    if lo > -math.inf:
        below = _log_tail(mu, s, -math.inf, lo, -0.5 * ((z - lo) / sigma) ** 2)
    if hi < math.inf:
        above = _log_tail(mu, s, hi, math.inf, -0.5 * ((z - hi) / sigma) ** 2)
    piece = _pick(rng, middle, below, above, -math.inf)
    if piece == 0:
        return _truncated_normal(rng, m, r, lo, hi, alpha, beta)
    if piece == 1:
        return _truncated_normal(rng, mu, s, -math.inf, lo, -math.inf, (lo - mu) / s)
    if piece == 2:
        return _truncated_normal(rng, mu, s, hi, math.inf, (hi - mu) / s, math.inf)
    return math.nan


@njit(cache=True)
def _log_tilted(mu, s, z, b, m, lo, hi, alpha, beta):
    """Return the log weight of one side of z, with ends alpha and beta standardised about m."""
    if not lo < hi:
        return -math.inf
    anchor = lo if alpha >= 0.0 else (hi if beta <= 0.0 else m)
    prior = (anchor - mu) / s
    log_joint = -0.5 * prior * prior - abs(z - anchor) / b
    return log_joint + math.log(s) + _log_mass(alpha, beta, (hi - lo) / s)


@njit(cache=True)
def normal_given_laplace(rng, mu, s, z, b, lo, hi):
    """Draw y ~ N(mu, s^2) given z = clamp(y, lo, hi) + Laplace(0, b); scalars."""
    if _improper(mu, s, z, b, lo, hi):
        return math.nan
    # The noise moves the prior's centre up by s^2/b below z, and down by as much above z.
    tilt = s / b
    split = min(max(z, lo), hi)
    left_a, left_b = (lo - mu) / s - tilt, (split - mu) / s - tilt
    right_a, right_b = (split - mu) / s + tilt, (hi - mu) / s + tilt
    left = _log_tilted(mu, s, z, b, mu + tilt * s, lo, split, left_a, left_b)
    right = _log_tilted(mu, s, z, b, mu - tilt * s, split, hi, right_a, right_b)
    below = above = -math.inf
    if lo > -math.inf:
        below = _log_tail(mu, s, -math.inf, lo, -abs(z - lo) / b)
    if hi < math.inf:
        above = _log_tail(mu, s, hi, math.inf, -abs(z - hi) / b)
    piece = _pick(rng, left, right, below, above)
    if piece == 0:
        return _truncated_normal(rng, mu + tilt * s, s, lo, split, left_a, left_b)
    if piece == 1:
        return _truncated_normal(rng, mu - tilt * s, s, split, hi, right_a, right_b)
    if piece == 2:
        return _truncated_normal(rng, mu, s, -math.inf, lo, -math.inf, (lo - mu) / s)
    if piece == 3:
        return _truncated_normal(rng, mu, s, hi, math.inf, (hi - mu) / s, math.inf)
    return math.nan


@njit(cache=True)
def _fill_gaussian(rng, mu, s, z, sigma, lo, hi, out):
    for i in range(out.size):
        out[i] = normal_given_gaussian(rng, mu[i], s[i], z[i], sigma[i], lo[i], hi[i])


@njit(cache=True)
def _fill_laplace(rng, mu, s, z, b, lo, hi, out):
    for i in range(out.size):
        out[i] = normal_given_laplace(rng, mu[i], s[i], z[i], b[i], lo[i], hi[i])


class _NormalGivenRelease(RandomVariable):
    signature = "(),(),(),(),(),()->()"
    dtype = "floatX"
    _fill: ClassVar[Any] = None

    @classmethod
    def rng_fn(cls, rng, mu, s, z, noise, lo, hi, size):
        params = np.broadcast_arrays(mu, s, z, noise, lo, hi)
        shape = params[0].shape if size is None else tuple(size)
        flat = [np.broadcast_to(p, shape).astype(float).ravel() for p in params]
        out = np.empty(flat[0].size)
        cls._fill(rng, *flat, out)
        return out.reshape(shape)


class NormalGivenGaussianRV(_NormalGivenRelease):
    """y ~ N(mu, s^2) given z = clamp(y, lo, hi) + N(0, sigma^2), elementwise.

    Parameters of a draw: ``mu, s, z, sigma, lo, hi`` (lo = -inf and hi = inf: not clamped).
    Parameters out of range give NaN.
    """

    name = "normal_given_gaussian"
    _print_name = ("NormalGivenGaussian", "\\operatorname{NormalGivenGaussian}")
    _fill = staticmethod(_fill_gaussian)


class NormalGivenLaplaceRV(_NormalGivenRelease):
    """y ~ N(mu, s^2) given z = clamp(y, lo, hi) + Laplace(0, b), elementwise.

    Parameters of a draw: ``mu, s, z, b, lo, hi`` (lo = -inf and hi = inf: not clamped).
    Parameters out of range give NaN.
    """

    name = "normal_given_laplace"
    _print_name = ("NormalGivenLaplace", "\\operatorname{NormalGivenLaplace}")
    _fill = staticmethod(_fill_laplace)


register_draw(NormalGivenGaussianRV, normal_given_gaussian)
register_draw(NormalGivenLaplaceRV, normal_given_laplace)

NormalGivenGaussian = NormalGivenGaussianRV()
NormalGivenLaplace = NormalGivenLaplaceRV()
