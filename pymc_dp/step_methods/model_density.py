"""Log density of the whole model at one point: whether it is finite, and which of its terms are not.

A step that leaves a term out of its target looks healthy, and so does a chain that stands where the density
is zero. Both show when the model itself is asked, which the steps do when a chain starts, after tuning and at
the last draw. The graph is evaluated by Python, as it takes longer to compile than to evaluate three times.
"""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
import pytensor
from pymc.model.core import Model
from pytensor.graph.basic import Variable

Point = dict[str, np.ndarray]
_DENSITIES: "WeakKeyDictionary[Model, tuple[tuple[int, ...], Callable[[Point], float]]]" = WeakKeyDictionary()


def is_possible(model: Model, point: Point) -> bool:
    """Whether the log density of a model, in value space, is finite at a point.

    Parameters
    ----------
    model : pymc.Model
    point : dict
        Every value variable of the model, by name.
    """
    variables = (*model.basic_RVs, *model.potentials, *model.rvs_to_values.values())
    version = tuple(map(id, variables))
    cached = _DENSITIES.get(model)
    if cached is None or cached[0] != version:
        _DENSITIES[model] = cached = (version, _compiled(model, None))
    return bool(np.isfinite(cached[1](point)))


def impossible_terms(model: Model, point: Point) -> str:
    """Names of the terms whose log density is not finite at a point, in a sentence."""
    terms = [*model.basic_RVs, *model.potentials]
    names = [str(term.name) for term in terms if not np.isfinite(_compiled(model, term)(point))]
    return ", ".join(names) or "the sum of all terms"


def _compiled(model: Model, term: Variable | None) -> Callable[[Point], float]:
    """Return the log density of one term, or of all, as a function that says -inf where PyMC raises.

    PyMC's own compiled density leaves the checks of parameters out where a model asks for that.
    """
    graph = model.logp(vars=None if term is None else [term])
    names = [v.name for v in model.value_vars]
    function = pytensor.function(
        model.value_vars, graph, mode="FAST_COMPILE", on_unused_input="ignore", allow_input_downcast=True
    )

    def density(point: Point) -> float:
        try:
            with np.errstate(all="ignore"):
                return float(function(*(point[name] for name in names)))
        except (AssertionError, ValueError, ArithmeticError, np.linalg.LinAlgError):
            # checks of parameters raise, and so do decompositions of what is no covariance
            return -np.inf

    return density
