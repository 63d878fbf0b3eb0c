"""Updates of atoms whose law is none of the known ones: the Metropolis-adjusted Langevin algorithm.

All occupied slots move at once, each decided on its own: given labels and records they are independent. A
proposal follows the gradient of the log density in value space, in units of the root of the information,
which is the mean square of the gradient. That grows with the records of a slot; so it is learnt, as the step
size is, for each power of two of records separately, while tuning.
"""

import pytensor.gradient as tg
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace

from pymc_dp.lowering.native import SourceFunction
from pymc_dp.lowering.rows import NotScalar
from pymc_dp.step_methods.mixture.conjugacy import Derivatives
from pymc_dp.step_methods.mixture.moments import add_sums, sums_of_moments
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import compiled, header, numbers
from pymc_dp.step_methods.mixture.tally import ATOMS_ACCEPTED, ATOMS_PROPOSED
from pymc_dp.step_methods.sweeps.source import indented

# Powers of two of a slot's records that are told apart.
N_SIZES = 24
# Steps per update.
_STEPS = 3
# Acceptance at which the algorithm moves fastest (Roberts & Rosenthal 1998).
_TARGET = 0.574


def room_for(program: MixtureProgram, which: list[int]) -> int:
    """How many numbers are learnt: for each size, draws seen, step size, mean square of each slope."""
    return N_SIZES * (2 + len(which)) if which else 0


def langevin(program: MixtureProgram, derivatives: Derivatives, which: list[int]) -> SourceFunction:
    """Compile the update of some numbers of every slot.

    Raises
    ------
    NotScalar
        If a number is an integer or a probability, or its transform depends on other numbers of the slot.
    """
    _add_functions(program, derivatives, which)
    q, width, start = len(which), program.width, program.learnt_from
    step = 2 + q
    values, moved = numbers("values", "h", width), numbers("there", "h", width)
    lines = header("langevin", program)
    lines += indented(sums_of_moments(program), 4) if program.degree else []
    lines += [
        f"    values, there = np.empty((n_slots, {width})), np.empty((n_slots, {width}))",
        f"    kept, noise = np.empty((n_slots, {width})), np.empty((n_slots, {q}))",
        f"    before, after = np.zeros((n_slots, {1 + q})), np.zeros((n_slots, {1 + q}))",
        "    for h in range(n_slots):",
        "        if counts[h] > 0:",
        f"            {_targets('values', width)} = {_call(program, 'store', numbers('atoms', 'h', width))}",
        *indented(_density(program, q, "before", values), 4),
        f"    for _ in range(n_sweeps * {_STEPS}):",
        "        for h in range(n_slots):",
        "            if counts[h] == 0:",
        "                continue",
        f"            at = {start} + {step} * min(int(np.log2(counts[h])), {N_SIZES - 1})",
        "            if learnt[at] == 0.0:",
        *(f"                learnt[at + {2 + j}] = 1.0 + counts[h]" for j in range(q)),
        "            size = np.exp(learnt[at + 1])",
        *(f"            there[h, {k}], kept[h, {k}] = values[h, {k}], atoms[h, {k}]" for k in range(width)),
    ]
    for j, k in enumerate(which):
        lines += [
            f"            scale = size / np.sqrt(learnt[at + {2 + j}])",
            f"            noise[h, {j}] = standard_normal(rng)",
            f"            there[h, {k}] += 0.5 * scale**2 * before[h, {1 + j}] + scale * noise[h, {j}]",
        ]
    lines += [
        f"            {_targets('atoms', width)} = {_call(program, 'load', moved)}",
        *(f"            atoms[h, {k}] = kept[h, {k}]" for k in range(width) if k not in which),
        "        after[:, :] = 0.0",
        *indented(_density(program, q, "after", moved), 8),
        "        for h in range(n_slots):",
        "            if counts[h] == 0:",
        "                continue",
        f"            at = {start} + {step} * min(int(np.log2(counts[h])), {N_SIZES - 1})",
        "            size = np.exp(learnt[at + 1])",
        "            total = after[h, 0] - before[h, 0]",
    ]
    for j in range(q):
        lines += [
            f"            scale = size / np.sqrt(learnt[at + {2 + j}])",
            f"            back = noise[h, {j}] + 0.5 * scale * (before[h, {1 + j}] + after[h, {1 + j}])",
            f"            total += 0.5 * (noise[h, {j}] ** 2 - back**2)",
        ]
    lines += [
        "            accepted = total >= 0.0 or total > -standard_exponential(rng)",
        f"            tally[{ATOMS_PROPOSED}] += 1.0",
        "            if accepted:",
        f"                tally[{ATOMS_ACCEPTED}] += 1.0",
        *(f"                values[h, {k}] = there[h, {k}]" for k in which),
        *(f"                before[h, {j}] = after[h, {j}]" for j in range(1 + q)),
        "            else:",
        *(f"                atoms[h, {k}] = kept[h, {k}]" for k in which),
        "            if learnt[0] > 0.0:",
        "                learnt[at] += 1.0",
        "                rate = 1.0 / np.sqrt(learnt[at])",
        "                probability = min(1.0, np.exp(total)) if total == total else 0.0",
        f"                learnt[at + 1] += rate * (probability - {_TARGET})",
    ]
    for j in range(q):
        lines += [
            f"                square = min(before[h, {1 + j}] ** 2, 100.0 * learnt[at + {2 + j}])",
            f"                learnt[at + {2 + j}] += (square - learnt[at + {2 + j}]) / (10.0 + learnt[at])",
        ]
    used = ["load", "store", "features", "own_langevin", "base_langevin", "volume"]
    return compiled("langevin", lines, program, used)


