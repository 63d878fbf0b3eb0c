"""The numpy twins of the test models are right: their Gibbs updates leave the joint law alone."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest

from tests.statistics import harness
from tests.statistics.conjugate_models import CONJUGATE_MODELS
from tests.statistics.models import MODELS
from tests.statistics.response_models import GroupedBits, LogitAnswers, Responses, SoftmaxBits, Told
from tests.statistics.special_models import SPECIAL_MODELS
from tests.statistics.whole_models import WholeNumbers

RESPONSE_MODELS = (Responses, Told, GroupedBits, SoftmaxBits, LogitAnswers)
DRAWS = 4000
ALL_MODELS = (*MODELS, *SPECIAL_MODELS, *CONJUGATE_MODELS, *RESPONSE_MODELS, WholeNumbers)


@pytest.mark.compiles(12)
@pytest.mark.parametrize("model_type", ALL_MODELS, ids=lambda m: m.__name__)
def test_gibbs_updates_leave_the_joint_law(model_type):
    model = model_type(2.0)
    verdict = harness.geweke_replicated(
        model.draw_prior,
        model.gibbs,
        None,
        model.functionals,
        replicates=3000,
        transitions=3,
        names=model.functional_names,
        seed=1,
    )
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("model_type", ALL_MODELS, ids=lambda m: m.__name__)
def test_pymc_twin_has_the_same_law(model_type):
    """PyMC's own draws of parameters, records and release have the simulator's moments."""
    model = model_type(2.0)
    rng = np.random.default_rng(2)
    twin = model.build(model.draw_prior(rng))
    assert sorted(rv.name for rv in twin.observed_RVs) == sorted(model.query(model.draw_prior(rng)))
    variables = [*twin.free_RVs, *twin.observed_RVs]
    arrays = pm.draw(variables, draws=DRAWS, random_seed=3)
    names = [rv.name for rv in variables]
    theirs = np.array(
        [model.functionals(dict(zip(names, values, strict=True))) for values in zip(*arrays, strict=True)]
    )
    ours = np.array([model.functionals(model.draw_prior(rng)) for _ in range(DRAWS)])
    error = np.hypot(theirs.std(0), ours.std(0)) / np.sqrt(DRAWS)
    z = (theirs.mean(0) - ours.mean(0)) / error
    verdict = harness.two_sample_z(dict(zip(model.functional_names, z, strict=True)))
    assert verdict.passed, verdict
