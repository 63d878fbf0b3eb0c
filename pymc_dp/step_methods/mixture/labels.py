"""Sweeps over the labels given the records: Neal's algorithm 8."""

from pymc_dp.lowering.exponential import SPARE
from pymc_dp.lowering.native import SourceFunction
from pymc_dp.step_methods.mixture.moments import (
    coefficients,
    features,
    n_moments,
    scales,
    standardised,
)
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import LEAVE, compiled, header, join, numbers, occupation
from pymc_dp.step_methods.sweeps.source import indented


def conditional_sweep(program: MixtureProgram, m: int) -> SourceFunction:
    """Compile Neal's algorithm 8 with m empty clusters, in O(number of clusters) per record.

    The empty clusters are slots that are free, with the atoms that they have: these are draws from the base
    when the sweep begins, and part of the state while it runs.
    """
    lines = [
        *header("conditional_sweep", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        f"    logs, sizes = np.empty(n_slots + {m + SPARE}), np.empty(n_slots)",
        "    for h in range(n_slots):",
        "        sizes[h] = np.log(counts[h] - d) if counts[h] > 0 else 0.0",
        *indented(prepare_density(program), 4),
        "    moved = 0.0",
        "    for _ in range(n_sweeps):",
        "        for i in range(n):",
        *indented(LEAVE, 12),
        "            if not alone:",
        "                sizes[h] = np.log(counts[h] - d)",
        *indented(record_numbers(program), 12),
        "            for t in range(k):",
        "                g = slots[t]",
        f"                logs[t] = sizes[g] + {density_of(program, 'density', 'g', 'atoms')}",
        "            rest = weight_of_new_cluster(alpha, d, k)",
        f"            n_empty = min({m}, n_slots - k) if rest > 0.0 else 0",
        "            if n_empty == 0 and rest > 0.0:",
        "                tally[6] = 1.0",
        "            each = np.log(rest / n_empty) if n_empty > 0 else 0.0",
        "            for t in range(n_empty):",
        # any of the free slots, each with the same probability, but always the one just left
        "                if t > 0 or not alone:",
        "                    swap(slots, where, k + t, k + t + int(random(rng) * (n_slots - k - t)))",
        "                g = slots[k + t]",
        f"                logs[k + t] = each + {density_of(program, 'density', 'g', 'atoms')}",
        "            t = pick(rng, logs, k + n_empty)",
        "            g = slots[t] if t >= 0 else h",
        "            moved += g != h",
        *indented(join("g"), 12),
        "            sizes[g] = np.log(counts[g] - d)",
        "    tally[2] += moved",
        "    tally[3] += n * n_sweeps",
    ]
    return compiled("conditional_sweep", lines, program, ["urn", "features", "own"])


def prepare_density(program: MixtureProgram, occupied_only: bool = False) -> list[str]:
    """Source of what the density of any record under any slot is put together from."""
    if not program.degree:
        return []
    size = " + ".join(f"abs(coef[0, {j}])" for j in range(n_moments(program)))
    return [
        *scales(program),
        f"coef, density = np.empty((1, {n_moments(program)})), np.empty((n_slots, {n_moments(program)}))",
        "for h in range(n_slots):",
        *(["    if counts[h] == 0:", "        continue"] if occupied_only else []),
        *indented(coefficients(program, "own", numbers("atoms", "h", program.width), 1, "coef"), 4),
        *(f"    density[h, {j}] = coef[0, {j}]" for j in range(n_moments(program))),
        # atoms at an end of their range, where no density is a polynomial
        f"    if not {size} < np.inf:",
        "        density[h, 0] = -np.inf",
        *(f"        density[h, {j}] = 0.0" for j in range(1, n_moments(program))),
    ]


def record_numbers(program: MixtureProgram) -> list[str]:
    """Source of the numbers of record i on which its density depends."""
    return standardised(program) if program.degree else [f"v = {features(program)}"]


def density_of(program: MixtureProgram, array: str, row: str, atoms: str, of_atoms: str = "") -> str:
    """Log density of record i under a component, as an expression.

    ``array`` holds the coefficients of every component, ``atoms`` its atoms, which may be in another row.
    """
    if program.degree:
        return "(" + " + ".join(f"{array}[{row}, {j}] * m{j}" for j in range(n_moments(program))) + ")"
    v = [f"v[{j}]" for j in range(program.n_features)]
    return f"{program.call('own', *v, *numbers(atoms, of_atoms or row, program.width))}[0]"
