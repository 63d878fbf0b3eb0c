"""What a statement of privacy implies as another one: its delta, its Renyi divergences, its epsilon.

A curve is a tuple of pairs (order, bound of the Renyi divergence of that order), sorted by order. Between
neighbouring data sets, (order - 1) times the divergence is convex in the order, and 0 at order 1 (van Erven
and Harremoes 2014, corollary 2). So a bound at orders in between lies on the lower convex hull of the stated
ones, and never above the bound of the next larger order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy

from pymc_dp.privacy.calibration import gaussian_delta

LARGEST = 1e150  # so that squares of epsilon and mu, and orders times divergences, do not overflow
_ROUNDING = 1e-12

type Curve = tuple[tuple[float, float], ...]


def gaussian_delta_at(epsilon: float, mu: float) -> float:
    """Return the exact delta of Gaussian noise at an epsilon, which may be 0."""
    return gaussian_delta(epsilon, 1.0, mu) if epsilon > 0 else math.erf(mu / math.sqrt(8))


def pure_delta(epsilon: float, pure: float) -> float:
    """Return the largest delta at `epsilon` under a pure guarantee, which is that of randomized response."""
    return max(0.0, -math.expm1(epsilon - pure)) / (1 + math.exp(-pure))


def pure_divergence(pure: float, order: float) -> float:
    """Return the largest Renyi divergence under a pure guarantee, which is that of randomized response.

    With p = 1 / (1 + exp(-pure)) and q = 1 - p it is log(p^a q^(1-a) + q^a p^(1-a)) / (a - 1), whose sum is
    1 + 2 sinh(a pure / 2) sinh((a - 1) pure / 2) / cosh(pure / 2): so no digits are lost where it is near 1.
    """
    if pure == 0:
        return 0.0
    excess = (
        math.log(2)
        + _log_sinh(order * pure / 2)
        + _log_sinh((order - 1) * pure / 2)
        - (pure / 2 + math.log1p(math.exp(-pure)) - math.log(2))
    )
    return min(pure, float(np.logaddexp(0.0, excess)) / (order - 1))


def _log_sinh(x: float) -> float:
    small = -math.expm1(-2 * x)
    return x - math.log(2) + math.log(small) if small > 0 else -math.inf


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an epsilon that rho-zCDP implies at `delta`.

    Parameters
    ----------
    rho : float
        >= 0.
    delta : float
        In (0, 1).

    Returns
    -------
    float

    References
    ----------
    Canonne, Kamath and Steinke (2020), proposition 12: every order alpha > 1 gives a bound, and the smallest
    is taken. It is below the bound rho + 2 sqrt(rho log(1/delta)) of Bun and Steinke (2016).

    Examples
    --------
    >>> from pymc_dp.privacy.guarantee import zcdp_epsilon
    >>> round(zcdp_epsilon(0.5, 1e-6), 3)
    5.222
    """
    if rho == 0:
        return 0.0

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)
        alpha = 1 + excess
        return rho * alpha + math.log(excess / alpha) - (math.log(delta) + math.log(alpha)) / excess

    # the order that minimises the simpler bound of Bun and Steinke is near the best one
    centre = 0.5 * math.log(-math.log(delta) / rho)
    best = scipy.optimize.minimize_scalar(
        bound, bounds=(centre - 8, centre + 8), method="bounded", options={"xatol": 1e-9}
    )
    simple = rho + 2 * math.sqrt(rho * -math.log(delta))
    return max(0.0, min(float(best.fun), simple))


