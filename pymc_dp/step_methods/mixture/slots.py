"""Which slots are occupied, as a permutation of the slots with the occupied ones first."""

import math

import numpy as np

from pymc_dp.lowering.bind import part_of_kernel
from pymc_dp.lowering.bits import random
from pymc_dp.lowering.exponential import exp_in_place
from pymc_dp.lowering.nopython import njit
from pymc_dp.lowering.urn import weight_of_new_cluster

# Numbers below which their exponentials one by one are faster.
_FEW = 5
# Weights of the part of a cluster that is split off, the least one for one record.
_LEAST, _MOST = 0.7, 0.6


@njit(inline="always")
def occupied_first(counts, slots, where):
    """Fill the permutation and its inverse from the counts; return the number of occupied slots."""
    k = 0
    last = counts.size - 1
    for h in range(counts.size):
        if counts[h] > 0:
            slots[k] = h
            where[h] = k
            k += 1
        else:
            slots[last] = h
            where[h] = last
            last -= 1
    return k


@njit(inline="always")
def swap(slots, where, a, b):
    """Exchange what stands at two places of the permutation."""
    g, h = slots[a], slots[b]
    slots[a], slots[b] = h, g
    where[h], where[g] = a, b


@njit(inline="always")
def free_slot(rng, slots, k):
    """Return a free slot chosen uniformly."""
    return slots[k + int(random(rng) * (slots.size - k))]


@part_of_kernel
def leave(i, k, labels, counts, slots, where):
    """Take record i out of its slot; return the slot, and how many slots the other records occupy."""
    h = labels[i]
    counts[h] -= 1
    if counts[h] == 0:
        k -= 1
        swap(slots, where, where[h], k)
    return h, k


@part_of_kernel
def enter(i, g, k, labels, counts, slots, where):
    """Put record i into a slot, which may have been free; return how many are occupied."""
    if counts[g] == 0:
        swap(slots, where, where[g], k)
        k += 1
    counts[g] += 1
    labels[i] = g
    return k


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


@njit(inline="always")
def draw_weight(rng, m):
    """Draw the weight of a part of a cluster of m, with a density of 1/v between some ends."""
    return _MOST * np.exp(random(rng) * np.log(_LEAST / (_MOST * m)))


@njit(inline="always")
def has_weight(v, m):
    """Whether a part of m records could have been drawn this weight."""
    return _LEAST < v * m and v < _MOST


@njit
def log_split(alpha, d, k, n, m, s, v):
    """Logarithm of what does not depend on records, where a cluster of m, one of k, loses s of weight v."""
    partition = np.log(weight_of_new_cluster(alpha, d, k) * np.log(_MOST * m / _LEAST))
    partition -= d * np.log(v) + (1.0 + d) * np.log1p(-v)
    if d != 0.0:
        partition += math.lgamma(m - 2.0 * d) - math.lgamma(m - d) - math.lgamma(1.0 - d)
    return partition + np.log((m - s) / ((k + 1.0) * (n - s)) / (m / n))
