"""Records whose law depends on other records, and starts: nothing is drawn where there is no law."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from tests.mixtures import exact
from tests.mixtures.small import z_scores
from tests.statistics import harness
from tests.step_methods.test_random_atoms import marginal

Z, SCALE, DRAWS = np.array([0.05, 0.3, 0.9]), 0.3, 20_000
MEAN, SD = 0.5, 1.0


def _draws(step, model, names, seed=1):
    step.setup_chain(np.random.default_rng(seed), 100, DRAWS)
    point = model.initial_point()
    kept = {name: np.empty((DRAWS, len(Z))) for name in names}
    for t in range(-100, DRAWS):
        if t == 0:
            step.stop_tuning()
        point, _ = step.step(point)
        for name in names:
            if t >= 0:
                kept[name][t] = point[name]
    return kept


@pytest.mark.statistical
def test_a_record_that_is_the_shape_of_another():
    with pm.Model() as model:
        u = pm.Normal("u", MEAN, SD, shape=len(Z))
        y = pm.Beta("y", u, 2.0, default_transform=None)
        dp.LaplaceMechanism("z", y, scale=SCALE, observed=Z)
        step = dp.RecordImputation()
    kept = _draws(step, model, ["u", "y"])
    x, w = np.polynomial.legendre.leggauss(60)
    ends = np.array([0, 0.1, 0.5, 2, 8])
    half = np.diff(ends)[:, None] / 2
    shape = (ends[:-1, None] + half * (1 + x)).ravel()
    prior = (half * w).ravel() * stats.norm.pdf(shape, MEAN, SD)
    g, first, _ = exact.beta_given_release(Z, shape, 2.0 + 0 * shape, SCALE) * prior
    total = g.sum(axis=1)
    checks = z_scores(kept["u"], g @ shape / total, "u") | z_scores(kept["y"], first.sum(axis=1) / total, "y")
    verdict = harness.two_sample_z(checks, 1e-4)
    assert verdict.passed, verdict
    assert (kept["u"] > 0).all()


@pytest.mark.statistical
def test_chains_start_where_records_have_a_law():
    """Jitter takes shapes out of the domain, where draws would not come to an end."""
    with pm.Model() as model:
        a, b = (pm.Normal(name, 0.6, 1) for name in ("a", "b"))
        y = pm.Beta("y", a, b, shape=len(Z), default_transform=None)
        dp.LaplaceMechanism("z", y, scale=SCALE, observed=Z)
        step = dp.RecordImputation()
    for seed in range(30):
        step.setup_chain(np.random.default_rng(seed), 10, 10)
        point, _ = step.step(model.initial_point())
        assert point["a"] > 0 and point["b"] > 0, seed


@pytest.mark.statistical
def test_a_start_outside_of_the_domain_is_refused():
    with pm.Model() as model:
        y = pm.Beta("y", pm.Normal("a", -20.0, 1), 2.0, shape=len(Z), default_transform=None)
        dp.LaplaceMechanism("z", y, scale=SCALE, observed=Z)
        step = dp.RecordImputation()
    with pytest.raises(ValueError, match="records y have no law at the starting values"):
        step.step(model.initial_point())


# Vectors of four people, released with noise, and a factor of their covariance.
VECTORS, NOISE = np.array([[1.0, 2.0], [-1.0, 0.5], [3.0, 2.5], [0.0, -1.0]]), 0.5
FACTOR = np.linalg.cholesky([[1.0, 0.6], [0.6, 2.0]])


def scaled(s):
    return s * FACTOR


def one_of_two_scaled(s):
    return pt.stack([pt.stack([s, 0.0]), pt.stack([0.0, 1.0])])


def vectors(factor, s):
    return pm.MvNormal("y", [0.3, 0.0], chol=factor(s), shape=(4, 2), initval=VECTORS)


def the_end_of_walks(factor, s):
    start = pm.MvNormal.dist([0.3, 0.0], 0.5 * np.eye(2))
    walk = pm.MvGaussianRandomWalk("y", np.zeros(2), chol=factor(s), init_dist=start, shape=(4, 3, 2))
    return walk[:, -1, :]


def covariance(declare, factor, s):
    root = np.diag([s, 1.0]) if factor is one_of_two_scaled else factor(s)
    steps = root @ root.T
    return steps if declare is vectors else 0.5 * np.eye(2) + 2 * steps


@pytest.mark.parametrize(
    ("declare", "factor"),
    [
        (vectors, scaled),
        pytest.param(vectors, one_of_two_scaled, marks=pytest.mark.statistical),
        pytest.param(the_end_of_walks, scaled, marks=pytest.mark.statistical),
    ],
)
def test_scales_of_a_factor_are_positive(declare, factor):
    """In PyMC's density they are. Of the draws of s, .224 were negative."""
    s = np.arange(0.01, 6, 0.02)
    noise = NOISE**2 * np.eye(2)
    logp = [
        stats.multivariate_normal([0.3, 0.0], covariance(declare, factor, each) + noise).logpdf(VECTORS).sum()
        for each in s
    ]
    exact = {"s": marginal(s, np.exp(logp) * stats.norm.pdf(s, 0.5, 1))}
    with pm.Model() as model:
        y = declare(factor, pm.Normal("s", 0.5, 1, initval=0.7))
        dp.GaussianMechanism("z", y, sigma=NOISE, observed=VECTORS)
        negative = {**model.initial_point(), "s": np.array(-0.7)}
        assert model.compile_logp(mode="FAST_COMPILE")(negative) == -np.inf
        idata = pm.sample(
            4000, tune=1000, chains=2, cores=1, random_seed=2, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert (idata.posterior["s"] > 0).all()
    verdict = harness.mc_z(idata.posterior["s"].values, exact["s"], minimum_ess=150)
    assert verdict.passed, verdict


def test_scales_of_a_cluster_are_positive():
    """All records are of one cluster; its scale was negative in .2 of the draws."""
    s = np.arange(0.01, 6, 0.02)
    noise = NOISE**2 * np.eye(2)
    logp = [
        stats.multivariate_normal([0.3, 0.0], each**2 * FACTOR @ FACTOR.T + noise).logpdf(VECTORS).sum()
        for each in s
    ]
    exact = marginal(s, np.exp(logp) * stats.norm.pdf(s, 0.5, 1))
    with pm.Model():
        labels = dp.ChineseRestaurantProcess("labels", concentration=1e-9, shape=4, max_components=2)
        scales = pm.Normal("s", 0.5, 1, shape=2, initval=[0.7, 0.7])
        y = pm.MvNormal("y", [0.3, 0.0], chol=scales[labels][:, None, None] * FACTOR, shape=(4, 2))
        dp.GaussianMechanism("z", y, sigma=NOISE, observed=VECTORS)
        idata = pm.sample(
            4000, tune=500, chains=2, cores=1, random_seed=2, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    cluster = idata.posterior["labels"].values[..., :1].astype(int)
    draws = np.take_along_axis(idata.posterior["s"].values, cluster, axis=-1)[..., 0]
    assert (draws > 0).all()
    verdict = harness.mc_z(draws, exact, minimum_ess=150)
    assert verdict.passed, verdict
