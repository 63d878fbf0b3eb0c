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
    set_column,
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

    The coefficients of each output are a row of ``out``, which has a column for each point of the lattice
    first.
    """
    before, after = program.halves[name]
    zeros = (0.0,) * program.n_columns
    degree, r = program.degree, program.n_features
    points, pairs = _lattice(r, degree)
    n_points, n_pairs, first_pair = len(points), len(pairs), 1 + 2 * r

    @part_of_kernel
    def expand(c, a, scale, out):
        known = before(*c, *zeros, *a)
        for t in range(n_points):
            set_column(out, t, after(*plus(scale[0], times(row(points, t, r), scale[1])), *known))
        for o in range(outputs):
            middle = out[o, 0]
            for t in range(n_pairs):
                j, k, at = pairs[t, 0], pairs[t, 1], first_pair + t
                out[o, at] = out[o, at] - out[o, 1 + j] - out[o, 1 + k] + middle
            for j in range(r):
                ahead = out[o, 1 + j]
                if degree == 1:
                    out[o, 1 + j] = ahead - middle
                else:
                    back = out[o, 1 + r + j]
                    out[o, 1 + j] = 0.5 * (ahead - back)
                    out[o, 1 + r + j] = 0.5 * (ahead + back) - middle

    return expand


def _lattice(r: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points in units of the spread, in the order of moments, and the pairs of numbers."""
    one, pairs = np.eye(r), list(combinations(range(r), 2)) if degree == 2 else []
    both = [one[j] + one[k] for j, k in pairs]
    points = np.array([np.zeros(r), *one, *(-one if degree == 2 else []), *both])
    return points, np.array(pairs, np.int64).reshape(-1, 2)


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
