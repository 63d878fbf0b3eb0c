"""Posteriors where some records have children, or are added up by groups, against exact answers.

The models of normal variables are linear, so that their posteriors are normal; those of categories are
enumerated.
"""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from tests.statistics import harness
from tests.statistics.marginal import from_log_density

pytestmark = pytest.mark.compiles(2)

N = 5
ONES, EYE = np.ones((1, N)), np.eye(N)
MASK = np.array([True, False, True, True, False])
TWICE = [0, 0, 3]
GROUP, FIVE, TWO = np.array([0, 0, 1, 1, 2]), [4, 4, 1, 0, 2], [0, 1, 0]
QUICK = {"progressbar": False, "compute_convergence_checks": False, "cores": 1, "quiet": True}


def gaussian(name, query, sigma, observed):
    return dp.GaussianMechanism(name, query, sigma=sigma, observed=observed)


def records():
    return pm.Normal("x", pm.Normal("mu", 0, 2), 1, shape=N)


def posterior_of_mean(*seen):
    """Posterior of mu given observations of ``A x`` with noise of covariance V: (A, V, value) each."""
    a = np.concatenate([part for part, _, _ in seen])
    noise = np.zeros((len(a), len(a)))
    start = 0
    for part, covariance, _ in seen:
        stop = start + len(part)
        noise[start:stop, start:stop] = covariance
        start = stop
    value = np.concatenate([np.atleast_1d(v) for _, _, v in seen])
    weights = np.linalg.solve(noise + a @ a.T, a @ np.ones(N))
    precision = 1 / 4 + weights @ (a @ np.ones(N))
    law = stats.norm((weights @ value) / precision, precision**-0.5)
    return from_log_density(law.logpdf, -12, 12)


def child_of_some(rows, total):
    """A released child of chosen records, beside a release of all of them."""

    def declare():
        x = records()
        y = pm.Normal("y", x[rows], 0.5)
        gaussian("a", x.sum(), 1.5, 4.0)
        gaussian("b", y.sum() if total else y, 0.8, 3.0 if total else np.array([0.2, 1.5, 1.9]))

    chosen = EYE[rows]
    if total:
        ones = np.ones((1, len(chosen)))
        seen = ones @ chosen, 0.25 * len(chosen) + 0.64, 3.0
    else:
        seen = chosen, (0.25 + 0.64) * np.eye(len(chosen)), [0.2, 1.5, 1.9]
    return declare, posterior_of_mean((ONES, 2.25, 4.0), seen)


def only_the_child():
    def declare():
        gaussian("b", pm.Normal("y", records()[MASK], 0.5), 0.8, np.array([0.2, 1.5, 1.9]))

    return declare, posterior_of_mean((EYE[MASK], 0.89 * np.eye(3), [0.2, 1.5, 1.9]))


def known_people(rows, known):
    def declare():
        x = records()
        gaussian("a", x.sum(), 1.5, 4.0)
        pm.Normal("w", x[rows], 0.1, observed=known)

    return declare, posterior_of_mean((ONES, 2.25, 4.0), (EYE[rows], 0.01 * np.eye(len(known)), known))


def by_group(query, matrix):
    def declare():
        gaussian("a", query(records()), 0.7, np.arange(1.0, 1 + len(matrix)))

    seen = matrix, 0.49 * np.eye(len(matrix)), np.arange(1.0, 1 + len(matrix))
    return declare, posterior_of_mean(seen)


