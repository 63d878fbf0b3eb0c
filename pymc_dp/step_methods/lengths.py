"""The model that steps lower: its lengths are those that data and dimensions have when sampling begins.

A model with ``dims=``, or with lengths of ``pm.Data``, has graphs whose shapes are open. What steps compile
is for one length at a time, and scalar code of a row has to know how wide the row is, so they read a copy of
the model in which shapes are known. It shares the data with the model: ``pm.set_data`` reaches both.
"""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.model.fgraph import model_from_fgraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace

from pymc_dp.query.readings import graph_of
from pymc_dp.step_methods.block.program import static_value
from pymc_dp.step_methods.discovery import version_of

_SIZED: "WeakKeyDictionary[Model, tuple[tuple[Any, ...], Model]]" = WeakKeyDictionary()


def with_known_lengths(model: Model) -> Model:
    """Return a model with the lengths that its data and dimensions have now.

    Parameters
    ----------
    model : pymc.Model

    Returns
    -------
    pymc.Model
        The model itself where the shapes of all its variables are known; otherwise a copy, with
        variables of the same names, that shares the data.
    """
    parts: Any = [*model.basic_RVs, *model.potentials]
    if model.parent is not None or not any(None in v.type.shape for v in parts):
        return model
    version, cached = version_of(model), _SIZED.get(model)
    if cached is None or cached[0] != version:
        _SIZED[model] = cached = (version, _sized(model))
    return cached[1]


def _sized(model: Model) -> Model:
    shapes = {name: tuple(map(int, shape)) for name, shape in model.eval_rv_shapes().items()}
    graph, memo = graph_of(model)
    known: dict[Variable, Variable] = {}
    for length in model.dim_lengths.values():
        if isinstance(length, SharedVariable):
            known[memo[length]] = pt.constant(length.get_value(), dtype=length.type.dtype)
    for data in model.data_vars:
        if isinstance(data, SharedVariable):
            known[memo[data].owner.inputs[0]] = _fixed(data)
    for rv in model.basic_RVs:
        for size in _computed_size(memo[rv].owner.inputs[0]):
            observed = rv in model.observed_RVs
            shape = np.shape(static_value(model.rvs_to_values[rv])) if observed else shapes[rv.name]
            batch = shape[: rv.ndim - rv.owner.op.ndim_supp]
            known[size] = pt.constant(np.array(batch, dtype="int64"))
    for rv in model.free_RVs:
        value: Any = model.rvs_to_values[rv]
        known[memo[value]] = value.type.clone(shape=shapes[value.name])(name=value.name)
    outputs = clone_replace(graph.outputs, known, rebuild_strict=False)
    sized: Any = FunctionGraph(outputs=outputs, clone=False)
    sized._coords = graph._coords  # type: ignore[attr-defined]
    sized._dim_lengths = {name: known.get(v, v) for name, v in graph._dim_lengths.items()}  # type: ignore[attr-defined]
    result = model_from_fgraph(sized, mutate_fgraph=True)
    order = list(model.named_vars)
    for listed in (result.free_RVs, result.observed_RVs, result.deterministics, result.potentials):
        listed.sort(key=lambda v: order.index(v.name))
    return result


def _computed_size(rv: Any) -> list[Variable]:
    """Return the size that a random variable's operation is given, if it has to be computed."""
    op = rv.owner.op
    # symbolic variables without a signature, as pm.Truncated, take no size
    takes_size = hasattr(op, "size_param") and getattr(op, "extended_signature", "") is not None
    size = op.size_param(rv.owner) if takes_size else None
    computed = size is not None and not isinstance(size, Constant) and getattr(size.type, "ndim", 0) == 1
    return [size] if computed else []


def _fixed(data: SharedVariable) -> SharedVariable:
    """Return a variable of known shape with the same memory as some data."""
    shape = data.get_value(borrow=True).shape
    return type(data)(
        type=data.type.clone(shape=shape), value=None, strict=None, container=data.container, name=data.name
    )
