"""People integrated out of one noisy sum: its density, gradient and draws, against answers of our own."""

import logging
from itertools import pairwise

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from scipy import integrate, signal, special, stats

import pymc_dp as dp
from pymc_dp.lowering.functions import characteristic
from pymc_dp.lowering.functions.characteristic_errors import relative_error
from pymc_dp.marginals.exactness import told_inexact
from pymc_dp.marginals.noisy_sums import nodes_for
from tests.kernels import in_python

NOISES = {
    "laplace": (dp.LaplaceMechanism, "scale", lambda x, b: -abs(x) / b - np.log(2 * b)),
    "gaussian": (dp.GaussianMechanism, "sigma", lambda x, b: stats.norm.logpdf(x, 0, b)),
}
BOTH = pytest.mark.parametrize("noise", NOISES)


def mechanism(name, query, noise, level, z=0.0, **others):
    build, argument, _ = NOISES[noise]
    return build(name, query, **{argument: level}, observed=pm.Data("released", z), **others)


def at_values(model, names, zs, point):
    """Log densities of a release at several values, and the estimates of their errors, in Python."""
    marginal = dp.marginalize(model, names)
    (release,) = marginal.observed_RVs
    (error,) = marginal.deterministics
    graphs = [marginal.logp(release, jacobian=False), *marginal.replace_rvs_by_values([error])]
    inputs = [v for v in marginal.value_vars if v.name in point]
    f = pytensor.function(inputs, graphs, mode="FAST_COMPILE", on_unused_input="ignore")
    found = []
    for z in zs:
        marginal["released"].set_value(np.full(release.type.shape, z))
        found.append(f(*(np.float64(point[v.name]) for v in inputs)))
    return np.array([float(a) for a, _ in found]), np.array([float(b) for _, b in found])


def check(found, error, expected, tolerance, told=1e-5):
    """Compare within the tolerance of the expected value and what the error says, which has to be small."""
    assert np.all(np.abs(np.expm1(found - expected)) < tolerance + error)
    assert np.all(error < told)


def normal_laplace(x, s, b):
    """Reed (2006), eq. (6), in logarithms."""
    halves = [u / b + s * s / (2 * b * b) + stats.norm.logcdf(-u / s - s / b) for u in (x, -x)]
    return np.logaddexp(*halves) - np.log(2 * b)


def normal_plus(noise, x, s, level):
    if noise == "laplace":
        return normal_laplace(x, s, level)
    return stats.norm.logpdf(x, 0, np.hypot(s, level))


@BOTH
@pytest.mark.parametrize("level", [0.3, 40.0, 3e4])
def test_normal_sums(noise, level):
    """A latent number and a measurement of it: the sum is normal, and both laws are known."""
    n = 400
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        m = pm.Normal("m", a, b, shape=n)
        y = pm.Normal("y", m, 0.5, shape=n)
        mechanism("z", 2 * y.sum() - 10.0, noise, level)
    s = 2 * np.sqrt(n * (1.3**2 + 0.25))
    x = np.array([0.0, s, -2.5 * s, 5 * s, 6 * level if noise == "laplace" else -5 * level])
    x = x[np.abs(x) < 6 * s + (20 * level if noise == "laplace" else 6 * level)]
    found, error = at_values(model, ["m", "y"], 2 * n * 0.4 - 10 + x, {"a": 0.4, "b_log__": np.log(1.3)})
    check(found, error, normal_plus(noise, x, s, level), 1e-5)


def noisy(log_density, lo, hi, zs, noise, level):
    """The density of a known law with noise, by quadrature."""
    found = []
    for z in zs:
        points = sorted({lo, hi, *np.clip([z, z - 3 * level, z + 3 * level], lo, hi)})
        value = sum(
            integrate.quad(
                lambda x, z=z: np.exp(log_density(x) + NOISES[noise][2](z - x, level)),
                p,
                q,
                epsabs=0,
                limit=400,
            )[0]
            for p, q in pairwise(points)
        )
        found.append(np.log(value))
    return np.array(found)


