"""Queries over records, each with the role that the analysis of rows must give it.

One model serves all of them: scalar records `x`, `y` and `k` (counts), category records `c`, vector
records `v` (n, 3), two-axis records `m` (n, 2, 3), and parameters that are no records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp

N = 6
A = np.linspace(-1.0, 2.0, N)
W = np.random.default_rng(1).normal(size=(3, 2))
FIRST, LAST = slice(None, 4), slice(4, None)
GROUP = np.array([0, 0, 1, 1, 2, 0])
MASK = np.array([True, False, True, True, False, True])


@dataclass(frozen=True)
class Query:
    """A query, its expected role, and the expected axis and rows of a row-local one."""

    name: str
    build: Callable[[SimpleNamespace], pt.TensorVariable]
    kind: str
    axis: int | None = None
    rows: tuple[int, ...] | None = None


def variables() -> tuple[pm.Model, SimpleNamespace, list]:
    """Return the model, its variables by name, and which of them are records."""
    with pm.Model() as model:
        s = pm.Normal("s")
        b = pm.Normal("b", shape=3)
        t = pm.Normal("t", shape=4)
        x = pm.Normal("x", shape=N)
        y = pm.Normal("y", shape=N)
        v = pm.Normal("v", shape=(N, 3))
        m = pm.Normal("m", shape=(N, 2, 3))
        c = pm.Categorical("c", np.full(4, 0.25), shape=N)
        k = pm.Poisson("k", 3, shape=N)
        design = pm.Data("design", np.random.default_rng(0).normal(size=(N, 3)))
    names = SimpleNamespace(s=s, b=b, t=t, x=x, y=y, v=v, m=m, c=c, k=k, design=design, model=model)
    return model, names, [x, y, v, m, c, k]


def stacked(q):
    return dp.record_sum(pt.stack([q.x, q.x * q.y, q.y**2], axis=1))


def row(name, build, axis=0, rows=None):
    return Query(name, build, "row", axis, rows)


QUERIES = [
    # -- local: the record axis stays -------------------------------------------------------------
    row("a record", lambda q: q.x),
    row("vector records", lambda q: q.v),
    row("two axes", lambda q: q.m),
    row("counts", lambda q: q.k),
    row("elementwise of two", lambda q: pt.exp(q.x) * q.y + q.k),
    row("known covariate", lambda q: q.x * A),
    row("covariate in pm.Data", lambda q: (q.v * q.design).sum(axis=1)),
    row("parameter in a residual", lambda q: q.y - q.s * q.x),
    row("parameter in a clamp", lambda q: pt.clip(q.x, -q.s, q.s)),
    row("mean within a record", lambda q: q.v.mean(axis=1)),
    row("largest within a record", lambda q: q.v.max(axis=1)),
    row("which is largest", lambda q: q.v.argmax(axis=1)),
    row("centred within a record", lambda q: q.v - q.v.mean(axis=1, keepdims=True)),
    row("softmax within a record", lambda q: pt.special.softmax(q.v, axis=-1)),
    row("cut off within a record", lambda q: q.v[:, 1:]),
    row("one column", lambda q: q.v[:, 0]),
    row("columns by index", lambda q: q.v[:, [2, 0, 2]]),
    row("regression", lambda q: q.v @ q.b),
    row("matrix of coefficients", lambda q: q.v @ W),
    row("coefficients on the left", lambda q: q.b @ q.v.T),
    row("batched product", lambda q: q.m @ W),
    row("outer product of a record", lambda q: q.v[:, :, None] * q.v[:, None, :]),
    row("transposed", lambda q: q.v.T, axis=1),
    row("record axis moved", lambda q: pt.moveaxis(q.m, 0, 2), axis=2),
    row("a table indexed by records", lambda q: q.t[q.c]),
    row("rows of a table", lambda q: pt.outer(q.t, q.b)[q.c]),
    row("one-hot", lambda q: pt.eq(q.c[:, None], np.arange(4))),
    row("columns joined", lambda q: pt.concatenate([q.v, q.x[:, None]], axis=1)),
    row("stacked columns", lambda q: pt.stack([q.x, q.y], axis=1)),
    row("reshaped within a record", lambda q: q.m.reshape((N, 6))),
    row("switch", lambda q: pt.switch(q.x > 0, q.y, q.s)),
    row("first few", lambda q: q.x[FIRST], rows=(0, 1, 2, 3)),
    row("by a mask", lambda q: q.x[MASK], rows=(0, 2, 3, 5)),
    row("every other, backwards", lambda q: q.x[::-2], rows=(5, 3, 1)),
    row("repeated", lambda q: q.x[[0, 0, 3]], rows=(0, 0, 3)),
    row("slice of a slice", lambda q: q.x[1:][:3] * 2, rows=(1, 2, 3)),
    row("in order by index", lambda q: q.x[np.arange(N)] + q.y),
    row("broadcast", lambda q: pt.broadcast_to(q.x[:, None], (N, 4))),
    # -- central: sums over records ---------------------------------------------------------------
    Query("sum", lambda q: q.x.sum(), "sum"),
    Query("mean", lambda q: q.x.mean(), "sum"),
    Query("record_sum", stacked, "sum"),
    Query("sum of vectors", lambda q: q.v.sum(axis=0), "sum"),
    Query("sum of everything", lambda q: q.m.sum(), "sum"),
    Query("sum over the last axis of a transpose", lambda q: q.v.T.sum(axis=1), "sum"),
    Query("counts by category", lambda q: pt.eq(q.c[:, None], np.arange(4)).sum(axis=0), "sum"),
    Query("X'y", lambda q: q.v.T @ q.y, "sum"),
    Query("X'X", lambda q: q.v.T @ q.v, "sum"),
    Query("dot with a covariate", lambda q: pt.dot(q.x, A), "sum"),
    Query("covariates' with records", lambda q: q.design.T @ q.x, "sum"),
    Query("scaled and shifted", lambda q: 3 * q.x.sum() / 7 - q.s, "sum"),
    Query("parameter times a sum", lambda q: q.b * q.x.sum(), "sum"),
    Query("two sums", lambda q: q.x.sum() - 2 * q.y.sum(), "sum"),
    Query("stacked sums", lambda q: pt.stack([q.x.sum(), q.y.mean(), q.k.sum()]), "sum"),
    Query("joined sums", lambda q: pt.concatenate([q.v.sum(0), q.x.sum()[None]]), "sum"),
    Query("a sum beside a number", lambda q: pt.stack([q.x.sum(), q.s]), "sum"),
    Query("part of a sum", lambda q: q.v.sum(axis=0)[1:], "sum"),
    Query("sums by index", lambda q: q.v.sum(axis=0)[[2, 0]], "sum"),
    Query("rotated sums", lambda q: W.T @ q.v.sum(axis=0), "sum"),
    Query("reshaped sums", lambda q: (q.v.T @ q.v).reshape((9,)), "sum"),
    Query("sum of the first few", lambda q: q.x[FIRST].sum(), "sum"),
    Query("groups", lambda q: pt.stack([q.x[FIRST].sum(), q.x[LAST].sum()]), "sum"),
    Query("groups by a mask", lambda q: q.x[MASK].sum() - q.y[~MASK].sum(), "sum"),
    Query("sum with repeats", lambda q: q.x[[0, 0, 3]].sum(), "sum"),
    Query("sum of a residual", lambda q: (q.y - q.s * q.x).sum(), "sum"),
    Query("sum of a table's rows", lambda q: q.t[q.c].sum(), "sum"),
    Query("sum of sums", lambda q: q.v.sum(axis=0).sum(), "sum"),
    Query("sums by group", lambda q: pt.zeros(3)[GROUP].inc(q.x), "sum"),
    Query("scaled sums by group", lambda q: 2 * pt.zeros(3)[GROUP - 3].inc(q.x * q.y) - q.s, "sum"),
    Query("as many groups as records", lambda q: pt.zeros(N)[GROUP].inc(q.x), "sum"),
    Query("sums of vectors by group", lambda q: pt.zeros((3, 3))[GROUP].inc(q.v), "sum"),
    Query("a number for all columns, by group", lambda q: pt.zeros((3, 3))[GROUP].inc(q.x[:, None]), "sum"),
    Query("table by two", lambda q: pt.zeros((3, 2))[GROUP - 3, GROUP % 2].inc(q.x * q.y), "sum"),
    Query("sums by group of some", lambda q: pt.zeros(3)[GROUP[MASK]].inc(q.x[MASK]), "sum"),
    Query("places by a mask", lambda q: pt.zeros(8)[np.arange(8) > 1].inc(q.x), "sum"),
    Query("sums by category", lambda q: pt.zeros(4)[q.c].inc(q.x), "sum"),
    Query("vectors by category", lambda q: pt.zeros((4, 3))[q.c].inc(q.v), "sum"),
    Query("table of counts", lambda q: pt.zeros((3, 4))[GROUP, q.c].inc(1.0), "sum"),
    Query("table of a weight each", lambda q: pt.zeros((3, 4, 3))[GROUP, q.c].inc(q.b), "sum"),
    Query("table of a number for all", lambda q: pt.zeros((3, 4, 2))[GROUP, q.c].inc(1.0), "sum"),
    Query("integer sum as a float", lambda q: pt.cast(q.k.sum(), "float64") / 2, "sum"),
    # -- functions of sums ------------------------------------------------------------------------
    Query("ratio", lambda q: q.x.sum() / q.y.sum(), "function"),
    Query("square of a sum", lambda q: q.x.sum() ** 2, "function"),
    Query("product of sums", lambda q: q.x.sum() * q.y.sum(), "function"),
    Query("variance", lambda q: (q.x**2).mean() - q.x.mean() ** 2, "function"),
    Query("log of a sum", lambda q: pt.log(q.k.sum() + 1), "function"),
    Query("clamped sum", lambda q: pt.clip(q.x.sum(), -1, 1), "function"),
    Query("truncated sum", lambda q: pt.cast(q.x.sum(), "int64"), "function"),
    Query("least squares", lambda q: pt.linalg.inv(q.v.T @ q.v) @ (q.v.T @ q.y), "function"),
    Query("table at a sum", lambda q: q.t[pt.cast(q.k.sum() % 4, "int64")], "function"),
    Query("quadratic form", lambda q: q.v.sum(0) @ q.v.sum(0), "function"),
    # -- anything else ----------------------------------------------------------------------------
    Query("median", lambda q: pt.sort(q.x)[N // 2], "mixed"),
    Query("largest", lambda q: q.x.max(), "mixed"),
    Query("product", lambda q: pt.prod(q.x), "mixed"),
    Query("cumulative sum", lambda q: pt.cumsum(q.x), "mixed"),
    Query("differences", lambda q: q.x[1:] - q.x[:-1], "mixed"),
    Query("lag", lambda q: q.x[1:] * q.x[:-1].sum(), "mixed"),
    Query("reversed", lambda q: q.x + q.x[::-1], "mixed"),
    Query("centred over records", lambda q: q.x - q.x.mean(), "mixed"),
    Query("sum of squares about the mean", lambda q: ((q.x - q.x.mean()) ** 2).sum(), "mixed"),
    Query("pairwise differences", lambda q: q.x[:, None] - q.x[None, :], "mixed"),
    Query("Gram matrix of records", lambda q: q.v @ q.v.T, "mixed"),
    Query("softmax over records", lambda q: pt.special.softmax(q.v, axis=0), "mixed"),
    Query("softmax over all", lambda q: pt.special.softmax(q.v), "mixed"),
    Query("one record", lambda q: q.x[2], "mixed"),
    Query("a record chosen by a record", lambda q: q.x[q.k % N], "mixed"),
    Query("joined end to end", lambda q: pt.concatenate([q.x, q.y]), "mixed"),
    Query("flattened", lambda q: q.v.ravel(), "mixed"),
    Query("reshaped across records", lambda q: q.v.reshape((3, N)), "mixed"),
    Query("rolled", lambda q: pt.roll(q.x, 1), "mixed"),
    Query("standard deviation", lambda q: q.x.std(), "mixed"),
    Query("which record is largest", lambda q: q.x.argmax(), "mixed"),
    Query("determinant", lambda q: pt.linalg.det(q.v[:3]), "mixed"),
    Query("sums by group that start at one", lambda q: pt.ones(3)[GROUP].inc(q.x), "mixed"),
    Query("one of each group", lambda q: pt.zeros(3)[GROUP].set(q.x), "mixed"),
    Query("one of each group added", lambda q: pt.inc_subtensor(
        pt.zeros(3)[GROUP], q.x, ignore_duplicates=True), "mixed"),
    Query("one record in each group", lambda q: pt.zeros(3)[np.arange(3)].inc(q.x[:1]), "mixed"),
    Query("a group of each by another record", lambda q: pt.zeros(4)[q.c[::-1]].inc(q.x), "mixed"),
    Query("scattered", lambda q: pt.zeros(N)[q.k % N].set(q.x), "mixed"),
    # -- no record --------------------------------------------------------------------------------
    Query("parameters", lambda q: q.b * q.s, "free"),
    Query("number of records", lambda q: q.x.shape[0] * q.s, "free"),
]  # fmt: skip
