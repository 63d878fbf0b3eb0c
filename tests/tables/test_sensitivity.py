"""How far one person moves queries of a table: against all pairs of cells."""

import itertools
import re
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.query import tablechanges

W = np.random.default_rng(3).integers(-2, 4, (3, 12))


def table():
    with pm.Model():
        return pm.Poisson("c", np.ones((3, 4)))


def last_of_two(c):
    """Two counts go to one place, where only the last is added: their sum would move by 0, this by 1."""
    both = pt.zeros(2)[[0, 0]]
    return pt.inc_subtensor(both, pt.stack([-c[0, 0], c[0, 0]]), ignore_duplicates=True)


QUERIES = {
    "cells": lambda c: [c],
    "rows": lambda c: [c.sum(axis=1)],
    "margins and cells": lambda c: [c, c.sum(axis=0), c.sum(axis=1)],
    "total": lambda c: [c.sum()],
    "coefficients of both signs": lambda c: [pt.dot(W, c.ravel())],
    "by an index": lambda c: [pt.zeros(2, dtype="int64")[np.array([0, 1, 0])].inc(c[:, 0])],
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", QUERIES)
def test_all_pairs(name, order):
    c = table()
    queries = QUERIES[name](c)
    values = [[q.eval({c: 5 + np.eye(12, dtype=int)[k].reshape(3, 4)}) for q in queries] for k in range(12)]
    base = np.concatenate([np.ravel(q.eval({c: np.full((3, 4), 5)})) for q in queries])
    rows = np.array([np.concatenate([np.ravel(v) for v in each]) for each in values]) - base
    pairs = max(np.linalg.norm(a - b, order) for a, b in itertools.combinations(rows, 2))
    more = max(np.linalg.norm(a, order) for a in rows)
    assert dp.count_sensitivity(queries, order=order) == pytest.approx(pairs, abs=1e-12)
    assert dp.count_sensitivity(queries, order=order, neighbours="add-remove") == pytest.approx(more)
    data = pt.constant(np.full((3, 4), 5))
    assert dp.count_sensitivity(QUERIES[name](data), data, order=order) == pytest.approx(pairs, abs=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", QUERIES)
def test_many_cells_have_a_bound(name, order, monkeypatch):
    c = table()
    exact = dp.count_sensitivity(QUERIES[name](c), order=order)
    monkeypatch.setattr(tablechanges, "_MOST_PAIRED", 1)
    bound = dp.count_sensitivity(QUERIES[name](c), order=order)
    assert bound >= exact - 1e-12
    if name in ("cells", "rows"):
        assert bound == pytest.approx(exact)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda c: ([c**2], None, 1), "no linear map"),
        (lambda c: ([last_of_two(c)], None, 1), "one place, of which the last stays"),
        (lambda c: ([c], None, 3), "order must be"),
        (lambda c: ([np.ones(3)], None, 1), "counts=table"),
        (lambda c: ([pt.constant(np.ones(3))], None, 1), "no random variable"),
        (lambda c: ([pt.constant(np.ones(3))], c, 1), "none of the counts"),
        (lambda c: ([c], np.ones(3), 1), "counts must be variables"),
        (lambda c: ([pm.Bernoulli.dist(0.3, shape=9).sum()], None, 1), "answers of one person each"),
        (lambda c: ([pm.Categorical.dist(np.ones(3) / 3, shape=9)], None, 1), "answers of one person each"),
        (lambda c: ([dp.record_sum(c)], None, 1), "record_sum, whose rows are people"),
        (lambda c: ([pm.Poisson.dist(1.0, shape=(0, 3))], None, 1), "no cells"),
        (lambda c: ([c + pm.Normal.dist(0, 1)], None, 1), "not on counts alone"),
    ],
)
def test_refused(arguments, words):
    query, counts, order = arguments(table())
    with pytest.raises(ValueError, match=words):
        dp.count_sensitivity(query, counts, order=order)


def test_neighbours_are_one_of_two():
    with pytest.raises(ValueError, match="neighbours must be"):
        dp.count_sensitivity(table(), order=1, neighbours="swap")


def test_parameters_of_the_counts_are_no_counts():
    with pm.Model():
        n = pm.Poisson("n", 20.0)
        c = pm.Multinomial("c", n, pm.Dirichlet("p", np.ones(3)))
    assert dp.count_sensitivity(c, order=1) == 2


# of one person in one of four cells: the query, and how far an exchange moves it, in either norm
PARTS = {
    "all cells": (lambda c: c, 2.0, 2**0.5),
    "a margin and its cells": (lambda c: pt.concatenate([c.ravel(), c.sum(axis=0)]), 4.0, 2.0),
    "one cell": (lambda c: c[0, 0], 1.0, 1.0),
    "weighted": (lambda c: (c * np.array([[1.0, 3.0], [0.0, 2.0]])).sum(), 3.0, 3.0),
}
EACH_LAW = pytest.mark.parametrize("law", [dp.LaplaceMechanism, dp.GaussianMechanism])


def check_told(law, query, moved, neighbours, remedies):
    noise = {"sigma" if law is dp.GaussianMechanism else "scale": 2.0, "neighbours": neighbours}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        law.dist(query, sensitivity=moved, **noise)
    with pytest.warns(UserWarning, match=rf"moves it by up to {moved:.6g} \(L[12], {neighbours}") as told:
        law.dist(query, sensitivity=0.9 * moved, **noise)
    message = str(told[0].message)
    assert told[0].filename == __file__ and ("come or go" in message) == remedies
    (asked,) = re.findall(r"Give sensitivity=([\d.]+\d)", message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        law.dist(query, sensitivity=float(asked), **noise)


@EACH_LAW
@pytest.mark.parametrize("part", PARTS)
def test_less_than_one_person_moves_counts_is_told(part, law):
    """The law of counts with a known total says that each person is in one cell."""
    query, *largest = PARTS[part]
    c = pm.Multinomial.dist(20, np.full(4, 0.25)).reshape((2, 2))
    check_told(law, query(c), largest[law is dp.GaussianMechanism], "replace-one", True)


@EACH_LAW
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_less_than_one_person_moves_choices_is_told(neighbours, law):
    """So do rows with a single 1 each, of a model and of a custodian's data."""
    choices = np.array([0, 2, 2, 1])
    moved = 1.0 if neighbours == "add-remove" else 2 ** (0.5 if law is dp.GaussianMechanism else 1)
    for rows in (pm.Categorical.dist(np.ones(3) / 3, shape=4), pt.constant(choices)):
        query = dp.record_sum(pt.eye(3)[rows])
        check_told(law, query, moved, neighbours, neighbours == "replace-one")


@EACH_LAW
def test_people_who_may_be_in_several_cells_are_not_told_of(law, recwarn):
    visits = pm.Poisson.dist(np.ones((2, 2)))
    law.dist(visits, sensitivity=0.5, **{"sigma" if law is dp.GaussianMechanism else "scale": 2.0})
    assert not recwarn
