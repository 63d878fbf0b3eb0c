"""Costs of several kinds together: against exact sums over all outcomes, closed forms and another library."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import pymc_dp as dp
from pymc_dp.privacy import ComposedGuarantee, _loss_pairs, budgets, composition
from pymc_dp.privacy._loss_distribution import LossDistribution
from pymc_dp.privacy.costs import cost_of
from pymc_dp.privacy.guarantee import zcdp_epsilon

A, Guarantee = dp.accounting, dp.PrivacyGuarantee
WHY = "an independent check: pip install 'pymc-dp[oracles]'"


def exact_delta(pure, failing, mu, epsilon):
    """Delta of randomized responses, chances of failure and Gaussian noise, by the sum over all responses."""
    losses, chances = np.zeros(1), np.ones(1)
    for e in pure:
        p = 1 / (1 + math.exp(-e))
        losses = np.concatenate([losses + e, losses - e])
        chances = np.concatenate([chances * p, chances * (1 - p)])
    left = epsilon - losses
    if mu == 0:
        each = np.maximum(0, -np.expm1(left))
    else:
        each = norm.cdf(mu / 2 - left / mu) - np.exp(left) * norm.cdf(-mu / 2 - left / mu)
    chance = 1 - np.prod(1 - np.asarray(failing))
    return chance + (1 - chance) * float(chances @ each)


def cases():
    rng = np.random.default_rng(20)
    for k in range(24):
        pure = np.exp(rng.normal(-1, 1.2, rng.integers(1, 9)))
        delta = 10.0 ** rng.uniform(-9, -1)
        failing = np.where(rng.random(len(pure)) < 0.3, delta * 0.1 * rng.random(len(pure)), 0.0)
        yield pytest.param(pure, failing, delta, 0.0 if k % 2 else math.exp(rng.normal(-1, 1)), id=str(k))


def costs_of(pure, failing, mu):
    gaussian = [A.GaussianCost(1, 1 / mu)] if mu else []
    return [Guarantee(e, d) for e, d in zip(pure, failing)] + gaussian


@pytest.mark.parametrize("pure, failing, delta, mu", list(cases()))
def test_epsilon_is_that_of_all_responses(pure, failing, delta, mu):
    costs, most = costs_of(pure, failing, mu), sum(pure) + 60 * mu + 9
    exact = brentq(lambda e: exact_delta(pure, failing, mu, e) - delta, 0, most, xtol=1e-13)
    assert A.epsilon(costs, delta) == pytest.approx(exact, rel=1e-7)
    below = exact_delta(pure, failing, mu, 0.9 * exact)
    assert A.delta(costs, 0.9 * exact) == pytest.approx(below, rel=1e-6)
    # the grid that batches need
    left = (delta - (1 - np.prod(1 - failing))) / np.prod(1 - failing)
    assert exact * (1 - 1e-9) <= LossDistribution(costs, delta=left).epsilon(left) <= exact * 1.02


def test_forgetting_a_response_is_seen(monkeypatch):
    """The comparison of the grid has the power to see a pair whose loss is understated by a few per cent."""
    pure, failing, delta, mu = next(cases()).values
    right = A.epsilon(costs_of(pure, failing, mu), delta)
    honest = _loss_pairs.PurePair
    monkeypatch.setattr(_loss_pairs, "PurePair", lambda epsilon: honest(0.97 * epsilon))
    assert LossDistribution(costs_of(pure, failing, mu), delta=delta).epsilon(delta) < 0.995 * right


@pytest.mark.parametrize(
    "k, epsilon, delta", [(30, 0.1, 1e-6), (1000, 0.01, 1e-9), (8, 0.5, 1e-3), (1, 0.3, 0.01)]
)
def test_equal_releases_are_those_of_kairouz_oh_and_viswanath(k, epsilon, delta):
    i = np.arange(k + 1)
    losses = epsilon * (2 * i - k)
    chances = np.exp(
        [math.lgamma(k + 1) - math.lgamma(j + 1) - math.lgamma(k - j + 1) - j * math.log1p(math.exp(-epsilon))
         - (k - j) * math.log1p(math.exp(epsilon)) for j in i]
    )  # fmt: skip
    exact = brentq(
        lambda e: float(chances @ np.maximum(0, -np.expm1(e - losses))) - delta, 0, k * epsilon, xtol=1e-13
    )
    costs = [Guarantee(epsilon)] * k
    assert A.epsilon(costs, delta) == pytest.approx(exact, rel=1e-9)
    assert exact * (1 - 1e-9) <= LossDistribution(costs, delta=delta).epsilon(delta) <= exact * 1.001
    assert A.epsilon(costs, 0) == pytest.approx(k * epsilon, rel=1e-12)


def test_batches_beside_guarantees_against_another_library():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason=WHY)
    common = pytest.importorskip("dp_accounting.pld.common", reason=WHY)
    parameters = common.DifferentialPrivacyParameters
    theirs = pld.from_gaussian_mechanism(3.0, value_discretization_interval=1e-4)
    for epsilon, delta in [(0.4, 0.0), (0.2, 1e-7), (1.1, 0.0)]:
        theirs = theirs.compose(pld.from_privacy_parameters(parameters(epsilon, delta), 1e-4))
    costs = costs_of([0.4, 0.2, 1.1], [0.0, 1e-7, 0.0], 1 / 3)
    nothing = A.SubsampledGaussianCost(1, 1e6, n=10, batch_size=5)  # costs nothing, and asks for the grid
    for delta in (1e-6, 1e-4):
        expected = theirs.get_epsilon_for_delta(delta)
        assert A.epsilon(costs, delta) == pytest.approx(expected, rel=2e-3)
        assert A.epsilon([*costs, nothing], delta) == pytest.approx(expected, rel=2e-3)


def test_batches_beside_rho_split_delta():
    batches, rho = A.SubsampledGaussianCost(100, 1.0, 1000, 10), Guarantee(math.inf, rho=0.02)
    parts = A.epsilon(batches, 5e-7) + zcdp_epsilon(0.02, 5e-7)
    assert A.epsilon([batches, rho], 1e-6) == pytest.approx(parts, rel=1e-12)
    assert A.delta([batches, rho], parts) == pytest.approx(1e-6, rel=1e-6)
    assert A.epsilon([batches, Guarantee(1.0, 1e-5)], 1e-6) == math.inf
    curve = dp.RenyiGuarantee(4, 0.1)
    assert A.epsilon([batches, curve], 1e-6) == pytest.approx(
        A.epsilon(batches, 5e-7) + curve.to_approximate(5e-7).epsilon, rel=1e-9
    )


def test_only_pure_releases_have_an_epsilon_without_delta():
    for cost in (A.GaussianCost(1, 10.0), Guarantee(math.inf, rho=0.1), Guarantee(1, 1e-9)):
        assert A.epsilon([cost, Guarantee(1.0)], 0) == math.inf
    assert A.epsilon([], 0) == A.epsilon([], 1e-6) == 0
    assert A.delta([Guarantee(0.5), Guarantee(0.25)], 0.75) == 0


def test_guarantees_and_releases_cost_what_they_promise():
    query = dp.record_sum(np.linspace(0, 1, 20))
    pure = dp.LaplaceMechanism.release(query, epsilon=0.5, bounds=(0, 1))
    noisy = dp.GaussianMechanism.release(query, rho=0.1, bounds=(0, 1))
    assert A.epsilon([pure, pure.guarantee], 0) == 1.0
    assert A.epsilon(noisy, 1e-6) == pytest.approx(noisy.guarantee.to_approximate(1e-6).epsilon, rel=1e-9)
    assert A.epsilon(Guarantee(0.5, neighbours="add-remove"), 0) == 1.0
    together = dp.guarantee([pure, noisy], delta=1e-6)
    assert A.epsilon(together, 1e-6) == A.epsilon([pure, noisy], 1e-6) == together.epsilon
    unknown = dp.Release(1.0, "LaplaceMechanism", {"scale": 1.0})
    with pytest.raises(ValueError, match="costs holds a release whose guarantee is not known"):
        A.epsilon([unknown], 1e-6)
    with pytest.raises(TypeError, match=r"costs must hold costs of dp.accounting, .* releases only, got int"):
        A.epsilon([3], 1e-6)


def test_a_composed_guarantee_costs_at_least_its_own_numbers():
    """Not less because it has no parts, or other ones, as when it was made by hand."""
    half = Guarantee(0.5)
    together = dp.guarantee([half, half])
    assert A.epsilon([together, half], 0) == 1.5
    assert A.epsilon(dp.guarantee([half, half], delta=1e-6), 0) == 1.0
    assert A.epsilon([ComposedGuarantee(5.0), half], 0) == 5.5
    assert A.epsilon([replace(together, epsilon=50.0), half], 0) == 50.5
    assert A.epsilon([replace(together, epsilon=0.1), half], 0) == 1.5
    gone = dp.guarantee([half, half])
    object.__setattr__(gone, "parts", ())
    assert A.epsilon([gone, half], 0) == 1.5
    rho = dp.guarantee([Guarantee(math.inf, rho=0.1)] * 2)
    assert A.epsilon(replace(rho, rho=0.4), 1e-6) == pytest.approx(zcdp_epsilon(0.4, 1e-6))


def test_next_to_no_noise_costs_everything():
    """In place of errors of the arithmetic, by which a ledger's own report failed."""
    large, pure = Guarantee(math.inf, mu=1e150), Guarantee(1.0)
    for costs in (
        [large] * 2,
        [large, pure],
        [A.GaussianCost(4, 1e-150), pure],
        A.GaussianCost(2**62, 1e-150),
    ):
        assert A.epsilon(costs, 1e-6) == math.inf and A.delta(costs, 1.0) == 1.0


