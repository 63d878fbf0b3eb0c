"""Releases that list only the keys that passed a threshold: how probable that is, declarations, files."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats as st

import pymc_dp as dp
from pymc_dp.mechanisms import _count_tails, unknown_keys
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.processing import SUPPRESSED, Processing
from tests.mechanisms.keys import COUNTS, LAWS, LEVEL, NOISES, PROCESSINGS, declared, share

NAN = math.nan
RATES = (0.01, 0.7, 8.0, 40.0)


def terms(model, rates, records=("people",)):
    """What the listing adds to the log density of a model, at rates."""
    sizes = model.eval_rv_shapes()
    logp = model.compile_logp(vars=[model["z_listed"]])
    point = {name: np.ones(sizes[name], dtype=int) for name in records}
    return np.array([float(logp({**point, "rate_log__": np.log(rate)})) for rate in rates])


def off(law, noise, processing, rates=RATES):
    """How far the term is from the sum over counts, in multiples of a rounding error of it."""
    found = terms(declared(law, noise, processing, K=3), rates)
    exact = -3 * np.log(share(law, noise, processing, rates))
    return np.abs(found - exact) / (1e-12 + 1e-13 * np.abs(exact))


@pytest.mark.compiles(6)
@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("law", LAWS)
def test_probability_that_a_key_is_listed(law, noise):
    """Beside the sum over thousands of counts, with each order of clip, rounding and threshold."""
    for processing in PROCESSINGS:
        assert off(law, noise, processing).max() < 10, processing


@pytest.mark.usefixtures("python_mode")
def test_far_tails():
    """Thresholds that no count reaches but by chance, where probabilities have no digits of their own."""
    for law, noise, threshold in (("Poisson", "discrete gaussian", 400), ("geometric", "gaussian", 2000)):
        processing = {"suppress_below": threshold}
        (found,) = terms(declared(law, noise, processing, K=1), (0.5,))
        k = np.arange(6000)
        f = LAWS[law][1](0.5).logpmf(k)
        shown = NOISES[noise][2](threshold, k)
        with np.errstate(divide="ignore"):
            exact = -np.logaddexp.reduce(f + np.log(shown))
        assert abs(found / exact - 1) < 1e-10 and exact > 700, law


@pytest.mark.usefixtures("python_mode")
def test_parameters_by_key_and_random_noise():
    """Keys that data tell apart have a probability each; the noise level may be a variable of the model."""
    x, scale = np.array([0.0, 0.5, 1.0]), 3.0
    with pm.Model() as model:
        a, b = pm.Normal("a", 1, 1), pm.Normal("b", 0, 1)
        s = pm.HalfNormal("s", 3)
        people = pm.Poisson("people", pt.exp(a + b * x), shape=3)
        listed = dp.postprocessed([9, 6, 7], suppress_below=5, unknown_keys=True)
        dp.DiscreteLaplaceMechanism("z", people, scale=s, observed=listed)
    logp = model.compile_logp(vars=[model["z_listed"]])
    found = logp({"a": 0.7, "b": 1.2, "s_log__": math.log(scale), "people": np.ones(3, dtype=int)})
    k = np.arange(400)
    shown = st.dlaplace(1 / scale).sf(4 - k)
    exact = -sum(np.log(st.poisson(rate).pmf(k) @ shown) for rate in np.exp(0.7 + 1.2 * x))
    assert abs(found / exact - 1) < 1e-12


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("truncated", [False, True])
def test_more_keys_set_later(truncated):
    """The term counts the keys that there are when it is read."""
    with pm.Model() as model:
        data = pm.Data("data", [9.0, 12.0, 20.0])
        rate = pm.Gamma("rate", 2, 0.3)
        if truncated:
            people = pm.Truncated("people", pm.Poisson.dist(rate), lower=1, shape=data.shape[0])
        else:
            people = pm.Poisson("people", rate, shape=data.shape[0])
        dp.LaplaceMechanism("z", people, scale=2.0, observed=listed(data))
    three = terms(model, (4.0,))
    pm.set_data({"data": [9.0, 12.0, 20.0, 8.0, 8.5]}, model=model)
    assert np.allclose(terms(model, (4.0,)) / 5, three / 3, rtol=1e-12) and (three > 1).all()


@pytest.mark.usefixtures("python_mode")
def test_counts_that_are_clamped():
    """Before the noise, from either side."""
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.3)
        people = pm.Poisson("people", rate, shape=2)
        listed = dp.postprocessed([9, 12], suppress_below=8, unknown_keys=True)
        dp.DiscreteLaplaceMechanism("z", people, scale=2.0, bounds=(1, 6), observed=listed)
    k = np.arange(400)
    shown = st.dlaplace(1 / 2).sf(7 - np.clip(k, 1, 6))
    exact = [-2 * np.log(st.poisson(rate).pmf(k) @ shown) for rate in RATES]
    assert np.allclose(terms(model, RATES), exact, rtol=1e-12)


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("law", ["negative binomial", "binomial"])
def test_slopes(law):
    """NUTS follows them, also those by the second parameter of a law and by the noise."""
    with pm.Model() as model:
        a, b, s = pm.Normal("a"), pm.Normal("b"), pm.Normal("s")
        if law == "binomial":
            people = pm.Binomial("people", 30, pm.math.sigmoid(a), shape=2)
        else:
            people = pm.NegativeBinomial("people", mu=pt.exp(a), alpha=pt.exp(b), shape=2)
        listed = dp.postprocessed([9, 12], suppress_below=8, unknown_keys=True)
        dp.LaplaceMechanism("z", people, scale=pt.exp(s), observed=listed)
    value = [model.rvs_to_values[v] for v in (a, b, s)]
    (term,) = model.replace_rvs_by_values([model["z_listed"]])
    slopes = pytensor.grad(term, value, disconnected_inputs="ignore")
    f = pytensor.function(value, [term, *slopes], on_unused_input="ignore")
    h = 1e-5
    for at in (np.array([1.0, 0.3, 0.5]), np.array([-1.0, -1.2, 1.5]), np.array([3.0, 2.0, -0.5])):
        for i, by in enumerate(f(*at)[1:]):
            step = h * np.eye(3)[i]
            numeric = (f(*(at + step))[0] - f(*(at - step))[0]) / (2 * h)
            assert abs(by - numeric) < 1e-6 * max(1, abs(numeric))


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("law", ["Poisson", "negative binomial", "binomial"])
def test_laws_of_what_is_listed_add_up_to_one(law):
    """With the counts integrated out a release has a law of its own, and the model no further term."""
    values = np.arange(8, 700, 4)
    model = declared(law, "discrete laplace", {"round_to": 4, "suppress_below": 8}, values=values)
    marginal = dp.marginalize(model, "people")
    assert not marginal.potentials and [rv.name for rv in marginal.free_RVs] == ["rate"]
    logp = marginal.compile_logp(vars=[marginal["z"]], sum=False)
    for rate in RATES:
        assert abs(np.exp(logp({"rate_log__": np.log(rate)})[0]).sum() - 1) < 1e-10


@pytest.mark.usefixtures("python_mode")
def test_a_potential_of_that_name_is_the_users_own():
    """Integrating records out takes the term of the listing along, and nothing that is only called so."""
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        people = pm.Bernoulli("people", p, shape=3)
        dp.RandomizedResponse("z", people, epsilon=1, observed=[0, 1, 1])
        pm.Potential("z_listed", -50 * (p - 0.2) ** 2)
    assert [v.name for v in dp.marginalize(model, "people").potentials] == ["z_listed"]


K = np.arange(60_000)


def shown_by(noise, threshold, level):
    """Log probability that each count is listed, in closed form."""
    if noise == "gaussian":
        return st.norm(K, level).logsf(threshold)
    q, above = math.exp(-1 / level), np.maximum(K - threshold + 1, 0)
    return np.where(
        K < threshold, (K - threshold) / level - math.log1p(q), np.log1p(-np.exp(-above / level) / (1 + q))
    )


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("noise", ["discrete laplace", "gaussian"])
@pytest.mark.parametrize("law", LAWS)
def test_noise_of_any_level(law, noise):
    """Where noise is larger than counts these end the sum, also at levels that samplers try on their way."""
    mechanism, label, _ = NOISES[noise]
    with pm.Model() as model:
        rate, level = pm.Gamma("rate", 2, 0.3), pm.HalfCauchy("level", 5)
        LAWS[law][0](rate, shape=2)
        observed = dp.postprocessed([9, 12], suppress_below=8, unknown_keys=True)
        mechanism("z", model["people"], **{label: level}, observed=observed)
    logp = model.compile_logp(vars=[model["z_listed"]])

    def found(rate, level):
        point = {"people": np.ones(2, dtype=int), "rate_log__": math.log(rate)}
        return float(logp({**point, "level_log__": math.log(level)}))

    for rate in (0.01, 3.0, 900.0):
        f = LAWS[law][1](rate).logpmf(K)
        for s in (0.3, 40.0, 3000.0, 1e7):
            exact = -2 * np.logaddexp.reduce(f + shown_by(noise, 8, s))
            assert abs(found(rate, s) - exact) < 1e-10 * max(1, exact), (rate, s)
    for s in (1e12, 1e30, 1e300):
        assert 0 < found(3.0, s) < 2 * math.log(3)
    if law not in ("binomial", "Bernoulli"):
        assert found(1e25, 1e25) == -math.inf  # and no array of that length


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("law", ["Poisson", "negative binomial", "geometric"])
def test_noise_of_any_level_with_counts_integrated_out(law):
    with pm.Model() as model:
        rate, level = pm.Gamma("rate", 2, 0.3), pm.HalfCauchy("level", 5)
        people = LAWS[law][0](rate, shape=2)
        dp.DiscreteLaplaceMechanism("z", people, scale=level, observed=[9, -30])
    marginal = dp.marginalize(model, "people")
    logp = marginal.compile_logp(vars=[marginal["z"]])
    for rate in (0.01, 3.0, 900.0):
        f = LAWS[law][1](rate).logpmf(K)
        for s in (0.3, 40.0, 3000.0, 1e7):
            found = float(logp({"rate_log__": math.log(rate), "level_log__": math.log(s)}))
            exact = sum(
                np.logaddexp.reduce(f + math.log(math.tanh(0.5 / s)) - np.abs(y - K) / s) for y in (9, -30)
            )
            assert abs(found - exact) < 1e-10 * abs(exact), (rate, s)
    for s in (1e12, 1e30, 1e300):
        found = float(logp({"rate_log__": 1.0, "level_log__": math.log(s)}))
        assert abs(found + 2 * math.log(2 * s)) < 1e-9 * abs(found)
    assert float(logp({"rate_log__": 60.0, "level_log__": 60.0})) == -math.inf


@pytest.mark.parametrize("x", [2.0, 30.0, 700.0])
def test_few_counts_are_beyond(x, rng):
    """By SciPy's tails; and not many more terms than it takes."""
    laws = {
        "p": lambda: ([m := rng.choice([1e-4, 0.3, 9.0, 4e3])], st.poisson(m), pm.Poisson.dist(1.0)),
        "g": lambda: ([p := rng.choice([1e-5, 0.2, 0.9999])], st.geom(p), pm.Geometric.dist(0.5)),
        "n": lambda: (
            [n := rng.choice([0.01, 2.0, 1e5]), p := rng.choice([1e-3, 0.4, 0.9999])],
            st.nbinom(n, p),
            pm.NegativeBinomial.dist(n=1.0, p=0.5),
        ),
        "b": lambda: (
            [500.0, p := rng.choice([1e-4, 0.3, 0.99])],
            st.binom(500, p),
            pm.Binomial.dist(5, 0.5),
        ),
    }
    for law in laws.values():
        for _ in range(6):
            params, exact, rv = law()
            graph = _count_tails.few_beyond(
                rv.owner.op, [pt.constant(float(p)) for p in params], pt.constant(-x)
            )
            beyond = float(graph.eval(mode="FAST_COMPILE"))
            assert exact.logsf(beyond) <= -x + 1e-6 or exact.sf(beyond) == 0
            if x == 30.0:
                assert beyond <= 12 * (exact.isf(math.exp(-x)) + 10)


