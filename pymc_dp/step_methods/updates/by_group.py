"""Random walks of parameters in groups that are independent of each other given the others.

Effects of areas, each behind the people of its area only: all groups are proposed at once, at the cost of one
density, and each is accepted or refused by itself, so that steps are as long as a few numbers take, however
many groups there are. The numbers that all groups have in common move by a random walk of their own.
"""

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.lowering.addresses.native import SLOPES, function_at
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random, standard_normal
from pymc_dp.step_methods.updates import positive
from pymc_dp.step_methods.updates.hamiltonian import copy
from pymc_dp.step_methods.updates.positive import IS_LOG
from pymc_dp.step_methods.updates.state import UPDATE, Learnt
from pymc_dp.step_methods.updates.walks import DECAY, TARGET, adapt

_TERMS = types.FunctionType(SLOPES)
# Root of the covariance that proposals begin with.
_FIRST = 0.1
# Share of the updates of what groups share in which positive numbers move as they are, not as logarithms:
# the logarithm of a small scale has a long tail, in which steps that suit larger ones are short.
_THEMSELVES = 0.5


def begun(part: np.ndarray, is_log: np.ndarray) -> Learnt:
    """Return what updates begin with.

    Parameters
    ----------
    part : ndarray of int
        The group of each number, -1 of those that are in none.
    is_log : ndarray
        Whether each is the logarithm of a positive one.
    """
    nothing, largest = np.zeros((0, 0)), int(np.bincount(part[part >= 0]).max())
    shared = np.tile(_FIRST * np.eye(int(np.sum(part < 0))), (2, 1))
    apart = np.tile(_FIRST * np.eye(largest), (int(part.max()) + 1, 1))
    return Learnt(shared, nothing, nothing, np.zeros(0), positive.begun(is_log), part, apart)


@part_of_kernel
def chance(there, here):
    """Probability to accept a move between log densities; 0 for one that could not be taken back."""
    if not (abs(here) < np.inf and abs(there) < np.inf):
        return 0.0
    return 1.0 if there >= here else np.exp(there - here)


@part_of_kernel
def total(terms):
    """Add up a vector."""
    found = 0.0
    for i in range(terms.size):
        found += terms[i]
    return found


@part_of_kernel
def step_of(factor, row, z, n):
    """Return an entry of a lower triangle times a vector, of which n entries count."""
    step = 0.0
    for j in range(n):
        step += factor[row, j] * z[j]
    return step


@part_of_kernel
def move_shared(theta, place, moving, part, order, factor, first, z, is_log):
    """Propose other values of the numbers in no group; return the log Jacobian, infinite beyond zero.

    From row ``first`` on, ``factor`` has the covariance of steps: of numbers as they are sampled in the first
    rows, with positive ones as they are in the others.
    """
    change = 0.0
    for i in range(moving.size):
        if part[i] >= 0:
            continue
        here = theta[moving[i]]
        step = step_of(factor, first + order[i], z, order[i] + 1)
        there = here + step
        if first > 0 and is_log[i] > 0.0:
            itself = np.exp(here) + step
            if not itself > 0.0:
                return np.inf
            there = np.log(itself)
            change += here - there
        place[moving[i]] = there
    return change


@part_of_kernel
def settle(theta, place, moving, part, shared, moves):
    """Make the places of what moves the numbers, and those numbers the places that do not."""
    for i in range(moving.size):
        if (part[i] < 0) == shared:
            if moves[max(part[i], 0)]:
                theta[moving[i]] = place[moving[i]]
            else:
                place[moving[i]] = theta[moving[i]]


@njit(UPDATE, cache=True)
def by_group(n_updates, rng, address, state):
    """Metropolis updates of what groups share, then of each group, in place; returns the acceptances.

    ``address`` is that of a function that gives the terms of the log density, added up by group, and after
    those the ones that depend on no group. An update costs two evaluations.
    """
    theta, data, given, totals, moving = state.theta, state.data, state.given, state.totals, state.moving
    tally, part, factor, apart = state.tally, state.learnt.part, state.learnt.factor, state.learnt.apart
    is_log = state.learnt.charts[IS_LOG]
    terms = function_at(address, _TERMS)
    k, n_shared, width = moving.shape[0], factor.shape[1], apart.shape[1]
    n_groups = apart.shape[0] // width
    here, there = np.empty(n_groups + 1), np.empty(n_groups + 1)
    place, z, walk = theta.copy(), np.zeros((n_groups, width)), np.empty(n_shared)
    # which number of its group, or of those that are in none (counted last), each is
    order, counted, moves = (
        np.empty(k, np.intp),
        np.zeros(n_groups + 1, np.intp),
        np.empty(n_groups, np.bool_),
    )
    for i in range(k):
        order[i] = counted[part[i]]
        counted[part[i]] += 1
    terms(theta, data, given, totals, here)
    accepted = 0
    for update in range(n_updates):
        rate = (state.n_adapted + update + 1.0) ** -DECAY
        if n_shared > 0:
            first = n_shared if random(rng) < _THEMSELVES else 0
            for i in range(n_shared):
                walk[i] = standard_normal(rng)
            change, probability = (
                move_shared(theta, place, moving, part, order, factor, first, walk, is_log),
                0.0,
            )
            if change < np.inf:
                terms(place, data, given, totals, there)
                probability = chance(total(there) + change, total(here))
            tally[0] += probability
            tally[1] += 1.0
            moves[0] = random(rng) < probability
            if moves[0]:
                accepted += 1
                copy(there, here)
            settle(theta, place, moving, part, True, moves)
            if state.adapting:
                by = min(0.9, n_shared * rate) * (probability - TARGET)
                adapt(factor[first : first + n_shared], walk, by)
        for i in range(k):
            if part[i] >= 0:
                z[part[i], order[i]] = standard_normal(rng)
        for i in range(k):
            if part[i] >= 0:
                step = step_of(apart, part[i] * width + order[i], z[part[i]], order[i] + 1)
                place[moving[i]] = theta[moving[i]] + step
        terms(place, data, given, totals, there)
        tally[1] += 1.0
        for g in range(n_groups):
            probability = chance(there[g], here[g])
            tally[0] += probability / n_groups
            moves[g] = random(rng) < probability
            if moves[g]:
                accepted += 1
                here[g] = there[g]
            if state.adapting:
                by = min(0.9, width * rate) * (probability - TARGET)
                adapt(apart[g * width : (g + 1) * width], z[g], by)
        settle(theta, place, moving, part, False, moves)
    return accepted
