"""Kernels of :mod:`.neal5`, in which :func:`~.bound.bound` gives names their meanings for a model."""

from typing import NamedTuple

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, part_of_kernel
from pymc_dp.lowering.addresses.tuples import entries, row, set_row
from pymc_dp.lowering.functions.bits import random, standard_exponential
from pymc_dp.lowering.functions.exponential import SPARE
from pymc_dp.lowering.functions.urn import weight_of_new_cluster
from pymc_dp.step_methods.mixture.bound import (
    BY_RECORD,
    N_ATOMS,
    N_CONSTANTS,
    N_HISTOGRAMS,
    N_STATISTICS,
    POSITIONS,
    STARTS,
    TEMPER_AT,
    WIDTH,
    Numbers,
    base_draw,
    current,
    given_release,
    inside,
    propose,
    released,
    urn,
)
from pymc_dp.step_methods.mixture.counters import ACCEPTED, CONSIDERED, MOVED, PROPOSED
from pymc_dp.step_methods.mixture.slots import (
    enter,
    exponentials,
    free_slot,
    leave,
    slots_of,
    weighted,
)
from pymc_dp.step_methods.mixture.state import Generator, Integers, Matrix, State, Vector
from pymc_dp.step_methods.sweeps.histogram import bin_in, change, moved

# Auxiliary records of a sweep with several.
N_AUXILIARY = 0


def peak(c: Numbers, cov: Matrix, i: int) -> float:
    """Log density of a record's releases that no record exceeds; infinite where there is none."""
    raise NotImplementedError


@part_of_kernel
def from_urn(rng, i, n, k, alpha, d, slots):
    """Draw the slot of a record given the labels of the others; -1 for a new cluster.

    With a discount d, a record's label is kept with probability 1 - d / n_h, and a new cluster opened
    otherwise; with -d = g > 0 (K components, concentration K g), g more for each occupied slot. All k
    discounts together are the chance d k of a new cluster, of which a negative concentration takes a part
    away: of those cases as many are drawn again.
    """
    g = -1
    u = random(rng) * (n - 1 + max(alpha, 0.0))
    while u < n - 1:
        j = int(u)
        u -= j
        j += j >= i
        g = slots.labels[j]
        if d <= 0.0 or u * slots.counts[g] >= d:
            break
        g = -1
        if alpha >= 0.0 or random(rng) * d * k >= -alpha:
            break
        u = random(rng) * (n - 1)
    if g < 0 and d < 0.0:
        j = int((u - (n - 1)) / -d)
        if j < k or weight_of_new_cluster(alpha, d, k) == 0.0:
            g = slots.order[min(j, k - 1)]
    return g


@part_of_kernel
def open_slot(rng, a, h, k, slots, atoms, full):
    """Return a slot with atoms a for a new cluster; without a free one, tell it and take that just left."""
    if k == slots.order.size:
        full[0] = True
        g = h
    else:
        g = free_slot(rng, slots, k)
    set_row(atoms, g, a)
    return g


def candidate(rng, c, cov, i, g, h, atoms):
    """Atoms of slot g, or of a new cluster if g is negative, and whether the kernel has a law for them.

    Where it has none, the record's own atoms, those of slot h, take their place: the move is refused, and
    draws from no law need not come to an end. Atoms of occupied slots are inside, for their own records.
    """
    a = row(atoms, g, N_ATOMS) if g >= 0 else base_draw(rng, c)
    if (g == h if BY_RECORD else g >= 0) or inside(c, cov, i, a):
        return a, True
    return row(atoms, h, N_ATOMS), False


@part_of_kernel
def room_for(c, state):
    """Make room for a decision, filled with what it keeps of the records: nothing, if not bound."""
    return ()


def decide(rng, c, state, room, i, g, h, a, defined):
    """Return whether record i goes from slot h to g, a new cluster if negative, with atoms a; and as what.

    Atoms without a law are refused.
    """
    raise NotImplementedError


def settle(rng, c, state, room, i, goes, g, new):
    """Give record i, which is in slot g after the decision, what it is."""
    raise NotImplementedError


