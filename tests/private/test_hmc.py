"""Private Hamiltonian Monte Carlo: gradients beside NumPy, exact posteriors, its cost and its mistakes."""

import numpy as np
import pymc as pm
import pytest
from pytensor.scalar import basic as ps
from scipy import stats

import pymc_dp as dp
from pymc_dp.privacy.budgets import epsilon as epsilon_of
from pymc_dp.privacy.costs import GaussianCost
from pymc_dp.private.clipped_gradients import RowGradient
from tests.private import models
from tests.private.attacks import Smaller, proven_epsilon
from tests.private.test_penalty import exact_normal
from tests.statistics.harness import mc_z

ROWS = models.normal_rows()


@pytest.fixture(scope="module")
def normal():
    return models.normal_model(ROWS, clip_gradient=2.0)


def posterior_verdict(step, draws):
    drawn, _ = models.run(step, draws)
    return mc_z(drawn.T, exact_normal(*models.normal_posterior(ROWS)))


@pytest.mark.statistical
@pytest.mark.parametrize(("noise_multiplier", "gradient_noise"), [(0.02, 10.0), (0.05, 1.0), (0.05, 20.0)])
def test_normal_posterior(normal, noise_multiplier, gradient_noise):
    """Two of twelve rows have clipped gradients, which does not matter."""
    step = models.hmc(normal, noise_multiplier, step_size=0.15, n_leapfrog=3, gradient_noise=gradient_noise)
    found = posterior_verdict(step, 25_000)
    assert found.passed, found


@pytest.mark.statistical
def test_banana():
    rows = np.random.default_rng(2).normal([0.8, 0.5], 1.0, (6, 2))
    model = models.banana_model(rows, clip_gradient=30.0)
    step = models.hmc(model, 0.005, step_size=0.2, n_leapfrog=4, gradient_noise=5)
    drawn, _ = models.run(step, 25_000)
    for k, exact in enumerate(models.banana_posterior(rows)):
        found = mc_z(drawn[None, :, k], exact)
        assert found.passed, (k, found)


@pytest.mark.statistical
def test_no_penalty_is_seen(normal):
    """Power: the noise of the ratio without what makes up for it."""
    step = models.hmc(normal, 0.1, step_size=0.25, n_leapfrog=3, gradient_noise=1.0)
    noisy = step.noisy_ratio
    step.noisy_ratio = lambda *args: (noisy(*args)[0], 0.0)
    assert posterior_verdict(step, 25_000).outcome == "rejected"


@pytest.mark.statistical
def test_a_uniform_number_without_its_logarithm_is_seen(normal):
    """Power: the text's algorithm 3 compares u with the change of energy."""
    step = models.hmc(normal, 0.05, step_size=0.25, n_leapfrog=3, gradient_noise=1.0)

    class Raw:
        def __init__(self, rng):
            self.standard_normal, self._rng = rng.standard_normal, rng

        def uniform(self):
            return np.exp(self._rng.uniform())

    step.rng = Raw(step.rng)
    assert posterior_verdict(step, 25_000).outcome == "rejected"


def test_gradients_beside_numpy(normal):
    """Clipped in norm, summed, with noise of twice the clip."""
    step = models.hmc(normal, 0.05, step_size=0.1, gradient_noise=4.0)
    theta, other = np.array([0.1]), np.zeros(0)
    drawn = np.array([step.noisy_gradient(theta, other)[0] for _ in range(4000)])
    slopes = ROWS - 0.1
    assert (np.abs(slopes) > 2).any() and (np.abs(slopes) < 2).any()
    z = (drawn - np.clip(slopes, -2, 2).sum()) / (2 * 2.0 * 0.05 * 4.0)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert stats.kstest(z * 1.15, "norm").pvalue < 1e-3  # power
    assert np.isclose(step.slope_at(theta, other)[0], -0.1 / 4)


FEATURES = [(), (0,), (1,), (0, 1), (2, 2), (2,)]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_products_of_few_numbers_and_of_many(share, rng):
    """Numbers that are columns of the rows or products of them; slopes of which a share is not zero."""
    gradient = RowGradient(FEATURES, [], [], [ps.float64() for _ in FEATURES])
    x, slopes = rng.normal(size=(3, 1300)), rng.normal(size=(6, 9)) * (rng.random((6, 9)) < share)
    slopes[:, 0], slopes[3, 1] = 0.0, 1.5
    assert (4 * (slopes != 0).sum() < slopes.size) == (share < 0.5)
    worth = np.array([np.prod([x[j] for j in feature], axis=0) * np.ones(1300) for feature in FEATURES])
    for low, high in ((0, 1300), (17, 1100), (512, 1024), (3, 4)):
        exact = slopes.T @ worth[:, low:high]
        factors = np.minimum(1, 2.0 / np.maximum(np.linalg.norm(exact, axis=0), 1e-300))
        found = gradient.total(np.zeros(6), slopes, x, low, high, 2.0, 30)
        assert np.abs(found * 2.0**-29 - (exact * factors).sum(axis=1)).max() <= 2.0**-29 * (high - low)
        assert found[0] == 0 and found[1:2].all()


