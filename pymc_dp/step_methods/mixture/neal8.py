"""Sweeps over the labels given the records: Neal's algorithm 8."""

import numpy as np

from pymc_dp.lowering.addresses.bind import Kernel
from pymc_dp.lowering.addresses.tuples import entries, row
from pymc_dp.lowering.functions.bits import random
from pymc_dp.lowering.functions.exponential import SPARE
from pymc_dp.lowering.functions.urn import weight_of_new_cluster
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    bound,
    urn,
)
from pymc_dp.step_methods.mixture.counters import CONSIDERED, MOVED
from pymc_dp.step_methods.mixture.polynomials import (
    N_MOMENTS,
    density,
    expand,
    keep_finite,
    moments_of,
    scales,
)
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slots import enter, leave, pick, slots_of, swap
from pymc_dp.step_methods.mixture.state import Generator, State

# Empty clusters that are tried.
N_EMPTY = 0


def conditional_sweep(n_sweeps: int, rng: Generator, state: State) -> None:
    """Neal's algorithm 8, in O(number of clusters) per record.

    The empty clusters are slots that are free, with the atoms that they have: these are draws from the base
    when the sweep begins, and part of the state while it runs.
    """
    cov, x, atoms, counts, tally = state.covariates, state.records, state.atoms, state.counts, state.tally
    n, n_slots = x.shape[0], counts.size
    c, full = entries(state.constants, N_CONSTANTS), state.full
    alpha, d = urn(c)
    scale = scales(state)
    k, slots = slots_of(state)
    order = slots.order
    logs, sizes = np.empty(n_slots + N_EMPTY + SPARE), np.empty(n_slots)
    terms = np.zeros((n_slots, N_MOMENTS))
    for h in range(n_slots):
        sizes[h] = np.log(counts[h] - d) if counts[h] > 0 else 0.0
        expand(c, row(atoms, h, N_ATOMS), scale, terms, h)
        keep_finite(terms, h)
    moved = 0.0
    for _ in range(n_sweeps):
        for i in range(n):
            h, k = leave(i, k, slots)
            alone = counts[h] == 0
            if not alone:
                sizes[h] = np.log(counts[h] - d)  # without the record itself, wherever it goes
            v = moments_of(c, cov, i, x, scale)
            for t in range(k):
                g = order[t]
                logs[t] = sizes[g] + density(c, cov, i, v, terms, g, row(atoms, g, N_ATOMS))
            rest = weight_of_new_cluster(alpha, d, k)
            n_empty = min(N_EMPTY, n_slots - k) if rest > 0.0 else 0
            if n_empty == 0 and rest > 0.0:
                full[0] = True
            each = np.log(rest / n_empty) if n_empty > 0 else 0.0
            for t in range(n_empty):
                # any of the free slots, each with the same probability, but always the one just left
                if t > 0 or not alone:
                    swap(slots, k + t, k + t + int(random(rng) * (n_slots - k - t)))
                g = order[k + t]
                logs[k + t] = each + density(c, cov, i, v, terms, g, row(atoms, g, N_ATOMS))
            t = pick(rng, logs, k + n_empty)
            g = order[t] if t >= 0 else h
            moved += g != h
            k = enter(i, g, k, slots)
            sizes[g] = np.log(counts[g] - d)
    tally[MOVED] += moved
    tally[CONSIDERED] += n * n_sweeps


def compiled(program: MixtureProgram, m: int) -> Kernel:
    """Compile the sweep with m empty clusters."""
    return bound(conditional_sweep, program, N_EMPTY=m)
