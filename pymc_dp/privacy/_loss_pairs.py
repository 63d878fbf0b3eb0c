"""Pairs of laws that dominate one release, and the losses of a release on a grid.

A pair (P, Q) dominates a release if no neighbouring data sets can be told apart better by it than P from Q.
Losses are log(P / Q) under P. For pure privacy the pair is that of randomized response: P has the loss
epsilon with probability exp(epsilon) / (1 + exp(epsilon)), otherwise -epsilon (Kairouz, Oh and Viswanath
2015, *The Composition Theorem for Differential Privacy*, theorem 3.3).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy
from scipy.special import expit, log_ndtr, ndtr

from pymc_dp.privacy._responses import upper_share
from pymc_dp.privacy.costs import Cost
from pymc_dp.privacy.guarantee import PrivacyGuarantee


@dataclass(frozen=True)
class GaussianPair:
    """The mixture (1 - rate) N(0, noise^2) + rate N(1, noise^2) against N(0, noise^2)."""

    noise: float
    rate: float = 1.0

    @property
    def variance(self) -> float:
        """Approximate variance of one loss."""
        return self.rate**2 * min(math.expm1(min(self.noise**-2, 40.0)), 1 / (self.rate * self.noise) ** 2)

    def ends(self, count: int, log_infinite: float) -> tuple[float, float]:
        """Return the smallest and the largest loss that do not count as infinite."""
        noise, rate = self.noise, self.rate
        none = math.log1p(-rate) if rate < 1 else -math.inf
        top = 1 - noise * _normal_quantile(log_infinite - math.log(count))
        largest = self._ratio(top)
        if abs(largest) < 1e-3:  # logarithms near 0 would lose its digits
            above = math.log1p(rate * math.expm1(largest))
        else:
            above = float(np.logaddexp(none, math.log(rate) + largest))
        return max(none, self._ratio(-top)), above

    def masses(self, losses: np.ndarray) -> tuple[np.ndarray, float]:
        """Return P's mass at the losses of a grid, without mass from below, and P's mass above the grid."""
        noise, rate = self.noise, self.rate
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            ratio = np.maximum(1 + np.expm1(losses) / rate, 0.0)
            # log ratio of the Gaussian pair at the points where the mixture's log ratio is the loss
            log_ratio = np.where(losses < 30, np.log(ratio), losses - math.log(rate))
            edges = noise * log_ratio + 0.5 / noise
            base, shifted = -np.diff(ndtr(-edges)), -np.diff(ndtr(1 / noise - edges))
            mass = (1 - rate) * base + rate * shifted
            slope = 1 + np.expm1(losses[:-1]) / rate
            upper = rate * (shifted - slope * base) / -np.expm1(losses[:-1] - losses[1:])
        # NaN comes from underflow, and is rounded up
        upper = np.clip(np.where(np.isfinite(upper), upper, mass), 0.0, mass)
        at = np.zeros(losses.size)
        at[1:] += upper
        at[:-1] += mass - upper
        beyond = (1 - rate) * ndtr(-edges[-1]) + rate * ndtr(1 / noise - edges[-1])
        return at, float(beyond)

    def _ratio(self, x: float) -> float:
        """Return log N(x | 1, noise^2) - log N(x | 0, noise^2)."""
        return (2 * x - 1) / (2 * self.noise * self.noise)


@dataclass(frozen=True)
class PurePair:
    """Randomized response with a pure epsilon."""

    epsilon: float

    @property
    def variance(self) -> float:
        """Approximate variance of one loss; at least that of epsilon = 2, so that grids stay small."""
        return (self.epsilon / math.cosh(min(self.epsilon, 2.0) / 2)) ** 2

    def ends(self, count: int, log_infinite: float) -> tuple[float, float]:
        """Return the two losses."""
        return -self.epsilon, self.epsilon

    def masses(self, losses: np.ndarray) -> tuple[np.ndarray, float]:
        """Return P's mass at the losses of a grid from 0 on: at the two losses around epsilon."""
        chance = float(expit(self.epsilon))
        k = min(int(np.searchsorted(losses, self.epsilon)), losses.size - 1)
        at = np.zeros(losses.size)
        at[k] = chance * float(upper_share(self.epsilon, losses[k - 1], losses[k]))
        at[k - 1] = chance - at[k]
        return at, 0.0


type Pair = GaussianPair | PurePair


def pairs_of(costs: Iterable[Cost]) -> dict[Pair, int]:
    """Return how many releases each dominating pair has, all Gaussian noise on all rows being one release.

    Of an approximate guarantee it is the pair of what is left when delta has not failed. Guarantees by rho or
    Renyi divergences alone have no such pair.
    """
    pairs: Counter[Pair] = Counter()
    precision = 0.0
    for cost in costs:
        if not isinstance(cost, PrivacyGuarantee):
            if cost.rate < 1:
                pairs[GaussianPair(cost.noise_multiplier, cost.rate)] += cost.releases
            else:
                precision += cost.releases / cost.noise_multiplier**2
        elif cost.mu is not None:
            precision += cost.mu**2
        elif math.isfinite(cost.epsilon):
            pairs[PurePair(cost.epsilon)] += 1
        else:
            raise TypeError(f"{cost} has no dominating pair.")
    return {**({GaussianPair(precision**-0.5): 1} if precision > 0 else {}), **pairs}


def _normal_quantile(log_tail: float) -> float:
    """Return x with log(Phi(x)) = log_tail, to three decimals."""
    return scipy.optimize.brentq(lambda x: float(log_ndtr(x)) - log_tail, -60.0, 5.0, xtol=1e-3)
