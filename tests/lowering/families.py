"""One row per univariate distribution of PyMC: how to build it, where to try it, what SciPy calls it."""
# ruff: noqa: E501 - a table reads best with one row to a line

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats


@dataclass(frozen=True)
class Family:
    """A distribution as a function of its parameters, which may be numbers or have a number for each row."""

    name: str
    build: Callable[..., Any]
    params: tuple[float, ...]
    values: tuple[float, ...]  # where the log density is compared; the first two also its gradient
    scipy: Callable[..., Any] | None = None
    covers: str = ""  # the class in pymc.distributions, if it is not `name`
    invalid: tuple[float, ...] | None = None  # parameters outside the domain
    cdf: Callable[..., Any] | None = None  # where SciPy has none and pm.logcdf neither
    improper: bool = False

    def __str__(self) -> str:
        return self.name


def _vector(*entries):
    """Put entries together, for each row where they have rows."""
    return pt.stack(pt.broadcast_arrays(*(pt.as_tensor(e, dtype="float64") for e in entries)), axis=-1)


def _asymmetric_laplace(kappa, mu, b):
    return stats.laplace_asymmetric(kappa, loc=mu, scale=1 / b)


def _triangular(lower, c, upper):
    return stats.triang((c - lower) / (upper - lower), loc=lower, scale=upper - lower)


def _truncnorm(mu, sigma, lower, upper):
    return stats.truncnorm((lower - mu) / sigma, (upper - mu) / sigma, loc=mu, scale=sigma)


def _von_mises_cdf(x, mu, kappa):
    law = stats.vonmises(kappa, loc=mu)  # on the whole line; PyMC's is on [-pi, pi]
    return law.cdf(x) - law.cdf(-np.pi)


GRID = np.linspace(-2, 3, 21)
BUMP = np.exp(-0.5 * GRID**2) + 0.3

