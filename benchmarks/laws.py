"""Laws of PyMC that a record can have: how its parameters move, and effective draws of the worst of them.

200 records behind clamped sums, of values and of their squares, with Laplace noise; default steps.
"""
# ruff: noqa: E501 - a table reads best with one row to a line

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure
from pymc_dp.query.records import find_record_blocks
from pymc_dp.step_methods.block.parents import ancestors_of_records
from pymc_dp.step_methods.claims import forms_of, is_redrawn
from pymc_dp.step_methods.updates.noncentred import NoNoiseForm

N, EPSILON, TARGET = 200, 1.0, 200.0
CUTS = np.array([-1.0, 0.5])


class Law(NamedTuple):
    """Records as a function of a location and a positive number, each free in the model."""

    build: Callable[..., Any]
    lo: float
    hi: float
    name: str


def location(name, build, lo=-3.0, hi=4.0):
    return Law(build, lo, hi, name)


def positive(name, build, hi=6.0):
    return Law(build, 0.0, hi, name)


# Of m, with a normal prior, and s, with a log-normal one around 1.
LAWS = [
    location("AsymmetricLaplace", lambda m, s, **k: pm.AsymmetricLaplace("x", kappa=1.3, mu=m, b=1 / s, **k)),
    location("Bernoulli", lambda m, s, **k: pm.Bernoulli("x", logit_p=m, **k), 0, 1),
    location("Beta", lambda m, s, **k: pm.Beta("x", alpha=2 * pt.exp(0.3 * m), beta=3 * s, **k), 0, 1),
    location("BetaBinomial", lambda m, s, **k: pm.BetaBinomial("x", n=7, alpha=2 * pt.exp(0.3 * m), beta=2 * s, **k), 0, 7),
    location("Binomial", lambda m, s, **k: pm.Binomial("x", n=7, logit_p=m, **k), 0, 7),
    location("Categorical", lambda m, s, **k: pm.Categorical("x", logit_p=pt.stack([0.0, m, 2 * m]), **k), 0, 2),
    location("Cauchy", lambda m, s, **k: pm.Cauchy("x", m, s, **k)),
    positive("ChiSquared", lambda m, s, **k: pm.ChiSquared("x", 2 * s, **k)),
    location("DiscreteUniform", lambda m, s, **k: pm.DiscreteUniform("x", 0, pt.floor(4 * s), **k), 0, 9),
    location("DiscreteWeibull", lambda m, s, **k: pm.DiscreteWeibull("x", pm.math.invlogit(1 + m), s, **k), 0, 9),
    location("ExGaussian", lambda m, s, **k: pm.ExGaussian("x", m, 0.7, nu=s, **k)),
    positive("Exponential", lambda m, s, **k: pm.Exponential("x", s, **k)),
    positive("Gamma", lambda m, s, **k: pm.Gamma("x", alpha=2 * s, beta=pt.exp(0.3 * m), **k)),
    location("Geometric", lambda m, s, **k: pm.Geometric("x", pm.math.invlogit(m), **k), 1, 9),
    location("Gumbel", lambda m, s, **k: pm.Gumbel("x", m, s, **k)),
    positive("HalfCauchy", lambda m, s, **k: pm.HalfCauchy("x", s, **k)),
    positive("HalfNormal", lambda m, s, **k: pm.HalfNormal("x", s, **k)),
    positive("HalfStudentT", lambda m, s, **k: pm.HalfStudentT("x", nu=4, sigma=s, **k)),
    positive("InverseGamma", lambda m, s, **k: pm.InverseGamma("x", alpha=3, beta=2 * s, **k)),
    positive("Kumaraswamy", lambda m, s, **k: pm.Kumaraswamy("x", 2 * s, 2.0, **k), 1.0),
    location("Laplace", lambda m, s, **k: pm.Laplace("x", m, s, **k)),
    location("Logistic", lambda m, s, **k: pm.Logistic("x", m, s, **k)),
    location("LogitNormal", lambda m, s, **k: pm.LogitNormal("x", m, s, **k), 0, 1),
    positive("LogNormal", lambda m, s, **k: pm.LogNormal("x", m, 0.7 * s, **k)),
    location("Moyal", lambda m, s, **k: pm.Moyal("x", m, s, **k)),
    location("NegativeBinomial", lambda m, s, **k: pm.NegativeBinomial("x", mu=pt.exp(m), alpha=2 * s, **k), 0, 9),
    location("Normal", lambda m, s, **k: pm.Normal("x", m, s, **k)),
    location("OrderedLogistic", lambda m, s, **k: pm.OrderedLogistic("x", eta=m, cutpoints=CUTS, compute_p=False, **k), 0, 2),
    location("OrderedProbit", lambda m, s, **k: pm.OrderedProbit("x", eta=m, cutpoints=CUTS, compute_p=False, **k), 0, 2),
    positive("Pareto", lambda m, s, **k: pm.Pareto("x", 3 * s, 1.0, **k)),
    location("Poisson", lambda m, s, **k: pm.Poisson("x", pt.exp(m), **k), 0, 9),
    positive("Rice", lambda m, s, **k: pm.Rice("x", nu=1.0, sigma=s, **k)),
    location("SkewNormal", lambda m, s, **k: pm.SkewNormal("x", mu=m, sigma=s, alpha=2, **k)),
    location("SkewStudentT", lambda m, s, **k: pm.SkewStudentT("x", a=3, b=4, mu=m, sigma=s, **k)),
    location("StudentT", lambda m, s, **k: pm.StudentT("x", nu=4, mu=m, sigma=s, **k)),
    location("Triangular", lambda m, s, **k: pm.Triangular("x", lower=m - s, c=m, upper=m + 2 * s, **k)),
    location("TruncatedNormal", lambda m, s, **k: pm.TruncatedNormal("x", m, s, lower=-1, upper=3, **k)),
    location("Uniform", lambda m, s, **k: pm.Uniform("x", m - s, m + s, **k)),
    location("VonMises", lambda m, s, **k: pm.VonMises("x", m, 2 * s, **k)),
    positive("Wald", lambda m, s, **k: pm.Wald("x", mu=2 * s, lam=2, **k)),
    positive("Weibull", lambda m, s, **k: pm.Weibull("x", alpha=1.5, beta=2 * s, **k)),
    location("ZeroInflatedBinomial", lambda m, s, **k: pm.ZeroInflatedBinomial("x", psi=0.7, n=7, p=pm.math.invlogit(m), **k), 0, 7),
    location("ZeroInflatedNegativeBinomial", lambda m, s, **k: pm.ZeroInflatedNegativeBinomial("x", psi=0.7, mu=pt.exp(m), alpha=2 * s, **k), 0, 9),
    location("ZeroInflatedPoisson", lambda m, s, **k: pm.ZeroInflatedPoisson("x", psi=0.7, mu=pt.exp(m), **k), 0, 9),
    positive("HurdleGamma", lambda m, s, **k: pm.HurdleGamma("x", psi=0.7, alpha=2 * s, beta=pt.exp(0.3 * m), **k)),
    positive("HurdleLogNormal", lambda m, s, **k: pm.HurdleLogNormal("x", psi=0.7, mu=m, sigma=0.7 * s, **k)),
    location("HurdleNegativeBinomial", lambda m, s, **k: pm.HurdleNegativeBinomial("x", psi=0.7, mu=pt.exp(m), alpha=2 * s, **k), 0, 9),
    location("HurdlePoisson", lambda m, s, **k: pm.HurdlePoisson("x", psi=0.7, mu=pt.exp(m), **k), 0, 9),
    location("Mixture of normals", lambda m, s, **k: pm.NormalMixture("x", w=[0.4, 0.6], mu=pt.stack([m - 1, m + 1]), sigma=s, **k)),
    location("Truncated Gamma", lambda m, s, **k: pm.Truncated("x", pm.Gamma.dist(2 * s, pt.exp(0.3 * m)), upper=5, **k), 0, 5),
    location("Truncated Poisson", lambda m, s, **k: pm.Truncated("x", pm.Poisson.dist(pt.exp(m)), lower=1, **k), 1, 9),
    location("Censored Normal", lambda m, s, **k: pm.Censored("x", pm.Normal.dist(m, s), -1, 3, **k), -1, 3),
    location("Dirichlet", lambda m, s, **k: pm.Dirichlet("x", pt.stack([2 * s, 2 * pt.exp(0.3 * m), 2.0]), **k), 0, 1),
    location("Multinomial", lambda m, s, **k: pm.Multinomial("x", 5, pt.special.softmax(pt.stack([0.0, m, 2 * m])), **k), 0, 5),
    location("DirichletMultinomial", lambda m, s, **k: pm.DirichletMultinomial("x", 5, pt.stack([2 * s, 2 * pt.exp(0.3 * m), 2.0]), **k), 0, 5),
    location("MvNormal", lambda m, s, **k: pm.MvNormal("x", m * np.ones(2), chol=s * np.array([[1.0, 0], [0.5, 1]]), **k)),
    location("MvStudentT", lambda m, s, **k: pm.MvStudentT("x", nu=4, mu=m * np.ones(2), chol=pt.eye(2) * s, **k)),
]  # fmt: skip
VECTORS = {"Dirichlet": 3, "Multinomial": 3, "DirichletMultinomial": 3, "MvNormal": 2, "MvStudentT": 2}


