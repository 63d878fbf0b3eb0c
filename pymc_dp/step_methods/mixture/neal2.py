"""Sweeps over the labels given the records and the atoms of their clusters: Neal's algorithm 2.

The weight of a new cluster has the density of the record under the base, which is a ratio of normalisers
(:mod:`.slot_sums`); its atoms are drawn given that record at once. An old cluster costs a density, which is
several times cheaper than the ratio of algorithm 3, and the more so the better the two agree: in large
clusters.
"""

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.tuples import Numbers, dot_from, entries, row
from pymc_dp.lowering.functions.bits import random
from pymc_dp.lowering.functions.exponential import SPARE, exp_in_place
from pymc_dp.lowering.functions.urn import weight_of_new_cluster
from pymc_dp.step_methods.mixture import marginal_draws, slot_sums
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    bound,
    urn,
)
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.counters import CONSIDERED, MOVED
from pymc_dp.step_methods.mixture.marginal_draws import draw_atoms
from pymc_dp.step_methods.mixture.polynomials import (
    N_MOMENTS,
    Scale,
    coefficients,
    density,
    expand,
    keep_finite,
    moments_of,
    n_moments,
    scales,
)
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slot_sums import N_NORMAL, N_SUMS, log_normaliser, weigh
from pymc_dp.step_methods.mixture.slots import enter, free_slot, leave, pick, slots_of
from pymc_dp.step_methods.mixture.state import Generator, Matrix, State, Vector

# Whether what belongs to a record may have changed since the last sweep.
CHANGES = True


def without_atoms(
    c: Numbers, a: Numbers, scale: Scale, weights: Matrix, coef: Matrix, factor: Vector
) -> None:
    """Fill in the coefficients of the factor of a record's density that no atom is in, from any atoms."""
    raise NotImplementedError


def conjugate_gibbs(n_sweeps: int, rng: Generator, state: State) -> None:
    """Sweep in O(number of clusters) per record, after one normaliser for each record.

    The density of each record under the base is kept, with the constants that it was worked out with: as
    long as these hold, so does it. A base without hyperparameters is integrated once in a chain.
    """
    cov, x, atoms, counts, tally = state.covariates, state.records, state.atoms, state.counts, state.tally
    n, n_slots = x.shape[0], counts.size
    c, full = entries(state.constants, N_CONSTANTS), state.full
    alpha, d = urn(c)
    scale, under_base, then = scales(state), state.under_base, state.constants_then
    constants = state.constants
    k, slots = slots_of(state)
    order = slots.order
    terms, coef = np.empty((n_slots, N_MOMENTS)), np.empty((1, N_MOMENTS))
    for h in range(n_slots):
        if counts[h] > 0:
            expand(c, row(atoms, h, N_ATOMS), scale, terms, h)
            keep_finite(terms, h)
    weights, empty = np.empty((N_SUMS, N_MOMENTS)), np.empty(N_SUMS)
    weigh(c, row(atoms, order[0], N_ATOMS), scale, weights, empty)
    factor = np.empty(N_MOMENTS)
    without_atoms(c, row(atoms, order[0], N_ATOMS), scale, weights, coef, factor)
    root, mean = np.empty((max(N_NORMAL, 1), N_NORMAL + 1)), np.empty(max(N_NORMAL, 1))
    sums, z_empty = np.empty(N_SUMS), log_normaliser(empty, root, N_NORMAL)
    stale = CHANGES or np.isnan(under_base[0, 0])
    for j in range(N_CONSTANTS):
        stale = stale or not then[j] == constants[j]
        then[j] = constants[j]
    for i in range(n if stale else 0):
        m = moments_of(c, cov, i, x, scale)
        for r in range(N_SUMS):
            sums[r] = dot_from(empty[r], row(weights, r, N_MOMENTS), m)
        start = log_normaliser(sums, root, N_NORMAL) - z_empty
        under_base[0, i] = dot_from(start, entries(factor, N_MOMENTS), m)
        under_base[1, i] = np.exp(under_base[0, i])
    logs = np.empty(n_slots + 1 + SPARE)
    for _ in range(n_sweeps):
        for i in range(n):
            h, k = leave(i, k, slots)
            m = moments_of(c, cov, i, x, scale)
            rest, total, size = weight_of_new_cluster(alpha, d, k), 0.0, k
            for t in range(k):
                logs[t] = density(c, cov, i, m, terms, order[t], row(atoms, order[t], N_ATOMS))
            exp_in_place(logs, k)
            for t in range(k):
                total += (counts[order[t]] - d) * logs[t]
                logs[t] = total
            if rest > 0.0:
                if k == n_slots:
                    full[0] = True
                else:
                    total += rest * under_base[1, i]
                    logs[k] = total
                    size = k + 1
            if total > 1e-250 and total < 1e250:
                u, t = random(rng) * total, 0
                while t < size - 1 and logs[t] <= u:
                    t += 1
            else:  # densities beyond the range of numbers
                for t in range(k):
                    g = order[t]
                    logs[t] = np.log(counts[g] - d)
                    logs[t] += density(c, cov, i, m, terms, g, row(atoms, g, N_ATOMS))
                if size > k:
                    logs[k] = np.log(rest) + under_base[0, i]
                t = pick(rng, logs, size)
            g = order[t] if t >= 0 else h
            if t == k:
                g = free_slot(rng, slots, k)
                for r in range(N_SUMS):
                    sums[r] = dot_from(empty[r], row(weights, r, N_MOMENTS), m)
                draw_atoms(rng, sums, root, mean, atoms, g)
                expand(c, row(atoms, g, N_ATOMS), scale, terms, g)
            tally[MOVED] += g != h
            k = enter(i, g, k, slots)
    tally[CONSIDERED] += n * n_sweeps