@pytest.mark.statistical
def test_vector_gradients_are_clipped_in_norm(rng):
    """Of a logistic regression, whose gradient is not written down anywhere; and what one row can change."""
    x, y = rng.normal(size=(600, 3)), rng.integers(0, 2, 600)
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=3)
        dp.ConfidentialLikelihood(
            "y",
            lambda x: pm.Bernoulli.dist(logit_p=x @ beta),
            y,
            covariates={"x": x},
            clip=9,
            clip_gradient=0.8,
        )
    step = models.hmc(model, 1.0, step_size=0.1)
    at, other = rng.normal(size=3), np.zeros(0)
    jacobian = np.empty((step.n_numbers, 3))
    step._jacobian.dispatcher(at, other, step.data, jacobian)
    columns, bits = step.term.rows.columns(), step._sums.bits

    def total(low=0, high=600):
        return step._gradient.total(step.numbers_at(at, other), jacobian, columns, low, high, 0.8, bits)

    slopes = (y - 1 / (1 + np.exp(-x @ at)))[:, None] * x
    norms = np.linalg.norm(slopes, axis=1)
    exact = (slopes * np.minimum(1, 0.8 / norms)[:, None]).sum(axis=0)
    assert 50 < (norms > 0.8).sum() < 550
    unit = 0.8 * 2.0**-bits
    assert np.abs(total() * unit - exact).max() < 600 * 2 * unit
    kept = columns[:, 5].copy()
    for row in ([1, 50, 3, 1], [0, -1e8, 1e8, 1e8], [1, 1e300, 0, 0], [1, np.inf, 0, 0], [1, 0, 0, np.nan]):
        columns[:, 5] = row
        alone = total(5, 6)
        assert np.linalg.norm(alone / 2.0**bits) <= 1
        assert np.isfinite(row).all() or not alone.any()
    columns[:, 5] = kept


def test_large_noise_is_added_without_rounding(normal, monkeypatch):
    """Rounded before it is added, noise beyond 2^53 would not hide the last bit of the sum."""
    step = models.hmc(normal, 1e4, step_size=0.1, gradient_noise=100)
    monkeypatch.setattr(step._gradient, "total", lambda *args: np.ones(1))
    step._gradient_noise = type("Fixed", (), {"draw": lambda _, count: np.array([2**53 + 1])})()
    found = step.noisy_gradient(np.zeros(1), np.zeros(0))[0] / (2.0 * 2.0**-step._sums.bits)
    assert float(2**53 + 1) + 1 == 2**53 and found == 2**53 + 2


