"""Records with values of positive probability at random places: refused, and the way out is exact."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as dp
from pymc_dp.query.supports import adds_to_atoms, behind_atoms
from tests.statistics import harness
from tests.statistics.marginal import Marginal

pytestmark = pytest.mark.compiles(1)

Z = np.array([1.4, -0.3, 0.9])
SCALE = 0.4


def clipped(mu, c, size):
    return pt.clip(pm.Normal.dist(mu, 1, size=size), 0, c)


def shifted(mu, c, size):
    return c + pt.maximum(pm.Normal.dist(mu, 1, size=size), 0)


def rounded_down(mu, c, size):
    return pt.floor(pm.Normal.dist(mu, c, size=size))


def capped_logp(value, mu, c):
    return pt.switch(
        pt.eq(value, c), pm.logccdf(pm.Normal.dist(mu, 1), c), pm.logp(pm.Normal.dist(mu, 1), value)
    )


def capped_random(mu, c, rng=None, size=None):
    return np.minimum(rng.normal(mu, 1, size=size), c)


LAWS = {
    "censored above": lambda mu, c: pm.Censored.dist(pm.Normal.dist(mu, 1), lower=0, upper=c, shape=3),
    "censored below": lambda mu, c: pm.Censored.dist(pm.Normal.dist(mu, 1), lower=c, upper=None, shape=3),
    "an expression": lambda mu, c: pm.Censored.dist(pm.Normal.dist(mu, 1), lower=0, upper=2 * c + 1, shape=3),
    "one end per row": lambda mu, c: pm.Censored.dist(
        pm.Normal.dist(mu, 1), lower=0, upper=c * np.arange(1.0, 4.0), shape=3
    ),
    "a mixture": lambda mu, c: pm.Mixture.dist(
        [0.5, 0.5], [pm.DiracDelta.dist(c), pm.Normal.dist(mu, 1)], shape=3
    ),
    "a mixture, censored": lambda mu, c: pm.Censored.dist(
        pm.NormalMixture.dist([0.5, 0.5], [mu, 1.0], [1.0, 1.0]), lower=0, upper=c, shape=3
    ),
    "a constant": lambda mu, c: pm.DiracDelta.dist(c, shape=3),
    "counts": lambda mu, c: pm.Censored.dist(pm.Poisson.dist(2.0), lower=0, upper=c, shape=3),
    "clip": lambda mu, c: pm.CustomDist.dist(mu, c, dist=clipped, shape=3),
    "sum": lambda mu, c: pm.CustomDist.dist(mu, c, dist=shifted, shape=3),
    "a density by hand": lambda mu, c: pm.CustomDist.dist(
        mu, c, logp=capped_logp, random=capped_random, shape=3
    ),
}  # fmt: skip


def parameters(law=None):
    mu, c = pm.Normal("mu"), pm.Gamma("c", 4, 2)
    if law is not None:
        y = pm.model.core.modelcontext(None).register_rv(law(mu, c), "y")
        dp.LaplaceMechanism("z", y, scale=SCALE, observed=Z)
    return mu, c


@pytest.mark.parametrize("law", LAWS)
def test_random_places_are_refused(law):
    with pm.Model():
        parameters(LAWS[law])
        with pytest.raises(ValueError, match=r"record variable y has .* depend on c .*query"):
            pm.sample(10, tune=10, chains=1, progressbar=False, quiet=True)


def test_whole_numbers_of_another_step_are_refused():
    with pm.Model():
        k = pm.Poisson("k", 3)
        y = pm.Censored("y", pm.Normal.dist(0, 1), lower=None, upper=k, shape=3)
        dp.LaplaceMechanism("z", y.sum(), scale=SCALE, observed=1.0)
        with pytest.raises(ValueError, match=r"record variable y has .* depend on k "):
            dp.RecordImputation()


def test_atoms_of_mixtures_are_refused():
    with pm.Model():
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=3, max_components=3)
        end = pm.Gamma("end", 4, 2, shape=3)
        y = pm.Censored("y", pm.Normal.dist(0, 1), lower=None, upper=end[labels], shape=3)
        dp.LaplaceMechanism("z", y, scale=SCALE, observed=Z)
        with pytest.raises(ValueError, match=r"record variable y has .* depend on end, labels "):
            dp.PrivateNeal5()


FAMILIES = {
    "Normal": ("mu", "c"), "StudentT": ("c", "mu"), "Gamma": ("c", "c"), "Beta": ("c", "c"),
    "Uniform": (-1.0, "c"), "Triangular": (-1.0, 0.5, "c"), "Exponential": ("c",), "Weibull": ("c", "c"),
    "LogNormal": ("mu", "c"), "Laplace": ("mu", "c"), "Cauchy": ("mu", "c"), "Pareto": ("c", "c"),
    "Kumaraswamy": ("c", "c"), "Wald": ("c", "c"), "Poisson": ("c",),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_fixed_places_are_none_of_parameters(family):
    """Whatever a law compares to keep its own numbers finite."""
    with pm.Model() as model:
        mu, c = parameters()
        law = getattr(pm, family).dist(*({"mu": mu, "c": c}.get(p, p) for p in FAMILIES[family]))
        assert behind_atoms(pm.Censored.dist(law, lower=0, upper=3, shape=3), model.basic_RVs) == []
        rounded = pm.CustomDist.dist(
            mu, c, dist=lambda mu, c, size: pt.floor(pm.Normal.dist(mu, c, size=size))
        )
        assert behind_atoms(rounded, model.basic_RVs) == []
        assert behind_atoms(pm.HurdleLogNormal.dist(0.4, mu, c, shape=3), model.basic_RVs) == []


def test_ends_that_are_records_or_data_are_taken():
    """They are drawn together with what is censored at them, or stay."""
    with pm.Model():
        end = pm.Gamma("end", 4, 2, shape=3)
        y = pm.Censored("y", pm.Normal.dist(pm.Normal("mu"), 1), lower=0, upper=end, shape=3)
        dp.LaplaceMechanism("z", y, scale=SCALE, observed=Z)
        step = dp.RecordImputation()
        assert {v.name for v in step.vars} == {"y", "end_log__"}
    with pm.Model():
        end = pm.Data("end", [1.0, 2.0, 3.0])
        y = pm.Censored("y", pm.Normal.dist(pm.Normal("mu"), 1), lower=0, upper=end, shape=3)
        dp.LaplaceMechanism("z", y, scale=SCALE, observed=Z)
        dp.RecordImputation()


MU, C = np.linspace(-4, 4.5, 171), np.linspace(0.005, 9, 300)


def censored(law, c, noise, z):
    """Density of the release of a record that is censored at 0 and c, for each c."""
    y = np.linspace(0, C[-1], 9001)
    each = law.pdf(y) * noise.pdf(z - y)
    up_to = np.concatenate([[0.0], np.cumsum((each[1:] + each[:-1]) / 2) * (y[1] - y[0])])
    return law.cdf(0) * noise.pdf(z) + law.sf(c) * noise.pdf(z - c) + np.interp(c, y, up_to)


def mixed(law, c, noise, z):
    """Density of the release of a record that is c with probability 0.4, for each c."""
    y = np.linspace(-12, 12, 9601)
    return 0.4 * noise.pdf(z - c) + 0.6 * np.trapezoid(law.pdf(y) * noise.pdf(z - y), y)


def marginal(grid, mass):
    density = mass / np.trapezoid(mass, grid)
    cdf = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2) * (grid[1] - grid[0])])
    mean = np.trapezoid(density * grid, grid)
    spread = np.sqrt(np.trapezoid(density * (grid - mean) ** 2, grid))
    return Marginal(mean, spread, grid, cdf / cdf[-1], density)


def the_query_of_censored(mu, c):
    return dp.clamp(pm.Normal("x", mu, 1, shape=3), 0, c)


def the_query_of_mixed(mu, c):
    b = pm.Bernoulli("b", 0.4, shape=3)
    return pt.switch(b, c, pm.Normal("x", mu, 1, shape=3))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("query", "released"), [(the_query_of_censored, censored), (the_query_of_mixed, mixed)]
)
def test_the_way_out_is_exact(query, released):
    noise = stats.laplace(0, SCALE)
    posterior = np.empty((len(MU), len(C)))
    for row, mu in zip(posterior, MU, strict=True):
        row[:] = stats.norm.pdf(mu) * stats.gamma(4, scale=0.5).pdf(C)
        for z in Z:
            row *= released(stats.norm(mu, 1), C, noise, z)
    exact = {"mu": marginal(MU, posterior.sum(axis=1)), "c": marginal(C, posterior.sum(axis=0))}
    with pm.Model():
        mu, c = parameters()
        dp.LaplaceMechanism("z", query(mu, c), scale=SCALE, observed=Z)
        idata = pm.sample(
            5000, tune=1000, chains=2, cores=1, random_seed=6, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    for name, answer in exact.items():
        verdict = harness.mc_z(idata.posterior[name].values, answer, minimum_ess=150)
        assert verdict.passed, (name, verdict)


D, N = pm.DiracDelta.dist, pm.Normal.dist


def capped(c, size):
    return pt.maximum(N(0, 1, size=size), c)


def censored_at_zero(mu):
    return pm.Censored.dist(N(mu, 1), 0, None)


def function_of_a_mixture(function, *laws):
    return lambda w: pm.CustomDist.dist(
        w,
        dist=lambda w, size: function(pm.Mixture.dist(w, laws, size=size)),
        support_point=lambda rv, size, w: pt.ones(size),
        shape=3,
    )


def folded_by_hand(w):
    return pm.CustomDist.dist(
        w[0],
        dist=lambda w, size: pt.abs(pt.maximum(N(w, 1, size=size), -1)),
        logp=lambda value, w: pm.logp(N(w, 1), value),
        shape=3,
    )


ADDED = {
    "a multiple of a mixture": (function_of_a_mixture(lambda x: 1 + 2 * x, N(-1, 1), N(1, 0.5)), False),
    "a mixture without signs": (function_of_a_mixture(pt.abs, N(-1, 1), N(1, 0.5)), False),
    "an atom that loses its sign": (function_of_a_mixture(pt.abs, D(-1.0), pm.Exponential.dist(1)), True),
    "an atom that is squared": (function_of_a_mixture(pt.square, D(-1.0), pm.Exponential.dist(1)), True),
    "an atom, exponentiated": (function_of_a_mixture(pt.exp, D(-1.0), pm.Exponential.dist(1)), False),
    "a censored law that loses its sign": (
        lambda w: pm.CustomDist.dist(
            w, dist=lambda w, size: pt.abs(pm.Censored.dist(N(w[0], 1), -1, None, size=size)), shape=3
        ),
        True,
    ),
    "a law without signs, with a density of its own": (folded_by_hand, False),
    "an atom among normal numbers": (lambda w: pm.Mixture.dist(w, [D(0.0), N(0, 1)], shape=3), True),
    "an atom at an end with a density": (
        lambda w: pm.Mixture.dist(w, [D(0.0), pm.Exponential.dist(1)]),
        True,
    ),
    "two laws censored at two places": (
        lambda w: pm.Mixture.dist(w, [pm.Censored.dist(N(k, 1), k, None) for k in range(2)], shape=3),
        True,
    ),
    "one law of two that is censored": (
        lambda w: pm.Mixture.dist(w, [pm.Censored.dist(N(0, 1), 0, None), N(0, 1)], shape=3),
        True,
    ),
    "a law of whole numbers, rounded, and one that is censored": (
        lambda w: pm.Mixture.dist(
            w,
            [pm.CustomDist.dist(dist=lambda size: pt.floor(N(0, 1, size=size))), censored_at_zero(1)],
            shape=3,
        ),
        True,
    ),
    "a batch of laws censored at two places": (
        lambda w: pm.Mixture.dist(w, pm.Censored.dist(N([0, 1], 1), [0, 1], None), shape=3),
        True,
    ),
    "two laws censored at the same place": (
        lambda w: pm.Mixture.dist(w, [censored_at_zero(1), censored_at_zero(2)], shape=3),
        False,
    ),
    "a batch of laws censored at the same place": (
        lambda w: pm.Mixture.dist(w, pm.Censored.dist(N([0, 1], 1), 0, None), shape=3),
        False,
    ),
    "a censored law and its end": (
        lambda w: pm.Mixture.dist(w, [D(0.0), censored_at_zero(1)], shape=3),
        False,
    ),
    "a hurdle and a censored law": (
        lambda w: pm.Mixture.dist(w, [pm.HurdleGamma.dist(0.3, 2, 1), censored_at_zero(1)], shape=3),
        False,
    ),
    "one law for all components": (
        lambda w: pm.Mixture.dist(
            w, pm.CustomDist.dist(np.array([0.0, -5.0]), dist=capped, shape=(4, 2)), shape=4
        ),
        True,
    ),
    "an atom that a support may reach": (
        lambda w: pm.Mixture.dist(w, [D(0.0), pm.Uniform.dist(lo := N(0, 1), lo + 1)], shape=3),
        True,
    ),
    "an atom that a truncated law may reach": (
        lambda w: pm.Mixture.dist(
            w, [D(0.0), pm.TruncatedNormal.dist(lo := N(0.3, 1), 1, lower=lo)], shape=3
        ),
        True,
    ),
    "such a mixture, censored": (
        lambda w: pm.Censored.dist(pm.Mixture.dist(w, [D(0.0), N(0, 1)], shape=3), -1, 1),
        True,
    ),
    "such a mixture, drawn": (
        lambda w: pm.CustomDist.dist(
            w,
            dist=lambda w, size: 2 * pm.Mixture.dist(w, [D(0.0), N(0, 1)], size=size),
            support_point=lambda rv, size, w: pt.zeros(size),
            shape=3,
        ),
        True,
    ),
    "an atom outside": (lambda w: pm.Mixture.dist(w, [D(-1.0), pm.Exponential.dist(1)], shape=3), False),
    "a hurdle": (lambda w: pm.HurdleGamma.dist(w[0], 2, 1, shape=3), False),
    "two atoms": (lambda w: pm.Mixture.dist(w, [D(0.0), D(1.0)], shape=3), False),
    "a mixture, censored": (
        lambda w: pm.Censored.dist(pm.NormalMixture.dist(w, [0, 1], [1, 1], shape=3), 0, None),
        False,
    ),
}


@pytest.mark.parametrize(("law", "refused"), ADDED.values(), ids=ADDED)
def test_probabilities_and_densities_are_not_added(law, refused):
    with pm.Model():
        w = pm.Uniform("w")
        law = law(pm.math.stack([w, 1 - w]))
    assert adds_to_atoms(law, [w]) is refused


def test_an_atom_among_normal_numbers_is_refused_and_the_query_is_exact():
    n, scale, observed = 4, 1.0, 0.3
    normal = [np.sqrt(n - k) for k in range(n)]
    at = np.linspace(-25, 25, 200_001)
    noise = stats.laplace.pdf(observed, at, scale)
    likelihood = [np.trapezoid(stats.norm.pdf(at, 0, s) * noise, at) for s in normal]
    likelihood.append(stats.laplace.pdf(observed, 0, scale))
    w = (np.arange(4000) + 0.5) / 4000
    density = sum(stats.binom.pmf(k, n, w) * likelihood[k] for k in range(n + 1))
    exact = (w * density).sum() / density.sum()
    with pm.Model():
        share = pm.Uniform("w")
        x = pm.Mixture("x", pm.math.stack([share, 1 - share]), [D(0.0), N(0, 1)], shape=n)
        dp.LaplaceMechanism("z", dp.record_sum(x), scale=scale, observed=observed)
        with pytest.raises(ValueError, match=r"law of the record variable x .* pt.switch\(b, c, x\)"):
            pm.sample(10, tune=10, chains=1, progressbar=False, quiet=True)
    with pm.Model():
        share = pm.Uniform("w")
        x, b = pm.Normal("x", shape=n), pm.Bernoulli("b", share, shape=n)
        dp.LaplaceMechanism("z", dp.record_sum(pt.switch(b, 0.0, x)), scale=scale, observed=observed)
        idata = pm.sample(3000, tune=500, chains=2, cores=1, random_seed=1, progressbar=False)
    error = az.mcse(idata, var_names="w").w.item()
    assert abs(float(idata.posterior["w"].mean()) - exact) < 4 * error


@pytest.mark.statistical
def test_mixtures_of_laws_with_the_same_atom_are_exact():
    """Both components have a probability at 0, which PyMC adds: quadrature over the weight and a mean."""
    mus, ws, z, scale = (
        np.linspace(-4, 4, 81),
        (np.arange(100) + 0.5) / 100,
        np.array([-0.2, 0.1, 0.3, 1.9]),
        0.3,
    )
    at = np.linspace(0, 12, 6001)

    def released(mean, sd):
        law, noise = stats.norm(mean, sd), stats.laplace(0, scale)
        above = [np.trapezoid(law.pdf(at) * noise.pdf(each - at), at) for each in z]
        return law.cdf(0) * noise.pdf(z) + np.array(above)

    first, second = np.array([released(mu, 1) for mu in mus]), released(2, 0.5)
    each = ws[:, None] * first[:, None] + (1 - ws)[:, None] * second
    posterior = stats.norm.pdf(mus)[:, None] * each.prod(axis=-1)
    exact = {"mu": marginal(mus, posterior.sum(axis=1)), "w": marginal(ws, posterior.sum(axis=0))}
    with pm.Model():
        mu, w = pm.Normal("mu"), pm.Uniform("w")
        laws = [pm.Censored.dist(N(mu, 1), 0, None), pm.Censored.dist(N(2, 0.5), 0, None)]
        y = pm.Mixture("y", pm.math.stack([w, 1 - w]), laws, shape=4)
        dp.LaplaceMechanism("z", y, scale=scale, observed=z)
        idata = pm.sample(
            5000, tune=1000, chains=2, cores=1, random_seed=6, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    for name, answer in exact.items():
        verdict = harness.mc_z(idata.posterior[name].values, answer, minimum_ess=150)
        assert verdict.passed, (name, verdict)
