"""Nopython loop that alternates records, parameters given records, and parameters given noise.

The parameters move by the updates of :mod:`pymc_dp.step_methods.updates.walks` or
:mod:`pymc_dp.step_methods.updates.hamiltonian`, which learn for each parametrisation by itself.
"""

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.native import (
    COORDINATES,
    GENERATOR,
    HANDLE,
    MATRIX,
    NOISE,
    QUADRATIC,
    RECORDS,
    VECTOR,
    function_at,
    generator_at,
)
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import standard_normal
from pymc_dp.step_methods.sweeps.kernels import sweep
from pymc_dp.step_methods.updates.columns import turn
from pymc_dp.step_methods.updates.redraw import PROPOSALS, redraw
from pymc_dp.step_methods.updates.state import (
    GIVEN_EFFECTS,
    GIVEN_NOISE,
    GIVEN_RECORDS,
    LEARNT,
    REDRAWN,
    UPDATE,
    ParameterState,
)
from pymc_dp.step_methods.updates.walks import random_walk

_COORDINATES = types.FunctionType(COORDINATES)
_QUADRATIC = types.FunctionType(QUADRATIC)
_NOISE = types.FunctionType(NOISE)
_RECORDS = types.FunctionType(RECORDS)
_INDEX = types.Array(types.intp, 1, "C")
_UPDATES = types.FunctionType(UPDATE)


@njit(types.boolean(GENERATOR, types.intp, VECTOR, VECTOR, MATRIX, VECTOR, _INDEX), cache=True)
def gaussian_draw(rng, address, theta, data, given, totals, where):
    """Draw ``theta[where]`` from its Gaussian conditional, in place; refused if it is improper."""
    k = where.shape[0]
    gradient, entries = np.empty(k), np.empty(k * k)
    function_at(address, _QUADRATIC)(theta, data, given, totals, gradient, entries)
    precision = entries.reshape((k, k))
    # Cholesky factor in the lower triangle of the precision
    for i in range(k):
        for j in range(i + 1):
            total = precision[i, j]
            for m in range(j):
                total -= precision[i, m] * precision[j, m]
            if i == j:
                if not total > 0.0:
                    return False
                precision[i, i] = np.sqrt(total)
            else:
                precision[i, j] = total / precision[j, j]
    step = gradient.copy()
    for i in range(k):
        for m in range(i):
            step[i] -= precision[i, m] * step[m]
        step[i] /= precision[i, i]
    for i in range(k):
        step[i] += standard_normal(rng)
    for i in range(k - 1, -1, -1):
        for m in range(i + 1, k):
            step[i] -= precision[m, i] * step[m]
        step[i] /= precision[i, i]
    for i in range(k):
        theta[where[i]] += step[i]
    return True


