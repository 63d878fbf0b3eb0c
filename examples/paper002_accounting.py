"""Räisä (2021), section 6.2: how many iterations a budget allows, by accounting (figure 6.2).

The noise is the author's for the flat banana, d = 2, delta = 0.1 / n. No data are needed.

    python examples/paper002_accounting.py            # a minute
    python examples/paper002_accounting.py --quick    # two budgets
"""

from collections.abc import Callable

import numpy as np
import paper002
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import pymc_dp as dp
from pymc_dp.accounting import GaussianCost, SubsampledGaussianCost

N = 100_000
DELTA = 0.1 / N
BUDGETS = (0.5, 1.0, 2.0, 4.0, 8.0)
LEAPS = 10


def penalty(k: int) -> list:
    """Cost of k iterations: one ratio each."""
    return [GaussianCost(k, 0.1 * N**0.5)]


def minibatch(k: int) -> list:
    """Cost of k iterations on batches of 1000 rows: one ratio each."""
    return [SubsampledGaussianCost(k, 0.7**0.5, n=N, batch_size=1000)]


def hmc(k: int) -> list:
    """Cost of k trajectories: one ratio each, and a gradient for every step and one more."""
    return [GaussianCost(k, 0.1 * N**0.5), GaussianCost(k * LEAPS + 1, 0.4 * N**0.5)]


# algorithm: its cost, and the accountings by name
CASES: dict[str, tuple[Callable, dict[str, Callable]]] = {
    "penalty": (penalty, {"zCDP (theorem 5)": dp.accounting.renyi_epsilon, "exact": dp.accounting.epsilon}),
    "minibatch penalty": (
        minibatch,
        {
            "RDP (theorem 8)": dp.accounting.renyi_epsilon,
            "proven": dp.accounting.epsilon,
            "no proof, attained by some data": dp.accounting.lower_bound,
        },
    ),
    "HMC": (hmc, {"zCDP (theorem 10)": dp.accounting.renyi_epsilon, "exact": dp.accounting.epsilon}),
}


def iterations(cost: Callable, epsilon_of: Callable, budget: float) -> int:
    """Return the largest number of iterations whose cost is within the budget."""

    def fits(k: int) -> bool:
        return epsilon_of(cost(k), delta=DELTA) <= budget

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 500):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def main() -> None:
    args = paper002.arguments(__doc__)
    budgets = (1.0, 4.0) if args.quick else BUDGETS
    table = Table(title="Iterations that a budget allows (figure 6.2)")
    for column in ("algorithm", "accounting", *(f"epsilon {b:g}" for b in budgets)):
        table.add_column(column, justify="left" if column[0] == "a" else "right", no_wrap=True)
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    for ax, (algorithm, (cost, accountings)) in zip(figure.subplots(1, 3), CASES.items(), strict=True):
        for name, epsilon_of in accountings.items():
            found = [iterations(cost, epsilon_of, budget) for budget in budgets]
            table.add_row(algorithm, name, *(f"{k:,}" for k in found))
            ax.loglog(budgets, np.maximum(found, 0.5), "o-", label=name)
        table.add_section()
        ax.set(title=algorithm, xlabel="epsilon")
        ax.legend(fontsize=7)
    figure.axes[0].set_ylabel("iterations")
    Console(width=110).print(table)
    paper002.save(figure, args.output / "paper002_figure2.png")


if __name__ == "__main__":
    main()
