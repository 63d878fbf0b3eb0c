"""Nopython loops that alternate records and tables of probabilities: drawn exactly, or moved together."""

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.native import (
    CONJUGATE,
    COORDINATES,
    HANDLE,
    HOIST,
    MATRIX,
    RELEASES,
    VALUES,
    VECTOR,
    function_at,
    generator_at,
)
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.step_methods.block.state import ROWS, RecordState
from pymc_dp.step_methods.sweeps.kernels import sweep

_CONJUGATE = types.FunctionType(CONJUGATE)
_COORDINATES = types.FunctionType(COORDINATES)
_HOIST = types.FunctionType(HOIST)
_RELEASES = types.FunctionType(RELEASES)
_ROWS = types.FunctionType(ROWS)
_VALUES = types.FunctionType(VALUES)


@njit(
    types.void(
        HANDLE, types.int64, types.intp, types.Array(types.int64, 1, "C"), types.Array(types.intp, 1, "C"),
        VECTOR, VECTOR, types.Array(types.intp, 1, "C"), MATRIX, VECTOR, VECTOR,
    ),
    cache=True,
)  # fmt: skip
def conjugate_cycles(
    handle, n_cycles, conjugate_address, sizes, addresses, theta, data, where, x, totals, tally
):  # fmt: skip
    """Cycles of a record sweep and an exact draw of ``theta[where]`` given the records, in place."""
    rng = generator_at(handle)
    conjugate = function_at(conjugate_address, _CONJUGATE)
    part = np.empty(where.shape[0])
    for _ in range(n_cycles):
        sweep(rng, 1, 0, sizes, addresses, theta, data, x, totals, tally)
        conjugate(rng, theta, data, x, part)
        for k in range(where.shape[0]):
            theta[where[k]] = part[k]


@njit(
    types.void(
        HANDLE, types.int64, types.Array(types.int64, 1, "C"), types.Array(types.intp, 1, "C"),
        VECTOR, VECTOR, types.Array(types.intp, 1, "C"), MATRIX, VECTOR, VECTOR, VECTOR,
    ),
    cache=True,
)  # fmt: skip
def table_cycles(
    handle, n_cycles, sizes, addresses, theta, data, where, x, totals, tally, joint_tally
):  # fmt: skip
    """Cycles of a record sweep, an exact draw of all tables and joint draws of tables and records, in place.

    ``sizes``: statistics, release parameters, cells. ``addresses``: releases, hoist (the tables), sweep,
    concentrations, update of the tables, values of the tables in ``theta[where]``.
    """
    rng = generator_at(handle)
    d, n_params, size = sizes
    value, params, offset = np.empty(d), np.empty((d, n_params)), np.empty(d)
    function_at(addresses[0], _RELEASES)(theta, data, value, params, offset)
    p, columns, alpha = np.empty(size), np.empty((0, x.shape[0])), np.empty(size)
    function_at(addresses[1], _HOIST)(theta, data, p, columns)
    function_at(addresses[3], _COORDINATES)(theta, data, alpha)
    rows, update = function_at(addresses[2], _ROWS), function_at(addresses[4], _ROWS)
    state = RecordState(
        theta, data, p, columns, value, params, offset, x, totals, False, tally, alpha, joint_tally
    )
    for _ in range(n_cycles):
        rows(1, rng, state)
        update(1, rng, state)
    values = np.empty(where.shape[0])
    function_at(addresses[5], _VALUES)(theta, data, p, values)
    for k in range(where.shape[0]):
        theta[where[k]] = values[k]
