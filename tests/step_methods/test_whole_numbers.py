"""Whole numbers in the law of records: which move with the parameters, and what stands still."""

from __future__ import annotations

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.sampling import mcmc

import pymc_dp as dp
from pymc_dp.lowering.addresses.bind import plain
from pymc_dp.step_methods.claims import default_parameters
from pymc_dp.step_methods.updates import walks
from pymc_dp.step_methods.updates.state import ParameterState, of_random_walk

PLACES = np.array([-2.0, 0.0, 1.0, 4.0])
GROUP = np.array([0, 1, 2, 0, 1, 2, 0, 1])
SHORT = {"draws": 30, "tune": 30, "chains": 2, "cores": 1, "progressbar": False, "random_seed": 1}


def released(law, *laws):
    """A model of records with some law, behind a sum."""
    with pm.Model() as model:
        y = pm.Normal("y", law(), 1, shape=8) if not laws else laws[0](law())
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=3.0, observed=5.0)
    return model


def picked():
    return pt.as_tensor(PLACES)[pm.Categorical("k", np.ones(4) / 4)] + pm.Normal("a")


def multiplied():
    return pm.Poisson("k", 3) * pm.Normal("a", 1, 1)


def picked_by_group():
    k = pm.Categorical("k", np.ones(4) / 4, shape=3)
    return pm.Normal("b", shape=4)[k][GROUP] + pm.Normal("a")


def as_many_as_data():
    chances = pm.Data("chances", np.ones(4) / 4)
    return pt.as_tensor(PLACES)[pm.Categorical("k", chances)] + pm.Normal("a")


def alone():
    return pm.Binomial("k", 5, 0.5)


def changes():
    return pt.switch(pt.lt(np.arange(8), pm.DiscreteUniform("k", 0, 7)), pm.Normal("a"), 1.0)


def several():
    return pt.dot(np.ones((8, 3)), pm.Bernoulli("k", 0.3, shape=3) * pm.Normal("a", shape=3))


@pytest.mark.parametrize(
    "law",
    [picked, picked_by_group, as_many_as_data, multiplied, alone, changes, several],
    ids=lambda f: f.__name__,
)
def test_moved_with_the_parameters(law):
    model = released(law)
    with model:
        taken = [rv.name for rv in default_parameters(model)]
        step = dp.AncillaryUpdate()
        idata = pm.sample(**SHORT)
    assert set(taken) == {v.name for v in step.vars} == {rv.name for rv in model.free_RVs} - {"y"}
    assert "ancillary_acceptance" in idata.sample_stats
    k = idata.posterior["k"].values
    assert k.dtype.kind == "i" and (k != k[0, 0]).any()


def unbounded_index():
    return pt.arange(200.0)[pm.Poisson("k", 3)] + pm.Normal("a")


def entries_beyond_the_array():
    """Native code would read and write what is beside the array."""
    k = pm.DiscreteUniform("k", 0, 10**9, shape=3, initval=np.zeros(3, int))
    return pt.inc_subtensor(pt.zeros(8)[k], 3.0) + pm.Normal("a")


def entries_that_are_computed():
    k = pm.DiscreteUniform("k", 0, 2, shape=3)
    return pt.as_tensor(PLACES)[k + 1][GROUP] + pm.Normal("a")


def many():
    return pt.sum(pm.Bernoulli("k", 0.3, shape=40)) + pm.Normal("a")


def mixed(mean):
    parts = [pm.Normal.dist(mean, 1.0), pm.Normal.dist(mean, 1.0)]
    return pm.Mixture("y", [0.4, 0.6], parts, shape=8)


@pytest.mark.parametrize(
    ("law", "laws", "says"),
    [
        (unbounded_index, (), "it picks an entry of an array, and its law has no constant least"),
        (entries_beyond_the_array, (), "entries that it picks are not known to be those of the array"),
        (entries_that_are_computed, (), "entries that it picks are not known to be those of the array"),
        (many, (), "with the others they are 41 numbers, more than the 40"),
        (multiplied, (mixed,), "the other parameters are proposed with all records"),
    ],
    ids=["index without an end", "beyond", "computed", "many", "no function of noise"],
)
def test_what_is_left_to_other_steps_is_said(law, laws, says, caplog):
    caplog.set_level(logging.INFO, logger="pymc.dp")
    model = released(law, *laws)
    assert "k" not in [rv.name for rv in default_parameters(model)]
    assert f"leaves k to other steps, given the records: {says}" in caplog.text
    assert "Expect slow mixing where privacy is strong" in caplog.text
    if law not in (entries_beyond_the_array, entries_that_are_computed):  # by PyMC's step an IndexError
        with model:
            pm.sample(**SHORT, compute_convergence_checks=False)


