"""Sweeps over records against the model: the probability of accepting a candidate, seen from outside.

A model of one record, or of two, is swept twice by generators in one state: the first sweep ignores the
releases and shows the candidates, the second decides on them and says with which probability, the lowest of
the two. It is the change of the model's log density, less that of the record's own law, which the candidate
was drawn from. Compiled code runs here: scalar code needs more than one record.
"""

from __future__ import annotations

import itertools

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.query.readings import lift
from pymc_dp.step_methods.block import program
from pymc_dp.step_methods.sweeps import moves
from tests.step_methods.zoo import ZOO
from tests.universal.models import MODELS
from tests.universal.reference import log_density, places

pytestmark = pytest.mark.compiles(2)

ONE_RECORD = [entry for entry in MODELS if entry.smallest == 1 and entry.name != "two blocks"]


def chain_of(model):
    (chain,) = dp.RecordImputation(proposals="independence", model=model).chains
    if chain.moves[0].exact:
        pytest.skip("records are drawn from their conditional law: nothing is proposed, nothing accepted")
    return chain


def densities(model, chain):
    """The model's log density, and that of its records alone."""
    return log_density(model), log_density(model, [model[rv.name] for rv in chain.program.block.records])


def probabilities(model, chain, logp, own, rng, tries=12):
    """Pairs of probabilities of acceptance, as the model has it and as the sweep has it."""
    lowered = chain.program
    default = model.initial_point()  # PyMC compiles it at each call
    start = lowered.parameters.flatten(default)
    free = np.flatnonzero([rv.dtype.startswith("float") for rv in lowered.parameters.variables])
    layout = lowered.parameters
    where = np.concatenate([np.arange(layout.size)[layout.slices[k]] for k in free] or [np.zeros(0, int)])
    chain.refresh_data()

    def terms(theta, x):
        point = {**default, **layout.unflatten(theta), **lowered.records.unpack(x)}
        of_records = own(point)
        return logp(point) - of_records if np.isfinite(of_records) else -np.inf

    for theta in [start, *places(start, where.astype(int), rng)[:tries]]:
        if not lowered.have_law(theta):
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
        for i in range(lowered.n):
            proposed = x.copy()
            proposed[i] = candidates[i]
            change = terms(theta, proposed) - terms(theta, x)
            lowest = min(lowest, float(np.exp(change)))
            assert any(np.array_equal(decided[i], one[i]) for one in (candidates, current))
            if abs(change) > 40 or change >= 1e-9:
                assert np.array_equal(decided[i], (candidates if change > 0 else current)[i])
            x[i] = decided[i]
        yield lowest, float(tally[1])


def agree(found):
    found = list(found)
    assert found
    expected, got = np.array(found).T
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)


def compare(entry, n, rng):
    model = entry.build(n)
    chain = chain_of(model)
    agree(probabilities(model, chain, *densities(model, chain), rng))


def without_scalar_code(monkeypatch):
    """Have candidates of all records drawn at once, as of models that have no scalar code."""
    monkeypatch.setattr(moves, "independence_move", lambda program: moves.Move(
        "independence", program, program.propose, program.contribute,
    ))  # fmt: skip


# In scalar code a candidate without a law is drawn again where releases are ignored: others are seen then.
DRAWN_AGAIN = (
    "law within ends of another record",
    "probabilities of another record",
    "scale of another record",
)


@pytest.mark.parametrize("entry", ONE_RECORD, ids=lambda entry: entry.name)
def test_acceptance_is_the_models(entry, rng, monkeypatch):
    """By scalar code, where it is there; every eighth of these without it, which takes another compilation.

    Models that have no scalar code show the sweep without it, too, as do single records below.
    """
    model = entry.build(2)
    chain = chain_of(model)
    logp, own = densities(model, chain)
    if entry.name not in DRAWN_AGAIN:
        agree(probabilities(model, chain, logp, own, rng))
    if chain.moves[0].fused is None:
        assert entry.name not in DRAWN_AGAIN
    elif entry.name in DRAWN_AGAIN or ONE_RECORD.index(entry) % 8 == 0:
        without_scalar_code(monkeypatch)
        model = entry.build(2)  # anew: steps of one model share their moves
        chain = chain_of(model)
        assert chain.moves[0].fused is None
        agree(probabilities(model, chain, logp, own, rng))


@pytest.mark.parametrize("entry", [e for e in ONE_RECORD if e not in ZOO][::5], ids=lambda entry: entry.name)
def test_acceptance_is_the_models_of_a_single_record(entry, rng):
    """It has no scalar code: every fifth model shows what its one row changes.

    Every third of the zoo does in tests/step_methods/test_native.py.
    """
    compare(entry, 1, rng)


def test_a_law_that_is_asked_of_all_records_at_once_is_caught(rng, monkeypatch):
    """As PyMC's conditions are: one impossible candidate then refuses those of all records."""
    without_scalar_code(monkeypatch)
    monkeypatch.setattr(program, "density", lambda of, rv, reading: pm.logp(lift(rv, reading), reading[rv]))
    with pytest.raises(AssertionError):
        compare(next(e for e in ONE_RECORD if e.name == "child with a record for its probability"), 2, rng)


DISCRETE = [
    e for e in ONE_RECORD
    if e.name in (
        "child without a law at some values", "density that is no number at some values",
        "noise with a scale by record",
    )
]  # fmt: skip


@pytest.mark.parametrize("entry", DISCRETE, ids=lambda entry: entry.name)
def test_exact_draws_have_the_conditional_law(entry, rng):
    """Of each of two records, at the starting values of the parameters: enumerated by the model's density."""
    model = entry.build(2)
    step = dp.RecordImputation(proposals="informed", model=model)
    (chain,) = step.chains
    assert chain.moves[0].exact
    default, logp = model.initial_point(), log_density(model)
    theta = chain.program.parameters.flatten(default)
    values = list(itertools.product(range(4), repeat=2))
    logps = [logp({**default, "c": np.array(v)}) for v in values]
    exact = np.exp(np.array(logps) - max(logps))
    x, draws = chain.draw(rng, theta).copy(), 4000
    counts = dict.fromkeys(values, 0)
    for _ in range(draws):
        chain.sweep(rng, theta, x, 0)
        counts[tuple(x[:, 0].astype(int))] += 1
    found, expected = np.array([counts[v] for v in values]), draws * exact / exact.sum()
    assert not found[expected == 0].any()
    some = expected > 5
    expected = expected[some] * found[some].sum() / expected[some].sum()
    assert stats.chisquare(found[some], expected).pvalue > 1e-4


def test_conditions_on_all_values_at_once_are_caught(rng, monkeypatch):
    monkeypatch.setattr(program, "density", lambda of, rv, reading: pm.logp(lift(rv, reading), reading[rv]))
    with pytest.raises(AssertionError):
        test_exact_draws_have_the_conditional_law(
            next(e for e in DISCRETE if e.name == "child without a law at some values"), rng
        )


def test_a_forgotten_term_is_caught(rng, monkeypatch):
    entry = next(e for e in ONE_RECORD if e.name == "observed child")
    compare(entry, 2, rng)
    original = program.RecordProgram.__init__

    def init(self, model, block, point=None):
        block.terms.clear()
        original(self, model, block, point)

    monkeypatch.setattr(program.RecordProgram, "__init__", init)
    with pytest.raises(AssertionError):
        compare(entry, 2, rng)
