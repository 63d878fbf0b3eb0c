"""Sweeps over the labels given the records and the clusters' weights: the slice sampler.

Given the labels, the weights of the occupied slots and the rest are Dirichlet(n_1 - d, ..., n_k - d, alpha +
d k), in whatever order the slots are, and the rest is broken by sticks that know of no record: Beta(1 - d,
alpha + d k + d j) for the j-th one; with K components in all and weight g for each, Beta(g, g (K - k - j)). A
record's slice variable leaves it the components whose weight is above it, which are finitely many.

Kalli, Griffin & Walker (2011) draw all sticks from the labels, which must then be in the order of the sticks;
labels that are exchangeable slots are not.
"""

import numpy as np

from pymc_dp.lowering.addresses.bind import Kernel, part_of_kernel
from pymc_dp.lowering.addresses.tuples import entries, row
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random
from pymc_dp.lowering.functions.exponential import SPARE
from pymc_dp.lowering.functions.urn import weight_of_new_cluster
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    base_draw,
    bound,
    urn,
)
from pymc_dp.step_methods.mixture.counters import CONSIDERED, MOVED
from pymc_dp.step_methods.mixture.polynomials import N_MOMENTS, density, expand, moments_of, scales
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slots import longer, occupied_first, pick, slots_of
from pymc_dp.step_methods.mixture.state import Generator, State

# Components beyond which a sweep is left out. Weights and slice variables decide which ones are, and no sweep
# changes them, so that leaving it out is exact; only a discount near 1 needs so many often.
MAX_STICKS = 10_000
# Components up to which they are put in order one by one.
_FEW = 64


@njit
def break_stick(rng, alpha, d, k, j):
    """Share of the rest that the j-th component without a record takes (j = 1, 2, ...); see the module."""
    if d < 0.0:
        left = np.round(-alpha / d) - k - j
        return 1.0 if left <= 0.0 else rng.beta(-d, -d * left)
    return rng.beta(1.0 - d, alpha + d * k + d * j)


@njit
def heaviest_first(weights, size, order):
    """Return the order of components by their weights, which `order` has room for if they are few."""
    if size > order.size:
        return np.argsort(-weights[:size, 0])
    for t in range(size):
        m = t
        while m > 0 and weights[order[m - 1], 0] < weights[t, 0]:
            order[m] = order[m - 1]
            m -= 1
        order[m] = t
    return order


@part_of_kernel
def random_free_slot(rng, counts):
    """Return a slot without a record chosen uniformly, -1 if there is none."""
    free = 0
    for h in range(counts.size):
        free += counts[h] == 0
    if free == 0:
        return -1
    left = int(random(rng) * free)
    for h in range(counts.size):
        if counts[h] == 0:
            if left == 0:
                return h
            left -= 1
    return -1


def slice_sweep(n_sweeps: int, rng: Generator, state: State) -> None:
    """Slice sampler: O(components above a record's slice variable) per record."""
    cov, x, labels, atoms, counts = state.covariates, state.records, state.labels, state.atoms, state.counts
    n, n_slots = x.shape[0], counts.size
    c, full = entries(state.constants, N_CONSTANTS), state.full
    alpha, d = urn(c)
    scale, tally = scales(state), state.tally
    k, slots = slots_of(state)
    room = 2 * n_slots + 16
    parts, terms, weights = np.empty((room, N_ATOMS)), np.empty((room, N_MOMENTS)), np.empty((room, 1))
    slot_of = np.empty(n_slots, np.int64)
    u, logs, which = np.empty(n), np.empty(room + SPARE), np.empty(n, np.int64)
    moved, few = 0.0, np.empty(_FEW, np.int64)
    for _ in range(n_sweeps):
        k = occupied_first(slots)
        # components: the occupied slots first, then those without a record
        total, size = 0.0, k
        for t in range(k):
            g = slots.order[t]
            slot_of[t] = g
            weights[t, 0] = rng.standard_gamma(counts[g] - d)
            total += weights[t, 0]
            for j in range(N_ATOMS):
                parts[t, j] = atoms[g, j]
            expand(c, row(parts, t, N_ATOMS), scale, terms, t)
        rest = weight_of_new_cluster(alpha, d, k)
        rest = rng.standard_gamma(rest) if rest > 0.0 else 0.0
        total += rest
        for t in range(k):
            weights[t, 0] /= total
        rest /= total
        least = 1.0
        for i in range(n):
            which[i] = slots.place[labels[i]]
            u[i] = random(rng) * weights[which[i], 0]
            least = min(least, u[i])
        while rest > least:
            if size == room:
                if room > MAX_STICKS:
                    break
                room *= 2
                parts, terms, weights = longer(parts, room), longer(terms, room), longer(weights, room)
                logs = np.empty(room + SPARE)
            share = break_stick(rng, alpha, d, k, size - k + 1)
            weights[size, 0] = rest * share
            rest *= 1.0 - share
            a = base_draw(rng, c)
            for j in range(N_ATOMS):
                parts[size, j] = a[j]
            expand(c, a, scale, terms, size)
            size += 1
        if rest > least:
            continue
        # heaviest first, so that a record need not look further than its slice variable
        order = heaviest_first(weights, size, few)
        heaviest, ordered = np.empty(size), np.empty((size, N_MOMENTS))
        for m in range(size):
            heaviest[m] = weights[order[m], 0]
            for j in range(N_MOMENTS):
                ordered[m, j] = terms[order[m], j]
        for i in range(n):
            v = moments_of(c, cov, i, x, scale)
            m = 0
            while m < size and heaviest[m] > u[i]:
                logs[m] = density(c, cov, i, v, ordered, m, row(parts, order[m], N_ATOMS))
                m += 1
            if m == 1:  # the only one is where the record is
                continue
            m = pick(rng, logs, m)
            if m >= 0:
                moved += order[m] != which[i]
                which[i] = order[m]
        # give the components that have records now, and had none, a slot each
        for h in range(n_slots):
            counts[h] = 0
        for i in range(n):
            if which[i] < k:
                counts[slot_of[which[i]]] += 1
        taken = np.full(size, -1)
        for i in range(n):
            t = which[i]
            if t < k:
                labels[i] = slot_of[t]
                continue
            if taken[t] < 0:
                taken[t] = random_free_slot(rng, counts)
                if taken[t] < 0:
                    full[0] = True
                    return
                for j in range(N_ATOMS):
                    atoms[taken[t], j] = parts[t, j]
            labels[i] = taken[t]
            counts[taken[t]] += 1
    tally[MOVED] += moved
    tally[CONSIDERED] += n * n_sweeps


def compiled(program: MixtureProgram) -> Kernel:
    """Compile the sweep."""
    return bound(slice_sweep, program)
