"""Values that draws of a record's law repeat, and which variables say what these values are.

A log density that a user wrote may know its values of positive probability in any way: by an inequality, by
rounding, or not at all where draws are rounded. Draws show them all the same. A continuous law gives no
number twice; a number that comes again has a probability. A variable says where it is if that number, drawn
with the same random numbers, is another one as soon as the variable changes in its tenth digit, or by one if
it is a whole number. Places that jump, such as ``pt.floor(c)`` of a real number, are not seen by that.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
from pymc.model.core import Model
from pymc.pytensorf import collect_default_updates
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.supports import has_density

# How far from the starting values, in value space, a law is looked at: what is censored at an end far away
# shows no atom, and a law as narrow as floating point (a scale of exp(-30)) shows one that it has not.
# Starting values themselves may be special: at a scale of 0 a law is a point.
_WIDTHS = (0.1, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0, 8.0, 8.0)
# Relative change of a variable: too small to move a draw across a rounding, large for floating point.
_CHANGE = 1e-10
# Floating point rounds to a number, too, as 1 + exp(-50) to 1. Then others come so near, as a part of the
# number and of how far draws go; many draws show one.
_ALONE, _MANY = 1e-6, 20
# Numbers drawn at each place, so many for each row if that is not too many, and how often one has to come to
# be an atom.
_DRAWS, _EACH, _OFTEN = 200, 3, 3
# Numbers drawn in all, and at once, where there are many records.
_MOST, _AT_ONCE = 2_000_000, 200_000


def behind_repeated(rv: TensorVariable, model: Model) -> list[Variable]:
    """Return the variables that move values which draws of a law of real numbers repeat.

    Parameters
    ----------
    rv : TensorVariable
        Record variable of the model.
    model : pymc.Model
    """
    if has_density(rv) or not rv.type.dtype.startswith("float"):
        return []
    given = leaves_of(parameters_of(rv), set(model.basic_RVs))
    try:
        draws, natural = _Draws(rv, given), _natural(model, given)
    except (NotImplementedError, TypeError, ValueError):
        return []  # a law that cannot be drawn given numbers
    start, rng = model.initial_point(), np.random.default_rng(0)
    found: set[Variable] = set()
    for seed, width in enumerate(_WIDTHS):
        point = {
            name: v + rng.uniform(-width, width, np.shape(v)) if v.dtype.kind == "f" else v
            for name, v in start.items()
        }
        try:
            with np.errstate(all="ignore"):
                values = natural(point)
                if draws.moved(seed, values, range(len(given))):
                    found |= {v for k, v in enumerate(given) if draws.moved(seed, values, [k])}
        except Exception:  # of a user's function, or of NumPy's: no law there, or none that can be drawn
            continue
        if draws.total > _MOST:
            break
    return [v for v in given if v in found]


def _natural(model: Model, given: Sequence[Variable]) -> Any:
    """Return a function from a point of the model to values of some variables."""
    return model.compile_fn(
        model.replace_rvs_by_values(list(given)), inputs=model.value_vars, mode="FAST_COMPILE",
        on_unused_input="ignore",
    )  # fmt: skip


class _Draws:
    """Draws of a law given the variables behind it, which may be repeated with the same random numbers."""

    def __init__(self, rv: TensorVariable, given: Sequence[Variable]):
        self.total = 0
        self._compile(rv, given, [v.type() for v in given])

    def _compile(self, rv: TensorVariable, given: Sequence[Variable], inputs: list[Any]) -> None:
        draw = clone_replace(rv, dict(zip(given, inputs, strict=True)), rebuild_strict=False)
        self._generators = [
            v
            for v in ancestors([draw])
            if isinstance(v, SharedVariable) and isinstance(v.type, RandomGeneratorType)
        ]
        self._function = pytensor.function(
            inputs, draw, mode="FAST_COMPILE", on_unused_input="ignore", allow_input_downcast=True,
            updates=collect_default_updates([draw], must_be_shared=False),
        )  # fmt: skip

    def at(self, seed: int, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return draws, the same for the same seed."""
        for k, generator in enumerate(self._generators):
            generator.set_value(np.random.default_rng([seed, k]))
        first = np.ravel(self._function(*values))
        n = max(first.size, 1)
        more = max(min(_EACH, _AT_ONCE // n), -(-_DRAWS // n)) - 1
        found = np.concatenate([first, *(np.ravel(self._function(*values)) for _ in range(more))])
        self.total += found.size
        return found

    def moved(self, seed: int, values: Sequence[np.ndarray], which: Sequence[int]) -> bool:
        """Whether a number that is drawn repeatedly is never drawn any more where some values change."""
        changed = list(values)
        for k in which:
            value = np.asarray(values[k])
            if value.dtype.kind in "iub":
                changed[k] = value ^ 1  # 0 to 1 and back, 2 to 3 and back
            else:
                changed[k] = value + _CHANGE * np.where(value == 0, 1.0, np.abs(value))
        before = self.at(seed, values)
        numbers, where, counts = np.unique(before, return_inverse=True, return_counts=True)
        atoms = np.isfinite(numbers) & (counts >= _OFTEN)
        if not atoms.any() or not np.array_equal(before, self.at(seed, values), equal_nan=True):
            return False  # or draws of its own generator, which tell nothing here
        stayed = np.bincount(where, before == self.at(seed, changed), minlength=numbers.size)
        return any(self._is_alone(atom, values) for atom in numbers[atoms & (stayed == 0)][:_OFTEN])

    def _is_alone(self, atom: float, values: Sequence[np.ndarray]) -> bool:
        """Whether a number has a probability, rather than being what others round to."""
        draws = np.concatenate([self.at(_MANY + seed, values) for seed in range(_MANY)])
        distance = np.abs(draws - atom)
        far = np.max(distance, initial=0.0, where=np.isfinite(distance))
        return not np.any((distance > 0) & (distance <= _ALONE * min(abs(atom), far)))
