"""The law of what one person adds to sums, at points that are functions of the law's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import HalfCauchyRV, WeibullBetaRV
from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import (
    CauchyRV,
    InvGammaRV,
    LogNormalRV,
    ParetoRV,
    StudentTRV,
)  # fmt: skip
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.grids import Cuts, Grid, check_law, record_grid
from pymc_dp.marginals.groups import (
    NOT_OF_ROWS,
    NotTogether,
    graph_of_rows,
    groups_of,
    public_rows,
    set_anew,
    sums_over,
    values_as_written,
    with_replaced,
)
from pymc_dp.marginals.kinks import cuts_of
from pymc_dp.query.lengths import lengths_of, with_known_shapes
from pymc_dp.query.linear import NotLinear, read_linear
from pymc_dp.query.records import RecordBlock, Release, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.upstream.pymc_private import printed_name

# Points between two cuts of a number that laws of others depend on, by how many real numbers a record has.
_NODES = {0: 1, 1: 128, 2: 48, 3: 30}
_NOT_OF_ONE = (
    "what each person adds, or its law, does not follow from the person's own row alone: sums are over all "
    "people, with 0 for those who do not count, and another length may be taken for that of people"
)
# Laws that may have no variance or third moment.
_HEAVY = (CauchyRV, HalfCauchyRV, InvGammaRV, ParetoRV, StudentTRV)
# Laws whose exponentials may have no mean, beside these.
_HEAVIER_THAN_EXPONENTIAL = (LogNormalRV, WeibullBetaRV)
# How many times as many there are in the grid that they are compared with.
_FINER = 1.5


@dataclass(frozen=True)
class Points:
    """The law of what one person adds to the queries of some releases, at points; groups one after the other.

    Attributes
    ----------
    each : TensorVariable, shape (points, d)
        What a person adds to the queries, a vector of length d.
    weights : TensorVariable, shape (points,)
        Probabilities, which add up to 1 in each group.
    group, piece : ndarray of int, shape (points,)
        The public group of each point, and its piece, as in :class:`Grid`.
    rules : ndarray, shape (numbers, 3, points)
        Of each number of a record, the quadrature rule that each point belongs to: see `Grid.rules`.
    sizes : ndarray, shape (groups,)
        Numbers of people.
    constant : ndarray, shape (d,)
        What is added to the sums.
    """

    each: TensorVariable
    weights: TensorVariable
    group: np.ndarray
    piece: np.ndarray
    rules: np.ndarray
    sizes: np.ndarray
    constant: np.ndarray

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.group)

    def of_group(self, values: np.ndarray) -> np.ndarray:
        """Return the part of an array with a last axis for points that is the first group's."""
        return values[..., : self.size // len(self.sizes)]

    def by_group(self, values: TensorVariable) -> TensorVariable:
        """Return an array with a row for each point with an axis for groups, all of which have as many."""
        groups = len(self.sizes)
        return values.reshape((groups, self.size // groups, *values.type.shape[1:]))


def points_of(
    model: Model,
    block: RecordBlock,
    releases: Sequence[Release],
    nodes: int | None,
    light: bool = False,
    steep: int = 0,
) -> tuple[Points, Points | None]:
    """Return points of the law of one person, for the queries of releases of the same people.

    `light` refuses tails that `_check_tails` names. With `steep` numbers are cut around steep places, too; if
    it is k, there are 2^(k - 1) times as many points between two cuts.

    Returns
    -------
    points : Points
    finer : Points or None
        More of them; None if a record has whole numbers only, which are summed over.

    Raises
    ------
    NotTogether
        People are not independent given what is public of each, a query is more than an affine function of
        sums, or a law has no points to integrate it at.
    """
    records = _in_order(block)
    n = block.n
    for rv in records:
        check_law(rv)
        if rv.type.shape[0] != n:
            raise NotTogether("how many there are may change with data")
    queries = [with_known_shapes([release.query])[0] for release in releases]
    sums = [sums_over(query, records, release) for query, release in zip(queries, releases, strict=True)]
    totals = list(dict.fromkeys(total for found in sums for total in found))
    rows = [total.owner.inputs[0] for total in totals]
    matrix, constant = _affine(queries, totals, releases)
    # of each record's law what has a row for each person
    laws: list[Any] = [p for rv in records for p, core in _parameters(rv) if _has_rows(p, core)]
    graphs: list[Any] = [*laws, *rows]
    if (anew := set_anew(graphs, n, model)) is not None:
        raise NotTogether(
            f"{anew.name} has a row for each person and may be set anew: give it as an array, not as pm.Data"
        )
    public = public_rows(graphs, n, model)
    group, first = groups_of(public, n)
    real = [rv for rv in records if rv.type.dtype.startswith("float")]
    cuts = cuts_of(graphs, real, [rv for rv in records if rv not in real], steep > 0)
    _check_tails(real, cuts, light)
    numbers = sum(1 if rv.type.ndim == 1 else int(rv.type.shape[1] or 1) for rv in real)
    if nodes is None and numbers not in _NODES:
        raise NotTogether(f"a record has {numbers} real numbers, and more than three take too many points")

    def at_points(graph: Any, grid: Grid) -> Any:
        of_points: dict[Any, Any] = {v: pt.constant(v.data[first[grid.group]]) for v in public}
        return graph_of_rows(graph, of_points | grid.values)

    def parameters(record: TensorVariable, grid: Grid) -> list[TensorVariable]:
        return [
            _with_rows(at_points(p, grid), grid.size, record) if _has_rows(p, core) else p
            for p, core in _parameters(record)
        ]

    most = (_NODES[numbers] if nodes is None else nodes) * 2 ** max(steep - 1, 0)
    behind = set(leaves_of(laws, set(records)))
    # what nothing depends on enters sums alone, which are as smooth as they are written
    count = {rv: most if rv in behind else -(-most // 2) for rv in real}
    grid = record_grid(records, cuts, parameters, len(first), count)
    _check_rows(model, records, grid, group, [(each, at_points(each, grid)) for each in graphs])
    sizes = np.bincount(group, minlength=len(first)).astype(float)

    def found(grid: Grid) -> Points:
        entries = [
            _entries(at_points(each, grid), total, grid.size)
            for each, total in zip(rows, totals, strict=True)
        ]
        each = pt.dot(pt.concatenate(entries, axis=1), pt.constant(matrix.T))
        weights = pt.specify_shape(grid.weights, grid.size)
        return Points(each, weights, grid.group, grid.piece, grid.rules(), sizes, constant)

    if not numbers:
        return found(grid), None
    more = {rv: int(np.ceil(_FINER * k)) for rv, k in count.items()}
    return found(grid), found(record_grid(records, cuts, parameters, len(first), more))


def _in_order(block: RecordBlock) -> list[TensorVariable]:
    """Return the records of a block, each after those that its law depends on."""
    left, found = list(block.records), []
    while left:
        ready = [rv for rv in left if not set(leaves_of(parameters_of(rv), set(left))) - {rv}]
        found += ready
        left = [rv for rv in left if rv not in ready]
    return found


def _parameters(record: TensorVariable) -> list[tuple[TensorVariable, int]]:
    """Return the parameters of a record's law, and how many axes of each belong to one row."""
    op: Any = record.owner.op
    inner = record.type.ndim - 1 - op.ndim_supp
    params = (pt.as_tensor_variable(p) for p in parameters_of(record))
    return [(p, core + inner) for p, core in zip(params, op.ndims_params, strict=True)]


def _has_rows(p: TensorVariable, core: int) -> bool:
    """Whether a parameter has a row for each person."""
    return p.type.ndim > core and p.type.shape[0] != 1


def _with_rows(p: Any, rows: int, record: TensorVariable) -> TensorVariable:
    """Return a parameter whose rows are as many as points, or one."""
    if p.type.shape[0] not in (None, rows):
        raise NotTogether(f"the law of {record.name} has rows that are not those of people")
    return pt.specify_shape(p, (rows, *[None] * (p.type.ndim - 1)))


def _check_tails(real: Sequence[TensorVariable], cuts: Any, light: bool) -> None:
    """Refuse numbers of which sums may have no variance, unless all that is read of them is flat far out.

    With `light`, refuse also those whose exponentials have no mean.
    """
    for rv in real:
        if isinstance(rv.owner.op, (*_HEAVY, *_HEAVIER_THAN_EXPONENTIAL) if light else _HEAVY):
            for j in range(1 if rv.type.ndim == 1 else int(rv.type.shape[1] or 1)):
                if not all(cuts.get((rv, j), Cuts()).flat):
                    lacks = "tails too heavy for their characteristic function" if light else "no variance"
                    raise NotTogether(
                        f"sums over {rv.name} ({printed_name(rv.owner.op)}) may have {lacks}: clamp it"
                    )


def _affine(
    queries: Sequence[Variable], totals: Sequence[Variable], releases: Sequence[Release]
) -> tuple[np.ndarray, np.ndarray]:
    """Return queries as a matrix times sums over people, plus constants."""
    inputs = {total: total.type() for total in totals}
    shapes = {inputs[total]: lengths_of(total) for total in totals}
    starts = np.cumsum([0, *(int(np.prod(shapes[v])) for v in shapes)])
    places = dict(zip(shapes, starts[:-1].tolist(), strict=True))
    parts = []
    for query, release in zip(queries, releases, strict=True):
        of_sums = with_replaced(query, inputs)[0]
        data = [
            v.name
            for v in ancestors([of_sums])
            if isinstance(v, SharedVariable) and not isinstance(v.type, RandomGeneratorType)
        ]
        if data:
            raise NotTogether(f"the query of {release.name} depends on {data[0]}, which may be set anew")
        try:
            parts.append(read_linear(of_sums, places, shapes))
        except NotLinear as error:
            raise NotTogether(f"{release.name} is of no linear function of sums: {error}") from error
    matrix = np.concatenate([part.matrix.toarray() for part in parts]).astype(float)
    return matrix, np.concatenate([np.asarray(part.constant, dtype=float) for part in parts])


def _entries(each: Any, total: Variable, points: int) -> TensorVariable:
    """Return what a point adds to each entry of a sum, shape (points, entries)."""
    axes = total.owner.op.axis  # type: ignore[union-attr]
    others = tuple(a for a in (range(each.type.ndim) if axes is None else axes) if a != 0)
    added = pt.cast(each.sum(axis=others) if others else each, "float64")
    return pt.broadcast_to(added.reshape((added.shape[0], -1)), (points, int(np.prod(lengths_of(total)))))


def _check_rows(
    model: Model,
    records: Sequence[TensorVariable],
    grid: Grid,
    group: np.ndarray,
    pairs: Sequence[tuple[Any, Any]],
) -> None:
    """Refuse graphs of points that give other numbers than those of people, whose length was mistaken."""
    rng = np.random.default_rng(20260103)
    per_group = grid.size // (int(group.max()) + 1)
    at = group * per_group + rng.integers(per_group, size=len(group))
    values = [grid.values[rv] for rv in records]
    graphs = [graph for pair in pairs for graph in pair]
    found = leaves_of([*graphs, *values], rvs_in_graph([*graphs, *values]) - set(records))
    reading: dict[Any, Any] = {
        rv: pt.constant(rng.uniform(0.2, 0.8, lengths_of(rv)).astype(rv.type.dtype))  # type: ignore[attr-defined]
        for rv in found
        if rv not in records
    }
    known = values_as_written([with_replaced(v, reading)[0] for v in values], NOT_OF_ROWS)
    of_points = {v: pt.constant(x) for v, x in zip(values, known, strict=True)}
    of_people = {rv: pt.constant(x[at]) for rv, x in zip(records, known, strict=True)}
    for of_all, at_points in pairs:
        both = [
            with_replaced(of_all, of_people | reading)[0],
            with_replaced(at_points, of_points | reading)[0],
        ]
        people, points = values_as_written(both, NOT_OF_ROWS)
        expected = points[at] if points.shape[:1] == (grid.size,) and points.ndim == people.ndim else points
        if people.shape[1:] != expected.shape[1:] or len(expected) not in (1, len(people)):
            raise NotTogether(_NOT_OF_ONE)
        if not np.allclose(people, expected, rtol=1e-8, atol=1e-300, equal_nan=True):
            raise NotTogether(_NOT_OF_ONE)
