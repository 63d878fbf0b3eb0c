"""Conditions on parameters are left out where they cannot fail, and only there."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_dp.lowering.rows.domains import Domain
from pymc_dp.lowering.rows.intervals import REAL, Interval, Ranges, always_positive

K = 4


def _n_conditions(declare):
    with pm.Model():
        labels = pm.Categorical("labels", np.ones(K) / K, shape=3)
        rv = declare(labels)
    return len(Domain(pm.logp(rv, rv), lambda v: False).conditions)


def _positive(name, law=pm.HalfNormal):
    return law(name, 2.0, shape=K)


ALWAYS = {
    "normal": lambda h: pm.Normal("y", pm.Normal("m", 0, 1, shape=K)[h], 1),
    "variance": lambda h: pm.Normal("y", 0, pt.sqrt(pm.InverseGamma("v", 3, 3, shape=K)[h] + 2.0)),
    "precision": lambda h: pm.Normal("y", 0, tau=pm.Gamma("t", 2, 2, shape=K)[h]),
    "above": lambda h: pm.Normal(
        "y", 0, pt.sqrt(pm.Truncated("v", pm.InverseGamma.dist(3, 3), lower=2.0, shape=K)[h])
    ),
    "exposure": lambda h: pm.Poisson("y", pm.Gamma("r", 2, 2, shape=K)[h] * pm.Data("e", np.ones(3))),
    "probability": lambda h: pm.Bernoulli("y", pm.Beta("p", 2, 2, shape=K)[h]),
    "uniform": lambda h: pm.Binomial("y", 5, pm.Uniform("p", 0, 1, shape=K)[h]),
    "log odds": lambda h: pm.Bernoulli("y", logit_p=pm.Normal("p", 2, 2, shape=K)[h]),
    "mean and sd": lambda h: pm.Gamma("y", mu=_positive("m")[h], sigma=_positive("s")[h]),
    "negative binomial": lambda h: pm.NegativeBinomial("y", mu=_positive("m")[h], alpha=_positive("a")[h]),
    "skewed": lambda h: pm.SkewNormal("y", mu=0, sigma=_positive("s")[h], alpha=1),
    "exponential": lambda h: pm.VonMises("y", 0, pt.exp(pm.Normal("k", 2, 2, shape=K)[h])),
    "softplus": lambda h: pm.AsymmetricLaplace("y", pt.softplus(pm.Normal("k", 2, 2, shape=K)[h]), 0, 1),
    "categories": lambda h: pm.Categorical(
        "y", pt.stack([p := pm.Beta("p", 2, 2, shape=K)[h], 1 - p], axis=-1)
    ),
    "ends": lambda h: pm.Uniform("y", 0, _positive("b")[h]),
}
MAY_FAIL = {
    "shape": (1, lambda h: pm.Beta("y", pm.Normal("a", 2, 2, shape=K)[h], 2)),
    "shapes": (2, lambda h: pm.Beta("y", *(pm.Normal(a, 2, 2, shape=K)[h] for a in "ab"))),
    "difference": (1, lambda h: pm.Normal("y", 0, _positive("s")[h] - 0.1)),
    "too wide": (2, lambda h: pm.Beta("y", mu=pm.Beta("m", 2, 2, shape=K)[h], sigma=_positive("s")[h])),
    "negative exposure": (
        1,
        lambda h: pm.Poisson("y", pm.Gamma("r", 2, 2, shape=K)[h] * pm.Data("e", -np.ones(3))),
    ),
    "zero": (1, lambda h: pm.Normal("y", 0, pm.Poisson("s", 2, shape=K)[h])),
    "asks for missing values": (
        1,
        lambda h: pm.Gamma(
            "y", pt.switch(pt.isnan([0.0, np.nan, 0.0]), a := pm.Normal("a", 1, 1, shape=K)[h], a), 1
        ),
    ),
    "lower end above the upper one": (
        1,
        lambda h: pm.Gamma("y", 1 - pt.clip(0.3, _positive("a")[h], 0.9), 1),
    ),
    "roots of negative numbers": (
        2,
        lambda h: pm.Binomial("y", 5, pt.clip(pt.sqrt(pm.Normal("a", 1, 1, shape=K)[h]), 0.1, 0.9)),
    ),
    "above one": (1, lambda h: pm.Bernoulli("y", _positive("p")[h])),
    "probabilities made of a sum": (
        2,  # that they are at most one, and that they add up to one
        lambda h: pm.Categorical(
            "y", (d := pm.Dirichlet("d", np.ones(3), shape=(K, 3))[h]) * d.sum(-1, keepdims=True) / 2
        ),
    ),
    "order": (1, lambda h: pm.Uniform("y", *(pm.Normal(e, 0, 1, shape=K)[h] for e in "ab"))),
    "component": (
        1,
        lambda h: pm.NormalMixture(
            "y", w=[0.3, 0.7], mu=[0, 1], sigma=pm.Normal("s", 0, 1, shape=K)[h][:, None] * np.ones(2)
        ),
    ),
}


@pytest.mark.parametrize("law", ALWAYS)
def test_conditions_that_always_hold_are_left_out(law):
    assert _n_conditions(ALWAYS[law]) == 0


@pytest.mark.parametrize("law", MAY_FAIL)
def test_conditions_that_may_fail_are_kept(law):
    n, declare = MAY_FAIL[law]
    assert _n_conditions(declare) == n


def test_data_that_change_are_noticed():
    with pm.Model():
        labels = pm.Categorical("labels", np.ones(K) / K, shape=3)
        exposure = pm.Data("e", np.ones(3))
        y = pm.Poisson("y", pm.Gamma("r", 2, 2, shape=K)[labels] * exposure)
        domain = Domain(pm.logp(y, y), lambda v: False)
        assert domain.still_holds
        pm.set_data({"e": [1.0, -1.0, 1.0]})
    assert not domain.still_holds


# an interval, and numbers of it
GIVEN = {
    "positive": (Interval(0.0), [1e-9, 0.3, 1.0, 40.0]),
    "unit": (Interval(0.0, 1.0), [1e-9, 0.4, 1 - 1e-9]),
    "negative": (Interval(hi=0.0), [-30.0, -1.0, -1e-9]),
    "about zero": (Interval(-2.0, 3.0, False, False), [-2.0, -0.5, 0.0, 1.0, 3.0]),
    "any": (REAL, [-50.0, -1.0, 0.0, 2.0, 50.0]),
}
ONE = [
    pt.neg, pt.sqr, pt.abs, pt.sign, pt.sqrt, pt.log, pt.log1p, pt.exp, pt.expm1, pt.softplus, pt.sigmoid,
    pt.erf, pt.erfc, pt.tanh, pt.cos, pt.cosh, pt.floor, pt.reciprocal, lambda x: x**3, lambda x: x**2,
    lambda x: x**-0.5, lambda x: x**0.0, lambda x: pt.clip(x, -1.0, 0.5),
    lambda x: pt.clip(pt.sqrt(x), 0.1, 0.5), lambda x: pt.maximum(pt.log(x), 1.0),
    lambda x: pt.sigmoid(x**0.3), lambda x: pt.arccosh(x) ** 2,
]  # fmt: skip
TWO = [
    pt.add,
    pt.sub,
    pt.mul,
    pt.true_div,
    pt.maximum,
    pt.minimum,
    pt.pow,
    lambda x, y: pt.switch(x > 0, x, y),
    lambda x, y: pt.clip(0.3, x, y),
    lambda x, y: pt.clip(x, y, 0.5),
]


def _contains(interval, v):
    above = v > interval.lo or (v == interval.lo and not interval.without_lo)
    return above and (v < interval.hi or (v == interval.hi and not interval.without_hi))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("functions", [ONE, TWO], ids=["one", "two"])
def test_values_are_within_their_interval(python_mode, functions, name):
    x, y = pt.dscalars("x", "y")
    for other in GIVEN if functions is TWO else ["any"]:
        graphs = [f(x, y) if functions is TWO else f(x) for f in functions]
        ranges = Ranges({x: GIVEN[name][0], y: GIVEN[other][0]})
        found = [ranges(g) for g in graphs]
        evaluate = pytensor.function([x, y], graphs, on_unused_input="ignore")
        for a in GIVEN[name][1]:
            for b in GIVEN[other][1]:
                for k, v in enumerate(evaluate(a, b)):
                    # rounding reaches the ends
                    near = np.nextafter(v, 0.5 * (max(found[k].lo, -1e9) + min(found[k].hi, 1e9)))
                    inside = any(_contains(found[k], number) for number in (v, near))
                    assert inside or np.isinf(v) or (np.isnan(v) and found[k].or_none), (k, a, b, v, found[k])


def test_always_positive_is_for_any_data():
    with pm.Model():
        scale = pm.Data("scale", 2.0)
        s, mu = pm.HalfNormal("s"), pm.Normal("mu")
        assert always_positive(s) and always_positive(pt.exp(mu) + s)
        assert not always_positive(mu) and not always_positive(s * mu)
        assert Ranges()(scale).positive and not always_positive(scale)
        x = pt.dscalar("x")
        assert always_positive(x**2 + 1e-3) and not always_positive(x)
        assert always_positive(x, {x: Interval(0.0)}) and not always_positive(x * scale, {x: Interval(0.0)})


def test_variables_are_above_their_own_lower_end():
    with pm.Model():
        eta, ends = pm.Data("eta", 1.0), pm.Data("ends", [1.0, 2.0])
        base = pm.InverseGamma.dist(3, 3)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "RandomVariables .* were found in the derived graph")
            tau2 = pm.Truncated("tau2", base, lower=eta**2, shape=2)
            each = pm.Truncated("each", base, lower=ends, shape=2)
        k = pm.DiscreteUniform("k", 1, 3)
    rows = np.array([0, 1, 1])
    assert always_positive(pt.sqrt(tau2[rows] - eta**2)) and always_positive(tau2 - eta**2)
    # another end, the end of another entry, and whole numbers, which take their ends
    for number in (tau2 - eta, tau2 - 2 * eta**2, each[rows] - ends[::-1][rows], k - 1):
        assert not always_positive(number)


def test_whole_numbers_are_their_own_floor():
    """As the conditions of discrete noise ask of its query, which would cost a comparison for each record."""
    x = pt.lscalar("x")
    r = pt.dscalar("r")
    whole = [x, pt.cast(x, "float64"), pt.clip(pt.cast(x, "float64"), 0, 3), 2 * x - 1]
    assert all(Ranges().always(pt.eq(v, pt.floor(v))) for v in whole)
    other = [r, pt.cast(x, "float64") / 2, pt.clip(r, 0, 3), x + r]
    assert not any(Ranges().always(pt.eq(v, pt.floor(v))) for v in other)
    assert not Ranges().always(pt.eq(x, pt.floor(r)))
