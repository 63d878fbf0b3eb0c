"""What a budget of private sampling buys: the figure that docstring and page give, beside real runs."""

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp

CLIP, SCALE_AT_TARGET = 2.0, 2.38
CHAINS = 4


def effective_draws(draws, rows, sd, noise_multiplier):
    """Effective draws of a logistic regression with one parameter, whose rows are never clipped."""
    x, y = rows
    with pm.Model():
        beta = pm.Normal("beta", 0, 2)
        dp.ConfidentialLikelihood(
            "y", lambda x: pm.Bernoulli.dist(logit_p=x * beta), data=y, covariates={"x": x}, clip=CLIP
        )
        step = dp.PenaltyMetropolis(noise_multiplier=noise_multiplier, insecure_noise_seed=draws)
        run = {"step": step, "random_seed": draws, "initvals": {"beta": 0.3}, "progressbar": False}
        idata = pm.sample(draws // CHAINS, tune=1000, chains=CHAINS, compute_convergence_checks=False, **run)
    assert idata.posterior["beta"].std() == pytest.approx(sd, rel=0.3)
    return float(az.ess(idata)["beta"])


@pytest.mark.statistical
def test_a_budget_buys_as_many_effective_draws_whatever_the_number_of_draws():
    rng = np.random.default_rng(3)
    x = np.clip(rng.normal(size=4000), -2, 2)
    p = 1 / (1 + np.exp(-0.3 * x))
    y = (rng.random(4000) < p).astype(int)
    sd = (x**2 * p * (1 - p)).sum() ** -0.5
    for draws, length in ((20_000, 0.6), (80_000, 0.3)):  # proposals, in standard deviations
        noise = SCALE_AT_TARGET / (2 * CLIP * length * sd)
        rho = draws / (2 * noise**2)
        stated = rho / (12 * (CLIP * sd) ** 2)
        assert stated == pytest.approx(212, rel=0.01)
        assert 0.5 < effective_draws(draws, (x, y), sd, noise) / stated < 2
