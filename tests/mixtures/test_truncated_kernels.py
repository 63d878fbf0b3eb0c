"""A mixture of truncated Poisson counts behind noise, beside the sum over all partitions of three records."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from tests.statistics import harness

RELEASED, SIGMA, ENDS = np.array([1.2, 5.1, 2.0]), 1.0, (1, 6)
# Partitions, and their probabilities under the urn of concentration 1.
PARTITIONS = {(0, 0, 0): 1 / 3, (0, 0, 1): 1 / 6, (0, 1, 0): 1 / 6, (0, 1, 1): 1 / 6, (0, 1, 2): 1 / 6}


def exact():
    """Expected number of clusters and records, and the probability that the last two are together."""
    rate = np.linspace(1e-3, 25, 2500)
    prior = stats.gamma.pdf(rate, 2, scale=1.5)
    counts = np.arange(ENDS[0], ENDS[1] + 1)
    law = stats.poisson.pmf(counts[:, None], rate)
    joint = stats.norm.pdf(RELEASED[:, None], counts, SIGMA)[..., None] * (law / law.sum(axis=0))
    density = joint.sum(axis=1)
    total, answer = 0.0, np.zeros(5)
    for labels, weight in PARTITIONS.items():
        records = np.zeros(3)
        for label in set(labels):
            inside = [i for i in range(3) if labels[i] == label]
            post = prior * np.prod(density[inside], axis=0)
            weight *= post.sum() / prior.sum()
            for i in inside:
                records[i] = (counts @ joint[i] / density[i] * post).sum() / post.sum()
        total += weight
        answer += weight * np.array([len(set(labels)), *records, labels[1] == labels[2]])
    return answer / total


@pytest.mark.statistical
@pytest.mark.parametrize("step", [None, dp.PrivateSlice], ids=["default", "slice"])
def test_posterior(step):
    with pm.Model():
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=3, max_components=6)
        rate = pm.Gamma("rate", 2, 1 / 1.5, shape=6)
        law = pm.Poisson.dist(rate[labels])
        y = pm.Truncated("y", law, lower=ENDS[0], upper=ENDS[1], shape=3)
        dp.GaussianMechanism("z", y, sigma=SIGMA, observed=RELEASED)
        idata = pm.sample(
            5000, tune=500, chains=2, cores=1, progressbar=False, random_seed=3, quiet=True,
            compute_convergence_checks=False, step=step and [step()],
        )  # fmt: skip
    labels, y = (idata.posterior[name].values for name in ("labels", "y"))
    n_clusters = 1 + np.count_nonzero(np.diff(np.sort(labels, axis=-1), axis=-1), axis=-1)
    found = [n_clusters, *np.moveaxis(y, -1, 0), labels[..., 1] == labels[..., 2]]
    checks = {}
    for k, (values, expected) in enumerate(zip(found, exact(), strict=True)):
        values = values.astype(float)
        size = min(float(az.ess(values, method="mean")), values.size)
        assert size > 1000
        checks[str(k)] = (values.mean() - expected) / (values.std() / np.sqrt(size))
    verdict = harness.two_sample_z(checks)
    assert verdict.passed, verdict
