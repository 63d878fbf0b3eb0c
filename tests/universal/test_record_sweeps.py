"""Sweeps over records against the model: the probability of accepting a candidate, seen from outside.

A model of one record is swept twice by generators in one state: the first sweep ignores the releases and
shows the candidate, the second decides on it and says with which probability. It is the change of the model's
log density, less that of the record's own law, which the candidate was drawn from. Compiled code runs here.
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
        candidate, decided = current.copy(), current.copy()
        chain._sweep(np.random.default_rng(seed), theta, candidate, 0, 1, prior_only=True)
        tally = chain.sweep(np.random.default_rng(seed), theta, decided, 0)
        accepted = np.array_equal(decided, candidate)
        assert accepted or np.array_equal(decided, current)
        yield min(1.0, float(np.exp(terms(theta, candidate) - before))), float(tally[1])


@pytest.mark.parametrize("entry", ONE_RECORD, ids=lambda entry: entry.name)
def test_acceptance_is_the_models(entry, rng):
    found = list(probabilities(entry.build(1), rng))
    assert found
    expected, got = np.array(found).T
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)


def test_a_forgotten_term_is_caught(rng, monkeypatch):
    from pymc_dp.step_methods.block.program import RecordProgram

    entry = next(e for e in ONE_RECORD if e.name == "observed child")

    def found():
        return np.array(list(probabilities(entry.build(1), rng))).T

    expected, got = found()
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)
    original = RecordProgram.__init__

    def init(self, model, block, point=None):
        block.terms.clear()
        original(self, model, block, point)

    monkeypatch.setattr(RecordProgram, "__init__", init)
    expected, got = found()
    assert np.abs(got - expected).max() > 0.01