def test_next_to_free_batches_beside_a_large_release():
    """No grid holds both losses, but the pure epsilon may be added."""
    batches, pure = A.SubsampledGaussianCost(100_000, 1e5, 10_000, 100), Guarantee(5.0)
    apart = 5 + A.epsilon(batches, 1e-8)
    assert 5 * (1 - 1e-6) <= A.epsilon([batches, pure], 1e-8) <= apart
    assert composition.fits((batches, pure), 5.001, 1e-8) and not composition.fits(
        (batches, pure), 4.99, 1e-8
    )


def test_many_different_releases_take_no_time():
    """Twenty different epsilons took a minute: the summed loss has a million values."""
    pure = np.random.default_rng(0).uniform(0.01, 0.1, 20)
    spent, begun = [Guarantee(e) for e in pure], time.process_time()
    found = A.epsilon([*spent, A.GaussianCost(100, 1000.0)], 1e-6)
    assert (
        exact_delta(pure, np.zeros(20), 0.01, found)
        <= 1e-6
        <= exact_delta(pure, np.zeros(20), 0.01, found * 0.999)
    )
    many = [Guarantee(e) for e in np.random.default_rng(0).uniform(0.001, 0.1, 1000)]
    assert 10.0 < A.epsilon(many, 1e-6) < 10.14  # 10.124 by another accounting, 10.4 before
    noise = A.noise_multiplier(10, epsilon=5, delta=1e-6, spent=spent)
    assert A.iterations(noise, epsilon=5, delta=1e-6, spent=spent) == 10
    assert time.process_time() - begun < 15