@BOTH
@pytest.mark.parametrize("n", [4, 60])
def test_gamma_sums(noise, n):
    """Exponential numbers: their sum has a gamma law, which is far from normal for few."""
    if noise == "laplace" and n < 20:
        pytest.skip("it is refused")
    with pm.Model() as model:
        a = pm.HalfNormal("a")
        y = pm.Exponential("y", a, shape=n)
        mechanism("z", y.sum(), noise, 2.0)
    zs = n / 0.7 + np.array([-1.5, 0.0, 2.0, 4.0]) * np.sqrt(n) / 0.7
    found, error = at_values(model, "y", zs, {"a_log__": np.log(0.7)})
    law = stats.gamma(n, scale=1 / 0.7)
    check(found, error, noisy(law.logpdf, 0.0, law.ppf(1 - 1e-15) + 40, zs, noise, 2.0), 1e-7, 2e-3)
    assert np.all(error[:2] < 1e-8)  # records far out count in the upper tail alone


def clamped(n, noise, level, **others):
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        y = pm.Normal("y", a, b, shape=n)
        mechanism("z", dp.clamp(y, -1, 2).sum(), noise, level, **others)
    return model


POINT = {"a": 0.4, "b_log__": np.log(1.3)}


def on_lattice(mu, s, lo, hi, step):
    """A clamped normal law on a lattice: cells keep their mass and their mean."""
    cells = round((hi - lo) / step)
    edges = (np.linspace(lo, hi, cells + 1) - mu) / s
    mass = np.diff(stats.norm.cdf(edges))
    mean = mu * mass - s * np.diff(stats.norm.pdf(edges))
    share = (mean - np.linspace(lo, hi, cells + 1)[:-1] * mass) / step
    found = np.zeros(cells + 1)
    found[:-1] += mass - share
    found[1:] += share
    found[0] += stats.norm.cdf(edges[0])
    found[-1] += stats.norm.sf(edges[-1])
    return found


def tilted_power(law, lo, step, n, s):
    """The law of a sum of n, tilted by s, and its cumulant generating function: no digits lost in a tail."""
    x = lo + step * np.arange(len(law))
    cumulant = special.logsumexp(s * x, b=law)
    power, total, left = law * np.exp(s * x - cumulant), np.ones(1), n
    while left:  # by squaring: one by one, the sums of many took most of the time of these tests
        if left % 2:
            total = np.maximum(signal.fftconvolve(total, power), 0.0)
        left //= 2
        if left:
            power = np.maximum(signal.fftconvolve(power, power), 0.0)
    return total, n * cumulant


def convolved(parts, zs, noise, level, tilts, step=1 / 2048):
    """Log densities of sums over some groups (law, lo, n) on a lattice, with noise."""
    found = []
    for z, s in zip(zs, tilts, strict=True):
        total, cumulant, start = np.ones(1), 0.0, 0.0
        for law, lo, n in parts:
            own, k = tilted_power(law, lo, step, n, s)
            total, cumulant, start = (
                np.maximum(signal.fftconvolve(total, own), 0),
                cumulant + k,
                start + n * lo,
            )
        x = start + step * np.arange(len(total))
        terms = -s * x + NOISES[noise][2](z - x, level)
        found.append(cumulant + special.logsumexp(terms, b=total))
    return np.array(found)


@BOTH
@pytest.mark.parametrize(("n", "level"), [(3, 0.4), (30, 0.3), (30, 8.0)])
def test_clamped_sums(noise, n, level):
    """In the bulk, in the tails, and far beyond what the sum can be."""
    if noise == "laplace" and n < 20:
        pytest.skip("it is refused")
    law = on_lattice(0.4, 1.3, -1, 2, 1 / 2048)
    x = np.linspace(-1, 2, len(law))
    mean, s = n * (law @ x), np.sqrt(n * (law @ x**2 - (law @ x) ** 2))
    zs = np.array(
        [mean, mean + s, mean - 2.5 * s, mean + 6 * s, mean - 6 * s, 2 * n + level, 2 * n + 1000 * level]
    )
    tilts = np.clip([0, 1 / s, -2.5 / s, 6 / s, -6 / s, 20 / s, 20 / s], -1 / level, 1 / level)
    if noise == "gaussian":  # a far tail of that is more than its lattice tells
        zs, tilts = zs[:6], np.array([0, 1 / s, -2.5 / s, 6 / s, -6 / s, 6 / s])
    found, error = at_values(clamped(n, noise, level), "y", zs, POINT)
    # a lattice adds step**2 / 6 of variance for each cell, and less for what is at an end
    check(found, error, convolved([(law, -1, n)], zs, noise, level, tilts), 2e-5)


def test_few_people_with_laplace_noise_are_refused():
    with pytest.raises(ValueError, match="fewer than 20 people"):
        dp.marginalize(clamped(3, "laplace", 0.4), "y")