@pytest.mark.parametrize("law", [unbounded_index, entries_beyond_the_array, entries_that_are_computed])
def test_what_may_read_beside_an_array_is_refused_where_it_is_named(law, built_only):
    model = released(law)
    with (
        model,
        pytest.raises(ValueError, match=r"k in `vars`: AncillaryUpdate does not move it, since .*array"),
    ):
        dp.AncillaryUpdate([model["k"], model["a"]])
    with model:
        assert [v.name for v in dp.AncillaryUpdate().vars] == ["a"]


def in_the_query_only():
    with pm.Model() as model:
        k, y = pm.Poisson("k", 2), pm.Normal("y", pm.Normal("a"), 1, shape=8)
        dp.LaplaceMechanism("z", dp.record_sum(y) + k, scale=3.0, observed=5.0)
    return model


def behind_a_parameter_only():
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("a", pm.Poisson("k", 2), 1), 1, shape=8)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=3.0, observed=5.0)
    return model


@pytest.mark.parametrize("declare", [in_the_query_only, behind_a_parameter_only], ids=lambda f: f.__name__)
def test_whole_numbers_elsewhere_keep_the_steps_of_pymc(declare):
    model = declare()
    assert [rv.name for rv in default_parameters(model)] == ["a"]


@pytest.mark.parametrize("update", ["slice", "hamiltonian", "redraw"])
def test_updates_that_move_no_whole_numbers(update):
    model = released(picked)
    with model, pytest.raises(ValueError, match=f"`update` = '{update}' moves no whole numbers such as k"):
        dp.AncillaryUpdate(update=update)
    with model:  # as the message says
        idata = pm.sample(
            step=[dp.AncillaryUpdate([model["a"]], update=update)],
            **SHORT, compute_convergence_checks=False,
        )  # fmt: skip
    assert {"k", "a"} <= set(idata.posterior)


def test_given_the_records_alone():
    """What leaves the other parametrisation out moves whole numbers as well."""
    with released(picked):
        step = dp.AncillaryUpdate(update="off")
        idata = pm.sample(step=[step], **SHORT, compute_convergence_checks=False)
    assert {v.name for v in step.vars} == {"k", "a"}
    assert (idata.sample_stats["ancillary_acceptance"] == 0).all()


def test_each_entry_has_ends_of_its_own():
    """One picks from two entries, the other from four: neither may be asked for another's."""
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", [0, 0], [1, 3])
        law = pt.as_tensor(PLACES[:2])[k[0]] + pt.as_tensor(PLACES)[k[1]] + pm.Normal("a")
        y = pm.Normal("y", law, 1, shape=8)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=30.0, observed=5.0)
    with model:
        step = dp.AncillaryUpdate()
        idata = pm.sample(step=[step], **SHORT, compute_convergence_checks=False)
    (part,) = step._parts
    assert part.ends.tolist() == [[0.0, 1.0], [0.0, 3.0]]
    assert (idata.posterior["k"].values.max(axis=(0, 1)) == [1, 3]).all()


# -- the walk itself --------------------------------------------------------------------------------


def uniform(rng):
    return rng.random()


step_alone = plain(walks.step_alone.py_func, {"random": uniform})


def direction(rng, factor, z, line):
    z[:] = rng.normal(size=z.size)
    line[:] = factor @ z


def walk(target, ends, n, start, factor=None, seed=1):
    """Draws of the kernel in plain Python, the whole numbers first."""
    theta, k = np.array(start, dtype=float), len(start)
    learnt = of_random_walk(k, len(ends))
    if factor is not None:
        learnt = learnt._replace(factor=factor)
    none = np.zeros((0, 0))
    state = ParameterState(
        theta, np.zeros(0), none, np.zeros(0), np.arange(k), np.array(ends, dtype=float).reshape(-1, 2),
        learnt, 0, 0, np.zeros(2),
    )  # fmt: skip
    names = {"random": uniform, "function_at": lambda target, kind: target, "draw_direction": direction}
    kernel = plain(walks.random_walk.py_func, names | {"step_alone": step_alone})
    rng, found = np.random.default_rng(seed), []
    for _ in range(n):
        kernel(1, rng, target, state)
        found.append(theta.copy())
    return np.array(found)


