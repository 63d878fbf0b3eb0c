"""The analysis of rows against what really changes when one record does."""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor.shape import Shape, Shape_i

from pymc_dp.query.indexrules import Placed
from pymc_dp.query.rowlocal import RowAnalysis, columns_of, leaves_of
from tests.records.queries import QUERIES, N, variables

# Evaluated by Python: compiling two hundred graphs would take minutes.
PYTHON = Mode(linker="py", optimizer=None)
MODEL, NAMES, RECORDS = variables()
ROOTS = [NAMES.s, NAMES.b, NAMES.t, *RECORDS]
EVERY = pytest.mark.parametrize("query", QUERIES, ids=[q.name for q in QUERIES])


def values_of(rng):
    """Values of all roots, by variable."""
    integers = {NAMES.c: 4, NAMES.k: 9}
    return {
        v: rng.integers(0, integers[v], N) if v in integers else rng.normal(size=tuple(v.type.shape))
        for v in ROOTS
    }


def function_of(*graphs):
    outputs = [pytensor.Out(g, borrow=False) for g in graphs]
    f = pytensor.function(ROOTS, outputs, mode=PYTHON, on_unused_input="ignore")
    return lambda values: [np.array(r) for r in f(*(values[v] for v in ROOTS))]


def perturbed(values, i, rng):
    """Values with record i replaced in every record variable, always by something else."""
    other, fresh = dict(values), values_of(rng)
    for v in RECORDS:
        other[v] = values[v].copy()
        other[v][i] = fresh[v][i]
        if other[v].dtype.kind == "i":
            other[v][i] = (values[v][i] + 1 + rng.integers(0, 2)) % 4
    return other


def analyse(query):
    graph = pt.as_tensor_variable(query.build(NAMES))
    analysis = RowAnalysis(RECORDS, N, MODEL.basic_RVs)
    return graph, analysis, analysis.role(graph)


@EVERY
def test_role(query):
    _, _, role = analyse(query)
    assert role.kind == query.kind
    if query.kind == "row":
        assert role.axis == query.axis
        assert role.rows == query.rows


@EVERY
def test_no_verdict_is_too_optimistic(query, rng):
    """Change one record at a time and see which entries of the query change."""
    graph, _, role = analyse(query)
    f = function_of(graph)
    moved = np.zeros(N, dtype=bool)
    for _ in range(3):
        values = values_of(rng)
        (before,) = f(values)
        for i in range(N):
            (after,) = f(perturbed(values, i, rng))
            assert after.shape == before.shape
            differs = ~np.isclose(before, after, rtol=1e-13, atol=0, equal_nan=True)
            moved[i] |= differs.any()
            if role.kind == "free":
                assert not differs.any()
            if role.kind != "row":
                continue
            rows = np.arange(N) if role.rows is None else np.array(role.rows)
            assert before.shape[role.axis] == len(rows)
            others = np.take(differs, np.flatnonzero(rows != i), axis=role.axis)
            assert not others.any(), f"record {i} changes rows of other records"
    if role.kind == "row":  # otherwise this test sees nothing
        assert moved[list(role.rows or range(N))].all()


ADDITIVE = [q for q in QUERIES if q.kind == "sum"]


@pytest.mark.parametrize("query", ADDITIVE, ids=[q.name for q in ADDITIVE])
def test_rows_add_up_to_the_query(query, rng):
    """``query = offset + sum of rows``; row i belongs to record i alone, the offset to none."""
    graph, analysis, _ = analyse(query)
    rows, offset = analysis.rows_of(graph), analysis.offset_of(graph)
    # not even through a shape: it is compiled without the records
    assert not set(leaves_of([offset], MODEL.basic_RVs)) & set(RECORDS)
    f = function_of(graph, rows, offset)
    for _ in range(3):
        values = values_of(rng)
        total, each, start = f(values)
        assert each.shape == (N, *total.shape)
        np.testing.assert_allclose(start + each.sum(axis=0), total, rtol=1e-12, atol=1e-12)
        for i in range(N):
            _, after, start_after = f(perturbed(values, i, rng))
            np.testing.assert_array_equal(start_after, start)
            keep = np.arange(N) != i
            np.testing.assert_array_equal(after[keep], each[keep])


OF_SUMS = [q for q in QUERIES if q.kind in ("sum", "function")]


