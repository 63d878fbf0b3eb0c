"""Whole posteriors through `pm.sample` on linear Gaussian models, where all of them are known.

Every variable of these models is normal given the others, and every release has Gaussian noise, so the
posterior of everything is normal. Its mean and precision are read off the gradient of the model's own
log density, which is affine: no formula per model, and no quantity left out of the comparison.
"""

from __future__ import annotations

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy import stats

import pymc_dp as dp

pytestmark = pytest.mark.compiles(2)

PYTHON = Mode(linker="py", optimizer="fast_compile")
A = np.random.default_rng(3).normal(size=(12, 2))
CASES = {}


def case(statistical=False, **sampling):
    def register(declare):
        name = declare.__name__.replace("_", " ")
        CASES[name] = (declare, sampling, statistical)
        return declare

    return register


def release(query, name="z", sigma=1.0, at=1.0):
    query = pt.as_tensor_variable(query)
    observed = np.full(tuple(query.shape.eval(mode="FAST_COMPILE")), at)
    dp.GaussianMechanism(name, query, sigma=sigma, observed=observed)


@case(statistical=True)
def one_record():
    release(pm.Normal("x", pm.Normal("mu"), 1, shape=1).sum())


@case(statistical=True)
def two_blocks_share_a_parameter():
    mu = pm.Normal("mu")
    release(pm.Normal("x", mu, 1, shape=8).sum(), "a", at=4.0)
    release(pm.Normal("y", 2 * mu, 0.5, shape=5), "b", sigma=0.5)


@case()
def disjoint_rows_and_a_common_total():
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=9)
    release(x[:4].sum(), "a", at=3.0)
    release(x[4:].mean(), "b", sigma=0.3, at=-0.5)
    release(x[2:6], "c", sigma=0.7)


@case()
def hierarchy():
    top = pm.Normal("top")
    m = pm.Normal("m", top, 1, shape=3)
    y = pm.Normal("y", m[np.arange(12) % 3], 0.8)
    release(pt.stack([y[k::3].sum() for k in range(3)]), sigma=1.5, at=2.0)


@case()
def masked_covariate():
    known = np.ma.masked_invalid([0.3, np.nan, -1.0, 2.0, np.nan, 0.1])
    x = pm.Normal("x", pm.Normal("mu"), 1, observed=known)
    y = pm.Normal("y", 0.7 * x + pm.Normal("a"), 0.5)
    release(y.sum(), at=3.0)


@case(statistical=True)
def partly_known_records():
    known = np.ma.masked_invalid([0.3, np.nan, -1.0, 2.0, np.nan, 0.1])
    release(pm.Normal("x", pm.Normal("mu"), 1, observed=known).sum(), sigma=0.5, at=4.0)


@case()
def other_terms_on_records():
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=6)
    pm.Normal("seen", 0.5 * x, 1, observed=A[:6, 0])
    pm.Normal("unseen", x, 0.5, shape=6)
    pm.Potential("p", -0.3 * (x - 1) ** 2)
    release(x.sum(), at=5.0)


@case()
def regression_on_known_covariates():
    b = pm.Normal("b", shape=2)
    a = pm.Data("a", A)
    y = pm.Normal("y", a @ b, 1)
    release(a.T @ y, sigma=2.0, at=3.0)


@case()
def latent_parents():
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=8)
    release(pm.Normal("y", x + A[:8, 0], 0.6).sum(), at=6.0)


@case()
def vector_records():
    cov = np.array([[1.0, 0.5], [0.5, 2.0]])
    x = pm.MvNormal("x", pm.Normal("mu", shape=2), cov, shape=(7, 2))
    release(x.sum(axis=0), sigma=1.5, at=2.0)


@case(statistical=True)
def two_axes():
    x = pm.Normal("x", pm.Normal("mu", shape=(2, 2)), 1, shape=(5, 2, 2))
    release(x.sum(axis=0), at=2.0)
    release(x[:, 0], "rows", sigma=2.0)


@case()
def parameter_in_the_query():
    b = pm.Normal("b", shape=2)
    y = pm.Normal("y", A[:6] @ b, 1)
    release((y - 0.5 * A[:6] @ b).sum(), sigma=0.5, at=2.0)


@case(statistical=True)
def a_sum_that_is_not_recognised():
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=6)
    release(pt.cumsum(x)[-1], at=4.0)


@case(statistical=True)
def a_function_of_sums_that_is_a_sum():
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=6)
    release(pt.log(pt.exp(x.sum())), at=4.0)


@case(statistical=True, step="nuts")
def no_parameters_updated_by_us():
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=6)
    release(x, sigma=0.4)


def exact_posterior(model):
    """Names (one per entry), means and covariance of all free variables."""
    point = model.initial_point()
    gradient = model.compile_dlogp(mode=PYTHON)
    names = [v.name for v in model.continuous_value_vars]
    sizes = [np.size(point[n]) for n in names]

    def at(z):
        parts = np.split(z, np.cumsum(sizes)[:-1])
        values = {n: p.reshape(np.shape(point[n])) for n, p in zip(names, parts, strict=True)}
        return gradient({**point, **values})

    zero, unit = np.zeros(sum(sizes)), np.eye(sum(sizes))
    start = at(zero)
    precision = np.array([start - at(e) for e in unit])
    probe = np.random.default_rng(0).normal(size=zero.size)
    np.testing.assert_allclose(at(probe), start - precision @ probe, rtol=1e-6, atol=1e-6)
    covariance = np.linalg.inv(precision)
    return names, sizes, covariance @ start, covariance


def parameters():
    for name, (_, _, statistical) in CASES.items():
        yield pytest.param(name, marks=[pytest.mark.statistical] if statistical else [], id=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(parameters()))
def test_posterior_of_everything(name):
    declare, sampling, _ = CASES[name]
    with pm.Model() as model:
        declare()
        step = [pm.NUTS([model["mu"]])] if sampling.get("step") == "nuts" else None
        idata = pm.sample(
            2500, tune=700, chains=2, cores=1, step=step, random_seed=11, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    names, sizes, mean, covariance = exact_posterior(model)
    draws = np.concatenate(
        [idata.posterior[n].values.reshape(2, 2500, s) for n, s in zip(names, sizes, strict=True)],
        axis=2,
    )
    sd = np.sqrt(np.diag(covariance))
    # all marginal means and spreads, and the mean of all along the loosest directions
    checks = [(draws[..., k], mean[k], sd[k]) for k in range(len(mean))]
    values, vectors = np.linalg.eigh(covariance)
    for k in (0, len(values) - 1):
        checks.append((draws @ vectors[:, k], mean @ vectors[:, k], np.sqrt(values[k])))
    z = []
    for d, m, s in checks:
        assert float(az.ess(d)) > 100
        z.append((d.mean() - m) / float(az.mcse(d, method="mean")))
        z.append((d.std() - s) / float(az.mcse(d, method="sd")))
    p = min(1.0, 2 * len(z) * stats.norm.sf(np.abs(z).max()))
    assert p > 1e-3, dict(zip([f"{n}" for n in names], np.round(z[: 2 * len(names)], 1)))
