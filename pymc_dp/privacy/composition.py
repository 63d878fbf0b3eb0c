"""What runs and releases cost together: epsilon at a delta, delta at an epsilon, and whether they fit.

Without batches the exact accounting of guarantees does it, the noise of runs being one guarantee more.
Releases on batches go through the distribution of their privacy loss, and so do pure and approximate
guarantees beside them. For guarantees by rho or Renyi divergences no such distribution is known: delta is
split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import scipy

from pymc_dp.privacy import accountant
from pymc_dp.privacy._loss_distribution import LossDistribution
from pymc_dp.privacy.calibration import gaussian_delta, gaussian_epsilon, gaussian_sigma_analytic
from pymc_dp.privacy.costs import Cost
from pymc_dp.privacy.guarantee import PrivacyGuarantee

_ROUNDING = 1 + 1e-12  # tolerance, so that what was made to fit is not refused because of rounding
_LARGEST_MU = 1e100  # whose epsilon is 5e199


def gaussian_mu(costs: Sequence[Cost]) -> float | None:
    """Return mu of Gaussian differential privacy where all costs are Gaussian, otherwise None."""
    squares = []
    for cost in costs:
        if isinstance(cost, PrivacyGuarantee):
            if cost.mu is None:
                return None
            squares.append(cost.mu**2)
        elif cost.rate < 1:
            return None
        else:
            squares.append(cost.releases / cost.noise_multiplier**2)
    return math.sqrt(math.fsum(squares))


def epsilon_of(costs: Sequence[Cost], delta: float) -> float:
    """Return the smallest epsilon that is proven for these costs together; delta may be 0."""
    if delta == 0:
        pure = [c.epsilon if isinstance(c, PrivacyGuarantee) and c.is_pure else math.inf for c in costs]
        return math.fsum(pure)
    if _promise_nothing(costs):
        return math.inf
    mu = gaussian_mu(costs)
    if mu is not None:
        return gaussian_epsilon(delta, 1.0, mu) if mu > 0 else 0.0
    if not _on_batches(costs):
        return accountant.epsilon_of(_guarantees(costs), delta)
    known, others = _with_known_losses(costs)
    if others:
        return epsilon_of(known, delta / 2) + epsilon_of(others, delta / 2)
    left = _left(delta, _failing(known))
    if left <= 0:
        return math.inf
    found = LossDistribution(known, delta=left).epsilon(left)
    pure = [c.epsilon for c in known if isinstance(c, PrivacyGuarantee) and c.mu is None]
    if math.isfinite(found) or not pure:
        return found
    # no grid holds large losses beside very small ones, but pure epsilons may be added
    noise = [c for c in known if not isinstance(c, PrivacyGuarantee) or c.mu is not None]
    return math.fsum(pure) + epsilon_of(noise, left)


def delta_of(costs: Sequence[Cost], epsilon: float) -> float:
    """Return the smallest delta that is proven for these costs together; inverse of :func:`epsilon_of`."""
    if _promise_nothing(costs):
        return 1.0
    mu = gaussian_mu(costs)
    if mu is not None:
        return gaussian_delta(epsilon, 1.0, mu) if mu > 0 else 0.0
    if epsilon_of(costs, 0.0) <= epsilon * _ROUNDING:
        return 0.0
    known, others = _with_known_losses(costs)
    if _on_batches(costs) and not others:
        failing = _failing(known)
        return failing + (1 - failing) * LossDistribution(known, epsilon=epsilon).delta(epsilon)

    def above(log_delta: float) -> float:
        return min(epsilon_of(costs, math.exp(log_delta)) - epsilon, 1e300)

    lowest, highest = math.log(1e-300), math.log1p(-1e-12)
    if above(highest) > 0:
        return 1.0
    if above(lowest) <= 0:
        return 1e-300
    root = scipy.optimize.brentq(above, lowest, highest, xtol=1e-9)
    return min(1.0, math.exp(root + 2e-9))  # on the safe side of the root


def fits(costs: Sequence[Cost], epsilon: float, delta: float) -> bool:
    """Return whether these costs together are within a budget."""
    if delta > 0 and _promise_nothing(costs):
        return False
    mu = gaussian_mu(costs)
    if mu is not None and delta > 0:
        return mu <= 1 / gaussian_sigma_analytic(epsilon, delta, 1.0)
    if delta > 0 and _on_batches(costs):
        return excess(costs, epsilon, delta) <= 0 or epsilon_of(costs, delta) <= epsilon
    return epsilon_of(costs, delta) <= epsilon * _ROUNDING


def excess(costs: Sequence[Cost], epsilon: float, delta: float) -> float:
    """Return by how much costs exceed a budget, which is positive if they do, and continuous in their noise.

    It is log(delta of the costs / delta) where their losses are known, otherwise the difference of epsilons.
    """
    known, others = _with_known_losses(costs)
    if others or not _on_batches(costs):
        return min(epsilon_of(costs, delta) - epsilon, 1e300)
    failing = _failing(known)
    if delta <= failing:
        return math.inf
    found = LossDistribution(known, epsilon=epsilon).delta(epsilon)
    return math.log(max(found, 1e-300) / _left(delta, failing))


def _promise_nothing(costs: Sequence[Cost]) -> bool:
    """Return whether Gaussian noise on all rows is so small that its epsilon is not computed."""
    everywhere = [c for c in costs if (c.mu is not None if isinstance(c, PrivacyGuarantee) else c.rate == 1)]
    return (gaussian_mu(everywhere) or 0.0) > _LARGEST_MU


def _on_batches(costs: Sequence[Cost]) -> bool:
    return any(not isinstance(cost, PrivacyGuarantee) and cost.rate < 1 for cost in costs)


def _guarantees(costs: Sequence[Cost]) -> list[PrivacyGuarantee]:
    """Return costs as guarantees, all Gaussian noise of runs as one."""
    mu = gaussian_mu([cost for cost in costs if not isinstance(cost, PrivacyGuarantee)])
    noise = [PrivacyGuarantee(math.inf, mu=mu)] if mu else []
    return [cost for cost in costs if isinstance(cost, PrivacyGuarantee)] + noise


def _with_known_losses(costs: Sequence[Cost]) -> tuple[list[Cost], list[Cost]]:
    """Return the costs of which a worst release is known, and the others."""
    known: list[Cost] = []
    others: list[Cost] = []
    for cost in costs:
        unknown = isinstance(cost, PrivacyGuarantee) and cost.mu is None and math.isinf(cost.epsilon)
        (others if unknown else known).append(cost)
    return known, others


def _failing(costs: Sequence[Cost]) -> float:
    """Return the chance that the promise of one of the approximate guarantees fails."""
    deltas = [c.delta for c in costs if isinstance(c, PrivacyGuarantee) and c.mu is None]
    return -math.expm1(math.fsum(math.log1p(-delta) for delta in deltas))


def _left(delta: float, failing: float) -> float:
    """Return the delta for the case that nothing failed."""
    return (delta - failing) / (1 - failing)
