"""Calibrations against independent arithmetic: decimals with as many digits as it takes."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from pymc_dp.privacy._gaussian_curve import _minus_mills_slope
from pymc_dp.privacy.calibration import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rho,
    gaussian_sigma_analytic,
    gaussian_sigma_classic,
    gaussian_sigma_zcdp,
    laplace_epsilon,
    laplace_scale,
)

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899863")


def exact_delta(epsilon, sigma):
    """Return the privacy curve in decimal arithmetic, by the Taylor series of erf (small args)."""
    with localcontext() as context:
        context.prec = 80

        def phi_cdf(x):
            total, term, k = Decimal(0), x, 0
            while abs(term) > Decimal(10) ** -90:
                total += term / (2 * k + 1)
                k += 1
                term *= -x * x / (2 * k)
            return Decimal("0.5") + total / (2 * PI).sqrt()

        mu, e = 1 / Decimal(sigma), Decimal(epsilon)
        return phi_cdf(mu / 2 - e / mu) - e.exp() * phi_cdf(-mu / 2 - e / mu)


def test_golden_values():
    assert gaussian_sigma_analytic(1, 1e-6, 1) == pytest.approx(4.2247, abs=5e-5)
    assert gaussian_epsilon(1e-5, 1, 1) == pytest.approx(4.377, abs=5e-4)
    # noise multiplier 1 at delta = 1e-6, as other accountants give it
    assert gaussian_epsilon(1e-6, 1, 1) == pytest.approx(4.887, abs=5e-4)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 0.1, 1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2, 0.4, 0.9])
def test_analytic_sigma_to_ten_digits(epsilon, delta):
    sigma = gaussian_sigma_analytic(epsilon, delta, 1.0)
    # delta falls in sigma: the root is bracketed by two sigmas 2e-10 apart, decided exactly
    assert exact_delta(epsilon, sigma * (1 - 1e-10)) > Decimal(delta)
    assert exact_delta(epsilon, sigma * (1 + 1e-10)) < Decimal(delta)


@pytest.mark.parametrize(
    ("epsilon", "sigma"),
    [(1e-8, 0.2), (1e-8, 300.0), (0.01, 1.0), (0.01, 300.0), (1.0, 0.2), (1.0, 7.0), (20.0, 0.5)],
)
def test_delta_against_decimals(epsilon, sigma):
    exact = float(exact_delta(epsilon, sigma))
    assert gaussian_delta(epsilon, sigma, 1.0) == pytest.approx(exact, rel=1e-11)


def test_delta_is_the_hockey_stick_divergence():
    epsilon, sigma = 0.7, 1.3
    value, _ = quad(
        lambda z: max(norm.pdf(z, 1, sigma) - math.exp(epsilon) * norm.pdf(z, 0, sigma), 0),
        -20,
        20,
        points=[epsilon * sigma**2 + 0.5],
        epsabs=1e-13,
    )
    assert gaussian_delta(epsilon, sigma, 1.0) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("x", [-0.5, 0.0, 1.0, 7.0, 19.9, 20.1, 33.0, 1e3, 1e6])
def test_slope_of_mills_ratio(x):
    """1 - x M(x) is the integral of t exp(-x t - t^2/2), in which nothing cancels."""
    scale = 1 / max(x, 1.0)
    value, _ = quad(lambda u: u * math.exp(-x * scale * u - 0.5 * (scale * u) ** 2), 0, 60, epsabs=0)
    slope = _minus_mills_slope(np.array([x]))[0]
    assert slope == pytest.approx(value * scale**2, rel=2e-12)


def test_agrees_with_naive_root_finding():
    def curve(sigma):
        mu = 1 / sigma
        return norm.cdf(mu / 2 - 2 / mu) - math.exp(2) * norm.cdf(-mu / 2 - 2 / mu) - 1e-4

    assert gaussian_sigma_analytic(2, 1e-4, 1) == pytest.approx(brentq(curve, 0.1, 50), rel=1e-9)


@pytest.mark.parametrize("epsilon", [1e-10, 1e-4, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-6, 0.3])
def test_analytic_inverts_at_extremes(epsilon, delta):
    sigma = gaussian_sigma_analytic(epsilon, delta, 5.0)
    assert math.log(gaussian_delta(epsilon, sigma, 5.0)) == pytest.approx(math.log(delta), rel=1e-8)
    if epsilon > 1e-5:  # below, epsilon hardly moves delta and the inverse is ill-conditioned
        assert gaussian_epsilon(delta, sigma, 5.0) == pytest.approx(epsilon, rel=1e-10)


def test_epsilon_is_zero_where_delta_covers_everything():
    assert gaussian_epsilon(0.5, 10.0, 1.0) == 0.0


def test_scaling_with_sensitivity():
    for calibrate in (gaussian_sigma_analytic, gaussian_sigma_classic):
        assert calibrate(0.5, 1e-6, 3.0) == pytest.approx(3 * calibrate(0.5, 1e-6, 1.0))


@pytest.mark.parametrize("epsilon", np.geomspace(1e-4, 1, 6))
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.05, 0.5])
def test_classic_is_private_and_never_better(epsilon, delta):
    sigma = gaussian_sigma_classic(epsilon, delta, 1.0)
    assert gaussian_delta(epsilon, sigma, 1.0) <= delta
    assert sigma >= gaussian_sigma_analytic(epsilon, delta, 1.0)


def test_classic_beyond_one_would_not_be_private():
    epsilon, delta = 50.0, 1e-6
    formula = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert gaussian_delta(epsilon, formula, 1.0) > delta
    with pytest.raises(ValueError, match=r"epsilon <= 1 only.*analytic"):
        gaussian_sigma_classic(1.0001, 1e-6, 1.0)


def test_inverses():
    assert laplace_epsilon(laplace_scale(0.3, 7.0), 7.0) == pytest.approx(0.3)
    assert gaussian_rho(gaussian_sigma_zcdp(0.3, 7.0), 7.0) == pytest.approx(0.3)


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf])
def test_numbers_out_of_range(bad):
    for call in (
        lambda: laplace_scale(bad, 1),
        lambda: laplace_epsilon(bad, 1),
        lambda: laplace_scale(1, bad),
        lambda: gaussian_sigma_zcdp(bad, 1),
        lambda: gaussian_rho(bad, 1),
        lambda: gaussian_sigma_analytic(bad, 1e-6, 1),
        lambda: gaussian_sigma_classic(bad, 1e-6, 1),
    ):
        with pytest.raises(ValueError, match="must be a finite number > 0"):
            call()
    for call in (
        lambda: gaussian_sigma_analytic(1, bad, 1),
        lambda: gaussian_epsilon(bad, 1, 1),
    ):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            call()


@pytest.mark.parametrize("bad", ["1", None, True, [1.0], 1j])
def test_what_is_no_number(bad):
    with pytest.raises(TypeError, match="epsilon must be one real number"):
        laplace_scale(bad, 1)
