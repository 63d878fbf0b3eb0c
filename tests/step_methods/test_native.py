"""Compiled sweeps against the model itself: acceptance probabilities and totals."""

from __future__ import annotations

import numpy as np
import pytest
from pytensor.compile.mode import Mode

from pymc_dp.records import find_record_blocks
from pymc_dp.step_methods.imputation import RecordChain
from tests.step_methods.zoo import ZOO, jittered

PYTHON = Mode(linker="py", optimizer="fast_compile")
# Compiled in every run; the others with the statistical suites only, for the time it takes.
CORE = {
    "normal sum", "clamped mean", "exponential", "bernoulli", "categorical", "geometric",
    "multivariate normal", "simplex", "regression", "masked covariate", "potentials",
    "three releases", "disjoint rows", "covariate shares", "function of sums", "general",
}  # fmt: skip
EVERY = pytest.mark.parametrize(
    "entry",
    [pytest.param(e, id=e.name, marks=[] if e.name in CORE else [pytest.mark.statistical]) for e in ZOO],
)


def chains(model, proposals="independence"):
    point = model.initial_point()
    return [RecordChain(model, b, proposals, point) for b in find_record_blocks(model)]


def at(chain, point, rng):
    """Flat parameters, and records drawn from their law there (a point in the support)."""
    theta = chain.program.parameters.flatten(point)
    return theta, chain.draw(rng, theta).copy()


def point_of(chain, theta, x):
    return {**chain.program.parameters.unflatten(theta), **chain.program.records.unpack(x)}


@EVERY
def test_sweep(entry, rng):
    """Totals after a sweep are those of its records, which stay in the support."""
    model = entry.build(max(4, entry.smallest))
    logp = model.compile_logp(mode=PYTHON)
    for chain in chains(model, "auto"):
        theta, x = at(chain, jittered(model, rng), rng)
        for which in range(len(chain.moves)):
            tally = chain.sweep(rng, theta, x, which, 3)
            assert 0 < tally[0] <= 3 * chain.program.n + 1e-9
            assert 0 <= tally[1] <= 1
            assert np.isfinite(x).all()
            t, w = np.empty((chain.program.n, chain.totals.size)), np.empty(chain.program.n)
            chain.program.contribute.dispatcher(theta, chain.data, x, t, w)
            np.testing.assert_allclose(chain.totals, t.sum(axis=0), rtol=1e-10, atol=1e-10)
        if entry.name != "two blocks":
            assert np.isfinite(logp(point_of(chain, theta, x)))


@EVERY
def test_acceptance_ratio(entry, rng):
    """With as few records as possible, the acceptance probability is the one the model implies.

    The candidate is the same draw that a sweep makes when it ignores the releases, from the same
    state of the generator. In a model of one record, or as far as the first record of several.
    """
    if entry.smallest > 1:
        pytest.skip("needs more than one record")
    model = entry.build(1)
    logp = model.compile_logp(mode=PYTHON)
    all_chains = chains(model)
    ratios = []
    for chain in all_chains:
        if chain.program.n > 1:
            continue
        own = model.compile_logp(vars=chain.program.block.records, mode=PYTHON)
        point = jittered(model, rng)
        for other in all_chains:  # a point in the support
            theta, x = at(other, point, rng)
            point.update(other.program.records.unpack(x))
        theta = chain.program.parameters.flatten(point)
        x = chain.program.records.pack(point)
        for seed in range(12):
            candidate = chain.draw(np.random.default_rng(seed), theta).copy()
            before, after = (point_of(chain, theta, r) for r in (x, candidate))
            expected = logp(after) - own(after) - logp(before) + own(before)
            current = x.copy()
            tally = chain.sweep(np.random.default_rng(seed), theta, current, 0)
            assert tally[1] == pytest.approx(min(1.0, np.exp(expected)), rel=1e-8, abs=1e-12)
            assert tally[0] == float(np.array_equal(current, candidate))
            if expected >= 0:
                np.testing.assert_array_equal(current, candidate)
            else:
                ratios.append(np.exp(expected))
            x = current
    assert ratios or entry.name == "discrete uniform"  # otherwise nothing was put to the test
