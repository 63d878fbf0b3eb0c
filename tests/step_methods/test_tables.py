"""Tables of densities by cell: the look-up, the draws from it, and when they stand for a density."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.lowering.functions import bins, tables
from pymc_dp.query.records import find_record_blocks
from pymc_dp.query.supports import clamped_record, finite_support
from pymc_dp.step_methods.block.changes import difference
from pymc_dp.step_methods.record_step import RecordChain
from pymc_dp.step_methods.sweeps.moves import MAX_INDEPENDENCE_EPSILON

pytestmark = pytest.mark.compiles(1)

EVEN = np.linspace(-1, 3, 9)
UNEVEN = np.array([-2.0, -1.9, -0.3, 0.0, 4.0, 4.5])


def header(edges, n_rows=3, seed=0, **kwargs):
    density = np.random.default_rng(seed).normal(size=(n_rows, len(edges) - 1)) * 2
    return tables.Table(edges, density, **{"with_slots": True, "with_densities": True, **kwargs})


def chain_of(model, proposals="auto"):
    (block,) = find_record_blocks(model)
    return RecordChain(model, block, proposals, model.initial_point())


def moves(model, proposals="auto"):
    return [move.name for move in chain_of(model, proposals).moves]


@pytest.mark.parametrize("edges", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_cells_are_found(edges):
    table = header(edges)
    q = np.concatenate([np.random.default_rng(1).uniform(-5, 6, 500), edges, [-np.inf, np.inf]])
    expected = np.clip(np.searchsorted(edges, q, side="right") - 1, 0, len(edges) - 2)
    np.testing.assert_array_equal([tables.cell_of(int(table.address), v) for v in q], expected)
    np.testing.assert_array_equal([bins.bin_of(edges, v) for v in q], expected)
    assert tables.cell_of(int(table.address), np.nan) == bins.bin_of(edges, np.nan) == 0


@pytest.mark.parametrize("kind", [float, np.float32])
def test_density_is_the_entry(kind):
    edges = EVEN
    values = np.random.default_rng(2).normal(size=(4, 8)).astype(kind)
    table = tables.Table(edges, values, False, False)
    a, r, q = pt.dscalar(), pt.dvector(), pt.dvector()
    function = pytensor.function([a, r, q], tables.table_density(a, r, q), mode="NUMBA")
    found = function(table.address, np.array([0.0, 3.0, 1.0]), np.array([-9.0, 2.99, 0.75]))
    np.testing.assert_array_equal(found, [values[0, 0], values[3, 7], values[1, 3]])


@pytest.mark.parametrize("many", [False, True], ids=["uint8", "uint16"])
@pytest.mark.parametrize("row", [0, 2])
def test_draws_have_the_density_that_is_claimed(row, many):
    """Frequencies of the pieces of the line, and where in a piece, against log_weight."""
    edges = np.linspace(-2, 4, 301) if many else UNEVEN
    table = header(edges)
    assert table.slots.itemsize == (2 if many else 1)
    address = int(table.address)
    rng = np.random.default_rng(3)
    y = np.array([tables.draw_value(rng, address, row) for _ in range(20_000)])
    # finer than cells inside, and some distance beyond the edges
    inner = edges[:: len(edges) // 5] if many else np.sort(np.r_[edges, 0.5 * (edges[1:] + edges[:-1])])
    cut = np.concatenate([[-np.inf, inner[0] - 1.0], inner, [edges[-1], edges[-1] + 1.0, np.inf]])
    cut = np.unique(cut)
    reference = 0.5 * (edges[0] + edges[1])

    def log_density(v):
        return np.array([-tables.log_weight(address, row, reference, u) for u in v])

    mass = np.zeros(len(cut) - 1)
    for k, (lo, hi) in enumerate(pairwise(cut)):
        if np.isfinite([lo, hi]).all():
            parts = np.concatenate([[lo], edges[(edges > lo) & (edges < hi)], [hi]])
            for a, b in pairwise(parts):
                v = np.linspace(a, b, 2001)[:-1] + 0.5 * (b - a) / 2000
                mass[k] += np.exp(log_density(v)).mean() * (b - a)
        else:
            t = (np.arange(20_000) + 0.5) / 20_000  # v = end -+ t / (1 - t)
            v = hi - t / (1 - t) if lo == -np.inf else lo + t / (1 - t)
            mass[k] = (np.exp(log_density(v)) / (1 - t) ** 2).mean()
    counts = np.histogram(y, cut)[0]
    assert stats.chisquare(counts, mass / mass.sum() * len(y)).pvalue > 1e-4


def test_bin_draws_are_symmetric_up_to_the_preference():
    """Density of going from one piece to another, times the preference, is that of coming back."""
    rng = np.random.default_rng(4)
    pieces = [-1, *range(len(UNEVEN) - 1), len(UNEVEN) - 1]
    middle = [UNEVEN[0] - 0.5, *(0.5 * (UNEVEN[1:] + UNEVEN[:-1])), UNEVEN[-1] + 0.5]

    def piece(v):
        return np.searchsorted(UNEVEN, v) - 1

    counts = np.zeros((len(pieces), len(pieces)))
    n = 20_000
    for i, y in enumerate(middle):
        drawn = np.array([bins.draw_bin(rng, UNEVEN, y) for _ in range(n)])
        drawn = drawn[~np.isnan(drawn)]
        counts[i] = np.bincount(piece(drawn) + 1, minlength=len(pieces))
    z = (counts - counts.T) / np.sqrt(counts + counts.T)
    assert np.abs(z).max() < 4.5
    for a, b in ((1, 4), (0, 2), (5, 3)):  # uniform in a piece, or as draws beyond the edges fall
        there, back = (
            bins.log_preference(UNEVEN, *pair) for pair in ((middle[a], middle[b]), (middle[b], middle[a]))
        )
        np.testing.assert_allclose(there, -back)
    widths = np.diff(UNEVEN)
    np.testing.assert_allclose(
        bins.log_preference(UNEVEN, middle[1], middle[4]), np.log(widths[3] / widths[0])
    )


def test_alias_tables_have_the_weights():
    rng = np.random.default_rng(5)
    for weights in (rng.gamma(0.3, size=9), np.array([0.0, 1.0, 0.0, 2.0]), np.ones(1), np.eye(6)[3]):
        n = len(weights)
        keep, other = np.empty(n), np.empty(n, dtype=np.int64)
        tables.fill_alias(weights, weights.sum(), keep, other)
        found = np.zeros(n)
        np.add.at(found, np.arange(n), keep / n)
        np.add.at(found, other, (1 - keep) / n)
        np.testing.assert_allclose(found, weights / weights.sum(), atol=1e-14)
        assert (found[weights == 0] == 0).all()


def test_conditional_weights_survive_underflow():
    """Where densities underflow to nothing, logarithms decide."""
    log_density = np.array([[0.0, -900.0, -903.0]])
    table = tables.Table(np.arange(4) - 0.5, log_density, False, True)
    weights = np.empty(3)
    total = tables.likelihoods(int(table.address), 0, np.array([0.0, 0.5, 0.5]), weights)
    np.testing.assert_allclose(weights / total, [0, 1 / (1 + np.exp(-3)), 1 / (1 + np.exp(3))])
    assert tables.likelihoods(int(table.address), 0, np.zeros(3), weights) == 0


# --- tables and the mechanisms they stand for ------------------------------------------------------


def released(build, seed=7):
    with pm.Model():
        z = build(None)
    return pm.draw(z, random_seed=seed, mode="FAST_COMPILE")


def wavelet(z, n=6, epsilon=2.0, level=3):
    y = pm.Normal("y", pm.Normal("mu"), 1, shape=n)
    return dp.WaveletMechanism("z", y, epsilon=epsilon, level=level, bounds=(-2, 2), observed=z)


def unary(z, n=6, epsilon=2.0, k=5):
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(k)), shape=n)
    return dp.UnaryEncoding("z", c, epsilon=epsilon, observed=z)


@pytest.mark.parametrize("build", [wavelet, unary])
@pytest.mark.statistical
def test_look_up_is_the_density(build, rng):
    """The weights of two states of the records differ by the mechanism's own log densities."""
    z = released(build)
    with pm.Model() as model:
        build(z)
    chain = chain_of(model)
    assert chain.program.tables
    assert chain.program.contribute  # lowered now: it may read more data
    chain.refresh_data()
    theta = chain.program.parameters.flatten(model.initial_point())
    found, exact = [], []
    for _ in range(2):
        x = chain.draw(rng, theta).copy()
        t, w = np.empty((len(x), 0)), np.empty(len(x))
        chain.program.contribute.dispatcher(theta, chain.data, x, t, w)
        values = x[:, 0] if build is wavelet else x[:, 0].astype(int)
        if build is wavelet:
            law = dp.WaveletMechanism.dist(values, epsilon=2.0, level=3, bounds=(-2, 2))
        else:
            law = dp.UnaryEncoding.dist(values, epsilon=2.0, n_categories=5)
        found.append(w)
        exact.append(pm.logp(law, z).eval(mode="FAST_COMPILE"))
    np.testing.assert_allclose(found[1] - found[0], exact[1] - exact[0], atol=1e-9)


