"""Where the law of a variable is defined, as conditions on its parameters.

PyMC checks the parameters of a law apart from its density, whose expression may well be finite outside of the
domain: a beta density with a negative shape is a number like any other. Conditions that always hold, for all
that the variables behind them can be (:mod:`.intervals`), are left out, so that most laws need none.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions import continuous
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Sum
from pytensor.tensor.random.basic import (
    BetaRV,
    DirichletRV,
    GammaRV,
    InvGammaRV,
    LogNormalRV,
    ParetoRV,
    StudentTRV,
)
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.graphs import as_tensor
from pymc_dp.lowering.functions.normals import with_known_factors
from pymc_dp.lowering.rows.intervals import RANDOM, Ranges
from pymc_dp.lowering.rows.rows import ROW, NotScalar, RowGraph
from pymc_dp.lowering.rows.written import density_at

Free = Callable[[Variable], bool]

# Laws with draws too large or too small for their density to be a number, if their parameters are extreme.
_EXTREME = (
    LogNormalRV,
    StudentTRV,
    ParetoRV,
    continuous.SkewStudentTRV,
    continuous.WaldRV,
    continuous.HalfStudentTRV,
    continuous.WeibullBetaRV,
    continuous.KumaraswamyRV,
)
# Laws whose draws are so in natural space only.
_EXTREME_UNLESS_IN_VALUE_SPACE = (BetaRV, GammaRV, InvGammaRV)
# More than the largest logarithm of a number, and than the terms of a log density.
_ROOM = 1e3


class Domain:
    """Conditions on the parameters of a law that may fail.

    Parameters
    ----------
    logp : TensorVariable
        Log density of the law, by row.
    is_free : callable
        Whether a variable depends on nothing that is asked about: conditions on such variables alone are for
        others to see to.

    Attributes
    ----------
    conditions : list of TensorVariable
        Entry by entry.
    """

    def __init__(self, logp: TensorVariable, is_free: Free):
        drawn = [v for v in ancestors([logp]) if v.owner and isinstance(v.owner.op, RANDOM)]
        parameters = [p for v in drawn for p in v.owner.inputs]  # type: ignore[union-attr]
        logp, *parameters = with_known_factors([logp, *parameters])
        # a check of a parameter, which is part of the variable itself, stays where it is
        self._of_parameters = set(ancestors(parameters))
        self.logp, self._is_free = logp, is_free
        self._left_out: list[Variable] = []
        ranges = Ranges()
        self._open: dict[Apply, list[TensorVariable]] = {}
        for node in io_toposort(drawn, [logp]):
            if not isinstance(node.op, CheckParameterValue):
                continue
            each = [_each(c) for given in node.inputs[1:] for c in listed(given)]
            each = [c for c in each if not is_free(c) and not _always_adds_up(c)]
            self._open[node] = [c for c in each if not ranges.always(c)]
            self._left_out += [c for c in each if ranges.always(c)]
        self.conditions = [c for some in self._open.values() for c in some]

    @property
    def still_holds(self) -> bool:
        """Whether what was left out may still be, now that data may be others."""
        ranges = Ranges()
        return all(map(ranges.always, self._left_out))

    def inside(self, rows: RowGraph, index: tuple[int, ...] = ()) -> TensorVariable:
        """Whether one entry of a record has a law: a 0-d graph of entries."""
        full = (ROW, *index)
        parts: list[TensorVariable] = []
        for condition in self.conditions:
            beyond = condition.type.shape[len(full) :]
            if None in beyond:
                raise NotScalar("a condition on a parameter of unknown length")
            own = full[max(len(full) - condition.type.ndim, 0) :] if not beyond else full
            parts += [rows.entry(condition, (*own, *more)) for more in np.ndindex(*beyond)]
        return reduce(pt.and_, parts)

    def guarded(self) -> TensorVariable:
        """Log density that is minus infinity where a condition fails, in place of the check."""
        graph: Any = self.logp
        # from the outside in: what takes the place of a check holds the checks within it
        for node, conditions in reversed(self._open.items()):
            check = node.outputs[0]
            if conditions and (graph is check or check in self._of_parameters):
                graph = _where(conditions, node.inputs[0] if graph is check else graph)
            elif conditions:
                graph = graph_replace([graph], {check: _where(conditions, node.inputs[0])}, strict=False)[0]
        return graph


def _where(conditions: list[TensorVariable], expression: Any) -> TensorVariable:
    """Return an expression where some conditions hold, and minus infinity elsewhere."""
    dtype = expression.type.dtype
    for condition in conditions:
        beyond = tuple(range(expression.type.ndim, condition.type.ndim))
        inside = pt.all(condition, axis=beyond) if beyond else condition
        expression = pt.cast(pt.switch(inside, expression, -np.inf), dtype)
    return expression


def domain_of(rv: Any, is_free: Free) -> Domain | None:
    """Return the conditions on a variable's own parameters; None where it has no density to take them from.

    Multivariate normal laws are left to their factors, which are no numbers where there is no law.
    """
    if getattr(rv.owner.op, "ndim_supp", 0):
        return None
    try:
        return Domain(density_at(rv, rv), is_free)
    except (NotImplementedError, AttributeError):
        # PyMC takes the points of an interpolated law for constants, and those of several variables are not
        return None


def inside_of(rows: RowGraph, rv: Variable, index: tuple[int, ...]) -> list[Variable]:
    """Return whether one entry of a variable has a law, as a list of no condition if it always has."""
    domain = domain_of(rv, rows.is_free)
    if domain is None or not domain.conditions:
        return []
    return [pt.scalar_from_tensor(domain.inside(rows, index))]


def may_be_extreme(rv: Any, in_value_space: bool) -> bool:
    """Whether a variable may be drawn where its density is no number, so that no later step could move it.

    A posterior on numbers has no such values: the model is that of records below the largest number.
    """
    kinds = _EXTREME if in_value_space else _EXTREME + _EXTREME_UNLESS_IN_VALUE_SPACE
    return isinstance(rv.owner.op, kinds)


def is_number(graph: Any) -> TensorVariable:
    """Whether a log density is finite: a 0-d graph of it, in which no logarithm is taken to know.

    A logarithm is a number if its argument is, and positive; it is then at most 745. Sums and products are
    numbers if their parts leave a factor of a thousand to the largest number; those that do not count as
    infinite.
    """
    op = graph.owner.op.scalar_op if graph.owner and isinstance(graph.owner.op, Elemwise) else None
    inputs = graph.owner.inputs if op is not None else []
    if isinstance(op, ps.Add | ps.Sub | ps.Neg):
        return reduce(pt.and_, map(is_number, inputs))
    if isinstance(op, ps.Log | ps.Log1p):
        return pt.and_(pt.gt(inputs[0], 0.0 if isinstance(op, ps.Log) else -1.0), pt.lt(inputs[0], np.inf))
    if isinstance(op, ps.Switch):
        return pt.switch(inputs[0], *map(is_number, inputs[1:]))
    logs = [
        v for v in inputs if v.owner and isinstance(getattr(v.owner.op, "scalar_op", None), ps.Log | ps.Log1p)
    ]
    if isinstance(op, ps.Mul) and len(logs) == 1:
        others = [v for v in inputs if v is not logs[0]]
        return pt.and_(is_number(logs[0]), is_number(pt.mul(*others) if len(others) > 1 else others[0]))
    return pt.isfinite(_ROOM * pt.cast(graph, "float64"))


def _each(condition: Variable) -> TensorVariable:
    """Return a condition on all entries as conditions on each."""
    node = condition.owner
    return as_tensor(node.inputs[0] if node is not None and isinstance(node.op, All) else condition)


def adds_up(p: Any) -> bool:
    """Whether probabilities add up to one by the operation that they come from, wherever its inputs are."""
    if isinstance(p, Constant):
        return bool(np.allclose(p.data.sum(axis=-1), 1.0))
    node = p.owner
    if node is None:
        return False
    op, source = node.op, node.inputs[0]
    if isinstance(op, Join):
        return op.axis == p.type.ndim - 1 and _and_the_rest(*node.inputs)
    if isinstance(op, DirichletRV):
        return True
    if isinstance(op, Softmax):
        return op.axis in (-1, p.type.ndim - 1)
    if isinstance(op, DimShuffle):
        return op.new_order[-1] == source.type.ndim - 1 and adds_up(source)
    # whole rows of a table
    rows = isinstance(op, Subtensor | AdvancedSubtensor) and len(op.idx_list) < source.type.ndim
    return (rows or isinstance(op, SpecifyShape)) and adds_up(source)


def _and_the_rest(*parts: Any) -> bool:
    """Whether there are two parts, and the second is what is left of one after the first."""
    first, *more = (_without_new_axes(part) for part in parts)
    node = more[0].owner if len(more) == 1 else None
    if node is None or not isinstance(getattr(node.op, "scalar_op", None), ps.Sub):
        return False
    one, left = map(_without_new_axes, node.inputs)
    return isinstance(one, Constant) and bool(np.all(one.data == 1)) and left is first


def _without_new_axes(v: Any) -> Any:
    while v.owner is not None and isinstance(v.owner.op, DimShuffle) and not v.owner.op.drop:
        if [a for a in v.owner.op.new_order if a != "x"] != list(range(v.owner.inputs[0].type.ndim)):
            break
        v = v.owner.inputs[0]
    return v


def _always_adds_up(condition: Variable) -> bool:
    """Whether a condition is that probabilities add up to one, and they do wherever their inputs are."""
    if not _is_closeness(condition):
        return False
    todo, sums = [condition], []
    while todo:  # down to the sum that is compared, not to those that its terms may be made of
        node = todo.pop().owner
        if node is not None and isinstance(node.op, Sum):
            sums.append(node)
        elif node is not None:
            todo += node.inputs
    return bool(sums) and all(adds_up(node.inputs[0]) for node in sums)


def _is_closeness(condition: Variable) -> bool:
    """Whether numbers are to be close to others: PyTensor asks first which are none or infinite."""
    asked, kinds, todo = set(), set(), [condition]
    while todo:
        node = todo.pop().owner
        if node is not None and node not in asked:
            asked.add(node)
            kind = getattr(node.op, "scalar_op", node.op)
            kinds.add(type(kind))
            todo += node.inputs if isinstance(kind, ps.AND | ps.OR | ps.Invert) else []
    return {ps.IsNan, ps.IsInf} <= kinds


@node_rewriter(tracks=[CheckParameterValue])
def _check_to_value(fgraph: Any, node: Apply) -> list[Variable] | None:
    expression, *conditions = node.inputs
    # `and` of 0-d conditions stays scalar code, where `all` of a list of them makes an array
    valid = None
    for condition in (c for given in conditions for c in listed(given)):
        condition = condition if condition.type.ndim == 0 else pt.all(condition)
        valid = condition if valid is None else pt.and_(valid, condition)
    if valid is None:
        return [expression]
    bad = -float("inf") if node.op.can_be_replaced_by_ninf else float("nan")
    return [pt.cast(pt.switch(valid, expression, bad), node.outputs[0].type.dtype)]


@node_rewriter(tracks=[CheckParameterValue])
def idle_check_by_entry(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Ask entry by entry what holds but for rounding, whatever values and data."""
    given, *checked = node.inputs
    conditions, ranges = [_each(c) for some in checked for c in listed(some)], Ranges(any_data=True)
    fits = all(_is_of_entries(c.type.shape, given.type.shape) for c in conditions)
    return [_where(conditions, given)] if fits and all(map(ranges.always, conditions)) else None


