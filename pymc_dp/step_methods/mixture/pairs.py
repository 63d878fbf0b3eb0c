"""Splits and merges of clusters that two records at random choose: their parts that all of these share.

If the two records share a cluster it is split, otherwise their clusters are merged (Jain & Neal 2004).
"""

import math

import numpy as np

from pymc_dp.lowering.addresses.bind import part_of_kernel
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random, standard_exponential
from pymc_dp.lowering.functions.urn import weight_of_new_cluster
from pymc_dp.step_methods.mixture.slots import commit


@njit
def split_ratio(alpha, d, k, m, s):
    """Logarithm of the partition's ratio where a cluster of m, one of k, loses s to a new one."""
    part = math.lgamma(m - s - d) + math.lgamma(s - d) - math.lgamma(m - d) - math.lgamma(1.0 - d)
    rest = alpha + d * k if d >= 0.0 else -d * (np.round(-alpha / d) - k)
    return part + np.log(rest) if rest > 0.0 else -np.inf


@part_of_kernel
def two_clusters(rng, alpha, d, k, slots, members):
    """Choose two records; return their slots, and how many records these have.

    The latter are listed in ``members``, the two before all others. None are, if a single cluster cannot be
    split: where there is no room, or no further component.
    """
    labels, n = slots.labels, slots.labels.size
    first, second = int(random(rng) * n), int(random(rng) * (n - 1))
    second += second >= first
    h, g = labels[first], labels[second]
    if h == g and (k == slots.counts.size or weight_of_new_cluster(alpha, d, k) == 0.0):
        return h, g, 0
    members[0], members[1] = first, second
    size = 2
    for i in range(n):
        if (labels[i] == h or labels[i] == g) and i != first and i != second:
            members[size] = i
            size += 1
    return h, g, size


@part_of_kernel
def accepted(rng, total, splits, alpha, d, k, size, n_other):
    """Decide on the logarithm of a split's ratio but for the partition's, or on its inverse for a merge.

    The split cluster, or the merged one, has ``size`` records, of which ``n_other`` go to a new cluster.
    """
    total += split_ratio(alpha, d, k if splits else k - 1, size, n_other)
    total = total if splits else -total
    return total >= 0.0 or total > -standard_exponential(rng)


@part_of_kernel
def commit_members(rng, splits, h, g, members, size, n_other, to_other, k, slots):
    """Give records of slot h a slot of their own, or all of h and g slot h; return as :func:`.slots.commit`.

    ``to_other`` tells which of the members from the third on go to the new slot, and the second always does.
    """
    g, k = commit(rng, splits, h, g, size, n_other, k, slots)
    if splits:
        slots.labels[members[1]] = g
        for r in range(2, size):
            if to_other[r]:
                slots.labels[members[r]] = g
    else:
        for r in range(1, size):
            slots.labels[members[r]] = h
    return g, k
