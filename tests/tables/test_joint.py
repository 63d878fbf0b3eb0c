"""Joint moves of parameters and of the counts whose law they enter: exact answers, and faults planted."""

from functools import cache

import arviz as az
import numpy as np
import pymc as pm
import pytest

from pymc_dp.step_methods.tables import joint, joint_groups, joint_kernel
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


FAULTS = {
    "noise in the middle of a step": centred_noise,
    "prior left out": prior_left_out,
    "residual not brought up to date": with_kernel("rows[q, width + TOTAL] += change", "pass"),
    "noise not brought up to date": with_kernel("rows[q, width + NOISE] = found[j]", "pass"),
    "noise left out": with_kernel("ratio = changes[part] +", "ratio = changes[part] + 0.0 *"),
}


@pytest.mark.statistical
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen(fault, monkeypatch):
    FAULTS[fault](monkeypatch)
    assert worst("poisson with intercept")[0] > 6
