"""Paper 003's naive Bayes model: effective draws of the worst of its 80 probabilities per second.

Other programs on this release, on the same kind of machine: the R package dapper 1.1, 136; a C++
program of the paper's algorithm 1, about 6900.
"""

import numpy as np

from benchmarks import measure
from examples import paper003

TARGET = 1500
OTHERS = {"dapper (R)": 136, "algorithm 1 in C++": 6900}


def main(quick: bool = False) -> None:
    table = measure.table(
        "Paper 003's naive Bayes, n = 100: effective draws of the worst probability per CPU second",
        "epsilon", "pymc_dp", "target", "met", "us per draw", "draws per effective draw",
        "with tuning, build", *(f"beside {name}" for name in OTHERS),
    )  # fmt: skip
    for epsilon, target in ((1, TARGET),) if quick else ((0.1, None), (1, TARGET), (10, None)):
        rng = np.random.default_rng(1)
        rows = paper003.naive_bayes_rows(paper003.N, rng)
        released = paper003.release_naive_bayes(*rows, epsilon, rng)
        model = paper003.naive_bayes_model(epsilon, released)
        ours = measure.sample(model, ["p", "q"], *((500, 100) if quick else (10_000, 1000)))
        table.add_row(
            f"{epsilon:g}",
            f"{ours.rate:.0f}",
            "" if target is None else str(target),
            measure.verdict(ours.rate, target),
            f"{ours.seconds / ours.draws * 1e6:.0f}",
            f"{ours.draws / ours.worst:.1f}",
            f"{ours.worst / ours.total:.0f}",
            *(f"{v} (x{ours.rate / v:.2g})" if target else "" for v in OTHERS.values()),
        )
    measure.show(table, "naive_bayes")


if __name__ == "__main__":
    main()
