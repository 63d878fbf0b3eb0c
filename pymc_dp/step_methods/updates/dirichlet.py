"""Exact and joint draws of probability tables beside the categorical records that they rule.

One cycle is (1) a sweep over the records; (2) every row of every table from its Dirichlet law given the
records; (3) every row *together with* its records, whose places in the cumulative distribution are kept.
The third is what moves the tables when privacy is strong: given the records a row can only move as far as n
records allow, though the releases would allow more. Rows are drawn anew from their prior, or moved by a
random walk of their logarithms: an autoregression of gamma variables, with the same law, mixed no better.
"""

from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import constant_fold
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.native import COORDINATES, VALUES, NativeFunction, addresses_of
from pymc_dp.lowering.addresses.tuples import row, set_row, whole
from pymc_dp.lowering.functions.bits import random, standard_normal
from pymc_dp.lowering.rows.rows import NotScalar
from pymc_dp.query.readings import substitute
from pymc_dp.query.records import parameters_of
from pymc_dp.step_methods.block.state import ROWS, RecordState
from pymc_dp.step_methods.sweeps.discrete import DiscreteSweep
from pymc_dp.step_methods.sweeps.discrete_kernels import Look, place, strides_of
from pymc_dp.step_methods.sweeps.parts import contributions
from pymc_dp.step_methods.sweeps.probability_cells import table_shape

# Joint moves draw a row anew with this probability; otherwise they move the logarithms of its probabilities
# by normal steps, of _SCALE over the root of their number, or smaller by a factor of up to _SMALLEST.
_FRESH = 0.5
_SCALE = 2.4
_SMALLEST = 0.2
# Smallest concentration for which a probability is a number as good as always: it is below _TINY with
# probability 1e-30. Smaller ones are drawn by their logarithms, without joint moves.
_SMALLEST_CONCENTRATION = 0.1
_TINY = 1e-300

# Where counting begins: a 0 that is written out has a type of its own, and numba compiles parts for it too.
ZERO: Any = np.int64(0)

# A categorical variable, and the cell numbers (..., categories) of the row it is drawn from.
Picked = tuple[TensorVariable, TensorVariable]
type Array = np.ndarray
type Generator = np.random.Generator
type Integers = tuple[int, ...]

# What a model gives the kernel: variables of a record, statistics, and their parts; where each row of the
# tables ends; statistic and amount of each entry of the statistics' tables.
WIDTH = N_STATISTICS = N_PARTS = 0
ENDS = STATISTIC = np.zeros(0, np.int64)
AMOUNT = np.zeros(0)


def rows_of(values: Integers) -> Integers:
    """Where the row begins that each variable of a record with some values is drawn from."""
    raise NotImplementedError


def move(
    rng: Generator, values: Integers, rows: Integers, first: int, p: Array, below: Array, q_below: Array
) -> Integers:
    """Return what a record becomes that keeps its places in rows, of which that from ``first`` on changes.

    ``p`` are the probabilities, ``below`` sums of those before each in its row; ``q_below`` new ones.
    """
    raise NotImplementedError


def find(values: Integers, where: Array) -> None:
    """Find where a record with some values stands in each part of the statistics' tables."""
    raise NotImplementedError


def density(value: Array, params: Array, old: Array, j: int, new: float) -> float:
    """Change of the log density of a release when its statistic j becomes new."""
    raise NotImplementedError


@part_of_kernel
def draw_row(rng: Generator, alpha: Array, q: Array, first: int, end: int) -> float:
    """Draw a row from its prior, up to its sum, which is returned."""
    total = 0.0
    for j in range(first, end):
        q[j] = max(rng.standard_gamma(alpha[j]), _TINY)
        total += q[j]
    return total


