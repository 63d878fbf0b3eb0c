"""Records whose law depends on other records, and starts: nothing is drawn where there is no law."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from tests.mixtures import exact
from tests.mixtures.small import z_scores
from tests.statistics import harness

pytestmark = pytest.mark.statistical

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


def test_a_start_outside_of_the_domain_is_refused():
    with pm.Model() as model:
        y = pm.Beta("y", pm.Normal("a", -20.0, 1), 2.0, shape=len(Z), default_transform=None)
        dp.LaplaceMechanism("z", y, scale=SCALE, observed=Z)
        step = dp.RecordImputation()
    with pytest.raises(ValueError, match="records y have no law at the starting values"):
        step.step(model.initial_point())
