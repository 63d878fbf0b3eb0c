"""Splits and merges of clusters by restricted Gibbs scans, with the atoms integrated out.

Two records are chosen; if they share a cluster it is split, otherwise their clusters are merged (Jain & Neal
2004). A *launch state* divides the records of these clusters among the two: atoms are drawn for each part,
given at first one of the two records and later all that the part has, and the other records are assigned in
proportion to their density under either and to the parts' weights, which are drawn too. The last scan from
there proposes the division that is decided on; where clusters are merged, it is asked for the probability of
the division that there is. Given the launch state the records are independent of each other, so that a scan
costs one density ratio for each.
"""

import numpy as np

from pymc_dp.lowering.addresses.bind import Kernel
from pymc_dp.lowering.addresses.tuples import dot, dot_from, entries, minus, plus, row, set_entries, set_row
from pymc_dp.lowering.functions.bits import random
from pymc_dp.step_methods.mixture import marginal_draws, slot_sums
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    bound,
    urn,
)
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.counters import SPLIT, TRIED
from pymc_dp.step_methods.mixture.marginal_draws import draw_atoms
from pymc_dp.step_methods.mixture.pairs import accepted, commit_members, two_clusters
from pymc_dp.step_methods.mixture.polynomials import N_MOMENTS, expand, moments_of, scales
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slot_sums import N_NORMAL, N_SUMS, log_normaliser, weigh
from pymc_dp.step_methods.mixture.slots import slots_of
from pymc_dp.step_methods.mixture.state import Generator, State

# Scans that lead to a launch state.
N_SCANS = 0


def collapsed_scans(n_sweeps: int, rng: Generator, state: State) -> None:
    """Try ``n_sweeps`` splits or merges, each ``N_SCANS`` + 1 passes over the records of two clusters."""
    cov, x, labels, tally = state.covariates, state.records, state.labels, state.tally
    n = x.shape[0]
    c = entries(state.constants, N_CONSTANTS)
    alpha, d = urn(c)
    scale, atoms = scales(state), state.atoms
    k, slots = slots_of(state)
    weights, empty = np.empty((N_SUMS, N_MOMENTS)), np.empty(N_SUMS)
    weigh(c, row(atoms, slots.order[0], N_ATOMS), scale, weights, empty)
    root, mean = np.empty((max(N_NORMAL, 1), N_NORMAL + 1)), np.empty(max(N_NORMAL, 1))
    z_empty = log_normaliser(empty, root, N_NORMAL)
    # of both parts: moments of their records, the sums that these make, atoms, coefficients of densities
    moments, sums, both = np.empty((2, N_MOMENTS)), np.empty((2, N_SUMS)), np.empty(N_SUMS)
    drawn, terms, odds_of = np.zeros((2, N_ATOMS)), np.empty((2, N_MOMENTS)), np.empty(N_MOMENTS)
    members, to_other = np.empty(n, np.int64), np.zeros(n, np.bool_)
    moment = np.empty((n, N_MOMENTS))
    for _ in range(n_sweeps if n > 1 else 0):
        h, g, size = two_clusters(rng, alpha, d, k, slots, members)
        if size == 0:
            continue
        splits = h == g
        for r in range(size):
            set_row(moment, r, moments_of(c, cov, members[r], x, scale))
        for side in range(2):
            set_row(moments, side, row(moment, side, N_MOMENTS))
            for s in range(N_SUMS):
                sums[side, s] = dot_from(empty[s], row(weights, s, N_MOMENTS), row(moments, side, N_MOMENTS))
        weight, chosen, n_other = 0.0, 0.0, 1
        for scan in range(N_SCANS + 1):
            for side in range(2):
                draw_atoms(rng, sums[side], root, mean, drawn, side)
                expand(c, row(drawn, side, N_ATOMS), scale, terms, side)
            if scan > 0:
                of_other = rng.standard_gamma(n_other - d)
                weight = np.log(of_other / rng.standard_gamma(size - n_other - d))
            set_entries(odds_of, minus(row(terms, 1, N_MOMENTS), row(terms, 0, N_MOMENTS)))
            odds_of[0] += weight
            by_moment = entries(odds_of, N_MOMENTS)
            n_other, chosen = 1, 0.0
            for side in range(2):
                set_row(moments, side, row(moment, side, N_MOMENTS))
            for r in range(2, size):
                odds = dot(by_moment, row(moment, r, N_MOMENTS))
                # a scan on the way draws; so does the last of a split; that of a merge meets what there is
                if splits or scan < N_SCANS:
                    goes = random(rng) * (1.0 + np.exp(-odds)) < 1.0
                else:
                    goes = labels[members[r]] == g
                if scan == N_SCANS:
                    to_other[r] = goes
                    chosen += min(odds, 0.0) if goes else -max(odds, 0.0)
                    chosen -= np.log1p(np.exp(-abs(odds)))
                n_other += goes
                side = int(goes)
                set_row(moments, side, plus(row(moments, side, N_MOMENTS), row(moment, r, N_MOMENTS)))
            for side in range(2):
                for s in range(N_SUMS):
                    sums[side, s] = dot_from(
                        empty[s], row(weights, s, N_MOMENTS), row(moments, side, N_MOMENTS)
                    )
        for s in range(N_SUMS):
            both[s] = sums[0, s] + sums[1, s] - empty[s]
        total = log_normaliser(sums[0], root, N_NORMAL) + log_normaliser(sums[1], root, N_NORMAL)
        total -= log_normaliser(both, root, N_NORMAL)
        total -= z_empty + chosen
        tally[TRIED] += 1.0
        if not accepted(rng, total, splits, alpha, d, k, size, n_other):
            continue
        tally[SPLIT] += 1.0
        _, k = commit_members(rng, splits, h, g, members, size, n_other, to_other, k, slots)


def compiled(program: MixtureProgram, laws: AtomLaws, n_scans: int) -> Kernel:
    """Compile the splits and merges of a mixture whose atoms integrate out."""
    return bound(
        collapsed_scans,
        program,
        **slot_sums.names_of(program, laws, "N_SUMS", "N_NORMAL", "weigh", "log_normaliser"),
        draw_atoms=marginal_draws.draw_atoms_of(laws),
        N_SCANS=n_scans,
    )
