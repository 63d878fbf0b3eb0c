"""Densities of noisy, clamped normal records over wide grids, against arithmetic of many digits."""

import math
from itertools import pairwise, product

import mpmath as mp
import numpy as np
import pytest

from pymc_dp.lowering.functions.noisy_normal import gaussian_parts, laplace_parts

INF = math.inf
BOUNDS = [(-INF, INF), (-10.0, 10.0), (0.0, INF), (0.0, 1e-3), (-1.0, 2.0)]
PARTS = {"laplace": laplace_parts, "gaussian": gaussian_parts}
DISTANCES = [0, 1e-6, 1e-3, 0.3, 1, 5, 30, 200, 1e4, 1e6, -1, -7, -40, -1e5]
RATIOS = [1e-6, 1e-3, 0.1, 1, 10, 1e3, 1e6]
SCALES = [1e-3, 1.0, 50.0]
MEANS = [0.0, 3.0, -20.0]


def mass(m, r, lo, hi):
    """Probability that N(m, r^2) gives [lo, hi], from the tail that is not near 1."""
    a = (mp.mpf(lo) - m) / r if lo > -INF else -mp.inf
    b = (mp.mpf(hi) - m) / r if hi < INF else mp.inf
    if a > 0:
        a, b = -b, -a

    def below(x):
        return mp.mpf(x > 0) if mp.isinf(x) else mp.erfc(-x / mp.sqrt(2)) / 2

    return below(b) - below(a)


def noise(kind, z, y, level):
    if kind == "laplace":
        return mp.exp(-abs(z - y) / level) / (2 * level)
    return mp.npdf(z, y, level)


def density(kind, z, mu, s, level, lo, hi):
    total = mp.mpf(0)
    if lo > -INF:
        total += mass(mu, s, -INF, lo) * noise(kind, z, mp.mpf(lo), level)
    if hi < INF:
        total += mass(mu, s, hi, INF) * noise(kind, z, mp.mpf(hi), level)
    if kind == "gaussian":
        tau = mp.sqrt(s * s + level * level)
        m, r = mu + (z - mu) * s * s / tau**2, s * level / tau
        return total + mp.npdf(z, mu, tau) * mass(m, r, lo, hi)
    k, split = s / level, min(max(z, mp.mpf(lo)), mp.mpf(hi))
    for sign, ends in ((1, (lo, split)), (-1, (split, hi))):
        if ends[0] < ends[1]:
            tilted = mp.exp(k * k / 2 - sign * (z - mu) / level) / (2 * level)
            total += tilted * mass(mu + sign * k * s, s, *ends)
    return total


def digits_for(value):
    """Digits in which differences of the exact density keep 25 of their own."""
    return 80 + int(abs(value) / 2.3)


def exact_log(kind, point, bounds):
    return mp.log(density(kind, *map(mp.mpf, point), *bounds))


def grid(rng, size, most=None):
    points = [(m + u * s, m, s, r * s) for u, r, s, m in product(DISTANCES, RATIOS, SCALES, MEANS)]
    return points if size is None else [points[i] for i in rng.choice(len(points), size, replace=False)]


CASES = pytest.mark.parametrize(("kind", "bounds"), list(product(PARTS, BOUNDS)), ids=str)


@CASES
def test_everything_is_finite(kind, bounds, rng):
    found = np.array([PARTS[kind](*p, *bounds) for p in grid(rng, None)])
    assert np.isfinite(found).all()


