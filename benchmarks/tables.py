"""Tables of counts: two noisy margins of few and of many people, and moves of a table at four levels.

The naive way writes the people down: one categorical record each, behind the same margins.
"""

import time

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure

SHAPE = (4, 5)


def margins(people: int) -> dict[str, np.ndarray]:
    """Noisy margins of a table of some people."""
    rng = np.random.default_rng(4)
    truth = rng.multinomial(people, rng.dirichlet(np.ones(20))).reshape(SHAPE)
    return {
        "rows": truth.sum(axis=1) + np.rint(rng.laplace(0, 4, SHAPE[0])).astype(int),
        "columns": truth.sum(axis=0) + np.rint(rng.laplace(0, 4, SHAPE[1])).astype(int),
    }


def as_table(people: int) -> pm.Model:
    released = margins(people)
    with pm.Model() as model:
        c = pm.DirichletMultinomial("c", people, np.ones(20))
        table = c.reshape(SHAPE)
        dp.DiscreteLaplaceMechanism("rows", table.sum(axis=1), scale=4.0, observed=released["rows"])
        dp.DiscreteLaplaceMechanism("columns", table.sum(axis=0), scale=4.0, observed=released["columns"])
    return model


def as_people(people: int) -> pm.Model:
    released = margins(people)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(20))
        x = pm.Categorical("x", p, shape=people)
        one_hot = pt.eq(x[:, None], np.arange(20))
        pm.Deterministic("c", one_hot.sum(axis=0))
        row, column = pt.eq((x // 5)[:, None], np.arange(4)), pt.eq((x % 5)[:, None], np.arange(5))
        dp.DiscreteLaplaceMechanism("rows", dp.record_sum(row), scale=4.0, observed=released["rows"])
        dp.DiscreteLaplaceMechanism("columns", dp.record_sum(column), scale=4.0, observed=released["columns"])
    return model


SIGMAS = (4.0, 3.0, 3.0, 2.0)


def released(n_areas: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
    """State of each area, true counts, their rates, and noisy cells, areas, states by education, states."""
    rng = np.random.default_rng(0)
    shape, n_states = (n_areas, 7, 5), max(n_areas // 40, 2)
    state = np.sort(rng.integers(0, n_states, n_areas))
    truth = rng.poisson(rng.gamma(0.3, 1.4, shape))
    noisy = [
        level + np.rint(rng.normal(0, sigma, level.shape)).astype(int)
        for level, sigma in zip(summed(truth, state), SIGMAS, strict=True)
    ]
    return state, truth, np.broadcast_to(truth.mean(axis=0), shape) + 1e-3, noisy


def summed(counts: np.ndarray, state: np.ndarray) -> list[np.ndarray]:
    """Sums of counts at the four levels."""
    by_education = np.zeros((state.max() + 1, counts.shape[1]), dtype=counts.dtype)
    np.add.at(by_education, state, counts.sum(axis=2))
    return [counts, counts.sum(axis=(1, 2)), by_education, by_education.sum(axis=1)]


def levels(n_areas: int, known_total: bool = True) -> pm.Model:
    """Cells, areas, states by education and states, with a known total."""
    state, truth, rate, noisy = released(n_areas)
    with pm.Model() as model:
        c = pm.Poisson("c", rate)
        by_education = pt.zeros((state.max() + 1, 7), dtype="int64")[state].inc(c.sum(axis=2))
        queries = (c, c.sum(axis=(1, 2)), by_education, by_education.sum(axis=1))
        names = ("cells", "areas", "education", "states")
        for name, query, sigma, values in zip(names, queries, SIGMAS, noisy, strict=True):
            dp.DiscreteGaussianMechanism(name, query, sigma=sigma, observed=values)
        if known_total:
            dp.Invariant("total", c.sum(), observed=truth.sum())
    return model


def main(quick: bool = False) -> None:
    table = measure.table(
        "Two noisy margins of a table of 20 cells: effective draws of the worst cell a CPU second",
        "people", "table of counts", "R-hat", "people written down", "R-hat ",
    )  # fmt: skip
    draws = 500 if quick else 4000
    for people in (500, 10**9):
        ours = measure.sample(as_table(people), ["c"], draws, 500)
        row = [f"{people:,}", f"{ours.rate:.0f}", f"{ours.extra['R-hat']:.3f}"]
        if people == 500:
            naive = measure.sample(as_people(people), ["c"], draws, 500)
            row += [f"{naive.rate:.1f}", f"{naive.extra['R-hat']:.3f}"]
        table.add_row(*row, *[""] * (5 - len(row)))
    measure.show(table, "tables_margins")

    table = measure.table(
        "Moves of a table at four levels, its total known", "cells", "ns per move", "made", "MB", "read, ms"
    )
    for n_areas in (100, 2000) if quick else (100, 2000, 28_000):
        with levels(n_areas) as model:
            step = dp.TableImputation()
        step.setup_chain(1, 0, 10)
        point, _ = step.step(model.initial_point())
        (part,) = step.parts
        begin = time.process_time()
        part.read(point)
        read = time.process_time() - begin
        moves = 2_000_000
        begin = time.process_time()
        made = part.sweep(step.rng, moves, False)
        seconds = time.process_time() - begin
        size = sum(a.nbytes for a in (*part.table, *part.directions)) / 1e6
        table.add_row(
            f"{35 * n_areas:,}",
            f"{seconds / moves * 1e9:.0f}",
            f"{made / moves:.2f}",
            f"{size:.0f}",
            f"{read * 1e3:.1f}",
        )
    measure.show(table, "tables_moves")


if __name__ == "__main__":
    main()
