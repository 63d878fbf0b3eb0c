"""Paper 000, section 4.3: Gaussian noise, with people's values integrated out and with values imputed.

People's values are from three normal distributions on [-10, 10]; each person releases the value with
Gaussian noise of standard deviation eta. Given its cluster a release is normal again, and under a base for
its variance tau2, which is at least eta^2, the atoms integrate out as well (equation 11 of the paper). So
three samplers have the same posterior: Neal 3 (values and atoms integrated out), Neal 2 (values integrated
out) and the private Neal 5 (values imputed). Figures 4 and 13 of the paper (densities), and its figure 5
(effective draws).

The paper takes eta from the classic formula at epsilon 5 to 50, where its proof ends at 1. What that noise
really promises is printed beside it, and the noise that keeps the promise, which is fitted too for delta .1.

    python examples/paper000_marginal.py            # 48 fits, ten minutes
    python examples/paper000_marginal.py --quick    # six short ones, half a minute
"""

import itertools
import math
import time
import warnings

import arviz as az
import numpy as np
import paper000
import pymc as pm
import pytensor.tensor as pt
from paper000 import BOUNDS, NORMALS
from rich.table import Table

import pymc_dp as dp

N, SLOTS = 250, 40
EPSILONS = (5.0, 10.0, 25.0, 50.0)
DELTAS = (0.01, 0.1, 0.25)
WIDTH = BOUNDS[1] - BOUNDS[0]
GRID = np.linspace(-15, 15, 121)
TRUTH = paper000.population(NORMALS, GRID)
# Where samplers are compared: by the density of a release, which is bounded. That of a value has long tails
# from draw to draw, since the base lets a cluster of values be as narrow as it likes.
POINTS = np.array([-10.0, -5.0, -2.5, 0.0, 2.5, 5.0, 10.0])
# Sweeps of a draw: those of Neal 5 cost little, and one does little.
SWEEPS = {"Neal 3": 5, "Neal 2": 5, "private Neal 5": 25}
LINES = {"Neal 3": "C0-", "Neal 2": "C1--", "private Neal 5": "C2:"}


def analyst() -> tuple[pm.Model, pm.Model]:
    """Return the model with people's values, and the one without; noise and release are data."""
    with pm.Model() as model:
        eta = pm.Data("eta", 1.0)
        released = pm.Data("released", np.zeros(N))
        labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=N, max_components=SLOTS)
        with warnings.catch_warnings():  # PyMC's, of its own quantile function
            warnings.filterwarnings("ignore", "RandomVariables .* were found in the derived graph")
            tau2 = pm.Truncated("tau2", pm.InverseGamma.dist(3, 3), lower=eta**2, shape=SLOTS)
        mu = pm.Normal("mu", 0, pt.sqrt(10 * tau2), shape=SLOTS)
        y = pm.Normal("y", mu[labels], pt.sqrt(tau2[labels] - eta**2))
        # not clamped, which is what integrates out: all values are within bounds
        dp.GaussianMechanism("z", y, sigma=eta, observed=released)
    return model, dp.marginalize(model, "y")


def samplers(model: pm.Model, marginal: pm.Model) -> dict:
    """Return the model and the steps of every sampler."""
    with marginal:
        atoms = dp.AtomUpdate()
        by_name = {
            "Neal 3": (marginal, dp.Neal3(n_cycles=SWEEPS["Neal 3"]), atoms),
            "Neal 2": (marginal, dp.Neal2(n_cycles=SWEEPS["Neal 2"]), atoms),
        }
    with model:
        five = dp.PrivateNeal5(moves="joint", n_auxiliary=1, n_cycles=SWEEPS["private Neal 5"])
        by_name["private Neal 5"] = (model, five, dp.AtomUpdate())
    return by_name


def textbook(epsilon: float, delta: float) -> float:
    """Return the standard deviation of the classic formula, beyond where it is proven as well."""
    return WIDTH * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def enough(epsilon: float, delta: float) -> float:
    """Return the least standard deviation that keeps the promise."""
    release = dp.GaussianMechanism.dist(0.0, epsilon=epsilon, delta=delta, sensitivity=WIDTH)
    return WIDTH / dp.guarantee(release).mu


