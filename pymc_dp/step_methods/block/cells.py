"""Releases whose density depends on their record only through a cell: one table instead of a density.

The wavelet mechanism looks at a dyadic cell, k-ary response and unary encodings at a category. The density
of a record's release is then a row of a table, computed once from the mechanism's own log density; rows are
shared by records with equal releases. The table costs at most 4 bytes per record and cell (less than such a
release itself) and a look-up a few nanoseconds, however many numbers a release consists of.
"""

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.tables import Table, table_density
from pymc_dp.query.readings import uncast
from pymc_dp.query.records import RecordBlock, Release, is_elementwise, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.supports import clamped_record, finite_support

_log = logging.getLogger("pymc.dp")

# Largest table, in entries; beyond it the density itself is evaluated.
MAX_ENTRIES = 2**30
# Tables up to this many entries hold float64. Larger ones are limited by memory; relative to a row's largest
# entry, float32 is off by 1e-7 of the log density, which nothing can tell from the truth.
_WIDE_UP_TO = 2**22
# Numbers of the release that are evaluated at once: a few cores' worth of cache.
_CHUNK = 2**17


class ChannelTable:
    """Log density of each record's release by cell of its query, brought up to date with the release.

    Parameters
    ----------
    model : Model
    release : Release
        A local one, of one number per record, whose other parameters no free variable enters.
    n : int
        Number of records.
    edges : (B + 1,) array
        Ascending edges of cells.
    with_slots : bool
        Whether cells are to be proposed from the rows.
    with_densities : bool
        Whether cells are to be drawn exactly.
    points : (B,) array, optional
        Query at which the density of each cell is evaluated; the middle of the cell if left out.

    Attributes
    ----------
    address, index
        Shared variables for the models' graphs: of the table's header, and each record's row (n,).
    """

    def __init__(
        self,
        model: Model,
        release: Release,
        n: int,
        edges: np.ndarray,
        with_slots: bool = False,
        with_densities: bool = False,
        points: np.ndarray | None = None,
    ):
        self.release, self.n = release, n
        self.edges = np.asarray(edges, dtype=float)
        self.points = 0.5 * (self.edges[1:] + self.edges[:-1]) if points is None else points
        self.with_slots, self.with_densities = with_slots, with_densities
        self._value = uncast(model.rvs_to_values[release.rv])
        self._override: np.ndarray | None = None
        self._seen: tuple[Any, ...] = ()
        self.table: Table | None = None
        self.address = pytensor.shared(np.zeros(1), name="address")
        self.index = pytensor.shared(np.zeros(n), name="index", shape=(n,))

    def density(self, query: TensorVariable) -> TensorVariable:
        """Return the graph (n,) of the log density at a query, up to a constant."""
        return table_density(self.address[0], self.index, pt.cast(query, "float64"))

    def override(self, value: Any) -> None:
        """Use another value of the release."""
        self._override = np.array(value)

    def refresh(self) -> Table:
        """Compute the table again if the release or a parameter of the mechanism is another one."""
        value = self._current()
        params = [p if isinstance(p, np.ndarray) else p() for p in self._params]
        same = self.table is not None and self._seen[0] is value
        if same and all(np.array_equal(a, b) for a, b in zip(self._seen[1:], params, strict=True)):
            assert self.table is not None
            return self.table
        self._seen = (value, *params)
        rows, index, params = self._distinct(value, params)
        densities = self._evaluate(rows, params)
        self.table = Table(self.edges, densities, self.with_slots, self.with_densities)
        self.address.set_value(np.array([self.table.address]))
        self.index.set_value(index.astype(float))
        return self.table

    def n_rows(self) -> int:
        """Return the number of distinct releases."""
        params = [p if isinstance(p, np.ndarray) else p() for p in self._params]
        return len(self._distinct(self._current(), params)[0])

    def _current(self) -> np.ndarray:
        if self._override is not None:
            return self._override
        value = self._value
        return value.get_value(borrow=True) if isinstance(value, SharedVariable) else value.data

    @cached_property
    def _params(self) -> list[Any]:
        """Parameters after the query: arrays, or functions where they may change."""
        found: list[Any] = []
        for p in parameters_of(self.release.rv)[1:]:
            fixed = p.data if isinstance(p, Constant) else None
            found.append(
                np.asarray(fixed) if fixed is not None else pytensor.function([], p, mode="FAST_COMPILE")
            )
        return found

    def _distinct(self, value: np.ndarray, params: list) -> tuple[np.ndarray, np.ndarray, list]:
        """Return distinct releases, which of them is each record's, and the parameters to go with them."""
        op = self.release.rv.owner.op  # type: ignore[union-attr]
        core = [p.shape[p.ndim - k :] for p, k in zip(params, op.ndims_params[1:], strict=True)]
        shared = [p.size == int(np.prod(s)) for p, s in zip(params, core, strict=True)]
        params = [p.reshape(s) if one else p for p, s, one in zip(params, core, shared, strict=True)]
        if all(shared) and value.dtype.kind in "iub":
            _, first, index = np.unique(_keys(value), return_index=True, return_inverse=True)
            return value[first], index.ravel(), params
        return value, np.arange(self.n), params

    @cached_property
    def _density(self) -> Any:
        """Compiled log density of some releases at one query."""
        rv = self.release.rv
        op = rv.owner.op  # type: ignore[union-attr]
        value = pt.tensor("value", dtype=rv.dtype, shape=(None,) * rv.ndim)
        query = pt.scalar("query", dtype=parameters_of(rv)[0].type.dtype)  # type: ignore[attr-defined]
        params = [
            pt.tensor(dtype=p.type.dtype, shape=(None,) * ndim)  # type: ignore[attr-defined]
            for p, ndim in zip(parameters_of(rv)[1:], self._ranks, strict=True)
        ]
        queries = pt.full((value.shape[0],), query)
        law = op.make_node(pt.random.shared_rng(seed=None), NoneConst, queries, *params).default_output()
        logp = pm.logp(law, value)
        logp = logp.sum(axis=tuple(range(1, logp.ndim))) if logp.ndim > 1 else logp
        return pytensor.function([value, query, *params], logp, on_unused_input="ignore", trust_input=True)

    def _evaluate(self, rows: np.ndarray, params: list) -> np.ndarray:
        self._ranks = [p.ndim for p in params]
        op = self.release.rv.owner.op  # type: ignore[union-attr]
        per_row = [p.ndim > k for p, k in zip(params, op.ndims_params[1:], strict=True)]
        rows = np.asarray(rows, dtype=self.release.rv.dtype)
        kinds = [p.type.dtype for p in parameters_of(self.release.rv)]  # type: ignore[attr-defined]
        shape = (len(rows), len(self.points))
        out = np.empty(shape, dtype=float if shape[0] * shape[1] <= _WIDE_UP_TO else np.float32)
        step = max(1, _CHUNK // max(1, int(np.prod(rows.shape[1:]))))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            given = [np.asarray(p[part] if own else p, dtype=kind)
                     for p, own, kind in zip(params, per_row, kinds[1:], strict=True)]  # fmt: skip
            block = np.stack(
                [self._density(rows[part], np.asarray(q, dtype=kinds[0]), *given) for q in self.points],
                axis=1,
            )
            top = block.max(axis=1, keepdims=True)
            out[part] = block - np.where(np.isfinite(top), top, 0.0)
        return out


