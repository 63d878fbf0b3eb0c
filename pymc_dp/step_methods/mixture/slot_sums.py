"""The sums over a slot's records by which its numbers integrate out.

Where the law of a slot's numbers given its records is a known one (:mod:`.conjugacy`), its normaliser is the
records' marginal density, a function of a few sums over them. What a record adds to the sums is linear in its
moments (:mod:`.polynomials`).
"""

from typing import Any, NamedTuple

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, part_of_kernel
from pymc_dp.lowering.addresses.tuples import Numbers, set_entries
from pymc_dp.step_methods.mixture import normalisers
from pymc_dp.step_methods.mixture.bound import of_slots
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.polynomials import Scale, coefficients, n_moments
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.state import Matrix, Vector

type Tables = tuple[bool, Vector, Vector, Vector]

# How many sums there are; how many of a slot's numbers are jointly normal.
N_SUMS = N_NORMAL = 0


def weigh(c: Numbers, a: Numbers, scale: Scale, weights: Matrix, empty: Vector) -> None:
    """Fill in what each moment of a record adds to each of the sums, and the sums of a slot without records.

    A value of the numbers, a, is where slopes are taken; any does.
    """
    raise NotImplementedError


def add_alike(weights: Matrix) -> bool:
    """Whether the number of records of a slot decides most of its normaliser."""
    raise NotImplementedError


def know(a: int, tables: Tables, empty: Vector, weights: Matrix) -> None:
    """Prepare the tables for slots of a and of a + 1 records."""
    raise NotImplementedError


def log_z(a: int, sums: Numbers, tables: Tables, room: Vector, root: Matrix) -> float:
    """Logarithm of the normaliser of a slot of a records; the tables are ready for it."""
    raise NotImplementedError


def log_normaliser(sums: Vector, room: Matrix, q: int) -> float:
    """Logarithm of the normaliser of a slot with these sums, without tables; q: N_NORMAL."""
    raise NotImplementedError


def can_collapse(program: MixtureProgram, laws: AtomLaws) -> bool:
    """Whether all numbers of a slot integrate out, and what is left is linear in moments."""
    if not program.degree or laws.other:
        return False
    one = len(laws.single) == 1 and not laws.normal and laws.scale is None
    return one or (bool(laws.normal) and not laws.single)


def number_and_family(laws: AtomLaws) -> tuple[int, str] | None:
    """Return the number of a slot that is not normal, if there is one, with its family."""
    if laws.scale is not None:
        return laws.scale, "inverse gamma"
    return laws.single[0] if laws.single else None


class Family(NamedTuple):
    """A law of one number s with two parameters, found from slopes of its log density.

    Attributes
    ----------
    points : function
        Two values of the number, given any.
    factors : function
        What makes the slopes there affine.
    powers : function
        The two parameters, given slopes times factors and s: for a gamma law the powers of s and of exp(-s),
        for an inverse gamma one those of 1/s and of exp(-1/s), for a beta one those of s and of 1 - s.
    """

    points: Function
    factors: Function
    powers: Function


_once_and_twice = part_of_kernel(lambda s: (s, 2.0 * s))


@part_of_kernel
def _inverse_gamma(one, two, s):
    b = 2.0 * s * (one - two)
    return b / s - one, b


FAMILIES = {
    "inverse gamma": Family(_once_and_twice, _once_and_twice, _inverse_gamma),
    "gamma": Family(
        _once_and_twice,
        _once_and_twice,
        part_of_kernel(lambda one, two, s: (2.0 * one - two, (one - two) / s)),
    ),
    "beta": Family(
        part_of_kernel(lambda s: (0.25, 0.75)),
        part_of_kernel(lambda s: (0.1875, 0.1875)),
        part_of_kernel(lambda one, two, s: (1.5 * one - 0.5 * two, 0.5 * one - 1.5 * two)),
    ),
}


def placed(width: int, k: int | None) -> Function:
    """Return a function that makes atoms of one number, with zeros for all others."""
    if k is None:
        nothing = (0.0,) * width
        return part_of_kernel(lambda s: nothing)
    before, after = (0.0,) * k, (0.0,) * (width - k - 1)
    return part_of_kernel(lambda s: (*before, s, *after))


def names_of(program: MixtureProgram, laws: AtomLaws, *names: str) -> dict[str, Any]:
    """Return the meanings of names that this module declares."""
    q, single = len(laws.normal), number_and_family(laws)
    n_quadratic = q + q * (q + 1) // 2 if q else 0
    tabled = q == 1 and not laws.above
    n_sums = n_quadratic + (2 if single else 0) + len(laws.above)
    found = {
        "N_SUMS": n_sums,
        "N_NORMAL": q,
        "weigh": _weigh(program, laws, n_quadratic),
        "add_alike": _add_alike(min(3, n_sums) if tabled else None),
        "know": _know(tabled),
        "log_z": _log_z(laws, n_sums, tabled),
        "log_normaliser": normaliser(laws),
    }
    return {name: found[name] for name in names}


