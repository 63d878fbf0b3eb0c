"""One sweep over records under each local mechanism, beside Laplace noise on the same records.

`RecordImputation.step`, as PyMC's loop calls it, with the parameters held fixed; the mean over the moves
that it takes in turn. Both models are timed in turns in one process, so that their ratio does not depend on
what else the machine does. A release of 127 numbers per record (wavelet, level 6) takes 1 GB at n = 10^6.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

import pymc_dp as dp
from benchmarks import measure

CATEGORIES = 16
LARGEST_RATIO = 2.0


class Records(NamedTuple):
    """What the confidential records are, and bounds for Laplace noise on them."""

    label: str
    declare: Callable[[int], Any]
    bounds: tuple[float, float]


NORMAL = Records("Normal", lambda n: pm.Normal("y", pm.Normal("mu"), 1, shape=n), (-3, 3))
BETA = Records("Beta", lambda n: pm.Beta("y", pm.Gamma("a", 2, 1), 2, shape=n), (0, 1))
POISSON = Records("Poisson", lambda n: pm.Poisson("y", pm.Gamma("rate", 4, 1), shape=n), (0, 12))
CATEGORY = Records(
    "Categorical",
    lambda n: pm.Categorical("y", pm.Dirichlet("p", np.ones(CATEGORIES)), shape=n),
    (0, CATEGORIES - 1),
)


class Row(NamedTuple):
    """A mechanism at a budget."""

    label: str
    records: Records
    epsilon: float
    declare: Callable[..., Any]


def rows() -> list[Row]:
    found = []
    for epsilon in (2.0, 10.0):
        rho = epsilon**2 / 8

        def add(label, records, declare, epsilon=epsilon):
            found.append(Row(label, records, epsilon, declare))

        add("Gaussian", NORMAL, lambda y, z, e, r=rho: dp.GaussianMechanism(
            "z", y, rho=r, bounds=NORMAL.bounds, observed=z))  # fmt: skip
        add("discrete Laplace", POISSON, lambda y, z, e: dp.DiscreteLaplaceMechanism(
            "z", y, epsilon=e, bounds=POISSON.bounds, observed=z))  # fmt: skip
        add("discrete Gaussian", POISSON, lambda y, z, e, r=rho: dp.DiscreteGaussianMechanism(
            "z", y, rho=r, bounds=POISSON.bounds, observed=z))  # fmt: skip
        add("16-ary response", CATEGORY, lambda y, z, e: dp.RandomizedResponse("z", y, epsilon=e, observed=z))
        add("unary encoding, 16 bits", CATEGORY, lambda y, z, e: dp.UnaryEncoding(
            "z", y, epsilon=e, observed=z))  # fmt: skip
        add("binomial, 20 tosses", BETA, lambda y, z, e: dp.BinomialMechanism(
            "z", y, n_trials=20, epsilon=e, bounds=BETA.bounds, observed=z))  # fmt: skip
        add("wavelet, level 6", BETA, _wavelet)
    found.append(Row("wavelet, level 6", BETA, 250.0, _wavelet))
    return found


def _wavelet(y, z, epsilon):
    return dp.WaveletMechanism("z", y, level=6, epsilon=epsilon, bounds=BETA.bounds, observed=z)


def _laplace(records: Records):
    return lambda y, z, e: dp.LaplaceMechanism("z", y, epsilon=e, bounds=records.bounds, observed=z)


class Sweep:
    """A step on a model of n records, ready to be timed."""

    def __init__(self, records: Records, declare: Callable[..., Any], epsilon: float, n: int):
        with pm.Model():
            z = pm.draw(declare(records.declare(n), None, epsilon), random_seed=1)
        with pm.Model() as model:
            declare(records.declare(n), z, epsilon)
        self.step = dp.RecordImputation(model=model)
        self.step.setup_chain(np.random.default_rng(2), 0, 10**6)
        self.point = model.initial_point()
        self.moves = self.step.chains[0].moves
        self.best = [np.inf] * len(self.moves)
        self.rates = [0.0] * len(self.moves)
        for _ in range(10):  # to where the chain stays
            self.run()
        self.best = [np.inf] * len(self.moves)

    def run(self) -> None:
        """Step once with each move."""
        for _ in self.moves:
            which = self.step.n_steps % len(self.moves)
            start = time.process_time()
            self.point, (stats,) = self.step.step(self.point)
            self.best[which] = min(self.best[which], time.process_time() - start)
            self.rates[which] = stats["record_acceptance"]


def main(quick: bool = False) -> None:
    n = 100_000 if quick else 1_000_000
    table = measure.table(
        f"Local mechanisms, n = {n}: one sweep, CPU ns per record, beside Laplace noise on the same records",
        "mechanism", "records", "epsilon", "moves", "accepted", "ns", "Laplace, ns", "ratio", "target", "met",
    )  # fmt: skip
    for row in rows():
        ours = Sweep(row.records, row.declare, row.epsilon, n)
        laplace = Sweep(row.records, _laplace(row.records), row.epsilon, n)
        for _ in range(5):
            ours.run()
            laplace.run()
        cost, other = (float(np.mean(s.best)) / n * 1e9 for s in (ours, laplace))
        table.add_row(
            row.label, row.records.label, f"{row.epsilon:g}", ", ".join(m.name for m in ours.moves),
            ", ".join(f"{r:.2f}" for r in ours.rates), f"{cost:.0f}", f"{other:.0f}", f"{cost / other:.2f}",
            f"{LARGEST_RATIO:g}", measure.verdict(cost / other, LARGEST_RATIO, at_most=True),
        )  # fmt: skip
        del ours, laplace
    measure.show(table, "mechanisms")


if __name__ == "__main__":
    main()
