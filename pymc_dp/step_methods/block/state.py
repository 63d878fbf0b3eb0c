"""What kernels of record sweeps work on, by name; each is called as ``kernel(n_sweeps, rng, state)``."""

from typing import NamedTuple

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.native import GENERATOR, MATRIX, VECTOR

type Vector = np.ndarray
type Matrix = np.ndarray
type Generator = np.random.Generator


class RecordState(NamedTuple):
    """One block of records, or some of its records; kernels change the arrays in place.

    An array that is taken out of this structure is counted as held once more, which costs some 20 ns: kernels
    take what they need before their loops, not in them.

    Attributes
    ----------
    theta, data
        All parameters, and all releases and covariates, flat.
    constants, covariates
        Numbers that no record changes, and numbers of each record that no sweep changes, a column for each.
    observed, noise, offset
        Of releases of sums: their values, the parameters of their densities, what a query adds to a sum.
    records, totals
        Records, a row for each; sums of what they contribute to these queries.
    prior_only
        Whether to draw records from their law, whatever was released.
    tally
        Proposals accepted, and the lowest probability of one.
    concentrations, joint
        Where tables of probabilities move, which are the constants then: the parameters of their laws; the
        sum of the probabilities of their moves together with records, and the number of these.
    """

    theta: Vector
    data: Vector
    constants: Vector
    covariates: Matrix
    observed: Vector
    noise: Matrix
    offset: Vector
    records: Matrix
    totals: Vector
    prior_only: bool
    tally: Vector
    concentrations: Vector
    joint: Vector


_KINDS = {Vector: VECTOR, Matrix: MATRIX, bool: types.boolean}
RECORD_STATE = types.NamedTuple([_KINDS[kind] for kind in RecordState.__annotations__.values()], RecordState)
ROWS = types.void(types.int64, GENERATOR, RECORD_STATE)
