"""Record sweeps where a table stands for the density of a local release.

A table of a million rows does not fit the cache, and waiting for main memory would cost more than all the
rest of a proposal. Records are therefore taken in groups: candidates of a group are drawn and their entries
of the table asked for; when the group is decided, they have arrived.

Candidates come from the model (:class:`TabledSweep`), or from the release itself (:class:`CellSweep`): a
cell with about its likelihood, and a value anywhere in it. That is the reversed channel of a release that
says something about cells only. The density of the candidate counts slots of the table, so that the move is
exact however coarse they are.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.tuples import Numbers, column, entries, minus, part, row, set_row
from pymc_dp.lowering.functions.bits import standard_exponential
from pymc_dp.lowering.functions.tables import cell_of, draw_value, fetch, log_density, log_weight
from pymc_dp.lowering.rows.rowdraws import draw_entry
from pymc_dp.lowering.rows.rows import ROW, RowGraph, scalar_function
from pymc_dp.lowering.rows.written import written_logp
from pymc_dp.query.readings import with_query
from pymc_dp.query.records import Release
from pymc_dp.step_methods.block.cells import ChannelTable
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.block.state import ROWS, RecordState
from pymc_dp.step_methods.sweeps.fused import FromNumber, FusedSweep
from pymc_dp.step_methods.sweeps.parts import contributions, count, least

type Array = np.ndarray
type Generator = np.random.Generator

# Records of a group.
GROUP = 16
# What a model gives the kernel: numbers that no record changes, entries of a record, statistics, tables, and
# where the power of the density of releases of sums stands in the data.
N_CONSTANTS = WIDTH = N_STATISTICS = N_TABLES = TEMPER_AT = 0


def current(c: Numbers, cov: Array, i: int, y: Numbers) -> tuple[Numbers, float, Numbers, Numbers, Numbers]:
    """Return what is to be known of a record.

    Its statistics, its log weight, what the tables are asked for; addresses and rows of the tables, one after
    the other; address and row of the table that proposes, and the record, where one does.
    """
    raise NotImplementedError


def propose(
    rng: Generator, c: Numbers, cov: Array, i: int, proposing: Numbers
) -> tuple[Numbers, Numbers, float, Numbers, float]:
    """Return a candidate, the first three of its own, and how much likelier the way back is, in logs."""
    raise NotImplementedError


def change(theta: Array, data: Array, value: Array, params: Array, old: Array, new: Array) -> float:
    """Change of the log density of releases of sums."""
    raise NotImplementedError


def tabled_sweep(n_sweeps: int, rng: Generator, state: RecordState) -> None:
    """Sweep over groups of records: all candidates are drawn, then decided one after the other."""
    x, cov, prior_only = state.records, state.covariates, state.prior_only
    theta, data, value, params = state.theta, state.data, state.observed, state.noise
    n, c = x.shape[0], entries(state.constants, N_CONSTANTS)
    lowest, n_accepted = 0.0, 0.0
    old, new = state.offset.copy(), np.zeros(N_STATISTICS)
    # of a group: candidates, how they change the statistics and the log weight, their log weights
    drawn, moves = np.empty((GROUP, WIDTH)), np.empty((GROUP, N_STATISTICS))
    gains, weights = np.empty(GROUP), np.empty(GROUP)
    # tables of a group's records, their rows, and their cells before and after
    headers, rows = np.empty((GROUP, N_TABLES), np.int64), np.empty((GROUP, N_TABLES), np.int64)
    cells, cells_to = np.empty((GROUP, N_TABLES), np.int64), np.empty((GROUP, N_TABLES), np.int64)
    if N_STATISTICS:
        for i in range(n):
            s, _, _, _, _ = current(c, cov, i, row(x, i, WIDTH))
            for j in range(N_STATISTICS):
                old[j] += s[j]
    for _ in range(n_sweeps):
        for start in range(0, n, GROUP):
            m = min(GROUP, n - start)
            for k in range(m):
                i = start + k
                s, before, asked, places, proposing = current(c, cov, i, row(x, i, WIDTH))
                y, t, weight, asked_to, preference = propose(rng, c, cov, i, proposing)
                set_row(drawn, k, y)
                set_row(moves, k, minus(t, s))
                # a record that is impossible where the chain begins moves to anything
                gains[k] = (weight - before if before != -np.inf else 0.0) + preference
                weights[k] = weight
                for q in range(N_TABLES):
                    at, r = int(places[2 * q]), int(places[2 * q + 1])
                    a, b = cell_of(at, asked[q]), cell_of(at, asked_to[q])
                    fetch(at, r, a)
                    fetch(at, r, b)
                    headers[k, q], rows[k, q], cells[k, q], cells_to[k, q] = at, r, a, b
            for k in range(m):
                total = 0.0
                for j in range(N_STATISTICS):
                    new[j] = old[j] + moves[k, j]
                if not prior_only:
                    total = change(theta, data, value, params, old, new)
                    total *= data[TEMPER_AT]
                    total += gains[k]
                    for q in range(N_TABLES):
                        before = log_density(headers[k, q], rows[k, q], cells[k, q])
                        if before != -np.inf:
                            total += log_density(headers[k, q], rows[k, q], cells_to[k, q]) - before
                elif weights[k] == -np.inf:
                    total = -np.inf
                wait = standard_exponential(rng)  # drawn in any case: ratios above 1 cannot be foreseen
                lowest = least(lowest, total)
                if total >= -wait:
                    n_accepted += 1.0
                    set_row(x, start + k, row(drawn, k, WIDTH))
                    for j in range(N_STATISTICS):
                        old[j] = new[j]
    count(state, n_accepted, lowest)
    contributions(old, state)


class TabledSweep(FusedSweep):
    """Candidates from the model, decided by tables; see :class:`FusedSweep`."""

    def __init__(self, program: RecordProgram):
        self._tables = list(program.tables.values())
        super().__init__(program)

    def _placed(self, release: Release) -> None:
        """Return nothing: the kernel takes all sums in order."""

    def _release_graphs(self) -> list[TensorVariable]:
        program = self.program
        return [
            pm.logp(r.rv, program.state[r.rv]) for r in program.of_kind("local") if r.rv not in program.tables
        ]

    def _position(self, table: ChannelTable) -> list[TensorVariable]:
        """Address and row of a table."""
        return [self._state.entry(table.address[0], ()), self._state.entry(table.index, (ROW,))]

    def _queries(self, rows: RowGraph) -> list[TensorVariable]:
        return [rows.entry(table.release.query, (ROW,)) for table in self._tables]

    def _compile(self, statistics: list, weights: list, columns: list, each: list) -> None:
        rows = self._state
        positions = [entry for table in self._tables for entry in self._position(table)]
        now = [*self._of(rows, statistics, weights), *self._queries(rows), *positions, *self._more()]
        new = [*columns, *self._of_draws(statistics, weights), *self._queries(self._draws)]
        inputs = [*rows.constant_inputs, *rows.column_inputs]
        of_record, _ = scalar_function([*inputs, *self._x], now)
        of_candidate, _ = scalar_function([self._given(), *inputs], new)
        self._compile_hoist()
        d, p, m, n_tables = len(statistics), len(columns), self.n_columns, len(self._tables)
        weight, n_places, n_more = p + d, 2 * n_tables, len(self._more())
        asked, places, more, asked_of_candidate = d + 1, d + 1 + n_tables, d + 1 + 3 * n_tables, p + d + 1
        draw = self._candidate(of_candidate)

        @part_of_kernel
        def current(c, cov, i, y):  # type: ignore[no-untyped-def]
            r = of_record(*c, *column(cov, i, m), *y)
            return (
                part(r, 0, d),
                r[d],
                part(r, asked, n_tables),
                part(r, places, n_places),
                part(r, more, n_more),
            )

        @part_of_kernel
        def propose(rng, c, cov, i, proposing):  # type: ignore[no-untyped-def]
            r, preference = draw(rng, c, cov, i, proposing)
            return part(r, 0, p), part(r, p, d), r[weight], part(r, asked_of_candidate, n_tables), preference

        self.rows = Kernel(
            tabled_sweep,
            ROWS,
            {
                "N_CONSTANTS": self.n_constants,
                "WIDTH": p,
                "N_STATISTICS": d,
                "N_TABLES": n_tables,
                "TEMPER_AT": self.program.temper_at,
                "current": current,
                "propose": propose,
                "change": self.program.central.part(),
            },
        )


class CellSweep(FromNumber, TabledSweep):
    """Candidates for the one record variable from the cells of a table with slots.

    Parameters
    ----------
    program : RecordProgram
    table : ChannelTable
        Says where candidates are likely; need not stand for the density of its release.
    """

    def __init__(self, program: RecordProgram, table: ChannelTable):
        self._proposing = table
        super().__init__(program)

    def _more(self) -> list[TensorVariable]:
        (record,) = self.program.block.records
        return [*self._position(self._proposing), self._state.entry(record, (ROW,))]

    def _candidate(self, f: Any) -> Function:
        m = self.n_columns

        @part_of_kernel
        def candidate(rng, c, cov, i, proposing):  # type: ignore[no-untyped-def]
            at, row, own = proposing
            drawn = draw_value(rng, int(at), int(row))
            return f(drawn, *c, *column(cov, i, m)), log_weight(int(at), int(row), own, drawn)

        return candidate


class ReversedSweep(FusedSweep):
    """Candidates y = z - noise for the one record variable, z its own release with additive noise."""

    def __init__(self, program: RecordProgram, release: Release):
        (record,) = program.block.records
        value = program.state[release.rv]
        self._law = with_query(release, {}, value)
        # what the noise alone says of the record, which is the density of the proposal
        self._noise = pm.logp(with_query(release, {}, record), value)
        super().__init__(program)

    def _weight_graphs(self) -> list[TensorVariable]:
        (record,) = self.program.block.records
        return [*super()._weight_graphs(), written_logp(record), -self._noise]

    def _draw_entry(self, rv: Variable, index: tuple[int, ...]) -> TensorVariable:
        key = (rv, index)
        if key not in self._drawn:
            drawn = draw_entry(self._draws, self._law, index, self._rng, 1, defined=True)
            self._drawn[key] = pt.cast(drawn, rv.dtype)  # type: ignore[attr-defined]
        return self._drawn[key]
