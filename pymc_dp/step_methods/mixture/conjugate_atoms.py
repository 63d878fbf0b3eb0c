"""The update of atoms given labels and records, where their laws are known ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.tuples import Numbers, entries, row, set_row
from pymc_dp.lowering.functions.truncated import truncated_inverse_gamma
from pymc_dp.lowering.rows.rowdraws import SMALLEST
from pymc_dp.step_methods.mixture.bound import (
    N_CONSTANTS,
    bound,
    of_slots,
)
from pymc_dp.step_methods.mixture.cholesky import draw_normal, solve_mean
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.polynomials import N_MOMENTS, scales
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slot_sums import FAMILIES, Family
from pymc_dp.step_methods.mixture.slot_totals import Records, add_moments, moments_by_slot, total_of
from pymc_dp.step_methods.mixture.state import Generator, Integers, Matrix, State

# Which numbers of a slot are normal, how many, and of how many slopes and second derivatives they are drawn;
# the number that divides all of these, -1 if there is none.
NORMAL = np.zeros(0, np.int64)
N_NORMAL = N_QUADRATIC = 0
SCALE = -1


def add_quadratic(c: Numbers, records: Records, atoms: Matrix, room: Matrix, out: Matrix) -> None:
    """Fill in slopes and precisions of the normal numbers by slot, of records and base together."""
    raise NotImplementedError


def scale_slopes(
    c: Numbers, records: Records, atoms: Matrix, mean: Matrix, room: Matrix, part: Matrix, out: Matrix
) -> None:
    """Fill in two slopes of the number that scales the normal ones, with these at their mean.

    Slopes at two values of the number, times what makes them affine.
    """
    raise NotImplementedError


def draw_inverse_gamma(rng: Generator, c: Numbers, shape: float, scale: float) -> float:
    """Draw the number that scales the normal ones."""
    raise NotImplementedError


def draw_single(
    rng: Generator, c: Numbers, records: Records, atoms: Matrix, mean: Matrix, room: Matrix, part: Matrix,
    slopes: Matrix,
) -> None:  # fmt: skip
    """Draw each number with a law of its own given the others."""
    raise NotImplementedError


def divide_by_sums(counts: Integers, atoms: Matrix) -> None:
    """Make probabilities of gamma numbers."""
    raise NotImplementedError


def conjugate_draws(n_sweeps: int, rng: Generator, state: State) -> None:
    """Draw the atoms of occupied slots, in one or two passes over the records.

    The normal numbers of a slot are drawn together; where one number divides all their terms (a variance with
    means whose law scales with it), it is drawn first with the means integrated out.
    """
    atoms, counts, n_slots = state.atoms, state.counts, state.counts.size
    c = entries(state.constants, N_CONSTANTS)
    moments = np.zeros((n_slots, N_MOMENTS))
    records = Records(state.covariates, state.records, state.labels, counts, scales(state), moments)
    add_moments(c, records)
    sums, room = np.empty((n_slots, N_QUADRATIC)), np.empty((max(N_QUADRATIC, 1), N_MOMENTS))
    root, mean = np.empty((N_NORMAL, N_NORMAL)), np.empty((n_slots, N_NORMAL))
    part, slopes = np.empty((n_slots, 1)), np.empty((n_slots, 2))
    for _ in range(n_sweeps):
        add_quadratic(c, records, atoms, room, sums)
        for h in range(n_slots):
            if counts[h] > 0:
                solve_mean(sums[h], mean[h], root, N_NORMAL)
        if SCALE >= 0:
            # its own law with the normal numbers at their mean, and one half less for each of them
            scale_slopes(c, records, atoms, mean, room, part, slopes)
            for h in range(n_slots):
                if counts[h] > 0:
                    s = atoms[h, SCALE]
                    scale = 2.0 * s * (slopes[h, 0] - slopes[h, 1])
                    shape = scale / s - slopes[h, 0] - 1.0
                    drawn = draw_inverse_gamma(rng, c, shape - 0.5 * N_NORMAL, scale)
                    # the precisions were those at the old value
                    for j in range(N_QUADRATIC):
                        sums[h, j] *= s / drawn
                    atoms[h, SCALE] = drawn
        for h in range(n_slots):
            if counts[h] > 0:
                draw_normal(rng, sums[h], mean[h], root, N_NORMAL)
                for j in range(N_NORMAL):
                    atoms[h, NORMAL[j]] = mean[h, j]
        draw_single(rng, c, records, atoms, mean, room, part, slopes)
        divide_by_sums(counts, atoms)


def compiled(program: MixtureProgram, laws: AtomLaws) -> Kernel:
    """Compile exact draws of the atoms of occupied slots."""
    q, k = len(laws.normal), -1 if laws.scale is None else laws.scale
    n = q + q * (q + 1) // 2
    draw = part_of_kernel(lambda rng, c, records, atoms, mean, room, part, slopes: None)
    for number, family in laws.single:
        draw = _with_single(draw, program, laws, number, family)
    return bound(
        conjugate_draws,
        program,
        NORMAL=np.array(laws.normal, np.int64),
        N_NORMAL=q,
        N_QUADRATIC=n,
        SCALE=k,
        add_moments=moments_by_slot(program),
        add_quadratic=_quadratic(program, n),
        scale_slopes=_two_slopes(program, k, "inverse gamma", laws.normal),
        draw_inverse_gamma=_inverse_gamma(program, laws, k),
        draw_single=draw,
        divide_by_sums=_divide_by_sums(program, laws),
    )


def _quadratic(program: MixtureProgram, n: int) -> Function:
    if not n:
        return part_of_kernel(lambda c, records, atoms, room, out: None)
    add, base = total_of(program, "own_quadratic", n), of_slots(program, "base_quadratic")
    width = program.width

    @part_of_kernel
    def add_quadratic(c, records, atoms, room, out):
        counts = records.counts
        for h in range(counts.size):
            if counts[h] > 0:
                set_row(out, h, base(c, *row(atoms, h, width)))
        add(c, records, atoms, atoms, room, out)

    return add_quadratic


# a number that is to be divided by the sum of its row: its slope times itself is a constant
_PROBABILITY = Family(
    FAMILIES["gamma"].points, FAMILIES["gamma"].factors, part_of_kernel(lambda one, two, s: (one, two))
)


def _two_slopes(program: MixtureProgram, k: int, family: str, at_mean: Sequence[int] = ()) -> Function:
    """Fill in the slopes in number k at two values of it, times what makes them affine."""
    if k < 0:
        return part_of_kernel(lambda c, records, atoms, mean, room, part, out: None)
    first, second = (_slope(program, k, family, j, at_mean) for j in range(2))

    @part_of_kernel
    def two_slopes(c, records, atoms, mean, room, part, out):
        first(c, records, atoms, mean, room, part, out)
        second(c, records, atoms, mean, room, part, out)

    return two_slopes


def _slope(program: MixtureProgram, k: int, family: str, j: int, at_mean: Sequence[int]) -> Function:
    points, factors, _ = FAMILIES.get(family, _PROBABILITY)
    at = part_of_kernel(lambda atoms, mean, h: ())
    for number in range(program.width):
        if number == k:
            entry = _point(points, k, j)
        else:
            entry = _entry(number, at_mean.index(number) if number in at_mean else -1)
        at = _with_entry(at, entry)
    add = total_of(program, f"own_slope{k}", 1, at)
    base = of_slots(program, f"base_slope{k}")

    @part_of_kernel
    def slope(c, records, atoms, mean, room, part, out):
        counts = records.counts
        for h in range(counts.size):
            if counts[h] > 0:
                part[h, 0] = base(c, *at(atoms, mean, h))[0]
        add(c, records, atoms, mean, room, part)
        for h in range(counts.size):
            if counts[h] > 0:
                out[h, j] = factors(atoms[h, k])[j] * part[h, 0]

    return slope


def _point(points: Any, k: int, j: int) -> Function:
    return part_of_kernel(lambda atoms, mean, h: points(atoms[h, k])[j])


def _entry(number: int, normal: int) -> Function:
    if normal >= 0:
        return part_of_kernel(lambda atoms, mean, h: mean[h, normal])
    return part_of_kernel(lambda atoms, mean, h: atoms[h, number])


def _with_entry(before: Any, entry: Any) -> Function:
    return part_of_kernel(lambda atoms, mean, h: (*before(atoms, mean, h), entry(atoms, mean, h)))


def _with_single(before: Any, program: MixtureProgram, laws: AtomLaws, k: int, family: str) -> Function:
    """Draw number k after others."""
    powers, two_slopes = FAMILIES.get(family, _PROBABILITY).powers, _two_slopes(program, k, family)
    draw = _DRAWS.get(family)
    if draw is None:
        inverse_gamma = _inverse_gamma(program, laws, k)
        draw = part_of_kernel(lambda rng, c, a, b: inverse_gamma(rng, c, a - 1.0, b))

    @part_of_kernel
    def draw_single(rng, c, records, atoms, mean, room, part, slopes):
        before(rng, c, records, atoms, mean, room, part, slopes)
        counts = records.counts
        two_slopes(c, records, atoms, mean, room, part, slopes)
        for h in range(counts.size):
            if counts[h] > 0:
                a, b = powers(slopes[h, 0], slopes[h, 1], atoms[h, k])
                atoms[h, k] = draw(rng, c, a, b)

    return draw_single


# By family, given its two parameters: see :class:`~.slot_sums.Family`.
_DRAWS = {
    "gamma": part_of_kernel(lambda rng, c, a, b: rng.standard_gamma(a + 1.0) / b),
    "beta": part_of_kernel(lambda rng, c, a, b: rng.beta(a + 1.0, b + 1.0)),
    "probability": part_of_kernel(lambda rng, c, a, b: max(rng.standard_gamma(a + 1.0), SMALLEST)),
}


def _inverse_gamma(program: MixtureProgram, laws: AtomLaws, k: int) -> Function:
    """Draw an inverse gamma number, which may be cut off from below."""
    if k not in laws.above:
        return part_of_kernel(lambda rng, c, shape, scale: scale / rng.standard_gamma(shape))
    lower, draw = of_slots(program, f"lower{k}"), truncated_inverse_gamma
    return part_of_kernel(lambda rng, c, shape, scale: draw(rng, shape, scale, lower(c)[0]))


def _divide_by_sums(program: MixtureProgram, laws: AtomLaws) -> Function:
    """Make probabilities of gamma numbers, row by row."""
    rows: dict[tuple[Any, tuple[int, ...]], list[int]] = {}
    for k, family in laws.single:
        if family == "probability":
            atom, index = program.each_atom()[k]
            rows.setdefault((atom, index[:-1]), []).append(k)
    divide = part_of_kernel(lambda counts, atoms: None)
    for numbers in rows.values():
        divide = _with_row(divide, np.array(numbers, np.int64))
    return divide


def _with_row(before: Any, numbers: np.ndarray) -> Function:
    size = len(numbers)

    @part_of_kernel
    def divide_by_sums(counts, atoms):
        before(counts, atoms)
        for h in range(counts.size):
            if counts[h] > 0:
                total = 0.0
                for j in range(size):
                    total += atoms[h, numbers[j]]
                for j in range(size):
                    atoms[h, numbers[j]] /= total

    return divide_by_sums