@part_of_kernel
def walk_row(rng: Generator, alpha: Array, p: Array, q: Array, first: int, end: int) -> tuple[float, float]:
    """Move the logarithms of a row; return the change of its log density, and its sum.

    In the logarithms, the law is the probabilities to the power of their concentrations.
    """
    prior, total = 0.0, 0.0
    scale = _SCALE * _SMALLEST ** random(rng)
    scale /= np.sqrt(max(end - first - 1, 1))
    for j in range(first, end):
        step = scale / np.sqrt(max(alpha[j], 1.0)) * standard_normal(rng)
        q[j] = max(p[j] * np.exp(step), _TINY)
        prior += alpha[j] * step
        total += q[j]
    for j in range(first, end):
        prior -= alpha[j] * np.log(total)
    return prior, total


@part_of_kernel
def divide(p: Array, below: Array, first: int, end: int, total: float) -> None:
    """Make a row sum to 1, and sum up the probabilities before each."""
    so_far = 0.0
    for j in range(first, end):
        p[j] /= total
        below[j] = so_far
        so_far += p[j]


@part_of_kernel
def list_records(rows: Array, n: int, width: int, head: Array, link: Array) -> None:
    """List the records behind each row: ``head`` is one of each, ``link`` the one after it, -1 at the end."""
    for j in range(head.size):
        head[j] = -1
    for i in range(n):
        for k in range(width):
            j = rows[i, k]
            if head[j] < 0 or head[j] // width != i:
                link[i * width + k] = head[j]
                head[j] = i * width + k


@part_of_kernel
def touch(j: int, now: int, stamp: Array, touched: Array, n_touched: int) -> int:
    """Note that a statistic changes; return how many do."""
    if stamp[j] != now:
        stamp[j] = now
        touched[n_touched] = j
        n_touched += 1
    return n_touched


@part_of_kernel
def accepts(rng: Generator, log_ratio: float) -> bool:
    """Metropolis-Hastings decision."""
    return log_ratio >= 0.0 or random(rng) < np.exp(log_ratio)


