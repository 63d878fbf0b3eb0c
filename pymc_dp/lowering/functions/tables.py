"""Tables that live outside of a compiled function's arguments: look-up, draw, and their memory.

The density of a release can depend on its record only through the cell that the record falls in. A table
row per distinct release then replaces the density, however long the release is. Tables are far larger than
what a sweep reads of them, so they are not passed as arrays (a sweep copies what it is passed) but by the
*address* of a small header, a float64 like any other number of a model.
"""

from typing import Any

import numpy as np
import pytensor.scalar as ps
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.lowering.compiling.keys import key_of
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random
from pymc_dp.upstream.numba_private import cgutils
from pymc_dp.upstream.pytensor_private import compile_numba_function_src, register_funcify_and_cache_key

# Header: numbers of cells and of rows, address of the log densities, 1 if they are float64 (else float32),
# address of their exponentials, address of the slots, bytes per slot, lowest edge, cells per unit, the edges.
N_CELLS, N_ROWS, LOG_ADDRESS, IS_WIDE, EXP_ADDRESS = range(5)
SLOT_ADDRESS, SLOT_BYTES, LOWEST, PER_UNIT, EDGES = range(5, 10)
# Slots per row: the proposal's probabilities are multiples of 1/64, and a row of slots is a cache line.
N_SLOTS = 64
# Share of draws from any cell alike, so that a record in a cell without a slot is not stuck there.
_ANYWHERE = 1 / 16
# Spread of draws beyond the edges, as a part of the distance between them.
TAIL = 0.125


def _loader(llvm_type: Any, numba_type: Any) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], llvm_type(context).as_pointer())
            return builder.load(builder.gep(pointer, [args[1]]))

        return numba_type(types.int64, types.int64), codegen

    return load


_load_float64 = _loader(lambda c: c.get_value_type(types.float64), types.float64)
_load_float32 = _loader(lambda c: c.get_value_type(types.float32), types.float32)
_load_uint8 = _loader(lambda c: c.get_value_type(types.uint8), types.uint8)
_load_uint16 = _loader(lambda c: c.get_value_type(types.uint16), types.uint16)


