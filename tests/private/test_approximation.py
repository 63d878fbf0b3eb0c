"""Private normal approximations: sums beside NumPy, noise, cost, and steps that use them."""

import pickle
import warnings

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.private.approximation import _CHEAPER, _Newton
from pymc_dp.private.clipped_gradients import moment_bits
from tests.private import models
from tests.statistics.harness import mc_z

COVARIANCE = np.array([[1.0, 0.9], [0.9, 1.0]])


def correlated_model(rows, **kwargs):
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 3, shape=2)
        dp.ConfidentialLikelihood("x", pm.MvNormal.dist(theta, COVARIANCE), rows, clip=9, **kwargs)
    return model


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(4).multivariate_normal([1.0, -1.0], COVARIANCE, 4000)


@pytest.fixture(scope="module")
def newton(rows):
    """The lowered model, its rows within reach of the tests."""
    return _Newton(model=correlated_model(rows, clip_gradient=4.0))


@pytest.mark.statistical
def test_moments_beside_numpy(newton, rows):
    """Gradients clipped in norm, summed, and their products; what one row can change."""
    at, other, bound = np.array([0.7, -0.4]), np.zeros(0), 4.0
    columns, bits = newton.term.rows.columns(), moment_bits(len(rows))
    numbers, jacobian = newton.numbers_at(at, other), newton.jacobian_at(at, other)

    def sums(columns):
        found = newton._gradient.moments(numbers, jacobian, columns, bound, bits)
        products = np.zeros((2, 2))
        products[np.tril_indices(2)] = found[2:]
        return found[:2], products

    slopes = (rows - at) @ np.linalg.inv(COVARIANCE)
    norms = np.linalg.norm(slopes, axis=1)
    assert 100 < (norms > bound).sum() < 3900
    slopes *= np.minimum(1, bound / norms)[:, None]
    total, products = sums(columns)
    unit = bound * 2.0**-bits
    assert np.abs(total * unit - slopes.sum(axis=0)).max() < len(rows) * unit
    exact = np.tril(slopes.T @ slopes)
    assert np.abs(products * unit**2 - exact).max() < len(rows) * 2 * bound * unit
    assert products[0, 1] == 0
    for pair in ([[9, 9], [-9, 9]], [[1e300, 0], [0, 5]], [[np.inf, 0], [-5, 0]]):
        ends = [sums(np.array(row, dtype=float)[:, None]) for row in pair]
        change = np.subtract(ends[0][0], ends[1][0]), np.subtract(ends[0][1], ends[1][1])
        assert np.linalg.norm(change[0]) <= 2 * 2.0**bits
        assert np.linalg.norm(change[1]) <= np.sqrt(2) * 4.0**bits
    assert not any(part.any() for part in sums(np.array([[np.inf], [0.0]])))


