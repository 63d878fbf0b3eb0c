"""Exact draws of records with few possible values, each given its own releases.

The conditional probability of value k is its probability in the model times the density of the release at k,
which is a row of a table. Where the law of the records is the same for all of them, records with equal
releases have equal conditionals: an alias table for each distinct release, made once per sweep, then draws a
record in O(1) however many values there are. Otherwise a draw passes over the values once.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.bind import Kernel, part_of_kernel
from pymc_dp.lowering.addresses.native import HOIST, NativeFunction
from pymc_dp.lowering.functions.bits import random
from pymc_dp.lowering.functions.tables import fetch_row, fill_alias, likelihoods, n_rows
from pymc_dp.lowering.functions.truncated_masses import with_all_digits
from pymc_dp.lowering.rows.rows import NotScalar
from pymc_dp.query.lengths import with_known_shapes
from pymc_dp.query.pointwise import at_values, record_behind
from pymc_dp.query.readings import lift
from pymc_dp.query.supports import MAX_SUPPORT, finite_support
from pymc_dp.step_methods.block.cells import ChannelTable, tabled
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.block.state import ROWS, RecordState
from pymc_dp.step_methods.sweeps.parts import count

# Largest support; beyond MAX_SUPPORT values, which is meant for few distinct releases, entries of the tables.
_LARGEST, _FEW = 2048, 2**22
# Records whose row of a table is asked for ahead of time, since a large table is not in the cache.
_AHEAD = 8

# What a model gives the kernels: how many values there are, the first of them, how many tables; whether the
# law of the records is the same for all of them.
N_VALUES, FIRST, N_TABLES, SHARED = 0, 0, 0, False

type Array = np.ndarray
type Generator = np.random.Generator


class FiniteSweep:
    """Native functions of a sweep that draws every record from its full conditional.

    Parameters
    ----------
    program : RecordProgram

    Raises
    ------
    NotScalar
        If the records are not of one variable with a small constant support, or anything but local releases
        through fixed channels tells about them.
    """

    def __init__(self, program: RecordProgram):
        block = program.block
        (record, *others) = block.records
        if others or record.ndim != 1 or block.terms or block.potentials or block.analysis.placements:
            raise NotScalar("more than local releases of one variable")
        support = finite_support(record, _LARGEST)
        if support is None:
            raise NotScalar(f"{record.name} has no small support")
        self.program = program
        self._support = support
        self._tables = [self._table(release) for release in block.releases]
        if len(support) > MAX_SUPPORT and max(t.n_rows() for t in self._tables) * len(support) > _FEW:
            raise NotScalar(f"{record.name} has a large support, and its releases many values")
        self._shared = self._law()
        for table in self._tables:
            program.add_table(table)
        self._compile()

    def _table(self, release: Any) -> ChannelTable:
        """Return the table of a release by the record's own value, before what the query makes of it."""
        program, support = self.program, self._support
        record = record_behind(release.query, program.block.records)
        if record is None or not tabled(program.model, program.block, release):
            raise NotScalar(f"{release.name} is no fixed channel of the records themselves")
        edges = np.arange(support[0], support[-1] + 2) - 0.5
        points = at_values(release.query, record, support).astype(np.float64)
        return ChannelTable(program.model, release, program.n, edges, with_densities=True, points=points)

    def _law(self) -> bool:
        """Find the probabilities of the values: whether they are the same for all records."""
        (record,) = self.program.block.records
        node = with_all_digits(lift(record, self.program.state)).owner
        params = node.op.dist_params(node)
        batches = [p.type.ndim - k for p, k in zip(params, node.op.ndims_params, strict=True)]
        single = [b == 0 or p.type.shape[0] == 1 for p, b in zip(params, batches, strict=True)]
        values = pt.constant(self._support.astype(record.dtype))
        if all(single):
            params = [p[0] if b else p for p, b in zip(params, batches, strict=True)]
            law = node.op.make_node(node.inputs[0], NoneConst, *params).default_output()
            self._probabilities = pt.exp(pm.logp(law, values))
            return True
        rows = []
        for value in self._support:
            at = pt.full((self.program.n,), np.asarray(value, dtype=record.dtype))
            rows.append(pt.exp(pm.logp(node.default_output(), at)))
        self._probabilities = pt.stack(rows)
        return False

    def _compile(self) -> None:
        n_values, n_tables = len(self._support), len(self._tables)
        numbers: list[TensorVariable] = [table.address for table in self._tables]
        columns: list[TensorVariable] = [table.index[None, :] for table in self._tables]
        (numbers if self._shared else columns).append(self._probabilities)
        self.n_constants = n_tables + n_values * self._shared
        self.n_columns = n_tables + n_values * (not self._shared)
        outputs = [pt.concatenate(numbers), pt.concatenate(columns, axis=0)]
        self.hoist: NativeFunction = self.program.native("hoist", [], with_known_shapes(outputs), HOIST)
        names = {"N_VALUES": n_values, "FIRST": int(self._support[0])}
        if self._shared and n_tables == 1:
            self.rows = Kernel(shared_sweep, ROWS, names)
        else:
            self.rows = Kernel(sweep, ROWS, {**names, "N_TABLES": n_tables, "SHARED": self._shared})