CONTINUOUS = [
    Family("Uniform", pm.Uniform.dist, (-1.0, 2.0), (0.3, 1.2, 2.5), lambda a, b: stats.uniform(a, b - a), invalid=(2.0, -1.0)),
    Family("Flat", lambda: pm.Flat.dist(), (), (0.3, -1.2), improper=True),
    Family("HalfFlat", lambda: pm.HalfFlat.dist(), (), (0.3, 1.2, -1.0), improper=True),
    Family("Normal", pm.Normal.dist, (0.4, 1.7), (0.3, -1.2, 9.0), stats.norm, invalid=(0.4, -1.7)),
    Family("TruncatedNormal", lambda m, s, a, b: pm.TruncatedNormal.dist(mu=m, sigma=s, lower=a, upper=b), (0.4, 1.7, -1.0, 2.0), (0.3, -0.5, 2.5), _truncnorm, invalid=(0.4, -1.7, -1.0, 2.0)),
    Family("HalfNormal", pm.HalfNormal.dist, (1.7,), (0.3, 1.2, -1.0), lambda s: stats.halfnorm(scale=s), invalid=(-1.7,)),
    Family("Wald", pm.Wald.dist, (1.3, 2.1), (0.3, 1.2, -1.0), lambda m, lam: stats.invgauss(m / lam, scale=lam), invalid=(-1.3, 2.1)),
    Family("Beta", pm.Beta.dist, (1.3, 2.1), (0.3, 0.6, 1.5), stats.beta, invalid=(-1.3, 2.1)),
    Family("Kumaraswamy", pm.Kumaraswamy.dist, (1.3, 2.1), (0.3, 0.6, 1.5), invalid=(-1.3, 2.1)),
    Family("Exponential", pm.Exponential.dist, (1.3,), (0.3, 1.2, -1.0), lambda lam: stats.expon(scale=1 / lam), invalid=(-1.3,)),
    Family("Laplace", pm.Laplace.dist, (0.4, 1.7), (0.3, -1.2, 9.0), stats.laplace, invalid=(0.4, -1.7)),
    Family("AsymmetricLaplace", pm.AsymmetricLaplace.dist, (1.3, 0.4, 1.7), (0.3, 1.2, -2.0), _asymmetric_laplace, invalid=(-1.3, 0.4, 1.7)),
    Family("LogNormal", pm.LogNormal.dist, (0.4, 0.7), (0.3, 1.2, -1.0), lambda m, s: stats.lognorm(s, scale=np.exp(m)), invalid=(0.4, -0.7)),
    Family("StudentT", lambda nu, m, s: pm.StudentT.dist(nu=nu, mu=m, sigma=s), (3.3, 0.4, 1.7), (0.3, -1.2, 9.0), stats.t, invalid=(3.3, 0.4, -1.7)),
    Family("SkewStudentT", lambda a, b, m, s: pm.SkewStudentT.dist(a=a, b=b, mu=m, sigma=s), (2.1, 3.3, 0.4, 1.7), (0.3, -1.2, 4.0), stats.jf_skew_t, invalid=(-2.1, 3.3, 0.4, 1.7)),
    Family("Pareto", pm.Pareto.dist, (2.1, 0.7), (0.9, 1.2, 0.5), lambda a, m: stats.pareto(a, scale=m), invalid=(-2.1, 0.7)),
    Family("Cauchy", pm.Cauchy.dist, (0.4, 1.7), (0.3, -1.2, 9.0), stats.cauchy, invalid=(0.4, -1.7)),
    Family("HalfCauchy", pm.HalfCauchy.dist, (1.7,), (0.3, 1.2, -1.0), lambda b: stats.halfcauchy(scale=b), invalid=(-1.7,)),
    Family("Gamma", pm.Gamma.dist, (2.1, 1.3), (0.3, 1.2, -1.0), lambda a, b: stats.gamma(a, scale=1 / b), invalid=(-2.1, 1.3)),
    Family("InverseGamma", pm.InverseGamma.dist, (2.1, 1.3), (0.3, 1.2, -1.0), lambda a, b: stats.invgamma(a, scale=b), invalid=(-2.1, 1.3)),
    Family("ChiSquared", pm.ChiSquared.dist, (2.3,), (0.3, 1.2, -1.0), stats.chi2, invalid=(-2.3,)),
    Family("Weibull", pm.Weibull.dist, (1.3, 2.1), (0.3, 1.2, -1.0), lambda a, b: stats.weibull_min(a, scale=b), invalid=(-1.3, 2.1)),
    Family("HalfStudentT", pm.HalfStudentT.dist, (3.3, 1.7), (0.3, 1.2, -1.0), cdf=lambda x, nu, s: 2 * stats.t(nu, 0, s).cdf(x) - 1, invalid=(3.3, -1.7)),
    Family("ExGaussian", lambda m, s, nu: pm.ExGaussian.dist(mu=m, sigma=s, nu=nu), (0.4, 0.7, 1.3), (0.3, 1.2, -1.0), lambda m, s, nu: stats.exponnorm(nu / s, loc=m, scale=s), invalid=(0.4, -0.7, 1.3)),
    Family("VonMises", pm.VonMises.dist, (0.4, 1.7), (0.3, -1.2, 3.5), cdf=_von_mises_cdf, invalid=(0.4, -1.7)),
    Family("SkewNormal", lambda m, s, a: pm.SkewNormal.dist(mu=m, sigma=s, alpha=a), (0.4, 1.7, 2.1), (0.3, -1.2, 9.0), lambda m, s, a: stats.skewnorm(a, m, s), invalid=(0.4, -1.7, 2.1)),
    Family("Triangular", lambda a, c, b: pm.Triangular.dist(lower=a, c=c, upper=b), (-1.0, 0.5, 2.0), (0.3, 1.2, 2.5), _triangular, invalid=(-1.0, 3.0, 2.0)),
    Family("Gumbel", pm.Gumbel.dist, (0.4, 1.7), (0.3, -1.2, 9.0), stats.gumbel_r, invalid=(0.4, -1.7)),
    Family("Rice", lambda nu, s: pm.Rice.dist(nu=nu, sigma=s), (1.3, 0.7), (0.3, 1.2, -1.0), lambda nu, s: stats.rice(nu / s, scale=s), invalid=(1.3, -0.7)),
    Family("Logistic", pm.Logistic.dist, (0.4, 1.7), (0.3, -1.2, 9.0), stats.logistic, invalid=(0.4, -1.7)),
    Family("LogitNormal", pm.LogitNormal.dist, (0.4, 0.7), (0.3, 0.6, 1.5), cdf=lambda x, m, s: stats.norm(m, s).cdf(np.log(x / (1 - x))), invalid=(0.4, -0.7)),
    Family("Interpolated", lambda: pm.Interpolated.dist(GRID, BUMP), (), (0.3, -1.2, 4.0), cdf=lambda x: np.interp(x, *_interpolated_cdf())),
    Family("Moyal", pm.Moyal.dist, (0.4, 1.7), (0.3, -1.2, 9.0), stats.moyal, invalid=(0.4, -1.7)),
]  # fmt: skip


