"""Log probability that a number with noise is in an interval, as scalar operations with their gradient.

For q + noise of a level s, with Laplace, Gaussian, discrete Laplace or discrete Gaussian noise, the mass of
[lower, upper] is computed from its end nearest to q, so that it has its digits at any distance and any width.
Either end may be infinite. Where both are the same number, continuous noise gives its density there. Of
discrete noise all whole numbers within the interval count, and what depends on the level alone is left out:
log1p(exp(-1/s)) of the discrete Laplace law, the normaliser of the discrete Gaussian one. An empty interval,
lower > upper, has mass zero.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from pytensor.scalar.basic import ScalarOp, float64
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.lowering.compiling.keys import key_of
from pymc_dp.lowering.compiling.nopython import njit, njit_for_graphs
from pymc_dp.lowering.functions.normal_mass import mass_of, piece
from pymc_dp.upstream.pytensor_private import register_scalar_funcify

_INF = math.inf
_LOG_2 = math.log(2.0)
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
# A term below this share of a sum is no digit of it.
_NO_DIGIT = 1e-18
# Noise from which on sums are integrals with corrections, and the change of the log probability from one
# whole number to the next up to which they are.
_SMOOTH, _FLAT = 6.0, 0.5
# Of the midpoint rule of Euler and Maclaurin: B_2m(1/2) / (2m)! for m = 1, ..., 6.
_BERNOULLI = (Fraction(1, 6), Fraction(-1, 30), Fraction(1, 42), Fraction(-1, 30), Fraction(5, 66),
              Fraction(-691, 2730))  # fmt: skip
_CORRECTIONS = tuple(
    float((Fraction(2, 4**m) - 1) * b / math.factorial(2 * m)) for m, b in enumerate(_BERNOULLI, 1)
)


@njit(cache=True)
def laplace(lower, upper, q, s):  # type: ignore[no-untyped-def]
    """Log mass of Laplace noise."""
    if lower > upper:
        return -_INF
    a, b = (lower - q) / s, (upper - q) / s
    if lower == upper:
        return -abs(a) - math.log(2.0 * s)
    if a < 0.0 < b:
        return math.log(-0.5 * (math.expm1(a) + math.expm1(-b)))
    near = a if a >= 0.0 else -b
    return math.log(-math.expm1(-(upper - lower) / s)) - near - _LOG_2


@njit(cache=True)
def _exponential_mean(width):  # type: ignore[no-untyped-def]
    """Mean of an exponential number below a width."""
    return 1.0 - width / math.expm1(width) if width < 700.0 else 1.0


@njit(cache=True)
def laplace_slopes(lower, upper, q, s):  # type: ignore[no-untyped-def]
    """Derivatives of the log mass by the query and the scale."""
    a, b = (lower - q) / s, (upper - q) / s
    if not lower < upper:
        return ((a > 0.0) - (a < 0.0)) / s, (abs(a) - 1.0) / s
    if a < 0.0 < b:
        left, right = -math.expm1(a), -math.expm1(-b)
        far = left * _exponential_mean(-a) + right * _exponential_mean(b)
        return (right - left) / (right + left) / s, (far / (right + left) - 1.0) / s
    near = a if a >= 0.0 else -b
    sign = 1.0 if a >= 0.0 else -1.0
    return sign / s, (near + _exponential_mean((upper - lower) / s) - 1.0) / s


@njit(cache=True)
def gaussian(lower, upper, q, s):  # type: ignore[no-untyped-def]
    """Log mass of Gaussian noise."""
    if lower > upper:
        return -_INF
    a, b = (lower - q) / s, (upper - q) / s
    if lower == upper:
        return -0.5 * a * a - math.log(s) - _LOG_ROOT_2PI
    near = max(max(a, -b), 0.0)
    return math.log(mass_of(a, b, (upper - lower) / s)) - 0.5 * near * near - _LOG_ROOT_2PI


@njit(cache=True)
def gaussian_slopes(lower, upper, q, s):  # type: ignore[no-untyped-def]
    """Derivatives of the log mass by the query and the standard deviation."""
    a, b = (lower - q) / s, (upper - q) / s
    if not lower < upper:
        return a / s, (a * a - 1.0) / s
    _, mean, square = piece(a, b, (upper - lower) / s)
    if a < 0.0 < b:
        return mean / s, (square - 1.0) / s
    near = a if a >= 0.0 else -b
    sign = 1.0 if a >= 0.0 else -1.0
    return sign * (near + mean) / s, (near * near + 2.0 * near * mean + square - 1.0) / s


@njit(cache=True)
def discrete_laplace(lower, upper, q, s):  # type: ignore[no-untyped-def]
    """Log probability of discrete Laplace noise, and log1p(exp(-1/s))."""
    i, j, c = np.ceil(lower) - q, np.floor(upper) - q, 1.0 / s
    if i > j:
        return -_INF
    if i < 0.0 < j:
        return math.log(-math.expm1(-(j + 1.0) * c) - math.exp(-c) * math.expm1(i * c))
    near = i if i >= 0.0 else -j
    return math.log(-math.expm1(-(j - i + 1.0) * c)) - near * c


@njit(cache=True)
def _geometric_mean(n, c):  # type: ignore[no-untyped-def]
    """Mean of k under exp(-c k), k = 0, ..., n - 1."""
    return 1.0 / math.expm1(c) - (n / math.expm1(n * c) if n * c < 700.0 else 0.0)


@njit(cache=True)
def discrete_laplace_slopes(lower, upper, q, s):  # type: ignore[no-untyped-def]
    """Derivatives of the log probability by the query, as if it were any number, and by the scale."""
    i, j, c = np.ceil(lower) - q, np.floor(upper) - q, 1.0 / s
    of_all = 1.0 / math.expm1(c)
    if i < 0.0 < j:
        left, right = -math.expm1(i * c), -math.expm1(-j * c)
        # the numbers beside 0 on either side, in units of the sum from 1 on, and 0 itself in these
        total = left + right + math.expm1(c)
        far = left * (1.0 + _geometric_mean(-i, c)) + right * (1.0 + _geometric_mean(j, c))
        return (right - left) / total * c, (far / total - of_all) * c * c
    near = i if i >= 0.0 else -j
    n = j - i + 1.0
    # 0 itself pulls to neither side
    share = 1.0 if near > 0.0 else 1.0 - math.expm1(-c) / math.expm1(-n * c)
    sign = 1.0 if i >= 0.0 else -1.0
    return sign * share * c, (near + _geometric_mean(n, c) - of_all) * c * c


@njit(cache=True)
def _hermite_corrections(x, s):  # type: ignore[no-untyped-def]
    """Sum of the corrections of the midpoint rule at an end x, in standard deviations s."""
    before, at, total, power = 1.0, x, 0.0, 1.0 / s
    for m in range(6):
        total += _CORRECTIONS[m] * power * at
        power /= s * s
        for n in (2 * m + 1, 2 * m + 2):
            before, at = at, x * at - n * before
    return total


@njit(cache=True)
def discrete_gaussian(lower, upper, q, s):  # type: ignore[no-untyped-def]
    """Log sum of exp(-(k - q)^2 / 2 s^2) over the whole numbers k of the interval."""
    i, j = np.ceil(lower) - q, np.floor(upper) - q
    if i > j:
        return -_INF
    if not 0.0 < s < _INF:
        return math.nan
    if j < 0.0:
        i, j = -j, -i
    near = max(i, 0.0)
    if s >= _SMOOTH and near <= _FLAT * s * s:
        a, b = (i - 0.5) / s, (j + 0.5) / s
        anchor = max(a, 0.0)
        total = s * mass_of(a, b, (j - i + 1.0) / s)
        drop = 0.5 * (a - anchor) * (a + anchor)
        if drop < 700.0:
            total += math.exp(-drop) * _hermite_corrections(a, s)
        drop = 0.5 * (b - anchor) * (b + anchor)
        if drop < 700.0:
            total -= math.exp(-drop) * _hermite_corrections(b, s)
        return math.log(total) - 0.5 * anchor * anchor
    total = 0.0
    k = near
    while k <= j:
        term = math.exp(-0.5 * ((k - near) / s) * ((k + near) / s))
        total += term
        if term < _NO_DIGIT:
            break
        k += 1.0
    k = -1.0
    while k >= i:
        term = math.exp(-0.5 * (k / s) * (k / s))
        total += term
        if term < _NO_DIGIT:
            break
        k -= 1.0
    return math.log(total) - 0.5 * (near / s) * (near / s)


@njit(cache=True)
def discrete_gaussian_slopes(lower, upper, q, s):  # type: ignore[no-untyped-def]
    """Derivatives of the log sum by the query, as if it were any number, and by s."""
    i, j = np.ceil(lower) - q, np.floor(upper) - q
    if i > j or not 0.0 < s < _INF:
        return 0.0, 0.0
    near = i if i > 0.0 else j if j < 0.0 else 0.0
    total = first = second = 0.0
    for step in (1.0, -1.0):
        k = near if step > 0.0 else near - 1.0
        while i <= k <= j:
            term = math.exp(-0.5 * ((k - near) / s) * ((k + near) / s))
            total += term
            first += term * k
            second += term * k * k
            if term * (1.0 + (k / s) * (k / s)) < _NO_DIGIT:
                break
            k += step
    return first / total / (s * s), second / total / (s * s * s)


_LAWS: dict[str, tuple[Any, Any]] = {
    "laplace": (laplace, laplace_slopes),
    "gaussian": (gaussian, gaussian_slopes),
    "discrete_laplace": (discrete_laplace, discrete_laplace_slopes),
    "discrete_gaussian": (discrete_gaussian, discrete_gaussian_slopes),
}


class LogMass(ScalarOp):
    """Log mass of an interval under noise, or its derivatives by the query and the level.

    Inputs: lower end, upper end, query, level. The interval is that of a released value and fixed: nothing is
    differentiated by it.
    """

    nin = 4

    def __init__(self, law: str, slopes: bool = False):
        self.law, self.slopes = law, slopes
        self.nout = 2 if slopes else 1
        self.function = _LAWS[law][slopes]
        name = f"{law}_mass" + ("_slopes" if slopes else "")
        super().__init__(lambda *types: [float64] * self.nout, name=name)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and (self.law, self.slopes) == (other.law, other.slopes)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self), self.law, self.slopes))

    def __reduce__(self) -> tuple:
        return type(self), (self.law, self.slopes)

    def impl(self, *inputs: float) -> Any:
        """Compute in compiled code, for linkers without it."""
        found = self.function(*map(float, inputs))
        return found if self.slopes else float(found)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Multiply the derivatives.

        Raises
        ------
        NotImplementedError
            If a derivative itself is differentiated.
        """
        if self.slopes:
            raise NotImplementedError("the density of a processed release has no second derivative")
        slopes = LogMass(self.law, slopes=True)(*inputs, return_list=True)
        fixed = [v.zeros_like(dtype="float64") for v in inputs[:2]]
        return [*fixed, *(cotangents[0] * slope for slope in slopes)]


@register_scalar_funcify(LogMass)
def _funcify(op: LogMass, node: Any, **kwargs: Any) -> Any:
    function = op.function

    @njit_for_graphs
    def log_mass(lower, upper, q, s):  # type: ignore[no-untyped-def]
        return function(lower, upper, q, s)

    return log_mass, key_of(log_mass)


def log_mass(law: str, lower: Any, upper: Any, query: Any, level: Any) -> Any:
    """Log mass of [lower, upper] under ``"laplace"``, ... noise of a level around a query, elementwise."""
    return Elemwise(LogMass(law))(lower, upper, query, level)
