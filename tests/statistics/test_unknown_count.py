"""The number of people as a variable: exact answers by every way of sampling, and faults that they catch."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_dp.query import counts
from pymc_dp.step_methods.updates import conditionals
from tests.statistics.count_models import EXACT_COUNTS, few_bits, normal_sums
from tests.statistics.exact_draws import defaults, draws_of, error_of, records_alone, rejected

pytestmark = pytest.mark.statistical


def errors_of(case, posterior):
    """Errors in Monte Carlo standard errors: of probabilities of N, and of means."""
    found = {}
    people = posterior["people"]
    found["mean of N"] = error_of(people, float(case.probabilities @ np.arange(len(case.probabilities))))
    for n in np.flatnonzero(case.probabilities > 0.02):
        found[f"P(N <= {n})"] = error_of(
            (people <= n).astype(float), float(case.probabilities[: n + 1].sum())
        )
    for name, expected in case.means.items():
        draws = posterior[name.removesuffix("^2")]
        found[name] = error_of(draws**2 if name.endswith("^2") else draws, expected)
    return found


@pytest.mark.parametrize("how", [defaults, records_alone], ids=lambda f: f.__name__)
@pytest.mark.parametrize("case", EXACT_COUNTS, ids=lambda f: f.__name__)
def test_exact(case, how):
    case = case()
    seed = crc32(f"{case.build.__qualname__} {how.__name__}".encode()) % 1000
    found = errors_of(case, draws_of(case, how, seed, 4000 if how is defaults else 6000))
    assert not rejected(found), found


# -- planted faults ---------------------------------------------------------------------------------


def ratio_with_the_number(patch):
    """N'/N in the ratio, as if people were ordered."""
    original = conditionals.Conditionals._sum

    def _sum(self, factors, reading, given_noise=False):
        whole = [rv for rv in self.moving - self.walking if given_noise]
        return original(self, factors, reading, given_noise) + sum(pt.log(reading[rv] + 0.5) for rv in whole)

    patch.setattr(conditionals.Conditionals, "_sum", _sum)


def one_person_too_many(patch):
    """The sum over one slot more than there are people."""
    original = counts.first_of
    patch.setattr("pymc_dp.query.contributions.first_of", lambda rows, count: original(rows, count + 1))


@pytest.mark.parametrize("fault", [ratio_with_the_number, one_person_too_many], ids=lambda f: f.__name__)
@pytest.mark.parametrize("case", [few_bits, normal_sums], ids=lambda f: f.__name__)
def test_faults_are_rejected(case, fault, monkeypatch):
    case = case()
    fault(monkeypatch)
    assert rejected(errors_of(case, draws_of(case, defaults, 3, 4000)))