@BOTH
def test_groups(noise):
    """A public covariate, and weights of what is added."""
    x = np.repeat([-1.0, 1.0], [25, 40])
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        y = pm.Normal("y", a + 0.5 * x, b, shape=65)
        mechanism("z", dp.record_sum(dp.clamp(y, -1, 2)[:, None]), noise, 1.5, z=[0.0])
    parts = [(on_lattice(0.4 + 0.5 * v, 1.3, -1, 2, 1 / 2048), -1, k) for v, k in ((-1.0, 25), (1.0, 40))]
    grid = np.linspace(-1, 2, len(parts[0][0]))
    mean = sum(k * (law @ grid) for law, _, k in parts)
    zs = mean + np.array([0.0, 5.0, -12.0])
    found, error = at_values(model, "y", zs, POINT)
    check(found, error, convolved(parts, zs, noise, 1.5, [0, 0.1, -0.2]), 1e-5)


@BOTH
def test_many_people(noise):
    """The normal law is off by 1 / sqrt(n), with Edgeworth's first term by 1 / n."""
    left = {}
    for n in (10_000, 1_000_000):
        with pm.Model() as model:
            a = pm.HalfNormal("a")
            y = pm.Exponential("y", a, shape=n)
            mechanism("z", y.sum(), noise, 1e-2)
        x = 1.5
        (found,), (error,) = at_values(model, "y", [n + x * np.sqrt(n)], {"a_log__": 0.0})
        assert error < 3e-5
        check(found, error, stats.gamma.logpdf(n + x * np.sqrt(n), n), 2e-8 if n > 1e5 else 1e-6, 3e-5)
        off = np.exp(found - stats.norm.logpdf(x) + 0.5 * np.log(n)) - 1
        left[n] = off, off - 2 / 6 / np.sqrt(n) * (x**3 - 3 * x)
    (first, second), (less, least) = left.values()
    assert first / less == pytest.approx(10, rel=0.1)
    assert abs(least) < abs(second) / 50 + error and abs(second) < 1e-3


@pytest.mark.parametrize("law", ["gamma", "beta"])
@BOTH
def test_gradients(noise, law):
    with pm.Model() as model:
        a, b, level = pm.HalfNormal("a"), pm.HalfNormal("b"), pm.HalfNormal("level")
        y = (pm.Gamma if law == "gamma" else pm.Beta)("y", 1 + a, b, shape=100)
        mechanism("z", dp.clamp(y, 0.1, 0.8).sum(), noise, 3 * level, z=45.0)
    marginal = dp.marginalize(model, "y")
    f = pytensor.function(marginal.value_vars, [marginal.logp(), marginal.dlogp()], mode="FAST_COMPILE")
    for at in (np.array([0.3, -0.2, 0.1]), np.array([0.3, -0.2, -1.5]), np.array([2.5, -1.0, -2.0])):
        found = f(*at)[1]
        expected = [(f(*(at + h))[0] - f(*(at - h))[0]) / 2e-5 for h in 1e-5 * np.eye(3)]
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def closed_form_errors(module):
    """How far a module's densities of normal sums are off, over tilts on all sides of the poles."""
    node, weight = np.polynomial.legendre.leggauss(48)
    x = 6.5 * node[None]
    chances = weight * stats.norm.pdf(x)
    chances /= chances.sum()
    n, off = 50, []
    for noise in NOISES:
        for level in (0.5, 3.0, 7.0, 30.0):
            for z in (0.0, 9.0, 49.9 / level, -25.0, 200.0):
                if noise == "gaussian" and abs(z) > 6 * np.hypot(level, np.sqrt(n)):
                    continue
                if z > 40 + 8 * level:
                    continue
                by, cost = np.empty(x.shape), np.empty(x.shape)
                found = module.log_density(
                    z, x, chances, np.array([float(n)]), 0.0, level, np.zeros(x.size, int),
                    noise == "laplace", 60, 16.0, by, cost,
                )  # fmt: skip
                off.append(found[0] - normal_plus(noise, z, np.sqrt(n), level))
    return np.array(off)


def test_all_sides_of_the_poles():
    assert np.abs(closed_form_errors(characteristic)).max() < 1e-5


