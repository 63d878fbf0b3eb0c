"""The exact privacy curve of Gaussian noise, without cancellation at either end.

With sensitivity / sigma = mu, near = epsilon/mu - mu/2 and far = epsilon/mu + mu/2, the identity
exp(epsilon) phi(far) = phi(near) turns the curve
delta = Phi(-near) - exp(epsilon) Phi(-far) (Balle and Wang 2018, theorem 8) into
delta = phi(near) [M(near) - M(far)], where M(x) = (1 - Phi(x)) / phi(x) is Mills' ratio.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def log_delta(epsilon: float, mu: float) -> float:
    """Return log(delta)."""
    # One quotient, since a difference of two would cancel when epsilon is large.
    near = (2 * epsilon - mu * mu) / (2 * mu)
    far = near + mu
    log_density = -0.5 * near * near - 0.5 * math.log(2 * math.pi)
    if mu < 1:
        # M(near) - M(far) would lose digits: integrate -M'(x) = 1 - x M(x), which is positive.
        x = near + 0.5 * mu * (1 + _NODES)
        mass = 0.5 * mu * float(_WEIGHTS @ _minus_mills_slope(x))
        return log_density + math.log(mass) if mass > 0 else -math.inf
    if near >= 0:
        return log_density + math.log(_mills(near) - _mills(far))
    return math.log(float(ndtr(-near)) - math.exp(log_density) * _mills(far))


def log_one_minus_delta(epsilon: float, mu: float) -> float:
    """Return log(1 - delta), which keeps its digits where delta is near 1."""
    near = (2 * epsilon - mu * mu) / (2 * mu)
    return float(np.logaddexp(log_ndtr(near), epsilon + log_ndtr(-near - mu)))


def deltas(epsilon: np.ndarray, mu: float) -> np.ndarray:
    """Return delta at every epsilon of an array, including negative ones."""
    a = np.abs(epsilon)
    near = (2 * a - mu * mu) / (2 * mu)
    if mu < 1:
        with np.errstate(under="ignore"):
            density = np.exp(-0.5 * near * near) / math.sqrt(2 * math.pi)
            x = near[..., None] + 0.5 * mu * (1 + _NODES)
            above = density * 0.5 * mu * (_minus_mills_slope(x) @ _WEIGHTS)
    else:
        above = ndtr(-near) - np.exp(a + log_ndtr(-near - mu))
    # The curve at -epsilon follows from the one at epsilon with the two laws exchanged.
    return np.where(epsilon >= 0, above, 1 - np.exp(-a) * (1 - above))


def _mills(x: float) -> float:
    """Mills' ratio."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def _minus_mills_slope(x: np.ndarray) -> np.ndarray:
    """Return 1 - x M(x), by its asymptotic series where the difference would cancel."""
    direct = 1 - x * math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
    inverse_square = 1 / np.maximum(x, 20.0) ** 2
    series = np.zeros_like(x)
    for order in range(12, 0, -1):
        series = (2 * order - 1) * inverse_square * (1 - series)
    return np.where(x > 20.0, series, direct)
