"""Cycles of sweeps over labels, records and atoms in one native loop."""

from typing import NamedTuple

import numpy as np
from numba import types

from pymc_dp.lowering.bits import random
from pymc_dp.lowering.native import (
    HANDLE,
    HOIST,
    INTEGERS,
    MATRIX,
    MIXTURE,
    RELEASES,
    VECTOR,
    function_at,
    generator_at,
)
from pymc_dp.lowering.nopython import njit
from pymc_dp.step_methods.mixture.tally import FULL
from pymc_dp.step_methods.sweeps.kernels import sweep

_HOIST = types.FunctionType(HOIST)
_RELEASES = types.FunctionType(RELEASES)
_MIXTURE = types.FunctionType(MIXTURE)

# What a cycle does before the atoms are updated, the entries of a plan: labels and records together, or
# labels given records (with atoms of free slots, by sticks, or with atoms integrated out) and then records
# given labels; or the labels alone, with atoms integrated out; or none of these.
JOINT, CONDITIONAL, STICKS, COLLAPSED, RELABEL, ATOMS_ONLY, SPLITS_ONLY = range(7)
SWEEPING = (CONDITIONAL, STICKS, COLLAPSED)  # over the records given their labels


class Plan(NamedTuple):
    """What a draw does: its cycles, splits and merges of each kind after a cycle and in a collapsed sweep."""

    cycles: np.ndarray
    splits: tuple[int, ...] = ()
    dealt: int = 0


@njit(
    types.void(
        HANDLE, INTEGERS, INTEGERS, INTEGERS, types.int64,
        types.Array(types.intp, 1, "C"), types.Array(types.intp, 1, "C"),
        types.Array(types.int64, 2, "C"), types.Array(types.intp, 2, "C"), VECTOR, VECTOR, MATRIX, INTEGERS,
        MATRIX, INTEGERS, VECTOR, VECTOR, VECTOR, VECTOR,
    ),
    cache=True,
)  # fmt: skip
def mixture_cycles(
    handle, plan, sizes, n_splits, n_dealt, addresses, updates, move_sizes, move_addresses, theta, data, x,
    labels, atoms, counts, learnt, totals, tally, record_tally,
):  # fmt: skip
    """Run the cycles of a plan in place; ``theta``, ``x``, ``labels``, ``atoms`` hold the result.

    ``sizes``: statistics, release parameters, hoisted numbers, hoisted covariates. ``n_splits``: splits and
    merges of each kind after a sweep; ``n_dealt``: in a collapsed one. ``addresses``: releases, hoist, load,
    store, refresh, joint sweep, conditional sweep, each kind of splits; ``updates``: of the atoms.
    ``move_sizes``, ``move_addresses``: the records' own moves given the labels.
    """
    rng = generator_at(handle)
    n = x.shape[0]
    d, n_params, n_constants, n_columns = sizes
    value, params, offset = np.empty(d), np.empty((d, n_params)), np.empty(d)
    if d > 0:
        function_at(addresses[0], _RELEASES)(theta, data, value, params, offset)
    c, cov = np.empty(n_constants), np.empty((n_columns, n))
    function_at(addresses[1], _HOIST)(theta, data, c, cov)
    # every kernel takes the same arguments, after a number of sweeps
    given = (
        rng, theta, data, c, cov, value, params, offset, x, totals, labels, atoms, counts, learnt, tally,
    )  # fmt: skip
    function_at(addresses[2], _MIXTURE)(1, *given)
    for t in range(plan.size):
        if plan[t] == JOINT:
            function_at(addresses[5], _MIXTURE)(1, *given)
        elif plan[t] == RELABEL:
            function_at(addresses[6], _MIXTURE)(n_dealt, *given)
        elif plan[t] != ATOMS_ONLY and plan[t] != SPLITS_ONLY:
            if plan[t] == CONDITIONAL:
                function_at(addresses[4], _MIXTURE)(1, *given)
            function_at(addresses[6], _MIXTURE)(n_dealt if plan[t] == COLLAPSED else 1, *given)
            if move_sizes.shape[0] > 0:  # there are none where the records are data
                if plan[t] == COLLAPSED:
                    for a in updates:
                        function_at(a, _MIXTURE)(1, *given)
                function_at(addresses[3], _MIXTURE)(1, *given)
                # any of them at random: by turns, some would always meet the same kind of cycle
                move = int(random(rng) * move_sizes.shape[0])
                sweep(
                    rng, 1, 0, move_sizes[move], move_addresses[move], theta, data, x, totals, record_tally
                )  # fmt: skip
        # splits propose from the atoms, which the labels alone have outrun
        if plan[t] != RELABEL:
            for q in range(n_splits.size):
                if n_splits[q] > 0:
                    function_at(addresses[7 + q], _MIXTURE)(n_splits[q], *given)
        if tally[FULL] > 0.0:
            return
        for a in updates:
            function_at(a, _MIXTURE)(1, *given)
    function_at(addresses[4], _MIXTURE)(1, *given)
    function_at(addresses[3], _MIXTURE)(0, *given)
