"""The nopython loop over moves of a table of counts.

A move adds t times an integer direction v to the counts. Which v is tried, and how far, is decided without a
look at the counts, and v is as likely as -v, so that a move is accepted by the ratio of the densities alone.
It costs what v touches: the cells, and the entries of queries that they add to.
"""

import math

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, bound_part, part_of_kernel
from pymc_dp.lowering.addresses.native import generator_at
from pymc_dp.lowering.functions.bits import random
from pymc_dp.step_methods.tables.proposals import (
    AHEAD,
    COMBINATION,
    MOST,
    ask_for_rows,
    begin_proposals,
    combination,
    first_cells,
    second_cells,
)
from pymc_dp.step_methods.tables.state import (
    CELL_COLUMNS,
    CELL_PRECISION,
    CHANGE,
    COUNT,
    LAW,
    LAW_OF,
    NOISE,
    NOISE_OF,
    ROW_COLUMNS,
    ROW_PRECISION,
    TOTAL,
    TOUCHED,
)

type Array = np.ndarray
type Generator = np.random.Generator

# Share of moves that tuning aims at, and how fast it does.
_TARGET, _RATE = 0.4, 0.02
_LOG_2 = math.log(2.0)


def law(which: int, count: float, numbers: Array, k: int) -> float:
    """Log density of cell k at a count, up to what no count changes."""
    raise NotImplementedError


def noise(which: int, total: float, numbers: Array, q: int) -> float:
    """Log density of release q given its query."""
    raise NotImplementedError


@part_of_kernel
def note_changes(
    n: int, moved: Array, steps: Array, begins: Array, at: Array, weights: Array, rows: Array, width: int,
    touched: Array,
) -> int:  # fmt: skip
    """Add up what a direction changes in each row; return how many rows it touches."""
    n_touched, several = 0, int(weights.size > 1)
    for i in range(n):
        k = moved[i]
        for j in range(begins[k], begins[k + 1]):
            q = at[j]
            if rows[q, width + TOUCHED] == 0.0:
                rows[q, width + TOUCHED] = 1.0
                touched[n_touched] = q
                n_touched += 1
            rows[q, width + CHANGE] += steps[i] * weights[several * j]
    return n_touched


@part_of_kernel
def room(sign: float, n: int, moved: Array, steps: Array, cells: Array, width: int) -> float:
    """How far a direction can be followed, or turned round, before a count is negative."""
    most = math.inf
    for i in range(n):
        if sign * steps[i] < 0.0:
            most = min(most, math.floor(cells[moved[i], width + COUNT] / abs(steps[i])))
    return most


@part_of_kernel
def scale_of(
    n: int, moved: Array, steps: Array, cells: Array, cell_width: int,
    n_touched: int, touched: Array, rows: Array, width: int, n_releases: int,
) -> float:  # fmt: skip
    """How long moves along a direction are expected to be, 0 where something known exactly forbids it."""
    precision = 0.0
    for j in range(n_touched):
        q = touched[j]
        change = rows[q, width + CHANGE]
        if q < n_releases:
            precision += rows[q, width + ROW_PRECISION] * change * change
        elif change != 0.0:
            return 0.0
    for i in range(n):
        precision += cells[moved[i], cell_width + CELL_PRECISION] * steps[i] ** 2
    return 1.0 / math.sqrt(precision)


@part_of_kernel
def length(rng: Generator, scale: float, up: float, down: float) -> float:
    """Draw how far to move, among the lengths for which there is room: a geometric law cut off at its end."""
    u, towards = random(rng), 1.0
    if up == 0.0 or (down > 0.0 and u < 0.5):
        towards = -1.0
    if up > 0.0 and down > 0.0:
        u = 2.0 * u if u < 0.5 else 2.0 * u - 1.0  # uniform given which way
    most = up if towards > 0.0 else down
    if most == 1.0:
        return towards
    t = 1.0 + math.floor(-scale * math.log1p(u * math.expm1(-most / scale)))
    return towards * min(t, most)


@part_of_kernel
def back_and_forth(t: float, scale: float, up: float, down: float) -> float:
    """Probability of drawing -t after the move, in that of drawing t before it."""
    ahead, behind = (up, down) if t > 0.0 else (down, up)
    ratio = 1.0
    # of two ways that are open, one is drawn; lengths are cut off where room ends
    if behind > 0.0:
        ratio *= 2.0
    if ahead > abs(t):
        ratio *= 0.5
    if ahead != behind + abs(t):
        ratio *= math.expm1(-ahead / scale) / math.expm1(-(behind + abs(t)) / scale)
    return ratio


def log_ratio(
    t: float, n: int, moved: Array, steps: Array, cells: Array, cell_width: int, n_touched: int,
    touched: Array, rows: Array, width: int, n_releases: int, new_laws: Array, new_noises: Array,
) -> float:  # fmt: skip
    """Change of the log density along t times the direction; the new densities are noted."""
    ratio = 0.0
    for i in range(n):
        k = moved[i]
        count = cells[k, cell_width + COUNT] + t * steps[i]
        new_laws[i] = law(int(cells[k, cell_width + LAW_OF]), count, cells, k)
        ratio += new_laws[i] - cells[k, cell_width + LAW]
    for j in range(n_touched):
        q = touched[j]
        change = rows[q, width + CHANGE]
        if change != 0.0 and q < n_releases:
            new_noises[j] = noise(
                int(rows[q, width + NOISE_OF]), rows[q, width + TOTAL] + t * change, rows, q
            )
            ratio += new_noises[j] - rows[q, width + NOISE]
    return ratio


