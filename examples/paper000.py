"""Data, models and a frequentist baseline that the reproductions of paper 000 share.

Paper: Beraha, Favaro & Rao, "MCMC for Bayesian nonparametric mixture modeling under differential privacy".
Settings that its text leaves out are those of the authors' programs: concentration 1 everywhere.
"""

import argparse
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from matplotlib.figure import Figure
from rich.console import Console
from scipy import stats

import pymc_dp as dp

OUTPUT = Path(__file__).resolve().parent / "output"

# --- confidential data ----------------------------------------------------------------------------

BOUNDS = (-10.0, 10.0)
NORMALS = [stats.truncnorm(BOUNDS[0] - m, BOUNDS[1] - m, loc=m) for m in (-5, 0, 5)]
BETAS = [stats.beta(5, 50), stats.beta(50, 50), stats.beta(50, 5)]


def people(parts: list, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw n people's values from an even mixture, and which part each one is from."""
    part = rng.integers(len(parts), size=n)
    return np.choose(part, [p.rvs(n, random_state=rng) for p in parts]), part


def population(parts: list, grid: np.ndarray) -> np.ndarray:
    """Density of an even mixture."""
    return np.mean([part.pdf(grid) for part in parts], axis=0)


# --- the analyst's models -------------------------------------------------------------------------


def normal_records(n: int, centre: Any = 0.0, a: Any = 3.0, b: Any = 3.0, slots: int = 40) -> Any:
    """Declare normal records with a Normal-Inverse-Gamma base, in the model of the context."""
    labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=n, max_components=slots)
    sigma2 = pm.InverseGamma("sigma2", a, b, shape=slots)
    mu = pm.Normal("mu", centre, pt.sqrt(10 * sigma2), shape=slots)
    return pm.Normal("y", mu[labels], pt.sqrt(sigma2[labels]))


def beta_records(n: int, shape: float = 2.0, slots: int = 40) -> Any:
    """Declare Beta records with independent Gamma(shape, 2) laws of both parameters."""
    labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=n, max_components=slots)
    a = pm.Gamma("a", shape, 2, shape=slots)
    b = pm.Gamma("b", shape, 2, shape=slots)
    return pm.Beta("y", a[labels], b[labels])


