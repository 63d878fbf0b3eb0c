"""Atoms of a slot in value space, in which PyMC keeps them, and back."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.logprob.transforms import IntervalTransform, LogOddsTransform, LogTransform, SimplexTransform
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.normals import sum_of
from pymc_dp.lowering.functions.simplex import probability
from pymc_dp.lowering.rows.rows import ROW, NotScalar, RowGraph

# An atom, the index of a number of it within a slot, and graphs of slots -> the inputs of its law.
InputsOf = Callable[[Any, tuple[int, ...], RowGraph], list[Variable]]
# In place of the infinite values of numbers that round to an end of their support: about the farthest that a
# number inside has, towards zero or a lower end, and towards one or an upper end.
_LOWEST, _HIGHEST = -745.0, 37.0
_BOUNDED = (LogTransform, LogOddsTransform, IntervalTransform)
_SMALLEST = np.nextafter(0.0, 1.0)


class AtomValues:
    """One number for each of a slot's, but one less for a row of probabilities.

    Parameters
    ----------
    model : pymc.Model
    atoms : sequence of TensorVariable
    shapes : sequence of tuple of int
        Of one slot's atoms.
    inputs_of : callable
        Inputs of an atom's law, which some transforms take.
    known : collection of TensorVariable
        Atoms whose law has no unknown parameters.

    Attributes
    ----------
    unsure : list of (str, float, float)
        Atoms whose law has unknown parameters: the name of their value, and ends beyond which it stands for
        numbers that round to an end of their support. They are stored as the nearest inside, of which no
        other law depends on how near, but that of the unknown parameters does.
    shapes : list of tuple of int
        Of one slot's values.
    inputs : list of ScalarVariable
        The values.

    Raises
    ------
    NotScalar
        If a transform is of several numbers, and they are no probabilities.
    """

    def __init__(
        self,
        model: Model,
        atoms: Sequence[Any],
        shapes: Sequence[tuple[int, ...]],
        inputs_of: InputsOf,
        known: Collection[Any] = (),
    ):
        self._atoms, self._inputs_of, self._known = list(atoms), inputs_of, set(known)
        self._transforms = {atom: model.rvs_to_transforms.get(atom) for atom in atoms}
        for atom, transform in self._transforms.items():
            several = getattr(transform, "ndim_supp", 0) != 0
            if several and not isinstance(transform, SimplexTransform):
                raise NotScalar(f"{atom.name} has a transform over several entries")
        self.unsure = [
            (
                str(model.rvs_to_values[a].name),
                1.0 + _LOWEST,
                np.inf if type(t) is LogTransform else _HIGHEST - 0.3,
            )
            for a, t in self._transforms.items()
            if a not in self._known and type(t) in _BOUNDED
        ]
        self._sizes = {atom: shape[-1] for atom, shape in zip(atoms, shapes, strict=True) if shape}
        self._each = [(a, i) for a, s in zip(atoms, shapes, strict=True) for i in np.ndindex(*s)]
        self.shapes = [
            (*shape[:-1], shape[-1] - 1) if self._is_simplex(atom) else shape
            for atom, shape in zip(atoms, shapes, strict=True)
        ]
        ends = np.cumsum([0, *(int(np.prod(s)) for s in self.shapes)])
        self._starts = ends[:-1]
        self.inputs = [ps.float64(f"v{k}") for k in range(ends[-1])]

    def _is_simplex(self, atom: Any) -> bool:
        return isinstance(self._transforms[atom], SimplexTransform)

    def _value(self, atom: Any, index: tuple[int, ...]) -> TensorVariable:
        k = self._atoms.index(atom)
        number = int(self._starts[k]) + (int(np.ravel_multi_index(index, self.shapes[k])) if index else 0)
        return pt.tensor_from_scalar(self.inputs[number])

    def natural(self, slots: RowGraph) -> list[TensorVariable]:
        """Numbers of a slot as graphs of the values."""

        def entry(atom: Any, index: tuple[int, ...]) -> TensorVariable:
            transform = self._transforms[atom]
            if self._is_simplex(atom):
                others = [self._value(atom, (*index[:-1], k)) for k in range(self._sizes[atom] - 1)]
                return probability(others, index[-1])
            value = self._value(atom, index)
            if transform is not None:
                value = transform.backward(value, *self._inputs_of(atom, index, self._slots))
            return pt.cast(value, atom.dtype)

        self._slots = slots.fork(entry)
        return [self._slots.entry(atom, (ROW, *index)) for atom, index in self._each]

    def stored(self, slots: RowGraph) -> list[TensorVariable]:
        """Values as graphs of the numbers of a slot."""
        found = []
        for atom, index in self._each:
            number, transform = slots.entry(atom, (ROW, *index)), self._transforms[atom]
            if self._is_simplex(atom):
                if index[-1] == self._sizes[atom] - 1:  # follows from the others
                    continue
                row = [slots.entry(atom, (ROW, *index[:-1], k)) for k in range(self._sizes[atom])]
                if atom in self._known:
                    number, *row = (pt.maximum(p, _SMALLEST) for p in (number, *row))
                number = pt.log(number) - sum_of([pt.log(p) for p in row]) / len(row)
            elif transform is not None:
                value = transform.forward(number, *self._inputs_of(atom, index, slots))
                if type(transform) in _BOUNDED:
                    rounded = pt.isinf(value) & ~pt.isinf(number)
                    value = pt.switch(rounded, pt.switch(value > 0, _HIGHEST, _LOWEST), value)
                number = value
            found.append(number)
        return found

    def check_numbers(self) -> None:
        """Refuse moves of values that stand for more numbers than they are.

        Raises
        ------
        NotScalar
        """
        for atom in filter(self._is_simplex, self._atoms):
            raise NotScalar(
                f"the probabilities {atom.name} move by their law given the records only, which needs a "
                "kernel that picks one of them (pm.Categorical), and all other atoms to have known laws"
            )

    def volume(self, which: Sequence[int]) -> TensorVariable:
        """Logarithm of the Jacobian of some numbers' transforms, as a graph of the values."""
        total: TensorVariable = pt.constant(0.0, dtype="float64")
        for k in which:
            atom, index = self._each[k]
            transform = self._transforms[atom]
            if transform is not None:
                inputs = self._inputs_of(atom, index, self._slots)
                total = total + transform.log_jac_det(self._value(atom, index), *inputs)
        return total
