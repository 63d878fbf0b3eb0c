"""Noisy measurement files of the census, written by hand with the columns of the public ones."""

import math
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_dp as dp
from tests.importers.models import check_declared

DATA = Path(__file__).parent / "data"
NMF, CONSTRAINTS = DATA / "nmf.csv", DATA / "nmf_constraints.csv"


def variance_of(sigma):
    """By its definition, over all whole numbers that have mass."""
    k = np.arange(-int(40 * sigma + 40), int(40 * sigma + 40) + 1.0)
    p = np.exp(-0.5 * (k / sigma) ** 2)
    return float((k**2 * p).sum() / p.sum())


def row(**other):
    columns = {
        "geocode": ["01"], "query_name": ["total_dpq"], "query_shape": [[2]], "value": [[3, 4]],
        "variance": [9.0],
    }  # fmt: skip
    return {k: v for k, v in {**columns, **other}.items() if v is not None}


def test_from_files():
    nmf = dp.importers.census(NMF, CONSTRAINTS)
    assert list(nmf.releases) == [
        ("01", "total_dpq"), ("01", "votingage * hispanic_dpq"), ("01001", "total_dpq"),
    ]  # fmt: skip
    assert nmf.unmeasured == [("01001", "detailed_dpq")]
    table = nmf.releases["01", "votingage * hispanic_dpq"]
    assert table.value.tolist() == [[212, -3], [1021, 90]] and table.value.dtype == np.int64
    assert table.guarantee is None and dict(table.parameters) == {"sigma": math.sqrt(44.2)}
    check_declared(table, dp.DiscreteGaussianMechanism, sigma=math.sqrt(44.2))
    ((name, total),) = nmf.invariants.items()
    assert name == ("01", "total_con") and total.tolist() == [1318]
    assert {k[1]: (sign, v.tolist()) for k, (sign, v) in nmf.bounds.items()} == {
        "hhgq_total_lb_con": (">=", [0, 4]), "hhgq_total_ub_con": ("<=", [1318, 99]),
    }  # fmt: skip


@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.4, 0.7, 1, 1.3, 1.41, 1.42, 2, 6.6, 50])
def test_the_variance_is_that_of_whole_numbers(sigma):
    """It is less than sigma^2 where noise is small: 0.04 for sigma = 0.4, not 0.16."""
    (release,) = dp.importers.census(row(variance=[variance_of(sigma)])).releases.values()
    assert release.parameters["sigma"] == pytest.approx(sigma, rel=1e-12)


def test_guarantees_are_of_one_query():
    """With the sensitivity that the files do not say: 2 people in other cells are the root of 2 apart."""
    (release,) = dp.importers.census(row(), sensitivity=math.sqrt(2)).releases.values()
    assert release.guarantee.rho == pytest.approx(1 / 9) and release.guarantee.neighbours == "replace-one"
    assert dp.guarantee(release).rho == pytest.approx(1 / 9)
    check_declared(release, dp.DiscreteGaussianMechanism, sigma=3.0, sensitivity=math.sqrt(2))


def test_invariants_are_declared_beside():
    nmf = dp.importers.census(NMF, CONSTRAINTS, where={"geocode": "01"})
    table = nmf.releases["01", "votingage * hispanic_dpq"]
    with pm.Model() as model:
        c = pm.Poisson("c", pm.Gamma("rate", 1, 0.01, shape=(2, 2)), shape=(2, 2))
        dp.DiscreteGaussianMechanism("cells", c, observed=table)
        dp.Invariant("total", c.sum(), observed=nmf.invariants["01", "total_con"][0])
    point = model.initial_point()
    point["c"] = np.array([[212, 0], [1016, 90]])
    assert np.isfinite(model.compile_logp()(point))
    point["c"][0, 0] += 1
    assert model.compile_logp()(point) == -np.inf


def test_arrays_of_a_frame():
    import pandas

    frame = pandas.DataFrame({
        "geocode": ["01", "01"], "query_name": ["a", "b"], "query_shape": [np.array([1]), np.array([2, 1])],
        "value": [np.array([5]), np.array([6, 7])], "variance": [9.0, 16.0],
    })  # fmt: skip
    nmf = dp.importers.census(frame, where={"query_name": ["b", "c"]})
    assert list(nmf.releases) == [("01", "b")] and nmf.releases["01", "b"].value.tolist() == [[6], [7]]


CONSTRAINT = {"variance": None, "sign": ["="]}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (row(variance=None), "column 'variance' is missing from the table .the noise."),
        (row(value=None), "column 'value' is missing"),
        (row(query_shape=None), "column 'query_shape' is missing"),
        (row(query_name=None), "column 'query_name' is missing"),
        (row(geocode=None), "column 'geocode' is missing"),
        (
            row(variance=[0.0]),
            "variance of total_dpq in 01 must be finite and > 0, got 0: a number without noise",
        ),
        (row(variance=[-4.0]), "variance of total_dpq in 01 must be finite and > 0, got -4"),
        (row(variance=[math.nan]), "variance of total_dpq in 01 must be finite and > 0, got nan"),
        (row(variance=[math.inf]), "variance of total_dpq in 01 must be finite and > 0, got inf"),
        (row(query_shape=[[3]]), r"value of total_dpq in 01 has 2 numbers, .* not fit query_shape = \[3\]"),
        (row(query_shape=[[-1, -2]]), r"do not fit query_shape = \[-1, -2\]"),
        (row(query_shape=[[0.5, 4]]), r"do not fit query_shape = \[0.5, 4.0\]"),
        (row(value=[[3, 4.5]]), r"value of total_dpq in 01 must be whole numbers, got 4.5 at index \(1,\)"),
        (row(value=[[3, None]]), r"value of total_dpq in 01 has missing or infinite entries"),
        (row(value=["[3, 4"]), r"A list must be written as in JSON"),
        ({k: v * 2 for k, v in row().items()}, "two rows for geocode = 01, query_name = total_dpq"),
    ],
)
def test_refusals(table, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dp.importers.census(table)


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (row(variance=None), "column 'sign' is missing from the table .whether a constraint is exact"),
        (row(**{**CONSTRAINT, "sign": ["~"]}), "sign of total_dpq in 01 must be =, <= or >=, got '~'"),
        (row(**CONSTRAINT, value=[[1.5, 2]]), "value of total_dpq in 01 must be whole numbers"),
        (row(**CONSTRAINT, query_shape=[[4]]), "do not fit query_shape"),
    ],
)
def test_refusals_of_constraints(constraints, message):
    with pytest.raises(ValueError, match=message):
        dp.importers.census(row(), constraints)


def test_no_row():
    with pytest.raises(ValueError, match=r"No row of the table has .*there is nothing to import"):
        dp.importers.census(row(), where={"geocode": "1"})
    with pytest.raises(ValueError, match=r"column 'county' is missing from the table .named in where"):
        dp.importers.census(row(), where={"county": "1"})
