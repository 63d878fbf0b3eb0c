"""Moves of multivariate normal records behind their own releases, beside their exact conditional.

Many records, each started from its conditional, are moved by one sweep: what comes out must be from there
again.
"""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.lowering.functions import normals
from pymc_dp.lowering.rows.rows import NotScalar
from pymc_dp.step_methods.sweeps import moves as moves_module
from tests.statistics.test_proposals import chain_of

pytestmark = pytest.mark.statistical

N = 20_000
MEAN = np.array([0.3, -0.5])
COV = np.array([[1.0, 0.9], [0.9, 1.6]])
# Largest acceptance of proposals from the model, least of those from the release: measured, with a margin.
LITTLE_NOISE, MOST, LEAST = 0.1, 0.1, 0.7


def released(sigma, rng):
    """Records N(MEAN, COV) with Gaussian noise, and their means and covariance given their releases."""
    noise = sigma**2 * np.eye(2)
    z = rng.multivariate_normal(MEAN, COV + noise, N)
    gain = COV @ np.linalg.inv(COV + noise)
    with pm.Model() as model:
        y = pm.MvNormal("y", MEAN, COV, shape=(N, 2))
        dp.GaussianMechanism("z", y, sigma=sigma, observed=z)
    return model, MEAN + (z - MEAN) @ gain.T, COV - gain @ COV


def swept(chain, which, mean, cov, rng):
    """p-value of a sweep's result being from the conditional, and the acceptance."""
    root = np.linalg.cholesky(cov)
    x = mean + rng.normal(size=(N, 2)) @ root.T
    tally = chain.sweep(rng, chain.program.parameters.flatten({}), x, which, 1)
    u = np.linalg.solve(root, (x - mean).T)
    directions = [*u, (u[0] + u[1]) / np.sqrt(2), (u[0] - u[1]) / np.sqrt(2)]
    return min(stats.kstest(v, "norm").pvalue for v in directions) * len(directions), tally[0] / N


def no_scalar_form(*args):
    raise NotScalar("on purpose")


@pytest.mark.parametrize("form", ["fused", "vectorised"])
def test_conditional_is_invariant(form, rng, monkeypatch):
    if form == "vectorised":
        for name in ("FusedSweep", "ReversedSweep"):
            monkeypatch.setattr(moves_module, name, no_scalar_form)
    model, mean, cov = released(LITTLE_NOISE, rng)
    chain = chain_of(model)
    assert [move.name for move in chain.moves] == ["independence", "reversed channel"]
    assert all((move.fused is not None) == (form == "fused") for move in chain.moves)
    results = [swept(chain, which, mean, cov, rng) for which in range(2)]
    assert min(p for p, _ in results) > 1e-4
    assert results[0][1] < MOST and results[1][1] > LEAST


def test_a_density_without_correlation_is_rejected(rng, monkeypatch):
    """The proposal from the release is decided on the wrong density."""
    factor_of = normals.factor_of

    def broken(cov, size, name):
        rows = enumerate(factor_of(cov, size, name))
        return [[v if k == j else 0.0 * v for k, v in enumerate(row)] for j, row in rows]

    monkeypatch.setattr(normals, "factor_of", broken)
    model, mean, cov = released(0.5, rng)
    p_value, _ = swept(chain_of(model), 1, mean, cov, rng)
    assert p_value < 1e-6
