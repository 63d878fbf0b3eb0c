"""Posteriors of one parameter on a grid, beside those of `pm.sample`."""

import itertools
import math

import numpy as np
import pymc as pm
import pytest
import scipy.stats as st


def check_posterior(model, name, grid, posterior):
    """Sample a model, and compare mean and standard deviation with those of weights on a grid."""
    posterior = posterior / posterior.sum()
    mean = posterior @ grid
    sd = math.sqrt(posterior @ (grid - mean) ** 2)
    draws = pm.sample(
        4000, tune=1000, chains=2, cores=1, random_seed=5, progressbar=False, model=model
    ).posterior[name]
    assert abs(draws.mean().item() - mean) < 4.5 * sd / math.sqrt(float(pm.stats.ess(draws)))
    assert draws.std().item() == pytest.approx(sd, rel=0.1)


def check_histogram_posterior(declare, likelihood):
    """Four binomial records behind a histogram of their values, all of which can be listed.

    `declare(x)` declares the release; `likelihood(counts)` is its density given the histogram.
    """
    n, grid = 4, (np.arange(200) + 0.5) / 200
    posterior = np.zeros(200)
    for x in itertools.product(range(3), repeat=n):
        prior = np.prod([st.binom.pmf(v, 2, grid) for v in x], axis=0)
        posterior += prior * likelihood(np.bincount(x, minlength=3))
    with pm.Model() as model:
        p = pm.Uniform("p", 0, 1)
        declare(pm.Binomial("x", 2, p, shape=n))
    check_posterior(model, "p", grid, posterior)
