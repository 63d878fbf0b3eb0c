"""Draws from the normal law whose log density has given slopes at zero and given second derivatives."""

import numpy as np

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import standard_normal


@njit
def solve_mean(sums, mean, root, q):
    """Mean of the law, and the Cholesky factor of its precision.

    ``sums``: q slopes at zero, then the lower triangle of the precision, row by row.
    """
    factor(sums, root, q)
    for i in range(q):
        mean[i] = sums[i]
        for j in range(i):
            mean[i] -= root[i, j] * mean[j]
        mean[i] /= root[i, i]
    back(root, mean, q)


@njit
def draw_normal(rng, sums, mean, root, q):
    """Add a draw of the law's deviation to its mean."""
    factor(sums, root, q)
    deviation = np.empty(q)
    for i in range(q):
        deviation[i] = standard_normal(rng)
    back(root, deviation, q)
    for i in range(q):
        mean[i] += deviation[i]


@njit
def factor(sums, root, q):
    """Cholesky factor of the precision."""
    at = q
    for i in range(q):
        for j in range(i + 1):
            total = sums[at]
            at += 1
            for m in range(j):
                total -= root[i, m] * root[j, m]
            root[i, j] = np.sqrt(total) if i == j else total / root[j, j]


@njit
def back(root, v, q):
    """Solve with the transposed factor, in place."""
    for i in range(q - 1, -1, -1):
        for m in range(i + 1, q):
            v[i] -= root[m, i] * v[m]
        v[i] /= root[i, i]


solve_normal = {"solve_mean": solve_mean, "draw_normal": draw_normal}
