"""The life of a step: its dispersed start, tuning that ends, moves by turns, a state to continue from."""

from __future__ import annotations

import os
from copy import deepcopy
from functools import cache, partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.lowering.compiling.nopython import Declared
from pymc_dp.step_methods.updates.cycles import Jumps
from tests.step_methods.test_sampling import assert_same, central

pytestmark = pytest.mark.compiles(2)

TUNE = 80


def wavelet():
    """Records released one by one and precisely: moved by two moves in turn."""
    y = np.random.default_rng(7).normal(0.6, 1, size=30)
    law = {"level": 6, "bounds": (-3, 3), "epsilon": 250}
    z = pm.draw(dp.WaveletMechanism.dist(y, **law), random_seed=8)
    with pm.Model() as model:
        mu, log_sd = pm.Normal("mu", 0, 2), pm.Normal("log_sd", 0, 0.5)
        dp.WaveletMechanism("z", pm.Normal("y", mu, pm.math.exp(log_sd), shape=30), **law, observed=z)
    return model


def areas():
    """Effects of areas, each behind a sum over its own people, and what they are around."""
    area = np.repeat(np.arange(4), 5)
    with pm.Model() as model:
        effect = pm.Normal("effect", pm.Normal("m", 0, 2), pm.HalfNormal("tau", 1), shape=4)
        query = pt.zeros(4)[area].inc(pm.Normal("y", effect[area], 1, shape=20))
        dp.LaplaceMechanism("z", query, scale=2.0, observed=[3.0, -2.0, 5.0, 8.0])
    return model


def response():
    """Categories whose probabilities are learnt with the records integrated out, or from the records."""
    with pm.Model() as model:
        c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=6)
        dp.RandomizedResponse("z", c, epsilon=0.5, observed=np.array([0, 2, 2, 1, 2, 2]))
    return model


def counts():
    """Noisy counts of categories, drawn together with their probabilities."""
    with pm.Model() as model:
        c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=30)
        scale = pm.Data("scale", 2.0)
        query = dp.record_sum(pm.math.eq(c[:, None], np.arange(3)))
        dp.LaplaceMechanism("z", query, scale=scale, observed=[9.0, 15.0, 6.0])
    return model


slice_update = partial(dp.AncillaryUpdate, update="slice")
hamiltonian = partial(dp.AncillaryUpdate, update="hamiltonian")
by_group = partial(dp.AncillaryUpdate, update="by_group")
built = cache(lambda declare: declare())


@cache
def steps(declare, make):
    """Two steps of one model, which share what is compiled."""
    model = built(declare)
    return make(model=model), make(model=model)


