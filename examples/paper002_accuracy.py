"""Räisä (2021), section 6.4: how near private draws come to the posterior, by algorithm and budget.

For each of the eight models and each algorithm: the maximum mean discrepancy of private draws from the exact
posterior, with the author's hyperparameters, and with a few per cent of the budget spent on a normal
approximation first (figures 6.4, 6.5 and 6.9), and which share of rows was clipped (figures 6.6 to 6.8).

    python examples/paper002_accuracy.py                # at epsilon 4, 10 repeats
    python examples/paper002_accuracy.py --budgets 1    # at epsilon 0.5 to 8
    python examples/paper002_accuracy.py --quick        # one model, few rows, a minute
"""

import logging
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import joblib
import numpy as np
import paper002
import pymc as pm
from matplotlib.figure import Figure
from paper002 import EPSILON, PROBLEMS, Problem
from rich.console import Console
from rich.table import Table

import pymc_dp as dp

BUDGETS = (0.5, 1.0, 2.0, 4.0, 8.0)
PAIRS, LOOKED_AT = 20, 10_000  # moves (and draws) at which clipped rows are counted, and rows
STEPS = {
    "penalty": dp.PenaltyMetropolis,
    "minibatch": dp.MinibatchPenalty,
    "barker": dp.BarkerMetropolis,
    "hmc": dp.PrivateHMC,
}


@dataclass(frozen=True)
class Setting:
    """How a model is sampled.

    Attributes
    ----------
    step : str
        Key of STEPS.
    clip, clip_gradient : float
        Bounds of the likelihood.
    draws : int or None
        Iterations; by default as many as noise of `tau` times the root of n allows.
    tau : float
        Noise on a ratio, in the author's units.
    share : float
        Share of the budget for a normal approximation.
    clip_near : float
        Bound of rows with the approximation.
    of_laws : bool
        Whether the bound is in standard deviations of a row's change under the model.
    options : dict
        Of the step.
    """

    step: str
    clip: float
    clip_gradient: float | None = None
    draws: int | None = None
    tau: float | None = None
    share: float = 0.0
    clip_near: float = 2.0
    rounds: int = 3
    of_laws: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def authors(
    tau: float, clip: float, scale: float | None = None, updates: str = "joint", **hmc: float
) -> Setting:
    """The author's hyperparameters of the penalty algorithm, or of HMC."""
    if not hmc:
        return Setting("penalty", clip, tau=tau, options={"scale": scale, "updates": updates})
    options = {
        "step_size": hmc["eta"],
        "n_leapfrog": int(hmc["leaps"]),
        "gradient_noise": hmc["tau_g"] / tau,
    }
    return Setting("hmc", clip, hmc["clip_gradient"], tau=tau, options=options)


