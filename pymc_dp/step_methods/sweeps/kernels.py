"""Nopython loops over records: pure functions of arrays, addresses of native functions and a generator.

They are compiled once, for every model, and cached on disk beside the package.
"""

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.native import (
    CHANGE,
    CONTRIBUTE,
    GENERATOR,
    HANDLE,
    HOIST,
    MATRIX,
    PROPOSE,
    RELEASES,
    VECTOR,
    WHOLE,
    function_at,
    generator_at,
)
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import standard_exponential
from pymc_dp.step_methods.block.state import RECORD_STATE, ROWS, RecordState

_PROPOSE = types.FunctionType(PROPOSE)
_CONTRIBUTE = types.FunctionType(CONTRIBUTE)
_RELEASES = types.FunctionType(RELEASES)
_CHANGE = types.FunctionType(CHANGE)
_WHOLE = types.FunctionType(WHOLE)
_HOIST = types.FunctionType(HOIST)
_ROWS = types.FunctionType(ROWS)
# number of sweeps, generator, addresses of a move
VECTORISED = types.void(types.int64, GENERATOR, types.Array(types.intp, 1, "C"), RECORD_STATE)
_VECTORISED = types.FunctionType(VECTORISED)
# Where functions stand among the addresses of a move: of vectorised ones, of all, of those in one loop; and
# the loop that calls vectorised ones.
PROPOSE_AT, CONTRIBUTE_AT, RELEASES_AT, CHANGE_AT, GENERAL, FUSED, HOIST_AT, VECTORISED_AT = range(8)


@njit(types.boolean(GENERATOR, types.float64, VECTOR), cache=True, forceinline=True)
def accept(rng, log_ratio, tally):
    """Metropolis-Hastings decision; a ratio that is not a number is refused.

    ``tally`` collects the number of acceptances and the minimum of the acceptance probabilities.
    """
    if log_ratio >= 0.0:
        tally[0] += 1.0
        return True
    tally[1] = min(tally[1], np.exp(log_ratio) if log_ratio < 0.0 else 0.0)
    if log_ratio > -standard_exponential(rng):
        tally[0] += 1.0
        return True
    return False


@njit(types.void(MATRIX, MATRIX, types.intp, types.intp), cache=True, forceinline=True)
def exchange(x, other, i, p):
    """Exchange record i with that of another matrix."""
    for j in range(p):
        x[i, j], other[i, j] = other[i, j], x[i, j]


@njit(
    types.void(
        GENERATOR, RECORD_STATE, types.intp, types.intp, MATRIX, VECTOR, MATRIX, MATRIX, VECTOR,
    ),
    cache=True,
)  # fmt: skip
def accept_all(rng, state, change_address, general_address, t, w, x_new, t_new, w_new):
    """One sweep of accept/reject over records, O(d) for each.

    The query is ``offset + sum_i t_i``; record i changes it by ``t_new_i - t_i``, and the log ratio is the
    change of the releases' log density plus ``w_new_i - w_i``. A query that is no sum over records is asked
    for as a whole, O(n) for each record. The addresses of changes and of such queries are 0 without any.
    """
    change = function_at(change_address, _CHANGE)
    general = function_at(general_address, _WHOLE)
    theta, data, x, tally = state.theta, state.data, state.records, state.tally
    value, params = state.observed, state.noise
    (n, d), p = t.shape, x.shape[1]
    whole = general_address != 0
    old, new = state.offset.copy(), np.empty(d)
    for i in range(n):
        for j in range(d):
            old[j] += t[i, j]
    current = proposed = general(theta, data, x) if whole else 0.0
    for i in range(n):
        log_ratio = 0.0 if w[i] == -np.inf else w_new[i] - w[i]
        if d > 0:
            for j in range(d):
                new[j] = old[j] + (t_new[i, j] - t[i, j])
            log_ratio += change(theta, data, value, params, old, new)
        if whole:
            exchange(x, x_new, i, p)
            proposed = general(theta, data, x)
            if current != -np.inf:
                log_ratio += proposed - current
            exchange(x, x_new, i, p)
        if accept(rng, log_ratio, tally):
            current = proposed
            w[i] = w_new[i]
            for j in range(p):
                x[i, j] = x_new[i, j]
            if d > 0:
                for j in range(d):
                    old[j] = new[j]
                    t[i, j] = t_new[i, j]


