"""Regression on sums over an unknown number of people: effective draws of that number and of coefficients.

The model of Awan, Barrientos & Ju (2024): two confidential covariates, nine clamped sums, Laplace noise on
them and on the number of people. Steps: what `pm.sample` chooses by itself, and imputation beside PyMC's own.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure

PEOPLE, CENTRES, COEFFICIENTS = 1000, np.array([1.0, -1.0]), np.array([0.0, -1.0, 1.0])
RATE, SECONDS = 2000.0, 5.0  # effective draws per second, and seconds for 10,000 draws, that are aimed at


def statistics(library, a, b, y):
    """The nine numbers of a person, each between -1 and 1."""
    a, b, y = (library.clip(0.2 * v, -1, 1) for v in (a, b, y))
    return [y, a * y, b * y, y * y, a, b, a * a, a * b, b * b]


def model(epsilon: float, of_number: float, slots: int) -> pm.Model:
    rng = np.random.default_rng(7)
    x = CENTRES + rng.normal(size=(PEOPLE, 2))
    y = COEFFICIENTS[0] + x @ COEFFICIENTS[1:] + rng.normal(size=PEOPLE)
    scale = 9 / epsilon
    released = np.sum(statistics(np, *x.T, y), axis=1) + rng.laplace(0, scale, 9)
    number = PEOPLE + rng.laplace(0, 1 / of_number)
    with pm.Model() as built:
        beta = pm.Normal("beta", 0, 2, shape=3)
        people = pm.DiscreteUniform("people", 1, slots)
        a, b = (pm.Normal(name, at, 1, shape=slots) for name, at in zip("ab", CENTRES, strict=True))
        y = pm.Normal("y", beta[0] + beta[1] * a + beta[2] * b, 1, shape=slots)
        rows = pt.stack(statistics(pt, a, b, y), axis=1)
        dp.LaplaceMechanism("z", dp.record_sum(rows, count=people), scale=scale, observed=released)
        dp.LaplaceMechanism("number", people, scale=1 / of_number, observed=number)
    return built


def main(quick: bool = False) -> None:
    table = measure.table(
        "Unknown number of people: effective draws per CPU second after tuning",
        "epsilon", "of the number", "slots", "number", "worst coefficient", "target", "met", "R-hat",
        "s for 10,000 draws", "target", "NUTS, Metropolis: number", "worst coefficient",
    )  # fmt: skip
    draws, tune = (500, 500) if quick else (4000, 1000)
    cases = [(1.0, 1.0, 1100)] if quick else [
        (1.0, 1.0, 1100), (1.0, 0.01, 2000), (1.0, 1e-4, 4000), (0.1, 1.0, 1100), (0.1, 0.01, 2000),
    ]  # fmt: skip
    for epsilon, of_number, slots in cases:
        built = model(epsilon, of_number, slots)
        ours = {n: measure.sample(built, [n], draws, tune) for n in ("people", "beta")}
        with built:
            step = [dp.RecordImputation()]
        theirs = {n: measure.sample(built, [n], draws, tune, step=step) for n in ("people", "beta")}
        lowest = min(run.rate for run in ours.values())
        table.add_row(
            f"{epsilon:g}", f"{of_number:g}", str(slots),
            f"{ours['people'].rate:.0f}", f"{ours['beta'].rate:.0f}",
            f"{RATE:g}", measure.verdict(lowest, RATE),
            f"{max(run.extra['R-hat'] for run in ours.values()):.3f}",
            f"{ours['people'].seconds / ours['people'].draws * 1e4:.1f}", f"{SECONDS:g}",
            f"{theirs['people'].rate:.1f}", f"{theirs['beta'].rate:.1f}",
        )  # fmt: skip
    measure.show(table, "unknown_count")


if __name__ == "__main__":
    main()
