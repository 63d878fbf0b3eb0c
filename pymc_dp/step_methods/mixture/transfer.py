"""Between the flat vector of parameters and the arrays that mixture kernels work on."""

import numpy as np

from pymc_dp.lowering.bind import Function, Kernel, part_of_kernel
from pymc_dp.lowering.tuples import Numbers, column, entries, minus, plus, row, set_entries, set_row, times
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    Generator,
    Integers,
    Matrix,
    Vector,
    base_draw,
    bound,
    of_slots,
)
from pymc_dp.step_methods.mixture.program import MixtureProgram

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


def measure(c: Numbers, cov: Matrix, x: Matrix, learnt: Vector) -> None:
    """Take about the mean and the standard deviation of each number of the records."""
    raise NotImplementedError


def load_atoms(
    n_sweeps: int, rng: Generator, theta: Vector, data: Vector, c: Vector, cov: Matrix, value: Vector,
    params: Matrix, offset: Vector, x: Matrix, totals: Vector, labels: Integers, atoms: Matrix,
    counts: Integers, learnt: Vector, tally: Vector,
) -> None:  # fmt: skip
    """Read labels and atoms from the flat vector, count the records of each slot, and take their measure."""
    constants = entries(c, N_CONSTANTS)
    values = np.empty(N_VALUES)
    for h in range(atoms.shape[0]):
        for j in range(N_VALUES):
            values[j] = theta[PLACES[j] + STEPS[j] * h]
        set_row(atoms, h, load(constants, *entries(values, N_VALUES)))
        counts[h] = 0
    for i in range(x.shape[0]):
        labels[i] = int(theta[LABELS + i])
        counts[labels[i]] += 1
    measure(constants, cov, x, learnt)


def store_atoms(
    n_sweeps: int, rng: Generator, theta: Vector, data: Vector, c: Vector, cov: Matrix, value: Vector,
    params: Matrix, offset: Vector, x: Matrix, totals: Vector, labels: Integers, atoms: Matrix,
    counts: Integers, learnt: Vector, tally: Vector,
) -> None:  # fmt: skip
    """Write labels and atoms to the flat vector; with sweeps to follow, the atoms of records only."""
    constants = entries(c, N_CONSTANTS)
    values = np.empty(N_VALUES)
    for h in range(atoms.shape[0]):
        if n_sweeps == 0 or counts[h] > 0:
            set_entries(values, store(constants, *row(atoms, h, N_ATOMS)))
            for j in range(N_VALUES):
                theta[PLACES[j] + STEPS[j] * h] = values[j]
    for i in range(x.shape[0]):
        theta[LABELS + i] = labels[i]


def refresh_atoms(
    n_sweeps: int, rng: Generator, theta: Vector, data: Vector, c: Vector, cov: Matrix, value: Vector,
    params: Matrix, offset: Vector, x: Matrix, totals: Vector, labels: Integers, atoms: Matrix,
    counts: Integers, learnt: Vector, tally: Vector,
) -> None:  # fmt: skip
    """Draw the atoms of unoccupied slots from the base: their law given everything else."""
    constants = entries(c, N_CONSTANTS)
    for h in range(atoms.shape[0]):
        if counts[h] == 0:
            set_row(atoms, h, base_draw(rng, constants))


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
        return part_of_kernel(lambda c, cov, x, learnt: None)
    features, n_columns = program.functions["features"], program.n_columns
    r, p = program.n_features, program.n_columns_of_record
    nothing = (0.0,) * r

    @part_of_kernel
    def measure(c, cov, x, learnt):
        n = x.shape[0]
        first = features(*c, *column(cov, 0, n_columns), *row(x, 0, p))
        total = squares = nothing
        for i in range(n):
            v = minus(features(*c, *column(cov, i, n_columns), *row(x, i, p)), first)
            total, squares = plus(total, v), plus(squares, times(v, v))
        set_entries(learnt[1:], total)
        set_entries(learnt[1 + r :], squares)
        for j in range(r):
            learnt[1 + j] /= n
            square = learnt[1 + r + j] / n - learnt[1 + j] ** 2
            learnt[1 + r + j] = np.sqrt(square) if square > 0.0 else 1.0
        set_entries(learnt[1:], plus(entries(learnt[1:], r), first))

    return measure