def surveys():
    """A mean of two groups of people, each behind a sum of its own."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        for k in range(2):
            dp.LaplaceMechanism(
                f"z{k}", pm.Normal(f"y{k}", mu, 1 + k, shape=8).sum(), scale=9.0, observed=5.0
            )
    return model


CASES = {
    "records, tempered": (central, dp.RecordImputation),
    "records, by turns": (wavelet, dp.RecordImputation),
    "ancillary, by turns": (wavelet, dp.AncillaryUpdate),
    "ancillary, tempered": (central, dp.AncillaryUpdate),
    "slice": (wavelet, slice_update),
    "hamiltonian": (central, hamiltonian),
    "by group": (areas, by_group),
    "several blocks": (surveys, dp.AncillaryUpdate),
    "redraw": (central, partial(dp.AncillaryUpdate, update="redraw")),
    "collapsed": (response, dp.CollapsedUpdate),
    "conjugate": (counts, dp.ConjugateUpdate),
}


def run(step, point, n, trace=None):
    """Take some steps as `pm.sample` does; return the last point."""
    for _ in range(n):
        point, (stats_of_draw,) = step.step(point)
        if step.n_steps == TUNE:
            step.stop_tuning()
        if trace is not None:
            trace.append((point, stats_of_draw))
    return point


@pytest.mark.compiles(1)
@pytest.mark.parametrize("name", CASES)
def test_sampling_state_continues_identically(name):
    """In another step that has not begun, and in the same one: before, in and after tuning."""
    step, fresh = steps(*CASES[name])
    default = step.model.initial_point()
    for n_before, at_default in ((0, True), (7, False), (7, True), (41, False), (TUNE + 5, False)):
        step.setup_chain(np.random.default_rng(4), tune=TUNE, draws=20)
        at = run(step, default, n_before)
        state = step.sampling_state
        fresh.setup_chain(np.random.default_rng(5), tune=3, draws=1)
        runs = []
        for one in (fresh, step):
            one.sampling_state = state
            trace = []
            run(one, default if at_default else at, TUNE - n_before + 8 if n_before < TUNE else 8, trace)
            runs.append(trace)
        for (first, stats_of_one), (second, stats_of_other) in zip(*runs, strict=True):
            assert_same(first, second)
            np.testing.assert_equal(stats_of_one, stats_of_other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("name", CASES)
def test_forked_chains_have_nothing_left_to_compile(name, monkeypatch):
    """They would all compile the same."""
    declare, make = CASES[name]
    step = make(model=built(declare))
    compiled, compile = [], Declared.compile
    monkeypatch.setattr(Declared, "compile", lambda self, sig: compiled.append(self) or compile(self, sig))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            step.setup_chain(np.random.default_rng(4), tune=TUNE, draws=20)
            run(step, step.model.initial_point(), 8)
            status = len(compiled)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# what some updates make nothing of
UNUSED = {
    ("redraw", "given_records"), ("redraw", "given_noise"), *(
        (name, what)
        for name in ("ancillary, by turns", "slice", "hamiltonian", "by group")
        for what in ("proposals", "recent", "redrawn")
    ),
    # there are no parameters of parameters
    *((name, "given_effects") for name in ("ancillary, by turns", "slice", "hamiltonian", "redraw")),
    # the number of cycles while tuning is often the best one (tests/step_methods/test_cycles.py has others)
    *((name, "n_cycles") for name in ("ancillary, by turns", "slice", "hamiltonian", "by group", "redraw")),
    # a walk of a few parameters does not give way to trajectories (tests/step_methods/test_learnt_updates.py)
    *(
        (name, what)
        for name in ("ancillary, by turns", "slice", "hamiltonian", "by group", "redraw")
        for what in ("draws", "begun_at", "walked", "follows", "in_turn")
    ),
}  # fmt: skip


def learnt(step):
    found = {name: deepcopy(getattr(step, name)) for name in ("n_adapted", "factors") if hasattr(step, name)}
    for of_block in getattr(step, "learnt", ()):
        for name, value in vars(deepcopy(of_block)).items():
            together = np.concatenate([v.ravel() for v in value]) if isinstance(value, tuple) else value
            together = value.squares.copy() if isinstance(value, Jumps) else together
            found[name] = [*found.get(name, ()), together]
    return found


@pytest.mark.statistical  # compiles
@pytest.mark.parametrize("early", [True, False], ids=["stopped early", "tuned"])
@pytest.mark.parametrize(
    "name", ["ancillary, by turns", "slice", "hamiltonian", "by group", "redraw", "collapsed"]
)
def test_nothing_is_learnt_after_tuning(name, early):
    """A sampler that goes on learning from its own draws is no Markov chain: not a bit may change."""
    step, _ = steps(*CASES[name])
    step.setup_chain(np.random.default_rng(4), tune=TUNE, draws=200)
    before = learnt(step)
    point = run(step, step.model.initial_point(), TUNE - 20 if early else TUNE)
    step.stop_tuning()
    frozen = learnt(step)
    assert len(frozen) >= 2
    for what, value in frozen.items():
        if what not in ("n_adapted", "n_updates"):  # counters, which are set back at the end
            assert not np.array_equal(value, before[what]) or (name, what) in UNUSED, what
    if name == "ancillary, by turns":  # a precise release leaves little to updates given the noise
        assert (frozen["n_updates"] < before["n_updates"]) == (not early)
    run(step, point, 60)  # past the draw at which all of it would have been learnt
    for what, value in learnt(step).items():
        np.testing.assert_array_equal(value, frozen[what], err_msg=what)


@pytest.mark.parametrize("name", CASES)
def test_no_chain_learns_from_the_one_before(name):
    """Or draws would depend on which chains share a process."""
    step, _ = steps(*CASES[name])
    traces = []
    for _ in range(2):
        step.setup_chain(np.random.default_rng(6), tune=TUNE, draws=10)
        traces.append([])
        run(step, step.model.initial_point(), TUNE + 10, traces[-1])
    for (first, stats_of_one), (second, stats_of_other) in zip(*traces, strict=True):
        assert_same(first, second)
        np.testing.assert_equal(stats_of_one, stats_of_other)


def test_moves_take_turns(monkeypatch):
    """At a budget of 250 proposals from the model fail, and every second sweep does not propose from it."""
    step, _ = steps(wavelet, dp.RecordImputation)
    (chain,) = step.chains
    assert [move.name for move in chain.moves] == ["independence", "cells"]
    taken, sweep = [], chain.sweep
    monkeypatch.setattr(
        chain,
        "sweep",
        lambda rng, theta, x, which, n: (taken.append(which), sweep(rng, theta, x, which, n))[1],
    )
    step.setup_chain(np.random.default_rng(1), tune=0, draws=200)
    point, rates = step.model.initial_point(), []
    for _ in range(200):
        before = point
        point, (stats_of_draw,) = step.step(before)
        rates.append(stats_of_draw["record_acceptance"])
        if len(rates) > 1:  # the records of the first point are drawn anew
            assert rates[-1] == np.mean(point["y"] != before["y"])
    assert taken == [0, 1] * 100
    rates = np.array(rates)[20:]
    assert rates[::2].mean() < 0.1
    assert rates[1::2].mean() > 0.6
    assert rates.mean() > 0.3


def sixteen_answers():
    with pm.Model() as model:
        c = pm.Categorical("c", np.ones(16) / 16, shape=40)
        dp.RandomizedResponse("z", c, epsilon=10, observed=np.arange(40) % 16)
    return model


def smoothed_histogram():
    with pm.Model() as model:
        y = pm.Normal("y", 0.3, 1.1, shape=20)
        z = np.array([-1.1, -0.7, 0.2, 0.3, 0.4])
        dp.SmoothedHistogramSample("z", y, n_bins=3, bounds=(-1.5, 1.5), epsilon=100, observed=z)
    return model


@pytest.mark.statistical
@pytest.mark.parametrize(("declare", "least"), [(sixteen_answers, 1.0), (smoothed_histogram, 0.3)])
def test_acceptance_does_not_collapse(declare, least):
    """At large budgets, of the step that users run."""
    step = dp.RecordImputation(model=declare())
    step.setup_chain(np.random.default_rng(1), tune=0, draws=120)
    point, rates = step.model.initial_point(), []
    for _ in range(120):
        point, (stats_of_draw,) = step.step(point)
        rates.append(stats_of_draw["record_acceptance"])
    assert np.mean(rates[20:]) >= least


@pytest.mark.parametrize("tune", [10, 0])
def test_starts_are_dispersed(tune):
    """Parameters by U(-1, 1) while tuning, and records from their law given them."""
    step, _ = steps(central, dp.RecordImputation)
    default = step.model.initial_point()
    assert default["mu"] == 0.5
    starts = []
    for seed in range(400):
        step.setup_chain(np.random.default_rng(seed), tune=tune, draws=1)
        starts.append(step._started(default))
        assert_same(step._started(default), default)  # the second time nothing is moved
    mu = np.array([start["mu"] for start in starts])
    x = np.array([start["x"] for start in starts])
    if tune:
        assert stats.kstest(mu - 0.5, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    else:
        assert (mu == 0.5).all()
    assert stats.kstest(((x - mu[:, None]) / 0.8).ravel(), "norm").pvalue > 1e-3
    # and it is from there that the first step goes on
    step.setup_chain(np.random.default_rng(399), tune=tune, draws=1)
    assert step.step(default)[0]["mu"] == mu[-1]
