"""Whole numbers in the law of records: exact answers by default and by steps of PyMC, and planted faults."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from pymc_dp.step_methods import parameter_updates
from pymc_dp.step_methods.updates import conditionals, walks
from tests.kernels import planted
from tests.statistics.exact_draws import defaults, draws_of, error_of, records_alone, rejected
from tests.statistics.whole_models import (
    EXACT_WHOLE,
    change_in_time,
    events_a_visit,
    one_of_four_places,
    places_of_few_people,
)

pytestmark = pytest.mark.statistical


def errors_of(case, posterior):
    """Errors in Monte Carlo standard errors: of probabilities of values, and of means."""
    found, (name,) = {}, case.names
    for values, probability in case.probabilities.items():
        if probability > 0.02:
            hits = posterior[name] == (np.array(values) if len(values) > 1 else values[0])
            hits = hits.all([d for d in hits.dims if d not in ("chain", "draw")]).astype(float)
            found[f"P({name} = {values})"] = error_of(hits, probability)
    for name, expected in case.means.items():
        draws = posterior[name]
        found[name] = error_of(draws.mean([d for d in draws.dims if d not in ("chain", "draw")]), expected)
    return found


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("case", EXACT_WHOLE, ids=lambda f: f.__name__)
def test_exact(case, seed):
    case = case()
    found = errors_of(case, draws_of(case, defaults, seed))
    assert not rejected(found), found


@pytest.mark.parametrize("case", [places_of_few_people, events_a_visit], ids=lambda f: f.__name__)
def test_exact_by_other_steps(case):
    case = case()
    found = errors_of(case, draws_of(case, records_alone, crc32(case.build.__qualname__.encode()), 4000))
    assert not rejected(found), found


# -- planted faults ---------------------------------------------------------------------------------


def prior_left_out(patch):
    """The law of whole numbers is not asked for, given the noise."""
    original = conditionals.Conditionals._factors

    def _factors(self, on):
        return [f for f in original(self, on) if f.name not in ("k", "j", "tau")]

    patch.setattr(conditionals.Conditionals, "_factors", _factors)


def rounded_down(patch):
    """Steps of whole numbers are rounded down: one up is not as likely as one down."""
    names = planted(
        walks,
        (walks.round_steps, "np.rint(step)", "np.floor(step)"),
        (walks.random_walk, "cache=True", "cache=False"),
    )
    patch.setattr(parameter_updates, "random_walk", names["random_walk"])


@pytest.mark.parametrize("fault", [prior_left_out, rounded_down], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "case", [one_of_four_places, events_a_visit, change_in_time], ids=lambda f: f.__name__
)
def test_faults_are_rejected(case, fault, monkeypatch):
    if fault is prior_left_out and case is change_in_time:
        pytest.skip("its law is flat: nothing is left out")
    case = case()
    fault(monkeypatch)
    assert rejected(errors_of(case, draws_of(case, defaults, 3)))
