"""Informed record moves leave the exact conditional of the records invariant, and keep moving.

Records that share no central release are independent given the parameters, so a sweep over many copies of
few records is many independent chains: started from the exact conditional, one sweep must return draws from
it, which a test of uniformity of their exact distribution function (probability integral transform) sees with
the power of as many independent draws. The same test fails when the move is broken on purpose.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.continuous import Continuous
from pymc.logprob.abstract import _logprob
from pytensor.tensor.random.op import RandomVariable
from scipy import special, stats
from scipy.special import logsumexp, ndtr, ndtri

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.mechanisms._checks import noise_parameter
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, Mechanism, MechanismOp
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.record_step import RecordChain
from pymc_dp.step_methods.sweeps import moves as moves_module
from pymc_dp.step_methods.sweeps.finite import FiniteSweep
from pymc_dp.step_methods.sweeps.histogram import BinSweep
from pymc_dp.step_methods.sweeps.moves import Move, moves_for
from pymc_dp.step_methods.sweeps.tabled import CellSweep, ReversedSweep
from tests.statistics import harness
from tests.statistics.marginal import from_log_density

pytestmark = pytest.mark.statistical

UNEVEN = (-2.0, -1.7, -0.4, 0.1, 0.2, 1.5, 2.0)
QUICK = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}


# --- a mechanism of cells of unequal widths --------------------------------------------------------


class ToyRV(MechanismOp, RandomVariable):
    """Laplace noise on the number of the cell that a record is in."""

    name = "toy"
    signature = "(),()->()"
    dtype = "floatX"
    __props__ = (*RandomVariable.__props__, *MECHANISM_PROPS)
    cells = UNEVEN

    @classmethod
    def rng_fn(cls, rng, query, scale, size=None):
        return rng.laplace(np.searchsorted(UNEVEN[1:-1], query, side="right"), scale, size=size)


@_logprob.register(ToyRV)
def _toy_logprob(op, values, rng, size, query, scale, **kwargs):
    (value,) = values
    cell = pt.searchsorted(pt.constant(np.array(UNEVEN[1:-1])), query, side="right")
    return -pt.abs(value - cell) / scale - pt.log(2 * scale)


class Toy(Mechanism, Continuous):
    rv_op = ToyRV()

    @classmethod
    def dist(cls, query, *, scale, **kwargs: Any):
        prepared = cls._prepare(query, sensitivity=None, bounds=(UNEVEN[0], UNEVEN[-1]), order=1)
        noise, _ = noise_parameter("scale", scale, prepared.query)
        return cls._release(prepared, [noise], PrivacyGuarantee(5 / scale), **kwargs)

    def support_point(rv, size, query, scale):
        return pt.zeros_like(query)


# --- exact conditionals of one record --------------------------------------------------------------


class NormalInCells:
    """y ~ N(mu, sd^2) given a release with log density `table[i, cell]`, in pieces of the line."""

    def __init__(self, mu, sd, edges, table):
        self.mu, self.sd = mu, sd
        self.ends = np.array([-np.inf, *edges, np.inf])
        table = np.concatenate([table[:, :1], table, table[:, -1:]], axis=1)
        self.low = ndtr((self.ends[:-1] - mu) / sd)
        self.mass = np.diff(ndtr((self.ends - mu) / sd))
        with np.errstate(divide="ignore"):
            logp = table + np.log(self.mass)
        self.p = np.exp(logp - logsumexp(logp, axis=1, keepdims=True))
        self.before = np.cumsum(self.p, axis=1) - self.p

    def draw(self, rng):
        piece = (rng.random(len(self.p))[:, None] > self.before + self.p).sum(axis=1)
        piece = np.minimum(piece, self.p.shape[1] - 1)
        return self.mu + self.sd * ndtri(self.low[piece] + self.mass[piece] * rng.random(len(piece)))

    def cdf(self, y, rng):
        piece = np.searchsorted(self.ends, y) - 1
        inside = (ndtr((y - self.mu) / self.sd) - self.low[piece]) / self.mass[piece]
        rows = np.arange(len(y))
        return self.before[rows, piece] + self.p[rows, piece] * inside


class OnGrid:
    """y with some prior, COPIES times given each release with log density `table[i, k]` at grid points."""

    def __init__(self, grid, log_prior, table):
        self.grid = grid
        logp = table + log_prior
        density = np.exp(logp - logp.max(axis=1, keepdims=True))
        steps = 0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(grid)
        self.f = np.concatenate([np.zeros((len(table), 1)), np.cumsum(steps, axis=1)], axis=1)
        self.f /= self.f[:, -1:]

    def draw(self, rng):
        return np.concatenate([np.interp(rng.random(COPIES), f, self.grid) for f in self.f])

    def cdf(self, y, rng):
        rows = y.reshape(len(self.f), COPIES)
        return np.concatenate([np.interp(row, self.grid, f) for row, f in zip(rows, self.f, strict=True)])


class OnIntegers:
    """Whole y from 0 with log prior (K,) or (n, K) given a release with log density `table[i, k]`."""

    def __init__(self, log_prior, table):
        logp = table + log_prior
        self.p = np.exp(logp - logsumexp(logp, axis=1, keepdims=True))
        self.before = np.cumsum(self.p, axis=1) - self.p

    def draw(self, rng):
        k = (rng.random(len(self.p))[:, None] > self.before + self.p).sum(axis=1)
        return np.minimum(k, self.p.shape[1] - 1)

    def cdf(self, y, rng):
        rows, k = np.arange(len(y)), np.asarray(y, dtype=int)
        return self.before[rows, k] + self.p[rows, k] * rng.random(len(y))


# --- cases: a model of n records with fixed law, the exact conditional, value space ------------------

COPIES = 4000


def _same(y):
    return y


class Case:
    """Some releases, each of COPIES records; `table(z, q)` is the mechanism's log density by query."""

    def __init__(self, declare, exact, forward=_same, backward=_same):
        self.declare, self.exact, self.forward, self.backward = declare, exact, forward, backward


