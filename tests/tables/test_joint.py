"""Joint moves of parameters and of the counts whose law they enter: exact answers, and faults planted."""

from functools import cache

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.step_methods.tables import joint, joint_groups, joint_kernel
from pymc_dp.step_methods.tables.state import NOISE, TOTAL
from tests.tables.joint_models import CASES, moments
from tests.tables.test_moves import with_fault


@cache
def exact(name):
    return CASES[name].posterior()


def worst(name, draws=4000):
    """Return the largest error of a moment, in standard errors, and which it is."""
    case = CASES[name]
    idata = pm.sample(
        model=case.build(), draws=draws, tune=1000, chains=2, cores=1, random_seed=8, progressbar=False,
        quiet=True, compute_convergence_checks=False,
    )  # fmt: skip
    assert float(idata.sample_stats["joint_acceptance"].mean()) > 0.1
    seen = moments({v: idata.posterior[v].values for v in idata.posterior}, case.shared)
    assert set(seen) == set(exact(name))
    errors = {k: abs(v.mean() - exact(name)[k]) / float(az.mcse(v)) for k, v in seen.items()}
    return max((error, where) for where, error in errors.items())


@pytest.mark.statistical
@pytest.mark.parametrize("name", CASES)
def test_posteriors(name):
    error, where = worst(name)
    assert error < 4.5, where


def centred_noise(monkeypatch):
    """The noise is drawn in the middle of the step that a count stands on."""
    on_step = joint.noise_on_step
    monkeypatch.setattr(joint, "noise_on_step", lambda x, law, share: on_step(x, law, 0.5 + 0.0 * share))


def prior_left_out(monkeypatch):
    for group in (joint_groups.OneByOne, joint_groups.Together):
        monkeypatch.setattr(
            group, "change_of", lambda self, terms: np.where(self.movable, 0.0, -np.inf), raising=False
        )


def with_kernel(old, new):
    def plant(monkeypatch):
        monkeypatch.setattr(joint_kernel, "decide", with_fault(joint_kernel.decide, old, new, joint_kernel))

    return plant


residual_left = with_kernel("rows[q, width + TOTAL] += change", "pass")
noise_left = with_kernel("rows[q, width + NOISE] = found[j]", "pass")
# and after how many draws they are seen
FAULTS = {
    "noise in the middle of a step": (centred_noise, 8000),
    "prior left out": (prior_left_out, 2000),
    "residual not brought up to date": (residual_left, 2000),
    "noise left out": (with_kernel("ratio = changes[part] +", "ratio = changes[part] + 0.0 *"), 2000),
}


@pytest.mark.statistical
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen(fault, monkeypatch):
    plant, draws = FAULTS[fault]
    plant(monkeypatch)
    assert worst("poisson with intercept", draws=draws)[0] > 6


def residuals():
    """Queries and the density of their noise after moves, and worked out anew."""
    step, _, point = some_draws()
    (part,) = step.parts
    part.read(point)
    moved, _ = part.move_jointly(point, np.random.default_rng(4), False)
    counts = part.counts()
    assert (counts["c"] != point["c"]).any() and (moved["a"] != point["a"]).any()
    kept = part._rows[[TOTAL, NOISE]].copy()
    part.read({**point, **counts, **moved})
    return kept, part._rows[[TOTAL, NOISE]]


def test_residuals_are_kept():
    np.testing.assert_allclose(*residuals(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fault", [residual_left, noise_left])
def test_residuals_that_are_not_kept_are_seen(fault, monkeypatch):
    fault(monkeypatch)
    kept, anew = residuals()
    assert not np.allclose(kept, anew)


def some_draws(n=30):
    model = CASES["poisson with intercept"].build()
    step, point = dp.TableImputation(model=model, n_sweeps=1), model.initial_point()
    step.setup_chain(np.random.default_rng(2), n, 10**6)
    shares = []
    for _ in range(n):
        point, (stats,) = step.step(point)
        shares.append(stats["joint_acceptance"])
    return step, np.array(shares), point


def test_large_tables_move_jointly_in_some_draws(monkeypatch):
    assert np.isfinite(some_draws()[1]).all()
    monkeypatch.setattr(joint, "_CELLS", 1)  # of four
    assert np.flatnonzero(np.isfinite(some_draws()[1])).tolist() == [3, 7, 11, 15, 19, 23, 27]


def test_chains_go_on_with_what_was_learnt():
    step, _, point = some_draws()
    other = dp.TableImputation(model=CASES["poisson with intercept"].build(), n_sweeps=1)
    other.setup_chain(np.random.default_rng(3), 30, 10**6)
    other.sampling_state = step.sampling_state
    for one, same in zip(step.parts[0].joint.groups, other.parts[0].joint.groups, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one.arrays, same.arrays, strict=True))
        assert (one.factor != 0.1).any()
    after, again = (each.step(point)[0] for each in (step, other))
    assert all(np.array_equal(after[name], again[name]) for name in after)


def test_data_that_make_other_groups_may_be_set_between_samples():
    """PyMC gives each chain the state from before the first one, when the groups were still others."""
    with pm.Model() as model:
        which = pm.Data("which", np.array([1, 1, 1]))
        effects = pt.stack([pm.Normal("e", shape=3), pm.Normal("f", shape=3)])
        c = pm.Poisson("c", pt.exp(effects[which, np.arange(3)]))
        dp.DiscreteGaussianMechanism("cells", c, sigma=3.0, observed=np.ones(3))
        dp.DiscreteGaussianMechanism("all", c.sum(), sigma=1.0, observed=9)
        step = dp.TableImputation()
    known, data = step.sampling_state, {"which": np.array([0, 1, 0])}
    pm.set_data(data, model=model)
    for seed in range(2):
        step.sampling_state = known
        step.setup_chain(np.random.default_rng(seed), 30, 30)
        assert [group.names for group in step.parts[0].joint.groups] == [["e"], ["f"]]
        step.step(model.initial_point())


def test_moves_that_reach_little_are_left_out_and_said(caplog):
    with pm.Model():
        c = pm.Poisson("c", pm.math.exp(pm.Normal("a", 6, 1) + np.zeros((2, 2))))
        dp.DiscreteGaussianMechanism("cells", c, sigma=0.3, observed=np.full((2, 2), 400))
        dp.DiscreteGaussianMechanism("all", c.sum(), sigma=0.3, observed=1600)
        with caplog.at_level("INFO", logger="pymc.dp"):
            idata = pm.sample(50, tune=300, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True,
                              compute_convergence_checks=False)  # fmt: skip
    assert "TableImputation no longer moves a together with the counts" in caplog.text
    assert np.isnan(idata.sample_stats["joint_acceptance"].values).all()
