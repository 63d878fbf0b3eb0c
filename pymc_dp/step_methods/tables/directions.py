"""Directions in which a table may move, from its queries and from what is known exactly.

One cell alone, where nothing holds it; two cells of one group, whose common sums stay: a group is all cells
that count alike in one entry of a query, so that a precise sum at one level does not slow the cells below it;
rectangles, which keep all margins that a table of several axes has; and combinations of a basis of all
integer directions that keep what is known exactly, where the others do not reach all tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from pymc_dp.query.tables import SHARED_TOTAL, Tables
from pymc_dp.step_methods.tables.lattice import classes_of_columns, integer_kernel
from pymc_dp.step_methods.tables.proposals import AHEAD, MOST
from pymc_dp.step_methods.tables.state import Directions

# Weights of the kinds of moves, where there are such.
_WEIGHTS = (1.0, 1.0, 0.5, 1.0)
# Most classes of cells of which a basis is worked out.
_MOST_CLASSES = 300
# Most cells of a table in which a basis of what keeps all published sums is worked out.
_MOST_FOR_SUMS = 150


class Held:
    """What is known exactly of a table, and which cells count alike in it.

    Parameters
    ----------
    tables : Tables
    totals : dict
        From a variable with a known sum (a multinomial one) to these sums, one for each row of its last axis.
    values : dict
        From an invariant to its numbers.

    Attributes
    ----------
    matrix, target
        ``matrix @ counts == target``.
    names : list of str
        What each row comes from.
    cells : Classes
        The cells by what they count in it.
    """

    def __init__(self, tables: Tables, totals: dict[str, np.ndarray], values: dict[str, np.ndarray]):
        parts, targets, self.names = [], [], list[str]()
        for rv, shape, first in zip(tables.variables, tables.shapes, tables.first, strict=True):
            if isinstance(rv.owner.op, SHARED_TOTAL):  # type: ignore[union-attr]
                n_rows, width = int(np.prod(shape[:-1])), shape[-1]
                rows = np.repeat(np.arange(n_rows), width)
                cells = first + np.arange(n_rows * width)
                ones = np.ones(rows.size)
                parts.append(sparse.csr_array((ones, (rows, cells)), shape=(n_rows, tables.n_cells)))
                targets.append(np.broadcast_to(totals[str(rv.name)], shape[:-1]).ravel())
                self.names += [f"the sum of {rv.name}"] * n_rows
        for known in tables.invariants:
            parts.append(known.linear.matrix)
            targets.append(values[known.name].ravel() - known.linear.constant)
            self.names += [known.name] * known.linear.constant.size
        empty = sparse.csr_array((0, tables.n_cells))
        self.matrix = sparse.csr_array(sparse.vstack(parts)) if parts else empty
        self.target = np.concatenate(targets).astype(float) if targets else np.zeros(0)
        if np.any(self.matrix.data % 1):
            name = self.names[int(np.flatnonzero(np.diff(self.matrix.indptr))[0])]
            raise ValueError(
                f"{name} has coefficients that are not whole: an invariant is a count, or a sum of counts."
            )
        self.cells = Classes(self.matrix)


class Classes:
    """Cells of a table by what they count in some rows: those that count alike are of one class.

    Parameters
    ----------
    matrix : scipy.sparse.csr_array, shape (rows, cells)

    Attributes
    ----------
    of : ndarray of int
        The class of each cell; -1 for cells that are in no row.
    n : int
    columns : scipy.sparse.csc_array, shape (rows, n)
        What a cell of each class counts in each row.
    """

    def __init__(self, matrix: sparse.csr_array):
        self.of = classes_of_columns(matrix)
        self.n = int(self.of.max(initial=-1)) + 1
        representative = np.zeros(self.n, dtype=np.int64)
        representative[self.of[self.of >= 0]] = np.flatnonzero(self.of >= 0)
        self.columns = sparse.csc_array(matrix)[:, representative]

    def basis(self, most: int, among: np.ndarray | None = None) -> np.ndarray:
        """Return integer vectors over classes, zero but for some, that keep all rows.

        There are none if sums of classes stay.

        Raises
        ------
        TooManyClasses
            If there are more than `most` classes.
        """
        among = np.arange(self.n) if among is None else among
        columns = self.columns[:, among]
        rank = int(np.linalg.matrix_rank((columns @ columns.T).toarray())) if among.size else 0
        if rank == among.size:
            return np.zeros((0, self.n), dtype=np.int64)
        if among.size > most:
            raise TooManyClasses(among.size - rank)
        kernel = integer_kernel(columns.toarray().astype(np.int64))
        found = np.zeros((len(kernel), self.n), dtype=np.int64)
        found[:, among] = kernel
        return found

    def members(self) -> list[np.ndarray]:
        """Return the cells of each class."""
        order = np.argsort(self.of, kind="stable")
        return np.split(order, np.searchsorted(self.of[order], np.arange(self.n + 1)))[1:-1] if self.n else []


class TooManyClasses(Exception):
    """Too many classes of cells for a basis; holds the dimension of the lattice."""


def find_directions(tables: Tables, held: Held, empty: np.ndarray) -> Directions:
    """Return the directions of a table.

    Parameters
    ----------
    tables : Tables
    held : Held
    empty : ndarray of bool
        Cells that are 0 by their law. A basis of the others is added: combinations that leave these at 0
        would hardly ever come otherwise.

    Raises
    ------
    ValueError
        If what is known exactly is too much for a basis, and rectangles do not reach all tables.
    """
    groups = _groups(tables, held)
    group_begins, group_cells = _lists(groups)
    members = np.stack([group_cells, np.repeat(np.arange(len(groups)), np.diff(group_begins))], axis=1)
    corner_begins, corners = _corners(tables)
    sets = [(held.cells, _reaching_all(tables, held, corner_begins, empty)), _keeping_sums(tables, held)]
    sets = [(classes, basis) for classes, basis in sets if basis.size]
    n_classes = sum(classes.n for classes, _ in sets)
    parts = [sparse.csr_array(basis) for _, basis in sets] or [sparse.csr_array((0, 0))]
    in_basis = sparse.csr_array(sparse.block_diag(parts))
    class_begins, class_cells = _lists([cells for classes, _ in sets for cells in classes.members()])
    singles = np.flatnonzero(held.cells.of < 0)
    available = (singles.size, group_cells.size, corner_begins.size, in_basis.shape[0])
    weights = np.array([w if n else 0.0 for w, n in zip(_WEIGHTS, available, strict=True)])
    shares = np.cumsum(weights) / (weights.sum() or 1.0)
    room = max(4, class_cells.size)
    return Directions(
        shares=shares,
        singles=singles.astype(np.int32),
        members=members.ravel().astype(np.int32),
        group_begins=group_begins,
        group_cells=group_cells,
        corners=corners,
        corner_begins=corner_begins,
        set_begins=np.cumsum([0, *(len(basis) for _, basis in sets)]).astype(np.int32),
        basis_begins=in_basis.indptr.astype(np.int32),
        basis_classes=in_basis.indices.astype(np.int32),
        basis_steps=in_basis.data.astype(float),
        class_begins=class_begins,
        class_cells=class_cells,
        by_class=np.zeros(n_classes),
        moved=np.zeros(room, dtype=np.int32),
        steps=np.zeros(room),
        kinds=np.zeros(AHEAD, dtype=np.int32),
        places=np.zeros(AHEAD, dtype=np.int32),
        sizes=np.zeros(AHEAD, dtype=np.int32),
        ahead=np.zeros(MOST * AHEAD, dtype=np.int32),
        ahead_steps=np.zeros(MOST * AHEAD),
        reach=np.full(4, 0.5),
        tally=np.zeros((4, 2)),
    )


def _reaching_all(tables: Tables, held: Held, corner_begins: np.ndarray, empty: np.ndarray) -> np.ndarray:
    """Return a basis of all that keeps what is known exactly, or none where rectangles reach all tables."""
    classes = held.cells
    able = np.unique(classes.of[~empty & (classes.of >= 0)])
    fewer = able.size < classes.n
    basis = np.zeros((0, classes.n), dtype=np.int64)
    try:
        basis = classes.basis(_MOST_CLASSES, able)
        if fewer:
            basis = np.concatenate([basis, classes.basis(_MOST_CLASSES)])
    except TooManyClasses as error:
        many = able.size > _MOST_CLASSES
        if many and (fewer or not _rectangles_reach_all(tables, held, corner_begins, int(error.args[0]))):
            names, known = ", ".join(tables.names), ", ".join(dict.fromkeys(held.names))
            raise ValueError(
                f"What is known exactly of {names} ({known}) tells {able.size} classes of cells apart, "
                "and no moves are known that reach all tables. Totals and margins of up to "
                f"{_MOST_CLASSES} cells can be combined at will, totals of disjoint parts and both margins "
                "of a table of two axes without cells that are 0 by their law at any size."
            ) from None
    return basis


def _keeping_sums(tables: Tables, held: Held) -> tuple[Classes, np.ndarray]:
    """Return a basis of what keeps all published sums of cells as well, in tables of few cells.

    Precise sums of any kind then do not slow the cells, as rectangles do it for margins of an array.
    """
    parts = [held.matrix]
    for known in tables.releases:
        rows = known.linear.matrix
        parts.append(rows[np.flatnonzero(np.diff(rows.indptr) > 1)])
    matrix = sparse.csr_array(sparse.vstack(parts))
    if matrix.shape[1] > _MOST_FOR_SUMS or np.any(matrix.data % 1):
        return held.cells, np.zeros((0, 0), dtype=np.int64)
    classes = Classes(matrix)
    return classes, classes.basis(_MOST_FOR_SUMS)


def entries_of(tables: Tables, held: Held, sums: Sequence[sparse.csr_array]) -> dict[str, np.ndarray]:
    """Return what each cell adds to queries, to other sums and to what is known exactly, for the state."""
    parts = [*(k.linear.matrix for k in tables.releases), *sums]
    columns = sparse.csc_array(sparse.vstack([*parts, held.matrix]))
    columns.sort_indices()
    weights = columns.data.astype(float)
    return {
        "n_releases": np.array([columns.shape[0] - held.target.size], dtype=np.int32),
        "begins": columns.indptr.astype(np.int32),
        "at": columns.indices.astype(np.int32),
        "weights": weights[:1] if weights.size and (weights == weights[0]).all() else weights,
        "constant": np.concatenate(
            [*(k.linear.constant for k in tables.releases), np.zeros(sum(part.shape[0] for part in sums))]
        ),
        "touched": np.zeros(columns.shape[0], dtype=np.int32),
    }


def _groups(tables: Tables, held: Held) -> list[np.ndarray]:
    """Return cells that count alike in what is known exactly, and in one entry of a query each."""
    classes = held.cells.of
    order = np.argsort(classes, kind="stable")
    found = np.split(order, np.flatnonzero(np.diff(classes[order])) + 1)
    for known in tables.releases:
        matrix = known.linear.matrix.tocoo()
        order = np.lexsort((matrix.data, classes[matrix.col], matrix.row))
        row, cells, weight = matrix.row[order], matrix.col[order], matrix.data[order]
        changed = (np.diff(row) != 0) | (np.diff(weight) != 0) | (np.diff(classes[cells]) != 0)
        found += np.split(cells, np.flatnonzero(changed) + 1)
    return [np.asarray(g, dtype=np.int32) for g in found if len(g) > 1]


def _corners(tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """Return the tables with two axes or more."""
    begins, corners = [], list[int]()
    for shape, first in zip(tables.shapes, tables.first, strict=True):
        strides = [int(np.prod(shape[a + 1 :])) for a in range(len(shape))]
        axes = [(n, s) for n, s in zip(shape, strides, strict=True) if n > 1]
        if len(axes) > 1:
            begins.append(len(corners))
            corners += [first, len(axes), *(n for n, _ in axes), *(s for _, s in axes)]
    return np.array(begins, dtype=np.int32), np.array(corners, dtype=np.int32)


def _rectangles_reach_all(tables: Tables, held: Held, corner_begins: np.ndarray, dimension: int) -> bool:
    """Whether both margins of one table of two axes, without an upper end, are all that is known exactly."""
    if len(tables.variables) > 1 or corner_begins.size != 1 or len(tables.shapes[0]) != 2:
        return False
    n, m = tables.shapes[0]
    return dimension == (n - 1) * (m - 1) and not (held.matrix.data != 1).any()


def _lists(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    begins = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int32)
    return begins, np.concatenate([*parts, np.zeros(0, dtype=np.int32)]).astype(np.int32)
