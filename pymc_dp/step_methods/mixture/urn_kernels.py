"""Kernels of :mod:`.urn`, in which :func:`~.bound.bound` gives names their meanings for a model."""

import numpy as np

from pymc_dp.lowering.bind import part_of_kernel
from pymc_dp.lowering.bits import random, standard_exponential
from pymc_dp.lowering.exponential import SPARE
from pymc_dp.lowering.tuples import entries, row, set_row
from pymc_dp.lowering.urn import weight_of_new_cluster
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
    bin_in,
    change,
    current,
    given_release,
    inside,
    moved,
    propose,
    released,
    urn,
)
from pymc_dp.step_methods.mixture.slots import (
    enter,
    exponentials,
    free_slot,
    leave,
    slots_of,
    weighted,
)
from pymc_dp.step_methods.mixture.state import Generator, Matrix, State
from pymc_dp.step_methods.mixture.tally import ACCEPTED, CONSIDERED, MOVED, PROPOSED

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


def candidate(
    rng: Generator, c: Numbers, cov: Matrix, i: int, g: int, h: int, atoms: Matrix
) -> tuple[Numbers, bool]:
    """Atoms of slot g, or of a new cluster if g is negative, and whether the kernel has a law for them.

    Where it has none, the record's own atoms, those of slot h, take their place: the move is refused, and
    draws from no law need not come to an end. Atoms of occupied slots are inside, for their own records.
    """
    raise NotImplementedError


def candidate_inside(
    rng: Generator, c: Numbers, cov: Matrix, i: int, g: int, h: int, atoms: Matrix
) -> tuple[Numbers, bool]:
    """Return what :func:`candidate` is to."""
    a = row(atoms, g, N_ATOMS) if g >= 0 else base_draw(rng, c)
    if (g == h if BY_RECORD else g >= 0) or inside(c, cov, i, a):
        return a, True
    return row(atoms, h, N_ATOMS), False


def urn_sweep(n_sweeps: int, rng: Generator, state: State) -> None:
    """Sweep with one auxiliary record, for releases of any kind."""
    x, atoms, tally = state.records, state.atoms, state.tally
    cov, n = state.covariates, x.shape[0]
    c = entries(state.constants, N_CONSTANTS)
    alpha, d = urn(c)
    k, slots = slots_of(state)
    old, new = state.offset.copy(), state.offset.copy()
    w = np.empty(n)
    bins = np.empty((N_HISTOGRAMS, n), np.int32)
    left, entered = np.empty(N_HISTOGRAMS, np.int64), np.empty(N_HISTOGRAMS, np.int64)
    for i in range(n):
        s, w[i], seen = current(c, cov, i, row(x, i, WIDTH))
        for j in range(N_STATISTICS):
            old[POSITIONS[j]] += s[j]
        for q in range(N_HISTOGRAMS):
            bins[q, i] = bin_in(q, seen[q])
            old[STARTS[q] + bins[q, i]] += 1.0
    accepted, n_moved = 0.0, 0.0
    for _ in range(n_sweeps):
        for i in range(n):
            h, k = leave(i, k, slots)
            g = from_urn(rng, i, n, k, alpha, d, slots)
            a, defined = candidate(rng, c, cov, i, g, h, atoms)
            y, t, weight, seen = propose(rng, c, cov, i, a)
            if N_STATISTICS:
                s, _, _ = current(c, cov, i, row(x, i, WIDTH))
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
            if not defined:
                total = -np.inf
            if total >= 0.0 or total > -standard_exponential(rng):
                accepted += 1.0
                if g < 0:
                    g = open_slot(rng, a, h, k, slots, atoms, state.full)
                n_moved += g != h
                for j in range(WIDTH):
                    x[i, j] = y[j]
                w[i] = weight
                for j in range(N_STATISTICS):
                    old[POSITIONS[j]] = new[POSITIONS[j]]
                for q in range(N_HISTOGRAMS):
                    if left[q] != entered[q]:
                        old[left[q]] -= 1.0
                        old[entered[q]] += 1.0
                        bins[q, i] = entered[q] - STARTS[q]
            else:
                g = h
            k = enter(i, g, k, slots)
    for j in range(old.size):
        state.totals[j] = old[j] - state.offset[j]
    tally[ACCEPTED] += accepted
    tally[PROPOSED] += n * n_sweeps
    tally[MOVED] += n_moved
    tally[CONSIDERED] += n * n_sweeps