def listed(condition: Variable) -> list[Variable]:
    """Return the conditions that ``all([a, b, ...])`` is made of."""
    node = condition.owner
    if node is not None and isinstance(node.op, ScalarFromTensor):
        return listed(node.inputs[0])
    condition = as_tensor(condition)
    if node is None or not isinstance(node.op, All):
        return [condition]
    inner = node.inputs[0]
    if inner.type.ndim == 0:
        return listed(inner)
    made = inner.owner
    if made is not None and isinstance(made.op, MakeVector):
        return [c for given in made.inputs for c in listed(given)]
    return [condition]


def parameter_checks_to_values(graph: Variable) -> Variable:
    """Make a log density -inf where a parameter is outside its domain, instead of raising.

    Dropping the checks, as ``local_remove_check_parameter`` does, is faster by less than 1 ns, but
    then a Gamma density with a negative shape is a number like any other.
    """
    rewritten: Any = rewrite_graph(
        graph, include=(), custom_rewrite=dfs_rewriter(_check_to_value), clone=False
    )
    return rewritten


def entry_checks_to_values(graph: Variable) -> Variable:
    """Make those entries of a log density -inf that have a parameter outside of its domain.

    PyMC's checks ask whether the parameters of all entries are inside, which ties entries to each other. Of
    checks behind the density's own sum, such as those of the components of a mixture, nothing is changed:
    there an entry that has no density would be one that has none of this component.

    Parameters
    ----------
    graph : Variable
        Log densities, entry by entry.

    Returns
    -------
    Variable
        With the same sum as :func:`parameter_checks_to_values`.
    """
    return parameter_checks_to_values(_own_checks_by_entry(graph))