def promised(eta: float, delta: float) -> float:
    """Return the epsilon that noise gives with this delta."""
    release = dp.GaussianMechanism.dist(0.0, sigma=eta, sensitivity=WIDTH)
    return dp.guarantee(release).to_approximate(delta).epsilon


def summary(idata, models: tuple[pm.Model, pm.Model], seconds: float, sweeps: int, seed: int) -> dict:
    """Return what a sampler found of people's values and of their releases, and how it fared."""
    k, ess = paper000.clusters(idata)
    values, releases = (
        dp.mixture_density(idata, model, grid, n_draws=500, prob=0.95, random_seed=seed)
        for model, grid in zip(models, (GRID, POINTS), strict=True)
    )
    heights = releases["density"].rename("height")
    return {
        "clusters": (k, float(az.mcse(idata.sample_stats["n_clusters"].astype(float)))),
        "heights": (heights.mean(("chain", "draw")).values, az.mcse(heights).values),
        "density": values,
        "distance": paper000.distance(values["mean"].values, TRUTH, GRID),
        "by sweep": 1000 * ess / sweeps,
        "by second": ess / seconds,
        "seconds": 1000 * seconds / sweeps,
    }


def differences(rows: dict, what: str) -> np.ndarray:
    """Compare the samplers in pairs, in Monte Carlo errors."""
    pairs = itertools.combinations([row[what] for row in rows.values()], 2)
    return np.array([(one[0] - other[0]) / np.hypot(one[1], other[1]) for one, other in pairs])


def show_noise(epsilons: tuple, deltas: tuple) -> None:
    """Print what the noise of the classic formula promises, and what would keep the promise."""
    table = Table(title=f"Gaussian noise for values on {list(BOUNDS)}")
    for name in ("delta", "epsilon", "classic formula", "its real epsilon", "noise that it takes"):
        table.add_column(name, justify="right")
    for delta, epsilon in itertools.product(deltas, epsilons):
        eta = textbook(epsilon, delta)
        numbers = (eta, promised(eta, delta), enough(epsilon, delta))
        table.add_row(f"{delta:g}", f"{epsilon:g}", *(f"{v:.3g}" for v in numbers))
    paper000.console().print(table)


def show(found: dict) -> None:
    """Print what was found, by which sampler, and whether they agree."""
    table = Table(title=f"{N} people: number of clusters, and total variation from the population's density")
    for name in ("noise", "delta", "epsilon", "eta", *SWEEPS, "z: k", "density"):
        table.add_column(name, justify="right")
    for (noise, delta, epsilon, eta), rows in found.items():
        cells = ["{:.2f} ({:.2f}); {:.2f}".format(*row["clusters"], row["distance"]) for row in rows.values()]
        worst = [f"{np.abs(differences(rows, what)).max():.1f}" for what in ("clusters", "heights")]
        table.add_row(noise, f"{delta:g}", f"{epsilon:g}", f"{eta:.2f}", *cells, *worst)
    paper000.console().print(table)
    table = Table(title="Effective numbers of clusters per 1000 sweeps; per CPU second; ms per sweep")
    for name in ("noise", "delta", "epsilon", *SWEEPS):
        table.add_column(name, justify="right")
    for (noise, delta, epsilon, _), rows in found.items():
        cells = [f"{r['by sweep']:.1f}; {r['by second']:.0f}; {r['seconds']:.3f}" for r in rows.values()]
        table.add_row(noise, f"{delta:g}", f"{epsilon:g}", *cells)
    paper000.console().print(table)
    print("z: largest difference between two samplers, in Monte Carlo errors.")
    for what, name in (
        ("clusters", "Mean number of clusters"),
        ("heights", "Density of a release at seven points"),
    ):
        z = np.abs([differences(rows, what) for rows in found.values()])
        print(
            f"{name}, samplers in pairs: {(z > 2).sum()} of {z.size} differences beyond two Monte Carlo "
            f"errors, the largest {z.max():.1f}."
        )
    for measure in ("by sweep", "by second"):
        order = [sorted(rows, key=lambda name, m=measure: -rows[name][m]) for rows in found.values()]
        print(
            f"Most effective draws {measure}: Neal 3 before Neal 2 before private Neal 5 in "
            f"{order.count(list(SWEEPS))} of {len(order)}."
        )


