"""Paper 003, section 5: linear regression from clamped, noisy sums of products (figure 2).

One confidential data set of 100 people; at every epsilon 100 releases of its nine sums; for each
release the posterior mean of the three coefficients. With little privacy noise the means gather at
the posterior mean that somebody who sees the data would compute; with much they return to the
prior's mean, 0.

    python examples/paper003_linear_regression.py            # 500 chains, minutes
    python examples/paper003_linear_regression.py --quick    # few, half a minute
"""

import time
from functools import partial

import numpy as np
import paper003
from paper003 import EPSILONS, PRIOR_SD, VARIANCE, N
from rich.console import Console
from rich.table import Table

import pymc_dp as dp

NAMES = ("b0", "b1", "b2")


def confidential_rows() -> tuple[np.ndarray, np.ndarray]:
    """Return the one confidential data set."""
    return paper003.regression_rows(N, np.random.default_rng(2022))


def non_private_mean(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Posterior mean of beta given the confidential rows: conjugate."""
    design = np.column_stack([np.ones(N), x])
    precision = design.T @ design / VARIANCE + np.eye(3) / PRIOR_SD**2
    return np.linalg.solve(precision, design.T @ y / VARIANCE)


def posterior(epsilon: float, release: int, *, draws: int, tune: int) -> dict:
    """Release the sums once, and summarise the posterior given that release."""
    rng = np.random.default_rng([int(1000 * epsilon), release])
    released = paper003.release_regression(*confidential_rows(), epsilon, rng)
    model, steps = paper003.built(paper003.regression_model, 9, (dp.AncillaryUpdate, dp.RecordImputation))
    points, stats = paper003.run_chain(
        model, steps, {"epsilon": epsilon, "released": released}, draws=draws, tune=tune, rng=rng
    )
    return {
        "mean": points["beta"].mean(axis=0),
        "sd": points["beta"].std(axis=0),
        "acceptance": stats["record_acceptance"].mean(),
        "acceptance_min": stats["record_acceptance_min"].min(),
    }


def main() -> None:
    args = paper003.arguments(__doc__, releases=(100, 3), draws=(1000, 200), tune=(500, 100))
    start = time.perf_counter()
    found = paper003.over_releases(
        partial(posterior, draws=args.draws, tune=args.tune), args.releases, args.jobs
    )
    exact = non_private_mean(*confidential_rows())

    table = Table(title=f"Posterior means over {args.releases} releases of one data set (figure 2)")
    for column in ("epsilon", *(f"{n}: mean (sd)" for n in NAMES), "posterior sd", "acceptance"):
        table.add_column(column, justify="right", no_wrap=True)
    for epsilon, mean, sd, rate in zip(
        EPSILONS, found["mean"], found["sd"], found["acceptance"], strict=True
    ):
        table.add_row(
            f"{epsilon:g}",
            *(f"{m:+.2f} ({s:.2f})" for m, s in zip(mean.mean(0), mean.std(0), strict=True)),
            " ".join(f"{s:.2f}" for s in sd.mean(0)),
            f"{rate.mean():.3f}",
        )
    table.add_section()
    table.add_row("no noise", *(f"{m:+.2f}" for m in exact), "", "")
    table.add_row("prior", *["+0.00"] * 3, f"{PRIOR_SD:.2f}", "")
    Console(width=100).print(table)
    print("The paper gives figure 2 without numbers; it does not expect the non-private means to be")
    print("recovered in full, because of clamping.")
    for epsilon, lowest in zip(EPSILONS, found["acceptance_min"].min(axis=1), strict=True):
        bound = np.exp(-epsilon)
        print(
            f"epsilon {epsilon:4g}: lowest acceptance of any proposal {lowest:.3g}, "
            f"{'above' if lowest >= bound else 'BELOW'} the bound exp(-epsilon) = {bound:.3g}"
        )

    path = args.output / "paper003_figure2.png"
    paper003.draw_means(found["mean"], exact, 0.0, NAMES, (9, 3.6), path)
    print(f"{args.releases * len(EPSILONS)} chains in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
