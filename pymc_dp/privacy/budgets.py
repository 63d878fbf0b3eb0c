"""The cost of runs on confidential rows, and the runs that a budget allows.

How costs compose is in :mod:`pymc_dp.privacy.composition`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import scipy

from pymc_dp.privacy import _renyi
from pymc_dp.privacy._checks import as_budget, positive, probability, whole
from pymc_dp.privacy._loss_distribution import LossDistribution
from pymc_dp.privacy.calibration import gaussian_sigma_analytic
from pymc_dp.privacy.composition import delta_of, epsilon_of, fits, gaussian_mu
from pymc_dp.privacy.composition import excess as above
from pymc_dp.privacy.costs import (
    MOST_ON_BATCHES,
    NOISE_ON_BATCHES,
    Cost,
    RunCost,
    as_costs,
    cost_of,
)

_MARGIN = 1 + 1e-12  # tolerance, so that a plan that was made to fit is not refused because of rounding


class NothingLeftError(ValueError):
    """All of a budget is spent."""

    def __init__(self, how: str = "all of") -> None:
        super().__init__(f"spent is {how} the budget: nothing is left to release.")


def epsilon(costs: Any, delta: float) -> float:
    """Return the smallest epsilon that is proven for these costs together.

    Parameters
    ----------
    costs : cost or sequence of costs
        :class:`GaussianCost`, :class:`SubsampledGaussianCost`, guarantees, or releases; none cost 0.
    delta : float
        In [0, 1); at 0, only pure releases have a finite epsilon, the sum of theirs.

    Returns
    -------
    float
        In nats, for replace-one neighbours. It is exact where all costs are Gaussian; otherwise it is never
        too small. For batches it exceeds the best value that the proof gives by about a thousandth at most;
        without them it is that of :func:`~pymc_dp.guarantee`.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is out of its range.

    References
    ----------
    Räisä (2021), theorems 6 and 11, for Gaussian noise on all rows; Balle, Barthe and Gaboardi (2018),
    theorem 9, and Zhu, Dong and Wang (2022), theorems 10 and 11, for batches without replacement; Kairouz, Oh
    and Viswanath (2015), theorem 3.3, for pure and approximate guarantees.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> penalty = dp.accounting.GaussianCost(2000, noise_multiplier=60.0)
    >>> round(dp.accounting.epsilon(penalty, delta=1e-6), 4)
    3.508
    """
    return epsilon_of(as_costs(costs), probability("delta", delta, or_zero=True))


def delta(costs: Any, epsilon: float) -> float:
    """Return the smallest delta that is proven for these costs together; inverse of :func:`epsilon`.

    Parameters
    ----------
    costs : cost or sequence of costs
    epsilon : float
        In nats, > 0.

    Returns
    -------
    float
        For replace-one neighbours, with the precision of :func:`epsilon`.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is out of its range.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> penalty = dp.accounting.GaussianCost(2000, noise_multiplier=60.0)
    >>> f"{dp.accounting.delta(penalty, epsilon=3.508):.2g}"
    '1e-06'
    """
    return delta_of(as_costs(costs), positive("epsilon", epsilon))


def lower_bound(costs: Any, delta: float) -> float:
    """Return a lower bound of the epsilon of these costs, which some data attain.

    The true epsilon lies between this and :func:`epsilon`; the two are equal for Gaussian costs. Subsampled
    releases attain the lower bound where all rows have the lowest value that is allowed, and one of them is
    exchanged for a row with the highest.

    Parameters
    ----------
    costs : cost or sequence of costs
    delta : float
        In (0, 1).

    Returns
    -------
    float
        In nats, computed on the grid of :func:`epsilon`: at most about a thousandth too large.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is out of its range.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> cost = dp.accounting.SubsampledGaussianCost(1000, 0.7**0.5, n=100_000, batch_size=1000)
    >>> round(dp.accounting.lower_bound(cost, delta=1e-6), 2)
    3.28
    >>> round(dp.accounting.epsilon(cost, delta=1e-6), 2)
    3.78
    """
    costs, delta = as_costs(costs), probability("delta", delta)
    if gaussian_mu(costs) is not None:
        return epsilon_of(costs, delta)
    if not all(isinstance(cost, RunCost) for cost in costs):
        raise ValueError(
            "costs holds releases of which only a guarantee is known, which may be better than was promised: "
            "a lower bound is known of Gaussian noise alone."
        )
    return LossDistribution(costs, delta=delta, one_way=True).epsilon(delta)


def renyi_epsilon(costs: Any, delta: float) -> float:
    """Return the epsilon of older accountings, for comparison; it is valid too, but larger.

    Parameters
    ----------
    costs : cost or sequence of costs
    delta : float
        In (0, 1).

    Returns
    -------
    float
        In nats, by zero-concentrated differential privacy for releases from all rows, and by Rényi
        divergences of whole orders where there are batches.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is out of its range.

    References
    ----------
    Räisä (2021), theorems 5, 8 and 10; Wang, Balle and Kasiviswanathan (2019), theorem 9.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> cost = dp.accounting.SubsampledGaussianCost(1000, 0.7**0.5, n=100_000, batch_size=1000)
    >>> round(dp.accounting.renyi_epsilon(cost, delta=1e-6), 2)
    6.1
    """
    costs, delta = as_costs(costs), probability("delta", delta)
    return _renyi.renyi_epsilon(costs, delta)


def noise_multiplier(
    releases: int,
    *,
    epsilon: float,
    delta: float,
    spent: Any = (),
    n: int | None = None,
    batch_size: int | None = None,
) -> float:
    """Return the smallest noise multiplier at which a number of releases fits into a budget.

    Parameters
    ----------
    releases : int
        Numbers released by all chains together, tuning included, >= 1.
    epsilon, delta : float
        The budget: epsilon in nats, > 0, and delta in (0, 1).
    spent : cost or sequence of costs, optional
        The costs that the budget has paid for already.
    n, batch_size : int, optional
        The numbers of rows and of rows in a batch, if each release is from a batch drawn without replacement.

    Returns
    -------
    float
        Standard deviation of the noise, divided by the replace-one sensitivity of a release.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is out of its range, or nothing is left of the budget.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> round(dp.accounting.noise_multiplier(2000, epsilon=4, delta=1e-6), 3)
    53.376
    """
    releases = whole("releases", releases)
    epsilon, delta = _for_noise(epsilon, delta)
    before = as_costs(spent, "spent")
    if not fits(before, epsilon, delta):
        raise NothingLeftError("more than")
    if gaussian_mu((*before, cost_of(releases, 1.0, n, batch_size))) is not None:
        most = gaussian_sigma_analytic(epsilon, delta, 1.0) ** -2
        left = most - (gaussian_mu(before) or 0.0) ** 2
        if left <= 1e-11 * most:
            raise NothingLeftError
        return math.sqrt(releases / left) * (1 + 1e-12 * most / left)

    try:
        return smallest_noise(
            lambda noise: (*before, cost_of(releases, noise, n, batch_size)), epsilon, delta
        )
    except NothingLeftError:
        if before:
            raise
        raise ValueError(
            f"epsilon = {epsilon:g} is too small for {releases} releases on batches: noise for it is not "
            "computed. Give a larger epsilon, or fewer releases."
        ) from None


def smallest_noise(costs: Callable[[float], Sequence[Cost]], epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier at which costs, which decrease in it, fit into a budget.

    Parameters
    ----------
    costs : callable
        Function of a noise multiplier that returns costs, of releases on batches and others.
    epsilon, delta : float

    Returns
    -------
    float

    Raises
    ------
    NothingLeftError
        The costs do not fit with any noise.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> from pymc_dp.privacy.budgets import smallest_noise
    >>> noise = smallest_noise(lambda noise: [dp.accounting.SubsampledGaussianCost(50, noise, 9, 3)], 2, 1e-6)
    >>> round(noise, 2)
    5.56
    """

    def excess(log_noise: float) -> float:
        return above(costs(math.exp(log_noise)), epsilon, delta)

    upper = 0.0
    while excess(upper) > 0:
        upper += 1.0
        if upper > math.log(NOISE_ON_BATCHES[1]):
            raise NothingLeftError
    lower = upper - 1.0
    least = math.log(NOISE_ON_BATCHES[0])
    while excess(max(lower, least)) <= 0:
        if lower <= least:
            return NOISE_ON_BATCHES[0]
        lower, upper = lower - 1.0, lower
    lower = max(lower, least)
    root = scipy.optimize.brentq(excess, lower, upper, xtol=1e-7)
    while excess(root) > 0:
        root += 1e-7
    return math.exp(root)


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
    """Return the number of iterations that a budget allows.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise, divided by the replace-one sensitivity of a release; > 0.
    epsilon, delta : float
        The budget: epsilon in nats, > 0, and delta in (0, 1).
    releases_per_iteration : int, default 1
        Numbers that one iteration releases.
    spent : cost or sequence of costs, optional
        The costs that the budget has paid for already.
    n, batch_size : int, optional
        The numbers of rows and of rows in a batch, if each release is from a batch drawn without replacement.

    Returns
    -------
    int
        Iterations of all chains together, tuning included; 0 if not even one is allowed.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is out of its range.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> dp.accounting.iterations(60.0, epsilon=4, delta=1e-6)
    2527
    """
    noise_multiplier = positive("noise_multiplier", noise_multiplier)
    epsilon, delta = _for_noise(epsilon, delta)
    each = whole("releases_per_iteration", releases_per_iteration)
    before = as_costs(spent, "spent")

    def with_more(count: int) -> tuple[Cost, ...]:
        return (*before, cost_of(count * each, noise_multiplier, n, batch_size)) if count else before

    too_many = ValueError(
        f"noise_multiplier = {noise_multiplier:g} allows more iterations than are counted: give less noise, "
        "or a smaller epsilon."
    )
    if gaussian_mu(with_more(1)) is None:

        def excess(count: int) -> float:
            if count * each > MOST_ON_BATCHES:
                raise too_many
            return above(with_more(count), epsilon, delta)

        return _last_allowed(excess)
    left = gaussian_sigma_analytic(epsilon, delta, 1.0) ** -2 - (gaussian_mu(before) or 0.0) ** 2
    count = max(0, math.floor(min(left * noise_multiplier**2 / each * _MARGIN, 2.0**64)))
    if count * each >= 2**63:
        raise too_many
    while count > 0 and not fits(with_more(count), epsilon, delta):
        count -= 1
    return count


