"""Bases that reach outside of the kernel's domain: no record has a density there, and none is drawn.

PyMC says that a beta law with a negative shape is an error, or of density zero; the expression of its density
is finite all the same. Posteriors are those of the atoms inside of the domain. Atoms of free slots have the
law of the base, wherever they are.
"""

from functools import cache
from zlib import crc32

import numpy as np
import pymc as pm
import pytest
from scipy import special, stats

import pymc_dp as dp
from tests.mixtures import exact, small
from tests.mixtures.samplers import ALL_KNOWN, ALL_SAMPLERS
from tests.mixtures.small import Kernel, Urn

pytestmark = pytest.mark.compiles(1)

DRAWS, URN, N = 40_000, Urn(1.0), 3
# One atom in four is outside of the domain.
MEAN, SD, SCALE = 0.7, 1.0, 0.3
RECORDS = {"Beta": np.array([0.05, 0.3, 0.9]), "Gamma": np.array([0.1, 0.8, 4.0])}
RECORDS["Wald"] = RECORDS["Gamma"]
UNCHANGING = {"a": (lambda p: p["a"], MEAN), "a^2": (lambda p: p["a"] ** 2, MEAN**2 + SD**2)}


def _wald_pdf(x, mu):
    return np.sqrt(1 / (2 * np.pi * x**3)) * np.exp(-((x - mu) ** 2) / (2 * mu**2 * x))


PDFS = {
    "Beta": lambda x, a: x ** (a - 1) * (1 - x) * a * (a + 1),
    "Gamma": lambda x, a: x ** (a - 1) * np.exp(-x) / special.gamma(a),
    "Wald": _wald_pdf,
}


def declare(kernel, a, **known):
    if kernel == "Beta":
        return pm.Beta("y", a, 2.0, **known)
    return pm.Gamma("y", a, 1.0, **known) if kernel == "Gamma" else pm.Wald("y", a, 1.0, **known)


def model_of(kernel, private):
    with pm.Model() as model:
        labels = URN.labels(N, N + 2)
        a = pm.Normal("a", MEAN, SD, shape=N + 2)
        y = declare(kernel, a[labels], **({} if private else {"observed": RECORDS[kernel]}))
        if private:
            dp.LaplaceMechanism("z", y, scale=SCALE, observed=RECORDS[kernel])
    return model


@cache
def released_by(kernel, private, fine=1):
    """Atoms inside of the domain as nodes, and one more for all those that are outside."""
    x = RECORDS[kernel]
    u, h = exact._axis(np.log(1e-16), np.log(MEAN + 9 * SD), 0.05 / fine)
    a = np.exp(u)
    if private:
        g, first, second = exact.beta_given_release(x, a, 2.0 + 0 * a, SCALE, order=24 * fine)
        log_g, mean = np.log(g), first / g
        var = second / g - mean**2
    else:
        log_g = np.log(np.maximum(PDFS[kernel](x[:, None], a), 1e-300))
        mean, var = np.broadcast_to(x[:, None], log_g.shape), np.zeros(log_g.shape)
    outside = stats.norm.logcdf(-MEAN / SD)
    beside = ((0, 0), (0, 1))
    return exact.Released(
        (len(a) + 1,),
        np.append(stats.norm.logpdf(a, MEAN, SD) + u + np.log(h), outside),
        np.pad(log_g, beside, constant_values=-np.inf),
        np.pad(mean, beside),
        np.pad(var, beside),
        lambda points: np.pad(PDFS[kernel](points[:, None], a), beside),
    )


def kernel_of(kernel):
    def density(x, point):
        a = point["a"]
        inside = np.where(a > 0, a, 1.0)
        return np.where(a > 0, PDFS[kernel](x, inside), 0.0)

    return Kernel(None, density, (0.1, 0.5, 0.8), UNCHANGING)


def verdict_on(sampler, kernel, private):
    chain = small.Chain(
        model_of(kernel, private), sampler, URN, DRAWS, crc32(f"{kernel} {sampler.__name__}".encode())
    )
    released = released_by(kernel, private)
    # every record has its atoms where it has a density
    occupied = chain.atoms["a"][chain.sizes > 0]
    return small.compare(chain, kernel_of(kernel), released, URN.posterior(released)), occupied.min()


@pytest.mark.parametrize("sampler", ["neal 8", "split-merge"])
@pytest.mark.parametrize("kernel", PDFS)
def test_posterior_of_known_records_is_exact(kernel, sampler):
    verdict, lowest = verdict_on(ALL_KNOWN[sampler], kernel, private=False)
    assert verdict.passed, verdict
    assert lowest > 0


@pytest.mark.parametrize("sampler", ["auto", "slice", "joint", "joint of 2", "conditional"])
def test_posterior_of_released_records_is_exact(sampler):
    verdict, lowest = verdict_on(ALL_SAMPLERS[sampler], "Beta", private=True)
    assert verdict.passed, verdict
    assert lowest > 0


@pytest.mark.parametrize("kernel, private", [*((k, False) for k in PDFS), ("Beta", True)])
def test_quadrature_has_converged(kernel, private):
    once, twice = (URN.posterior(released_by(kernel, private, fine)) for fine in (1, 2))
    assert abs(once.prob - twice.prob).max() < 1e-8
