"""A one-dimensional exact posterior: mean, sd, distribution function, and how to build one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicHermiteSpline

__all__ = ["Marginal", "from_log_density", "from_mixture", "from_panels", "gauss_panels"]


@dataclass(frozen=True)
class Marginal:
    """One-dimensional marginal of an exact posterior, its distribution function on a grid."""

    mean: float
    sd: float
    grid: np.ndarray
    cdf_values: np.ndarray
    density: np.ndarray

    def cdf(self, x) -> np.ndarray:
        """Distribution function at `x` (cubic Hermite through values and densities)."""
        x = np.asarray(x, dtype=float)
        spline = CubicHermiteSpline(self.grid, self.cdf_values, self.density)
        inside = spline(np.clip(x, self.grid[0], self.grid[-1]))
        return np.clip(np.where(x < self.grid[0], 0.0, np.where(x > self.grid[-1], 1.0, inside)), 0.0, 1.0)

    def quantile(self, p) -> np.ndarray:
        """Quantile by inversion of `cdf`: bracket on the grid, then bisection."""
        p = np.atleast_1d(np.asarray(p, dtype=float))
        index = np.clip(np.searchsorted(self.cdf_values, p), 1, self.grid.size - 1)
        low, high = self.grid[index - 1].copy(), self.grid[index].copy()
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return 0.5 * (low + high)


def gauss_panels(edges: np.ndarray, order: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on every panel of `edges`: two arrays (panels, order)."""
    edges = np.asarray(edges, dtype=float)
    node, weight = np.polynomial.legendre.leggauss(order)
    half = 0.5 * np.diff(edges, axis=-1)[..., None]
    centre = 0.5 * (edges[..., 1:] + edges[..., :-1])[..., None]
    return centre + half * node, half * weight


def from_log_density(
    log_density: Callable[[np.ndarray], np.ndarray],
    low: float,
    high: float,
    *,
    panels: int = 80,
    refine: bool = True,
) -> Marginal:
    """Marginal from an unnormalised log density on (low, high), vectorised over its argument.

    With `refine`, the interval is first shrunk to where the density is above exp(-45) of its
    maximum.
    """
    if refine:
        for _ in range(3):
            grid = np.linspace(low, high, 2003)[1:-1]
            value = log_density(grid)
            keep = np.flatnonzero(value > np.max(value) - 45.0)
            step = grid[1] - grid[0]
            low, high = max(low, grid[keep[0]] - step), min(high, grid[keep[-1]] + step)
    edges = np.linspace(low, high, panels + 1)
    x, w = gauss_panels(edges)
    value = log_density(x.ravel())
    mass = w.ravel() * np.exp(value - value.max())
    return from_panels(edges, mass / mass.sum(), w.ravel())


def from_panels(edge, mass, weight, sub: int = 8) -> Marginal:
    """Marginal from probabilities at the nodes of each panel, refined by the panel's polynomial."""
    order = mass.size // (edge.size - 1)
    x = gauss_panels(edge, order)[0].ravel()
    mean = float(mass @ x)
    sd = float(np.sqrt(mass @ (x - mean) ** 2))
    nodes = np.polynomial.legendre.leggauss(order)[0]
    vandermonde = np.vander(nodes, increasing=True)
    coefficient = np.linalg.solve(vandermonde, (mass / weight).reshape(-1, order).T)  # (order, panels)
    t = np.linspace(-1, 1, sub + 1)
    power = np.arange(1, order + 1)
    integral = ((t[:, None] ** power - (-1.0) ** power) / power) @ coefficient * 0.5 * np.diff(edge)
    before = np.concatenate([[0.0], np.cumsum(integral[-1])[:-1]])
    grid = np.append((edge[:-1, None] + np.diff(edge)[:, None] * (t[:-1] + 1) / 2).ravel(), edge[-1])
    cdf = np.append((before[:, None] + integral[:-1].T).ravel(), before[-1] + integral[-1, -1])
    value = np.vander(t, order, increasing=True) @ coefficient
    density = np.append(value[:-1].T.ravel(), value[-1, -1])
    # In a panel of negligible mass the polynomial may dip below zero.
    cdf = np.maximum.accumulate(np.maximum(cdf, 0.0))
    return Marginal(mean, sd, grid, cdf / cdf[-1], np.maximum(density, 0.0))


def from_mixture(weight, mean, variance, grid, cdf, pdf) -> Marginal:
    """Marginal of a finite (or quadrature) mixture; `cdf` and `pdf` are (grid, components)."""
    weight = weight / weight.sum()
    centre = float(weight @ mean)
    sd = float(np.sqrt(weight @ (variance + (mean - centre) ** 2)))
    return Marginal(centre, sd, grid, cdf @ weight, pdf @ weight)
