"""Epsilon and delta of runs that release noisy numbers, and the runs that a budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from scipy.optimize import brentq

from pymc_dp.privacy._checks import positive, probability
from pymc_dp.privacy._loss_distribution import LossDistribution, grouped
from pymc_dp.privacy.calibration import gaussian_delta, gaussian_epsilon, gaussian_sigma_analytic
from pymc_dp.privacy.costs import Cost, as_costs, cost_of, whole

_MARGIN = 1 + 1e-12  # so that what was made to fit is not refused for its last digit


def epsilon(costs: Any, delta: float) -> float:
    """Return the smallest epsilon that is proven for these costs together.

    Parameters
    ----------
    costs : cost or sequence of costs
        :class:`GaussianCost` and :class:`SubsampledGaussianCost`.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        In nats.
    """
    costs, delta = as_costs(costs), probability("delta", delta)
    if not costs:
        return 0.0
    mu = gaussian_mu(costs)
    if mu is not None:
        return gaussian_epsilon(delta, 1.0, mu)
    return LossDistribution(costs, delta=delta).epsilon(delta)


def delta(costs: Any, epsilon: float) -> float:
    """Return the smallest delta that is proven for these costs together.

    Parameters
    ----------
    costs : cost or sequence of costs
    epsilon : float
        In nats, > 0.

    Returns
    -------
    float
    """
    costs, epsilon = as_costs(costs), positive("epsilon", epsilon)
    if not costs:
        return 0.0
    mu = gaussian_mu(costs)
    if mu is not None:
        return gaussian_delta(epsilon, 1.0, mu)
    return LossDistribution(costs, epsilon=epsilon).delta(epsilon)


def gaussian_mu(costs: Sequence[Cost]) -> float | None:
    """Return mu of Gaussian differential privacy where all costs are Gaussian, else None."""
    if any(cost.rate < 1 for cost in costs):
        return None
    return math.sqrt(math.fsum(cost.releases / cost.noise_multiplier**2 for cost in costs))


def fits(costs: Any, epsilon: float, delta: float) -> bool:
    """Whether these costs together are within a budget."""
    costs = as_costs(costs)
    if not costs:
        return True
    mu = gaussian_mu(costs)
    if mu is not None:
        return mu <= 1 / gaussian_sigma_analytic(epsilon, delta, 1.0)
    return LossDistribution(costs, epsilon=epsilon).delta(epsilon) <= delta


def noise_multiplier(
    releases: int,
    *,
    epsilon: float,
    delta: float,
    spent: Any = (),
    n: int | None = None,
    batch_size: int | None = None,
) -> float:
    """Return the smallest noise multiplier at which so many releases fit into a budget.

    Parameters
    ----------
    releases : int
        Numbers to be released, of all chains, >= 1.
    epsilon, delta : float
        The budget: epsilon in nats > 0, delta in (0, 1).
    spent : cost or sequence of costs, optional
        What is spent of it already.
    n, batch_size : int, optional
        Rows and rows in a batch, where each release is computed from a batch drawn without replacement.

    Returns
    -------
    float
    """
    releases = whole("releases", releases)
    epsilon, delta = positive("epsilon", epsilon), probability("delta", delta)
    before = as_costs(spent, "spent")
    if not fits(before, epsilon, delta):
        raise ValueError("spent is more than the budget already: nothing is left to release.")
    first = cost_of(releases, 1.0, n, batch_size)
    if gaussian_mu((*before, first)) is not None:
        most = gaussian_sigma_analytic(epsilon, delta, 1.0) ** -2
        left = most - (gaussian_mu(before) or 0.0) ** 2
        if left <= most * 1e-14:
            raise ValueError("spent is all of the budget: nothing is left to release.")
        return math.sqrt(releases / left) * _MARGIN
    return _smallest_noise(lambda s: (*before, cost_of(releases, s, n, batch_size)), epsilon, delta)


def _smallest_noise(plan: Callable[[float], Sequence[Cost]], epsilon: float, delta: float) -> float:
    def excess(log_noise: float) -> float:
        costs = plan(math.exp(log_noise))
        return math.log(max(LossDistribution(costs, epsilon=epsilon).delta(epsilon), 1e-300) / delta)

    lower = upper = 0.0
    while excess(upper) > 0:
        lower, upper = upper, upper + 1.0
        if upper > 40:
            raise ValueError("spent is all of the budget: nothing is left to release.")
    if lower == upper:
        lower = upper - 1.0
        while excess(lower) <= 0:
            lower, upper = lower - 1.0, lower
    root = brentq(excess, lower, upper, xtol=1e-8)
    while excess(root) > 0:
        root += 2e-8
    return math.exp(root) * _MARGIN


def iterations(
    noise_multiplier: float,
    *,
    epsilon: float,
    delta: float,
    releases_per_iteration: int = 1,
    spent: Any = (),
    n: int | None = None,
    batch_size: int | None = None,
) -> int:
    """Return how many iterations a budget allows.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity, > 0.
    epsilon, delta : float
        The budget: epsilon in nats > 0, delta in (0, 1).
    releases_per_iteration : int, default 1
        Numbers that an iteration releases.
    spent : cost or sequence of costs, optional
        What is spent of it already.
    n, batch_size : int, optional
        Rows and rows in a batch, where each release is computed from a batch drawn without replacement.

    Returns
    -------
    int
        0 where not even one is allowed.
    """
    each = whole("releases_per_iteration", releases_per_iteration)
    epsilon, delta = positive("epsilon", epsilon), probability("delta", delta)
    noise_multiplier = positive("noise_multiplier", noise_multiplier)
    before = as_costs(spent, "spent")
    one = cost_of(each, noise_multiplier, n, batch_size)
    if gaussian_mu((*before, one)) is not None:
        left = gaussian_sigma_analytic(epsilon, delta, 1.0) ** -2 - (gaussian_mu(before) or 0.0) ** 2
        guess = max(0, math.floor(left * noise_multiplier**2 / each))
    else:
        guess = None

    def allowed(count: int) -> bool:
        more = (cost_of(count * each, noise_multiplier, n, batch_size),) if count else ()
        return fits((*before, *more), epsilon, delta)

    return _largest(allowed, guess)


def _largest(allowed: Callable[[int], bool], guess: int | None) -> int:
    if guess is not None:
        while guess > 0 and not allowed(guess):
            guess -= 1
        return guess
    if not allowed(1):
        return 0
    lower, upper = 1, 2
    while allowed(upper):
        lower, upper = upper, 2 * upper
    while upper - lower > 1:
        middle = (lower + upper) // 2
        lower, upper = (middle, upper) if allowed(middle) else (lower, middle)
    return lower


__all__ = ["delta", "epsilon", "fits", "gaussian_mu", "grouped", "iterations", "noise_multiplier"]
