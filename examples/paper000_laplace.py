"""Paper 000, section 4.1: a mixture of normals behind Laplace noise, by four samplers.

People's values are from three normal distributions on [-10, 10]; each person releases a noisy value. Given
the release: the density of the population with its bands, beside a deconvolution kernel estimate (figure 1
and figure 9 of the paper); acceptance and effective draws of the number of clusters by sampler (figure 2);
how well the three groups are found again (figure 10), the number of clusters (figure 11), and how far the
posterior is from the prior (figure 1, last panel).

    python examples/paper000_laplace.py            # 80 fits, four minutes
    python examples/paper000_laplace.py --quick    # 8 short ones, half a minute
"""

import time

import numpy as np
import paper000
import pymc as pm
from paper000 import BOUNDS, NORMALS
from rich.table import Table
from sklearn.metrics import adjusted_rand_score

import pymc_dp as dp

SIZES = (50, 200, 500, 1000)
EPSILONS = (1.0, 2.0, 5.0, 10.0, 50.0)
WIDTH = BOUNDS[1] - BOUNDS[0]
GRID = np.linspace(-15, 15, 201)
TRUTH = paper000.population(NORMALS, GRID)
SWEEPS = 5  # of a draw
SAMPLERS = {
    "Neal 5, m = 1": lambda: dp.PrivateNeal5(moves="joint", n_auxiliary=1, n_cycles=SWEEPS),
    "Neal 5, m = 5": lambda: dp.PrivateNeal5(moves="joint", n_auxiliary=5, n_cycles=SWEEPS),
    "slice": lambda: dp.PrivateSlice(n_cycles=SWEEPS),
    "default": lambda: dp.PrivateNeal5(n_cycles=SWEEPS),
}


def analyst(n: int) -> pm.Model:
    """Return the model; epsilon and the release are data, so that they can be changed."""
    with pm.Model() as model:
        epsilon = pm.Data("epsilon", 1.0)
        released = pm.Data("released", np.zeros(n))
        dp.LaplaceMechanism(
            "z", paper000.normal_records(n), scale=WIDTH / epsilon, bounds=BOUNDS, observed=released
        )
    return model


def summary(idata, seconds: float, draws: int) -> dict[str, float]:
    """Return how a sampler fared."""
    k, ess = paper000.clusters(idata)
    number = idata.sample_stats["n_clusters"]
    sweeps = 2 * draws * SWEEPS / 1000
    return {
        "acceptance": float(idata.sample_stats["cluster_acceptance"].mean()),
        "moved": float(idata.sample_stats["labels_moved"].mean()),
        "clusters": k,
        "error": float(number.std()) / ess**0.5,
        "by sweep": ess / sweeps,
        "by second": ess / seconds,
        "seconds": seconds / sweeps,
    }


