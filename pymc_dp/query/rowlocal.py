"""How a graph depends on the records: an abstract interpreter over PyTensor graphs.

Every variable of a graph gets a :class:`Role`:

* ``free``: no record enters it;
* ``row``: it has the record axis, and its row i depends on record i only;
* ``sum``: an affine function of sums over the record axis of row-local terms;
* ``function``: any other function of such sums;
* ``mixed``: anything else. Every operation without a rule is mixed, so the verdict may be too
  pessimistic but never too optimistic.

The rules, one for each PyTensor operation, are in :mod:`.rowrules` and :mod:`.indexrules`.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.counts import counted_rows
from pymc_dp.query.indexrules import Placed, is_placement
from pymc_dp.query.lengths import known_lengths, lengths_of, with_known_shapes
from pymc_dp.query.publicshapes import is_number, shape_is_public
from pymc_dp.query.rowrules import FREE, FUNCTION, MIXED, SUM, Role, op_axis, rule


class RowAnalysis:
    """Roles of the variables of a graph, given which variables are records.

    Parameters
    ----------
    records : collection of Variable
        Record variables; their leading axis is the record axis.
    n : int
        Number of records.
    variables : collection of Variable
        Random variables of the model, at which interpretation stops.
    of_data : bool, default False
        Whether the records are arrays of data, which are leaves of the graph: then no verdict may
        depend on their values.

    Attributes
    ----------
    placements : dict
        For a record variable that exists for some records only (the missing entries of a partly
        observed covariate), the index of the record behind each of its rows.
    """

    def __init__(
        self,
        records: Collection[Variable],
        n: int,
        variables: Collection[Variable],
        *,
        of_data: bool = False,
    ):
        self.records = set(records)
        self.of_data = of_data
        self.n = n
        self.variables = set(variables)
        self.roles: dict[Variable, Role] = {}
        self.sums: dict[Variable, Variable] = {}  # sum over records -> its rows (n, ...)
        self.placements: dict[Variable, tuple[int, ...]] = {}
        self.placed: dict[Variable, Placed] = {}  # sum over records -> what goes where, if that is public

    def role(self, variable: Variable) -> Role:
        """Return the role of a variable, interpreting its graph down to the random variables."""
        if variable not in self.roles:
            boundary = [*self.roles, *leaves_of([variable], self.variables)]
            for node in io_toposort(boundary, [variable]):
                roles = [self.roles.get(v) or self._leaf(v) for v in node.inputs]
                result = self._apply(node, roles)
                for out in node.outputs:
                    self.roles.setdefault(out, result)
            self.roles.setdefault(variable, self._leaf(variable))
        return self.roles[variable]

    def rows_of(self, variable: Variable) -> Variable:
        """Contributions (n, ...) whose sum over records is the linear part of a ``sum``."""
        sums = self.sums_in(variable)
        if sums == [variable]:
            return with_known_shapes([self.sums[variable]])[0]
        batched = vectorize_graph(variable, {s: self.sums[s] for s in sums})
        return with_known_shapes([batched])[0] - self.offset_of(variable)

    def offset_of(self, variable: Variable) -> Variable:
        """Return the value of a ``sum`` variable if every row contributed nothing."""
        zeros: dict[Variable, Variable] = {
            s: pt.constant(np.zeros(lengths_of(s), s.dtype)) for s in self.sums_in(variable)
        }
        return with_known_shapes(graph_replace([variable], zeros, strict=False))[0]

    def sums_in(self, variable: Variable) -> list[Variable]:
        """Return the sums over records that a variable is computed from."""
        self.role(variable)
        found: list[Variable] = []
        stack, seen = [variable], set()
        while stack:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            if v in self.sums:
                found.append(v)
            elif v.owner is not None and self.roles.get(v, FREE).kind in ("sum", "function"):
                stack.extend(v.owner.inputs)
        return found

    def counts_people(self, node: Apply) -> bool:
        """Whether a sum over the first of some slots stands beside what depends on the model's variables."""
        sums = [s for v in node.inputs if self.roles.get(v, FREE).kind == "sum" for s in self.sums_in(v)]
        others = [v for v in node.inputs if self.roles.get(v, FREE).kind == "free"]
        counted = any(counted_rows(self.sums[s]) is not None for s in sums)
        return counted and bool(leaves_of(others, self.variables))

    def _leaf(self, variable: Variable) -> Role:
        return Role("row", 0) if variable in self.records else FREE

    def _apply(self, node: Apply, roles: list[Role]) -> Role:
        if all(r.kind == "free" for r in roles):
            return FREE
        if isinstance(node.op, Shape | Shape_i) and self._is_public_shape(node.inputs[0]):
            return FREE
        if any(r.kind == "mixed" for r in roles):
            return MIXED
        if not is_placement(node) and any(map(self._is_part, node.inputs)):
            return MIXED
        kinds = {r.kind for r in roles}
        if "row" in kinds and kinds & {"sum", "function"}:
            return MIXED
        if kinds <= {"free", "sum", "function"}:
            if "function" not in kinds and rule(node.op, node, roles, self) == SUM:
                return SUM
            return FUNCTION
        found = rule(node.op, node, roles, self)
        return found if all(self._has_rows_of(found, out) for out in node.outputs) else MIXED

    def _has_rows_of(self, role: Role, out: Variable) -> bool:
        """Whether an output has as many rows as its role says: one record may be repeated over many."""
        shape = getattr(out.type, "shape", None)
        if role.kind != "row" or shape is None:  # the latter is a generator's state
            return True
        length = self.n if role.rows is None else len(role.rows)
        return role.axis is not None and role.axis < len(shape) and shape[role.axis] in (None, length)

    def length_of(self, variable: Variable) -> int | None:
        """Return the length of the first axis now; None where an input has no value."""
        lengths = known_lengths(variable)
        return None if lengths is None else lengths[0]

    def _is_part(self, variable: Variable) -> bool:
        """Whether a variable has a row for some records only, so that its own rows are no record axis."""
        if self.of_data or variable not in self.records:
            return False
        return variable.type.shape[0] not in (None, self.n)  # type: ignore[attr-defined]

    def _is_public_shape(self, shaped: Variable) -> bool:
        """Whether a shape shows no record, as the number of those that pass a test would."""
        if self.of_data:
            return shape_is_public(shaped, is_number, in_model=False)
        return shape_is_public(shaped, lambda leaf: leaf not in self.records, in_model=True)

    def add_sum(self, output: Variable, rows: Variable, role: Role) -> Role:
        """Note that ``output`` is the sum over the leading axis of ``rows``."""
        if role.rows is not None:
            full = pt.zeros((self.n, *(rows.shape[k] for k in range(1, rows.ndim))), dtype=rows.dtype)
            rows = full[np.array(role.rows)].inc(rows)
        self.sums[output] = rows
        return SUM