# -- faults that these tests are there to find ------------------------------------------------------


def no_counts_beyond(monkeypatch):
    monkeypatch.setattr(unknown_keys, "log_tail", lambda law, rows, log_f, k: pt.full_like(log_f(k), -800.0))
    monkeypatch.setattr(unknown_keys, "_BEYOND", 0)


def one_count_too_many(monkeypatch):
    tails = {kind: lambda k, *row, of=of: of(k + 1.0, *row) for kind, of in _count_tails.TAILS.items()}
    monkeypatch.setattr(_count_tails, "TAILS", tails)


def above_the_threshold_only(monkeypatch):
    least = Processing.least_published
    monkeypatch.setattr(Processing, "least_published", lambda self, whole: least(self, whole) + whole)


def rounding_forgotten(monkeypatch):
    monkeypatch.setattr(Processing, "least_published", lambda self, whole: self.suppress_below)


def noise_twice(monkeypatch):
    published = dp.mechanisms.processed.ProcessedRV.log_published
    monkeypatch.setattr(
        dp.mechanisms.processed.ProcessedRV, "log_published", lambda op, q, s: published(op, q, 2 * s)
    )


def counts_from_one(monkeypatch):
    arange = pt.arange
    monkeypatch.setattr(unknown_keys.pt, "arange", lambda first, end: arange(first + 1, end))


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize(
    "fault",
    [no_counts_beyond, one_count_too_many, above_the_threshold_only, rounding_forgotten, noise_twice,
     counts_from_one],
)  # fmt: skip
def test_faults_are_found(fault, monkeypatch):
    processing = {"round_to": 4, "suppress_below": 8}
    assert off("negative binomial", "discrete laplace", processing).max() < 10
    fault(monkeypatch)
    assert off("negative binomial", "discrete laplace", processing).max() > 1000


