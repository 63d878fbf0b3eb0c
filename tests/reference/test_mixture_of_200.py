"""The mixture of section 4.1 of Beraha, Favaro and Rao, against long runs of independent programs."""

import json

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from tests.mixtures.small import BATCHES
from tests.statistics import harness

pytestmark = [pytest.mark.reference, pytest.mark.statistical]

SLOTS = 60


def mixture(z):
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=len(z), max_components=SLOTS)
        s2 = pm.InverseGamma("s2", 3, 3, shape=SLOTS)
        mu = pm.Normal("mu", 0, pt.sqrt(10 * s2), shape=SLOTS)
        dp.LaplaceMechanism("z", pm.Normal("y", mu[labels], pt.sqrt(s2[labels])), scale=2.0, observed=z)
    return model


SAMPLERS = {
    "auto": (lambda: dp.PrivateNeal5(n_cycles=10), 4000),
    "joint of 2": (lambda: dp.PrivateNeal5(moves="joint", n_auxiliary=2, n_cycles=10), 4000),
    "conditional": (lambda: dp.PrivateNeal5(moves="conditional", n_cycles=5), 4000),
    "slice": (lambda: dp.PrivateSlice(n_cycles=10), 6000),
}


def batch_z(values, expected, error):
    """Of means of columns (draw, k), each side with an error of its own."""
    means = np.asarray(values, dtype=float).reshape(BATCHES, -1, values.shape[1]).mean(axis=1)
    own = means.std(axis=0, ddof=1) / np.sqrt(BATCHES)
    return (means.mean(axis=0) - expected) / np.hypot(own, error)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_number_of_clusters_and_density(reference, sampler):
    answer = json.loads((reference / "dpm_laplace_eps10_n200.json").read_text())
    n, grid = 200, np.array(answer["grid"])[40:-40:20]
    make, draws = SAMPLERS[sampler]
    model = mixture(np.array(answer["z"]))
    with model:
        step = make()
    step.setup_chain(np.random.default_rng(20), 500, draws)
    point, k, density = model.initial_point(), np.empty(draws, int), np.empty((draws, len(grid)))
    for t in range(-500, draws):
        if t == 0:
            step.stop_tuning()
        point, (found,) = step.step(point)
        if t >= 0:
            k[t] = found["n_clusters"]
            sizes = np.bincount(point["labels"], minlength=SLOTS)
            # a new cluster has the atoms of a free slot
            weights = np.where(sizes > 0, sizes, 1 / (sizes == 0).sum()) / (n + 1)
            sd = np.exp(0.5 * point["s2_log__"])
            density[t] = (weights / sd * stats.norm._pdf((grid[:, None] - point["mu"]) / sd)).sum(axis=1)
    pmf, error = np.array(answer["pooled_pmf_k_1_to_40"]), np.array(answer["pooled_pmf_se"])
    often = np.flatnonzero(pmf > 0.02)
    z = {
        **dict(zip(1 + often, batch_z(k[:, None] == 1 + often, pmf[often], error[often]), strict=True)),
        "mean k": batch_z(k[:, None], answer["pooled_mean_k"], answer["pooled_mean_k_se"])[0],
    }
    at = np.arange(201)[40:-40:20]
    expected, error = (np.array(answer[name])[at] for name in ("pooled_density", "pooled_density_se"))
    for x, value in zip(grid, batch_z(density, expected, error), strict=True):
        z[f"density at {x:g}"] = value
    # of 50 batches: t rather than normal
    z = {str(name): float(stats.norm.isf(stats.t.sf(abs(v), BATCHES - 1))) for name, v in z.items()}
    verdict = harness.two_sample_z(z, 1e-4)
    assert verdict.passed, verdict
    mean = k.reshape(BATCHES, -1).mean(axis=1)
    assert mean.std(ddof=1) / np.sqrt(BATCHES) < 0.12  # the chain has told something
