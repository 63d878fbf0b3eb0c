"""Sums by a public index, to which a record adds a few numbers however many sums there are.

The models are linear and normal, so that means of groups and records have a normal posterior.
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from tests.mixtures.mutants import rewritten
from tests.statistics import harness
from tests.statistics.marginal import from_log_density

pytestmark = pytest.mark.compiles(2)

QUICK = {"progressbar": False, "compute_convergence_checks": False, "cores": 1, "quiet": True}
N, MEANS = 10, 3
MEAN_OF = np.arange(N) % MEANS
RNG = np.random.default_rng(8)
WEIGHT, VECTOR = RNG.uniform(0.5, 2.0, N), RNG.uniform(-2.0, 2.0, (N, 3))
GROUP, ROW, COLUMN = RNG.integers(0, 20, N), RNG.integers(0, 4, N), RNG.integers(0, 5, N)
BACKWARDS = GROUP - 20 * (np.arange(N) % 2)
SEVEN = RNG.integers(0, 7, N)


def by(shape, index, values):
    """Matrix from records to sums: the values of each record in the places that the index names."""
    matrix = np.zeros((*shape, N))
    for i, at in enumerate(zip(*index, strict=True)):
        matrix[(*at, ..., i)] += values[i]
    return matrix.reshape(-1, N)


# queries of one model, each with the matrix that it multiplies the records by
ONE = lambda y: pt.zeros(20)[GROUP].inc(WEIGHT * y), by((20,), [GROUP], WEIGHT)
BACK = lambda y: pt.zeros(20)[BACKWARDS].inc(WEIGHT * y), by((20,), [GROUP], WEIGHT)
TABLE = lambda y: pt.zeros((4, 5))[ROW, COLUMN - 5].inc(WEIGHT * y), by((4, 5), [ROW, COLUMN], WEIGHT)
THREE = lambda y: pt.zeros((7, 3))[SEVEN].inc(VECTOR * y[:, None]), by((7, 3), [SEVEN], VECTOR)
REPEATED = lambda y: pt.zeros((7, 3))[SEVEN].inc(y[:, None]), by((7, 3), [SEVEN], np.ones((N, 3)))
DENSE = lambda y: dp.record_sum(VECTOR * y[:, None]), VECTOR.T
ONE_HOT = lambda y: dp.record_sum(np.eye(20)[GROUP] * (WEIGHT * y)[:, None]), by((20,), [GROUP], WEIGHT)
HALF = lambda y: 0.5 * pt.zeros(20)[GROUP].inc(y), 0.5 * by((20,), [GROUP], np.ones(N))

# numbers that each record adds, of as many sums as there are, and the queries
CASES = {
    "one index": (1, [ONE]),
    "from the end": (1, [BACK]),
    "two indices": (1, [TABLE]),
    "vectors": (3, [THREE]),
    "one number for each of a vector": (3, [REPEATED]),
    "several releases, one of few sums": (7, [THREE, DENSE, TABLE]),
    "written out": (20, [ONE_HOT]),
    "a multiple is written out": (21, [HALF, ONE]),
}


def released(queries):
    """Values of the releases, which are no likely ones for records in other places."""
    return [np.random.default_rng(4).normal(0, 2, len(matrix)) for _, matrix in queries]


def declare(queries, with_means=True):
    with pm.Model() as model:
        mean = pm.Normal("a", 0, 2, shape=MEANS) if with_means else np.zeros(MEANS)
        y = pm.Normal("y", mean[MEAN_OF], 1, shape=N)
        for k, ((query, _), value) in enumerate(zip(queries, released(queries), strict=True)):
            sums = query(y)
            dp.GaussianMechanism(f"z{k}", sums, sigma=1.5, observed=value.reshape(sums.type.shape))
    return model


def posterior(queries):
    """Means and standard deviations of the means of groups, then of the records."""
    groups = np.eye(MEANS)[MEAN_OF]
    prior = np.block([[4 * np.eye(MEANS), 4 * groups.T], [4 * groups, 4 * groups @ groups.T + np.eye(N)]])
    seen = np.concatenate([matrix for _, matrix in queries])
    seen = np.concatenate([np.zeros((len(seen), MEANS)), seen], axis=1)
    covariance = np.linalg.inv(np.linalg.inv(prior) + seen.T @ seen / 1.5**2)
    return covariance @ seen.T @ np.concatenate(released(queries)) / 1.5**2, np.sqrt(np.diag(covariance))


def verdict(queries, draws=4000):
    with declare(queries):
        idata = pm.sample(draws, tune=800, chains=2, random_seed=4, **QUICK)
    found = np.concatenate([idata.posterior[name].values for name in ("a", "y")], axis=2)
    checks, effective = {}, np.inf
    for k, (mean, sd) in enumerate(zip(*posterior(queries), strict=True)):
        exact = from_log_density(stats.norm(mean, sd).logpdf, mean - 9 * sd, mean + 9 * sd)
        one = harness.mc_z(found[:, :, k], exact, prefix=f"{k} ")
        checks |= one.checks
        effective = min(effective, one.effective_draws)
    return harness.two_sample_z(checks), effective


@pytest.mark.parametrize("name", CASES)
def test_posterior(name):
    found, effective = verdict(CASES[name][1])
    assert found.passed, found
    assert effective > 400


@pytest.mark.parametrize("name", CASES)
def test_totals_are_the_queries(name):
    """The sums that a sweep keeps are those of the records that it leaves, and it works on few of them."""
    added, queries = CASES[name]
    with declare(queries, with_means=False):
        step = dp.RecordImputation(rng=1)
    (chain,) = step.chains
    kernel = chain.moves[0].fused.rows
    assert kernel.kernel.__name__ == "many_sums_sweep"
    assert kernel.names["N_CONTRIBUTIONS"] == added
    x = chain.draw(np.random.default_rng(2), np.zeros(0)).copy()
    before = x.copy()
    for _ in range(3):
        chain.sweep(np.random.default_rng(3), np.zeros(0), x, 0, 5)
        expected = np.concatenate([matrix @ x[:, 0] for _, matrix in queries])
        np.testing.assert_allclose(chain.totals, expected, rtol=1e-12, atol=1e-12)
    assert not np.array_equal(x, before)


def test_groups_that_data_hold():
    with pm.Model() as model:
        group = pm.Data("group", GROUP)
        sums = pt.zeros(20)[group].inc(pm.Normal("y", shape=N))
        dp.GaussianMechanism("z", sums, sigma=1.0, observed=np.zeros(20))
        step = dp.RecordImputation(rng=1)
    (chain,) = step.chains
    x, other = chain.draw(np.random.default_rng(2), np.zeros(0)).copy(), (GROUP + 7) % 20
    for at in (GROUP, other, other - 20):
        pm.set_data({"group": at}, model=model)
        chain.refresh_data()
        chain.sweep(np.random.default_rng(3), np.zeros(0), x, 0)
        np.testing.assert_allclose(chain.totals, np.bincount(at % 20, x[:, 0], 20), rtol=1e-12, atol=1e-12)


ERRORS = {
    "a number goes to the next sum": (r"PLACED_FROM\[j\] \+ int", "PLACED_FROM[j] - 1 + int"),
    "numbers of a record go to one sum": (r"PLACED_FROM\[j\] \+ int", "PLACED_FROM[j] - j + int"),
    "density of the last sum left out": (r"if new != sums\[at\]", "if j < N_CONTRIBUTIONS - 1"),
    "sums that are not brought up to date": (r"^( {20})add_to_sums\(.*\)", r"\1pass"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_caught(error, monkeypatch):
    pattern, by = ERRORS[error]
    broken = rewritten(monkeypatch, pattern, by, "many_sums_sweep")
    found, _ = verdict(CASES["vectors"][1], draws=16_000)
    assert broken
    assert found.outcome == "rejected", found