def sweep(handle, n_moves, tuning, table, directions):  # type: ignore[no-untyped-def]
    """Try moves one after the other."""
    rng = generator_at(handle)
    # an array that is taken out of a structure is counted as held, which costs as much as a density
    cells, rows, n_releases = table.cells, table.rows, table.n_releases[0]
    begins, at, weights, touched = table.begins, table.at, table.weights, table.touched
    shares, reach, tally = directions.shares, directions.reach, directions.tally
    singles, members, corners = directions.singles, directions.members, directions.corners
    group_begins, group_cells = directions.group_begins, directions.group_cells
    corner_begins, basis_begins = directions.corner_begins, directions.basis_begins
    set_begins = directions.set_begins
    basis_classes, basis_steps = directions.basis_classes, directions.basis_steps
    class_begins, class_cells, by_class = directions.class_begins, directions.class_cells, directions.by_class
    moved, steps = directions.moved, directions.steps
    new_laws, new_noises = np.empty(moved.size), np.empty(touched.size)
    kinds, places, sizes = directions.kinds, directions.places, directions.sizes
    ahead, ahead_steps = directions.ahead, directions.ahead_steps
    cell_width, width = cells.shape[1] - CELL_COLUMNS, rows.shape[1] - ROW_COLUMNS
    lengths = np.exp(reach)
    for move in range(n_moves):
        c = move % AHEAD
        if c == 0:
            n_ahead = min(AHEAD, n_moves - move)
            begin_proposals(rng, n_ahead, shares, singles, members, kinds, places)
            first_cells(
                rng, n_ahead, singles, members, group_begins, group_cells, corners, corner_begins, kinds,
                places, sizes, ahead, ahead_steps,
            )  # fmt: skip
            second_cells(n_ahead, group_cells, kinds, places, sizes, ahead, begins, cells)
            ask_for_rows(n_ahead, sizes, ahead, begins, at, rows)
        kind, n = kinds[c], sizes[c]
        for i in range(n):
            moved[i], steps[i] = ahead[MOST * c + i], ahead_steps[MOST * c + i]
        if kind == COMBINATION:
            n = combination(
                rng, set_begins, basis_begins, basis_classes, basis_steps, class_begins, class_cells,
                by_class, moved, steps,
            )  # fmt: skip
        if n == 0:
            continue
        up = room(1.0, n, moved, steps, cells, cell_width)
        down = room(-1.0, n, moved, steps, cells, cell_width)
        if up == 0.0 and down == 0.0:
            continue
        n_touched = note_changes(n, moved, steps, begins, at, weights, rows, width, touched)
        scale = scale_of(n, moved, steps, cells, cell_width, n_touched, touched, rows, width, n_releases)
        if scale > 0.0:
            scale *= lengths[kind]
            t = length(rng, scale, up, down)
            ratio = log_ratio(
                t, n, moved, steps, cells, cell_width, n_touched, touched, rows, width, n_releases, new_laws,
                new_noises,
            )  # fmt: skip
            probability = min(math.exp(ratio) * back_and_forth(t, scale, up, down), 1.0)
            tally[kind, 0] += 1.0
            if random(rng) < probability:
                tally[kind, 1] += 1.0
                for i in range(n):
                    cells[moved[i], cell_width + COUNT] += t * steps[i]
                    cells[moved[i], cell_width + LAW] = new_laws[i]
                for j in range(n_touched):
                    q = touched[j]
                    change = rows[q, width + CHANGE]
                    if change != 0.0 and q < n_releases:
                        rows[q, width + TOTAL] += t * change
                        rows[q, width + NOISE] = new_noises[j]
            # moves of one, and those that room alone cuts off, say nothing of how long others should be
            if tuning and abs(t) > 1.0 and min(up, down) > 4.0 * scale:
                reach[kind] = min(max(reach[kind] + _RATE * (probability - _TARGET), -3.0), 6.0)
                lengths[kind] = math.exp(reach[kind])
        for j in range(n_touched):
            rows[touched[j], width + CHANGE], rows[touched[j], width + TOUCHED] = 0.0, 0.0


def refresh(table):  # type: ignore[no-untyped-def]
    """Work out everything that depends on the counts anew, with the parameters as they are."""
    cells, rows, n_releases, constant = table.cells, table.rows, table.n_releases[0], table.constant
    begins, at, weights = table.begins, table.at, table.weights
    cell_width, width = cells.shape[1] - CELL_COLUMNS, rows.shape[1] - ROW_COLUMNS
    several = int(weights.size > 1)
    for q in range(n_releases):
        rows[q, width + TOTAL] = constant[q]
    for k in range(cells.shape[0]):
        count = cells[k, cell_width + COUNT]
        cells[k, cell_width + LAW] = law(int(cells[k, cell_width + LAW_OF]), count, cells, k)
        for j in range(begins[k], begins[k + 1]):
            if at[j] < n_releases:
                rows[at[j], width + TOTAL] += weights[several * j] * count
    for q in range(n_releases):
        which = int(rows[q, width + NOISE_OF])
        rows[q, width + NOISE] = noise(which, rows[q, width + TOTAL], rows, q)


def with_densities(law: Function, noise: Function) -> tuple[dict[str, Function], dict[str, Function]]:
    """Return what a model's densities make of the names in :func:`sweep`, and in :func:`refresh`."""
    names = {"law": law, "noise": noise}
    return {"log_ratio": bound_part(log_ratio, names)}, names