def _for_noise(epsilon: Any, delta: Any) -> tuple[float, float]:
    """Return a budget that can pay for Gaussian noise; refuse a pure one."""
    epsilon, delta = as_budget(epsilon, delta)
    if delta == 0:
        raise ValueError(
            "delta must be strictly between 0 and 1 for Gaussian noise, got 0: none fits into pure privacy, "
            "however much it is. Choose it far below 1 / (number of people)."
        )
    return epsilon, delta


def _last_allowed(excess: Callable[[int], float]) -> int:
    """Return the largest whole number at which an increasing `excess` is not positive."""
    lower, below, upper, above = 0, -math.inf, 1, excess(1)
    while above <= 0:
        lower, below, upper = upper, above, 4 * upper
        above = excess(upper)
    while upper - lower > 1:
        middle = (lower + upper) // 2
        if math.isfinite(below) and upper < 4 * lower:
            # interpolate, as excess is nearly linear in the logarithm, but off the ends, so that the interval
            # shrinks
            share = below / (below - above)
            width = max(1, (upper - lower) // 16)
            middle = round(lower * (upper / lower) ** share)
            middle = min(max(middle, lower + width), upper - width)
        found = excess(middle)
        lower, below, upper, above = (
            (middle, found, upper, above) if found <= 0 else (lower, below, middle, found)
        )
    return lower
