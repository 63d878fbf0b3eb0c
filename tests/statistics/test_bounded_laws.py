"""Exact posteriors of models whose laws exist for a part of the parameters only, by `pm.sample` on its own.

A step that leaves a record's law out of its target must not leave out the law's domain: without it chains
wander where no record has a law, and look healthy there. Exact answers are integrals over one parameter; each
record is integrated out by its quantile function on a fine grid, or by enumeration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as dp
from tests.statistics import harness
from tests.statistics.marginal import from_log_density

pytestmark = pytest.mark.compiles(3)

Z, SCALE = np.array([0.2, 1.1, 0.7]), 0.8
PRIOR = (1.0, 0.7)
X = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
GROUP = np.array([0, 1, 0, 1, 1, 0])
# where quantiles are taken; a law with no quick ones is summed over values, which takes more of them
U, FINE = (np.arange(1000) + 0.5) / 1000, (np.arange(4000) + 0.5) / 4000


@dataclass
class Law:
    """A record's law given b in PyMC and in SciPy, and where b may be."""

    declare: Callable
    scipy: Callable
    low: float = 0.0
    high: float = 6.0
    prior: tuple[float, float] = PRIOR
    grid: tuple[float, float] | None = None  # where a density is integrated that has no quick quantiles

    def log_likelihood(self, b):
        """Of the releases of each record, at an array of b."""
        if self.grid is not None:
            low, high = self.grid
            values, law = low + (high - low) * FINE, self.scipy(np.asarray(b)[:, None])
            weights = law.pdf(values) * (high - low)
            dense = [(weights * stats.laplace.pdf(z, values, SCALE)).mean(axis=1) for z in Z]
            return np.log(dense).sum(axis=0)
        law = self.scipy(np.asarray(b)[:, None])
        if isinstance(law.dist, stats.rv_discrete):
            values = np.arange(200)  # with b up to 6, more have a probability below 1e-14
            mass = law.pmf(values)
            dense = [mass @ stats.laplace.pdf(z, values, SCALE) for z in Z]
            return np.log(dense).sum(axis=0)
        values = law.ppf(U)
        dense = [stats.laplace.pdf(z, values, SCALE).mean(axis=1) for z in Z]
        return np.log(dense).sum(axis=0)


LAWS = {
    "normal": Law(lambda b: pm.Normal("y", 0, b, shape=3), lambda b: stats.norm(0, b)),
    "laplace": Law(lambda b: pm.Laplace("y", 0, b, shape=3), lambda b: stats.laplace(0, b)),
    "logistic": Law(lambda b: pm.Logistic("y", 0, b, shape=3), lambda b: stats.logistic(0, b)),
    "gumbel": Law(lambda b: pm.Gumbel("y", 0, b, shape=3), lambda b: stats.gumbel_r(0, b)),
    "half normal": Law(lambda b: pm.HalfNormal("y", b, shape=3), lambda b: stats.halfnorm(0, b)),
    "log normal": Law(lambda b: pm.LogNormal("y", 0, b, shape=3), lambda b: stats.lognorm(b)),
    "exponential": Law(lambda b: pm.Exponential("y", b, shape=3), lambda b: stats.expon(0, 1 / b)),
    "gamma": Law(lambda b: pm.Gamma("y", b, 1, shape=3), lambda b: stats.gamma(b)),
    "inverse gamma": Law(lambda b: pm.InverseGamma("y", 4, b, shape=3), lambda b: stats.invgamma(4, 0, b)),
    "beta": Law(lambda b: pm.Beta("y", b, 1.5, shape=3), lambda b: stats.beta(b, 1.5)),
    "weibull": Law(lambda b: pm.Weibull("y", b, 1, shape=3), lambda b: stats.weibull_min(b)),
    "uniform": Law(
        lambda b: pm.Uniform("y", 0, b, shape=3, default_transform=None), lambda b: stats.uniform(0, b)
    ),
    "wald": Law(
        lambda b: pm.Wald("y", b, 2, shape=3), lambda b: stats.invgauss(b / 2, 0, 2), grid=(0, 60)
    ),
    "ex-gaussian": Law(
        lambda b: pm.ExGaussian("y", mu=0, sigma=0.3, nu=b, shape=3),
        lambda b: stats.exponnorm(b / 0.3, 0, 0.3), grid=(-3, 60),
    ),
    "skew normal": Law(
        lambda b: pm.SkewNormal("y", mu=0, sigma=b, alpha=2, shape=3), lambda b: stats.skewnorm(2, 0, b),
        grid=(-10, 20),
    ),
    "asymmetric Laplace": Law(
        lambda b: pm.AsymmetricLaplace("y", kappa=0.6, mu=0, b=b, shape=3),
        lambda b: stats.laplace_asymmetric(0.6, 0, 1 / b), low=0.02, grid=(-30, 60),
    ),
    "triangular": Law(
        lambda b: pm.Triangular("y", lower=-1, c=3 * pm.math.invlogit(b) - 1, upper=2, shape=3),
        lambda b: stats.triang(special.expit(b), -1, 3), low=-4,
    ),
    "poisson": Law(lambda b: pm.Poisson("y", b, shape=3), lambda b: stats.poisson(b)),
    "negative binomial": Law(
        lambda b: pm.NegativeBinomial("y", b, 1.2, shape=3), lambda b: stats.nbinom(1.2, 1.2 / (1.2 + b))
    ),
    "binomial": Law(
        lambda b: pm.Binomial("y", 4, b, shape=3), lambda b: stats.binom(4, b), 0, 1, (0.5, 0.7)
    ),
    "geometric": Law(lambda b: pm.Geometric("y", b, shape=3), lambda b: stats.geom(b), 0, 1, (0.5, 0.7)),
    "bernoulli": Law(
        lambda b: pm.Bernoulli("y", b, shape=3), lambda b: stats.bernoulli(b), 0, 1, (0.5, 0.7)
    ),
}  # fmt: skip


