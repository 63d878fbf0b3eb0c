"""Modes of the atoms of some records in value space, and Student laws about them.

Records are the members of two clusters, of which ``side_of`` tells the part; a ``side`` is one of them, the
other, or both together. Modes are found by Newton's method with the second derivatives of the density of the
records and of the slot's own law.
"""

import math
from typing import Any

import numpy as np
import pytensor.gradient as tg
import pytensor.tensor as pt
from numba import types
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.utils import rewrite_graph

from pymc_dp.lowering.addresses.bind import Function, called_part, part_of_kernel
from pymc_dp.lowering.addresses.native import INTEGERS, MATRIX, VECTOR
from pymc_dp.lowering.addresses.tuples import Numbers, column, entries, plus, row, set_entries
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import standard_normal
from pymc_dp.lowering.rows.rows import NotScalar
from pymc_dp.step_methods.mixture.bound import N_ATOMS, N_CONSTANTS, of_slots
from pymc_dp.step_methods.mixture.cholesky import back
from pymc_dp.step_methods.mixture.conjugacy import Derivatives
from pymc_dp.step_methods.mixture.polynomials import N_MOMENTS, coefficients, n_moments, scales_for
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.state import STATE, Integers, Matrix, State, Vector

# Newton steps from the mode of one scan to that of the next, and times that a step is halved.
_STEPS, _HALVINGS = 3, 8
# Which records of both clusters: those of either part, or all.
ONE, OTHER, BOTH = range(3)

# the mixture, records of both clusters, part of each, how many, which part, moments by part, values of the
# atoms; filled in by the first: log density, slopes, negative curvature; by the other, beside the values: a
# root of the curvature
_CURVED = types.void(STATE, INTEGERS, INTEGERS, types.int64, types.int64, MATRIX, VECTOR, VECTOR)
_ASCEND = types.void(*_CURVED.args[:-1], MATRIX)

# How many numbers :func:`curved` fills in.
N_CURVED = 0


def base_curved(c: Numbers, *values: float) -> Numbers:
    """Log density of a slot's own law in value space, with its derivatives."""
    raise NotImplementedError


def add_curved(
    c: Numbers, state: State, members: Integers, side_of: Integers, size: int, side: int, moments: Matrix,
    at: Numbers, room: Matrix, out: Vector,
) -> None:  # fmt: skip
    """Add log density and derivatives of the records of a part; ``room``: for their coefficients."""
    raise NotImplementedError


@njit
def newton_direction(out, root, direction, q):
    """Cholesky factor of the curvature, made positive where it is not, and the step to the mode."""
    positive, at = True, 1 + q
    for i in range(q):
        for j in range(i + 1):
            total = out[at]
            at += 1
            for m in range(j):
                total -= root[i, m] * root[j, m]
            if i == j and not total > 0.0:
                positive, total = False, 1.0
            root[i, j] = np.sqrt(total) if i == j else total / root[j, j]
    if not positive:
        at = 1 + q
        for i in range(q):
            for j in range(i + 1):
                root[i, j] = 0.0
                if i == j:
                    root[i, j] = np.sqrt(max(abs(out[at]), 1e-8 + out[1 + i] ** 2))
                at += 1
    for i in range(q):
        direction[i] = out[1 + i]
        for j in range(i):
            direction[i] -= root[i, j] * direction[j]
        direction[i] /= root[i, i]
    back(root, direction, q)


@njit
def student_draw(rng, mode, root, value, freedom, q):
    """Draw from the Student law about a mode."""
    spread = np.sqrt(freedom / (2.0 * rng.standard_gamma(0.5 * freedom)))
    for i in range(q):
        value[i] = spread * standard_normal(rng)
    back(root, value, q)
    for i in range(q):
        value[i] += mode[i]


@njit
def student_logp(mode, root, value, freedom, q):
    """Log density of that draw."""
    total, square = 0.0, 0.0
    for j in range(q):
        z = 0.0
        for i in range(j, q):
            z += root[i, j] * (value[i] - mode[i])
        square += z * z
        total += np.log(root[j, j])
    total += math.lgamma(0.5 * (freedom + q)) - math.lgamma(0.5 * freedom)
    return total - 0.5 * q * np.log(np.pi * freedom) - 0.5 * (freedom + q) * np.log1p(square / freedom)


def curved(
    state: State, members: Integers, side_of: Integers, size: int, side: int, moments: Matrix,
    value: Vector, out: Vector,
) -> None:  # fmt: skip
    """Fill in the log density of the atoms of a part with its derivatives in value space."""
    c, at = entries(state.constants, N_CONSTANTS), entries(value, N_ATOMS)
    set_entries(out, base_curved(c, *at))
    room = np.empty((N_CURVED, N_MOMENTS))
    add_curved(c, state, members, side_of, size, side, moments, at, room, out)


