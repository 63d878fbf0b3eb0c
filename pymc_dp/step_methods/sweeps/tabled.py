"""Record sweeps where a table stands for the density of a local release.

A table of a million rows does not fit the cache, and waiting for main memory would cost more than all the
rest of a proposal. Records are therefore taken in groups: candidates of a group are drawn and their entries
of the table asked for; when the group is decided, they have arrived.

Candidates come from the model (:class:`TabledSweep`), or from the release itself (:class:`CellSweep`): a
cell with about its likelihood, and a value anywhere in it. That is the reversed channel of a release that
says something about cells only. The density of the candidate counts slots of the table, so that the move is
exact however coarse they are.
"""

from collections.abc import Sequence

import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering import tables
from pymc_dp.lowering.native import ROWS, SourceFunction
from pymc_dp.lowering.rowdraws import draw_entry
from pymc_dp.lowering.rows import ROW, RowGraph
from pymc_dp.lowering.written import written_logp
from pymc_dp.readings import with_query
from pymc_dp.records import Release
from pymc_dp.step_methods.block.cells import ChannelTable
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.sweeps.fused import FusedSweep, scalar_function
from pymc_dp.step_methods.sweeps.source import COUNTS, DECISION, HEADER, WAIT, indented

# Records of a group.
GROUP = 16
_FUNCTIONS = {
    name: getattr(tables, name) for name in ("cell_of", "fetch", "log_density", "draw_value", "log_weight")
}


