"""The nopython loops of :mod:`.discrete`, and what they share with those that move tables, too.

The values of a record are a tuple of integers, in registers. What differs between variables or tables is
chained: a loop would have to look up what is a constant of the model.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, part_of_kernel
from pymc_dp.lowering.addresses.tuples import index, row, set_row, whole
from pymc_dp.lowering.functions.bits import random, standard_exponential
from pymc_dp.step_methods.block.state import RecordState
from pymc_dp.step_methods.sweeps.parts import contributions, count, least

type Array = np.ndarray
type Generator = np.random.Generator
type Integers = tuple[int, ...]

# What a model gives the kernel: variables of a record, statistics, parts of statistics, and where the power
# of the releases' density stands in the data.
WIDTH = N_STATISTICS = N_PARTS = TEMPER_AT = 0
# Values of each variable, where its probabilities begin among the cells, where each cell stands in c.
SIZES = STARTS = CELL = np.zeros(0, np.int64)
# What every record contributes; statistic and amount of each entry of the statistics' tables.
CONSTANT = AMOUNT = np.zeros(0)
STATISTIC = np.zeros(0, np.int64)


def draw_values(rng: Generator, cumulative: Array) -> Integers:
    """Draw the values of a record, by cumulative probabilities of each given its parents."""
    raise NotImplementedError


def find(values: Integers, where: Array) -> None:
    """Find where a record with some values stands in each part of the statistics' tables."""
    raise NotImplementedError


def density(value: Array, params: Array, old: Array, j: int, new: float) -> float:
    """Change of the log density of a release when its statistic j becomes new."""
    raise NotImplementedError


class Look(NamedTuple):
    """A look at a table: strides of the variables, where the table begins, parts and the rows of each."""

    strides: Integers
    first: int
    n_parts: int = 1
    n_rows: int = 0


def strides_of(columns: Sequence[int], sizes: Sequence[int], n: int, last: int = 1) -> Integers:
    """Return strides of the first n variables in a table of some of them, which the others do not change."""
    strides, stride = [0] * n, last
    for k in reversed(columns):
        strides[k] = stride
        stride *= sizes[k]
    return tuple(strides)


def place(look: Look) -> Function:
    """Return a part of kernels: where a record with some values stands in the first part of a table."""
    strides, first = look.strides, look.first
    if not any(strides):
        return part_of_kernel(lambda values: first)
    return part_of_kernel(lambda values: first + index(strides, values))


def drawn_in_turn(looks: Sequence[Look], sizes: Sequence[int]) -> Function:
    """Return :func:`draw_values` for the tables of each variable given those before it."""
    draw: Function | None = None
    for look, size in zip(looks, sizes, strict=True):
        draw = _drawn_after(draw, place(look), size - 1)
    assert draw is not None
    return draw


def _drawn_after(before: Function | None, row_of: Function, n: int) -> Function:
    @part_of_kernel
    def value(rng, cumulative, at):  # type: ignore[no-untyped-def]
        u, found = random(rng), 0
        for e in range(at, at + n):  # all are compared: where the search ends cannot be foreseen
            found += u >= cumulative[e]
        return found

    if before is None:
        return part_of_kernel(lambda rng, cumulative: (value(rng, cumulative, row_of(())),))

    @part_of_kernel
    def draw(rng, cumulative):  # type: ignore[no-untyped-def]
        values = before(rng, cumulative)
        return *values, value(rng, cumulative, row_of(values))

    return draw


@part_of_kernel
def _nothing(values, where):  # type: ignore[no-untyped-def]
    pass


def found_in_turn(looks: Sequence[Look]) -> Function:
    """Return :func:`find` for some tables."""
    found, start = _nothing, 0
    for look in looks:
        found = _found_after(found, look, start)
        start += look.n_parts
    return found


def _found_after(before: Function, look: Look, start: int) -> Function:
    row_of, n_parts, n_rows = place(look), look.n_parts, look.n_rows

    @part_of_kernel
    def find(values, where):  # type: ignore[no-untyped-def]
        before(values, where)
        at = row_of(values)
        for e in range(n_parts):
            where[start + e] = at + n_rows * e

    return find


@part_of_kernel
def shift(sums: Array, left: Array, entered: Array, statistic: Array, amount: Array) -> None:
    """Change sums by what a record contributes where it enters, instead of where it leaves."""
    for e in range(left.size):
        if left[e] != entered[e]:
            sums[statistic[left[e]]] -= amount[left[e]]
            sums[statistic[entered[e]]] += amount[entered[e]]


@part_of_kernel
def cumulate(c: Array, cell: Array, start: int, stop: int, size: int, cumulative: Array) -> None:
    """Fill the cumulative probabilities of a variable, one row of values after the other.

    The last of a row is exactly 1, and a value of probability zero is never drawn.
    """
    for first in range(start, stop, size):
        total = 0.0
        for at in range(first, first + size):
            total += c[cell[at]]
            cumulative[at] = total
        for at in range(first, first + size):
            cumulative[at] /= total


def table_sweep(n_sweeps: int, rng: Generator, state: RecordState) -> None:
    """Sweep over records whose values and contributions are looked up in tables."""
    x, c, value, params, prior_only = (
        state.records,
        state.constants,
        state.observed,
        state.noise,
        state.prior_only,
    )
    n, power = x.shape[0], state.data[TEMPER_AT]
    lowest, n_accepted = 0.0, 0.0
    cumulative = np.empty(CELL.size)
    for k in range(WIDTH):
        cumulate(c, CELL, STARTS[k], STARTS[k + 1], SIZES[k], cumulative)
    left, entered = np.empty(N_PARTS, np.int64), np.empty(N_PARTS, np.int64)
    old = np.empty(N_STATISTICS)
    for j in range(N_STATISTICS):
        old[j] = state.offset[j] + n * CONSTANT[j]
    for i in range(n):
        find(whole(row(x, i, WIDTH)), left)
        for e in range(N_PARTS):
            old[STATISTIC[left[e]]] += AMOUNT[left[e]]
    for _ in range(n_sweeps):
        for i in range(n):
            values_before = whole(row(x, i, WIDTH))
            values = draw_values(rng, cumulative)
            find(values_before, left)
            find(values, entered)
            total = 0.0
            if not prior_only:
                for e in range(N_PARTS):
                    if left[e] != entered[e]:
                        j, k = STATISTIC[left[e]], STATISTIC[entered[e]]
                        less = old[j] - AMOUNT[left[e]]
                        if j == k:
                            less += AMOUNT[entered[e]]
                        else:
                            total += density(value, params, old, k, old[k] + AMOUNT[entered[e]])
                        total += density(value, params, old, j, less)
                total *= power
            wait = standard_exponential(rng)  # drawn in any case: which ratios are above 1 cannot be foreseen
            lowest = least(lowest, total)
            if total >= -wait:
                n_accepted += 1.0
                set_row(x, i, values)
                shift(old, left, entered, STATISTIC, AMOUNT)
    count(state, n_accepted, lowest)
    contributions(old, state)
