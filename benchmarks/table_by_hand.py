"""Moves of one table at four levels, beside a program written by hand for this table alone.

Cells, areas, states by education, and states, with discrete Gaussian noise of known scale on each, and known
rates. Both make two moves for each cell and draw; the program knows where each cell belongs without looking
it up, and approximates the noise's law by a normal density.
"""
# ruff: noqa: NPY002  (numba's own generator is the quicker one for a program by hand)

import time
from collections.abc import Callable

import arviz as az
import numba
import numpy as np

import pymc_dp as dp
from benchmarks import measure
from benchmarks.tables import SIGMAS, levels, released, summed
from pymc_dp.step_methods.tables.state import CELL_COLUMNS, COUNT

type Sweep = Callable[[], np.ndarray]


@numba.njit
def by_hand(counts, r_cell, r_area, r_education, r_state, rate, state, precision, moves, reach):  # type: ignore[no-untyped-def]
    """Try moves of this one table: one cell, two of an area, two of any; residuals of each level are kept."""
    n_areas, n_education, n_experience = counts.shape
    made = 0
    for _ in range(moves):
        kind = np.random.randint(3)
        a, e, x = np.random.randint(n_areas), np.random.randint(n_education), np.random.randint(n_experience)
        t = 1 + int(np.random.exponential(reach))
        s, count = state[a], counts[a, e, x]
        if kind == 0:
            t = -t if np.random.random() < 0.5 else t
            if count + t < 0:
                continue
            change = t * np.log(rate[a, e, x])
            for q in range(min(count, count + t) + 1, max(count, count + t) + 1):
                change -= np.log(q) * (1 if t > 0 else -1)
            for r, p in (
                (r_cell[a, e, x], precision[0]), (r_area[a], precision[1]),
                (r_education[s, e], precision[2]), (r_state[s], precision[3]),
            ):  # fmt: skip
                change -= 0.5 * p * ((r - t) ** 2 - r**2)
            if np.log(np.random.random()) < change:
                counts[a, e, x] += t
                r_cell[a, e, x] -= t
                r_area[a] -= t
                r_education[s, e] -= t
                r_state[s] -= t
                made += 1
            continue
        b = a if kind == 1 else np.random.randint(n_areas)
        if state[b] != s and np.random.random() < 0.5:
            b = np.random.randint(n_areas)
        f = np.random.randint(n_education) if np.random.random() < 0.5 else e
        y, z = np.random.randint(n_experience), state[b]
        if (a == b and e == f and x == y) or count < t:
            continue
        change = t * (np.log(rate[b, f, y]) - np.log(rate[a, e, x]))
        for q in range(t):
            change += np.log(count - q) - np.log(counts[b, f, y] + 1 + q)
        change -= precision[0] * t * (r_cell[a, e, x] - r_cell[b, f, y] + t)
        if a != b:
            change -= precision[1] * t * (r_area[a] - r_area[b] + t)
        if s != z or e != f:
            change -= precision[2] * t * (r_education[s, e] - r_education[z, f] + t)
        if s != z:
            change -= precision[3] * t * (r_state[s] - r_state[z] + t)
        if np.log(np.random.random()) < change:
            counts[a, e, x] -= t
            counts[b, f, y] += t
            r_cell[a, e, x] += t
            r_cell[b, f, y] -= t
            r_area[a] += t
            r_area[b] -= t
            r_education[s, e] += t
            r_education[z, f] -= t
            r_state[s] += t
            r_state[z] -= t
            made += 1
    return made


@numba.njit
def start_of(seed):  # type: ignore[no-untyped-def]
    """Start numba's generator."""
    np.random.seed(seed)


def program(n_areas: int, seed: int, tune: int) -> Sweep:
    """Return the program by hand, after some sweeps."""
    state, _, rate, noisy = released(n_areas)
    counts = np.random.default_rng(seed).poisson(rate)
    residuals = [z - level.astype(float) for z, level in zip(noisy, summed(counts, state), strict=True)]
    precision, moves = 1.0 / np.square(SIGMAS), 2 * counts.size
    start_of(seed)

    def sweep() -> np.ndarray:
        by_hand(counts, *residuals, rate, state, precision, moves, 0.6)
        return counts

    for _ in range(tune):
        sweep()
    return sweep


def ours(n_areas: int, seed: int, tune: int) -> Sweep:
    """Return the moves of TableImputation, after tuning."""
    model = levels(n_areas, known_total=False)
    step = dp.TableImputation(model=model)
    step.setup_chain(seed, tune, 1)
    point = model.initial_point()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    (part,) = step.parts
    part.read(point)

    def sweep() -> np.ndarray:
        part.sweep(step.rng, 2 * part.n_cells, False)
        return part.table.cells[:, COUNT - CELL_COLUMNS]

    return sweep


def main(quick: bool = False) -> None:
    n_areas, draws = (200, 100) if quick else (2000, 400)
    state, truth, _, _ = released(n_areas)
    some = np.random.default_rng(5).choice(truth.size, 1000, replace=False)
    makers = {"one table's own program": program, "TableImputation": ours}
    sweeps = {name: [make(n_areas, seed, draws // 2) for seed in (1, 2)] for name, make in makers.items()}
    seconds = dict.fromkeys(makers, 0.0)
    found: dict[str, list] = {name: [[], []] for name in makers}
    for _ in range(draws):  # in turn, as the machine is not equally fast at all times
        for name, chains in sweeps.items():
            for chain, sweep in enumerate(chains):
                begin = time.process_time()
                now = sweep()
                seconds[name] += time.process_time() - begin
                cells, *sums = summed(now.reshape(truth.shape).astype(float), state)
                found[name][chain].append([cells.ravel()[some], *(level.ravel() for level in sums)])
    table = measure.table(
        f"Moves of a table of {truth.size:,} cells: median effective draws a CPU second",
        "by", "ns per move", "cells", "areas", "states by education", "states",
    )  # fmt: skip
    for name, chains in found.items():
        row = [name, f"{seconds[name] / (4 * draws * truth.size) * 1e9:.0f}"]
        for level in range(4):
            values = np.array([[draw[level] for draw in chain] for chain in chains])
            ess = [float(az.ess(values[..., k])) for k in range(values.shape[-1]) if values[..., k].std()]
            row.append(f"{np.median(ess) / seconds[name]:.1f}")
        table.add_row(*row)
    measure.show(table, "table_by_hand")


if __name__ == "__main__":
    main()
