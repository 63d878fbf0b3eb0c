"""Posteriors of marginal models: against conjugate forms and quadrature, under each backend."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy import stats

import pymc_dp as dp
from tests.marginals.models import discrete_laplace, integral, laplace

BOUNDS, SCALE = (-2.0, 2.0), 1.0
RELEASED = np.array([0.9, 3.1, 2.4, -0.6, 1.8, 4.0, 1.2, 2.2])


def clamped_model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        y = pm.Normal("y", mu, 1.2, shape=len(RELEASED))
        dp.LaplaceMechanism("z", y, epsilon=4, bounds=BOUNDS, observed=RELEASED)
    return model


def posterior_of_mean(bounds):
    """Nodes of mu, their probabilities, and the mean of the first record at each."""
    mu = np.linspace(-8, 18, 1301)
    log_density, first = stats.norm.logpdf(mu, 0, 3), None
    node = np.linspace(-18, 28, 23001)
    prior = stats.norm.pdf(node[:, None], mu, 1.2)
    for z in RELEASED:
        weight = prior * laplace(SCALE)(z, np.clip(node, *bounds))[:, None]
        log_density = log_density + np.log(weight.sum(axis=0))
        if z == RELEASED[1]:
            first = (node[:, None] * weight).sum(axis=0) / weight.sum(axis=0)
    p = np.exp(log_density - log_density.max())
    return mu, p / p.sum(), first


def check_against_quadrature(idata, n_errors=4.5):
    mu, p, _ = posterior_of_mean(BOUNDS)
    draws = idata.posterior["mu"].values
    mean = p @ mu
    errors = []
    for power in (1, 2):
        exact, spread = p @ (mu - mean) ** power, (draws - mean) ** power
        errors.append(np.sqrt((p @ (mu - mean) ** (2 * power) - exact**2) / float(az.ess(spread))))
        assert abs(spread.mean() - exact) < n_errors * errors[-1]
    return errors[0]


def test_conjugate_normal(python_mode):
    """With Gaussian noise the posterior of the mean is normal: the log density is that, up to a constant."""
    sigma, s, tau = 0.7, 1.5, 2.0
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, tau)
        y = pm.Normal("y", mu, s, shape=len(RELEASED))
        dp.GaussianMechanism("z", y, sigma=sigma, observed=RELEASED)
    log_density = dp.marginalize(model, "y").compile_logp()
    precision = 1 / tau**2 + len(RELEASED) / (s**2 + sigma**2)
    mean = (1 / tau**2 + RELEASED.sum() / (s**2 + sigma**2)) / precision
    grid = np.linspace(-10, 10, 21)
    found = np.array([float(log_density({"mu": np.array(m)})) for m in grid])
    exact = stats.norm.logpdf(grid, mean, precision**-0.5)
    np.testing.assert_allclose(found - found[0], exact - exact[0], rtol=1e-11, atol=1e-11)


@pytest.mark.statistical
def test_nuts_and_recovered_records():
    """NUTS against quadrature, and the records that are drawn afterwards against theirs."""
    model = clamped_model()
    with dp.marginalize(model, ["y"]):
        idata = pm.sample(1000, tune=500, chains=2, cores=1, random_seed=4, progressbar=False, quiet=True)
    error = check_against_quadrature(idata)
    # the test sees a clamp that is forgotten: it moves the mean by more than what is allowed
    mu, p, _ = posterior_of_mean(BOUNDS)
    free, q, _ = posterior_of_mean((-np.inf, np.inf))
    assert abs(p @ mu - q @ free) > 4.5 * error
    mu, p, first = posterior_of_mean(BOUNDS)
    y = dp.recover_records(idata, model, random_seed=1)["y"].values[..., 1]
    ess = float(az.ess(y))
    assert abs(y.mean() - p @ first) < 4.5 * y.std() / np.sqrt(ess)


@pytest.mark.statistical
def test_nutpie():
    pytest.importorskip("nutpie")
    with dp.marginalize(clamped_model(), ["y"]):
        idata = pm.sample(
            1000, tune=500, chains=2, cores=1, random_seed=4, progressbar=False, nuts_sampler="nutpie"
        )
    check_against_quadrature(idata)


@pytest.mark.statistical
@pytest.mark.parametrize("mode", ["NUMBA", "CVM"])
def test_backends_agree(mode):
    marginal = dp.marginalize(clamped_model(), ["y"])
    mu = marginal.rvs_to_values[marginal["mu"]]
    outputs = [marginal.logp(), pytensor.grad(marginal.logp(), mu)]
    compiled, plain = (pytensor.function([mu], outputs, mode=m) for m in (mode, "FAST_COMPILE"))
    for at in (-30.0, 0.4, 1e6):
        for one, other in zip(compiled(at), plain(at), strict=True):
            assert float(one) == pytest.approx(float(other), rel=1e-12)


@pytest.mark.statistical
def test_the_imputed_posterior_is_the_same():
    """Both models, both against quadrature."""
    model = clamped_model()
    with model:
        idata = pm.sample(4000, tune=500, chains=2, cores=1, random_seed=7, progressbar=False, quiet=True)
    check_against_quadrature(idata)


def test_far_whole_numbers(python_mode):
    """The range of the sum follows the parameters, however far they are from the release."""
    released = np.array([3, 500, -250])
    with pm.Model() as model:
        rate = pm.HalfFlat("rate")
        y = pm.Poisson("y", rate, shape=3)
        dp.DiscreteLaplaceMechanism("z", y, scale=1.5, observed=released)
    marginal = dp.marginalize(model, "y")
    log_density = marginal.compile_logp(vars=[marginal["z"]], sum=False)
    k = np.arange(1200)
    for value in (1e-3, 4.0, 300.0):
        (found,) = log_density({"rate_log__": np.log(value)})
        log_f = stats.poisson.logpmf(k, value)
        for z, one in zip(released, found, strict=True):
            terms = log_f + np.log(np.tanh(0.5 / 1.5)) - np.abs(z - k) / 1.5
            exact = terms.max() + np.log(np.exp(terms - terms.max()).sum())
            assert float(one) == pytest.approx(exact, rel=1e-11)


def test_tolerance_bounds_what_is_left_out(python_mode):
    """With a coarse tolerance a share of at most that much is missing, and some of it is."""
    with pm.Model() as model:
        y = pm.Poisson("y", pm.HalfFlat("rate"), shape=3)
        dp.DiscreteLaplaceMechanism("z", y, scale=30.0, observed=[40, 0, 90])
    found = {}
    for tolerance in (1e-12, 1e-3):
        marginal = dp.marginalize(model, "y", tolerance=tolerance)
        log_density = marginal.compile_logp(vars=[marginal["z"]], sum=False)
        found[tolerance] = log_density({"rate_log__": np.log(40.0)})[0]
    missing = -np.expm1(found[1e-3] - found[1e-12])
    assert (missing >= -1e-12).all() and (missing <= 1e-3).all()


def test_oracle_of_the_channel():
    """The noise that other tests add up is a probability."""
    k = np.arange(-2000, 2001)
    assert discrete_laplace(2.0)(k, 0).sum() == pytest.approx(1.0)
    assert integral(lambda y: laplace(0.7)(0.3, y), -60, 60, breaks=(0.3,)) == pytest.approx(1.0)
