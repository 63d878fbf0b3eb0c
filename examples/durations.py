"""Durations of people under zCDP: the analysis of paper 000's section 6, on data that anybody has.

The paper's waiting times of blood donors were never published. Here are the days from transplant to death
or to the end of the study, of the first 69 patients with a heart transplant at Stanford (Miller 1976; with
statsmodels). Every patient releases the logarithm of the number of days, known to be between those of 1 and
1800 days, with Gaussian or with Laplace noise, at the paper's budget rho = 17.8. Laplace noise of scale
width / sqrt(2 rho) keeps sqrt(2 rho)-differential privacy, which implies rho-zCDP.

The density of the log durations, from both releases, is compared with what the patients' own values give
without privacy (the same model behind hardly any noise) and with deconvolution kernel estimates. The base is
chosen by each release: mean of the released values, E[sigma^2] half their variance, Var[sigma^2] = 1/2.

    python examples/durations.py            # half a minute
    python examples/durations.py --quick    # fewer draws
"""

import time

import numpy as np
import paper000
import pymc as pm
from rich.table import Table
from statsmodels.datasets import heart

import pymc_dp as dp

RHO = 17.8
BOUNDS = (0.0, float(np.log(1800)))
WIDTH = BOUNDS[1] - BOUNDS[0]
SIGMA = SCALE = WIDTH / (2 * RHO) ** 0.5
NO_NOISE = 1e-3  # of the posterior without privacy
GRID = np.linspace(BOUNDS[0] - 3, BOUNDS[1] + 3, 201)
MECHANISMS = {
    "Gaussian noise": (dp.GaussianMechanism, {"rho": RHO}),
    "Laplace noise": (dp.LaplaceMechanism, {"scale": SCALE}),
    "not private": (dp.GaussianMechanism, {"sigma": NO_NOISE}),
}
# characteristic function of the noise, and its standard deviation
NOISES = {
    "Gaussian noise": (paper000.normal_transform(SIGMA), SIGMA),
    "Laplace noise": (paper000.laplace_transform(SCALE), 2**0.5 * SCALE),
    "not private": (paper000.normal_transform(NO_NOISE), NO_NOISE),
}


def base(z: np.ndarray) -> dict[str, float]:
    """Return the empirical Bayes base: mean of sigma^2, and its variance, of an inverse Gamma law."""
    mean, variance = z.var() / 2, 0.5
    a = mean**2 / variance + 2
    return {"centre": z.mean(), "a": a, "b": mean * (a - 1)}


def fit(mechanism: type, noise: dict, z: np.ndarray, args) -> dict:
    """Sample the posterior given a release."""
    with pm.Model() as model:
        y = paper000.normal_records(len(z), **base(z))
        released = mechanism("z", y, bounds=BOUNDS, observed=z, **noise)
        step = dp.PrivateNeal5()
    idata, seconds = paper000.sample(model, step, draws=args.draws, tune=args.tune, seed=args.seed)
    density = dp.mixture_density(idata, model, GRID, n_draws=1000, prob=0.95, random_seed=args.seed)
    taught = dp.informativeness(idata, model, GRID, n_draws=500, n_prior=500, random_seed=args.seed)
    k, ess = paper000.clusters(idata)
    return {
        "density": density,
        "guarantee": dp.guarantee(released),
        "clusters": k,
        "ess": ess,
        "r_hat": paper000.r_hat(density),
        "acceptance": float(idata.sample_stats["cluster_acceptance"].mean()),
        "informativeness": float(taught["overall"]),
        "band": float((density["upper"] - density["lower"]).mean()),
        "seconds": seconds,
    }


def show(found: dict) -> None:
    """Print the comparison."""
    truth = found["not private"]["density"]["mean"].values
    table = Table(title="Log durations of 69 patients")
    for name in ("release", "rho", "distance", "kernel's", "band", "Hellinger from prior", "clusters"):
        table.add_column(name, justify="right")
    for name in ("acceptance", "effective draws", "r_hat"):
        table.add_column(name, justify="right")
    for name, row in found.items():
        private = name != "not private"
        numbers = (row["density"]["mean"].values, row["kernel"])
        table.add_row(
            name,
            f"{row['guarantee'].to_zcdp().rho:.3g}" if private else "-",
            *(f"{paper000.distance(v, truth, GRID):.2f}" for v in numbers),
            f"{row['band']:.3f}",
            f"{row['informativeness']:.2f}",
            f"{row['clusters']:.1f}",
            f"{row['acceptance']:.2f}",
            f"{row['ess']:.0f}",
            f"{row['r_hat']:.2f}",
        )
    paper000.console().print(table)
    print("Distance: total variation from the posterior mean density without privacy; the kernel's from the")
    print("same. Band: mean width of the pointwise 95 % band.")


def draw(found: dict, released: dict, y: np.ndarray, path) -> None:
    """Figure 6, and the released values of figure 14 below."""
    private = [name for name in found if name != "not private"]
    figure, axes = paper000.panels(2, len(private), size=(4.5, 2.8), sharex=True)
    for name, ax, below in zip(private, *axes, strict=True):
        ax.hist(y, bins=18, range=BOUNDS, density=True, color="0.85", label="patients")
        paper000.show_density(ax, found["not private"]["density"], "C1", "not private")
        paper000.show_density(ax, found[name]["density"], "C0", name)
        ax.plot(GRID, found[name]["kernel"], color="C2", linewidth=1, label="deconvolution kernel estimate")
        ax.set(title=name, ylim=(0, 0.6))
        ax.legend(frameon=False, fontsize=7)
        below.hist(released[name], bins=18, color="C0", alpha=0.5)
        below.set(xlabel="log(days)", title="released")
        below.set(xlim=(GRID[0], GRID[-1]))
    axes[0, 0].set_ylabel("density")
    axes[1, 0].set_ylabel("patients")
    paper000.save(figure, path)


def main() -> None:
    args = paper000.arguments(__doc__, draws=(4000, 300), tune=(2000, 200))
    start = time.perf_counter()
    y = np.log(heart.load_pandas().data["survival"].to_numpy())
    found, released = {}, {}
    for name, (mechanism, noise) in MECHANISMS.items():
        # simulated, so that the figure can be made again; to publish, use the mechanism's `release`
        z = pm.draw(mechanism.dist(y, bounds=BOUNDS, **noise), random_seed=args.seed)
        released[name] = z
        found[name] = fit(mechanism, noise, z, args)
        found[name]["kernel"] = paper000.deconvolution_kde(z, *NOISES[name], GRID)
    show(found)
    draw(found, released, y, args.output / "durations.png")
    print(f"{len(found)} fits in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
