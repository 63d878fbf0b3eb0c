"""Records as functions of parameter-free noise: there and back, and the law of what comes back."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import collect_default_updates
from pytensor.tensor.random.basic import GammaRV, NormalRV
from scipy import stats

import pymc_dp as dp
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.discovery import record_blocks
from pymc_dp.step_methods.updates import noncentred, series, tails
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.noncentred import NoNoiseForm
from pymc_dp.step_methods.updates.series import noise_form
from tests.step_methods.zoo import evaluation_mode

pytestmark = pytest.mark.compiles(3)

N = 4000


class keywords:
    """A law whose parameters are given in this order."""

    def __init__(self, law, *names):
        self.law, self.names = law, names

    def dist(self, *values, **kwargs):
        return self.law.dist(**dict(zip(self.names, values, strict=True)), **kwargs)


# Family, parameter values at which it is tried.
FAMILIES = {
    "Normal": (pm.Normal, [(0, 1), (-30, 0.01), (5, 100)]),
    "Laplace": (pm.Laplace, [(0, 1), (4, 0.1)]),
    "Logistic": (pm.Logistic, [(0, 1), (4, 0.1)]),
    "Cauchy": (pm.Cauchy, [(0, 1), (4, 0.1)]),
    "Gumbel": (pm.Gumbel, [(0, 1), (4, 0.1)]),
    "Moyal": (pm.Moyal, [(0, 1), (4, 0.1)]),
    "HalfNormal": (pm.HalfNormal, [(1,), (20,)]),
    "HalfCauchy": (pm.HalfCauchy, [(1,), (20,)]),
    "Exponential": (pm.Exponential, [(1,), (0.01,), (50,)]),
    "LogNormal": (pm.LogNormal, [(0, 1), (2, 0.1)]),
    "Uniform": (pm.Uniform, [(0, 1), (-5, 20)]),
    "Gamma": (pm.Gamma, [(2, 1), (0.3, 5), (40, 2)]),
    "InverseGamma": (pm.InverseGamma, [(3, 1), (2, 20)]),
    "Beta": (pm.Beta, [(2, 3), (0.5, 0.5), (50, 1)]),
    "Weibull": (pm.Weibull, [(2, 1), (0.7, 5)]),
    "Pareto": (pm.Pareto, [(3, 1), (2, 5)]),
    "Kumaraswamy": (pm.Kumaraswamy, [(2, 3), (0.7, 4)]),
    "Wald": (pm.Wald, [(1, 2), (3, 0.1), (1, 500)]),
    "ExGaussian": (keywords(pm.ExGaussian, "mu", "sigma", "nu"), [(0, 1, 1), (5, 0.1, 30), (0, 1, 0.01)]),
    "SkewNormal": (keywords(pm.SkewNormal, "mu", "sigma", "alpha"), [(0, 1, 0), (1, 2, 3), (1, 2, -8)]),
    "AsymmetricLaplace": (keywords(pm.AsymmetricLaplace, "kappa", "mu", "b"), [(2, 0, 1), (0.3, 1, 3)]),
    "Triangular": (keywords(pm.Triangular, "lower", "upper", "c"), [(0, 4, 1), (-3, 5, 4.9)]),
    "Bernoulli": (pm.Bernoulli, [(0.3,), (0.999,), (0.001,)]),
    "Binomial": (pm.Binomial, [(5, 0.3), (20, 0.9), (300, 0.2)]),
    "Poisson": (pm.Poisson, [(3,), (0.01,), (500,)]),
    "NegativeBinomial": (pm.NegativeBinomial, [(3, 1), (50, 0.3)]),
    "Geometric": (pm.Geometric, [(0.3,), (0.9,)]),
    "DiscreteUniform": (pm.DiscreteUniform, [(0, 4), (-3, 9)]),
    "Categorical": (pm.Categorical, [([0.2, 0.5, 0.3],), ([0.0, 1e-3, 0.999],)]),
}
DISCRETE = {
    "Poisson",
    "NegativeBinomial",
    "Bernoulli",
    "Binomial",
    "Geometric",
    "DiscreteUniform",
    "Categorical",
}
EVERY = pytest.mark.parametrize(
    ("name", "values"), [(name, v) for name, (_, vs) in FAMILIES.items() for v in vs]
)


@cache
def compiled(name):
    """Functions from records and parameters to noise, and back: compiled once for all values of a family."""
    law, tried = FAMILIES[name]
    columns = [np.array(column) for column in zip(*tried, strict=True)]
    parameters = [pt.as_tensor(column[0]).type() for column in columns]
    rv = law.dist(*parameters, shape=N)
    form = noise_form(rv, lambda graph: True)
    x, u = rv.type("x"), pytensor.tensor.dvector("u")
    noise = form.to_noise(x, rv)
    record = form.to_record(u, rv)
    mode, updates = evaluation_mode([noise, record]), collect_default_updates([noise])
    there = pytensor.function([x, *parameters], noise, mode=mode, updates=updates, on_unused_input="ignore")
    back = pytensor.function([u, *parameters], record, mode=mode, on_unused_input="ignore")
    return there, back, [column.dtype for column in columns]


def both_ways(name, values):
    """Return a law with values of its parameters, and functions from records to noise and back."""
    there, back, dtypes = compiled(name)
    given = [np.asarray(v, dtype) for v, dtype in zip(values, dtypes, strict=True)]
    rv = FAMILIES[name][0].dist(*given, shape=N)
    return rv, lambda x: there(x, *given), lambda u: back(u, *given)


def drawn_from(rv, seed):
    """Draws, in Python: compiling a function that is called once would take longer."""
    return pm.draw(rv, random_seed=seed, mode="FAST_COMPILE")


@EVERY
def test_there_and_back(name, values):
    rv, there, back = both_ways(name, values)
    x = drawn_from(rv, 1)
    returned = back(there(x))
    if name in DISCRETE:
        np.testing.assert_array_equal(returned, x)
    else:
        np.testing.assert_allclose(returned, x, rtol=1e-5)


@EVERY
def test_noise_is_free_of_parameters(name, values):
    """Noise of draws has one law per family: the first parameter values' and these agree."""
    rv, there, _ = both_ways(name, values)
    first_rv, first_there, _ = both_ways(name, FAMILIES[name][1][0])
    noise = there(drawn_from(rv, 1))
    reference = first_there(drawn_from(first_rv, 2))
    assert stats.ks_2samp(noise, reference).pvalue > 1e-4


