"""Simulation-based calibration of the step methods (Talts et al. 2018; Säilynoja et al. 2022)."""

from __future__ import annotations

from zlib import crc32

import arviz as az
import numpy as np
import pytest

import pymc_dp as dp
from tests.statistics import harness
from tests.statistics.conjugate_models import (
    MixedParameters,
    PublicTerms,
    RandomConcentration,
    SharedTable,
    conjugate_steps,
)
from tests.statistics.count_models import UnknownCount
from tests.statistics.custom_models import CustomNoise
from tests.statistics.drive import StepKernel, records_and_nuts, records_too
from tests.statistics.group_models import AreaCounts, Areas, by_group
from tests.statistics.models import (
    BernoulliTotal,
    ClampedNormal,
    Exponentials,
    LocalHierarchy,
    LocalPoisson,
    Regression,
    ThreeCategories,
)
from tests.statistics.processed_models import ProcessedCounts, ProcessedSums
from tests.statistics.special_models import (
    AutoregressiveRecords,
    LocalGamma,
    NeighbourProducts,
    VectorRecords,
    WalkingRecords,
)
from tests.statistics.table_models import CountsAtTwoLevels, imputed
from tests.statistics.whole_models import WholeNumbers

pytestmark = [
    pytest.mark.statistical,
    pytest.mark.filterwarnings("ignore:The query of s is no sum over records"),
]

DRAWS = 15
ALPHA = 1e-4


def _imputation(model):
    return [dp.RecordImputation()]


def _together(model):
    return records_too(model)


CASES = [
    (ClampedNormal, 0.1, _imputation),
    (ClampedNormal, 1.0, _imputation),
    (BernoulliTotal, 0.1, _imputation),
    (BernoulliTotal, 10.0, _imputation),
    (ThreeCategories, 1.0, _imputation),
    (LocalHierarchy, 1.0, _imputation),
    (LocalHierarchy, 50.0, _imputation),
    (LocalPoisson, 1.0, _imputation),
    (LocalPoisson, 50.0, _imputation),
    (LocalGamma, 10.0, _imputation),
    (ClampedNormal, 0.1, _together),
    (ClampedNormal, 10.0, _together),
    (BernoulliTotal, 1.0, _together),
    (ThreeCategories, 10.0, _together),
    (Regression, 1.0, _together),
    (Regression, 50.0, _together),
    (Exponentials, 0.1, _together),
    (Exponentials, 10.0, _together),
    (VectorRecords, 1.0, _together),
    (LocalGamma, 50.0, _together),
    (NeighbourProducts, 10.0, _together),
    (WalkingRecords, 1.0, _together),
    (WalkingRecords, 50.0, _together),
    (AutoregressiveRecords, 10.0, _together),
    (UnknownCount, 0.1, _together),
    (UnknownCount, 10.0, _together),
    (WholeNumbers, 1.0, _together),
    (WholeNumbers, 50.0, _together),
    (Areas, 1.0, by_group),
    (Areas, 20.0, by_group),
    (AreaCounts, 5.0, by_group),
    (CustomNoise, 1.0, _imputation),
    (CountsAtTwoLevels, 1.0, imputed),
    (CountsAtTwoLevels, 20.0, imputed),
    (CustomNoise, 10.0, _together),
    (ProcessedCounts, 1.0, _imputation),
    (ProcessedCounts, 10.0, records_and_nuts),
    (ProcessedSums, 10.0, _together),
    (ProcessedSums, 1.0, _together),
    (RandomConcentration, 10.0, conjugate_steps),
    (SharedTable, 1.0, conjugate_steps),
    (PublicTerms, 0.1, conjugate_steps),
    (MixedParameters, 1.0, conjugate_steps),
    (SharedTable, 50.0, conjugate_steps),
    (PublicTerms, 50.0, conjugate_steps),
    (BernoulliTotal, 10.0, records_and_nuts),
    (ClampedNormal, 1.0, records_and_nuts),
    (LocalPoisson, 10.0, records_and_nuts),
]


def thinning(kernel: StepKernel, rng, pilots: int = 6, draws: int = 800) -> int:
    """Transitions between draws that are nearly independent, from a few pilot chains."""
    longest = 1.0
    for _ in range(pilots):
        run = kernel.sample(kernel.model.draw_prior(rng), draws, 1, rng)
        moving = run[:, run.std(0) > 0]
        ess = [float(az.ess(column[None], method="mean")) for column in moving.T]
        longest = max(longest, draws / min(ess))
    # The autocorrelation left at 1.5 integrated times is about exp(-3).
    return int(np.ceil(min(1.5 * longest, 40)))


def calibration(kernel: StepKernel, replicates: int, seed: int, alpha: float = ALPHA):
    """Verdict over chains that start at the truth, which is a draw of the posterior."""
    model = kernel.model
    thin = thinning(kernel, np.random.default_rng(seed))

    def simulate(rng):
        state = model.draw_prior(rng)
        return model.quantities(state), state

    def sample(state, rng):
        return kernel.sample(state, DRAWS, thin, rng)

    return harness.sbc(simulate, sample, replicates, seed=seed, names=model.quantity_names, alpha=alpha)


@pytest.mark.parametrize(
    "model_type, epsilon, make_steps",
    CASES,
    ids=[f"{m.__name__}-{e:g}-{s.__name__.strip('_')}" for m, e, s in CASES],
)
def test_calibration(model_type, epsilon, make_steps):
    seed = crc32(f"{model_type.__name__}/{epsilon}/{make_steps.__name__}".encode())
    # The record step alone needs an update of the parameters: the exact one.
    gibbs = make_steps is _imputation
    kernel = StepKernel(model_type(epsilon), make_steps, gibbs=gibbs, seed=seed)
    verdict = calibration(kernel, 200, seed)
    assert verdict.passed, verdict
