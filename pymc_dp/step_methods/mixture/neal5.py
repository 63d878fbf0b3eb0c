"""Sweeps over labels and records together: each proposed from the urn and its cluster.

Algorithm 1 of Beraha, Favaro & Rao. The label comes from the law of one more record given the others' labels,
the record from that cluster, and the release decides. The urn costs O(1), as the label of another record
picked at random, or one of a new cluster. Where the release has a closed law without the record, that may
decide instead, and the record is drawn given the release.
"""

from typing import Any

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.tuples import column
from pymc_dp.step_methods.mixture import neal5_kernels
from pymc_dp.step_methods.mixture.bound import bound, part_for
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.released import SummedRelease, not_closed


def urn_sweep(program: MixtureProgram) -> Kernel:
    """Compile the sweep with one auxiliary record, for releases of any kind."""
    return compiled(program, neal5_kernels.ONE)


def auxiliary_sweep(program: MixtureProgram, m: int) -> Kernel:
    """Compile the sweep with m auxiliary records, for local releases."""
    return compiled(program, neal5_kernels.SEVERAL, N_AUXILIARY=m, peak=_peak(program))


def compiled(program: MixtureProgram, decision: dict[str, Function], **more: Any) -> Kernel:
    """Compile the sweep with a decision; ``more``: meanings of further names of its functions."""
    parts = {}
    for name, function in decision.items():
        meanings = {name: more[name] for name in function.__code__.co_names if name in more}
        parts[name] = part_for(function, program, allocates=name == "room_for", **meanings)
    parts["candidate"] = part_for(neal5_kernels.candidate, program)
    return bound(neal5_kernels.urn_sweep, program, **parts)


def _peak(program: MixtureProgram) -> Function:
    if program.peak_graph is None:
        return part_of_kernel(lambda c, cov, i: np.inf)
    program.add("peak", [], [program.peak_graph])
    f, m = program.functions["peak"], program.n_columns
    return part_of_kernel(lambda c, cov, i: f(*c, *column(cov, i, m))[0])


def add_closed(program: MixtureProgram) -> None:
    """Compile the density of a release without its record, and the record given it.

    Raises
    ------
    ValueError
        If the release has no closed law without the record.
    """
    if isinstance(program.closed_graphs, str):
        raise not_closed(program.closed_graphs)
    assert not isinstance(program.closed_graphs, SummedRelease)
    density, record = program.closed_graphs
    if "released" not in program.functions:
        program.add("released", program.atom_inputs, [density])
        program.add("given_release", [program._rng, *program.atom_inputs], record, rng_first=True)


def closed_sweep(program: MixtureProgram) -> Kernel:
    """Compile the sweep in which records are integrated out of the decision: infinitely many auxiliaries.

    Raises
    ------
    ValueError
        If the release has no closed law without the record.
    """
    add_closed(program)
    return compiled(program, neal5_kernels.ALL)
