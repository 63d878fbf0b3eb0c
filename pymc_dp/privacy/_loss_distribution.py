"""The privacy loss of many releases, on a grid that never understates it.

One release on a batch drawn without replacement, which holds the share q of the rows, is dominated at losses
above 0 by P = (1 - q) N(0, s^2) + q N(1, s^2) against Q = N(0, s^2), s being the noise multiplier (Balle,
Barthe and Gaboardi 2018, theorem 9: exp(epsilon) - 1 and delta shrink by q). To exchange a row is symmetric,
so that the same pair reversed dominates at losses below 0, and what is left of the mass is at 0. Pairs
that dominate compose, adaptively chosen queries included (Zhu, Dong and Wang 2022, theorems 10 and 11).
With q = 1 this is Gaussian noise on all rows.

The mass of an interval of losses goes to its two ends so that both P and Q keep theirs (Doroshenko, Ghazi,
Kamath, Kumar and Manurangsi 2022, *Connect the Dots*); losses beyond the grid become infinite. Sums of
losses are convolutions, by a Fourier transform of the law tilted to the losses that matter (Esscher's
transform), so that rounding is relative to delta, however small that is. A bound of it is added to delta, as
is Chernoff's bound of the mass outside the window of sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import log_ndtr, logsumexp, ndtr

from pymc_dp.privacy.costs import Cost, grouped

_CELLS_PER_SD = 60.0
_MOST_CELLS = 1 << 21  # with more, a coarser grid: dearer, and still true
_MOST_PLACES = 1 << 24  # of one loss, likewise
_LOG_OUTSIDE = math.log(1e-9)  # relative to delta, what may be outside the window or become infinite
_ROUNDING = float(np.finfo(float).eps)


class _Part:
    """Losses of one release, of which there are `count`: masses at some multiples of `step`.

    At all multiples, or at few, with half of a per cent between them. A moment at few is at least what it
    is at all of them, and costs little.
    """

    def __init__(
        self,
        kind: tuple[float, float],
        count: int,
        step: float,
        log_infinite: float,
        one_way: bool,
        few: bool,
    ) -> None:
        noise, rate = kind
        self.count = count
        below, above = _ends(kind, count, log_infinite)
        self.places = _places(math.ceil(above / step), few)
        if one_way:
            below_places = _places(math.ceil(-below / step), few)
            self.places = np.concatenate([-below_places[:0:-1], self.places])
        mass, self.infinite = _masses(step * self.places, noise, rate)
        if not one_way:
            mirrored = mass[:0:-1] * np.exp(-step * self.places[:0:-1])
            middle = max(0.0, 1 - mirrored.sum() - mass[1:].sum() - self.infinite)
            mass = np.concatenate([mirrored, [middle], mass[1:]])
            self.places = np.concatenate([-self.places[:0:-1], self.places])
        self.losses = step * self.places
        with np.errstate(divide="ignore"):
            self.log_mass = np.log(mass)

    def log_moment(self, order: float) -> float:
        """Return the logarithm of the sum of mass * exp(order * loss)."""
        return float(logsumexp(self.log_mass + order * self.losses))

    def tilted(self, order: float, size: int) -> np.ndarray:
        """Return the probabilities of the tilted law around a circle of `size` cells."""
        tilted = np.exp(self.log_mass + order * self.losses - self.log_moment(order))
        return np.bincount(self.places % size, weights=tilted, minlength=size)


def _ends(kind: tuple[float, float], count: int, log_infinite: float) -> tuple[float, float]:
    """Return the smallest and the largest loss of one release that is not counted as infinite."""
    noise, rate = kind
    none = math.log1p(-rate) if rate < 1 else -math.inf
    top = 1 - noise * _normal_quantile(log_infinite - math.log(count))
    largest = _ratio(top, noise)
    if abs(largest) < 1e-3:  # logarithms near 0 would keep no digits of it
        above = math.log1p(rate * math.expm1(largest))
    else:
        above = float(np.logaddexp(none, math.log(rate) + largest))
    return max(none, _ratio(-top, noise)), above


def _places(last: int, few: bool) -> np.ndarray:
    """Return 0, 1, ..., last, or some of them."""
    if not few or last < 256:
        return np.arange(max(last, 1) + 1)
    beyond = np.geomspace(256, last, math.ceil(200 * math.log(last / 256)) + 2)
    return np.concatenate([np.arange(256), np.unique(np.rint(beyond).astype(np.int64))])


def _masses(losses: np.ndarray, noise: float, rate: float) -> tuple[np.ndarray, float]:
    """Return P's mass at the losses of a grid, and beyond it; the first has none from below it."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ratio = np.maximum(1 + np.expm1(losses) / rate, 0.0)
        # of the Gaussian pair, where the mixture's log ratio is the loss
        log_ratio = np.where(losses < 30, np.log(ratio), losses - math.log(rate))
        edges = noise * log_ratio + 0.5 / noise
        base, shifted = -np.diff(ndtr(-edges)), -np.diff(ndtr(1 / noise - edges))
        mass = (1 - rate) * base + rate * shifted
        slope = 1 + np.expm1(losses[:-1]) / rate
        upper = rate * (shifted - slope * base) / -np.expm1(losses[:-1] - losses[1:])
    # what is not a number underflowed, and is rounded up
    upper = np.clip(np.where(np.isfinite(upper), upper, mass), 0.0, mass)
    at = np.zeros(losses.size)
    at[1:] += upper
    at[:-1] += mass - upper
    beyond = (1 - rate) * ndtr(-edges[-1]) + rate * ndtr(1 / noise - edges[-1])
    return at, float(beyond)


