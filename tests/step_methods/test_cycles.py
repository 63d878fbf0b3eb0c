"""How many cycles a draw is worth: what is learnt of it, and that it stays as it is after tuning."""

from copy import deepcopy

import numpy as np
import pymc as pm
import pytest
from scipy import signal

import pymc_dp as dp
from pymc_dp.step_methods.updates.cycles import Jumps, best_number, cost_of_a_draw, sweeps_first

DRAWS = 667


def series(parts, n_cycles, seed, n_draws=DRAWS):
    """Jumps of a sum of autoregressions, {autocorrelation: share of the variance}, and its variance."""
    rng, total = np.random.default_rng(seed), 0.0
    for rho, share in parts.items():
        shocks = rng.normal(size=n_draws * n_cycles + 1) * np.sqrt(share * (1 - rho**2))
        shocks[0] /= np.sqrt(1 - rho**2)
        total = total + signal.lfilter([1.0], [1.0, -rho], shocks)
    jumps = Jumps(1, n_cycles)
    for first in range(0, total.size - 1, n_cycles):
        jumps.add(total[first : first + n_cycles + 1, None])
    return jumps, np.var(total[n_cycles::n_cycles, None], axis=0)


def exact(parts, lags):
    """Independent draws that one of so many cycles is worth."""
    powers = np.arange(1, 3000)[:, None] * lags
    left = sum(share * rho**powers for rho, share in parts.items())
    return 1 / (1 + 2 * left.sum(axis=0))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("parts", "n_cycles"), [({0.1: 1.0}, 8), ({0.6: 1.0}, 8), ({0.95: 1.0}, 6), ({0.3: 0.7, 0.85: 0.3}, 8)]
)
def test_effective_draws_of_autoregressions(parts, n_cycles, seed):
    """On average over samples, within a third: four autocorrelations show two scales of time roughly."""
    found = [Jumps.effective(*series(parts, n_cycles, [seed, k])) for k in range(20)]
    lags = Jumps(1, n_cycles).lags
    assert list(lags) == sorted({*(n for n in (1, 2, 4, 8) if n <= n_cycles), n_cycles})
    np.testing.assert_allclose(np.mean(found, axis=0), exact(parts, lags), rtol=1 / 3)


@pytest.mark.parametrize(
    ("parts", "chosen"),
    # of the largest rate that the known autocorrelations give, these have at least nine tenths
    [({0.1: 1.0}, {1, 2}), ({0.6: 1.0}, {4}), ({0.95: 1.0}, {8}), ({0.1: 0.7, 0.9: 0.3}, {4, 8})],
)
def test_the_number_makes_most_effective_draws_for_its_cost(parts, chosen):
    lags = np.array([1, 2, 4, 8])
    rates = exact(parts, lags) / cost_of_a_draw(100, lags, 164.0)
    assert chosen == set(lags[rates >= 0.895 * rates.max()])
    found = [best_number(*series(parts, 8, seed), 100, 164.0) for seed in range(20)]
    assert sum(n in chosen for n in found) >= 18  # chance may hide a gain
    # what costs a hundred times as much is not thrown away
    assert {best_number(*series(parts, 2, seed), 10**5, 1e3) for seed in range(5)} == {2}


def test_few_draws_of_tuning_choose_nothing():
    jumps, variance = series({0.0: 1.0}, 8, 1, n_draws=40)
    assert best_number(jumps, variance, 100, 164.0) == 8
    assert best_number(Jumps(1, 4), np.zeros(1), 100, 164.0) == 4


def test_a_first_sweep_is_spared_where_there_are_many_records_and_other_cycles():
    assert sweeps_first(200, np.array([1, 2, 8])).tolist() == [1, 1, 1]
    assert sweeps_first(201, np.array([1, 2, 8])).tolist() == [1, 0, 0]
    few, many = (cost_of_a_draw(n, np.array([1, 2, 3]), 0.0) for n in (200, 10_000))
    assert np.ptp(np.diff(few)) == 0  # the same for each cycle
    assert np.diff(many).tolist() == [np.diff(few)[0] - 10_000, np.diff(few)[0]]


def central():
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 2), pm.HalfNormal("s", 2)
        y = pm.Normal("y", mu, s, shape=60)
        query = dp.record_sum(pm.math.stack([y, y**2], axis=1))
        dp.LaplaceMechanism("z", query, epsilon=1.0, bounds=[(-4, 4), (0, 16)], observed=[40.0, 120.0])
    return model


def changed_after_tuning(step, tune=200, draws=20):
    """Whether anything that was learnt changes once tuning has ended, and the cycles of all draws."""
    step.setup_chain(np.random.default_rng(3), tune=tune, draws=draws)
    point, cycles = step.model.initial_point(), []
    for k in range(tune + draws):
        if k == tune:
            step.stop_tuning()
            before = deepcopy(step.learnt)
        point, (stats,) = step.step(point)
        cycles.append(stats["ancillary_cycles"])
    changed = False
    for old, new in zip(before, step.learnt, strict=True):
        changed |= old.n_cycles != new.n_cycles or not np.array_equal(old.jumps.squares, new.jumps.squares)
        for mine, theirs in ((old.given_records, new.given_records), (old.given_noise, new.given_noise)):
            changed |= not all(map(np.array_equal, mine, theirs))
    return changed, cycles


@pytest.mark.parametrize("update", ["random_walk", "hamiltonian"])
def test_what_is_learnt_stays_after_tuning(update):
    step = dp.AncillaryUpdate(update=update, model=central())
    changed, cycles = changed_after_tuning(step)
    assert not changed
    assert set(cycles[:200]) == {step._parts[0].updates.n_cycles}
    (chosen,) = set(cycles[200:])
    assert 1 <= chosen <= step._parts[0].updates.n_cycles
    if update == "random_walk":
        assert chosen < step._parts[0].updates.n_cycles
    # planted: tuning that does not end
    step.stop_tuning = lambda: None
    assert changed_after_tuning(step)[0]


def test_a_number_that_is_given_stays():
    step = dp.AncillaryUpdate(n_cycles=5, model=central())
    assert set(changed_after_tuning(step)[1]) == {5}
    # and what one chain has chosen is not what the next one tunes with
    step = dp.AncillaryUpdate(model=central())
    first, second = (changed_after_tuning(step)[1] for _ in range(2))
    assert first == second
