"""What runs cost: against closed forms, reference answers, another library, and quadrature."""

import json
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import pymc_dp as dp
from pymc_dp.privacy import _loss_distribution as losses
from pymc_dp.privacy import budgets
from pymc_dp.privacy._loss_distribution import LossDistribution

A = dp.accounting
DELTA = 1e-6
# Part of what the thesis plans for its two-dimensional banana: variance multiplier .7, so noise sqrt(.7).
BANANA = A.SubsampledGaussianCost(1000, math.sqrt(0.7), n=100_000, batch_size=1000)


@pytest.fixture(scope="module")
def answers(reference_file):
    return json.loads(reference_file.read_text())


@pytest.fixture(scope="module")
def reference_file(reference):
    return reference / "accounting.json"


@pytest.mark.reference
def test_penalty_iterations(answers):
    """Theorem 6 of the thesis, at every budget, and delta on both sides of the last iteration."""
    assert len(answers["penalty"]) > 100
    for row in answers["penalty"]:
        noise = row["tau"] * math.sqrt(row["n"])
        found = A.iterations(noise, epsilon=row["eps"], delta=row["delta"])
        assert found == row["k_thm6_adp"], row
        for count, delta in ((found, row["delta_at_k6"]), (found + 1, row["delta_at_k6_plus1"])):
            assert A.delta(A.GaussianCost(count, noise), row["eps"]) == pytest.approx(delta, rel=1e-6)


@pytest.mark.reference
def test_zcdp_iterations(answers):
    """Theorem 5, to which ours is compared."""
    for row in answers["penalty"]:
        noise, count = row["tau"] * math.sqrt(row["n"]), row["k_thm5_zcdp"]
        assert A.renyi_epsilon(A.GaussianCost(count, noise), row["delta"]) <= row["eps"]
        assert A.renyi_epsilon(A.GaussianCost(count + 1, noise), row["delta"]) > row["eps"]


@pytest.mark.reference
def test_hmc_iterations(answers):
    """Theorem 11: energies and gradients have noise of their own."""
    assert len(answers["hmc"]) > 30
    for row in answers["hmc"]:
        ratio, gradient = (row[name] * math.sqrt(row["n"]) for name in ("tau_l", "tau_g"))
        count = row["k_thm11_adp_kLp1"]

        def fits(k, row=row, ratio=ratio, gradient=gradient):
            plan = (A.GaussianCost(k, ratio), A.GaussianCost(k * row["L"] + 1, gradient))
            return A.epsilon(plan, row["delta"]) <= row["eps"]

        assert fits(count) and not fits(count + 1), row


@pytest.mark.reference
def test_noise_of_one_release(answers):
    for key, row in answers["mu_max"].items():
        epsilon = float(key.partition("eps=")[2])
        found = A.noise_multiplier(1, epsilon=epsilon, delta=row["delta"])
        assert found == pytest.approx(row["equiv_noise_multiplier"], rel=1e-10)
        assert 1 / (2 * found**2) == pytest.approx(row["mu_max"], rel=1e-10)


@pytest.mark.reference
def test_theorem_8(answers):
    for row in answers["minibatch"]:
        for count in ("100", "5000"):
            epsilon = row["eps_thm8_at_k"][count]
            cost = A.SubsampledGaussianCost(int(count), row["noise_multiplier_replace"], row["n"], row["b"])
            assert A.renyi_epsilon(cost, row["delta"]) == pytest.approx(epsilon, rel=1e-10)


def test_the_proven_figure_and_the_attained_one():
    proven, attained = A.epsilon(BANANA, DELTA), A.lower_bound(BANANA, DELTA)
    assert proven == pytest.approx(3.78, rel=0.01)
    assert attained == pytest.approx(3.28, rel=0.01)
    assert attained < proven < A.renyi_epsilon(BANANA, DELTA)