def test_table_follows_the_release(rng):
    """A step reads another release after set_release, and data set by pm.set_data."""
    first, second = released(wavelet), released(wavelet, seed=8)

    def weights(chain, theta, x):
        assert chain.program.contribute
        chain.refresh_data()
        t, w = np.empty((len(x), 0)), np.empty(len(x))
        chain.program.contribute.dispatcher(theta, chain.data, x, t, w)
        return w - w.mean()

    with pm.Model() as model:
        wavelet(first)
    with pm.Model() as other:
        wavelet(second)
    with pm.Model() as shared:
        wavelet(pm.Data("data", first))
    chains = [chain_of(m) for m in (model, other, shared)]
    theta = chains[0].program.parameters.flatten(model.initial_point())
    x = chains[0].draw(rng, theta).copy()
    before = weights(chains[0], theta, x)
    expected = weights(chains[1], theta, x)
    assert not np.allclose(before, expected)
    np.testing.assert_allclose(weights(chains[2], theta, x), before)
    chains[0].program.set_release({"z": second})
    with shared:
        pm.set_data({"data": second})
    for chain in (chains[0], chains[2]):
        np.testing.assert_allclose(weights(chain, theta, x), expected)


def test_a_table_lives_as_long_as_data_that_point_to_it(rng):
    """Data gathered before a release was replaced still read the table of that time."""
    z = released(wavelet)
    with pm.Model() as model:
        wavelet(z)
    chain = chain_of(model)
    assert chain.program.contribute
    chain.refresh_data()
    theta = chain.program.parameters.flatten(model.initial_point())
    x, t = chain.draw(rng, theta).copy(), np.empty((6, 0))
    before, after = np.empty(6), np.empty(6)
    chain.program.contribute.dispatcher(theta, chain.data, x, t, before)
    table = weakref.ref(next(iter(chain.program.tables.values())).table)
    for seed in (8, 9, 10):
        chain.program.set_release({"z": released(wavelet, seed)})
        chain.program.data.gather()
    assert table() is not None
    chain.program.contribute.dispatcher(theta, chain.data, x, t, after)
    np.testing.assert_array_equal(before, after)
    chain.refresh_data()
    gc.collect()
    assert table() is None