@pytest.mark.statistical
def test_noise_is_what_is_paid_for(newton, rows):
    """Of the sum of gradients and of that of their products, in all entries."""
    at, other, bound, multiplier = np.array([0.7, -0.4]), np.zeros(0), 4.0, 1.5
    noise = newton.noise(multiplier)
    drawn = [newton.moments(at, other, np.eye(2), bound, noise) for _ in range(1500)]
    slopes = (rows - at) @ np.linalg.inv(COVARIANCE)
    slopes *= np.minimum(1, bound / np.linalg.norm(slopes, axis=1))[:, None]
    sd = _CHEAPER * multiplier * np.sqrt(2) * bound**2
    gradients = np.array([d[0] for d in drawn]) - slopes.sum(axis=0)
    moments = np.array([d[1][np.tril_indices(2)] for d in drawn]) * len(rows)
    moments -= (slopes.T @ slopes)[np.tril_indices(2)]
    assert np.isclose(drawn[0][2] * len(rows), sd)
    assert np.array_equal(drawn[0][1], drawn[0][1].T)
    for z in (gradients / (multiplier * 2 * bound), moments / sd):
        assert stats.kstest(z.ravel(), "norm").pvalue > 1e-6
        assert stats.kstest(1.3 * z.ravel(), "norm").pvalue < 1e-6  # power
        assert np.abs(np.corrcoef(z.T) - np.eye(z.shape[1])).max() < 0.15


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore:insecure_noise_seed")
@pytest.mark.parametrize("seed", range(3))
def test_approximation_of_a_normal_posterior(rows, seed):
    """Started two hundred standard deviations away; three standard deviations of the noise allowed."""
    model = correlated_model(rows, clip_gradient=8.0)
    found = dp.normal_approximation(
        model=model, noise_multiplier=2.0, rounds=5, clip=3.0, insecure_noise_seed=seed
    )
    precision = len(rows) * np.linalg.inv(COVARIANCE) + np.eye(2) / 9
    exact = np.linalg.solve(precision, len(rows) * np.linalg.inv(COVARIANCE) @ rows.mean(axis=0))
    whitener = np.linalg.cholesky(precision).T
    assert np.linalg.norm(whitener @ (found.mean - exact)) < 3.0
    scales = np.linalg.eigvalsh(whitener @ found.covariance @ whitener.T)
    assert 0.8 < scales.min() and scales.max() < 1.25
    assert np.allclose(found.information, np.linalg.inv(COVARIANCE), atol=0.9)
    drawn = np.array([found.start(k)["theta"] for k in range(400)])
    assert np.allclose(np.cov(drawn.T), found.covariance, rtol=0.4)
    with pytest.raises(ValueError, match="read-only"):
        found.mean[0] = 0.0


@pytest.mark.statistical
def test_it_costs_its_share(rows):
    """And no more; the steps get the rest."""
    book = dp.PrivacyLedger(epsilon=2.0, delta=1e-6)
    model = correlated_model(rows, clip_gradient=8.0)
    all_of_it = book.noise_multiplier(1) ** -2
    found = dp.normal_approximation(model=model, ledger=book, share=0.2, rounds=4)
    (entry,) = book.entries()
    assert (entry.step, entry.likelihood, entry.chains, entry.claimed) == ("normal_approximation", "x", 1, 1)
    assert [cost.releases for cost in entry.costs] == [4, 4]
    spent = sum(cost.releases / cost.noise_multiplier**2 for cost in entry.costs)
    assert np.isclose(spent, 0.2 * all_of_it)
    step = dp.PenaltyMetropolis(
        model=model, ledger=book, draws=50, tune=0, chains=1, updates="autoregressive", approximation=found
    )
    assert 1.999 < book.epsilon_spent <= 2.0
    assert repr(found) in repr([found]) and "theta" in repr(found)
    step.setup_chain(np.random.default_rng(1), 0, 50)
    new, theta, other = np.array([1.02, -0.99]), np.array([1.0, -1.0]), np.zeros(0)
    distance = step.distance(new, theta, other)
    assert np.isclose(distance**2, (new - theta) @ found.information @ (new - theta))
    _, sd = step.noisy_ratio(new, theta, other, distance)
    assert np.isclose(sd, 2 * step.plan.noise_multiplier * found.clip * distance)


def wrong_approximation(model):
    """Of the banana: off by more than a standard deviation, and tilted."""
    return dp.NormalApproximation(
        "x", ("theta",), ((2,),), np.array([0.2, 0.3]), np.array([[0.5, -0.3], [-0.3, 0.8]]),
        np.array([[2.0, 0.5], [0.5, 1.0]]), 60.0, 60.0,
    )  # fmt: skip


def banana():
    rows = np.random.default_rng(2).normal([0.8, 0.5], 1.0, (6, 2))
    return rows, models.banana_model(rows, clip_gradient=30.0)


@pytest.mark.statistical
@pytest.mark.parametrize("updates", ["joint", "guided", "autoregressive", "hmc"])
def test_draws_follow_the_posterior_whatever_the_approximation(updates):
    data, model = banana()
    near = wrong_approximation(model)
    if updates == "hmc":
        step = models.hmc(model, 0.005, step_size=0.4, n_leapfrog=4, gradient_noise=5, approximation=near)
    else:
        step = models.penalty(model, 0.01, updates=updates, approximation=near, scale=0.9)
    drawn, _ = models.run(step, 40_000 if updates != "hmc" else 25_000)
    for k, exact in enumerate(models.banana_posterior(data)):
        found = mc_z(drawn[None, :, k], exact)
        assert found.passed, (k, found)