def repeated(z):
    return np.repeat(z, COPIES, axis=0)


# Densities at a few points are evaluated in Python: compiling them would take longer than the chains.
IN_PYTHON = "FAST_COMPILE"


def log_table(law, z, points):
    """Log density of releases (m, ...) at query points (K,): (m, K)."""
    points = np.asarray(points)
    query = pt.vector("query", dtype=points.dtype, shape=(len(z),))
    density = pytensor.function([query], pm.logp(law(query), z), mode=IN_PYTHON)
    return np.array([density(np.full(len(z), q)) for q in points]).T


def middles(edges):
    return 0.5 * (np.array(edges[1:]) + np.array(edges[:-1]))


MU, SD = 0.3, 1.1


def toy(scale=0.25):
    z = np.linspace(-0.4, 5.6, 9)
    table = repeated(log_table(lambda q: Toy.dist(q, scale=scale), z, middles(UNEVEN)))

    def declare():
        y = pm.Normal("y", MU, SD, shape=len(table))
        Toy("z", y, scale=scale, observed=repeated(z))

    return Case(declare, NormalInCells(MU, SD, UNEVEN, table))


def wavelet(epsilon, level=6):
    y = np.array([-2.5, -1.2, -0.01, 0.4, 1.3, 2.2])
    law = {"epsilon": epsilon, "level": level, "bounds": (-2, 2)}
    z = pm.draw(dp.WaveletMechanism.dist(y, **law), random_seed=1)
    edges = np.linspace(-2, 2, 2 ** (level + 1) + 1)
    table = repeated(log_table(lambda q: dp.WaveletMechanism.dist(q, **law), z, middles(edges)))

    def declare():
        y = pm.Normal("y", MU, SD, shape=len(table))
        dp.WaveletMechanism("z", y, **law, observed=repeated(z))

    return Case(declare, NormalInCells(MU, SD, edges, table))


