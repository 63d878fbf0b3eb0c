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


# ---- records that are integrated out ----------------------------------------------------------------


def marginal_of_two(declare, parent=True, names=("y0", "y1")):
    """A model of two releases about the same four people, and the same without their records."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=4) if parent else 0.0
        for name in dict.fromkeys(names):
            declare(name, b)
        for k, name in enumerate(names):
            dp.GaussianMechanism(f"z{k}", model[name], rho=1, sensitivity=1, observed=np.zeros(4))
    return model, dp.marginalize(model, list(dict.fromkeys(names)))


def normal(name, b):
    pm.Normal(name, b, 1, shape=4)


def mixture(name, b):
    """Its weights say nothing of the people, its components do."""
    pm.NormalMixture(name, [0.5, 0.5], mu=b[:, None] + np.array([0.0, 1.0]), sigma=1, shape=4)


LINKED = {
    "one record": (normal, False, ("y", "y")),
    "a latent parent": (normal, True, ("y0", "y1")),
    "a parent of components": (mixture, True, ("y0", "y1")),
}


@pytest.mark.parametrize(("declare", "parent", "names"), LINKED.values(), ids=LINKED)
def test_people_are_the_same_when_their_records_are_integrated_out(declare, parent, names):
    model, marginal = marginal_of_two(declare, parent, names)
    for declared in (model, marginal):
        assert dp.guarantee(declared, disjoint=True).rho == dp.guarantee(declared).rho == 2
        for pair in (["z0", "z1"], ["z1", "z0"]):
            with pytest.raises(ValueError, match=r"z[01] and z[01] both read"):
                dp.guarantee([declared[name] for name in pair], disjoint=True)
    if parent:
        partly = dp.marginalize(model, ["y0"])
        assert dp.guarantee(partly, disjoint=True).rho == 2
        with pytest.raises(ValueError, match="both read b"):
            dp.guarantee([partly["z0"], partly["z1"]], disjoint=True)


def test_records_of_one_name_in_two_models_are_two_peoples():
    hospitals = [marginal_of_two(normal, False, ("y", "y"))[1] for _ in range(2)]
    assert dp.guarantee([hospital["z0"] for hospital in hospitals], disjoint=True).rho == 1


def test_a_release_behind_a_law_that_is_integrated_out_is_hidden():
    with pm.Model() as model:
        u, y = pm.Normal("u", shape=4), pm.Poisson("y", 3, shape=4)
        dp.LaplaceMechanism("b", u.sum(), epsilon=1, bounds=(-1, 1), observed=0.3)
        rate = dp.DiscreteLaplaceMechanism.dist(y, epsilon=7, sensitivity=1)
        w = pm.Poisson("w", rate, shape=4)
        dp.DiscreteLaplaceMechanism("z", w, epsilon=1, sensitivity=1, observed=np.zeros(4, int))
    for declared, where in ((model, "w"), (dp.marginalize(model, ["w"]), "z")):
        with pytest.raises(ValueError, match=f"hidden in {where}"):
            dp.guarantee(declared)


def test_guarantees_of_resized_data_are_refused_without_records_too():
    """With a third number of each person the rows cost half as much again as the noise is for."""
    with pm.Model() as model:
        table, seen = (pm.Data(name, np.zeros((5, 2))) for name in ("table", "seen"))
        pairs = pm.Normal("pairs", table, 1)
        dp.LaplaceMechanism("z", pairs, epsilon=1, bounds=(0, 1), observed=seen)
    marginal = dp.marginalize(model, ["pairs"])
    assert dp.guarantee(marginal).epsilon == 1
    pm.set_data({"table": np.zeros((7, 2)), "seen": np.zeros((7, 2))}, model=marginal)
    assert dp.guarantee(marginal["z"]).epsilon == 1
    pm.set_data({"table": np.zeros((7, 3)), "seen": np.zeros((7, 3))}, model=marginal)
    with pytest.raises(ValueError, match=r"guarantee of z .* other lengths .* declare the model"):
        dp.guarantee(marginal)


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
