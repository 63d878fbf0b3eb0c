"""Joint sweeps in which the decision adds up over all values that a discrete record can have.

The exact counterpart of infinitely many auxiliary records where records are whole numbers: with f the kernel
and q the law of what is released of one record, the move from atoms a to a' is accepted with the ratio of
sum_v f(v | a') q(z | v) to sum_v f(v | a) q(z | v), and the record is drawn from the terms of the sum of the
cluster that it is in then.
"""

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.tuples import column
from pymc_dp.step_methods.mixture import summed_kernels
from pymc_dp.step_methods.mixture.bound import part_for
from pymc_dp.step_methods.mixture.neal5 import compiled
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.released import SummedRelease

# The most numbers for which the kernel's density is kept.
_MOST_KEPT = 2**17


def summed_sweep(program: MixtureProgram, values: SummedRelease) -> Kernel:
    """Compile the sweep, of O(K) per record for K values, or as many as the noise may bridge."""
    program.add("mass", [*program.natural_inputs, *program.atom_inputs], [program.mass_graph])
    kernels = summed_kernels
    mass = kernels.mass_each_time if program.mass_by_record else kernels.mass_once
    both = part_for(kernels.terms_of_a_value, program, kept_mass=part_for(mass, program, mass=_mass(program)))
    if values.end is None:
        centre = _centre(program)
        meanings = {
            "ROOM": 1 + 2 * kernels.FARTHEST,  # of which what nobody touches costs nothing
            "kept_values": part_for(kernels.kept_around, program, centre=centre),
            "terms": part_for(kernels.outwards, program, centre=centre, both_terms=both),
            "value_of": part_for(kernels.value_outwards, program, centre=centre),
        }
    else:
        first, size = values.first, values.end - values.first
        meanings = {
            "ROOM": size,
            "kept_values": part_for(kernels.kept_while_finite, program, FIRST=first, N_VALUES=size),
            "terms": part_for(kernels.listed, program, FIRST=first, N_VALUES=size, both_terms=both),
            "value_of": part_for(kernels.value_listed, program, FIRST=first),
        }
    return compiled(program, kernels.SUMMED, MOST_KEPT=_MOST_KEPT, **meanings)


def _mass(program: MixtureProgram) -> Function:
    f, m = program.functions["mass"], program.n_columns
    return part_of_kernel(lambda c, cov, i, y, a: f(*c, *column(cov, i, m), y, *a)[0])


def _centre(program: MixtureProgram) -> Function:
    assert program.centre_graph is not None
    program.add("centre", [], [program.centre_graph])
    f, m = program.functions["centre"], program.n_columns
    return part_of_kernel(lambda c, cov, i: f(*c, *column(cov, i, m))[0])
