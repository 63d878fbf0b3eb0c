"""Atoms whose law given the records of their slot is a known one.

Normal laws are recognised by the degree of the log density in the atoms (symbolically: 2). The one-parameter
laws by the derivative of the log density, l'(s), which is affine after multiplication with

* s, in s: gamma;  * s, in 1/s: inverse gamma;  * s (1 - s), in s: beta;  * s, a constant: probabilities;

where the laws are among those whose support does not depend on their parameters (an affine derivative says
nothing about a support), and where nothing compares or rounds the number (a clip far away says nothing
either). What is affine is found by evaluating it at random points, at other values of the parameters too: a
variance that is added to that of a slot may be 0 at the start. Coefficients are taken from two points at run
time, so that nothing has to be known about how a model writes its parameters.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.gradient as tg
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.tensor.random import basic as rv
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.rows.intervals import Interval, Ranges, always_positive
from pymc_dp.lowering.rows.polynomial import degree
from pymc_dp.step_methods.mixture.program import FIXED_SUPPORT, MixtureProgram

FAMILIES = {
    rv.GammaRV: "gamma", rv.ExponentialRV: "gamma", rv.InvGammaRV: "inverse gamma", rv.BetaRV: "beta",
    rv.DirichletRV: "probability",
}  # fmt: skip
# Supports that do not depend on parameters, where these are in the domain.
_FIXED = (*FIXED_SUPPORT, rv.CategoricalRV, rv.DirichletRV)
_POINTS = 12
# Draws from the base for each, until the kernel has a law.
_DRAWS = 100
# Operations after which a function that is affine here need not be so elsewhere.
_ROUNDED = (
    ps.ScalarMaximum, ps.ScalarMinimum, ps.Clip, ps.Abs, ps.Sign, ps.Floor, ps.Ceil, ps.Trunc,
    ps.RoundHalfToEven, ps.RoundHalfAwayFromZero, ps.IntDiv, ps.Mod,
)  # fmt: skip
_COMPARED = (ps.LT, ps.GT, ps.LE, ps.GE)


@dataclass
class AtomLaws:
    """How each number of a slot can be drawn.

    Attributes
    ----------
    normal : list of int
        Numbers that are jointly normal given the others and the records.
    scale : int or None
        Number whose inverse multiplies every normal term: it is drawn with the normal numbers at once.
    single : list of (int, str)
        Numbers with a one-parameter law given the others, and its family.
    other : list of int
        The rest.
    above : list of int
        Those with an inverse gamma law that is cut off from below.
    """

    normal: list[int] = field(default_factory=list)
    scale: int | None = None
    single: list[tuple[int, str]] = field(default_factory=list)
    other: list[int] = field(default_factory=list)
    above: list[int] = field(default_factory=list)


class Derivatives:
    """Derivatives of a record's and of a slot's log density in the numbers of the slot."""

    def __init__(self, program: MixtureProgram):
        self.program = program
        self.at = [pt.dscalar(f"at{k}") for k in range(program.width)]
        to_tensor = {a: pt.scalar_from_tensor(t) for a, t in zip(program.atom_inputs, self.at, strict=True)}
        self.own, self.base = (
            graph_replace([g], to_tensor, strict=False)[0] for g in (program.own_graph, program.base_graph)
        )

    def back(self, graphs: list[TensorVariable]) -> list[TensorVariable]:
        """Return graphs as functions of the program's own inputs."""
        numbers = {
            t: pt.tensor_from_scalar(a) for a, t in zip(self.program.atom_inputs, self.at, strict=True)
        }
        return list(graph_replace(graphs, numbers, strict=False))

    def slopes(self, graph: TensorVariable, which: list[int]) -> list[TensorVariable]:
        """First derivatives in some numbers."""
        wrt = [self.at[k] for k in which]
        return list(tg.grad(graph, wrt, disconnected_inputs="ignore", return_disconnected="zero"))

    def quadratic(self, graph: TensorVariable, which: list[int]) -> list[TensorVariable]:
        """Slopes at zero in some numbers, then the lower triangle of the negative second derivatives."""
        first = self.slopes(graph, which)
        second = [-s for i, slope in enumerate(first) for s in self.slopes(slope, which[: i + 1])]
        zero = {self.at[k]: pt.constant(0.0, dtype="float64") for k in which}
        return list(graph_replace([*first, *second], zero, strict=False))


