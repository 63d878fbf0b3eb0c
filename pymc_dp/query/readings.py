"""Readings of a model: its random variables replaced by graphs of other inputs.

And the model as one graph, which may be edited into another model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.model.fgraph import fgraph_from_model
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.scalar.basic import Cast
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.records import Release, parameters_of

Reading = dict[Variable, TensorVariable]
# Graphs that are evaluated once, or hold confidential numbers: by plain NumPy, since compilers keep code and
# constants in it on disk, and without rewrites, which print errors of lengths that do not go together.
AS_WRITTEN = Mode(linker="py", optimizer=None)


def substitute(graphs: Sequence[Any], reading: Reading) -> list[Any]:
    """Replace the model's random variables in some graphs by a reading of them."""
    return list(graph_replace(list(graphs), reading, strict=False)) if graphs else []


def lift(rv: Variable, reading: Reading) -> TensorVariable:
    """Return a random variable with its parameters under a reading.

    Substituting before asking for a log density matters: densities that PyMC derives may clone their
    inputs, and a substitution afterwards would do nothing.
    """
    node = rv.owner
    assert node is not None
    inputs = substitute(node.inputs, reading)
    return node.clone_with_new_inputs(inputs, strict=False).outputs[node.outputs.index(rv)]  # type: ignore[return-value]


def uncast(graph: Variable) -> Variable:
    """Look through changes of dtype, as between data and the value of a variable that is observed."""
    while graph.owner is not None and isinstance(getattr(graph.owner.op, "scalar_op", None), Cast):
        graph = graph.owner.inputs[0]
    return graph


def graph_of(model: Model) -> tuple[FunctionGraph, dict[Variable, Variable]]:
    """Return a copy of a model as one graph, and where the model's variables are in it."""
    # PyMC refuses models with starting values; they are set aside for the moment
    starts = dict(model.rvs_to_initial_values)
    try:
        model.rvs_to_initial_values.update(dict.fromkeys(starts))
        return fgraph_from_model(model)
    finally:
        model.rvs_to_initial_values.update(starts)


def with_query(
    release: Release,
    reading: Reading,
    query: TensorVariable,
    others: Mapping[int, TensorVariable] | None = None,
) -> TensorVariable:
    """Return the law of a release with another query, and others of its parameters, by their positions."""
    lifted = lift(release.rv, reading).owner
    query = pt.cast(query, parameters_of(release.rv)[0].type.dtype)
    params = [query, *lifted.op.dist_params(lifted)[1:]]
    for k, other in (others or {}).items():
        params[k] = other
    return lifted.op.make_node(lifted.inputs[0], NoneConst, *params).default_output()
