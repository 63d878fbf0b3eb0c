"""Normal records behind Gaussian noise, with a base that is cut off where the noise is: three ways to sample.

The base is of the variance tau2 of a release, which is at least that of the noise (equation 11 of Beraha,
Favaro & Rao). Records may be imputed, or integrated out by `marginalize`, and atoms with them: the posterior
is one and the same, and known by enumeration.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from tests.mixtures import small
from tests.mixtures.samplers import ALL_KNOWN, ALL_SAMPLERS
from tests.mixtures.small import NOISE, Urn, Z

ALPHA = 1e-5  # about ten verdicts
N, SLOTS, DRAWS = 5, 7, 20_000
ONE = Urn(1.0)
IMPUTED = ["joint", "joint of 2", "conditional", "auto", "slice"]
INTEGRATED = ["neal 2", "neal 3", "neal 8", "split-merge"]


def declared(noise=NOISE):
    """Declare the records, their noise and the release."""
    with pm.Model() as model:
        labels = ONE.labels(N, SLOTS)
        tau2 = pm.Truncated("tau2", pm.InverseGamma.dist(3, 3), lower=NOISE, shape=SLOTS)
        mu = pm.Normal("mu", 0, pt.sqrt(10 * tau2), shape=SLOTS)
        y = pm.Normal("y", mu[labels], pt.sqrt(tau2[labels] - NOISE))
        dp.GaussianMechanism("z", y, sigma=np.sqrt(noise), observed=Z[:N])
    return model


def verdict_on(model, sampler, seed):
    """Compare labels, and the density of a release, with what they should be."""
    released = small.released_by("NIG above", "known", N)
    chain = small.Chain(model, sampler, ONE, DRAWS, seed, keep=True)
    chain.y = None  # the answer is about releases
    return small.compare(chain, small.KERNELS["NIG above"], released, ONE.posterior(released), ALPHA)


shared, marginal = cache(declared), cache(lambda: dp.marginalize(shared(), "y"))


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", IMPUTED)
def test_records_imputed(sampler):
    verdict = verdict_on(shared(), ALL_SAMPLERS[sampler], 1)
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", INTEGRATED)
def test_records_integrated_out(sampler):
    verdict = verdict_on(marginal(), ALL_KNOWN[sampler], 2)
    assert verdict.passed, verdict


@pytest.mark.statistical
def test_a_little_more_noise_is_noticed():
    """The comparison can fail: a release has the variance tau2 plus what is too much."""
    model = declared(noise=1.5 * NOISE)
    for verdict in (
        verdict_on(model, ALL_SAMPLERS["joint"], 3),
        verdict_on(dp.marginalize(model, "y"), ALL_KNOWN["neal 8"], 3),
    ):
        assert verdict.outcome == "rejected", verdict