# -- noise for keys that occur in the data only -----------------------------------------------------


def selected(count, noise="discrete laplace", **given):
    mechanism, label, _ = NOISES[noise]
    with pm.Model() as model:
        people = count(pm.Gamma("rate", 2, 0.3))
        observed = listed(unknown_keys="nonempty")
        mechanism("z", people, **{label: LEVEL, **given}, observed=observed)
    return model


def poisson_from(least):
    return lambda rate: pm.Truncated("people", pm.Poisson.dist(rate), lower=least, shape=3)


@pytest.mark.usefixtures("python_mode")
@pytest.mark.parametrize("noise", NOISES)
def test_counts_that_are_not_zero(noise):
    """A truncated law is divided by its mass, which cancels in what the listed keys say."""
    for least in (1, 4):
        found = terms(selected(poisson_from(least), noise), RATES)
        for term, rate in zip(found, RATES, strict=True):
            f = st.poisson(rate).pmf(COUNTS[least:])
            exact = -3 * np.log(f @ NOISES[noise][2](8, COUNTS[least:]) / st.poisson(rate).sf(least - 1))
            assert abs(term - exact) < 1e-11 * (1 + abs(exact))
    alpha = np.float64(0.7)
    model = selected(
        lambda rate: pm.Truncated("people", pm.NegativeBinomial.dist(mu=rate, alpha=alpha), lower=1, shape=3)
    )
    f = st.nbinom(alpha, alpha / (alpha + 8.0))
    exact = -3 * np.log(f.pmf(COUNTS[1:]) @ NOISES["discrete laplace"][2](8, COUNTS[1:]) / f.sf(0))
    assert np.isclose(terms(model, (8.0,))[0], exact, rtol=1e-12)


