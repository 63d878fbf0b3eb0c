"""People integrated out of two noisy sums: density, gradient and draws, against answers of our own."""

from itertools import pairwise

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import integrate, special, stats

import pymc_dp as dp
from pymc_dp.lowering.functions import characteristic_pairs
from tests.kernels import in_python
from tests.marginals.test_noisy_sums import BOTH, NOISES, at_values, check, normal_laplace

POINT = {"a": 0.4, "b_log__": np.log(1.3)}


def mechanism(name, query, noise, level, z=(0.0, 0.0)):
    build, argument, _ = NOISES[noise]
    return build(name, query, **{argument: level}, observed=pm.Data("released", np.array(z)))


def log_noise(noise, off, level):
    return NOISES[noise][2](off, level)


def mean_noise(noise, off, level, step):
    """The density of noise, or its mean over cells of a lattice where it has a kink."""
    if noise == "gaussian":
        return stats.norm.pdf(off, scale=level)
    far = -np.abs(off)  # from the smaller tail
    ends = [stats.laplace.cdf((far + side * step) / level) for side in (0.5, -0.5)]
    return (ends[0] - ends[1]) / step


def normal_pair(z, mean, cov, level, noise):
    """Log density of two normal sums with noise: given one, the other has a closed law."""
    if noise == "gaussian":
        return stats.multivariate_normal(mean, cov + np.diag(level**2)).logpdf(z)
    s, slope = np.sqrt(cov[0, 0]), cov[0, 1] / cov[0, 0]
    left = np.sqrt(cov[1, 1] - slope * cov[0, 1])

    def of_first(t):
        second = normal_laplace(z[1] - mean[1] - slope * (t - mean[0]), left, level[1])
        return stats.norm.logpdf(t, mean[0], s) + log_noise(noise, z[0] - t, level[0]) + second

    # the integrand is log-concave, with a kink where the first sum is what was released
    grid = mean[0] + s * np.linspace(-25, 25, 4001)
    peak = of_first(grid).max()
    inside = grid[of_first(grid) > peak - 60]
    ends = [inside[0] - s / 50, *(v for v in (z[0],) if inside[0] < v < inside[-1]), inside[-1] + s / 50]
    pieces = [
        integrate.quad(lambda t: np.exp(of_first(t) - peak), lo, hi, epsabs=0, epsrel=1e-11, limit=400)[0]
        for lo, hi in pairwise(ends)
    ]
    return peak + np.log(sum(pieces))


def two_numbers(n, noise, level):
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        y = pm.Normal("y", a, b, shape=n)
        v = pm.Normal("v", 1 - 0.8 * y, 0.6, shape=n)
        mechanism("z", pt.stack([y.sum() - 3.0, 2 * v.sum()]), noise, level)
    of_one = np.array([[1, -1.6], [-1.6, 2.56]]) * 1.3**2 + np.diag([0, 4 * 0.36])
    return model, n * np.array([0.4, 2 * (1 - 0.32)]) - [3.0, 0.0], n * of_one


@BOTH
@pytest.mark.parametrize("level", [(0.4, 0.7), (40.0, 15.0), (3e3, 1.0)])
def test_normal_sums(noise, level):
    level = np.array(level)
    model, mean, cov = two_numbers(400, noise, level)
    s = np.sqrt(np.diag(cov))
    far = 6 * level if noise == "laplace" else -4 * np.hypot(s, level)
    zs = mean + np.array([[0, 0], [1, 1], [-2.5, 0.5], [0.2, 4]]) * s
    zs = [*zs, mean + far, mean + far * [1, 0]]
    found, error = at_values(model, ["y", "v"], zs, POINT)
    check(found, error, np.array([normal_pair(z, mean, cov, level, noise) for z in zs]), 1e-6, 1e-4)