@pytest.mark.statistical
def test_a_proposal_without_its_density_is_seen():
    """Power: autoregressive proposals taken for symmetric ones."""
    data, model = banana()
    step = models.penalty(
        model, 0.01, updates="autoregressive", approximation=wrong_approximation(model), scale=0.9
    )
    proposed = step._autoregressed
    step._autoregressed = lambda theta: (proposed(theta)[0], 0.0)
    drawn, _ = models.run(step, 40_000)
    exact = models.banana_posterior(data)
    assert any(not mc_z(drawn[None, :, k], exact[k]).passed for k in range(2))


@pytest.mark.statistical
def test_refused(rows):
    model = correlated_model(rows, clip_gradient=8.0)
    book = dp.PrivacyLedger(epsilon=2.0, delta=1e-6)
    for kwargs, message in (
        ({}, "give either ledger=, or noise_multiplier="),
        ({"ledger": book, "noise_multiplier": 3.0}, "give either"),
        ({"ledger": book, "share": 1.0}, "share must be between"),
        ({"ledger": book, "rounds": 0}, "rounds must be"),
        ({"ledger": book, "clip": -1.0}, "clip must be"),
        ({"ledger": book, "start": {"theta": np.zeros(3)}}, "none of the model's values"),
        ({"ledger": book, "start": {"theta": np.full(2, np.inf)}}, "no density there"),
    ):
        with pytest.raises(ValueError, match=message):
            dp.normal_approximation(model=model, **kwargs)
    with pytest.raises(ValueError, match=r"share: 1e-06 of what is left.* give a larger share"):
        poor = dp.PrivacyLedger(epsilon=1e-6, delta=1e-12)
        dp.normal_approximation(model=model, ledger=poor, share=1e-6)
    assert not poor.entries()
    with pytest.raises(TypeError, match="ledger must be a dp"):
        dp.normal_approximation(model=model, ledger="book")
    with pytest.raises(ValueError, match="has no bound of a row's gradient"):
        dp.normal_approximation(model=correlated_model(rows), ledger=book)
    with pytest.raises(ValueError, match="draws from an approximation, and none is given"):
        dp.PenaltyMetropolis(model=model, noise_multiplier=1.0, updates="autoregressive")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dp.normal_approximation(
            model=models.normal_model(rows[:, 0], clip_gradient=3.0), noise_multiplier=2.0
        )
    with pytest.raises(ValueError, match="Make one for this model"):
        dp.PenaltyMetropolis(model=model, noise_multiplier=1.0, approximation=found)
    with pytest.raises(TypeError, match=r"must come from dp.normal_approximation"):
        dp.PenaltyMetropolis(model=model, noise_multiplier=1.0, approximation=np.eye(2))
    with pytest.raises(ValueError, match="scale must be one number"):
        dp.PenaltyMetropolis(
            model=model, noise_multiplier=1.0, approximation=wrong_approximation(model), scale=[1.0, 2.0]
        )
    assert not book.entries()


@pytest.mark.parametrize("missing", ["insecure_noise", "costs"])
def test_a_pickle_of_another_version_is_refused_in_words(missing):
    """Whether its noise was a secret, and what it cost, may not be guessed."""
    one = np.eye(1)
    known = dp.NormalApproximation("x", ("mu",), ((),), np.zeros(1), one, one, clip=1.0, clip_gradient=1.0)
    assert repr(pickle.loads(pickle.dumps(known))) == repr(known)
    old = {k: v for k, v in vars(known).items() if k != missing}
    with pytest.raises(ValueError, match=f"says nothing of its {missing}: it was written by another version"):
        object.__new__(dp.NormalApproximation).__setstate__(old)
