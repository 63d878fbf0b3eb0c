"""Clusters with a covariance each, of which every entry is unknown: beside exact posteriors.

Given the factor L of a cluster's covariance, its mean integrates out in closed form; L itself is summed over
a low-discrepancy sequence of its prior. No code of the package or of PyMC is used for the answers.
"""

from functools import cache
from itertools import combinations
from zlib import crc32

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.step_methods.mixture import polynomials
from tests.mixtures import exact, samplers, small
from tests.mixtures.small import Urn
from tests.statistics import harness

# About 20 verdicts of some dozen means each.
ALPHA = 1e-5
SLOTS, SPREAD = 6, 2.0
ONE = Urn(1.0)
Z = np.array([[-1.5, -1.2, 0.3], [-1.1, -1.0, 0.9], [1.2, 0.4, -0.8], [1.9, 1.6, 0.1]])


def records(d):
    return Z[:, :d]


def by_places(off, diag, d):
    below, own = np.tril_indices(d, -1), np.arange(d)
    return pt.zeros((SLOTS, d, d))[:, *below].set(off)[:, own, own].set(diag)


def packed(off, diag, d):
    """As a function of one slot, for all of them, the diagonal read back."""
    entries = []
    for i in range(d):
        entries += [off[:, i * (i - 1) // 2 + j] for j in range(i)] + [pt.log(diag[:, i])]
    factor = pt.vectorize(lambda p: pm.math.expand_packed_triangular(d, p), signature="(k)->(d,d)")
    whole, own = factor(pt.stack(entries, axis=-1)), np.arange(d)
    return whole[:, own, own].set(pt.exp(whole[:, own, own]))


def stacked(off, diag, d):
    zero = pt.zeros(SLOTS)
    rows = [
        [off[:, i * (i - 1) // 2 + j] if j < i else diag[:, i] if j == i else zero for j in range(d)]
        for i in range(d)
    ]
    return pt.stack([pt.stack(row, axis=-1) for row in rows], axis=-2)


WAYS = {"places": by_places, "packed": packed, "stacked": stacked}


@cache
def model(d, way):
    with pm.Model() as found:
        labels = ONE.labels(len(Z), SLOTS)
        mu = pm.Normal("mu", 0, SPREAD, shape=(SLOTS, d))
        off = pm.Normal("off", 0, 1, shape=(SLOTS, d * (d - 1) // 2))
        diag = pm.Gamma("diag", 8, 8, shape=(SLOTS, d))
        factor = WAYS[way](off, diag, d)
        pm.MvNormal("y", mu[labels], chol=factor[labels], observed=records(d))
    return found


@cache
def nodes(d, seed=1):
    """Factors (G, d, d) that are spread evenly over the prior."""
    n_off = d * (d - 1) // 2
    u = stats.qmc.Sobol(n_off + d, seed=seed).random_base2(16)
    factors = np.zeros((len(u), d, d))
    factors[:, *np.tril_indices(d, -1)] = stats.norm.ppf(u[:, :n_off])
    factors[:, np.arange(d), np.arange(d)] = stats.gamma.ppf(u[:, n_off:], 8, scale=1 / 8)
    return factors


def _normal(gap, cov):
    """Log density of rows (r, d) at covariances (G, d, d): (G, r)."""
    inverse, d = np.linalg.inv(cov), cov.shape[-1]
    square = ((gap @ inverse) * gap).sum(axis=-1)
    return -0.5 * (square + np.linalg.slogdet(cov)[1][:, None] + d * np.log(2 * np.pi))


@cache
def given_nodes(d, block, seed=1):
    """Log density of the records of a block at each node, means integrated out."""
    y, r = records(d)[list(block)], len(block)
    cov = nodes(d, seed) @ nodes(d, seed).transpose(0, 2, 1)
    middle = y.mean(axis=0)
    about = _normal(y - middle, cov).sum(axis=1) - _normal(np.zeros((1, d)), cov / r)[:, 0]
    return about + _normal(middle[None], cov / r + SPREAD**2 * np.eye(d))[:, 0]


@cache
def posterior(d, seed=1):
    def log_marginal(block):
        found = given_nodes(d, tuple(block), seed)
        return special.logsumexp(found) - np.log(len(found))

    return exact.posterior(len(Z), log_marginal, ONE.alpha, ONE.d)


def shape_of(factors):
    """Two bounded functions of a covariance: the first correlation, and a standard deviation."""
    cov = factors @ np.swapaxes(factors, -1, -2)
    sd = np.sqrt(cov[..., 0, 0]), np.sqrt(cov[..., 1, 1])
    return np.stack([cov[..., 0, 1] / sd[0] / sd[1], np.tanh(sd[1])], axis=-1)


@cache
def shape_of_the_first(d):
    """Posterior means of these for the cluster of the first record."""
    total = np.zeros(2)
    for block, p in posterior(d).block_probabilities().items():
        if 0 in block:
            weights = special.softmax(given_nodes(d, tuple(block)))
            total += p * weights @ shape_of(nodes(d))
    return total


def verdict_on(d, way, sampler, draws=20_000):
    seed = crc32(f"{d} {way} {sampler.__name__}".encode())
    chain = small.Chain(model(d, way), sampler, ONE, draws, seed, keep=True)
    post, pairs = posterior(d), tuple(np.transpose(list(combinations(range(len(Z)), 2))))
    same = chain.labels[:, pairs[0]] == chain.labels[:, pairs[1]]
    own = np.arange(draws), chain.labels[:, 0]
    factors = np.zeros((draws, d, d))
    factors[:, *np.tril_indices(d, -1)] = chain.atoms["off"][own]
    factors[:, np.arange(d), np.arange(d)] = chain.atoms["diag"][own]
    checks = {
        **small.z_scores(chain.k[:, None] == np.arange(1, len(Z) + 1), post.n_clusters(), "k"),
        **small.z_scores(same, post.coclustering()[pairs], "same"),
        **small.z_scores(shape_of(factors), shape_of_the_first(d), "shape"),
        **small.slot_checks(chain),
    }
    return harness.two_sample_z(checks, ALPHA)


RUNS = [
    (2, "places", samplers.neal8),
    (2, "stacked", samplers.splits),
    (2, "packed", samplers.with_splits),
    (3, "places", samplers.with_splits),
]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("d", "way", "sampler"), [pytest.param(*run, id=f"{run[0]} {run[1]} {run[2].__name__}") for run in RUNS]
)
def test_posterior_is_exact(d, way, sampler):
    verdict = verdict_on(d, way, sampler)
    assert verdict.passed, verdict


@pytest.mark.parametrize("d", [2, 3])
def test_factors_are_summed_over_finely_enough(d):
    """Another sequence gives the same, well within the errors of 20,000 draws."""
    np.testing.assert_allclose(posterior(d).prob, posterior(d, seed=2).prob, atol=1e-3)
    assert np.sort(posterior(d).prob)[-5:].min() > 0.01


@pytest.mark.statistical
def test_a_wrong_coefficient_is_found(monkeypatch):
    """Broken on purpose: the product of two numbers of a record counts twice in its density."""
    whole = polynomials._lattice

    def doubled(r, degree):
        points, pairs = whole(r, degree)
        points = points.copy()
        points[1 + 2 * r :] *= 1.4142
        return points, pairs

    monkeypatch.setattr(polynomials, "_lattice", doubled)
    model.cache_clear()
    verdict = verdict_on(2, "stacked", samplers.neal8, draws=5000)
    model.cache_clear()
    assert not verdict.passed


def test_entries_of_some_slots_are_refused():
    """With the way to write it."""
    with pm.Model():
        labels = dp.ChineseRestaurantProcess("labels", 1.0, shape=4, max_components=SLOTS)
        mu = pm.Normal("mu", 0, 2, shape=(SLOTS, 2))
        own = pt.zeros((SLOTS, 2, 2))[np.arange(SLOTS), 0, 0].set(pm.HalfNormal("s", 1, shape=SLOTS))
        pm.MvNormal("y", mu[labels], chol=(own + np.eye(2))[labels], observed=records(2))
        with pytest.raises(NotImplementedError, match=r"part of the record axis .*i, j\]\.set\(entries\)"):
            dp.SplitMerge([labels])