@intrinsic
def _prefetch(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # for reading, to be kept in all caches, data
        builder.call(
            function, [builder.inttoptr(args[0], cgutils.voidptr_t), *(number(k) for k in (0, 3, 1))]
        )
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@njit
def cell_of(header, q):  # type: ignore[no-untyped-def]
    """Return the cell of a number; the outer cells take what is beyond the edges."""
    last = int(_load_float64(header, N_CELLS)) - 1
    if not q > _load_float64(header, LOWEST):  # or no number
        return 0
    guess = (q - _load_float64(header, LOWEST)) * _load_float64(header, PER_UNIT)
    cell = int(min(max(guess, 0.0), float(last)))
    while cell > 0 and q < _load_float64(header, EDGES + cell):
        cell -= 1
    while cell < last and q >= _load_float64(header, EDGES + cell + 1):
        cell += 1
    return cell


@njit
def log_density(header, row, cell):  # type: ignore[no-untyped-def]
    """Return an entry of the table."""
    at = row * int(_load_float64(header, N_CELLS)) + cell
    address = int(_load_float64(header, LOG_ADDRESS))
    if _load_float64(header, IS_WIDE) != 0.0:
        return _load_float64(address, at)
    return float(_load_float32(address, at))


@njit
def fetch(header, row, cell):  # type: ignore[no-untyped-def]
    """Ask for an entry of the table, which arrives while something else is computed."""
    at = row * int(_load_float64(header, N_CELLS)) + cell
    size = 8 if _load_float64(header, IS_WIDE) != 0.0 else 4
    _prefetch(int(_load_float64(header, LOG_ADDRESS)) + size * at)


@njit
def fetch_row(header, row):  # type: ignore[no-untyped-def]
    """Ask for the densities of a row, as :func:`fetch`."""
    n_cells = int(_load_float64(header, N_CELLS))
    start = int(_load_float64(header, EXP_ADDRESS)) + 8 * row * n_cells
    for k in range(0, n_cells, 8):
        _prefetch(start + 8 * k)


@njit
def n_rows(header):  # type: ignore[no-untyped-def]
    """Return the number of rows of a table."""
    return int(_load_float64(header, N_ROWS))


@njit
def likelihoods(header, row, prior, weights):  # type: ignore[no-untyped-def]
    """Multiply probabilities by a row of densities; return the sum, 0 where nothing is possible.

    Densities are relative to the largest of their row. Where all products underflow, logarithms decide.
    """
    n_cells = weights.size
    address, start, total = int(_load_float64(header, EXP_ADDRESS)), row * n_cells, 0.0
    for k in range(n_cells):
        weights[k] = prior[k] * _load_float64(address, start + k)
        total += weights[k]
    if total > 1e-250:
        return total
    top = -np.inf
    for k in range(n_cells):
        weights[k] = np.log(prior[k]) + log_density(header, row, k)
        top = max(top, weights[k])
    if not top > -np.inf:
        return 0.0
    total = 0.0
    for k in range(n_cells):
        weights[k] = np.exp(weights[k] - top)
        total += weights[k]
    return total


@njit(cache=True)
def fill_alias(weights, total, keep, other):  # type: ignore[no-untyped-def]
    """Fill one row of an alias table (Vose 1991): draw k uniformly, keep it or take the other."""
    n = weights.size
    small, large = np.empty(n, np.int64), np.empty(n, np.int64)
    n_small, n_large = 0, 0
    for k in range(n):
        keep[k], other[k] = weights[k] * (n / total), k
        if keep[k] < 1.0:
            small[n_small] = k
            n_small += 1
        else:
            large[n_large] = k
            n_large += 1
    while n_small > 0 and n_large > 0:
        n_small -= 1
        a, b = small[n_small], large[n_large - 1]
        other[a] = b
        keep[b] -= 1.0 - keep[a]
        if keep[b] < 1.0:
            n_large -= 1
            small[n_small] = b
            n_small += 1
    # what is left is 1 up to rounding
    for k in range(n_small):
        keep[small[k]] = 1.0
    for k in range(n_large):
        keep[large[k]] = 1.0


@njit
def draw_value(rng, header, row):  # type: ignore[no-untyped-def]
    """Draw a value from a row of slots: uniform in a cell, or heavy-tailed beyond the edges."""
    n_cells = int(_load_float64(header, N_CELLS))
    address, u = int(_load_float64(header, SLOT_ADDRESS)), random(rng)
    if u < _ANYWHERE:
        cell = int(u / _ANYWHERE * (n_cells + 2))
    elif _load_float64(header, SLOT_BYTES) == 1.0:
        cell = int(_load_uint8(address, row * N_SLOTS + int(N_SLOTS * (u - _ANYWHERE) / (1.0 - _ANYWHERE))))
    else:
        cell = int(_load_uint16(address, row * N_SLOTS + int(N_SLOTS * (u - _ANYWHERE) / (1.0 - _ANYWHERE))))
    lo, hi = _load_float64(header, EDGES), _load_float64(header, EDGES + n_cells)
    u = random(rng)
    if cell < n_cells:
        lo = _load_float64(header, EDGES + cell)
        return lo + (_load_float64(header, EDGES + cell + 1) - lo) * u
    distance = TAIL * (hi - lo) * u / (1.0 - u)
    return lo - distance if cell == n_cells else hi + distance


@njit
def _piece(header, y):  # type: ignore[no-untyped-def]
    """Return the piece of the line that a value is in, and the density of draws in that piece."""
    n_cells = int(_load_float64(header, N_CELLS))
    lo, hi = _load_float64(header, EDGES), _load_float64(header, EDGES + n_cells)
    if lo <= y <= hi:
        cell = cell_of(header, y)
        return cell, 1.0 / (_load_float64(header, EDGES + cell + 1) - _load_float64(header, EDGES + cell))
    spread = TAIL * (hi - lo)
    below = y < lo
    far = spread + (lo - y if below else y - hi)
    return (n_cells if below else n_cells + 1), spread / (far * far)


@njit
def log_weight(header, row, y, drawn):  # type: ignore[no-untyped-def]
    """Return the log density of ``y`` under :func:`draw_value` less that of what was drawn."""
    a, density_a = _piece(header, y)
    b, density_b = _piece(header, drawn)
    n_a, n_b = _count_slots(header, row, a, b)
    anywhere = _ANYWHERE / (1.0 - _ANYWHERE) * N_SLOTS / (_load_float64(header, N_CELLS) + 2.0)
    return np.log(((n_a + anywhere) * density_a) / ((n_b + anywhere) * density_b))


@njit
def _count_slots(header, row, a, b):  # type: ignore[no-untyped-def]
    """Return how many slots of a row hold each of two pieces."""
    address, start = int(_load_float64(header, SLOT_ADDRESS)), row * N_SLOTS
    n_a, n_b = 0, 0
    if _load_float64(header, SLOT_BYTES) == 1.0:
        for k in range(N_SLOTS):
            cell = int(_load_uint8(address, start + k))
            n_a += cell == a
            n_b += cell == b
    else:
        for k in range(N_SLOTS):
            cell = int(_load_uint16(address, start + k))
            n_a += cell == a
            n_b += cell == b
    return n_a, n_b


@njit(cache=True)
def fill_slots(log_densities, widths, slots):  # type: ignore[no-untyped-def]
    """Give each row its slots: cells in proportion to density times width, by systematic sampling.

    Columns beyond those of the densities are the outsides: below and above, as dense as the outer cells.
    """
    n_rows, n_cells = log_densities.shape
    total = np.empty(n_cells + 2)
    for row in range(n_rows):
        top = -np.inf
        for k in range(n_cells):
            top = max(top, float(log_densities[row, k]))
        sum_so_far = 0.0
        for k in range(n_cells + 2):
            cell = k if k < n_cells else (0 if k == n_cells else n_cells - 1)
            weight = np.exp(float(log_densities[row, cell]) - top) * widths[k] if top > -np.inf else widths[k]
            sum_so_far += weight
            total[k] = sum_so_far
        k = 0
        for j in range(N_SLOTS):
            target = (j + 0.5) / N_SLOTS * sum_so_far
            while k < n_cells + 1 and total[k] <= target:
                k += 1
            slots[row, j] = k


class TableDensity(ps.ScalarOp):
    """Log density of a release at its record: header address, row, query -> float64."""

    nin = 3

    def __init__(self) -> None:
        super().__init__(output_types_preference=ps.upgrade_to_float64, name="table_density")

    def impl(self, *inputs: Any) -> Any:
        """Refuse: there is no interpreted form."""
        raise NotImplementedError("compiled by numba only")

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


table_density = Elemwise(TableDensity())

_SOURCE = """
def table_density(header, row, query):
    address = int(header)
    return log_density(address, int(row), cell_of(address, query))
"""


@register_funcify_and_cache_key(TableDensity)
def _funcify_table_density(op: TableDensity, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    names = {"log_density": log_density, "cell_of": cell_of, "__name__": __name__}
    density = njit(compile_numba_function_src(_SOURCE, "table_density", names))
    return density, key_of(density)


class Table:
    """Log densities of distinct releases by cell, with their header.

    Parameters
    ----------
    edges : (n_cells + 1,) array
    log_densities : (n_rows, n_cells) array of float32 or float64
    with_slots : bool
        Whether cells are to be proposed from the rows.
    with_densities : bool
        Whether cells are to be drawn exactly, for which the densities themselves are kept too.

    Attributes
    ----------
    address : float
        Of the header; good as long as this object lives, in this process.
    """

    def __init__(self, edges: np.ndarray, log_densities: np.ndarray, with_slots: bool, with_densities: bool):
        edges = np.asarray(edges, dtype=float)
        self.n_cells = len(edges) - 1
        self.log_densities = np.ascontiguousarray(log_densities)
        widths = np.diff(edges)
        self.slots: np.ndarray | None = None
        if with_slots:
            kind = np.uint8 if self.n_cells + 2 <= 256 else np.uint16
            self.slots = np.empty((len(log_densities), N_SLOTS), dtype=kind)
            fill_slots(self.log_densities, np.array([*widths, widths[0], widths[-1]]), self.slots)
        self.densities = np.exp(self.log_densities.astype(float)) if with_densities else None
        self.header = np.array(
            [
                self.n_cells,
                len(self.log_densities),
                self.log_densities.ctypes.data,
                self.log_densities.dtype == np.float64,
                0 if self.densities is None else self.densities.ctypes.data,
                0 if self.slots is None else self.slots.ctypes.data,
                0 if self.slots is None else self.slots.itemsize,
                edges[0],
                self.n_cells / (edges[-1] - edges[0]),
                *edges,
            ],
            dtype=float,
        )

    @property
    def address(self) -> float:
        """Address of the header, which a float64 holds exactly."""
        return float(self.header.ctypes.data)
