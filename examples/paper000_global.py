"""Paper 000, section 5 and appendix C: a density from values drawn from a smoothed histogram.

A curator holds the values of 250 people, from three Beta distributions, and publishes k values drawn from a
smoothed histogram with m bins. As in the paper, m = L (floor(n^(1/5)) + 1) and k = floor(n^(3/5)) + 1. The
smoothing for a budget follows from the inequality k log(1 + (1 - delta) m / (n delta)) <= epsilon; the
paper's has -1 in the place of 1 +, and would not bound what one person can change.

Kernels are Beta, with a base of Gamma(2, 2) laws for both parameters (figure 7), or Gamma(90, 2), which
leaves narrow kernels only (figure 8). One chain starts as `pm.sample` does, and one from the released
values in three groups: see paper000_wavelet.py.

    python examples/paper000_global.py            # 18 fits, some minutes
    python examples/paper000_global.py --quick    # two short ones, half a minute
"""

import time

import numpy as np
import paper000
import pymc as pm
from paper000 import BETAS
from rich.table import Table

import pymc_dp as dp
from pymc_dp.mechanisms.smoothed_histogram import smoothing_for

N = 250
LEVELS = (2, 4, 6)  # L
K = int(N**0.6) + 1
EPSILONS = (10.0, 50.0, 250.0)
BASES = {"Gamma(2, 2)": 2.0, "Gamma(90, 2)": 90.0}
COLOURS = {"Gamma(2, 2)": "C0", "Gamma(90, 2)": "C1"}
GRID = np.linspace(0.0025, 0.9975, 200)
TRUTH = paper000.population(BETAS, GRID)


def n_bins(level: int) -> int:
    """Return the paper's number of bins."""
    return level * (int(N**0.2) + 1)


def fit(shape: float, level: int, epsilon: float, y: np.ndarray, args) -> dict:
    """Release once, sample the posterior, and summarise it."""
    settings = {"n_bins": n_bins(level), "epsilon": epsilon}
    mechanism = dp.SmoothedHistogramSample
    # simulated, so that the figure can be made again; to publish, use the mechanism's `release`
    released = pm.draw(mechanism.dist(y, n_released=K, **settings), random_seed=args.seed)
    with pm.Model() as model:
        mechanism("w", paper000.beta_records(N, shape), observed=released, **settings)
        step = dp.PrivateNeal5()
    # as many guesses as people; who is who does not matter to this release
    guesses = np.quantile(released, (np.arange(N) + 0.5) / N)
    starts = [None, paper000.start_from(guesses)]
    idata, _ = paper000.sample(model, step, draws=args.draws, tune=args.tune, seed=args.seed, starts=starts)
    chains = [
        dp.mixture_density(idata.isel(chain=[c]), model, GRID, n_draws=500, prob=0.95, random_seed=args.seed)
        for c in range(2)
    ]
    return {
        "density": chains,
        "distance": [paper000.distance(chain["mean"].values, TRUTH, GRID) for chain in chains],
        "acceptance": idata.sample_stats["cluster_acceptance"].mean("draw").values,
        "clusters": idata.sample_stats["n_clusters"].mean("draw").values,
        "smoothing": smoothing_for(epsilon, n_bins(level), N, K),
    }


def show(found: dict) -> None:
    """Print how near the population's density every release came."""
    table = Table(title=f"{K} values for {N} people; chains from the default start, from the release")
    for name in ("base", "L", "bins", "epsilon", "smoothing", "distance", "clusters", "acceptance"):
        table.add_column(name, justify="right")
    table.add_column("exp(-epsilon)", justify="right")
    for (base, level, epsilon), row in found.items():
        pairs = (row["distance"], row["clusters"], row["acceptance"])
        table.add_row(
            base,
            f"{level}",
            f"{n_bins(level)}",
            f"{epsilon:g}",
            f"{row['smoothing']:.2g}",
            *(", ".join(f"{v:.2f}" for v in pair) for pair in pairs),
            f"{np.exp(-epsilon):.2g}",
        )
    paper000.console().print(table)
    print("Distance: total variation between the posterior mean density and the population's.")
    print("Acceptance: of joint proposals of label and record.")


def draw(found: dict, levels: tuple, epsilons: tuple, path) -> None:
    """Figures 7 and 8 in one."""
    figure, axes = paper000.panels(len(levels), len(epsilons), sharex=True, sharey=True)
    for (base, level, epsilon), row in found.items():
        ax = axes[levels.index(level), epsilons.index(epsilon)]
        usual, guided = row["density"]
        paper000.show_density(ax, guided, color=COLOURS[base], label=base)
        ax.plot(GRID, usual["mean"], color=COLOURS[base], linestyle=":", label=f"{base}, default start")
        ax.set_title(f"L = {level}, epsilon = {epsilon:g}", fontsize=9)
        ax.set(ylim=(0, 6))
    for ax in axes.flat:
        ax.plot(GRID, TRUTH, color="black", linewidth=1, label="population")
    axes[-1, -1].legend(frameon=False, fontsize=7)
    paper000.save(figure, path)


def main() -> None:
    args = paper000.arguments(__doc__, draws=(800, 200), tune=(400, 200))
    start = time.perf_counter()
    levels, epsilons = ((4,), (50.0,)) if args.quick else (LEVELS, EPSILONS)
    y, _ = paper000.people(BETAS, N, np.random.default_rng([args.seed, N]))
    found = {
        (base, level, epsilon): fit(shape, level, epsilon, y, args)
        for base, shape in BASES.items()
        for level in levels
        for epsilon in epsilons
    }
    show(found)
    draw(found, levels, epsilons, args.output / "paper000_global.png")
    print(f"{len(found)} fits in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
