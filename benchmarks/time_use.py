"""Shares of a day: effective draws of the concentrations of a Dirichlet law behind clamped logarithms.

The American Time Use Survey as Awan, Barrientos & Ju (2024) use it: shares of a day in personal care, in
eating and drinking, and in all else, of 3,528 women and 3,128 men. Released were the means of the logarithms
of the shares, of a minute at least, with Laplace noise. Default steps, from four dispersed starting points.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure

# One minute of a day, in logarithms, at which shares are clamped.
MINUTE = -np.log(1440.0)
# Releases of the survey's data: (who, people, epsilon) -> noisy means.
RELEASES = {
    ("women", 3528, 1.0): [-0.910305, -3.302481, -0.628465],
    ("women", 3528, 10.0): [-0.911907, -3.311286, -0.632926],
    ("men", 3128, 1.0): [-0.959866, -3.292548, -0.591634],
    ("men", 3128, 10.0): [-0.961673, -3.302478, -0.596666],
}
TARGETS = {1.0: 100.0, 10.0: 200.0}  # effective draws per second that are aimed at
STARTS = [[0.3, 0.3, 0.3], [5.0, 5.0, 5.0], [1.0, 0.2, 3.0], [3.0, 1.5, 0.5]]


def model(people: int, epsilon: float, released: list[float]) -> pm.Model:
    with pm.Model() as built:
        concentration = pm.Gamma("concentration", 1, 0.1, shape=3)
        shares = pm.Dirichlet("shares", concentration, shape=(people, 3))
        logs = pt.clip(pt.log(shares), MINUTE, 0.0)
        sensitivity = -3 * MINUTE / people
        dp.LaplaceMechanism("z", logs.mean(0), epsilon=epsilon, sensitivity=sensitivity, observed=released)
    return built


def main(quick: bool = False) -> None:
    table = measure.table(
        "Time use: effective draws of the worst concentration per CPU second after tuning",
        "who", "people", "epsilon", "a second", "target", "met", "per draw", "R-hat", "us a draw",
        "s with tuning",
    )  # fmt: skip
    draws, tune = (200, 300) if quick else (1000, 1000)
    starts = [{"concentration": np.array(start)} for start in STARTS]
    for (who, people, epsilon), released in RELEASES.items():
        built = model(people, epsilon, released)
        run = measure.sample(built, ["concentration"], draws, tune, starts=starts)
        table.add_row(
            who, str(people), f"{epsilon:g}", f"{run.rate:.0f}", f"{TARGETS[epsilon]:g}",
            measure.verdict(run.rate, TARGETS[epsilon]), f"{run.worst / run.draws:.2f}",
            f"{run.extra['R-hat']:.3f}", f"{run.seconds / run.draws * 1e6:.0f}", f"{run.total:.0f}",
        )  # fmt: skip
    measure.show(table, "time_use")


if __name__ == "__main__":
    main()
