"""Records clamped to ends that are random and may even change places, against quadrature."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from tests.statistics import harness
from tests.statistics.marginal import Marginal

pytestmark = pytest.mark.compiles(1)

Z = np.array([1.4, -0.3, 0.9])
SCALE = 0.4
GRID = np.linspace(-4.5, 4.5, 121)
ENDS = {"lo": (-0.5, 0.5), "hi": (0.5, 0.5)}
NOISE = {"Laplace": stats.laplace(0, SCALE), "Gaussian": stats.norm(0, SCALE)}


def exact(noise, lo, hi):
    """Marginals of mu and of the random ends, on a grid; an end that is given has one value."""
    ends = [GRID if end is None else np.array([end]) for end in (lo, hi)]
    a, b = ends[0][:, None], ends[1][None, :]
    prior = np.ones((len(ends[0]), len(ends[1])))
    for grid, end, name, axis in zip(ends, (lo, hi), ENDS, (1, 0), strict=True):
        if end is None:
            prior = prior * np.expand_dims(stats.norm(*ENDS[name]).pdf(grid), axis)
    y = np.linspace(-10, 10, 20_001)
    posterior = []
    for mu in GRID:
        total = stats.norm(0, 1).pdf(mu) * prior
        law = stats.norm(mu, 1)
        for z in Z:
            each = law.pdf(y) * noise.pdf(z - y)
            up_to = np.concatenate([[0.0], np.cumsum((each[1:] + each[:-1]) / 2) * (y[1] - y[0])])
            between = np.interp(b, y, up_to) - np.interp(a, y, up_to)
            # below the lower end first, as PyTensor clips: nothing is between ends that changed places
            total = total * (
                law.cdf(a) * noise.pdf(z - a)
                + law.sf(np.maximum(a, b)) * noise.pdf(z - b)
                + np.where(a < b, between, 0.0)
            )
        posterior.append(total)
    mass = np.array(posterior)
    marginals = {"mu": mass.sum(axis=(1, 2))}
    if lo is None:
        marginals["lo"] = mass.sum(axis=(0, 2))
    if hi is None:
        marginals["hi"] = mass.sum(axis=(0, 1))
    return {name: marginal(m) for name, m in marginals.items()}


def marginal(mass):
    step = GRID[1] - GRID[0]
    density = mass / (mass.sum() * step)
    cdf = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2) * step])
    mean = step * density @ GRID
    return Marginal(mean, np.sqrt(step * density @ (GRID - mean) ** 2), GRID, cdf / cdf[-1], density)


CASES = [
    ("Laplace", dp.clamp, None, None),
    ("Gaussian", pt.clip, None, None),
    ("Laplace", pt.clip, None, 1.0),
    ("Gaussian", dp.clamp, -1.0, None),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("noise", "clip", "lo", "hi"), CASES)
def test_posterior(noise, clip, lo, hi):
    with pm.Model():
        ends = [pm.Normal(n, *ENDS[n]) if end is None else end for n, end in zip(ENDS, (lo, hi), strict=True)]
        y = pm.Normal("y", pm.Normal("mu", 0, 1), 1, shape=3)
        query = clip(y, *ends)
        if noise == "Laplace":
            dp.LaplaceMechanism("z", query, scale=SCALE, observed=Z)
        else:
            dp.GaussianMechanism("z", query, sigma=SCALE, observed=Z)
        idata = pm.sample(
            8000, tune=1000, chains=2, cores=1, random_seed=6, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    for name, answer in exact(NOISE[noise], lo, hi).items():
        verdict = harness.mc_z(idata.posterior[name].values, answer, minimum_ess=150)
        assert verdict.passed, (name, verdict)
