"""Sweeps over very many local records, which are split into parts for several cores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods import record_step
from tests.statistics.marginal import from_log_density

pytestmark = pytest.mark.compiles(2)

N, N_PARTS = 2003, record_step.N_PARTS  # parts of unequal sizes
SD, SCALE, DEVIATION = 0.5, 0.7, 1.0
CENTRE = 100.0 * np.arange(N)


@pytest.fixture(scope="module")
def chain():
    """Records about centres far apart, each released a distance of 1 from its centre."""
    with pm.Model() as model:
        y = pm.Normal("y", CENTRE, SD, shape=N)
        dp.LaplaceMechanism("z", y, scale=SCALE, observed=CENTRE + DEVIATION)
    (block,) = find_record_blocks(model)
    return record_step.RecordChain(model, block, "independence", model.initial_point())


@pytest.fixture(autouse=True)
def parts(monkeypatch):
    """Split as if there were very many records; return where the parts begin and end."""
    calls = []
    split = record_step.RecordChain._sweep_in_parts

    def counted(self, *args):
        calls.append(self.program.n)
        return split(self, *args)

    monkeypatch.setattr(record_step, "PARALLEL_FROM", 1)
    monkeypatch.setattr(record_step.RecordChain, "_sweep_in_parts", counted)
    yield np.linspace(0, N, N_PARTS + 1).astype(int)
    assert calls  # or nothing was split


def swept(chain, seed, start, n_sweeps=1):
    x = start[:, None].copy()
    tally = chain.sweep(np.random.default_rng(seed), np.zeros(0), x, 0, n_sweeps)
    return x[:, 0], tally


def test_draws_without_releases(chain, parts):
    """Every record about its own centre, and no two parts alike."""
    own = chain.draw(np.random.default_rng(1), np.zeros(0))[:, 0] - CENTRE
    assert stats.kstest(own / SD, "norm").pvalue > 1e-3
    assert np.unique(np.round(own, 8)).size == N
    # a record and the one at the same place of another part are independent
    size = np.diff(parts).min()
    rows = np.array([own[at : at + size] for at in parts[:-1]])
    links = np.corrcoef(rows)[np.triu_indices(N_PARTS, 1)] * np.sqrt(size)
    assert np.abs(links).max() < stats.norm.isf(1e-3 / links.size / 2)


def test_records_given_releases(chain):
    """After many sweeps every record has its exact conditional law."""
    x, _ = swept(chain, 2, CENTRE, n_sweeps=60)  # proposals are accepted more often than not

    def log_density(deviation):
        return stats.norm.logpdf(deviation, 0, SD) - np.abs(DEVIATION - deviation) / SCALE

    exact = from_log_density(log_density, -5.0, 5.0, panels=400)
    probabilities = np.linspace(0, 1, 21)[1:-1]
    cells = np.searchsorted(exact.quantile(probabilities), x - CENTRE)
    assert stats.chisquare(np.bincount(cells, minlength=20)).pvalue > 1e-3
    # power: the law without the releases would be told apart
    prior = np.searchsorted(exact.quantile(probabilities), np.random.default_rng(0).normal(0, SD, N))
    assert stats.chisquare(np.bincount(prior, minlength=20)).pvalue < 1e-9


def test_tally(chain, parts):
    """Acceptances of all parts, and the lowest probability of any."""
    start = CENTRE - 3.0
    x, tally = swept(chain, 3, start)
    moved = x != start
    assert moved.sum() == tally[0]
    assert all(part.mean() > 0.9 for part in np.split(moved, parts[1:-1]))
    assert moved[[0, *(parts[1:] - 1), *parts[1:-1]]].mean() > 0.8
    # a record that stands at a release far from its centre hardly moves: one in each part in turn
    z = CENTRE + DEVIATION
    for row in (0, *(parts[1:] - 1), *parts[1:-1]):
        far = np.where(np.arange(N) == row, CENTRE + 50, z)
        chain.program.set_release({"z": far})
        chain.refresh_data()
        there = np.where(np.arange(N) == row, far, start)
        x, tally = swept(chain, 4, there)
        assert np.exp(-53 / SCALE) < tally[1] < np.exp(-47 / SCALE)
        assert (x != there).sum() == tally[0] and x[row] == far[row]
    chain.program.set_release({"z": z})
    chain.refresh_data()


def test_the_same_draws_on_any_number_of_cores(chain, monkeypatch):
    found = []
    for workers in (1, 2, 11):
        monkeypatch.setattr(record_step, "ThreadPoolExecutor", lambda n=workers: ThreadPoolExecutor(n))
        found.append(swept(chain, 5, CENTRE, n_sweeps=3))
    for x, tally in found[1:]:
        np.testing.assert_array_equal(x, found[0][0])
        np.testing.assert_array_equal(tally, found[0][1])
    assert not np.array_equal(swept(chain, 6, CENTRE, n_sweeps=3)[0], found[0][0])