def sampled(model, draws=3000, chains=2):
    return pm.sample(
        draws, tune=1000, chains=chains, cores=1, model=model, random_seed=20261125, progressbar=False,
        compute_convergence_checks=False,
    ).posterior  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_each_record_is_released(name):
    law = LAWS[name]
    with pm.Model() as model:
        law.declare(pm.Normal("b", *law.prior))
        dp.LaplaceMechanism("z", model["y"], scale=SCALE, observed=Z)
    exact = from_log_density(
        lambda b: stats.norm.logpdf(b, *law.prior) + law.log_likelihood(b), law.low + 1e-6, law.high - 1e-6,
        # quantiles are slow, and these ends are those of the posterior; next to 0 a Wald law is too narrow
        refine=name == "wald",
    )  # fmt: skip
    draws = sampled(model)["b"].values
    assert law.low <= draws.min() and draws.max() <= law.high
    verdict = harness.mc_z(draws, exact, prefix=f"{name} ")
    assert verdict.passed, verdict


def _two(log_density, first, second, n=1500):
    """Means and sds of two parameters from an unnormalised density on a grid."""
    a, b = (np.linspace(*ends, n, endpoint=False) + (ends[1] - ends[0]) / (2 * n) for ends in (first, second))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(np.isnan(v := log_density(a[:, None], b[None, :])), -np.inf, v)
    p = np.exp(logs - logs.max())
    p /= p.sum()
    out = []
    for grid, mass in ((a, p.sum(axis=1)), (b, p.sum(axis=0))):
        mean = grid @ mass
        out.append((mean, np.sqrt(mass @ (grid - mean) ** 2)))
    return out


def agree(posterior, names, exact):
    """Means beside exact ones, in Monte Carlo errors."""
    checks = {}
    for name, (mean, sd) in zip(names, exact, strict=True):
        draws = posterior[name].values
        checks[f"{name} mean"] = (draws.mean() - mean) / float(az.mcse(draws, method="mean"))
        checks[f"{name} sd"] = (draws.std() - sd) / float(az.mcse(draws, method="sd"))
    verdict = harness.two_sample_z(checks)
    assert verdict.passed, verdict


def _normal_laplace(z, variance, scale):
    """Log density of a normal variable and Laplace noise, added."""
    s = np.sqrt(variance)
    k, d = s / scale, np.abs(z) / s
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [k**2 / 2 - k * d + special.log_ndtr(d - k), k**2 / 2 + k * d + special.log_ndtr(-d - k)]
    return np.logaddexp(*parts) - np.log(2 * scale)


