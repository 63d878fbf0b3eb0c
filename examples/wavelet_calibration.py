"""Wavelet mechanism: how much noise a budget needs, and what less of it buys.

The data are those of section 4.2 of Beraha, Favaro & Rao: 250 people's values in [0, 1], a mixture of
Beta(5, 50), Beta(50, 50) and Beta(50, 5). Each person releases noisy Haar wavelets (J = 4). The noise
is calibrated in two ways for the same epsilon: by the Haar basis's own sensitivity, and by the larger
constant of the paper, which serves any wavelet.

First the privacy of both is measured: the largest log ratio of the release's density over all pairs of
values, at the release where it is largest. It is epsilon for the first calibration, so no less noise
would do, and a seventh of epsilon for the second, so most of its noise protects nobody.

Then the density of the population is estimated from each release, by a mixture of 24 Beta kernels with
unknown weights. A release tells nothing of a person's value beyond which of 32 cells it is in, so its
likelihood is a sum over the cells; no record needs to be imputed.

    python examples/wavelet_calibration.py            # a minute or two
    python examples/wavelet_calibration.py --quick    # fewer draws, two budgets
"""

import argparse
import itertools
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from rich.console import Console
from rich.table import Table
from scipy import stats

import pymc_dp as dp

N, LEVEL = 250, 4
CELLS = 2 ** (LEVEL + 1)
MIDDLES = (np.arange(CELLS) + 0.5) / CELLS
EPSILONS = (10.0, 50.0, 250.0)
CALIBRATIONS = {"haar": "tight", "butucea": "paper's"}
COLOURS = {"haar": "C0", "butucea": "C1"}

PARTS = [stats.beta(5, 50), stats.beta(50, 50), stats.beta(50, 5)]
GRID = np.linspace(0.0025, 0.9975, 200)
TRUTH = np.mean([part.pdf(GRID) for part in PARTS], axis=0)

# Kernels of the mixture: their means are spread over [0, 1], their sd is at most 0.041.
N_KERNELS, CONCENTRATION = 24, 150
MEANS = (np.arange(N_KERNELS) + 0.5) / N_KERNELS
KERNELS = stats.beta(CONCENTRATION * MEANS[:, None], CONCENTRATION * (1 - MEANS[:, None]))
DENSITIES = KERNELS.pdf(GRID)
CELL_PROBABILITIES = np.diff(KERNELS.cdf(np.arange(CELLS + 1) / CELLS), axis=1)


def confidential_values(seed: int) -> np.ndarray:
    """Return the people's values."""
    rng = np.random.default_rng(seed)
    part = rng.integers(len(PARTS), size=N)
    return rng.beta(np.array([5, 50, 50])[part], np.array([50, 50, 5])[part])


def log_densities(y: np.ndarray, released: np.ndarray, **noise: object) -> np.ndarray:
    """Log density of each row of a release given the value beside it."""
    release = dp.WaveletMechanism.dist(y, level=LEVEL, **noise)
    return pm.logp(release, released).eval(mode="FAST_COMPILE")


def measured_epsilon(**noise: object) -> float:
    """Return the largest log ratio of densities over all pairs of values.

    For one pair the ratio is largest where every coefficient is beyond the one of the first value, seen
    from the second.
    """
    rows = dp.WaveletMechanism.dist(MIDDLES, level=LEVEL, **noise).owner.op.coefficients(MIDDLES)
    one, other = np.array(list(itertools.permutations(range(CELLS), 2))).T
    released = 1e3 * np.sign(rows[one] - rows[other])
    ratio = log_densities(MIDDLES[one], released, **noise) - log_densities(MIDDLES[other], released, **noise)
    return float(ratio.max())


def mixture() -> pm.Model:
    """Return the model of the weights given the likelihood of each cell for each person."""
    with pm.Model() as model:
        likelihood = pm.Data("likelihood", np.ones((N, CELLS)))
        weights = pm.Dirichlet("weights", np.full(N_KERNELS, 0.5))
        pm.Potential("release", pt.log(likelihood @ (CELL_PROBABILITIES.T @ weights)).sum())
    return model


def posterior(model: pm.Model, released: np.ndarray, draws: int, seed: int, **noise: object) -> np.ndarray:
    """Return draws of the density on the grid, (draws, len(GRID))."""
    table = log_densities(np.tile(MIDDLES, N), np.repeat(released, CELLS, axis=0), **noise).reshape(N, CELLS)
    with model:
        pm.set_data({"likelihood": np.exp(table - table.max(axis=1, keepdims=True))})
        idata = pm.sample(
            draws, tune=draws, chains=2, cores=1, random_seed=seed, progressbar=False, target_accept=0.9
        )
    return idata.posterior["weights"].values.reshape(-1, N_KERNELS) @ DENSITIES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer draws, two budgets")
    parser.add_argument("--seed", type=int, default=1, help="of the data and of the simulated noise")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output", help="folder")
    args = parser.parse_args()
    draws, epsilons = (150, EPSILONS[:2]) if args.quick else (1000, EPSILONS)

    y, model = confidential_values(args.seed), mixture()
    table = Table(title=f"Wavelets of {N} people, J = {LEVEL}, two calibrations for one epsilon")
    for column in ("epsilon", "calibration", "noise scale", "measured epsilon", "distance", "band"):
        table.add_column(column, justify="right")
    figure, axes = plt.subplots(
        1, len(epsilons), figsize=(4 * len(epsilons), 3.6), sharey=True, layout="constrained"
    )
    for epsilon, ax in zip(epsilons, axes, strict=True):
        ax.plot(GRID, TRUTH, color="black", linewidth=1, label="population")
        for calibration, name in CALIBRATIONS.items():
            noise = {"epsilon": epsilon, "calibration": calibration}
            mechanism = dp.WaveletMechanism.dist(y, level=LEVEL, **noise)
            # simulated, so that the figure can be made again; to publish, use WaveletMechanism.release
            released = pm.draw(mechanism, random_seed=args.seed)
            density = posterior(model, released, draws, args.seed, **noise)
            low, high = np.quantile(density, (0.05, 0.95), axis=0)
            scale = float(mechanism.owner.op.dist_params(mechanism.owner)[1].eval().item())
            table.add_row(
                f"{epsilon:g}",
                name,
                f"{scale:.2f}",
                f"{measured_epsilon(**noise):.2f}",
                f"{0.5 * np.abs(density.mean(0) - TRUTH).mean():.2f}",
                f"{(high - low).mean():.2f}",
            )
            ax.fill_between(GRID, low, high, color=COLOURS[calibration], alpha=0.2, linewidth=0)
            ax.plot(GRID, density.mean(0), color=COLOURS[calibration], label=f"{name} calibration")
        ax.set(title=f"epsilon = {epsilon:g}", xlabel="value", ylim=(0, None))
    axes[0].set_ylabel("density")
    axes[0].legend(frameon=False)
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "wavelet_calibration.png"
    figure.savefig(path, dpi=150)
    Console(width=100).print(table)
    print("Measured epsilon: the largest log ratio of the release's density over all pairs of values.")
    print("Distance: total variation between the posterior mean of the density and the population's.")
    print("Band: mean width of the 90 % credible band.")
    print(f"Figure: {path}")


if __name__ == "__main__":
    main()