def test_a_wrong_figure_would_be_seen():
    """Halving the noise, or taking the attained pair for the proven one, is far outside one per cent."""
    halved = A.SubsampledGaussianCost(1000, math.sqrt(0.7) / 2, n=100_000, batch_size=1000)
    assert abs(A.epsilon(halved, DELTA) / 3.78 - 1) > 0.1
    assert abs(A.lower_bound(BANANA, DELTA) / 3.78 - 1) > 0.1


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0])
@pytest.mark.parametrize(("noise", "rate"), [(0.5, 0.01), (1.0, 0.2), (5.0, 0.5)])
def test_one_release_is_amplified_as_proven(noise, rate, epsilon):
    """delta(log(1 + q (exp(e) - 1))) = q delta_Gaussian(e), theorem 9 of Balle, Barthe and Gaboardi."""
    n = 1000
    amplified = math.log1p(rate * math.expm1(epsilon))
    exact = rate * A.delta(A.GaussianCost(1, noise), epsilon)
    cost = A.SubsampledGaussianCost(1, noise, n=n, batch_size=round(rate * n))
    found = A.delta(cost, amplified)
    assert exact * (1 - 1e-9) <= found <= exact * 1.005


def test_two_releases_by_quadrature():
    """The law of the symmetric pair, convolved with itself without any grid of losses."""
    noise, rate, epsilon = 0.8, 0.3, 1.0
    cost = A.SubsampledGaussianCost(1, noise, n=10, batch_size=3)

    def one(e):  # hockey-stick divergence of one release at any e, negative ones included
        if e < 0:
            return 1 - math.exp(e) * (1 - one(-e))
        inner = math.log1p(math.expm1(e) / rate)
        return rate * (
            norm.sf(noise * inner - 0.5 / noise) - math.exp(inner) * norm.sf(noise * inner + 0.5 / noise)
        )

    # E over the first loss of the second's divergence at what is left, in terms of the first outcome z
    def above(z):
        base, shifted = norm.pdf(z, 0, noise), norm.pdf(z, 1, noise)
        loss = math.log1p(rate * math.expm1((2 * z - 1) / (2 * noise**2)))
        mixed = (1 - rate) * base + rate * shifted
        return mixed * one(epsilon - loss) + base * one(epsilon + loss)

    positive = quad(above, 0.5, 12, epsabs=1e-13, limit=200)[0]
    at_zero = (
        1 - quad(lambda z: (2 - rate) * norm.pdf(z, 0, noise) + rate * norm.pdf(z, 1, noise), 0.5, 12)[0]
    )
    exact = positive + at_zero * one(epsilon)
    found = A.delta([cost, cost], epsilon)
    assert exact * (1 - 1e-9) <= found <= exact * 1.001


GAUSSIAN = [
    A.GaussianCost(1, 1.0),
    A.GaussianCost(3000, 80.0),
    A.GaussianCost(5, 0.5),
    A.GaussianCost(1, 200.0),
]


@pytest.mark.parametrize("delta", [1e-200, 1e-20, 1e-6, 0.1])
@pytest.mark.parametrize("cost", GAUSSIAN, ids=str)
def test_the_grid_on_gaussian_noise(cost, delta):
    """Where the answer is known exactly: never less, hardly more, at deltas far below rounding too."""
    exact, mu = A.epsilon(cost, delta), math.sqrt(cost.releases) / cost.noise_multiplier
    found = LossDistribution([cost], delta=delta).epsilon(delta)
    # a chord over a cell of width h adds at most order (order + 1) h^2 / 8 to the log moment of this order
    order = exact / mu**2 + 0.5
    chord = (order + 1) * (mu / losses._CELLS_PER_SD) ** 2 / 8
    assert exact * (1 - 1e-10) <= found <= exact + chord


CASES = {
    "thesis": (BANANA, 1e-4),
    "rare rows": pytest.param(
        A.SubsampledGaussianCost(1000, 1.0, n=10_000, batch_size=10), 1e-4, marks=pytest.mark.statistical
    ),
    "half of the rows": (A.SubsampledGaussianCost(200, 20.0, n=10, batch_size=5), 1e-4),
    "little noise": (A.SubsampledGaussianCost(10, 0.3, n=1000, batch_size=10), 1e-3),
}