def rows_behind(variable: Variable, analysis: RowAnalysis) -> tuple[int, ...] | None:
    """Return the record behind each row of a child of records, None for all in order."""
    node = variable.owner
    assert node is not None
    return rule(node.op, node, [analysis.role(v) for v in node.inputs], analysis).rows


def leaves_of(graphs: Sequence[Variable], variables: Collection[Variable]) -> list[Variable]:
    """Return the model's variables behind some graphs, at which the walk stops."""
    leaves: list[Variable] = []
    stack, seen = list(graphs), set()
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        if v in variables:
            leaves.append(v)
        elif v.owner is not None:
            stack.extend(v.owner.inputs)
    return leaves


def columns_of(rows: TensorVariable, width: int) -> list[TensorVariable]:
    """Take a matrix of contributions (n, width) apart into vectors, one per statistic.

    Columns that were stacked are given back as they were: what depends on what stays visible, and
    nothing has to be written into a matrix to be summed.
    """
    if rows.ndim == 1:
        return [rows]
    node = rows.owner
    if node is not None and rows.ndim == 2:
        if isinstance(node.op, Join) and op_axis(node) % 2 == 1:
            widths = [v.type.shape[1] for v in node.inputs]
            if None not in widths:
                return [c for v, w in zip(node.inputs, widths, strict=True) for c in columns_of(v, w)]
        if isinstance(node.op, DimShuffle) and tuple(node.op.new_order) == (0, "x"):
            return [node.inputs[0]]
        if isinstance(node.op, Elemwise):
            parts = [[v[:, 0]] * width if v.type.shape[1] == 1 else columns_of(v, width) for v in node.inputs]
            return [node.op(*column) for column in zip(*parts, strict=True)]
    flat = rows.reshape((rows.shape[0], width))
    return [flat[:, j] for j in range(width)]
