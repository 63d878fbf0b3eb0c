"""Updates of atoms whose law is none of the known ones: the Metropolis-adjusted Langevin algorithm.

All occupied slots move at once, each decided on its own: given labels and records they are independent. A
proposal follows the gradient of the log density in value space, in units of the root of the information,
which is the mean square of the gradient. That grows with the records of a slot; so it is learnt, as the step
size is, for each power of two of records separately, while tuning.
"""

import numpy as np
import pytensor.gradient as tg
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.tuples import Numbers, entries, row, set_entries, set_row
from pymc_dp.lowering.functions.bits import standard_exponential, standard_normal
from pymc_dp.lowering.rows.rows import NotScalar
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    bound,
    of_slots,
)
from pymc_dp.step_methods.mixture.conjugacy import Derivatives
from pymc_dp.step_methods.mixture.counters import ATOMS_ACCEPTED, ATOMS_PROPOSED
from pymc_dp.step_methods.mixture.polynomials import N_MOMENTS, scales
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.slot_totals import Records, add_moments, moments_by_slot, total_of
from pymc_dp.step_methods.mixture.state import Generator, Matrix, State

# Powers of two of a slot's records that are told apart.
N_SIZES = 24
# Steps per update.
_STEPS = 3
# Acceptance at which the algorithm moves fastest (Roberts & Rosenthal 1998).
_TARGET = 0.574
# What is learnt for a size: draws seen, logarithm of the step size, then the mean square of each slope.
_SEEN, _SIZE, _SQUARES = range(3)

# Which numbers of a slot move, whether each does and how many do.
WHICH = MOVES = np.zeros(0, np.int64)
N_MOVED = 0


def load(c: Numbers, *values: float) -> Numbers:
    """Atoms of a slot, from their values."""
    raise NotImplementedError


def store(c: Numbers, *a: float) -> Numbers:
    """Return the values of a slot's atoms."""
    raise NotImplementedError


def add_slopes(
    c: Numbers, records: Records, atoms: Matrix, values: Matrix, room: Matrix, out: Matrix
) -> None:
    """Add log density and slopes of the records of each slot up."""
    raise NotImplementedError


def base_langevin(c: Numbers, *a: float) -> Numbers:
    """Log density and slopes of a slot's own law."""
    raise NotImplementedError


def volume(c: Numbers, *values: float) -> Numbers:
    """Return the logarithm of the transforms' volume, their slopes, and those of the former."""
    raise NotImplementedError


def langevin(n_sweeps: int, rng: Generator, state: State) -> None:
    """Update some numbers of every occupied slot."""
    atoms, counts, learnt, tally = state.atoms, state.counts, state.learnt, state.tally
    c, n_slots = entries(state.constants, N_CONSTANTS), counts.size
    moments = np.zeros((n_slots, N_MOMENTS))
    records = Records(state.covariates, state.records, state.labels, counts, scales(state), moments)
    add_moments(c, records)
    values, there, kept = (
        np.empty((n_slots, N_ATOMS)), np.empty((n_slots, N_ATOMS)), np.empty((n_slots, N_ATOMS))
    )  # fmt: skip
    noise, room = np.empty((n_slots, N_MOVED)), np.empty((1 + N_MOVED, N_MOMENTS))
    before, after = np.zeros((n_slots, 1 + N_MOVED)), np.zeros((n_slots, 1 + N_MOVED))
    of_base, of_values = np.empty(1 + N_MOVED), np.empty(1 + 2 * N_MOVED)
    for h in range(n_slots):
        if counts[h] > 0:
            set_row(values, h, store(c, *row(atoms, h, N_ATOMS)))
    add_slopes(c, records, atoms, values, room, before)
    for h in range(n_slots):
        if counts[h] > 0:
            set_entries(of_base, base_langevin(c, *row(atoms, h, N_ATOMS)))
            set_entries(of_values, volume(c, *row(values, h, N_ATOMS)))
            to_value_space(before, h, of_base, of_values)
    for _ in range(n_sweeps * _STEPS):
        for h in range(n_slots):
            if counts[h] == 0:
                continue
            at = place_of(counts[h], N_MOVED)
            if learnt[at + _SEEN] == 0.0:
                for j in range(N_MOVED):
                    learnt[at + _SQUARES + j] = 1.0 + counts[h]
            size = np.exp(learnt[at + _SIZE])
            for k in range(N_ATOMS):
                there[h, k], kept[h, k] = values[h, k], atoms[h, k]
            for j in range(N_MOVED):
                scale = size / np.sqrt(learnt[at + _SQUARES + j])
                noise[h, j] = standard_normal(rng)
                there[h, WHICH[j]] += 0.5 * scale**2 * before[h, 1 + j] + scale * noise[h, j]
            set_row(atoms, h, load(c, *row(there, h, N_ATOMS)))
            for k in range(N_ATOMS):
                if not MOVES[k]:
                    atoms[h, k] = kept[h, k]
        after[:, :] = 0.0
        add_slopes(c, records, atoms, there, room, after)
        for h in range(n_slots):
            if counts[h] == 0:
                continue
            set_entries(of_base, base_langevin(c, *row(atoms, h, N_ATOMS)))
            set_entries(of_values, volume(c, *row(there, h, N_ATOMS)))
            to_value_space(after, h, of_base, of_values)
        for h in range(n_slots):
            if counts[h] == 0:
                continue
            at = place_of(counts[h], N_MOVED)
            size = np.exp(learnt[at + _SIZE])
            total = after[h, 0] - before[h, 0]
            for j in range(N_MOVED):
                scale = size / np.sqrt(learnt[at + _SQUARES + j])
                back = noise[h, j] + 0.5 * scale * (before[h, 1 + j] + after[h, 1 + j])
                total += 0.5 * (noise[h, j] ** 2 - back**2)
            accepted = total >= 0.0 or total > -standard_exponential(rng)
            tally[ATOMS_PROPOSED] += 1.0
            if accepted:
                tally[ATOMS_ACCEPTED] += 1.0
                for j in range(N_MOVED):
                    values[h, WHICH[j]] = there[h, WHICH[j]]
                for j in range(1 + N_MOVED):
                    before[h, j] = after[h, j]
            else:
                for j in range(N_MOVED):
                    atoms[h, WHICH[j]] = kept[h, WHICH[j]]
            if state.tuning:
                probability = min(1.0, np.exp(total)) if total == total else 0.0
                learn(learnt, at, before, h, probability, N_MOVED)


