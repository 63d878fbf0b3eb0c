"""Lengths of the axes in a graph: what they are now, and graphs in which they are written as numbers.

Of resizable ``pm.Data`` a length is what they hold now. Whether a length may be told is decided in
:mod:`.publicshapes`, not here.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.graph.utils import MissingInputError
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.shape import Shape, Shape_i

from pymc_dp.query.indexrules import is_placement
from pymc_dp.query.publicshapes import is_shape, shape_is_public


def known_lengths(t: Variable) -> tuple[int, ...] | None:
    """Return the lengths of the axes now, also of resizable `pm.Data`; None if an input has no value."""
    shape = t.type.shape  # type: ignore[attr-defined]
    if None not in shape:
        return tuple(shape)
    try:
        return tuple(int(k) for k in t.shape.eval())  # type: ignore[attr-defined]
    except MissingInputError:
        return None


def lengths_of(t: Variable) -> tuple[int, ...]:
    """Return the lengths of the axes now: a width counts every statistic, also of resizable `pm.Data`."""
    lengths = known_lengths(t)
    if lengths is None:
        inputs = [str(v) for v in explicit_graph_inputs([t])]
        raise TypeError(
            f"query has a length that nothing gives, since {', '.join(inputs)} is an input of a graph and "
            "has no value: pass data, or variables of the model."
        )
    return lengths


def last_length(p: Variable) -> int | None:
    """Return the length of the last axis now, as a model's coordinates have it; None if nothing gives it."""
    known = p.type.shape[-1]  # type: ignore[attr-defined]
    if known is not None:
        return known
    try:
        return int(p.shape[-1].eval())  # type: ignore[attr-defined]
    except Exception:  # it depends on something that has no value yet
        return None


def leading_lengths(model: Model) -> dict[Variable, int]:
    """Lengths of the leading batch axis of every free variable that has one."""
    shapes = model.eval_rv_shapes()
    return {
        rv: int(shapes[rv.name][0])
        for rv in model.free_RVs
        if rv.owner is not None and rv.ndim - getattr(rv.owner.op, "ndim_supp", 0) >= 1
    }


def joined_lengths(graphs: Sequence[Variable], variables: Collection[Variable]) -> dict[Variable, int]:
    """Lengths of the arrays in which some variables are set as the missing rows."""
    found: dict[Variable, int] = {}
    for v in ancestors(graphs, blockers=variables):
        if v.owner is not None and is_placement(v.owner):
            part, length = v.owner.inputs[1], v.owner.inputs[0].type.shape[0]
            if part in variables and length is not None:
                found[part] = length
    return found


def with_known_shapes(graphs: Sequence[Variable]) -> list[Variable]:
    """Evaluate the shapes of random variables in some graphs, where no value of theirs decides them.

    A mean divides by ``x.shape[0]``: without this, what is free of the records would still need
    them as an input when it is compiled.
    """
    known: dict[Variable, Variable] = {}
    stack, seen = list(graphs), set()
    while stack:
        v = stack.pop()
        if v in seen or v.owner is None:
            continue
        seen.add(v)
        if isinstance(v.owner.op, Shape | Shape_i) and rvs_in_graph(v) and is_shape(v):
            known[v] = pt.constant(v.eval())
        elif not isinstance(v.owner.op, RNGConsumerOp):
            stack.extend(v.owner.inputs)
    return list(graph_replace(list(graphs), known, strict=False)) if known else list(graphs)


def with_lengths_of_rows(graphs: Sequence[Variable], rows: Collection[Variable]) -> list[Variable]:
    """Write the lengths of arrays of rows as numbers, where no value in the rows decides them.

    The rows are inputs of the graphs, with static shapes. A mean over a row's entries divides by
    ``x.shape[1]``: without this, what is free of the rows would still need them when it is compiled. A length
    that shows values, as the number of rows that pass a test does, is left as it is.
    """
    known: dict[Variable, Variable] = {}
    stack, seen = list(graphs), set()
    while stack:
        v = stack.pop()
        if v in seen or v.owner is None:
            continue
        seen.add(v)
        if isinstance(v.owner.op, Shape | Shape_i) and not set(rows).isdisjoint(ancestors([v])):
            if shape_is_public(v.owner.inputs[0], lambda leaf: leaf not in rows, in_model=True):
                known[v] = _length_without(v, rows)
                continue
        stack.extend(v.owner.inputs)
    return list(graph_replace(list(graphs), known, strict=False)) if known else list(graphs)


def _length_without(length: Variable, rows: Collection[Variable]) -> Variable:
    """Return a length that depends on the shapes of some inputs only, without these inputs."""
    node = length.owner
    assert node is not None
    shape = node.inputs[0].type.shape
    if None not in shape:
        return pt.constant(np.array(shape[node.op.i] if isinstance(node.op, Shape_i) else shape, np.int64))
    zeros: dict[Variable, Variable] = {v: pt.zeros(v.type.shape, dtype=v.type.dtype) for v in rows}  # type: ignore[attr-defined]
    (found,) = graph_replace([length], zeros, strict=False)
    if all(isinstance(v, Constant) for v in explicit_graph_inputs([found])):
        return pt.constant(found.eval(mode="FAST_COMPILE"))
    return found