ONE_HOT = np.eye(3)[GROUP].T
CASES = {
    "released child by a mask, summed": child_of_some(MASK, True),
    "released child by an index with repeats": child_of_some(TWICE, False),
    "released child of the first few": child_of_some(slice(0, 3), True),
    "released child of records that are not": only_the_child(),
    "two people are known": known_people(slice(0, 2), [2.0, 1.0]),
    "one person measured twice": known_people(TWICE, [2.0, 2.1, 0.5]),
    "sums by group": by_group(lambda x: pt.zeros(3)[GROUP].inc(x), ONE_HOT),
    "negated sums by group": by_group(lambda x: -2 * pt.zeros(3)[GROUP - 3].inc(x), -2 * ONE_HOT),
    "as many groups as records": by_group(lambda x: pt.zeros(N)[FIVE].inc(x), EYE[FIVE].T),
    "sums by group of some": by_group(lambda x: pt.zeros(2)[TWO].inc(x[MASK]), np.eye(2)[TWO].T @ EYE[MASK]),
    "sums that start at one": by_group(lambda x: pt.ones(3)[GROUP].inc(x) - 1, ONE_HOT),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The query of a is no sum over records")
@pytest.mark.parametrize("name", CASES)
def test_posterior_of_the_mean(name):
    declare, exact = CASES[name]
    with pm.Model():
        declare()
        idata = pm.sample(4000, tune=800, chains=2, random_seed=4, **QUICK)
    verdict = harness.mc_z(idata.posterior["mu"].values, exact, minimum_ess=150)
    assert verdict.passed, verdict


@pytest.mark.parametrize("local", [True, False])
def test_answers_of_some_are_known(local):
    """Records of two values: the observed child of chosen rows enters their exact draws too."""
    z, rows, seen = np.array([0.9, 0.2, 0.4, 1.3]), [0, 2, 2], np.array([0.7, 0.4, 0.9])
    with pm.Model():
        p = pm.Beta("p", 2, 2)
        x = pm.Bernoulli("x", p, shape=4)
        pm.Normal("o", x[rows], 0.8, observed=seen)
        query = x if local else x.sum()
        dp.LaplaceMechanism("z", query, scale=0.7, observed=z if local else 2.5)
        idata = pm.sample(4000, tune=500, chains=2, random_seed=5, **QUICK)
    densities = {}
    for values in map(np.array, itertools.product([0, 1], repeat=4)):
        mass = stats.norm(values[rows], 0.8).pdf(seen).prod()
        mass *= stats.laplace(values if local else values.sum(), 0.7).pdf(z if local else 2.5).prod()
        k = int(values.sum())
        densities[k] = densities.get(k, 0.0) + mass

    def log_density(p):
        return np.log(sum(m * p ** (1 + k) * (1 - p) ** (5 - k) for k, m in densities.items()))

    exact = from_log_density(log_density, 1e-9, 1 - 1e-9, refine=False)
    verdict = harness.mc_z(idata.posterior["p"].values, exact, minimum_ess=150)
    assert verdict.passed, verdict


def test_children_of_chosen_people_are_of_the_same_people():
    """A person who is in both releases pays for both, however the releases are told apart."""
    with pm.Model() as model:
        x = records()
        y = pm.Normal("y", x[MASK], 0.5)
        dp.LaplaceMechanism("a", x.sum(), epsilon=1, bounds=(-1, 1), observed=0.0)
        dp.LaplaceMechanism("b", y.sum(), epsilon=2, bounds=(-1, 1), observed=0.0)
    assert dp.guarantee(model, disjoint=True).epsilon == 3


def test_sums_by_group_are_clamped_by_the_remedy():
    """`bounds` do not say that a person is in one group; what the message says does, and has the density."""
    with pm.Model() as model:
        x = records()
        with pytest.raises(ValueError, match=r"pt.zeros\(k\)\[group\].inc\(dp.clamp\(x, lo, hi\)\)"):
            dp.LaplaceMechanism("a", pt.zeros(3)[GROUP].inc(x), epsilon=1, bounds=(-1, 2))
        query = pt.zeros(3)[GROUP].inc(dp.clamp(x, -1, 2))
        z = dp.LaplaceMechanism("z", query, epsilon=1, sensitivity=3, observed=np.ones(3))
    assert dp.guarantee(z).epsilon == 1
    value = np.linspace(-2, 3, N)
    total = ONE_HOT @ np.clip(value, -1, 2)
    found = model.compile_logp(vars=[z])({"mu": 0.0, "x": value})
    assert found == pytest.approx(stats.laplace(total, 3).logpdf(1.0).sum(), rel=1e-9)
