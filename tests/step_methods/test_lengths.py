"""Steps do not depend on how a model writes its lengths: shape=, dims=, or the data's own."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.step_methods.lengths import with_known_lengths

N = 12
T = np.linspace(-1.0, 1.0, N)
WAYS = ["dims", "data", "data dims", "number"]


def lengths(way):
    """How one variable of N rows gets them, and a covariate with as many."""
    covariate = pm.Data("t", T, dims="row" if way == "data dims" else None) if way != "shape" else T

    def rows(*inner):
        if way in ("dims", "data dims"):
            return {"dims": ("row", *(f"d{k}" for k in inner))}
        length = {"shape": N, "data": covariate.shape[0] if way == "data" else 0}.get(way)
        length = pt.cast(pm.Data("length", N), "int64") if length is None else length
        return {"shape": (length, *inner)}

    return covariate, rows


def counts(t, rows):
    rate = pm.Gamma("rate", 2, 1)
    return pm.Poisson("y", rate, **rows())


def regression(t, rows):
    slope = pm.Normal("slope", 0, 1, shape=2)
    x = pm.Normal("x", 0, 1, **rows())
    return pm.Normal("y", slope[0] * t + slope[1] * x, 1) + 0 * x


def vectors(t, rows):
    mu = pm.Normal("mu", 0, 1, shape=2)
    return pm.MvNormal("y", mu, np.eye(2), **rows(2))


def table(t, rows):
    scale = pm.HalfNormal("scale", 1)
    return pm.Laplace("y", 0, scale, **rows(3))


def flags(t, rows):
    a = pm.Normal("a", 0, 1)
    return pm.Bernoulli("y", logit_p=a + t, **rows())


KINDS = {f.__name__: f for f in (counts, regression, vectors, table, flags)}


def model_of(kind, way):
    coords = {"d2": range(2), "d3": range(3)}
    if way == "dims":
        coords["row"] = range(N)
    with pm.Model(coords=coords) as model:
        y = KINDS[kind](*lengths(way))
        width = 1 if y.ndim == 1 else y.type.shape[1] or {"vectors": 2, "table": 3}[kind]
        total = dp.record_sum(dp.clamp(y, 0, 4))
        observed = 7.0 if y.ndim == 1 else np.full(width, 7.0)
        dp.LaplaceMechanism("z", total, epsilon=1, sensitivity=4 * width, observed=observed)
    return model


def drawn(model):
    with model:
        return pm.sample(
            8, tune=8, chains=1, cores=1, random_seed=3, progressbar=False, compute_convergence_checks=False
        )


# Every kind in two ways, and every way with two or three kinds: lengths are found before laws are looked at.
# That they are found for all kinds in all ways is tested below, where nothing is compiled.
COMPILED = {
    "counts": ["dims", "data"], "regression": ["data dims", "number"], "vectors": ["dims", "number"],
    "table": ["data", "data dims"], "flags": ["number", "dims"],
}  # fmt: skip


@pytest.mark.compiles(1)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_and_draws_do_not_depend_on_how_lengths_are_written(kind):
    known = drawn(model_of(kind, "shape"))
    for way in COMPILED[kind]:
        other = drawn(model_of(kind, way))
        assert set(other.sample_stats) == set(known.sample_stats), way
        for name, values in known.posterior.items():
            # code that was just compiled and code from the disk differ in rounding
            np.testing.assert_allclose(other.posterior[name], values, rtol=1e-9, err_msg=f"{way}: {name}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_length_is_known_to_the_steps(kind, way):
    model = model_of(kind, way)
    sized = with_known_lengths(model)
    assert sized is not model and sized is with_known_lengths(model)
    assert [v.name for v in sized.free_RVs] == [v.name for v in model.free_RVs]
    shapes = model.eval_rv_shapes()
    for v in sized.free_RVs:
        assert v.type.shape == tuple(shapes[v.name])


def test_lengths_of_releases_of_each_record_are_known():
    with pm.Model() as model:
        length = pt.cast(pm.Data("length", N), "int64")
        y = pm.Poisson("y", 2.0, shape=length)
        dp.LaplaceMechanism("z", y, epsilon=1, bounds=(0, 4), shape=length, observed=np.arange(N) % 5.0)
    assert with_known_lengths(model)["z"].type.shape == (N,)


def test_a_model_with_known_shapes_is_its_own():
    model = model_of("counts", "shape")
    assert with_known_lengths(model) is model


def test_data_are_shared_and_new_lengths_are_seen():
    with pm.Model(coords={"d2": range(2)}) as model:
        KINDS["counts"](*lengths("data dims"))
        assert with_known_lengths(model)["y"].type.shape == (N,)
        before = with_known_lengths(model)
        pm.set_data({"t": T + 1})
        assert with_known_lengths(model) is before
        np.testing.assert_array_equal(before["t"].get_value(), T + 1)
        pm.set_data({"t": np.zeros(N + 3)})
        assert with_known_lengths(model)["y"].type.shape == (N + 3,)


def test_a_length_that_is_a_number_in_the_data_can_change():
    with pm.Model() as model:
        KINDS["counts"](*lengths("number"))
        assert with_known_lengths(model)["y"].type.shape == (N,)
        pm.set_data({"length": N + 3})
        assert with_known_lengths(model)["y"].type.shape == (N + 3,)


def test_starting_values_are_kept():
    with pm.Model(coords={"row": range(N)}) as model:
        rate = pm.Gamma("rate", 2, 1, initval=3.0)
        y = pm.Poisson("y", rate, dims="row")
        dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(0, 4), observed=7.0)
        step = dp.AncillaryUpdate()
    assert model.rvs_to_initial_values[rate] == 3.0
    np.testing.assert_allclose(step._default_point["rate_log__"], np.log(3.0))
