"""The pieces of the closed conditionals, one by one, in every branch."""

import math

import mpmath as mp
import numba
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erfcx
from scipy.stats import kstest

from pymc_dp.mechanisms import conditionals

INF = math.inf
# near <= far: wholly above zero (near 0, in the bulk, far out), across zero, narrow and wide
INTERVALS = [
    (0.0, INF),
    (0.3, INF),
    (0.3, 0.9),
    (0.49, 1.49),
    (0.1, 4.0),
    (0.5, INF),
    (0.7, 0.8),
    (3.0, 3.5),
    (40.0, INF),
    (40.0, 40.01),
    (1e6, INF),
    (-0.2, 5.0),
    (-INF, 0.4),
    (-1.0, 1.2),
    (-0.001, 0.001),
]


def integrand(near):
    return lambda t: math.exp(-near * t - 0.5 * t * t)


def integral(near, width):
    """Integrate exp(-near t - t^2/2) over [0, width], as far as it is not negligible."""
    return quad(integrand(near), 0, min(width, 60 / (near + 1)), epsabs=0, epsrel=1e-12)[0]


@pytest.mark.parametrize("x", [25.0, 1e3, 1e8, 1e200])
def test_erfcx_far_out(x):
    assert conditionals.erfcx(x) == pytest.approx(erfcx(x), rel=1e-14)


def test_erfcx_below_zero_is_no_number():
    """A scale below zero asks for it; its table has no rows there, and what lies before it is not read."""
    assert np.isnan(
        [conditionals.erfcx(x) for x in (-1e-300, -0.5, -13.9, -20.0, -1e12, -np.inf, np.nan)]
    ).all()


def test_erfcx_within_and_between_the_pieces_of_its_table(rng):
    ends = np.arange(0, 14.5, 1 / 16)
    x = np.concatenate([ends, np.nextafter(ends[1:], 0), rng.uniform(0, 20, 1000)])
    with mp.workdps(120):
        exact = [float(mp.exp(mp.mpf(v) ** 2) * mp.erfc(v)) for v in x]
    np.testing.assert_allclose([conditionals.erfcx(v) for v in x], exact, rtol=2e-15)


@pytest.mark.parametrize(
    ("near", "width"),
    [(0, 1e-9), (0, 1.0), (2, 1e-7), (2, 1e-3), (2, INF), (50, 1e-8), (50, 0.1), (1e6, INF)],
)
def test_log_mass_beside_zero(near, width):
    near = float(near)
    exact = math.log(integral(near, width))
    for alpha, beta in ((near, near + width), (-near - width, -near)):
        assert conditionals._log_mass(alpha, beta, width) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(("alpha", "beta"), [(-1.0, 2.0), (-INF, 0.5), (-1e-9, 1e-9), (-INF, INF)])
def test_log_mass_across_zero(alpha, beta):
    exact = math.log(integral(0.0, -alpha) + integral(0.0, beta))
    assert conditionals._log_mass(alpha, beta, beta - alpha) == pytest.approx(exact, abs=1e-9)


@numba.njit
def draw_many(rng, m, r, lo, hi, size):
    out = np.empty(size)
    for i in range(size):
        out[i] = conditionals._truncated_normal(rng, m, r, lo, hi, (lo - m) / r, (hi - m) / r)
    return out


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("alpha", "beta"), INTERVALS)
def test_truncated_normal(alpha, beta, sign):
    m, r = 3.0, 2.0
    lo, hi = (alpha, beta) if sign == 1 else (-beta, -alpha)
    draws = draw_many(np.random.default_rng(8), m, r, m + r * lo, m + r * hi, 20_000)
    assert ((draws >= m + r * lo) & (draws <= m + r * hi)).all()
    # measured from the end nearest to the centre, which keeps the digits of a far tail
    start = max(alpha, -8.0)
    offsets = sign * (draws - (m + sign * r * start)) / r
    width = min(beta - start, 16.0 if start < 0 else 60 / (start + 1))
    grid = np.linspace(0, width, 20_001)
    density = np.exp(-start * grid - 0.5 * grid**2 - (0.5 * start**2 if start < 0 else 0))
    mass = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    assert kstest(offsets, lambda t: np.interp(t, grid, mass / mass[-1])).pvalue > 1e-3
