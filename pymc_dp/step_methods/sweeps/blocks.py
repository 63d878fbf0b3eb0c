"""The nopython loops of a fused sweep: blocks of records are drawn, then summarised, then decided.

Only decisions depend on those before them. Draws wait for the generator, statistics do not, and what one loop
does with the records of a block the processor does with several of them at once. A block stays in the fastest
cache.
"""

import numpy as np

from pymc_dp.lowering.addresses.tuples import (
    Numbers,
    column,
    entries,
    minus,
    part,
    plus,
    row,
    set_column,
    set_entries,
)
from pymc_dp.lowering.functions.bits import standard_exponential
from pymc_dp.step_methods.block.state import RecordState
from pymc_dp.step_methods.sweeps.parts import contributions, count, least

type Array = np.ndarray
type Generator = np.random.Generator

# Records of a block.
BLOCK = 64
# Statistics up to which sums are tuples, which stay in registers: faster, longer to compile.
IN_REGISTERS = 16
# What a model gives the kernels: numbers that no record changes, entries of a record, results of a draw,
# numbers that a record adds to sums, parameters of a release; where the power of the releases' density stands
# in the data.
N_CONSTANTS = WIDTH = N_DRAWN = N_CONTRIBUTIONS = N_PARAMETERS = TEMPER_AT = 0
# Where the number of people stands among the parameters, if slots beyond it are in no release; else -1.
PEOPLE_AT = -1
# Which results of a draw are what is kept, in value space.
VALUE_AT = np.zeros(0, np.int64)
# Whether log weights are to be looked at, and how often a candidate without a law is drawn again where no
# release decides; 0 if all have one. The last result of a draw tells then whether a candidate has.
WEIGHTED, TRIES = False, 0
# Which sum each number goes to: the covariate that says so, and what is to be added to it; that sum where all
# records have the same (-1).
PLACED_BY = PLACED_FROM = np.zeros(0, np.int64)


def draw(rng: Generator, c: Numbers, cov: Array, i: int) -> Numbers:
    """Draw a candidate: its entries, those of its values that are others."""
    raise NotImplementedError


def current(c: Numbers, cov: Array, i: int, x: Numbers) -> Numbers:
    """What a record adds to sums, and its log weight."""
    raise NotImplementedError


def candidate(c: Numbers, cov: Array, i: int, y: Numbers) -> Numbers:
    """What a candidate would add to sums, and its log weight."""
    raise NotImplementedError


def change(value: Numbers, params: Numbers, old: Numbers, new: Numbers) -> float:
    """Change of the log density of the releases when their sums change, without its power."""
    raise NotImplementedError


def change_of_one(value: Array, params: Array, old: Array, j: int, new: float) -> float:
    """Return the same when one of the sums changes."""
    raise NotImplementedError


def sum_of(cov: Array, i: int, j: int) -> int:
    """Which sum the j-th number of a record goes to; none where negative."""
    if PLACED_BY[j] < 0:
        return PLACED_FROM[j]
    return PLACED_FROM[j] + int(cov[PLACED_BY[j], i])


def add_to_sums(sums: Array, cov: Array, i: int, moves: Array, k: int) -> None:
    """Add the numbers in a column to the sums that those of record i go to."""
    for j in range(N_CONTRIBUTIONS):
        at = sum_of(cov, i, j)
        if at >= 0:
            sums[at] += moves[j, k]


def draw_block(
    rng: Generator, c: Numbers, cov: Array, start: int, m: int, prior_only: bool, drawn: Array, waits: Array
) -> None:
    """Draw candidates, and the logarithms of uniform numbers that decide on them."""
    for k in range(m):
        r = draw(rng, c, cov, start + k)
        for _ in range(TRIES):
            if not prior_only or r[N_DRAWN - 1] != 0.0:
                break
            r = draw(rng, c, cov, start + k)
        set_column(drawn, k, r)
        waits[k] = standard_exponential(rng)


def load_block(x: Array, start: int, m: int, records: Array) -> None:
    """Copy the records of a block to where they are contiguous."""
    for k in range(m):
        set_column(records, k, row(x, start + k, WIDTH))


def summarise_block(
    c: Numbers, cov: Array, start: int, m: int, records: Array, drawn: Array, moves: Array, gains: Array
) -> None:
    """Fill what each candidate would change in the sums and in the log weight."""
    for k in range(m):
        s = current(c, cov, start + k, column(records, k, WIDTH))
        r = candidate(c, cov, start + k, column(drawn, k, WIDTH))
        set_column(moves, k, minus(part(r, 0, N_CONTRIBUTIONS), part(s, 0, N_CONTRIBUTIONS)))
        if WEIGHTED:
            # a record that is impossible where the chain begins moves to anything
            gains[k] = r[N_CONTRIBUTIONS] - s[N_CONTRIBUTIONS] if s[N_CONTRIBUTIONS] != -np.inf else 0.0
            if TRIES and drawn[N_DRAWN - 1, k] == 0.0:
                gains[k] = -np.inf


def take_all(rng: Generator, c: Numbers, state: RecordState, drawn: Array, waits: Array) -> Numbers:
    """Draw all records from their law; return the sums with what they contribute."""
    x, cov = state.records, state.covariates
    n, sums = x.shape[0], entries(state.offset, N_CONTRIBUTIONS)
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        draw_block(rng, c, cov, start, m, True, drawn, waits)
        for k in range(m):
            if N_CONTRIBUTIONS:
                r = candidate(c, cov, start + k, column(drawn, k, WIDTH))
                sums = plus(sums, part(r, 0, N_CONTRIBUTIONS))
            for j in range(WIDTH):
                x[start + k, j] = drawn[VALUE_AT[j], k]
    return sums