def on_grid(numbers, chances, n, zs, level, noise):
    """Log densities by a Fourier transform on a lattice: numbers (points, 2) of one person, with chances."""
    mean = chances @ numbers
    apart = numbers - mean
    sd = np.sqrt(n * (chances @ apart**2))
    alone = 1 - (chances @ apart.prod(axis=1) * n / sd.prod()) ** 2
    k = np.arange(-int(40 / alone**0.5), int(40 / alone**0.5) + 1)
    t = [2 * np.pi / (22 * s) * k for s in sd]
    turns = [np.exp(1j * np.outer(w, apart[:, d])) for d, w in enumerate(t)]
    one = (turns[0] * chances) @ turns[1].T
    fine = np.linspace(-11, 11, 2049)[:-1]
    back = [np.exp(-1j * np.outer(fine * s, w)) for s, w in zip(sd, t, strict=True)]
    density = (back[0] @ one**n @ back[1].T).real / (22 * sd[0] * 22 * sd[1])
    step = 22 / 2048 * sd
    found = []
    for z in zs:
        of_noise = [mean_noise(noise, z[d] - n * mean[d] - fine * sd[d], level[d], step[d]) for d in range(2)]
        found.append(np.log(of_noise[0] @ density @ of_noise[1] * step[0] * step[1]))
    return np.array(found)


def clamped_normal(mu, s, lo, hi, function):
    """Points of what one person adds: a clamped number, and a function of it."""
    node, weight = np.polynomial.legendre.leggauss(400)
    a, b = np.clip((np.array([lo, hi]) - mu) / s, -9, 9)
    w = 0.5 * (a + b) + 0.5 * (b - a) * node
    chances = [stats.norm.cdf(a), *(0.5 * (b - a) * weight * stats.norm.pdf(w)), stats.norm.sf(b)]
    y = np.array([lo, *(mu + s * w), hi])
    return np.stack([y, function(y)], axis=1), np.array(chances) / np.sum(chances)


def clamped(n, noise, level, lo=-1, hi=2, function=pt.sqr, z=(0.0, 0.0)):
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        y = pm.Normal("y", a, b, shape=n)
        c = dp.clamp(y, lo, hi)
        mechanism("z", pt.stack([c.sum(), function(c).sum()]), noise, np.array(level), z)
    return model


@BOTH
@pytest.mark.parametrize(
    ("n", "ends", "level"),
    [(150, (-1, 2), (8.0, 6.0)), (2000, (-1, 2), (100.0, 9.0)), (400, (0, 1), (4.0, 4.0))],
)
def test_clamped_sums_and_squares(noise, n, ends, level):
    """With a correlation of .7, and of .97 between 0 and 1."""
    law = clamped_normal(0.4, 1.3, *ends, np.square)
    mean, s = n * (law[1] @ law[0]), np.sqrt(n * (law[1] @ (law[0] - law[1] @ law[0]) ** 2))
    zs = mean + np.array([[0, 0], [1, 0.5], [-2, -2.5], [1, -1]]) * np.hypot(s, level)
    found, error = at_values(clamped(n, noise, level, *ends), "y", zs, POINT)
    # the lattice is off by the square of its step
    check(found, error, on_grid(*law, n, zs, level, noise), 5e-5)


