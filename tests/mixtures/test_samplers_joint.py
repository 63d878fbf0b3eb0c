"""Joint distribution tests (Geweke 2004) and calibration (Talts et al. 2018) of the samplers of mixtures."""

from __future__ import annotations

from functools import cache
from zlib import crc32

import numpy as np
import pytest

from tests.mixtures import models
from tests.mixtures.models import CENTRAL_MODELS, CLOSED_MODELS, MODELS, NORMAL_MODELS
from tests.mixtures.samplers import ALL_SAMPLERS, SAMPLERS
from tests.statistics.drive import Shared, StepKernel
from tests.statistics.test_sbc import calibration

# About 70 verdicts: this keeps the chance of a false alarm anywhere below one in a thousand.
ALPHA = 1e-5
EPSILONS = (1.0, 10.0, 50.0, 0.1)


@cache
def shared(model_type, epsilon):
    return Shared(model_type(epsilon))


@cache
def shared_kernel(model_type, epsilon, sampler):
    """Kept, so that what is compiled is kept."""
    return kernel_of(shared(model_type, epsilon), sampler, _seed(model_type.__name__, epsilon, sampler))


def kernel_of(model, sampler, seed=0):
    """The steps of a sampler as a transition of a test model, after the update of the concentration."""
    return StepKernel(model, lambda _: ALL_SAMPLERS[sampler](), gibbs=True, seed=seed)


def _seed(*parts):
    return crc32(" ".join(map(str, parts)).encode())


def epsilon_of(model_type):
    """One level for each model, so that each is compiled once."""
    return EPSILONS[(*MODELS, *CENTRAL_MODELS).index(model_type) % len(EPSILONS)]


def _fitting(k, model):
    """Samplers for the k-th model of local releases: one of each kind, by turns."""
    turn = lambda *names: names[k % len(names)]  # noqa: E731
    yield turn("joint", "joint of 2", "joint of 5")
    yield turn("conditional", "slice")
    yield turn("auto", "auto", "auto of 2")  # all kinds of moves together
    yield "released splits" if model in NORMAL_MODELS else turn("kept splits", "fresh splits")
    if model in CLOSED_MODELS:
        yield turn("closed", "auto closed")


def _rows():
    """Every model with every kind of move, if not with all forms of it; from strong to weak privacy."""
    for k, model in enumerate((*MODELS, *CENTRAL_MODELS)):
        for sampler in _fitting(k, model) if model in MODELS else SAMPLERS:
            epsilon = epsilon_of(model)
            yield pytest.param(model, epsilon, sampler, id=f"{model.__name__} {epsilon:g} {sampler}")


@pytest.mark.statistical
@pytest.mark.parametrize(("model_type", "epsilon", "sampler"), list(_rows()))
def test_joint_distribution(model_type, epsilon, sampler):
    seed = _seed(model_type.__name__, epsilon, sampler)
    kernel = shared_kernel(model_type, epsilon, sampler)
    verdict = kernel.short_chains(seed=seed, alpha=ALPHA, replicates=2000, transitions=2)
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize("model_type", (*MODELS, *CENTRAL_MODELS), ids=lambda m: m.__name__)
def test_laws_of_atoms_are_recognised(model_type):
    """Numbers of a slot that are jointly normal, what scales them, and laws of one number."""
    model = shared(model_type, epsilon_of(model_type))
    with model.build(model.draw_prior(np.random.default_rng(1))):
        (step,) = ALL_SAMPLERS["auto"]()
    assert models.laws_by_name(step._mixtures[0].lowered) == (model.laws, model.other)


# kernels of the test above, so that none is compiled for this alone
CALIBRATED = [
    (models.KnownVariance, "auto closed"),
    (models.PoissonGamma, "closed"),
    (models.NormalInverseGamma, "joint"),
    (models.KnownVariance, "slice"),
    (models.PoissonGamma, "conditional"),
    (models.Regressions, "auto"),
    (models.TwoColumns, "joint of 5"),
    (models.GammaRates, "auto of 2"),
    (models.BinomialBeta, "conditional"),
    (models.HalfNormalScales, "auto"),
    (models.ReleasedSum, "joint"),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("model_type", "sampler"), CALIBRATED)
def test_calibration(model_type, sampler):
    """Number of clusters, density at a record, joint density: nothing that knows of slots."""
    epsilon = epsilon_of(model_type)
    seed = _seed(model_type.__name__, epsilon, sampler)
    verdict = calibration(shared_kernel(model_type, epsilon, sampler), 200, seed, alpha=ALPHA)
    assert verdict.passed, verdict
