"""Models that were built for data, with the data made confidential: the same laws, and none of the data."""

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

import pymc_dp as dp

N = 12
AGE = np.linspace(-1, 1, N)
REGION = np.repeat([0, 1, 2], 4)
# Numbers that no other part of a model holds.
STAND_IN = np.linspace(0.123, 4.567, N)


def by_hand(**hours):
    with pm.Model(coords={"person": range(N)}) as model:
        slope = pm.Normal("slope", 0, 1)
        sd = pm.HalfNormal("sd", 2)
        pm.Gamma("hours", mu=pm.math.exp(slope * AGE), sigma=sd, dims="person", **hours)
    return model


def check_same(first, second, rel=1e-12):
    """Both have the same free variables, with the same density at the same points."""
    assert {v.name for v in first.value_vars} == {v.name for v in second.value_vars}
    densities, rng = [m.compile_logp() for m in (first, second)], np.random.default_rng(1)
    for _ in range(5):
        point = {k: rng.normal(size=np.shape(v)) for k, v in first.initial_point().items()}
        one, other = (float(d(point)) for d in densities)
        assert np.isfinite(one) and one == pytest.approx(other, rel=rel)


@pytest.mark.parametrize("named", ["hours", ["hours"], "variable"])
def test_a_model_is_the_one_written_by_hand(named):
    built = by_hand(observed=STAND_IN)
    before = built.compile_logp()(built.initial_point())
    model = dp.unobserve(built, built["hours"] if named == "variable" else named)
    check_same(model, by_hand())
    assert model.named_vars_to_dims["hours"] == ("person",) and not model.observed_RVs
    assert built.compile_logp()(built.initial_point()) == before and built.observed_RVs  # it was not changed


def test_observing_takes_it_back():
    built = by_hand(observed=STAND_IN)
    again = pm.observe(dp.unobserve(built, "hours"), {"hours": STAND_IN})
    point = built.initial_point()
    assert again.compile_logp()(point) == pytest.approx(built.compile_logp()(point), rel=1e-12)


def test_the_data_are_gone():
    model = dp.unobserve(by_hand(observed=STAND_IN), "hours")
    held = [v.data for v in ancestors([*model.basic_RVs, *model.value_vars]) if isinstance(v, Constant)]
    assert not any(np.isin(STAND_IN, a).any() for a in held if np.asarray(a).dtype.kind == "f")


def test_shapes_that_data_gave():
    with pm.Model() as built:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=np.zeros(5))
        pm.Poisson("k", pm.math.exp(mu), observed=pm.Data("counts", np.zeros((2, 3), dtype=int)))
    model = dp.unobserve(built, ["y", "k"])
    shapes = {k: np.shape(v) for k, v in model.initial_point().items()}
    assert shapes == {"mu": (), "y": (5,), "k": (2, 3)}
    with model:
        dp.LaplaceMechanism("z", model["y"], epsilon=1, bounds=(-2, 2), observed=np.ones(5))
        dp.DiscreteLaplaceMechanism(
            "t", dp.record_sum(model["k"]), epsilon=1, bounds=(0, 9), observed=[4, 5, 6]
        )
        drawn = pm.sample(
            5, tune=5, chains=1, progressbar=False, random_seed=1, compute_convergence_checks=False
        )
    assert drawn.posterior["k"].shape == (1, 5, 2, 3)


def test_a_formula_with_groups():
    """Bambi's model, with its mechanism, has the density of the same model written by hand."""
    frame = pd.DataFrame({"hours": STAND_IN, "age": AGE, "region": REGION.astype(str)})
    priors = {
        "Intercept": bmb.Prior("Normal", mu=1, sigma=2),
        "age": bmb.Prior("Normal", mu=0, sigma=1),
        "sigma": bmb.Prior("HalfNormal", sigma=3),
        "1|region": bmb.Prior("Normal", mu=0, sigma=bmb.Prior("HalfNormal", sigma=1)),
    }
    built = bmb.Model("hours ~ age + (1|region)", frame, priors=priors, center_predictors=False)
    built.build()
    released = np.linspace(-5, 9, N)
    noise = {"epsilon": 2, "bounds": (0, 10), "observed": released}
    with dp.unobserve(built.backend.model, "hours") as model:
        dp.LaplaceMechanism("z", model["hours"], **noise)
    with pm.Model() as own:
        intercept = pm.Normal("Intercept", 1, 2)
        age = pm.Normal("age", 0, 1)
        spread = pm.HalfNormal("1|region_sigma", 1)
        offset = pm.Normal("1|region_offset", 0, 1, shape=3)
        mu = intercept + age * AGE + (spread * offset)[REGION]
        hours = pm.Normal("hours", mu, pm.HalfNormal("sigma", 3), shape=N)
        dp.LaplaceMechanism("z", hours, **noise)
    # Bambi gives offsets a law of whole numbers, for which PyTensor computes a constant in single precision.
    check_same(model, own, rel=1e-8)


def test_what_cannot_be_confidential():
    partly = np.ma.masked_invalid([0.1, np.nan, 0.3])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Normal("y", mu, 1, observed=STAND_IN)
        pm.Normal("scaled", mu, 1, observed=STAND_IN, total_size=100)
        with pytest.warns(UserWarning, match="missing"):
            pm.Normal("partly", mu, 1, observed=partly)
        x = pm.Normal("x", mu, 1, shape=3)
        dp.LaplaceMechanism("z", x, epsilon=1, bounds=(-1, 1), observed=np.zeros(3))
    for name, fault in {
        "income": "'income' is not in the model. Name one of y, scaled, partly_observed",
        "mu": "'mu' is not observed",
        "z": "'z' is a release",
        "partly_observed": "observed in part",
        "scaled": "total_size",
    }.items():
        with pytest.raises(ValueError, match=fault):
            dp.unobserve(model, name)
    with pytest.raises(ValueError, match="names no variable"):
        dp.unobserve(model, [])
    with pytest.raises(TypeError, match=r"backend.model"):
        dp.unobserve(bmb.Model("y ~ 1", pd.DataFrame({"y": STAND_IN})), "y")
    with pytest.raises(TypeError, match=r"`names`.*got int"):
        dp.unobserve(model, 3)
    with pm.Model() as nothing:
        pm.Normal("mu", 0, 1)
    with pytest.raises(ValueError, match="There is none"):
        dp.unobserve(nothing, "mu")
    with pm.Model() as started:
        pm.Normal("y", pm.Normal("mu", 0, 1, initval=0.5), 1, observed=y.eval())
    with pytest.raises(ValueError, match="initval"):
        dp.unobserve(started, "y")
