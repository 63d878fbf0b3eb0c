"""Planning a release, against closed forms."""

import math

import arviz as az
import numpy as np
import pymc as pm
import pytest
import scipy.stats as st

import pymc_dp as dp
from pymc_dp.stats import plan as plan_module
from pymc_dp.stats.plan import plan

N, PRIOR_SD, SIGMA = 50, 2.0, 20.0


def normal_sum(sigma=SIGMA, **kwargs):
    """A Gaussian sum of normal records with a normal mean: everything is known."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, PRIOR_SD)
        y = pm.Normal("y", mu, 1, shape=N)
        dp.GaussianMechanism("z", dp.record_sum(y), sigma=sigma, **({"sensitivity": 4} | kwargs))
    return model


N_PRIOR = 10_000
TAIL = st.norm.ppf(0.95)


@pytest.fixture(scope="module")
def chains():
    """Chains that the plan below sampled."""
    return []


@pytest.fixture(scope="module")
def planned(chains):
    sample = plan_module.posterior

    def spy(*args):
        chains.append(sample(*args))
        return chains[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "posterior", spy)
        return dp.plan(normal_sum(), n_simulations=3, n_prior=N_PRIOR, draws=1500, random_seed=5)


def error_of_sd(n, kurtosis):
    """Relative standard error of a standard deviation from n independent numbers."""
    return math.sqrt((kurtosis - 1) / (4 * n))


@pytest.mark.statistical
def test_noise_and_statistic_are_those_of_the_model(planned):
    (release,) = planned.releases
    assert (release.name, release.mechanism, release.entries, release.local) == (
        "z",
        "GaussianMechanism",
        1,
        False,
    )
    statistic = math.sqrt(N**2 * PRIOR_SD**2 + N)
    tolerance = 5 * error_of_sd(N_PRIOR, 3)
    assert release.noise_sd == pytest.approx(SIGMA, rel=tolerance)
    assert release.statistic_sd == pytest.approx(statistic, rel=tolerance)


def test_posterior_width_is_exact(planned, chains):
    (parameter,) = planned.parameters
    sd = 1 / math.sqrt(1 / PRIOR_SD**2 + N**2 / (N + SIGMA**2))
    assert parameter.name == "mu"
    # the difference of two quantiles of n draws: at p = 0.05 and 1 - p, where the density is f
    error = math.sqrt((2 * 0.05 * 0.95 - 2 * 0.05**2) / N_PRIOR) / st.norm.pdf(TAIL)
    assert parameter.prior_width == pytest.approx(2 * TAIL * PRIOR_SD, abs=5 * error * PRIOR_SD)
    errors = [
        float(az.mcse(idata.posterior["mu"].values, method="quantile", prob=p))
        for idata in chains
        for p in (0.05, 0.95)
    ]
    assert len(errors) == 6
    error = math.sqrt(sum(e * e for e in errors)) / 3
    assert 5 * error < 0.1 * 2 * TAIL * sd  # power: a width that is wrong by a tenth is seen
    assert parameter.posterior_width == pytest.approx(2 * TAIL * sd, abs=5 * error)
    assert parameter.ratio == parameter.posterior_width / parameter.prior_width
    assert planned.to_dataframe().loc["mu", "ratio"] == parameter.ratio


def test_says_cost_and_acceptance(planned):
    assert planned.guarantee == dp.guarantee(normal_sum())
    assert 0.5 < planned.acceptance <= 1 and math.isnan(planned.acceptance_bound)
    assert planned.warnings == () and planned.n_simulations == 3
    text = str(planned)
    for part in ("sd of noise", "GaussianMechanism", "mu", "Cost: The release z: zero-conc", "Acceptance"):
        assert part in text
    assert repr(planned) == text and max(map(len, text.splitlines())) <= 96


def test_warns_where_noise_drowns_the_signal():
    found = dp.plan(normal_sum(sigma=3000.0), n_simulations=2, draws=200, tune=200, random_seed=1)
    drowned, idle = found.warnings
    assert "the noise of z drowns what it hides" in drowned
    assert "of mu the posterior would be about as wide as the prior" in idle
    assert found.parameters[0].ratio > 0.9
    assert f"Warning: {drowned[:30]}" in str(found)


@pytest.mark.statistical
def test_several_releases_local_and_pure():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, [1.0, 5.0], shape=2)
        y = pm.Normal("y", mu, 1, shape=(30, 2))
        dp.LaplaceMechanism("local", y, epsilon=2.0, bounds=(-3, 3))
        dp.LaplaceMechanism("mean", y.mean(axis=0), epsilon=1.0, bounds=(-3, 3))
    n = 2000
    found = dp.plan(model, n_simulations=0, n_prior=n, random_seed=2)
    local, mean = found.releases
    assert local.local and not mean.local and (local.entries, mean.entries) == (60, 2)
    assert local.noise_sd == pytest.approx(math.sqrt(2) * 6.0, rel=5 * error_of_sd(60 * n, 6))
    assert mean.noise_sd == pytest.approx(math.sqrt(2) * 12 / 30, rel=5 * error_of_sd(2 * n, 6))
    assert local.statistic_sd < 3.0  # of clamped values
    assert found.parameters == () and "90 %" not in str(found)
    assert found.guarantee.epsilon == pytest.approx(3.0)


@pytest.mark.statistical
def test_categories_are_taken_as_indicators():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        x = pm.Categorical("x", p, shape=20)
        dp.RandomizedResponse("r", x, epsilon=50.0, n_categories=3)
    (release,) = dp.plan(model, n_simulations=0, n_prior=100, random_seed=2).releases
    assert release.noise_sd == 0  # at this epsilon every answer is the truth
    assert release.statistic_sd == pytest.approx(math.sqrt(2) / 3, rel=0.05)


@pytest.mark.statistical
def test_a_choice_is_not_called_noise():
    with pm.Model() as model:
        y = pm.Normal("y", shape=30)
        dp.PerturbedHistogram("h", y, n_bins=4, epsilon=1.0, bounds=(-2, 2))
        dp.SmoothedHistogramSample("s", y, n_bins=4, smoothing=0.3, n_released=5, bounds=(-2, 2))
    n = 1000
    h, s = dp.plan(model, n_simulations=0, n_prior=n, random_seed=2).releases
    assert (h.mechanism, s.mechanism) == ("PerturbedHistogram", "SmoothedHistogramSample")
    assert h.additive and not s.additive
    assert h.noise_sd == pytest.approx(math.sqrt(2) * 2, rel=5 * error_of_sd(4 * n, 6))  # scale 2 / epsilon


@pytest.mark.statistical
def test_seed_fixes_it():
    settings = {"n_simulations": 1, "n_prior": 50, "draws": 50, "tune": 50}
    one, same, other = (dp.plan(normal_sum(), random_seed=s, **settings) for s in (3, 3, 4))
    assert one.releases == same.releases and one.parameters == same.parameters
    assert one.releases != other.releases


@pytest.mark.statistical
def test_unknown_cost_is_a_warning():
    found = dp.plan(normal_sum(sensitivity=None), n_simulations=0, n_prior=50, random_seed=1)
    assert found.guarantee is None and "the cost is not known" in found.warnings[-1]
    assert "Cost: not known." in str(found)


def observed_model():
    with pm.Model() as model:
        y = pm.Normal("y", shape=5)
        dp.LaplaceMechanism("z", y.sum(), epsilon=1, bounds=(-1, 1), observed=0.0)
    return model


def no_release():
    with pm.Model() as model:
        pm.Normal("y")
    return model


@pytest.mark.parametrize(
    ("model", "kwargs", "error", "message"),
    [
        ("model", {}, TypeError, "model must be a pymc.Model, got str"),
        (observed_model(), {}, ValueError, "z is observed: a plan simulates everything from the prior"),
        (no_release(), {}, ValueError, "model has no release to plan"),
        (no_release(), {"n_simulations": -1}, ValueError, "n_simulations must be at least 0, got -1"),
        (no_release(), {"n_prior": 3}, ValueError, "n_prior must be at least 20, got 3"),
        (no_release(), {"draws": 1.5}, TypeError, "draws must be an integer, got float"),
        (no_release(), {"tune": True}, TypeError, "tune must be an integer, got bool"),
    ],
)
def test_bad_input(model, kwargs, error, message):
    with pytest.raises(error, match=message):
        plan(model, **kwargs)