class LossDistribution:
    """Curve of delta over epsilon of releases that compose.

    Sharp near the place that is given, and true everywhere.

    Parameters
    ----------
    costs : sequence of cost
    epsilon, delta : float, optional
        Where the curve will be asked for: one of both.
    one_way : bool, default False
        Whether to compose P against Q at all losses instead, which some data attain: a lower bound.
    """

    def __init__(
        self,
        costs: Sequence[Cost],
        *,
        epsilon: float = 0.0,
        delta: float | None = None,
        one_way: bool = False,
    ) -> None:
        kinds = grouped(costs)
        variance = sum(count * _variance(*kind) for kind, count in kinds.items())
        step = math.sqrt(variance / sum(kinds.values())) / _CELLS_PER_SD

        def largest_loss(log_infinite: float) -> float:
            each = log_infinite - math.log(len(kinds))
            return max(abs(end) for kind, count in kinds.items() for end in _ends(kind, count, each))

        def parts(log_infinite: float, step: float, few: bool = True) -> list[_Part]:
            each = log_infinite - math.log(len(kinds))
            return [_Part(kind, count, step, each, one_way, few) for kind, count in kinds.items()]

        log_delta = None if delta is None else math.log(delta)
        if log_delta is None:
            self._parts = parts(-100.0, max(step, largest_loss(-100.0) / _MOST_PLACES))
            log_delta = min(self._tilt(epsilon, None), 0.0)
        log_infinite = max(log_delta, -690.0) + _LOG_OUTSIDE
        largest = largest_loss(log_infinite)
        step = max(step, largest / _MOST_PLACES)
        while step <= largest:
            self._parts = parts(log_infinite, step)
            self._tilt(epsilon, None if delta is None else log_delta)
            cells = self._window(step, log_delta)
            if cells <= _MOST_CELLS:
                break
            step *= max(2.0, cells / _MOST_CELLS)
        else:  # no grid holds sums of so many releases with so little noise: they count as infinite
            self._losses: np.ndarray = np.zeros(0)
            self._chance: np.ndarray = np.zeros(0)
            self._error, self._infinite, self._top, self._log_scale = 0.0, 1.0, 0.0, 0.0
            return
        self._parts = parts(log_infinite, step, few=False)
        self._log_scale = self._log_moment(self._order)
        self._convolve(step, next_fast_len(math.ceil(cells), real=True))

    def _log_moment(self, order: float) -> float:
        return sum(part.count * part.log_moment(order) for part in self._parts)

    def _tilt(self, epsilon: float, log_delta: float | None) -> float:
        """Choose the order of the best Chernoff bound at a place, and return that bound."""

        def bound(log_order: float) -> float:
            order = math.exp(log_order)
            if log_delta is None:
                return self._log_moment(order) - order * epsilon
            return (self._log_moment(order) - log_delta) / order

        best = scipy.optimize.minimize_scalar(
            bound, bounds=(-8, 20), method="bounded", options={"xatol": 0.02}
        )
        self._order = math.exp(best.x)
        return float(best.fun)

    def _window(self, step: float, log_delta: float) -> float:
        """Choose between which sums nearly all of the mass that matters is, and return the cells between."""
        here = self._log_moment(self._order)
        self._log_above = log_delta + _LOG_OUTSIDE
        factors = np.geomspace(1e-2, 30, 32)
        orders = self._order * (1 + factors)
        beyond = [self._log_moment(order) for order in orders]
        # Chernoff: log P(sum > top) <= log moment - order * top. What of the tilted law is outside comes in
        # at the other end: true, but too much.
        self._top = max(
            min((log - self._log_above) / order for log, order in zip(beyond, orders)),
            # which may outweigh the little of the tilted law that matters: so, much less than of delta
            min(
                (log - here - 1.5 * _LOG_OUTSIDE) / (order - self._order)
                for log, order in zip(beyond, orders)
            ),
        )
        back = max(self._order, 1.0) * factors
        bottom = max((here - self._log_moment(self._order - b) + _LOG_OUTSIDE) / b for b in back)
        return (self._top - bottom) / step + 2

    def _convolve(self, step: float, size: int) -> None:
        transforms = [rfft(part.tilted(self._order, size)) for part in self._parts]
        product = np.prod([f**part.count for f, part in zip(transforms, self._parts)], axis=0)
        chance = irfft(product, n=size)
        last = math.floor(self._top / step)
        self._losses = step * np.arange(last - size + 1, last + 1)
        self._chance = np.maximum(np.roll(chance, size - 1 - last % size), 0.0)
        self._error = _rounding(transforms, [p.count for p in self._parts], size, chance)
        self._infinite = -math.expm1(math.fsum(p.count * math.log1p(-p.infinite) for p in self._parts))

    def delta(self, epsilon: float) -> float:
        """Return a delta that holds at `epsilon`, the smallest up to the grid."""
        losses, chance = (
            x[np.searchsorted(self._losses, epsilon, "right") :] for x in (self._losses, self._chance)
        )
        above = losses - epsilon
        finite = self._error + float((chance * np.exp(-self._order * above)) @ -np.expm1(-above))
        scale = math.exp(min(self._log_scale - self._order * epsilon, 700.0))
        return min(1.0, scale * finite + self._infinite + math.exp(self._log_above))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon that holds at `delta`, the smallest up to the grid; inf where there is none."""
        if self.delta(0.0) <= delta:
            return 0.0
        if self.delta(self._top) > delta:
            return math.inf
        root = scipy.optimize.brentq(
            lambda e: math.log(self.delta(e) / delta), 0.0, self._top, xtol=1e-12, rtol=1e-12
        )
        while self.delta(root) > delta:
            root += 1e-12 * max(root, 1.0)
        return root


def _rounding(transforms: list[np.ndarray], counts: list[int], size: int, chance: np.ndarray) -> float:
    """Bound the sum of the rounding errors of all probabilities."""
    bits = math.log2(size)
    sizes = [np.abs(f) for f in transforms]
    total = 0.0
    for k, count in enumerate(counts):
        others = np.prod([a**c for j, (a, c) in enumerate(zip(sizes, counts)) if j != k], axis=0)
        # the error of a power, added up over all frequencies as if they had one sign
        total += count * 2 * float(np.sum(sizes[k] ** (count - 1) * others))
    return 4 * _ROUNDING * bits * (total + math.sqrt(size) * float(np.linalg.norm(chance)))


def _ratio(x: float, noise: float) -> float:
    """Return log N(x | 1, noise^2) - log N(x | 0, noise^2)."""
    return (2 * x - 1) / (2 * noise * noise)


def _normal_quantile(log_tail: float) -> float:
    """Return x with log(Phi(x)) = log_tail, to some digits."""
    return scipy.optimize.brentq(lambda x: float(log_ndtr(x)) - log_tail, -60.0, 5.0, xtol=1e-3)


def _variance(noise: float, rate: float) -> float:
    """Return roughly the variance of one loss."""
    return rate**2 * min(math.expm1(min(noise**-2, 40.0)), 1 / (rate * noise) ** 2)