@BOTH
def test_groups(noise):
    """Two public groups, one of which is counted in one of the sums only."""
    n = (120, 180)
    group = np.repeat([0.0, 1.0], n)
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        y = pm.Normal("y", a + 0.5 * group, b, shape=300)
        c = dp.clamp(y, -1, 2)
        mechanism("z", pt.stack([c.sum(), (group * c).sum()]), noise, np.array([7.0, 5.0]))
    laws = [clamped_normal(0.4 + 0.5 * k, 1.3, -1, 2, lambda x, k=k: k * x) for k in (0, 1)]
    means = [m * (law[1] @ law[0]) for m, law in zip(n, laws, strict=True)]
    zs = sum(means) + np.array([[0.0, 0.0], [12.0, -9.0]])
    found, error = at_values(model, "y", zs, POINT)
    # the first group's sum alone, whose lattice is summed with that of the second group's two
    s = [np.sqrt(m * (law[1] @ (law[0] - law[1] @ law[0]) ** 2)) for m, law in zip(n, laws, strict=True)]
    step = s[0][0] * np.linspace(-10, 10, 801)
    t = np.linspace(-10, 10, 4001) / s[0][0]
    one = np.exp(1j * np.outer(t, laws[0][0][:, 0] - means[0][0] / n[0])) @ laws[0][1]
    density = (np.exp(-1j * np.outer(step, t)) @ one ** n[0]).real * (t[1] - t[0]) / (2 * np.pi)
    expected = []
    for z in zs:
        # the second sum is that of the second group, which is in the first, too
        lattice = np.array([z - [means[0][0] + v, 0.0] for v in step])
        both = np.exp(on_both(*laws[1], n[1], lattice, (7.0, 5.0), noise))
        expected.append(np.log(density @ both * (step[1] - step[0])))
    check(found, error, np.array(expected), 2e-4)


def on_both(numbers, chances, n, zs, level, noise):
    """The same as `on_grid` of two sums that are equal."""
    y = numbers[:, 0]
    mean, sd = n * (chances @ y), np.sqrt(n * (chances @ y**2 - (chances @ y) ** 2))
    t, fine = np.linspace(-10, 10, 4001) / sd, sd * np.linspace(-10, 10, 4001)
    one = np.exp(1j * np.outer(t, y - mean / n)) @ chances
    density = (np.exp(-1j * np.outer(fine, t)) @ one**n).real * (t[1] - t[0]) / (2 * np.pi)
    off = zs[:, :, None] - mean - fine
    terms = log_noise(noise, off[:, 0], level[0]) + log_noise(noise, off[:, 1], level[1])
    return np.log(np.exp(terms) @ density * (fine[1] - fine[0]))


@BOTH
def test_gradients(noise):
    with pm.Model() as model:
        a, b, level = pm.HalfNormal("a"), pm.HalfNormal("b"), pm.HalfNormal("level", shape=2)
        y = pm.Gamma("y", 1 + a, b, shape=300)
        c = dp.clamp(y, 0.1, 0.8)
        mechanism("z", pt.stack([c.sum(), pt.log(c).sum()]), noise, 9 * level, z=(140.0, -260.0))
    marginal = dp.marginalize(model, "y")
    f = pytensor.function(marginal.value_vars, [marginal.logp(), marginal.dlogp()], mode="FAST_COMPILE")
    names = [v.name for v in marginal.value_vars]
    assert names == ["a_log__", "b_log__", "level_log__"]
    for at in ([0.3, -0.2, 0.1, 0.6], [0.3, -0.2, -1.5, 2.0], [2.5, -1.0, -2.0, -1.0]):
        at = np.array(at)

        def value(x):
            return f(x[0], x[1], x[2:])

        expected = [(value(at + h)[0] - value(at - h)[0]) / 2e-5 for h in 1e-5 * np.eye(4)]
        np.testing.assert_allclose(value(at)[1], expected, rtol=2e-5, atol=1e-5)


def closed_form_errors(module):
    """How far a module's densities of normal sums are off, near and far, with weak and strong noise."""
    node, weight = np.polynomial.legendre.leggauss(28)
    first, second = np.meshgrid(6.5 * node, 6.5 * node)
    chances = np.outer(weight * stats.norm.pdf(6.5 * node), weight * stats.norm.pdf(6.5 * node)).ravel()
    chances = (chances / chances.sum())[None]
    added = np.stack([first.ravel(), 0.5 * first.ravel() + second.ravel()], axis=1)[None]
    n, cov, off = 400, 400 * np.array([[1, 0.5], [0.5, 1.25]]), []
    for noise in NOISES:
        for level in ((0.5, 1.0), (30.0, 9.0)):
            for z in ((0.0, 0.0), (25.0, -10.0), (-60.0, 20.0)):
                level, z = np.array(level), np.array(z)
                by, cost = np.empty(added.shape), np.empty(chances.shape)
                found = module.log_density(
                    z, added, chances, np.array([float(n)]), np.zeros(2), level,
                    np.zeros(chances.size, int), noise == "laplace", module.WIDTH, by, cost,
                )  # fmt: skip
                off.append(found[0] - normal_pair(z, np.zeros(2), cov, level, noise))
    return np.array(off)