@pytest.mark.parametrize("d", [1, 3, 400])
def test_a_clipped_gradient_is_no_longer_than_its_bound(d, rng):
    """Exactly so, in rational numbers, for rows of which every one is clipped."""
    from fractions import Fraction

    from pymc_dp.private.clipped_gradients import _to_factors

    top = 2.0**30
    g = rng.normal(size=(d, 2000)) * 10.0 ** rng.uniform(10, 40, 2000)
    g[:, 0] = top  # all entries alike
    norm = np.zeros(2000)
    for row in g:
        norm += row * row
    _to_factors(norm, 2000, top, d)
    clipped = np.trunc(g * norm)
    for column in clipped.T[:200]:
        assert sum(Fraction(v) ** 2 for v in column.tolist()) <= Fraction(top) ** 2
    # and not noticeably shorter
    assert np.linalg.norm(g * norm, axis=0).min() > top * (1 - 1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("kept", ["where the chain is", "of the start", "of a rejected end"])
def test_a_stale_gradient_is_seen(normal, kept):
    """Power: a gradient that belongs to another place than where the chain is; and the right one."""
    step = models.hmc(normal, 0.1, step_size=0.4, n_leapfrog=2, gradient_noise=0.5)
    real, last, gradient = step.step, [], step.noisy_gradient

    def noisy_gradient(*args):
        last[:] = [gradient(*args)]
        return last[0]

    def keeping(point):
        before = step._kept
        point, (said,) = real(point)
        if kept == "of a rejected end" and not said["private_accepted"]:
            step._kept = last[0]
        if kept == "of the start" and before is not None:
            step._kept = before
        return point, [said]

    step.noisy_gradient, step.step = noisy_gradient, keeping
    outcome = "passed" if kept == "where the chain is" else "rejected"
    assert posterior_verdict(step, 25_000).outcome == outcome


def test_parameters_moved_by_somebody_else_are_refused(normal):
    """The kept gradient would be that of another place."""
    step = models.hmc(normal, 0.05, step_size=0.1)
    point, _ = step.step(normal.initial_point())
    with pytest.raises(ValueError, match="mu: moved by another step"):
        step.step({"mu": point["mu"] + 0.1})
    step.step(point)


def test_what_it_pays_for(normal):
    """A chain of k draws: k ratios, and k L + 1 gradients with a multiplier of their own; all of a budget."""
    book = dp.PrivacyLedger(epsilon=3.0, delta=1e-6)
    step = dp.PrivateHMC(
        model=normal, ledger=book, draws=20, tune=5, chains=2, step_size=0.1, n_leapfrog=4, gradient_noise=3.0
    )
    ratios, gradients = book.spent
    assert (ratios.releases, gradients.releases) == (50, 2 * (25 * 4 + 1))
    assert np.isclose(gradients.noise_multiplier, 3 * ratios.noise_multiplier)
    assert 2.99 < book.epsilon_spent <= 3.0
    step.setup_chain(np.random.default_rng(1), 5, 20)
    asked = {"gradients": 0, "ratios": 0}
    gradient, ratio = step.noisy_gradient, step.noisy_ratio

    def count(what, function, *args):
        asked[what] += 1
        return function(*args)

    step.noisy_gradient = lambda *args: count("gradients", gradient, *args)
    step.noisy_ratio = lambda *args: count("ratios", ratio, *args)
    point = normal.initial_point()
    for _ in range(25):
        point, _ = step.step(point)
    assert asked == {"gradients": 25 * 4 + 1, "ratios": 25}


def test_refused(normal):
    with pytest.raises(ValueError, match="has no bound of a row's gradient"):
        dp.PrivateHMC(model=models.normal_model(ROWS), noise_multiplier=1.0, step_size=0.1)
    with pytest.raises(ValueError, match="step_size must be"):
        dp.PrivateHMC(model=normal, noise_multiplier=1.0, step_size=0.0)
    with pytest.raises(ValueError, match="n_leapfrog"):
        dp.PrivateHMC(model=normal, noise_multiplier=1.0, step_size=0.1, n_leapfrog=0)
    with pytest.raises(ValueError, match="mass must be"):
        dp.PrivateHMC(model=normal, noise_multiplier=1.0, step_size=0.1, mass=-1)
    with pm.Model() as two:
        a, b = pm.Normal("a"), pm.Normal("b")
        dp.ConfidentialLikelihood("x", pm.Normal.dist(a + b, 1), ROWS, clip=1, clip_gradient=1)
    with pytest.raises(ValueError, match="moves all parameters of 'x' together"):
        dp.PrivateHMC([a], model=two, noise_multiplier=1.0, step_size=0.1)


def attacked_epsilon(noise_multiplier, gradient_noise, delta, factor=1.0, runs=40_000):
    """Lower bound of epsilon from gradients of two parameters, along the one in which the tables differ."""
    drawn = []
    for last in (100.0, -100.0):
        with pm.Model() as model:
            mu = pm.Normal("mu", shape=2)
            rows = np.array([[0.5, 0.2], [last, 2 * last]])
            dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), rows, clip=1, clip_gradient=1.5)
        step = models.hmc(
            model, noise_multiplier, seed=int(last) % 7, step_size=0.1, gradient_noise=gradient_noise
        )
        if factor != 1:
            step._gradient_noise = Smaller(step._gradient_noise, factor)
        at = np.zeros(2), np.zeros(0)
        drawn.append(np.array([step.noisy_gradient(*at) @ [1, 2] for _ in range(runs)]))
    return proven_epsilon(*drawn, delta)


@pytest.mark.statistical
def test_an_attacker_of_gradients_proves_no_more_than_is_claimed():
    """And nearly all of it; with half of the noise it proves more."""
    delta = 0.01
    claimed = epsilon_of([GaussianCost(1, 0.5 * 4.0)], delta)
    found = attacked_epsilon(0.5, 4.0, delta)
    assert 0.5 * claimed < found < claimed
    assert attacked_epsilon(0.5, 4.0, delta, factor=0.5) > 1.3 * claimed
