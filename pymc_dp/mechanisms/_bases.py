"""Orthonormal functions on [0, 1], and the most that a change of the argument can change them.

Bases leave out the constant function, since its mean is 1 for all records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.wavelet import haar_sensitivity
from pymc_dp.query.publicshapes import public_array

# Number of grid points per oscillation of the fastest function, in searches for a supremum.
_FINENESS = 2000


def _cosine(u: TensorVariable, n_terms: int) -> TensorVariable:
    """sqrt(2) cos(pi j u), j = 1, ..., n_terms."""
    return math.sqrt(2) * pt.cos(public_array(math.pi * np.arange(1, n_terms + 1)[None, :]) * u[:, None])


def _fourier(u: TensorVariable, n_terms: int) -> TensorVariable:
    """sqrt(2) cos(2 pi j u), sqrt(2) sin(2 pi j u), j = 1, 2, ..."""
    frequency = 2 * math.pi * (np.arange(n_terms) // 2 + 1)
    phase = math.pi / 2 * (np.arange(n_terms) % 2)
    return math.sqrt(2) * pt.cos(public_array(frequency[None, :]) * u[:, None] - public_array(phase[None, :]))


def _haar(u: TensorVariable, n_terms: int) -> TensorVariable:
    """Mother wavelets of all resolutions up to a level, as for the wavelet mechanism."""
    level = _haar_level(n_terms)
    start, middle, stop, height = [], [], [], []
    for j in range(level + 1):
        k = np.arange(2**j)
        start.append(np.where(k == 0, -np.inf, k / 2**j))
        middle.append((k + 0.5) / 2**j)
        stop.append(np.where(k == 2**j - 1, np.inf, (k + 1) / 2**j))  # the last interval includes 1
        height.append(np.full(2**j, 2 ** (j / 2)))
    a, b, c, h = (public_array(np.concatenate(v)[None, :]) for v in (start, middle, stop, height))
    x = u[:, None]
    left, right = pt.ge(x, a) & pt.lt(x, b), pt.ge(x, b) & pt.lt(x, c)
    return h * (pt.cast(left, u.dtype) - pt.cast(right, u.dtype))


def _haar_level(n_terms: int) -> int:
    level = (n_terms + 1).bit_length() - 2
    if n_terms != 2 ** (level + 1) - 1:
        raise ValueError(
            f"n_terms must be 2^(J + 1) - 1 for the Haar basis (1, 3, 7, 15, ...), got {n_terms}: all "
            "wavelets of each resolution."
        )
    return level


@lru_cache(maxsize=64)
def _cosine_change(n_terms: int, order: int) -> float:
    r"""Supremum over u, u' of the norm of the difference of the cosines at u and u'.

    With s and d half the sum and the difference of pi u and pi u', cos ju - cos ju' is
    -2 sin js sin jd, so that by Cauchy and Schwarz

        sum_j |2 sin js sin jd|^p <= max over a of sum_j (2 sin^2 (ja/2))^p = sum_j (1 - cos ja)^p,

    The bound is attained where u = a/pi and u' = 0: the worst pair contains an end of the interval, for p = 1
    and p = 2 alike.
    """
    return math.sqrt(2) * _largest_power_sum(n_terms, order) ** (1 / order)


@lru_cache(maxsize=64)
def _fourier_change(n_terms: int, order: int) -> float:
    r"""Supremum of the same norm for the trigonometric functions, or an upper bound of it.

    With s and d as above (of 2 pi u), the pair of frequency j changes by
    2 sqrt 2 |sin jd| (|sin js|, |cos js|). Its L2 norm does not depend on s, so the sum of squares is
    8 sum_j sin^2 jd = 4 sum_j (1 - cos 2jd); the cosine alone reaches the same at js = pi/2. For the
    L1 norm both |sin jd| and |sin js| + |cos js| are bounded from above on small intervals of d and s.
    """
    n_frequencies = (n_terms + 1) // 2
    if order == 2:
        return 2 * math.sqrt(_largest_power_sum(n_frequencies, 1))
    j = np.arange(1, n_frequencies + 1)
    pieces = min(200 * n_frequencies, 6400)
    # by symmetry it is enough to search d in [0, pi/2] and s in [0, pi/4] ([0, pi/2] if the last sine is left
    # out)
    alone = n_terms % 2 == 1
    of_d = _sine_ceiling(j, np.linspace(0, math.pi / 2, 2 * pieces + 1))
    of_s = np.sqrt(1 + _sine_ceiling(2 * j, np.linspace(0, math.pi / 2, 2 * pieces + 1)))
    if alone:
        of_s[:, -1] = _sine_ceiling(j[-1:], np.linspace(0, math.pi / 2, 2 * pieces + 1))[:, 0]
    largest = max(float((of_d @ rows.T).max()) for rows in np.array_split(of_s, 1 + pieces // 400))
    return 2 * math.sqrt(2) * largest


def _sine_ceiling(j: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the largest |sin jx| on each interval between edges, shape (intervals, frequencies)."""
    at = j[None, :] * edges[:, None]
    ends = np.abs(np.sin(at))
    # the maximum is 1 on an interval that contains an odd multiple of pi/2
    holds = np.floor(at[1:] / math.pi + 0.5) > np.floor(at[:-1] / math.pi + 0.5)
    return np.where(holds, 1.0, np.maximum(ends[1:], ends[:-1]))


