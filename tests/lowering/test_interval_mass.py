"""Log masses of intervals under noise, to 40 scales and at any width, beside 60 digits; and their slopes."""

import math

import mpmath as mp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_dp.lowering.functions import interval_mass

INF = math.inf
LAWS = ("laplace", "gaussian", "discrete_laplace", "discrete_gaussian")


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(60):
        yield


def exact(law, lower, upper, q, s):
    """Log mass by the tail of the law, on the side where it is small."""
    s, whole = mp.mpf(s), law.startswith("discrete")
    if whole:
        a, b = mp.ceil(lower) - mp.mpf(q), mp.floor(upper) - mp.mpf(q)
    else:
        a, b = (mp.mpf(end) - mp.mpf(q) for end in (lower, upper))
    if b <= 0:
        a, b = -b, -a
    if law == "discrete_gaussian":
        first, last = int(max(a, -45 * s - 5)), int(min(b, max(a, 0) + 45 * s + 5))
        return mp.log(mp.fsum(mp.exp(-(mp.mpf(k) ** 2) / (2 * s * s)) for k in range(first, last + 1)))

    def tail(x):
        if mp.isinf(x):
            return mp.mpf(0 if x > 0 else 1)
        if law == "laplace":
            return mp.exp(-x / s) / 2 if x >= 0 else 1 - mp.exp(x / s) / 2
        if law == "gaussian":
            return mp.erfc(x / s / mp.sqrt(2)) / 2
        ratio = mp.exp(-1 / s)  # P(noise >= x)
        return ratio**x / (1 + ratio) if x > 0 else 1 - ratio ** (1 - x) / (1 + ratio)

    left_out = mp.log1p(mp.exp(-1 / s)) if whole else 0
    return mp.log(tail(a) - tail(b + 1 if whole else b)) + left_out


def intervals(rng, s, whole, n=60):
    """Intervals whose nearest end is up to 40 scales away; each has its mirror image."""
    q = float(rng.integers(-9, 9))
    for _ in range(n):
        middle, half = rng.uniform(-40, 40) * s, s * 10.0 ** rng.uniform(-8, 1.5)
        a, b = middle - half, middle + half
        if whole:
            a, b = np.round(a), np.round(b)
        kind = rng.integers(6)
        a, b = (-INF if kind == 0 else a), (INF if kind == 1 else b)
        yield q, q + a, q + b
        yield q, q - b, q - a


@pytest.mark.parametrize("s", [0.03, 0.7, 5.9, 6.0, 25.0])
@pytest.mark.parametrize("law", LAWS)
def test_digits_at_any_distance_and_width(law, s, rng):
    mass, whole = getattr(interval_mass, law), law.startswith("discrete")
    for q, lower, upper in intervals(rng, s, whole):
        true = exact(law, lower, upper, q, s)
        found = mass(lower, upper, q, s)
        # what the ends lose by being taken from the query, times the slope of the log mass
        slope = 1 + abs(true)
        assert abs(found - true) < 2e-14 * slope, (lower, upper, q)


@pytest.mark.parametrize("law", LAWS)
def test_intervals_without_mass_and_with_all(law):
    mass = getattr(interval_mass, law)
    assert mass(INF, -INF, 0.0, 1.0) == mass(3.0, 2.0, 0.0, 1.0) == -INF
    total = mass(-INF, INF, 4.0, 1.5)
    left_out = {
        "discrete_laplace": mp.log1p(mp.exp(-1 / mp.mpf(1.5))),
        "discrete_gaussian": mp.log(mp.nsum(lambda k: mp.exp(-(k**2) / 4.5), [-mp.inf, mp.inf])),
    }
    assert abs(total - left_out.get(law, 0)) < 1e-14


@pytest.mark.parametrize("law", ["discrete_laplace", "discrete_gaussian"])
def test_whole_numbers_within_any_ends(law):
    mass = getattr(interval_mass, law)
    assert mass(1.2, 3.9, 0.0, 2.0) == mass(2.0, 3.0, 0.0, 2.0)
    assert mass(1.2, 1.9, 0.0, 2.0) == -INF


def test_points_of_continuous_noise_have_their_density():
    assert interval_mass.laplace(3.0, 3.0, 1.0, 2.0) == -1.0 - math.log(4.0)
    expected = -0.5 - math.log(2.0) - 0.5 * math.log(2 * math.pi)
    assert abs(interval_mass.gaussian(3.0, 3.0, 1.0, 2.0) - expected) < 1e-15


@pytest.mark.parametrize("s", [0.4, 1.0, 8.0])
@pytest.mark.parametrize("law", LAWS)
def test_slopes_are_those_of_the_mass(law, s, rng):
    slopes, whole = getattr(interval_mass, f"{law}_slopes"), law.startswith("discrete")
    h = mp.mpf(10) ** -20
    for q, lower, upper in intervals(rng, s / 3, whole, n=12):
        by_query, by_level = slopes(lower, upper, q, s)
        true = (exact(law, lower, upper, q, s + h) - exact(law, lower, upper, q, s - h)) / (2 * h)
        assert abs(by_level - true) < 1e-9 * (1 + abs(true))
        if not whole:
            true = (exact(law, lower, upper, q + h, s) - exact(law, lower, upper, q - h, s)) / (2 * h)
            assert abs(by_query - true) < 1e-9 * (1 + abs(true))


@pytest.mark.parametrize("law", LAWS)
def test_gradients_of_graphs(law):
    q, s = pt.vectors("q", "s")
    lower, upper = np.array([-INF, 2.0, 1.0, -4.0]), np.array([-3.0, INF, 1.0, 4.0])
    total = interval_mass.log_mass(law, lower, upper, q, s)
    f = pytensor.function([q, s], [total, *pytensor.grad(total.sum(), [q, s])])
    at = [np.array([0.0, 1.0, -2.0, 0.0]), np.array([1.0, 0.5, 2.0, 3.0])]
    value, *slopes = f(*at)
    mass, expected = (getattr(interval_mass, name) for name in (law, f"{law}_slopes"))
    rows = list(zip(lower, upper, *at, strict=True))
    assert np.array_equal(value, [mass(*row) for row in rows])
    assert np.array_equal(np.transpose(slopes), [expected(*row) for row in rows])
    with pytest.raises(NotImplementedError, match="no second derivative"):
        pytensor.grad(pytensor.grad(total.sum(), q).sum(), q)
