"""Categories of people moved as a table: exact by enumeration of all people; which models are moved so."""

from __future__ import annotations

import itertools

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp import tabulated_imputation
from pymc_dp.tabulated_imputation import Counted
from tests.steps import assigned
from tests.tables.parameter_models import Shares

GROUP = np.array([0, 1, 0, 0, 1, 0])
A = np.array([[0.5, 1.5, 1.0], [2.0, 0.4, 1.0]])


def in_groups():
    """Six people of two groups, behind noise of all four kinds."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", A)
        y = pm.Categorical("y", p[GROUP], shape=6)
        one_hot = pt.eye(3, dtype="int64")[y]
        dp.DiscreteLaplaceMechanism("all", dp.record_sum(one_hot), scale=1.0, observed=[3, 0, 3])
        first = one_hot * (GROUP == 0)[:, None]
        dp.LaplaceMechanism("first", dp.record_sum(first), scale=1.5, observed=[1.2, 0.4, 2.9])
        bits = dp.record_sum(pt.eq(y, 1))
        dp.DiscreteGaussianMechanism("bits", bits, sigma=1.0, observed=2)
        dp.GaussianMechanism("weighed", dp.record_sum(y * 1.0), sigma=2.0, observed=5.5)
    return model


def enumerated():
    """Means and squares of p, the probability of each category of each person, and their products."""
    model = in_groups()
    logp, point = model.compile_logp(), model.initial_point()
    p = np.full((2, 3), 1 / 3)  # where the starting value is
    people = np.array(list(itertools.product(range(3), repeat=6)))
    weights, means, squares = [], [], []
    for y in people:
        counts = np.zeros((2, 3))
        np.add.at(counts, (GROUP, y), 1)
        law = Shares(A + counts)
        weights.append(logp({**point, "p_simplex__": np.zeros((2, 2)), "y": y}) - law.logpdf(p))
        mean, square = law.moments()
        means.append(mean.ravel())
        squares.append(square.ravel())
    w = np.exp(np.array(weights) - max(weights))
    w /= w.sum()
    hot = (people[:, :, None] == np.arange(3)).reshape(len(people), -1)
    products = np.array(means)[:, :, None] * hot[:, None, :]
    return [w @ np.array(means), w @ np.array(squares), w @ hot, np.tensordot(w, products, 1).ravel()]


def worst(draws=4000):
    exact, model = enumerated(), in_groups()
    with model:
        step = dp.TabulatedImputation(n_sweeps=10)
    idata = pm.sample(
        model=model, step=step, draws=draws, tune=300, chains=2, cores=1, random_seed=3, progressbar=False,
        quiet=True, compute_convergence_checks=False,
    )  # fmt: skip
    p = idata.posterior["p"].values.reshape(2, draws, -1)
    hot = (idata.posterior["y"].values[..., None] == np.arange(3)).reshape(2, draws, -1).astype(float)
    products = (p[..., :, None] * hot[..., None, :]).reshape(2, draws, -1)
    errors = [  # of a number that does not move, the error is infinite
        abs(seen[..., k].mean() - known[k]) / max(float(az.mcse(seen[..., k])), 1e-9)
        for seen, known in zip((p, p**2, hot, products), exact, strict=True)
        for k in range(seen.shape[-1])
    ]
    return max(errors)


@pytest.mark.statistical
def test_enumerated():
    assert worst() < 4.8  # of 144 numbers


def people_in_order(patch):
    """People are not drawn anew: those of low categories come first."""
    patch.setattr(
        Counted,
        "people",
        lambda self, counts, rng: np.concatenate(
            [np.repeat(np.arange(3), n) for n in counts]
        )[np.argsort(np.argsort(self.table.group, kind="stable"), kind="stable")],
    )  # fmt: skip


def people_of_another_group(patch):
    people = Counted.people
    patch.setattr(Counted, "people", lambda self, counts, rng: rng.permutation(people(self, counts, rng)))


@pytest.mark.statistical
@pytest.mark.parametrize("fault", [people_in_order, people_of_another_group])
def test_faults_are_seen(fault, monkeypatch):
    fault(monkeypatch)
    assert worst(1000) > 6


def many(n=6000, query=None, probabilities=None):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((2, 3)))
        y = pm.Categorical("y", p[np.arange(n) % 2] if probabilities is None else probabilities, shape=n)
        counts = dp.record_sum(pt.eye(3)[y]) if query is None else query(y)
        dp.LaplaceMechanism("z", counts, scale=2.0, observed=np.full(counts.type.shape, n / 3))
    return model


def test_chosen_for_many_people():
    assert set(assigned(many()).values()) == {"TabulatedImputation"}
    assert "TabulatedImputation" not in assigned(many(600)).values()


def test_not_chosen_where_people_differ_or_others_look_at_them():
    with many() as model:
        pm.Normal("outcome", model["y"], 1, observed=np.zeros(6000))
    assert "TabulatedImputation" not in assigned(model).values()
    with many() as model:
        dp.LaplaceMechanism("each", model["y"], scale=2.0, observed=np.zeros(6000))
    assert "TabulatedImputation" not in assigned(model).values()
    with many() as model:
        pm.Potential("more", pt.log(model["p"][0, 0]))
    assert "TabulatedImputation" not in assigned(model).values()


def test_refused_by_name():
    model = many()
    with model:
        nuts = pm.NUTS([model["p"]])
    assert assigned(model, [nuts]) == {"p": "NUTS", "y": "TabulatedImputation"}
    with model:
        records = dp.RecordImputation()
    assert assigned(model, [records]) == {"p": "NUTS", "y": "RecordImputation"}


def test_no_such_people_is_said():
    with pm.Model():
        y = pm.Normal("y", 0, 1, shape=3)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=1, observed=0.0)
        with pytest.raises(ValueError, match="found no categories that releases see through sums alone"):
            dp.TabulatedImputation()


def test_starts_that_are_given_are_kept():
    with pm.Model() as model:
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=30, initval=np.arange(30) % 3)
        dp.LaplaceMechanism("z", dp.record_sum(pt.eye(3)[y]), scale=2.0, observed=[10.0, 9.0, 11.0])
        step = dp.TabulatedImputation()
    assert tabulated_imputation.counted_people(model)
    step.setup_chain(1, 0, 10)
    point = model.initial_point()
    (values, *_) = step._starts(point)
    assert values == {}


def test_a_release_that_is_data_is_read_again():
    with pm.Model() as model:
        released = pm.Data("released", np.array([30, 0, 0]))
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=30)
        query = dp.record_sum(pt.eye(3, dtype="int64")[y])
        dp.DiscreteLaplaceMechanism("z", query, scale=0.5, observed=released)
        step = dp.TabulatedImputation()
    for k in range(2):
        pm.set_data({"released": np.roll([30, 0, 0], k)}, model=model)
        step.setup_chain(1, 0, 100)
        point = model.initial_point()
        for _ in range(30):
            point, _ = step.step(point)
        assert np.bincount(point["y"]).argmax() == k


def weighed(*, n=6, initial=(0.0, 1.0, 3.0)):
    with pm.Model() as model:
        weights = pm.Data("weights", np.array(initial))
        y = pm.Categorical("y", pm.Dirichlet("p", np.ones(3)), shape=n)
        dp.LaplaceMechanism("z", dp.record_sum(weights[y]), scale=0.3, observed=2.0 * n)
    return model


def test_coefficients_that_are_data_are_read_again():
    """By a step that was made before, and by one that is made now."""
    model = weighed(initial=(9.0, 2.0, 9.0), n=30)
    with model:
        step = dp.TabulatedImputation()
    for made, best in (("before", 1), ("after", 2)):
        pm.set_data({"weights": np.where(np.arange(3) == best, 2.0, 9.0)}, model=model)
        for chosen in (step, dp.TabulatedImputation(model=model)):
            chosen.setup_chain(1, 0, 100)
            point = model.initial_point()
            for _ in range(30):
                point, _ = chosen.step(point)
            assert np.bincount(point["y"]).argmax() == best, made


def test_people_are_a_table_beside_functions_of_them():
    """What is computed of people does not keep them from being counted, and is of those that are drawn."""
    with many() as model:
        share = pm.Deterministic("share", pt.eq(model["y"], 0).mean())
        pm.Deterministic("gap", share - model["p"][0, 0])
    assert set(assigned(model).values()) == {"TabulatedImputation"}
    drawn = pm.sample(
        5, tune=5, chains=1, model=model, random_seed=1, progressbar=False, quiet=True,
        compute_convergence_checks=False,
    ).posterior  # fmt: skip
    share = (drawn["y"].values == 0).mean(axis=-1)
    np.testing.assert_allclose(drawn["share"].values, share)
    np.testing.assert_allclose(drawn["gap"].values, share - drawn["p"].values[..., 0, 0])
    with pytest.raises(ValueError, match="deterministic share depends on y"):
        dp.marginalize(model, ["y"])