@pytest.mark.parametrize(("cost", "step"), CASES.values(), ids=CASES)
def test_the_attained_pair_against_another_library(cost, step):
    """The same pair is what Google's accountant takes for Poisson sampling and removal."""
    accounting = pytest.importorskip("dp_accounting", reason="pip install 'pymc-dp[oracles]'")
    theirs = accounting.pld.privacy_loss_distribution.from_gaussian_mechanism(
        cost.noise_multiplier, sampling_prob=cost.rate, value_discretization_interval=step
    )._pmf_remove.self_compose(cost.releases)
    for delta in (1e-3, 1e-6, 1e-9):
        assert A.lower_bound(cost, delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=3e-3)


@pytest.mark.parametrize(("cost", "step"), CASES.values(), ids=CASES)
def test_order_of_the_accountings(cost, step):
    for delta in (1e-3, 1e-6, 1e-9):
        lower, proven = A.lower_bound(cost, delta), A.epsilon(cost, delta)
        assert lower * (1 - 1e-4) <= proven <= A.renyi_epsilon(cost, delta)
        # both are rounded upwards, so that going there and back loses; by rounding of about 1 % at rare rows
        assert 0.98 * delta < A.delta(cost, proven) < 1.0001 * delta


def test_finer_grids_come_down_to_the_same(monkeypatch):
    """Rounding is upwards: a finer grid gives less, and not much less."""
    coarse = A.epsilon(BANANA, DELTA)
    monkeypatch.setattr(losses, "_CELLS_PER_SD", 240.0)
    assert 1e-7 < coarse / A.epsilon(BANANA, DELTA) - 1 < 1e-4
    monkeypatch.setattr(losses, "_CELLS_PER_SD", 3.0)
    assert A.epsilon(BANANA, DELTA) > coarse


def test_a_small_grid_is_dearer_and_no_less_true(monkeypatch):
    before = A.epsilon(BANANA, DELTA)
    monkeypatch.setattr(losses, "_MOST_CELLS", 1 << 12)
    assert before < A.epsilon(BANANA, DELTA) < 1.2 * before


def test_kinds_of_cost_together():
    other = A.SubsampledGaussianCost(100, 1.5, n=100_000, batch_size=500)
    gaussian = A.GaussianCost(400, 100.0)
    each = [A.epsilon(c, DELTA) for c in (BANANA, other, gaussian)]
    together = A.epsilon([BANANA, other, gaussian], DELTA)
    assert max(each) < together < sum(each)
    split = [A.GaussianCost(150, 100.0), BANANA, A.GaussianCost(250, 100.0), other]
    assert A.epsilon(split, DELTA) == pytest.approx(together, rel=1e-9)
    whole = A.SubsampledGaussianCost(400, 100.0, n=50, batch_size=50)
    assert A.epsilon(whole, DELTA) == A.epsilon(gaussian, DELTA)
    assert A.epsilon([], DELTA) == 0 == A.delta([], 1.0)


@pytest.mark.parametrize(
    "spent",
    [
        (),
        pytest.param((A.GaussianCost(100, 50.0),), marks=pytest.mark.statistical),
        pytest.param((BANANA, A.GaussianCost(10, 40.0)), marks=pytest.mark.statistical),
    ],
)
@pytest.mark.parametrize("batch", [{}, {"n": 100_000, "batch_size": 2000}])
def test_noise_and_iterations_use_up_the_budget(spent, batch):
    budget = {"epsilon": 4.0, "delta": DELTA, "spent": spent}
    noise = A.noise_multiplier(3000, **budget, **batch)

    def total(releases, noise):
        return A.delta((*spent, budgets.cost_of(releases, noise, **batch)), 4.0)

    assert total(3000, noise) <= DELTA < total(3000, noise * (1 - 1e-5))
    assert A.iterations(noise, releases_per_iteration=3, **budget, **batch) == 1000
    assert A.iterations(noise * (1 - 1e-4), releases_per_iteration=3, **budget, **batch) == 999
    assert total(2997, noise * (1 - 1e-4)) <= DELTA


