"""Posteriors through `pm.sample`'s default steps, against long runs of independent programs.

Every test needs the folder of reference answers and skips without it (see ``tests/conftest.py``).
"""

import json

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from examples import paper003
from tests.statistics import harness

pytestmark = pytest.mark.reference

QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def sample(model, draws, tune=1000):
    """Run two chains with the steps that PyMC assigns."""
    return pm.sample(
        draws,
        tune=tune,
        chains=2,
        cores=1,
        model=model,
        random_seed=20260103,
        progressbar=False,
        compute_convergence_checks=False,
    ).posterior.to_dataset()


def compare(draws, answer, name):
    """z-scores of draws (chain, draw) of one parameter, from the Monte Carlo errors of both sides.

    Exact answers have no errors of their own.
    """
    ours = {
        "mean": (draws.mean(), az.mcse(draws, method="mean")),
        "sd": (draws.std(), az.mcse(draws, method="sd")),
        **{
            key: (np.quantile(draws, p), az.mcse(draws, method="quantile", prob=p))
            for key, p in QUANTILES.items()
        },
    }
    return {
        f"{name} {key}": (value - answer[key]) / np.hypot(float(error), answer.get(f"mcse_{key}", 0.0))
        for key, (value, error) in ours.items()
    }


def check(checks, posterior, names, minimum_ess=400):
    verdict = harness.two_sample_z(checks)
    assert verdict.passed, verdict
    found = az.ess(posterior[names])
    ess = min(float(found[name].min()) for name in names)
    assert ess > minimum_ess, f"only {ess:.0f} effective draws: the comparison says little"


def test_the_regression_query_is_the_authors(reference):
    """The real confidential rows give the statistics behind the stored release."""
    rows = read(reference, "repo_linearregression_XY_N100p2")
    x, y = np.array(rows["X"])[:, 1:], np.ravel(rows["Y"])
    stored = read(reference, "linear_regression_eps10")
    sums = paper003.regression_contributions(x, y, np.clip, np.stack).sum(axis=0)
    np.testing.assert_allclose(sums, stored["clean_statistics"], rtol=1e-10)
    assert paper003.SENSITIVITY == stored["delta_sensitivity"]
    np.testing.assert_array_equal(paper003.BETA, stored["beta_true"])
    np.testing.assert_array_equal(paper003.PREDICTOR_MEAN, stored["model_x"]["mean"])


@pytest.mark.statistical
def test_linear_regression(reference):
    answers = read(reference, "linear_regression_eps10")
    model = paper003.regression_model(answers["eps"], np.array(answers["sdp"]))
    posterior = sample(model, 3000)
    checks = {}
    for j in range(3):
        draws = posterior["beta"].values[:, :, j]
        checks |= compare(draws, answers["cpp"]["posterior"][f"beta{j}"], f"beta{j}")
    check(checks, posterior, ["beta"])


def test_the_naive_bayes_parameters_are_the_authors(reference):
    stored = read(reference, "repo_loglinear_datageneratingparameters")
    q = np.array(stored["pijk"]).transpose(0, 2, 1)
    np.testing.assert_allclose(paper003.CLASS_PROBABILITIES, stored["p"], atol=1e-5)
    np.testing.assert_allclose(paper003.ANSWER_PROBABILITIES, q, atol=1e-5)


@pytest.mark.statistical
@pytest.mark.parametrize("program", ["cpp", "dapper"])
def test_naive_bayes(reference, naive_bayes_posterior, program):
    answers = read(reference, "loglinear_naive_bayes_eps1")[program]["posterior"]
    p, q = (naive_bayes_posterior[name].values for name in "pq")
    checks = {}
    for i in range(paper003.CLASSES):
        checks |= compare(p[..., i], answers[f"p[{i + 1}]"], f"p{i}")
    for k, i, j in np.ndindex(q.shape[2:]):
        name = f"q[k{k + 1},i{i + 1},j{j + 1}]"
        checks |= compare(q[:, :, k, i, j], answers[name], name)
    check(checks, naive_bayes_posterior, ["p", "q"])


@pytest.fixture(scope="module")
def naive_bayes_posterior(reference):
    """Both stored posteriors belong to one release: sample once."""
    answers = read(reference, "loglinear_naive_bayes_eps1")
    model = paper003.naive_bayes_model(answers["eps"], np.array(answers["sdp"]))
    return sample(model, 10_000)


def test_normal_mean(reference):
    answers = read(reference, "normal_mean_roxygen")
    n = answers["n"]
    with pm.Model() as model:
        mu = pm.Normal("mu", answers["prior"]["mean"], answers["prior"]["var"] ** 0.5)
        x = pm.Normal("x", mu, answers["data_sd"], shape=n)
        dp.GaussianMechanism("release", x.mean(), sigma=answers["noise_sd_on_mean"], observed=answers["sdp"])
    posterior = sample(model, 3000)
    draws = posterior["mu"].values
    checks = compare(draws, answers["exact"], "exact")
    checks |= compare(draws, answers["dapper"]["posterior"]["mu"], "dapper")
    check(checks, posterior, ["mu"])
