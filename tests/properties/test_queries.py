"""Queries made at random: what one person can change is never more than the guarantee reckons with."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import pymc_dp as dp
from pymc_dp.query.records import query_of
from tests.properties.conftest import UNTIL_ONE_FAILS

N, WIDTH = 5, 2
PYTHON = pytensor.compile.mode.Mode(linker="py", optimizer=None)

ends = st.tuples(st.integers(-30, 30), st.integers(1, 40)).map(lambda e: (e[0] / 10, (e[0] + e[1]) / 10))
numbers = st.integers(-30, 30).map(lambda k: k / 10)
# A person's numbers: some beyond all bounds, among them those that overflow.
values = st.one_of(st.floats(-5, 5), st.sampled_from([0.0, -0.0, 1e8, -1e8, 1e200, -1e200, np.inf, -np.inf]))
people = st.lists(st.lists(values, min_size=WIDTH, max_size=WIDTH), min_size=N, max_size=N).map(np.array)

UNARY = {
    "abs": pt.abs, "neg": pt.neg, "square": pt.sqr, "tanh": pt.tanh, "sigmoid": pt.sigmoid, "exp": pt.exp,
    "floor": pt.floor, "sign": pt.sign,
}  # fmt: skip
BINARY = {"add": pt.add, "times": pt.mul, "max": pt.maximum, "min": pt.minimum}


def _number_of_a_person():
    """Functions from a person's numbers to one number."""
    leaf = st.integers(0, WIDTH - 1).map(lambda j: lambda x: x[:, j])

    def more(inner):
        return st.one_of(
            st.tuples(st.sampled_from(sorted(UNARY)), inner).map(lambda t: lambda x: UNARY[t[0]](t[1](x))),
            st.tuples(st.sampled_from(sorted(BINARY)), inner, inner).map(
                lambda t: lambda x: BINARY[t[0]](t[1](x), t[2](x))
            ),
            st.tuples(numbers, inner).map(lambda t: lambda x: t[0] * t[1](x) + 0.5),
            st.tuples(numbers, inner).map(lambda t: lambda x: pt.cast(t[1](x) > t[0], "float64")),
            st.tuples(numbers, inner, inner, inner).map(
                lambda t: lambda x: pt.switch(t[1](x) < t[0], t[2](x), t[3](x))
            ),
            st.tuples(ends, inner).map(lambda t: lambda x: pt.clip(t[1](x), *t[0])),
            st.tuples(ends, inner).map(lambda t: lambda x: dp.clamp(t[1](x), *t[0])),
        )

    return st.recursive(leaf, more, max_leaves=4)


TOTALS = {
    "record_sum": dp.record_sum,
    "sum": lambda rows: rows.sum(axis=0),
    "mean": lambda rows: rows.mean(axis=0),
    "a third of the sum": lambda rows: rows.sum(axis=0) / 3,
    "sum and a number": lambda rows: 7.0 + dp.record_sum(rows),
    "weighted": lambda rows: pt.as_tensor([1.5, -0.5, 2.0, 0.0, 1.0]) @ rows,
    "half of the people": lambda rows: rows[:3].sum(axis=0),
    "in two groups": lambda rows: pt.concatenate([rows[:2].sum(axis=0), rows[2:].sum(axis=0)]),
    "by an index": lambda rows: pt.zeros((3, rows.shape[1]))[np.array([0, 2, 2, 0, 1])].inc(rows),
}


@st.composite
def declared(draw, mechanism):
    """A model with a release, and its query as a function of the people."""
    columns = draw(st.lists(_number_of_a_person(), min_size=1, max_size=3))
    total = draw(st.sampled_from(sorted(TOTALS)))
    how = draw(st.sampled_from(["one pair", "a pair each"]))
    pairs = draw(st.lists(ends, min_size=len(columns), max_size=len(columns)))
    with pm.Model():
        x = pm.Normal("x", shape=(N, WIDTH))
        each = [column(x) for column in columns]
        rows = pt.stack(each, axis=1)
        query = TOTALS[total](rows)
        bounds = pairs[0] if how == "one pair" else pairs
        shape = tuple(int(k) for k in query.shape.eval({x: np.zeros((N, WIDTH))}))
        try:
            z = mechanism("z", query, bounds=bounds, observed=np.zeros(shape))
        except (ValueError, TypeError) as error:
            event("refused")
            assert str(error)
            assume(False)
    try:
        promised = dp.guarantee(z)
    except ValueError:  # it is not known
        promised = None
    event(f"{total}, {how}: {'no guarantee' if promised is None else 'a guarantee'}")
    function = pytensor.function([x], query_of(z), mode=PYTHON, on_unused_input="ignore")
    return promised, function


def _changed(function, data, i, row):
    """The query before and after person i has other numbers."""
    other = data.copy()
    other[i] = row
    with np.errstate(all="ignore"):
        return np.ravel(function(data)), np.ravel(function(other))


def laplace(*args, **kwargs):
    return dp.LaplaceMechanism(*args, scale=1.0, **kwargs)


def gaussian(*args, **kwargs):
    return dp.GaussianMechanism(*args, sigma=1.0, **kwargs)


def check(mechanism, norm, largest, **options):
    """Try neighbours of random data under random queries; return the share of queries with a guarantee."""
    told = []

    @settings(**options)
    @given(
        declared(mechanism), people, st.integers(0, N - 1), st.lists(values, min_size=WIDTH, max_size=WIDTH)
    )
    def over(declaration, data, i, row):
        promised, function = declaration
        told.append(promised is not None)
        if promised is None:
            return
        before, after = _changed(function, data, i, row)
        assume(not np.isnan([before, after]).any())  # a release refuses what is no number
        change = np.linalg.norm(after - before, ord=norm)
        assert change <= largest(promised) * (1 + 1e-9) + 1e-12

    over()
    return np.mean(told)


@pytest.mark.parametrize(
    ("mechanism", "norm", "largest"),
    [(laplace, 1, lambda promised: promised.epsilon), (gaussian, 2, lambda promised: promised.mu)],
    ids=["laplace", "gaussian"],
)
def test_one_person_changes_no_more_than_the_guarantee_says(mechanism, norm, largest):
    assert check(mechanism, norm, largest) > 0.3, "hardly any query had a guarantee: the test sees nothing"


def test_a_sensitivity_that_is_too_small_is_seen():
    with pytest.raises(AssertionError):
        check(laplace, 1, lambda promised: 0.9 * promised.epsilon, **UNTIL_ONE_FAILS)
