"""The maximum mean discrepancy between draws and a reference sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.stats._draws import group_of, posterior_of, stacked

_BLOCK = 2048  # points in a block, whose distances stay in the cache
_MEDIAN_OF = 1000  # points of each sample, evenly spaced, from whose distances the bandwidth is computed


@dataclass(frozen=True)
class MMD:
    """Maximum mean discrepancy of two samples under a Gaussian kernel.

    Parameters
    ----------
    squared : float
        Unbiased estimate of the square, which is negative about half of the time if the laws are the same.
    bandwidth : float
        Standard deviation of the kernel, in the units of the draws.
    """

    squared: float
    bandwidth: float

    @property
    def root(self) -> float:
        """Square root of the size of :attr:`squared`: 0 for equal laws, at most sqrt(2)."""
        return math.sqrt(abs(self.squared))

    def __float__(self) -> float:
        return self.root


def mmd(
    draws: Any,
    reference: Any,
    *,
    var_names: Sequence[str] | None = None,
    bandwidth: float | None = None,
) -> MMD:
    """Return the maximum mean discrepancy between draws and a reference sample.

    It can show a bias of the stationary law, which R-hat and the effective sample size cannot. Where there is
    no sample of the exact posterior, use a long run without privacy as the reference.

    Parameters
    ----------
    draws, reference : array_like or xarray.DataTree
        At least two points each: an array of shape (n,), (n, d) or (chain, draw, d), or the result of
        ``pm.sample``.
    var_names : sequence of str, optional
        Variables of results that are compared; their entries, in this order, are the d numbers. By default
        all, in the order of the results.
    bandwidth : float, optional
        Standard deviation of the kernel, > 0. By default the median distance between a draw and a point of
        the reference, over up to 1000 evenly spaced points of each. Give a number if you compare several
        samplers.

    Returns
    -------
    MMD
        ``squared``, the unbiased estimate; ``root``, its square root; ``bandwidth``, the one that was used.

    Raises
    ------
    TypeError, ValueError
        A sample has entries that are no finite numbers, or fewer than two points; the dimensions differ; or
        all points are the same.

    Notes
    -----
    Time is proportional to (n + m)^2, and memory to n + m.

    References
    ----------
    Gretton, Borgwardt, Rasch, Schölkopf and Smola (2012), *A Kernel Two-Sample Test*, equation 3; Räisä
    (2021), section 5.4, who takes the median over 50 random pairs.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dp as dp
    >>> rng = np.random.default_rng(1)
    >>> exact, wide = rng.normal(size=(2000, 2)), rng.normal(size=(1000, 2), scale=2)
    >>> found = dp.mmd(wide, exact)
    >>> round(found.root, 2), round(found.bandwidth, 2)
    (0.28, 2.63)
    """
    x = _points("draws", draws, var_names)
    y = _points("reference", reference, var_names)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"draws have {x.shape[1]} numbers each and the points of reference {y.shape[1]}: give the same "
            "variables of both, in the same order (var_names= chooses)."
        )
    width = _median_distance(x, y) if bandwidth is None else _positive(bandwidth)
    # Points are centred, so that the squares of distances keep their digits.
    centre = y.mean(axis=0)
    x, y = (x - centre) / width, (y - centre) / width
    n, m = len(x), len(y)
    within = (_sum_of_kernels(x, x) - n) / (n * (n - 1)) + (_sum_of_kernels(y, y) - m) / (m * (m - 1))
    return MMD(float(within - 2 * _sum_of_kernels(x, y) / (n * m)), width)


def _points(name: str, sample: Any, var_names: Sequence[str] | None) -> np.ndarray:
    """Return a sample as points, shape (n, d)."""
    if isinstance(sample, xr.DataTree):
        all_names = [str(v) for v in group_of(sample, "posterior").data_vars]
        names = all_names if var_names is None else list(var_names)
        posterior = posterior_of(sample, names)
        columns = [stacked(posterior[v]) for v in names]
        points = np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1)
    else:
        points = np.asarray(sample)
        if points.dtype.kind not in "biuf" or not 1 <= points.ndim <= 3:
            raise TypeError(
                f"{name} must be numbers of shape (n,), (n, d) or (chain, draw, d), or results of pm.sample, "
                f"got {type(sample).__name__} with dtype {points.dtype} and {points.ndim} dimensions."
            )
        points = points[:, None] if points.ndim == 1 else points.reshape(-1, points.shape[-1])
    points = points.astype(float)
    if len(points) < 2 or not points.shape[1]:
        raise ValueError(f"{name} must have at least two points of at least one number, got {points.shape}.")
    if not np.isfinite(points).all():
        raise ValueError(f"{name} must be finite: leave out the points that hold NaN or infinite numbers.")
    return points


def _positive(bandwidth: Any) -> float:
    if isinstance(bandwidth, bool) or not isinstance(bandwidth, int | float | np.integer | np.floating):
        raise TypeError(f"bandwidth must be a number, or None for the median, got {bandwidth!r}.")
    if not 0 < bandwidth < math.inf:
        raise ValueError(f"bandwidth must be a finite number > 0, got {bandwidth!r}.")
    return float(bandwidth)


def _median_distance(x: np.ndarray, y: np.ndarray) -> float:
    x, y = (z[np.arange(k) * len(z) // k] for z in (x, y) for k in [min(len(z), _MEDIAN_OF)])
    centre = y.mean(axis=0)
    median = float(np.median(np.sqrt(_squared_distances(x - centre, y - centre))))
    if not median > 0:
        raise ValueError(
            "Most draws are points of reference, so their median distance is 0: give bandwidth=."
        )
    return median


def _squared_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    squares = x @ (-2 * y.T)
    squares += np.einsum("ij,ij->i", x, x)[:, None]
    squares += np.einsum("ij,ij->i", y, y)
    return np.maximum(squares, 0, out=squares)


def _sum_of_kernels(x: np.ndarray, y: np.ndarray) -> float:
    """Return the sum of exp(-|x_i - y_j|^2 / 2); a block counts twice in place of its mirror image."""
    same, sums = x is y, []
    for i in range(0, len(x), _BLOCK):
        for j in range(i if same else 0, len(y), _BLOCK):
            squares = _squared_distances(x[i : i + _BLOCK], y[j : j + _BLOCK])
            if same and i == j:
                np.fill_diagonal(squares, 0.0)  # exactly 0, since the caller subtracts exp(0) of each point
            squares *= -0.5
            sums.append((2 if same and j > i else 1) * float(np.exp(squares, out=squares).sum()))
    return math.fsum(sums)
