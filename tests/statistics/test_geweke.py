"""Joint distribution tests (Geweke 2004) of the step methods, epsilon from 0.1 to 50.

Two forms: many short chains started in equilibrium, whose errors are exact and which see a broken
kernel by the small changes it makes; and the classical single chain, which also sees states that
short chains do not reach.
"""

from __future__ import annotations

from functools import cache
from zlib import crc32

import pytest

import pymc_dp as dp
from pymc_dp.step_methods import record_step
from tests.statistics import harness
from tests.statistics.conjugate_models import CONJUGATE_MODELS, conjugate_update
from tests.statistics.count_models import UnknownCount
from tests.statistics.custom_models import CustomNoise
from tests.statistics.drive import Shared, StepKernel, records_and_nuts, records_too
from tests.statistics.group_models import AreaCounts, Areas, by_group
from tests.statistics.models import (
    EPSILONS,
    MODELS,
    BernoulliTotal,
    ClampedNormal,
    Exponentials,
    LocalHierarchy,
    LocalPoisson,
    Regression,
    ThreeCategories,
)
from tests.statistics.processed_models import PROCESSED_MODELS
from tests.statistics.special_models import SPECIAL_MODELS, NaiveBayes
from tests.statistics.table_models import TABLE_MODELS, imputed
from tests.statistics.whole_models import WholeNumbers

pytestmark = [
    pytest.mark.statistical,
    pytest.mark.filterwarnings("ignore:The query of s is no sum over records"),
]

ALL_MODELS = (*MODELS, *SPECIAL_MODELS, CustomNoise, *PROCESSED_MODELS)
# About 200 tests: this keeps the chance of a false alarm anywhere near two per cent.
ALPHA = 1e-4


def _imputation(model):
    return [dp.RecordImputation()]


def _ancillary(model):
    """Updates given the noise alone, and the sweep that every cycle ends with."""
    return [dp.AncillaryUpdate(n_centred=0, n_cycles=1)]


def _slice(model):
    return [dp.AncillaryUpdate(update="slice", n_cycles=1)]


def _hamiltonian(model):
    return [dp.AncillaryUpdate(update="hamiltonian", n_cycles=1)]


def _redraw(model):
    return [dp.AncillaryUpdate(update="redraw", n_cycles=2)]


def _together(model):
    """As `pm.sample` makes it, with one sweep over the records in a draw."""
    return records_too(model, n_cycles=1)


def _several_cycles(model):
    """Likewise, with cycles enough for a single chain; the first has no sweep."""
    return records_too(model, n_cycles=3)


def _conjugate(model):
    return [conjugate_update(model)]


def _ids(value):
    return getattr(value, "__name__", str(value)).strip("_")


def _seed(*parts) -> int:
    return crc32("/".join(map(_ids, parts)).encode())


@cache
def shared(model_type, epsilon):
    return Shared(model_type(epsilon))


@cache
def shared_kernel(model_type, epsilon, make_steps, gibbs=True):
    """Kept, so that what is compiled is kept."""
    seed = _seed(model_type, epsilon, make_steps)
    return StepKernel(shared(model_type, epsilon), make_steps, gibbs=gibbs, seed=seed)


def _short_chains(model_type, epsilon, make_steps):
    kernel = shared_kernel(model_type, epsilon, make_steps)
    return kernel.short_chains(seed=_seed(model_type, epsilon, make_steps), alpha=ALPHA)


def _at_two_levels(models):
    """Every model at two levels, every level in half of the models: most of the time compiles models."""
    return [(model, epsilon) for k, model in enumerate(models) for epsilon in EPSILONS[k % 2 :: 2]]


EACH_MODEL = pytest.mark.parametrize(("model_type", "epsilon"), _at_two_levels(ALL_MODELS), ids=_ids)


@EACH_MODEL
def test_record_imputation(model_type, epsilon):
    verdict = _short_chains(model_type, epsilon, _imputation)
    assert verdict.passed, verdict


@EACH_MODEL
def test_ancillary_update(model_type, epsilon):
    verdict = _short_chains(model_type, epsilon, _ancillary)
    assert verdict.passed, verdict


# Every model at one of these levels, every third at both.
SLICED = [(model, EPSILONS[k % 2]) for k, model in enumerate(ALL_MODELS)]
SLICED += [(model, EPSILONS[2 + k % 2]) for k, model in list(enumerate(ALL_MODELS))[::3]]