PLANTED = {
    "a residue's weight": ("math.log(2.0 * noise)", "math.log(noise)"),
    "no half step": ("t = (k + 0.5) * step", "t = (k + 1e-9) * step"),
    "the tilt left in": ("start = cumulant - s * z", "start = cumulant"),
    "noise without the tilt": ("0.5 * (noise * s) ** 2", "0.0"),
    "residues of poles that were passed only": (
        "width * sd * (1.0 / noise - sign * s) < _FOLDED", "s * sign > 1 / noise"
    ),
    "folding of the wrong width": ("exponent = widths *", "exponent = 0.8 * widths *"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_are_seen(name):
    with np.errstate(all="ignore"):
        try:
            off = closed_form_errors(in_python(characteristic, PLANTED[name]))
        except (ValueError, OverflowError, ZeroDivisionError):  # of a logarithm of a negative number
            return
    assert not np.abs(off).max() < 1e-5


def test_python_is_what_machine_code_is():
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            closed_form_errors(in_python(characteristic)), closed_form_errors(characteristic), atol=1e-9
        )


def test_lattice_like_laws_are_told():
    """People who have one of two values nearly always: the error says that the integral does not end."""
    with pm.Model() as model:
        a = pm.HalfNormal("a")
        y = pm.Normal("y", 0.5, a, shape=2000)
        mechanism("z", dp.clamp(y, 0, 1).sum(), "laplace", 0.2)
    _, steep = at_values(model, "y", [1000.3], {"a_log__": np.log(1e4)})
    _, gentle = at_values(model, "y", [1000.3], {"a_log__": np.log(0.5)})
    assert steep > 0.1 and gentle < 1e-6


def points_of_clamped(mu, s, lo, hi, nodes):
    """Gauss-Legendre points between the ends, which have probabilities of their own."""
    a, b = np.clip((np.array([lo, hi]) - mu) / s, -6.5, 6.5)
    node, weight = np.polynomial.legendre.leggauss(nodes)
    w = 0.5 * (a + b) + 0.5 * (b - a) * node
    inside = weight * np.exp(0.5 * (np.clip(0, a, b) ** 2 - w * w))
    inside *= (stats.norm.cdf(b) - stats.norm.cdf(a)) / inside.sum()
    return np.array([[lo, *(mu + s * w), hi]]), np.array([[stats.norm.cdf(a), *inside, stats.norm.cdf(-b)]])


def test_the_error_covers_what_is_off(rng, full):
    """Random laws, some with nearly everybody at an end, and random noise."""
    told = []
    for _ in range(60 if full else 12):
        n, noise = int(rng.integers(20, 120)), str(rng.choice(list(NOISES)))
        mu, s, laplace = rng.normal(0.5, 1.5), np.exp(rng.normal(0, 0.8)), noise == "laplace"
        law = on_lattice(mu, s, -1, 2, 1 / 2048)
        x = np.linspace(-1, 2, len(law))
        sd = np.sqrt(n * (law @ x**2 - (law @ x) ** 2))
        level = sd * np.exp(rng.uniform(np.log(0.1), np.log(8)))
        z = n * (law @ x) + rng.uniform(-4, 4) * np.hypot(sd, level)
        fine, coarse = (
            convolved([(on_lattice(mu, s, -1, 2, h), -1, n)], [z], noise, level, [0.0], h)[0]
            for h in (1 / 2048, 1 / 1024)
        )
        expected = fine + (fine - coarse) / 3  # a lattice is off by the square of its step
        law, finer = (points_of_clamped(mu, s, -1, 2, k) for k in (64, 96))
        pieces, more = (np.repeat([0, 1, 2], [1, k, 1]) for k in (64, 96))
        args = (z, *law, np.array([float(n)]), 0.0, level, pieces)
        count = np.repeat([1, 64, 1], [1, 64, 1])
        place = np.concatenate([[0], np.polynomial.legendre.leggauss(64)[0], [0]])
        found = characteristic.density_and_slopes(*args, laplace, nodes_for(n), characteristic.WIDTH)[0]
        rules = np.stack([pieces, place, count])[None].astype(float)
        error = relative_error(*args, *finer, more, rules, laplace, nodes_for(n), characteristic.WIDTH)
        assert abs(np.expm1(found - expected)) < error + 1e-6 + abs(fine - coarse) / 10
        told.append(error)
    assert np.median(told) < 1e-6


def test_prior_predictive_draws():
    """Counts of people at points, with noise, against the density and against people drawn one by one."""
    with pm.Model() as model:
        a = pm.HalfNormal("a", 1)
        y = pm.Exponential("y", 1.0 + 1e-9 * a, shape=30)
        z = mechanism("z", dp.clamp(y, 0, 3).sum(), "laplace", 2.0)
    marginal = dp.marginalize(model, "y")
    draws = pm.draw(marginal["z"], 4000, random_seed=1)
    grid = np.linspace(-5, 70, 1501)
    density, _ = at_values(model, "y", grid, {"a_log__": 0.0})
    below = integrate.cumulative_trapezoid(np.exp(density), grid, initial=0)
    assert below[-1] == pytest.approx(1, abs=1e-5)
    assert stats.kstest(draws, lambda v: np.interp(v, grid, below)).pvalue > 1e-3
    assert stats.ks_2samp(draws, pm.draw(z, 4000, random_seed=2)).pvalue > 1e-3


def test_what_stays(caplog):
    with pm.Model(coords={"one": ["total"]}) as model:
        a = pm.HalfNormal("a")
        y = pm.Exponential("y", a, shape=500)
        dp.LaplaceMechanism(
            "z", dp.record_sum(y[:, None]), epsilon=1, bounds=(0, 3), observed=[400.0], dims="one"
        )
    with caplog.at_level(logging.INFO, logger="pymc"):
        marginal = dp.marginalize(model, "y")
    assert "500 people (y) are integrated out" in caplog.text and "z_error" in caplog.text
    assert [v.name for v in marginal.free_RVs] == ["a"]
    assert [v.name for v in marginal.deterministics] == ["z_error"]
    assert marginal.named_vars_to_dims["z"] == ("one",)
    assert str(dp.guarantee(marginal)) == str(dp.guarantee(model))
    with marginal:
        prior = pm.sample_prior_predictive(20, random_seed=1)
    assert prior.prior_predictive["z"].shape == (1, 20, 1)
    with pytest.raises(ValueError, match=r"by the characteristic function of their sum.*RecordImputation"):
        dp.recover_records(
            xr.DataTree.from_dict({"posterior": xr.Dataset({"a": (("chain", "draw"), [[1.0]])})}), model
        )
    with model:
        pm.Deterministic("z_error", 2 * a)
    with pytest.raises(ValueError, match="z_error, a name that is needed"):
        dp.marginalize(model, "y")


def test_different_people_at_once():
    """Of some the sum, of others each record."""
    with pm.Model() as model:
        a = pm.HalfNormal("a")
        y = pm.Gamma("y", 2, a, shape=100)
        dp.LaplaceMechanism("z", y.sum(), epsilon=1, bounds=(0, 3), observed=160.0)
        w = pm.Normal("w", a, 1, shape=5)
        dp.LaplaceMechanism("v", w, epsilon=2, bounds=(-1, 1), observed=np.ones(5))
    marginal = dp.marginalize(model, ["w", "y"])
    assert [v.name for v in marginal.free_RVs] == ["a"]
    for disjoint in (False, True):
        assert str(dp.guarantee(marginal, disjoint=disjoint)) == str(dp.guarantee(model, disjoint=disjoint))
    apart = dp.marginalize(dp.marginalize(model, "y"), "w")
    point = {"a_log__": 0.2}
    f, g = (m.compile_logp(mode="FAST_COMPILE") for m in (marginal, apart))
    assert f(point) == g(point)


def test_outside_of_their_domain_parameters_have_no_density():
    with pm.Model() as model:
        b = pm.Normal("b")
        y = pm.Normal("y", 0, b, shape=100)
        mechanism("z", dp.clamp(y, -1, 2).sum(), "laplace", 1.0)
    marginal = dp.marginalize(model, "y")
    f = pytensor.function(marginal.value_vars, marginal.logp(), mode="FAST_COMPILE")
    assert np.isnan(f(-1.0)) and np.isfinite(f(1.0))


def test_posterior():
    """NUTS on the marginal model against a grid, whose likelihood is a convolution of laws on a lattice."""
    n, z = 40, 9.0
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        y = pm.Normal("y", a, 1.3, shape=n)
        dp.LaplaceMechanism("z", dp.clamp(y, -1, 2).sum(), scale=6.0, observed=z)
    with dp.marginalize(model, "y"):
        idata = pm.sample(1500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    grid = np.linspace(-2.5, 3, 111)
    likelihood = [
        convolved([(on_lattice(m, 1.3, -1, 2, 1 / 256), -1, n)], [z], "laplace", 6.0, [0], 1 / 256)[0]
        for m in grid
    ]
    weights = special.softmax(np.array(likelihood) + stats.norm.logpdf(grid))
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    draws = idata.posterior["a"]
    assert abs(float(draws.mean()) - mean) < 4 * sd / np.sqrt(500)
    assert float(draws.std()) == pytest.approx(sd, rel=0.15)
    assert float(idata.posterior["z_error"].max()) < 1e-5


def laplace_sum(n=30):
    with pm.Model() as model:
        a = pm.Normal("a")
        y = pm.Normal("y", a, np.linspace(0.5, 2, n), shape=n)
        dp.LaplaceMechanism("z", 0.5 * y.sum() + 1.0, scale=3.0, observed=20.0)
    return model, 0.5 * np.sqrt((np.linspace(0.5, 2, n) ** 2).sum())


def test_normal_sums_with_laplace_noise_are_closed():
    model, s = laplace_sum()
    marginal = dp.marginalize(model, "y")
    assert not marginal.deterministics
    f = pytensor.function(marginal.value_vars, marginal.logp(), mode="FAST_COMPILE")
    for a in (0.2, 1.3, -4.0):
        expected = normal_laplace(20 - 15 * a - 1, s, 3.0) + stats.norm.logpdf(a)
        assert f(a) == pytest.approx(expected, rel=1e-9)


def test_records_of_such_sums_are_drawn_back():
    model, s = laplace_sum()
    posterior = xr.Dataset({"a": (("chain", "draw"), np.full((1, 4000), 0.7))})
    records = dp.recover_records(
        xr.DataTree.from_dict({"posterior": posterior}), model, random_seed=1
    ).y.values[0]
    x = np.linspace(-8, 40, 4001)
    weights = special.softmax(stats.norm.logpdf(x, 15 * 0.7 + 1, s) - abs(20 - x) / 3.0)
    total = 0.5 * records.sum(axis=1) + 1
    assert stats.kstest(total, lambda v: np.interp(v, x, np.cumsum(weights))).pvalue > 1e-3
    # what the sum does not tell follows the prior: the difference of two people, scaled to be free of it
    spread = np.linspace(0.5, 2, 30) ** 2
    free = records[:, 3] / spread[3] - records[:, 20] / spread[20]
    sd = np.sqrt(1 / spread[3] + 1 / spread[20])
    assert stats.kstest((free - 0.7 * (1 / spread[3] - 1 / spread[20])) / sd, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(free, total)[0, 1]) < 4 / np.sqrt(4000)


def test_nodes_follow_the_number_of_people():
    assert [nodes_for(n) for n in (5, 50, 500, 5000, 10**9)] == [600, 240, 120, 80, 80]


def told(model, **deterministics):
    """What is warned of draws with these values."""
    posterior = {name: (("chain", "draw"), np.asarray(v)) for name, v in deterministics.items()}
    return [
        w.message for w in told_inexact(xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)}), model)
    ]