@pytest.mark.statistical
def test_moving_noise_level_has_no_table():
    with pm.Model() as model:
        c = pm.Categorical("c", np.ones(4) / 4, shape=5)
        level = pm.Beta("level", 5, 2)
        dp.RandomizedResponse("z", c, p_truth=0.25 + 0.7 * level, observed=[0, 1, 2, 3, 3])
    chain = chain_of(model)
    assert not chain.program.tables
    assert [type(move.fused).__name__ for move in chain.moves] != ["FiniteSweep"]


@pytest.mark.statistical
def test_equal_releases_share_a_row():
    with pm.Model() as model:
        c = pm.Categorical("c", np.ones(3) / 3, shape=6)
        z = np.array([[0, 1, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 0]])
        dp.UnaryEncoding("z", c, epsilon=1.0, observed=z)
    (table,) = chain_of(model).program.tables.values()
    index = table.index.get_value()
    assert len(table.table.log_densities) == 3
    for i in range(6):
        for j in range(6):
            assert (index[i] == index[j]) == (z[i] == z[j]).all()


LOW, HIGH = 0.5, 3 * MAX_INDEPENDENCE_EPSILON


def beta(n=5):
    return pm.Beta("y", pm.Gamma("a", 2, 1), 2, shape=n)


CHOICES = {
    "wavelet, strong privacy": (lambda: dp.WaveletMechanism(
        "z", beta(), epsilon=LOW, level=2, observed=np.zeros((5, 7))), ["independence"]),
    "wavelet, weak privacy": (lambda: dp.WaveletMechanism(
        "z", beta(), epsilon=HIGH, level=2, observed=np.zeros((5, 7))), ["independence", "cells"]),
    "binomial, weak privacy": (lambda: dp.BinomialMechanism(
        "z", beta(), epsilon=HIGH, n_trials=9, bounds=(0, 1), observed=[0, 9, 3, 4, 4]),
        ["independence", "grid"]),
    "counts with whole noise": (lambda: dp.DiscreteLaplaceMechanism(
        "z", pm.Poisson("y", 3.0, shape=5), epsilon=HIGH, bounds=(0, 10), observed=[1, 2, 3, 0, -1]),
        ["independence", "reversed channel"]),
    "counts with real noise": (lambda: dp.LaplaceMechanism(
        "z", pm.Poisson("y", 3.0, shape=5), epsilon=HIGH, bounds=(0, 10), observed=np.ones(5)),
        ["independence"]),
    "response": (lambda: dp.RandomizedResponse(
        "z", pm.Categorical("c", np.ones(4) / 4, shape=5), epsilon=HIGH, observed=[0, 1, 2, 3, 3]),
        ["finite support"]),
    "unary": (lambda: dp.UnaryEncoding(
        "z", pm.Categorical("c", np.ones(3) / 3, shape=5), epsilon=LOW,
        observed=np.eye(3, dtype=int)[[0, 1, 2, 0, 1]]),
        ["finite support"]),
    "response among many": (lambda: dp.RandomizedResponse(
        "z", pm.Categorical("c", np.ones(100) / 100, shape=5), epsilon=LOW, observed=[0, 1, 2, 99, 3]),
        ["finite support"]),
    "Gaussian noise, strong privacy": (lambda: dp.GaussianMechanism(
        "z", pm.Normal("y", shape=5), rho=0.1, bounds=(-1, 1), observed=np.ones(5)), ["independence"]),
    "histogram, strong privacy": (lambda: dp.PerturbedHistogram(
        "z", beta(), n_bins=3, epsilon=LOW, observed=[1.0, 2.0, 2.0]), ["independence"]),
    "histogram, weak privacy": (lambda: dp.PerturbedHistogram(
        "z", beta(), n_bins=3, epsilon=HIGH, observed=[1.0, 2.0, 2.0]), ["independence", "bins"]),
    "smoothed histogram": (lambda: dp.SmoothedHistogramSample(
        "z", beta(), n_bins=3, epsilon=HIGH, observed=[0.2, 0.4]), ["independence", "bins"]),
}  # fmt: skip