def _haar_change(n_terms: int, order: int) -> float:
    """The worst pair is in different halves of the interval, with one entry per resolution each."""
    level = _haar_level(n_terms)
    if order == 1:
        return haar_sensitivity(level)
    return math.sqrt(4 + sum(2 * 2**j for j in range(1, level + 1)))


def _largest_power_sum(n: int, power: int) -> float:
    """Return the maximum over a of sum_{j=1..n} (1 - cos ja)^power, rounded up by a relative 1e-12 or so.

    The function is smooth, even and periodic, so its slope is zero at the maximum: a point at distance
    d from it falls short by at most d^2 / 2 times the largest curvature. Points of a grid that could be
    nearest to the maximum get a finer grid around them.
    """
    curvature = n * (n + 1) * (2 * n + 1) / 6 * (1 if power == 1 else 4)  # sum of j^2, or of 4 j^2
    a, step = np.linspace(0, math.pi, _FINENESS * n + 1, retstep=True)
    values = _power_sum(n, power, a)
    near = a[values >= values.max() - curvature * step**2 / 8]
    fine, step = np.linspace(-step / 2, step / 2, _FINENESS + 1, retstep=True)
    return float(_power_sum(n, power, near[:, None] + fine).max()) + curvature * step**2 / 8


def _power_sum(n: int, power: int, a: np.ndarray) -> np.ndarray:
    if power == 1:
        return n - _cosine_sum(n, a)
    return 1.5 * n - 2 * _cosine_sum(n, a) + 0.5 * _cosine_sum(n, 2 * a)


def _cosine_sum(n: int, a: np.ndarray) -> np.ndarray:
    """Return sum_{j=1..n} cos ja, by its closed form, or by its series where that would be 0/0."""
    x = a - 2 * math.pi * np.round(a / (2 * math.pi))
    flat = np.abs(n * x) < 1e-2
    squares, fourths = (math.fsum(float(j) ** power for j in range(1, n + 1)) for power in (2, 4))
    series = n - squares * x**2 / 2 + fourths * x**4 / 24
    return np.where(flat, series, 0.5 * (np.sin((n + 0.5) * x) / np.where(flat, 1, np.sin(x / 2)) - 1))


@dataclass(frozen=True)
class Basis:
    """Functions of u in [0, 1], and the norm of their largest joint change."""

    evaluate: Callable[[TensorVariable, int], TensorVariable]
    largest_change: Callable[[int, int], float]


BASES = {
    "cosine": Basis(_cosine, _cosine_change),
    "fourier": Basis(_fourier, _fourier_change),
    "haar": Basis(_haar, _haar_change),
}
