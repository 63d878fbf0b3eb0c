"""NUTS beside imputation, and the default steps: one regression from noisy sums at several budgets.

The model of the tutorial on NUTS; effective draws of the worse coefficient per CPU second, two chains.
"""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure

PEOPLE = 200
LOW, HIGH = np.array([-2.0, 0.0, -3.0, -6.0, 0.0]), np.array([2.0, 4.0, 3.0, 6.0, 9.0])


def model(epsilon: float) -> pm.Model:
    rng = np.random.default_rng(3)
    covariate = rng.normal(0, 1, PEOPLE)
    outcome = 0.5 + 1.0 * covariate + rng.normal(0, 0.5, PEOPLE)
    rows = np.stack([covariate, covariate**2, outcome, covariate * outcome, outcome**2], axis=1)
    scale = (HIGH - LOW).sum() / epsilon
    released = np.clip(rows, LOW, HIGH).sum(axis=0) + rng.laplace(scale=scale, size=5)
    with pm.Model() as built:
        intercept, slope = pm.Normal("intercept", 0, 2), pm.Normal("slope", 0, 2)
        x = pm.Normal("x", 0, 1, shape=PEOPLE)
        y = pm.Normal("y", intercept + slope * x, 0.5, shape=PEOPLE)
        sums = dp.record_sum(pt.stack([x, x**2, y, x * y, y**2], axis=1))
        dp.LaplaceMechanism("release", sums, epsilon=epsilon, bounds=(LOW, HIGH), observed=released)
    return built


def main(quick: bool = False) -> None:
    table = measure.table(
        f"{PEOPLE} people, five noisy sums: effective draws of the worse coefficient a CPU second",
        "epsilon", "default steps", "R-hat", "NUTS beside imputation", "R-hat ",
    )  # fmt: skip
    logging.getLogger("pymc.dp").setLevel(logging.ERROR)
    draws = 1000 if quick else 4000
    for epsilon in (1.0, 100.0) if quick else (0.1, 1.0, 10.0, 100.0, 1000.0):
        built = model(epsilon)
        ours = measure.sample(built, ["intercept", "slope"], draws, 1000)
        with built:
            step = [dp.RecordImputation()]
        nuts = measure.sample(built, ["intercept", "slope"], draws, 1000, step=step)
        table.add_row(
            f"{epsilon:g}", f"{ours.rate:.0f}", f"{ours.extra['R-hat']:.3f}", f"{nuts.rate:.1f}",
            f"{nuts.extra['R-hat']:.3f}",
        )  # fmt: skip
    measure.show(table, "nuts")


if __name__ == "__main__":
    main()
