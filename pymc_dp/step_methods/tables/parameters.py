"""Parameters behind a table whose law given the counts is known: which they are, and draws of them.

They enter nothing but the law of these counts, and each cell reads one entry of them, or a known multiple of
it. What a cell reads is told by the graph, read as a linear map (:mod:`pymc_dp.query.linear`). Whatever does
not fit is left to other steps, which is exact as well.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_dp.lowering.addresses.modes import default_mode
from pymc_dp.query.linear import Linear, NotLinear, read_linear
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.tables import Tables
from pymc_dp.step_methods.tables.families import FAMILIES, Family


@dataclass(frozen=True)
class Behind:
    """Parameters of one family behind the counts of a table, as one line of entries.

    Attributes
    ----------
    family : Family
    parameters : list of TensorVariable
    shapes : list of tuple of int
    counts, shapes_of_counts : list
        Count variables whose laws they are in.
    cells : list of ndarray of int
        For each of these, where its cells are in the table.
    entries : list of ndarray of int
        The entry that each of its cells reads, -1 where that is multiplied by zero.
    factors : list of ndarray
        What it is multiplied by.
    """

    family: Family
    parameters: list[TensorVariable]
    shapes: list[tuple[int, ...]]
    counts: list[TensorVariable]
    shapes_of_counts: list[tuple[int, ...]]
    cells: list[np.ndarray]
    entries: list[np.ndarray]
    factors: list[np.ndarray]

    @cached_property
    def n_entries(self) -> int:
        """How many entries there are."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    @cached_property
    def readers(self) -> np.ndarray:
        """How many cells read each entry."""
        read = np.concatenate(self.entries)
        return np.bincount(read[read >= 0], minlength=self.n_entries)

    @property
    def shared(self) -> np.ndarray:
        """Entries that several cells read."""
        return np.flatnonzero(self.readers > 1)

    def settings(self) -> list[TensorVariable]:
        """Return the two parameters of the law of each entry."""
        pairs = [self.family.settings(rv) for rv in self.parameters]
        return [
            pt.concatenate(
                [
                    pt.cast(pt.broadcast_to(v, shape), "float64").ravel()
                    for v, shape in zip(of, self.shapes, strict=True)
                ]
            )
            for of in zip(*pairs, strict=True)
        ]

    def exposures(self) -> list[Any]:
        """Return what each cell of each count variable is exposed to."""
        parts = zip(self.counts, self.shapes_of_counts, self.factors, strict=True)
        return [self.family.exposure(rv, shape, factors) for rv, shape, factors in parts]

    def exposed(self) -> TensorVariable:
        """Return what each entry is exposed to in all."""
        read, whole = np.concatenate(self.entries), pt.concatenate(self.exposures())
        return pt.zeros(self.n_entries)[read[read >= 0]].inc(whole[np.flatnonzero(read >= 0)])

    def law(self, counts: TensorVariable, x: TensorVariable) -> TensorVariable:
        """Return what each cell of a variable adds to the log density of the table.

        Beside what cells that share an entry add through their sum.
        """
        k = self.counts.index(counts)
        entries, exposure = self.entries[k], self.exposures()[k]
        law = self.family.cell(x, exposure)
        own = (entries >= 0) & (self.readers[entries] == 1)
        if not own.any():
            return law
        first, second = (v[np.maximum(entries, 0)] for v in self.settings())
        alone = self.family.entry(x, exposure, first, second)
        return law + (alone if own.all() else pt.switch(pt.constant(own), alone, 0.0))

    def of_sums(self, s: TensorVariable) -> TensorVariable:
        """Return what cells that share an entry add through their sum."""
        first, second, exposed = (v[self.shared] for v in (*self.settings(), self.exposed()))
        return self.family.entry(s, exposed, first, second)

    def in_shared(self, n_cells: int) -> sparse.csr_array:
        """Return which of the cells of a table read each entry that several read."""
        read, cells = np.concatenate(self.entries), np.concatenate(self.cells)
        known = read >= 0
        places = (np.ones(int(known.sum())), (read[known], cells[known]))
        return sparse.csr_array(places, shape=(self.n_entries, n_cells))[self.shared]

    def sums(self, counts: np.ndarray) -> np.ndarray:
        """Add up the cells of a table that read each entry."""
        read, cells = np.concatenate(self.entries), np.concatenate(self.cells)
        known = read >= 0
        return np.bincount(read[known], weights=counts[cells[known]], minlength=self.n_entries)


