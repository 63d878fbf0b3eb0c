"""Kernels that PyMC draws as functions of other draws, beside posteriors by enumeration."""

import numpy as np
import pytest
from scipy import integrate, stats

from tests.mixtures import exact, small
from tests.mixtures.samplers import ALL_SAMPLERS
from tests.mixtures.small import Urn, verdict_on


@pytest.mark.parametrize("kernel", small.STANDARD)
def test_records_are_integrated_out(kernel):
    released, pdf = small.released_by(kernel, "", 5), small.STANDARD[kernel]
    assert released.error() < 1e-6
    for k, z in enumerate(small.SCALE_Z):
        noise = stats.laplace(z, small.SCALE_NOISE).pdf
        for atom, s in ((60, 1.0), (70, np.exp(0.7 * 1.5))):
            points = [z] if z > 0 else None
            moments = [
                integrate.quad(
                    lambda x, j=j, s=s, noise=noise: x**j * pdf(x / s) / s * noise(x), 0, 60, points=points,
                    limit=200, epsabs=0, epsrel=1e-10,
                )[0]
                for j in range(3)
            ]  # fmt: skip
            mean = moments[1] / moments[0]
            assert released.log_g[k, atom] == pytest.approx(np.log(moments[0]), abs=1e-7)
            assert released.mean[k, atom] == pytest.approx(mean, rel=1e-7)
            assert released.var[k, atom] == pytest.approx(moments[2] / moments[0] - mean**2, rel=1e-6)
    finer = exact.scale_family(small.SCALE_Z, small.SCALE_NOISE, pdf, fine=2)
    assert released.log_marginal((0, 1, 3)) == pytest.approx(finer.log_marginal((0, 1, 3)), abs=1e-9)


@pytest.mark.parametrize(
    ("kernel", "sampler"),
    [
        ("half Cauchy", "joint"),
        pytest.param("Weibull", "joint", marks=pytest.mark.statistical),
        pytest.param("half Cauchy", "conditional", marks=pytest.mark.statistical),
        pytest.param("Weibull", "conditional", marks=pytest.mark.statistical),
    ],
)
def test_posterior_is_exact(kernel, sampler):
    verdict = verdict_on(ALL_SAMPLERS[sampler], kernel, "", Urn(1.0), draws=20_000, seed=3)
    assert verdict.passed, verdict