def _own_checks_by_entry(graph: Any) -> Any:
    op: Any = getattr(graph.owner, "op", None)
    if isinstance(op, CheckParameterValue):
        given, *conditions = graph.owner.inputs
        bad = -float("inf") if op.can_be_replaced_by_ninf else float("nan")
        found = _own_checks_by_entry(given)
        for condition in (_each(c) for some in conditions for c in listed(some)):
            fits = _is_of_entries(condition.type.shape, given.type.shape)
            found = pt.switch(condition if fits else pt.all(condition), found, bad)
        return pt.cast(found, graph.type.dtype)
    kind = getattr(op, "scalar_op", None)
    if isinstance(kind, ps.Add):
        return op(*map(_own_checks_by_entry, graph.owner.inputs))
    if isinstance(kind, ps.Switch):
        which, *branches = graph.owner.inputs
        return op(which, *map(_own_checks_by_entry, branches))
    if isinstance(op, Alloc):  # to the lengths of the variable
        given, *lengths = graph.owner.inputs
        return op(_own_checks_by_entry(given), *lengths)
    return graph


def _is_of_entries(shape: tuple[int | None, ...], of: tuple[int | None, ...]) -> bool:
    """Whether an array of one shape has a number for each entry of another, or for several of them."""
    ends = zip(reversed(shape), reversed(of), strict=False)
    return len(shape) <= len(of) and all(a == 1 or (a is not None and a == b) for a, b in ends)


