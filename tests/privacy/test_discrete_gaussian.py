"""The exact (epsilon, delta) curve of discrete Gaussian noise."""

import math

import numpy as np
import pytest

from pymc_dp.privacy.calibration import gaussian_delta
from pymc_dp.privacy.discrete_gaussian import (
    discrete_gaussian_delta,
    discrete_gaussian_epsilon,
    log_normaliser,
)


def brute_force(epsilon, sigma, shift):
    k = np.arange(-4000, 4001, dtype=np.longdouble)
    p = np.exp(-0.5 * (k / sigma) ** 2)
    q = np.exp(-0.5 * ((k - shift) / sigma) ** 2)
    return float(np.maximum(p - np.exp(np.longdouble(epsilon)) * q, 0).sum() / p.sum())


@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.0, 5.0, 60.0])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 6.0])
@pytest.mark.parametrize("shift", [1, 2, 9])
def test_delta_is_the_hockey_stick_divergence(epsilon, sigma, shift):
    exact = brute_force(epsilon, sigma, shift)
    assert discrete_gaussian_delta(epsilon, sigma, shift) == pytest.approx(exact, rel=1e-10, abs=1e-300)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 20.0])
def test_smaller_changes_cost_less(sigma):
    costs = [discrete_gaussian_delta(0.5, sigma, shift) for shift in (1, 2, 3, 4)]
    assert costs == sorted(costs)


@pytest.mark.parametrize("delta", [1e-10, 1e-6, 0.01, 0.3])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 10.0, 1000.0])
def test_epsilon_inverts_delta(delta, sigma):
    epsilon = discrete_gaussian_epsilon(delta, sigma, 1)
    if epsilon > 0:
        assert discrete_gaussian_delta(epsilon, sigma, 1) == pytest.approx(delta, rel=1e-8)
        # never more than the conversion of zero-concentrated privacy
        rho = 0.5 / sigma**2
        assert epsilon <= rho + 2 * math.sqrt(-rho * math.log(delta))
    else:
        assert brute_force(0.0, sigma, 1) <= delta


def test_large_scales_approach_the_continuous_law():
    assert discrete_gaussian_delta(0.01, 300.0, 1) == pytest.approx(gaussian_delta(0.01, 300.0, 1), rel=1e-2)
    assert discrete_gaussian_delta(0.5, 3000.0, 1000) == pytest.approx(
        gaussian_delta(0.5, 3000.0, 1000), rel=1e-2
    )


@pytest.mark.parametrize("sigma", [1e-3, 0.2, 0.39, 0.41, 1.0, 77.7])
def test_normaliser(sigma):
    k = np.arange(-8000, 8001, dtype=np.longdouble)
    assert log_normaliser(sigma) == pytest.approx(
        float(np.log(np.exp(-0.5 * (k / sigma) ** 2).sum())), abs=1e-14
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 1, 1), ValueError, "epsilon must be a finite number > 0"),
        ((1, -1, 1), ValueError, "sigma must be a finite number > 0"),
        ((1, 1, 1.5), ValueError, "sensitivity must be a whole number .* got 1.5"),
        ((1, 1e7, 1), ValueError, "makes the exact sum too long"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        discrete_gaussian_delta(*arguments)


def test_bad_delta():
    with pytest.raises(ValueError, match="delta must be strictly between 0 and 1"):
        discrete_gaussian_epsilon(1.0, 1.0, 1)