def _interpolated_cdf():
    fine = np.linspace(GRID[0], GRID[-1], 20001)
    density = np.interp(fine, GRID, BUMP)
    cdf = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return fine, cdf / cdf[-1]


DISCRETE = [
    Family("Binomial", lambda p: pm.Binomial.dist(n=7, p=p), (0.3,), (2, 3, 8), lambda p: stats.binom(7, p), invalid=(1.3,)),
    Family("BetaBinomial", lambda a, b: pm.BetaBinomial.dist(n=7, alpha=a, beta=b), (1.3, 2.1), (2, 3, 8), lambda a, b: stats.betabinom(7, a, b), invalid=(-1.3, 2.1)),
    Family("Bernoulli", lambda p: pm.Bernoulli.dist(p=p), (0.3,), (0, 1, 2), stats.bernoulli, invalid=(1.3,)),
    Family("DiscreteWeibull", pm.DiscreteWeibull.dist, (0.6, 1.3), (0, 2, -1), invalid=(1.6, 1.3)),
    Family("Poisson", pm.Poisson.dist, (2.3,), (2, 3, -1), stats.poisson, invalid=(-2.3,)),
    Family("NegativeBinomial", lambda m, a: pm.NegativeBinomial.dist(mu=m, alpha=a), (2.3, 1.7), (2, 3, -1), lambda m, a: stats.nbinom(a, a / (a + m)), invalid=(-2.3, 1.7)),
    Family("Geometric", pm.Geometric.dist, (0.3,), (2, 3, 0), stats.geom, invalid=(1.3,)),
    Family("HyperGeometric", lambda: pm.HyperGeometric.dist(N=30, k=12, n=9), (), (2, 3, 10), lambda: stats.hypergeom(30, 12, 9)),
    Family("DiscreteUniform", lambda: pm.DiscreteUniform.dist(-1, 4), (), (2, 3, 5), lambda: stats.randint(-1, 5)),
    Family("Categorical", lambda p: pm.Categorical.dist(p=_vector(p, 0.5 - p, 0.5)), (0.3,), (0, 2, 3), cdf=lambda k, p: np.cumsum([p, 0.5 - p, 0.5])[np.asarray(k, int)], invalid=(1.3,)),
    Family("OrderedLogistic", lambda e: pm.OrderedLogistic.dist(eta=e, cutpoints=np.array([-1.0, 0.5])), (0.4,), (0, 2, 3), cdf=lambda k, e: np.append(stats.logistic.cdf(np.array([-1.0, 0.5]) - e), 1.0)[np.asarray(k, int)]),
    Family("OrderedProbit", lambda e: pm.OrderedProbit.dist(eta=e, cutpoints=np.array([-1.0, 0.5])), (0.4,), (0, 2, 3), cdf=lambda k, e: np.append(stats.norm.cdf(np.array([-1.0, 0.5]) - e), 1.0)[np.asarray(k, int)]),
    Family("DiracDelta", lambda: pm.DiracDelta.dist(2), (), (2, 3), cdf=lambda k: np.asarray(k) >= 2),
]  # fmt: skip