def take_rest(
    rng: Generator, c: Numbers, cov: Array, x: Array, first: int, drawn: Array, waits: Array
) -> None:
    """Draw the slots of nobody, from the first on: no release reads them, and all are taken."""
    for start in range(first, x.shape[0], BLOCK):
        m = min(BLOCK, x.shape[0] - start)
        draw_block(rng, c, cov, start, m, False, drawn, waits)
        for k in range(m):
            for j in range(WIDTH):
                x[start + k, j] = drawn[VALUE_AT[j], k]


def take_all_of_many(
    rng: Generator, c: Numbers, state: RecordState, sums: Array, drawn: Array, moves: Array, waits: Array
) -> None:
    """Draw all records from their law; fill the sums, in an array, with what they contribute.

    The sums begin anew: what was infinite before would leave them no numbers.
    """
    x, cov = state.records, state.covariates
    n = x.shape[0]
    for j in range(sums.size):
        sums[j] = state.offset[j]
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        draw_block(rng, c, cov, start, m, True, drawn, waits)
        for k in range(m):
            r = candidate(c, cov, start + k, column(drawn, k, WIDTH))
            set_column(moves, k, part(r, 0, N_CONTRIBUTIONS))
            for j in range(WIDTH):
                x[start + k, j] = drawn[VALUE_AT[j], k]
            add_to_sums(sums, cov, start + k, moves, k)


def few_sums_sweep(n_sweeps: int, rng: Generator, state: RecordState) -> None:
    """Sweep that holds the sums in registers."""
    x, cov, prior_only = state.records, state.covariates, state.prior_only
    n, c = x.shape[0], entries(state.constants, N_CONSTANTS)
    if PEOPLE_AT >= 0:
        n = min(max(int(state.theta[PEOPLE_AT]), 0), n)
    lowest, n_accepted = 0.0, 0.0
    power = state.data[TEMPER_AT]
    values, parameters = (
        entries(state.observed, N_CONTRIBUTIONS),
        entries(state.noise.reshape(-1), N_PARAMETERS),
    )
    old = entries(state.offset, N_CONTRIBUTIONS)
    drawn, records = np.empty((N_DRAWN, BLOCK)), np.empty((WIDTH, BLOCK))
    moves, gains, waits = np.empty((N_CONTRIBUTIONS, BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    if prior_only:
        for _ in range(n_sweeps):
            old = take_all(rng, c, state, drawn, waits)
        n_sweeps = 0
    elif N_CONTRIBUTIONS:
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            load_block(x, start, m, records)
            for k in range(m):
                s = current(c, cov, start + k, column(records, k, WIDTH))
                old = plus(old, part(s, 0, N_CONTRIBUTIONS))
    for _ in range(n_sweeps):
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            draw_block(rng, c, cov, start, m, False, drawn, waits)
            load_block(x, start, m, records)
            if N_CONTRIBUTIONS or WEIGHTED:
                summarise_block(c, cov, start, m, records, drawn, moves, gains)
            for k in range(m):
                new = plus(old, column(moves, k, N_CONTRIBUTIONS))
                total = change(values, parameters, old, new)
                total *= power
                if WEIGHTED:
                    total += gains[k]
                lowest = least(lowest, total)
                if total >= -waits[k]:
                    n_accepted += 1.0
                    for j in range(WIDTH):
                        x[start + k, j] = drawn[VALUE_AT[j], k]
                    old = new
        take_rest(rng, c, cov, x, n, drawn, waits)
        n_accepted += x.shape[0] - n
    count(state, n_accepted, lowest)
    set_entries(state.totals, minus(old, entries(state.offset, N_CONTRIBUTIONS)))


def many_sums_sweep(n_sweeps: int, rng: Generator, state: RecordState) -> None:
    """Sweep that holds the sums in an array, of which a record changes a few or all."""
    x, cov, prior_only = state.records, state.covariates, state.prior_only
    value, params = state.observed, state.noise
    n, c = x.shape[0], entries(state.constants, N_CONSTANTS)
    lowest, n_accepted = 0.0, 0.0
    power = state.data[TEMPER_AT]
    sums = state.offset.copy()
    drawn, records = np.empty((N_DRAWN, BLOCK)), np.empty((WIDTH, BLOCK))
    moves, gains, waits = np.empty((N_CONTRIBUTIONS, BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    if prior_only:
        for _ in range(n_sweeps):
            take_all_of_many(rng, c, state, sums, drawn, moves, waits)
        n_sweeps = n = 0
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        load_block(x, start, m, records)
        for k in range(m):
            s = current(c, cov, start + k, column(records, k, WIDTH))
            set_column(moves, k, part(s, 0, N_CONTRIBUTIONS))
            add_to_sums(sums, cov, start + k, moves, k)
    for _ in range(n_sweeps):
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            draw_block(rng, c, cov, start, m, False, drawn, waits)
            load_block(x, start, m, records)
            summarise_block(c, cov, start, m, records, drawn, moves, gains)
            for k in range(m):
                total = 0.0
                for j in range(N_CONTRIBUTIONS):
                    at = sum_of(cov, start + k, j)
                    if at >= 0:
                        new = sums[at] + moves[j, k]
                        if new != sums[at]:
                            total += change_of_one(value, params, sums, at, new)
                total *= power
                if WEIGHTED:
                    total += gains[k]
                lowest = least(lowest, total)
                if total >= -waits[k]:
                    n_accepted += 1.0
                    for j in range(WIDTH):
                        x[start + k, j] = drawn[VALUE_AT[j], k]
                    add_to_sums(sums, cov, start + k, moves, k)
    count(state, n_accepted, lowest)
    contributions(sums, state)
