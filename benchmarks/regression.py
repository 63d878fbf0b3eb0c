"""Paper 003's regression: effective draws of the worst coefficient per CPU second, over three releases.

`pm.sample` with its default steps and PyMC's own loop, beside nutpie on all latent records, and the
R package dapper 1.1 (n = 100, epsilon 1: 0.86).
"""

import numpy as np

from benchmarks import measure
from examples import paper003

DAPPER = {(100, 1): 0.86}
TARGETS = {
    (100, 1): 2000, (100, 10): 2000, (100, 50): 1500,
    (1000, 1): 800, (1000, 10): 500, (1000, 50): 500,
    (10_000, 1): 12, (10_000, 10): 150, (10_000, 50): 300,
}  # fmt: skip
DRAWS = {100: (3000, 1000), 1000: (3000, 1000), 10_000: (3000, 1000)}
# How well a chain mixes differs between releases: effective draws and seconds of several are added up.
RELEASES = 3
# nutpie: enough draws for a figure where it takes less than minutes
NUTPIE_DRAWS = {100: (500, 500), 1000: (100, 200)}


def model(n: int, epsilon: float, k: int = 0):
    """Build the model of the k-th release of n people, drawn from the paper's parameters."""
    rng = np.random.default_rng([n, epsilon, k] if k else [n, epsilon])
    released = paper003.release_regression(*paper003.regression_rows(n, rng), epsilon, rng)
    return paper003.regression_model(epsilon, released, n)


def main(quick: bool = False) -> None:
    table = measure.table(
        "Paper 003's regression: effective draws of the worst coefficient per CPU second",
        "n", "epsilon", "pymc_dp", "lowest", "target", "met", "us per draw", "draws per effective draw",
        "with tuning, build", "nutpie", "pymc_dp / nutpie", "dapper",
    )  # fmt: skip
    for (n, epsilon), target in TARGETS.items():
        if quick and (n, epsilon) not in ((100, 1), (1000, 10)):
            continue
        draws, tune = (300, 200) if quick else DRAWS[n]
        runs = [measure.sample(model(n, epsilon, k), ["beta"], draws, tune) for k in range(RELEASES)]
        ours = measure.together(runs)
        theirs = None
        if n in NUTPIE_DRAWS and not (quick and n > 100):
            theirs = measure.nutpie(model(n, epsilon), ["beta"], *NUTPIE_DRAWS[n])
        dapper = DAPPER.get((n, epsilon))
        table.add_row(
            str(n),
            str(epsilon),
            f"{ours.rate:.0f}",
            f"{min(run.rate for run in runs):.0f}",
            str(target),
            measure.verdict(ours.rate, target),
            f"{ours.seconds / ours.draws * 1e6:.0f}",
            f"{ours.draws / ours.worst:.1f}",
            f"{ours.worst / ours.total:.0f}",
            "" if theirs is None else f"{theirs.rate:.2g}",
            "" if theirs is None else f"{ours.rate / theirs.rate:.0f}",
            "" if dapper is None else f"{dapper} (x{ours.rate / dapper:.0f})",
        )
    measure.show(table, "regression")


if __name__ == "__main__":
    main()
