"""Sums over many people taken as normal: moments, laws and what is left out, against integrals of our own."""

import logging
from itertools import pairwise

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_dp as dp

N = 500
GROUP = np.repeat([0, 1, 1], [200, 100, 200])
COVARIATE = np.repeat([-1.0, 0.5, 2.0], [200, 100, 200])


def law_of(model, names, point, nodes=None):
    """Mean and covariance of the release without its noise, at a point."""
    approximate = dp.approximate_sums(model, names, nodes=nodes)
    z = approximate["z"]
    mean, covariance = z.owner.op.dist_params(z.owner)
    given = {approximate[name]: value for name, value in point.items()}
    mean, covariance = pytensor.function(
        [],
        [mean, covariance],
        givens=[(v, pt.constant(x, dtype=v.dtype)) for v, x in given.items()],
        mode="FAST_COMPILE",
    )()
    return mean, covariance - np.eye(len(mean)) * 0.01


def values(model, graphs, point):
    """Graphs of a model at a point of its values, in Python: compiling takes longer."""
    inputs = [v for v in model.value_vars if v.name in point]
    f = pytensor.function(inputs, graphs, mode="FAST_COMPILE", on_unused_input="ignore")
    return f(*(np.asarray(point[v.name], dtype=float) for v in inputs))


def normal_grid(mu, s, breaks=(), panels=60):
    """Points and weights of a normal law: Gauss-Legendre panels between breaks."""
    node, weight = np.polynomial.legendre.leggauss(10)
    ends = sorted([mu - 9 * s, *(b for b in breaks if abs(b - mu) < 9 * s), mu + 9 * s])
    edges = np.unique(np.concatenate([np.linspace(a, b, panels + 1) for a, b in pairwise(ends)]))
    half = 0.5 * np.diff(edges)[:, None]
    x = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * node).ravel()
    w = (half * weight).ravel() * stats.norm.pdf(x, mu, s)
    return x, w / w.sum()


def moments(weights, added):
    mean = weights @ added
    return mean, (added * weights[:, None]).T @ added - np.outer(mean, mean)


def stacked(*columns):
    return dp.record_sum(pt.stack(columns, axis=1))


def released(query, d):
    return dp.GaussianMechanism("z", query, sigma=0.1, observed=np.zeros(d))


def clamped_normal():
    a, b = pm.Normal("a"), pm.HalfNormal("b")
    y = pm.Normal("y", a, b, shape=N)
    c = dp.clamp(y, -1, 2)
    released(stacked(c, c**2, y > 0.3, pt.abs(y)), 4)


def clamped_normal_moments(a, b):
    x, w = normal_grid(a, b, (-1, 0, 0.3, 2))
    c = np.clip(x, -1, 2)
    return moments(w, np.stack([c, c * c, x > 0.3, abs(x)], axis=1))


def bounded_functions():
    a, b = pm.Normal("a"), pm.HalfNormal("b")
    y = pm.Normal("y", a, b, shape=N)
    t = pt.stack([y, y**2, pt.exp(-y), y**3 - y], axis=1)
    released(dp.record_sum(dp.clamp(t, np.array([-1.0, 0.0, 0.5, -0.2]), np.array([2.0, 3.0, 4.0, 0.3]))), 4)


def bounded_functions_moments(a, b):
    cubes = [r.real for c in (0.2, -0.3) for r in np.roots([1, 0, -1, c]) if abs(r.imag) < 1e-9]
    x, w = normal_grid(a, b, (-1, 2, -np.sqrt(3), np.sqrt(3), -np.log(4), np.log(2), *cubes))
    t = [x.clip(-1, 2), (x**2).clip(0, 3), np.exp(-x).clip(0.5, 4), (x**3 - x).clip(-0.2, 0.3)]
    return moments(w, np.stack(t, axis=1))


def singular():
    a, b = pm.Normal("a"), pm.HalfNormal("b")
    y = pm.Normal("y", a, b, shape=N)
    released(stacked(pt.sqrt((y - 0.3) ** 2), pt.abs(y) ** 0.5, 1 / (1 + y**2)), 3)


def singular_moments(a, b):
    x, w = normal_grid(a, b, (0, 0.3), panels=4000)
    return moments(w, np.stack([abs(x - 0.3), abs(x) ** 0.5, 1 / (1 + x**2)], axis=1))


