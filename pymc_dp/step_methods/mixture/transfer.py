"""Between the flat vector of parameters and the arrays that mixture kernels work on."""

import numpy as np

from pymc_dp.lowering.addresses.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.addresses.tuples import (
    Numbers,
    column,
    entries,
    minus,
    plus,
    row,
    set_entries,
    set_row,
    times,
)
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    base_draw,
    bound,
    of_slots,
)
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.state import Generator, State

# How many values of a slot stand in the flat vector, where those of slot 0 stand and how far each is from
# slot to slot; where the labels begin.
N_VALUES = LABELS = 0
PLACES = STEPS = np.zeros(0, np.int64)


def load(c: Numbers, *values: float) -> Numbers:
    """Atoms of a slot, from their values in the flat vector."""
    raise NotImplementedError


def store(c: Numbers, *a: float) -> Numbers:
    """Return the values of a slot's atoms in the flat vector."""
    raise NotImplementedError


def measure(c: Numbers, state: State) -> None:
    """Take about the mean and the standard deviation of each number of the records."""
    raise NotImplementedError


def load_atoms(n_sweeps: int, rng: Generator, state: State) -> None:
    """Read labels and atoms from the flat vector, count the records of each slot, and take their measure."""
    c, values = entries(state.constants, N_CONSTANTS), np.empty(N_VALUES)
    theta, labels, atoms, counts = state.theta, state.labels, state.atoms, state.counts
    for h in range(atoms.shape[0]):
        for j in range(N_VALUES):
            values[j] = theta[PLACES[j] + STEPS[j] * h]
        set_row(atoms, h, load(c, *entries(values, N_VALUES)))
        counts[h] = 0
    for i in range(labels.size):
        labels[i] = int(theta[LABELS + i])
        counts[labels[i]] += 1
    measure(c, state)


def store_atoms(n_sweeps: int, rng: Generator, state: State) -> None:
    """Write labels and atoms to the flat vector; with sweeps to follow, the atoms of records only."""
    c, values = entries(state.constants, N_CONSTANTS), np.empty(N_VALUES)
    theta, labels, atoms, counts = state.theta, state.labels, state.atoms, state.counts
    for h in range(atoms.shape[0]):
        if n_sweeps == 0 or counts[h] > 0:
            set_entries(values, store(c, *row(atoms, h, N_ATOMS)))
            for j in range(N_VALUES):
                theta[PLACES[j] + STEPS[j] * h] = values[j]
    for i in range(labels.size):
        theta[LABELS + i] = labels[i]


def refresh_atoms(n_sweeps: int, rng: Generator, state: State) -> None:
    """Draw the atoms of unoccupied slots from the base: their law given everything else."""
    c, atoms, counts = entries(state.constants, N_CONSTANTS), state.atoms, state.counts
    for h in range(atoms.shape[0]):
        if counts[h] == 0:
            set_row(atoms, h, base_draw(rng, c))


def places_of(program: MixtureProgram) -> list[tuple[int, int]]:
    """Where each value of slot 0 stands in the flat vector, and how far it is from slot to slot."""
    layout = program.program.parameters
    places = []
    for atom, shape in zip(program.mixture.atoms, program.values.shapes, strict=True):
        start = layout.slices[layout.variables.index(atom)].start
        size = int(np.prod(shape))
        places += [(start + j, size) for j in range(size)]
    return places


def kernels_of(program: MixtureProgram) -> tuple[Kernel, Kernel, Kernel]:
    """Compile what loads, stores and refreshes atoms."""
    layout, places = program.program.parameters, np.array(places_of(program), np.int64).reshape(-1, 2)
    names = {
        "N_VALUES": len(places),
        "PLACES": places[:, 0].copy(),
        "STEPS": places[:, 1].copy(),
        "LABELS": layout.slices[layout.variables.index(program.mixture.labels)].start,
    }
    return (
        bound(load_atoms, program, load=of_slots(program, "load"), measure=_measure(program), **names),
        bound(store_atoms, program, store=of_slots(program, "store"), **names),
        bound(refresh_atoms, program),
    )


def _measure(program: MixtureProgram) -> Function:
    if not program.degree:
        return part_of_kernel(lambda c, state: None)
    features, n_columns = program.functions["features"], program.n_columns
    r, p = program.n_features, program.n_columns_of_record
    nothing = (0.0,) * r

    @part_of_kernel
    def measure(c, state):
        cov, x, middle, spread = state.covariates, state.records, state.middle, state.spread
        n = x.shape[0]
        first = features(*c, *column(cov, 0, n_columns), *row(x, 0, p))
        total = squares = nothing
        for i in range(n):
            v = minus(features(*c, *column(cov, i, n_columns), *row(x, i, p)), first)
            total, squares = plus(total, v), plus(squares, times(v, v))
        set_entries(middle, total)
        set_entries(spread, squares)
        for j in range(r):
            middle[j] /= n
            square = spread[j] / n - middle[j] ** 2
            spread[j] = np.sqrt(square) if square > 0.0 else 1.0
        set_entries(middle, plus(entries(middle, r), first))

    return measure
