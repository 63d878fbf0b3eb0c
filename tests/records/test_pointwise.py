"""Which queries are one function of each record, and its numbers."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.query.pointwise import at_values, record_behind

N = 4
FUNCTIONS = {
    "itself": (lambda c: c, [0, 1, 2, 3]),
    "one of them": (lambda c: pt.eq(c, 2), [0, 0, 1, 0]),
    "others": (lambda c: 1 - pt.eq(c, 2), [1, 1, 0, 1]),
    "turned": (lambda c: (c + 1) % 4, [1, 2, 3, 0]),
    "clamped": (lambda c: dp.clamp(c, 1, 2), [1, 1, 2, 2]),
    "real": (lambda c: pt.exp(-c / 2.0), np.exp([0, -0.5, -1, -1.5])),
    "table": (lambda c: pt.as_tensor(np.array([5, 3, 3, 5]))[c], [5, 3, 3, 5]),
    "table of the last": (lambda c: pt.as_tensor(np.array([5, 3]))[c // 2 - 1], [3, 3, 5, 5]),
    "twice": (lambda c: c * (c - 1), [0, 0, 2, 6]),
    "deterministic": (lambda c: pm.Deterministic("named", c * 2), [0, 2, 4, 6]),
    "in few bits": (lambda c: pt.cast(c * 100, "int8"), [0, 100, -56, 44]),
}
OTHERS = {
    "another record": lambda c, d: c + d,
    "weights": lambda c, d: c * np.arange(N),
    "share": lambda c, d: c / c.sum(),
    "order": lambda c, d: c[::-1],
    "others": lambda c, d: c[np.array([1, 0, 2, 3])],
    "sorted": lambda c, d: pt.sort(c),
    "data": lambda c, d: c * pm.Data("data", 2),
    "parameter": lambda c, d: c * pm.Normal("a"),
    "table that may be set": lambda c, d: pm.Data("table", np.arange(5))[c],
    "table of each": lambda c, d: pt.as_tensor(np.eye(4))[c, np.arange(N)],
    "cumulated": lambda c, d: pt.cumsum(c),
    "constant": lambda c, d: pt.as_tensor(np.arange(N)),
}


def declared():
    with pm.Model() as model:
        records = [pm.Categorical(name, np.full(4, 0.25), shape=N) for name in "cd"]
    return model, records


@pytest.mark.parametrize("function, numbers", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_functions_of_each_record(function, numbers):
    model, (c, d) = declared()
    with model:
        query = pt.as_tensor(function(c))
    assert record_behind(query, [c, d]) is c
    found = at_values(query, c, np.arange(4))
    np.testing.assert_array_equal(found, numbers)
    # as the query itself says
    np.testing.assert_array_equal(query.eval({c: np.array([3, 1, 0, 2])}), found[[3, 1, 0, 2]])


@pytest.mark.parametrize("function", OTHERS.values(), ids=OTHERS.keys())
def test_what_is_none(function):
    model, (c, d) = declared()
    with model:
        query = function(c, d)
    assert record_behind(query, [c, d]) is None
