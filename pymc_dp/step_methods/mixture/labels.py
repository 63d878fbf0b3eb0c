"""Sweeps over the labels given the records: Neal's algorithm 8."""

import numpy as np

from pymc_dp.lowering.bind import Kernel
from pymc_dp.lowering.bits import random
from pymc_dp.lowering.exponential import SPARE
from pymc_dp.lowering.tuples import entries, row
from pymc_dp.lowering.urn import weight_of_new_cluster
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    Generator,
    Integers,
    Matrix,
    Vector,
    bound,
    urn,
)
from pymc_dp.step_methods.mixture.polynomials import (
    N_MOMENTS,
    density,
    expand,
    keep_finite,
    moments_of,
    scales,
)
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slots import enter, leave, occupied_first, pick, swap
from pymc_dp.step_methods.mixture.tally import CONSIDERED, FULL, MOVED

# Empty clusters that are tried.
N_EMPTY = 0


def conditional_sweep(
    n_sweeps: int, rng: Generator, theta: Vector, data: Vector, c: Vector, cov: Matrix, value: Vector,
    params: Matrix, offset: Vector, x: Matrix, totals: Vector, labels: Integers, atoms: Matrix,
    counts: Integers, learnt: Vector, tally: Vector,
) -> None:  # fmt: skip
    """Neal's algorithm 8, in O(number of clusters) per record.

    The empty clusters are slots that are free, with the atoms that they have: these are draws from the base
    when the sweep begins, and part of the state while it runs.
    """
    n, n_slots = x.shape[0], atoms.shape[0]
    constants = entries(c, N_CONSTANTS)
    alpha, d = urn(constants)
    slots, where = np.empty(n_slots, np.int64), np.empty(n_slots, np.int64)
    k = occupied_first(counts, slots, where)
    logs, sizes = np.empty(n_slots + N_EMPTY + SPARE), np.empty(n_slots)
    scale, terms = scales(learnt), np.zeros((n_slots, N_MOMENTS))
    for h in range(n_slots):
        sizes[h] = np.log(counts[h] - d) if counts[h] > 0 else 0.0
        expand(constants, row(atoms, h, N_ATOMS), scale, terms, h)
        keep_finite(terms, h)
    moved = 0.0
    for _ in range(n_sweeps):
        for i in range(n):
            h, k = leave(i, k, labels, counts, slots, where)
            alone = counts[h] == 0
            if not alone:
                sizes[h] = np.log(counts[h] - d)
            v = moments_of(constants, cov, i, x, scale)
            for t in range(k):
                g = slots[t]
                logs[t] = sizes[g] + density(constants, cov, i, v, terms, g, row(atoms, g, N_ATOMS))
            rest = weight_of_new_cluster(alpha, d, k)
            n_empty = min(N_EMPTY, n_slots - k) if rest > 0.0 else 0
            if n_empty == 0 and rest > 0.0:
                tally[FULL] = 1.0
            each = np.log(rest / n_empty) if n_empty > 0 else 0.0
            for t in range(n_empty):
                # any of the free slots, each with the same probability, but always the one just left
                if t > 0 or not alone:
                    swap(slots, where, k + t, k + t + int(random(rng) * (n_slots - k - t)))
                g = slots[k + t]
                logs[k + t] = each + density(constants, cov, i, v, terms, g, row(atoms, g, N_ATOMS))
            t = pick(rng, logs, k + n_empty)
            g = slots[t] if t >= 0 else h
            moved += g != h
            k = enter(i, g, k, labels, counts, slots, where)
            sizes[g] = np.log(counts[g] - d)
    tally[MOVED] += moved
    tally[CONSIDERED] += n * n_sweeps


def compiled(program: MixtureProgram, m: int) -> Kernel:
    """Compile the sweep with m empty clusters."""
    return bound(conditional_sweep, program, N_EMPTY=m)
