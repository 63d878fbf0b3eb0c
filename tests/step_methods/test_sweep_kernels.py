"""Kernels of record sweeps do the same in plain Python, where coverage and debuggers see them."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import plain
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.block.state import RecordState
from pymc_dp.step_methods.record_step import RecordChain
from pymc_dp.step_methods.sweeps import kernels
from tests.kernels import in_machine_code

pytestmark = pytest.mark.compiles(4)

N = 40
NONE = np.empty(0)
EDGES = np.array([-1.5, -1.2, -0.3, 0.5, 1.5])


def alias_tables():
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(4)), shape=N)
    dp.RandomizedResponse("z", c, n_categories=4, epsilon=2, observed=np.arange(N) % 4)


def own_laws():
    c = pm.Categorical("c", np.random.default_rng(1).dirichlet(np.ones(4), size=N))
    dp.RandomizedResponse("z", c, n_categories=4, epsilon=2, observed=np.arange(N) % 4)
    dp.LaplaceMechanism("s", c, scale=1.0, bounds=(0, 3), observed=np.linspace(0, 3, N))


def bins():
    y = pm.Normal("y", pm.Normal("mu"), 1, shape=N)
    dp.PerturbedHistogram("z", y, edges=EDGES, epsilon=9, observed=np.array([4.0, 12.0, 12.0, 12.0]))
    dp.LaplaceMechanism("s", dp.record_sum(dp.clamp(y, -2, 2)), scale=2.0, observed=4.0)


def cells():
    y = pm.Normal("y", pm.Normal("mu"), 1, shape=N)
    law = {"epsilon": 10, "level": 4, "bounds": (-2, 2)}
    z = pm.draw(dp.WaveletMechanism.dist(np.linspace(-1.5, 1.5, N), **law), random_seed=1)
    dp.WaveletMechanism("z", y, **law, observed=z)
    dp.LaplaceMechanism("s", dp.record_sum(dp.clamp(y, -2, 2)), scale=2.0, observed=4.0)


def tables():
    p, w = pm.Dirichlet("p", np.ones(4)), pm.Dirichlet("w", np.ones((4, 3)))
    a = pm.Categorical("a", p, shape=N)
    b = pm.Categorical("b", w[a], shape=N)
    rows = pt.cast(pt.stack([pt.eq(a, b), 2 * a * b, pt.eq(b, 1)], axis=1), "float64")
    dp.LaplaceMechanism("z", dp.record_sum(rows), scale=4.0, observed=np.array([13.0, 120.0, 13.0]))
    dp.GaussianMechanism("s", dp.record_sum(pt.cast(b, "float64")), sigma=6.0, sensitivity=2, observed=40.0)


def few_sums():
    y = pm.Gamma("y", 2, pm.HalfNormal("b"), shape=N)
    sums = pt.stack([dp.clamp(y, 0, 4), dp.clamp(y, 0, 4) ** 2], axis=1)
    dp.LaplaceMechanism("z", dp.record_sum(sums), scale=4.0, observed=np.array([40.0, 90.0]))
    pm.Normal("w", y, 1, observed=np.linspace(0, 3, N))


def slots():
    people = pm.DiscreteUniform("people", 1, N, initval=25)
    y = pm.Gamma("y", 2, pm.HalfNormal("b"), shape=N)
    dp.LaplaceMechanism("z", dp.record_sum(dp.clamp(y, 0, 4), count=people), scale=4.0, observed=20.0)
    dp.LaplaceMechanism("c", people, scale=1.0, observed=24.0)


def many_sums():
    y = pm.Normal("y", pm.Normal("mu"), 1, shape=N)
    waves = pt.stack([pt.cos(k * y) for k in range(1, 19)], axis=1)
    dp.LaplaceMechanism("z", dp.record_sum(waves), scale=8.0, sensitivity=36, observed=np.zeros(18))


def sums_by_group():
    y = pm.Normal("y", pm.Normal("mu"), 1, shape=N)
    sums = pt.zeros((9, 2))[np.arange(N) % 9 - 9].inc(pt.stack([y, pt.cos(y)], axis=1))
    dp.LaplaceMechanism("z", sums, scale=2.0, sensitivity=4, observed=np.ones((9, 2)))
    dp.LaplaceMechanism("s", dp.record_sum(dp.clamp(y, -2, 2)), scale=2.0, observed=4.0)


# a model, its proposals, the kernel that fits
CASES = {
    "alias_tables": (alias_tables, "auto", "shared_sweep"),
    "own_laws": (own_laws, "auto", "sweep"),
    "bins": (bins, "informed", "histogram_sweep"),
    "few_sums": (few_sums, "independence", "few_sums_sweep"),
    "slots": (slots, "independence", "few_sums_sweep"),
    "many_sums": (many_sums, "independence", "many_sums_sweep"),
    "sums_by_group": (sums_by_group, "independence", "many_sums_sweep"),
    "tables": (tables, "independence", "table_sweep"),
    "cells": (cells, "informed", "tabled_sweep"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("prior_only", [False, True])
def test_the_same_in_python(name, prior_only):
    declare, proposals, kernel = CASES[name]
    with pm.Model() as model:
        declare()
    (block,) = find_record_blocks(model)
    chain = RecordChain(model, block, proposals, model.initial_point())
    program, fused = chain.program, chain.moves[0].fused
    assert fused.rows.kernel.__name__ == kernel
    theta = program.parameters.flatten(model.initial_point())
    start = chain.draw(np.random.default_rng(2), theta).copy()
    c, cov = np.empty(fused.n_constants), np.empty((fused.n_columns, N))
    kernels.hoist(fused.hoist.address, theta, chain.data, c, cov)
    value, params = np.empty(program.n_statistics), np.empty((program.n_statistics, program.n_parameters))
    offset = np.empty(program.n_statistics)
    if program.n_statistics:
        program.central.releases.dispatcher(theta, chain.data, value, params, offset)
    results = []
    for run in (plain(fused.rows.kernel, fused.rows.names), in_machine_code(fused.rows)):
        rng, x, totals = np.random.default_rng(3), start.copy(), np.zeros(program.n_statistics)
        tally = np.array([0.0, 1.0])
        state = RecordState(
            theta, chain.data, c, cov, value, params, offset, x, totals, prior_only, tally, NONE, NONE
        )
        run(2, rng, state)
        results.append((x, totals, tally, rng.random()))
    assert results[0][3] == results[1][3]  # as many random numbers
    for python, machine in zip(*(r[:3] for r in results), strict=True):
        np.testing.assert_allclose(python, machine, rtol=1e-12, atol=1e-12)
    assert not np.array_equal(results[0][0], start)


@pytest.mark.parametrize("people", [0, 1, 25, N])
def test_slots_of_nobody_are_drawn_as_if_they_were_asked_for(people):
    with pm.Model() as model:
        slots()
    (block,) = find_record_blocks(model)
    chain = RecordChain(model, block, "independence", model.initial_point())
    program, fused = chain.program, chain.moves[0].fused
    theta = program.parameters.flatten(model.initial_point())
    assert theta[program.people_at] == 25.0
    theta[program.people_at] = people
    start = chain.draw(np.random.default_rng(2), theta).copy()
    c, cov = np.empty(fused.n_constants), np.empty((fused.n_columns, N))
    kernels.hoist(fused.hoist.address, theta, chain.data, c, cov)
    value, params, offset = np.empty(1), np.empty((1, program.n_parameters)), np.empty(1)
    program.central.releases.dispatcher(theta, chain.data, value, params, offset)
    results = []
    for at in (program.people_at, -1):
        rng, x, totals, tally = np.random.default_rng(3), start.copy(), np.zeros(1), np.array([0.0, 1.0])
        state = RecordState(
            theta, chain.data, c, cov, value, params, offset, x, totals, False, tally, NONE, NONE
        )
        plain(fused.rows.kernel, {**fused.rows.names, "PEOPLE_AT": at})(2, rng, state)
        results.append((x, totals, tally, np.array(rng.random())))
    for skipped, asked in zip(*results, strict=True):
        np.testing.assert_array_equal(skipped, asked)
    assert np.all(results[0][0][people:] != start[people:])  # nothing stays


def test_tables_and_records_the_same_in_python():
    with pm.Model() as model:
        tables()
        step = dp.ConjugateUpdate()
    (run,) = step._parts
    program, update = run.chain.program, run.update
    theta = program.parameters.flatten(model.initial_point())
    start = run.chain.draw(np.random.default_rng(2), theta).copy()
    value, params = np.empty(program.n_statistics), np.empty((program.n_statistics, program.n_parameters))
    offset, alpha = np.empty(program.n_statistics), np.empty(update.size)
    program.central.releases.dispatcher(theta, run.chain.data, value, params, offset)
    update.start.dispatcher(theta, run.chain.data, alpha)
    totals_of_start, results = run.chain.totals.copy(), []
    for kernel in (plain(update.update.kernel, update.update.names), in_machine_code(update.update)):
        rng, x, totals, p = (
            np.random.default_rng(3),
            start.copy(),
            totals_of_start.copy(),
            np.empty(update.size),
        )
        tally = np.zeros(2)
        state = RecordState(
            theta, run.chain.data, p, np.empty((0, N)), value, params, offset, x, totals, False, NONE, alpha,
            tally,
        )  # fmt: skip
        for _ in range(5):
            kernel(1, rng, state)
        results.append((x, totals, p, tally, rng.random()))
    assert results[0][4] == results[1][4]  # as many random numbers
    for python, machine in zip(*(r[:4] for r in results), strict=True):
        np.testing.assert_allclose(python, machine, rtol=1e-12, atol=1e-12)
    assert 0 < results[0][3][0] < results[0][3][1] and not np.array_equal(results[0][0], start)