# The author's hyperparameters, from the program; but for the circle, where they take a million draws.
AUTHORS = {
    "flat-2d": {
        "penalty": authors(0.1, 2, 0.008),
        "guided": authors(0.1, 1.8, 0.008, "guided"),
        "hmc": authors(0.1, 2, tau_g=0.4, leaps=10, eta=0.0005, clip_gradient=1.0),
    },
    "flat-10d": {
        "penalty": authors(0.1, 2, 0.0015),
        "guided": authors(0.1, 3, 0.0015, "guided"),
        "hmc": authors(0.05, 2.5, tau_g=0.2, leaps=10, eta=0.00015, clip_gradient=3.0),
    },
    "tempered-2d": {
        "penalty": authors(0.2, 5, 0.035),
        "guided": authors(0.2, 3.5, 0.04, "guided"),
        "hmc": authors(0.2, 2.5, tau_g=0.6, leaps=10, eta=0.01, clip_gradient=2.0),
    },
    "tempered-10d": {
        "penalty": authors(0.18, 3, 0.02),
        "guided": authors(0.1, 3, 0.04, "guided"),
        "hmc": authors(0.08, 2.5, tau_g=0.2, leaps=10, eta=0.015, clip_gradient=3.5),
    },
    "gauss-30d": {
        "penalty": authors(0.06, 3, 0.00084),
        "guided": authors(0.2, 3, 0.00084, "guided"),
        "hmc": authors(0.05, 2.5, tau_g=0.1, leaps=5, eta=0.00025, clip_gradient=6.0),
    },
    "narrow-2d": {
        "penalty": authors(0.2, 5.5, 0.0015),
        "guided": authors(0.1, 8.5, 0.0015, "guided"),
        "hmc": authors(0.15, 5.0, tau_g=0.25, leaps=5, eta=0.00045, clip_gradient=2.8),
    },
    "correlated-2d": {
        "penalty": authors(0.07, 50, 0.00015),
        "guided": authors(0.1, 45, 0.0002, "guided"),
        "hmc": authors(0.05, 30, tau_g=0.2, leaps=8, eta=0.00007, clip_gradient=29.0),
    },
}
# What the author's program reaches at epsilon 4, measured with it.
THEIRS = {
    "flat-2d": {"penalty": 0.13, "guided": 0.30, "hmc": 0.32, "minibatch": 0.53, "barker": 0.63},
    "flat-10d": {"penalty": 0.26, "guided": 0.43, "hmc": 0.50, "minibatch": 0.72, "barker": 0.63},
    "tempered-2d": {"penalty": 0.37, "guided": 0.33, "hmc": 0.17, "minibatch": 0.48, "barker": 0.56},
    "gauss-30d": {"penalty": 0.48, "guided": 0.28, "hmc": 0.51},
    "correlated-2d": {"penalty": 0.65, "guided": 0.62, "hmc": 0.60},
}


def near(step: str, clip_gradient: float, draws: int, share: float = 0.1, **options: Any) -> Setting:
    """A setting with a normal approximation; `clip_gradient` is that of its first round."""
    known = {key: options.pop(key) for key in ("clip_near", "rounds", "of_laws") if key in options}
    return Setting(step, 1.0, clip_gradient, draws, share=share, options=options, **known)


def of_laws(clip: float, setting: Setting) -> Setting:
    """The same, with the bound in standard deviations of a row's change under the model."""
    return replace(setting, clip=clip, of_laws=True)


def walk(step: str, draws: int, scale: Any, **options: Any) -> Setting:
    """A walk in the values themselves, with the bound of three standard deviations of a row's change."""
    return Setting(step, 3, None, draws, of_laws=True, options={"scale": scale, **options})


def trajectories(
    draws: int, step_size: float, n_leapfrog: int, clip_gradient: float, mass: float | Sequence[float] = 1.0
) -> Setting:
    """Hamiltonian trajectories in the values themselves."""
    options = {"step_size": step_size, "n_leapfrog": n_leapfrog, "gradient_noise": 2.0, "mass": mass}
    return Setting("hmc", 3, clip_gradient, draws, of_laws=True, options=options)