def test_counts_that_may_be_zero():
    for count in (
        lambda rate: pm.Poisson("people", rate, shape=3),
        poisson_from(0),
        lambda rate: pm.DiscreteUniform("people", 0, 9, shape=3),
    ):
        with pytest.raises(ValueError, match='people may be 0, but z has unknown_keys="nonempty": a key'):
            selected(count)
    selected(lambda rate: pm.Geometric("people", 1 / (1 + rate), shape=3))
    selected(lambda rate: pm.DiscreteUniform("people", 1, 9, shape=3))
    with pytest.raises(ValueError, match="people has the law TruncatedPoisson"):
        selected(lambda rate: pm.Truncated("people", pm.Poisson.dist(rate), lower=1, upper=30, shape=3))


def test_the_guarantee_of_a_selection_is_not_that_of_the_noise(seeded_entropy):
    """A listed key tells that somebody is there: delta is the threshold's, and is stated or unknown."""
    budget = {"scale": None, "epsilon": 0.5, "sensitivity": 1}
    model = selected(poisson_from(1), **budget)
    geometric = selected(lambda rate: pm.Geometric("people", 1 / (1 + rate), shape=3), **budget)
    for z in (model["z"], dp.marginalize(geometric, "people")["z"]):
        with pytest.raises(
            ValueError, match="guarantee of z is not known: noise was added only to keys that"
        ):
            dp.guarantee(z)
    noisy = dp.DiscreteLaplaceMechanism.release(np.array([31, 1, 17]), epsilon=0.5, sensitivity=1)
    release = noisy.postprocessed(suppress_below=8, unknown_keys="nonempty")
    assert release.guarantee is None and noisy.guarantee.epsilon == 0.5
    with pytest.raises(ValueError, match="not known: noise was added only to keys that occur in the data"):
        dp.guarantee(release)
    for pure in (PrivacyGuarantee(0.5), PrivacyGuarantee(math.inf, rho=0.1)):
        with pytest.raises(ValueError, match="guarantee has delta = 0, which does not hold: noise was added"):
            dataclasses.replace(release, guarantee=pure)
    stated = dataclasses.replace(release, guarantee=PrivacyGuarantee(0.5, 1e-3))
    again = dp.Release.from_json(stated.to_json())
    assert again == stated and again.processing.unknown_keys == "nonempty"
    with pm.Model():
        people = pm.Geometric("people", 0.1, shape=len(again.value))
        z = dp.DiscreteLaplaceMechanism("z", people, observed=again)
    for known in (dp.guarantee(again), dp.guarantee(z)):
        assert (known.epsilon, known.delta, known.stated) == (0.5, 1e-3, True)


