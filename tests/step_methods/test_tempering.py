"""Precise releases gain their weight over the first draws of tuning, and have it whole from then on."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from pymc_dp.step_methods import base

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
        monkeypatch.setattr(base.RecordStep, "_power", lambda self, chain, power=power: power)
        step.setup_chain(np.random.default_rng(1), 0, 2000)
        point, found = model.initial_point(), []
        for _ in range(2000):
            point, _ = step.step({**point, "mu": np.array(0.0)})
            found.append(np.clip(point["y"], -3, 3).sum())
        sums[power] = np.array(found[1000:])
    assert sums[0.0].std() > 3  # sqrt(20) with nothing released
    assert abs(sums[1.0] - 3.0).mean() < 0.1
