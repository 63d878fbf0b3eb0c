"""Räisä (2021), section 6.3: what clipping does to the draws (figure 6.3).

Random walks and Hamiltonian Monte Carlo on the flat bananas, with hardly any noise, so that clipping of the
log likelihood ratios is all that keeps them from the posterior.

    python examples/paper002_clipping.py            # 5 repeats, about an hour of CPU time
    python examples/paper002_clipping.py --quick    # few rows and draws
"""

import logging
from dataclasses import replace

import joblib
import numpy as np
import paper002
import pymc as pm
from matplotlib.figure import Figure
from paper002 import PROBLEMS
from paper002_accuracy import clipped_share
from rich.console import Console
from rich.table import Table

import pymc_dp as dp

BOUNDS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
ALGORITHMS = {"random walk": 3000, "HMC": 500}
HARDLY_ANY = 1e-3  # noise over what one row can change: private draws need ten thousand times as much


def sample(name: str, algorithm: str, clip: float, repeat: int, *, n: int, draws: int) -> tuple[float, float]:
    """Return the discrepancy of the second half of a chain, and the share of clipped rows."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    problem = replace(PROBLEMS[name], n=min(n, PROBLEMS[name].n))
    rows = paper002.confidential_rows(problem, problem.n)
    rng = np.random.default_rng([repeat, 46237])
    wider = (PROBLEMS[name].n / problem.n) ** 0.5  # of the posterior of fewer rows
    with paper002.model_of(problem, rows, clip, clip_gradient=50.0):
        if algorithm == "HMC":
            mass = np.array([1.0, 0.5, *np.full(problem.d - 2, 0.4)])
            step = dp.PrivateHMC(
                noise_multiplier=HARDLY_ANY, gradient_noise=1.0, step_size=0.001 * wider, n_leapfrog=15,
                mass=mass, adapt=False,
            )  # fmt: skip
        else:
            scale = 0.01 * wider * (2 / problem.d) ** 0.5
            step = dp.PenaltyMetropolis(noise_multiplier=HARDLY_ANY, scale=scale, adapt=False)
        idata = pm.sample(
            draws - draws // 2, tune=draws // 2, chains=1, cores=1, step=step, random_seed=repeat,
            initvals={"theta": rng.normal(problem.centre, 0.01 * wider)}, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    drawn = idata.posterior["theta"].values[0]
    exact = paper002.exact_posterior(problem, rows, paper002.REFERENCE, rng)
    return dp.mmd(drawn, exact).root, clipped_share(problem, rows, drawn, step)


def main() -> None:
    args = paper002.arguments(
        __doc__, rows=(200_000, 5000), repeats=(5, 1), walks=(3000, 600), trajectories=(500, 100)
    )
    bounds = BOUNDS[::3] if args.quick else BOUNDS
    lengths = {"random walk": args.walks, "HMC": args.trajectories}
    table = Table(
        title="Discrepancy without noise, by the bound of a row's ratio (figure 6.3): median, range"
    )
    for column in ("model", "bound", *(f"{a}{what}" for a in ALGORITHMS for what in ("", ": clipped"))):
        table.add_column(column, justify="right", no_wrap=True)
    figure = Figure(figsize=(8, 6), layout="constrained")
    panels = figure.subplots(2, 2, squeeze=False)
    for column, name in enumerate(("flat-2d", "flat-10d")):
        calls = [(a, b, r) for a in ALGORITHMS for b in bounds for r in range(args.repeats)]
        found = joblib.Parallel(n_jobs=args.jobs)(
            joblib.delayed(sample)(name, a, b, r, n=args.rows, draws=lengths[a]) for a, b, r in calls
        )
        values = np.array(found).reshape(len(ALGORITHMS), len(bounds), args.repeats, 2)
        for k, bound in enumerate(bounds):
            cells = [f(v) for v in values[:, k] for f in (_distance, _share)]
            table.add_row(PROBLEMS[name].title, f"{bound:g}", *cells)
        table.add_section()
        for algorithm, drawn in zip(ALGORITHMS, values, strict=True):
            panels[0, column].semilogx(bounds, np.median(drawn[:, :, 0], axis=1), "o-", label=algorithm)
            panels[1, column].plot(drawn[:, :, 1].ravel(), drawn[:, :, 0].ravel(), "o", label=algorithm)
        panels[0, column].set(title=PROBLEMS[name].title, xlabel="bound", ylabel="discrepancy", ylim=0)
        panels[0, column].set_xticks(bounds, [f"{b:g}" for b in bounds])
        panels[0, column].minorticks_off()
        panels[1, column].set(xlabel="share of clipped rows", ylabel="discrepancy", ylim=0)
        panels[0, column].legend()
    Console(width=120).print(table)
    paper002.save(figure, args.output / "paper002_figure3.png")


def _distance(found: np.ndarray) -> str:
    return paper002.spread(found[:, 0])


def _share(found: np.ndarray) -> str:
    shares = found[~np.isnan(found[:, 1]), 1]
    return f"{shares.mean():.3f}" if len(shares) else "no move"


if __name__ == "__main__":
    main()
