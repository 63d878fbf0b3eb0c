"""Record sweeps under a released histogram: one record changes two counts, however many bins there are.

The counts are sums over the records of indicators, of which all but two stay as they are when a record moves.
The sweeps here keep each record's bin, and ask for the change of those two terms only. Candidates come from
the model, or from the bins: the record's own, a neighbouring one, or any, with a value anywhere in it. The
latter keep moving when the release pins the counts down.
"""

from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.tuples import Numbers, column, entries, part, row, set_row
from pymc_dp.lowering.functions import bins
from pymc_dp.lowering.functions.bits import standard_exponential
from pymc_dp.lowering.rows.rows import ROW, NotScalar, scalar_function
from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import columns_of
from pymc_dp.query.supports import clamped_record
from pymc_dp.step_methods.block.cells import Histogram
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.block.state import ROWS, RecordState
from pymc_dp.step_methods.sweeps.fused import FromNumber, FusedSweep
from pymc_dp.step_methods.sweeps.parts import contributions, count, least

type Array = np.ndarray
type Generator = np.random.Generator

# What a model gives the kernel: numbers that no record changes, entries of a record, statistics beside the
# histograms and where they stand, histograms and where their counts begin, where the power of the releases'
# density stands in the data.
N_CONSTANTS = WIDTH = N_STATISTICS = N_HISTOGRAMS = TEMPER_AT = 0
POSITIONS = STARTS = np.zeros(0, np.int64)


def current(c: Numbers, cov: Array, i: int, y: Numbers) -> tuple[Numbers, float, Numbers, float]:
    """Statistics of a record, its log weight, numbers of its histograms, the record where bins propose."""
    raise NotImplementedError


def propose(
    rng: Generator, c: Numbers, cov: Array, i: int, own: float
) -> tuple[Numbers, Numbers, float, Numbers, float]:
    """Return a candidate, the same of it, and how much likelier the way back to the record is, in logs."""
    raise NotImplementedError


def change(theta: Array, data: Array, value: Array, params: Array, old: Array, new: Array) -> float:
    """Change of the log density of the other releases."""
    raise NotImplementedError


def bin_in(h: int, number: float) -> int:
    """Bin of a number in a histogram."""
    raise NotImplementedError


def moved(total: float, value: Array, params: Array, old: Array, left: Array, entered: Array) -> float:
    """Add the change of the log density of histograms, where a record leaves one bin and enters another."""
    raise NotImplementedError


def histogram_sweep(n_sweeps: int, rng: Generator, state: RecordState) -> None:
    """Sweep over records that keeps the bins of each."""
    x, cov, prior_only = state.records, state.covariates, state.prior_only
    theta, data, value, params = state.theta, state.data, state.observed, state.noise
    n, c = x.shape[0], entries(state.constants, N_CONSTANTS)
    lowest, n_accepted = 0.0, 0.0
    old, new = state.offset.copy(), state.offset.copy()
    bins = np.empty((N_HISTOGRAMS, n), np.int32)
    left, entered = np.empty(N_HISTOGRAMS, np.int64), np.empty(N_HISTOGRAMS, np.int64)
    for i in range(n):
        s, _, seen, _ = current(c, cov, i, row(x, i, WIDTH))
        for j in range(N_STATISTICS):
            old[POSITIONS[j]] += s[j]
        for h in range(N_HISTOGRAMS):
            bins[h, i] = bin_in(h, seen[h])
            old[STARTS[h] + bins[h, i]] += 1.0
    for _ in range(n_sweeps):
        for i in range(n):
            s, weight_before, _, own = current(c, cov, i, row(x, i, WIDTH))
            y, t, weight, seen, preference = propose(rng, c, cov, i, own)
            for j in range(N_STATISTICS):
                new[POSITIONS[j]] = old[POSITIONS[j]] + (t[j] - s[j])
            for h in range(N_HISTOGRAMS):
                left[h] = STARTS[h] + bins[h, i]
                entered[h] = STARTS[h] + bin_in(h, seen[h])
            total = 0.0
            if not prior_only:
                total = change(theta, data, value, params, old, new)
                total = moved(total, value, params, old, left, entered)
                total *= data[TEMPER_AT]
                if weight_before != -np.inf:
                    total += weight - weight_before
                total += preference
            elif weight == -np.inf:
                total = -np.inf
            wait = standard_exponential(rng)  # drawn in any case: which ratios are above 1 cannot be foreseen
            lowest = least(lowest, total)
            if total >= -wait:
                n_accepted += 1.0
                set_row(x, i, y)
                for j in range(N_STATISTICS):
                    old[POSITIONS[j]] = new[POSITIONS[j]]
                for h in range(N_HISTOGRAMS):
                    if left[h] != entered[h]:
                        old[left[h]] -= 1.0
                        old[entered[h]] += 1.0
                        bins[h, i] = entered[h] - STARTS[h]
    count(state, n_accepted, lowest)
    contributions(old, state)


