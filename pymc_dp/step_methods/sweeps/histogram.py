"""Record sweeps under a released histogram: one record changes two counts, however many bins there are.

The counts are sums over the records of indicators, of which all but two stay as they are when a record moves.
The sweeps here keep each record's bin, and ask for the change of those two terms only. Candidates come from
the model, or from the bins: the record's own, a neighbouring one, or any, with a value anywhere in it. The
latter keep moving when the release pins the counts down.
"""

from hashlib import sha256

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering import bins
from pymc_dp.lowering.native import ROWS, SourceFunction
from pymc_dp.lowering.rows import ROW, NotScalar
from pymc_dp.records import parameters_of
from pymc_dp.rowlocal import columns_of
from pymc_dp.step_methods.block.cells import Histogram
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.sweeps.fused import FusedSweep, scalar_function
from pymc_dp.step_methods.sweeps.source import COUNTS, DECISION, HEADER, WAIT, indented
from pymc_dp.supports import clamped_record


class HistogramSweep(FusedSweep):
    """Candidates from the model, decided by the two counts that change; see :class:`FusedSweep`."""

    _candidate = "rng"
    _extra = "0.0"

    def _statistics(self) -> list[TensorVariable]:
        """Return the contributions to all other central releases, and note where they stand."""
        program, start = self.program, 0
        found: list[TensorVariable] = []
        self._positions: list[int] = []
        self._starts: dict[Variable, tuple[int, int]] = {}
        for k, release in enumerate(program.of_kind("central")):
            size = int(np.prod(program.shape_of_terms(release)))
            if release.rv in program.histograms:
                self._starts[release.rv] = (k, start)
            else:
                found += columns_of(program.rows_of(release), size)
                self._positions += range(start, start + size)
            start += size
        return found

    def _draw_lines(self) -> list[str]:
        return []

    def _given(self) -> Variable:
        return self._rng

    def _more(self) -> list[TensorVariable]:
        return []

    def _compile(self, statistics: list, weights: list, columns: list, each: list) -> None:
        histograms = list(self.program.histograms.values())
        now, new = ([g.entry(h.number, (ROW,)) for h in histograms] for g in (self._state, self._draws))
        outputs = [
            [*self._of(self._state, statistics, weights), *now, *self._more()],
            [*columns, *self._of_draws(statistics, weights), *new],
        ]
        inputs = [*self._state.constant_inputs, *self._state.column_inputs]
        current, key_current = scalar_function([*inputs, *self._x], outputs[0])
        propose, key_propose = scalar_function([self._given(), *inputs], outputs[1])
        self._compile_hoist()
        arrays = {f"edges{h}": histogram.edges for h, histogram in enumerate(histograms)}
        digest = sha256(b"".join(a.tobytes() for a in arrays.values())).hexdigest()
        functions, keys = self.program.central.functions, self.program.central.keys
        names = {name: getattr(bins, name) for name in ("bin_of", "draw_bin", "log_preference")}
        self.rows = SourceFunction(
            "rows_sweep",
            self._source(len(statistics), len(columns), histograms),
            {**functions, **arrays, **names, "current": current, "propose": propose},
            ROWS,
            [*keys, key_current, key_propose, digest],
        )

    def _source(self, d: int, p: int, histograms: list[Histogram]) -> str:
        """Source of the sweep over records with ``d`` other statistics and ``p`` numbers."""
        hoisted = [f"c{k}" for k in range(self.n_constants)] + [f"cov[{k}, i]" for k in range(self.n_columns)]
        now = f"current({', '.join([*hoisted, *(f'x[i, {k}]' for k in range(p))])})"
        candidate = f"propose({', '.join([self._candidate, *hoisted])})"
        every, dense = range(len(histograms)), list(enumerate(self._positions))
        lines = [
            *HEADER,
            "    old, new = offset.copy(), offset.copy()",
            f"    bins = np.empty(({len(histograms)}, n), np.int32)",
            *(f"    c{k} = c[{k}]" for k in range(self.n_constants)),
            "    for i in range(n):",
            f"        s = {now}",
            *(f"        old[{at}] += s[{j}]" for j, at in dense),
        ]
        starts = [self._starts[h.release.rv] for h in histograms]
        for h in every:
            lines += [
                f"        bins[{h}, i] = bin_of(edges{h}, s[{d + 1 + h}])",
                f"        old[{starts[h][1]} + bins[{h}, i]] += 1.0",
            ]
        lines += [
            "    for _ in range(n_sweeps):",
            "        for i in range(n):",
            f"            s = {now}",
            *(f"            {line}" for line in self._draw_lines()),
            f"            r = {candidate}",
            *(f"            new[{at}] = old[{at}] + (r[{p + j}] - s[{j}])" for j, at in dense),
            *(f"            a{h} = {starts[h][1]} + bins[{h}, i]" for h in every),
            *(f"            b{h} = {starts[h][1]} + bin_of(edges{h}, r[{p + d + 1 + h}])" for h in every),
            "            total = 0.0",
            "            if prior_only == 0:",
        ]
        lines += indented(self.program.central.loops(leaving_out=self.program.histograms), 16)
        for h, histogram in enumerate(histograms):
            k, rv = starts[h][0], histogram.release.rv
            lines += [f"                if a{h} != b{h}:"]
            for j, by in ((f"a{h}", "- 1.0"), (f"b{h}", "+ 1.0")):
                args = "".join(f", params[{j}, {m}]" for m in range(len(parameters_of(rv)) - 1))
                term = f"change{k}(value[{j}], old[{j}], old[{j}] {by}{args})[0]"
                lines += [f"                    total += {term}"]
        lines += [
            f"                if s[{d}] != -np.inf:",
            f"                    total += r[{p + d}] - s[{d}]",
            f"                total += {self._extra}",
            f"            elif r[{p + d}] == -np.inf:",
            "                total = -np.inf",
            *indented([WAIT, *DECISION], 12),
            *(f"                x[i, {j}] = r[{j}]" for j in range(p)),
            *(f"                old[{at}] = new[{at}]" for _, at in dense),
        ]
        for h in every:
            lines += [
                f"                if a{h} != b{h}:",
                f"                    old[a{h}] -= 1.0",
                f"                    old[b{h}] += 1.0",
                f"                    bins[{h}, i] = b{h} - {starts[h][1]}",
            ]
        lines += [
            *COUNTS,
            "    for j in range(old.size):",
            "        totals[j] = old[j] - offset[j]",
        ]
        return "\n".join(lines) + "\n"


class BinSweep(HistogramSweep):
    """Candidates for the one record variable from the bins of a histogram."""

    _candidate = "drawn"

    def __init__(self, program: RecordProgram):
        (record, *others) = program.block.records
        (first, *_) = program.histograms.values()
        seen = clamped_record(first.number, program.block.records)
        if others or record.ndim != 1 or record.dtype[0] != "f" or seen is None:
            raise NotScalar("a histogram of something else than the records")
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
        return [self._state.entry(record, (ROW,))]

    def _draw_lines(self) -> list[str]:
        return [f"drawn = draw_bin(rng, edges0, {self._own})"]

    def _source(self, d: int, p: int, histograms: list[Histogram]) -> str:
        self._own = f"s[{d + 1 + len(histograms)}]"
        self._extra = f"log_preference(edges0, {self._own}, drawn)"
        return super()._source(d, p, histograms)