def draw_densities(found: dict, path) -> None:
    """Figures 4 and 13."""
    epsilons = list(dict.fromkeys(epsilon for _, _, epsilon, _ in found))
    groups = list(dict.fromkeys((noise, delta) for noise, delta, _, _ in found))
    figure, axes = paper000.panels(len(groups), len(epsilons), sharex=True, sharey=True)
    for (noise, delta, epsilon, eta), rows in found.items():
        ax = axes[groups.index((noise, delta)), epsilons.index(epsilon)]
        ax.plot(GRID, TRUTH, color="black", linewidth=1, label="population")
        band = rows["Neal 3"]["density"]
        ax.fill_between(GRID, band["lower"], band["upper"], color="C0", alpha=0.2, linewidth=0)
        for name, row in rows.items():
            ax.plot(GRID, row["density"]["mean"], LINES[name], label=name)
        real = f"really {promised(eta, delta):.3g}; " if noise == "classic" else ""
        title = f"epsilon = {epsilon:g}, delta = {delta:g}\n({real}{noise} eta = {eta:.2f})"
        ax.set_title(title, fontsize=8)
        ax.set(ylim=(0, 0.3))
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(4, 2 * len(epsilons)), frameon=False)
    paper000.save(figure, path)


def draw_samplers(found: dict, path) -> None:
    """Figure 5, and the effective draws by second; noise of the classic formula."""
    groups = list(dict.fromkeys(delta for noise, delta, _, _ in found if noise == "classic"))
    measures = {"by sweep": "per 1000 sweeps", "by second": "per CPU second"}
    figure, axes = paper000.panels(2, len(groups), sharex=True, sharey="row")
    for i, (measure, name) in enumerate(measures.items()):
        axes[i, 0].set_ylabel(f"effective draws\n{name}", fontsize=8)
        for j, delta in enumerate(groups):
            ax = axes[i, j]
            cells = {e: rows for (noise, d, e, _), rows in found.items() if (noise, d) == ("classic", delta)}
            for sampler, line in LINES.items():
                values = [rows[sampler][measure] for rows in cells.values()]
                ax.plot(list(cells), values, line, marker="o", markersize=3, label=sampler)
            ax.set(xscale="log", yscale="log")
            ax.set_xticks(list(cells), [f"{e:g}" for e in cells])
            ax.minorticks_off()
            if i == 0:
                ax.set_title(f"delta = {delta:g}")
            else:
                ax.set_xlabel("epsilon")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=min(3, 2 * len(groups)), frameon=False)
    paper000.save(figure, path)


def main() -> None:
    args = paper000.arguments(__doc__, draws=(2000, 100), tune=(500, 50))
    start = time.perf_counter()
    epsilons, deltas = ((5.0, 50.0), (0.1,)) if args.quick else (EPSILONS, DELTAS)
    cells = [("classic", d, e, textbook(e, d)) for d, e in itertools.product(deltas, epsilons)]
    if not args.quick:
        cells += [("sufficient", 0.1, e, enough(e, 0.1)) for e in epsilons]
    y, _ = paper000.people(NORMALS, N, np.random.default_rng([args.seed, N]))
    model, marginal = analyst()
    steps = samplers(model, marginal)
    show_noise(epsilons, deltas)
    found: dict = {}
    for cell in cells:
        eta = cell[-1]
        # simulated, so that the figures can be made again; to publish, use GaussianMechanism.release
        z = pm.draw(dp.GaussianMechanism.dist(y, sigma=eta, bounds=BOUNDS), random_seed=args.seed)
        for each in (model, marginal):
            pm.set_data({"eta": eta, "released": z}, model=each)
        found[cell] = {}
        for name, (its_model, *its_steps) in steps.items():
            idata, seconds = paper000.sample(
                its_model, *its_steps, draws=args.draws, tune=args.tune, seed=args.seed
            )
            sweeps = 2 * args.draws * SWEEPS[name]
            found[cell][name] = summary(idata, (model, marginal), seconds, sweeps, args.seed)
    show(found)
    draw_densities(found, args.output / "paper000_marginal_density.png")
    draw_samplers(found, args.output / "paper000_marginal_samplers.png")
    print(f"{sum(map(len, found.values()))} fits in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
