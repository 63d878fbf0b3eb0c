"""Categorical records that are seen through sums alone: counted, by group, into a table of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.builders import SymbolicOp
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, walk_toposort
from pytensor.tensor.math import Sum
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.lengths import lengths_of, with_known_shapes
from pymc_dp.query.linear import NotLinear, read_linear
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import RecordBlock, Release
from pymc_dp.query.rowlocal import leaves_of

# Most cells of a table whose sums are multiplied out.
_MOST_CELLS = 2_000_000
_NOT_ALONE = "people have probabilities that do not follow from what is public of each alone"
# Without rewrites, which print errors of graphs whose lengths do not go together.
_AS_WRITTEN = Mode(linker="py", optimizer=None)
_NO_FUNCTION = "what people add is no function of their categories and groups alone"


class NotTabulated(ValueError):
    """Why records are not counted; the message goes on after 'because'."""


@dataclass(frozen=True)
class Tabulated:
    """Records as a table of counts.

    Attributes
    ----------
    record : TensorVariable
        The records, shape (n,).
    group : ndarray of int, shape (n,)
        Group of each: people in one have the same probabilities, and add the same to each sum.
    sizes : ndarray of int, shape (G,)
        How many people there are in each.
    probabilities : TensorVariable, shape (G, K)
        Of the categories, in each group.
    queries : list of (Release, Variable, dict)
        For each release, its query, and what one person adds to each sum in it, by the sum: shape (G K, ...),
        a row for each category of the first group, then of the next. It is a graph where it depends on data
        that may be set anew, and an array elsewhere.
    """

    record: TensorVariable
    group: np.ndarray
    sizes: np.ndarray
    probabilities: TensorVariable
    queries: list[tuple[Release, Variable, dict[Variable, Any]]]

    @property
    def name(self) -> str:
        """Name of the table."""
        return f"{self.record.name}_counts"

    def law(self) -> TensorVariable:
        """Return the law of the table, shape (G, K), or (K,) of a single group."""
        sizes = pt.constant(
            self.sizes.astype(np.int64)
        )  # of small integers PyTensor takes logarithms in 32 bits
        if len(self.sizes) == 1:
            return pm.Multinomial.dist(n=sizes[0], p=self.probabilities[0])
        return pm.Multinomial.dist(n=sizes, p=self.probabilities)

    def query(self, of_people: Any, added: dict[Any, Any], counts: TensorVariable) -> Any:
        """Return a query of people as one of the table."""
        cells = counts.ravel() if len(self.sizes) > 1 else counts
        # bits add up to whole numbers, which their own table of floats would not be
        sums = {total: pt.cast(_added(cells, each), total.type.dtype) for total, each in added.items()}
        return _with(of_people, sums)[0]


def can_be_counted(record: TensorVariable) -> bool:
    """Whether records are categories or bits, one for each person."""
    return isinstance(record.owner.op, CategoricalRV | BernoulliRV) and record.type.ndim == 1


def tabulated(model: Model, record: TensorVariable, block: RecordBlock) -> Tabulated:
    """Return records as a table.

    Raises
    ------
    NotTabulated
        They are seen otherwise than through sums with known coefficients.
    """
    op = record.owner.op
    if block.count is not None:
        raise NotTabulated(f"the number of people, {block.count.name}, is a variable")
    n = int(record.type.shape[0] or 0)
    if not n:
        raise NotTabulated("how many there are may change with data")
    probabilities = op.dist_params(record.owner)[0]
    if isinstance(op, BernoulliRV):
        probabilities = pt.stack([1 - probabilities, probabilities], axis=-1)
    others = set(block.records) - {record}
    if found := set(leaves_of([probabilities], set(model.basic_RVs))) & others:
        raise NotTabulated(f"its law depends on the records {named(found)}")
    k = probabilities.type.shape[-1]
    if k is None:
        raise NotTabulated("how many categories there are may change with data")
    own = [release for release in block.releases if record in ancestors([release.query])]
    for release in own:
        if found := set(leaves_of([release.query], set(block.records))) & others:
            raise NotTabulated(f"{release.name} also reads {named(found)}")
    queries = [with_known_shapes([release.query])[0] for release in own]
    sums = [_sums(query, record, release) for query, release in zip(queries, own, strict=True)]
    rows = [(total, total.owner.inputs[0]) for found in sums for total in found]
    public = _public([probabilities, *(each for _, each in rows)], n, model)
    if (anew := _set_anew([probabilities, *(each for _, each in rows)], n, model)) is not None:
        raise NotTabulated(
            f"{anew.name} has a row for each person and may be set anew: give it as an array, not as pm.Data"
        )
    group, first = _groups(public, n)
    if len(first) > max(1, n // 2) or len(first) * k > _MOST_CELLS:
        raise NotTabulated(
            f"there are {len(first)} groups of people with probabilities or sums of their own, with {k} "
            f"cells each, for {n} people"
        )
    of_groups = {v: pt.constant(v.data[first]) for v in public}
    by_group = _rows(probabilities, of_groups, len(first))
    at = {v: pt.constant(np.repeat(v.data[first], k, axis=0)) for v in public}
    at[record] = pt.constant(np.tile(np.arange(k), len(first)).astype(record.dtype))
    values = {total: _value(_clone(each, at), total, len(first) * k) for total, each in rows}
    table = Tabulated(
        record, group, np.bincount(group, minlength=len(first)), by_group,
        [
            (release, query, {total: values[total] for total in found})
            for release, query, found in zip(own, queries, sums, strict=True)
        ],
    )  # fmt: skip
    _check_rows(table, rows, n, k)
    _check_probabilities(table, probabilities, n, k)
    _check_linear(table)
    return table


def drawn_back(table: Tabulated, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return records with the counts of each draw, in uniformly random order within each group.

    Parameters
    ----------
    table : Tabulated
    counts : ndarray, shape (draws, K) or (draws, G, K)
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape (draws, n)
    """
    counts = counts.reshape(len(counts), len(table.sizes), -1)
    found = np.empty((len(counts), len(table.group)), dtype=table.record.dtype)
    # the categories of a group in order: how many of its people are below each place
    for g, ends in enumerate(np.moveaxis(counts.cumsum(axis=2), 1, 0)):
        places = np.arange(table.sizes[g])
        ordered = (places[None, :, None] >= ends[:, None, :-1]).sum(axis=2)
        found[:, table.group == g] = rng.permuted(ordered, axis=1)
    return found


