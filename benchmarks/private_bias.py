"""How far draws from batches are from the posterior: a normal mean, whose posterior is known.

A thousand rows, likelihood to the power 0.1 or 1; the start is the posterior mean. Differences of the mean
are in posterior standard deviations, those of the standard deviation in per cent, each with its Monte Carlo
error.
"""

import arviz as az
import numpy as np
import pymc as pm

import pymc_dp as dp
from benchmarks import measure

N, PRIOR = 1000, 2.0

# step, power of the likelihood, batch, clip, proposals in posterior standard deviations
CASES = [
    *((dp.MinibatchPenalty, 0.1, b, 5.0, 1.5) for b in (1000, 500, 200, 100, 50, 20)),
    *((dp.MinibatchPenalty, 1.0, b, 5.0, s) for b, s in ((500, 1.5), (100, 1.5), (100, 0.5), (20, 0.5))),
    *((dp.MinibatchPenalty, 0.1, 200, clip, 1.5) for clip in (2.0, 1.0, 0.5)),
    *((dp.BarkerMetropolis, 0.1, b, 5.0, 0.5) for b in (1000, 500, 200, 100, 50, 20)),
    *((dp.BarkerMetropolis, 1.0, b, 5.0, s) for b, s in ((500, 0.5), (100, 0.5), (100, 0.2), (20, 0.1))),
    *((dp.BarkerMetropolis, 0.1, 200, clip, 0.5) for clip in (2.0, 1.0, 0.5)),
]


def posterior(rows: np.ndarray, temper: float) -> tuple[float, float]:
    precision = PRIOR**-2 + temper * len(rows)
    return temper * rows.sum() / precision, precision**-0.5


def drawn(cls, rows, temper, batch_size, clip, scale, draws):
    """Draws in posterior standard deviations from the posterior mean, and the share of moves taken."""
    mean, sd = posterior(rows, temper)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, PRIOR, initval=mean)
        dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), rows, clip=clip, temper=temper)
    step = cls(model=model, batch_size=batch_size, noise_multiplier=0.2, scale=scale * sd, adapt=False)
    step.setup_chain(np.random.default_rng(1), 0, draws)
    point, out, taken = model.initial_point(), np.empty(draws), 0
    for k in range(draws):
        point, (said,) = step.step(point)
        out[k] = (float(point["mu"]) - mean) / sd
        taken += said["private_accepted"]
    return out, taken / draws


def variance(rows, temper, batch_size, scale):
    """Variance of the log ratio over batches, for a move of the length of a typical proposal."""
    _, sd = posterior(rows, temper)
    n = len(rows)
    return (temper * n * scale * sd) ** 2 * rows.var(ddof=1) / batch_size * (1 - batch_size / n)


def main(quick: bool = False) -> None:
    rows = np.random.default_rng(3).normal(0.7, 1.0, N)
    table = measure.table(
        f"Bias of draws from batches of {N} rows",
        "step", "power", "batch", "clip", "clipped", "variance", "accepted", "mean", "sd, %",
    )  # fmt: skip
    for cls, temper, size, clip, scale in CASES[2:4] if quick else CASES:
        z, taken = drawn(cls, rows, temper, size, clip, scale, 5000 if quick else 100_000)
        errors = [float(az.mcse(z[None, :], method=method)) for method in ("mean", "sd")]
        mean, _ = posterior(rows, temper)
        table.add_row(
            cls.__name__,
            f"{temper:g}",
            str(size),
            f"{clip:g}",
            f"{(np.abs(rows - mean) > clip).mean():.0%}",
            f"{variance(rows, temper, size, scale):.2g}",
            f"{taken:.2f}",
            f"{z.mean():+.3f} +- {errors[0]:.3f}",
            f"{100 * (z.std() - 1):+.1f} +- {100 * errors[1]:.1f}",
        )
    measure.show(table, "private_bias")


if __name__ == "__main__":
    main()
