"""Which step takes which parameters when none is given, and what is said of it."""

from __future__ import annotations

import logging

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_dp as dp
from pymc_dp.step_methods.ancillary import MAX_DIMENSION

pytestmark = pytest.mark.compiles(1)


def tables(n_tables):
    """Categorical records behind tables of probabilities, drawn exactly however many they are."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((n_tables, 3)))
        rows = np.arange(60) % n_tables
        c = pm.Categorical("c", p=p[rows], shape=60)
        counts = dp.record_sum(pm.math.eq(c[:, None], np.arange(3)).astype("float64"))
        dp.LaplaceMechanism("s", counts, scale=2.0, observed=np.full(3, 20.0))
    return model


def means(size):
    """Normal records in groups with a mean each."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=size)
        x = pm.Normal("x", mu[np.arange(100) % size], 1, shape=100)
        dp.LaplaceMechanism("s", dp.record_sum(dp.clamp(x, -2, 2)), scale=2.0, observed=0.0)
    return model


def two_laws():
    """Two groups of records with one parameter; the law of one is no function of noise."""
    with pm.Model() as model:
        mu = pm.Gamma("mu", 2, 1)
        a, b = pm.Poisson("a", mu, shape=5), pm.ZeroInflatedPoisson("b", 0.5, mu, shape=4)
        dp.LaplaceMechanism("ra", dp.record_sum(a), scale=3.0, observed=12.0)
        dp.LaplaceMechanism("rb", dp.record_sum(b), scale=3.0, observed=7.0)
    return model


CASES = [
    pytest.param(lambda: means(MAX_DIMENSION), "AncillaryUpdate", False, id="as many as it takes"),
    pytest.param(two_laws, "NUTS", True, id="one of two groups has no noise form"),
    pytest.param(lambda: tables(30), "ConjugateUpdate", False, id="exact draws of many probabilities"),
    pytest.param(lambda: means(MAX_DIMENSION + 1), "NUTS", True, id="too many"),
]


@pytest.mark.parametrize("build, taken_by, told", CASES)
@pytest.mark.statistical
def test_default_steps(build, taken_by, told, caplog):
    """Mixing is warned of only where parameters are left to a step that sees the records as fixed."""
    model = build()
    with caplog.at_level(logging.INFO, logger="pymc"):
        pm.sample(1, tune=1, chains=1, cores=1, model=model, progressbar=False, random_seed=1)
    said = [r.getMessage() for r in caplog.records]
    assert any(taken_by in line and ("[p]" in line or "[mu]" in line) for line in said)
    assert sum("leaves" in line and "to other steps" in line for line in said) == told


@pytest.mark.statistical
def test_single_precision():
    """A table of probabilities under floatX = float32 is drawn by the same step."""
    with pytensor.config.change_flags(floatX="float32"):
        idata = pm.sample(
            20, tune=20, chains=1, cores=1, model=tables(30), progressbar=False, random_seed=1, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    p = idata.posterior["p"].values
    assert "table_acceptance" in idata.sample_stats
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-5)
    assert len(np.unique(p[0, :, 0, 0])) == 20