@part_of_kernel
def finish(state, room):
    """Write back what a decision keeps: nothing, if not bound."""


def urn_sweep(n_sweeps: int, rng: Generator, state: State) -> None:
    """Propose each record the cluster of another one, or a new one; decisions differ in what they look at."""
    cov, n, atoms, tally = state.covariates, state.records.shape[0], state.atoms, state.tally
    c = entries(state.constants, N_CONSTANTS)
    alpha, d = urn(c)
    k, slots = slots_of(state)
    room = room_for(c, state)
    accepted, n_moved = 0.0, 0.0
    for _ in range(n_sweeps):
        for i in range(n):
            h, k = leave(i, k, slots)
            g = from_urn(rng, i, n, k, alpha, d, slots)
            a, defined = candidate(rng, c, cov, i, g, h, atoms)
            goes, new = decide(rng, c, state, room, i, g, h, a, defined)
            if goes:
                accepted += 1.0
                if g < 0:
                    g = open_slot(rng, a, h, k, slots, atoms, state.full)
                n_moved += g != h
            else:
                g = h
            settle(rng, c, state, room, i, goes, g, new)
            k = enter(i, g, k, slots)
    finish(state, room)
    tally[ACCEPTED] += accepted
    tally[PROPOSED] += n * n_sweeps
    tally[MOVED] += n_moved
    tally[CONSIDERED] += n * n_sweeps


@part_of_kernel
def accepts(rng, log_ratio, defined):
    """Decide by a ratio; where atoms have no law, it is none."""
    if not defined:
        log_ratio = -np.inf
    return log_ratio >= 0.0 or log_ratio > -standard_exponential(rng)


# -- one auxiliary record, for releases of any kind ----------------------------------------------------


class Sums(NamedTuple):
    """Queries of sums before and after a move, log weights of the records, their bins in each histogram.

    ``left``, ``entered``: where the counts of bins stand that the record at hand leaves and enters.
    """

    old: Vector
    new: Vector
    weights: Vector
    bins: Integers
    left: Integers
    entered: Integers


def sums_of_records(c, state):
    """Add the records up."""
    x, n = state.records, state.records.shape[0]
    room = Sums(
        state.offset.copy(), state.offset.copy(), np.empty(n), np.empty((N_HISTOGRAMS, n), np.int32),
        np.empty(N_HISTOGRAMS, np.int64), np.empty(N_HISTOGRAMS, np.int64),
    )  # fmt: skip
    old, _, w, bins, _, _ = room
    for i in range(n):
        s, w[i], seen = current(c, state.covariates, i, row(x, i, WIDTH))
        for j in range(N_STATISTICS):
            old[POSITIONS[j]] += s[j]
        for q in range(N_HISTOGRAMS):
            bins[q, i] = bin_in(q, seen[q])
            old[STARTS[q] + bins[q, i]] += 1.0
    return room


def by_one_record(rng, c, state, room, i, g, h, a, defined):
    """Decide on a record that is drawn from the cluster."""
    old, new, w, bins, left, entered = room
    y, t, weight, seen = propose(rng, c, state.covariates, i, a)
    if N_STATISTICS:
        s, _, _ = current(c, state.covariates, i, row(state.records, i, WIDTH))
        for j in range(N_STATISTICS):
            new[POSITIONS[j]] = old[POSITIONS[j]] + (t[j] - s[j])
    for q in range(N_HISTOGRAMS):
        entered[q] = STARTS[q] + bin_in(q, seen[q])
        left[q] = STARTS[q] + bins[q, i]
    total = change(state.theta, state.data, state.observed, state.noise, old, new)
    total = moved(total, state.observed, state.noise, old, left, entered)
    if TEMPER_AT >= 0:
        total *= state.data[TEMPER_AT]
    if w[i] != -np.inf:
        total += weight - w[i]
    return accepts(rng, total, defined), (y, weight)