def test_no_density_is_asked_for_beyond_the_ends():
    asked = set()

    def target(theta, data, given, totals):
        asked.add(theta[0])
        return [-1.0, 0.0, -2.0][int(theta[0])] - 0.5 * theta[1] ** 2

    draws = walk(target, [(0, 2)], 4000, [1.0, 0.0], factor=np.diag([1.5, 2.0]))
    assert asked == {0.0, 1.0, 2.0}
    expected = np.exp([-1.0, 0.0, -2.0]) / np.exp([-1.0, 0.0, -2.0]).sum()
    np.testing.assert_allclose(np.bincount(draws[:, 0].astype(int)) / len(draws), expected, atol=0.05)


def test_one_alone_goes_to_any_other_of_few_values_or_to_a_neighbour():
    ends, rng, line = np.array([[0.0, 3.0], [1.0, np.inf], [2.0, 2.0]]), np.random.default_rng(3), np.empty(4)
    at, moving, found = np.array([9.0, 2.0, 7.0, 2.0, 0.5]), np.array([1, 2, 3, 4]), []
    for _ in range(6000):
        step_alone(rng, at, moving, ends, line)
        found.append(line.copy())
    found = np.array(found)
    assert (found[:, 3] == 0).all() and ((found != 0).sum(axis=1) == 1).all()
    first, second, third = (found[found[:, i] != 0, i] for i in range(3))
    assert abs(len(first) - 2000) < 150 and abs(len(second) - 2000) < 150
    values, counts = np.unique(at[1] + first, return_counts=True)
    assert values.tolist() == [0, 1, 3] and (abs(counts - len(first) / 3) < 5 * np.sqrt(len(first) / 3)).all()
    assert set(second) == {-1.0, 1.0} and abs(second.mean()) < 5 / np.sqrt(len(second))
    assert set(third) <= {-1.0, 1.0}, "where nothing else is possible, what is beyond the ends is refused"


def test_others_follow_what_is_rounded():
    """Given the step of a whole number, that of the other one has the law that the covariance says."""
    factor = np.array([[1.2, 0.0], [-2.4, 0.1]])
    rng, z, used, line, steps = np.random.default_rng(2), np.empty(2), np.empty(2), np.empty(2), []
    round_steps = plain(walks.round_steps.py_func, {})
    for _ in range(4000):
        direction(rng, factor, z, line)
        before = z.copy()
        round_steps(factor, z, used, line, 1)
        assert (z == before).all()
        steps.append(line.copy())
    whole, other = np.array(steps).T
    assert (whole == np.rint(whole)).all() and len(np.unique(whole)) > 4
    rest = other + 2 * whole
    assert abs(rest.mean()) < 4 * 0.1 / np.sqrt(4000) and abs(rest.std() - 0.1) < 0.006
    # a step is as likely there as back
    up, down = np.sort(other[whole == 1]), np.sort(-other[whole == -1])
    assert abs(len(up) - len(down)) < 4 * np.sqrt(len(up) + len(down))
    assert abs(up.mean() - down.mean()) < 4 * 0.1 * np.sqrt(1 / len(up) + 1 / len(down))


# -- what stands still ------------------------------------------------------------------------------


def of(model, **draws):
    with model:
        idata = pm.sample(**SHORT, compute_convergence_checks=False)
    for name, values in draws.items():
        idata.posterior[name].values[:] = values
    return [
        w.message for w in mcmc.run_convergence_checks(idata, model) if "one value in all draws" in w.message
    ]


def test_a_whole_number_that_never_changed_is_told():
    model = released(picked)
    (said,) = of(model, k=2)
    assert said.startswith("k had one value in all draws of all chains. R-hat, which is no number then")
    assert of(model) == []
    with model:  # the remedy
        pm.sample(**SHORT, initvals={"k": 3}, compute_convergence_checks=False)


def test_an_entry_that_never_changed_is_told():
    model = released(several)
    moving = np.random.default_rng(1).integers(0, 2, size=(2, 30, 3))
    assert of(model, k=moving) == []
    moving[..., 1] = 1
    assert len(of(model, k=moving)) == 1


def test_what_can_only_be_one_value_is_not_told():
    def only():
        return pm.DiscreteUniform("k", 2, 2) + pm.Normal("a")

    assert of(released(only), k=2) == []


def test_other_models_are_not_looked_at():
    with pm.Model() as model:
        pm.Poisson("y", pm.Categorical("k", [0.5, 0.5]) + 1.0, observed=[1, 2])
    assert of(model, k=1) == []
