"""Older accountings by Rényi divergences, for comparison; they are looser than the ledger's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp

from pymc_dp.privacy._loss_pairs import GaussianPair, pairs_of
from pymc_dp.privacy.costs import Cost
from pymc_dp.privacy.guarantee import PrivacyGuarantee

# Orders: all whole numbers up to 256, and fewer beyond.
_ORDERS = np.unique(np.concatenate([np.arange(2, 257), np.geomspace(257, 4096, 60).astype(int)]))


def renyi_epsilon(costs: Sequence[Cost], delta: float) -> float:
    """Return the epsilon of the sum of Rényi divergences, converted by log(1 / delta) / (order - 1)."""
    rho, subsampled = 0.0, {}
    for cost in costs:
        if isinstance(cost, PrivacyGuarantee):
            rho += float(cost.to_zcdp().rho or 0.0)
    for pair, count in pairs_of(cost for cost in costs if not isinstance(cost, PrivacyGuarantee)).items():
        assert isinstance(pair, GaussianPair)
        if pair.rate == 1:
            rho += 0.5 / pair.noise**2
        else:
            subsampled[pair] = count
    if not subsampled:
        return rho + 2 * math.sqrt(-rho * math.log(delta))
    best = math.inf
    for order in _ORDERS:
        divergence = rho * order + sum(
            count * _subsampled(int(order), pair.noise, pair.rate) for pair, count in subsampled.items()
        )
        best = min(best, divergence - math.log(delta) / (order - 1))
    return float(best)


def _subsampled(order: int, noise: float, rate: float) -> float:
    """Return the Rényi divergence of integer order of one release (theorem 9 of Wang et al. 2019)."""
    j = np.arange(2, order + 1)
    choose = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    # the Rényi divergence of Gaussian noise is epsilon'(j) = j / (2 noise^2)
    terms = j * math.log(rate) + choose + (j - 1) * j / (2 * noise**2) + math.log(2)
    second = noise**-2
    smaller = min(math.log(4) + _log_expm1(second), math.log(2) + second)
    terms[0] = 2 * math.log(rate) + choose[0] + smaller
    return float(np.logaddexp(0.0, logsumexp(terms))) / (order - 1)


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x))
