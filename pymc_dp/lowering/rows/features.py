"""Log densities that are polynomials in numbers of a record alone.

The log density of a normal record is quadratic in the record, that of a gamma one linear in the record and
its logarithm. Sums over records then need sums of a few products only, and the density under any parameters
is a short product: nothing else has to be computed for each record.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import io_toposort
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.rows.polynomial import degree

# Numbers of a record of which products of two are kept.
MAX_FEATURES = 4
# Less than the logarithm of the smallest positive number.
_BELOW_LOGARITHMS = -750.0


@dataclass
class Polynomial:
    """A graph as a polynomial.

    Attributes
    ----------
    features : list of TensorVariable
        0-d graphs of the record alone.
    inputs : list of ScalarVariable
        What stands for them in ``graph``.
    graph : TensorVariable
        The polynomial.
    degree : int
        1 or 2.
    """

    features: list[TensorVariable]
    inputs: list[Variable]
    graph: TensorVariable
    degree: int


def as_polynomial(
    graph: TensorVariable, record: Sequence[Variable], parameters: Sequence[Variable], fixed_support: bool
) -> Polynomial | None:
    """Write a graph of numbers as a polynomial of at most second degree in numbers of the record.

    Parameters
    ----------
    graph : TensorVariable
    record, parameters : sequences of ScalarVariable
        Inputs that belong to the record, and those that the polynomial's coefficients are functions of.
    fixed_support : bool
        Whether the record is known to have positive density: a choice of minus infinity is then none. Nor
        is one for a parameter that equals a number, which has no probability.
    """
    if fixed_support:
        graph = _inside_support(_without_ties(graph, parameters), record, parameters)
        graph = _choices_as_sums(graph, record, parameters)
    of_record, of_parameters = _dependence(graph, record), _dependence(graph, parameters)
    features: list[TensorVariable] = []
    stands_for: dict[Variable, TensorVariable] = {}
    inputs: list[Variable] = []
    stack, seen = [graph], set()
    while stack:
        v = stack.pop()
        if v in seen or v not in of_record:
            continue
        seen.add(v)
        if v in of_parameters:
            stack.extend(v.owner.inputs)
            continue
        if not hasattr(v.type, "dtype") or v.type.ndim != 0:
            return None
        known = [k for k, f in enumerate(features) if equal_computations([f], [v])]
        if not known:
            features.append(v)
            inputs.append(ps.float64(f"v{len(inputs)}"))
            known = [len(inputs) - 1]
        stands_for[v] = pt.cast(pt.tensor_from_scalar(inputs[known[0]]), v.dtype)
    if not features or len(features) > MAX_FEATURES:
        return None
    (replaced,) = graph_replace([graph], stands_for, strict=False)
    found = degree(replaced, inputs)
    if found not in (1, 2):
        return None
    return Polynomial(features, inputs, replaced, found)


def _dependence(graph: Variable, roots: Sequence[Variable]) -> Collection[Variable]:
    """Variables of a graph that depend on some inputs."""
    found = set(roots)
    for node in io_toposort(list(roots), [graph]):
        if any(v in found for v in node.inputs):
            found.update(node.outputs)
    return found


def _inside_support(
    graph: TensorVariable, record: Sequence[Variable], parameters: Sequence[Variable]
) -> TensorVariable:
    """Leave out outer choices between a number and minus infinity that the record alone decides."""
    of_parameters = _dependence(graph, parameters)
    while graph.owner is not None and isinstance(graph.owner.op, Elemwise):
        if not isinstance(graph.owner.op.scalar_op, ps.Switch):
            return graph
        condition, inside, outside = graph.owner.inputs
        if _is_minus_infinity(inside):
            inside, outside = outside, inside
        if condition in of_parameters or not _is_minus_infinity(outside):
            return graph
        graph = inside
    return graph


def _choices_as_sums(
    graph: TensorVariable, record: Sequence[Variable], parameters: Sequence[Variable]
) -> TensorVariable:
    """Write choices that the record alone decides between finite numbers as sums of them.

    A Bernoulli record's log density, one number if it is 1 and another if it is 0, is linear in the record.
    """
    of_record, of_parameters = _dependence(graph, record), _dependence(graph, parameters)
    sums: dict[Variable, TensorVariable] = {}
    for node in io_toposort([], [graph]):
        if not (isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Switch)):
            continue
        condition, *both = node.inputs
        if condition not in of_record or condition in of_parameters or any(map(_is_minus_infinity, both)):
            continue
        if any(v in of_record for v in both):
            continue
        chosen = pt.cast(pt.neq(condition, 0), "float64")
        sums[node.outputs[0]] = chosen * both[0] + (1.0 - chosen) * both[1]
    return graph_replace([graph], sums, strict=False)[0] if sums else graph


def finite_logarithms(graph: TensorVariable, parameters: Sequence[Variable]) -> TensorVariable:
    """Take the logarithm of a parameter that is 0 to be smaller than that of any positive number, but finite.

    A polynomial multiplies it by a number of the record, which may be 0 (no failure, say): zero times minus
    infinity is no number. Probabilities with a law that is steep at its ends do round to 0 and 1.
    """
    of_parameters = _dependence(graph, parameters)
    finite: dict[Variable, TensorVariable] = {}
    for node in io_toposort([], [graph]):
        kind = getattr(node.op, "scalar_op", node.op)
        if node.outputs[0] in of_parameters and isinstance(kind, ps.Log | ps.Log1p):
            at_zero = pt.eq(node.inputs[0], 0.0 if isinstance(kind, ps.Log) else -1.0)
            finite[node.outputs[0]] = pt.switch(at_zero, np.float64(_BELOW_LOGARITHMS), node.outputs[0])
    # from the outside in: each choice holds the logarithm that it replaces
    for logarithm, chosen in reversed(finite.items()):
        graph = graph_replace([graph], {logarithm: chosen}, strict=False)[0]
    return graph


def _without_ties(graph: TensorVariable, parameters: Sequence[Variable]) -> TensorVariable:
    """Leave out choices for parameters that equal a number, such as a rate of exactly zero."""
    of_parameters = _dependence(graph, parameters)
    never: dict[Variable, TensorVariable] = {}
    for node in io_toposort([], [graph]):
        op = node.op
        if isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.Switch):
            if _is_tie(node.inputs[0], of_parameters):
                never[node.outputs[0]] = pt.cast(node.inputs[2], node.outputs[0].type.dtype)
    while graph in never:
        graph = never.pop(graph)
    if not never:
        return graph
    return _without_ties(graph_replace([graph], never, strict=False)[0], parameters)


def _is_tie(condition: Variable, of_parameters: Collection[Variable]) -> bool:
    node = condition.owner
    if node is None or not isinstance(node.op, Elemwise) or condition not in of_parameters:
        return False
    if isinstance(node.op.scalar_op, ps.AND | ps.Mul):
        return any(_is_tie(v, of_parameters) for v in node.inputs)
    if not isinstance(node.op.scalar_op, ps.EQ):
        return False
    varying = [v for v in node.inputs if v in of_parameters]
    return len(varying) == 1 and str(varying[0].type.dtype).startswith("float")  # type: ignore[attr-defined]


def _is_minus_infinity(v: Variable) -> bool:
    while v.owner is not None and len(v.owner.inputs) == 1:
        v = v.owner.inputs[0]
    return isinstance(v, Constant) and bool(np.all(np.isneginf(v.data)))