# -- declarations -----------------------------------------------------------------------------------


def listed(values=(9, 12, 20), **given):
    return dp.postprocessed(values, **{"suppress_below": 8, "unknown_keys": True, **given})


BAD = {
    "no threshold": ({"suppress_below": None, "round_to": 5}, "unknown_keys=True needs suppress_below="),
    "nothing was done": ({"suppress_below": None}, "unknown_keys=True needs suppress_below="),
    "missing": ({"values": [9, NAN, NAN]}, "values has 2 missing entries, but with unknown_keys=True only"),
    "masked": (
        {"values": np.ma.masked_array([9, 12], [True, False])},
        "values has 1 missing entry, but with unknown_keys=True only keys that were published",
    ),
    "pandas": ({"values": pd.Series([9, None])}, "values has 1 missing entry"),
    "below": ({"values": [9, 7]}, "the value 7 was published, below suppress_below = 8"),
    "rounded": ({"values": [9], "round_to": 5}, "the value 9 was published, no multiple of round_to = 5"),
    "infinite": ({"values": [9, math.inf]}, "infinite entries"),
    "all listed": (
        {"clip": (8, None)},
        "unknown_keys=True, but nothing that is clipped and rounded before is below suppress_below = 8: all",
    ),
    "no values": ({"values": None}, "values must be given with unknown_keys=True"),
    "a table": ({"values": [[9, 12], [8, 20]]}, "values must have one axis with unknown_keys=True"),
    "a number": ({"values": 9.0}, "values must have one axis with unknown_keys=True, .* got 0 axes"),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD)