class HistogramSweep(FusedSweep):
    """Candidates from the model, decided by the two counts that change; see :class:`FusedSweep`."""

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

    def _compile(self, statistics: list, weights: list, columns: list, each: list) -> None:
        histograms = list(self.program.histograms.values())
        now, new = ([g.entry(h.number, (ROW,)) for h in histograms] for g in (self._state, self._draws))
        outputs = [
            [*self._of(self._state, statistics, weights), *now, *self._more()],
            [*columns, *self._of_draws(statistics, weights), *new],
        ]
        inputs = [*self._state.constant_inputs, *self._state.column_inputs]
        of_record, _ = scalar_function([*inputs, *self._x], outputs[0])
        of_candidate, _ = scalar_function([self._given(), *inputs], outputs[1])
        self._compile_hoist()
        d, p, m, n_histograms = len(statistics), len(columns), self.n_columns, len(histograms)
        after, own = d + 1, d + 1 + n_histograms
        last = own if self._more() else d  # nobody reads it where bins propose nothing
        draw, start, weight = self._candidate(of_candidate), p + d + 1, p + d

        @part_of_kernel
        def current(c, cov, i, y):  # type: ignore[no-untyped-def]
            r = of_record(*c, *column(cov, i, m), *y)
            return part(r, 0, d), r[d], part(r, after, n_histograms), r[last]

        @part_of_kernel
        def propose(rng, c, cov, i, own):  # type: ignore[no-untyped-def]
            r, preference = draw(rng, c, cov, i, own)
            return part(r, 0, p), part(r, p, d), r[weight], part(r, start, n_histograms), preference

        self.rows = Kernel(
            histogram_sweep,
            ROWS,
            {
                "N_CONSTANTS": self.n_constants,
                "WIDTH": p,
                "N_STATISTICS": d,
                "N_HISTOGRAMS": n_histograms,
                "TEMPER_AT": self.program.temper_at,
                "POSITIONS": np.array(self._positions, np.int64),
                "STARTS": np.array([self._starts[h.release.rv][1] for h in histograms], np.int64),
                "current": current,
                "propose": propose,
                "change": self.program.central.part(leaving_out=self.program.histograms),
                "bin_in": bins_of(histograms),
                "moved": self.moved(histograms),
            },
        )

    def moved(self, histograms: list[Histogram]) -> Function:
        """Return the meaning of :func:`moved`."""
        total = part_of_kernel(lambda total, value, params, old, left, entered: total)
        for h, histogram in enumerate(histograms):
            rv = histogram.release.rv
            f = self.program.central.functions[f"change{self._starts[rv][0]}"]
            total = _with_histogram(total, f, h, len(parameters_of(rv)) - 1)
        return total


def bins_of(histograms: list[Histogram]) -> Function:
    """Return the meaning of :func:`bin_in`."""
    if not histograms:
        return part_of_kernel(lambda h, number: 0)
    edges, bin_of = tuple(histogram.edges for histogram in histograms), bins.bin_of
    return part_of_kernel(lambda h, number: bin_of(edges[h], number))


def _with_histogram(before: Function, f: Any, h: int, n_params: int) -> Function:
    @part_of_kernel
    def moved(total, value, params, old, left, entered):  # type: ignore[no-untyped-def]
        total = before(total, value, params, old, left, entered)
        a, b = left[h], entered[h]
        if a != b:
            total += f(value[a], old[a], old[a] - 1.0, *row(params, a, n_params))[0]
            total += f(value[b], old[b], old[b] + 1.0, *row(params, b, n_params))[0]
        return total

    return moved


class BinSweep(FromNumber, HistogramSweep):
    """Candidates for the one record variable from the bins of a histogram."""

    def __init__(self, program: RecordProgram):
        (record, *others) = program.block.records
        (first, *_) = program.histograms.values()
        seen = clamped_record(first.number, program.block.records)
        if others or record.ndim != 1 or record.dtype[0] != "f" or seen is None:
            raise NotScalar("a histogram of something else than the records")
        super().__init__(program)

    def _more(self) -> list[TensorVariable]:
        (record,) = self.program.block.records
        return [self._state.entry(record, (ROW,))]

    def _candidate(self, f: Any) -> Function:
        m, edges = self.n_columns, next(iter(self.program.histograms.values())).edges
        draw_bin, log_preference = bins.draw_bin, bins.log_preference

        @part_of_kernel
        def candidate(rng, c, cov, i, own):  # type: ignore[no-untyped-def]
            drawn = draw_bin(rng, edges, own)
            return f(drawn, *c, *column(cov, i, m)), log_preference(edges, own, drawn)

        return candidate
