"""Which slots are occupied, as a permutation of the slots with the occupied ones first."""

from typing import NamedTuple

import numpy as np

from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random
from pymc_dp.lowering.functions.exponential import exp_in_place
from pymc_dp.step_methods.mixture.state import Integers

# Numbers below which their exponentials one by one are faster.
_FEW = 5


class Slots(NamedTuple):
    """Who is where.

    Attributes
    ----------
    labels, counts
        The slot of each record, how many records each slot has.
    order, place
        The slots, those with records first, and where each slot stands among them.
    """

    labels: Integers
    counts: Integers
    order: Integers
    place: Integers


@njit(inline="always")
def slots_of(state):
    """Return how many slots are occupied, and the slots."""
    n = state.counts.size
    slots = Slots(state.labels, state.counts, np.empty(n, np.int64), np.empty(n, np.int64))
    return occupied_first(slots), slots


@njit(inline="always")
def occupied_first(slots):
    """Fill the permutation and its inverse from the counts; return the number of occupied slots."""
    _, counts, order, place = slots
    k, last = 0, counts.size - 1
    for h in range(counts.size):
        if counts[h] > 0:
            order[k], place[h] = h, k
            k += 1
        else:
            order[last], place[h] = h, last
            last -= 1
    return k


@part_of_kernel
def swap(slots, a, b):
    """Exchange what stands at two places of the permutation."""
    _, _, order, place = slots
    g, h = order[a], order[b]
    order[a], order[b] = h, g
    place[h], place[g] = a, b


@part_of_kernel
def free_slot(rng, slots, k):
    """Return a free slot chosen uniformly."""
    return slots.order[k + int(random(rng) * (slots.order.size - k))]


@part_of_kernel
def leave(i, k, slots):
    """Take record i out of its slot; return the slot, and how many slots the other records occupy.

    What a sweep keeps of that slot beside the counts (weights, sums over its records) is of one record more
    than there are now, and has to be renewed by the sweep.
    """
    h = slots.labels[i]
    slots.counts[h] -= 1
    if slots.counts[h] == 0:
        k -= 1
        swap(slots, slots.place[h], k)
    return h, k


@part_of_kernel
def enter(i, g, k, slots):
    """Put record i into a slot, which may have been free; return how many are occupied."""
    if slots.counts[g] == 0:
        swap(slots, slots.place[g], k)
        k += 1
    slots.counts[g] += 1
    slots.labels[i] = g
    return k


@part_of_kernel
def commit(rng, splits, h, g, size, n_other, k, slots):
    """Seat a split or a merge but for labels; return the slot that opens or closes, how many are occupied.

    Of ``size`` records, in slot h or in h and g together, ``n_other`` go to a free slot, or all to h.
    """
    if splits:
        g = free_slot(rng, slots, k)
        swap(slots, slots.place[g], k)
        slots.counts[h], slots.counts[g] = size - n_other, n_other
        return g, k + 1
    slots.counts[h], slots.counts[g] = size, 0
    swap(slots, slots.place[g], k - 1)
    return g, k - 1


@njit(inline="always")
def exponentials(before, after, weights, m):
    """Return the sums of two times m weights, given as logarithms.

    The weights themselves take the place of the first logarithms; those of the latter are kept in `weights`.
    The arrays have `SPARE` entries more.
    """
    best = before[0]
    for j in range(m):
        best = max(best, before[j], after[j])
    one, other = 0.0, 0.0
    if best == -np.inf:
        before[:m], weights[:m] = 0.0, 0.0
    elif m < _FEW:
        for j in range(m):
            before[j] = np.exp(before[j] - best)
            weights[j] = np.exp(after[j] - best)
    else:
        for j in range(m):
            before[j] -= best
            weights[j] = after[j] - best
        exp_in_place(before, m)
        exp_in_place(weights, m)
    for j in range(m):
        one += before[j]
        other += weights[j]
    return one, other


@njit(inline="always")
def weighted(rng, weights, total, m):
    """Draw one of m with given weights; the first if all are zero."""
    left = random(rng) * total
    for j in range(m):
        left -= weights[j]
        if left < 0.0:
            return j
    return 0


@njit(inline="always")
def pick(rng, logs, m):
    """Draw one of m with given logarithms of weights, which are overwritten; -1 if all are zero.

    The array has `SPARE` entries more.

    A logarithm that is no number is that of zero: atoms outside of the kernel's domain, as of a covariance
    that is not positive definite, are possible under the base only.
    """
    if m == 2 and logs[0] > -np.inf and logs[1] > -np.inf:  # the usual case of slices
        return int(random(rng) * (1.0 + np.exp(logs[0] - logs[1])) < 1.0)
    best, first = -np.inf, -1
    for j in range(m):
        if logs[j] > best:
            best, first = logs[j], j
    if first < 0:
        return -1
    if m < _FEW:
        for j in range(m):
            if j == first:  # spared its exponential, of which there are few
                logs[j] = 1.0
            else:
                logs[j] = np.exp(logs[j] - best) if logs[j] == logs[j] else 0.0
    else:
        for j in range(m):
            logs[j] = logs[j] - best if logs[j] == logs[j] else -np.inf
        logs[first] = 0.0
        exp_in_place(logs, m)
    total = 0.0
    for j in range(m):
        total += logs[j]
    return weighted(rng, logs, total, m)


@njit
def longer(array, size):
    """Return a copy of an array with room for more rows."""
    out = np.empty((size, array.shape[1]))
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            out[i, j] = array[i, j]
    return out
