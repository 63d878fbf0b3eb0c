"""Precise releases gain their weight over the first draws of tuning, and have it whole from then on."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.step_methods import record_step
from tests.statistics import harness
from tests.statistics.marginal import from_log_density

pytestmark = pytest.mark.compiles(2)


def build(epsilon):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Normal("y", mu, 1, shape=20)
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=epsilon, bounds=(-3, 3), observed=3.0)
    return model


@pytest.mark.parametrize("step_type", [dp.AncillaryUpdate, dp.RecordImputation])
@pytest.mark.parametrize("epsilon, first", [(0.5, 1.0), (20.0, 0.05), (1000.0, 0.02)])
def test_power_rises_to_one(step_type, epsilon, first):
    model = build(epsilon)
    step = step_type(model=model)
    step.setup_chain(np.random.default_rng(1), 100, 100)
    point, powers = model.initial_point(), []
    for draw in range(60):
        if draw == 50:
            step.stop_tuning()
        point, _ = step.step(point)
        (chain,) = step.chains
        powers.append(chain.data[chain.program.temper_at])
    assert powers[0] == pytest.approx(first)
    assert np.all(np.diff(powers) >= 0)
    assert powers[20:] == [1.0] * 40  # a fifth of the tuning


@pytest.mark.parametrize("tune, stopped", [(0, False), (1000, True)])
def test_power_is_one_without_tuning(tune, stopped):
    model = build(20.0)
    step = dp.AncillaryUpdate(model=model)
    step.setup_chain(np.random.default_rng(1), tune, 10)
    if stopped:
        step.stop_tuning()
    step.step(model.initial_point())
    (chain,) = step.chains
    assert chain.data[chain.program.temper_at] == 1.0


def test_power_enters_the_ratio(monkeypatch):
    """With the release all but ignored, records follow their law; with it, the released sum."""
    model = build(1000.0)
    step = dp.RecordImputation(model=model)
    sums = {}
    for power in (0.0, 1.0):
        monkeypatch.setattr(record_step.RecordStep, "_power", lambda self, chain, power=power: power)
        step.setup_chain(np.random.default_rng(1), 0, 2000)
        point, found = model.initial_point(), []
        for _ in range(2000):
            point, _ = step.step({**point, "mu": np.array(0.0)})
            found.append(np.clip(point["y"], -3, 3).sum())
        sums[power] = np.array(found[1000:])
    assert sums[0.0].std() > 3  # sqrt(20) with nothing released
    assert abs(sums[1.0] - 3.0).mean() < 0.1


def histogram(mu, y):
    dp.PerturbedHistogram("z", y, edges=np.linspace(-3, 3, 7), epsilon=1000.0, observed=COUNTS)


def told_by_each_too(mu, y):
    """A table stands for the density of what each told, next to nothing; the sum is a central release."""
    law = {"level": 3, "bounds": (-3, 3), "epsilon": 1e-6}
    dp.WaveletMechanism("told", y, **law, observed=pm.draw(dp.WaveletMechanism.dist(np.zeros(20), **law)))
    dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1000.0, bounds=(-3, 3), observed=20.0)


def sums_and_level(mu, y):
    """The release depends on a parameter that moves given the records."""
    noise = pt.exp(mu / 1000) * 0.001
    dp.LaplaceMechanism("z", dp.record_sum(y), scale=noise, bounds=(-3, 3), observed=20.0)


COUNTS = np.array([0, 0, 0, 0, 20, 0])


@pytest.mark.parametrize("step_type", [dp.AncillaryUpdate, dp.RecordImputation])
@pytest.mark.parametrize("declare", [histogram, told_by_each_too, sums_and_level])
def test_all_sweeps_and_updates_have_the_power(declare, step_type, monkeypatch):
    """At a power of zero the release says nothing: the prior is left."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        declare(mu, pm.Normal("y", mu, 1, shape=20))
        step = step_type()
    seen = {}
    for power in (0.0, 1.0):
        monkeypatch.setattr(record_step.RecordStep, "_power", lambda self, chain, power=power: power)
        step.setup_chain(np.random.default_rng(1), 0, 5000)
        point, found = model.initial_point(), []
        for _ in range(5000):
            if step_type is dp.RecordImputation:
                point["mu"] = np.array(0.0)
            point, _ = step.step(point)
            found.append(point["y"].mean())
        seen[power] = np.array([found[500:]])
    variance = 1 / 20 + (step_type is dp.AncillaryUpdate)
    prior = from_log_density(lambda v: -(v**2) / (2 * variance), -8, 8)
    verdict = harness.mc_z(seen[0.0], prior, minimum_ess=200)
    assert verdict.passed, verdict
    assert not harness.mc_z(seen[1.0], prior, minimum_ess=0).passed


@pytest.mark.parametrize("tune", [1, 4, 5, 299, 300, 5000])
def test_power_is_one_by_the_last_draw_of_tuning(tune):
    """However short tuning is, where a chain is continued, and where somebody sets `tune`."""
    model = build(1000.0)
    step = dp.RecordImputation(model=model)
    (chain,) = step.chains
    step.setup_chain(np.random.default_rng(1), tune, 10)
    assert step.n_tempered <= tune / 5
    for n, tuning in ((tune, True), (tune, False), (step.n_tempered, True), (0, False)):
        step.n_steps, step.tune = n, tuning
        assert step._power(chain) == 1.0
    step.n_steps, step.tune = max(step.n_tempered - 1, 0), True
    state = step.sampling_state
    assert (step._power(chain) < 1.0) == (tune >= 5)
    other = dp.RecordImputation(model=model)
    other.sampling_state = state
    assert other._power(other.chains[0]) == step._power(chain)