def test_what_is_left_for_noise_counts_releases():
    pure = [Guarantee(0.5), Guarantee(0.2, 1e-8)]
    for batch in ({}, {"n": 1000, "batch_size": 100}):
        noise = A.noise_multiplier(100, epsilon=2, delta=1e-6, spent=pure, **batch)
        assert A.epsilon([*pure, cost_of(100, noise, **batch)], 1e-6) == pytest.approx(2, rel=1e-5)
        assert 99 <= A.iterations(noise, epsilon=2, delta=1e-6, spent=pure, **batch) <= 100
    with pytest.raises(budgets.NothingLeftError):
        A.noise_multiplier(1, epsilon=0.5, delta=1e-9, spent=Guarantee(0.7))
    with pytest.raises(ValueError, match="delta must be strictly between 0 and 1 for Gaussian noise, got 0"):
        A.noise_multiplier(1, epsilon=0.5, delta=0)


def test_older_accounting_is_not_smaller():
    costs = [Guarantee(0.1)] * 20 + [A.GaussianCost(5, 20.0), Guarantee(math.inf, rho=0.01)]
    assert A.renyi_epsilon(costs, 1e-6) >= A.epsilon(costs, 1e-6)
    with pytest.raises(ValueError, match="implies no finite rho"):
        A.renyi_epsilon(Guarantee(1, 1e-9), 1e-6)
    with pytest.raises(ValueError, match="a lower bound is known of Gaussian noise alone"):
        A.lower_bound(costs, 1e-6)


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: A.epsilon(Guarantee(1), 1), ValueError, "delta must be strictly between 0 and 1"),
        (lambda: A.epsilon(Guarantee(1), -1), ValueError, "delta must be strictly between 0 and 1"),
        (lambda: A.epsilon(Guarantee(1), None), TypeError, "delta must be one real number"),
    ],
)
def test_wrong_numbers_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
