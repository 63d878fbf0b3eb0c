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

# Where values have no end: logarithm of the share of a sum that is left out, no more than rounding takes;
# and of the probability of noise beyond which no value is asked for, whatever the kernel.
_LEFT_OUT, _BEYOND = math.log(1e-16), -1e4


def summed_sweep(program: MixtureProgram, values: SummedRelease) -> SourceFunction:
    """Compile the sweep, of O(K) per record for K values, or as many as the noise may bridge."""
    program.add("mass", [*program.natural_inputs, *program.atom_inputs], [program.mass_graph])
    used = ["urn", "base_draw", "current", "mass"]
    if values.end is None:
        assert program.centre_graph is not None
        program.add("centre", [], [program.centre_graph])
        used.append("centre")
        terms, size = _outwards(program), str(64 + SPARE)
        value = "z + ((t + 1) // 2 if t % 2 else -(t // 2))"
    else:
        terms, size = _listed(program, values), f"m + {SPARE}"
        value = f"{values.first} + t"
    enough = "now == 0.0 or u * now < then"
    enough = f"defined and ({enough})" if program.may_fail else enough
    lines = [
        *header("summed_sweep", program),
        f"    alpha, d = {program.call('urn', row='')}",
        *occupation(),
        f"    m = {1 if values.end is None else values.end - values.first}",
        *(f"    {name} = np.empty({size})" for name in ("before", "after", "weights")),
        "    accepted, moved = 0.0, 0.0",
        "    for _ in range(n_sweeps):",
        "        for i in range(n):",
        *indented([*LEAVE, *URN], 12),
        *indented(drawn_atoms(program), 12),
        "            u = random(rng)",
        *indented(terms, 12),
        "            if g == h:",
        "                t = max(pick(rng, before, m), 0)",
        "                accept = True",
        "            else:",
        "                now, then = exponentials(before, after, weights, m)",
        f"                accept = {enough}",
        "                if accept:",
        "                    t = weighted(rng, weights, then, m)",
        "                else:",
        "                    t = weighted(rng, before, now, m)",
        "            if accept:",
        "                accepted += 1.0",
        "                if g < 0:",
        *indented(OPEN, 16),
        *(f"                    atoms[g, {j}] = a{j}" for j in range(program.width)),
        "                moved += g != h",
        "            else:",
        "                g = h",
        f"            x[i, 0] = {value}",
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
        f"f = {program.call('mass', value, *own)}[0]",
        f"before[{place}] = q + f if f == f else -np.inf",
        "if g != h:",
        f"    f = {program.call('mass', value, *new)}[0]",
        f"    after[{place}] = q + f if f == f else -np.inf",
    ]


def _channel(program: MixtureProgram, value: str) -> str:
    return f"{program.call('current', value)}[{program.statistics}]"


def _listed(program: MixtureProgram, values: SummedRelease) -> list[str]:
    """Source that fills ``before`` and ``after`` with the terms of a finite sum."""
    return [
        "for t in range(m):",
        f"    y = {values.first}.0 + t",
        f"    q = {_channel(program, 'y')}",
        *indented(_term(program, "t", "y"), 4),
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
        f"    if edge <= {_LEFT_OUT!r} + one or edge < {_BEYOND!r}:",
        f"        if edge <= {_LEFT_OUT!r} + other or edge < {_BEYOND!r}:",
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