def auxiliary_sweep(n_sweeps: int, rng: Generator, state: State) -> None:
    """Sweep with several auxiliary records, for local releases.

    The record is one of its auxiliaries, and the others are drawn afresh from its cluster, so that nothing
    has to be kept between sweeps. A refused proposal leaves the record as it is. Where noise is additive no
    more of the others are drawn than the decision takes: none weighs more than a record without noise.
    """
    x, atoms, tally = state.records, state.atoms, state.tally
    cov, n = state.covariates, x.shape[0]
    c = entries(state.constants, N_CONSTANTS)
    alpha, d = urn(c)
    k, slots = slots_of(state)
    before, after = np.empty(N_AUXILIARY + SPARE), np.empty(N_AUXILIARY + SPARE)
    weights = np.empty(N_AUXILIARY + SPARE)
    fresh = np.empty((N_AUXILIARY, WIDTH))
    accepted, n_moved = 0.0, 0.0
    for _ in range(n_sweeps):
        for i in range(n):
            h, k = leave(i, k, slots)
            _, before[0], _ = current(c, cov, i, row(x, i, WIDTH))
            g = from_urn(rng, i, n, k, alpha, d, slots)
            a, defined = candidate(rng, c, cov, i, g, h, atoms)
            for j in range(N_AUXILIARY):
                y, _, after[j], _ = propose(rng, c, cov, i, a)
                for q in range(WIDTH):
                    fresh[j, q] = y[q]
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
                    _, _, weight, _ = propose(rng, c, cov, i, row(atoms, h, N_ATOMS))
                    now += np.exp(weight - top)
                    j += 1
                # otherwise all of them are too far out for these numbers
                decided = now > 0.0 or then > 0.0
            if not decided:
                for j in range(1, N_AUXILIARY):
                    _, _, before[j], _ = propose(rng, c, cov, i, row(atoms, h, N_ATOMS))
                now, then = exponentials(before, after, weights, N_AUXILIARY)
            if defined and (now == 0.0 or u * now < then):
                accepted += 1.0
                if g < 0:
                    g = open_slot(rng, a, h, k, slots, atoms, state.full)
                n_moved += g != h
                t = weighted(rng, weights, then, N_AUXILIARY)
                for q in range(WIDTH):
                    x[i, q] = fresh[t, q]
            else:
                g = h
            k = enter(i, g, k, slots)
    tally[ACCEPTED] += accepted
    tally[PROPOSED] += n * n_sweeps
    tally[MOVED] += n_moved
    tally[CONSIDERED] += n * n_sweeps


def closed_sweep(n_sweeps: int, rng: Generator, state: State) -> None:
    """Sweep in which records are integrated out of the decision: infinitely many auxiliary records."""
    x, atoms, tally = state.records, state.atoms, state.tally
    cov, n = state.covariates, x.shape[0]
    c = entries(state.constants, N_CONSTANTS)
    alpha, d = urn(c)
    k, slots = slots_of(state)
    accepted, n_moved = 0.0, 0.0
    for _ in range(n_sweeps):
        for i in range(n):
            h, k = leave(i, k, slots)
            g = from_urn(rng, i, n, k, alpha, d, slots)
            total = 0.0
            a, defined = candidate(rng, c, cov, i, g, h, atoms)
            if g != h:  # of its own cluster there is nothing to decide
                before = released(c, cov, i, row(atoms, h, N_ATOMS))
                if before != -np.inf:
                    total = released(c, cov, i, a) - before
            if not defined:
                total = -np.inf
            if total >= 0.0 or total > -standard_exponential(rng):
                accepted += 1.0
                if g < 0:
                    g = open_slot(rng, a, h, k, slots, atoms, state.full)
                n_moved += g != h
            else:
                g = h
            k = enter(i, g, k, slots)
            y = given_release(rng, c, cov, i, row(atoms, g, N_ATOMS))
            for j in range(WIDTH):
                x[i, j] = y[j]
    tally[ACCEPTED] += accepted
    tally[PROPOSED] += n * n_sweeps
    tally[MOVED] += n_moved
    tally[CONSIDERED] += n * n_sweeps