def gamma():
    a, b = pm.HalfNormal("a"), pm.HalfNormal("b")
    y = pm.Gamma("y", a, b, shape=N)
    released(stacked(y.clip(0, 3), pt.exp(-y)), 2)


def gamma_moments(a, b):
    u = (np.arange(400_000) + 0.5) / 400_000
    x = stats.gamma.ppf(u, a, scale=1 / b)
    return moments(np.full(len(u), 1 / len(u)), np.stack([np.clip(x, 0, 3), np.exp(-x)], axis=1))


def inverse_gamma():
    """PyMC derives the quantiles of this law from those of another."""
    a, b = pm.HalfNormal("a"), pm.HalfNormal("b")
    y = pm.InverseGamma("y", a + 2, b, shape=N)
    released(stacked(y.clip(0, 2), y > 0.3), 2)


def inverse_gamma_moments(a, b):
    u = (np.arange(400_000) + 0.5) / 400_000
    x = stats.invgamma.ppf(u, a + 2, scale=b)
    above = stats.invgamma.sf(0.3, a + 2, scale=b)
    mean, v = moments(
        np.full(len(u), 1 / len(u)), np.stack([np.clip(x, 0, 2), x > 0.3], axis=1).astype(float)
    )
    return np.array([mean[0], above]), v


def regression():
    a, b = pm.Normal("a"), pm.HalfNormal("b")
    x = pm.Normal("x", 0.5, 1, shape=N)
    y = pm.Normal("y", a + 2 * x, b, shape=N)
    u, v = dp.clamp(x, -1, 1.5), dp.clamp(y, -2, 3)
    released(stacked(u, v, u * u, u * v, v * v), 5)


def regression_moments(a, b):
    x, w = normal_grid(0.5, 1, (-1, 1.5))
    e, q = normal_grid(0, b, panels=120)
    x, y = np.repeat(x, len(e)), np.repeat(a + 2 * x, len(e)) + np.tile(e, len(x))
    u, v = np.clip(x, -1, 1.5), np.clip(y, -2, 3)
    return moments(np.outer(w, q).ravel(), np.stack([u, v, u * u, u * v, v * v], axis=1))


def logistic():
    a, b = pm.Normal("a"), pm.HalfNormal("b")
    x = pm.Normal("x", 0, b, shape=N)
    y = pm.Bernoulli("y", logit_p=a + x, shape=N)
    k = pm.Categorical("k", p=[0.2, 0.3, 0.5], shape=N)
    released(stacked(y, y * x.clip(-2, 2), pt.eq(k, 1) * y, k), 4)


def logistic_moments(a, b):
    x, w = normal_grid(0, b, (-2, 2))
    p = 1 / (1 + np.exp(-a - x))
    x, y, k = (g.ravel() for g in np.meshgrid(x, [0, 1], [0, 1, 2], indexing="ij"))
    q = (w[:, None, None] * np.stack([1 - p, p], axis=1)[:, :, None] * [0.2, 0.3, 0.5]).ravel()
    return moments(q, np.stack([y, y * x.clip(-2, 2), (k == 1) * y, k], axis=1).astype(float))


def correlated():
    a, b = pm.Normal("a"), pm.HalfNormal("b")
    x = pm.MvNormal(
        "x",
        pt.stack([a, 0.0]),
        cov=pt.stack([pt.stack([b, 0.5 * b]), pt.stack([0.5 * b, 1.0])]),
        shape=(N, 2),
    )
    c = dp.clamp(x, -1, 1)
    released(stacked(c[:, 0], c[:, 1], c[:, 0] * c[:, 1]), 3)


def correlated_moments(a, b):
    root = np.linalg.cholesky([[b, 0.5 * b], [0.5 * b, 1.0]])
    z, w = normal_grid(0, 1, panels=200)
    u, v = (g.ravel() for g in np.meshgrid(z, z, indexing="ij"))
    c = np.clip(np.stack([a + root[0, 0] * u, root[1, 0] * u + root[1, 1] * v]), -1, 1)
    return moments(np.outer(w, w).ravel(), np.stack([c[0], c[1], c[0] * c[1]], axis=1))


