"""Guarantees made at random: what holds of any composition, and ledgers that spend no more than there is."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pymc_dp as dp

HOURS = np.linspace(10, 50, 20)
epsilons = st.floats(0.01, 3)
deltas = st.sampled_from([1e-9, 1e-6, 1e-3, 0.1])
pure = epsilons.map(dp.PrivacyGuarantee)
concentrated = st.floats(1e-4, 2).map(lambda rho: dp.PrivacyGuarantee(math.inf, rho=rho))
normal = st.floats(0.01, 2).map(lambda mu: dp.PrivacyGuarantee(math.inf, mu=mu))
approximate = st.tuples(epsilons, st.sampled_from([1e-15, 1e-12])).map(
    lambda t: dp.PrivacyGuarantee(t[0], t[1])
)
guarantees = st.one_of(pure, concentrated, normal, approximate)


def epsilon_of(parts, delta):
    return dp.guarantee(parts, delta=delta).epsilon


@given(st.lists(guarantees, min_size=1, max_size=5), guarantees, deltas, st.randoms(use_true_random=False))
def test_composition(parts, more, delta, random):
    """The order does not matter, another release costs something, and no bound is worse than adding up."""
    together = epsilon_of(parts, delta)
    shuffled = list(parts)
    random.shuffle(shuffled)
    assert epsilon_of(shuffled, delta) == pytest.approx(together, rel=1e-6, abs=1e-9)
    assert epsilon_of([*parts, more], delta) >= together * (1 - 1e-6) - 1e-9
    assert epsilon_of(parts, delta / 10) >= together * (1 - 1e-6) - 1e-9
    both = epsilon_of(parts, delta / 2) + epsilon_of([more], delta / 2)
    assert epsilon_of([*parts, more], delta) <= both * (1 + 1e-3) + 1e-6


@given(st.floats(0.2, 3), st.lists(st.floats(0.05, 2), min_size=1, max_size=8))
def test_a_pure_ledger_pays_what_fits_and_nothing_else(budget, costs):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.db"
        ledger = dp.PrivacyLedger(path, epsilon=budget, delta=0)
        paid = []
        for cost in costs:
            try:
                release = dp.LaplaceMechanism.release(
                    dp.record_sum(HOURS), epsilon=cost, bounds=(0, 60), ledger=ledger
                )
            except dp.BudgetExceededError:
                assert sum(paid) + cost > budget * (1 - 1e-9)
            else:
                paid.append(cost)
                assert release.guarantee.epsilon == pytest.approx(cost)
            assert ledger.epsilon_spent <= budget and ledger.epsilon_spent == pytest.approx(
                sum(paid), abs=1e-12
            )
            assert ledger.epsilon_left == pytest.approx(budget - sum(paid), abs=1e-9)
        again = dp.PrivacyLedger(path, epsilon=budget, delta=0)
        assert len(again.entries()) == len(paid) and again.epsilon_spent == ledger.epsilon_spent
