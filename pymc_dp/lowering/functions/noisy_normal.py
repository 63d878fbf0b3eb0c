"""Density of a normal number that is clamped, then gets noise, as scalar operations with their gradient.

For y ~ N(mu, s^2) and z = clamp(y, lo, hi) + noise, the density of z is a sum over pieces of the law of y:
the part inside the interval (with Laplace noise: on either side of z), and the two tails, on which the
release does not depend on y. The derivatives are moments of y given z, summed over the same pieces; so value
and gradient come from one pass, and have their digits at any distance and any ratio of the scales.
"""

import math
from typing import Any

from pytensor.gradient import DisconnectedType
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import ScalarOp, float64
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.keys import key_of
from pymc_dp.lowering.compiling.nopython import njit, njit_for_graphs
from pymc_dp.lowering.functions.normal_mass import erfcx, mass_below, mass_of, piece
from pymc_dp.upstream.pytensor_private import register_scalar_funcify

_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
_LOG_4 = math.log(4.0)
_ROOT_HALF = math.sqrt(0.5)
_INF = math.inf


@njit(cache=True)
def _side(z, mu, s, b, lo, hi):  # type: ignore[no-untyped-def]
    """Part of y below z: log height and mass, mean and mean square of (y - mu)/s, mean of (z - y)/b."""
    end = min(z, hi)
    if not lo < end:
        return -_INF, 0.0, 0.0, 0.0, 0.0
    # in standard deviations from the mean of y, the tilted law has its centre at k
    k, u = s / b, (z - mu) / s
    first, last = (lo - mu) / s, (end - mu) / s
    alpha, beta = first - k, last - k
    mass, mean, square = piece(alpha, beta, (end - lo) / s)
    if alpha >= 0.0:
        far = (z - lo) / b
        height = -0.5 * first * first - far
        return height, mass, first + mean, first * first + 2.0 * first * mean + square, far - k * mean
    if beta <= 0.0:
        far = (z - end) / b
        height = -0.5 * last * last - far
        return height, mass, last - mean, last * last - 2.0 * last * mean + square, far + k * mean
    return -k * (u - 0.5 * k), mass, k + mean, k * k + 2.0 * k * mean + square, k * (u - k - mean)


@njit(cache=True)
def laplace_parts(z, mu, s, b, lo, hi):  # type: ignore[no-untyped-def]
    """Log density under Laplace noise of scale b, and its derivatives by z, mu, s and b."""
    h1, left, x1, xx1, gap1 = _side(z, mu, s, b, lo, hi)
    h2, right, x2, xx2, gap2 = _side(-z, -mu, s, b, -hi, -lo)
    h3 = h4 = -_INF
    below = above = x3 = xx3 = gap3 = x4 = xx4 = gap4 = 0.0
    if lo > -_INF:
        h3, below, x3, xx3 = mass_below((lo - mu) / s)
        gap3 = abs(z - lo) / b
        h3 -= gap3
    if hi < _INF:
        h4, above, x4, xx4 = mass_below((mu - hi) / s)
        gap4 = abs(z - hi) / b
        h4 -= gap4
    top = max(max(h1, h2), max(h3, h4))
    if not -_INF < top < _INF:
        return top, math.nan, math.nan, math.nan, math.nan
    left, right = left * math.exp(h1 - top), right * math.exp(h2 - top)
    below, above = below * math.exp(h3 - top), above * math.exp(h4 - top)
    total = left + right + below + above
    slope = right - left
    slope += below if z < lo else -below
    slope += above if z < hi else -above
    x = (left * x1 - right * x2 + below * x3 - above * x4) / total
    xx = (left * xx1 + right * xx2 + below * xx3 + above * xx4) / total
    gap = (left * gap1 + right * gap2 + below * gap3 + above * gap4) / total
    value = top + math.log(total / (2.0 * b)) - _LOG_ROOT_2PI
    return value, slope / (total * b), x / s, (xx - 1.0) / s, (gap - 1.0) / b


