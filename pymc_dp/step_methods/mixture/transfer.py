"""Between the flat vector of parameters and the arrays that mixture kernels work on."""

import numpy as np

from pymc_dp.lowering.native import SourceFunction
from pymc_dp.step_methods.mixture.moments import middle_and_spread
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import compiled, header, numbers
from pymc_dp.step_methods.sweeps.source import indented


def places_of(program: MixtureProgram) -> list[tuple[int, int]]:
    """Where each value of slot 0 stands in the flat vector, and how far it is from slot to slot."""
    layout = program.program.parameters
    places = []
    for atom, shape in zip(program.mixture.atoms, program.values.shapes, strict=True):
        start = layout.slices[layout.variables.index(atom)].start
        size = int(np.prod(shape))
        places += [(start + j, size) for j in range(size)]
    return places


def load(program: MixtureProgram) -> SourceFunction:
    """Read labels and atoms from the flat vector, count the records of each slot, and take their measure."""
    places = places_of(program)
    values = [f"theta[{start} + {step} * h]" for start, step in places]
    targets = "".join(f"atoms[h, {j}], " for j in range(program.width))
    at = program.program.parameters.slices[program.program.parameters.variables.index(program.mixture.labels)]
    lines = [
        *header("load_atoms", program),
        "    for h in range(n_slots):",
        f"        {targets}= {program.call('load', *values, row='')}",
        "        counts[h] = 0",
        "    for i in range(n):",
        f"        labels[i] = int(theta[{at.start} + i])",
        "        counts[labels[i]] += 1",
    ]
    lines += indented(middle_and_spread(program), 4) if program.degree else []
    return compiled("load_atoms", lines, program, ["load", "features"])


def store(program: MixtureProgram) -> SourceFunction:
    """Write labels and atoms to the flat vector; with sweeps to follow, the atoms of records only."""
    places = places_of(program)
    targets = "".join(f"theta[{start} + {step} * h], " for start, step in places)
    at = program.program.parameters.slices[program.program.parameters.variables.index(program.mixture.labels)]
    lines = [
        *header("store_atoms", program),
        "    for h in range(n_slots):",
        "        if n_sweeps == 0 or counts[h] > 0:",
        f"            {targets}= {program.call('store', *numbers('atoms', 'h', program.width), row='')}",
        "    for i in range(n):",
        f"        theta[{at.start} + i] = labels[i]",
    ]
    return compiled("store_atoms", lines, program, ["store"])


def refresh(program: MixtureProgram) -> SourceFunction:
    """Draw the atoms of unoccupied slots from the base: their law given everything else."""
    targets = "".join(f"atoms[h, {j}], " for j in range(program.width))
    lines = [
        *header("refresh_atoms", program),
        "    for h in range(n_slots):",
        "        if counts[h] == 0:",
        f"            {targets}= {program.call('base_draw', rng=True, row='')}",
    ]
    return compiled("refresh_atoms", lines, program, ["base_draw"])