def learnt(idata, model: pm.Model, part: np.ndarray, z: np.ndarray, scale: float, seed: int) -> dict:
    """Return what the posterior says of the population and of the groups."""
    density = dp.mixture_density(idata, model, GRID, n_draws=1000, prob=0.95, random_seed=seed)
    taught = dp.informativeness(idata, model, GRID, n_draws=500, n_prior=500, random_seed=seed)
    few = idata.isel(draw=slice(None, None, max(1, idata.posterior.sizes["draw"] // 100)))
    kernel = paper000.deconvolution_kde(z, paper000.laplace_transform(scale), 2**0.5 * scale, GRID)
    return {
        "density": density,
        "prior": taught["prior_mean"],
        "kernel": kernel,
        "hellinger": float(taught["overall"]),
        "rand": adjusted_rand_score(part, dp.point_partition(few)),
        "distance": paper000.distance(density["mean"].values, TRUTH, GRID),
        "kernel distance": paper000.distance(kernel, TRUTH, GRID),
    }


def show(found: dict, fitted: dict) -> None:
    """Print what was learnt, and how the samplers fared."""
    table = Table(title="Posterior by the default sampler")
    for name in ("n", "epsilon", "clusters", "adjusted Rand", "Hellinger from prior"):
        table.add_column(name, justify="right")
    table.add_column("distance from truth", justify="right")
    table.add_column("kernel estimate's", justify="right")
    for (n, epsilon), row in found.items():
        numbers = [fitted[n, epsilon, "default"]["clusters"], row["rand"], row["hellinger"]]
        cells = [f"{v:.2f}" for v in (*numbers, row["distance"], row["kernel distance"])]
        table.add_row(f"{n}", f"{epsilon:g}", *cells)
    paper000.console().print(table)
    table = Table(title="Samplers: acceptance; effective numbers of clusters per 1000 sweeps; per CPU second")
    for name in ("n", "epsilon", *SAMPLERS, "exp(-epsilon)"):
        table.add_column(name, justify="right")
    for n, epsilon in found:
        rows = [fitted[n, epsilon, name] for name in SAMPLERS]
        cells = [f"{r['acceptance']:.2f}; {r['by sweep']:.1f}; {r['by second']:.0f}" for r in rows]
        table.add_row(
            f"{n}", f"{epsilon:g}", *(c.replace("nan", "-") for c in cells), f"{np.exp(-epsilon):.2g}"
        )
    paper000.console().print(table)
    table = Table(title="CPU seconds per 1000 sweeps, mean over epsilons")
    for name in ("n", *SAMPLERS):
        table.add_column(name, justify="right")
    for n in dict.fromkeys(n for n, _ in found):
        means = [
            np.mean([r["seconds"] for (m, _, s), r in fitted.items() if (m, s) == (n, name)])
            for name in SAMPLERS
        ]
        table.add_row(f"{n}", *(f"{v:.3f}" for v in means))
    paper000.console().print(table)
    z = [
        (fitted[*at, name]["clusters"] - fitted[*at, "default"]["clusters"])
        / np.hypot(fitted[*at, name]["error"], fitted[*at, "default"]["error"])
        for at in found
        for name in SAMPLERS
        if name != "default"
    ]
    print(
        f"Mean number of clusters, other samplers against the default: {np.sum(np.abs(z) > 2)} of {len(z)} "
        f"differences beyond two Monte Carlo errors, the largest {np.abs(z).max():.1f}."
    )
    print("Distance: total variation between the estimated density and the population's.")


def draw_densities(found: dict, path) -> None:
    """Figures 1 and 9."""
    sizes, epsilons = (list(dict.fromkeys(values)) for values in zip(*found, strict=True))
    figure, axes = paper000.panels(len(sizes), len(epsilons), sharex=True, sharey=True)
    for i, n in enumerate(sizes):
        for j, epsilon in enumerate(epsilons):
            ax, row = axes[i, j], found[n, epsilon]
            ax.plot(GRID, TRUTH, color="black", linewidth=1, label="population")
            ax.plot(GRID, row["prior"], color="grey", linestyle=":", label="prior mean")
            ax.plot(GRID, row["kernel"], color="C2", linewidth=1, label="deconvolution kernel estimate")
            paper000.show_density(ax, row["density"])
            ax.set(title=f"n = {n}, epsilon = {epsilon:g}", ylim=(0, 0.35))
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(4, len(epsilons)), frameon=False)
    paper000.save(figure, path)


def draw_samplers(fitted: dict, path) -> None:
    """Figure 2, and the effective draws per second."""
    sizes, epsilons, _ = (list(dict.fromkeys(values)) for values in zip(*fitted, strict=True))
    measures = {
        "acceptance": "acceptance",
        "by sweep": "effective draws per 1000 sweeps",
        "by second": "effective draws per CPU second",
    }
    figure, axes = paper000.panels(len(measures), len(sizes), sharex=True, sharey="row")
    for i, (measure, name) in enumerate(measures.items()):
        axes[i, 0].set_ylabel(name, fontsize=8)
        for j, n in enumerate(sizes):
            ax = axes[i, j]
            for sampler in SAMPLERS:
                values = [fitted[n, epsilon, sampler][measure] for epsilon in epsilons]
                ax.plot(epsilons, values, marker="o", markersize=3, label=sampler)
            ax.set(xscale="log", yscale="log" if i else "linear")
            ax.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
            ax.minorticks_off()
            if i == 0:
                ax.plot(epsilons, np.exp(-np.array(epsilons)), "k--", linewidth=1, label="exp(-epsilon)")
                ax.set(title=f"n = {n}", ylim=(0, 1))
    for ax in axes[-1]:
        ax.set_xlabel("epsilon")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=5 if len(sizes) > 1 else 1,
        frameon=False,
    )
    paper000.save(figure, path)


def draw_learnt(found: dict, fitted: dict, path) -> None:
    """Figures 10 and 11, and the last panel of figure 1."""
    sizes, epsilons = (list(dict.fromkeys(values)) for values in zip(*found, strict=True))
    figure, axes = paper000.panels(1, 4, size=(3.2, 2.8))
    names = {
        "rand": "adjusted Rand index",
        "clusters": "mean number of clusters",
        "hellinger": "Hellinger distance from prior",
        "distance": "distance from truth",
    }
    for ax, (key, name) in zip(axes[0], names.items(), strict=True):
        for n in sizes:
            rows = [found[n, e] | {"clusters": fitted[n, e, "default"]["clusters"]} for e in epsilons]
            ax.plot(epsilons, [row[key] for row in rows], marker="o", markersize=3, label=f"n = {n}")
        ax.set(title=name, xlabel="epsilon", xscale="log", ylim=(0, None))
        ax.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
        ax.minorticks_off()
    axes[0, 0].legend(frameon=False)
    paper000.save(figure, path)


def main() -> None:
    args = paper000.arguments(__doc__, draws=(2000, 150), tune=(1000, 100))
    start = time.perf_counter()
    sizes, epsilons = ((50,), (1.0, 50.0)) if args.quick else (SIZES, EPSILONS)
    found, fitted = {}, {}
    for n in sizes:
        y, part = paper000.people(NORMALS, n, np.random.default_rng([args.seed, n]))
        model = analyst(n)
        with model:
            atoms = dp.AtomUpdate()
            steps = {name: make() for name, make in SAMPLERS.items()}
        for epsilon in epsilons:
            # simulated, so that the figures can be made again; to publish, use LaplaceMechanism.release
            released = dp.LaplaceMechanism.dist(y, epsilon=epsilon, bounds=BOUNDS)
            z = pm.draw(released, random_seed=args.seed)
            pm.set_data({"epsilon": epsilon, "released": z}, model=model)
            for name, step in steps.items():
                idata, seconds = paper000.sample(
                    model, step, atoms, draws=args.draws, tune=args.tune, seed=args.seed
                )
                fitted[n, epsilon, name] = summary(idata, seconds, args.draws)
            found[n, epsilon] = learnt(idata, model, part, z, WIDTH / epsilon, args.seed)
    show(found, fitted)
    draw_densities(found, args.output / "paper000_laplace_density.png")
    draw_samplers(fitted, args.output / "paper000_laplace_samplers.png")
    draw_learnt(found, fitted, args.output / "paper000_laplace_learnt.png")
    print(f"{len(fitted)} fits in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
