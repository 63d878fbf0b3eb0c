"""Probabilities that round to 0 and 1: a record has no density there, or all of it."""

from functools import cache
from zlib import crc32

import numpy as np
import pymc as pm
import pytest
from scipy import special

import pymc_dp as dp
from pymc_dp.step_methods import record_step
from pymc_dp.step_methods.mixture import program
from tests.mixtures import exact, small
from tests.mixtures.samplers import ALL_KNOWN, ALL_SAMPLERS
from tests.mixtures.small import Urn
from tests.statistics import harness

pytestmark = pytest.mark.statistical

# 12 verdicts: this keeps the chance of a false alarm below one in a thousand.
ALPHA, DRAWS, URN, SLOTS = 2e-5, 10_000, Urn(1.0), 6
END = 0.02  # both parameters of the beta law: one draw in four is 1 in floating point

# kernel, records, and trials per unit of success and failure
KERNELS = {
    "Bernoulli": (lambda p, x: pm.Bernoulli("y", p, observed=x), [1, 1, 0, 1], lambda x: (x, 1 - x)),
    "Binomial": (lambda p, x: pm.Binomial("y", 3, p, observed=x), [3, 3, 0, 2], lambda x: (x, 3 - x)),
    "Geometric": (lambda p, x: pm.Geometric("y", p, observed=x), [1, 1, 3, 1], lambda x: (1, x - 1)),
}


def model_of(kernel):
    declare, x, _ = KERNELS[kernel]
    with pm.Model() as model:
        labels = URN.labels(len(x), SLOTS)
        p = pm.Beta("p", END, END, shape=SLOTS)
        declare(p[labels], np.array(x))
    return model


shared = cache(model_of)


def posterior_of(kernel):
    """Of the partition: beta-binomial marginals, up to what no partition changes."""
    _, x, counts = KERNELS[kernel]
    pairs = [counts(v) for v in x]

    def log_marginal(block):
        wins, losses = np.sum([pairs[i] for i in block], axis=0)
        return special.betaln(END + wins, END + losses) - special.betaln(END, END)

    return exact.posterior(len(x), log_marginal, URN.alpha, 0.0)


def verdict_on(chain, post):
    n = chain.labels.shape[1]
    pairs = np.triu_indices(n, 1)
    same = chain.labels[:, pairs[0]] == chain.labels[:, pairs[1]]
    checks = small.z_scores(chain.k[:, None] == np.arange(1, n + 1), post.n_clusters(), "k")
    checks |= small.z_scores(same, post.coclustering()[pairs], "same")
    return harness.two_sample_z(checks | small.slot_checks(chain), ALPHA)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sampler", ["neal 8", "neal 2", "neal 3", "split-merge"])
def test_posterior_is_exact(kernel, sampler):
    seed = crc32(f"{kernel} {sampler}".encode())
    draws = 2 * DRAWS if sampler == "split-merge" else DRAWS  # the planted error below is of a sweep
    chain = small.Chain(shared(kernel), ALL_KNOWN[sampler], URN, draws, seed, keep=True)
    verdict = verdict_on(chain, posterior_of(kernel))
    assert verdict.passed, verdict


@pytest.mark.parametrize("sampler", ["conditional", "auto"])
def test_private_posterior_is_exact(sampler):
    """Answers behind randomized response, added up over what they may have been."""
    z, epsilon = [1, 1, 0, 1], 2.0
    with pm.Model() as model:
        labels = URN.labels(len(z), SLOTS)
        y = pm.Bernoulli("y", pm.Beta("p", END, END, shape=SLOTS)[labels])
        dp.RandomizedResponse("z", y, epsilon=epsilon, observed=np.array(z))
    lie = 1 / (1 + np.exp(epsilon))

    def log_marginal(block):
        terms = []
        for answers in np.ndindex(*(2,) * len(block)):
            wins = sum(answers)
            wrong = sum(a != z[i] for a, i in zip(answers, block, strict=True))
            terms.append(
                special.betaln(END + wins, END + len(block) - wins)
                - special.betaln(END, END)
                + wrong * np.log(lie)
                + (len(block) - wrong) * np.log1p(-lie)
            )
        return special.logsumexp(terms)

    chain = small.Chain(model, ALL_SAMPLERS[sampler], URN, DRAWS, 8)
    verdict = verdict_on(chain, exact.posterior(len(z), log_marginal, URN.alpha, 0.0))
    assert verdict.passed, verdict


def test_infinite_logarithms_are_noticed(monkeypatch):
    monkeypatch.setattr(program, "finite_logarithms", lambda graph, parameters: graph)
    # the model itself is asked where chains start and end: what is tried here is whether draws would show it
    monkeypatch.setattr(record_step, "is_possible", lambda model, point: True)
    chain = small.Chain(model_of("Bernoulli"), ALL_KNOWN["neal 8"], URN, DRAWS, 9)
    verdict = verdict_on(chain, posterior_of("Bernoulli"))
    assert verdict.outcome == "rejected", verdict


@cache
def of_an_unknown_law(private):
    """A model whose prior is data, so that all priors are served by what is compiled for one."""
    with pm.Model() as model:
        a = pm.Gamma("a", pm.Data("shape", 1.0), pm.Data("rate", 1.0))
        labels = URN.labels(4, SLOTS)
        q = pm.Beta("q", a, a, shape=SLOTS)
        y = pm.Binomial("y", [3, 1, 7, 2], q[labels], **({} if private else {"observed": [0, 1, 7, 1]}))
        if private:
            dp.DiscreteLaplaceMechanism("z", y, scale=1.0, observed=[0, 1, 7, 1])
    return model


@pytest.mark.parametrize("private", [True, False], ids=["private", "known"])
@pytest.mark.parametrize(("prior", "says"), [((50, 10), False), ((1, 20), True)], ids=["none", "many"])
def test_rounded_atoms_of_an_unknown_law_are_told(prior, says, private, caplog):
    """NUTS on their parameter ended with a starting energy that was no number."""
    with of_an_unknown_law(private):
        pm.set_data(dict(zip(("shape", "rate"), map(float, prior), strict=True)))
        idata = pm.sample(
            400, tune=300, chains=1, cores=1, random_seed=3, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert np.isfinite(idata.posterior["a"]).all()
    assert ("round to an end of their support" in caplog.text) == says
