"""How far one person moves queries of a table: against all pairs of cells."""

import itertools

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