class Draws:
    """Exact draws of parameters given a table of counts.

    Parameters
    ----------
    model : pymc.Model
        With known lengths.
    behind : Behind
    """

    def __init__(self, model: Model, behind: Behind):
        self._behind = behind
        values = [model.rvs_to_values[rv] for rv in behind.parameters]
        self._values = [(str(v.name), str(v.type.dtype)) for v in values]
        self._transformed = [model.rvs_to_transforms.get(rv) is not None for rv in behind.parameters]
        graphs = model.replace_rvs_by_values([*behind.settings(), behind.exposed()])
        inside = set(ancestors(graphs))
        self._inputs = [v for v in model.value_vars if v in inside]
        self._function = pytensor.function(
            self._inputs, graphs, mode=default_mode(), on_unused_input="ignore"
        )

    @property
    def names(self) -> list[str]:
        """Names of the values that are drawn."""
        return [name for name, _ in self._values]

    def at(
        self, point: dict[str, np.ndarray], counts: np.ndarray, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Draw the parameters given all counts of the table, in one line, and what their laws depend on."""
        behind = self._behind
        first, second, exposed = self._function(*(point[str(v.name)] for v in self._inputs))
        drawn = behind.family.draw(rng, behind.sums(counts), exposed, first, second)
        found, begin = {}, 0
        for (name, dtype), shape, transformed in zip(
            self._values, behind.shapes, self._transformed, strict=True
        ):
            end = begin + int(np.prod(shape))
            value = behind.family.value(drawn[begin:end].reshape(shape), transformed)
            found[name] = np.asarray(value, dtype=dtype)
            begin = end
        return found


def find_parameters(model: Model, tables: Tables, among: Collection[Variable] | None = None) -> list[Behind]:
    """Find the parameters behind a table whose law given the counts is known.

    Parameters
    ----------
    model : pymc.Model
    tables : Tables
    among : collection of random variables, optional
        Those that may be taken; all if left out.

    Returns
    -------
    list of Behind
        One for each family.
    """
    found = [_of_family(model, tables, family, among) for family in FAMILIES]
    return [behind for behind in found if behind is not None]


def _of_family(
    model: Model, tables: Tables, family: Family, among: Collection[Variable] | None
) -> Behind | None:
    variables = set(model.basic_RVs)
    counts = [rv for rv in tables.variables if isinstance(rv.owner.op, family.counts)]  # type: ignore[union-attr]
    behind = {rv: set(leaves_of([_read(rv, family)], variables)) for rv in counts}
    able = {
        rv
        for rv in model.free_RVs
        if isinstance(rv.owner.op, family.laws)
        and (among is None or rv in among)
        and isinstance(model.rvs_to_transforms.get(rv), family.transform | None)
        and _enters_only(model, rv, counts, family)
    }
    shapes = {rv: tuple(map(int, model.eval_rv_shapes()[str(rv.name)])) for rv in able}
    known: dict[Variable, Linear] = {}
    while True:
        refused = {rv for rv in counts if behind[rv] & able and not behind[rv] <= able}
        for rv in counts:
            if behind[rv] and behind[rv] <= able and rv not in known:
                of = {v: shapes[v] for v in sorted(behind[rv], key=model.free_RVs.index)}
                linear = _linear(rv, tables, family, of)
                if linear is None:
                    refused.add(rv)
                else:
                    known[rv] = linear
        if not refused:
            break
        able -= set().union(*(behind[rv] for rv in refused))
    read = [rv for rv in counts if behind[rv] & able]
    if not read:
        return None
    parameters = [rv for rv in model.free_RVs if rv in able and any(rv in behind[v] for v in read)]
    first = np.cumsum([0, *(int(np.prod(shapes[rv])) for rv in parameters)])
    cells, entries, factors = [], [], []
    for rv in read:
        begin = tables.first[tables.variables.index(rv)]
        linear = known[rv]
        own = [v for v in parameters if v in behind[rv]]
        places = np.concatenate(
            [first[parameters.index(v)] + np.arange(int(np.prod(shapes[v]))) for v in own]
        )
        cells.append(begin + np.arange(linear.constant.size))
        entries.append(np.full(linear.constant.size, -1))
        factors.append(np.zeros(linear.constant.size))
        matrix = linear.matrix.tocoo()
        entries[-1][matrix.row], factors[-1][matrix.row] = places[matrix.col], matrix.data
    of_counts = [tables.shapes[tables.variables.index(rv)] for rv in read]
    return Behind(
        family, parameters, [shapes[rv] for rv in parameters], read, of_counts, cells, entries, factors
    )


def _read(counts: Any, family: Family) -> Variable:
    return counts.owner.op.dist_params(counts.owner)[family.position]


def _enters_only(model: Model, rv: Variable, counts: Sequence[Any], family: Family) -> bool:
    """Whether a variable is behind nothing but what some counts read of it."""
    variables = set(model.basic_RVs)
    if any(rv in leaves_of([p], variables) for p in model.potentials):
        return False
    for other in model.basic_RVs:
        node: Any = other.owner
        read = _read(other, family) if other in counts else None
        inputs = [v for v in node.inputs if hasattr(v.type, "ndim") and v is not read]
        if rv in leaves_of(inputs, variables):
            return False
    return True


def _linear(
    counts: Any, tables: Tables, family: Family, of: dict[Variable, tuple[int, ...]]
) -> Linear | None:
    """Return what the cells of a variable read of some parameters; None where it is not one entry each."""
    shape = tables.shapes[tables.variables.index(counts)]
    first = np.cumsum([0, *(int(np.prod(s)) for s in of.values())])
    try:
        linear = read_linear(_read(counts, family), dict(zip(of, map(int, first), strict=False)), of)
    except NotLinear:
        return None
    linear = linear.broadcast(shape)
    matrix = linear.matrix
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    read = np.diff(matrix.indptr)
    if linear.constant.any() or (read > 1).any() or not np.isfinite(matrix.data).all():
        return None
    if family.has_factors:
        return linear if (matrix.data > 0).all() else None
    if (read != 1).any() or (matrix.data != 1).any():
        return None
    if family.in_rows and not _whole_rows(matrix.indices, shape, of):
        return None
    return linear


def _whole_rows(entries: np.ndarray, shape: tuple[int, ...], of: dict[Variable, tuple[int, ...]]) -> bool:
    """Whether each row of multinomial counts reads each probability of one row once."""
    lengths = np.concatenate([np.full(int(np.prod(s[:-1])), s[-1]) for s in of.values()])
    row_of = np.repeat(np.arange(lengths.size), lengths)
    rows = entries.reshape(-1, shape[-1])
    same = (row_of[rows] == row_of[rows[:, :1]]).all()
    once = (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()
    return bool(same and once and (lengths[row_of[rows[:, 0]]] == shape[-1]).all())