def update_tables(n_sweeps: int, rng: Generator, state: RecordState) -> None:
    """Draw every row given the records, then every row with its records."""
    x, totals, tally = state.records, state.totals, state.joint
    p, alpha, observed, noise = state.constants, state.concentrations, state.observed, state.noise
    n, size = x.shape[0], p.shape[0]
    a, b = np.empty((n, WIDTH), np.int64), np.empty((n, WIDTH), np.int64)
    rows, counts = np.empty((n, WIDTH), np.int64), np.zeros(size)
    below = np.empty(size)
    for i in range(n):
        values = whole(row(x, i, WIDTH))
        set_row(a, i, values)
        set_row(rows, i, rows_of(values))
        for k in range(WIDTH):
            counts[rows[i, k] + a[i, k]] += 1.0
    first = ZERO
    for r in range(ENDS.shape[0]):
        total = 0.0
        for j in range(first, ENDS[r]):
            p[j] = max(rng.standard_gamma(alpha[j] + counts[j]), _TINY)
            total += p[j]
        divide(p, below, first, ENDS[r], total)
        first = ENDS[r]
    left, entered = np.empty(N_PARTS, np.int64), np.empty(N_PARTS, np.int64)
    old, new = np.empty(N_STATISTICS), np.empty(N_STATISTICS)
    touched, stamp, now = np.empty(N_STATISTICS, np.int64), np.empty(N_STATISTICS, np.int64), 0
    for j in range(N_STATISTICS):
        old[j] = state.offset[j] + totals[j]
        new[j], stamp[j] = old[j], -1
    q, q_below, changed = p.copy(), below.copy(), np.empty(n, np.int64)
    head, link = np.empty(size, np.int64), np.empty(n * WIDTH, np.int64)
    first, stale = ZERO, True
    for r in range(ENDS.shape[0]):
        if stale:
            list_records(rows, n, WIDTH, head, link)
            stale = False
        prior = 0.0
        if random(rng) < _FRESH:
            total = draw_row(rng, alpha, q, first, ENDS[r])
        else:
            prior, total = walk_row(rng, alpha, p, q, first, ENDS[r])
        divide(q, q_below, first, ENDS[r], total)
        now += 1
        n_touched, n_changed = ZERO, 0
        node = head[first]
        while node >= 0:
            i, node = node // WIDTH, link[node]
            values = row(a, i, WIDTH)
            moved = move(rng, values, row(rows, i, WIDTH), first, p, below, q_below)
            if moved != values:
                changed[n_changed] = i
                n_changed += 1
                set_row(b, i, moved)
                find(values, left)
                find(moved, entered)
                for e in range(N_PARTS):
                    if left[e] != entered[e]:
                        j = STATISTIC[left[e]]
                        new[j] -= AMOUNT[left[e]]
                        n_touched = touch(j, now, stamp, touched, n_touched)
                        j = STATISTIC[entered[e]]
                        new[j] += AMOUNT[entered[e]]
                        n_touched = touch(j, now, stamp, touched, n_touched)
        total = prior
        for e in range(n_touched):
            j = touched[e]
            total += density(observed, noise, old, j, new[j])
        tally[1] += 1.0
        tally[0] += min(1.0, np.exp(total)) if total == total else 0.0
        if accepts(rng, total):
            for j in range(first, ENDS[r]):
                p[j], below[j] = q[j], q_below[j]
            for e in range(n_changed):
                i = changed[e]
                values = row(b, i, WIDTH)
                to = rows_of(values)
                set_row(a, i, values)
                if to != row(rows, i, WIDTH):
                    set_row(rows, i, to)
                    stale = True
            for e in range(n_touched):
                old[touched[e]] = new[touched[e]]
        else:
            for j in range(first, ENDS[r]):
                q[j], q_below[j] = p[j], below[j]
            for e in range(n_touched):
                new[touched[e]] = old[touched[e]]
        first = ENDS[r]
    for i in range(n):
        set_row(x, i, row(a, i, WIDTH))
    contributions(old, state)