def columns():
    a, b = pm.Normal("a"), pm.HalfNormal("b")
    x = pm.Normal("x", pt.stack([a, 1.0]), pt.stack([b, 2.0]), shape=(N, 2))
    released(dp.record_sum(dp.clamp(x, np.array([-1.0, 0.0]), np.array([1.0, 3.0]))), 2)


def columns_moments(a, b):
    parts = []
    for mu, s, lo, hi in ((a, b, -1, 1), (1.0, 2.0, 0, 3)):
        x, w = normal_grid(mu, s, (lo, hi))
        parts.append(moments(w, np.clip(x, lo, hi)[:, None]))
    return np.concatenate([m for m, _ in parts]), np.diag([v[0, 0] for _, v in parts])


def groups():
    a, b = pm.Normal("a"), pm.HalfNormal("b")
    y = pm.Normal("y", a + 0.5 * pt.as_tensor(COVARIATE), b, shape=N)
    c = dp.clamp(y, -1, 2)
    released(stacked(c * (GROUP == 0), c * (GROUP == 1), c * COVARIATE), 3)


def groups_moments(a, b):
    mean, covariance = np.zeros(3), np.zeros((3, 3))
    for covariate, group, count in ((-1.0, 0, 200), (0.5, 1, 100), (2.0, 1, 200)):
        x, w = normal_grid(a + 0.5 * covariate, b, (-1, 2))
        c = np.clip(x, -1, 2)
        m, v = moments(w, np.stack([c * (group == 0), c * (group == 1), c * covariate], axis=1))
        mean, covariance = mean + m * count / N, covariance + v * count / N
    return mean, covariance


def latent():
    a, b = pm.Normal("a"), pm.HalfNormal("b")
    m = pm.Normal("m", a, b, shape=N)
    y = pm.LogNormal("y", m, 0.5, shape=N)
    released(pt.stack([y.clip(0, 5).mean() * 2.0 - 1.0, -(y < 1).sum()]), 2)


def latent_moments(a, b):
    x, w = normal_grid(a, np.hypot(b, 0.5), (0, np.log(5)))
    mean, covariance = moments(w, np.stack([np.exp(x).clip(0, 5), np.exp(x) < 1], axis=1).astype(float))
    turn = np.diag([2 / N, -1.0])
    return turn @ mean - [1 / N, 0], turn @ covariance @ turn