def sample(
    model: pm.Model, *steps: Any, draws: int, tune: int, seed: int, chains: int = 2, starts: Any = None
) -> tuple[Any, float]:
    """Sample, and measure the CPU seconds of the draws after tuning; a start for each chain, or none."""
    clock: list[tuple[int, float]] = []

    def note(trace: Any, draw: Any) -> None:
        if not draw.tuning:
            clock.append((draw.chain, time.process_time()))

    with model:
        idata = pm.sample(
            draws,
            tune=tune,
            chains=chains,
            cores=1,
            step=list(steps),
            initvals=starts,
            random_seed=seed,
            callback=note,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    of_chains = [[t for c, t in clock if c == chain] for chain in range(chains)]
    return idata, sum(times[-1] - times[0] for times in of_chains)


def start_from(values: np.ndarray, slots: int = 40) -> dict[str, np.ndarray]:
    """Start Beta records at guesses, in three groups by size, each with the moments of its middle half."""
    values = np.clip(values, 0.01, 0.99)
    group = np.argsort(np.argsort(values)) * 3 // len(values)
    a, b = np.ones((2, slots))
    for k in range(3):
        part = np.sort(values[group == k])[len(values) // 12 : -len(values) // 12]
        size = np.clip(part.mean() * (1 - part.mean()) / (part.var() + 1e-4) - 1, 2, 20)
        a[k], b[k] = size * part.mean(), size * (1 - part.mean())
    return {"y": values, "labels": group, "a": a, "b": b}


def clusters(idata: Any) -> tuple[float, float]:
    """Posterior mean of the number of clusters, and its effective number of draws."""
    k = idata.sample_stats["n_clusters"].values.astype(float)
    return float(k.mean()), float(az.ess(k))


def r_hat(density: Any) -> float:
    """Largest R-hat of a density over the points of its grid."""
    return float(az.rhat(density["density"]).max())


# --- frequentist baseline -------------------------------------------------------------------------


def laplace_transform(scale: float) -> Callable[[np.ndarray], np.ndarray]:
    """Characteristic function of Laplace noise."""
    return lambda t: 1 / (1 + (scale * t) ** 2)


def normal_transform(sigma: float) -> Callable[[np.ndarray], np.ndarray]:
    """Characteristic function of Gaussian noise."""
    return lambda t: np.exp(-((sigma * t) ** 2) / 2)


def deconvolution_kde(
    z: np.ndarray, noise: Callable[[np.ndarray], np.ndarray], noise_sd: float, grid: np.ndarray
) -> np.ndarray:
    """Deconvolution kernel density estimate (Stefanski & Carroll 1990), made a density on the grid.

    The bandwidth minimises the integrated squared error that a bootstrap from a pilot estimate would have,
    which has a closed form (Delaigle & Gijbels 2004). The first pilot is a normal density, and then every
    estimate is the pilot of the next, until the bandwidth stays; one round alone smooths several modes into
    one. (The paper took R's `decon`, which has a bootstrap too.)
    """
    spread = np.sqrt(max(z.var() - noise_sd**2, z.var() / 10))
    widths = spread * np.geomspace(0.03, 3, 80)
    t = np.linspace(0, 1 / widths[0], 4001)
    empirical = np.exp(1j * np.outer(t, z)).mean(axis=1)

    def kernel(h: float) -> np.ndarray:
        return (1 - np.minimum(h * t, 1) ** 2) ** 3

    def divided(numerator: np.ndarray, h: float, power: int = 1) -> np.ndarray:
        """Divide by the noise's transform where the kernel is not zero."""
        return numerator / np.where(h * t < 1, np.maximum(noise(t), 1e-100), 1) ** power

    def error(h: float, pilot: np.ndarray) -> float:
        """Expected integrated squared error, less what does not depend on h."""
        k = kernel(h)
        parts = divided(k**2 / z.size, h, 2) + pilot * k * ((1 - 1 / z.size) * k - 2)
        return float(np.trapezoid(parts, t))

    pilot, h = np.exp(-((spread * t) ** 2)), np.inf
    for _ in range(20):
        previous, h = h, widths[np.argmin([error(h, pilot) for h in widths])]
        estimated = divided(empirical * kernel(h), h)
        pilot = np.abs(estimated) ** 2
        if h == previous:
            break
    estimate = np.trapezoid(np.real(np.exp(-1j * np.outer(grid, t)) * estimated), t, axis=1)
    estimate = np.maximum(estimate, 0)
    return estimate / np.trapezoid(estimate, grid)


# --- comparing, drawing ---------------------------------------------------------------------------


def distance(one: np.ndarray, other: np.ndarray, grid: np.ndarray) -> float:
    """Total variation between two densities."""
    return float(0.5 * np.trapezoid(np.abs(one - other), grid))


def panels(rows: int, columns: int, size: tuple[float, float] = (3.0, 2.3), **kwargs: Any) -> tuple:
    """One figure with (rows, columns) panels."""
    figure = Figure(figsize=(columns * size[0], rows * size[1]), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **kwargs)


def show_density(ax: Any, found: Any, color: str = "C0", label: str = "posterior mean") -> None:
    """Draw the posterior mean of a density and its pointwise band."""
    ax.fill_between(found.point, found["lower"], found["upper"], color=color, alpha=0.25, linewidth=0)
    ax.plot(found.point, found["mean"], color=color, label=label)


def save(figure: Figure, path: Path) -> None:
    """Write a figure, and say where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    print(f"Figure: {path}")


def console() -> Console:
    """Return where tables are printed."""
    return Console(width=118)


def arguments(description: str, **full_and_quick: tuple[int, int]) -> argparse.Namespace:
    """Command line: sizes as (full, quick) pairs, each of which can be given by name as well."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few settings and draws, for CI")
    parser.add_argument("--seed", type=int, default=1, help="of the data, the noise and the chains")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the figures")
    for name, (full, quick) in full_and_quick.items():
        parser.add_argument(f"--{name}", type=int, help=f"default {full}, quick {quick}")
    args = parser.parse_args()
    for name, (full, quick) in full_and_quick.items():
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else full)
    logging.getLogger("pymc").setLevel(logging.ERROR)
    return args
