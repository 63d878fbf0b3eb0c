"""Small tables of counts with effects, whose posterior is a sum over counts and a quadrature over effects.

Each has numbers that all cells share, on a grid, and an effect of each of two rows, which is integrated out
of a row of cells given these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.polynomial.hermite_e import hermegauss
from scipy import special, stats

import pymc_dp as dp

CELLS, COLUMNS = np.array([[4.0, 1.0], [-1.0, 3.0]]), np.array([5, 2])
SCALES = (2.5, 3.0)  # of Laplace noise on cells, of discrete Gaussian noise on sums of columns


def release(c, cells=CELLS, columns=COLUMNS) -> None:
    dp.LaplaceMechanism("cells", c, scale=SCALES[0], observed=cells)
    dp.DiscreteGaussianMechanism("columns", c.sum(axis=0), sigma=SCALES[1], observed=columns)


def log_noise(c: np.ndarray) -> np.ndarray:
    """Log density of the releases at tables (..., 2, 2)."""
    of_cells = stats.laplace.logpdf(CELLS, c, SCALES[0]).sum(axis=(-2, -1))
    return of_cells - (((COLUMNS - c.sum(axis=-2)) / SCALES[1]) ** 2).sum(axis=-1) / 2


@dataclass(frozen=True)
class Case:
    """A model, and what its posterior is a sum over.

    Attributes
    ----------
    build : callable
        The model.
    shared : list of str
        Names of the numbers that cells share, as in the posterior.
    grid, weights : ndarray
        Values of these (n, k), and what they are worth by their law.
    effect : tuple of ndarray
        Values of an effect, and what they are worth.
    law : callable
        From shared numbers (k,) and effects (m, 1, 1) to the log probabilities of counts x of the two rows
        (2, m, 2, most + 1).
    most : int
        Largest count that matters.
    """

    build: Callable[..., pm.Model]
    shared: list[str]
    grid: np.ndarray
    weights: np.ndarray
    effect: tuple[np.ndarray, np.ndarray]
    law: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    most: int

    def posterior(self) -> dict[str, float]:
        """Means and squares of all numbers, and their products with the first cell."""
        values, worth = self.effect
        x = np.arange(self.most + 1)
        table = np.stack(np.meshgrid(x, x, x, x, indexing="ij"), axis=-1).reshape(-1, 2, 2)
        noise = np.exp(log_noise(table)).reshape((x.size**2, x.size**2))
        first, second = np.divmod(np.arange(x.size**2), x.size)
        found: dict[str, float] = {}
        total = 0.0
        for shared, weight in zip(self.grid, self.weights, strict=True):
            law = np.exp(self.law(shared, values[:, None, None], x))
            # density of a row of two counts, times powers of its effect
            rows = [
                np.einsum("m,mx,my,pm->pxy", worth, row[:, 0], row[:, 1], [values**0, values, values**2])
                for row in law
            ]
            one, other = (row.reshape(3, -1) for row in rows)
            for name, of_one, of_other in (
                ("total", one[0], other[0]),
                ("c00", one[0] * first, other[0]),
                ("c00^2", one[0] * first**2, other[0]),
                ("c01", one[0] * second, other[0]),
                ("c11^2", one[0], other[0] * second**2),
                ("c00 c10", one[0] * first, other[0] * first),
                ("e0", one[1], other[0]),
                ("e0^2", one[2], other[0]),
                ("e1", one[0], other[1]),
                ("e0 c00", one[1] * first, other[0]),
                ("e1 c00", one[0] * first, other[1]),
            ):
                part = weight * (of_one @ noise @ of_other)
                found[name] = found.get(name, 0.0) + part
                if name in ("total", "c00"):
                    for k, value in enumerate(shared):
                        what = f"{self.shared[k]}" + (" c00" if name == "c00" else "")
                        found[what] = found.get(what, 0.0) + part * value
                        if name == "total":
                            found[f"{what}^2"] = found.get(f"{what}^2", 0.0) + part * value**2
        total = found.pop("total")
        return {name: value / total for name, value in found.items()}


def moments(draws: dict[str, np.ndarray], shared: list[str]) -> dict[str, np.ndarray]:
    """The same quantities of draws (chains, draws, ...)."""
    c, e = draws["c"].astype(float), draws["e"]
    found = {
        "c00": c[..., 0, 0], "c00^2": c[..., 0, 0] ** 2, "c01": c[..., 0, 1], "c11^2": c[..., 1, 1] ** 2,
        "c00 c10": c[..., 0, 0] * c[..., 1, 0], "e0": e[..., 0], "e0^2": e[..., 0] ** 2, "e1": e[..., 1],
        "e0 c00": e[..., 0] * c[..., 0, 0], "e1 c00": e[..., 1] * c[..., 0, 0],
    }  # fmt: skip
    for name in shared:
        at = draws[name.split("[")[0]]
        value = at[..., int(name[-2])] if "[" in name else at
        found |= {name: value, f"{name}^2": value**2, f"{name} c00": value * c[..., 0, 0]}
    return found


def _normal(mean: float, sd: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    z, weights = hermegauss(n)
    return mean + sd * z, weights / weights.sum()


SIZES = np.array([[1.0, 2.0], [0.5, 1.5]])


def poisson_with_intercept(**observed) -> pm.Model:
    with pm.Model() as model:
        a, e = pm.Normal("a", 0.2, 0.6), pm.Normal("e", 0, 0.8, shape=2)
        c = pm.Poisson("c", pt.exp(a + e)[:, None] * SIZES)
        release(c, **observed)
    return model


def _poisson_law(shared, e, x):
    rate = np.exp(shared[0] + e) * SIZES[:, None, :, None]
    return stats.poisson.logpmf(x, rate)


PUBLIC = np.array([3, 0])


def poisson_with_public_data(**observed) -> pm.Model:
    """Counts without noise tell of the effects, too, each of one."""
    with pm.Model() as model:
        a, e = pm.Normal("a", 0.2, 0.6), pm.Normal("e", 0, 0.8, shape=2)
        pm.Poisson("y", pt.exp(e), observed=PUBLIC)
        c = pm.Poisson("c", pt.exp(a + e)[:, None] * SIZES)
        release(c, **observed)
    return model


def _law_with_public_data(shared, e, x):
    law = _poisson_law(shared, e, x)
    law[:, :, 0] += stats.poisson.logpmf(PUBLIC[:, None], np.exp(e[:, 0, 0]))[:, :, None]  # once for a row
    return law


def negative_binomial_with_spread(**observed) -> pm.Model:
    """The scale of the effects is not known either, and its logarithm moves."""
    with pm.Model() as model:
        s, e = pm.Exponential("s", 1.5), pm.Normal("e", 0, 1, shape=2)
        c = pm.NegativeBinomial(
            "c", mu=pt.exp(s * e)[np.array([0, 0, 1, 1])].reshape((2, 2)) * SIZES, alpha=2.0
        )
        release(c, **observed)
    return model


def _negative_binomial_law(shared, e, x):
    mu = np.exp(shared[0] * e) * SIZES[:, None, :, None]
    return stats.nbinom.logpmf(x, 2.0, 2.0 / (2.0 + mu))


def binomial_with_columns(**observed) -> pm.Model:
    """Effects of rows and of columns, each of which moves by itself."""
    with pm.Model() as model:
        f, e = pm.Normal("f", 0, 1, shape=2), pm.Normal("e", 0, 1, shape=2)
        c = pm.Binomial("c", np.array([[9, 4], [6, 9]]), pm.math.sigmoid(e[:, None] + f - 0.5))
        release(c, **observed)
    return model


def _binomial_law(shared, e, x):
    n = np.array([[9, 4], [6, 9]])[:, None, :, None]
    return stats.binom.logpmf(x, n, special.expit(e + shared[:, None] - 0.5))


def _pairs(z, weights):
    grid = np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1).reshape(-1, 2)
    return grid, np.outer(weights, weights).ravel()


def rate_that_may_be_none(**observed) -> pm.Model:
    """A rate is an expression that may be negative: there counts have no law."""
    with pm.Model() as model:
        a, e = pm.Normal("a", 1.5, 0.7, initval=1.5), pm.Normal("e", 0, 0.5, shape=2)
        c = pm.Poisson("c", (a * pt.exp(e))[:, None] * SIZES)
        release(c, **observed)
    return model


def _rate_law(shared, e, x):
    rate = max(shared[0], 0.0) * np.exp(e) * SIZES[:, None, :, None]
    return stats.poisson.logpmf(x, rate) if shared[0] > 0 else np.full((2, e.size, 2, x.size), -np.inf)


_A, _S = _normal(0.2, 0.6, 15), np.arange(0.05, 7.0, 0.1)
_ALL = np.linspace(-2.0, 5.0, 141)
CASES = {
    "poisson with intercept": Case(
        poisson_with_intercept, ["a"], _A[0][:, None], _A[1], _normal(0, 0.8, 25), _poisson_law, 22
    ),
    "poisson with public data": Case(
        poisson_with_public_data, ["a"], _A[0][:, None], _A[1], _normal(0, 0.8, 25), _law_with_public_data, 22
    ),
    "negative binomial with spread": Case(
        negative_binomial_with_spread, ["s"], _S[:, None], np.exp(-1.5 * _S), _normal(0, 1, 41),
        _negative_binomial_law, 24,
    ),
    "binomial with columns": Case(
        binomial_with_columns, ["f[0]", "f[1]"], *_pairs(*_normal(0, 1, 13)), _normal(0, 1, 25),
        _binomial_law, 9,
    ),
    "rate that may be none": Case(
        rate_that_may_be_none, ["a"], _ALL[:, None], stats.norm.pdf(_ALL, 1.5, 0.7), _normal(0, 0.5, 21),
        _rate_law, 20,
    ),
}  # fmt: skip