@part_of_kernel
def prior_weights(prior: Array, weights: Array) -> float:
    """Fill the weights of the values where no release is looked at; return their sum."""
    total = 0.0
    for k in range(prior.size):
        weights[k] = prior[k]
        total += prior[k]
    return total


@part_of_kernel
def draw_record(rng: Generator, total: float, weights: Array, first: int, x: Array, i: int) -> None:
    """Draw a record by the weights of the values from ``first``; it stays where nothing is possible."""
    if total > 0.0:
        u = total * random(rng)
        k = 0
        while k < weights.size - 1 and u >= weights[k]:
            u -= weights[k]
            k += 1
        if weights[k] > 0.0:
            x[i, 0] = first + k


def shared_sweep(n_sweeps: int, rng: Generator, state: RecordState) -> None:
    """Draw records of one law with one release each: by alias tables of distinct releases, if these are few.

    The constants are the address of the table's header and the probabilities of the values; the covariates
    the row of each record's release in the table.
    """
    x, c, cov, prior_only = state.records, state.constants, state.covariates, state.prior_only
    n = x.shape[0]
    prior, weights = np.empty(N_VALUES), np.empty(N_VALUES)
    for k in range(N_VALUES):
        prior[k] = c[1 + k]
    header = int(c[0])
    n_groups = 1 if prior_only else n_rows(header)
    by_groups = 3 * n_groups <= n
    if by_groups:
        keep, other = np.empty((n_groups, N_VALUES)), np.empty((n_groups, N_VALUES), np.int64)
        for g in range(n_groups):
            if prior_only:
                total = prior_weights(prior, weights)
            else:
                total = likelihoods(header, g, prior, weights)
            if total > 0.0:
                fill_alias(weights, total, keep[g], other[g])
            else:
                other[g, 0] = -1
    for _ in range(n_sweeps):
        for i in range(n):
            if by_groups:
                g = 0 if prior_only else int(cov[0, i])
                u = N_VALUES * random(rng)
                k = int(u)
                if other[g, 0] >= 0:
                    if u - k >= keep[g, k]:
                        k = other[g, k]
                    x[i, 0] = FIRST + k
                continue
            if not prior_only and i + _AHEAD < n:
                fetch_row(header, int(cov[0, i + _AHEAD]))
            if prior_only:
                total = prior_weights(prior, weights)
            else:
                total = likelihoods(header, int(cov[0, i]), prior, weights)
            draw_record(rng, total, weights, FIRST, x, i)
    count(state, n * n_sweeps, 0.0)


def sweep(n_sweeps: int, rng: Generator, state: RecordState) -> None:
    """Draw records that have a conditional each, in one pass over the values.

    The constants are the addresses of the tables' headers, the covariates the rows of each record's releases;
    after the one or the other stand the probabilities of the values.
    """
    x, c, cov, prior_only = state.records, state.constants, state.covariates, state.prior_only
    n = x.shape[0]
    prior, weights = np.empty(N_VALUES), np.empty(N_VALUES)
    for _ in range(n_sweeps):
        for i in range(n):
            total = 0.0
            for k in range(N_VALUES):
                prior[k] = c[N_TABLES + k] if SHARED else cov[N_TABLES + k, i]
                weights[k] = prior[k]
                total += prior[k]
            if not prior_only:
                if i + _AHEAD < n:
                    for t in range(N_TABLES):
                        fetch_row(int(c[t]), int(cov[t, i + _AHEAD]))
                for t in range(N_TABLES):
                    if t > 0:
                        for k in range(N_VALUES):
                            prior[k] = weights[k]
                    total = likelihoods(int(c[t]), int(cov[t, i]), prior, weights)
            draw_record(rng, total, weights, FIRST, x, i)
    count(state, n * n_sweeps, 0.0)
