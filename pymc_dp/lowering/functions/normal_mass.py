"""Masses and moments of pieces of a normal curve, at any distance from its centre.

Everything is anchored at the point of the interval nearest to the centre: the logarithm of the height there
is left to the caller, and what is computed here is of the order of the width of the interval or of one over
the distance, without overflow or cancellation.
"""

import math

import numpy as np
from scipy import special

from pymc_dp.lowering.compiling.nopython import njit

_ROOT_HALF_PI = math.sqrt(math.pi / 2)
_ROOT_HALF = math.sqrt(0.5)
# Gauss-Legendre points and weights on [0, 1]
_POINTS = (0.06943184420297371, 0.33000947820757187, 0.6699905217924281, 0.9305681557970262)
_WEIGHTS = (0.17392742256872692, 0.32607257743127307, 0.32607257743127307, 0.17392742256872692)


# erfcx on [0, 14]: a polynomial of degree 7 on each sixteenth, to 4e-16 of the value
_PER_UNIT, _LAST = 16, 14.0


def _polynomials() -> np.ndarray:
    """Coefficients by interval, of powers of the distance from its middle in units of its width."""
    nodes = 0.5 * np.polynomial.chebyshev.chebpts1(8)
    middles = np.arange(_PER_UNIT * _LAST) + 0.5
    values = special.erfcx((middles + nodes[:, None]) / _PER_UNIT)
    return np.ascontiguousarray(np.linalg.solve(np.vander(nodes, increasing=True), values).T)


_ERFCX = _polynomials()


@njit(cache=True)
def erfcx(x):  # type: ignore[no-untyped-def]
    """exp(x^2) erfc(x) for x >= 0, a third of the time of the two functions; NaN for x < 0."""
    if x < _LAST:
        if x < 0.0:  # a scale below zero, whose density nobody takes: the table has no rows for it
            return math.nan
        scaled = x * _PER_UNIT
        k = int(scaled)
        c, t = _ERFCX[k], scaled - k - 0.5
        tt = t * t
        low = (c[0] + c[1] * t) + (c[2] + c[3] * t) * tt
        return low + ((c[4] + c[5] * t) + (c[6] + c[7] * t) * tt) * (tt * tt)
    half = 0.5 / (x * x)
    total, term = 1.0, 1.0
    for order in range(1, 9):
        term *= -(2 * order - 1) * half
        total += term
    return total / (x * math.sqrt(math.pi))


@njit(cache=True)
def _central(a, height):  # type: ignore[no-untyped-def]
    """Integral of exp(-x^2/2) from 0 to a >= 0, where its height is known."""
    if a < 0.7:  # one minus the tail would lose digits
        return _ROOT_HALF_PI * math.erf(a * _ROOT_HALF)
    return _ROOT_HALF_PI * (1.0 - height * erfcx(a * _ROOT_HALF)) if height > 0.0 else _ROOT_HALF_PI


@njit(cache=True)
def _tail(a):  # type: ignore[no-untyped-def]
    """Integral of exp(-a t - t^2/2) over t > 0, and the mean of t under it, for a >= 0."""
    mass = _ROOT_HALF_PI * erfcx(a * _ROOT_HALF)
    if a < 12.0:
        return mass, 1.0 / mass - a
    fraction = a  # Laplace's continued fraction, the first term of which is a
    for n in range(16, 1, -1):
        fraction = a + n / fraction
    return mass, 1.0 / fraction


@njit(cache=True)
def mass_of(alpha, beta, width):  # type: ignore[no-untyped-def]
    """Mass alone, as :func:`piece` has it."""
    if alpha < 0.0 < beta:
        left = _central(-alpha, math.exp(-0.5 * alpha * alpha))
        return left + _central(beta, math.exp(-0.5 * beta * beta))
    near = alpha if alpha >= 0.0 else -beta
    mass = _ROOT_HALF_PI * erfcx(near * _ROOT_HALF)
    if width == math.inf:
        return mass
    drop = width * (near + 0.5 * width)
    if drop < 0.01:
        mass = 0.0
        for i in range(4):
            t = _POINTS[i]
            mass += _WEIGHTS[i] * math.exp(-width * t * (near + 0.5 * width * t))
        return width * mass
    return mass - math.exp(-drop) * _ROOT_HALF_PI * erfcx((near + width) * _ROOT_HALF)


@njit(cache=True)
def piece(alpha, beta, width):  # type: ignore[no-untyped-def]
    """Mass, mean and mean square of exp(-x^2/2) on [alpha, beta], from its point nearest to 0.

    The mass is relative to the height there; the distance from that point is counted inwards (for an interval
    around 0 it is x itself). `width` is beta - alpha > 0, passed in because the difference of two far ends
    loses its digits.
    """
    if alpha < 0.0 < beta:
        left = math.exp(-0.5 * alpha * alpha)
        right = math.exp(-0.5 * beta * beta)
        mass = _central(-alpha, left) + _central(beta, right)
        if right > 0.1 and left > 0.1:
            mean = right * math.expm1(0.5 * width * (alpha + beta)) / mass
        else:
            mean = (left - right) / mass
        square = 1.0
        if left > 0.0:
            square += alpha * left / mass
        if right > 0.0:
            square -= beta * right / mass
        return mass, mean, square
    near = alpha if alpha >= 0.0 else -beta
    if width == math.inf:
        mass, mean = _tail(near)
        return mass, mean, 1.0 - near * mean
    drop = width * (near + 0.5 * width)
    if drop < 0.01:
        mass = first = square = 0.0
        for i in range(4):
            t = _POINTS[i]
            height = _WEIGHTS[i] * math.exp(-width * t * (near + 0.5 * width * t))
            mass += height
            first += t * height
            square += t * t * height
        return width * mass, width * first / mass, width * width * square / mass
    rest = math.exp(-drop)
    mass, mean = _tail(near)
    far, far_mean = _tail(near + width)
    total = mass - rest * far
    mean = (mass * mean - rest * far * (width + far_mean)) / total
    return total, mean, 1.0 - near * mean - width * rest / total


@njit(cache=True)
def mass_below(x):  # type: ignore[no-untyped-def]
    """Mass of exp(-t^2/2) below x, with a height to take out, and the mean and mean square of t there."""
    mass, mean, square = piece(-math.inf, x, math.inf)
    if x > 0.0:
        return 0.0, mass, mean, square
    return -0.5 * x * x, mass, x - mean, x * x - 2.0 * x * mean + square
