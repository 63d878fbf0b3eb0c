"""Paper 000, section 4.2: mixtures of Beta kernels behind Laplace noise and behind noisy wavelets.

People's values are from three Beta distributions on [0, 1]. Each person releases either the value with
Laplace noise, or its Haar wavelets to level J, each with Laplace noise. The wavelets' noise is calibrated
in two ways for the same epsilon: by the Haar basis's own sensitivity, and by the paper's larger constant
(7 to 9 times as much at these levels). Figure 3 of the paper, and the acceptance of its figure 12.

The base Gamma(2, 2) of both parameters hardly reaches the population's Beta(50, 50): kernels must be wide,
or pay for being narrow. So there are two regions of high posterior probability, one wide kernel and three
narrower ones, and a chain rarely goes from one to the other. One chain starts as `pm.sample` does, and one
from the release (each value at its likeliest place, in three groups); where they differ, trust neither.

    python examples/paper000_wavelet.py            # 21 fits, six minutes
    python examples/paper000_wavelet.py --quick    # three short ones, half a minute
"""

import time

import numpy as np
import paper000
import pymc as pm
from paper000 import BETAS
from rich.table import Table

import pymc_dp as dp

N = 250
EPSILONS = (10.0, 50.0, 250.0)
MECHANISMS = {
    "Laplace": (dp.LaplaceMechanism, {"bounds": (0, 1)}),
    **{f"wavelets, J = {level}": (dp.WaveletMechanism, {"level": level}) for level in (2, 4, 6)},
}
CALIBRATIONS = {"haar": "tight", "butucea": "paper's"}
COLOURS = {"haar": "C0", "butucea": "C1"}
GRID = np.linspace(0.0025, 0.9975, 200)
TRUTH = paper000.population(BETAS, GRID)


def likeliest(mechanism: type, released: np.ndarray, settings: dict) -> np.ndarray:
    """Return where in [0, 1] each person's release points to."""
    if mechanism is dp.LaplaceMechanism:
        return released
    cells = 2 ** (settings["level"] + 1)
    middles = (np.arange(cells) + 0.5) / cells
    wavelets = mechanism.dist(middles, **settings).owner.op.coefficients(middles)
    # all rows have the same length
    return middles[np.argmax(released @ wavelets.T, axis=1)]


def fit(mechanism: type, settings: dict, y: np.ndarray, args) -> dict:
    """Release once, sample the posterior, and summarise it."""
    # simulated, so that the figure can be made again; to publish, use the mechanism's `release`
    released = pm.draw(mechanism.dist(y, **settings), random_seed=args.seed)
    with pm.Model() as model:
        mechanism("z", paper000.beta_records(N), observed=released, **settings)
        step = dp.PrivateNeal5()
    starts = [None, paper000.start_from(likeliest(mechanism, released, settings))]
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
    }


def show(found: dict) -> None:
    """Print how near the population's density every mechanism came."""
    table = Table(title=f"Density of {N} people's values; chains from the default start, from the release")
    for name in ("mechanism", "noise", "epsilon", "distance", "clusters", "acceptance", "exp(-epsilon)"):
        table.add_column(name, justify="right")
    for (name, calibration, epsilon), row in found.items():
        pairs = (row["distance"], row["clusters"], row["acceptance"])
        table.add_row(
            name,
            CALIBRATIONS[calibration],
            f"{epsilon:g}",
            *(", ".join(f"{v:.2f}" for v in pair) for pair in pairs),
            f"{np.exp(-epsilon):.2g}",
        )
    paper000.console().print(table)
    print("Distance: total variation between the posterior mean density and the population's.")
    print("Acceptance: of joint proposals of label and record.")


def draw(found: dict, epsilons: tuple, names: list, path) -> None:
    """Figure 3."""
    figure, axes = paper000.panels(len(names), len(epsilons), sharex=True, sharey=True)
    for (name, calibration, epsilon), row in found.items():
        ax = axes[names.index(name), epsilons.index(epsilon)]
        what, color = f"{CALIBRATIONS[calibration]} noise", COLOURS[calibration]
        usual, guided = row["density"]
        paper000.show_density(ax, guided, color=color, label=what)
        ax.plot(GRID, usual["mean"], color=color, linestyle=":", label=f"{what}, default start")
        ax.set_title(f"{name}, epsilon = {epsilon:g}", fontsize=9)
        ax.set(ylim=(0, 6))
    for ax in axes.flat:
        ax.plot(GRID, TRUTH, color="black", linewidth=1, label="population")
    axes[-1, -1].legend(frameon=False, fontsize=7)
    paper000.save(figure, path)


def main() -> None:
    args = paper000.arguments(__doc__, draws=(2000, 200), tune=(3000, 200))
    start = time.perf_counter()
    epsilons = (50.0,) if args.quick else EPSILONS
    names = ["Laplace", "wavelets, J = 4"] if args.quick else list(MECHANISMS)
    y, _ = paper000.people(BETAS, N, np.random.default_rng([args.seed, N]))
    found = {}
    for name in names:
        mechanism, given = MECHANISMS[name]
        for calibration in CALIBRATIONS if name != "Laplace" else ("haar",):
            own = {"calibration": calibration} if name != "Laplace" else {}
            for epsilon in epsilons:
                settings = given | own | {"epsilon": epsilon}
                found[name, calibration, epsilon] = fit(mechanism, settings, y, args)
    show(found)
    draw(found, epsilons, names, args.output / "paper000_wavelet.png")
    print(f"{len(found)} fits in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