def _sums(query: Variable, record: TensorVariable, release: Release) -> list[Variable]:
    """Return the sums over people in a query, which must be all that it sees of them."""
    found = [
        v
        for v in ancestors([query], blockers=[record])
        if v.owner is not None
        and isinstance(v.owner.op, Sum)
        and (v.owner.op.axis is None or 0 in v.owner.op.axis)
        and record in ancestors([v.owner.inputs[0]])
    ]
    outer = [v for v in found if not any(v in ancestors([w.owner.inputs[0]]) for w in found if w is not v)]
    left = _with(query, {v: v.type() for v in outer})
    if record in ancestors(left):
        raise NotTabulated(f"{release.name} sees people one by one, not through sums alone")
    return outer


def _public(graphs: Sequence[Variable], n: int, model: Model) -> list[Constant]:
    """Return the arrays with a row for each person, of what is public."""
    variables = set(model.basic_RVs)
    return [
        v
        for v in dict.fromkeys(ancestors(graphs, blockers=variables))
        if isinstance(v, Constant) and isinstance(v.data, np.ndarray) and v.data.ndim and len(v.data) == n
    ]


def _set_anew(graphs: Sequence[Variable], n: int, model: Model) -> Variable | None:
    """Return data with a row for each person, of which no groups follow since they may change."""
    variables = set(model.basic_RVs)
    for v in ancestors(graphs, blockers=variables):
        if isinstance(v, SharedVariable) and np.shape(v.get_value(borrow=True))[:1] == (n,):
            return v
    return None