@njit(
    types.int64(
        HANDLE, types.Array(types.int64, 1, "C"), types.Array(types.intp, 1, "C"),
        types.Array(types.int64, 1, "C"), types.Array(types.intp, 1, "C"), types.int64, types.int64,
        VECTOR, VECTOR, _INDEX, types.int64, _INDEX, MATRIX, _INDEX, MATRIX, VECTOR, LEARNT, LEARNT, LEARNT,
        PROPOSALS,
        types.Array(types.int64, 1, "C"), types.Array(types.intp, 1, "C"), VECTOR, MATRIX, MATRIX,
    ),
    cache=True,
    from_python=True,
)  # fmt: skip
def interweave(
    handle, counts, addresses, record_sizes, record_addresses, n_done, adapting,
    theta, data, moving, n_counted, upper_at, ends, gaussian, x, totals, centred, ancillary, upper, proposals,
    draw_sizes, draw_addresses, record_tally, tallies, trace,
):  # fmt: skip
    """Cycles of: records given parameters, parameters given records, parameters given noise; in place.

    Returns the number of sweeps that ``record_tally`` is of.

    Instead of the last, records that a sweep draws exactly may be summed over: then no function gives noise
    or records, and they are drawn anew after the parameters have moved.

    The sweep comes first, so that ``totals`` belong to ``x`` when the ancillary density reads those of the
    statistics that do not move with the parameters. The first of several cycles has none where there are
    many records, and no first cycle where the records have a step of their own.

    ``counts``: cycles, centred updates, ancillary updates, proposals of parameters with all records, updates
    of the upper level, sums that the centred density reads in place of the records, sweeps in the first
    cycle.
    ``addresses``: centred, ancillary, noise, records, quadratic, to and from the coordinates of
    the ancillary density, :func:`pymc_dp.step_methods.updates.walks.random_walk`,
    :func:`pymc_dp.step_methods.updates.walks.slice_update` or
    :func:`pymc_dp.step_methods.updates.hamiltonian.hamiltonian`, and the two that
    :func:`pymc_dp.step_methods.updates.redraw.redraw` takes, the density of the upper level, and the sums of
    the records; 0 where there is none.
    ``moving``: positions in ``theta`` that move given the noise or with all records; all but the first
    ``n_counted``, numbers of people, also given the records. Whole numbers come first; ``ends``: the least
    and the greatest value of each. ``upper_at``: positions of parameters of parameters, which move given
    these without a look at the records. ``gaussian``: positions with a Gaussian conditional.
    ``draw_sizes``, ``draw_addresses``: of the move that draws records from their law, which is not always
    that of the sweep: an informed one draws from what it proposes from.
    ``n_done``: cycles already adapted on. ``trace``: gets ``theta[moving]`` as it was, and as it is
    after each cycle.
    """
    rng = generator_at(handle)
    n_cycles, n_centred, n_ancillary, n_redrawn, n_upper, n_sums, n_first = counts
    update = function_at(addresses[7], _UPDATES)
    exact_tally = np.empty(2)
    phi, no_ends, sums = np.empty_like(theta), np.empty((0, 2)), np.empty((1, n_sums))
    columns, u = np.empty((x.shape[1], x.shape[0])), np.empty((x.shape[1], x.shape[0]))
    for i in range(moving.size):
        trace[0, i] = theta[moving[i]]
    for cycle in range(n_cycles):
        n_sweeps = 1 if cycle > 0 else n_first  # without any, the contributions of the records are summed
        sweep(rng, n_sweeps, 0, record_sizes, record_addresses, theta, data, x, totals, record_tally)
        if addresses[4] != 0:
            gaussian_draw(rng, addresses[4], theta, data, x, totals, gaussian)
        done = n_done + cycle
        if n_upper > 0:
            state = ParameterState(
                theta,
                data,
                x,
                totals,
                upper_at,
                no_ends,
                upper,
                done * n_upper,
                adapting,
                tallies[GIVEN_EFFECTS],
            )
            random_walk(n_upper, rng, addresses[10], state)
        if n_centred > 0:
            if n_sums > 0:
                function_at(addresses[11], _RECORDS)(theta, data, x, sums)
            else:
                turn(x, columns)
            state = ParameterState(
                theta,
                data,
                sums if n_sums > 0 else columns,
                totals,
                moving[n_counted:],
                ends[n_counted:],
                centred,
                done * n_centred,
                adapting,
                tallies[GIVEN_RECORDS],
            )
            update(n_centred, rng, addresses[0], state)
        if n_redrawn > 0:
            redraw(
                n_redrawn, rng, addresses[8], addresses[9], draw_sizes, draw_addresses, theta, data, moving,
                x, totals, proposals, adapting, tallies[REDRAWN],
            )  # fmt: skip
        if n_ancillary > 0:
            if addresses[2] != 0:
                function_at(addresses[2], _NOISE)(rng, theta, data, x, u)
            if addresses[5] != 0:
                function_at(addresses[5], _COORDINATES)(theta, data, phi)
            else:
                for k in range(theta.shape[0]):
                    phi[k] = theta[k]
            state = ParameterState(
                phi,
                data,
                u,
                totals,
                moving,
                ends,
                ancillary,
                done * n_ancillary,
                adapting,
                tallies[GIVEN_NOISE],
            )
            accepted = update(n_ancillary, rng, addresses[1], state)
            if accepted > 0:
                if addresses[3] != 0:
                    function_at(addresses[3], _RECORDS)(phi, data, u, x)
                if addresses[6] != 0:
                    function_at(addresses[6], _COORDINATES)(phi, data, theta)
                else:
                    for k in range(theta.shape[0]):
                        theta[k] = phi[k]
                if addresses[3] == 0:  # they were summed over: an exact draw, before anything reads them
                    sweep(rng, 1, 0, record_sizes, record_addresses, theta, data, x, totals, exact_tally)
        for i in range(moving.size):
            trace[cycle + 1, i] = theta[moving[i]]
    return n_cycles - 1 + n_first
