"""Known records whose numbers have different laws, in one CustomDist, beside posteriors by enumeration."""

from __future__ import annotations

from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy import special, stats

import pymc_dp as dp
from tests.mixtures import exact, small
from tests.mixtures.samplers import ALL_KNOWN
from tests.stats.mixtures import tree

DRAWS, SLOTS = 20_000, 7
# a real number, and a count that its mean depends on
TABLE = np.array([[-1.0, 0.0], [0.5, 1.0], [2.5, 6.0], [4.0, 5.0], [0.0, 3.0]])
# variances of the two coefficients; shape and rate of the law of the count's mean
SPREAD, SHAPE, RATE = np.array([4.0, 0.25]), 2.0, 0.5


def logp(value, line, mean):
    real = pm.Normal.dist(line[..., 0] + line[..., 1] * value[..., 1], 1.0)
    return pm.logp(real, value[..., 0]) + pm.logp(pm.Poisson.dist(mean), value[..., 1])


def random(line, mean, rng=None, size=None):
    count = rng.poisson(mean)
    return np.stack([rng.normal(line[..., 0] + line[..., 1] * count), count], axis=-1)


def declared():
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=5, max_components=SLOTS)
        line = pm.Normal("line", 0, np.sqrt(SPREAD), shape=(SLOTS, 2))
        mean = pm.Gamma("mean", SHAPE, RATE, shape=SLOTS)
        pm.CustomDist(
            "y", line[labels], mean[labels], logp=logp, random=random, signature="(k),()->(k)", observed=TABLE
        )
    return model


def line_given(rows):
    """Mean and covariance of the coefficients of some records."""
    design = np.column_stack([np.ones(len(rows)), rows[:, 1]])
    cov = np.linalg.inv(np.diag(1 / SPREAD) + design.T @ design)
    return cov @ design.T @ rows[:, 0], cov


def log_marginal(rows):
    """Log density of records with one atom."""
    design = np.column_stack([np.ones(len(rows)), rows[:, 1]])
    cov = np.eye(len(rows)) + design @ np.diag(SPREAD) @ design.T
    reals = stats.multivariate_normal.logpdf(rows[:, 0], np.zeros(len(rows)), cov)
    a, b = SHAPE + rows[:, 1].sum(), RATE + len(rows)
    counts = special.gammaln(a) - a * np.log(b) - special.gammaln(SHAPE) + SHAPE * np.log(RATE)
    return reals + counts - special.gammaln(rows[:, 1] + 1).sum()


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", ["neal 8", "split-merge"])
def test_posterior_is_exact(sampler):
    model = declared()
    chain = small.Chain(model, ALL_KNOWN[sampler], small.Urn(1.0), DRAWS, 3)
    known = exact.posterior(5, cache(lambda block: log_marginal(TABLE[list(block)])), 1.0)
    i, j = np.triu_indices(5, 1)
    same = chain.labels[:, i] == chain.labels[:, j]
    pmf = known.n_clusters()
    checks = small.z_scores(same, known.coclustering()[i, j], "together")
    checks |= small.z_scores(chain.k[:, None] == np.arange(1, 4), pmf[:3], "k")
    # atoms of each record's cluster
    means, rates = np.zeros((5, 2)), np.zeros(5)
    for block, p in known.block_probabilities().items():
        rows = TABLE[list(block)]
        means[list(block)] += p * line_given(rows)[0]
        rates[list(block)] += p * (SHAPE + rows[:, 1].sum()) / (RATE + len(rows))
    own = np.take_along_axis(chain.atoms["line"], chain.labels[:, :, None], 1)
    checks |= small.z_scores(own, means.ravel(), "line")
    checks |= small.z_scores(np.take_along_axis(chain.atoms["mean"], chain.labels, 1), rates, "mean")
    # atoms of free slots
    free = chain.sizes == 0
    base = [
        np.where(free, chain.atoms["line"][:, :, 1] ** 2 - SPREAD[1], 0).sum(axis=1),
        np.where(free, chain.atoms["mean"] - SHAPE / RATE, 0).sum(axis=1),
    ]
    checks |= small.z_scores(np.transpose(base), 0.0, "base") | small.slot_checks(chain)
    assert max(map(abs, checks.values())) < stats.norm.isf(1e-5 / 2 / len(checks)), checks

    # the density of a further record: of the real number, times the probability of the count
    points = np.array([[0.0, 1.0], [3.0, 5.0], [3.0, 0.0]])
    expected = []
    for point in points:
        alone = np.exp(log_marginal(point[None]))
        total = alone / 6  # a cluster of its own
        for block, p in known.block_probabilities().items():
            rows = TABLE[list(block)]
            joint = log_marginal(np.vstack([rows, point])) - log_marginal(rows)
            total += p * len(block) / 6 * np.exp(joint)
        expected.append(total)
    posterior = tree(labels=chain.labels[None], **{k: v[None] for k, v in chain.atoms.items()})
    found = dp.mixture_density(posterior, model, points, n_draws=4000, random_seed=1)
    assert np.all(np.abs(found["mean"] - expected) < 4.5 * found["mcse"])
