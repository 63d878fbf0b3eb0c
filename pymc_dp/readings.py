"""Readings of a model: its random variables replaced by graphs of other inputs."""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.records import Release, parameters_of

Reading = dict[Variable, TensorVariable]


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


def with_query(release: Release, reading: Reading, query: TensorVariable) -> TensorVariable:
    """Return the law of a release with another query in the place of its own."""
    lifted = lift(release.rv, reading).owner
    query = pt.cast(query, parameters_of(release.rv)[0].type.dtype)
    params = [query, *lifted.op.dist_params(lifted)[1:]]
    return lifted.op.make_node(lifted.inputs[0], NoneConst, *params).default_output()
