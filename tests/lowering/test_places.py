"""Entries of rows that were put into an array, or picked from one, beside the array itself."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.math import expand_packed_triangular
from pytensor.graph.traversal import graph_inputs

from pymc_dp.lowering.rows import places
from pymc_dp.lowering.rows.rows import ROW, NotScalar, RowGraph

N = 5
X, Y, V = (pt.tensor(name, shape=(N, *s)) for name, s in (("x", (3, 4)), ("y", (3,)), ("v", (6,))))
LOWER = np.tril_indices(3, -1)

WRITTEN = {
    "a lower triangle": lambda: pt.zeros((N, 3, 3))[:, *LOWER].set(Y),
    "a triangle and a diagonal": lambda: (
        pt.zeros((N, 3, 3))[:, *LOWER].set(Y)[:, range(3), range(3)].set(pt.exp(V[:, 3:]))
    ),
    "one number": lambda: X[:, 1, 2].set(Y[:, 0]),
    "a row of each": lambda: X[:, 1].set(V[:, :4]),
    "a slice, broadcast": lambda: X[:, :2, ::2].set(Y[:, :1, None]),
    "a constant": lambda: X[:, [0, -1]].set(2.5),
    "from the end": lambda: X[:, -1, [-1, 0]].set(Y[:, 1:]),
    "the last of two": lambda: X[:, [1, 1], [2, 2]].set(Y[:, :2]),
    "added": lambda: X[:, 0, :3].inc(Y),
    "added twice": lambda: X[:, [1, 1, 2], [2, 2, 0]].inc(Y),
    "added once": lambda: pt.inc_subtensor(X[:, [1, 1, 2], [2, 2, 0]], Y, ignore_duplicates=True),
    "whole numbers among real ones": lambda: X[:, 1].set(pt.cast(V[:, :4] > 0, "int64")),
    "packed": lambda: pt.vectorize(lambda p: expand_packed_triangular(3, p), signature="(k)->(d,d)")(V),
}
PICKED = {
    "a diagonal": lambda: X[:, [0, 1, 2], [0, 1, 2]],
    "columns": lambda: X[:, :, [3, 0]],
    "rows from the end": lambda: X[:, [-1, 0, 0]],
    "a slice beside": lambda: X[:, 1:, [2, 2]],
    "of what was put": lambda: X[:, 0].set(V[:, 2:])[:, [0, 0, 1], [3, 1, 2]],
}


def entries(graph):
    """The entries of a row, and the numbers of the row that they are made of."""
    numbers = {}

    def number(v, index):
        return numbers.setdefault((v, index), pt.dscalar(f"{v.name}{index}"))

    rows = RowGraph(lambda v: not {X, Y, V} & set(graph_inputs([v])), number, [X, Y, V])
    found = [rows.entry(graph, (ROW, *index)) for index in np.ndindex(*graph.type.shape[1:])]
    assert not rows.constants
    assert not rows.columns
    return found, numbers


def values(rng):
    return {v: rng.normal(size=v.type.shape) for v in (X, Y, V)}


@pytest.mark.parametrize("name", [*WRITTEN, *PICKED])
def test_entries_are_those_of_the_array(name):
    graph, at = {**WRITTEN, **PICKED}[name](), values(np.random.default_rng(3))
    found, numbers = entries(graph)
    compiled = pytensor.function([*numbers.values()], found, mode="FAST_COMPILE", on_unused_input="ignore")
    known = [v for v in (X, Y, V) if v in set(graph_inputs([graph]))]
    whole = graph.eval({v: at[v] for v in known}, mode="FAST_COMPILE")
    for row in (0, N - 1):
        got = compiled(*(at[v][(row, *index)] for v, index in numbers))
        np.testing.assert_array_equal(np.reshape(got, graph.type.shape[1:]), whole[row])


KNOWN = pt.dvector("known", shape=(3,))
REPEATED = {
    "a diagonal for all": (lambda: pt.zeros((N, 3, 3))[:, range(3), range(3)].set(KNOWN), True),
    "numbers in a row for all": (lambda: pt.zeros((N, 3))[:, ::-1].inc(KNOWN[None]), True),
    "one of each row": (lambda: pt.zeros((N, 3))[:, 0].set(np.arange(N)), False),
    "put among what differs": (lambda: pt.constant(np.eye(N))[:, 0].set(1.0), False),
    "a row": (lambda: pt.zeros((3, 3))[1].set(KNOWN), False),
    "a diagonal across rows": (lambda: pt.zeros((3, 3))[range(3), range(3)].set(KNOWN), False),
}


@pytest.mark.parametrize("name", REPEATED)
def test_what_is_put_into_all_rows_is_one_number(name):
    build, repeated = REPEATED[name]
    graph, at = build(), np.array([1.5, -2.0, 0.25])
    rows = RowGraph(lambda v: True, None, [])
    for index in np.ndindex(*graph.type.shape[1:]):
        rows.entry(graph, (ROW, *index))
    assert not rows.columns if repeated else rows.columns
    whole = graph.eval({KNOWN: at} if KNOWN in set(graph_inputs([graph])) else {}, mode="FAST_COMPILE")
    assert (whole == whole[0]).all() == repeated


def test_the_order_of_writes_is_looked_at(monkeypatch):
    """Broken on purpose: the first of two that are put to the same place."""
    whole = places.writes

    def first(node, index, known):
        if not node.op.set_instead_of_inc:
            return whole(node, index, known)
        node.op.set_instead_of_inc = False
        try:
            return [(at, False) for at, _ in whole(node, index, known)[:1]]
        finally:
            node.op.set_instead_of_inc = True

    monkeypatch.setattr("pymc_dp.lowering.rows.rows.writes", first)
    test_entries_are_those_of_the_array("a slice, broadcast")
    with pytest.raises(AssertionError, match="Mismatch"):
        test_entries_are_those_of_the_array("the last of two")


REFUSED = {
    "some rows": (lambda: X[:4, 0].set(V[:4, :4]), "a part of the record axis"),
    "rows in another order": (lambda: X[np.arange(N)[::-1], [0] * N].set(1.0), "a part of the record axis"),
    "an index that is read": (lambda: X[:, pt.iscalar("k"), [0, 1]].set(Y[:, :2]), "no constant"),
    "records behind places": (
        lambda: pt.stack([X, -X], axis=-1)[:, [0, 1], :, [1, 0]].transpose(1, 0, 2),
        "another axis",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_differs_between_rows_is_refused(name):
    build, why = REFUSED[name]
    with pytest.raises(NotScalar, match=why):
        entries(build())
