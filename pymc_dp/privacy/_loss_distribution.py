"""The privacy loss of many subsampled Gaussian releases, on a grid that never understates it.

One release on a batch drawn without replacement, with the share q of the rows in it, is dominated for
losses above 0 by P = (1 - q) N(0, s^2) + q N(1, s^2) against Q = N(0, s^2), s being the noise multiplier
(Balle, Barthe and Gaboardi 2018, theorem 9: exp(epsilon) - 1 shrinks by q, and delta by q). Exchanging one
row is symmetric, so that below 0 the pair reversed dominates, and what is left of the mass is at 0: the pair
so put together dominates both directions (Zhu, Dong and Wang 2022, theorem 11), and pairs that dominate
compose (their theorem 10), adaptively chosen queries included. q = 1 is Gaussian noise on all rows.

The mass of an interval of losses goes to its two ends so that its P and its Q are kept (Doroshenko, Ghazi,
Kamath, Kumar and Manurangsi 2022, *Connect the Dots*); losses beyond the grid become infinite. Sums of
losses are convolutions, by a Fourier transform of the law tilted to the losses that decide
(Esscher's transform): its rounding errors are relative to delta, however small that is, and their bound is
added to it, as is Chernoff's bound of the mass that leaves the window.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, logsumexp, ndtr

from pymc_dp.privacy.costs import Cost

_MOST_CELLS = 1 << 21  # a coarser grid beyond that: dearer, and as true
_CELLS_PER_SD = 60.0
_TAIL = 1e-9  # relative to delta: what may leave the window
_ROUNDING = float(np.finfo(float).eps)


class _Part:
    """Losses of one kind of release: masses at step * (0, 1, ..., m), those below 0 following from them."""

    def __init__(self, noise_multiplier: float, rate: float, count: int, step: float, tail: float) -> None:
        s, self.count = noise_multiplier, count
        # beyond this quantile of the upper component, losses are infinite
        top = 1.0 - s * _normal_quantile(tail)
        highest = np.logaddexp(
            math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + _log_ratio(top, s)
        )
        cells = max(1, math.ceil(float(highest) / step))
        self.losses = step * np.arange(cells + 1)
        # where the log ratio of the Gaussian pair has to be for the mixture's to be at the loss
        log_ratio = _log_gaussian_ratio(self.losses, rate)
        edge = s * log_ratio + 0.5 / s
        base, shifted = -np.diff(ndtr(-edge)), -np.diff(ndtr(1 / s - edge))
        mass = (1 - rate) * base + rate * shifted
        with np.errstate(over="ignore", invalid="ignore"):
            upper = rate * (shifted - np.exp(log_ratio[:-1]) * base) / -math.expm1(-step)
        # whatever is not a number is rounded up: all of the mass to the upper end
        upper = np.clip(np.where(np.isfinite(upper), upper, mass), 0.0, mass)
        self.mass = np.zeros(cells + 1)
        self.mass[1:] += upper
        self.mass[:-1] += mass - upper
        self.infinite = float((1 - rate) * ndtr(-edge[-1]) + rate * ndtr(1 / s - edge[-1]))
        below = self.mass[1:] * np.exp(-self.losses[1:])
        self.mass[0] = max(0.0, 1 - self.mass[1:].sum() - below.sum() - self.infinite)
        with np.errstate(divide="ignore"):
            self._log_mass = np.log(self.mass)

    def log_moment(self, order: float) -> float:
        """Logarithm of the sum of mass * exp(order * loss), over one release."""
        above = self._log_mass + order * self.losses
        below = self._log_mass[1:] - (order + 1) * self.losses[1:]
        return float(np.logaddexp(logsumexp(above), logsumexp(below)))

    def tilted(self, order: float, size: int) -> np.ndarray:
        """Probabilities of the tilted law around a circle of `size` cells."""
        moment = self.log_moment(order)
        circle = np.zeros(size)
        places = np.arange(self.losses.size)
        np.add.at(circle, places % size, np.exp(self._log_mass + order * self.losses - moment))
        below = np.exp(self._log_mass[1:] - (order + 1) * self.losses[1:] - moment)
        np.add.at(circle, -places[1:] % size, below)
        return circle


class LossDistribution:
    """Curve of delta over epsilon of releases that compose.

    Parameters
    ----------
    costs : sequence of Cost
    delta : float, optional
        Where the curve will be asked for: it is sharp near there, and true everywhere.
    epsilon : float, optional
        The same by epsilon. One of both.
    """

    def __init__(
        self, costs: Sequence[Cost], *, delta: float | None = None, epsilon: float | None = None
    ) -> None:
        kinds = grouped(costs)
        count = sum(kinds.values())
        variance = sum(k * _variance(s, rate) for (s, rate), k in kinds.items())
        goal = math.log(delta) if delta is not None else None
        step = math.sqrt(variance / count) / _CELLS_PER_SD
        for _ in range(60):
            tail = (delta if delta is not None else 1e-30) * _TAIL / count
            self._parts = [_Part(s, rate, k, step, max(tail, 1e-300)) for (s, rate), k in kinds.items()]
            self._choose_tilt(goal, epsilon)
            if self._window(step) <= _MOST_CELLS:
                break
            step *= 2
        self._step = step
        self._convolve()

    def _log_moment(self, order: float) -> float:
        return sum(part.count * part.log_moment(order) for part in self._parts)

    def _choose_tilt(self, goal: float | None, epsilon: float | None) -> None:
        """Take the order of the best Chernoff bound at the place that is asked for."""

        def bound(log_order: float) -> float:
            order = math.exp(log_order)
            if goal is not None:
                return (self._log_moment(order) - goal) / order
            return self._log_moment(order) - order * float(epsilon or 0.0)

        found = minimize_scalar(bound, bounds=(-8.0, 9.0), method="bounded", options={"xatol": 1e-2})
        self._order = math.exp(float(found.x))
        self._log_scale = self._log_moment(self._order)
        if goal is None:
            goal = self._log_scale - self._order * float(epsilon or 0.0)
        self._goal = goal

    def _window(self, step: float) -> float:
        """Set the window of summed losses outside of which there is next to nothing; return its cells."""
        tiny = math.log(_TAIL)
        upper, self._log_beyond = math.inf, -math.inf
        for power in np.geomspace(1.02, 30, 24):
            order = self._order * power
            # Chernoff: log P(sum > top) <= log moment - order * top
            top = (self._log_moment(order) - self._goal - tiny) / order
            if top < upper:
                upper, self._log_beyond = top, self._goal + tiny
        lower = -math.inf
        for back in np.geomspace(1e-3, 30, 30) * max(self._order, 1.0):
            # the same for the lower tail of the tilted law
            drop = self._log_moment(self._order - back) - self._log_scale
            lower = max(lower, (2 * tiny - drop) / back)
        self._top = upper
        cells = (upper - lower) / step + 2
        self._size = next_fast_len(math.ceil(min(cells, 2.0 * _MOST_CELLS)), real=True)
        return cells

    def _convolve(self) -> None:
        size, bits = self._size, math.log2(self._size)
        product: np.ndarray = np.ones(1)
        errors: np.ndarray = np.zeros(1)
        for part in self._parts:
            transform = rfft(part.tilted(self._order, size))
            product = product * transform**part.count
            errors = errors + part.count * (bits + math.pi)
            size_of = np.abs(transform)
            errors = errors / np.maximum(size_of, 1e-3)
        top = math.floor(self._top / self._step)
        self._losses = self._step * np.arange(top - size + 1, top + 1)
        self._chance = np.roll(irfft(product, n=size), size - 1 - top % size)
        # every frequency's error, as if all had the same sign
        self._error = 4 * _ROUNDING * float(np.sum(np.abs(product) * errors)) * 2 + 4 * _ROUNDING * bits
        self.infinite = -math.expm1(sum(p.count * math.log1p(-p.infinite) for p in self._parts))

    def delta(self, epsilon: float) -> float:
        """Return delta at `epsilon`, never too small."""
        beyond = self._losses > epsilon
        losses = self._losses[beyond]
        finite = float(
            np.maximum(self._chance[beyond], 0)
            @ (np.exp(-self._order * (losses - epsilon)) * -np.expm1(epsilon - losses))
        )
        scale = self._log_scale - self._order * epsilon
        total = math.exp(min(scale, 700.0)) * (finite + self._error)
        return min(1.0, total + self.infinite + math.exp(self._log_beyond))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at which :meth:`delta` is at most `delta`."""
        if self.delta(0.0) <= delta:
            return 0.0
        if self.delta(self._top) > delta:
            return math.inf
        root = brentq(lambda e: math.log(self.delta(e) / delta), 0.0, self._top, xtol=1e-12, rtol=1e-12)
        while self.delta(root) > delta:
            root = math.nextafter(root * (1 + 1e-12), math.inf)
        return root