class DirichletUpdate:
    """Native functions for the tables of one block of records.

    Parameters
    ----------
    sweep : DiscreteSweep
    tables : list of TensorVariable
        The Dirichlet variables.
    picked : dict
        From a table to its children, each with the cell numbers of the row that it is drawn from.

    Raises
    ------
    NotScalar
        If some record is not drawn from a row of one of the tables.
    """

    def __init__(
        self, sweep: DiscreteSweep, tables: list[TensorVariable], picked: dict[TensorVariable, list[Picked]]
    ):
        self.sweep, program = sweep, sweep.program
        if {child for rv in tables for child, _ in picked[rv]} != set(program.block.records):
            raise NotScalar("some records are not ruled by these tables")
        if sweep.n_constants != sum(sweep.extent(rv) for rv in tables):
            raise NotScalar("a table of probabilities is no Dirichlet variable")
        self.size = sweep.n_constants
        shapes = {rv: table_shape(program.model, rv) for rv in tables}
        order = sorted(tables, key=lambda rv: sweep.tables[rv])
        lengths = [shapes[rv][-1] for rv in order for _ in range(sweep.extent(rv) // shapes[rv][-1])]
        ends = np.cumsum(lengths)
        alphas = [
            pt.broadcast_to(substitute(parameters_of(rv), program.state)[0], shapes[rv]) for rv in order
        ]
        if not all(_known_and_large(parameters_of(rv)[0]) for rv in tables):
            raise NotScalar("a concentration is random, or so small that probabilities would underflow")
        self.start: NativeFunction = program.native(
            "concentrations", [], [pt.concatenate([a.ravel() for a in alphas])], COORDINATES
        )
        p = pt.vector("p", dtype="float64", shape=(self.size,))
        values = [program.forward(rv, self._part(p, rv).reshape(shapes[rv]), program.state) for rv in tables]
        self.finish: NativeFunction = program.native(
            "values of tables", [p], [pt.concatenate([v.ravel() for v in values])], VALUES
        )
        rows_of, move = self._tables_of_records()
        names = {**sweep.names, "ENDS": ends, "rows_of": rows_of, "move": move}
        self.update = Kernel(update_tables, ROWS, names)

    def _tables_of_records(self) -> tuple[Function, Function]:
        """Return :func:`rows_of` and :func:`move`."""
        sweep, rows, moved, start = self.sweep, None, None, 0
        first_cells = np.concatenate([cells[:, 0] for cells in sweep.cells])
        for k, (parents, size) in enumerate(zip(sweep.parents, sweep.sizes, strict=True)):
            strides = strides_of(parents, sweep.sizes, k)
            row_of = _row_of(first_cells, place(Look(strides, start)))
            moved = _moved_after(moved, k, size, row_of, _place)
            of_all = strides_of(parents, sweep.sizes, len(sweep.sizes))
            rows = _rows_after(rows, _row_of(first_cells, place(Look(of_all, start))))
            start += len(sweep.cells[k])
        assert rows is not None and moved is not None
        return rows, moved

    def _part(self, p: TensorVariable, rv: TensorVariable) -> TensorVariable:
        start = self.sweep.tables[rv]
        return p[start : start + self.sweep.extent(rv)]

    @cached_property
    def addresses(self) -> np.ndarray:
        """Addresses of the native functions, in the order that :mod:`.table_cycles` takes them."""
        sweep = self.sweep
        functions = (
            sweep.program.central.releases,
            sweep.hoist,
            sweep.rows,
            self.start,
            self.update,
            self.finish,
        )
        return addresses_of(functions)

    @property
    def sizes(self) -> np.ndarray:
        """Sizes of the work arrays, in the order that :mod:`.table_cycles` takes them."""
        program = self.sweep.program
        return np.array([program.n_statistics, program.n_parameters, self.size], dtype=np.int64)


def _row_of(first_cells: Array, place: Function) -> Function:
    """Return where the row begins that a variable is drawn from, as a function of values."""
    return part_of_kernel(lambda values: first_cells[place(values)])


def _rows_after(before: Function | None, row_of: Function) -> Function:
    if before is None:
        return part_of_kernel(lambda values: (row_of(values),))
    return part_of_kernel(lambda values: (*before(values), row_of(values)))


@part_of_kernel
def _place(rng: Generator) -> float:
    """Return the place of a record in its category."""
    return random(rng)


def _moved_after(
    before: Function | None, k: int, size: int, row_of: Function, place_in_category: Function
) -> Function:
    @part_of_kernel
    def value(rng, at, to, a, first, p, below, q_below):  # type: ignore[no-untyped-def]
        if to == at and to != first:
            return a
        u, found = below[at + a] + place_in_category(rng) * p[at + a], 0
        for j in range(to + 1, to + size):
            found += u >= q_below[j]
        return found

    if before is None:

        @part_of_kernel
        def move(rng, values, rows, first, p, below, q_below):  # type: ignore[no-untyped-def]
            return (value(rng, rows[k], row_of(()), values[k], first, p, below, q_below),)

    else:

        @part_of_kernel
        def move(rng, values, rows, first, p, below, q_below):  # type: ignore[no-untyped-def]
            moved = before(rng, values, rows, first, p, below, q_below)
            return *moved, value(rng, rows[k], row_of(moved), values[k], first, p, below, q_below)

    return move


def _known_and_large(alpha: TensorVariable) -> bool:
    """Whether a concentration is constant, with no entry so small that probabilities underflow."""
    (folded,) = constant_fold([alpha], raise_not_constant=False)
    folded = folded.data if isinstance(folded, TensorConstant) else folded
    return isinstance(folded, np.ndarray) and bool(np.min(folded) >= _SMALLEST_CONCENTRATION)