FAR = {
    "Normal": (0, 1, [-40.0, 40.0]),
    "Logistic": (0, 1, [-60.0, 60.0]),
    "Exponential": (1, [1e-9, 60.0]),
    "LogNormal": (0, 1, [1e-9, 1e9]),
    "Gamma": (2, 1, [1e-6, 60.0]),
    "Beta": (3, 3, [1e-7, 1 - 1e-7]),
    "InverseGamma": (3, 1, [0.02, 1e7]),
    "Weibull": (2, 1, [1e-7, 8.0]),
    "Pareto": (3, 1, [1 + 1e-9, 1e7]),
    "Kumaraswamy": (2, 3, [1e-7, 1 - 1e-7]),
    "Geometric": (0.5, [1, 80]),
}


# Their noise is a probability, which is 1 to all digits far up.
UPPER_TAIL_LOST = {"Geometric"}


@pytest.mark.parametrize("name", [f for f in FAR if f not in UPPER_TAIL_LOST])
def test_far_from_the_middle(name):
    """A record that a precise release pins in the tail must come back, not go to infinity."""
    *values, far = FAR[name]
    rv, there, back = both_ways(name, values)
    x = np.resize(np.array(far, dtype=rv.dtype), N)
    returned = back(there(x))
    assert np.isfinite(returned).all()
    np.testing.assert_allclose(returned, x, rtol=1e-9)


SOLVED = {
    "Wald": (1.0, 2.0, 0.0, 0.0),
    "ExGaussian": (0.0, 1.0, 2.0, 0.0),
    "AsymmetricLaplace": (2.0, 0.0, 1.0, 0.0),
    "SkewNormal": (0.0, 1.0, 2.0, 1e-9),
}


@pytest.mark.parametrize("name", SOLVED)
def test_tails_come_back_as_far_as_they_have_digits(name):
    *values, deepest = SOLVED[name]
    values = values[: 2 if name == "Wald" else 3]
    u = np.array([1e-300, 1e-100, 1e-15, 1e-6, 0.4, 0.499, -0.499, -0.4, -1e-6, -1e-15, -1e-100, -1e-300])
    u = np.where(np.abs(u) < deepest, 2 * deepest * np.sign(u), u)
    rv, form = FAMILIES[name][0].dist(*values, shape=len(u)), noise_form(FAMILIES[name][0].dist(*values), any)
    x, v = pt.vector("x", shape=(len(u),)), pt.vector("u", shape=(len(u),))
    there, back = (
        pytensor.function([given], graph, mode="NUMBA")
        for given, graph in ((x, form.to_noise(x, rv)), (v, form.to_record(v, rv)))
    )
    found = back(u)
    np.testing.assert_allclose(there(found), u, rtol=2e-6)
    np.testing.assert_allclose(back(there(found)), found, rtol=1e-9, atol=1e-9 * found.std())


