"""Models of every shape that the step methods claim to handle, with few records each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors

import pymc_dp as dp

# Covariates known per record, for as many records as any test asks for.
A = np.random.default_rng(5).normal(size=(8, 2))


PYTHON = Mode(linker="py", optimizer="fast_compile")


@dataclass(frozen=True)
class Entry:
    """A model of n records; ``smallest`` is the least n it makes sense for."""

    name: str
    declare: Callable[[int], object]
    smallest: int = 1
    noise_form: bool = True

    def build(self, n: int = 4) -> pm.Model:
        with pm.Model() as model:
            self.declare(n)
        return model


ZOO: list[Entry] = []


def entry(smallest=1, noise_form=True):
    def register(declare):
        name = declare.__name__.replace("_", " ")
        ZOO.append(Entry(name, declare, smallest, noise_form))
        return declare

    return register


def jittered(model, rng, scale=0.5):
    """A point of value variables: continuous ones moved about."""
    point = model.initial_point()
    return {
        name: v + scale * rng.uniform(-1, 1, np.shape(v)) if v.dtype.kind == "f" else v
        for name, v in point.items()
    }


def evaluation_mode(graphs):
    """Return how to evaluate some graphs: by Python, but for operations of ours that are compiled."""
    for v in ancestors(graphs):
        op = getattr(v.owner, "op", None)
        if type(getattr(op, "scalar_op", op)).__module__.startswith("pymc_dp.lowering"):
            return None
    return PYTHON


def laplace(query, name="release", scale=0.7, **kwargs):
    """Observe a release near the middle of things: 1 everywhere."""
    query = pt.as_tensor_variable(query)
    observed = np.ones(tuple(query.shape.eval(mode="FAST_COMPILE")))
    return dp.LaplaceMechanism(name, query, scale=scale, observed=observed, **kwargs)


def gaussian(query, name="other_release", sigma=0.8, **kwargs):
    query = pt.as_tensor_variable(query)
    observed = 0.5 * np.ones(tuple(query.shape.eval(mode="FAST_COMPILE")))
    return dp.GaussianMechanism(name, query, sigma=sigma, observed=observed, **kwargs)


# -- one scalar record -----------------------------------------------------------------------------


@entry()
def normal_sum(n):
    mu, log_sd = pm.Normal("mu"), pm.Normal("log_sd")
    laplace(dp.record_sum(pm.Normal("x", mu, pt.exp(log_sd), shape=n)))


@entry()
def clamped_mean(n):
    x = pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("sd"), shape=n)
    gaussian(x.mean(), bounds=(-0.5, 1.0))


@entry()
def local_normal(n):
    laplace(pm.Normal("x", pm.Normal("mu"), 1.3, shape=n))


@entry()
def local_clamped(n):
    gaussian(pm.Normal("x", pm.Normal("mu"), 1.3, shape=n), bounds=(-0.4, 0.9))


@entry()
def laplace_records(n):
    gaussian(pm.Laplace("x", pm.Normal("mu"), pm.HalfNormal("b"), shape=n).sum())


@entry()
def heavy_tails(n):
    x = pm.StudentT("x", nu=4, mu=pm.Normal("mu"), sigma=pm.HalfNormal("sd"), shape=n)
    laplace((dp.clamp(x, -3, 3)).sum())


@entry()
def unknown_degrees_of_freedom(n):
    x = pm.StudentT("x", nu=pm.Gamma("nu", 5, 1), mu=pm.Normal("mu"), sigma=1, shape=n)
    laplace((dp.clamp(x, -3, 3)).sum())


@entry()
def cauchy_logistic_gumbel(n):
    mu = pm.Normal("mu")
    x = pm.Cauchy("x", mu, 1, shape=n)
    y = pm.Logistic("y", mu, pm.HalfNormal("s"), shape=n)
    w = pm.Gumbel("w", mu, 2, shape=n)
    laplace(dp.record_sum(pt.stack([pt.tanh(x), y, w * y], axis=1)))


@entry()
def exponential(n):
    laplace(pm.Exponential("x", pm.Gamma("rate", 2, 1), shape=n).sum())


@entry()
def half_families(n):
    s = pm.HalfNormal("s")
    x = pm.HalfNormal("x", s, shape=n)
    y = pm.HalfCauchy("y", s, shape=n)
    laplace((dp.clamp(x * y, 0, 4)).sum())


@entry()
def log_normal_local(n):
    x = pm.LogNormal("x", pm.Normal("mu"), pm.HalfNormal("s"), shape=n)
    laplace(x, bounds=(0, 3))


@entry()
def uniform_of_unknown_width(n):
    lo = pm.Normal("lo", -1, 0.1)
    laplace(pm.Uniform("x", lo, lo + pm.HalfNormal("w"), shape=n).sum())


@entry()
def gamma(n):
    x = pm.Gamma("x", pm.Gamma("a", 3, 1), pm.Gamma("b", 3, 1), shape=n)
    laplace(pt.stack([x.sum(), pt.log(x).sum()]))


@entry()
def beta_local(n):
    gaussian(pm.Beta("x", pm.Gamma("a", 3, 1), pm.Gamma("b", 3, 1), shape=n))


@entry()
def weibull_and_pareto(n):
    a = pm.Gamma("a", 4, 1)
    x = pm.Weibull("x", a, 1.5, shape=n)
    y = pm.Pareto("y", a, 1.0, shape=n)
    laplace(dp.record_sum(dp.clamp(x * y, 0, 5)))


@entry()
def kumaraswamy_moyal_inverse_gamma(n):
    a = pm.Gamma("a", 4, 1)
    x = pm.Kumaraswamy("x", a, 2.0, shape=n)
    y = pm.Moyal("y", a, 1.0, shape=n)
    w = pm.InverseGamma("w", a, 1.0, shape=n)
    laplace(dp.record_sum(dp.clamp(x + y + w, 0, 9)))


@entry(noise_form=False)
def mixture_of_normals(n):
    w = pm.Beta("w", 2, 2)
    x = pm.NormalMixture("x", pt.stack([w, 1 - w]), [-1.0, 1.5], 0.7, shape=n)
    laplace(x.sum())


@entry(noise_form=False)
def truncated(n):
    x = pm.TruncatedNormal("x", pm.Normal("mu"), 1.0, lower=-1, upper=2, shape=n)
    laplace(x.sum())


# -- discrete records ------------------------------------------------------------------------------


@entry(noise_form=False)
def truncated_counts(n):
    mean = pm.Gamma("mean", 2, 1)
    x = pm.Truncated("x", pm.NegativeBinomial.dist(mu=mean, alpha=2), lower=1, upper=5, shape=n)
    laplace(x.sum())


@entry(noise_form=False)
def hurdle_of_counts(n):
    laplace(pm.HurdlePoisson("x", pm.Beta("p", 2, 2), pm.Gamma("mean", 2, 1), shape=n).sum())


@entry()
def bernoulli(n):
    laplace(pm.Bernoulli("x", pm.Beta("p", 2, 2), shape=n).sum())


@entry()
def bernoulli_local(n):
    gaussian(pm.Bernoulli("x", pm.Beta("p", 2, 2), shape=n))


@entry()
def categorical(n):
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=n)
    laplace(dp.record_sum(pt.eq(c[:, None], np.arange(3))))


@entry()
def categorical_local_table(n):
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=n)
    laplace(pm.Normal("table", shape=3)[c])


@entry()
def binomial(n):
    laplace(pm.Binomial("k", 5, pm.Beta("p", 2, 2), shape=n).sum())


@entry()
def geometric(n):
    laplace(pm.Geometric("k", pm.Beta("p", 2, 2), shape=n), bounds=(0, 6))


@entry()
def poisson(n):
    laplace(pm.Poisson("k", pm.Gamma("rate", 3, 1), shape=n).sum())


@entry()
def discrete_uniform(n):
    gaussian(pm.DiscreteUniform("k", 0, 4, shape=n) * pm.Normal("b"))


# -- vector records --------------------------------------------------------------------------------


@entry()
def many_statistics(n):
    """More than have a variable of their own in the generated source."""
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    laplace(dp.record_sum(pt.cos(x[:, None] * np.arange(1, 21))), scale=4.0)


@entry()
def two_axes(n):
    x = pm.Normal("x", pm.Normal("mu", shape=(2, 3)), 1, shape=(n, 2, 3))
    laplace(x.sum(axis=0))


@entry()
def multivariate_normal(n):
    scale = pm.HalfNormal("scale")
    cov = scale**2 * np.array([[1.0, 0.4], [0.4, 2.0]])
    x = pm.MvNormal("x", pm.Normal("mu", shape=2), cov, shape=(n, 2))
    laplace(dp.record_sum(pt.stack([x[:, 0], x[:, 1], x[:, 0] * x[:, 1]], axis=1)))


@entry(noise_form=False)
def simplex(n):
    x = pm.Dirichlet("x", pm.Gamma("a", 3, 1, shape=3), shape=(n, 3))
    laplace(x.sum(axis=0))


# -- several variables per record ------------------------------------------------------------------


@entry()
def regression(n):
    b = pm.Normal("b", shape=3)
    x = pm.Normal("x", [0.4, -0.6], 1, shape=(n, 2))
    y = pm.Normal("y", b[0] + x @ b[1:], pm.HalfNormal("s"))
    u, v, w = dp.clamp(x[:, 0], -2, 2), dp.clamp(x[:, 1], -2, 2), dp.clamp(y, -3, 3)
    laplace(dp.record_sum(pt.stack([w, u * w, v * w, w * w, u, v, u * v], axis=1)), scale=2.0)


@entry()
def known_covariates(n):
    b = pm.Normal("b", shape=2)
    a = pm.Data("a", A[:n])
    y = pm.Normal("y", a @ b, 1)
    laplace(a.T @ y)


@entry()
def latent_parent(n):
    x = pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("s"), shape=n)
    laplace(pm.Poisson("y", pt.exp(pt.clip(x, -3, 2))).sum())


@entry()
def latent_parent_continuous(n):
    x = pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("s"), shape=n)
    laplace(pm.Exponential("y", pt.exp(-x)).sum())


@entry()
def naive_bayes(n):
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(2)), shape=n)
    q = pm.Beta("q", 2, 2, shape=(2, 3))
    f = pm.Bernoulli("f", q[c])
    laplace(dp.record_sum(pt.eq(c, 1)[:, None] * f))
    laplace(dp.record_sum(pt.eq(c, 0)[:, None] * f), "t")


@entry()
def parameters_that_records_choose(n):
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(2)), shape=n)
    rate = pm.Gamma("rate", 3, 1, shape=2)
    laplace(pm.Poisson("k", rate[c]), "z")
    laplace(c.sum(), "total")


# -- other terms, parameters in the query ----------------------------------------------------------


@entry()
def observed_child(n):
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    pm.Normal("o", x * pm.Normal("slope"), 0.5, observed=A[:n, 0])
    laplace(x.sum())


@entry()
def free_child(n):
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    pm.Normal("o", x, 0.5, shape=n)
    laplace(x.sum())


@entry()
def potentials(n):
    mu = pm.Normal("mu")
    x = pm.Normal("x", mu, 1, shape=n)
    pm.Potential("rows", -((x - 0.3) ** 2))
    pm.Potential("total", -0.1 * (x**4).sum() * mu**2)
    pm.Potential("parameter", -pt.abs(mu))
    laplace(x.sum())


@entry(smallest=3)
def masked_covariate(n):
    known = A[:n, 0].copy()
    known[[1, 2]] = np.nan
    x = pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("s"), observed=np.ma.masked_invalid(known))
    y = pm.Normal("y", pm.Normal("b") * x, 1)
    laplace(dp.record_sum(pt.stack([y, x * y], axis=1)))


@entry(smallest=3)
def masked_amounts(n):
    known = np.exp(A[:n, 0])
    known[[1, 2]] = np.nan
    w = pm.LogNormal("w", 0, pm.HalfNormal("s"), observed=np.ma.masked_invalid(known))
    y = pm.Normal("y", w, 1)
    laplace(dp.record_sum(dp.clamp(y, -4, 4)))


@entry()
def weight_in_the_query(n):
    mu, weight = pm.Normal("mu"), pm.Normal("weight", 1)
    x = pm.Normal("x", mu, 1, shape=n)
    laplace(dp.record_sum(weight * dp.clamp(x, -2, 2)) + weight)


@entry()
def scale_in_a_clamp(n):
    s = pm.HalfNormal("s")
    x = pm.Normal("x", pm.Normal("mu"), s, shape=n)
    laplace(dp.record_sum(dp.clamp(x, -2 * s, 2 * s)))


@entry()
def slope_in_a_residual(n):
    b = pm.Normal("b", shape=2)
    y = pm.Normal("y", A[:n] @ b, 1)
    gaussian((y - A[:n] @ b).sum())


@entry()
def unknown_noise_level(n):
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    laplace(x.sum(), scale=pm.HalfNormal("level"))


@entry()
def covariate_shares(n):
    """A local query that uses the number of records."""
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    laplace(x / x.shape[0] * A[:n, 0])


# -- parts of arrays, by position ------------------------------------------------------------------


@entry()
def columns_from_the_end(n):
    mu = pm.Normal("mu", shape=2)
    y = pm.Normal("y", mu, 1, shape=(n, 2))
    laplace(dp.record_sum(pt.stack([y[:, 0], y[:, -1] ** 2], axis=1)[:, -1]))
    gaussian(dp.record_sum(y[:, -2]))


@entry()
def table_from_the_end(n):
    k = pm.Categorical("k", pm.Dirichlet("p", np.ones(3)), shape=n)
    weight = pt.as_tensor([0.0, 0.0, 2.0])[k - 1]
    laplace(dp.record_sum(weight * pm.Normal("y", weight, 0.5)))


@entry()
def small_integers(n):
    y = pm.Poisson("y", pm.Gamma("rate", 90, 1), shape=(n, 2))
    short = pt.cast(pt.clip(y, 0, 100), "int8")
    laplace(dp.record_sum(short.sum(axis=1)), scale=9.0)
    laplace(dp.record_sum(short @ np.array([1, 2], dtype="int8")), "weighted", scale=9.0)


@entry()
def covariate_and_record_pick(n):
    p = pm.Beta("p", 2, 2, shape=(2, 2))
    a = pm.Bernoulli("a", 0.4, shape=n)
    y = pm.Bernoulli("y", p[np.arange(n) % 2, a])
    laplace(dp.record_sum(pt.stack([a, y], axis=1)))


# -- transforms whose ends move --------------------------------------------------------------------


@entry()
def ends_in_two_steps(n):
    x = pm.Uniform("x", 0, pm.HalfNormal("t"), shape=n)
    laplace(pm.Uniform("y", 0, x).sum())


@entry()
def an_end_outside_of_the_records(n):
    t = pm.HalfNormal("t")
    pm.Normal("o", pm.Uniform("eta", 0, t), 0.3, observed=1.0)
    laplace(dp.record_sum(dp.clamp(pm.Normal("y", 0, t, shape=n), -3, 3)))


@entry(smallest=2)
def two_groups_with_one_end(n):
    t = pm.HalfNormal("t")
    laplace(pm.Uniform("a", 0, t, shape=n).sum())
    gaussian(pm.Uniform("b", 0, t, shape=n + 1).sum())


# -- several releases ------------------------------------------------------------------------------


@entry()
def three_releases(n):
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    laplace(x.sum(), "a")
    gaussian(dp.record_sum(pt.stack([x, x**2], axis=1)), "b")
    gaussian(x, "c", bounds=(-1, 1))


@entry()
def cells_beside_a_sum(n):
    c = pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), shape=n)
    bits = np.eye(3, dtype=int)[np.arange(n) % 3]
    dp.UnaryEncoding("bits", c, epsilon=1.0, observed=bits)
    laplace(dp.record_sum(pm.Normal("y", c, 1)))


@entry()
def histogram_beside_a_sum(n):
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    counts = np.ones(4)
    dp.PerturbedHistogram("counts", x, edges=np.linspace(-2, 2, 5), epsilon=1.0, observed=counts)
    laplace(x.sum())


@entry(smallest=3)
def disjoint_rows(n):
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    laplace(x[:2].sum(), "a")
    gaussian(x[2:], "b")


@entry()
def two_blocks(n):
    mu = pm.Normal("mu")
    laplace(pm.Normal("x", mu, 1, shape=n).sum(), "a")
    gaussian(pm.Normal("y", mu, 2, shape=n + 1), "b")


@entry()
def hierarchy(n):
    top = pm.Normal("top")
    m = pm.Normal("m", top, pm.HalfNormal("spread"), shape=2)
    y = pm.Normal("y", m[np.arange(n) % 2], 0.7)
    laplace(y, bounds=(-2, 2))


@entry()
def autoregression(n):
    """Of second order, with a constant; its first entries have a scale that moves as well."""
    rhos, sigma = pm.Normal("rhos", 0, 0.5, shape=3), pm.HalfNormal("sigma")
    start = pm.Normal.dist(0, 2 * sigma)
    m = pm.AR("m", rhos, sigma=sigma, constant=True, init_dist=start, shape=5)
    laplace(pm.Normal("y", m[np.arange(n) % 5], 0.7), bounds=(-2, 2))


@entry()
def autoregressions(n):
    """Of first order, one for each group."""
    rho, sigma = pm.Normal("rho", 0, 0.5, shape=(2, 1)), pm.HalfNormal("sigma", shape=2)
    m = pm.AR("m", rho, sigma=sigma, init_dist=pm.Normal.dist(0, 1), shape=(2, 3))
    laplace(pm.Normal("y", m[np.arange(n) % 2, np.arange(n) % 3], 0.7), bounds=(-2, 2))


@entry()
def random_walk(n):
    drift, sigma = pm.Normal("drift"), pm.HalfNormal("sigma")
    start = pm.Laplace.dist(drift, sigma)
    m = pm.RandomWalk("m", init_dist=start, innovation_dist=pm.Normal.dist(drift, sigma), shape=4)
    laplace(pm.Normal("y", m[np.arange(n) % 4], 0.7), bounds=(-2, 2))


@entry()
def random_walks(n):
    sigma = pm.HalfNormal("sigma", shape=2)
    m = pm.GaussianRandomWalk("m", sigma=sigma, init_dist=pm.Normal.dist(), shape=(2, 3))
    laplace(pm.Normal("y", m[np.arange(n) % 2, np.arange(n) % 3], 0.7), bounds=(-2, 2))


@entry()
def walks_of_records(n):
    """A walk for each record, with drift, and a level that its scale moves, too."""
    drift, sigma = pm.Normal("drift"), pm.HalfNormal("sigma")
    start = pm.Laplace.dist(drift, sigma)
    x = pm.RandomWalk("x", init_dist=start, innovation_dist=pm.Normal.dist(drift, sigma), shape=(n, 3))
    laplace(dp.record_sum(x))


@entry()
def walks_of_records_with_scales_of_their_own(n):
    x = pm.GaussianRandomWalk(
        "x", sigma=pm.HalfNormal("sigma") * (1 + A[:n, 0] ** 2), init_dist=pm.Normal.dist(), shape=(n, 3)
    )
    laplace(dp.record_sum(dp.clamp(x, -2, 2)))
    gaussian(x[:, -1], "last")


@entry()
def autoregressive_records(n):
    """Of second order, with a constant; their first entries have a scale that moves as well."""
    rhos, sigma = pm.Normal("rhos", 0, 0.5, shape=3), pm.HalfNormal("sigma")
    start = pm.Normal.dist(0, 2 * sigma)
    x = pm.AR("x", rhos, sigma=sigma, constant=True, init_dist=start, shape=(n, 5))
    laplace(dp.record_sum(pt.stack([x[:, 0], x[:, -1], x[:, 1] * x[:, 2]], axis=1)))


@entry()
def autoregressive_records_behind_others(n):
    """Coefficients by record, and outcomes of the last entry."""
    rho = pm.Normal("rho", 0, 0.5) * A[:n, :1]
    x = pm.AR("x", rho, sigma=pm.HalfNormal("sigma"), init_dist=pm.Normal.dist(), shape=(n, 3))
    laplace(pm.Normal("y", x[:, -1], 0.7), bounds=(-2, 2))


@entry()
def walks_of_vectors(n):
    scale = pm.HalfNormal("scale")
    start = pm.MvNormal.dist(np.zeros(2), np.eye(2))
    cov = scale**2 * np.array([[1.0, 0.4], [0.4, 2.0]])
    x = pm.MvGaussianRandomWalk("x", mu=np.zeros(2), cov=cov, init_dist=start, shape=(n, 3, 2))
    laplace(dp.record_sum(x[:, :, 0] * x[:, :, 1]))


@entry()
def walks_by_gamma_steps(n):
    steps = pm.Gamma.dist(2, pm.Gamma("rate", 3, 2))
    x = pm.RandomWalk("x", init_dist=pm.Normal.dist(), innovation_dist=steps, shape=(n, 3))
    laplace(dp.record_sum(x))


@entry()
def walks_by_heavy_tailed_steps(n):
    nu, drift, sigma = pm.Gamma("nu", 9, 2), pm.Normal("drift"), pm.HalfNormal("sigma")
    steps = pm.StudentT.dist(nu, mu=drift, sigma=sigma)
    x = pm.RandomWalk("x", init_dist=pm.Normal.dist(), innovation_dist=steps, shape=(n, 3))
    laplace(dp.record_sum(x))


@entry()
def walks_from_a_law_that_nothing_moves(n):
    """The start has no form of its own, and needs none."""
    steps = pm.Normal.dist(0, pm.HalfNormal("sigma"))
    start = pm.TruncatedNormal.dist(0, 1, lower=0)
    laplace(dp.record_sum(pm.RandomWalk("x", init_dist=start, innovation_dist=steps, shape=(n, 3))))


@entry()
def walks_by_counts(n):
    rate = pm.Gamma("rate", 3, 2)
    start, steps = pm.Poisson.dist(2 * rate), pm.Poisson.dist(rate)
    laplace(dp.record_sum(pm.RandomWalk("x", init_dist=start, innovation_dist=steps, shape=(n, 3))))


@entry()
def function_of_sums(n):
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    gaussian((x**2).mean() - x.mean() ** 2)


@entry(smallest=2)
def general(n):
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=n)
    pm.Potential("rows", -((x - 0.5) ** 2))
    gaussian(pt.sort(x)[n // 2])
    laplace(x.sum())


@entry()
def correlated_parameters(n):
    """A parameter whose transform depends on another parameter, and a Cholesky factor."""
    lo = pm.Normal("lo")
    top = pm.Uniform("top", lo, lo + 2)
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(shape=2))
    x = pm.MvNormal("x", pt.stack([lo, top]), chol=chol, shape=(n, 2))
    laplace(x.sum(axis=0))


# Compiled in every run; the others with the statistical suites only, for the time it takes.
CORE = {"clamped mean", "categorical", "multivariate normal"}  # fmt: skip
EVERY = pytest.mark.parametrize(
    "entry",
    [pytest.param(e, id=e.name, marks=[] if e.name in CORE else [pytest.mark.statistical]) for e in ZOO],
)