def _mixture_cdf(x, w, m, s):
    return w * stats.norm(m, s).cdf(x) + (1 - w) * stats.gamma(2.0).cdf(x)


def _zero_inflated(base):
    return lambda k, psi, *params: (1 - psi) + psi * base(*params).cdf(k)


def _hurdle(base, discrete=True):
    def cdf(x, psi, *params):
        law = base(*params)
        if not discrete:
            return (1 - psi) * (x >= 0) + psi * law.cdf(x)
        return (1 - psi) + psi * (law.cdf(x) - law.cdf(0)) / law.sf(0)

    return cdf


def _truncated(base, lower, upper, step=0.0):
    def cdf(x, *params):
        law = base(*params)
        low = law.cdf(lower - step)
        return (law.cdf(np.minimum(x, upper)) - low) / (law.cdf(upper) - low)

    return cdf


def _censored(base, lower, upper):
    def cdf(x, *params):
        return np.where(np.asarray(x) >= upper, 1.0, base(*params).cdf(x))

    return cdf


nbinom = lambda m, a: stats.nbinom(a, a / (a + m))  # noqa: E731

COMPOUND = [
    Family("Truncated-Normal", lambda m, s: pm.Truncated.dist(pm.Normal.dist(m, s), lower=-1.0, upper=2.0), (0.4, 1.7), (0.3, -0.5, 2.5), lambda m, s: _truncnorm(m, s, -1.0, 2.0), covers="Truncated", invalid=(0.4, -1.7)),
    Family("Truncated-Gumbel", lambda m, s: pm.Truncated.dist(pm.Gumbel.dist(m, s), lower=-1.0, upper=2.0), (0.4, 1.7), (0.3, -0.5, 2.5), cdf=_truncated(stats.gumbel_r, -1.0, 2.0), covers="Truncated", invalid=(0.4, -1.7)),
    Family("Truncated-Gamma", lambda a, b: pm.Truncated.dist(pm.Gamma.dist(a, b), lower=0.2, upper=2.0), (2.1, 1.3), (0.3, 0.5, 2.5), cdf=_truncated(lambda a, b: stats.gamma(a, scale=1 / b), 0.2, 2.0), covers="Truncated", invalid=(-2.1, 1.3)),
    Family("Truncated-Poisson", lambda m: pm.Truncated.dist(pm.Poisson.dist(m), lower=1, upper=6), (2.3,), (2, 3, 0), cdf=_truncated(stats.poisson, 1, 6, 1.0), covers="Truncated", invalid=(-2.3,)),
    Family("Censored-Normal", lambda m, s: pm.Censored.dist(pm.Normal.dist(m, s), lower=None, upper=2.0), (0.4, 1.7), (0.3, -0.5, 2.0, 2.5), cdf=_censored(stats.norm, -1.0, 2.0), covers="Censored", invalid=(0.4, -1.7)),
    Family("Censored-Poisson", lambda m: pm.Censored.dist(pm.Poisson.dist(m), lower=None, upper=4), (2.3,), (2, 4, 5), cdf=_censored(stats.poisson, 1, 4), covers="Censored", invalid=(-2.3,)),
    Family("Mixture", lambda w, m, s: pm.Mixture.dist(_vector(w, 1 - w), [pm.Normal.dist(m, s), pm.Gamma.dist(2.0, 1.0)]), (0.3, 0.4, 1.7), (0.3, 1.2, -1.0), cdf=_mixture_cdf, invalid=(1.3, 0.4, 1.7)),
    Family("Mixture-one-component", lambda w, m: pm.Mixture.dist(_vector(w, 1 - w), pm.Poisson.dist(_vector(m, 9.0))), (0.3, 2.3), (2, 3, -1), covers="Mixture", cdf=lambda k, w, m: w * stats.poisson(m).cdf(k) + (1 - w) * stats.poisson(9.0).cdf(k), invalid=(1.3, 2.3)),
    Family("NormalMixture", lambda w, m, s: pm.NormalMixture.dist(w=_vector(w, 1 - w), mu=_vector(m, 2.0), sigma=pt.as_tensor(s)[..., None]), (0.3, 0.4, 0.7), (0.3, 1.2, -1.0), cdf=lambda x, w, m, s: w * stats.norm(m, s).cdf(x) + (1 - w) * stats.norm(2.0, s).cdf(x), invalid=(0.3, 0.4, -0.7)),
    Family("ZeroInflatedPoisson", pm.ZeroInflatedPoisson.dist, (0.7, 2.3), (0, 3, -1), cdf=_zero_inflated(stats.poisson), invalid=(1.7, 2.3)),
    Family("ZeroInflatedBinomial", lambda psi, p: pm.ZeroInflatedBinomial.dist(psi=psi, n=7, p=p), (0.7, 0.3), (0, 3, 8), cdf=_zero_inflated(lambda p: stats.binom(7, p)), invalid=(1.7, 0.3)),
    Family("ZeroInflatedNegativeBinomial", lambda psi, m, a: pm.ZeroInflatedNegativeBinomial.dist(psi=psi, mu=m, alpha=a), (0.7, 2.3, 1.7), (0, 3, -1), cdf=_zero_inflated(nbinom), invalid=(1.7, 2.3, 1.7)),
    Family("HurdlePoisson", pm.HurdlePoisson.dist, (0.7, 2.3), (0, 3, -1), cdf=_hurdle(stats.poisson), invalid=(1.7, 2.3)),
    Family("HurdleNegativeBinomial", lambda psi, m, a: pm.HurdleNegativeBinomial.dist(psi=psi, mu=m, alpha=a), (0.7, 2.3, 1.7), (0, 3, -1), cdf=_hurdle(nbinom), invalid=(1.7, 2.3, 1.7)),
    Family("HurdleGamma", lambda psi, a, b: pm.HurdleGamma.dist(psi=psi, alpha=a, beta=b), (0.7, 2.1, 1.3), (0.3, 1.2, 0.0), cdf=_hurdle(lambda a, b: stats.gamma(a, scale=1 / b), False), invalid=(1.7, 2.1, 1.3)),
    Family("HurdleLogNormal", lambda psi, m, s: pm.HurdleLogNormal.dist(psi=psi, mu=m, sigma=s), (0.7, 0.4, 0.7), (0.3, 1.2, 0.0), cdf=_hurdle(lambda m, s: stats.lognorm(s, scale=np.exp(m)), False), invalid=(1.7, 0.4, 0.7)),
    Family("CustomDist", lambda m, s: pm.CustomDist.dist(m, s, dist=lambda m, s, size: pm.math.exp(pm.Normal.dist(m, s, size=size))), (0.4, 0.7), (0.3, 1.2), lambda m, s: stats.lognorm(s, scale=np.exp(m)), invalid=(0.4, -0.7)),
]  # fmt: skip

FAMILIES = CONTINUOUS + DISCRETE + COMPOUND


# Lowered in every run; the others with the statistical suites, for the time that compilation takes.
CORE = {"Uniform", "Normal", "Gamma", "Binomial", "Poisson", "Categorical", "NormalMixture", "CustomDist"}  # fmt: skip


def over(families):
    """Run a test for some families."""
    marks = {True: [], False: [pytest.mark.statistical]}
    params = [pytest.param(f, id=f.name, marks=marks[f.name in CORE]) for f in families]
    return pytest.mark.parametrize("family", params)