def test_inexact_densities_are_told_after_sampling():
    with pm.Model() as model:
        y = pm.Gamma("y", 2, pm.HalfNormal("b"), shape=30)
        dp.LaplaceMechanism("z", y.sum(), epsilon=1, bounds=(0, 4), observed=20.0)
    exact, normal = dp.marginalize(model, "y"), dp.approximate_sums(model, "y")
    good = np.full((2, 50), 1e-5)
    far = np.where(np.arange(100).reshape(2, 50) == 7, 0.3, good)
    assert not told(exact, z_error=good) and not told(exact) and not told(model, z_error=far)
    (message,) = told(exact, z_error=far)
    assert "up to 0.3 in these draws (z_error)" in message and "RecordImputation" in message
    assert not told(normal, z_edgeworth=0.05 * np.sign(far - 0.1), z_quadrature=good)
    first, second = told(normal, z_edgeworth=np.tile([0.3, -0.3], (2, 25)), z_quadrature=far)
    assert "off by up to 0.3 standard deviations" in first and "nodes=" in first
    assert "off by up to 0.3 of their standard deviations" in second


def test_a_sampled_sum_that_is_inexact_is_told(caplog):
    """Nearly everybody is far beyond the ends of the clamp: the function of the few others does not end."""
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("mu", 0, 0.1), 40.0, shape=20)
        dp.LaplaceMechanism("z", y.sum(), scale=0.02, bounds=(-1, 1), observed=2.3)
    with dp.marginalize(model, "y"):
        idata = pm.sample(50, tune=50, chains=1, cores=1, random_seed=1, progressbar=False)
    assert (float(idata.posterior["z_error"].max()) > 1e-3) == ("(z_error)" in caplog.text)
    assert "(z_error)" in caplog.text