def compiled(program: MixtureProgram, laws: AtomLaws) -> Kernel:
    """Compile the sweep for a mixture whose atoms integrate out."""
    return bound(
        conjugate_gibbs,
        program,
        **slot_sums.names_of(program, laws, "N_SUMS", "N_NORMAL", "weigh", "log_normaliser"),
        draw_atoms=marginal_draws.draw_atoms_of(laws),
        without_atoms=_without_atoms(program, laws),
        CHANGES=program.n_columns > 0,
    )


def _without_atoms(program: MixtureProgram, laws: AtomLaws) -> Function:
    """What is left of the density at some atoms once the part of the sums is taken out."""
    own, size, q = coefficients(program, "own", 1), n_moments(program), len(laws.normal)
    found = slot_sums.number_and_family(laws)
    a = b = k = 0
    if found is not None:
        k, a = found[0], q + q * (q + 1) // 2
        b = a + 1
    at = slot_sums.placed(program.width, None if found is None else k)
    point, part = _AT[None if found is None else found[1]]

    @part_of_kernel
    def without_atoms(c, atoms, scale, weights, coef, factor):
        s = point(atoms[k])
        own(c, at(s), scale, coef)
        for j in range(size):
            factor[j] = coef[0, j] + part(weights[a, j], weights[b, j], s)

    return without_atoms


# By the family of the number that is not normal: the value at which a density is taken, and the part of the
# sums in its logarithm there.
_AT = {
    "inverse gamma": (part_of_kernel(lambda s: s), part_of_kernel(lambda a, b, s: a * np.log(s) + b / s)),
    "gamma": (part_of_kernel(lambda s: s), part_of_kernel(lambda a, b, s: b * s - a * np.log(s))),
    "beta": (part_of_kernel(lambda s: 0.5), part_of_kernel(lambda a, b, s: (a + b) * np.log(2.0))),
    None: (part_of_kernel(lambda s: 1.0), part_of_kernel(lambda a, b, s: 0.0)),
}