def test_budgets_at_their_ends():
    budget = {"epsilon": 1.0, "delta": DELTA}
    assert A.iterations(0.1, **budget) == 0
    assert A.iterations(0.1, **budget, n=1000, batch_size=500) == 0
    all_of_it = A.GaussianCost(10, A.noise_multiplier(10, **budget))
    for more in ({}, {"n": 1000, "batch_size": 10}):
        with pytest.raises(ValueError, match="spent is all of the budget"):
            A.noise_multiplier(1, spent=all_of_it, **budget, **more)
        assert A.iterations(50.0, spent=all_of_it, **budget, **more) == 0
    with pytest.raises(ValueError, match="spent is more than the budget"):
        A.noise_multiplier(1, spent=A.GaussianCost(1, 0.5), **budget)


BAD = {
    "no releases": (lambda: A.GaussianCost(0, 1.0), ValueError, "releases"),
    "parts of releases": (lambda: A.GaussianCost(1.5, 1.0), TypeError, "releases"),
    "yes": (lambda: A.GaussianCost(True, 1.0), TypeError, "releases"),
    "no noise": (lambda: A.GaussianCost(1, 0.0), ValueError, "noise_multiplier"),
    "negative noise": (lambda: A.SubsampledGaussianCost(1, -1.0, 10, 1), ValueError, "noise_multiplier"),
    "endless noise": (lambda: A.GaussianCost(1, math.inf), ValueError, "noise_multiplier"),
    "noise is NaN": (lambda: A.GaussianCost(1, math.nan), ValueError, "noise_multiplier"),
    "noise in words": (lambda: A.GaussianCost(1, "a"), TypeError, "noise_multiplier"),
    "large batch": (lambda: A.SubsampledGaussianCost(1, 1.0, 10, 11), ValueError, "batch_size = 11 is more"),
    "no batch": (lambda: A.SubsampledGaussianCost(1, 1.0, 10, 0), ValueError, "batch_size"),
    "no rows": (lambda: A.SubsampledGaussianCost(1, 1.0, 0, 1), ValueError, "n must"),
    "no n": (
        lambda: A.iterations(1.0, epsilon=1, delta=0.1, batch_size=2),
        ValueError,
        "n, the number of rows",
    ),
    "n alone": (
        lambda: A.noise_multiplier(1, epsilon=1, delta=0.1, n=2),
        ValueError,
        "batch_size is missing",
    ),
    "no cost": (lambda: A.epsilon(3.0, 0.1), TypeError, "costs must be a cost of dp.accounting"),
    "no costs": (lambda: A.delta([3.0], 0.1), TypeError, "costs must hold"),
    "costs in words": (lambda: A.delta("one", 0.1), TypeError, "costs must be"),
    "spent": (lambda: A.iterations(1.0, epsilon=1, delta=0.1, spent=[1]), TypeError, "spent must hold"),
    "delta is 0": (lambda: A.lower_bound(BANANA, 0.0), ValueError, "delta"),
    "delta is 1": (lambda: A.lower_bound(BANANA, 1.0), ValueError, "delta"),
    "negative delta": (lambda: A.iterations(1.0, epsilon=1, delta=-1e-6), ValueError, "delta"),
    "no delta": (lambda: A.renyi_epsilon(BANANA, None), TypeError, "delta"),
    "negative epsilon": (lambda: A.delta(BANANA, -1.0), ValueError, "epsilon"),
    "no epsilon": (lambda: A.noise_multiplier(1, epsilon=0.0, delta=0.1), ValueError, "epsilon"),
    "no iterations": (
        lambda: A.iterations(1.0, epsilon=1, delta=0.1, releases_per_iteration=0),
        ValueError,
        "releases_per_iteration",
    ),
}


@pytest.mark.parametrize(("call", "error", "words"), BAD.values(), ids=BAD)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.statistical
def test_monte_carlo_of_summed_losses(rng):
    """The symmetric pair drawn and added up: no grid, no transform, no tilt."""
    noise, rate, releases, epsilon, draws = 1.0, 0.1, 20, 1.5, 400_000
    total = np.zeros(draws)
    for _ in range(releases):
        z = rng.normal(rng.random(draws) < rate, noise)
        loss = np.log1p(rate * np.expm1((2 * z - 1) / (2 * noise**2)))
        back = rng.normal(0, noise, draws)
        mirrored = np.log1p(rate * np.expm1((2 * back - 1) / (2 * noise**2)))
        # a loss above 0 with P's mass, one below 0 with Q's mass above 0, and 0 otherwise: these exclude each
        # other, so an outcome is drawn from P first, and if it is not above 0, from what is left
        below = norm.sf(0.5 / noise) / (1 - (1 - rate) * norm.sf(0.5 / noise) - rate * norm.sf(-0.5 / noise))
        given = mirrored[mirrored > 0]
        down = rng.random(draws) < below
        total += np.where(loss > 0, loss, np.where(down, -rng.choice(given, draws), 0.0))
    terms = np.maximum(-np.expm1(epsilon - total), 0)
    error = terms.std() / math.sqrt(draws)
    exact = A.delta(A.SubsampledGaussianCost(releases, noise, n=10, batch_size=1), epsilon)
    assert abs(terms.mean() - exact) < 4 * error
    assert error < 0.02 * exact


