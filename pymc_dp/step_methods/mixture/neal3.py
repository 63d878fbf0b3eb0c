"""Sweeps over the labels given the records with the atoms integrated out, and splits and merges of that kind.

Where the law of a slot's numbers given its records is a known one, a slot has a normaliser, a function of a
few sums over its records (:mod:`.slot_sums`). Labels are drawn with the ratio of two normalisers in the place
of a density (Neal's algorithm 3), so that a record may open a cluster whatever the atoms of free slots happen
to be; the atoms are drawn afterwards. Splits deal the records of a cluster to two of them, one after another,
by the same ratios (Dahl 2005): divisions that fit are then proposed, not random ones.
"""

import numpy as np

from pymc_dp.lowering.addresses.bind import Kernel
from pymc_dp.lowering.addresses.tuples import entries, minus, plus, products, row, set_row
from pymc_dp.lowering.functions.bits import random
from pymc_dp.lowering.functions.exponential import SPARE
from pymc_dp.lowering.functions.urn import weight_of_new_cluster
from pymc_dp.step_methods.mixture import slot_sums
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    bound,
    urn,
)
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.counters import CONSIDERED, DEALINGS, DEALT, MOVED
from pymc_dp.step_methods.mixture.pairs import accepted, commit_members, two_clusters
from pymc_dp.step_methods.mixture.polynomials import N_MOMENTS, moments_of, scales
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slot_sums import N_NORMAL, N_SUMS, add_alike, know, log_z, weigh
from pymc_dp.step_methods.mixture.slots import enter, free_slot, leave, pick, slots_of
from pymc_dp.step_methods.mixture.state import Generator, State


def collapsed_sweep(n_sweeps: int, rng: Generator, state: State) -> None:
    """Sweep once, in O(number of clusters) per record; then try ``n_sweeps`` splits or merges."""
    cov, x, labels, counts, tally = state.covariates, state.records, state.labels, state.counts, state.tally
    n, n_slots = x.shape[0], counts.size
    c, full = entries(state.constants, N_CONSTANTS), state.full
    alpha, d = urn(c)
    scale, atoms = scales(state), state.atoms
    k, slots = slots_of(state)
    order = slots.order
    weights, empty = np.empty((N_SUMS, N_MOMENTS)), np.empty(N_SUMS)
    weigh(c, row(atoms, order[0], N_ATOMS), scale, weights, empty)
    nothing = entries(empty, N_SUMS)
    room, root = np.empty(N_SUMS), np.empty((max(N_NORMAL, 1), N_NORMAL + 1))
    tables = (add_alike(weights), np.full(n + 2, np.nan), np.empty(n + 2), np.empty(n + 2))

    # sums of each slot with its normaliser, and the logarithm of its size less the discount
    sums, z, sizes = np.empty((n_slots, N_SUMS)), np.empty(n_slots), np.empty(n_slots)
    logs, joined = np.empty(n_slots + 1 + SPARE), np.empty(n_slots + 1)
    for h in range(n_slots):
        set_row(sums, h, nothing)
        sizes[h] = np.log(counts[h] - d) if counts[h] > 0 else 0.0
    for i in range(n):
        own = products(weights, N_SUMS, moments_of(c, cov, i, x, scale))
        set_row(sums, labels[i], plus(row(sums, labels[i], N_SUMS), own))
    know(0, tables, empty, weights)
    z_empty = log_z(0, nothing, tables, room, root)
    for h in range(n_slots):
        know(counts[h], tables, empty, weights)
        z[h] = log_z(counts[h], row(sums, h, N_SUMS), tables, room, root)

    for i in range(n):
        h, k = leave(i, k, slots)
        own = products(weights, N_SUMS, moments_of(c, cov, i, x, scale))
        z_before = z[h]
        if counts[h] == 0:
            set_row(sums, h, nothing)
            z[h] = z_empty
        else:
            set_row(sums, h, minus(row(sums, h, N_SUMS), own))
            know(counts[h], tables, empty, weights)
            z[h] = log_z(counts[h], row(sums, h, N_SUMS), tables, room, root)
            sizes[h] = np.log(counts[h] - d)
        for m in range(k):
            g = order[m]
            if g == h:
                joined[m] = z_before
            else:
                joined[m] = log_z(counts[g] + 1, plus(row(sums, g, N_SUMS), own), tables, room, root)
            logs[m] = sizes[g] + joined[m] - z[g]
        rest = weight_of_new_cluster(alpha, d, k)
        m = k
        if rest > 0.0:
            if k == n_slots:
                full[0] = True
            else:
                joined[k] = log_z(1, plus(nothing, own), tables, room, root)
                logs[k] = np.log(rest) + joined[k] - z_empty
                m = k + 1
        m = pick(rng, logs, m)
        g = h
        if m == k:
            g = free_slot(rng, slots, k)
        elif m >= 0:
            g = order[m]
        tally[MOVED] += g != h
        k = enter(i, g, k, slots)
        set_row(sums, g, plus(row(sums, g, N_SUMS), own))
        z[g] = joined[m] if m >= 0 else z_before
        sizes[g] = np.log(counts[g] - d)
        know(counts[g], tables, empty, weights)
    tally[CONSIDERED] += n

    members, to_other = np.empty(n, np.int64), np.empty(n, np.bool_)
    for _ in range(n_sweeps if n > 1 else 0):
        h, g, size = two_clusters(rng, alpha, d, k, slots, members)
        if size == 0:
            continue
        splits = h == g
        one = plus(nothing, products(weights, N_SUMS, moments_of(c, cov, members[0], x, scale)))
        other = plus(nothing, products(weights, N_SUMS, moments_of(c, cov, members[1], x, scale)))
        z_one = log_z(1, one, tables, room, root)
        z_other = log_z(1, other, tables, room, root)
        n_one, n_other, chosen = 1, 1, 0.0
        for r in range(2, size):
            i = members[r]
            own = products(weights, N_SUMS, moments_of(c, cov, i, x, scale))
            know(n_one, tables, empty, weights)
            know(n_other, tables, empty, weights)
            with_one = log_z(n_one + 1, plus(one, own), tables, room, root)
            with_other = log_z(n_other + 1, plus(other, own), tables, room, root)
            odds = np.log((n_other - d) / (n_one - d)) + with_other - z_other - with_one + z_one
            # log(1 + exp(odds)), without overflow
            both_ways = max(odds, 0.0) + np.log1p(np.exp(-abs(odds)))
            goes = np.log(random(rng)) < odds - both_ways if splits else labels[i] == g
            to_other[r] = goes
            if goes:
                chosen += odds - both_ways
                other, z_other = plus(other, own), with_other
                n_other += 1
            else:
                chosen -= both_ways
                one, z_one = plus(one, own), with_one
                n_one += 1
        know(size - 1, tables, empty, weights)
        both = log_z(size, minus(plus(one, other), nothing), tables, room, root)
        total = z_one + z_other - both - z_empty - chosen
        tally[DEALINGS] += 1.0
        if not accepted(rng, total, splits, alpha, d, k, size, n_other):
            continue
        tally[DEALT] += 1.0
        _, k = commit_members(rng, splits, h, g, members, size, n_other, to_other, k, slots)


def compiled(program: MixtureProgram, laws: AtomLaws) -> Kernel:
    """Compile the sweep for a mixture whose atoms integrate out."""
    names = ("N_SUMS", "N_NORMAL", "weigh", "add_alike", "know", "log_z")
    return bound(collapsed_sweep, program, **slot_sums.names_of(program, laws, *names))
