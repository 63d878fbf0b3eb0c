"""Where chains start, and where they stand: only where the whole model has a density."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import pymc_dp as dp
from pymc_dp.step_methods import model_density, record_step
from tests.universal.models import BOUNDED
from tests.universal.reference import log_density

pytestmark = pytest.mark.compiles(2)

SEEDS = range(25)


def _sum(y, **kwargs):
    dp.LaplaceMechanism("z", dp.record_sum(y), **{"scale": 1.0, "observed": 1.0, **kwargs})


def demands_an_order():
    a, b = pm.Normal("a"), pm.Normal("b", 0.2)
    pm.Potential("order", pt.switch(a < b, 0.0, -np.inf))
    _sum(pm.Normal("y", a + b, 1, shape=3))


def prior_with_ends():
    _sum(pm.Normal("y", pm.Uniform("mu", -0.2, 0.2, default_transform=None), 1, shape=3))


def public_likelihood():
    mu = pm.Normal("mu", 1)
    pm.Uniform("public", 0, mu, observed=[0.2, 0.8])
    _sum(pm.Normal("y", mu, 1, shape=3))


def random_level():
    level = pm.Normal("level", 0.3, 1)
    _sum(pm.Normal("y", pm.Normal("mu") + level, 1, shape=3), scale=level)


def hyper_scale():
    s = pm.Normal("s", 0.3, 1)
    _sum(pm.Normal("y", pm.Normal("mu", 0, s), 1, shape=3))


def scale_of_records():
    _sum(pm.Normal("y", 0, pm.Normal("s", 0.3, 1), shape=3))


def child_with_ends():
    """Records drawn from their law leave no density to a public outcome: they have to move first."""
    y = pm.Normal("y", pm.Normal("mu"), 1, shape=3)
    pm.Uniform("public", y - 0.5, y + 0.5, observed=[0.9, 1.0, 1.1])
    _sum(y)


MODELS = [
    demands_an_order, prior_with_ends, public_likelihood, random_level, hyper_scale, scale_of_records,
    child_with_ends,
]  # fmt: skip


def built(declare):
    with pm.Model() as model:
        declare()
    return model


@pytest.mark.parametrize("declare", MODELS, ids=lambda f: f.__name__)
def test_every_chain_starts_inside(declare):
    model = built(declare)
    logp = log_density(model)
    with model:
        steps = [dp.AncillaryUpdate(), dp.RecordImputation()]
    seen = set()
    for seed in SEEDS:
        for step, rng in zip(steps, np.random.default_rng(seed).spawn(2), strict=True):
            step.setup_chain(rng, 10, 10)
        started = steps[0]._started(model.initial_point())
        assert np.isfinite(logp(started)), seed
        seen.add(tuple(float(np.sum(v)) for v in started.values()))
        point, _ = steps[1].step(started)
        assert np.isfinite(logp(point)), seed
    assert len(seen) == len(SEEDS)  # chains are dispersed


def test_an_unchecked_start_is_caught(monkeypatch):
    """Power: without asking the whole model some of these chains start outside."""
    monkeypatch.setattr(record_step, "is_possible", lambda model, point: True)
    with pytest.raises(AssertionError):
        test_every_chain_starts_inside(demands_an_order)


@pytest.mark.parametrize("entry", BOUNDED[::5], ids=lambda entry: entry.name)
def test_bounded_laws_start_inside(entry):
    model = entry.build(3)
    logp = log_density(model)
    with model:
        step = dp.RecordImputation()
    for seed in SEEDS:
        step.setup_chain(np.random.default_rng(seed), 10, 10)
        assert np.isfinite(logp(step._started(model.initial_point()))), seed


def test_starting_values_of_the_model_are_kept():
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 1, initval=4.25), pm.HalfNormal("s", 1)
        y = pm.Normal("y", mu, s, shape=4)
        x = pm.Normal("x", mu, s, shape=3, initval=np.array([1.0, 2.0, 3.0]))
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=1.0)
        dp.LaplaceMechanism("w", dp.record_sum(x), scale=1.0, observed=1.0)
        step = dp.RecordImputation()
    point = model.initial_point()
    step.setup_chain(np.random.default_rng(1), 10, 10)
    started = step._started(point)
    assert started["mu"] == 4.25
    np.testing.assert_array_equal(started["x"], [1.0, 2.0, 3.0])
    assert started["s_log__"] != point["s_log__"]
    assert (started["y"] != point["y"]).all()


def test_a_start_that_cannot_be_is_refused_by_name():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        y = pm.Normal("y", mu, 1, shape=3)
        pm.Potential("never", pt.switch(y**2 >= 0, -np.inf, 0.0))
        _sum(y)
        step = dp.RecordImputation()
    step.setup_chain(np.random.default_rng(1), 10, 10)
    with pytest.raises(ValueError, match=r"density of never is zero.*initval="):
        step.step(model.initial_point())


def test_the_remedy_works():
    """With starting values inside, as the message asks for, the chain starts."""
    with pm.Model() as model:
        a = pm.Normal("a", -4, 1, initval=0.5)
        y = pm.Normal("y", a, 1, shape=3)
        pm.Potential("positive", pt.switch(a > 0, 0.0, -np.inf))
        _sum(y)
        step = dp.AncillaryUpdate()
    step.setup_chain(np.random.default_rng(1), 10, 10)
    assert step._started(model.initial_point())["a"] == 0.5


def law_of_a_users():
    """Its numbers are above 1, where PyMC starts none of them."""
    s = pm.HalfNormal("s", shape=13)  # more numbers than are proposed with all records
    logp = lambda v, s: pm.logp(pm.Exponential.dist(scale=s), v - 1)  # noqa: E731
    random = lambda s, rng=None, size=None: 1 + rng.exponential(s, size=size)  # noqa: E731
    return pm.CustomDist("y", s.sum(), logp=logp, random=random, shape=3), s


def mixture_of_a_number():
    """It starts between its components."""
    c = pm.Gamma("c", 2, 1, shape=13)
    parts = [pm.DiracDelta.dist(-2.0), pm.Exponential.dist(c.sum())]
    return pm.Mixture("y", [0.5, 0.5], parts, shape=3), c


def truncated_at_its_start():
    c = pm.Normal("c", 0, 0.3, shape=13)
    return pm.Truncated("y", pm.Logistic.dist(c.sum(), 1.0), lower=0, shape=5), c


def truncated_at_a_parameter():
    c = pm.Normal("c", 0, 0.3, shape=13)
    lower = c.sum()
    return pm.Truncated("y", pm.Logistic.dist(0.0, 1.0), lower=lower, upper=lower + 3, shape=5), c


@pytest.mark.parametrize("given", [False, True], ids=["chosen", "given"])
@pytest.mark.parametrize(
    "declare", [law_of_a_users, mixture_of_a_number, truncated_at_its_start, truncated_at_a_parameter]
)
def test_steps_of_others_run_after_records_are_drawn(declare, given):
    """Where records stand before, they have no density, or none with a slope, and NUTS would end the run."""
    with pm.Model():
        y, parameter = declare()
        _sum(y)
        idata = pm.sample(
            20, tune=20, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
            compute_convergence_checks=False, step=[pm.NUTS([parameter])] if given else None,
        )  # fmt: skip
    assert "step_size" in idata.sample_stats
    draws = idata.posterior[parameter.name].values
    assert np.isfinite(draws).all() and len(np.unique(draws)) > 10


@pytest.mark.parametrize(("when", "n"), [("after tuning", 4), ("at the last draw", 10)])
def test_a_chain_that_stands_outside_ends_with_the_term(monkeypatch, when, n):
    """A step that lost its domain: the model is asked, and says which term it is."""
    with pm.Model() as model:
        _sum(pm.Normal("y", 0, pm.Normal("s", 1, 0.7), shape=3))
        step = dp.RecordImputation()
    step.setup_chain(np.random.default_rng(1), 4, 6)
    point = model.initial_point()
    for _ in range(n - 1):
        point, _ = step.step(point)
    outside = {**point, "s": np.array(-1.0)}  # as another step would leave it
    with pytest.raises(ValueError, match=f"density of y is zero.*after {n} draws"):
        step.step(outside)


def test_terms_are_named():
    with pm.Model() as model:
        s = pm.Normal("s", 1, 1)
        pm.Normal("mu", 0, s)
        pm.Potential("order", pt.switch(s > 0.5, 0.0, -np.inf))
    point = {"s": np.array(-1.0), "mu": np.array(0.0)}
    assert model_density.impossible_terms(model, point) == "mu, order"
    assert not model_density.is_possible(model, point)
    assert model_density.is_possible(model, {**point, "s": np.array(1.0)})


def test_a_density_that_overflows_as_it_is_written_is_possible():
    with pm.Model() as model:
        b = pm.Normal("b", 0, 30)
        pm.Bernoulli("y", p=pm.math.sigmoid(b), observed=[0, 1])
        pm.Bernoulli("z", p=pt.switch(b > 0, 0.5, 0.0), observed=[0, 1])
    # log(1 - sigmoid(40)) is -40
    assert model_density.is_possible(model, {"b": np.array(40.0)})
    assert not model_density.is_possible(model, {"b": np.array(-40.0)})
    assert model_density.impossible_terms(model, {"b": np.array(-40.0)}) == "z"


@pytest.mark.parametrize("given", ["labels", "a", "y"])
def test_starting_values_of_mixtures_are_kept(given):
    values = {"labels": [0, 1, 2, 3], "a": [1.0, -1.0, 2.0, 0.5], "y": [0.3, 0.1, -0.2, 0.4]}
    for by_the_model in (True, False):
        start = {given: np.array(values[given])}
        kept = {name: start.get(name) if by_the_model else None for name in values}
        with pm.Model() as model:
            labels = dp.ChineseRestaurantProcess(
                "labels", concentration=1, shape=4, max_components=4, initval=kept["labels"]
            )
            a = pm.Normal("a", 0, 2, shape=4, initval=kept["a"])
            y = pm.Normal("y", a[labels], 1, initval=kept["y"])
            dp.LaplaceMechanism("z", y, scale=1.0, observed=[0.0, 1.0, 2.0, -1.0])
            point = model.initial_point() if by_the_model else {**model.initial_point(), **start}
            step = dp.PrivateNeal5(initial_point=point)
        step.setup_chain(np.random.default_rng(2), 10, 10)
        np.testing.assert_array_equal(step._started(point)[given], values[given])


def infinite_shares(law):
    """A number so near its end that its logarithm is none: one record in forty or so."""
    y = law(pm.Kumaraswamy, 0.002, 1.0)
    dp.LaplaceMechanism("z", dp.record_sum(-pt.log(y)), scale=1.0, observed=1.0)


def infinite_times(law):
    dp.LaplaceMechanism("z", dp.record_sum(law(pm.Weibull, 0.0005, 1.0)), scale=1.0, observed=1.0)


@pytest.mark.parametrize("scalar", [True, False], ids=["scalar code", "all at once"])
@pytest.mark.parametrize("declare", [infinite_shares, infinite_times], ids=lambda f: f.__name__)
def test_records_too_large_for_numbers_are_drawn_again(declare, scalar):
    """An infinite total made every ratio no number, and no sweep could leave."""

    def law(kind, *params):
        if scalar:
            return kind("y", *params, shape=40)
        return pm.Mixture("y", [0.5, 0.5], [kind.dist(*params), kind.dist(*params)], shape=40)

    with pm.Model() as model:
        declare(law)
    step = dp.RecordImputation(model=model)
    (chain,) = step.chains
    assert (chain.moves[0].fused is not None) == scalar
    logp = model.compile_logp(mode=Mode("py", "fast_run"))  # rewritten: as written, it overflows
    for seed in SEEDS:
        step.setup_chain(np.random.default_rng(seed), 10, 10)
        assert np.isfinite(logp(step._started(model.initial_point()))), seed


def test_the_density_at_a_start_is_asked_for_once(monkeypatch):
    asked = []

    def is_possible(model, point):
        asked.append(point)
        return model_density.is_possible(model, point)

    monkeypatch.setattr(record_step, "is_possible", is_possible)
    model = built(hyper_scale)
    step = dp.RecordImputation(model=model)
    step.setup_chain(np.random.default_rng(1), 0, 10)
    step._started({**model.initial_point(), "s": np.array(1.0)})
    assert len(asked) == 1


COUNTS = {
    "poisson": lambda s: pm.Poisson("y", pt.exp(s), shape=4),
    "binomial": lambda s: pm.Binomial("y", pt.cast(pt.exp(s), "int64"), 0.5, shape=4),
    "negative binomial": lambda s: pm.NegativeBinomial("y", mu=pt.exp(s), alpha=2.0, shape=4),
    "geometric": lambda s: pm.Geometric("y", pt.exp(-s), shape=4),
}


@pytest.mark.parametrize(
    ("law", "size"),
    [("binomial", 1e17), *((law, s) for law in COUNTS for s in (1e17, 1e30) if law != "binomial")],
)
def test_counts_that_are_no_numbers_any_more(law, size):
    """Beyond 2^52 neighbours are not told apart, and beyond 2^63 draws were negative."""
    with pm.Model() as model:
        s = pm.Normal("s", np.log(size), 100)
        y = COUNTS[law](s)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1.0, observed=40.0)
        step = dp.RecordImputation()
    step.setup_chain(np.random.default_rng(1), 0, 10)
    with pytest.raises(ValueError, match=r"the records y are beyond 2\^52.*initvals="):
        step.step(model.initial_point())
    # the remedy, and then a parameter that another step has moved too far
    point, _ = step.step({**model.initial_point(), "s": np.array(np.log(10.0))})
    assert 0 <= point["y"].min() and point["y"].max() < 200
    with pytest.raises(ValueError, match=r"the records y are beyond 2\^52.*larger units"):
        step.step({**point, "s": np.array(np.log(size)), "y": np.full(4, 2**60)})