def _keys(value: np.ndarray) -> np.ndarray:
    """One number per row of whole numbers, equal where the rows are."""
    if value.ndim == 1:
        return value
    rows = np.ascontiguousarray(value.reshape(len(value), -1))
    if rows.min(initial=0) >= 0 and rows.max(initial=0) <= 1:
        rows = np.packbits(rows.astype(bool), axis=1)
        if rows.shape[1] <= 8:
            padded = np.zeros((len(rows), 8), dtype=np.uint8)
            padded[:, : rows.shape[1]] = rows
            return padded.view(np.uint64).ravel()
    rows = np.ascontiguousarray(rows)
    return rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()


def tabled(model: Model, block: RecordBlock, release: Release) -> bool:
    """Whether a release can have a table: a fixed channel of one number per record."""
    role = block.analysis.role(release.query)
    value = uncast(model.rvs_to_values[release.rv])
    variables = set(model.basic_RVs)
    return (
        release.kind == "local"
        and role.axis == 0
        and role.rows is None
        and release.query.ndim == 1
        and isinstance(value, Constant | SharedVariable)
        and not leaves_of(parameters_of(release.rv)[1:], variables)
    )


def find_tables(model: Model, block: RecordBlock) -> dict[Variable, ChannelTable]:
    """Return the tables that stand for the densities of a block's local releases, where there are any."""
    tables: dict[Variable, ChannelTable] = {}
    for release in block.releases:
        if not tabled(model, block, release):
            continue
        op = release.rv.owner.op  # type: ignore[union-attr]
        cells = getattr(op, "cells", None)
        if cells is not None:
            edges, slots = np.asarray(cells), True
        else:
            found = clamped_record(release.query, block.records)
            support = None if found is None else finite_support(found.record)
            if support is None or (is_elementwise(release.rv) and op.ndim_supp == 0):
                continue  # the density is one scalar expression, and cheaper than a look-up
            ends = np.clip(support[[0, -1]], found.lo, found.hi)  # type: ignore[union-attr]
            edges, slots = np.arange(ends[0], ends[1] + 2) - 0.5, False
        if block.n * (len(edges) - 1) > MAX_ENTRIES:
            _log.info("%s has too many cells for a table; its density is evaluated instead", release.name)
            continue
        tables[release.rv] = ChannelTable(model, release, block.n, edges, slots)
    return tables