# Laws with noise for each tail: what builds them, and the same law elsewhere.
TAILED = {
    "Gamma": (lambda: pm.Gamma.dist(2.0, 4.0, shape=4), stats.gamma(2, scale=0.25)),
    "InverseGamma": (lambda: pm.InverseGamma.dist(3.0, 2.0, shape=4), stats.invgamma(3, scale=2)),
    "Beta": (lambda: pm.Beta.dist(2.0, 30.0, shape=4), stats.beta(2, 30)),
    "StudentT": (lambda: pm.StudentT.dist(nu=3.0, mu=1.0, sigma=2.0, shape=4), stats.t(3, 1, 2)),
}


def tails_of(name):
    """Values far out, what comes back of them, their noise, and what that is."""
    make, law = TAILED[name]
    # what floating point, and the quantiles of SciPy, allow
    exceptions = {"Beta": (1e-100, 1e-9), "StudentT": (1e-100, 1e-100)}
    low, high = exceptions.get(name, (1e-300, 1e-300))
    rv, form = make(), noise_form(make(), lambda graph: True)
    x, u = pt.vector("x", shape=(4,)), pt.vector("u", shape=(4,))
    there = pytensor.function([x], form.to_noise(x, rv), mode=evaluation_mode([form.to_noise(x, rv)]))
    back = pytensor.function([u], form.to_record(u, rv), mode=evaluation_mode([form.to_record(u, rv)]))
    known = np.array([low, 0.3, -0.2, -high])
    values = np.array([law.ppf(low), law.ppf(0.3), law.isf(0.2), law.isf(high)])
    return values, back(there(values)), there(values), known


@pytest.mark.parametrize("name", TAILED)
def test_both_tails_have_their_digits(name):
    values, returned, noise, known = tails_of(name)
    np.testing.assert_allclose(returned, values, rtol=1e-9)
    np.testing.assert_allclose(noise, known, rtol=1e-9)


def test_an_upper_tail_that_is_lost_is_seen(monkeypatch):
    law = tails.TAILS[GammaRV]
    lost = dataclasses.replace(law, above=lambda x, *params: 1 - law.below(x, *params))
    monkeypatch.setitem(tails.TAILS, GammaRV, lost)
    values, returned, noise, known = tails_of("Gamma")
    assert not np.allclose(returned, values, rtol=1e-9, atol=0)
    assert not np.allclose(noise, known, rtol=1e-6, atol=0)


@pytest.mark.parametrize("far", [1.0, 60.0, 1000.0])
def test_no_move_where_the_tail_is_lost(far):
    """Noise that would not give the record back has density zero, so nothing moves; other noise has not."""
    n = 3
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1)
        y = pm.Gamma("y", 2, rate, shape=n)
        dp.LaplaceMechanism("z", y, epsilon=5, bounds=(0, 9), observed=[1.0, 2.0, 9.0])
    (block,) = record_blocks(model)
    program = RecordProgram(model, block)
    conditionals = Conditionals(program, [model["rate"]])
    noise, ancillary = conditionals.noise(), conditionals.ancillary()
    theta, data = np.zeros(1), program.data.gather()
    x, u = np.log([[1.0], [2.0], [far]]), np.empty((1, n))
    noise.dispatcher(np.random.default_rng(1), theta, data, x, u)
    for other in (0.0, 0.2):
        density = ancillary.dispatcher(np.array([other]), data, u, np.zeros(0))
        assert np.isfinite(density) == (far < 100)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pm.NormalMixture.dist([0.5, 0.5], [0, 1], 1, shape=5), "has the law"),
        (lambda: pm.Dirichlet.dist([1, 1], shape=(5, 2)), "Dirichlet"),
    ],
)
def test_no_form(make, message):
    with pytest.raises(NoNoiseForm, match=message):
        noise_form(make(), lambda graph: True)


T = 5


def walk(start, step):
    return lambda *values: pm.RandomWalk.dist(start(*values), step(*values), shape=(N, T))


def second_order(rho, sigma):
    start = pm.Normal.dist(0, 2 * sigma)
    return pm.AR.dist([0.3, rho, -0.4], sigma=sigma, constant=True, init_dist=start, shape=(N, T))


def walk_of_vectors(rho, sigma):
    def law(scale):
        return pm.MvNormal.dist([rho, -rho], scale**2 * np.array([[1.0, 0.4], [0.4, 2.0]]))

    return pm.RandomWalk.dist(law(2 * sigma), law(sigma), shape=(N, T, 2))