# ---- numbers beyond what is computed -------------------------------------------------------------------

BATCH = {"n": 1000, "batch_size": 10}
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
BEYOND = {
    "a budget": (lambda: A.noise_multiplier(10, epsilon=1e300, delta=1e-6), "epsilon must be at most"),
    "a budget, batches": (
        lambda: A.noise_multiplier(10, epsilon=1e300, delta=1e-6, **BATCH), "epsilon must be at most",
    ),
    "a budget for iterations": (
        lambda: A.iterations(1.0, epsilon=1e300, delta=1e-6), "epsilon must be at most",
    ),
    "a ledger": (lambda: dp.PrivacyLedger(epsilon=1e300, delta=1e-6), "epsilon must be at most 1e"),
    "a tiny budget": (
        lambda: A.noise_multiplier(10, epsilon=1e-300, delta=1e-6, **BATCH), "epsilon = 1e-300 is too small",
    ),
    "rows": (
        lambda: A.noise_multiplier(10, **BUDGET, n=10**18, batch_size=1), "n must be at most 1,000,000,000",
    ),
    "releases": (
        lambda: A.noise_multiplier(10**18, **BUDGET, **BATCH), "releases must be at most 1,000,000,000",
    ),
    "iterations": (lambda: A.iterations(1e5, **BUDGET, **BATCH), "noise_multiplier = 100000 allows more"),
    "iterations on all rows": (lambda: A.iterations(1e100, **BUDGET), r"noise_multiplier = 1e\+100 allows"),
    "no noise": (lambda: A.iterations(1e-150, **BUDGET, **BATCH), "noise_multiplier must be between"),
    "the cost of no noise": (
        lambda: A.SubsampledGaussianCost(1, 1e-150, 1000, 1), "noise_multiplier must be between",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("act", "message"), BEYOND.values(), ids=BEYOND)
def test_what_is_not_computed_is_refused_by_name(act, message):
    """SciPy said that f(a) and f(b) must have different signs, or nothing for minutes."""
    with pytest.raises(ValueError, match=message):
        act()


@pytest.mark.parametrize(("releases", "n"), [(10**6, 2), (10**9, 2), (10**6, 1000)])
def test_noise_of_very_many_releases_on_batches_is_found(releases, n):
    """Below the noise without batches; of so many, one row is in half of them: mu is sqrt(k) / 2s."""
    noise = A.noise_multiplier(releases, **BUDGET, n=n, batch_size=n // 2)
    all_rows = A.noise_multiplier(releases, **BUDGET)
    assert 0.5 * all_rows < noise < all_rows
    cost = A.SubsampledGaussianCost(releases, noise, n, n // 2)
    assert (
        A.delta(cost, 1.0) <= 1e-6 < A.delta(A.SubsampledGaussianCost(releases, 0.99 * noise, n, n // 2), 1.0)
    )


def test_budgets_of_a_large_delta_have_noise():
    noise = A.noise_multiplier(1000, epsilon=1, delta=0.999999, **BATCH)
    assert A.delta(A.SubsampledGaussianCost(1000, noise, **BATCH), 1.0) <= 0.999999


def test_cost_of_releases_without_noise_to_speak_of_is_infinite():
    cost = A.SubsampledGaussianCost(10**9, 1.0, 2, 1)
    assert A.epsilon(cost, 1e-6) == np.inf and A.delta(cost, 1.0) == 1.0
