"""Categorical records that are seen through sums alone: counted, by group, into a table of the model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.groups import (
    NO_FUNCTION,
    NotTogether,
    graph_of_rows,
    groups_of,
    public_rows,
    set_anew,
    sums_over,
    values_as_written,
    with_replaced,
)  # fmt: skip
from pymc_dp.query.lengths import lengths_of, with_known_shapes
from pymc_dp.query.linear import NotLinear, read_linear
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import RecordBlock, Release
from pymc_dp.query.rowlocal import leaves_of

# Most cells of a table whose sums are multiplied out.
_MOST_CELLS = 2_000_000
_NOT_ALONE = "people have probabilities that do not follow from what is public of each alone"


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
        return with_replaced(of_people, sums)[0]


def can_be_counted(record: TensorVariable) -> bool:
    """Whether records are categories or bits, one for each person."""
    return isinstance(record.owner.op, CategoricalRV | BernoulliRV) and record.type.ndim == 1


def tabulated(model: Model, record: TensorVariable, block: RecordBlock) -> Tabulated:
    """Return records as a table.

    Raises
    ------
    NotTogether
        They are seen otherwise than through sums with known coefficients.
    """
    op = record.owner.op
    if block.count is not None:
        raise NotTogether(f"the number of people, {block.count.name}, is a variable")
    n = int(record.type.shape[0] or 0)
    if not n:
        raise NotTogether("how many there are may change with data")
    probabilities = op.dist_params(record.owner)[0]
    if isinstance(op, BernoulliRV):
        probabilities = pt.stack([1 - probabilities, probabilities], axis=-1)
    others = set(block.records) - {record}
    if found := set(leaves_of([probabilities], set(model.basic_RVs))) & others:
        raise NotTogether(f"its law depends on the records {named(found)}")
    k = probabilities.type.shape[-1]
    if k is None:
        raise NotTogether("how many categories there are may change with data")
    own = [release for release in block.releases if record in ancestors([release.query])]
    for release in own:
        if found := set(leaves_of([release.query], set(block.records))) & others:
            raise NotTogether(f"{release.name} also reads {named(found)}")
    queries = [with_known_shapes([release.query])[0] for release in own]
    sums = [sums_over(query, [record], release) for query, release in zip(queries, own, strict=True)]
    rows = [(total, total.owner.inputs[0]) for found in sums for total in found]
    public = public_rows([probabilities, *(each for _, each in rows)], n, model)
    if (anew := set_anew([probabilities, *(each for _, each in rows)], n, model)) is not None:
        raise NotTogether(
            f"{anew.name} has a row for each person and may be set anew: give it as an array, not as pm.Data"
        )
    group, first = groups_of(public, n)
    if len(first) > max(1, n // 2) or len(first) * k > _MOST_CELLS:
        raise NotTogether(
            f"there are {len(first)} groups of people with probabilities or sums of their own, with {k} "
            f"cells each, for {n} people"
        )
    of_groups = {v: pt.constant(v.data[first]) for v in public}
    by_group = _rows(probabilities, of_groups, len(first))
    at = {v: pt.constant(np.repeat(v.data[first], k, axis=0)) for v in public}
    at[record] = pt.constant(np.tile(np.arange(k), len(first)).astype(record.dtype))
    values = {total: _value(graph_of_rows(each, at), total, len(first) * k) for total, each in rows}
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


def _rows(probabilities: TensorVariable, of_groups: dict[Any, Any], n_groups: int) -> TensorVariable:
    """Return the probabilities of each group."""
    found = graph_of_rows(probabilities, of_groups)
    if found.type.ndim == 1:
        found = found[None]
    if found.type.shape[0] not in (1, n_groups):
        raise NotTogether("each person has probabilities of their own")
    return found


def _value(rows: Any, total: Variable, n_cells: int) -> Any:
    """Return what is added to a sum, for each cell of a row: numbers, or a graph of data set anew."""
    if rvs_in_graph([rows]):
        raise NotTogether("a sum has coefficients that are not known numbers")
    (found,) = values_as_written([rows], NO_FUNCTION)
    if found.shape[:1] != (n_cells,):
        raise NotTogether(NO_FUNCTION)
    axes = total.owner.op.axis
    others = tuple(a for a in (range(found.ndim) if axes is None else axes) if a != 0)
    found = found.sum(axis=others) if others else found
    if any(isinstance(v, SharedVariable) for v in ancestors([rows])):
        graph = pt.sum(rows, axis=others, dtype=str(found.dtype)) if others else rows
        return pt.specify_shape(graph, found.shape)
    return found


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
        of_all = graph_of_rows(each, {table.record: pt.constant(y.astype(table.record.dtype))})
        (whole,) = values_as_written([of_all], NO_FUNCTION)
        axes = total.owner.op.axis
        others = tuple(a for a in (range(whole.ndim) if axes is None else axes) if a != 0)
        of_cells = next(of[total] for *_, of in table.queries if total in of)
        if isinstance(of_cells, Variable):
            (of_cells,) = values_as_written([of_cells], NO_FUNCTION)
        found = of_cells[table.group * k + y]
        if not np.array_equal(whole.sum(axis=others) if others else whole, found):
            raise NotTogether(NO_FUNCTION)


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
    whole, by_group = values_as_written([with_replaced(p, reading)[0] for p in both], NO_FUNCTION)
    try:
        whole = np.broadcast_to(whole, (n, k))
        found = np.broadcast_to(by_group, (len(table.sizes), k))[table.group]
    except ValueError as error:
        raise NotTogether(_NOT_ALONE) from error
    if not np.allclose(whole, found, rtol=1e-9, atol=0, equal_nan=True):
        raise NotTogether(_NOT_ALONE)


def _check_linear(table: Tabulated) -> None:
    """Refuse a table of which a release is no linear query, which no step for tables knows."""
    counts = table.law()
    shape = tuple(counts.type.shape)
    for release, read, added in table.queries:
        try:
            read_linear(table.query(read, added, counts), {counts: 0}, {counts: shape})
        except NotLinear as error:
            raise NotTogether(f"{release.name} is of no linear function of sums: {error}") from error
