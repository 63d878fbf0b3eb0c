"""Mixtures whose confidential records are integrated out: samplers of known records on the releases.

The posterior is that of the records imputed, which is known by enumeration.
"""

from zlib import crc32

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from tests.mixtures import small
from tests.mixtures.samplers import ALL_KNOWN
from tests.mixtures.small import Urn, verdict_on

pytestmark = pytest.mark.statistical

N, DRAWS = 5, 20_000
ROWS = [
    ("laplace", "neal 8", Urn(1.0)),
    ("laplace", "split-merge", Urn(0.5)),
    ("laplace, clamped", "neal 8", Urn(1.0, 0.3)),
    ("gaussian, clamped", "neal 8", Urn(5.0)),
]


def verdict(channel, sampler, urn, model):
    marginal = dp.marginalize(model, "y")
    seed = crc32(f"{channel} {sampler}".encode())
    return verdict_on(ALL_KNOWN[sampler], "NIG", channel, urn, n=N, draws=DRAWS, seed=seed, model=marginal)


@pytest.mark.parametrize(("channel", "sampler", "urn"), ROWS)
def test_posterior_is_exact(channel, sampler, urn):
    found = verdict(channel, sampler, urn, small.declared("NIG", channel, N, urn))
    assert found.passed, found


def test_other_noise_is_noticed():
    with pm.Model() as model:
        y = small.KERNELS["NIG"].declare(Urn(1.0).labels(N, N + 2), N + 2)
        dp.LaplaceMechanism("z", y, scale=1.6 * small.CHANNELS["laplace"].scale, observed=small.Z[:N])
    found = verdict("laplace", "neal 8", Urn(1.0), model)
    assert found.outcome == "rejected", found


@pytest.mark.parametrize("way", ["marginalize", "PrivateNeal5"])
@pytest.mark.parametrize("channel", ["laplace", "gaussian", "gaussian, clamped"])
def test_negative_deviations_have_no_density(channel, way):
    """Noise makes the release of such a record look like that of a positive one."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", 1.0, shape=4, max_components=4)
        mu, s = pm.Normal("mu", 0, 3, shape=4), pm.Normal("s", 0.5, 1, shape=4)
        small._release(pm.Normal("y", mu[labels], s[labels]), small.Z[:4], small.CHANNELS[channel])
    with dp.marginalize(model, "y") if way == "marginalize" else model:
        closed = {"moves": "joint", "n_auxiliary": np.inf}
        step = dp.Neal8(n_cycles=2) if way == "marginalize" else dp.PrivateNeal5(n_cycles=2, **closed)
        idata = pm.sample(
            500, tune=50, chains=1, step=[step, dp.AtomUpdate()], progressbar=False, quiet=True, random_seed=1
        )
    draws = idata.posterior
    assert (np.take_along_axis(draws.s.values, draws.labels.values, axis=-1) > 0).all()
    assert (draws.s.values < 0).any()  # of slots that are free