def find_laws(program: MixtureProgram, derivatives: Derivatives) -> AtomLaws:
    """Recognise the laws of the numbers of a slot; functions of their derivatives join the program's."""
    laws = AtomLaws()
    inputs = program.atom_inputs
    for k in range(program.width):
        together = [inputs[j] for j in [*laws.normal, k]]
        degrees = [degree(g, together) for g in (program.own_graph, program.base_graph)]
        if degrees[0] in (0, 1, 2) and degrees[1] == 2:
            laws.normal.append(k)
    if laws.normal:
        for name, graph, add in (
            ("own", derivatives.own, program.add_of_record),
            ("base", derivatives.base, program.add),
        ):
            outputs = derivatives.back(derivatives.quadratic(graph, laws.normal))
            add(f"{name}_quadratic", inputs, outputs)
    probe = _Probe(program)
    children = [program.mixture.kernel, *program.mixture.atoms]
    known = all(
        isinstance(v.owner.op, _FIXED) or program.lower_end(v) is not None  # type: ignore[union-attr]
        for v in children
    )
    for k, (atom, index) in enumerate(program.each_atom()):
        end = program.lower_end(atom)
        family = "inverse gamma" if end is not None else FAMILIES.get(type(atom.owner.op))
        if k in laws.normal:
            continue
        if family is None or not known or _has_kinks(program, k):
            laws.other.append(k)
            continue
        for name, graph, add in (
            ("own", derivatives.own, program.add_of_record),
            ("base", derivatives.base, program.add),
        ):
            add(f"{name}_slope{k}", inputs, derivatives.back(derivatives.slopes(graph, [k])))
        if probe.is_affine(k, family):
            laws.single.append((k, family))
            if end is not None:
                laws.above.append(k)
                program.add(f"lower{k}", [], [program.end_of(atom, index)])
        else:
            laws.other.append(k)
    for k, family in list(laws.single):
        if family == "inverse gamma" and laws.normal and laws.scale is None and probe.scales(k, laws.normal):
            laws.scale = k
            laws.single.remove((k, family))
    return laws


def still_hold(program: MixtureProgram, laws: AtomLaws) -> bool:
    """Whether laws are what they were when they were found; the data may be others (``pm.set_data``)."""
    probe = _Probe(program)
    found = all(probe.is_affine(k, family) for k, family in laws.single)
    if laws.scale is None:
        return found
    return found and probe.is_affine(laws.scale, "inverse gamma") and probe.scales(laws.scale, laws.normal)


def _has_kinks(program: MixtureProgram, k: int) -> bool:
    """Whether the laws compare or round one number of a slot, other than in the support of the slot's law."""
    number, support = program.atom_inputs[k], Ranges()(program.each_atom()[k][0])
    return _kink(program.own_graph, number, support, (*_ROUNDED, *_COMPARED)) or _kink(
        program.base_graph, number, support, _ROUNDED
    )


def _kink(graph: TensorVariable, number: Any, support: Interval, kinds: tuple[type, ...]) -> bool:
    """Whether one of some operations bends a graph at a value that a number may have.

    Absolute values and signs of what is positive do not: PyMC takes them of precisions.
    """
    nodes: list[Any] = [v.owner for v in ancestors([graph]) if v.owner is not None]
    for node in nodes:
        kind = getattr(node.op, "scalar_op", node.op)
        bends = isinstance(kind, kinds) or (isinstance(kind, ps.Cast) and not _real(node.outputs[0]))
        if not bends or number not in set(ancestors(node.inputs)):
            continue
        if not (isinstance(kind, ps.Abs | ps.Sign) and always_positive(node.inputs[0], {number: support})):
            return True
    return False