@njit(cache=True)
def gaussian_parts(z, mu, s, sigma, lo, hi):  # type: ignore[no-untyped-def]
    """Log density under Gaussian noise of standard deviation sigma, and its derivatives."""
    # y given z, without the clamp, is N(m, r^2)
    tau = math.hypot(s, sigma)
    to_noise, to_record = s / tau, sigma / tau
    m, r = mu + (z - mu) * to_noise * to_noise, sigma * to_noise
    alpha, beta = (lo - m) / r, (hi - m) / r
    inside, mean, square = piece(alpha, beta, (hi - lo) / r)
    if alpha >= 0.0:
        x, gap = (lo - mu) / s, (z - lo) / sigma
    elif beta <= 0.0:
        x, gap, mean = (hi - mu) / s, (z - hi) / sigma, -mean
    else:
        x, gap = (z - mu) / tau * to_noise, (z - mu) / tau * to_record
    h1 = -0.5 * (x * x + gap * gap)
    x1, xx1 = x + to_record * mean, x * x + 2.0 * x * to_record * mean + to_record * to_record * square
    gap1 = gap - to_noise * mean
    gaps1 = gap * gap - 2.0 * gap * to_noise * mean + to_noise * to_noise * square
    h2 = h3 = -_INF
    below = above = x2 = xx2 = gap2 = x3 = xx3 = gap3 = 0.0
    if lo > -_INF:
        h2, below, x2, xx2 = mass_below((lo - mu) / s)
        gap2 = (z - lo) / sigma
        h2 -= 0.5 * gap2 * gap2
    if hi < _INF:
        h3, above, x3, xx3 = mass_below((mu - hi) / s)
        gap3 = (z - hi) / sigma
        h3 -= 0.5 * gap3 * gap3
    top = max(h1, max(h2, h3))
    if not -_INF < top < _INF:
        return top, math.nan, math.nan, math.nan, math.nan
    inside *= math.exp(h1 - top) / tau
    below, above = below * math.exp(h2 - top) / sigma, above * math.exp(h3 - top) / sigma
    total = inside + below + above
    x = (inside * x1 + below * x2 - above * x3) / total
    xx = (inside * xx1 + below * xx2 + above * xx3) / total
    gap = (inside * gap1 + below * gap2 + above * gap3) / total
    gaps = (inside * gaps1 + below * gap2 * gap2 + above * gap3 * gap3) / total
    value = top + math.log(total) - 2.0 * _LOG_ROOT_2PI
    return value, -gap / sigma, x / s, (xx - 1.0) / s, (gaps - 1.0) / sigma


@njit(cache=True)
def _side_value(z, mu, s, b, lo, hi):  # type: ignore[no-untyped-def]
    """Log height and mass of the part of y below z."""
    end = min(z, hi)
    if not lo < end:
        return -_INF, 0.0
    k, first, last = s / b, (lo - mu) / s, (end - mu) / s
    mass = mass_of(first - k, last - k, (end - lo) / s)
    if first >= k:
        return -0.5 * first * first - (z - lo) / b, mass
    if last <= k:
        return -0.5 * last * last - (z - end) / b, mass
    return -k * ((z - mu) / s - 0.5 * k), mass


@njit(cache=True)
def _tail_value(x, gap):  # type: ignore[no-untyped-def]
    """Log height and mass of what a clamp moves to its end, at a distance from the release."""
    return (0.0 if x > 0.0 else -0.5 * x * x) - gap, mass_of(-_INF, x, _INF)


@njit(cache=True)
def _clamped_value(z, mu, s, b, lo, hi):  # type: ignore[no-untyped-def]
    h1, left = _side_value(z, mu, s, b, lo, hi)
    h2, right = _side_value(-z, -mu, s, b, -hi, -lo)
    h3 = h4 = -_INF
    below = above = 0.0
    if lo > -_INF:
        h3, below = _tail_value((lo - mu) / s, abs(z - lo) / b)
    if hi < _INF:
        h4, above = _tail_value((mu - hi) / s, abs(z - hi) / b)
    top = max(max(h1, h2), max(h3, h4))
    if not -_INF < top < _INF:
        return top
    total = left * math.exp(h1 - top) + right * math.exp(h2 - top)
    total += below * math.exp(h3 - top) + above * math.exp(h4 - top)
    return top + math.log(total / (2.0 * b)) - _LOG_ROOT_2PI


@njit(cache=True)
def laplace_value(z, mu, s, b, lo, hi):  # type: ignore[no-untyped-def]
    """Log density under Laplace noise alone: a fourth of the time without a clamp, two thirds with one."""
    if not (0.0 < s < _INF and 0.0 < b < _INF):
        return laplace_parts(z, mu, s, b, lo, hi)[0]
    if lo > -_INF or hi < _INF:
        return _clamped_value(z, mu, s, b, lo, hi)
    k, u = s / b, abs(z - mu) / s
    near, far = (k - u) * _ROOT_HALF, erfcx((k + u) * _ROOT_HALF)
    if near >= 0.0:
        return math.log((erfcx(near) + far) / b) - 0.5 * u * u - _LOG_4
    height = math.exp(-near * near)
    return math.log((2.0 + height * (far - erfcx(-near))) / b) + k * (0.5 * k - u) - _LOG_4