# Law of a series, parameter values at which it is tried.
SERIES = {
    "normal steps": (
        walk(lambda mu, s: pm.Normal.dist(mu, 2 * s), pm.Normal.dist),
        [(0, 1), (-30, 0.01), (5, 100)],
    ),
    "positive steps": (
        walk(lambda a, s: pm.Normal.dist(0, s), lambda a, s: pm.Gamma.dist(a, 1 / s)),
        [(2, 1), (20, 0.01)],
    ),
    "counted steps": (
        walk(lambda r, q: pm.Poisson.dist(r), lambda r, q: pm.Binomial.dist(5, q)),
        [(3, 0.3), (0.5, 0.9)],
    ),
    "autoregression": (second_order, [(0.5, 1), (-0.9, 0.01)]),
    "vectors": (walk_of_vectors, [(0.5, 1), (-3, 0.01)]),
}
EVERY_SERIES = pytest.mark.parametrize(
    ("name", "values"), [(name, v) for name, (_, vs) in SERIES.items() for v in vs]
)


def noise_of_series(rv, seed):
    """Draws of a series, what comes back of them, and their noise with a column for each entry."""
    form = noise_form(rv, lambda graph: True)
    drawn = drawn_from(rv, seed)
    # in a model the lengths are known, outside of one that of an autoregression is not
    x, u = (
        pt.tensor(name, dtype=kind, shape=drawn.shape) for name, kind in (("x", rv.dtype), ("u", "float64"))
    )
    noise, record = form.to_noise(x, rv), form.to_record(u, rv)
    mode, updates = evaluation_mode([noise, record]), collect_default_updates([noise])
    there = pytensor.function([x], noise, mode=mode, updates=updates)(drawn)
    back = pytensor.function([u], record, mode=mode, on_unused_input="ignore")(there)
    return drawn, back, there.reshape(N, -1)


@EVERY_SERIES
def test_series_there_and_back(name, values):
    drawn, back, _ = noise_of_series(SERIES[name][0](*values), 1)
    np.testing.assert_allclose(back, drawn, rtol=1e-5)


def law_of_noise(name, values):
    """Probabilities of the noise to be that of the first parameter values, without correlations."""
    first, noise = (
        noise_of_series(SERIES[name][0](*v), seed)[2] for v, seed in ((SERIES[name][1][0], 1), (values, 2))
    )
    columns = range(noise.shape[1])
    alike = [stats.ks_2samp(noise[:, k], first[:, k]).pvalue for k in columns]
    apart = [stats.spearmanr(noise[:, j], noise[:, k]).pvalue for j in columns for k in columns if j < k]
    return min(alike) * len(alike), min(apart) * len(apart)


@EVERY_SERIES
def test_noise_of_a_series_is_free_and_independent(name, values):
    assert min(law_of_noise(name, values)) > 1e-4


def test_noise_that_is_not_is_seen(monkeypatch):
    """Steps divided by the root of their scale; entries in the place of steps."""
    loc_and_scale = lambda rv: rv.owner.op.dist_params(rv.owner)[:2]  # noqa: E731

    def to_noise(x, rv):
        loc, scale = loc_and_scale(rv)
        return (x - loc) / pt.sqrt(scale)

    with monkeypatch.context() as patch:
        right = noncentred._FORMS[NormalRV]
        patch.setitem(noncentred._FORMS, NormalRV, dataclasses.replace(right, to_noise=to_noise))
        assert law_of_noise("normal steps", (-30, 0.01))[0] < 1e-6
    original = series._random_walk

    def entries(time, start, step):
        form = original(time, start, step)
        return dataclasses.replace(form, to_noise=lambda x, rv: x)

    monkeypatch.setattr(series, "_random_walk", entries)
    assert law_of_noise("normal steps", (0, 1))[1] < 1e-6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: pm.RandomWalk.dist(pm.Normal.dist(), pm.VonMises.dist(0, 1), shape=(5, 3)),
            "each step of x has the law VonMises",
        ),
        (
            lambda: pm.AR.dist([0.5], init_dist=pm.VonMises.dist(0, 1), shape=(5, 3)),
            "the start of x has the law VonMises",
        ),
        (
            lambda: pm.RandomWalk.dist(pm.Normal.dist(), pm.Poisson.dist(2), shape=(5, 3)),
            "x adds whole numbers to others",
        ),
        (
            lambda: pm.GARCH11.dist(1.0, 0.2, 0.3, initial_vol=1.0, shape=(5, 3)),
            "x has the law GARCH11",
        ),
    ],
)
def test_no_form_of_a_series(make, message):
    rv = make()
    rv.name = "x"
    with pytest.raises(NoNoiseForm, match=message):
        noise_form(rv, lambda graph: True)
