"""A graph of numbers in two: what some of its inputs do not change, and the rest.

A function that is wanted at many values of a few inputs computes the rest once for all of them.
"""

from collections.abc import Sequence
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.variable import TensorVariable


def in_two(
    graphs: Sequence[TensorVariable], late: Sequence[Variable]
) -> tuple[list[TensorVariable], list[Variable], list[TensorVariable]]:
    """Take graphs apart at what does not depend on the inputs ``late``.

    Returns
    -------
    before : list
        What the rest needs to know, none of which depends on ``late``.
    between : list
        Inputs of real numbers that stand for it.
    after : list
        The graphs, as functions of ``late`` and ``between``.
    """
    merged: Any = rewrite_graph(list(graphs), include=("merge",), clone=False)
    later = set(late)
    for node in toposort(merged):
        if not later.isdisjoint(node.inputs):
            later.update(node.outputs)
    wanted = [v for node in toposort(merged) if node.outputs[0] in later for v in node.inputs] + merged
    cut = [v for v in dict.fromkeys(wanted) if v not in later and not isinstance(v, Constant)]
    # a compiled function without outputs would return None, not a tuple
    cut = cut or [pt.constant(0.0)]
    between: list[Variable] = [ps.float64(f"between {k}") for k in range(len(cut))]
    stand_ins = {v: _like(v, number) for v, number in zip(cut, between, strict=True)}
    after = graph_replace(merged, stand_ins, strict=False)
    before = [pt.tensor_from_scalar(v) if isinstance(v.type, ScalarType) else v for v in cut]
    return before, between, list(after)


def _like(variable: Any, number: Any) -> Any:
    """Return a real number as a variable is: of a scalar or a tensor type, true or false, or whole."""
    tensor = pt.tensor_from_scalar(number)
    if variable.type.dtype == "bool":
        tensor = pt.neq(tensor, 0.0)
    elif variable.type.dtype != "float64":
        tensor = pt.cast(tensor, variable.type.dtype)
    return pt.scalar_from_tensor(tensor) if isinstance(variable.type, ScalarType) else tensor