@njit(cache=True)
def gaussian_value(z, mu, s, sigma, lo, hi):  # type: ignore[no-untyped-def]
    """Log density under Gaussian noise alone."""
    if not (lo == -_INF and hi == _INF and 0.0 < s < _INF and 0.0 < sigma < _INF):
        return gaussian_parts(z, mu, s, sigma, lo, hi)[0]
    tau = math.hypot(s, sigma)
    gap = (z - mu) / tau
    return -0.5 * gap * gap - math.log(tau) - _LOG_ROOT_2PI


class NoisyNormal(ScalarOp):
    """Log density of a noisy, clamped normal number, and its derivatives by z, mu, s and the noise level.

    Inputs: z, mu, s, noise level, lo, hi. The first output is the log density; pulling back from it uses the
    other four. Second derivatives are not there.
    """

    nin, nout = 6, 5
    parts: Any = None
    value: Any = None

    def __init__(self, name: str):
        super().__init__(lambda *types: [float64] * 5, name=name)

    def impl(self, *inputs: float) -> tuple[float, ...]:
        """Compute in compiled code, for linkers without it."""
        return type(self).parts(*map(float, inputs))

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Multiply the derivatives, which are outputs.

        Raises
        ------
        NotImplementedError
            If a derivative itself is differentiated.
        """
        if not all(isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            raise NotImplementedError(
                f"the {self.name} density, of normal records integrated out, has no second derivative"
            )
        slopes = [cotangents[0] * slope for slope in outputs[1:]]
        return [*slopes, *(v.zeros_like(dtype="float64") for v in inputs[4:])]


class LaplaceNoise(NoisyNormal):
    """With Laplace noise."""

    parts = staticmethod(laplace_parts)
    value = staticmethod(laplace_value)


class GaussianNoise(NoisyNormal):
    """With Gaussian noise."""

    parts = staticmethod(gaussian_parts)
    value = staticmethod(gaussian_value)


class Value(ScalarOp):
    """Log density of a noisy normal number for those who want no derivatives."""

    nin, nout = 6, 1

    def __init__(self, of: NoisyNormal):
        self.of = of
        super().__init__(lambda *types: [float64], name=f"{of.name}_value")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.of == other.of

    def __hash__(self) -> int:
        return hash((type(self), self.of))

    def impl(self, *inputs: float) -> float:
        """Compute in compiled code, for linkers without it."""
        return float(type(self.of).value(*map(float, inputs)))


def without_derivatives(graph: TensorVariable) -> TensorVariable:
    """Return the graph of a log density with its noisy normal numbers by a shorter way to the value."""
    found = {
        v: Elemwise(Value(v.owner.op.scalar_op))(*v.owner.inputs)
        for v in ancestors([graph])
        if v.owner is not None
        and isinstance(v.owner.op, Elemwise)
        and isinstance(v.owner.op.scalar_op, NoisyNormal)
        and v is v.owner.outputs[0]
    }
    return graph_replace([graph], found, strict=False)[0] if found else graph


@register_scalar_funcify(Value)
def _funcify_value(op: Value, node: Any, **kwargs: Any) -> Any:
    value = op.of.value

    @njit_for_graphs
    def noisy_normal_value(z, mu, s, noise, lo, hi):  # type: ignore[no-untyped-def]
        return value(z, mu, s, noise, lo, hi)

    return noisy_normal_value, key_of(noisy_normal_value)


@register_scalar_funcify(LaplaceNoise)
@register_scalar_funcify(GaussianNoise)
def _funcify(op: NoisyNormal, node: Any, **kwargs: Any) -> Any:
    parts = op.parts

    @njit_for_graphs
    def noisy_normal(z, mu, s, noise, lo, hi):  # type: ignore[no-untyped-def]
        return parts(z, mu, s, noise, lo, hi)

    return noisy_normal, key_of(noisy_normal)


_laplace, _gaussian = (
    Elemwise(LaplaceNoise("normal_laplace")),
    Elemwise(GaussianNoise("clamped_normal")),
)


def log_normal_laplace(z: Any, mu: Any, s: Any, b: Any, lo: float, hi: float) -> Any:
    """Log density of clamp(y, lo, hi) + Laplace(0, b) at z, for y ~ N(mu, s^2)."""
    return _laplace(z, mu, s, b, lo, hi)[0]


def log_clamped_normal(z: Any, mu: Any, s: Any, sigma: Any, lo: float, hi: float) -> Any:
    """Log density of clamp(y, lo, hi) + N(0, sigma^2) at z, for y ~ N(mu, s^2)."""
    return _gaussian(z, mu, s, sigma, lo, hi)[0]