MODELS = {
    "clamps, a comparison, absolute values": (clamped_normal, "y", clamped_normal_moments, 2e-6),
    "bounds of functions": (bounded_functions, "y", bounded_functions_moments, 2e-6),
    "roots": (singular, "y", singular_moments, 2e-3),
    "gamma": (gamma, "y", gamma_moments, 2e-6),
    "inverse gamma": (inverse_gamma, "y", inverse_gamma_moments, 1e-5),
    "a regression": (regression, ["x", "y"], regression_moments, 1e-5),
    "a logistic regression": (logistic, ["x", "y", "k"], logistic_moments, 2e-6),
    "vectors that are correlated": (correlated, "x", correlated_moments, 1e-5),
    "vectors": (columns, "x", columns_moments, 2e-6),
    "groups and a public covariate": (groups, "y", groups_moments, 2e-6),
    "a latent number, a mean": (latent, ["m", "y"], latent_moments, 1e-5),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("point", [{"a": 0.4, "b": 1.3}, {"a": 1.7, "b": 0.6}])
def test_moments(name, point):
    build, names, expected, tolerance = MODELS[name]
    with pm.Model() as model:
        build()
    mean, covariance = law_of(model, names, point)
    m, v = expected(**point)
    scale = np.sqrt(np.diag(v))
    np.testing.assert_allclose(mean / N, m, atol=tolerance * scale.max())
    assert np.abs((covariance / N - v) / np.outer(scale, scale)).max() < 5 * tolerance


LAWS = {
    "gamma": lambda a, b: pm.Gamma("y", a, b, shape=N),
    "beta": lambda a, b: pm.Beta("y", a, b, shape=N),
    "t": lambda a, b: pm.StudentT("y", nu=2 + a, mu=0.3, sigma=b, shape=N),
    "exponential": lambda a, b: pm.Exponential("y", a * b, shape=N),
    "truncated normal": lambda a, b: pm.TruncatedNormal("y", a, b, lower=0, upper=2, shape=N),
    "two numbers": lambda a, b: pm.Normal("y", pm.Laplace("w", a, b, shape=N), b, shape=N),
}


@pytest.mark.parametrize("law", LAWS)
def test_gradients(law):
    """Against differences: PyTensor has no derivatives of some quantile functions."""
    with pm.Model() as model:
        y = LAWS[law](pm.HalfNormal("a"), pm.HalfNormal("b"))
        released(stacked(y.clip(0.2, 1.5), y.clip(0.1, 0.8) ** 2), 2)
    names = [v.name for v in model.free_RVs if v.name not in "ab"]
    approximate = dp.approximate_sums(model, names, nodes=8)
    f = pytensor.function(
        approximate.value_vars, [approximate.logp(), approximate.dlogp()], mode="FAST_COMPILE"
    )
    at = np.array([0.3, -0.2])
    found = f(*at)[1]
    expected = [(f(*(at + h))[0] - f(*(at - h))[0]) / 2e-5 for h in 1e-5 * np.eye(2)]
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def gaussian_sums(observed=(40.0, -3.0), noise=dp.GaussianMechanism, level="sigma"):
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        y = pm.Normal("y", a, b, shape=60)
        noise(
            "z", pt.stack([y.sum(), (y * np.arange(60) / 60).sum()]), **{level: 2.0}, observed=list(observed)
        )
    return model


def test_normal_sums_are_exact():
    model = gaussian_sums()
    exact, approximate = dp.marginalize(model, "y"), dp.approximate_sums(model, "y")
    for a, b in ((0.4, -0.3), (-1.0, 0.5)):
        (logp, dlogp), (other, others) = (
            values(m, [m.logp(), m.dlogp()], {"a": a, "b_log__": b}) for m in (approximate, exact)
        )
        assert logp == pytest.approx(float(other), rel=1e-7)
        np.testing.assert_allclose(dlogp, others, rtol=1e-5)


def test_releases_of_the_same_people_are_taken_together():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        y = pm.Normal("y", a, b, shape=60)
        dp.GaussianMechanism("first", y.sum(), sigma=2.0, observed=40.0)
        dp.GaussianMechanism("second", (y * np.arange(60) / 60).sum(), sigma=2.0, observed=-3.0)
    found = []
    for m, name in ((model, "first_edgeworth"), (gaussian_sums(), "z_edgeworth")):
        m = dp.approximate_sums(m, "y")
        graphs = [m.logp(), *m.replace_rvs_by_values([m[name]])]
        found.append(values(m, graphs, {"a": 0.4, "b_log__": -0.3}))
    assert found[0][0] == pytest.approx(float(found[1][0]), rel=1e-9)
    assert found[0][1] == pytest.approx(float(found[1][1]), abs=1e-9)


def test_laplace_noise_is_a_mixture_of_normal_noise():
    with pm.Model() as model:
        a = pm.Normal("a")
        y = pm.Normal("y", a, 1.5, shape=60)
        dp.LaplaceMechanism("z", y.sum(), scale=7.0, observed=31.0)
    approximate = dp.approximate_sums(model, "y")
    inputs = approximate.value_vars
    logp = pytensor.function(inputs, approximate.logp(jacobian=False), mode="FAST_COMPILE")
    a, s = 0.2, 1.5 * np.sqrt(60)

    def density(mixing):
        return np.exp(logp(a, np.log(mixing)))

    # the density of normal plus Laplace, over the noise
    exact = integrate.quad(
        lambda e: stats.laplace.pdf(e, 0, 7.0) * stats.norm.pdf(31.0 - e, 60 * a, s), -200, 200, points=[0]
    )
    found = integrate.quad(density, 0, 60, limit=200)
    assert found[0] == pytest.approx(exact[0] * stats.norm.pdf(a), rel=1e-6)


def edgeworth_of(model, point):
    approximate = dp.approximate_sums(model, "y")
    (graph,) = approximate.replace_rvs_by_values([approximate["z_edgeworth"]])
    logp, value = values(approximate, [approximate.logp(approximate["z"]), graph], point)
    return float(logp), float(value)


def sum_and_squares(n, z):
    """Normal records: the joint density of their sum and the sum of their squares is known."""
    with pm.Model() as model:
        a = pm.Normal("a")
        y = pm.Normal("y", a, 1.0, shape=n)
        dp.GaussianMechanism("z", stacked(y, y**2), sigma=1e-3, observed=z)
    mean, left = z[0] / n, z[1] - z[0] ** 2 / n  # and the second is chi-square with n - 1 degrees
    exact = stats.norm.logpdf(z[0], 0.3 * n, np.sqrt(n)) + stats.chi2.logpdf(left, n - 1)
    assert abs(mean) < 2
    return model, exact


@pytest.mark.parametrize("away", [(0.0, 0.0), (1.0, -0.5), (-0.7, 1.2), (1.5, 1.5)])
def test_edgeworth_term(away):
    """What is left when it is taken into account falls as 1 / n, and without it as 1 / sqrt(n)."""
    left = []
    for n in (400, 6400):
        sd = np.sqrt(n * np.array([1.0, 2 + 4 * 0.09]))
        z = n * np.array([0.3, 1.09]) + sd * away
        model, exact = sum_and_squares(n, z)
        logp, e = edgeworth_of(model, {"a": 0.3})
        left.append((np.exp(exact - logp) - 1 - e, e))
    (first, e), (second, _) = left
    assert abs(first) < 30 / 400 and abs(second) < 30 / 6400
    if away != (0.0, 0.0):
        assert abs(first) < 0.5 * abs(e) or abs(e) < 0.02


def test_what_stays(caplog, python_mode):
    with pm.Model(coords={"sum": ["of y", "of squares"]}) as model:
        a = pm.Normal("a")
        y = pm.Normal("y", a, 1, shape=N)
        dp.LaplaceMechanism(
            "z", stacked(y, y**2), epsilon=1, bounds=(-2, [2.0, 4.0]), observed=[1.0, 2.0], dims="sum"
        )
        dp.GaussianMechanism("count", (y > 0).sum(), rho=0.1, bounds=(0, 1), observed=3.0)
    with caplog.at_level(logging.INFO, logger="pymc"):
        approximate = dp.approximate_sums(model, "y")
    assert "an approximation" in caplog.text and "z_edgeworth" in caplog.text
    assert [v.name for v in model.free_RVs] == ["a", "y"]
    assert [v.name for v in approximate.free_RVs] == ["a", "z_mixing"]
    assert approximate.named_vars_to_dims["z"] == ("sum",)
    assert str(dp.guarantee(approximate)) == str(dp.guarantee(model))
    with approximate:
        prior = pm.sample_prior_predictive(20, random_seed=1)
    assert prior.prior_predictive["z"].shape == (1, 20, 2)


def test_prior_predictive_is_near_that_of_the_model():
    with pm.Model() as model:
        a = pm.Normal("a", 0.5, 0.01)
        y = pm.Exponential("y", a, shape=N)
        dp.LaplaceMechanism("z", stacked(y, y**2), epsilon=1, bounds=(0, [4.0, 16.0]), observed=[1.0, 2.0])
    approximate, draws = dp.approximate_sums(model, "y"), []
    for each in (model, approximate):
        with each:
            prior = pm.sample_prior_predictive(4000, random_seed=1, var_names=["z"])
        draws.append(prior.prior_predictive["z"].values[0])
    for k in range(2):
        assert stats.ks_2samp(draws[0][:, k], draws[1][:, k]).pvalue > 1e-3
    products = [(d - d.mean(axis=0)).prod(axis=1) for d in draws]
    assert abs(products[0].mean() - products[1].mean()) < 4 * np.hypot(
        *(p.std() / np.sqrt(4000) for p in products)
    )


def test_error_of_the_integral():
    """A regression that is steeper than the points tell: seen, and gone with more points."""
    with pm.Model() as model:
        b = pm.HalfNormal("b", 20)
        x = pm.Normal("x", 0, 1, shape=100_000)
        y = pm.Bernoulli("y", logit_p=b * (x - 0.1), shape=100_000)
        dp.GaussianMechanism("z", stacked(y, y * x.clip(-2, 2)), sigma=1.0, observed=[0.0, 0.0])
    found = []
    for nodes in (24, 400):
        approximate = dp.approximate_sums(model, ["x", "y"], nodes=nodes)
        (graph,) = approximate.replace_rvs_by_values([approximate["z_quadrature"]])
        found.append([float(values(approximate, graph, {"b_log__": np.log(b)})) for b in (1.0, 60.0)])
    (gentle, steep), (_, fine) = found
    assert gentle < 1e-4 and steep > 0.05 and fine < 0.01 * steep


def no_variance(y):
    w = pm.StudentT("w", 3, mu=y, sigma=1, shape=N)
    dp.LaplaceMechanism("z", w.clip(0, np.inf).sum(), scale=1.0, observed=0.0)


def ratio(y):
    w = pm.Normal("w", y, 1, shape=N)
    dp.LaplaceMechanism("z", (y / w).sum(), scale=1.0, observed=0.0)


def some_people(y):
    dp.LaplaceMechanism("z", y[:20].clip(-1, 1).sum(), scale=1.0, observed=0.0)


def some_people_unclamped(y):
    dp.LaplaceMechanism("z", y[:20].sum(), scale=1.0, observed=0.0)


def matrix(y):
    dp.LaplaceMechanism("z", np.ones((2, N)) @ y, scale=1.0, observed=[0.0, 1.0])


def other_noise(y):
    dp.DiscreteLaplaceMechanism("z", (y > 0).sum(), scale=2.0, observed=3)


def kinks(y):
    w = pm.Normal("w", y, 1, shape=N)
    dp.LaplaceMechanism("z", (y * w).sum(), scale=1.0, bounds=(0, 1), observed=3.0)


def rounded(y):
    dp.LaplaceMechanism("z", pt.floor(y).sum(), scale=1.0, observed=3.0)


def own_ends(y):
    dp.LaplaceMechanism("z", pt.clip(y, 0, pm.HalfNormal("end")).sum(), scale=1.0, observed=3.0)


def one_by_one(y):
    dp.LaplaceMechanism("z", y, scale=1.0, observed=np.zeros(N))


def not_affine(y):
    dp.LaplaceMechanism("z", pt.exp(y.mean()), scale=1.0, observed=0.0)


def a_child(y):
    pm.Normal("other", y, 1, shape=N)
    dp.LaplaceMechanism("z", y.sum(), scale=1.0, observed=0.0)


def a_deterministic(y):
    pm.Deterministic("total", y.sum())
    dp.LaplaceMechanism("z", y.sum(), scale=1.0, observed=0.0)


def no_quantile(y):
    w = pm.SkewNormal("w", mu=y, sigma=1, alpha=2, shape=N)
    dp.LaplaceMechanism("z", (y + w).sum(), scale=1.0, observed=0.0)


def counts_without_end(y):
    w = pm.Poisson("w", pt.exp(y), shape=N)
    dp.LaplaceMechanism("z", (y + w.clip(0, 3)).sum(), scale=1.0, observed=0.0)


def a_mixture(y):
    w = pm.NormalMixture("w", w=[0.3, 0.7], mu=[-1.0, 1.0], sigma=1.0, shape=N)
    dp.LaplaceMechanism("z", (y + w).sum(), scale=1.0, observed=0.0)


def several_axes(y):
    dp.LaplaceMechanism(
        "z", dp.record_sum(y[:, None, None] * np.ones((2, 2))), scale=1.0, observed=np.zeros((2, 2))
    )


def data_anew(y):
    dp.LaplaceMechanism("z", (y * pm.Data("x", COVARIATE)).sum(), scale=1.0, observed=0.0)


def own_rows(y):
    w = pm.Normal("w", y + np.arange(N) / 7.0, 1, shape=N)
    dp.LaplaceMechanism("z", (w.clip(0, 1) * y).sum(), scale=1.0, observed=0.0)


def too_many_numbers(y):
    w = pm.Normal("w", y[:, None], 1, shape=(N, 3))
    dp.LaplaceMechanism("z", (w.sum(axis=1) * y).sum(), scale=1.0, observed=0.0)


REFUSED = [
    (no_variance, ["y", "w"], r"sums over w \(StudentT\) may have no variance: clamp it"),
    (some_people, "y", "multiply by an array of 0 and 1"),
    (some_people_unclamped, "y", "with 0 for those who do not count"),
    (matrix, "y", r"dp.record_sum\(x\[:, None\] \* weights\)"),
    (other_noise, "y", "z has noise of DiscreteLaplace.*Leave it to RecordImputation"),
    (kinks, ["y", "w"], "Clip of more than one number .*: clamp or compare y, w themselves"),
    (rounded, "y", "Floor, computed of y, is not known to be smooth"),
    (own_ends, "y", "ends that are no constants"),
    (one_by_one, "y", "z sees people one by one"),
    (not_affine, "y", "z is of no linear function of sums"),
    (a_child, "y", "other depends on y and is no release"),
    (a_deterministic, "y", "deterministic total depends on y"),
    (no_quantile, ["y", "w"], "no quantile function of SkewNormal records"),
    (counts_without_end, ["y", "w"], r"w has whole numbers that are not known to be few \(Poisson\)"),
    (a_mixture, ["y", "w"], "quantile function of .*Mixture records is not known"),
    (several_axes, "y", r"z has 2 axes: write its query as a vector \(query.ravel"),
    (data_anew, "y", "x has a row for each person and may be set anew: give it as an array"),
    (own_rows, ["y", "w"], "more than 300000 points"),
    (own_rows, "y", "have the records w, y, which have to be integrated out together: name them all"),
    (too_many_numbers, ["y", "w"], "4 real numbers"),
    (one_by_one, "a", "names has 'a', which is no confidential record .*: y"),
]


@pytest.mark.parametrize(("query", "names", "message"), REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_refused(query, names, message):
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("a"), 1, shape=N)
        query(y)
    with pytest.raises(ValueError, match=message):
        dp.approximate_sums(model, names)


def test_unknown_numbers_of_people_are_refused():
    with pm.Model() as model:
        people = pm.DiscreteUniform("people", 0, 80)
        y = pm.Normal("y", pm.Normal("a"), 1, shape=80)
        dp.LaplaceMechanism("z", dp.record_sum(y, count=people), scale=1.0, observed=48.0)
    with pytest.raises(ValueError, match="How many people there are, people, is a variable"):
        dp.approximate_sums(model, "y")


@pytest.mark.parametrize("nodes", [1, 2.5, True])
def test_nodes(nodes):
    with pytest.raises(ValueError, match="nodes must be a whole number of at least 2"):
        dp.approximate_sums(gaussian_sums(), "y", nodes=nodes)


def test_many_ends():
    ends = np.linspace(-1, 1, 30)
    with pm.Model() as model:
        a = pm.Normal("a")
        y = pm.Normal("y", a, 1, shape=N)
        released(dp.record_sum((y[:, None] > ends) * ends), 30)
    mean, _ = law_of(model, "y", {"a": 0.3}, nodes=4)
    np.testing.assert_allclose(mean, N * stats.norm.sf(ends, 0.3, 1) * ends, atol=1e-8)


def test_weights_as_many_as_people_are_not_taken_for_theirs():
    """They stand along another axis."""
    weights = np.linspace(-1, 1, 30)
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("a"), 1, shape=30)
        released(dp.record_sum((y[:, None] > 0.5) * weights), 30)
    with pytest.raises(ValueError, match="alone"):
        dp.approximate_sums(model, "y")