def test_near_and_far():
    assert np.abs(closed_form_errors(characteristic_pairs)).max() < 1e-7


PLANTED = {
    "the tilt left in": ("start = cumulant - s[0] * mean[0] - s[1] * mean[1]", "start = cumulant"),
    "one half of the first row lost": ("if k > 0 or m > counts[1]:", "if k > 0:"),
    "noise on one side alone": ("factor[k] = below + above", "factor[k] = 2.0 * below"),
    "turned the wrong way": ("-math.sin(t * peak)", "math.sin(t * peak)"),
    "noise without the tilt": ("angle = noise * noise * s * t - t * off", "angle = -t * off"),
    "a window of another width": ("- math.log(widths[1])", "- math.log(sd[1])"),
    "the frequencies of one sum for both": ("* 2.0 * math.pi / widths\n", "* 2.0 * math.pi / widths[0]\n"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_are_seen(name):
    with np.errstate(all="ignore"):
        off = closed_form_errors(in_python(characteristic_pairs, PLANTED[name]))
    assert not np.abs(off).max() < 1e-3


def test_python_is_what_machine_code_is():
    here = closed_form_errors(in_python(characteristic_pairs))
    np.testing.assert_allclose(here, closed_form_errors(characteristic_pairs), atol=1e-11)


@pytest.mark.statistical
def test_the_error_covers_what_is_off(rng):
    """Random laws, some with nearly everybody at an end, and random noise."""
    told = []
    for _ in range(25):
        n, noise = int(rng.integers(100, 400)), str(rng.choice(list(NOISES)))
        mu, s = rng.normal(0.5, 1), np.exp(rng.normal(0, 0.6))
        law = clamped_normal(mu, s, -1, 2, np.square)
        sd = np.sqrt(n * (law[1] @ (law[0] - law[1] @ law[0]) ** 2))
        level = sd * np.exp(rng.uniform(np.log(0.3), np.log(5), 2))
        z = n * (law[1] @ law[0]) + rng.uniform(-2, 2, 2) * np.hypot(sd, level)
        model = clamped(n, noise, level)
        (found,), (error,) = at_values(model, "y", [z], {"a": mu, "b_log__": np.log(s)})
        (expected,) = on_grid(*law, n, [z], level, noise)
        assert abs(np.expm1(found - expected)) < error + 1e-3  # of the lattice
        told.append(error)
    assert np.median(told) < 1e-5


def test_prior_predictive_draws():
    """Counts of people at points, with noise, beside people drawn one by one."""
    with pm.Model() as model:
        y = pm.Exponential("y", 1.0 + 1e-9 * pm.HalfNormal("a"), shape=120)
        c = dp.clamp(y, 0, 3)
        z = mechanism("z", pt.stack([c.sum(), pt.sqr(c).sum()]), "laplace", np.array([2.0, 9.0]))
    draws = pm.draw(dp.marginalize(model, "y")["z"], 4000, random_seed=1)
    others = pm.draw(z, 4000, random_seed=2)
    for weights in ([1, 0], [0, 1], [3, -1]):
        assert stats.ks_2samp(draws @ weights, others @ weights).pvalue > 1e-3


def ranks(rng, level, planted=1.0):
    """Ranks of prior draws among posteriors on a grid, of releases of people drawn one by one."""
    n, found = 200, []
    model = clamped(n, "laplace", planted * np.array(level))
    marginal = dp.marginalize(model, "y")
    (release,) = marginal.observed_RVs
    inputs = [v for v in marginal.value_vars if v.name in POINT]
    f = pytensor.function(inputs, marginal.logp(release, jacobian=False))
    grid = np.linspace(-3.5, 3.5, 141)
    for _ in range(150):
        a = rng.normal()
        c = np.clip(rng.normal(a, 1.3, n), -1, 2)
        marginal["released"].set_value(np.array([c.sum(), (c**2).sum()]) + rng.laplace(0, level))
        weights = special.softmax([f(v, np.log(1.3)) - 0.5 * v * v for v in grid])
        found.append(np.interp(a, grid, np.cumsum(weights) - 0.5 * weights))
    return stats.kstest(found, "uniform").pvalue


@pytest.mark.statistical
def test_calibration():
    assert ranks(np.random.default_rng(1), (25.0, 30.0)) > 1e-3
    assert ranks(np.random.default_rng(1), (25.0, 30.0), planted=0.3) < 1e-3  # noise of another scale


def test_posterior():
    """NUTS on the marginal model, beside a grid of a likelihood in closed form."""
    level, z, group = np.array([20.0, 15.0]), np.array([60.0, 50.0]), np.repeat([0.0, 1.0], 100)
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("a"), 1.3, shape=200)
        mechanism("z", pt.stack([y.sum(), (group * y).sum()]), "laplace", level, z)
    with dp.marginalize(model, "y"):
        idata = pm.sample(1000, tune=500, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    grid = np.linspace(-0.5, 1.2, 171)
    cov = 1.3**2 * np.array([[200.0, 100.0], [100.0, 100.0]])
    likelihood = [normal_pair(z, a * np.array([200.0, 100.0]), cov, level, "laplace") for a in grid]
    weights = special.softmax(np.array(likelihood) + stats.norm.logpdf(grid))
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    draws = idata.posterior["a"]
    assert abs(float(draws.mean()) - mean) < 4 * sd / np.sqrt(400)
    assert float(draws.std()) == pytest.approx(sd, rel=0.15)
    assert float(idata.posterior["z_error"].max()) < 1e-4


def test_start_far_from_the_release_has_a_density():
    """At the prior's mean a million people are thousands of standard deviations away."""
    found, _ = at_values(clamped(10**6, "laplace", (30.0, 30.0)), "y", [[9e5, 1.6e6]], POINT)
    assert np.isfinite(found).all() and found[0] < -100


def test_two_releases_are_refused_and_the_remedy_works():
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("a"), pm.HalfNormal("b"), shape=150)
        sums = [dp.clamp(y, -1, 2).sum(), dp.clamp(y, 0, 1).sum()]
        for k, total in enumerate(sums):
            dp.LaplaceMechanism(f"z{k}", total, scale=9.0, observed=70.0)
    with pytest.raises(ValueError, match=r"declare z0, z1 as one, of pt\.stack\(\[\.\.\.\]\) of both"):
        dp.marginalize(model, "y")
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("a"), pm.HalfNormal("b"), shape=150)
        sums = [dp.clamp(y, -1, 2).sum(), dp.clamp(y, 0, 1).sum()]
        dp.LaplaceMechanism("z", pt.stack(sums), scale=[9.0, 9.0], observed=[70.0, 70.0])
    assert [v.name for v in dp.marginalize(model, "y").free_RVs] == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "n", "message"),
    [
        (lambda y: (dp.clamp(y, -1, 2), y > 0), 150, "adds one of a few values"),
        (lambda y: (dp.clamp(y, -1, 2), dp.clamp(y, -1, 2) * 3), 150, "nearly one number"),
        (lambda y: (dp.clamp(y, -1, 2), dp.clamp(y, 0, 1)), 60, "fewer than 100 people"),
        (
            lambda y: (dp.clamp(y, -1, 2), dp.clamp(y, 0, 1), y),
            150,
            r"z has shape \(3,\), and one sum or a vec",
        ),
        (lambda y: (dp.clamp(y, -1, 2), (2 + y) ** -2.0), 150, "divided by their records"),
    ],
    ids=["a count", "the same sum twice", "few people", "three sums", "a negative power"],
)
def test_refusals(query, n, message):
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("a"), 1.0, shape=n)
        both = pt.stack([each.sum() for each in query(y)])
        dp.LaplaceMechanism("z", both, scale=2.0, observed=np.full(len(query(y)), 20.0))
    with pytest.raises(ValueError, match=message):
        dp.marginalize(model, "y")