@njit(types.void(MATRIX, MATRIX), cache=True)
def copy(source, target):
    """Copy a matrix; slices would compile an error message for seconds."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@njit(VECTORISED, cache=True)
def vectorised_sweep(n_sweeps, rng, addresses, state):
    """Sweeps of which each draws candidates for all records, and then decides on them."""
    theta, data, x, totals, prior_only = (
        state.theta,
        state.data,
        state.records,
        state.totals,
        state.prior_only,
    )
    n, d = x.shape[0], state.observed.shape[0]
    propose = function_at(addresses[PROPOSE_AT], _PROPOSE)
    t, w = np.empty((n, d)), np.empty(n)
    x_new, t_new, w_new = np.empty_like(x), np.empty_like(t), np.empty_like(w)
    if not prior_only:
        function_at(addresses[CONTRIBUTE_AT], _CONTRIBUTE)(theta, data, x, t, w)
    for _ in range(n_sweeps):
        propose(rng, theta, data, x, x_new, t_new, w_new)
        if prior_only:
            copy(x_new, x)
            copy(t_new, t)
        else:
            accept_all(rng, state, addresses[CHANGE_AT], addresses[GENERAL], t, w, x_new, t_new, w_new)
    for j in range(d):
        totals[j] = 0.0
    for i in range(n):
        for j in range(d):
            totals[j] += t[i, j]


@njit(
    types.void(
        GENERATOR, types.int64, types.int64, types.Array(types.int64, 1, "C"),
        types.Array(types.intp, 1, "C"), VECTOR, VECTOR, MATRIX, VECTOR, VECTOR,
    ),
    cache=True,
)  # fmt: skip
def sweep(rng, n_sweeps, prior_only, sizes, addresses, theta, data, x, totals, tally):
    """Sweep over all records ``n_sweeps`` times, in place; see ``addresses/native.py`` for names.

    ``sizes``: statistics, release parameters, hoisted numbers, hoisted covariates.
    ``addresses``: of functions, where :data:`PROPOSE_AT` and the others say; 0 where there is none.
    ``prior_only``: 1 to draw the records from their law, ignoring all releases.
    ``totals`` is filled with the sums of the contributions, ``tally`` as by :func:`accept`.
    """
    n = x.shape[0]
    d, n_params, n_constants, n_columns = sizes
    value, params, offset = np.empty(d), np.empty((d, n_params)), np.empty(d)
    if d > 0:
        function_at(addresses[RELEASES_AT], _RELEASES)(theta, data, value, params, offset)
    constants, columns, none = np.empty(n_constants), np.empty((n_columns, n)), np.empty(0)
    state = RecordState(
        theta, data, constants, columns, value, params, offset, x, totals, prior_only == 1, tally, none, none
    )
    if addresses[FUSED] != 0:
        function_at(addresses[HOIST_AT], _HOIST)(theta, data, constants, columns)
        function_at(addresses[FUSED], _ROWS)(n_sweeps, rng, state)
    else:
        function_at(addresses[VECTORISED_AT], _VECTORISED)(n_sweeps, rng, addresses, state)


@njit(
    types.void(
        HANDLE, types.int64, types.int64, types.Array(types.int64, 1, "C"),
        types.Array(types.intp, 1, "C"), VECTOR, VECTOR, MATRIX, VECTOR, VECTOR,
    ),
    cache=True,
)  # fmt: skip
def run_sweep(handle, n_sweeps, prior_only, sizes, addresses, theta, data, x, totals, tally):
    """Call :func:`sweep` from Python."""
    sweep(
        generator_at(handle), n_sweeps, prior_only, sizes, addresses, theta, data, x, totals, tally
    )  # fmt: skip


@njit(types.void(types.intp, VECTOR, VECTOR, VECTOR, MATRIX), cache=True)
def hoist(address, theta, data, constants, columns):
    """Fill what a fused sweep takes from outside of the records."""
    function_at(address, _HOIST)(theta, data, constants, columns)


@njit(
    types.void(
        HANDLE, types.intp, types.int64, types.int64, VECTOR, VECTOR, VECTOR, MATRIX, MATRIX, VECTOR
    ),
    cache=True,
    nogil=True,
)  # fmt: skip
def sweep_part(handle, address, n_sweeps, prior_only, theta, data, constants, columns, x, tally):
    """Fused sweep over some of the records, which share no central release with the others."""
    none = np.empty(0)
    state = RecordState(
        theta, data, constants, columns, none, np.empty((0, 1)), none, x, none, prior_only == 1, tally,
        none, none,
    )  # fmt: skip
    function_at(address, _ROWS)(n_sweeps, generator_at(handle), state)
