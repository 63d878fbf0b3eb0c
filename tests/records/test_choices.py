"""Rows in which each person picks one cell: how far one person moves their sum, and that it is said."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as dp
from pymc_dp.query.choices import change_of_one_choice

K = 5


def categories():
    return pm.Categorical("y", np.full(K, 1 / K), shape=6)


ROWS = {
    "identity": (lambda y: pt.eye(K)[y], True),
    "identity, cast": (lambda y: pt.cast(pt.eye(K)[y], "float64"), True),
    "comparison": (lambda y: pt.eq(y[:, None], np.arange(K)), True),
    "comparison with a range": (lambda y: pt.cast(pt.eq(y[:, None], pt.arange(K)), "float64"), True),
    "cells twice": (lambda y: pt.eq(y[:, None], np.array([0, 1, 1, 2, 3])), False),
    "another matrix": (lambda y: pt.ones((K, K))[y], False),
    "off the diagonal": (lambda y: pt.eye(K, K, 1)[y], False),
    "cumulated": (lambda y: pt.ge(y[:, None], np.arange(K)), False),
    "two picks": (lambda y: pt.eye(K)[y] + pt.eye(K)[(y + 1) % K], False),
    "twice": (lambda y: 2 * pt.eye(K)[y], False),
}


def largest_change(rows, order, neighbours):
    """By brute force over what one person can answer."""
    with pm.Model():
        y = categories()
        table = np.array([rows(pt.constant([k])).eval()[0] for k in range(K)], dtype=float)
        assert y.type.ndim == 1
    if neighbours == "add-remove":
        return np.linalg.norm(table, order, axis=1).max()
    return max(np.linalg.norm(a - b, order) for a in table for b in table)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ROWS)
def test_the_change_is_what_one_answer_does(name, order, neighbours):
    rows, known = ROWS[name]
    with pm.Model():
        found = change_of_one_choice(dp.record_sum(rows(categories())), order, neighbours)
    assert (found is not None) == known
    if known:
        assert found == pytest.approx(largest_change(rows, order, neighbours))


def test_it_is_said_and_the_remedy_works(caplog):
    caplog.set_level(logging.INFO, "pymc.dp")
    with pm.Model():
        query = dp.record_sum(pt.eye(K)[categories()])
        wide = dp.GaussianMechanism("wide", query, rho=0.5, bounds=(0, 1), observed=np.ones(K))
        assert "moves it by 2**0.5 (L2), and bounds allow 2.236, for which there is 1.58 times" in caplog.text
        assert "sensitivity=2**0.5 in place of bounds says so." in caplog.text
        caplog.clear()
        narrow = dp.GaussianMechanism("narrow", query, rho=0.5, sensitivity=2**0.5, observed=np.ones(K))
        assert not caplog.text
    assert dp.guarantee(wide).rho == dp.guarantee(narrow).rho == 0.5
    sigmas = [float(np.max(z.owner.inputs[-1].eval())) for z in (wide, narrow)]
    assert sigmas[0] / sigmas[1] == pytest.approx(np.sqrt(K / 2))


def test_nothing_is_said_of_what_bounds_do_not_overstate(caplog):
    caplog.set_level(logging.INFO, "pymc.dp")
    with pm.Model():
        bit = pm.Bernoulli("bit", 0.5, shape=6)
        dp.GaussianMechanism("z", dp.record_sum(pt.eye(2)[bit]), rho=0.5, bounds=(0, 1), observed=np.ones(2))
        dp.LaplaceMechanism("w", dp.record_sum(bit), epsilon=1, bounds=(0, 1), observed=3.0)
    assert not caplog.text


def test_values_of_data_are_not_looked_at(caplog):
    """A matrix that happens to be an identity may be confidential data, row by row."""
    caplog.set_level(logging.INFO, "pymc.dp")
    dp.GaussianMechanism.release(dp.record_sum(np.eye(K)), rho=0.5, bounds=(0, 1))
    codes = np.array([0, 3, 1])
    dp.GaussianMechanism.release(
        dp.record_sum(pt.eq(pt.constant(codes)[:, None], np.arange(K))), rho=0.5, bounds=(0, 1)
    )
    assert "single 1" not in caplog.text
