"""Mixtures whose confidential records are integrated out: samplers of known records on the releases.

The posterior is that of the records imputed, which is known by enumeration.
"""

from zlib import crc32

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
