"""Normalisers of the law of a slot's numbers given its records, as functions of the slot's statistics.

The ratio of two of them is the density of a record under a cluster with its atoms integrated out. Where every
record adds the same precision and the same to the shape, as it does unless a covariate tells records apart,
most of a normaliser is decided by the number of records alone, and kept in a table.
"""

import math

import numpy as np

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.gamma_functions import log_gamma, log_gamma_p
from pymc_dp.step_methods.mixture.cholesky import half_square_and_log_det


@njit
def normal_inverse_gamma(t, root, q):
    """Statistics: slopes and precision of the normal numbers in units of the scale, then A and Q."""
    half, log_det = half_square_and_log_det(t, root, q)
    shape = t[t.size - 2] - 0.5 * q - 1.0
    return log_gamma(shape) - shape * np.log(t[t.size - 1] - half) - 0.5 * log_det


@njit
def normal(t, root, q):
    """Statistics: slopes and precision."""
    half, log_det = half_square_and_log_det(t, root, q)
    return half - 0.5 * log_det


@njit
def gamma(t, root, q):
    """Statistics: powers of the number and of its exponential."""
    return log_gamma(t[0] + 1.0) - (t[0] + 1.0) * np.log(t[1])


@njit
def inverse_gamma(t, root, q):
    """Statistics: powers of the inverse of the number and of its exponential."""
    return log_gamma(t[0] - 1.0) - (t[0] - 1.0) * np.log(t[1])


@njit
def beta(t, root, q):
    """Statistics: powers of the number and of its complement."""
    return log_gamma(t[0] + 1.0) + math.lgamma(t[1] + 1.0) - math.lgamma(t[0] + t[1] + 2.0)


@njit
def normal_inverse_gamma_above(t, root, q):
    """Statistics: those of a normal inverse gamma law, and the lower end of the scale."""
    half, log_det = half_square_and_log_det(t, root, q)
    shape, scale = t[t.size - 3] - 0.5 * q - 1.0, t[t.size - 2] - half
    mass = log_gamma_p(shape, scale / t[t.size - 1])
    return log_gamma(shape) - shape * np.log(scale) - 0.5 * log_det + mass


@njit
def inverse_gamma_above(t, root, q):
    """Statistics: powers of the inverse of the number and of its exponential, and the lower end."""
    return log_gamma(t[0] - 1.0) - (t[0] - 1.0) * np.log(t[1]) + log_gamma_p(t[0] - 1.0, t[1] / t[2])


@njit
def add_alike(weights, end):
    """Whether statistics 1, ..., end - 1 of a record depend on none of its moments but the constant one."""
    for r in range(1, end):
        for j in range(1, weights.shape[1]):
            if weights[r, j] != 0.0:
                return False
    return True


@njit
def know(n, lead, half, shape, empty, each):
    """Fill in entry n of three tables: what of a normaliser only the number of records decides."""
    precision = empty[1] + n * each[1]
    lead[n], half[n] = -0.5 * np.log(precision), 0.5 / precision
    if empty.size > 2:
        shape[n] = empty[2] + n * each[2] - 1.5
        lead[n] += log_gamma(shape[n])


SINGLE = {"gamma": gamma, "inverse gamma": inverse_gamma, "beta": beta}
