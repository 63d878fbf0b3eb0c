"""What updates of parameters work on, by name: each is ``update(n_updates, rng, address, state)``."""

from typing import Any, NamedTuple

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.native import GENERATOR, MATRIX, VECTOR


class Learnt(NamedTuple):
    """What updates learn while tuning; they change the arrays in place.

    Attributes
    ----------
    factor
        Root of the covariance of proposals, or of that of momenta: a lower triangle. By group, of the numbers
        in no group; one with positive numbers as they are stands below the one of all as they are sampled.
    inverse, products
        Inverse of the covariance of momenta, and sums of products of slopes, of which the next one is made.
    steps
        Of leapfrog steps, in the order that :mod:`pymc_dp.step_methods.updates.hamiltonian` names.
    charts
        As what positive numbers move, and what is known of both ways, in the order that
        :mod:`pymc_dp.step_methods.updates.positive` names.
    part
        Which part of the numbers each is in, if parts move apart, too; empty if there are none. By group, the
        group of each, -1 of those in none.
    apart
        Root of the covariances of proposals of one part each: a lower triangle with a block for each. By
        group, as many small triangles, one below the other.
    """

    factor: Any
    inverse: Any
    products: Any
    steps: Any
    charts: Any
    part: Any
    apart: Any


class ParameterState(NamedTuple):
    """Parameters that move given records, or given the noise behind them; updates change the arrays in place.

    Attributes
    ----------
    theta, data
        All parameters, and all releases and covariates, flat.
    given, totals
        Records or noise, a column for each; sums of what the records contribute to queries.
    moving, ends
        Which entries of theta move, whole numbers first; the least and the greatest value of each of these,
        shape (number of them, 2).
    learnt
        What proposals are made with.
    n_adapted, adapting
        Updates that it was learnt from, and whether it still is (0 or 1).
    tally
        Sum of the probabilities of acceptance, and number of updates.
    """

    theta: Any
    data: Any
    given: Any
    totals: Any
    moving: Any
    ends: Any
    learnt: Any
    n_adapted: int
    adapting: int
    tally: Any


# Rows of what updates count: given the records, given the noise, with all records drawn anew, and those of
# the upper level given the parameters below it.
GIVEN_RECORDS, GIVEN_NOISE, REDRAWN, GIVEN_EFFECTS, N_TALLIES = range(5)

_INDEX = types.Array(types.intp, 1, "C")
LEARNT = types.NamedTuple([MATRIX, MATRIX, MATRIX, VECTOR, MATRIX, _INDEX, MATRIX], Learnt)
PARAMETERS = types.NamedTuple(
    [
        VECTOR, VECTOR, MATRIX, VECTOR, _INDEX, MATRIX, LEARNT, types.int64, types.int64, VECTOR,
    ],
    ParameterState,
)  # fmt: skip
# number of updates, generator, address of the log density -> number of updates that were accepted
UPDATE = types.int64(types.int64, GENERATOR, types.intp, PARAMETERS)


def of_random_walk(k: int, n_whole: int = 0, part: np.ndarray | None = None) -> Learnt:
    """Return what a random walk of some numbers begins with, which learns covariances only.

    Steps of whole numbers, which come first, would be rounded to nothing if they began as small as others.
    """
    nothing, begun = np.zeros((0, 0)), np.diag(np.where(np.arange(k) < n_whole, 1.0, 0.1))
    if part is None or not part.size:
        return Learnt(begun, nothing, nothing, np.zeros(0), nothing, np.zeros(0, np.intp), nothing)
    return Learnt(begun, nothing, nothing, np.zeros(0), nothing, part, begun.copy())
