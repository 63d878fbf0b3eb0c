"""Parameters of a table of counts: by NUTS beside its moves, drawn given the counts, or integrated out.

The last is what `pm.sample` does by itself. The three run one after the other in one process, on the same
release; figures are effective draws a CPU second, of the worst cell and the worst probability. Then people
who are written down: moved as people, as a table from which people are drawn, and as a table alone.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from benchmarks import measure

PEOPLE = 500


def noisy_table(shape: tuple[int, int], epsilon: float) -> pm.Model:
    """Multinomial counts of some people behind noisy cells, with unknown probabilities."""
    rng = np.random.default_rng(3)
    size = int(np.prod(shape))
    truth = rng.multinomial(PEOPLE, rng.dirichlet(np.ones(size)))
    released = truth + np.rint(rng.laplace(0, 2 / epsilon, size)).astype(int)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(size))
        c = pm.Multinomial("c", PEOPLE, p)
        dp.DiscreteLaplaceMechanism("z", c, scale=2 / epsilon, observed=released)
    return model


def steps(model: pm.Model, way: str) -> list | None:
    """Steps of each way of moving the parameters."""
    if way == "integrated out":
        return None
    with model:
        counts = dp.TableImputation([model["c"]])
        return [counts, pm.NUTS([model["p"]]) if way == "NUTS" else dp.TableImputation([model["p"]])]


def people(n: int, scale: float) -> pm.Model:
    """Categories of people behind noisy counts, with unknown probabilities."""
    rng = np.random.default_rng(1)
    truth = rng.multinomial(n, rng.dirichlet(np.ones(4)))
    released = truth + np.rint(rng.laplace(0, scale, 4)).astype(int)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(4))
        y = pm.Categorical("y", p, shape=n)
        query = dp.record_sum(pt.eye(4, dtype="int64")[y])
        dp.DiscreteLaplaceMechanism("z", query, scale=scale, observed=released)
    return model


def of_people(quick: bool) -> None:
    table = measure.table(
        "Probabilities of four categories: effective draws of the worst one a CPU second",
        "people", "noise", "people moved with them", "a table, people drawn", "a table alone",
    )  # fmt: skip
    draws = 200 if quick else 1000
    for n, scale in ((500, 2.0), (500, 20.0), (20_000, 2.0), (20_000, 1000.0)):
        row = [f"{n:,}", f"{scale:g}"]
        for way in ("people", "both", "table"):
            model = people(n, scale)
            with model:
                step = {
                    "people": lambda: [dp.RecordImputation(), dp.AncillaryUpdate()],
                    "both": lambda: [dp.TabulatedImputation()],
                    "table": lambda: None,
                }[way]()
            if way == "table":
                model = dp.marginalize(model, ["y"])
            row.append(f"{measure.sample(model, ['p'], draws, draws // 2, step=step).rate:.3g}")
        table.add_row(*row)
    measure.show(table, "table_people")


def main(quick: bool = False) -> None:
    of_people(quick)
    table = measure.table(
        f"Probabilities of a table of {PEOPLE} people: effective draws a CPU second of the worst cell, and "
        "of the worst probability",
        "cells", "epsilon", "way", "cell", "probability", "R-hat", "ms per draw",
    )  # fmt: skip
    draws = 300 if quick else 2000
    for shape in ((2, 3), (10, 10)):
        for epsilon in (1.0, 0.1):
            for way in ("NUTS", "given the counts", "integrated out"):
                model = noisy_table(shape, epsilon)
                run = measure.sample(model, ["c", "p"], draws, draws // 2, step=steps(model, way))
                table.add_row(
                    " x ".join(map(str, shape)),
                    f"{epsilon:g}",
                    way,
                    f"{run.extra['c'] / run.seconds:.3g}",
                    f"{run.extra['p'] / run.seconds:.3g}",
                    f"{run.extra['R-hat']:.3f}",
                    f"{run.seconds / run.draws * 1e3:.2f}",
                )
    measure.show(table, "table_parameters")


if __name__ == "__main__":
    main()