@pytest.mark.parametrize(("model_type", "epsilon"), SLICED, ids=_ids)
def test_slice_form_of_the_ancillary_update(model_type, epsilon):
    verdict = _short_chains(model_type, epsilon, _slice)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("model_type", "epsilon"),
    [
        (ClampedNormal, 0.1),
        (ClampedNormal, 10.0),
        (Exponentials, 1.0),
        (LocalHierarchy, 0.1),
        (LocalHierarchy, 10.0),
        (Regression, 1.0),
    ],
    ids=_ids,
)
def test_hamiltonian_form_of_the_ancillary_update(model_type, epsilon):
    verdict = _short_chains(model_type, epsilon, _hamiltonian)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("model_type", "epsilon"),
    [(LocalHierarchy, 1.0), (Areas, 1.0), (Areas, 20.0), (AreaCounts, 1.0), (AreaCounts, 20.0)],
    ids=_ids,
)
def test_updates_by_group(model_type, epsilon):
    verdict = _short_chains(model_type, epsilon, by_group)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("model_type", "epsilon"),
    [
        (ClampedNormal, 0.1),
        (BernoulliTotal, 1.0),
        (Exponentials, 10.0),
        (LocalHierarchy, 0.1),
        (LocalPoisson, 0.1),
        (Regression, 1.0),
    ],
    ids=_ids,
)
def test_records_drawn_anew_with_the_parameters(model_type, epsilon):
    verdict = _short_chains(model_type, epsilon, _redraw)
    assert verdict.passed, verdict


def test_sweeps_in_parts(monkeypatch):
    """As of very many local records: a part for each of these."""
    monkeypatch.setattr(record_step, "PARALLEL_FROM", 1)
    verdict = _short_chains(LocalPoisson, 10.0, _imputation)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("model_type", "epsilon"), [(model, EPSILONS[2 + k % 2]) for k, model in enumerate(ALL_MODELS)], ids=_ids
)
def test_steps_together(model_type, epsilon):
    verdict = _short_chains(model_type, epsilon, _together)
    assert verdict.passed, verdict


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("model_type", [ThreeCategories, NaiveBayes], ids=_ids)
def test_conjugate_update(model_type, epsilon):
    verdict = _short_chains(model_type, epsilon, _conjugate)
    assert verdict.passed, verdict


@pytest.mark.parametrize(("model_type", "epsilon"), _at_two_levels(CONJUGATE_MODELS), ids=_ids)
def test_conjugate_update_of_tables(model_type, epsilon):
    verdict = _short_chains(model_type, epsilon, _conjugate)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("model_type", "epsilon"),
    [
        (ClampedNormal, 0.1),
        (ClampedNormal, 10.0),
        (BernoulliTotal, 1.0),
        (Exponentials, 50.0),
        (LocalHierarchy, 1.0),
        (LocalPoisson, 10.0),
        (Regression, 1.0),
        (ThreeCategories, 0.1),
    ],
    ids=_ids,
)
def test_records_beside_nuts(model_type, epsilon):
    """As where RecordImputation is given as a step: PyMC's NUTS moves the parameters given the records."""
    seed = _seed(model_type, epsilon, records_and_nuts)
    kernel = shared_kernel(model_type, epsilon, records_and_nuts, gibbs=False)
    verdict = kernel.short_chains(seed=seed, alpha=ALPHA)
    assert verdict.passed, verdict


# Each step of each model at two levels, every level with both models and with both steps.
@pytest.mark.parametrize(
    ("model_type", "make_steps", "epsilon"),
    [
        (model, make_steps, epsilon)
        for j, model in enumerate([UnknownCount, WholeNumbers])
        for k, make_steps in enumerate([_ancillary, _together])
        for epsilon in EPSILONS[(j + k) % 2 :: 2]
    ],
    ids=_ids,
)
def test_whole_numbers_and_numbers_of_people(model_type, make_steps, epsilon):
    verdict = _short_chains(model_type, epsilon, make_steps)
    assert verdict.passed, verdict


@pytest.mark.parametrize("epsilon", [0.3, 5.0])
@pytest.mark.parametrize("model_type", TABLE_MODELS, ids=_ids)
def test_tables_of_counts(model_type, epsilon):
    verdict = _short_chains(model_type, epsilon, imputed)
    assert verdict.passed, verdict


# With little noise the release and the records hold each other fast: no use for a single chain.
@pytest.mark.parametrize(
    ("model_type", "epsilon"),
    [(model, (0.1, 1.0)[k % 2]) for k, model in enumerate((*ALL_MODELS, UnknownCount, WholeNumbers))],
    ids=_ids,
)
def test_single_chain(model_type, epsilon):
    model = shared(model_type, epsilon)
    seed = _seed("single", model_type, epsilon)
    # Parameters without a record of their own (a common centre, a weight) need the Gibbs update.
    gibbs = model_type.__name__ in ("LocalHierarchy", "ParameterInQuery")
    kernel = StepKernel(model, _several_cycles, gibbs=gibbs, seed=seed)
    verdict = harness.geweke(
        model.draw_prior,
        kernel.transition,
        model.redraw_release,
        model.functionals,
        draws=4000,
        names=model.functional_names,
        seed=seed,
        alpha=ALPHA,
        minimum_ess=150,
    )
    assert verdict.passed, verdict
