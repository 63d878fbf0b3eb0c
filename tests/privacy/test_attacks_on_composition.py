"""Attacks on sums of guarantees: releases about the same people that are not seen, or taken for others'."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.type import random_generator_type

import pymc_dp as dp


def test_listed_releases_of_a_record_and_of_what_it_depends_on_are_not_disjoint():
    with pm.Model():
        offsets, slopes = pm.Normal("offsets", shape=10), pm.Normal("slopes", shape=3)
        x = pm.Normal("x", 0, 1, shape=10)
        y = pm.Normal("y", offsets * x + slopes.sum(), 1)
        w = pm.Normal("w", slopes[np.arange(12) % 3], 1)
        first, second, third = (
            dp.LaplaceMechanism(f"of {v.name}", v.sum(), epsilon=1, bounds=(-1, 1)) for v in (x, y, w)
        )
    for both in ([first, second], [second, first]):
        with pytest.raises(ValueError, match="both read x"):
            dp.guarantee(both, disjoint=True)
    # which share parameters only
    assert dp.guarantee([second, third], disjoint=True).epsilon == 1


@pytest.mark.parametrize(
    "between",
    [
        lambda x: pm.Normal("y", x[np.arange(20) % 10], 1),
        lambda x: pm.Normal("y", x.sum(), 1, shape=20),
        lambda x: pm.Normal("y", pm.Normal("scalar", x.sum(), 1), 1, shape=10),
        lambda x: pm.Normal("y", pm.Normal("visits", pt.concatenate([x, x]), 1)[:10], 1),
    ],
    ids=["visits", "a total", "through a number", "through visits"],
)
@pytest.mark.parametrize("released", ["x", "what x depends on row by row"])
def test_listed_releases_are_not_disjoint_whatever_is_between_them(between, released):
    with pm.Model():
        x = own = pm.Normal("x", 0, 1, shape=10)
        if released != "x":
            own = pm.Normal("own", x, 1)
        both = [
            dp.LaplaceMechanism(f"of {v.name}", v.sum(), epsilon=1, bounds=(-1, 1)) for v in (own, between(x))
        ]
    for order in (both, both[::-1]):
        with pytest.raises(ValueError, match="both read x"):
            dp.guarantee(order, disjoint=True)


def test_releases_of_one_name_are_told_apart():
    """A name like that of a second release, three times, was looked for without end."""
    releases = [dp.LaplaceMechanism.dist(float(k), epsilon=1, sensitivity=1) for k in range(3)]
    for release in releases:
        release.name = "z (2)"
    assert dp.guarantee(releases).epsilon == 3


def test_releases_hidden_in_loops_are_found():
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=10)
        dp.LaplaceMechanism("b", y.sum(), epsilon=1, bounds=(-1, 1), observed=0.3)

        def once(rng):
            return dp.LaplaceMechanism.dist(y.sum(), epsilon=7, sensitivity=1, rng=rng, return_next_rng=True)

        start = [pt.random.shared_rng(seed=1), None]
        _, draws = pytensor.scan(once, outputs_info=start, n_steps=3, return_updates=False)
        pm.Deterministic("c", draws)
    with pytest.raises(ValueError, match="hidden in c"):
        dp.guarantee(model)


def test_releases_hidden_in_batched_functions_are_found():
    number = pt.dscalar()
    rng = random_generator_type.make_constant(np.random.default_rng(0))
    hidden = OpFromGraph([number], [dp.LaplaceMechanism.dist(number, epsilon=7, sensitivity=1, rng=rng)])
    with pm.Model() as model:
        y = pm.Normal("y", 0, 1, shape=10)
        dp.LaplaceMechanism("b", y.sum(), epsilon=1, bounds=(-1, 1), observed=0.3)
        pm.Deterministic("c", Blockwise(hidden, signature="()->()")(y))
    with pytest.raises(ValueError, match="hidden in c"):
        dp.guarantee(model)


# ---- releases that are lost on the way --------------------------------------------------------------


def test_groups_of_one_name_are_both_counted():
    with pm.Model() as model:
        y, w = pm.Normal("y", shape=4), pm.Normal("w", shape=5)
        for name, query, epsilon in (("a", y, 1), ("b", y, 1), ("a with b", w, 0.1)):
            dp.LaplaceMechanism(name, query.sum(), epsilon=epsilon, bounds=(0, 1), observed=0.0)
    assert dp.guarantee(model, disjoint=True).epsilon == 2


@pytest.mark.parametrize(
    ("mechanism", "budget"), [(dp.GaussianMechanism, {"rho": 7}), (dp.LaplaceMechanism, {"epsilon": 7})]
)
def test_truncated_releases_are_found(mechanism, budget):
    """PyMC puts its own truncated normal law in the place of a truncated normal variable."""
    with pm.Model() as model:
        y = pm.Normal("y", shape=4)
        dp.LaplaceMechanism("a", y.sum(), epsilon=1, bounds=(0, 1), observed=0.0)
        pm.Truncated("c", mechanism.dist(y.sum(), sensitivity=1, **budget), lower=0, observed=0.3)
    with pytest.raises(ValueError, match="hidden in c"):
        dp.guarantee(model)