def test_functions_that_come_back_are_not_cut_off():
    """Sums that are near whole numbers: one person's function is small, and large again at 2 pi."""
    n, zs = 40, [16.0, 16.5, 30.2]
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.4, shape=n)
        dp.LaplaceMechanism(
            "z", pm.Normal("y", k * 1.0, 0.02, shape=n).sum(), scale=0.1, observed=pm.Data("released", 0.0)
        )
    found, error = at_values(model, ["k", "y"], zs, {})
    chances = stats.binom.logpmf(np.arange(n + 1), n, 0.4)
    s = 0.02 * np.sqrt(n)
    exact = [special.logsumexp(chances + normal_laplace(z - np.arange(n + 1), s, 0.1)) for z in zs]
    check(found, error, np.array(exact), 1e-3, told=1.0)


def test_functions_that_come_back_beyond_the_last_node_are_told():
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("mu"), 1.0, shape=500)
        query = pm.math.sigmoid(1000 * y).sum()
        dp.LaplaceMechanism("z", query, scale=0.1, observed=pm.Data("released", 0.0))
    found, error = at_values(model, "y", [250.0], {"mu": 0.0})
    # 256 points and 120 frequencies are off by .8 per cent here, which could as well be ten
    assert abs(np.expm1(found[0] + 2.5955)) < 0.02 and error[0] > 0.1