def _call(program: MixtureProgram, name: str, arguments: list[str]) -> str:
    return program.call(name, *arguments, row="")


def _targets(array: str, width: int) -> str:
    return "".join(f"{array}[h, {k}], " for k in range(width))


def _density(program: MixtureProgram, q: int, target: str, values: list[str]) -> list[str]:
    """Source of the log density of every occupied slot in value space, and its slopes."""
    atoms = numbers("atoms", "h", program.width)
    return [
        *add_sums(program, "own_langevin", atoms, 1 + q, target),
        "for h in range(n_slots):",
        "    if counts[h] > 0:",
        f"        r = {program.call('base_langevin', *atoms, row='')}",
        f"        v = {program.call('volume', *values, row='')}",
        f"        {target}[h, 0] += r[0] + v[0]",
        f"        for j in range(1, {1 + q}):",
        f"            {target}[h, j] = ({target}[h, j] + r[j]) * v[j] + v[j + {q}]",
    ]


def _add_functions(program: MixtureProgram, derivatives: Derivatives, which: list[int]) -> None:
    """Log density and slopes of a record and of a slot; the transforms' volume and slopes."""
    program.values.check_numbers()
    for k in which:
        atom = program.each_atom()[k][0]
        if not atom.dtype.startswith("float"):
            raise NotScalar(f"{atom.name} is an integer, and its law given the records is none that is known")
    for name, graph, more in (
        ("own", derivatives.own, program.record_inputs),
        ("base", derivatives.base, []),
    ):
        outputs = derivatives.back([graph, *derivatives.slopes(graph, which)])
        program.add(f"{name}_langevin", [*more, *program.atom_inputs], outputs)
    values = [pt.dscalar(f"at{k}") for k in range(program.width)]
    numbers_of = {v: pt.scalar_from_tensor(t) for v, t in zip(program.values.inputs, values, strict=True)}
    natural = graph_replace(program.natural_graphs, numbers_of, strict=False)
    volume = graph_replace([program.values.volume(which)], numbers_of, strict=False)[0]
    slopes = []
    for k in which:
        own: list = [
            tg.grad(natural[k], v, disconnected_inputs="ignore", return_disconnected="none") for v in values
        ]
        if any(s is not None for j, s in enumerate(own) if j != k):
            raise NotScalar(f"the transform of {program.each_atom()[k][0].name} depends on other atoms")
        slopes.append(own[k])
    more = tg.grad(
        volume, [values[k] for k in which], disconnected_inputs="ignore", return_disconnected="zero"
    )
    back = {t: pt.tensor_from_scalar(v) for v, t in zip(program.values.inputs, values, strict=True)}
    outputs = graph_replace([volume, *slopes, *more], back, strict=False)
    program.add("volume", program.values.inputs, outputs)
