"""Parameters that several surveys share: effective draws, and what they are where records move apart.

Surveys of 200, 150, ... people, each behind a noisy sum and sum of squares of its own. Default steps move the
mean and the spread with the records of all surveys. Beside that: with those of one survey at a time, and the
people of all surveys written as one variable, with the same releases.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure

PEOPLE = (200, 150, 100, 300)
BOUNDS = [(-4.0, 6.0), (0.0, 36.0)]


def model(n_surveys: int, epsilon: float, as_one: bool = False) -> pm.Model:
    rng = np.random.default_rng(7)
    sizes = PEOPLE[:n_surveys]
    with pm.Model() as built:
        mu, sd = pm.Normal("mu", 0, 3), pm.HalfNormal("sd", 2)
        people = pm.Normal("y", mu, sd, shape=sum(sizes)) if as_one else None
        for k, n in enumerate(sizes):
            y = rng.normal(1, 1, n)
            rows = np.clip(np.stack([y, y**2], axis=1), *np.transpose(BOUNDS))
            z = rows.sum(axis=0) + rng.laplace(0, 46 / epsilon, 2)
            if people is None:
                x = pm.Normal(f"y{k}", mu, sd, shape=n)
                query = pt.stack([x, x**2], axis=1).sum(axis=0)
            else:
                query = dp.record_sum(
                    pt.stack([people, people**2], axis=1)[sum(sizes[:k]) : sum(sizes[: k + 1])]
                )
            dp.LaplaceMechanism(f"z{k}", query, epsilon=epsilon, bounds=BOUNDS, observed=z)
    return built


def apart(built: pm.Model) -> list:
    """The step without the moves of all surveys together."""
    step = dp.AncillaryUpdate(model=built)
    step._together, step.learnt_together = [], []
    return [step]


def main(quick: bool = False) -> None:
    table = measure.table(
        "Surveys of one mean and spread: effective draws of the worst per CPU second after tuning",
        "surveys", "epsilon", "together", "R-hat", "apart", "R-hat", "as one variable", "R-hat",
    )  # fmt: skip
    draws, tune = (200, 300) if quick else (2000, 1000)
    for n_surveys in (2,) if quick else (2, 4):
        for epsilon in (1.0,) if quick else (0.1, 1.0, 10.0):
            built = model(n_surveys, epsilon)
            of_one = model(n_surveys, epsilon, as_one=True)
            runs = [
                measure.sample(built, ["mu", "sd"], draws, tune),
                measure.sample(built, ["mu", "sd"], draws, tune, step=apart(built)),
                measure.sample(of_one, ["mu", "sd"], draws, tune),
            ]
            columns = [part for run in runs for part in (f"{run.rate:.0f}", f"{run.extra['R-hat']:.3f}")]
            table.add_row(str(n_surveys), f"{epsilon:g}", *columns)
    measure.show(table, "surveys")


if __name__ == "__main__":
    main()