# Steps of bananas that are much higher than wide.
TALL = np.array([0.1, 0.4])
TALL_10 = np.array([0.04, 0.15, *np.full(8, 0.012)])
NARROW = np.array([0.008, 0.03])
# "autoregressive" is the penalty algorithm as well, with proposals from the approximation.
OURS: dict[str, dict[str, Setting]] = {
    "flat-2d": {
        "penalty": of_laws(3, near("penalty", 3, 4000, rounds=5)),
        "guided": of_laws(2.5, near("penalty", 3, 4000, rounds=5, updates="guided")),
        "hmc": of_laws(3, near("hmc", 3, 200, rounds=5, step_size=0.4, n_leapfrog=4, gradient_noise=2.0)),
        "minibatch": of_laws(2.5, near("minibatch", 3, 3000, rounds=5, batch_size=30_000)),
        "barker": of_laws(2.5, near("barker", 3, 3000, rounds=5, batch_size=30_000)),
    },
    "flat-10d": {
        "penalty": of_laws(2, near("penalty", 6, 4000, rounds=5)),
        "guided": of_laws(2, near("penalty", 6, 4000, rounds=5, updates="guided")),
        "autoregressive": of_laws(2, near("penalty", 6, 3000, rounds=5, updates="autoregressive")),
        "hmc": of_laws(2, near("hmc", 6, 60, rounds=5, step_size=0.35, n_leapfrog=4, gradient_noise=1.5)),
        "minibatch": of_laws(2.5, near("minibatch", 6, 3000, rounds=5, batch_size=60_000)),
        "barker": of_laws(2.5, near("barker", 6, 3000, rounds=5, batch_size=60_000)),
    },
    "tempered-2d": {
        "penalty": walk("penalty", 40_000, TALL),
        "guided": walk("penalty", 40_000, 0.16, updates="guided"),
        "hmc": trajectories(2000, 0.02, 25, 3, (16.0, 1.0)),
        "minibatch": walk("minibatch", 20_000, TALL, batch_size=1000),
        "barker": walk("barker", 20_000, TALL, batch_size=1000),
    },
    "tempered-10d": {
        "penalty": walk("penalty", 20_000, TALL_10),
        "guided": walk("penalty", 20_000, np.array([0.1, 0.3, *np.full(8, 0.05)]), updates="guided"),
        "hmc": trajectories(500, 0.015, 25, 3, (16.0, 1.0, *[2.5] * 8)),
        "minibatch": walk("minibatch", 20_000, TALL_10, batch_size=2000),
        "barker": walk("barker", 20_000, TALL_10, batch_size=2000),
    },
    "gauss-30d": {
        "penalty": near("penalty", 8, 3000),
        "guided": near("penalty", 8, 3000, updates="guided"),
        "autoregressive": near("penalty", 8, 1000, updates="autoregressive"),
        "hmc": near("hmc", 8, 40, step_size=0.25, n_leapfrog=4, gradient_noise=1.5),
    },
    "narrow-2d": {
        "penalty": walk("penalty", 4000, NARROW),
        "guided": walk("penalty", 3000, NARROW, updates="guided"),
        "hmc": trajectories(200, 0.0016, 15, 8, (16.0, 1.0)),
        "minibatch": walk("minibatch", 4000, NARROW, batch_size=45_000),
        "barker": walk("barker", 1000, NARROW, batch_size=100_000),
    },
    "correlated-2d": {
        "penalty": of_laws(2, near("penalty", 60, 4000, rounds=4)),
        "guided": of_laws(2, near("penalty", 60, 4000, rounds=4, updates="guided")),
        "autoregressive": of_laws(2, near("penalty", 60, 2000, rounds=4, updates="autoregressive")),
        "hmc": of_laws(
            2, near("hmc", 60, 200, rounds=4, step_size=0.4, n_leapfrog=4, gradient_noise=2.0)
        ),
    },
    "circle": {
        "penalty": walk("penalty", 60_000, 0.3),
        "guided": walk("penalty", 20_000, 0.3, updates="guided"),
        "hmc": trajectories(1000, 0.04, 40, 0.003),
        "minibatch": walk("minibatch", 60_000, 0.3, batch_size=1000),
        "barker": walk("barker", 20_000, 0.3, batch_size=1000),
    },
}  # fmt: skip


