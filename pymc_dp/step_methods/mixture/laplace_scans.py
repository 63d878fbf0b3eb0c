"""Splits and merges of clusters by restricted Gibbs scans, where atoms do not integrate out.

As :mod:`.restricted_scans`, with atoms as part of what is proposed (Jain & Neal 2007). Atoms of the launch
state are modes of their law given the records of a part, in value space; the proposal is a Student law about
the mode for the division that the last scan has made, with the curvature there. A merge is proposed in the
same way from the mode for all records. Modes depend on the launch state alone, so that the density of either
direction can be evaluated; how well they are found decides how often a move is accepted, and nothing else.
"""

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.tuples import (
    Numbers,
    column,
    dot_from,
    entries,
    minus,
    plus,
    row,
    set_row,
)
from pymc_dp.lowering.functions.bits import random
from pymc_dp.lowering.functions.exponential import SPARE
from pymc_dp.step_methods.mixture.atom_modes import (
    BOTH,
    N_CURVED,
    ONE,
    OTHER,
    ascend,
    curved,
    curved_and_ascend,
    student_draw,
    student_logp,
)
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    WIDTH,
    base_draw,
    bound,
    features,
    of_slots,
    own,
    urn,
)
from pymc_dp.step_methods.mixture.conjugacy import Derivatives
from pymc_dp.step_methods.mixture.counters import SPLIT, TRIED
from pymc_dp.step_methods.mixture.pairs import accepted, commit_members, two_clusters
from pymc_dp.step_methods.mixture.polynomials import (
    N_MOMENTS,
    expand,
    moments_of,
    scales,
)
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slots import pick, slots_of
from pymc_dp.step_methods.mixture.state import Generator, Matrix, State

# Draws from the base among which the first atoms of a part are chosen.
_TRIES = 5
# Degrees of freedom of the proposal.
_FREEDOM = 5.0

# Scans that lead to a launch state.
N_SCANS = 0


def load(c: Numbers, *values: float) -> Numbers:
    """Atoms of a slot, from their values."""
    raise NotImplementedError


def store(c: Numbers, *a: float) -> Numbers:
    """Return the values of a slot's atoms."""
    raise NotImplementedError


def odds_of(
    weight: float, c: Numbers, cov: Matrix, i: int, m: Numbers, difference: Numbers, one: Numbers,
    other: Numbers,
) -> float:  # fmt: skip
    """Add the log ratio of a record's densities in both parts to a number.

    m: moments of the record, ``difference``: of the coefficients; the atoms of either part.
    """
    raise NotImplementedError