def model(law: Law, seed: int = 1) -> pm.Model:
    """Return a model with a release of records drawn at m = .3, s = 1.1."""
    shape = (N, VECTORS[law.name]) if law.name in VECTORS else N

    def statistics(x):
        unit = (pt.clip(x, law.lo, law.hi) - law.lo) / (law.hi - law.lo)
        parts = [unit, unit**2] if law.name not in VECTORS else [unit]
        columns = [part[:, None] if part.type.ndim == 1 else part for part in parts]
        return pt.concatenate(columns, axis=1)

    with pm.Model():
        drawn = pm.draw(law.build(0.3, 1.1, shape=shape), random_seed=seed)
    rows = statistics(pt.as_tensor(drawn)).eval()
    scale = rows.shape[1] / EPSILON
    noisy = rows.sum(axis=0) + np.random.default_rng(seed).laplace(0, scale, rows.shape[1])
    with pm.Model() as built:
        m = pm.Normal("m", 0, 1)
        s = pm.LogNormal("s", 0, 0.5)
        x = law.build(m, s, shape=shape)
        dp.LaplaceMechanism("z", dp.record_sum(statistics(x)), scale=scale, observed=noisy)
    return built


def coupling(built: pm.Model) -> str:
    """Return how the records go along when their parameters move."""
    (block,) = find_record_blocks(built)
    if is_redrawn(built, block):
        return "drawn anew"
    try:
        (form,) = forms_of(built, block, ancestors_of_records(built, block)).values()
    except NoNoiseForm:
        return "stay"
    return "function of noise" if form.smooth else "quantiles"


def main(quick: bool = False) -> None:
    table = measure.table(
        f"Laws: {N} records behind sums, epsilon {EPSILON:g}; effective draws of the worst parameter a CPU second",
        "law", "when parameters move, records are", "a second", "target", "met", "R-hat", "us a draw",
    )  # fmt: skip
    logging.getLogger("pymc.dp").setLevel(logging.ERROR)
    draws, tune = (500, 500) if quick else (2000, 1000)
    for law in LAWS:
        built = model(law)
        run = measure.sample(built, ["m", "s"], draws, tune)
        table.add_row(
            law.name, coupling(built), f"{run.rate:.0f}", f"{TARGET:g}", measure.verdict(run.rate, TARGET),
            f"{run.extra['R-hat']:.3f}", f"{run.seconds / run.draws * 1e6:.0f}",
        )  # fmt: skip
    measure.show(table, "laws")


if __name__ == "__main__":
    main()