def run(name: str, setting: Setting, epsilon: float, repeat: int, n: int | None = None) -> dict[str, float]:
    """Sample once with the whole budget; return how near the draws are, and what was clipped."""
    problem = PROBLEMS[name]
    problem = problem if n is None else replace(problem, n=min(n, problem.n))
    rows = paper002.confidential_rows(problem, problem.n)
    rng = np.random.default_rng([repeat, 2021])
    # ledgers of made-up rows may be forgotten
    warnings.filterwarnings("ignore", "PrivacyLedger without a path")
    with paper002.model_of(problem, rows, setting.clip, setting.clip_gradient, setting.of_laws):
        ledger = dp.PrivacyLedger(epsilon=epsilon, delta=problem.delta)
        length = setting.draws or affordable(problem, setting, epsilon)
        start: dict[str, Any] = {"theta": rng.normal(problem.centre, problem.start_sd)}
        options, tune = dict(setting.options), length // 2
        if "batch_size" in options and problem.n < PROBLEMS[name].n:
            options["batch_size"] = max(2, options["batch_size"] * problem.n // PROBLEMS[name].n)
        if setting.share:
            found = dp.normal_approximation(
                ledger=ledger, share=setting.share, start=start, clip=setting.clip_near, rounds=setting.rounds
            )
            start, tune = found.start(rng), length // 10
            options["approximation"] = found
        plan = {"draws": length - tune, "tune": tune, "chains": 1}
        step = STEPS[setting.step](ledger=ledger, adapt=False, **plan, **options)
        began = time.process_time()
        idata = pm.sample(
            **plan, cores=1, step=step, initvals=start, random_seed=repeat, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
        seconds = time.process_time() - began
    draws = idata.posterior["theta"].values[0]
    exact = paper002.exact_posterior(problem, rows, paper002.REFERENCE, rng)
    return {
        "mmd": dp.mmd(draws, exact).root,
        "accepted": float(idata.sample_stats["private_accepted"].mean()),
        "clipped": clipped_share(problem, rows, draws, step),
        "clipped_gradients": clipped_gradients(problem, rows, draws, step),
        "iterations": length,
        "ms": 1e3 * seconds / length,
    }


def affordable(problem: Problem, setting: Setting, epsilon: float) -> int:
    """How many iterations the author's noise allows."""
    mu = 1 / dp.accounting.noise_multiplier(1, epsilon=epsilon, delta=problem.delta)
    ratio = 1 / (setting.tau * problem.n**0.5) ** 2
    if setting.step == "penalty":
        return max(4, int(mu**2 / ratio))
    gradient = ratio / setting.options["gradient_noise"] ** 2
    return max(4, int((mu**2 - gradient) / (ratio + setting.options["n_leapfrog"] * gradient)))


def clipped_share(problem: Problem, rows: np.ndarray, draws: np.ndarray, step: Any) -> float:
    """Share of clipped rows, in accepted moves: a look at the rows, possible as they are made up."""
    moves = np.flatnonzero((np.diff(draws, axis=0) != 0).any(axis=1))
    if not len(moves):
        return np.nan
    rows = rows[:LOOKED_AT]
    found = []
    for k in moves[np.linspace(0, len(moves) - 1, min(PAIRS, len(moves))).astype(int)]:
        change = paper002.log_densities(problem, rows, draws[k + 1])
        change -= paper002.log_densities(problem, rows, draws[k])
        found.append(np.mean(np.abs(change) > step.clip * step.distance(draws[k + 1], draws[k], np.zeros(0))))
    return float(np.mean(found))


def clipped_gradients(problem: Problem, rows: np.ndarray, draws: np.ndarray, step: Any) -> float:
    """Share of rows whose gradients are clipped."""
    if not isinstance(step, dp.PrivateHMC):
        return np.nan
    rows = rows[:LOOKED_AT]
    found = []
    for theta in draws[np.linspace(0, len(draws) - 1, PAIRS).astype(int)]:
        norms = np.linalg.norm(paper002.gradients(problem, rows, theta) @ step._inverse_metric, axis=1)
        found.append(np.mean(norms > step.clip_gradient))
    return float(np.mean(found))


ALGORITHMS = ("penalty", "guided", "hmc", "autoregressive", "minibatch", "barker")


def settings(name: str) -> dict[tuple[str, str], Setting]:
    """All settings of a model, by whose they are and by algorithm."""
    tables = {"author": AUTHORS, "ours": OURS}
    return {(who, a): s for who, table in tables.items() for a, s in table.get(name, {}).items()}


def all_runs(
    names: Sequence[str], budgets: Sequence[float], repeats: int, rows: int, jobs: int
) -> dict[tuple[str, str, str, float], list[dict[str, float]]]:
    """Run every setting at every budget, several times."""
    calls = [
        (name, who, algorithm, epsilon, repeat)
        for name in names
        for (who, algorithm) in settings(name)
        for epsilon in budgets
        for repeat in range(repeats)
    ]

    def one(name: str, who: str, algorithm: str, epsilon: float, repeat: int) -> dict[str, float]:
        logging.getLogger("pymc").setLevel(logging.ERROR)
        return run(name, settings(name)[who, algorithm], epsilon, repeat, rows)

    found: dict[tuple[str, str, str, float], list[dict[str, float]]] = {}
    results = joblib.Parallel(n_jobs=jobs)(joblib.delayed(one)(*call) for call in calls)
    for (*key, _), result in zip(calls, results, strict=True):
        found.setdefault(tuple(key), []).append(result)
    return found


def show(found: dict, names: Sequence[str], rows: int) -> None:
    """Print what was found at epsilon 4, one line for each setting."""
    table = Table(title="Discrepancy from the exact posterior at epsilon 4: median (range)")
    for column in ("model", "algorithm", "settings", "author's program", "pymc_dp", "accepted"):
        table.add_column(
            column, justify="left" if column in ("model", "algorithm") else "right", no_wrap=True
        )
    for column in ("iterations", "ms each", "rows clipped", "gradients"):
        table.add_column(column, justify="right", no_wrap=True)
    for name in names:
        for who, algorithm in settings(name):
            runs = found[name, who, algorithm, EPSILON]
            mean = {key: np.mean([r[key] for r in runs]) for key in runs[0]}
            theirs = THEIRS.get(name, {}).get(algorithm) if rows >= PROBLEMS[name].n else None
            table.add_row(
                PROBLEMS[name].title, algorithm, who, "" if theirs is None else f"{theirs:.2f}",
                paper002.spread([r["mmd"] for r in runs]), f"{mean['accepted']:.2f}",
                f"{mean['iterations']:.0f}", f"{mean['ms']:.2f}", f"{mean['clipped']:.3f}",
                "" if np.isnan(mean["clipped_gradients"]) else f"{mean['clipped_gradients']:.3f}",
            )  # fmt: skip
        table.add_section()
    Console(width=150).print(table)


def draw(found: dict, names: Sequence[str], budgets: Sequence[float], key: str, label: str) -> Figure:
    """Plot one number against the budget, a panel for each model."""
    figure = Figure(figsize=(3.4 * len(names), 3), layout="constrained")
    for ax, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for who, algorithm in settings(name):
            values = [[r[key] for r in found[name, who, algorithm, b]] for b in budgets]
            if not np.isnan(values).all():
                ax.semilogx(
                    budgets, np.median(values, axis=1), "o-" if who == "ours" else "o--",
                    label=f"{algorithm}, {who}", color=f"C{ALGORITHMS.index(algorithm)}",
                )  # fmt: skip
        ax.set(title=PROBLEMS[name].title, xlabel="epsilon", ylim=0)
        ax.set_xticks(budgets, [f"{b:g}" for b in budgets])
        ax.minorticks_off()
    figure.axes[0].set_ylabel(label)
    lines = {line.get_label(): line for ax in figure.axes for line in ax.lines}
    figure.legend(lines.values(), lines.keys(), loc="outside right upper", fontsize=7)
    return figure


def main() -> None:
    args = paper002.arguments(__doc__, repeats=(10, 1), rows=(200_000, 4000), budgets=(0, 0))
    names = ["flat-2d"] if args.quick else list(PROBLEMS)
    budgets = BUDGETS if args.budgets else (EPSILON,)
    start = time.perf_counter()
    found = all_runs(names, budgets, args.repeats, args.rows, args.jobs)
    show(found, names, args.rows)
    for key, label, number in (
        ("mmd", "discrepancy", 4), ("clipped", "share of clipped rows", 6),
        ("clipped_gradients", "share of clipped gradients", 8),
    ):  # fmt: skip
        figure = draw(found, names, budgets, key, label)
        paper002.save(figure, args.output / f"paper002_figure{number}.png")
    print(f"{sum(map(len, found.values()))} runs in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
