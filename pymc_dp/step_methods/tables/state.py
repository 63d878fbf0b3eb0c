"""What the kernel of tables works on, by name."""

from typing import NamedTuple

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.native import HANDLE, MATRIX, VECTOR

type Vector = np.ndarray
type Matrix = np.ndarray
type Integers = np.ndarray

INTEGERS = types.Array(types.int32, 1, "C")


# Columns of a cell, after the numbers in its density: its count, what it adds to the log density of the
# counts, an inverse variance of its count, which law it has.
COUNT, LAW, CELL_PRECISION, LAW_OF, CELL_COLUMNS = range(5)
# Columns of an entry of a query, likewise: its value, the log density of its release there, an inverse
# variance of the noise, which release it is of; room for its change along a direction, and whether a
# direction touches it.
TOTAL, NOISE, ROW_PRECISION, NOISE_OF, CHANGE, TOUCHED, ROW_COLUMNS = range(7)


# Numbers of 8 bytes that a processor reads from memory together.
LINE = 8


def in_lines(n: int, width: int) -> Matrix:
    """Return zeros (n, width), the rows of which begin with a line of memory where their width allows it."""
    room = np.zeros(n * width + LINE)
    begin = -room.ctypes.data % (8 * LINE) // 8
    return room[begin : begin + n * width].reshape(n, width)


class Table(NamedTuple):
    """Where a chain stands, and what a move reads; what belongs together stands together in memory.

    Attributes
    ----------
    cells
        A row for each cell: the numbers in the density of its count, and the columns above.
    rows
        A row for each entry of the releases' queries, likewise; then one for each that is known exactly.
    n_releases
        How many of these are entries of releases: one number.
    begins, at, weights
        What each cell adds to queries, as in a sparse matrix by columns: those of cell k are from
        ``begins[k]`` to ``begins[k + 1]``. `weights` is one number where all are the same.
    constant
        What is added to the entries of releases.
    touched
        Room for the rows that a direction touches.
    """

    cells: Matrix
    rows: Matrix
    n_releases: Integers
    begins: Integers
    at: Integers
    weights: Vector
    constant: Vector
    touched: Integers


class Directions(NamedTuple):
    """Where cells may move to; which direction is tried never depends on the counts.

    Attributes
    ----------
    shares
        Cumulative probabilities of the kinds, zeros where nothing can move: one cell; two cells of a group;
        four corners of a rectangle; a combination of basis vectors.
    singles
        Cells that nothing known exactly holds.
    members
        A cell and a group that it is in, one pair of numbers after the other.
    group_begins, group_cells
        The cells of each group.
    corners
        Tables with two axes or more, one after the other: first cell, number of axes, lengths and strides.
    corner_begins
        Where each of these begins in `corners`.
    set_begins
        Where each set of basis vectors begins: what keeps all that is known exactly, and sums as well.
    basis_begins, basis_classes, basis_steps
        Integer vectors over classes of cells, as sparse rows.
    class_begins, class_cells
        The cells of each class: those that count alike in what a set keeps.
    by_class
        Room for a combination of them, zero between moves.
    moved, steps
        Room for a direction.
    kinds, places, sizes, ahead, ahead_steps
        Room for directions that are chosen in a row: of what kind each is, where in a list it is looked up,
        how many cells it moves, which, and how far.
    reach
        Logarithm of the length of moves of each kind, in units of what the precisions expect.
    tally
        Moves of each kind: tried, and made.
    """

    shares: Vector
    singles: Integers
    members: Integers
    group_begins: Integers
    group_cells: Integers
    corners: Integers
    corner_begins: Integers
    set_begins: Integers
    basis_begins: Integers
    basis_classes: Integers
    basis_steps: Vector
    class_begins: Integers
    class_cells: Integers
    by_class: Vector
    moved: Integers
    steps: Vector
    kinds: Integers
    places: Integers
    sizes: Integers
    ahead: Integers
    ahead_steps: Vector
    reach: Vector
    tally: Matrix


_KINDS = {Vector: VECTOR, Matrix: MATRIX, Integers: INTEGERS}


def _type(structure: type) -> types.NamedTuple:
    return types.NamedTuple([_KINDS[kind] for kind in structure.__annotations__.values()], structure)


TABLE, DIRECTIONS = map(_type, (Table, Directions))
SWEEP = types.void(HANDLE, types.int64, types.boolean, TABLE, DIRECTIONS)
REFRESH = types.void(TABLE)