@pytest.mark.parametrize(
    ("law", "first"), [(pm.LogNormal, pm.Normal), (pm.Weibull, pm.HalfNormal)], ids=["LogNormal", "Weibull"]
)
def test_laws_whose_exponentials_may_have_no_mean_are_refused(law, first):
    with pm.Model() as model:
        y = law("y", first("a"), 1.0, shape=50)
        dp.LaplaceMechanism("z", y.sum(), scale=2.0, observed=60.0)
    with pytest.raises(ValueError, match=rf"y \({law.__name__}\) may have tails too heavy.*clamp it"):
        dp.marginalize(model, "y")


def test_parameters_may_be_constants():
    with pm.Model() as model:
        y = pm.Gamma("y", 2, 1, shape=40)
        dp.LaplaceMechanism("z", y.sum(), scale=2.0, observed=pm.Data("released", 0.0))
    found, error = at_values(model, "y", [70.0, 85.0], {})
    x = np.linspace(20, 170, 60_001)
    law = stats.gamma.pdf(x, 80)
    exact = [np.log(np.trapezoid(law * np.exp(-abs(x - z) / 2) / 4, x)) for z in (70.0, 85.0)]
    check(found, error, np.array(exact), 1e-5)


def test_quotients_of_records_are_refused():
    with pm.Model() as model:
        x, y = (pm.Normal(name, pm.Normal(f"mu_{name}"), 1.0, shape=40) for name in "xy")
        dp.LaplaceMechanism("z", (x / y).sum(), scale=2.0, observed=3.0)
    with pytest.raises(ValueError, match="divided by their records"):
        dp.marginalize(model, ["x", "y"])


@pytest.mark.parametrize(("steepness", "function"), [(20.0, pm.math.sigmoid), (1000.0, pm.math.tanh)])
def test_steep_functions_have_points_where_they_are_steep(steepness, function):
    """A sigmoid is nearly a count; the law of one person is known, and is put on a lattice."""
    n, scale, z = 30, 2.0, 19.3
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("a"), pm.HalfNormal("b"), shape=n)
        query = function(steepness * y)
        query = query if function is pm.math.sigmoid else 0.5 + 0.5 * query
        dp.LaplaceMechanism("z", query.sum(), scale=scale, observed=pm.Data("released", 0.0))
    k = steepness if function is pm.math.sigmoid else 2 * steepness

    def law(mu, step):
        edges = np.linspace(0, 1, round(1 / step) + 1)
        x = 0.5 * (edges[1:] + edges[:-1])
        mass = np.diff(stats.norm.cdf((special.logit(edges) / k - mu) / 1.3))
        found = np.zeros(len(edges))
        found[:-1] += mass * (edges[1:] - x) / step
        found[1:] += mass * (x - edges[:-1]) / step
        return found

    def exact(mu):
        fine, coarse = (
            convolved([(law(mu, h), 0, n)], [z], "laplace", scale, [0.0], h)[0] for h in (1 / 4096, 1 / 2048)
        )
        return fine + (fine - coarse) / 3

    point = {"a": 0.4, "b_log__": np.log(1.3)}
    found, error = at_values(model, "y", [z], point)
    check(found, error, np.array([exact(0.4)]), 2e-5, told=1e-2)
    h = 1e-3
    slope = (exact(0.4 + h) - exact(0.4 - h)) / (2 * h)
    moved = [at_values(model, "y", [z], point | {"a": 0.4 + d})[0][0] for d in (-h, h)]
    assert (moved[1] - moved[0]) / (2 * h) == pytest.approx(slope, abs=2e-3)


