"""Posteriors of parameters behind noise on whole numbers, by pm.sample, beside quadrature."""

import math

import numpy as np
import pymc as pm
import pytest
import scipy.stats as st
from scipy.integrate import trapezoid

import pymc_dp as dp


def beta_binomial_pmf(m, theta, a, b):
    """Law of a binomial release of a Beta(a, b) record: BetaBinomial(N) + Binomial(m - N, 1/2)."""
    out = np.zeros(m + 1)
    for n in range(m + 1):
        parts = np.convolve(
            st.betabinom.pmf(np.arange(n + 1), n, a, b), st.binom.pmf(np.arange(m - n + 1), m - n, 0.5)
        )
        out += st.binom.pmf(n, m, 2 * theta) * parts
    return out


def binomial_of_beta():
    m, theta, z = 8, 0.35, [7, 5, 8, 6, 7, 2]
    with pm.Model() as model:
        a = pm.Gamma("parameter", 3, 1)
        y = pm.Beta("y", a, 1.5, shape=len(z))
        dp.BinomialMechanism("z", y, n_trials=m, theta=theta, observed=z)
    grid = np.linspace(0.01, 18, 600)
    log_density = [st.gamma.logpdf(v, 3) + np.log(beta_binomial_pmf(m, theta, v, 1.5)[z]).sum() for v in grid]
    return model, grid, np.array(log_density)


def noise_on_poisson(kind, **noise):
    z = np.array([4, 9, -2, 6, 3])
    with pm.Model() as model:
        rate = pm.Gamma("parameter", 2, 0.5)
        x = pm.Poisson("x", rate, shape=z.size)
        kind("z", x, **noise, observed=z)
    grid, x = np.linspace(0.01, 30, 600), np.arange(80)
    level = next(iter(noise.values()))
    power = 2 if kind is dp.DiscreteGaussianMechanism else 1
    channel = np.exp(-((np.abs(z[:, None] - np.clip(x, 0, 10)) / level) ** power) / power)
    log_density = [
        st.gamma.logpdf(v, 2, scale=2) + np.log(channel @ st.poisson.pmf(x, v)).sum() for v in grid
    ]
    return model, grid, np.array(log_density)


CASES = {
    "binomial of beta": binomial_of_beta,
    "discrete Laplace": lambda: noise_on_poisson(dp.DiscreteLaplaceMechanism, scale=3.0, bounds=(0, 10)),
    "little discrete Laplace": lambda: noise_on_poisson(
        dp.DiscreteLaplaceMechanism, scale=0.4, bounds=(0, 10)
    ),
    "discrete Gaussian": lambda: noise_on_poisson(dp.DiscreteGaussianMechanism, sigma=1.3, bounds=(0, 10)),
}


@pytest.mark.statistical
@pytest.mark.parametrize("case", CASES)
def test_posterior_of_a_parameter(case):
    model, grid, log_density = CASES[case]()
    weights = np.exp(log_density - log_density.max())
    weights /= trapezoid(weights, grid)
    with model:
        idata = pm.sample(5000, tune=1000, chains=2, cores=1, random_seed=8, progressbar=False)
    draws = idata.posterior["parameter"].values
    for power in (1, 2):
        exact = trapezoid(weights * grid**power, grid)
        x = draws**power
        assert abs(x.mean() - exact) < 5 * x.std() / math.sqrt(float(pm.stats.ess(x)))