def binomial(epsilon, n_trials=12):
    law = {"epsilon": epsilon, "n_trials": n_trials, "bounds": (-1, 2)}
    z = np.array([0, 2, 5, 9, 12])
    grid = np.concatenate(
        [np.linspace(-6, -1, 1500), np.linspace(-1, 2, 3001)[1:], np.linspace(2, 7, 1500)[1:]]
    )
    law_at = lambda q: dp.BinomialMechanism.dist(q, **law)  # noqa: E731
    densities = [pm.logp(law_at(grid), pt.constant(np.full(len(grid), v))) for v in z]
    table = np.array([density.eval(mode=IN_PYTHON) for density in densities])

    def declare():
        y = pm.Normal("y", MU, SD, shape=len(z) * COPIES)
        dp.BinomialMechanism("z", y, **law, observed=repeated(z))

    return Case(declare, OnGrid(grid, stats.norm.logpdf(grid, MU, SD), table))


def counts(mechanism, top=60, **noise):
    z = np.array([-1, 0, 2, 3, 7, 10, 12])
    law = lambda q: mechanism.dist(q, **noise, bounds=(0, 9))  # noqa: E731
    table = repeated(log_table(law, z, np.minimum(np.arange(top), 9)))

    def declare():
        y = pm.Poisson("y", 3.2, shape=len(table))
        mechanism("z", y, **noise, bounds=(0, 9), observed=repeated(z))

    return Case(declare, OnIntegers(stats.poisson.logpmf(np.arange(top), 3.2), table))


def categories(mechanism, k, shared=True, **noise):
    rng = np.random.default_rng(6)
    c = np.arange(8) % k
    law = lambda q: mechanism.dist(q, n_categories=k, **noise)  # noqa: E731
    z = pm.draw(law(pt.constant(c)), random_seed=2)
    table = repeated(log_table(law, z, np.arange(k)))
    p = rng.dirichlet(np.ones(k)) if shared else repeated(rng.dirichlet(np.ones(k), size=len(z)))

    def declare():
        y = pm.Categorical("y", p, shape=len(table))
        mechanism("z", y, **noise, observed=repeated(z))

    return Case(declare, OnIntegers(np.log(p), table))


CASES = {
    "toy": toy,
    "toy, much noise": lambda: toy(2.0),
    "wavelet, epsilon 10": lambda: wavelet(10),
    "wavelet, epsilon 250": lambda: wavelet(250),
    "binomial, epsilon 10": lambda: binomial(10),
    "binomial, epsilon 60": lambda: binomial(60),
    "discrete Laplace, epsilon 9": lambda: counts(dp.DiscreteLaplaceMechanism, epsilon=9),
    "discrete Gaussian, rho 8": lambda: counts(dp.DiscreteGaussianMechanism, rho=8),
    "16-ary response, epsilon 10": lambda: categories(dp.RandomizedResponse, 16, epsilon=10),
    "16-ary response, epsilon 1": lambda: categories(dp.RandomizedResponse, 16, epsilon=1),
    "response, own laws": lambda: categories(dp.RandomizedResponse, 5, shared=False, epsilon=4),
    "unary, epsilon 6": lambda: categories(dp.UnaryEncoding, 7, epsilon=6),
    "unary, own laws": lambda: categories(dp.UnaryEncoding, 4, shared=False, epsilon=2),
}
# Least acceptance of the informed move, and largest of proposals from the model: measured, with a margin.
ACCEPTANCE = {
    "wavelet, epsilon 250": (0.6, 0.1),
    "binomial, epsilon 60": (0.5, 0.6),
    "discrete Laplace, epsilon 9": (0.4, 0.6),
    "16-ary response, epsilon 10": (1.0, 0.3),
    "unary, epsilon 6": (1.0, 0.6),
}


def chain_of(model, make=None):
    """The records' chain with every move, the informed ones made by `make` if it is given."""
    (block,) = find_record_blocks(model)
    chain = RecordChain(model, block, "auto", model.initial_point())
    if make is not None:
        chain.moves = [make(chain.program)]
        chain._sizes = [move.sizes for move in chain.moves]
        chain._addresses = [move.addresses for move in chain.moves]
        chain.refresh_data()
    return chain


