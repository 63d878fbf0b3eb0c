"""What kernels of mixtures work on, by name: each kernel is called as ``kernel(n_sweeps, rng, state)``."""

from typing import NamedTuple

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.native import GENERATOR, INTEGERS, MATRIX, VECTOR

type Vector = np.ndarray
type Matrix = np.ndarray
type Integers = np.ndarray
type Flags = np.ndarray
type Generator = np.random.Generator


class State(NamedTuple):
    """A mixture with its records, as a draw goes from cycle to cycle; kernels change the arrays in place.

    A kernel takes out what it uses before its loops: while the structure lives, machine code counts
    references to all of its arrays.

    Attributes
    ----------
    theta, data
        All parameters, and all releases and covariates, flat.
    constants, covariates
        Numbers that no record changes; numbers of each record that no kernel changes, a column for each.
    observed, noise, offset
        Of releases of sums: their values, the parameters of their densities, what a query adds to a sum.
    records, totals
        Records, a row for each; sums of what they contribute to these queries.
    labels, atoms, counts
        The slot of each record; atoms, a row for each slot; how many records each slot has.
    middle, spread
        About the mean and the standard deviation of each number of the records.
    under_base, constants_then
        Where records are known: the log density of each under the base, and the density, a column for each;
        the constants that these were worked out with.
    tuning, learnt
        Whether to learn, and what the updates of the atoms have learnt.
    full
        Whether a new cluster found no slot: one entry.
    tally
        Counts of what was done: see :mod:`.counters`.
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
    labels: Integers
    atoms: Matrix
    counts: Integers
    middle: Vector
    spread: Vector
    under_base: Matrix
    constants_then: Vector
    tuning: bool
    learnt: Vector
    full: Flags
    tally: Vector


FLAGS = types.Array(types.boolean, 1, "C")
_KINDS = {Vector: VECTOR, Matrix: MATRIX, Integers: INTEGERS, Flags: FLAGS, bool: types.boolean}
STATE = types.NamedTuple([_KINDS[kind] for kind in State.__annotations__.values()], State)
MIXTURE = types.void(types.int64, GENERATOR, STATE)  # sweeps, or moves
