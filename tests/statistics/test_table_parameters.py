"""The step of tables with their parameters: joint law, calibration, and faults that these see."""

from __future__ import annotations

import numpy as np
import pytest

import pymc_dp as dp
from pymc_dp.step_methods.tables import families, parameters
from pymc_dp.step_methods.tables.chain import TableChain
from tests.statistics.drive import StepKernel
from tests.statistics.parameter_models import RANDOM_TABLES, RatesOfACube, SharesOfATable
from tests.statistics.test_sbc import calibration

pytestmark = pytest.mark.statistical

ALPHA = 1e-4


def integrated(model):
    """Counts moved with the parameters integrated out, then the parameters."""
    return [dp.TableImputation(n_sweeps=5)]


def apart(model):
    """Each given the other."""
    own = [rv for rv in model.free_RVs if rv.name != "c"]
    return [dp.TableImputation([model["c"]], n_sweeps=5), dp.TableImputation(own)]


def verdict_of(model_type, epsilon, steps, seed=3):
    kernel = StepKernel(model_type(epsilon), steps, gibbs=False, seed=seed)
    # with as many, the planted faults below are seen
    return kernel.short_chains(seed=seed, alpha=ALPHA, replicates=1500, transitions=2)


@pytest.mark.parametrize("epsilon", [0.3, 5.0])
@pytest.mark.parametrize("model_type", RANDOM_TABLES, ids=lambda m: m.__name__)
def test_joint_law(model_type, epsilon):
    verdict = verdict_of(model_type, epsilon, integrated)
    assert verdict.passed, verdict


def test_joint_law_of_two_steps():
    verdict = verdict_of(SharesOfATable, 1.0, apart)
    assert verdict.passed, verdict


@pytest.mark.parametrize("model_type", RANDOM_TABLES, ids=lambda m: m.__name__)
def test_calibration(model_type):
    kernel = StepKernel(model_type(1.0), integrated, gibbs=False, seed=4)
    verdict = calibration(kernel, 200, 5)
    assert verdict.passed, verdict


def parameters_before_the_moves(patch):
    """The order of a draw is wrong: parameters are drawn from the counts that moves then leave behind."""
    sweep, draw, drawn = TableChain.sweep, TableChain.draw_parameters, {}

    def early(self, rng, n, tuning):
        drawn["now"] = draw(self, {}, rng)
        return sweep(self, rng, n, tuning)

    patch.setattr(TableChain, "sweep", early)
    patch.setattr(TableChain, "draw_parameters", lambda self, point, rng: drawn["now"])


def parameters_not_drawn(patch):
    """Moves integrate the parameters out, which then stay as they were."""
    patch.setattr(TableChain, "draw_parameters", lambda self, point, rng: {})


def a_count_of_another_cell(patch):
    sums = parameters.Behind.sums
    patch.setattr(parameters.Behind, "sums", lambda self, counts: np.roll(sums(self, counts), 1))


def concentrations_of_one(patch):
    entry = families._Shares.entry
    patch.setattr(families._Shares, "entry", lambda self, s, e, a, b: entry(self, s, e, a * 0 + 1.0, b))


def concentrations_of_none_in_draws(patch):
    draw = families._Shares.draw
    patch.setattr(families._Shares, "draw", lambda self, rng, s, e, a, b: draw(self, rng, s, e, 0 * a + 1, b))


def exposures_left_out(patch):
    draw = families._Rates.draw
    patch.setattr(families._Rates, "draw", lambda self, rng, s, e, a, b: draw(self, rng, s, 0 * e + 1, a, b))


FAULTS = [
    (parameters_before_the_moves, SharesOfATable),
    (parameters_not_drawn, SharesOfATable),
    (a_count_of_another_cell, SharesOfATable),
    (concentrations_of_one, SharesOfATable),
    (concentrations_of_none_in_draws, SharesOfATable),
    (exposures_left_out, RatesOfACube),
]


@pytest.mark.parametrize(("fault", "model_type"), FAULTS, ids=lambda f: f.__name__)
def test_faults_are_seen(fault, model_type, monkeypatch):
    fault(monkeypatch)
    verdict = verdict_of(model_type, 0.3, integrated)
    assert verdict.outcome == "rejected", verdict