@dataclass(frozen=True)
class Histogram:
    """A central release of the counts of a number of each record in some bins."""

    release: Release
    edges: np.ndarray
    number: TensorVariable  # (n,): what is counted

    @property
    def n_bins(self) -> int:
        """Number of bins, and of statistics."""
        return len(self.edges) - 1


def find_histograms(block: RecordBlock) -> dict[Variable, Histogram]:
    """Return the histograms among a block's releases."""
    found = {}
    for release in block.releases:
        cells = getattr(release.rv.owner.op, "cells", None)  # type: ignore[union-attr]
        if release.kind != "central" or cells is None:
            continue
        edges = np.asarray(cells, dtype=float)
        rows = block.analysis.rows_of(release.query)
        number = _counted(rows, block)
        if number is not None and _counts_bins(rows, number, edges, block.n):
            found[release.rv] = Histogram(release, edges, number)
    return found


def _counted(rows: Variable, block: RecordBlock) -> TensorVariable | None:
    """Return the one number per record (n,) that contributions (n, bins) are computed from."""
    found, stack = set(), [rows]
    while stack:
        node = stack.pop().owner
        if node is None or block.analysis.role(node.outputs[0]).kind == "free":
            continue
        if isinstance(node.op, DimShuffle) and tuple(node.op.new_order) == (0, "x"):
            found.add(node.inputs[0])
        elif isinstance(node.op, Elemwise):
            stack += node.inputs
        else:
            return None
    return found.pop() if len(found) == 1 else None  # type: ignore[return-value]


def _counts_bins(rows: Variable, number: Variable, edges: np.ndarray, n: int) -> bool:
    """Whether contributions are indicators of the bins: tried in each of them, and beyond the ends."""
    widths = np.diff(edges)
    points = np.array([edges[0] - widths[0], *(edges[:-1] + 0.5 * widths), edges[-1] + widths[-1]])
    bins = np.clip(np.arange(-1, len(widths) + 1), 0, len(widths) - 1)
    value = pt.vector("number", dtype=number.type.dtype, shape=number.type.shape)  # type: ignore[attr-defined]
    (graph,) = clone_replace([rows], {number: value}, rebuild_strict=False)
    try:
        function = pytensor.function([value], graph, mode="FAST_COMPILE")
        given = np.resize(points, n * -(-len(points) // n)).astype(value.dtype)
        found = np.concatenate([function(part) for part in given.reshape(-1, n)])[: len(points)]
    except Exception:  # other variables in the rows
        return False
    return found.shape == (len(points), len(widths)) and np.array_equal(found, np.eye(len(widths))[bins])