def _groups(public: Sequence[Constant], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each person, and the first person of each group."""
    if not public:
        return np.zeros(n, dtype=np.intp), np.zeros(1, dtype=np.intp)
    columns = [np.unique(v.data.reshape(n, -1), axis=0, return_inverse=True)[1].ravel() for v in public]
    _, first, group = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return group.ravel(), first


def _clone(graph: Variable, replaced: dict[Any, Any]) -> Any:
    """Return a graph of other rows, built anew: lengths that were known are others now."""
    again, kept = dict(replaced), rvs_in_graph([graph])
    try:
        for v in walk_toposort([graph], lambda v: v.owner.inputs if v.owner and v not in kept else ()):
            node = v.owner
            if node is None or v in kept or v in again or not any(i in again for i in node.inputs):
                continue
            inputs = [again.get(i, i) for i in node.inputs]
            if isinstance(node.op, SymbolicOp):  # which holds a graph for the lengths that it was built for
                outputs = node.op(*inputs, return_list=True)
            else:
                outputs = node.clone_with_new_inputs(inputs, strict=False).outputs
            again.update(zip(node.outputs, outputs, strict=True))
    except (TypeError, ValueError) as error:
        raise NotTabulated(f"{_NO_FUNCTION} ({error})") from error
    return again.get(graph, graph)


def _with(graph: Variable, replaced: dict[Any, Any]) -> list[Any]:
    """Replace variables in a graph; with none, PyTensor would return a copy."""
    return graph_replace([graph], replaced, strict=False) if replaced else [graph]


def _rows(probabilities: TensorVariable, of_groups: dict[Any, Any], n_groups: int) -> TensorVariable:
    """Return the probabilities of each group."""
    found = _clone(probabilities, of_groups)
    if found.type.ndim == 1:
        found = found[None]
    if found.type.shape[0] not in (1, n_groups):
        raise NotTabulated("each person has probabilities of their own")
    return found


def _value(rows: Any, total: Variable, n_cells: int) -> Any:
    """Return what is added to a sum, for each cell of a row: numbers, or a graph of data set anew."""
    if rvs_in_graph([rows]):
        raise NotTabulated("a sum has coefficients that are not known numbers")
    found = _evaluated(rows)
    if found.shape[:1] != (n_cells,):
        raise NotTabulated(_NO_FUNCTION)
    axes = total.owner.op.axis
    others = tuple(a for a in (range(found.ndim) if axes is None else axes) if a != 0)
    found = found.sum(axis=others) if others else found
    if any(isinstance(v, SharedVariable) for v in ancestors([rows])):
        graph = pt.sum(rows, axis=others, dtype=str(found.dtype)) if others else rows
        return pt.specify_shape(graph, found.shape)
    return found


def _evaluated(graph: Any) -> np.ndarray:
    """Return the value of a graph of other rows, which may not go together."""
    try:
        return np.asarray(pytensor.function([], graph, mode=_AS_WRITTEN)())
    except (TypeError, ValueError, AssertionError, IndexError) as error:
        raise NotTabulated(f"{_NO_FUNCTION} ({error})") from error


def _added(cells: TensorVariable, each: Any) -> TensorVariable:
    """Return the sum over the cells of a table of what each adds, times its count."""
    if isinstance(each, Variable):
        found: Any = each
        weights = found.reshape((found.type.shape[0], -1))
        total = pt.dot(cells, pt.cast(weights, "float64") if found.type.dtype == "bool" else weights)
        return total.reshape(found.type.shape[1:])
    if each.ndim == 2 and each.shape[0] == each.shape[1] and np.array_equal(each, np.eye(len(each))):
        return pt.cast(cells, each.dtype if each.dtype.kind == "f" else "int64")
    weights = each.reshape(len(each), -1).astype(float if each.dtype.kind == "b" else each.dtype)
    total = pt.dot(cells, pt.constant(weights))
    return total[0] if each.ndim == 1 else total if each.ndim == 2 else total.reshape(each.shape[1:])


def _check_rows(table: Tabulated, rows: list[tuple[Variable, Variable]], n: int, k: int) -> None:
    """Refuse a table that gives other sums: a length may have been taken for that of people."""
    rng = np.random.default_rng(20260101)
    y = rng.integers(k, size=n)
    for total, each in rows:
        whole = _evaluated(_clone(each, {table.record: pt.constant(y.astype(table.record.dtype))}))
        axes = total.owner.op.axis
        others = tuple(a for a in (range(whole.ndim) if axes is None else axes) if a != 0)
        of_cells = next(of[total] for *_, of in table.queries if total in of)
        of_cells = _evaluated(of_cells) if isinstance(of_cells, Variable) else of_cells
        found = of_cells[table.group * k + y]
        if not np.array_equal(whole.sum(axis=others) if others else whole, found):
            raise NotTabulated(_NO_FUNCTION)


def _check_probabilities(table: Tabulated, probabilities: TensorVariable, n: int, k: int) -> None:
    """Refuse a table whose groups have other probabilities than their people.

    A row of data may count for another person (data that are shifted, turned or added up), or be one of
    categories. Probabilities are compared at numbers in place of the variables.
    """
    rng, both = np.random.default_rng(20260102), [probabilities, table.probabilities]
    reading = {
        rv: pt.constant(rng.uniform(0.2, 0.8, lengths_of(rv)).astype(rv.type.dtype))  # type: ignore[attr-defined]
        for rv in leaves_of(both, rvs_in_graph(both))
    }
    whole, by_group = (_evaluated(_with(p, reading)[0]) for p in both)
    try:
        whole = np.broadcast_to(whole, (n, k))
        found = np.broadcast_to(by_group, (len(table.sizes), k))[table.group]
    except ValueError as error:
        raise NotTabulated(_NOT_ALONE) from error
    if not np.allclose(whole, found, rtol=1e-9, atol=0, equal_nan=True):
        raise NotTabulated(_NOT_ALONE)


def _check_linear(table: Tabulated) -> None:
    """Refuse a table of which a release is no linear query, which no step for tables knows."""
    counts = table.law()
    shape = tuple(counts.type.shape)
    for release, read, added in table.queries:
        try:
            read_linear(table.query(read, added, counts), {counts: 0}, {counts: shape})
        except NotLinear as error:
            raise NotTabulated(f"{release.name} is of no linear function of sums: {error}") from error