def test_values_that_are_no_list_of_keys(given, message):
    with pytest.raises(ValueError, match=message):
        listed(**given)


def test_unknown_keys_is_yes_or_no():
    with pytest.raises(TypeError, match="unknown_keys must be True, False or 'nonempty', got int"):
        listed(unknown_keys=1)
    with pytest.raises(ValueError, match="unknown_keys must be True, False or 'nonempty', got 'yes'"):
        listed(unknown_keys="yes")


def with_query(query, count=lambda: pm.Poisson("people", 5.0, shape=3), **given):
    with pm.Model() as model:
        people = count()
        dp.LaplaceMechanism("z", query(people), scale=2.0, observed=listed(**given))
    return model


QUERIES = {
    "sums over keys": lambda x: pt.stack([x[:2].sum(), x[1:].sum(), x.sum()]),
    "a multiple": lambda x: 2 * x,
    "two counts a key": lambda x: x + pm.Poisson("others", 1.0, shape=3),
    "a sum with weights": lambda x: pt.dot(np.ones((3, 3)), x),
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_queries_that_are_not_the_count_of_each_key(query):
    with pytest.raises(ValueError, match="The query of z is not the count of each key itself"):
        with_query(query)


def test_laws_that_are_not_known():
    others = {
        "Normal": lambda: pm.Normal("people", 9, 3, shape=3),
        "Multinomial": lambda: pm.Multinomial("people", 40, np.ones(3) / 3),
        "BetaBinomial": lambda: pm.BetaBinomial("people", 1.0, 2.0, 30, shape=3),
        "TruncatedGeometric": lambda: pm.Truncated("people", pm.Geometric.dist(0.2), lower=3, shape=3),
    }
    for law, count in others.items():
        with pytest.raises(ValueError, match=f"people has the law {law}, of which the probability that z"):
            with_query(lambda x: x, count)


def test_keys_with_parameters_of_their_own():
    """The others have theirs, too, which are in no model: a division by the listed ones' would be wrong."""
    group = np.array([2, 0, 1])
    own = {
        "a rate": (lambda u: pt.exp(u), 3),
        "a rate in a vector": (lambda u: pt.exp(0.3 + np.array([1.0, 2.0, 3.0]) * u), 3),
        "picked by key": (lambda u: pt.exp(u)[group], 3),
        "the first of more": (lambda u: pt.exp(u[:3]), 5),
        "along another axis": (lambda u: pt.exp(u.sum(axis=0)), (2, 3)),
        "by a matrix": (lambda u: pt.exp(pt.dot(np.eye(3)[group], u)), 3),
    }
    for form, shape in own.values():
        with pytest.raises(
            ValueError, match="u has an entry for each key of people, and keys that z does not"
        ):
            with_query(lambda x: x, lambda f=form, s=shape: pm.Poisson("people", f(pm.Normal("u", shape=s))))
    kinds = {
        "a kind": (lambda u: pt.constant(np.array([1.0, 9.0]))[u], 3),
        "along another axis": (lambda u: pt.constant(np.array([1.0, 9.0]))[u[0]], (1, 3)),
        "the last of more": (lambda u: pt.switch(pt.eq(u[1:], 1), 9.0, 1.0), 4),
        "two for each": (lambda u: 1.0 + u.sum(axis=0), (2, 3)),
    }
    for form, shape in kinds.values():
        with pytest.raises(ValueError, match="u has an entry for each key of people"):
            with_query(
                lambda x: x,
                lambda f=form, s=shape: pm.Poisson("people", f(pm.Bernoulli("u", 1e-4, shape=s)), shape=3),
            )
    thresholds = (lambda u: pt.switch(u[0] > 0, 9.0, 1.0), lambda u: pt.exp(pt.round(u[0])))
    for form in thresholds:  # without slopes
        with pytest.raises(ValueError, match="u has an entry for each key of people"):
            with_query(lambda x: x, lambda f=form: pm.Poisson("people", f(pm.Normal("u", shape=(1, 3)))))
    shared = {
        "groups": (lambda u: pt.exp(u)[np.array([0, 1, 1])], 2),
        "groups of which some have no listed key": (lambda u: pt.exp(u)[np.array([0, 4, 4])], 5),
        "coefficients": (lambda u: pt.exp(pt.dot(np.eye(3) + 0.1, u)), 3),
        "one of many": (lambda u: pt.exp(u[0]) * np.ones(3), 3),
        "a table of two kinds": (lambda u: pt.exp(u[np.array([0, 0, 1]), np.array([1, 1, 0])]), (2, 2)),
    }
    for form, shape in shared.values():
        with_query(lambda x: x, lambda f=form, s=shape: pm.Poisson("people", f(pm.Normal("u", shape=s))))
    with_query(lambda x: x, lambda: pm.Poisson("people", pt.exp(pm.Flat("u", shape=4)).sum(), shape=3))


def test_many_keys_with_parameters_of_their_own():
    """Some of the entries tell, of which not all are tried."""
    n = 2000
    for own, shape in ((lambda u: u[0], (1, n)), (lambda u: u[:n], 2 * n)):
        with pytest.raises(ValueError, match="u has an entry for each key of people"):
            with_query(
                lambda x: x,
                lambda f=own, s=shape: pm.Poisson("people", pt.exp(f(pm.Normal("u", shape=s)))),
                values=np.full(n, 9.0),
            )
    groups = np.arange(n) // 2
    with_query(
        lambda x: x,
        lambda: pm.Poisson("people", pt.exp(pm.Normal("u", shape=(1, n))[0, groups])),
        values=np.full(n, 9.0),
    )


def test_sums_that_are_too_long():
    with pytest.raises(
        ValueError, match="takes 30000097 terms for each of 1 laws of counts, since the thresh"
    ):
        with_query(lambda x: x, values=[3e7, 3e7, 3e7], suppress_below=3e7)


def test_two_releases_of_one_count():
    with pm.Model():
        people = pm.Poisson("people", 5.0, shape=3)
        dp.LaplaceMechanism("first", people, scale=2.0, observed=listed())
        with pytest.raises(ValueError, match="people is behind two releases with unknown keys, first and z"):
            dp.LaplaceMechanism("z", people, scale=2.0, observed=listed())
        # one that was drawn for the listed keys in any case is a release like others
        dp.LaplaceMechanism("z", people, scale=2.0, observed=[3.0, 4.0, 5.0])


def test_other_mechanisms_have_no_such_law():
    with pytest.raises(
        TypeError, match="observed was processed after the noise, of which RandomizedResponse"
    ):
        with pm.Model():
            x = pm.Bernoulli("x", 0.3, shape=3)
            dp.RandomizedResponse("z", x, epsilon=1.0, n_categories=2, observed=listed())


@pytest.mark.parametrize("law", ["Poisson", "binomial"])
def test_they_are_not_simulated(law):
    """Another release would list other keys."""
    model = declared(law, "discrete laplace", {"suppress_below": 8})
    for other in (model, dp.marginalize(model, "people")):
        with pytest.raises(
            ValueError, match="z lists only the keys that passed a threshold, so that a simulated"
        ):
            dp.testing.calibrate(other)


def test_unlisted_entries_are_impossible_later():
    with pm.Model() as model:
        data = pm.Data("data", [9.0, 12.0, 20.0])
        people = pm.Poisson("people", 5.0, shape=3)
        dp.LaplaceMechanism("z", people, scale=2.0, observed=listed(data))
        pm.set_data({"data": [9.0, 12.0, SUPPRESSED]})
        with pytest.raises(ValueError, match="The release z has 1 missing or infinite values"):
            pm.sample(10, tune=10, chains=1, progressbar=False)
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        logp = model.compile_logp(vars=[model["z"]])
        assert logp({"people": np.array([9, 9, 9])}) == -np.inf


@pytest.mark.usefixtures("python_mode")
def test_models_are_copied_and_pickled():
    model = declared("Poisson", "laplace", {"suppress_below": 8}, K=3)
    point = {"people": np.array([9, 9, 9]), "rate_log__": 1.5}
    same = model.compile_logp()(point)
    for other in (cloudpickle.loads(cloudpickle.dumps(model)), model.copy(), pm.do(model, {})):
        assert other.compile_logp()(point) == same
    fixed = pm.do(model, {"rate": np.exp(1.5)})
    found = fixed.compile_logp(vars=[fixed["z_listed"]])({"people": point["people"]})
    assert np.isclose(found, terms(model, (np.exp(1.5),))[0], rtol=1e-12)
    with pm.Model(name="sub") as named:
        people = pm.Poisson("people", 5.0, shape=3)
        dp.DiscreteLaplaceMechanism("z", people, scale=2.0, observed=listed())
    assert [p.name for p in named.potentials] == ["sub::z_listed"]
    assert not dp.marginalize(named, "sub::people").potentials


def test_the_guarantee_is_that_of_the_noise():
    with pm.Model() as model:
        people = pm.Poisson("people", 5.0, shape=3)
        z = dp.DiscreteLaplaceMechanism("z", people, epsilon=0.5, sensitivity=1, observed=listed())
    assert dp.guarantee(z).epsilon == dp.guarantee(model).epsilon == 0.5
    assert dp.guarantee(dp.marginalize(model, "people")["z"]) == dp.guarantee(z)


# -- published files --------------------------------------------------------------------------------


def test_releases_list_keys(seeded_entropy):
    noisy = dp.Release([31, -2, 17, 9], "DiscreteLaplaceMechanism", {"scale": (2.0, 1.0, 3.0, 2.0)})
    release = noisy.postprocessed(round_to=5, suppress_below=10, unknown_keys=True)
    assert release.value.tolist() == [30.0, 15.0, 10.0]
    assert release.parameters["scale"] == (2.0, 3.0, 2.0)
    again = dp.Release.from_json(release.to_json())
    assert again == release == pickle.loads(pickle.dumps(release)) and again.processing.unknown_keys
    assert "then suppressed below 10.0, with only those listed that were not" in str(release)
    with pm.Model() as by_file:
        people = pm.Poisson("people", 9.0, shape=3)
        dp.DiscreteLaplaceMechanism("z", people, observed=again)
    with pm.Model() as by_hand:
        people = pm.Poisson("people", 9.0, shape=3)
        given = listed([30, 15, 10], round_to=5, suppress_below=10)
        dp.DiscreteLaplaceMechanism("z", people, scale=[2.0, 3.0, 2.0], observed=given)
    point = {"people": np.array([28, 12, 14])}
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert by_file.compile_logp()(point) == by_hand.compile_logp()(point)
    with pytest.raises(ValueError, match=r"unknown_keys=True is for values with one axis, .* got 0"):
        dp.Release(31, "LaplaceMechanism", {"scale": 2.0}).postprocessed(suppress_below=3, unknown_keys=True)


def test_older_readers_do_not_take_them_for_all_keys():
    noisy = dp.Release([31, -2], "DiscreteLaplaceMechanism", {"scale": 2.0})
    content = json.loads(noisy.postprocessed(suppress_below=3, unknown_keys=True).to_json())
    assert content["version"] == 3 and content["postprocessed"]["unknown_keys"] is True
    assert json.loads(noisy.postprocessed(suppress_below=3).to_json())["version"] == 2
    for damaged in (
        {**content, "version": 2},
        {**content, "postprocessed": {**content["postprocessed"], "unknown_keys": False}},
        {**content, "postprocessed": {**content["postprocessed"], "unknown_keys": "yes"}},
    ):
        with pytest.raises(ValueError, match="This release is damaged"):
            dp.Release.from_json(json.dumps(damaged))
