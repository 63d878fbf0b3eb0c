"""What each fit of a study observes: checked before the first one begins, then put into the model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.model.core import BaseModel
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

from pymc_dp.step_methods.block.program import static_value
from pymc_dp.step_methods.release_values import fault_of, processing_of, shape_of

Values = dict[str, np.ndarray]


def observed_by_fit(model: BaseModel, observed: Any) -> list[Values]:
    """Return what each fit observes.

    Parameters
    ----------
    model : pymc.Model
    observed : mapping or sequence of mappings
        By name of an observed variable, an array with a leading axis of fits; or one mapping for each fit.

    Returns
    -------
    list of dict
        By name, an array of the shape and dtype that the variable has in the model.

    Raises
    ------
    TypeError
        It is none of these, or holds something else than numbers.
    ValueError
        A name is none of an observed variable, lengths differ, or values cannot be what was released.
    """
    if isinstance(observed, Mapping):
        fits: list[Mapping[str, Any]] = _by_fit(observed)
        told = "observed[{name!r}][{fit}]"
    elif isinstance(observed, Sequence) and all(isinstance(o, Mapping) for o in observed):
        fits, told = list(observed), "observed[{fit}][{name!r}]"
    else:
        raise TypeError(
            "observed must be a mapping, by name of a release an array with a leading axis of fits, or a "
            f"list of such mappings, one for each fit; got {type(observed).__name__}. With a function that "
            "builds models as the first argument, it is the list of their settings."
        )
    if not fits:
        raise ValueError("observed has no fits in it: give at least one release.")
    names = list(fits[0])
    variables = {name: _variable(model, name) for name in names}
    shapes = {name: shape_of(rv) for name, rv in variables.items()}
    for fit, values in enumerate(fits):
        if set(values) != set(names):
            raise ValueError(
                f"observed[{fit}] has the names {_listed(values)}, and the first {_listed(names)}: every fit "
                "observes the same variables."
            )
    return [
        {name: _as_observed(model, rv, shapes[name], values[name], told.format(name=name, fit=fit))
         for name, rv in variables.items()}
        for fit, values in enumerate(fits)
    ]  # fmt: skip


def with_inputs(model: BaseModel, names: Sequence[str]) -> BaseModel:
    """Make observed values inputs of a model's functions, in place, so that they compile once for all."""
    for name in names:
        rv = model.named_vars[name]
        old = model.rvs_to_values[rv]
        if isinstance(old, SharedVariable):
            continue
        # the type is kept, because what is known of the shape is part of what is compiled
        new: Any = pytensor.shared(np.array(static_value(old)), name=old.name, shape=old.type.shape)
        model.rvs_to_values[rv] = new
        del model.values_to_rvs[old]
        model.values_to_rvs[new] = rv
        parameter = getattr(rv.owner.op, "released_parameter", None)
        if parameter is not None:
            _read_from(model, rv.owner.op.dist_params(rv.owner)[parameter], new)
    return model


def _read_from(model: BaseModel, written: Variable, value: Variable) -> None:
    """Let a query that is evaluated at the released value read it from an input, in place.

    Where there is no number in `written`, the release was observed after it was declared, and nothing was
    evaluated at it.
    """
    if isinstance(written, Constant) and np.isnan(written.data).any():
        return
    read = written.type.filter_variable(pt.cast(value, written.dtype))  # type: ignore[attr-defined]
    for variable in list(ancestors([*model.basic_RVs, *model.deterministics, *model.potentials])):
        if variable.owner is not None:
            variable.owner.inputs = [read if v is written else v for v in variable.owner.inputs]


def observe(model: BaseModel, values: Values) -> None:
    """Give observed variables, whose values are inputs, those of one fit."""
    for name, value in values.items():
        model.rvs_to_values[model.named_vars[name]].set_value(value)


def observed_now(model: BaseModel) -> Values:
    """Return the observed values that a model holds, by name."""
    return {str(rv.name): np.array(static_value(model.rvs_to_values[rv])) for rv in model.observed_RVs}


def _by_fit(observed: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    arrays = {name: _numbers(values, f"observed[{name!r}]") for name, values in observed.items()}
    for name, array in arrays.items():
        if array.ndim == 0:
            raise ValueError(
                f"observed[{name!r}] is one number: give an array with a leading axis of fits, "
                "np.array([...])."
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"observed has leading axes of different lengths, {lengths}: each is that of the fits, of which "
            "there is one number."
        )
    return [
        {name: array[fit] for name, array in arrays.items()}
        for fit in range(min(lengths.values(), default=0))
    ]


def _variable(model: BaseModel, name: Any) -> Variable:
    found = {str(rv.name): rv for rv in model.observed_RVs}
    if name not in found:
        raise ValueError(
            f"observed has the name {name!r}, which is no release or other observed variable of the model: "
            f"these are {_listed(found) or 'none; declare them with observed='}."
        )
    return found[name]


def _numbers(values: Any, told: str) -> np.ndarray:
    if np.ma.isMaskedArray(values):
        raise TypeError(f"{told} is a masked array: give np.nan where an entry was suppressed.")
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{told} must hold real numbers in one array, got "
            f"{type(values).__name__ if array.dtype.kind == 'O' else array.dtype}: pass what was published; "
            "of a dp.Release, its .value."
        )
    return array


def _as_observed(model: BaseModel, rv: Any, shape: tuple[int, ...], values: Any, told: str) -> np.ndarray:
    array = _numbers(values, told)
    dtype = np.dtype(model.rvs_to_values[rv].dtype)
    suppressed = getattr(processing_of(rv), "suppressed", None)
    if array.dtype.kind == "f" and suppressed is not None:
        array = np.where(np.isnan(array), suppressed, array)
    if dtype.kind in "iu" and not np.array_equal(array, np.rint(array)):
        raise ValueError(
            f"{told} has values that are not whole, and {rv.name} is a variable of whole numbers."
        )
    fault = fault_of(rv, array, shape)
    if fault is not None:
        raise ValueError(f"{told} {fault}.")
    return array.astype(dtype)


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names)))