def records_beside(graph, sums):
    """Records that reach a graph other than through some sums; their shapes are no matter."""
    stack, found = [graph], set()
    while stack:
        v = stack.pop()
        if v in RECORDS:
            found.add(v)
        elif v not in sums and v.owner is not None and not isinstance(v.owner.op, Shape | Shape_i):
            stack.extend(v.owner.inputs)
    return found


@pytest.mark.parametrize("query", OF_SUMS, ids=[q.name for q in OF_SUMS])
def test_sums_hold_all_that_comes_from_records(query, rng):
    """Records reach the query through its sums alone, and every sum is the sum of its rows."""
    graph, analysis, _ = analyse(query)
    sums = analysis.sums_in(graph)
    assert sums
    assert not records_beside(graph, sums)
    f = function_of(*sums, *(analysis.sums[s] for s in sums))
    out = f(values_of(rng))
    for total, each in zip(out[: len(sums)], out[len(sums) :], strict=True):
        np.testing.assert_allclose(each.sum(axis=0), total, rtol=1e-12, atol=1e-12)


PLACED = {
    "sums by group",
    "as many groups as records",
    "sums of vectors by group",
    "a number for all columns, by group",
    "places by a mask",
    "table by two",
}


@pytest.mark.parametrize("query", ADDITIVE, ids=[q.name for q in ADDITIVE])
def test_places_that_no_record_changes(query, rng):
    """Sums by a public index are what records add in its places; no other query is read so."""
    graph, analysis, _ = analyse(query)
    placed = analysis.placed.get(graph)
    assert (query.name in PLACED) == (placed is not None)
    if placed is None:
        return
    total, values, place = function_of(graph, placed.values, placed.place)(values_of(rng))
    found = np.zeros((int(np.prod(placed.shape[: len(placed.index)])), *values.shape[1:]))
    np.add.at(found, place, values)
    assert placed.shape == total.shape
    np.testing.assert_allclose(found.reshape(total.shape), total, rtol=1e-12, atol=1e-12)


def test_places_outside():
    index = [np.array([0, -1, -3, 2, 1, 5]), np.array([3, -4, 0, 0, -5, 4])]
    placed = Placed(pt.zeros(6), [pt.constant(i) for i in index], (2, 4))
    assert placed.place.eval().tolist() == [3, 4, -1, -1, -1, -1]


def test_enough_queries():
    kinds = [q.kind for q in QUERIES]
    assert len(kinds) >= 50
    assert all(kinds.count(k) >= 10 for k in ("row", "sum", "function", "mixed"))
    assert len({q.name for q in QUERIES}) == len(QUERIES)


COLUMNS = {
    "stacked": (lambda q: pt.stack([q.x, q.x * q.y, q.y**2], axis=1), 3),
    "one": (lambda q: q.x, 1),
    "as a column": (lambda q: q.x[:, None], 1),
    "vector records": (lambda q: q.v, 3),
    "scaled stack": (lambda q: pt.stack([q.x, q.y], axis=1) / 5, 2),
    "stack times covariates": (lambda q: q.x[:, None] * q.design, 3),
    "joined": (lambda q: pt.concatenate([q.v, q.x[:, None], q.y[:, None]], axis=1), 5),
    "one-hot": (lambda q: pt.eq(q.c[:, None], np.arange(4)), 4),
    "clamped stack": (lambda q: pt.clip(pt.stack([q.x, q.y], axis=1), [-1, 0], [1, 2]), 2),
    "matrix rows": (lambda q: q.v[:, :, None] * q.v[:, None, :], 9),
    "product with a matrix": (lambda q: q.v @ np.eye(3)[:, :2], 2),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_the_columns(name, rng):
    build, width = COLUMNS[name]
    rows = pt.as_tensor_variable(build(NAMES))
    columns = columns_of(rows, width)
    assert len(columns) == width
    assert all(c.ndim == 1 for c in columns)
    whole, *parts = function_of(rows, *columns)(values_of(rng))
    whole = whole.reshape(N, width)
    for j, part in enumerate(parts):
        np.testing.assert_allclose(part, whole[:, j], rtol=1e-14)


def test_columns_keep_apart_what_depends_on_what():
    """A stacked column is given back as it was: the others are not among its ancestors."""
    first, second = columns_of(pt.stack([NAMES.x, NAMES.y], axis=1), 2)
    assert leaves_of([first], RECORDS) == [NAMES.x]
    assert leaves_of([second], RECORDS) == [NAMES.y]
