"""Splits and merges of clusters that two records at random choose: their parts that all of these share.

If the two records share a cluster it is split, otherwise their clusters are merged (Jain & Neal 2004).
"""

import math

import numpy as np

from pymc_dp.lowering.bind import part_of_kernel
from pymc_dp.lowering.bits import random, standard_exponential
from pymc_dp.lowering.nopython import njit
from pymc_dp.step_methods.mixture.slots import free_slot, swap


@njit
def split_ratio(alpha, d, k, m, s):
    """Logarithm of the partition's ratio where a cluster of m, one of k, loses s to a new one."""
    part = math.lgamma(m - s - d) + math.lgamma(s - d) - math.lgamma(m - d) - math.lgamma(1.0 - d)
    rest = alpha + d * k if d >= 0.0 else -d * (np.round(-alpha / d) - k)
    return part + np.log(rest) if rest > 0.0 else -np.inf


@part_of_kernel
def two_records(rng, n):
    """Choose two of n records."""
    first, second = int(random(rng) * n), int(random(rng) * (n - 1))
    return first, second + (second >= first)


@part_of_kernel
def members_of(first, second, labels, members):
    """List the records of the clusters of two, which stand before the others; return how many they are."""
    h, g = labels[first], labels[second]
    members[0], members[1] = first, second
    size = 2
    for i in range(labels.size):
        if (labels[i] == h or labels[i] == g) and i != first and i != second:
            members[size] = i
            size += 1
    return size


@part_of_kernel
def accepted(rng, total, splits, alpha, d, k, size, n_other):
    """Decide on the logarithm of a split's ratio but for the partition's, or on its inverse for a merge.

    The split cluster, or the merged one, has ``size`` records, of which ``n_other`` go to a new cluster.
    """
    total += split_ratio(alpha, d, k if splits else k - 1, size, n_other)
    total = total if splits else -total
    return total >= 0.0 or total > -standard_exponential(rng)


@part_of_kernel
def divide(rng, h, members, size, n_other, to_other, k, labels, counts, slots, where):
    """Give records of slot h a slot of their own, the second member first of all; return that slot.

    ``to_other`` tells which of the members from the third on go there.
    """
    g = free_slot(rng, slots, k)
    swap(slots, where, where[g], k)
    labels[members[1]] = g
    for r in range(2, size):
        if to_other[r]:
            labels[members[r]] = g
    counts[h], counts[g] = size - n_other, n_other
    return g


@part_of_kernel
def unite(h, g, members, size, k, labels, counts, slots, where):
    """Give all members slot h; slot g becomes free."""
    for r in range(1, size):
        labels[members[r]] = h
    counts[h], counts[g] = size, 0
    swap(slots, where, where[g], k - 1)