def row_checks_to_values(graph: Variable, has_rows: Callable[[Variable], bool]) -> Variable:
    """Make the log density of a row -inf where its own parameters are outside of their domain.

    PyMC's checks ask whether the parameters of *all* rows are inside. Conditions on parameters that rows
    share stay as they are.

    Parameters
    ----------
    graph : Variable
    has_rows : callable
        Whether a condition has the rows on its leading axis, row i being of row i only. Equal lengths do not
        tell: there may be as many components of a mixture as rows.

    Returns
    -------
    Variable
    """

    @node_rewriter(tracks=[CheckParameterValue])
    def check_by_row(fgraph: Any, node: Apply) -> list[Variable] | None:
        expression, *conditions = node.inputs
        for condition in (c for given in conditions for c in listed(given)):
            made = condition.owner
            each = made.inputs[0] if made is not None and isinstance(made.op, All) else condition
            if each.type.ndim and has_rows(each):
                if each.type.ndim > expression.type.ndim:  # of probabilities, several for a row
                    each = pt.all(each, axis=tuple(range(expression.type.ndim, each.type.ndim)))
                condition = pt.shape_padright(each, expression.type.ndim - each.type.ndim)
            expression = pt.switch(condition, expression, -float("inf"))
        return [pt.cast(expression, node.outputs[0].type.dtype)]

    rewritten: Any = rewrite_graph(graph, include=(), custom_rewrite=dfs_rewriter(check_by_row), clone=False)
    return rewritten
