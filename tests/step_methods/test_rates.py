"""Acceptance that the steps report, beside what the draws show and beside rates that are known."""

from __future__ import annotations

from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from pymc_dp.step_methods.updates import dirichlet
from tests.step_methods.test_life import built, counts, response, steps, wavelet
from tests.step_methods.test_sampling import central

pytestmark = pytest.mark.compiles(2)


@cache
def bernoulli():
    """The model of tests/statistics/test_exact.py: no parameter has a closed conditional."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 3)
        x = pm.Bernoulli("x", p, shape=25)
        dp.LaplaceMechanism("s", dp.record_sum(x), epsilon=1.0, bounds=(0, 1), observed=17.2)
    return model


# One Metropolis update per draw: the step, its statistic, its factors, the parameter that moves.
UPDATES = {
    "centred": (
        lambda: dp.AncillaryUpdate(n_centred=1, n_ancillary=0, n_cycles=1, model=bernoulli()),
        ("centred_acceptance", lambda step: step.learnt[0].given_records.factor, "p_logodds__"),
    ),
    "ancillary": (
        lambda: dp.AncillaryUpdate(n_centred=0, n_ancillary=1, n_cycles=1, model=bernoulli()),
        ("ancillary_acceptance", lambda step: step.learnt[0].given_noise.factor, "p_logodds__"),
    ),
    "collapsed": (
        lambda: dp.CollapsedUpdate(n_updates=1, model=built(response)),
        ("collapsed_acceptance", lambda step: step.factors[0], "p_simplex__"),
    ),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.compiles(1)
def test_acceptance_is_that_of_the_draws(name):
    make, (statistic, factor_of, parameter) = UPDATES[name]
    step = make()
    for size, low, high in ((1e-9, 1 - 1e-6, 1), (1e9, 0, 0), (1.0, 0.1, 0.9)):
        step.setup_chain(np.random.default_rng(1), tune=0, draws=500)
        factor = factor_of(step)
        factor[...] = size * np.eye(len(factor))
        point, rates, moved = step.step(step.model.initial_point())[0], [], []
        for _ in range(500):
            before = point[parameter]
            point, (stats,) = step.step(point)
            rates.append(stats[statistic])
            moved.append(not np.array_equal(point[parameter], before))
        rates = np.array(rates)
        assert low <= rates.mean() <= high
        # draws move with the probability that is reported: the sum of the differences is a martingale
        error = np.sqrt((rates * (1 - rates)).sum())
        assert abs(sum(moved) - rates.sum()) <= 4 * error + 1e-6


@pytest.mark.parametrize(
    ("make", "statistics"),
    [
        (lambda: dp.AncillaryUpdate(model=bernoulli()), ["centred_acceptance", "ancillary_acceptance"]),
        (lambda: steps(wavelet, dp.AncillaryUpdate)[0], ["centred_acceptance", "ancillary_acceptance"]),
        (lambda: steps(response, dp.CollapsedUpdate)[0], ["collapsed_acceptance"]),
    ],
    ids=["sum", "rows", "collapsed"],
)
def test_tuning_reaches_its_aim(make, statistics):
    """Three proposals in ten are accepted, which is best in a few dimensions."""
    step = make()
    step.setup_chain(np.random.default_rng(2), tune=1000, draws=500)
    point = step.model.initial_point()
    for _ in range(1000):
        point, _ = step.step(point)
    step.stop_tuning()
    rates = {name: [] for name in statistics}
    for _ in range(500):
        point, (stats,) = step.step(point)
        for name in statistics:
            rates[name].append(stats[name])
    for name, found in rates.items():
        assert 0.15 < np.mean(found) < 0.5, name


def test_slices_are_not_refused():
    step, _ = steps(wavelet, dp.AncillaryUpdate)
    step = dp.AncillaryUpdate(update="slice", model=step.model)
    step.setup_chain(np.random.default_rng(2), tune=0, draws=5)
    _, (stats,) = step.step(step.model.initial_point())
    assert (stats["centred_acceptance"], stats["ancillary_acceptance"]) == (1.0, 1.0)


def walk_acceptance(alpha, rng, n=200_000):
    """Acceptance of a walk of a table's logarithms on its prior, its law where nothing is told."""
    p, most = rng.dirichlet(alpha, n), dirichlet._SCALE / np.sqrt(len(alpha) - 1)
    scale = most * dirichlet._SMALLEST ** rng.random((n, 1)) / np.sqrt(np.maximum(alpha, 1.0))
    step = scale * rng.normal(size=p.shape)
    ratio = step @ alpha - alpha.sum() * np.log((p * np.exp(step)).sum(axis=1))
    return np.minimum(1.0, np.exp(ratio)).mean()


@pytest.mark.statistical
def test_joint_moves_of_tables():
    """Of tables with their records: rows drawn anew are accepted if nothing is told, walks as on the prior.

    Under exact counts only those are accepted that keep them.
    """
    model = built(counts)
    step = dp.ConjugateUpdate(n_cycles=1, model=model)
    found = {}
    for scale in (1e12, 2.0, 1e-4):
        with model:
            pm.set_data({"scale": scale})
        step.setup_chain(np.random.default_rng(3), tune=0, draws=300)
        point, rates = {**model.initial_point(), "c": np.repeat([0, 1, 2], [9, 15, 6])}, []
        for _ in range(2000 if scale == 1e12 else 300):
            point, (stats,) = step.step(point)
            rates.append(stats["table_acceptance"])
        found[scale] = np.array(rates)
        if scale == 1e-4:
            np.testing.assert_array_equal(np.bincount(point["c"]), [9, 15, 6])
    free = found[1e12]
    expected = dirichlet._FRESH + (1 - dirichlet._FRESH) * walk_acceptance(
        np.ones(3), np.random.default_rng(4)
    )
    # draws depend on each other: at most as if every other one were left
    assert abs(free.mean() - expected) < 4 * free.std() / np.sqrt(len(free) / 2)
    assert np.mean(free > 1 - 1e-9) >= dirichlet._FRESH - 4 * np.sqrt(0.25 / len(free))
    assert 0.5 < np.mean(found[1e-4] == 0.0) < 1.0
    assert found[1e-4].mean() + 0.1 < found[2.0].mean() < 0.9
    with model:
        pm.set_data({"scale": 2.0})


def test_share_of_records_accepted():
    """Of all proposals of a draw, in all its sweeps; the lowest probability is kept beside it."""
    step, _ = steps(central, dp.RecordImputation)
    (chain,) = step.chains
    several = dp.RecordImputation(n_sweeps=3, model=step.model)
    for one in (step, several):
        one.setup_chain(np.random.default_rng(4), tune=0, draws=100)
        point, lowest = one.step(step.model.initial_point())[0], []
        for _ in range(100):
            before = point["x"]
            point, (stats,) = one.step(point)
            proposals = chain.program.n * one.n_sweeps
            assert stats["record_acceptance"] * proposals == pytest.approx(
                round(stats["record_acceptance"] * proposals), abs=1e-9
            )
            moved = np.mean(point["x"] != before)
            if one is step:
                assert stats["record_acceptance"] == moved
            else:  # a record may move more than once
                assert moved / 3 - 1e-9 <= stats["record_acceptance"] <= 1
            lowest.append(stats["record_acceptance_min"])
        assert 0 < min(lowest) < 0.5 and max(lowest) <= 1
