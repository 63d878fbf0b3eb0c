"""Models with confidential rows whose posterior is known, and steps driven without PyMC's loop."""

import warnings

import numpy as np
import pymc as pm
from scipy.special import logsumexp

import pymc_dp as dp
from tests.statistics.marginal import from_log_density, gauss_panels


def normal_rows(n=12, seed=3):
    return np.random.default_rng(seed).normal(0.7, 1.0, n)


def normal_model(rows, clip=12.0, **kwargs):
    """Mean of normal rows, N(0, 2^2) a priori."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), data=rows, clip=clip, **kwargs)
    return model


def normal_posterior(rows, temper=1.0):
    """Mean and standard deviation."""
    precision = 1 / 4 + temper * len(rows)
    return temper * np.sum(rows) / precision, precision**-0.5


def banana_model(rows, clip=60.0, **kwargs):
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1.5, shape=2)
        middle = pm.math.stack([theta[0], theta[1] + theta[0] ** 2])
        dp.ConfidentialLikelihood("x", pm.Normal.dist(middle, 1.0), data=rows, clip=clip, **kwargs)
    return model


def banana_posterior(rows):
    """Marginals of both parameters: the second is normal given the first."""
    n, (first, second) = len(rows), rows.mean(axis=0)

    def of_first(a):
        spread = 1.5**2 + 1 / n
        return -(a**2) / (2 * 1.5**2) - n * (first - a) ** 2 / 2 - (second - a**2) ** 2 / (2 * spread)

    a, weight = (v.ravel() for v in gauss_panels(np.linspace(-5, 5, 201)))
    mass = weight * np.exp(of_first(a) - of_first(a).max())
    precision = 1 / 1.5**2 + n
    mean = (second - a**2) * n / precision

    def of_second(b):
        return logsumexp(-0.5 * precision * (b[:, None] - mean) ** 2, b=mass, axis=1)

    return from_log_density(of_first, -5, 5), from_log_density(of_second, -15, 10)


def driven(step_type, model, noise_multiplier, seed=1, **kwargs):
    """A step with noise that can be repeated, at the beginning of a chain without an end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = step_type(
            model=model, noise_multiplier=noise_multiplier, insecure_noise_seed=seed, adapt=False, **kwargs
        )
        step.setup_chain(np.random.default_rng(seed), 0, 10**9)
    return step


def penalty(model, noise_multiplier, seed=1, **kwargs):
    return driven(dp.PenaltyMetropolis, model, noise_multiplier, seed, **kwargs)


def hmc(model, noise_multiplier, seed=1, **kwargs):
    return driven(dp.PrivateHMC, model, noise_multiplier, seed, **kwargs)


def run(step, draws, start=None, burn=200):
    """Draws of the flat parameters, shape (draws, d), and the share of accepted moves."""
    step._at = step._kept = None  # the chain goes on from another point
    point = dict(step.model.initial_point())
    point.update(start or {})
    out, accepted = np.empty((draws, step.layout.size)), 0
    for k in range(-burn, draws):
        point, (stats,) = step.step(point)
        if k >= 0:
            out[k] = step.layout.flatten(point)
            accepted += stats["private_accepted"]
    return out, accepted / draws
