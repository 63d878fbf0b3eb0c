"""Log density of the whole model at one point: whether it is finite, and which of its terms are not.

A step that leaves a term out of its target looks healthy, and so does a chain that stands where the density
is zero. Both show when the model itself is asked, which the steps do when a chain starts, after tuning and at
the last draw. The graph is evaluated by Python, as it takes longer to compile than to evaluate three times:
as it is written first, and as PyTensor rewrites it where that overflows.
"""

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Variable

from pymc_dp.flags import flags_lock
from pymc_dp.lowering.functions.truncated_masses import with_all_digits
from pymc_dp.lowering.rows.written import density_at

Point = dict[str, np.ndarray]
# log(1 - sigmoid(40)) is -40 after these rewrites, and -inf before
_STABLE = get_mode("FAST_COMPILE").including("canonicalize", "stabilize", "specialize")


class _Densities:
    """Log densities of a model at a point, as a whole and term by term, compiled when they are asked for."""

    def __init__(self, model: Model):
        self._model = ref(model)
        self._inputs = list(model.value_vars)
        self._whole = model.logp()
        self._functions: dict[str | None, Callable[..., Any]] = {}

    @cached_property
    def _terms(self) -> dict[str, Variable]:
        """Graphs of the terms, for which few models are asked."""
        model = self._model()
        assert model is not None  # whoever asks has it
        return {str(v.name): _term(model, v) for v in (*model.basic_RVs, *model.potentials)}

    def possible(self, point: Point) -> bool:
        """Whether the density is positive: that of the whole as written, or else of every term, rewritten."""
        written = self._at(point, None, self._whole, "FAST_COMPILE")
        return bool(np.isfinite(written)) or not any(self.impossible(point))

    def impossible(self, point: Point) -> Iterator[str]:
        """Yield the names of the terms whose density is zero, or no number."""
        for name, graph in self._terms.items():
            if not np.isfinite(self._at(point, name, graph, _STABLE)):
                yield name

    def difference_to_pymc(self, point: Point, names: Collection[str]) -> float:
        """Return how far PyMC's own log density of some variables is from that of truncated counts here."""
        model, far = self._model(), 0.0
        assert model is not None
        for name in names:
            key = f"{name} by PyMC"
            graph = None if key in self._functions else model.logp(vars=[model[name]])
            theirs = self._at(point, key, graph, _STABLE)
            far += abs(self._at(point, name, self._terms[name], _STABLE) - theirs)
        return far if np.isfinite(far) else np.inf

    def _at(self, point: Point, name: str | None, graph: Variable | None, mode: Any) -> float:
        """Return a log density: -inf where PyMC raises, which its own compiled density may not."""
        values = [point[str(v.name)] for v in self._inputs]
        if name not in self._functions:
            self._functions[name] = self._compiled(graph, mode)
        try:
            with np.errstate(all="ignore"):
                return float(self._functions[name](*values))
        except NotImplementedError:
            # Python adds up to 32 numbers at once, and the rewrites put more of them into one sum
            self._functions[name] = self._compiled(graph, None)
            return self._at(point, name, graph, None)
        except (AssertionError, ValueError, ArithmeticError, np.linalg.LinAlgError):
            # checks of parameters raise, and so do decompositions of what is no covariance
            return -np.inf

    def _compiled(self, graph: Variable | None, mode: Any) -> Callable[..., Any]:
        # a density is asked for a few times in a chain: not worth the half second of C++ for each operation
        with flags_lock, pytensor.config.change_flags(cxx=""):
            return pytensor.function(
                self._inputs, graph, mode=mode, on_unused_input="ignore", allow_input_downcast=True
            )


def _term(model: Model, variable: Any) -> Variable:
    """Return the log density of a variable, with the digits of truncated counts that PyMC's has not."""
    if variable in model.potentials or with_all_digits(variable) is variable:
        return model.logp(vars=[variable])
    logp = density_at(variable, model.rvs_to_values[variable])
    return model.replace_rvs_by_values([pt.sum(logp)])[0]


_DENSITIES: "WeakKeyDictionary[Model, tuple[tuple[int, ...], _Densities]]" = WeakKeyDictionary()


def is_possible(model: Model, point: Point) -> bool:
    """Whether the log density of a model, in value space, is finite at a point.

    Parameters
    ----------
    model : pymc.Model
    point : dict
        Every value variable of the model, by name.
    """
    return _densities(model).possible(point)


def is_possible_but_for(model: Model, point: Point, names: Collection[str]) -> bool:
    """Whether the log density of every term is finite at a point, but for some that are named."""
    return all(name in names for name in _densities(model).impossible(point))


def impossible_among(model: Model, point: Point, names: Collection[str]) -> list[str]:
    """Return which of some terms have a log density that is not finite at a point."""
    return [name for name in _densities(model).impossible(point) if name in names]


def difference_to_pymc(model: Model, point: Point, names: Collection[str]) -> float:
    """Return by how much PyMC's log density of some variables differs from ours; infinite if it has none."""
    return _densities(model).difference_to_pymc(point, names)


def impossible_terms(model: Model, point: Point, but: Collection[str] = ()) -> str:
    """Names of the terms whose log density is not finite at a point, but for some, in a sentence."""
    names = [name for name in _densities(model).impossible(point) if name not in but]
    return ", ".join(names) or "the sum of all terms"


def _densities(model: Model) -> _Densities:
    """Return the densities of a model as it is now: it may have grown since they were asked for."""
    version = tuple(map(id, (*model.basic_RVs, *model.potentials, *model.rvs_to_values.values())))
    cached = _DENSITIES.get(model)
    if cached is None or cached[0] != version:
        _DENSITIES[model] = cached = (version, _Densities(model))
    return cached[1]
