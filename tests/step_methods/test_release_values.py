"""What `pm.set_data` puts in the place of a release is refused by the name of the release."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp

N = 4


def noisy(query, observed):
    return dp.LaplaceMechanism(
        "z", query(pm.Normal("y", pm.Normal("mu"), 1, shape=N)), scale=1, observed=observed
    )


def rows(y):
    return y


def total(y):
    return y.sum()


@pytest.mark.parametrize(
    ("query", "first", "later", "message"),
    [
        (rows, np.zeros(N), [0.1, np.nan, 0.3, 0.4], r"z has 1 missing or infinite values, .* index \(1,\)"),
        (rows, np.zeros(N), [np.inf] * N, r"z has 4 missing or infinite values, .* index \(0,\)"),
        (total, 0.0, np.nan, r"z has 1 missing or infinite values, .*index \(\)"),
        (rows, np.zeros(N), np.zeros(6), r"z holds values of shape \(6,\), but .* of shape \(4,\)"),
    ],
)
def test_values_that_no_release_has(query, first, later, message):
    with pm.Model() as model:
        noisy(query, pm.Data("data", first))
        pm.set_data({"data": later})
        for step in (dp.RecordImputation, dp.AncillaryUpdate):
            with pytest.raises(ValueError, match=message):
                step()
    with pytest.raises(ValueError, match=message):
        pm.sample(draws=1, tune=0, chains=1, progressbar=False, model=model)


def test_data_that_are_set_after_the_step_was_made():
    with pm.Model():
        noisy(total, pm.Data("data", 0.0))
        step = dp.RecordImputation()
        step.setup_chain(np.random.default_rng(1), 0, 10)
        pm.set_data({"data": np.nan})
        with pytest.raises(ValueError, match="z has 1 missing"):
            step.setup_chain(np.random.default_rng(1), 0, 10)


def test_lengths_that_change_together():
    """A release may be longer after `pm.set_data` if its records are as well."""
    with pm.Model() as model:
        x, data = pm.Data("x", np.zeros(N)), pm.Data("data", np.zeros(N))
        y = pm.Normal("y", pm.Normal("mu") + x, 1, shape=x.shape)
        dp.LaplaceMechanism("z", y, scale=1, observed=data)
        pm.set_data({"x": np.zeros(6), "data": np.zeros(6)})
        dp.RecordImputation()
        pm.set_data({"data": np.zeros(5)})
        with pytest.raises(ValueError, match=r"z holds values of shape \(5,\), but .* of shape \(6,\)"):
            dp.RecordImputation()
    assert model.observed_RVs


def test_a_category_that_is_none():
    with pm.Model() as model:
        data = pm.Data("data", np.array([0, 1, 2, 1]))
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=N)
        dp.RandomizedResponse("z", y, epsilon=1, observed=data)
        step = dp.RecordImputation()
        pm.set_data({"data": np.array([0, 1, 5, 1])})
    step.setup_chain(np.random.default_rng(1), 0, 10)
    with pytest.raises(ValueError, match=r"density of z is zero.*z holds values that its mechanism never"):
        step.step(model.initial_point())
