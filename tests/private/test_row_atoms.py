"""Laws of confidential rows with values of positive probability: refused where PyMC's density is wrong."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from tests.step_methods.test_repeated_values import capped, capped_logp

RNG = np.random.default_rng(2)
ROWS = np.where(RNG.random(200) < 0.4, 0.0, RNG.normal(0.3, 1, 200))
COVARIATE = np.linspace(0.5, 1.5, 200)

D, N = pm.DiracDelta.dist, pm.Normal.dist


def weights(w):
    return pm.math.stack([w, 1 - w])


def declared(law, rows=ROWS, **kwargs):
    with pm.Model() as model:
        w, mu = pm.Uniform("w"), pm.Normal("mu")
        dp.ConfidentialLikelihood("x", law(w, mu), rows, clip=20, **kwargs)
    return model


ADDED = {
    "an atom among normal numbers": (lambda w, mu: pm.Mixture.dist(weights(w), [D(0.0), N(mu, 1)]), {}),
    "with covariates": (
        lambda w, mu: lambda a: pm.Mixture.dist(weights(w), [D(0.0), N(mu * a, 1)]),
        {"covariates": {"a": COVARIATE}},
    ),
    "an atom in a mixture within another": (
        lambda w, mu: pm.Mixture.dist([0.5, 0.5], [pm.Mixture.dist(weights(w), [D(0.0), N(mu, 1)]), N(1, 1)]),
        {},
    ),
    "an atom within a censored law": (
        lambda w, mu: pm.Censored.dist(pm.Mixture.dist(weights(w), [D(0.0), N(mu, 1)]), -9, 9),
        {},
    ),
    "laws censored at two places": (
        lambda w, mu: pm.Mixture.dist(weights(w), [pm.Censored.dist(N(mu, 1), k, None) for k in (0, -1)]),
        {"rows": np.abs(ROWS)},
    ),
}


@pytest.mark.parametrize(("law", "how"), ADDED.values(), ids=ADDED)
def test_probabilities_and_densities_are_not_added(law, how):
    with pytest.raises(ValueError, match=r"dist of 'x' is a mixture .*pm\.CustomDist\.dist\(w, mu, logp=f\)"):
        declared(law, **how)


MOVED = {
    "an end": (lambda w, mu: pm.Censored.dist(N(mu, 1), None, w), {}),
    "a constant": (lambda w, mu: pm.Mixture.dist([0.4, 0.6], [D(w), pm.Uniform.dist(-9 + mu, -8)]), {}),
    "an inequality": (lambda w, mu: pm.CustomDist.dist(mu, w, logp=capped_logp, random=capped), {}),
    "a place that jumps": (
        lambda w, mu: pm.CustomDist.dist(mu, pt.floor(3 * w), logp=capped_logp, random=capped),
        {},
    ),
    "an inequality without draws": (lambda w, mu: pm.CustomDist.dist(mu, w, logp=capped_logp), {}),
    "an inequality that jumps, without draws": (
        lambda w, mu: pm.CustomDist.dist(mu, pt.floor(3 * w), logp=capped_logp),
        {},
    ),
    "an inequality for each row, without draws": (
        lambda w, mu: lambda a: pm.CustomDist.dist(mu, w * a, logp=capped_logp),
        {"covariates": {"a": COVARIATE}},
    ),
    "an equation without draws": (
        lambda w, mu: pm.CustomDist.dist(
            mu,
            w,
            logp=lambda x, mu, w: pt.switch(pt.eq(x, w), np.log(0.3), np.log(0.7) + pm.logp(N(mu, 1), x)),
        ),
        {},
    ),
    "an end for each row": (
        lambda w, mu: lambda a: pm.Censored.dist(N(mu, 1), None, w * a),
        {"covariates": {"a": COVARIATE}},
    ),
}


@pytest.mark.parametrize(("law", "how"), MOVED.values(), ids=MOVED)
def test_places_that_parameters_say_are_refused(law, how):
    with pytest.raises(ValueError, match=r"dist of 'x' has values of .* depend on w .*Give these places"):
        declared(law, **how)


TAKEN = {
    "fixed ends": (lambda w, mu: pm.Censored.dist(N(mu, w), 0, None), {"rows": np.maximum(ROWS, 0)}),
    "ends by row": (
        lambda w, mu: lambda a: pm.Censored.dist(N(mu, w), None, a),
        {"rows": np.minimum(ROWS, COVARIATE), "covariates": {"a": COVARIATE}},
    ),
    "a hurdle": (lambda w, mu: pm.HurdleGamma.dist(w, pt.exp(mu), 1), {"rows": np.abs(ROWS)}),
    "monotone functions of normal numbers": (
        lambda w, mu: pm.Mixture.dist(
            weights(w),
            [
                pm.LogitNormal.dist(mu, 1),
                pm.CustomDist.dist(mu, dist=lambda m, size: pt.exp(pm.Normal.dist(m, 1, size=size))),
            ],
        ),
        {"rows": 0.2 + 0.1 * np.abs(np.tanh(ROWS))},
    ),
    "a mixture within another": (
        lambda w, mu: pm.Mixture.dist(
            [0.5, 0.5], [pm.Mixture.dist(weights(w), [N(mu, 1), N(2, 1)]), N(1, 1)]
        ),
        {},
    ),
    "a mixture within a censored law": (
        lambda w, mu: pm.Censored.dist(pm.Mixture.dist(weights(w), [N(mu, 1), N(2, 1)]), 0, None),
        {"rows": np.maximum(ROWS, 0)},
    ),
    "an atom outside": (
        lambda w, mu: pm.Mixture.dist(weights(w), [D(-1.0), pm.Exponential.dist(pt.exp(mu))]),
        {"rows": np.where(ROWS < 0, -1, ROWS)},
    ),
    "a fixed end without draws": (
        lambda w, mu: pm.CustomDist.dist(mu + w, 0.5, logp=capped_logp),
        {"rows": np.minimum(ROWS, 0.5)},
    ),
    "an end for each row without draws": (
        lambda w, mu: lambda a: pm.CustomDist.dist(mu + w, a, logp=capped_logp),
        {"rows": np.minimum(ROWS, COVARIATE), "covariates": {"a": COVARIATE}},
    ),
    "an atom and a support without draws": (
        lambda w, mu: pm.CustomDist.dist(
            mu,
            w,
            logp=lambda x, mu, w: pt.switch(
                x <= 0, np.log(0.4), pt.switch(x < pt.exp(mu + w), np.log(0.6) - mu - w, -np.inf)
            ),
        ),
        {"rows": np.maximum(ROWS, 0)},
    ),
    "a floor of the density": (
        lambda w, mu: pm.CustomDist.dist(mu, w, logp=lambda x, mu, w: pt.maximum(pm.logp(N(mu, w), x), -30)),
        {},
    ),
    "heavy tails": (
        lambda w, mu: pm.CustomDist.dist(
            mu, w, logp=lambda x, mu, w: pm.logp(pm.StudentT.dist(0.5, mu=mu, sigma=w), x)
        ),
        {},
    ),
    "a step of a density": (
        lambda w, mu: pm.CustomDist.dist(
            mu, w, logp=lambda x, mu, w: pt.switch(x > mu, pt.log(w), pt.log1p(-w)) + pm.logp(N(mu, 1), x)
        ),
        {},
    ),
    "laws censored at the same place": (
        lambda w, mu: pm.Mixture.dist(weights(w), [pm.Censored.dist(N(k * mu, 1), 0, None) for k in (1, 2)]),
        {"rows": np.abs(ROWS)},
    ),
    "a density without draws": (
        lambda w, mu: pm.CustomDist.dist(mu, w, logp=lambda x, mu, w: -(((x - mu) / w) ** 2) / 2 - pt.log(w)),
        {},
    ),
}


@pytest.mark.parametrize(("law", "how"), TAKEN.values(), ids=TAKEN)
def test_other_laws_are_taken(law, how):
    assert "x" in declared(law, **how).named_vars


def zero_or_normal(value, w, mu):
    return pt.switch(pt.eq(value, 0), pt.log(w), pt.log1p(-w) + pm.logp(pm.Normal.dist(mu, 1), value))


def test_the_density_by_hand_is_exact():
    """What the refusal recommends; added up, the weight came out as 0.03."""
    model = declared(lambda w, mu: pm.CustomDist.dist(w, mu, logp=zero_or_normal))
    zeros, others = np.sum(ROWS == 0), ROWS[ROWS != 0]
    exact = {"w": (1 + zeros) / (2 + len(ROWS)), "mu": others.sum() / (1 + len(others))}
    with model:
        idata = pm.sample(
            4000, tune=1000, chains=1, step=[dp.PenaltyMetropolis(noise_multiplier=1e-3)], progressbar=False,
            quiet=True, random_seed=1, compute_convergence_checks=False,
        )  # fmt: skip
    error = az.mcse(idata)
    for name, mean in exact.items():
        assert abs(float(idata.posterior[name].mean()) - mean) < 4 * float(error[name]), name


def test_a_mixture_of_censored_laws_is_exact():
    """Its density is PyMC's, a sum of probabilities at 0: quadrature over the weight and a mean."""
    rng = np.random.default_rng(3)
    rows = np.maximum(np.where(rng.random(200) < 0.6, rng.normal(-0.3, 1, 200), rng.normal(2, 0.5, 200)), 0)
    mus, ws = np.linspace(-2, 2, 201), (np.arange(200) + 0.5) / 200

    def densities(mean, sd):
        return np.where(rows == 0, stats.norm.cdf(0, mean, sd), stats.norm.pdf(rows, mean, sd))

    second = densities(2, 0.5)
    log_posterior = stats.norm.logpdf(mus)[:, None] + [
        np.log(np.outer(ws, densities(mu, 1)) + np.outer(1 - ws, second)).sum(axis=1) for mu in mus
    ]
    posterior = np.exp(log_posterior - log_posterior.max())
    exact = {
        "mu": np.average(mus, weights=posterior.sum(axis=1)),
        "w": np.average(ws, weights=posterior.sum(axis=0)),
    }

    def law(w, mu):
        return pm.Mixture.dist(
            weights(w), [pm.Censored.dist(N(mu, 1), 0, None), pm.Censored.dist(N(2, 0.5), 0, None)]
        )

    with declared(law, rows):
        idata = pm.sample(
            4000, tune=1000, chains=1, step=[dp.PenaltyMetropolis(noise_multiplier=1e-3)], progressbar=False,
            quiet=True, random_seed=1, compute_convergence_checks=False,
        )  # fmt: skip
    error = az.mcse(idata)
    for name, mean in exact.items():
        assert abs(float(idata.posterior[name].mean()) - mean) < 4 * float(error[name]), name