def test_a_sum_behind_a_scale_with_a_normal_prior():
    """The plainest case: without the domain the mean of b is .853 for .967, and a tenth of draws negative."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, pm.Normal("b", 1, 0.7), shape=5)
        dp.LaplaceMechanism("z", dp.record_sum(x), scale=2, observed=1.0)
    exact = from_log_density(
        lambda b: stats.norm.logpdf(b, 1, 0.7) + _normal_laplace(1.0, 5 * b**2, 2.0), 1e-6, 6
    )
    assert exact.mean == pytest.approx(0.967, abs=1e-3)
    draws = sampled(model, 4000)["b"].values
    assert draws.min() > 0
    verdict = harness.mc_z(draws, exact)
    assert verdict.passed, verdict


def test_a_scale_that_is_linear_in_a_covariate():
    with pm.Model() as model:
        s0, s1 = pm.Normal("s0", 1, 0.5), pm.Normal("s1", 0, 0.7)
        y = pm.Normal("y", 0, s0 + s1 * (X + 0.3))
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=3.0)

    def log_density(a, b):
        scales = a + b * (X + 0.3)[:, None, None]
        inside = np.where((scales > 0).all(axis=0), 0.0, -np.inf)
        prior = stats.norm.logpdf(a, 1, 0.5) + stats.norm.logpdf(b, 0, 0.7)
        return inside + prior + _normal_laplace(3.0, (scales**2).sum(axis=0), 1.0)

    agree(sampled(model, 5000), ["s0", "s1"], _two(log_density, (0, 4), (-3, 3), 700))


def test_probabilities_that_have_to_add_up():
    """Without the domain nine tenths of all draws are impossible."""
    z, epsilon = np.array([0, 0, 1, 2, 0, 1]), 1.0
    with pm.Model() as model:
        a, b = pm.Uniform("a", 0, 1), pm.Uniform("b", 0, 1)
        c = pm.Categorical("c", pt.stack([a, b, 1 - a - b]), shape=len(z))
        dp.RandomizedResponse("z", c, epsilon=epsilon, n_categories=3, observed=z)
    truth = np.exp(epsilon) / (np.exp(epsilon) + 2)

    def log_density(a, b):
        p = [a + 0 * b, b + 0 * a, 1 - a - b]
        return np.where(
            a + b < 1, sum(np.log((1 - truth) / 2 * (1 - p[k]) + truth * p[k]) for k in z), -np.inf
        )

    posterior = sampled(model, 5000)
    assert float((posterior["a"] + posterior["b"]).max()) <= 1
    agree(posterior, ["a", "b"], _two(log_density, (0, 1), (0, 1)))


def test_a_linear_probability_model():
    z, scale = 3.0, 1.0
    with pm.Model() as model:
        y = pm.Bernoulli("y", pm.Normal("b", 0.5, 0.5) + 0.2 * GROUP)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=scale, observed=z)

    def log_density(b):
        b = np.asarray(b)[:, None]
        total = 0.0
        for values in product((0, 1), repeat=len(GROUP)):
            p = np.where(np.array(values), b + 0.2 * GROUP, 1 - b - 0.2 * GROUP)
            total = total + p.prod(axis=1) * stats.laplace.pdf(z, sum(values), scale)
        return np.log(total) + stats.norm.logpdf(b[:, 0], 0.5, 0.5)

    draws = sampled(model, 4000)["b"].values
    assert draws.min() >= 0 and draws.max() <= 0.8
    verdict = harness.mc_z(draws, from_log_density(log_density, 1e-9, 0.8 - 1e-9))
    assert verdict.passed, verdict


def test_uniform_records_between_random_ends():
    """Chains used to leave this domain and never come back."""
    z = np.array([0.3, -0.6, 0.9])
    with pm.Model() as model:
        lo, hi = pm.Normal("lo", -1, 1), pm.Normal("hi", 1, 1)
        y = pm.Uniform("y", lo, hi, shape=len(z), default_transform=None)
        dp.LaplaceMechanism("z", y, scale=0.5, observed=z)

    def log_density(lo, hi):
        prior = stats.norm.logpdf(lo, -1, 1) + stats.norm.logpdf(hi, 1, 1)
        noise = [
            np.log((stats.laplace.cdf(hi, v, 0.5) - stats.laplace.cdf(lo, v, 0.5)) / (hi - lo)) for v in z
        ]
        return np.where(lo < hi, prior + sum(noise), -np.inf)

    posterior = sampled(model, 5000)
    assert bool((posterior["lo"] < posterior["hi"]).all())
    agree(posterior, ["lo", "hi"], _two(log_density, (-6, 4), (-4, 6)))


@pytest.mark.parametrize("scheme", ["counts", "answers"])
def test_probabilities_that_add_up_in_a_part_only(scheme):
    """Each is a probability wherever a is, but their sum is one between 0 and a half only."""
    z, answers, epsilon = np.array([3.0, 0.0, 0.0]), np.array([0, 1, 0]), 1.0
    with pm.Model() as model:
        a = pm.Normal("a", 0.25, 0.15)
        c = pm.Categorical("c", pt.stack([pt.abs(a), pt.abs(0.5 - a), pt.as_tensor(0.5)]), shape=3)
        if scheme == "counts":
            dp.LaplaceMechanism("z", dp.record_sum(pt.eq(c[:, None], np.arange(3))), scale=1.0, observed=z)
        else:
            dp.RandomizedResponse("z", c, epsilon=epsilon, n_categories=3, observed=answers)
    truth = np.exp(epsilon) / (np.exp(epsilon) + 2)

    def log_density(a):
        a = np.asarray(a)
        p, total = np.array([a, 0.5 - a, 0.5 + 0 * a]), 0.0
        for values in product(range(3), repeat=3):
            if scheme == "counts":
                seen = stats.laplace.pdf(z, np.bincount(values, minlength=3), 1.0).prod()
            else:
                seen = np.where(np.array(values) == answers, truth, (1 - truth) / 2).prod()
            total = total + p[list(values)].prod(axis=0) * seen
        return np.log(total) + stats.norm.logpdf(a, 0.25, 0.15)

    draws = sampled(model, 4000)["a"].values
    # PyMC's law has a density where its probabilities are close to a sum of one, which is a little further
    assert np.isclose(np.abs(draws) + np.abs(0.5 - draws) + 0.5, 1).all()
    verdict = harness.mc_z(draws, from_log_density(log_density, 1e-9, 0.5 - 1e-9))
    assert verdict.passed, verdict


def test_shapes_so_small_that_records_are_rounded():
    """A quantile that is rounded to an end of the support does not give its noise back: no move."""
    with pm.Model() as model:
        a = pm.HalfNormal("a", 1)
        dp.LaplaceMechanism("z", dp.record_sum(pm.Gamma("y", a, 1, shape=3)), scale=0.2, observed=0.1)

    def log_density(t):  # of log a; the sum has a gamma law
        shape = np.exp(t)
        noise = [stats.laplace.pdf(0.1, stats.gamma.ppf(U, 3 * k), 0.2).mean() for k in np.ravel(shape)]
        return np.log(noise).reshape(np.shape(t)) + stats.halfnorm.logpdf(shape) + t

    exact = from_log_density(log_density, -12, 2, panels=40, refine=False)
    # the Monte Carlo error of the law's lower tail is what the draws have to overcome
    verdict = harness.mc_z(np.log(sampled(model, 20_000)["a"].values), exact)
    assert verdict.passed, verdict


def test_whole_numbers_cast_to_bits():
    """Of a binomial record, whether it is zero; a cast to bool is not the record."""
    z, scale = np.array([1.2, 1.0, 0.8, 1.5, -0.3, 1.1]), 0.3
    with pm.Model() as model:
        y = pm.Binomial("y", 5, pm.Beta("p", 1, 1), shape=len(z))
        dp.LaplaceMechanism("z", y.astype("bool"), scale=scale, observed=z)

    def log_density(p):
        none = (1 - np.asarray(p)[..., None]) ** 5
        seen = none * stats.laplace.pdf(z, 0, scale) + (1 - none) * stats.laplace.pdf(z, 1, scale)
        return np.log(seen).sum(axis=-1)

    verdict = harness.mc_z(sampled(model)["p"].values, from_log_density(log_density, 1e-9, 1 - 1e-9))
    assert verdict.passed, verdict
