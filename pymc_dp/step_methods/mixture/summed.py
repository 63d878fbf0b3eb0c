"""Joint sweeps in which the decision adds up over all values that a discrete record can have.

The exact counterpart of infinitely many auxiliary records where records are whole numbers: with f the kernel
and q the law of what is released of one record, the move from atoms a to a' is accepted with the ratio of
sum_v f(v | a') q(z | v) to sum_v f(v | a) q(z | v), and the record is drawn from the terms of the sum of the
cluster that it is in then.
"""

import math

from pymc_dp.lowering.exponential import SPARE
from pymc_dp.lowering.native import SourceFunction
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.released import SummedRelease
from pymc_dp.step_methods.mixture.source import LEAVE, compiled, header, join, numbers, occupation
from pymc_dp.step_methods.mixture.urn import OPEN, URN, drawn_atoms
from pymc_dp.step_methods.sweeps.source import indented

# Where values have no end: logarithm of the share of a sum that may be left out, and the distance from the
# release beyond which no value is asked for, which only ends sums that have no term.
_LEFT_OUT, _FARTHEST = math.log(1e-12), 2.0**20
# Values beside those released for which the kernel's density is kept by cluster, and the most of all such
# numbers.
_BESIDE, _MOST_KEPT = 64, 2**17


def summed_sweep(program: MixtureProgram, values: SummedRelease) -> SourceFunction:
    """Compile the sweep, of O(K) per record for K values, or as many as the noise may bridge."""
    program.add("mass", [*program.natural_inputs, *program.atom_inputs], [program.mass_graph])
    used = ["urn", "base_draw", "current", "mass"]
    if values.end is None:
        assert program.centre_graph is not None
        program.add("centre", [], [program.centre_graph])
        used.append("centre")
        first, terms, size = _range(program), _outwards(program), str(64 + SPARE)
        value = "z + ((t + 1) // 2 if t % 2 else -(t // 2))"
    else:
        first = [f"first, m = {values.first}, {values.end - values.first}", _kept("m")]
        terms, size = _listed(program), f"m + {SPARE}"
        value = "first + t"
    # where neither has a term, all stays as it is
    enough = "then > 0.0 and (now == 0.0 or u * now < then)"
    enough = f"defined and {enough}" if program.may_fail else enough
    lines = [
        *header("summed_sweep", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        *indented(first, 4),
        # log densities of values by slot, where they have been asked for; the last row is for a new cluster
        "    kept = np.full((n_slots + 1, n_kept), np.nan)",
        *(f"    {name} = np.empty({size})" for name in ("before", "after", "weights")),
        "    accepted, moved = 0.0, 0.0",
        "    for _ in range(n_sweeps):",
        "        for i in range(n):",
        *indented([*LEAVE, *URN], 12),
        *indented(drawn_atoms(program), 12),
        "            row = g",
        "            if g < 0:",
        "                row = n_slots",
        "                kept[row] = np.nan",
        "            u = random(rng)",
        *indented(terms, 12),
        "            if g == h:",
        "                t = pick(rng, before, m)",
        "                accept = True",
        "            else:",
        "                now, then = exponentials(before, after, weights, m)",
        f"                accept = {enough}",
        "                if accept:",
        "                    t = weighted(rng, weights, then, m)",
        "                else:",
        "                    t = weighted(rng, before, now, m) if now > 0.0 else -1",
        "            if accept:",
        "                accepted += 1.0",
        "                if g < 0:",
        *indented(OPEN, 16),
        *(f"                    atoms[g, {j}] = a{j}" for j in range(program.width)),
        "                    kept[g] = kept[n_slots]",
        "                moved += g != h",
        "            else:",
        "                g = h",
        "            if t >= 0:",
        f"                x[i, 0] = {value}",
        *indented(join("g"), 12),
        "    tally[0] += accepted",
        "    tally[1] += n * n_sweeps",
        "    tally[2] += moved",
        "    tally[3] += n * n_sweeps",
    ]
    return compiled("summed_sweep", lines, program, used)


def _term(program: MixtureProgram, place: str, value: str) -> list[str]:
    """Source of both clusters' logarithms of one term; what is no number is possible nowhere."""
    own = numbers("atoms", "h", program.width)
    new = [f"a{j}" for j in range(program.width)]
    return [
        f"at = int({value}) - first",
        *_mass(program, value, "h", own),
        f"before[{place}] = q + f",
        "if g != h:",
        *indented(_mass(program, value, "row", new), 4),
        f"    after[{place}] = q + f",
    ]


def _mass(program: MixtureProgram, value: str, row: str, atoms: list[str]) -> list[str]:
    """Source of the kernel's log density of a value, which is kept where it is the same for all records."""
    work_out = [f"f = {program.call('mass', value, *atoms)}[0]", "f = f if f == f else -np.inf"]
    if program.mass_by_record:
        return work_out
    return [
        f"f = kept[{row}, at] if 0 <= at < n_kept else np.nan",
        "if f != f:",
        *indented(work_out, 4),
        "    if 0 <= at < n_kept:",
        f"        kept[{row}, at] = f",
    ]


def _channel(program: MixtureProgram, value: str) -> str:
    return f"{program.call('current', value)}[{program.statistics}]"


def _listed(program: MixtureProgram) -> list[str]:
    """Source that fills ``before`` and ``after`` with the terms of a finite sum."""
    return [
        "for t in range(m):",
        "    y = float(first + t)",
        f"    q = {_channel(program, 'y')}",
        *indented(_term(program, "t", "y"), 4),
    ]


def _kept(size: str) -> str:
    return f"n_kept = min({size}, {_MOST_KEPT} // (n_slots + 1))"


def _range(program: MixtureProgram) -> list[str]:
    """Source of the values around those released."""
    return [
        f"low = high = {program.call('centre', row='0')}[0]",
        "for i in range(n):",
        f"    z = {program.call('centre')}[0]",
        "    low, high = min(low, z), max(high, z)",
        f"first = int(low) - {_BESIDE}",
        _kept(f"int(high - low) + {2 * _BESIDE}"),
    ]


def _outwards(program: MixtureProgram) -> list[str]:
    """Source that fills them with the terms of a sum without an end, from the release outwards.

    As f adds up to at most 1, what lies beyond a distance is below the noise's probability there; and any
    term is a lower bound of its sum. The new cluster's sum may also stop where the move will be refused.
    """
    return [
        f"z = {program.call('centre')}[0]",
        "y, m = z, 1",
        f"q = {_channel(program, 'y')}",
        *_term(program, "0", "y"),
        "one, other = before[0], after[0] if g != h else np.inf",
        "r = 1.0",
        "while True:",
        f"    up, down = {_channel(program, 'z + r')}, {_channel(program, 'z - r')}",
        "    edge = max(up, down)",
        f"    beyond = r > {_FARTHEST!r}",
        f"    if beyond or edge <= {_LEFT_OUT!r} + one:",
        f"        if beyond or edge <= {_LEFT_OUT!r} + other:",
        "            break",
        "        if max(edge, other + np.log(m)) < np.log(u) + one - np.log(2.0):",
        "            break",
        f"    if m + {2 + SPARE} > before.size:",
        "        before = np.concatenate((before, before))",
        "        after = np.concatenate((after, after))",
        "        weights = np.empty(before.size)",
        "    for t in range(2):",
        "        y, q = (z + r, up) if t == 0 else (z - r, down)",
        *indented(_term(program, "m", "y"), 8),
        "        one = max(one, before[m])",
        "        if g != h:",
        "            other = max(other, after[m])",
        "        m += 1",
        "    r += 1.0",
    ]
