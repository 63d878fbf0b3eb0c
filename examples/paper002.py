"""The eight models of Räisä's thesis, and what their reproductions share.

Räisä, "Differentially private Markov chain Monte Carlo" (2021), chapters 5 and 6. Hyperparameters that the
text does not give are those of the author's program, github.com/oraisa/masters-thesis.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from matplotlib.figure import Figure
from scipy import stats

import pymc_dp as dp

OUTPUT = Path(__file__).resolve().parent / "output"
EPSILON = 4.0
REFERENCE = 5000  # points of the exact posterior that draws are compared with


@dataclass(frozen=True)
class Problem:
    """One of the eight models.

    Attributes
    ----------
    title : str
    kind : {"banana", "correlated", "circle"}
    n, d : int
        Rows, and parameters.
    n0 : int or None
        The likelihood is tempered to the weight of so many rows.
    curve : float
        How much the banana is bent.
    start_sd : float
        Standard deviation of starting points around the values that made the data.
    prior_variance : float
    """

    title: str
    kind: str
    n: int
    d: int
    start_sd: float
    n0: int | None = None
    curve: float = 0.0
    prior_variance: float = 1000.0

    @property
    def temper(self) -> float:
        return 1.0 if self.n0 is None else self.n0 / self.n

    @property
    def delta(self) -> float:
        return 0.1 / self.n

    @property
    def centre(self) -> np.ndarray:
        """Values that made the data; of the circle, a point near its middle."""
        if self.kind == "circle":
            return np.array([0.0, 1.0])
        return np.array([0.0, 3.0, *np.zeros(self.d - 2)])

    @property
    def variances(self) -> np.ndarray:
        """Of the rows of a banana."""
        return np.array([20.0, 2.5, *np.ones(self.d - 2)])


PROBLEMS = {
    "flat-2d": Problem("Flat banana, d = 2", "banana", 100_000, 2, 0.0124, curve=20),
    "flat-10d": Problem("Flat banana, d = 10", "banana", 200_000, 10, 0.0037, curve=20),
    "tempered-2d": Problem("Tempered banana, d = 2", "banana", 100_000, 2, 0.35, 1000, 20),
    "tempered-10d": Problem("Tempered banana, d = 10", "banana", 200_000, 10, 0.096, 1000, 20),
    "gauss-30d": Problem("Gaussian, d = 30", "banana", 200_000, 30, 0.00254),
    "narrow-2d": Problem("Narrow banana", "banana", 150_000, 2, 0.0558, curve=350),
    "correlated-2d": Problem("Correlated Gaussian", "correlated", 200_000, 2, 0.00227, prior_variance=100),
    "circle": Problem("Circle", "circle", 100_000, 2, 0.1),
}
# Of the correlated Gaussian's rows.
COVARIANCE = np.array([[1.0, 0.999], [0.999, 1.0]])
# The circle's rows are squared distances, with a normal law of this precision around those of the parameters.
CIRCLE = 2e-5


@lru_cache(maxsize=2)
def confidential_rows(problem: Problem, n: int) -> np.ndarray:
    """Draw the rows, shape (n, d) or (n,); the same ones for all runs."""
    rng = np.random.default_rng(43247)
    if problem.kind == "circle":
        return rng.normal(3, 1, n) ** 2
    if problem.kind == "correlated":
        return rng.multivariate_normal(problem.centre, COVARIANCE, n)
    return rng.normal(problem.centre, np.sqrt(problem.variances), (n, problem.d))


def model_of(
    problem: Problem,
    rows: np.ndarray,
    clip: float,
    clip_gradient: float | None = None,
    of_laws: bool = False,
) -> pm.Model:
    """Declare the model, with its rows behind a confidential likelihood.

    With `of_laws` the bound is in standard deviations of a row's change under the model.
    """
    bounds: dict[str, Any] = {"clip": clip, "clip_gradient": clip_gradient, "temper": problem.temper}
    with pm.Model() as model:
        if problem.kind == "correlated":
            theta = pm.Normal("theta", 0, problem.prior_variance**0.5, shape=2, initval=problem.centre)
            if of_laws:
                bounds["coordinates"] = np.linalg.inv(np.linalg.cholesky(COVARIANCE)) @ theta
            dp.ConfidentialLikelihood("x", pm.MvNormal.dist(theta, COVARIANCE), rows, **bounds)
            return model
        theta = pm.Flat("theta", shape=problem.d, initval=problem.centre)
        if problem.kind == "circle":
            if of_laws:
                bounds["coordinates"] = (theta**2).sum() * CIRCLE**0.5
            dp.ConfidentialLikelihood("x", pm.Normal.dist((theta**2).sum(), CIRCLE**-0.5), rows, **bounds)
            return model
        middle = theta
        if problem.curve:
            middle = pt.concatenate([theta[:1], theta[1:2] + problem.curve * theta[:1] ** 2, theta[2:]])
        pm.Potential("prior", -0.5 * (middle**2).sum() / problem.prior_variance)
        if of_laws:
            bounds["coordinates"] = middle / np.sqrt(problem.variances)
        law = pm.MvNormal.dist(middle, np.diag(problem.variances))
        dp.ConfidentialLikelihood("x", law, rows, **bounds)
    return model


def exact_posterior(problem: Problem, rows: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw from the posterior, shape (draws, d), by what is known of it in closed form."""
    n = len(rows)
    if problem.kind == "circle":  # flat in the plane is flat in the squared distance
        mean, sd = rows.mean(), (CIRCLE * n) ** -0.5
        squared = stats.truncnorm.rvs(-mean / sd, np.inf, mean, sd, size=draws, random_state=rng)
        angle = rng.uniform(0, 2 * np.pi, draws)
        return np.sqrt(squared)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if problem.kind == "correlated":
        precision = n * np.linalg.inv(COVARIANCE)
        covariance = np.linalg.inv(precision + np.eye(2) / problem.prior_variance)
        return rng.multivariate_normal(covariance @ precision @ rows.mean(axis=0), covariance, draws)
    precision = n * problem.temper / problem.variances
    total = precision + 1 / problem.prior_variance
    theta = rng.normal(precision * rows.mean(axis=0) / total, total**-0.5, (draws, problem.d))
    theta[:, 1] -= problem.curve * theta[:, 0] ** 2
    return theta