def laplace_scans(n_sweeps: int, rng: Generator, state: State) -> None:
    """Try ``n_sweeps`` splits or merges, each ``N_SCANS`` + 1 passes over the records of two clusters.

    Each pass comes with some Newton steps, which cost a pass too where the log density of a record is no
    polynomial in a few numbers of it.
    """
    cov, x, labels, atoms, tally = state.covariates, state.records, state.labels, state.atoms, state.tally
    n = x.shape[0]
    c = entries(state.constants, N_CONSTANTS)
    alpha, d = urn(c)
    k, slots = slots_of(state)
    scale = scales(state)
    # of both parts, and of all their records: moments, modes in value space, roots of the curvature there
    moments, values, roots = np.zeros((3, N_MOMENTS)), np.empty((3, N_ATOMS)), np.zeros((3, N_ATOMS, N_ATOMS))
    chosen_values, out = np.empty((3, N_ATOMS)), np.empty(N_CURVED)
    # of both parts: atoms at the mode, coefficients of densities there
    natural, terms = np.empty((2, N_ATOMS)), np.empty((2, N_MOMENTS))
    tries, logs = np.empty((_TRIES, N_ATOMS)), np.empty(_TRIES + SPARE)
    members, side_of = np.empty(n, np.int64), np.zeros(n, np.int64)
    to_other, moment = np.zeros(n, np.bool_), np.empty((n, N_MOMENTS))
    for _ in range(n_sweeps if n > 1 else 0):
        h, g, size = two_clusters(rng, alpha, d, k, slots, members)
        if size == 0:
            continue
        splits = h == g
        for r in range(size):
            set_row(moment, r, moments_of(c, cov, members[r], x, scale))
        # the parts are the two records alone before the first scan
        for side in range(2):
            i = members[side]
            v = features(c, cov, i, row(x, i, WIDTH))
            for trial in range(_TRIES):
                set_row(tries, trial, base_draw(rng, c))
                logs[trial] = own(c, cov, i, v, row(tries, trial, N_ATOMS))
            trial = max(pick(rng, logs, _TRIES), 0)
            set_row(values, side, store(c, *row(tries, trial, N_ATOMS)))
            set_row(moments, side, row(moment, side, N_MOMENTS))
            side_of[side] = side
        set_row(values, BOTH, row(values, ONE, N_ATOMS))
        set_row(moments, BOTH, plus(row(moment, 0, N_MOMENTS), row(moment, 1, N_MOMENTS)))
        for r in range(2, size):
            side_of[r] = -1
            set_row(moments, BOTH, plus(row(moments, BOTH, N_MOMENTS), row(moment, r, N_MOMENTS)))
        weight, chosen, n_other = 0.0, 0.0, 1
        for scan in range(N_SCANS + 2):
            for side in range(3):
                ascend(state, members, side_of, size, side, moments, values[side], roots[side])
            if scan == N_SCANS + 1:
                break
            if scan > 0:
                of_other = rng.standard_gamma(n_other - d)
                weight = np.log(of_other / rng.standard_gamma(size - n_other - d))
            for side in range(2):
                set_row(natural, side, load(c, *row(values, side, N_ATOMS)))
                expand(c, row(natural, side, N_ATOMS), scale, terms, side)
                set_row(moments, side, row(moment, side, N_MOMENTS))
            difference = minus(row(terms, OTHER, N_MOMENTS), row(terms, ONE, N_MOMENTS))
            n_other, chosen = 1, 0.0
            for r in range(2, size):
                odds = odds_of(
                    weight, c, cov, members[r], row(moment, r, N_MOMENTS), difference,
                    row(natural, ONE, N_ATOMS), row(natural, OTHER, N_ATOMS),
                )  # fmt: skip
                if not abs(odds) < np.inf:
                    odds = 700.0 if odds > 0.0 else -700.0
                # a scan on the way draws; so does the last of a split; that of a merge meets what there is
                if splits or scan < N_SCANS:
                    goes = random(rng) * (1.0 + np.exp(-odds)) < 1.0
                else:
                    goes = labels[members[r]] == g
                side_of[r] = OTHER if goes else ONE
                if scan == N_SCANS:
                    to_other[r] = goes
                    chosen += min(odds, 0.0) if goes else -max(odds, 0.0)
                    chosen -= np.log1p(np.exp(-abs(odds)))
                n_other += goes
                side = side_of[r]
                set_row(moments, side, plus(row(moments, side, N_MOMENTS), row(moment, r, N_MOMENTS)))
        total = -chosen
        if splits:
            set_row(chosen_values, BOTH, store(c, *row(atoms, h, N_ATOMS)))
        else:
            set_row(chosen_values, ONE, store(c, *row(atoms, h, N_ATOMS)))
            set_row(chosen_values, OTHER, store(c, *row(atoms, g, N_ATOMS)))
        for side in range(3):
            at = chosen_values[side]
            if splits == (side != BOTH):
                student_draw(rng, values[side], roots[side], at, _FREEDOM, N_ATOMS)
            curved(state, members, side_of, size, side, moments, at, out)
            part = out[0] - student_logp(values[side], roots[side], at, _FREEDOM, N_ATOMS)
            total += part if side != BOTH else -part
        tally[TRIED] += 1.0
        if not accepted(rng, total, splits, alpha, d, k, size, n_other):
            continue
        tally[SPLIT] += 1.0
        g, k = commit_members(rng, splits, h, g, members, size, n_other, to_other, k, slots)
        if splits:
            set_row(atoms, h, load(c, *row(chosen_values, ONE, N_ATOMS)))
            set_row(atoms, g, load(c, *row(chosen_values, OTHER, N_ATOMS)))
        else:
            set_row(atoms, h, load(c, *row(chosen_values, BOTH, N_ATOMS)))


def compiled(program: MixtureProgram, derivatives: Derivatives, n_scans: int) -> Kernel:
    """Compile the splits and merges of a mixture with any atoms.

    Raises
    ------
    NotScalar
        If an atom is an integer, or the curvature has no scalar form.
    """
    return bound(
        laplace_scans,
        program,
        N_SCANS=n_scans,
        **curved_and_ascend(program, derivatives),
        load=of_slots(program, "load"),
        store=of_slots(program, "store"),
        odds_of=_odds_of(program),
    )


def _odds_of(program: MixtureProgram) -> Function:
    f, n_columns = program.functions["own"], program.n_columns

    @part_of_kernel
    def by_moments(weight, c, cov, i, m, difference, one, other):
        return dot_from(weight, difference, m)

    @part_of_kernel
    def by_record(weight, c, cov, i, v, difference, one, other):
        given = column(cov, i, n_columns)
        return weight + f(*c, *given, *v, *other)[0] - f(*c, *given, *v, *one)[0]

    return by_moments if program.degree else by_record