@pytest.mark.statistical
@pytest.mark.parametrize("name", CHOICES)
def test_moves_are_chosen_and_native(name, rng):
    declare, expected = CHOICES[name]
    with pm.Model() as model:
        declare()
    chain = chain_of(model)
    assert [move.name for move in chain.moves] == expected
    assert all(move.fused is not None for move in chain.moves)
    theta = chain.program.parameters.flatten(model.initial_point())
    x = chain.draw(rng, theta)
    for which in range(len(chain.moves)):
        tally = chain.sweep(rng, theta, x, which, 20)
        assert 0 < tally[0] <= 100 and 0 <= tally[1] <= 1
        if chain.totals.size:
            np.testing.assert_allclose(chain.totals.sum(), 5)
    point = {**chain.program.parameters.unflatten(theta), **chain.program.records.unpack(x)}
    with pytensor.config.change_flags(mode="FAST_COMPILE"):  # the sweeps are compiled, above
        assert np.isfinite(sum(np.sum(v) for v in model.point_logps(point).values()))


def test_unary_without_shared_law(rng):
    """Probabilities of their own for every record."""
    p = rng.dirichlet(np.ones(3), size=5)
    with pm.Model() as model:
        dp.RandomizedResponse("z", pm.Categorical("c", p), epsilon=3, observed=[0, 1, 2, 0, 1])
    assert moves(model) == ["finite support"]


def test_support_and_clamps_are_seen_through_casts():
    with pm.Model():
        y = pm.Poisson("y", 2.0, shape=3)
        x = pm.Normal("x", shape=3)
        assert clamped_record(pt.clip(pt.cast(y, "float64"), 1, 4), [y, x]).hi == 4
        assert clamped_record(pt.clip(pt.clip(x, -1, 2), 0, 9), [y, x]).lo == 0
        outer = clamped_record(pt.clip(pt.clip(x, 0, 1), 2, 3), [y, x])
        assert outer.lo == outer.hi == 2
        assert clamped_record(pt.cast(x, "int64"), [y, x]) is None
        assert clamped_record(2 * x, [y, x]) is None
        np.testing.assert_array_equal(finite_support(pm.DiscreteUniform("k", 2, 5, shape=3)), [2, 3, 4, 5])
        assert finite_support(y) is None


# --- differences of densities ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "law",
    [
        lambda q: dp.LaplaceMechanism.dist(q, scale=1.5),
        lambda q: dp.GaussianMechanism.dist(q, sigma=1.5),
        lambda q: dp.DiscreteLaplaceMechanism.dist(q, scale=1.5),
        lambda q: dp.DiscreteGaussianMechanism.dist(q, sigma=1.5),
    ],
    ids=["laplace", "gaussian", "discrete laplace", "discrete gaussian"],
)
def test_difference_is_the_change_of_the_density(law):
    old, new = pt.dscalar("old"), pt.dscalar("new")
    old_whole, new_whole = (pt.cast(v, "int64") for v in (old, new))
    value = pt.constant(4.0) if law(0.0).dtype == "float64" else pt.constant(4)
    queries = (new, old) if value.dtype == "float64" else (new_whole, old_whole)
    after, before = (pm.logp(law(q), value) for q in queries)
    graph = difference(after, before)
    function = pytensor.function([old, new], [graph, after - before], mode="FAST_COMPILE")
    for pair in ((0.0, 1.0), (7.0, -3.0), (4.0, 4.0)):
        np.testing.assert_allclose(*function(*pair), atol=1e-12)