def _weigh(program: MixtureProgram, laws: AtomLaws, n_quadratic: int) -> Function:
    single = number_and_family(laws)
    of_normal = part_of_kernel(lambda c, s, scale, weights, empty: None)
    of_number = of_end = of_normal
    number = part_of_kernel(lambda a: 1.0)
    if n_quadratic:
        of_normal = _of_normal(program, None if single is None else single[0], n_quadratic)
    if single is not None:
        of_number, k = _of_number(program, *single, n_quadratic), single[0]
        number = part_of_kernel(lambda a: a[k])
    if laws.above:
        of_end = _of_end(program, laws.above[-1], n_quadratic + 2)

    @part_of_kernel
    def weigh(c, a, scale, weights, empty):
        s = number(a)
        of_normal(c, s, scale, weights, empty)
        of_number(c, s, scale, weights, empty)
        of_end(c, s, scale, weights, empty)

    return weigh


def _of_normal(program: MixtureProgram, k: int | None, n: int) -> Function:
    """Sums of slopes and precisions of the normal numbers, in units of the number that scales them."""
    own, base = coefficients(program, "own_quadratic", n), of_slots(program, "base_quadratic")
    at, size = placed(program.width, k), n_moments(program)

    @part_of_kernel
    def of_normal(c, s, scale, weights, empty):
        own(c, at(s), scale, weights[:n])
        set_entries(empty, base(c, *at(s)))
        for r in range(n):
            for j in range(size):
                weights[r, j] *= s
            empty[r] *= s

    return of_normal


def _of_number(program: MixtureProgram, k: int, family: str, a: int) -> Function:
    """Sums of the parameters of a number's law."""
    own, base = coefficients(program, f"own_slope{k}", 1), of_slots(program, f"base_slope{k}")
    at, size, b = placed(program.width, k), n_moments(program), a + 1
    points, factors, powers = FAMILIES[family]

    @part_of_kernel
    def of_number(c, s, scale, weights, empty):
        (first, second), (by_first, by_second) = points(s), factors(s)
        own(c, at(first), scale, weights[a:b])
        own(c, at(second), scale, weights[b : b + 1])
        for j in range(size):
            one, two = weights[a, j] * by_first, weights[b, j] * by_second
            weights[a, j], weights[b, j] = powers(one, two, s)
            # of two numbers that cancel, rounding is left
            if abs(weights[a, j]) < 1e-12 * (abs(one) + abs(two)):
                weights[a, j] = 0.0
        one, two = by_first * base(c, *at(first))[0], by_second * base(c, *at(second))[0]
        empty[a], empty[b] = powers(one, two, s)

    return of_number


def _of_end(program: MixtureProgram, k: int, r: int) -> Function:
    """A lower end of a number is a sum to which no record adds."""
    lower, size = of_slots(program, f"lower{k}"), n_moments(program)

    @part_of_kernel
    def of_end(c, s, scale, weights, empty):
        for j in range(size):
            weights[r, j] = 0.0
        empty[r] = lower(c)[0]

    return of_end


def _add_alike(end: int | None) -> Function:
    if end is None:
        return part_of_kernel(lambda weights: False)
    alike = normalisers.add_alike
    return part_of_kernel(lambda weights: alike(weights, end))


def _know(tabled: bool) -> Function:
    if not tabled:
        return part_of_kernel(lambda a, tables, empty, weights: None)
    fill_in = normalisers.know

    @part_of_kernel
    def know(a, tables, empty, weights):
        alike, lead, half, shape = tables
        if alike:
            for b in range(a, a + 2):
                if np.isnan(lead[b]):
                    fill_in(b, lead, half, shape, empty, weights[:, 0])

    return know


def normaliser(laws: AtomLaws) -> Function:
    """Return the logarithm of the normaliser that fits the laws of a slot's numbers."""
    if laws.normal and laws.scale is None:
        return normalisers.normal
    if laws.normal:
        return normalisers.normal_inverse_gamma_above if laws.above else normalisers.normal_inverse_gamma
    return normalisers.inverse_gamma_above if laws.above else normalisers.SINGLE[laws.single[0][1]]


def _log_z(laws: AtomLaws, n_sums: int, tabled: bool) -> Function:
    q, f, last = len(laws.normal), normaliser(laws), n_sums - 1

    @part_of_kernel
    def in_full(a, sums, tables, room, root):
        set_entries(room, sums)
        return f(room, root, q)

    @part_of_kernel
    def of_means(a, sums, tables, room, root):
        alike, lead, half, _ = tables
        if alike:
            return lead[a] + sums[0] * sums[0] * half[a]
        return in_full(a, sums, tables, room, root)

    @part_of_kernel
    def with_scale(a, sums, tables, room, root):
        alike, lead, half, shape = tables
        if alike:
            return lead[a] - shape[a] * np.log(sums[last] - sums[0] * sums[0] * half[a])
        return in_full(a, sums, tables, room, root)

    if not tabled:
        return in_full
    return of_means if laws.scale is None else with_scale
