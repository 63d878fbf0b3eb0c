"""Normal laws given by slopes of the log density at zero and a precision: factors, solves, draws, means.

Of q numbers: q slopes, then the lower triangle of the precision, row by row. Its Cholesky factor is ``root``.
"""

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


@njit
def whitened(t, root, mean, q):
    """Fill ``mean`` with the root of the precision times the mean; return half of its square."""
    factor(t, root, q)
    half = 0.0
    for i in range(q):
        z = t[i]
        for j in range(i):
            z -= root[i, j] * mean[j]
        mean[i] = z / root[i, i]
        half += 0.5 * mean[i] * mean[i]
    return half


@njit
def scattered(rng, root, mean, q, deviation):
    """Add normal numbers to a whitened mean, and solve with the transposed factor, in place."""
    for i in range(q):
        mean[i] += deviation * standard_normal(rng)
    back(root, mean, q)


@njit
def half_square_and_log_det(t, root, q):
    """Half of L' P^-1 L, and the logarithm of the determinant of P, for statistics that begin with both."""
    if q == 1:
        return 0.5 * t[0] * t[0] / t[1], np.log(t[1])
    factor(t, root, q)
    half, log_det = 0.0, 0.0
    for i in range(q):
        z = t[i]
        for j in range(i):
            z -= root[i, j] * root[j, q]
        z /= root[i, i]
        root[i, q] = z
        half += 0.5 * z * z
        log_det += 2.0 * np.log(root[i, i])
    return half, log_det