def uniformity(case, chain, which, rng, n_sweeps=1):
    """p-value of the draws after a sweep being from the exact conditional, and the acceptance."""
    x = case.forward(case.exact.draw(rng)).astype(float)[:, None].copy()
    theta = chain.program.parameters.flatten({})
    tally = chain.sweep(rng, theta, x, which, n_sweeps)
    u = case.exact.cdf(case.backward(x[:, 0]), rng)
    p_values = [stats.kstest(u, "uniform").pvalue]
    rows = u.reshape(-1, COPIES)
    p_values += [stats.chisquare(np.histogram(part, 40, (0, 1))[0]).pvalue for part in rows]
    return min(p_values) * len(p_values), tally[0] / (len(x) * n_sweeps)


@pytest.mark.parametrize("name", CASES)
def test_conditional_is_invariant(name, rng):
    case = CASES[name]()
    with pm.Model() as model:
        case.declare()
    chain = chain_of(model)
    rates = {}
    for which, move in enumerate(chain.moves):
        p_value, rates[move.name] = uniformity(case, chain, which, rng)
        assert p_value > 1e-4, (move.name, p_value)
    independence = chain_of(model, moves_module.independence_move)
    p_value, rate = uniformity(case, independence, 0, rng)
    assert p_value > 1e-4
    print(f"\n{name}: from the model {rate:.3f}, " + ", ".join(f"{k} {v:.3f}" for k, v in rates.items()))
    if name in ACCEPTANCE:
        least, most = ACCEPTANCE[name]
        assert list(rates.values())[-1] >= least and rate <= most


@pytest.mark.parametrize(
    "name", ["toy", "wavelet, epsilon 250", "binomial, epsilon 60", "discrete Laplace, epsilon 9"]
)
def test_conditional_is_reached(name, rng):
    """From the prior, by the moves in turn."""
    case = CASES[name]()
    with pm.Model() as model:
        case.declare()
    chain = chain_of(model)
    theta = chain.program.parameters.flatten({})
    x = chain.draw(rng, theta).copy()
    for _ in range(100):
        for which in range(len(chain.moves)):
            chain.sweep(rng, theta, x, which)
    u = case.exact.cdf(case.backward(x[:, 0]), rng)
    assert stats.kstest(u, "uniform").pvalue > 1e-4


def without_way_back(candidate):
    """Draw a candidate as if the way back from it were as likely."""
    return part_of_kernel(lambda rng, c, cov, i, given: (candidate(rng, c, cov, i, given)[0], 0.0))


class NoWidth(CellSweep):
    """Forgets how wide cells are and how often they are proposed."""

    def _candidate(self, f):
        return without_way_back(super()._candidate(f))


class NoNoise(ReversedSweep):
    """Forgets the density of the proposal."""

    def _weight_graphs(self):
        return super()._weight_graphs()[:-1]


class NoLaw(FiniteSweep):
    """Takes all values for equally likely."""

    def _law(self):
        shared = super()._law()
        self._probabilities = pt.ones_like(self._probabilities) / len(self._support)
        return shared