def test_steep_places_that_points_do_not_see_are_told():
    """Two sets of points that are symmetric agree on a jump in the middle, and both are off."""
    n, rule = np.array([30.0]), np.polynomial.legendre.leggauss
    sets = []
    for count in (64, 96):
        node, weight = rule(count)
        chances = weight * stats.norm.pdf(6.5 * node)
        sets.append((special.expit(1300 * node)[None], (chances / chances.sum())[None]))
    pieces, more = np.zeros(64, int), np.zeros(96, int)
    rules = np.stack([pieces, rule(64)[0], np.full(64, 64)])[None].astype(float)
    error = relative_error(
        31.0, *sets[0], n, 0.0, 1.0, pieces, *sets[1], more, rules, True, 240, characteristic.WIDTH
    )
    assert error > 0.01


def test_sums_on_a_lattice_have_as_many_frequencies_as_they_need():
    n, s, scale, zs = 30, 0.004, 0.3, [12.0, 12.5, 17.2]
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.4, shape=n)
        dp.LaplaceMechanism(
            "z", pm.Normal("y", k * 1.0, s, shape=n).sum(), scale=scale, observed=pm.Data("released", 0.0)
        )
    found, error = at_values(model, ["k", "y"], zs, {})
    chances = stats.binom.logpmf(np.arange(n + 1), n, 0.4)
    law = [special.logsumexp(chances + normal_laplace(z - np.arange(n + 1), s * n**0.5, scale)) for z in zs]
    check(found, error, np.array(law), 1e-4, told=0.1)


def test_masks_over_people_are_refused():
    with pm.Model() as model:
        y = pm.Gamma("y", 2, pm.HalfNormal("b"), shape=40)
        dp.LaplaceMechanism("z", dp.clamp(y[np.arange(40) % 3 == 0], 0, 3).sum(), scale=1.0, observed=9.0)
    with pytest.raises(ValueError, match=r"taken out of the others: multiply by an array of 0 and 1"):
        dp.marginalize(model, "y")


def kumaraswamy(a, b):
    """Return the distribution function."""
    return lambda x: 1 - (1 - np.clip(x, 0, 1) ** a) ** b


AS_GRAPHS = {
    "weibull": (lambda n: pm.Weibull("y", 1.3, 1.1, shape=n), stats.weibull_min(1.3, scale=1.1).cdf, 2.0),
    "half-cauchy": (lambda n: pm.HalfCauchy("y", 0.8, shape=n), stats.halfcauchy(scale=0.8).cdf, 3.0),
    "kumaraswamy": (lambda n: pm.Kumaraswamy("y", 1.4, 2.1, shape=n), kumaraswamy(1.4, 2.1), 0.6),
}


@pytest.mark.parametrize("name", AS_GRAPHS)
def test_laws_whose_draws_are_graphs(name):
    """Against the law of the sum on a fine lattice, by Fourier transforms of one person's."""
    build, cdf, most = AS_GRAPHS[name]
    n, cells, scale = 40, 2**13, 2.0
    with pm.Model() as model:
        y = build(n)
        dp.LaplaceMechanism("z", dp.clamp(y, 0, most).sum(), scale=scale, observed=pm.Data("released", 0.0))
    step = most / cells
    edges = np.concatenate([[-np.inf], step * (np.arange(cells) + 0.5), [np.inf]])
    one = np.diff(np.where(edges > 0, cdf(np.clip(edges, 0, most)), 0.0))
    one[-1] += 1 - one.sum()
    size = n * cells + 1
    total = np.fft.irfft(np.fft.rfft(one, 2 * size) ** n, 2 * size)[:size]
    x = step * np.arange(size)
    middle, sd = total @ x, np.sqrt(total @ x**2 - (total @ x) ** 2)
    zs = middle + sd * np.array([-3.0, 0.2, 4.0])
    exact = [np.log(total @ np.exp(-abs(x - z) / scale) / (2 * scale)) for z in zs]
    found, error = at_values(model, "y", zs, {})
    check(found, error, np.array(exact), 1e-5)