def log_densities(problem: Problem, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Log density of each row, up to a constant."""
    if problem.kind == "circle":
        return -0.5 * CIRCLE * (rows - (theta**2).sum()) ** 2
    middle = theta.copy()
    middle[1] += problem.curve * theta[0] ** 2
    away = rows - middle
    precision = np.linalg.inv(COVARIANCE) if problem.kind == "correlated" else np.diag(1 / problem.variances)
    return -0.5 * np.einsum("ij,ij->i", away @ precision, away)


def gradients(problem: Problem, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Gradients of the log density of each row, shape (n, d)."""
    if problem.kind == "circle":
        return 2 * CIRCLE * (rows - (theta**2).sum())[:, None] * theta
    middle = theta.copy()
    middle[1] += problem.curve * theta[0] ** 2
    precision = np.linalg.inv(COVARIANCE) if problem.kind == "correlated" else np.diag(1 / problem.variances)
    found = (rows - middle) @ precision
    found[:, 0] += 2 * problem.curve * theta[0] * found[:, 1]
    return found


def arguments(description: str, **full_and_quick: tuple) -> argparse.Namespace:
    """Command line: sizes as (full, quick) pairs, each of which can be given by name as well."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rows, repeats and draws, for CI")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the figures")
    parser.add_argument("--jobs", type=int, default=joblib.cpu_count(), help="processes")
    for name, (full, quick) in full_and_quick.items():
        parser.add_argument(f"--{name}", type=int, help=f"default {full}, quick {quick}")
    args = parser.parse_args()
    for name, (full, quick) in full_and_quick.items():
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else full)
    return args


def spread(values: Sequence[float]) -> str:
    """Write a median and a range."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return f"{values[0]:.2f}"
    return f"{np.median(values):.2f} ({values.min():.2f}-{values.max():.2f})"


def save(figure: Figure, path: Path) -> None:
    """Write a figure to disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    print(f"figure: {path}")
