"""Noisy affine functions of all normal records, however a model writes them, against SciPy."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats

import pymc_dp as dp

SD, NOISE = np.array([0.5, 1.0, 2.0]), 0.7
# The query, its coefficients and what it adds.
QUERIES = {
    "sum and contrast": (lambda y: pt.stack([y.sum(), y[0] - y[2]]), [[1, 1, 1], [1, 0, -1]], [0, 0]),
    "steps": (lambda y: 3 - 2 * (y[1:] - y[:-1]), [[2, -2, 0], [0, 2, -2]], [3, 3]),
    "product": (lambda y: pt.dot(np.arange(6.0).reshape(2, 3), y), [[0, 1, 2], [3, 4, 5]], [0, 0]),
    "one record": (lambda y: y[1], [[0, 1, 0]], [0]),
    "sums": (lambda y: pt.stack([y.sum(), y.mean()]), [[1, 1, 1], [1 / 3] * 3], [0, 0]),
}


@pytest.mark.parametrize("name", QUERIES)
def test_density_is_multivariate_normal(name, python_mode):
    query, coefficients, offset = QUERIES[name]
    coefficients, released = np.array(coefficients, dtype=float), np.array([1.0, -0.5])[: len(offset)]
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Normal("y", mu + np.arange(3.0), SD, shape=3)
        observed = released[0] if name == "one record" else released
        dp.GaussianMechanism("z", query(y), sigma=NOISE, observed=observed)
    marginal = dp.marginalize(model, ["y"])
    assert [v.name for v in marginal.free_RVs] == ["mu"]
    logp = marginal.compile_logp(vars=[marginal["z"]])
    covariance = coefficients * SD**2 @ coefficients.T + NOISE**2 * np.eye(len(released))
    for at in (-1.0, 0.3):
        mean = coefficients @ (at + np.arange(3.0)) + offset
        expected = stats.multivariate_normal.logpdf(released, mean, covariance)
        np.testing.assert_allclose(logp({"mu": np.array(at)}), expected, rtol=1e-12)


@pytest.mark.statistical
def test_records_are_recovered():
    """Given the release, records have the normal law of a linear model."""
    c, released = np.array([[1.0, 1, 1], [1, 0, -1]]), np.array([1.0, -0.5])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Normal("y", mu, SD, shape=3)
        dp.GaussianMechanism("z", pt.stack([y.sum(), y[0] - y[2]]), sigma=NOISE, observed=released)
    draws = xr.Dataset({"mu": (("chain", "draw"), np.full((1, 20_000), 0.4))})
    idata = xr.DataTree.from_dict({"posterior": draws})
    found = dp.recover_records(idata, model, random_seed=2)["y"].values
    gain = np.diag(SD**2) @ c.T @ np.linalg.inv(c * SD**2 @ c.T + NOISE**2 * np.eye(2))
    mean = 0.4 + gain @ (released - c @ np.full(3, 0.4))
    covariance = np.diag(SD**2) - gain @ c @ np.diag(SD**2)
    rows = found.reshape(-1, 3)
    error = np.sqrt(np.diag(covariance) / len(rows))
    assert (np.abs(rows.mean(axis=0) - mean) < 4 * error).all()
    moments = np.sqrt((covariance**2 + np.outer(*[np.diag(covariance)] * 2)) / len(rows))
    assert (np.abs(np.cov(rows.T) - covariance) < 4 * moments).all()
