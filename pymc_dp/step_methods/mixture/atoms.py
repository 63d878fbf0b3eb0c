"""Source of the update of atoms given labels and records."""

from typing import Any

from pymc_dp.lowering.native import SourceFunction
from pymc_dp.lowering.rowdraws import SMALLEST
from pymc_dp.lowering.truncated import truncated_inverse_gamma
from pymc_dp.step_methods.mixture.conjugacy import AtomLaws
from pymc_dp.step_methods.mixture.draws import solve_normal
from pymc_dp.step_methods.mixture.moments import add_sums, sums_of_moments
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import compiled, header, numbers
from pymc_dp.step_methods.sweeps.source import indented


def conjugate_draws(program: MixtureProgram, laws: AtomLaws) -> SourceFunction:
    """Compile exact draws of the atoms of occupied slots, in one or two passes over the records.

    The normal numbers of a slot are drawn together; where one number divides all their terms (a variance with
    means whose law scales with it), it is drawn first with the means integrated out.
    """
    width, q = program.width, len(laws.normal)
    at_slot = numbers("atoms", "h", width)
    lines = header("conjugate_draws", program)
    if program.degree:
        lines += indented(sums_of_moments(program), 4)
    lines += ["    for _ in range(n_sweeps):"]
    used = ["features"]
    if q:
        used += ["own_quadratic", "base_quadratic"]
        size = q + q * (q + 1) // 2
        lines += indented(_sums("quadratic", size, at_slot, program), 8)
        lines += [f"        root, mean = np.zeros(({q}, {q})), np.empty((n_slots, {q}))"]
        lines += [
            "        for h in range(n_slots):",
            "            if counts[h] > 0:",
            f"                solve_mean(sums[h], mean[h], root, {q})",
        ]
    if laws.scale is not None:
        k = laws.scale
        used += [f"own_slope{k}", f"base_slope{k}"]
        # the number's own law with the normal numbers at their mean, and one half less for each of them
        atoms = [
            f"mean[h, {laws.normal.index(j)}]" if j in laws.normal else f"atoms[h, {j}]" for j in range(width)
        ]
        lines += [
            *indented(_two_slopes(k, "inverse gamma", atoms, program), 8),
            "        for h in range(n_slots):",
            "            if counts[h] > 0:",
            f"                s = atoms[h, {k}]",
            "                scale = 2.0 * s * (slopes[h, 0] - slopes[h, 1])",
            "                shape = scale / s - slopes[h, 0] - 1.0",
            f"                drawn = {_inverse_gamma(k, f'shape - {q / 2}', laws, program)}",
            # the precisions were those at the old value
            f"                for j in range({size}):",
            "                    sums[h, j] *= s / drawn",
            f"                atoms[h, {k}] = drawn",
        ]
    if q:
        lines += [
            "        for h in range(n_slots):",
            "            if counts[h] > 0:",
            f"                draw_normal(rng, sums[h], mean[h], root, {q})",
            *(f"                atoms[h, {k}] = mean[h, {j}]" for j, k in enumerate(laws.normal)),
        ]
    for k, family in laws.single:
        used += [f"own_slope{k}", f"base_slope{k}"]
        lines += indented(_two_slopes(k, family, at_slot, program), 8)
        lines += ["        for h in range(n_slots):", "            if counts[h] > 0:"]
        lines += indented(_single_draw(k, family, laws, program), 16)
    lines += indented(_divide_by_sums(program, laws), 8)
    used += [f"lower{k}" for k in laws.above]
    above = {"truncated_inverse_gamma": truncated_inverse_gamma}
    return compiled("conjugate_draws", lines, program, used, **solve_normal, **above)


def _inverse_gamma(k: int, shape: str, laws: AtomLaws, program: MixtureProgram) -> str:
    """Draw of an inverse gamma number, which may be cut off from below."""
    if k not in laws.above:
        return f"scale / rng.standard_gamma({shape})"
    return f"truncated_inverse_gamma(rng, {shape}, scale, {program.call(f'lower{k}', row='')}[0])"


