"""Categorical records that are seen through sums alone: counted, by group, into a table of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Sum
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.lengths import with_known_shapes
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import RecordBlock, Release
from pymc_dp.query.rowlocal import leaves_of

# Most cells of a table whose sums are multiplied out.
_MOST_CELLS = 2_000_000


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
        a row for each category of the first group, then of the next.
    """

    record: TensorVariable
    group: np.ndarray
    sizes: np.ndarray
    probabilities: TensorVariable
    queries: list[tuple[Release, Variable, dict[Variable, np.ndarray]]]

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

    def query(self, of_people: Any, added: dict[Any, np.ndarray], counts: TensorVariable) -> Any:
        """Return a query of people as one of the table."""
        cells = counts.ravel() if len(self.sizes) > 1 else counts
        return _with(of_people, {total: _added(cells, each) for total, each in added.items()})[0]


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
    values = {total: _value(_clone(each, at), total) for total, each in rows}
    table = Tabulated(
        record, group, np.bincount(group, minlength=len(first)), by_group,
        [
            (release, query, {total: values[total] for total in found})
            for release, query, found in zip(own, queries, sums, strict=True)
        ],
    )  # fmt: skip
    _check_rows(table, rows, n, k)
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


def _groups(public: Sequence[Constant], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each person, and the first person of each group."""
    if not public:
        return np.zeros(n, dtype=np.intp), np.zeros(1, dtype=np.intp)
    columns = [np.unique(v.data.reshape(n, -1), axis=0, return_inverse=True)[1].ravel() for v in public]
    _, first, group = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return group.ravel(), first


def _clone(graph: Variable, replaced: dict[Any, Any]) -> Any:
    """Return a graph of other rows, built anew: lengths that were known are others now."""
    found = rvs_in_graph([graph])
    nearest = [v for v in ancestors([graph], blockers=found) if v in found and v not in replaced]
    held = {rv: rv.type() for rv in nearest}  # or they would be copied too
    try:
        (other,) = clone_replace(_with(graph, held), replaced, rebuild_strict=False)
    except (TypeError, ValueError) as error:
        why = f"what people add is no function of their categories and groups alone ({error})"
        raise NotTabulated(why) from error
    return _with(other, {own: rv for rv, own in held.items()})[0]


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


def _value(rows: Any, total: Variable) -> np.ndarray:
    """Return what is added to a sum, for each cell of a row."""
    if rvs_in_graph([rows]):
        raise NotTabulated("a sum has coefficients that are not known numbers")
    found = np.asarray(rows.eval())
    axes = total.owner.op.axis
    others = tuple(a for a in (range(found.ndim) if axes is None else axes) if a != 0)
    return found.sum(axis=others) if others else found


def _added(cells: TensorVariable, each: np.ndarray) -> TensorVariable:
    """Return the sum over the cells of a table of what each adds, times its count."""
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
        whole = np.asarray(_clone(each, {table.record: pt.constant(y.astype(table.record.dtype))}).eval())
        axes = total.owner.op.axis
        others = tuple(a for a in (range(whole.ndim) if axes is None else axes) if a != 0)
        found = next(of[total] for *_, of in table.queries if total in of)[table.group * k + y]
        if not np.array_equal(whole.sum(axis=others) if others else whole, found):
            raise NotTabulated("what people add is no function of their categories and groups alone")
