"""Sweeps over records against the model: the probability of accepting a candidate, seen from outside.

A model of one record, or of two, is swept twice by generators in one state: the first sweep ignores the
releases and shows the candidates, the second decides on them and says with which probability, the lowest of
the two. It is the change of the model's log density, less that of the record's own law, which the candidate
was drawn from. Compiled code runs here: scalar code needs more than one record.
"""

from __future__ import annotations

import numpy as np
import pytest

import pymc_dp as dp
from tests.universal.models import MODELS
from tests.universal.reference import log_density, places

pytestmark = pytest.mark.compiles(2)

ONE_RECORD = [entry for entry in MODELS if entry.smallest == 1 and entry.name != "two blocks"]


def probabilities(model, rng, tries=12):
    """Pairs of probabilities of acceptance, as the model has it and as the sweep has it."""
    step = dp.RecordImputation(proposals="independence", model=model)
    (chain,) = step.chains
    if chain.moves[0].exact:
        pytest.skip("records are drawn from their conditional law: nothing is proposed, nothing accepted")
    program = chain.program
    own = log_density(model, [model[rv.name] for rv in program.block.records])
    logp = log_density(model)
    start = program.parameters.flatten(model.initial_point())
    free = np.flatnonzero([rv.dtype.startswith("float") for rv in program.parameters.variables])
    layout = program.parameters
    where = np.concatenate([np.arange(layout.size)[layout.slices[k]] for k in free] or [np.zeros(0, int)])
    chain.refresh_data()

    def terms(theta, x):
        point = {**model.initial_point(), **layout.unflatten(theta), **program.records.unpack(x)}
        return logp(point) - own(point) if np.isfinite(own(point)) else -np.inf

    for theta in [start, *places(start, where.astype(int), rng)[:tries]]:
        if not program.have_law(theta):
            continue
        current = chain.draw(rng, theta).copy()
        before = terms(theta, current)
        if not np.isfinite(before):
            continue
        seed = int(rng.integers(2**32))
        candidates, decided = current.copy(), current.copy()
        chain._sweep(np.random.default_rng(seed), theta, candidates, 0, 1, prior_only=True)
        tally = chain.sweep(np.random.default_rng(seed), theta, decided, 0)
        lowest, x = 1.0, current.copy()
        for i in range(program.n):
            proposed = x.copy()
            proposed[i] = candidates[i]
            change = terms(theta, proposed) - terms(theta, x)
            lowest = min(lowest, float(np.exp(change)))
            assert any(np.array_equal(decided[i], one[i]) for one in (candidates, current))
            x[i] = decided[i]
        yield lowest, float(tally[1])


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("entry", ONE_RECORD, ids=lambda entry: entry.name)
def test_acceptance_is_the_models(entry, n, rng):
    found = list(probabilities(entry.build(n), rng))
    assert found
    expected, got = np.array(found).T
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)


def test_a_forgotten_term_is_caught(rng, monkeypatch):
    from pymc_dp.step_methods.block.program import RecordProgram

    entry = next(e for e in ONE_RECORD if e.name == "observed child")

    def found():
        return np.array(list(probabilities(entry.build(2), rng))).T

    expected, got = found()
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)
    original = RecordProgram.__init__

    def init(self, model, block, point=None):
        block.terms.clear()
        original(self, model, block, point)

    monkeypatch.setattr(RecordProgram, "__init__", init)
    expected, got = found()
    assert np.abs(got - expected).max() > 0.01
