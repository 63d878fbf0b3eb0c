"""Samplers of mixtures whose records are known, beside posteriors by enumeration."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from pymc_dp.lowering.truncated import log_gamma_p, truncated_inverse_gamma
from tests.mixtures import exact, small
from tests.mixtures.examples import every_block
from tests.mixtures.samplers import ALL_KNOWN, CONJUGATE_SAMPLERS, KNOWN_SAMPLERS
from tests.mixtures.small import NOISE, Urn, Z, verdict_on

# About 40 verdicts: this keeps the chance of a false alarm anywhere below one in a thousand.
ALPHA = 1e-5
DRAWS = 20_000

FEW, ONE, MANY = Urn(0.5), Urn(1.0), Urn(5.0)
PITMAN_YOR, NEGATIVE, THREE = Urn(1.0, 0.3), Urn(-0.2, 0.5), Urn(0.7, components=3)
# Kernel, samplers, urns in turn. Behind noise: the law that a Gaussian release has given atoms, beside the
# answer that the samplers of confidential records are compared with.
MODELS = [
    ("NIG", ALL_KNOWN, (ONE, PITMAN_YOR, MANY)),
    ("NIG", ALL_KNOWN, (THREE,)),
    ("normal", ALL_KNOWN, (NEGATIVE, FEW)),
    ("NIG above", ALL_KNOWN, (PITMAN_YOR, ONE)),
    ("Poisson", ALL_KNOWN, (ONE, MANY)),
    ("NIG behind noise", KNOWN_SAMPLERS, (ONE, PITMAN_YOR)),
    ("Beta", KNOWN_SAMPLERS, (MANY, FEW)),
]
SHORT = {("NIG", "neal 2"), ("NIG", "split-merge of neal 8"), ("NIG above", "neal 3")}


def _rows():
    for k, (kernel, samplers, urns) in enumerate(MODELS):
        for j, sampler in enumerate(samplers):
            urn = urns[(j + k) % len(urns)]
            marks = () if (kernel, sampler) in SHORT and urn != THREE else pytest.mark.statistical
            yield pytest.param(sampler, kernel, urn, id=f"{kernel} {urn} {sampler}", marks=marks)


@pytest.mark.parametrize(("sampler", "kernel", "urn"), list(_rows()))
def test_posterior_is_exact(sampler, kernel, urn):
    seed = crc32(f"{sampler} {kernel} {urn}".encode())
    n = 3 if kernel == "Beta" else 5
    verdict = verdict_on(ALL_KNOWN[sampler], kernel, "known", urn, n=n, draws=DRAWS, seed=seed)
    assert verdict.passed, verdict
