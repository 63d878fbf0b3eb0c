"""Releases that bounds and noise cannot give are told of: bounds of one person, given for groups, say."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp

COUNTS = np.array([14, -3, 22, 7, 1, 35])


def told(mechanism, query_of, **kwargs):
    """Warnings of a declaration, by their text; they point at the line here."""
    with pm.Model(), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        mechanism("z", query_of(), **kwargs)
    assert all(w.filename == __file__ for w in found)
    return [str(w.message) for w in found]


def groups():
    return pm.Binomial("c", 400, pm.Beta("p", 1, 9, shape=6))


def people():
    return pm.Normal("y", 0, 1, shape=50)


@pytest.mark.parametrize(
    ("mechanism", "level"),
    [
        (dp.LaplaceMechanism, {"epsilon": 0.5}),
        (dp.DiscreteLaplaceMechanism, {"epsilon": 0.5}),
        (dp.GaussianMechanism, {"sigma": 2.0}),
        (dp.DiscreteGaussianMechanism, {"sigma": np.full(6, 2.0)}),
    ],
)
def test_counts_of_groups_with_bounds_of_a_person(mechanism, level):
    (message,) = told(mechanism, groups, bounds=(0, 1), observed=COUNTS, **level)
    assert "z was released as" in message and "at most 1 in absolute value" in message
    level = {"epsilon": 0.5, "sensitivity": 1} if "epsilon" in level else level  # the remedy
    assert not told(mechanism, groups, observed=COUNTS, **level)


def table_of_groups():
    return pm.Binomial("c", 400, pm.Beta("p", 1, 9, shape=(12, 3)))


@pytest.mark.parametrize(
    ("mechanism", "level"),
    [(dp.DiscreteLaplaceMechanism, {"epsilon": 0.25}), (dp.GaussianMechanism, {"sigma": 12.0})],
)
def test_counts_that_are_too_large_only_together(mechanism, level):
    """Each number might be noise, of the scale 12, and all of them are not."""
    counts = np.tile([24, 31, 40], (12, 1))
    (message,) = told(mechanism, table_of_groups, bounds=(0, 1), observed=counts, **level)
    assert "of others among its 36 numbers" in message and "at most 1 in absolute value" in message
    noise = np.random.default_rng(1).laplace(scale=12, size=(12, 3)).round().astype(int)
    assert not told(mechanism, table_of_groups, bounds=(0, 1), observed=noise, **level)


@pytest.mark.parametrize(
    ("query", "most"),
    [
        (lambda y: y, 5),
        (dp.record_sum, 250),
        (lambda y: -dp.record_sum(y), 250),
        (lambda y: -3 * dp.record_sum(y), 750),
        (lambda y: y.mean(), 5),
        (lambda y: y.sum(axis=0) / 10, 25),
        (lambda y: pt.stack([dp.record_sum(y), -dp.record_sum(y**2)]), 250),
    ],
)
def test_from_where_it_is_told(query, most):
    """Noise of twenty times its level beyond what the bounds leave, for both signs; not of ten times."""
    for sign in (-1, 1):
        for times in (10, 20):
            value = np.zeros(query(pt.zeros(50)).eval().shape)
            value[(0,) * value.ndim] = sign * (most + times * 3.0)
            found = told(
                dp.LaplaceMechanism, lambda: query(people()), scale=3.0, bounds=(-5, 5), observed=value
            )
            assert len(found) == (times == 20), (sign, times)


def test_numbers_that_nobody_can_judge():
    """No bounds, a noise level that is a variable, or values that come later."""
    far = {"observed": np.full(50, 1e6)}
    assert not told(dp.LaplaceMechanism, people, scale=1.0, **far)
    assert not told(dp.LaplaceMechanism, people, scale=1.0, bounds=(0, 1))
    with pm.Model(), warnings.catch_warnings():
        warnings.simplefilter("error")
        dp.LaplaceMechanism("z", people(), scale=pm.HalfNormal("s"), bounds=(0, 1), **far)


def test_an_unknown_number_of_people():
    with pm.Model(), pytest.warns(UserWarning, match="at most 20 in absolute value"):
        n = pm.DiscreteUniform("n", 1, 20)
        y = pm.Normal("y", 0, 1, shape=20)
        dp.LaplaceMechanism(
            "z", dp.record_sum(y, count=n), scale=1.0, bounds=(0, 1), neighbours="add-remove", observed=60.0
        )
