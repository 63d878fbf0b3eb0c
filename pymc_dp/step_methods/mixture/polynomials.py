"""The log density of a record as a polynomial in its numbers, whose coefficients a slot's atoms decide.

Where the log density is a polynomial in a few numbers v of the record, it is a sum of products of
coefficients with *moments* of the record: 1, u, u^2 and the products of two, with u = (v - middle) / spread.
The coefficients of any function of the same degree follow from its values at a lattice of points: one pass
over the lattice for each slot, instead of one over the records.

Where it is none, what is said of moments here holds for the numbers v themselves, and coefficients are not
used.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, part_of_kernel
from pymc_dp.lowering.addresses.tuples import (
    Numbers,
    column,
    dot,
    entries,
    inverses,
    minus,
    monomials,
    plus,
    row,
    scaled,
    set_column,
    shifted,
    times,
)
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.state import Matrix, State

type Scale = tuple[Numbers, Numbers, Numbers]

# How many moments there are, or numbers where the density is no polynomial.
N_MOMENTS = 0


def scales(state: State) -> Scale:
    """Middle and spread of the numbers of a record, and the inverse of the spread."""
    raise NotImplementedError


def moments_of(c: Numbers, cov: Matrix, i: int, x: Matrix, scale: Scale) -> Numbers:
    """Moments of record i."""
    raise NotImplementedError


def expand(c: Numbers, a: Numbers, scale: Scale, terms: Matrix, t: int) -> None:
    """Write the coefficients of a record's log density in a slot with atoms a to row t of ``terms``."""
    raise NotImplementedError


def density(c: Numbers, cov: Matrix, i: int, m: Numbers, terms: Matrix, t: int, a: Numbers) -> float:
    """Log density of record i with moments m, in a slot with coefficients in row t of ``terms``, atoms a."""
    raise NotImplementedError


@part_of_kernel
def keep_finite(terms, t):
    """Make a density zero for atoms at an end of their range, where it is no polynomial."""
    total = 0.0
    for j in range(terms.shape[1]):
        total += abs(terms[t, j])
    if not total < np.inf:
        terms[t, 0] = -np.inf
        for j in range(1, terms.shape[1]):
            terms[t, j] = 0.0


def n_moments(program: MixtureProgram) -> int:
    """Return how many moments there are."""
    r = program.n_features
    return {0: r, 1: 1 + r, 2: 1 + 2 * r + r * (r - 1) // 2}[program.degree]


def coefficients(program: MixtureProgram, name: str, outputs: int) -> Function:
    """Adapt a function of C, a record's numbers and atoms: ``f(c, a, scale, out)`` fills in ``out``.

    The coefficients of each output are a row of ``out``.
    """
    f, zeros = program.functions[name], (0.0,) * program.n_columns
    r = program.n_features
    along = part_of_kernel(lambda c, a, scale, p, out: ())
    across = part_of_kernel(lambda ahead, c, a, scale, p, out: None)
    for j in range(r):
        along = (_along_one if program.degree == 2 else _along_line)(along, f, zeros, j, r)
    if program.degree == 2:
        for at, (j, k) in enumerate(combinations(range(r), 2), 1 + 2 * r):
            across = _across_two(across, f, zeros, j, k, at)

    @part_of_kernel
    def expand(c, a, scale, out):
        p = f(*c, *zeros, *scale[0], *a)
        set_column(out, 0, p)
        across(along(c, a, scale, p, out), c, a, scale, p, out)

    return expand


# Steps of a lattice, chained: the compiler sees them one after the other, without a loop. Each takes the
# values p in the middle; those of one number return the values ahead, for each number so far.


def _along_line(before: Any, f: Any, zeros: Numbers, j: int, r: int) -> Function:
    @part_of_kernel
    def along(c, a, scale, p, out):
        done = before(c, a, scale, p, out)
        ahead = f(*c, *zeros, *shifted(scale[0], j, scale[1]), *a)
        set_column(out, 1 + j, minus(ahead, p))
        return (*done, ahead)

    return along


def _along_one(before: Any, f: Any, zeros: Numbers, j: int, r: int) -> Function:
    @part_of_kernel
    def along(c, a, scale, p, out):
        done = before(c, a, scale, p, out)
        ahead = f(*c, *zeros, *shifted(scale[0], j, scale[1]), *a)
        q = f(*c, *zeros, *shifted(scale[0], j, scaled(scale[1], -1.0)), *a)
        set_column(out, 1 + j, scaled(minus(ahead, q), 0.5))
        set_column(out, 1 + r + j, minus(scaled(plus(ahead, q), 0.5), p))
        return (*done, ahead)

    return along


def _across_two(before: Any, f: Any, zeros: Numbers, j: int, k: int, at: int) -> Function:
    @part_of_kernel
    def across(ahead, c, a, scale, p, out):
        before(ahead, c, a, scale, p, out)
        q = f(*c, *zeros, *shifted(shifted(scale[0], j, scale[1]), k, scale[1]), *a)
        set_column(out, at, plus(minus(minus(q, ahead[j]), ahead[k]), p))

    return across


def scales_for(program: MixtureProgram) -> Function:
    """Return the meaning of :func:`scales`."""
    r = program.n_features if program.degree else 0

    @part_of_kernel
    def scales(state):
        spread = entries(state.spread, r)
        return entries(state.middle, r), spread, inverses(spread)

    return scales


def moments_for(program: MixtureProgram) -> Function:
    """Return the meaning of :func:`moments_of`."""
    f, m = program.functions["features"], program.n_columns
    p, degree = program.n_columns_of_record, program.degree

    @part_of_kernel
    def numbers_of(c, cov, i, x, scale):
        return f(*c, *column(cov, i, m), *row(x, i, p))

    @part_of_kernel
    def moments_of(c, cov, i, x, scale):
        v = f(*c, *column(cov, i, m), *row(x, i, p))
        return monomials(times(minus(v, scale[0]), scale[2]), degree)

    return moments_of if degree else numbers_of


def _expand(program: MixtureProgram) -> Function:
    if not program.degree:
        return part_of_kernel(lambda c, a, scale, terms, t: None)
    own = coefficients(program, "own", 1)
    return part_of_kernel(lambda c, a, scale, terms, t: own(c, a, scale, terms[t : t + 1]))


def _density(program: MixtureProgram) -> Function:
    if program.degree:
        size = n_moments(program)
        return part_of_kernel(lambda c, cov, i, m, terms, t, a: dot(row(terms, t, size), m))
    f, n_columns = program.functions["own"], program.n_columns
    return part_of_kernel(lambda c, cov, i, v, terms, t, a: f(*c, *column(cov, i, n_columns), *v, *a)[0])


# By the name that they give a meaning to.
ADAPTERS: dict[str, Callable[[MixtureProgram], Any]] = {
    "N_MOMENTS": n_moments, "scales": scales_for, "moments_of": moments_for, "expand": _expand,
    "density": _density,
}  # fmt: skip