def _sums(name: str, size: int, at_slot: list[str], program: MixtureProgram) -> list[str]:
    """Sum a function of several outputs over the records of each slot, and add the base's."""
    return [
        f"sums = np.zeros((n_slots, {size}))",
        "for h in range(n_slots):",
        "    if counts[h] > 0:",
        f"        r = {program.call(f'base_{name}', *at_slot, row='')}",
        *(f"        sums[h, {j}] = r[{j}]" for j in range(size)),
        *add_sums(program, f"own_{name}", at_slot, size, "sums"),
    ]


def _two_slopes(k: int, family: str, atoms: list[str], program: MixtureProgram) -> list[str]:
    """Sums of the slope in one number, times what makes it affine, at two values of the number."""
    if family == "beta":
        points, factors = ("0.25", "0.75"), ("0.1875", "0.1875")
    else:
        points = (f"atoms[h, {k}]", f"2.0 * atoms[h, {k}]")
        factors = points
    lines = ["slopes = np.zeros((n_slots, 2))"]
    for j in range(2):
        at = [*atoms[:k], points[j], *atoms[k + 1 :]]
        lines += [
            "part = np.zeros((n_slots, 1))",
            "for h in range(n_slots):",
            "    if counts[h] > 0:",
            f"        part[h, 0] = {program.call(f'base_slope{k}', *at, row='')}[0]",
            *add_sums(program, f"own_slope{k}", at, 1, "part"),
            "for h in range(n_slots):",
            f"    slopes[h, {j}] = {factors[j]} * part[h, 0]",
        ]
    return lines


def _divide_by_sums(program: MixtureProgram, laws: AtomLaws) -> list[str]:
    """Source that makes probabilities of gamma numbers, row by row."""
    rows: dict[tuple[Any, tuple[int, ...]], list[int]] = {}
    for k, family in laws.single:
        if family == "probability":
            atom, index = program.each_atom()[k]
            rows.setdefault((atom, index[:-1]), []).append(k)
    lines = ["for h in range(n_slots):", "    if counts[h] > 0:"]
    for numbers_of_row in rows.values():
        each = [f"atoms[h, {k}]" for k in numbers_of_row]
        lines += [f"        total = {' + '.join(each)}", *(f"        {p} /= total" for p in each)]
    return lines if rows else []


def _single_draw(k: int, family: str, laws: AtomLaws, program: MixtureProgram) -> list[str]:
    """Draw of one number from the two slopes; see :mod:`.conjugacy` for what they are."""
    if family == "probability":  # p l' = a - 1; a gamma number, to be divided by the sum of its row
        return [f"atoms[h, {k}] = max(rng.standard_gamma(slopes[h, 0] + 1.0), {SMALLEST})"]
    if family == "gamma":  # s l' = (a - 1) - b s, at s and 2 s
        return [
            f"s = atoms[h, {k}]",
            "rate = (slopes[h, 0] - slopes[h, 1]) / s",
            f"atoms[h, {k}] = rng.standard_gamma(2.0 * slopes[h, 0] - slopes[h, 1] + 1.0) / rate",
        ]
    if family == "inverse gamma":  # s l' = b / s - (a + 1), at s and 2 s
        return [
            f"s = atoms[h, {k}]",
            "scale = 2.0 * s * (slopes[h, 0] - slopes[h, 1])",
            f"atoms[h, {k}] = {_inverse_gamma(k, 'scale / s - slopes[h, 0] - 1.0', laws, program)}",
        ]
    # beta: s (1 - s) l' = (a - 1) - (a + b - 2) s, at 1/4 and 3/4
    return [
        "first = 1.5 * slopes[h, 0] - 0.5 * slopes[h, 1] + 1.0",
        "second = 1.5 * slopes[h, 1] - 0.5 * slopes[h, 0]",
        f"atoms[h, {k}] = rng.beta(first, 1.0 - second)",
    ]
