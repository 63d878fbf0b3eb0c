"""Private draws from confidential rows: CPU time of one iteration, beside published ones.

The step is driven without PyMC's loop (4 us a draw). The published program's figures (JAX, float64) were
taken earlier, on the same kind of machine and on data of the same law.
"""

import os

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure


def banana(n: int, d: int) -> pm.Model:
    rng = np.random.default_rng(1)
    sd = np.array([20**0.5, 2.5**0.5, *np.ones(d - 2)])
    rows = rng.normal([0.0, 3.0, *np.zeros(d - 2)], sd, (n, d))
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 30, shape=d, initval=rows.mean(axis=0))
        middle = pt.concatenate([theta[:1], theta[1:2] + 20 * theta[:1] ** 2, theta[2:]])
        dp.ConfidentialLikelihood(
            "x", pm.MvNormal.dist(middle, np.diag(sd**2)), rows, clip=2, clip_gradient=6
        )
    return model


def logistic(n: int, d: int) -> pm.Model:
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (n, d))
    y = (rng.random(n) < 1 / (1 + np.exp(-x.sum(axis=1)))).astype(int)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 3, shape=d)
        dp.ConfidentialLikelihood(
            "y", lambda x: pm.Bernoulli.dist(logit_p=x @ beta), y, covariates={"x": x}, clip=2
        )
    return model


# model, n, d, moves, target and published figure in ms
CASES = [
    (banana, 100_000, 2, "joint", 0.2, 0.59),
    (banana, 100_000, 2, "guided", 0.2, 0.81),
    (banana, 200_000, 10, "joint", None, 2.1),
    (banana, 200_000, 10, "guided", None, 1.8),
    (banana, 200_000, 30, "joint", 1.0, 3.1),
    (banana, 200_000, 30, "guided", 1.0, 3.2),
    (logistic, 100_000, 5, "joint", None, None),
]


# n, d, target and published figure in ms for one gradient
GRADIENTS = [(100_000, 2, None, None), (200_000, 10, 3.0, 33.0), (200_000, 30, None, None)]
LEAPS = 10
# step, n: batches of 1000 rows
BATCHES = [
    (step, n) for step in (dp.MinibatchPenalty, dp.BarkerMetropolis) for n in (10_000, 100_000, 1_000_000)
]
# of the published program, at n = 100,000
PUBLISHED = {dp.MinibatchPenalty: 2.2, dp.BarkerMetropolis: 2.5}


def per_iteration(model: pm.Model, iterations: int, cls=dp.PenaltyMetropolis, **kwargs) -> float:
    """Smallest of several means, in CPU ms of all threads."""
    step = cls(model=model, noise_multiplier=50.0, **kwargs)
    step.setup_chain(np.random.default_rng(1), 0, 10 * iterations)
    point = model.initial_point()

    def run() -> None:
        nonlocal point
        for _ in range(iterations):
            point, _ = step.step(point)

    return measure.smallest_time(run) / iterations * 1e3


def main(quick: bool = False) -> None:
    table = measure.table(
        f"Penalty: CPU ms per iteration ({os.cpu_count()} cores)",
        "model", "n", "d", "updates", "pymc_dp", "target", "met", "published program",
    )  # fmt: skip
    for build, n, d, updates, target, published in CASES[:2] if quick else CASES:
        ms = per_iteration(build(n, d), 20 if quick else 200, updates=updates)
        met = measure.verdict(ms, target, at_most=True)
        table.add_row(
            build.__name__,
            f"{n:,}",
            str(d),
            updates,
            f"{ms:.3g}",
            str(target or ""),
            met,
            str(published or ""),
        )
    measure.show(table, "private_mcmc")
    table = measure.table(
        f"HMC on the banana, {LEAPS} leaps: CPU ms per gradient, the decision shared out among them",
        "n", "d", "pymc_dp", "target", "met", "published program",
    )  # fmt: skip
    for n, d, target, published in GRADIENTS[:1] if quick else GRADIENTS:
        hmc = {"step_size": 1e-4, "n_leapfrog": LEAPS, "gradient_noise": 4.0}
        ms = per_iteration(banana(n, d), 20, dp.PrivateHMC, **hmc) / LEAPS
        met = measure.verdict(ms, target, at_most=True)
        table.add_row(f"{n:,}", str(d), f"{ms:.3g}", str(target or ""), met, str(published or ""))
    measure.show(table, "private_gradients")
    table = measure.table(
        "Batches of 1000 rows: CPU ms per iteration", "step", "n", "d", "pymc_dp", "published program"
    )
    for cls, n in BATCHES[:1] if quick else BATCHES:
        ms = per_iteration(banana(n, 2), 200 if quick else 2000, cls, batch_size=1000)
        table.add_row(cls.__name__, f"{n:,}", "2", f"{ms:.3g}", str(PUBLISHED[cls] if n == 100_000 else ""))
    measure.show(table, "private_batches")


if __name__ == "__main__":
    main()