def checked_curve(
    pairs: Any, orders: str = "orders of renyi", divergences: str = "divergences of renyi"
) -> Curve:
    """Return pairs (order, divergence) as a curve; refuse what is none, by the names of its two parts."""
    try:
        rows = [tuple(pair) for pair in pairs]
    except TypeError:
        rows = [()]
    if isinstance(pairs, str | bytes) or any(len(row) != 2 for row in rows):
        raise TypeError(f"renyi must list pairs (order, divergence), got {pairs!r}.")
    curve = sorted((_number(orders, a), _number(divergences, d)) for a, d in rows)
    for order, bound in curve:
        if not 1 < order < math.inf:
            raise ValueError(
                f"{orders} must be finite numbers above 1, got {order:g}: state a bound of order infinity as "
                "a pure epsilon."
            )
        if not 0 <= bound < math.inf:
            raise ValueError(f"{divergences} must be finite numbers >= 0, got {bound:g}.")
        if max(order, bound) > LARGEST:
            raise ValueError(
                f"{orders} and {divergences} must be at most {LARGEST:g}, got {order:g} and {bound:g}: leave "
                "them out."
            )
    for (one, _), (other, _) in pairwise(curve):
        if one == other:
            raise ValueError(f"{orders} must be given once each, got {one:g} twice.")
    return tuple(curve)


def _number(name: str, value: Any) -> float:
    value = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    real = isinstance(value, int | float | np.integer | np.floating)
    if not real or isinstance(value, bool):
        raise TypeError(f"{name} must be numbers, got {value!r}.")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be at most {LARGEST:g}, got a larger whole number.") from None


def implied_divergence(
    order: float, pure: float | None, rho: float | None, mu: float | None, curve: Curve
) -> float:
    """Return the smallest bound that a guarantee implies of the divergence of an order; inf if none."""
    known = [math.inf]
    if pure is not None:
        known.append(pure_divergence(pure, order))
    if rho is not None:
        known.append(rho * order)
    if mu is not None:
        known.append(mu**2 / 2 * order)
    if curve:
        known.append(float(_divergences(curve, np.array([order]))[0]))
    return min(known)


def curve_epsilon(curve: Curve, delta: float) -> float:
    """Return an epsilon that a curve implies at `delta`.

    Every order gives a bound (Canonne, Kamath and Steinke 2020, proposition 12), and the smallest is taken.
    Where (order - 1) times the divergence is slope * (order - 1) + height, the bound falls up to the order
    exp(height) / delta, and rises beyond it.
    """
    stated, _, corners, heights = _prepared(curve)
    slope = np.diff(heights) / np.diff(corners)
    height = heights[1:] - slope * corners[1:]
    best = np.exp(np.minimum(height - math.log(delta), math.log(LARGEST)))
    orders = np.concatenate([stated, np.clip(best, 1 + corners[:-1], 1 + corners[1:])])
    orders = orders[(orders > 1) & (orders <= stated[-1])]
    shift = np.log((orders - 1) / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float((_divergences(curve, orders) + shift).min()))


def exchanged_curve(orders: Iterable[float], divergence: Callable[[float], float]) -> Curve:
    """Return the curve for one record exchanged, from divergences for one removed or added.

    For one record removed (P to R) and one added (R to Q), the weak triangle inequality (Mironov 2017,
    proposition 11) with the exponent p = (2 a - 1) / a is D_a(P, Q) <= 2 a / (2 a - 1) D_{2a-1}(P, R)
    + D_{2a}(R, Q). It is exact for Gaussian noise, and below the one with p = 2, which needs the same orders.
    """
    halves = sorted({half for order in orders for half in (order / 2, (order + 1) / 2) if half > 1})
    found = [(a, 2 * a / (2 * a - 1) * divergence(2 * a - 1) + divergence(2 * a)) for a in halves]
    return tuple((a, bound) for a, bound in found if math.isfinite(bound))


def _divergences(curve: Curve, orders: np.ndarray) -> np.ndarray:
    stated, bounds, corners, heights = _prepared(curve)
    # nothing is known beyond the last order
    step = np.append(bounds, math.inf)[np.searchsorted(stated, orders)]
    hull = np.interp(orders - 1, corners, heights, right=math.inf) / (orders - 1)
    # the stated number itself is the bound at its order, and not what rounding makes of it
    return np.where(hull < step * (1 - _ROUNDING), hull, step)


@lru_cache(maxsize=64)
def _prepared(curve: Curve) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return orders, bounds, and the corners of the lower convex hull."""
    stated, bounds = np.array(curve).T
    hull = [(0.0, 0.0)]
    for x, y in zip((stated - 1).tolist(), ((stated - 1) * bounds).tolist(), strict=True):
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    corners, heights = np.array(hull).T
    return stated, bounds, corners, heights


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])
