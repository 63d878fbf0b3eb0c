"""The exact answers, checked against importance sampling and against each other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from tests.statistics import oracles
from tests.statistics.marginal import gauss_panels
from tests.statistics.oracles import noise_logpdf

N_DRAWS = 400_000


def _importance(theta, log_weight, probabilities_at):
    """Posterior mean, sd and cdf by self-normalised importance sampling from the prior, with
    errors.
    """
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    assert 1 / (weight**2).sum() > 2000, "the check itself has too few effective draws"

    def estimate(value):
        mean = weight @ value
        return mean, np.sqrt((weight**2) @ (value - mean) ** 2)

    mean, mean_error = estimate(theta)
    variance, variance_error = estimate((theta - mean) ** 2)
    cdf = [estimate((theta <= x).astype(float)) for x in probabilities_at]
    return (mean, mean_error), (variance, variance_error), cdf


def _check(marginal, theta, log_weight):
    at = marginal.quantile([0.05, 0.25, 0.5, 0.75, 0.95])
    (mean, e1), (variance, e2), cdf = _importance(theta, log_weight, at)
    z = [(mean - marginal.mean) / e1, (variance - marginal.sd**2) / e2]
    z += [(estimate - exact) / error for (estimate, error), exact in zip(cdf, marginal.cdf(at), strict=True)]
    assert np.max(np.abs(z)) < stats.norm.isf(1e-3 / len(z) / 2), z
    # A marginal must be consistent in itself: mean and sd from its own distribution function.
    x = np.linspace(marginal.grid[0], marginal.grid[-1], 200_001)
    f = marginal.cdf(x)
    first = x[-1] - integrate.trapezoid(f, x)
    second = x[-1] ** 2 - integrate.trapezoid(2 * x * f, x)
    assert first == pytest.approx(marginal.mean, abs=2e-6 * max(1, marginal.sd))
    assert np.sqrt(second - first**2) == pytest.approx(marginal.sd, rel=2e-5)
    assert f[-1] == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", [2.0, 12.0])
def test_normal_sum(noise, scale):
    rng = np.random.default_rng(1)
    mu = rng.normal(0.5, 1.5, N_DRAWS)
    total = rng.normal(10 * mu, np.sqrt(10) * 0.8)
    _check(
        oracles.normal_sum(13.0, 10, 0.8, scale, noise=noise, prior=(0.5, 1.5)),
        mu,
        noise_logpdf(noise, 13.0 - total, scale),
    )


def test_normal_sum_gaussian_is_conjugate():
    exact = oracles.normal_sum(13.0, 10, 0.8, 3.0, noise="gaussian", prior=(0.5, 1.5))
    precision = 1 / 1.5**2 + 100 / (10 * 0.64 + 9)
    mean = (0.5 / 1.5**2 + 10 * 13.0 / (10 * 0.64 + 9)) / precision
    assert exact.mean == pytest.approx(mean, abs=1e-10)
    assert exact.sd == pytest.approx(precision**-0.5, abs=1e-10)
    at = stats.norm.ppf([0.01, 0.3, 0.9], mean, precision**-0.5)
    np.testing.assert_allclose(exact.cdf(at), [0.01, 0.3, 0.9], atol=1e-8)
    np.testing.assert_allclose(exact.quantile([0.01, 0.3, 0.9]), at, atol=1e-7)


def test_normal_laplace_density():
    for sd, b in ((1.0, 0.05), (1.0, 1.0), (0.02, 1.0)):
        d = np.array([-30.0, -3.0, -0.2, 0.0, 1.0, 8.0, 60.0])
        ours = oracles.normal_plus_noise_logpdf("laplace", d, sd, b)
        for x, got in zip(d, ours, strict=True):
            want = 0.0
            for lo, hi in ((-40 * sd, 0.0), (0.0, 40 * sd)):
                cuts = np.unique(np.clip([lo, x - 9 * b, x, x + 9 * b, hi], lo, hi))
                for a, c in pairwise(cuts):
                    y, w = gauss_panels(np.linspace(a, c, 400), 12)
                    want += (w * stats.norm.pdf(y, 0, sd) * stats.laplace.pdf(x - y, 0, b)).sum()
            if want > 1e-250:
                assert got == pytest.approx(np.log(want), rel=1e-9, abs=1e-9)


def test_two_releases_of_the_same_sum():
    rng = np.random.default_rng(2)
    mu = rng.normal(0, 1, N_DRAWS)
    total = rng.normal(8 * mu, np.sqrt(8) * 1.2)
    _check(
        oracles.normal_sum_two_releases((6.0, 9.0), 8, 1.2, (3.0, 2.5)),
        mu,
        noise_logpdf("laplace", 6.0 - total, 3.0) + noise_logpdf("gaussian", 9.0 - total, 2.5),
    )


@pytest.mark.statistical
@pytest.mark.parametrize("releases", [(4.0, 14.0), (-3.0, 45.0), (2.0, -1.5)])
def test_sum_and_sum_of_squares(releases):
    rng = np.random.default_rng(3)
    mu, log_sd = rng.normal(0, 1, N_DRAWS), rng.normal(0, 0.5, N_DRAWS)
    x = mu[:, None] + np.exp(log_sd)[:, None] * rng.normal(size=(N_DRAWS, 10))
    log_weight = noise_logpdf("laplace", releases[0] - x.sum(1), 2.0)
    log_weight += noise_logpdf("laplace", releases[1] - (x**2).sum(1), 4.0)
    exact = oracles.normal_location_scale_two_releases(releases, 10, (2.0, 4.0))
    _check(exact["mu"], mu, log_weight)
    _check(exact["log_sd"], log_sd, log_weight)


@pytest.mark.statistical
def test_sum_and_sum_of_squares_converged():
    coarse = oracles.normal_location_scale_two_releases((4.0, 14.0), 10, (2.0, 4.0), nodes=104)
    fine = oracles.normal_location_scale_two_releases((4.0, 14.0), 10, (2.0, 4.0))
    for name in fine:
        assert coarse[name].mean == pytest.approx(fine[name].mean, abs=1e-6)
        assert coarse[name].sd == pytest.approx(fine[name].sd, abs=1e-6)
        at = fine[name].quantile([0.1, 0.5, 0.9])
        np.testing.assert_allclose(coarse[name].cdf(at), fine[name].cdf(at), atol=1e-6)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_bernoulli_total(noise):
    rng = np.random.default_rng(4)
    p = rng.beta(2, 3, N_DRAWS)
    total = rng.binomial(25, p)
    _check(
        oracles.bernoulli_total(17.2, 25, 2.0, noise=noise, prior=(2, 3)),
        p,
        noise_logpdf(noise, 17.2 - total, 2.0),
    )


def test_category_counts():
    rng = np.random.default_rng(5)
    p = rng.dirichlet([1.0, 2.0, 1.5], N_DRAWS)
    counts = rng.multinomial(12, p)
    z = np.array([2.5, 9.0, -1.0])
    log_weight = noise_logpdf("laplace", z - counts, 2.0).sum(1)
    for j, marginal in enumerate(oracles.category_counts(z, 12, 2.0, prior=(1.0, 2.0, 1.5))):
        _check(marginal, p[:, j], log_weight)


@pytest.mark.parametrize("release", [3.0, -2.0])
def test_exponential_sum(release):
    rng = np.random.default_rng(6)
    rate = rng.gamma(2, 1 / 1.5, N_DRAWS)
    total = rng.gamma(6, 1 / rate)
    _check(
        oracles.exponential_sum(release, 6, 1.0, prior=(2, 1.5)),
        rate,
        noise_logpdf("laplace", release - total, 1.0),
    )


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_clamped_normal_sum(noise):
    rng = np.random.default_rng(7)
    mu = rng.normal(0.3, 1.2, N_DRAWS)
    x = np.clip(rng.normal(mu[:, None], 0.9, (N_DRAWS, 5)), -1.0, 1.5)
    exact = oracles.clamped_normal_sum(4.0, 5, 0.8, (-1.0, 1.5), sd=0.9, noise=noise, prior=(0.3, 1.2))
    _check(exact, mu, noise_logpdf(noise, 4.0 - x.sum(1), 0.8))


def test_clamped_normal_sum_limits():
    # Very wide bounds: no clamp. One record: the closed form of a local release. And the mesh has
    # converged.
    wide = oracles.clamped_normal_sum(4.0, 4, 3.0, (-10.0, 10.0), prior=(0.3, 0.6), cells=1000)
    free = oracles.normal_sum(4.0, 4, 1.0, 3.0, prior=(0.3, 0.6))
    assert wide.mean == pytest.approx(free.mean, abs=1e-7)
    assert wide.sd == pytest.approx(free.sd, abs=1e-7)
    one = oracles.clamped_normal_sum(0.5, 1, 0.3, (-1.0, 1.0), prior=(0.0, 1.0))
    local = oracles.normal_local([0.5], 1.0, 0.3, bounds=(-1.0, 1.0))
    assert one.mean == pytest.approx(local.mean, abs=1e-7)
    assert one.sd == pytest.approx(local.sd, abs=1e-7)
    coarse = oracles.clamped_normal_sum(2.0, 5, 0.1, (-1.0, 1.0), cells=200)
    fine = oracles.clamped_normal_sum(2.0, 5, 0.1, (-1.0, 1.0), cells=400)
    assert coarse.mean == pytest.approx(fine.mean, abs=2e-7)
    with pytest.raises(ValueError, match="lattice"):
        oracles.clamped_normal_sum(0.12345678, 5, 0.1, (-1.0, 1.0))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("bounds", [None, (-0.5, 1.0)])
def test_normal_local(noise, bounds):
    rng = np.random.default_rng(8)
    z = np.array([0.4, -1.2, 2.9, 1.4])
    mu = rng.normal(0.2, 1.0, N_DRAWS)
    y = rng.normal(mu[:, None], 0.8, (N_DRAWS, 4))
    if bounds is not None:
        y = np.clip(y, *bounds)
    exact = oracles.normal_local(z, 0.8, 0.7, noise=noise, bounds=bounds, prior=(0.2, 1.0))
    _check(exact, mu, noise_logpdf(noise, z - y, 0.7).sum(1))


def test_clamped_density_by_quadrature():
    # mu = 9, sd = 1, bounds +-10, z = 14, Laplace scale 2: the clamp takes away the records nearest
    # to z.
    y, w = gauss_panels(np.linspace(-1, 10, 200))
    want = (w * stats.norm.pdf(y, 9, 1) * stats.laplace.pdf(14 - y, 0, 2)).sum()
    want += stats.norm.sf(10, 9, 1) * stats.laplace.pdf(4, 0, 2)
    value = oracles._clamped_normal_plus_noise_logpdf("laplace", 14.0, 9.0, 1.0, 2.0, -10.0, 10.0)
    assert value == pytest.approx(np.log(want), abs=1e-10)


@pytest.mark.parametrize("family, prior", [("poisson", (3.0, 1.0)), ("geometric", (2.0, 2.0))])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_counts_local(family, prior, noise):
    rng = np.random.default_rng(9)
    z = np.array([2.2, 5.1, 0.3, 3.0])
    if family == "poisson":
        theta = rng.gamma(prior[0], 1 / prior[1], N_DRAWS)
        k = rng.poisson(theta[:, None], (N_DRAWS, 4))
    else:
        theta = rng.beta(*prior, N_DRAWS)
        k = rng.geometric(np.maximum(theta, 1e-6)[:, None], (N_DRAWS, 4))
    exact = oracles.counts_local(z, 1.0, family=family, noise=noise, prior=prior)
    _check(exact, theta, noise_logpdf(noise, z - k, 1.0).sum(1))
