"""The distribution of the privacy loss of many releases, on a grid that never understates the loss.

Consider one release on a batch that is drawn without replacement and contains a share q of the rows. At
losses above 0 it is dominated by the pair P = (1 - q) N(0, s^2) + q N(1, s^2) against Q = N(0, s^2), where s
is the noise multiplier (Balle, Barthe and Gaboardi 2018, theorem 9: exp(epsilon) - 1 and delta shrink by q).
Exchanging a row is symmetric, so that the reversed pair dominates at losses below 0, and the remaining mass
is at 0. Dominating pairs compose, also for adaptively chosen queries (Zhu, Dong and Wang 2022, theorems 10
and 11). With q = 1 this is Gaussian noise on all rows.

The mass of an interval of losses is moved to its two ends such that P and Q both keep their totals
(Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, *Connect the Dots*); losses beyond the grid become
infinite. The law of a sum of losses is a convolution. It is computed by a Fourier transform of the law tilted
to the losses that matter (Esscher's transform), so that rounding errors are relative to delta, however small
that is. A bound of these errors is added to delta, and so is Chernoff's bound of the mass outside the window
of sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import logsumexp

from pymc_dp.privacy._loss_pairs import Pair, PurePair, pairs_of
from pymc_dp.privacy.costs import Cost

_CELLS_PER_SD = 60.0
_MOST_CELLS = 1 << 21  # if more were needed, the grid is coarser, so that the cost is larger but still valid
_MOST_PLACES = 1 << 24  # the same for the grid of one loss
_LOG_OUTSIDE = math.log(1e-9)  # mass outside of the window or at infinity, relative to delta
_ORDERS = (-8, 20)  # logarithms of the orders of tilting that are tried
_NEARLY = 1.1
_ROUNDING = float(np.finfo(float).eps)


class _Part:
    """The loss of one of `count` equal releases, as masses at multiples of `step`.

    There are masses at all multiples, or only at a few, half a per cent apart. Moments from few multiples are
    at least as large as those from all of them, and take little time.
    """

    def __init__(
        self,
        pair: Pair,
        count: int,
        step: float,
        log_infinite: float,
        one_way: bool,
        few: bool,
    ) -> None:
        self.count = count
        below, above = pair.ends(count, log_infinite)
        self.places = _places(math.ceil(above / step), few)
        if one_way:
            below_places = _places(math.ceil(-below / step), few)
            self.places = np.concatenate([-below_places[:0:-1], self.places])
        mass, self.infinite = pair.masses(step * self.places)
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
        """Return the probabilities of the tilted law, wrapped around a circle of `size` cells."""
        tilted = np.exp(self.log_mass + order * self.losses - self.log_moment(order))
        return np.bincount(self.places % size, weights=tilted, minlength=size)


def _places(last: int, few: bool) -> np.ndarray:
    """Return 0, 1, ..., last, or a few of them."""
    if not few or last < 256:
        return np.arange(max(last, 1) + 1)
    beyond = np.geomspace(256, last, math.ceil(200 * math.log(last / 256)) + 2)
    return np.concatenate([np.arange(256), np.unique(np.rint(beyond).astype(np.int64))])


class LossDistribution:
    """The curve of delta over epsilon of composed releases.

    It is a valid upper bound everywhere, and close to the exact curve near the given epsilon or delta.

    Parameters
    ----------
    costs : sequence of cost
    epsilon, delta : float, optional
        The point at which the curve is needed; one of the two is given.
    one_way : bool, default False
        Whether to compose P against Q at all losses instead, a pair that some data attain: this gives a lower
        bound.
    """

    def __init__(
        self,
        costs: Sequence[Cost],
        *,
        epsilon: float = 0.0,
        delta: float | None = None,
        one_way: bool = False,
    ) -> None:
        pairs = pairs_of(costs)
        self._bounded = any(isinstance(pair, PurePair) for pair in pairs)
        variance = sum(count * pair.variance for pair, count in pairs.items())
        step = math.sqrt(variance / sum(pairs.values())) / _CELLS_PER_SD

        def largest_loss(log_infinite: float) -> float:
            each = log_infinite - math.log(len(pairs))
            return max(abs(end) for pair, count in pairs.items() for end in pair.ends(count, each))

        def parts(log_infinite: float, step: float, few: bool = True) -> list[_Part]:
            each = log_infinite - math.log(len(pairs))
            return [_Part(pair, count, step, each, one_way, few) for pair, count in pairs.items()]

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
        else:  # no grid can hold sums of so many losses with so little noise: they count as infinite
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
        """Choose the order of the best Chernoff bound at the given point, and return that bound."""

        def bound(log_order: float) -> float:
            order = math.exp(log_order)
            if log_delta is None:
                return self._log_moment(order) - order * epsilon
            return (self._log_moment(order) - log_delta) / order

        best = scipy.optimize.minimize_scalar(
            bound, bounds=_ORDERS, method="bounded", options={"xatol": 0.02}
        )
        self._order = math.exp(best.x)
        if log_delta is not None and self._bounded:
            # If their largest sum has more than delta, the best order is infinite, at which all other sums
            # would be lost to rounding. A lower one with nearly as good a bound does.
            while bound(math.log(self._order / 2)) < _NEARLY * best.fun:
                self._order /= 2
        return float(best.fun)

    def _window(self, step: float, log_delta: float) -> float:
        """Choose a window of sums with nearly all of the mass that matters; return its number of cells."""
        here = self._log_moment(self._order)
        self._log_above = log_delta + _LOG_OUTSIDE
        factors = np.geomspace(1e-2, 30, 32)
        orders = self._order * (1 + factors)
        beyond = [self._log_moment(order) for order in orders]
        # Chernoff: log P(sum > top) <= log moment - order * top. Mass of the tilted law outside of the window
        # wraps around to the other end, which can only raise delta.
        self._top = max(
            min((log - self._log_above) / order for log, order in zip(beyond, orders)),
            # that mass may outweigh the small part of the tilted law that matters, so that it is kept far
            # smaller
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
        """Return a delta that holds at `epsilon`, the smallest up to the grid's resolution."""
        losses, chance = (
            x[np.searchsorted(self._losses, epsilon, "right") :] for x in (self._losses, self._chance)
        )
        above = losses - epsilon
        finite = self._error + float((chance * np.exp(-self._order * above)) @ -np.expm1(-above))
        scale = math.exp(min(self._log_scale - self._order * epsilon, 700.0))
        return min(1.0, scale * finite + self._infinite + math.exp(self._log_above))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon that holds at `delta`, the smallest up to the resolution; inf if none does."""
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
        # the error of a power; errors of all frequencies are added up as if they had the same sign
        total += count * 2 * float(np.sum(sizes[k] ** (count - 1) * others))
    return 4 * _ROUNDING * bits * (total + math.sqrt(size) * float(np.linalg.norm(chance)))
