"""Compiled sweeps against the model itself: acceptance probabilities and totals."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import pymc_dp as dp
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.imputation import RecordChain
from pymc_dp.step_methods.sweeps import kernels
from pymc_dp.step_methods.sweeps.parts import count, least
from tests.step_methods.zoo import CORE, EVERY, ZOO, jittered, laplace

PYTHON = Mode(linker="py", optimizer="fast_compile")
THIRD = pytest.mark.parametrize(
    "entry", [p for k, p in enumerate(EVERY.args[1]) if k % 3 == 0 or p.id in {*CORE, "two blocks"}]
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


@pytest.mark.compiles(4)
@EVERY
def test_sweep(entry, rng):
    """Totals after a sweep are those of its records, which stay in the support."""
    model = entry.build(max(2, entry.smallest))
    logp = model.compile_logp(mode=PYTHON)
    for chain in chains(model, "auto"):
        theta, x = at(chain, jittered(model, rng), rng)
        for which in range(len(chain.moves)):
            tally = chain.sweep(rng, theta, x, which, 30)
            assert 0 < tally[0] <= 30 * chain.program.n + 1e-9
            assert 0 <= tally[1] <= 1
            assert np.isfinite(x).all()
            t, w = np.empty((chain.program.n, chain.totals.size)), np.empty(chain.program.n)
            contribute = chain.program.contribute  # before the data are gathered, which it may add to
            contribute.dispatcher(theta, chain.program.data.gather(), x, t, w)
            np.testing.assert_allclose(chain.totals, t.sum(axis=0), rtol=1e-10, atol=1e-10)
        if entry.name != "two blocks":
            assert np.isfinite(logp(point_of(chain, theta, x)))


@pytest.mark.compiles(4)
@THIRD
def test_acceptance_ratio(entry, rng):
    """With as few records as possible, the acceptance probability is the one the model implies.

    The candidate is the same draw that a sweep makes when it ignores the releases, from the same
    state of the generator. In a model of one record, or as far as the first record of several. All models
    are tried with two records, and on both sides of boundaries, in tests/universal/test_record_sweeps.py.
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


@pytest.mark.statistical
def test_general_sweep_replayed(rng):
    """Sweeps of a query that is no sum, beside a sum and a potential: every decision made again by the model.

    In each sweep candidates come first and exponential numbers after them, one for each that may be refused,
    so the whole model's density and the same generator give the same records, bit for bit.
    """
    (entry,) = (e for e in ZOO if e.name == "general")
    model = entry.build(4)
    logp = model.compile_logp(mode=PYTHON)
    (chain,) = chains(model)
    own = model.compile_logp(vars=chain.program.block.records, mode=PYTHON)
    theta, x = at(chain, jittered(model, rng), rng)
    refused = {after: 0 for after in (False, True)}  # whether one before it was accepted in the same sweep

    def target(records):
        point = point_of(chain, theta, records)
        return logp(point) - own(point)

    for seed in range(30):
        ours = np.random.default_rng(seed)
        expected, n_accepted, lowest = x.copy(), 0, 1.0
        for _ in range(3):
            x_new, moved = np.empty_like(x), False
            t_new, w_new = np.empty((4, chain.totals.size)), np.empty(4)
            chain.program.propose.dispatcher(ours, theta, chain.data, expected, x_new, t_new, w_new)
            for i in range(4):
                candidate = expected.copy()
                candidate[i] = x_new[i]
                ratio = target(candidate) - target(expected)
                lowest = min(lowest, math.exp(min(ratio, 0.0)))
                if ratio >= 0 or ratio > -ours.standard_exponential():
                    expected, n_accepted, moved = candidate, n_accepted + 1, True
                else:
                    refused[moved] += 1
        tally = chain.sweep(np.random.default_rng(seed), theta, x, 0, 3)
        np.testing.assert_array_equal(x, expected)
        assert tally[0] == n_accepted
        assert tally[1] == pytest.approx(lowest, rel=1e-8)
    assert min(refused.values()) > 10  # a density left behind by an acceptance would have shown


def in_a_block(rng, total, tally):
    """The decision of sweeps that draw all waiting times first, and count at the end."""
    wait = rng.standard_exponential()
    lowest = least.py_func(0.0, total)
    accepted = total >= -wait
    count.py_func(SimpleNamespace(tally=tally, prior_only=False), float(accepted), lowest)
    return accepted


@pytest.mark.parametrize("decide", [kernels.accept, in_a_block], ids=["at once", "in a block"])
@pytest.mark.parametrize(
    ("log_ratio", "share", "lowest"),
    [(np.nan, 0, 0), (-np.inf, 0, 0), (np.inf, 1, 1), (0.0, 1, 1), (-1.0, math.exp(-1), math.exp(-1))],
)
def test_decision(decide, log_ratio, share, lowest):
    """A ratio that is not a number is refused and counted as impossible."""
    n, rng, tally = 4000, np.random.default_rng(1), np.array([0.0, 1.0])
    accepted = sum(decide(rng, log_ratio, tally) for _ in range(n))
    assert accepted == tally[0]
    assert abs(accepted - n * share) <= 4 * math.sqrt(n * share * (1 - share))
    assert tally[1] == pytest.approx(lowest, rel=1e-12)


def test_undefined_density_is_refused():
    """A fused sweep never goes where the model's density is not a number."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.5, 1, shape=6)
        pm.Potential("root", pt.log(pt.sqrt(x)))
        laplace(x.sum())
    (chain,) = chains(model)
    assert chain.moves[0].fused is not None
    theta, x = np.zeros(0), np.full((6, 1), 0.3)
    tally = chain.sweep(np.random.default_rng(3), theta, x, 0, 200)
    assert (x > 0).all() and tally[0] > 100
    assert tally[1] == 0.0


@pytest.mark.parametrize("law", ["beta", "gamma"])
def test_candidates_are_judged_as_records_are(law):
    """Numbers that round to 0 or 1 have values that do not, for candidates and for records alike."""
    n = 400
    with pm.Model() as model:
        if law == "beta":  # one in six rounds to 1, where its logarithm is none
            y = pm.Beta("y", 0.05, 0.05, shape=n)
            query = pt.log(y) + pt.log1p(-y)
        else:  # half of them are below the smallest number
            y = pm.Gamma("y", 0.001, 1, shape=n)
            query = dp.clamp(pt.log(y), -5000, 0)
        dp.LaplaceMechanism("z", dp.record_sum(query), scale=1e9, observed=0.0)
    (chain,) = chains(model)
    theta, x = np.zeros(0), np.zeros((n, 1))
    tally = chain.sweep(np.random.default_rng(1), theta, x, 0)
    assert tally[0] == n and tally[1] > 0.99  # next to no privacy loss: nothing to refuse
    changed = chain.totals.copy()
    chain.sweep(np.random.default_rng(1), theta, x, 0, n_sweeps=0)
    np.testing.assert_allclose(changed, chain.totals, rtol=1e-9)  # decided as if it was recorded


def test_a_point_of_another_size_is_refused():
    """Compiled loops check no bounds."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=(4, 2))
        laplace(x.sum())
    (chain,) = chains(model)
    for shape in ((5, 2), (3, 2), (4, 4)):
        with pytest.raises(ValueError, match="reshape"):
            chain.program.records.pack({"x": np.zeros(shape)})
