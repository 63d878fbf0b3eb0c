"""Maximum mean discrepancy: against sums over all pairs, closed forms, and published figures."""

import json
import math

import arviz as az
import numpy as np
import pytest
import xarray as xr

import pymc_dp as dp
from pymc_dp.stats import mmd as module

mmd = module.mmd


def by_pairs(x, y, width):
    def kernels(a, b):
        return np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=-1) / (2 * width**2))

    n, m = len(x), len(y)
    within = (kernels(x, x).sum() - n) / (n * (n - 1)) + (kernels(y, y).sum() - m) / (m * (m - 1))
    return within - 2 * kernels(x, y).mean()


@pytest.mark.parametrize("block", [7, 64, 2048])
@pytest.mark.parametrize(("n", "m", "d"), [(2, 2, 1), (30, 50, 1), (100, 33, 4)])
def test_sums_over_all_pairs(rng, monkeypatch, block, n, m, d):
    """Whatever the blocks; far from 0 in small units, where squares of distances could lose their digits."""
    monkeypatch.setattr(module, "_BLOCK", block)
    x, y = rng.normal(1e3, 1e-3, (n, d)), rng.normal(1e3 + 5e-4, 1e-3, (m, d))
    found = mmd(x, y)
    between = np.linalg.norm(x[:, None] - y[None], axis=-1)
    assert found.bandwidth == pytest.approx(np.median(between), rel=1e-6)
    assert found.squared == pytest.approx(by_pairs(x, y, found.bandwidth), abs=1e-6)
    assert found.root == float(found) == math.sqrt(abs(found.squared))
    assert mmd(x, y, bandwidth=0.01).squared == pytest.approx(by_pairs(x, y, 0.01), abs=1e-6)


def exact(shift, scale, d, width):
    """Of N(0, 1) and N(shift, scale^2) in each of d dimensions."""

    def mean_kernel(variance, distance):
        total = width**2 + variance
        return (width**2 / total) ** (d / 2) * math.exp(-d * distance**2 / (2 * total))

    return mean_kernel(2, 0) + mean_kernel(2 * scale**2, 0) - 2 * mean_kernel(1 + scale**2, shift)


@pytest.mark.parametrize(
    ("shift", "scale", "d"), [(0.0, 1.0, 2), (0.3, 1.0, 2), (0.0, 1.5, 1), (0.1, 0.8, 10)]
)
def test_unbiased(rng, shift, scale, d):
    """The mean over samples is the square in closed form, within four standard errors."""
    found = [
        mmd(rng.normal(shift, scale, (50, d)), rng.normal(size=(40, d)), bandwidth=1.5).squared
        for _ in range(400)
    ]
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - exact(shift, scale, d, 1.5)) < 4 * error
    biased = 1 / 50 + 1 / 40  # about what the terms of points with themselves would add
    assert 8 * error < biased


@pytest.mark.reference
@pytest.mark.parametrize("model", ["easy-2d", "easy-10d", "tempered-2d", "gauss-30d", "hard-gauss-2d"])
def test_published_figures(reference, model):
    """Exact samples score .006-.04 and a point mass .44-.61 on the thesis's models."""
    sample = np.load(reference / f"posterior_sample_{model}.npz")["sample"]
    means = json.loads((reference / "models.json").read_text())[model]
    mean = np.array(means.get("post_mean_exact", means.get("post_mean_consistent_prior_sd100")))
    assert 0.43 < mmd(np.tile(mean, (len(sample), 1)), sample).root < 0.62
    halves = mmd(sample[::2], sample[1::2]).root
    # of 500 points each; the scale of the estimate's error under equal laws is about 1 / sqrt(n)
    assert halves < 2 / math.sqrt(500)


def test_results_of_sampling(rng):
    mu, beta = rng.normal(size=(2, 100)), rng.normal(size=(2, 100, 3))
    posterior = xr.Dataset({"beta": (("chain", "draw", "k"), beta), "mu": (("chain", "draw"), mu)})
    idata = xr.DataTree.from_dict({"posterior": posterior})
    other = rng.normal(size=(150, 4))
    columns = np.concatenate([beta.reshape(200, 3), mu.reshape(200, 1)], axis=1)
    assert mmd(idata, other) == mmd(columns, other)
    assert mmd(idata, other[:, :1], var_names=["mu"]) == mmd(mu.ravel(), other[:, 0])
    assert mmd(idata, other, var_names=["mu", "beta"]) == mmd(columns[:, [3, 0, 1, 2]], other)
    assert mmd(az.from_dict({"posterior": {"beta": beta, "mu": mu}}), idata, bandwidth=1).squared < 0
    assert mmd(beta, other[:, :3]) == mmd(beta.reshape(200, 3), other[:, :3])


POINTS = np.arange(6.0).reshape(3, 2)
BAD = {
    "other dimensions": ((POINTS, POINTS[:, :1]), {}, ValueError, "draws have 2 numbers each"),
    "one point": ((POINTS[:1], POINTS), {}, ValueError, "draws must have at least two points"),
    "NaN": ((POINTS, POINTS * [[1, math.nan]]), {}, ValueError, "reference must be finite"),
    "words": ((POINTS, ["a", "b"]), {}, TypeError, "reference must be numbers"),
    "no sample": ((3.0, POINTS), {}, TypeError, "draws must be numbers"),
    "a point": ((np.ones((5, 2)), np.ones((4, 2))), {}, ValueError, "median distance is 0: give bandwidth="),
    "no width": ((POINTS, POINTS), {"bandwidth": 0}, ValueError, "bandwidth must be a finite number > 0"),
    "width in words": ((POINTS, POINTS), {"bandwidth": "median"}, TypeError, "bandwidth must be a number"),
}


@pytest.mark.parametrize(("samples", "kwargs", "error", "words"), BAD.values(), ids=BAD)
def test_bad_input(samples, kwargs, error, words):
    with pytest.raises(error, match=words):
        dp.mmd(*samples, **kwargs)


def test_results_without_the_variable():
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), np.ones((1, 3)))})})
    with pytest.raises(ValueError, match="no sigma"):
        dp.mmd(idata, POINTS, var_names=["sigma"])
    with pytest.raises(ValueError, match="no group 'posterior'"):
        dp.mmd(xr.DataTree(), POINTS)