def take_record(rng, c, state, room, i, goes, g, new):
    """Take the record that was drawn, and bring the sums up to date."""
    if not goes:
        return
    y, weight = new
    old, after, w, bins, left, entered = room
    set_row(state.records, i, y)
    w[i] = weight
    for j in range(N_STATISTICS):
        old[POSITIONS[j]] = after[POSITIONS[j]]
    for q in range(N_HISTOGRAMS):
        if left[q] != entered[q]:
            old[left[q]] -= 1.0
            old[entered[q]] += 1.0
            bins[q, i] = entered[q] - STARTS[q]


def tell_totals(state, room):
    """Fill the sums over the records, of which those behind the releases are another constant away."""
    for j in range(room.old.size):
        state.totals[j] = room.old[j] - state.offset[j]


# -- several auxiliary records, for local releases -----------------------------------------------------


class Auxiliaries(NamedTuple):
    """Log weights of auxiliary records from the record's cluster and from the other, weights, and records."""

    before: Vector
    after: Vector
    weights: Vector
    fresh: Matrix


def auxiliaries(c, state):
    """Make room for them."""
    size = N_AUXILIARY + SPARE
    return Auxiliaries(np.empty(size), np.empty(size), np.empty(size), np.empty((N_AUXILIARY, WIDTH)))


def by_several_records(rng, c, state, room, i, g, h, a, defined):
    """Decide on the means of the weights of auxiliary records of each cluster.

    The record is one of its auxiliaries, and the others are drawn afresh from its cluster, so that nothing
    has to be kept between sweeps. A refused proposal leaves the record as it is. Where noise is additive no
    more of the others are drawn than the decision takes: none weighs more than a record without noise.
    """
    before, after, weights, fresh = room
    cov, own = state.covariates, row(state.atoms, h, N_ATOMS)
    _, before[0], _ = current(c, cov, i, row(state.records, i, WIDTH))
    for j in range(N_AUXILIARY):
        y, _, after[j], _ = propose(rng, c, cov, i, a)
        set_row(fresh, j, y)
    u = random(rng)
    decided, now, then = False, 0.0, 0.0
    top = peak(c, cov, i)
    if top < np.inf:
        now = np.exp(before[0] - top)
        for j in range(N_AUXILIARY):
            weights[j] = np.exp(after[j] - top)
            then += weights[j]
        j = 1
        while j < N_AUXILIARY and u * now < then <= u * (now + N_AUXILIARY - j):
            _, _, weight, _ = propose(rng, c, cov, i, own)
            now += np.exp(weight - top)
            j += 1
        # otherwise all of them are too far out for these numbers
        decided = now > 0.0 or then > 0.0
    if not decided:
        for j in range(1, N_AUXILIARY):
            _, _, before[j], _ = propose(rng, c, cov, i, own)
        now, then = exponentials(before, after, weights, N_AUXILIARY)
    return defined and (now == 0.0 or u * now < then), then


def take_one(rng, c, state, room, i, goes, g, then):
    """Take one of the cluster's auxiliary records, by their weights, which add up to ``then``."""
    if goes:
        t = weighted(rng, room.weights, then, N_AUXILIARY)
        set_row(state.records, i, row(room.fresh, t, WIDTH))


# -- infinitely many auxiliary records -----------------------------------------------------------------


def by_the_release(rng, c, state, room, i, g, h, a, defined):
    """Decide on the density of the release with the record integrated out."""
    total = 0.0
    if g != h:  # of its own cluster there is nothing to decide
        before = released(c, state.covariates, i, row(state.atoms, h, N_ATOMS))
        if before != -np.inf:
            total = released(c, state.covariates, i, a) - before
    return accepts(rng, total, defined), total


def draw_record(rng, c, state, room, i, goes, g, new):
    """Draw the record given its release and its cluster."""
    y = given_release(rng, c, state.covariates, i, row(state.atoms, g, N_ATOMS))
    set_row(state.records, i, y)


# By the names that they are the meaning of.
ONE: dict[str, Function] = {
    "room_for": sums_of_records, "decide": by_one_record, "settle": take_record, "finish": tell_totals,
}  # fmt: skip
SEVERAL: dict[str, Function] = {"room_for": auxiliaries, "decide": by_several_records, "settle": take_one}
ALL: dict[str, Function] = {"decide": by_the_release, "settle": draw_record}
