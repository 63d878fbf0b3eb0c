"""Guarantees compared with densities, beside divergences that are known in closed form."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy.stats as st

import pymc_dp as dp
from pymc_dp.mechanisms._custom_checks import _MORE
from pymc_dp.privacy._line import integrate
from tests.custom_noise import huber_logpdf, staircase_pdf

check = dp.testing.check_guarantee


def test_laplace_noise_attains_its_epsilon():
    z = dp.LaplaceMechanism.dist(0.0, scale=2.0, sensitivity=1.0)
    found = check(z, [(0.0, 1.0), (3.0, 2.5)])
    assert not found.contradicted and found.log_ratio == pytest.approx(0.5, rel=1e-12)
    assert "This is no proof" in str(found) and "2 pairs" in str(found)
    less = check(z, [(0.0, 1.0)], guarantee=dp.PrivacyGuarantee(0.499))
    assert less.contradicted and "the log ratio is 0.5 > epsilon = 0.499" in str(less)


@pytest.mark.parametrize("sigma", [0.05, 2.0, 300.0])
def test_gaussian_noise_attains_its_rho_and_mu(sigma):
    z = dp.GaussianMechanism.dist(0.0, sigma=sigma, sensitivity=1.0)
    orders = (1.5, 2.0, 8.0)
    found = check(z, [(0.0, 1.0)], orders=orders)
    assert not found.contradicted
    for alpha in orders:  # Bun and Steinke (2016), lemma 2.4
        assert found.divergences[alpha] == pytest.approx(alpha / (2 * sigma**2), rel=1e-6)
    rho = 1 / (2 * sigma**2)
    assert check(z, [(0.0, 1.0)], guarantee=dp.PrivacyGuarantee(math.inf, rho=0.999 * rho)).contradicted
    assert check(z, [(0.0, 1.001)]).contradicted
    assert check(z, [(0.0, 1.0)], guarantee=dp.PrivacyGuarantee(1.0)).contradicted  # it has no pure one


def test_delta_of_gaussian_noise():
    z = dp.GaussianMechanism.dist(0.0, sigma=1.0)
    exact = st.norm.cdf(0.5 - 1.0) - math.e * st.norm.cdf(-0.5 - 1.0)  # Balle and Wang (2018), theorem 5
    for factor, contradicted in ((1.0001, False), (0.9999, True)):
        assert (
            check(z, [(0, 1)], guarantee=dp.PrivacyGuarantee(1.0, factor * exact)).contradicted
            is contradicted
        )


def test_whole_numbers_and_vectors():
    z = dp.DiscreteLaplaceMechanism.dist(3, scale=2.0, sensitivity=1)
    assert check(z, [(0, 1)]).log_ratio == pytest.approx(0.5, rel=1e-12)
    z = dp.GaussianMechanism.dist(np.zeros(2), sigma=2.0, sensitivity=1.0)
    found = check(z, [([0.0, 0.0], [0.6, 0.8])], values=np.random.default_rng(1).normal(0, 3, (50, 2)))
    assert found.not_covered and "Not compared: rho" in str(found)


def test_bad_input():
    z = dp.LaplaceMechanism.dist(0.0, scale=2.0, sensitivity=1.0)
    with pytest.raises(TypeError, match="release must be the variable that a mechanism returned, got float"):
        check(1.0, [(0, 1)])
    with pytest.raises(TypeError, match="guarantee must be a PrivacyGuarantee, got float"):
        check(z, [(0, 1)], guarantee=1.0)
    with pytest.raises(ValueError, match="neighbours must list pairs"):
        check(z, [])
    with pytest.raises(ValueError, match=r"neighbours has a query of shape \(2,\)"):
        check(z, [([0.0, 1.0], [1.0, 1.0])])
    with pytest.raises(ValueError, match="is not known: give guarantee="):
        check(dp.LaplaceMechanism.dist(0.0, scale=2.0), [(0, 1)])
    noisy = dp.LaplaceMechanism.dist(0.0, scale=pm.HalfNormal.dist())
    with pytest.raises(ValueError, match="is random"):
        check(noisy, [(0, 1)], guarantee=dp.PrivacyGuarantee(1))
    two = dp.LaplaceMechanism.dist(np.zeros(2), scale=2.0, sensitivity=1.0)
    with pytest.raises(ValueError, match="releases several numbers: give values="):
        check(two, [(np.zeros(2), np.ones(2))])
    with pytest.raises(ValueError, match="values must have an axis more"):
        check(two, [(np.zeros(2), np.ones(2))], values=[1.0, 2.0])
    mine = dp.CustomMechanism.dist(0.0, logp=lambda v, q: -pt.abs(v - q) - math.log(2))
    assert check(mine, [(0.0, 1.0)], guarantee=dp.PrivacyGuarantee(1.0)).log_ratio == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_integrals_of_any_scale(scale):
    def f(x):
        u = (x - 3.0) / scale
        return np.array([st.norm.pdf(u), np.exp(huber_logpdf(u, 1.0)), st.cauchy.pdf(u)]) / scale

    total, error = integrate(f, [3.0, 0.0])
    np.testing.assert_allclose(total, 1, rtol=1e-7)
    assert (error < 1e-6).all()


def test_integrals_with_jumps():
    """Far better than what a density may miss the integral of one by."""
    total, _ = integrate(
        lambda x: (staircase_pdf(np.clip(x, -190, 190) - 0.3) * (np.abs(x) < 150))[None], [0.3]
    )
    assert abs(total[0] - 1) < _MORE / 100
