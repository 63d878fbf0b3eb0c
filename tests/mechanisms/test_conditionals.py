"""Closed full conditionals against distribution functions integrated numerically."""

import math
from itertools import pairwise

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import kstest

from pymc_dp.mechanisms.conditionals import NormalGivenGaussian, NormalGivenLaplace

INF = math.inf
OPS = {"gaussian": NormalGivenGaussian, "laplace": NormalGivenLaplace}
N_DRAWS = 4000

# mu, s, z, noise, lo, hi
SETTINGS = [
    (0.0, 1.0, 0.3, 1.0, -INF, INF),
    (0.0, 1.0, 40.0, 1.0, -INF, INF),
    (40.0, 1.0, 0.0, 0.01, -INF, INF),
    (-40.0, 1.0, 0.0, 100.0, -INF, INF),
    (5.0, 3.0, 6.0, 1e-5, -INF, INF),
    (1e6, 2.0, 0.0, 1.0, -INF, INF),
    (0.0, 1.0, 0.5, 2.0, -1.0, 1.0),
    (0.0, 1.0, 7.0, 0.5, -1.0, 1.0),
    (0.0, 1.0, -3.0, 5.0, -0.1, 2.0),
    (9.0, 1.0, 14.0, 2.0, -10.0, 10.0),
    (40.0, 1.0, 0.0, 1.0, -1.0, 1.0),
    (-40.0, 1.0, 3.0, 0.2, -1.0, 1.0),
    (-40.0, 1.0, 0.0, 0.02, -1.0, 1.0),
    (0.0, 1.0, 0.2, 1.0, -INF, 0.5),
    (0.0, 1.0, 0.9, 1.0, 0.5, INF),
    (0.0, 100.0, 0.5, 1.0, 0.0, 1.0),
    (0.5, 1e-4, 0.2, 3.0, 0.0, 1.0),
    (3.0, 2.0, 2.5, 1.0, 2.4, 2.6),
    (0.0, 1.0, 1.0, 1.0, 1.0 - 1e-9, 1.0 + 1e-9),
    (8.0, 2.0, 7.9, 0.3, 0.0, 8.0),
]


def reference_cdf(kind, mu, s, z, noise, lo, hi):
    """Integrate the unnormalised density on a fine grid between its breaks; return its CDF."""

    def log_density(y):
        gap = z - np.clip(y, lo, hi)
        noise_term = -np.abs(gap) / noise if kind == "laplace" else -0.5 * (gap / noise) ** 2
        return -0.5 * ((y - mu) / s) ** 2 + noise_term

    ends = [min(mu, z) - 60 * s - 60 * noise, max(mu, z) + 60 * s + 60 * noise]
    for bound in (lo, hi):
        if math.isfinite(bound):
            ends += [bound - 60 * s, bound + 60 * s]
    low, high = min(ends), max(ends)
    inner = [b for b in (lo, hi, z) if low < b < high]
    edges = sorted({low, high, *inner})
    grids = []
    for a, b in pairwise(edges):
        # The density is log-concave between breaks: find its mode, then where it has vanished.
        left, right = a, b
        for _ in range(300):
            third = (right - left) / 3
            if log_density(left + third) < log_density(right - third):
                left += third
            else:
                right -= third
        mode = 0.5 * (left + right)
        limits = []
        for far in (a, b):
            inside, outside = mode, far
            if log_density(far) < log_density(mode) - 45:
                for _ in range(200):
                    half = 0.5 * (inside + outside)
                    vanished = log_density(half) < log_density(mode) - 45
                    inside, outside = (inside, half) if vanished else (half, outside)
            limits.append(outside)
        grids.append(np.linspace(*limits, 20001))
    top = max(log_density(grid).max() for grid in grids)
    points, mass, total = [], [], 0.0
    for grid in grids:
        density = np.exp(log_density(grid) - top)
        steps = 0.5 * (density[1:] + density[:-1]) * np.diff(grid)
        cumulated = total + np.concatenate([[0.0], np.cumsum(steps)])
        points.append(grid)
        mass.append(cumulated)
        total = cumulated[-1]
    points, mass = np.concatenate(points), np.concatenate(mass) / total
    return lambda y: np.interp(y, points, mass)


def numpy_draws(kind, settings, seed):
    return OPS[kind].rng_fn(np.random.default_rng(seed), *settings, (N_DRAWS,))


