"""Models whose functions compile once, and whether two models are one computation."""

from typing import Any

import numpy as np
from pymc.model.core import BaseModel, FrozenModel, Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable, equal_computations

from pymc_dp.runs.digests import digest_of, digests_of_graphs, hashed


def frozen(model: Model) -> FrozenModel:
    """Make a model immutable, in place, so that PyMC compiles each of its functions once.

    ``pymc.model.transform.freeze_model`` returns another model, with variables in another order and hence
    with other draws for the same seed, and makes constants of data.
    """
    model.__class__ = FrozenModel  # type: ignore[assignment]  # as freeze_model does at its end
    return model  # type: ignore[return-value]


def same_computation(one: BaseModel, other: BaseModel) -> bool:
    """Whether two models differ in nothing but their observed values, which are inputs of both."""
    inputs, values = zip(*map(_inputs, (one, other)), strict=True)
    return (
        _described(one) == _described(other)
        and all(map(_equal, *values))
        and equal_computations(_outputs(one), _outputs(other), inputs[0], inputs[1])
    )


def digest(model: BaseModel, observed: bool = False) -> str:
    """Return a digest of what a model computes, the same in any process; with observed values or not."""
    known: dict[Variable, str] = {v: f"value {v.name} {v.type}" for v in model.value_vars}
    if not observed:
        known |= {model.rvs_to_values[rv]: f"observed {rv.name}" for rv in model.observed_RVs}
    found = digests_of_graphs(_outputs(model), known)
    return hashed(f"{_described(model)} " + " ".join(found))


def _outputs(model: BaseModel) -> list[Variable]:
    """Return the log density and the deterministics of a model, in terms of its values."""
    return [model.logp(), *model.replace_rvs_by_values(model.deterministics)]


def _inputs(model: BaseModel) -> tuple[list[Variable], list[Any]]:
    """Return the values of a model and its data, and what these data are where they are not observed."""
    observed = {model.rvs_to_values[rv] for rv in model.observed_RVs}
    data = [v for v in model.data_vars if v not in observed]
    inputs = [*model.value_vars, *(model.rvs_to_values[rv] for rv in model.observed_RVs), *data]
    return inputs, [v.get_value(borrow=True) if isinstance(v, SharedVariable) else v for v in data]


def _described(model: BaseModel) -> list[Any]:
    """Return names and types of variables, starting values and coordinates, as text."""
    starts = {rv.name: value for rv, value in model.rvs_to_initial_values.items() if value is not None}
    return [
        [(v.name, str(model.rvs_to_values[v].type)) for v in model.basic_RVs],
        [v.name for v in model.deterministics],
        sorted((name, digest_of(value)) for name, value in starts.items()),
        sorted((name, digest_of(values)) for name, values in model.coords.items()),
        sorted((name, str(dims)) for name, dims in model.named_vars_to_dims.items()),
    ]


def _equal(one: Any, other: Any) -> bool:
    return one is other or bool(np.array_equal(one, other))