class TabledSweep(FusedSweep):
    """Candidates from the model, decided by tables; see :class:`FusedSweep`."""

    # what the source says of a candidate: how it is drawn, and the weight that its proposal adds
    _draw_lines: Sequence[str] = ()
    _candidate = "rng"
    _extra = "0.0"

    def __init__(self, program: RecordProgram):
        self._tables = list(program.tables.values())
        super().__init__(program)

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

    def _more(self) -> list[TensorVariable]:
        """Further outputs of the current state."""
        return []

    def _given(self) -> Variable:
        """Return what a candidate is computed from, beside parameters."""
        return self._rng

    def _compile(self, statistics: list, weights: list, columns: list, each: list) -> None:
        rows = self._state
        positions = [entry for table in self._tables for entry in self._position(table)]
        now = [*self._of(rows, statistics, weights), *self._queries(rows), *positions, *self._more()]
        new = [*columns, *self._of_draws(statistics, weights), *self._queries(self._draws)]
        inputs = [*rows.constant_inputs, *rows.column_inputs]
        current, key_current = scalar_function([*inputs, *self._x], now)
        propose, key_propose = scalar_function([self._given(), *inputs], new)
        self._compile_hoist()
        functions, keys = self.program.central.functions, self.program.central.keys
        source = self._source(len(statistics), len(columns))
        self.rows = SourceFunction(
            "rows_sweep",
            source,
            {**functions, **_FUNCTIONS, "current": current, "propose": propose},
            ROWS,
            [*keys, key_current, key_propose],
        )

    def _source(self, d: int, p: int) -> str:
        """Source of the sweep over records with ``d`` statistics and ``p`` numbers."""
        n_tables = len(self._tables)
        hoisted = [
            *(f"c{k}" for k in range(self.n_constants)),
            *(f"cov[{k}, i]" for k in range(self.n_columns)),
        ]
        now = f"current({', '.join([*hoisted, *(f'x[i, {k}]' for k in range(p))])})"
        candidate = f"propose({', '.join([self._candidate, *hoisted])})"
        # columns of the work array of a group: what is kept of a candidate until it is decided
        kept = [
            *(f"r[{k}]" for k in range(p)),
            *(f"r[{p + j}] - s[{j}]" for j in range(d)),
            f"(r[{p + d}] - s[{d}] if s[{d}] != -np.inf else 0.0) + {self._extra}",
            f"r[{p + d}]",
        ]
        lines = [
            *HEADER,
            f"    old, new = np.zeros({max(d, 1)}), np.zeros({max(d, 1)})",
            f"    kept = np.empty(({GROUP}, {len(kept)}))",
            f"    where = np.empty(({GROUP}, {max(4 * n_tables, 1)}), np.int64)",
            f"    for j in range({d}):",
            "        old[j] = offset[j]",
            *(f"    c{k} = c[{k}]" for k in range(self.n_constants)),
        ]
        if d:
            lines += ["    for i in range(n):", f"        s = {now}"]
            lines += [f"        old[{j}] += s[{j}]" for j in range(d)]
        lines += [
            "    for _ in range(n_sweeps):",
            f"        for start in range(0, n, {GROUP}):",
            f"            m = min({GROUP}, n - start)",
            "            for k in range(m):",
            "                i = start + k",
            f"                s = {now}",
            *(f"                {line}" for line in self._draw_lines),
            f"                r = {candidate}",
            *(f"                kept[k, {j}] = {what}" for j, what in enumerate(kept)),
        ]
        for t in range(n_tables):
            header, row = (f"int(s[{d + 1 + n_tables + 2 * t + k}])" for k in range(2))
            lines += [
                f"                at, row = {header}, {row}",
                f"                a, b = cell_of(at, s[{d + 1 + t}]), cell_of(at, r[{p + d + 1 + t}])",
                "                fetch(at, row, a)",
                "                fetch(at, row, b)",
                *(
                    f"                where[k, {4 * t + j}] = {v}"
                    for j, v in enumerate(("at", "row", "a", "b"))
                ),
            ]
        lines += [
            "            for k in range(m):",
            "                i = start + k",
            "                total = 0.0",
            *(f"                new[{j}] = old[{j}] + kept[k, {p + j}]" for j in range(d)),
            "                if prior_only == 0:",
        ]
        lines += indented(self.program.central.loops(), 20)
        lines += [f"                    total += kept[k, {p + d}]"]
        for t in range(n_tables):
            at, row, a, b = (f"where[k, {4 * t + j}]" for j in range(4))
            lines += [
                f"                    before = log_density({at}, {row}, {a})",
                "                    if before != -np.inf:",
                f"                        total += log_density({at}, {row}, {b}) - before",
            ]
        lines += [
            f"                elif kept[k, {p + d + 1}] == -np.inf:",
            "                    total = -np.inf",
            *indented([WAIT, *DECISION], 16),
            *(f"                    x[i, {j}] = kept[k, {j}]" for j in range(p)),
            *(f"                    old[{j}] = new[{j}]" for j in range(d)),
            *COUNTS,
            *(f"    totals[{j}] = old[{j}] - offset[{j}]" for j in range(d)),
        ]
        return "\n".join(lines) + "\n"


class CellSweep(TabledSweep):
    """Candidates for the one record variable from the cells of a table with slots.

    Parameters
    ----------
    program : RecordProgram
    table : ChannelTable
        Says where candidates are likely; need not stand for the density of its release.
    """

    _candidate = "drawn"

    def __init__(self, program: RecordProgram, table: ChannelTable):
        self._proposing = table
        self._number = ps.float64("drawn")
        super().__init__(program)

    def _weight_graphs(self) -> list[TensorVariable]:
        (record,) = self.program.block.records
        return [*super()._weight_graphs(), pm.logp(record, record)]

    def _draw_entry(self, rv: Variable, index: tuple[int, ...]) -> TensorVariable:
        return pt.cast(pt.tensor_from_scalar(self._number), rv.dtype)  # type: ignore[attr-defined]

    def _given(self) -> Variable:
        return self._number

    def _more(self) -> list[TensorVariable]:
        (record,) = self.program.block.records
        return [*self._position(self._proposing), self._state.entry(record, (ROW,))]

    def _source(self, d: int, p: int) -> str:
        start = d + 1 + 3 * len(self._tables)
        self._draw_lines = [
            f"at, row = int(s[{start}]), int(s[{start + 1}])",
            "drawn = draw_value(rng, at, row)",
        ]
        self._extra = f"log_weight(at, row, s[{start + 2}], drawn)"
        return super()._source(d, p)


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