@pytest.mark.parametrize("pair", [False, True])
def test_means_are_sums_over_how_many_there_are(pair):
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("a"), pm.HalfNormal("b"), shape=200)
        means = [dp.clamp(y, -1, 2).mean(), dp.clamp(y, 0, 1).mean()]
        query = pt.stack(means) if pair else means[0]
        mechanism("z", query, "gaussian", np.full(2, 0.05) if pair else 0.05, np.zeros(2) if pair else 0.0)
    with pm.Model() as sums:
        y = pm.Normal("y", pm.Normal("a"), pm.HalfNormal("b"), shape=200)
        totals = [dp.clamp(y, -1, 2).sum(), dp.clamp(y, 0, 1).sum()]
        query = pt.stack(totals) if pair else totals[0]
        mechanism("z", query, "gaussian", np.full(2, 10.0) if pair else 10.0, np.zeros(2) if pair else 0.0)
    at = np.array([0.45, 0.42]) if pair else 0.45
    found, _ = at_values(model, "y", [at], POINT)
    expected, _ = at_values(sums, "y", [200 * at], POINT)
    assert found[0] == pytest.approx(expected[0] + (2 if pair else 1) * np.log(200), abs=1e-8)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize(
    ("law", "ends"),
    [
        (lambda b: pm.Beta("y", b, 1.5, shape=150), (0, 1)),
        (lambda b: pm.InverseGamma("y", 2 + b, 1.5, shape=150), (0, 3)),
        (lambda b: pm.LogNormal("y", 0.0, b, shape=150), (0, 3)),
        (lambda b: pm.Pareto("y", 1 + b, 1.0, shape=150), (0, 3)),
    ],
    ids=["Beta", "InverseGamma", "LogNormal", "Pareto"],
)
def test_gradients_of_laws_that_are_clamped_at_their_ends(law, ends, pair):
    """Derivatives of the logarithm of a probability are no numbers where that is 0."""
    with pm.Model() as model:
        c = dp.clamp(law(pm.HalfNormal("b")), *ends)
        query, z = (pt.stack([c.sum(), pt.sqr(c).sum()]), [80.0, 60.0]) if pair else (c.sum(), 80.0)
        dp.LaplaceMechanism("z", query, scale=2.0, observed=z)
    marginal = dp.marginalize(model, "y")
    f = pytensor.function(marginal.value_vars, [marginal.logp(), marginal.dlogp()], mode="FAST_COMPILE")
    slope = (f(0.3 + 1e-5)[0] - f(0.3 - 1e-5)[0]) / 2e-5
    assert f(0.3)[1][0] == pytest.approx(slope, rel=1e-4)


def test_people_who_cannot_be_drawn_back_are_named_beside_others():
    with pm.Model() as model:
        a = pm.Normal("a")
        y, w = pm.Normal("y", a, 1, shape=150), pm.Normal("w", a, 1, shape=120)
        dp.LaplaceMechanism("z", dp.clamp(y, -1, 2).sum(), scale=3.0, observed=60.0)
        both = pt.stack([dp.clamp(w, -1, 2).sum(), dp.clamp(w, 0, 1).sum()])
        dp.LaplaceMechanism("v", both, scale=3.0, observed=[50.0, 40.0])
    draws = xr.DataTree.from_dict({"posterior": xr.Dataset({"a": (("chain", "draw"), [[0.3]])})})
    with pytest.raises(ValueError, match=r"^y were integrated out of z by the characteristic function"):
        dp.recover_records(draws, model)