@pytest.fixture(scope="module")
def compiled():
    functions = {}
    for kind, op in OPS.items():
        params = pt.dvectors(6)
        rng = pytensor.shared(np.random.default_rng(11))
        next_rng, draw = op(
            *(p[:, None] for p in params), size=(len(SETTINGS), N_DRAWS), rng=rng,
            return_next_rng=True,
        )  # fmt: skip
        functions[kind] = pytensor.function(params, draw, updates={rng: next_rng}, mode="NUMBA")
    return functions


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", OPS)
def test_native_draws(kind, compiled):
    draws = compiled[kind](*np.array(SETTINGS).T)
    p_values = [
        kstest(row, reference_cdf(kind, *settings)).pvalue
        for row, settings in zip(draws, SETTINGS, strict=True)
    ]
    # Uniform under exactness: bounded below (20 tests), and not piled up near 0.
    assert min(p_values) > 1e-3, dict(zip(SETTINGS, p_values, strict=True))
    assert kstest(p_values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("kind", OPS)
def test_numpy_draws(kind):
    p_values = [
        kstest(numpy_draws(kind, settings, seed), reference_cdf(kind, *settings)).pvalue
        for seed, settings in enumerate(SETTINGS)
    ]
    assert min(p_values) > 1e-3, dict(zip(SETTINGS, p_values, strict=True))


@pytest.mark.parametrize("kind", OPS)
def test_power(kind):
    """The same comparison rejects a slightly wrong law: noise 15 % too large, tails forgotten."""
    mu, s, z, noise, lo, hi = 0.0, 1.0, 1.5, 1.0, -INF, INF
    wrong = reference_cdf(kind, mu, s, z, 1.15 * noise, lo, hi)
    assert kstest(numpy_draws(kind, (mu, s, z, noise, lo, hi), 1), wrong).pvalue < 1e-3
    mu, s, z, noise, lo, hi = 0.0, 1.0, 0.5, 2.0, -1.0, 1.0
    unclamped = reference_cdf(kind, mu, s, z, noise, -INF, INF)
    assert kstest(numpy_draws(kind, (mu, s, z, noise, lo, hi), 1), unclamped).pvalue < 1e-3


@pytest.mark.parametrize("kind", OPS)
def test_weight_of_each_piece(kind):
    """Frequencies below lo, inside and above hi match the integrals (a finer check than KS)."""
    for settings in ((0.0, 1.0, 0.5, 2.0, -1.0, 1.0), (9.0, 1.0, 14.0, 2.0, -10.0, 10.0)):
        cdf = reference_cdf(kind, *settings)
        lo, hi = settings[4:]
        draws = OPS[kind].rng_fn(np.random.default_rng(3), *settings, (200_000,))
        for point in (lo, hi, settings[0]):
            share = cdf(point)
            error = math.sqrt(max(share * (1 - share), 1e-12) / draws.size)
            assert abs((draws <= point).mean() - share) < 4.5 * error + 1e-6


@pytest.mark.parametrize("kind", OPS)
def test_extremes_end_and_stay_in_range(kind):
    """No overflow, no endless rejection, at ratios far beyond any sensible model."""
    rng = np.random.default_rng(5)
    for mu in (0.0, 1e8, -1e12):
        for s in (1e-8, 1.0, 1e8):
            for noise in (1e-8, 1.0, 1e8):
                for lo, hi in ((-INF, INF), (0.0, 1.0), (-INF, 0.0), (0.0, INF)):
                    draws = OPS[kind].rng_fn(rng, mu, s, 0.3, noise, lo, hi, (20,))
                    assert np.isfinite(draws).all(), (mu, s, noise, lo, hi)
    for s, noise in ((1e200, 1e-200), (1e-200, 1e200), (1e-300, 1e-300), (1e300, 1e300)):
        for lo, hi in ((-INF, INF), (0.0, 1.0), (-INF, 0.0)):
            OPS[kind].rng_fn(rng, 0.0, s, 0.3, noise, lo, hi, (20,))  # NaN at worst
    narrow = OPS[kind].rng_fn(rng, 0.0, 1.0, 0.3, 1e-10, -INF, INF, (1000,))
    assert np.abs(narrow - 0.3).max() < 1e-8 and narrow.std() > 1e-11


@pytest.mark.parametrize("kind", OPS)
@pytest.mark.parametrize(
    "settings",
    [
        (math.nan, 1, 0, 1, -INF, INF),
        (0, 0.0, 0, 1, -INF, INF),
        (0, 1, INF, 1, -INF, INF),
        (0, 1, 0, -1.0, -INF, INF),
        (0, 1, 0, 1, 2, 1),
        (0, 1, 0, 1, math.nan, 1),
    ],
)
def test_improper_parameters_give_nan(kind, settings):
    assert np.isnan(OPS[kind].rng_fn(np.random.default_rng(0), *settings, None))


def test_shapes():
    rng = np.random.default_rng(0)
    out = NormalGivenLaplace.rng_fn(rng, np.zeros((3, 1)), 1, np.zeros(4), 1, -INF, INF, None)
    assert out.shape == (3, 4)