BROKEN = {
    "toy": lambda program: NoWidth(program, next(iter(program.tables.values()))),
    "discrete Laplace, epsilon 9": lambda program: NoNoise(program, program.block.releases[0]),
    "16-ary response, epsilon 1": NoLaw,
    "response, own laws": NoLaw,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_move_is_seen(name, rng):
    case = CASES[name]()
    with pm.Model() as model:
        case.declare()
    chain = chain_of(model, lambda program: Move("broken", program, fused=BROKEN[name](program)))
    assert uniformity(case, chain, 0, rng)[0] < 1e-6


# --- histograms: records share their counts --------------------------------------------------------

EDGES = np.array([-1.5, -1.2, 0.5, 1.5])
RELEASES = {
    "noisy, epsilon 4": (
        lambda y, z=None: dp.PerturbedHistogram("z", y, edges=EDGES, epsilon=4, observed=z),
        np.array([0.4, 1.9, 0.9]),
    ),
    "noisy, epsilon 100": (
        lambda y, z=None: dp.PerturbedHistogram("z", y, edges=EDGES, epsilon=100, observed=z),
        np.array([0.01, 1.98, 1.03]),
    ),
    "whole noise, epsilon 4": (
        lambda y, z=None: dp.PerturbedHistogram(
            "z", y, edges=EDGES, epsilon=4, noise="discrete_laplace", observed=z
        ),
        np.array([0, 3, 1]),
    ),
    "smoothed, epsilon 9": (
        lambda y, z=None: dp.SmoothedHistogramSample(
            "z", y, n_bins=3, bounds=(-1.5, 1.5), epsilon=9, observed=z
        ),
        np.array([-1.1, 0.2, 0.3]),
    ),
}


def histogram_case(name, n=3):
    """Model of n normal records behind a histogram, and the exact law of the pieces they are in."""
    declare, z = RELEASES[name]
    with pm.Model() as model:
        declare(pm.Normal("y", MU, SD, shape=n), z)
    edges = EDGES if "smoothed" not in name else np.linspace(-1.5, 1.5, 4)
    ends = np.array([-np.inf, *edges, np.inf])
    mass = np.diff(ndtr((ends - MU) / SD))
    bins = np.clip(np.arange(5) - 1, 0, 2)
    combinations = np.array(list(product(range(5), repeat=n)))
    vectors = {tuple(np.bincount(bins[c], minlength=3)) for c in combinations}
    (release,) = find_record_blocks(model)[0].releases
    node = release.rv.owner
    logp = {}
    for v in vectors:
        query = pt.constant(np.array(v, dtype=release.query.dtype))
        law = node.op.make_node(node.inputs[0], node.inputs[1], query, *node.op.dist_params(node)[1:])
        logp[v] = pm.logp(law.default_output(), z).sum().eval(mode=IN_PYTHON)
    weight = np.array(
        [logp[tuple(np.bincount(bins[c], minlength=3))] + np.log(mass[c]).sum() for c in combinations]
    )
    return model, ends, mass, combinations, np.exp(weight - logsumexp(weight))


def histogram_p_value(name, rng, make=None, replicates=12_000):
    """Smallest p-value of every move on the pieces of all records together and on places within them."""
    model, ends, mass, combinations, p = histogram_case(name)
    chain = chain_of(model, make)
    theta = chain.program.parameters.flatten({})
    low = ndtr((ends[:-1] - MU) / SD)
    p_values, rates = [], {}
    for which, move in enumerate(chain.moves):
        pieces = combinations[rng.choice(len(p), size=replicates, p=p)]
        y = MU + SD * ndtri(low[pieces] + mass[pieces] * rng.random(pieces.shape))
        total = 0.0
        for row in y:
            x = row[:, None].copy()
            total += chain.sweep(rng, theta, x, which)[0]
            row[:] = x[:, 0]
        rates[move.name] = total / y.size
        found = np.searchsorted(ends, y) - 1
        index = found @ (5 ** np.arange(y.shape[1])[::-1])
        counts, expected = np.bincount(index, minlength=len(p)), p * replicates
        rare = expected < 5
        observed = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        keep = expected > 0
        p_values.append(
            stats.chisquare(
                observed[keep], expected[keep] * observed[keep].sum() / expected[keep].sum()
            ).pvalue
        )
        inside = (ndtr((y - MU) / SD) - low[found]) / mass[found]
        p_values.append(stats.kstest(inside.ravel(), "uniform").pvalue)
    print(f"\n{name}: " + ", ".join(f"{k} {v:.3f}" for k, v in rates.items()))
    return min(p_values) * len(p_values)


@pytest.mark.parametrize("name", RELEASES)
def test_records_of_a_histogram(name, rng):
    assert histogram_p_value(name, rng) > 1e-4


class NoPreference(BinSweep):
    """Forgets that bins differ in width."""

    def _candidate(self, f):
        return without_way_back(super()._candidate(f))


def test_a_broken_histogram_move_is_seen(rng):
    broken = lambda program: Move("broken", program, fused=NoPreference(program))  # noqa: E731
    assert histogram_p_value("noisy, epsilon 4", rng, broken, replicates=6000) < 1e-6


# --- the default steps of pm.sample ----------------------------------------------------------------


def compositions(n, k):
    """Every way to write n as a sum of k counts."""
    if k == 1:
        return np.array([[n]])
    return np.concatenate(
        [
            np.column_stack([np.full(len(rest), i), rest])
            for i in range(n + 1)
            for rest in [compositions(n - i, k - 1)]
        ]
    )


def histogram_posterior(release, edges, n):
    """Posterior of mu ~ N(0, 2), n records N(mu, 1): a sum over all counts."""
    tables = compositions(n, len(edges) - 1)
    choose = special.gammaln(n + 1) - special.gammaln(tables + 1).sum(axis=1)
    given = release(tables) + choose
    ends = np.array([-np.inf, *edges[1:-1], np.inf])

    def log_density(mu):
        mass = np.diff(ndtr(ends[None, :] - np.asarray(mu)[:, None]), axis=1)
        logp = np.log(np.maximum(mass, 1e-300)) @ tables.T + given
        return logsumexp(logp, axis=1) + stats.norm.logpdf(mu, 0, 2)

    return from_log_density(log_density, -6.0, 6.0, refine=False)


@pytest.mark.parametrize("kind", ["noisy", "smoothed"])
def test_posterior_given_a_histogram(kind):
    """Epsilon 100."""
    n, edges = 24, np.linspace(-2, 2, 5)
    y = np.random.default_rng(3).normal(0.6, 1, size=n)
    options = {"n_bins": 4, "bounds": (-2, 2), "epsilon": 100}
    if kind == "smoothed":
        options["n_released"] = 10
    mechanism = dp.PerturbedHistogram if kind == "noisy" else dp.SmoothedHistogramSample
    z = pm.draw(mechanism.dist(pt.constant(y), **options), random_seed=4)

    def release(tables):
        if kind == "noisy":
            return -np.abs(z - tables).sum(axis=1) / (2 / 100)
        smoothing = 4 / (4 + n * np.expm1(100 / 10))
        bins = np.clip(np.searchsorted(edges[1:-1], z, side="right"), 0, 3)
        return np.log((1 - smoothing) * 4 * tables[:, bins] / n + smoothing).sum(axis=1)

    with pm.Model():
        mu = pm.Normal("mu", 0, 2)
        mechanism("z", pm.Normal("y", mu, 1, shape=n), **options, observed=z)
        idata = pm.sample(3000, tune=1000, chains=2, random_seed=5, **QUICK)
    verdict = harness.mc_z(idata.posterior["mu"].values, histogram_posterior(release, edges, n))
    assert verdict.passed, verdict


@pytest.mark.parametrize("epsilon", [10, 250])
def test_posterior_given_wavelets(epsilon):
    """J = 6."""
    n, edges = 30, np.linspace(-3, 3, 129)
    y = np.random.default_rng(7).normal(0.6, 1, size=n)
    options = {"level": 6, "bounds": (-3, 3), "epsilon": epsilon}
    z = pm.draw(dp.WaveletMechanism.dist(y, **options), random_seed=8)
    table = log_table(lambda q: dp.WaveletMechanism.dist(q, **options), z, middles(edges))
    ends = np.array([-np.inf, *edges[1:-1], np.inf])

    def log_density(mu):
        mass = np.diff(ndtr(ends[None, :] - np.asarray(mu)[:, None]), axis=1)
        logp = np.log(np.maximum(mass, 1e-300))
        each = np.array([logsumexp(logp + row, axis=1) for row in table])
        return each.sum(axis=0) + stats.norm.logpdf(mu, 0, 2)

    with pm.Model():
        mu = pm.Normal("mu", 0, 2)
        dp.WaveletMechanism("z", pm.Normal("y", mu, 1, shape=n), **options, observed=z)
        idata = pm.sample(3000, tune=1000, chains=2, random_seed=9, **QUICK)
    exact = from_log_density(log_density, -6.0, 6.0, refine=False)
    verdict = harness.mc_z(idata.posterior["mu"].values, exact)
    assert verdict.passed, verdict


def test_moves_for_is_what_steps_use():
    """The chains above have the moves that `auto` gives."""
    with pm.Model() as model:
        toy().declare()
    chain = chain_of(model)
    assert [m.name for m in chain.moves] == [m.name for m in moves_for(chain.program, "auto")]