def _real(number: Any) -> bool:
    return str(number.type.dtype).startswith("float")


class _Probe:
    """Derivatives at random points, to find out what they are like."""

    def __init__(self, program: MixtureProgram):
        self.program = program

    @cached_property
    def points(self) -> list[tuple[list[float], list[float], np.ndarray]]:
        """The points, drawn when they are first asked for: many models need none."""
        program, rng = self.program, np.random.default_rng(20)
        values = program.program.records.pack(program.start(None))
        places = [program.hoisted_at(theta) for theta in program.places(rng, _POINTS)]
        n = program.program.n
        found = [
            self._point(rng, values, places[k % len(places)], int(rng.integers(n))) for k in range(_POINTS)
        ]
        # records that are unlike the others: theirs is the largest or the smallest of some covariate
        columns = places[0][1]
        rows = {int(f(c)) for c in columns for f in (np.argmin, np.argmax)}
        return found + [self._point(rng, values, places[0], row) for row in rows]

    def _point(
        self, rng: np.random.Generator, values: np.ndarray, place: tuple[np.ndarray, np.ndarray], row: int
    ) -> tuple[list[float], list[float], np.ndarray]:
        """Return a point: hoisted numbers, the numbers of one record, and atoms from the base."""
        program, (constants, columns) = self.program, place
        given = [*constants, *columns[:, row]]
        for _ in range(_DRAWS):
            atoms = np.array(program.functions["base_draw"](rng, *given))
            if not program.may_fail or program.functions["inside"](*given, *atoms)[0]:
                break
        drawn = program.functions["draw"](rng, *given, *atoms) if program.draws_records else values[row]
        return given, list(program.functions["features"](*given, *drawn)), atoms

    def _evaluate(self, name: str, given: list[float], y: list[float], atoms: np.ndarray) -> np.ndarray:
        if name.startswith("own"):
            return self.program.value_of_record(name, given, y, atoms)
        return np.array(self.program.functions[name](*given, *atoms))

    def is_affine(self, k: int, family: str) -> bool:
        """Whether the slope in one number is what a family's is, for records and for the base."""
        middle = np.array([0.2, 0.4, 0.6, 0.8]) if family == "beta" else np.array([1.0, 2.0, 3.0, 40.0])
        for given, y, atoms in self.points:
            s = middle if family == "beta" else middle * atoms[k]
            factor, u = (s * (1 - s), s) if family == "beta" else (s, 1 / s if family[0] == "i" else s)
            for name in (f"own_slope{k}", f"base_slope{k}"):
                values = []
                for point in s:
                    moved = atoms.copy()
                    moved[k] = point
                    values.append(self._evaluate(name, given, y, moved)[0])
                line = np.array(values) * factor
                fit = np.polynomial.polynomial.polyfit(u[:2], line[:2], 1)
                if family == "probability":
                    fit[1] = 0.0
                size = np.abs(line).max() + np.abs(fit).max() + 1e-300
                # written so that a number that is none counts as different
                if not np.abs(fit[0] + fit[1] * u - line).max() < 1e-8 * size:
                    return False
        return True

    def scales(self, k: int, normal: list[int]) -> bool:
        """Whether one number divides everything that is quadratic in the normal ones."""
        for given, y, atoms in self.points:
            for name in ("own_quadratic", "base_quadratic"):
                moved = atoms.copy()
                moved[k] *= 3.0
                now, other = (self._evaluate(name, given, y, a) for a in (atoms, moved))
                if not np.abs(3.0 * other - now).max() <= 1e-9 * (np.abs(now).max() + 1e-300):
                    return False
        return True