def test_as_many_categories_as_people():
    with pm.Model() as model:
        y = pm.Categorical("y", p=[0.5, 0.3, 0.2], shape=3)
        released(stacked(pt.eq(y, 0), pt.eq(y, 1)), 2)
    mean, covariance = law_of(model, "y", {})
    np.testing.assert_allclose(mean, [1.5, 0.9])
    np.testing.assert_allclose(covariance, 3 * np.array([[0.25, -0.15], [-0.15, 0.21]]))


@pytest.mark.parametrize(
    "law", [lambda s: pm.Normal("y", 0.3, s, shape=N), lambda s: pm.Gamma("y", s, 1, shape=N)]
)
def test_parameters_outside_of_their_domain_have_no_density(law):
    with pm.Model() as model:
        y = law(pm.Normal("s"))
        released(stacked(y.clip(-1, 2), y.clip(-1, 2) ** 2), 2)
    approximate = dp.approximate_sums(model, "y", nodes=8)
    logp = approximate.compile_logp()  # PyMC makes values of its checks there
    assert np.isfinite(logp({"s": np.array(0.7)})) and not logp({"s": np.array(-0.7)}) > -np.inf


def test_improper_posteriors_are_refused():
    with pm.Model() as model:
        y = pm.Normal("y", pm.Flat("mu"), 1, shape=100)
        dp.LaplaceMechanism("z", dp.clamp(y, -1, 2).sum(), scale=2.0, observed=30.0)
    with pytest.raises(ValueError, match="mu"):
        dp.approximate_sums(model, "y")