def grouped(costs: Sequence[Cost]) -> dict[tuple[float, float], int]:
    """Return how many releases there are of each (noise multiplier, rate); Gaussian ones are one together."""
    kinds: Counter[tuple[float, float]] = Counter()
    precision = math.fsum(c.releases / c.noise_multiplier**2 for c in costs if c.rate == 1)
    if precision > 0:
        kinds[1 / math.sqrt(precision), 1.0] = 1
    for cost in costs:
        if cost.rate < 1:
            kinds[cost.noise_multiplier, cost.rate] += cost.releases
    return dict(kinds)


def _log_ratio(z: float, s: float) -> float:
    return (2 * z - 1) / (2 * s * s)


def _log_gaussian_ratio(losses: np.ndarray, rate: float) -> np.ndarray:
    """Return log(1 + (exp(loss) - 1) / rate), also where exp(loss) overflows."""
    with np.errstate(over="ignore"):
        return np.where(
            losses < 30, np.log1p(np.expm1(np.minimum(losses, 30.0)) / rate), losses - math.log(rate)
        )


def _normal_quantile(tail: float) -> float:
    """Return x with Phi(x) = tail, to a few digits."""
    return brentq(lambda x: float(log_ndtr(x)) - math.log(tail), -60.0, 5.0, xtol=1e-3)


def _variance(s: float, rate: float) -> float:
    """Return about the variance of one loss."""
    return rate**2 * min(math.expm1(min(1 / s**2, 40.0)), 1 / (rate * s) ** 2)