def ascend(
    state: State, members: Integers, side_of: Integers, size: int, side: int, moments: Matrix,
    value: Vector, root: Matrix,
) -> None:  # fmt: skip
    """Go from some values of the atoms of a part towards the mode, and fill in a root of the curvature."""
    now, then = np.empty(N_CURVED), np.empty(N_CURVED)
    direction, moved = np.empty(N_ATOMS), np.empty(N_ATOMS)
    curved(state, members, side_of, size, side, moments, value, now)
    for _ in range(_STEPS):
        newton_direction(now, root, direction, N_ATOMS)
        better, share = False, 1.0
        for _ in range(_HALVINGS):
            for j in range(N_ATOMS):
                moved[j] = value[j] + share * direction[j]
            curved(state, members, side_of, size, side, moments, moved, then)
            # written so that what is no number is no improvement
            if then[0] >= now[0]:
                better = True
                break
            share *= 0.5
        if not better:
            break
        for j in range(N_ATOMS):
            value[j] = moved[j]
        for o in range(N_CURVED):
            now[o] = then[o]
    newton_direction(now, root, direction, N_ATOMS)


def curved_and_ascend(program: MixtureProgram, derivatives: Derivatives) -> dict[str, Any]:
    """Compile :func:`curved` and :func:`ascend` for a kernel that calls them, with what they fill in.

    Raises
    ------
    NotScalar
        If an atom is an integer, or the curvature has no scalar form.
    """
    _add_curvature(program, derivatives)
    q = program.width
    n_curved = 1 + q + q * (q + 1) // 2
    names = {
        "N_CONSTANTS": program.n_constants,
        "N_ATOMS": q,
        "N_CURVED": n_curved,
        "N_MOMENTS": n_moments(program),
        "base_curved": of_slots(program, "base_curved"),
        "add_curved": _add_curved(program, n_curved),
    }
    density = called_part(curved, _CURVED, names)
    names = {"N_ATOMS": q, "N_CURVED": n_curved, "curved": density}
    return {"N_CURVED": n_curved, "curved": density, "ascend": called_part(ascend, _ASCEND, names)}


def _add_curved(program: MixtureProgram, outputs: int) -> Function:
    if program.degree:
        expand, size, scales = (
            coefficients(program, "own_curved", outputs),
            n_moments(program),
            scales_for(program),
        )

        @part_of_kernel
        def by_moments(c, state, members, side_of, n, side, moments, at, room, out):
            expand(c, at, scales(state), room)
            for o in range(outputs):
                for j in range(size):
                    out[o] += room[o, j] * moments[side, j]

        return by_moments
    f, features = program.functions["own_curved"], program.functions["features"]
    n_columns, p = program.n_columns, program.n_columns_of_record

    @part_of_kernel
    def by_records(c, state, members, side_of, n, side, moments, at, room, out):
        for r in range(n):
            if side == BOTH or side_of[r] == side:
                i = members[r]
                given = column(state.covariates, i, n_columns)
                v = features(*c, *given, *row(state.records, i, p))
                set_entries(out, plus(entries(out, outputs), f(*c, *given, *v, *at)))

    return by_records


def _add_curvature(program: MixtureProgram, derivatives: Derivatives) -> None:
    """Add the functions ``own_curved(C, v, values)`` and ``base_curved(C, values)`` to the program."""
    program.values.check_numbers()
    for atom, _ in program.each_atom():
        if not atom.dtype.startswith("float"):
            raise NotScalar(f"{atom.name} is an integer, which has no mode to move from")
    q = range(program.width)
    values = [pt.dscalar(f"at value {k}") for k in q]
    to_tensor = {v: pt.scalar_from_tensor(t) for v, t in zip(program.values.inputs, values, strict=True)}
    natural = graph_replace(program.natural_graphs, to_tensor, strict=False)
    volume = graph_replace([program.values.volume(list(q))], to_tensor, strict=False)[0]
    at = {a: pt.cast(b, "float64") for a, b in zip(derivatives.at, natural, strict=True)}
    own, base = graph_replace([derivatives.own, derivatives.base], at, strict=False)
    back_to_inputs = {t: pt.tensor_from_scalar(v) for v, t in zip(program.values.inputs, values, strict=True)}
    for name, graph, add in (
        ("own_curved", own, program.add_of_record),
        ("base_curved", base + volume, program.add),
    ):
        # in order before it is differentiated: as it is, and as good
        graph = rewrite_graph(graph, include=("canonicalize", "stabilize"))
        slopes = _slopes(graph, values)
        curvature = [-c for i in q for c in _slopes(slopes[i], values[: i + 1])]
        outputs = graph_replace([graph, *slopes, *curvature], back_to_inputs, strict=False)
        add(name, program.values.inputs, outputs, ordered=False)


def _slopes(graph, values):  # type: ignore[no-untyped-def]
    return tg.grad(graph, values, disconnected_inputs="ignore", return_disconnected="zero")
