"""The nopython loop that decides on parameters and the cells whose law they enter, part by part."""

import math

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.bind import Function, bound_part
from pymc_dp.lowering.addresses.native import HANDLE, VECTOR, generator_at
from pymc_dp.lowering.functions.bits import random
from pymc_dp.step_methods.tables.kernels import note_changes
from pymc_dp.step_methods.tables.state import (
    CELL_COLUMNS,
    CHANGE,
    COUNT,
    INTEGERS,
    NOISE,
    NOISE_OF,
    ROW_COLUMNS,
    TABLE,
    TOTAL,
    TOUCHED,
)

_FLAGS = types.Array(types.boolean, 1, "C")
DECIDE = types.void(HANDLE, VECTOR, INTEGERS, INTEGERS, VECTOR, _FLAGS, TABLE, VECTOR, _FLAGS)


def noise(which: int, total: float, numbers: np.ndarray, q: int) -> float:
    """Log density of release q given its query."""
    raise NotImplementedError


def change_of_noise(
    n_touched: int, touched: np.ndarray, rows: np.ndarray, width: int, n_releases: int, found: np.ndarray
) -> float:
    """Change of the releases' log density along a move, and their new ones; none where a move is refused."""
    change = 0.0
    for j in range(n_touched):
        q = touched[j]
        by = rows[q, width + CHANGE]
        if by != 0.0 and q >= n_releases:  # known exactly
            return -math.inf
        if by != 0.0:
            found[j] = noise(int(rows[q, width + NOISE_OF]), rows[q, width + TOTAL] + by, rows, q)
            change += found[j] - rows[q, width + NOISE]
    return change


def decide(handle, changes, begins, members, counts, allowed, table, probability, accepted):  # type: ignore[no-untyped-def]
    """Accept or refuse each part: its entries of the parameters, and its cells at new counts.

    ``changes``: of the log density of all else, for each part. ``begins``, ``members``: the cells of each.
    ``counts``, ``allowed``: the counts of cells that would be, and whether they may. ``probability``,
    ``accepted``: get what each part's acceptance was. What a cell adds to the law is not brought up to date.
    """
    rng = generator_at(handle)
    cells, rows, n_releases, touched = table.cells, table.rows, table.n_releases[0], table.touched
    width, cell_width = rows.shape[1] - ROW_COLUMNS, cells.shape[1] - CELL_COLUMNS
    moved, steps = np.empty(members.size, np.int32), np.empty(members.size)
    found = np.empty(touched.size)
    for part in range(changes.size):
        n, possible = 0, changes[part] > -math.inf  # of no number this is false, too
        for i in range(begins[part], begins[part + 1]):
            k = members[i]
            possible = possible and allowed[k]
            by = counts[k] - cells[k, cell_width + COUNT]
            if by != 0.0:
                moved[n], steps[n] = k, by
                n += 1
        probability[part], accepted[part] = 0.0, False
        if not possible:
            continue
        n_touched = note_changes(n, moved, steps, table.begins, table.at, table.weights, rows, width, touched)
        ratio = changes[part] + change_of_noise(n_touched, touched, rows, width, n_releases, found)
        if ratio > -math.inf:
            probability[part] = math.exp(min(ratio, 0.0))
        accepted[part] = random(rng) < probability[part]
        if accepted[part]:
            for i in range(n):
                cells[moved[i], cell_width + COUNT] += steps[i]
        for j in range(n_touched):
            q = touched[j]
            change = rows[q, width + CHANGE]
            if accepted[part] and change != 0.0:
                rows[q, width + TOTAL] += change
                rows[q, width + NOISE] = found[j]
            rows[q, width + CHANGE], rows[q, width + TOUCHED] = 0.0, 0.0


def with_noise(noise: Function) -> dict[str, Function]:
    """Return what a model's releases make of the names in :func:`decide`."""
    return {"change_of_noise": bound_part(change_of_noise, {"noise": noise})}