@pytest.mark.compiles(4)
@CASES
def test_log_density_and_gradient(kind, bounds, rng, full):
    checked = 0
    for point in grid(rng, 200 if full else 16):
        value, *slopes = PARTS[kind](*point, *bounds)
        if abs(value) > 3e3:  # so many digits would take minutes: see the next test
            continue
        with mp.workdps(digits_for(value)):
            exact = exact_log(kind, point, bounds)
            assert value == pytest.approx(float(exact), rel=1e-12, abs=1e-12), point
            if checked < (40 if full else 6):
                for j, slope in enumerate(slopes):
                    if (
                        j == 0 and point[0] in bounds
                    ):  # Laplace noise about a mass at the end has a cusp there
                        continue
                    h = mp.mpf(10) ** -20 * min(mp.mpf(point[2]), mp.mpf(point[3]))
                    ends = [
                        [mp.mpf(v) + (sign * h if i == j else 0) for i, v in enumerate(point)]
                        for sign in (1, -1)
                    ]
                    up, down = (exact_log(kind, end, bounds) for end in ends)
                    derivative = float((up - down) / (2 * h))
                    # of a scale, times the scale: what a sampler sees is the slope in its logarithm
                    unit = point[j] if j >= 2 else min(point[2], point[3])
                    assert slope * unit == pytest.approx(derivative * unit, rel=1e-10, abs=1e-10), (j, point)
                checked += 1
    assert checked >= (12 if full else 6)


@CASES
def test_far_tails(kind, bounds):
    """Beyond any probability that a float can hold: leading terms with an error bound of their own."""
    for u, r in product([1e5, 1e6, -1e6], [1e-6, 1.0, 1e6]):
        mu, s, level = 0.5, 1.0, r
        z = mu + u
        value = PARTS[kind](z, mu, s, level, *bounds)[0]
        # the density is between the largest term of y on a grid around its mode, and 50 times that
        y = np.concatenate(
            [np.linspace(-40, 40, 20001), z * np.linspace(0, 1, 20001), [z, *np.nan_to_num(bounds)]]
        )
        y = y[np.abs(y) < 1e300]
        gap = np.abs(z - np.clip(y, *bounds)) / level
        joint = -0.5 * ((y - mu) / s) ** 2 - (gap if kind == "laplace" else 0.5 * gap**2)
        best = joint.max() - math.log(2 * level)
        assert best - 60 - 1e-4 * abs(best) < value < best + 60 + 1e-12 * abs(best)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("bounds", [(-1.0, 2.0), (-INF, INF)], ids=str)
def test_the_exact_answer_is_the_integral(kind, bounds):
    """What the other tests compare with, against quadrature of release and record."""
    with mp.workdps(20):
        for z, mu, s, level in ((0.3, 0.0, 1.0, 0.5), (4.0, -1.0, 2.0, 1.5), (-3.0, 1.0, 0.3, 2.0)):
            low, high = (max(b, -40 * s - 40) if b < 0 else min(b, 40 * s + 40) for b in bounds)
            cuts = sorted({-40.0 * s + mu, 40.0 * s + mu, z, mu, float(low), float(high)})
            cuts = [c for c in cuts if mu - 40 * s <= c <= mu + 40 * s]

            def joint(y, z=z, mu=mu, s=s, level=level):
                return mp.npdf(y, mu, s) * noise(kind, z, min(max(y, bounds[0]), bounds[1]), level)

            fine = [c + (d - c) * j / 20 for c, d in pairwise(cuts) for j in range(20)]
            total = mp.quad(joint, [*fine, cuts[-1]])
            assert float(total) == pytest.approx(
                float(density(kind, *map(mp.mpf, (z, mu, s, level)), *bounds)), rel=1e-10
            )


def test_a_clamp_matters():
    """Without the mass beyond the ends the value would be another one."""
    clamped = laplace_parts(14.0, 9.0, 1.0, 2.0, -10.0, 10.0)[0]
    free = laplace_parts(14.0, 9.0, 1.0, 2.0, -INF, INF)[0]
    assert clamped == pytest.approx(-3.842174, abs=1e-6)
    assert free == pytest.approx(-3.761295, abs=1e-6)


def test_a_tie_of_both_sides():
    """At its centre the density is flat: both sides of the noise count the same."""
    for ratio in RATIOS:
        slopes = laplace_parts(0.0, 0.0, 1.0, ratio, -INF, INF)[1:3]
        assert slopes == pytest.approx((0.0, 0.0), abs=1e-300)
