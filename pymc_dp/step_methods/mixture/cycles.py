"""Cycles of sweeps over labels, records and atoms in one native loop."""

from typing import NamedTuple

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.native import (
    HANDLE,
    HOIST,
    INTEGERS,
    MATRIX,
    RELEASES,
    VECTOR,
    function_at,
    generator_at,
)
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random
from pymc_dp.step_methods.mixture.state import FLAGS, MIXTURE, State
from pymc_dp.step_methods.sweeps.kernels import sweep

_HOIST = types.FunctionType(HOIST)
_RELEASES = types.FunctionType(RELEASES)
_MIXTURE = types.FunctionType(MIXTURE)

# What a cycle does before the atoms are updated, the entries of a plan: labels and records together, or
# labels given records (with atoms of free slots, by sticks, or with atoms integrated out) and then records
# given labels; or the labels alone, with atoms integrated out; or none of these.
JOINT, CONDITIONAL, STICKS, COLLAPSED, RELABEL, ATOMS_ONLY, SPLITS_ONLY = range(7)
SWEEPING = (CONDITIONAL, STICKS, COLLAPSED)  # over the records given their labels
# Where functions stand among the addresses: what releases and hoists, loads, stores and refreshes atoms; the
# sweeps over labels and records together, and over labels; after them the kinds of splits and merges.
RELEASES_AT, HOIST_AT, LOAD, STORE, REFRESH, TOGETHER, LABELS, SPLITS = range(8)


class Plan(NamedTuple):
    """What a draw does: its cycles, splits and merges of each kind after a cycle and in a collapsed sweep."""

    cycles: np.ndarray
    splits: tuple[int, ...] = ()
    dealt: int = 0


@njit(
    types.void(
        HANDLE, INTEGERS, INTEGERS, INTEGERS, types.int64,
        types.Array(types.intp, 1, "C"), types.Array(types.intp, 1, "C"),
        types.Array(types.int64, 2, "C"), types.Array(types.intp, 2, "C"), VECTOR, VECTOR, MATRIX, VECTOR,
        INTEGERS, MATRIX, VECTOR, types.boolean, VECTOR, FLAGS, VECTOR, VECTOR,
    ),
    cache=True,
)  # fmt: skip
def mixture_cycles(
    handle, plan, sizes, n_splits, n_dealt, addresses, updates, move_sizes, move_addresses, theta, data, x,
    totals, counts, under_base, constants_then, tuning, learnt, full, tally, record_tally,
):  # fmt: skip
    """Run the cycles of a plan in place; ``theta`` and ``x`` hold the result.

    ``sizes``: statistics, release parameters, hoisted numbers, hoisted covariates, numbers of a slot's atoms,
    numbers of a record. ``n_splits``: splits and merges of each kind after a sweep; ``n_dealt``: in a
    collapsed one. ``addresses``: as named above; ``updates``: of the atoms.
    ``move_sizes``, ``move_addresses``: the records' own moves given the labels. Arrays: see :class:`.State`.
    """
    rng = generator_at(handle)
    n, n_slots = x.shape[0], counts.size
    d, n_params, n_constants, n_columns, width, n_numbers = sizes
    observed, noise, offset = np.empty(d), np.empty((d, n_params)), np.empty(d)
    if d > 0:
        function_at(addresses[RELEASES_AT], _RELEASES)(theta, data, observed, noise, offset)
    constants, covariates = np.empty(n_constants), np.empty((n_columns, n))
    function_at(addresses[HOIST_AT], _HOIST)(theta, data, constants, covariates)
    labels, atoms = np.empty(n, np.int64), np.empty((n_slots, width))
    middle, spread = np.empty(n_numbers), np.empty(n_numbers)
    state = State(
        theta, data, constants, covariates, observed, noise, offset, x, totals, labels, atoms, counts,
        middle, spread, under_base, constants_then, tuning, learnt, full, tally,
    )  # fmt: skip
    function_at(addresses[LOAD], _MIXTURE)(1, rng, state)
    for t in range(plan.size):
        if plan[t] == JOINT:
            function_at(addresses[TOGETHER], _MIXTURE)(1, rng, state)
        elif plan[t] == RELABEL:
            function_at(addresses[LABELS], _MIXTURE)(n_dealt, rng, state)
        elif plan[t] != ATOMS_ONLY and plan[t] != SPLITS_ONLY:
            if plan[t] == CONDITIONAL:
                function_at(addresses[REFRESH], _MIXTURE)(1, rng, state)
            function_at(addresses[LABELS], _MIXTURE)(n_dealt if plan[t] == COLLAPSED else 1, rng, state)
            if move_sizes.shape[0] > 0:  # there are none where the records are data
                if plan[t] == COLLAPSED:
                    for a in updates:
                        function_at(a, _MIXTURE)(1, rng, state)
                function_at(addresses[STORE], _MIXTURE)(1, rng, state)
                # any of them at random: by turns, some would always meet the same kind of cycle
                move = int(random(rng) * move_sizes.shape[0])
                sweep(
                    rng, 1, 0, move_sizes[move], move_addresses[move], theta, data, x, totals, record_tally
                )  # fmt: skip
        # splits propose from the atoms, which the labels alone have outrun
        if plan[t] != RELABEL:
            for q in range(n_splits.size):
                if n_splits[q] > 0:
                    function_at(addresses[SPLITS + q], _MIXTURE)(n_splits[q], rng, state)
        if full[0]:
            return
        for a in updates:
            function_at(a, _MIXTURE)(1, rng, state)
    function_at(addresses[REFRESH], _MIXTURE)(1, rng, state)
    function_at(addresses[STORE], _MIXTURE)(0, rng, state)