@part_of_kernel
def to_value_space(density, h, of_base, of_values):
    """Add a slot's own law to the density of its records; slopes become those in the values."""
    q = density.shape[1] - 1
    density[h, 0] += of_base[0] + of_values[0]
    for j in range(1, 1 + q):
        density[h, j] = (density[h, j] + of_base[j]) * of_values[j] + of_values[j + q]


@part_of_kernel
def place_of(count, q):
    """Where that begins which is learnt of slots of this size."""
    return (_SQUARES + q) * min(int(np.log2(count)), N_SIZES - 1)


@part_of_kernel
def learn(learnt, at, density, h, probability, q):
    """Learn from a proposal that was accepted with some probability, and from the slopes now."""
    learnt[at + _SEEN] += 1.0
    rate = 1.0 / np.sqrt(learnt[at + _SEEN])
    learnt[at + _SIZE] += rate * (probability - _TARGET)
    for j in range(q):
        mean = at + _SQUARES + j
        square = min(density[h, 1 + j] ** 2, 100.0 * learnt[mean])
        learnt[mean] += (square - learnt[mean]) / (10.0 + learnt[at + _SEEN])


def room_for(program: MixtureProgram, which: list[int]) -> int:
    """How many numbers are learnt."""
    return N_SIZES * (_SQUARES + len(which)) if which else 0


def compiled(program: MixtureProgram, derivatives: Derivatives, which: list[int]) -> Kernel:
    """Compile the update of some numbers of every slot.

    Raises
    ------
    NotScalar
        If a number is an integer or a probability, or its transform depends on other numbers of the slot.
    """
    _add_functions(program, derivatives, which)
    of_slot: dict[str, Function] = {
        name: of_slots(program, name) for name in ("load", "store", "base_langevin", "volume")
    }
    return bound(
        langevin,
        program,
        **of_slot,
        add_moments=moments_by_slot(program),
        add_slopes=total_of(program, "own_langevin", 1 + len(which)),
        WHICH=np.array(which, np.int64),
        MOVES=np.array([k in which for k in range(program.width)]),
        N_MOVED=len(which),
    )


def _add_functions(program: MixtureProgram, derivatives: Derivatives, which: list[int]) -> None:
    """Log density and slopes of a record and of a slot; the transforms' volume and slopes."""
    program.values.check_numbers()
    for k in which:
        atom = program.each_atom()[k][0]
        if not atom.dtype.startswith("float"):
            raise NotScalar(f"{atom.name} is an integer, and its law given the records is none that is known")
    for name, graph, add in (
        ("own", derivatives.own, program.add_of_record),
        ("base", derivatives.base, program.add),
    ):
        outputs = derivatives.back([graph, *derivatives.slopes(graph, which)])
        add(f"{name}_langevin", program.atom_inputs, outputs)
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
