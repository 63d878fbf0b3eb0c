"""Linear maps of count variables, read from the graphs of queries as sparse matrices.

A table of counts is its cells in one line, in C order, one table after the other. A linear query of it
becomes a matrix with a row for each entry of the query and a column for each cell, and public numbers that
are added. What an operation does to entries that it only moves about is found by letting it move their
positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.sparse.math import Dot as SparseDot
from pytensor.sparse.math import StructuredDot
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    get_idx_list,
)
from scipy import sparse

# Operations that move entries about, or repeat them.
MOVES = (
    Alloc, DimShuffle, ExtractDiag, Join, JoinDims, MakeVector, Reshape, ScalarFromTensor, SpecifyShape,
    SplitDims, Subtensor, AdvancedSubtensor, TensorFromScalar, ViewOp,
)  # fmt: skip


class NotLinear(ValueError):
    """A query that is no linear map of counts with known coefficients; the message says where it is not."""


@dataclass(frozen=True)
class Linear:
    """Entries of a variable as linear functions of cells.

    Attributes
    ----------
    matrix : scipy.sparse.csr_array, shape (size, cells)
        Coefficients, of which none is zero.
    constant : ndarray, shape (size,)
        What is added.
    shape : tuple of int
        Shape of the variable.
    """

    matrix: sparse.csr_array
    constant: np.ndarray
    shape: tuple[int, ...]

    def rows(self, which: np.ndarray, shape: tuple[int, ...]) -> Linear:
        """Return some entries, by their positions, in another shape."""
        return Linear(self.matrix[which], self.constant[which], shape)

    def times(self, left: sparse.csr_array, shape: tuple[int, ...]) -> Linear:
        """Return linear functions of the entries."""
        return Linear(sparse.csr_array(left @ self.matrix), left @ self.constant, shape)

    def scaled(self, numbers: np.ndarray) -> Linear:
        """Return multiples of the entries."""
        by = np.ravel(numbers)
        return Linear(sparse.csr_array(sparse.diags_array(by) @ self.matrix), by * self.constant, self.shape)

    def broadcast(self, shape: tuple[int, ...]) -> Linear:
        """Return the entries, repeated as NumPy does."""
        return self.rows(np.broadcast_to(self._positions, shape).ravel(), shape)

    @property
    def _positions(self) -> np.ndarray:
        return np.arange(self.constant.size).reshape(self.shape)


def read_linear(query: Variable, tables: Mapping[Variable, int], shapes: Mapping[Variable, Any]) -> Linear:
    """Read a query as a linear map.

    Parameters
    ----------
    query : TensorVariable
    tables : mapping
        From each count variable to the position of its first cell.
    shapes : mapping
        From each count variable to its shape.

    Returns
    -------
    Linear
        Its matrix has a column for each cell of all tables.

    Raises
    ------
    NotLinear
        Saying which operation is not linear, or which coefficient is not known.
    """
    return _Reader(tables, shapes).read(query)


class _Reader:
    """One reading of graphs of some tables."""

    def __init__(self, tables: Mapping[Variable, int], shapes: Mapping[Variable, Any]):
        self._tables, self._shapes = tables, shapes
        self._n_cells = sum(int(np.prod(shapes[t])) for t in tables)
        self._read: dict[Variable, Linear] = {}
        self._counts_behind: dict[Variable, bool] = {}

    def read(self, variable: Variable) -> Linear:
        """Return a variable as a linear map; of one without tables, the matrix is empty."""
        if variable not in self._read:
            self._read[variable] = self._reading(variable)
        return self._read[variable]

    def _reading(self, variable: Variable) -> Linear:
        if variable in self._tables:
            shape = tuple(map(int, self._shapes[variable]))
            size, first = int(np.prod(shape)), self._tables[variable]
            cells = (np.ones(size), (np.arange(size), first + np.arange(size)))
            return Linear(sparse.csr_array(cells, shape=(size, self._n_cells)), np.zeros(size), shape)
        if not self._has_tables(variable):
            value = np.asarray(self.known(variable), dtype=float)
            return Linear(sparse.csr_array((value.size, self._n_cells)), value.ravel(), value.shape)
        node = variable.owner
        assert node is not None
        return self._of(node.op, node)

    def _has_tables(self, variable: Variable) -> bool:
        """Whether a variable depends on counts themselves, not on how many there are."""
        if variable not in self._counts_behind:
            node = variable.owner
            inputs = [] if node is None or isinstance(node.op, Shape | Shape_i) else node.inputs
            self._counts_behind[variable] = variable in self._tables or any(map(self._has_tables, inputs))
        return self._counts_behind[variable]

    def known(self, variable: Variable) -> Any:
        """Return the value of a graph without random variables, as it is now."""
        if isinstance(variable, Constant):
            return variable.data
        drawn = [
            v
            for v in ancestors([variable], blockers=self._tables)
            if v.owner and hasattr(v.owner.op, "ndim_supp")
        ]
        drawn = [v for v in drawn if v not in self._tables]
        if drawn:
            names = sorted({str(v.name) for v in drawn if v.name}) or ["a random variable"]
            raise NotLinear(f"it is multiplied by or added to {', '.join(names)}, which is not known")
        lengths = [v for v in ancestors([variable]) if v.owner and isinstance(v.owner.op, Shape | Shape_i)]
        known = {v: self._length(v) for v in lengths if self._has_tables(v.owner.inputs[0])}
        (variable,) = graph_replace([variable], known, strict=False)
        try:
            return pytensor.function([], variable, mode="FAST_COMPILE", on_unused_input="ignore")()
        except Exception as error:  # an input without a value, which PyTensor names
            raise NotLinear(f"it depends on an input without a value ({error.__class__.__name__})") from None

    def _length(self, variable: Variable) -> Variable:
        node: Any = variable.owner
        shape = self.read(node.inputs[0]).shape
        return variable.type.filter_variable(
            pt.constant(shape[node.op.i] if isinstance(node.op, Shape_i) else shape)
        )

    @singledispatchmethod
    def _of(self, op: Op, node: Any) -> Linear:
        if isinstance(op, MOVES):
            return self._moved(node)
        raise NotLinear(f"{op} is no linear operation with known coefficients")

    def _moved(self, node: Any, only: Sequence[Any] | None = None) -> Linear:
        """Entries that are moved about, as their positions are."""
        parts, first, inputs = [], 0, []
        for k, v in enumerate(node.inputs):
            if k == 0 or isinstance(node.op, Join | MakeVector):
                part = self.read(v)
                # an array without axes as well: of a number, the type of the entry would be kept
                positions: Any = np.asarray(first + np.arange(part.constant.size).reshape(part.shape))
                parts.append(part)
                first += part.constant.size
            elif self._has_tables(v):
                raise NotLinear("counts are an index")
            else:
                positions = self.known(v)
            inputs.append(positions)
        matrix = sparse.csr_array(sparse.vstack([p.matrix for p in parts]))
        whole = Linear(matrix, np.concatenate([p.constant for p in parts]), (first,))
        where = _evaluated(node, inputs, first)
        return whole.rows(where.ravel(), where.shape)

    @_of.register
    def _(self, op: Elemwise, node: Any) -> Linear:
        scalar_op = op.scalar_op
        if isinstance(scalar_op, ps.Cast | ps.Identity):
            return self._cast(self.read(node.inputs[0]), node.outputs[0].type.dtype)
        if isinstance(scalar_op, ps.Neg):
            part = self.read(node.inputs[0])
            return part.scaled(np.full(part.constant.size, -1.0))
        if not isinstance(scalar_op, ps.Add | ps.Sub | ps.Mul | ps.TrueDiv | ps.Switch):
            raise NotLinear(f"{op} is not linear")
        shape = np.broadcast_shapes(*(self.read(v).shape for v in node.inputs))
        parts = [self.read(v).broadcast(shape) for v in node.inputs]
        if isinstance(scalar_op, ps.Add | ps.Sub):
            sign = -1.0 if isinstance(scalar_op, ps.Sub) else 1.0
            total = parts[0]
            for part in parts[1:]:
                matrix = sparse.csr_array(total.matrix + sign * part.matrix)
                total = Linear(matrix, total.constant + sign * part.constant, shape)
            return total
        if isinstance(scalar_op, ps.Switch):
            if self._has_tables(node.inputs[0]):
                raise NotLinear("it compares counts")
            chosen = (parts[0].constant != 0).astype(float)
            one, other = parts[1].scaled(chosen), parts[2].scaled(1 - chosen)
            return Linear(sparse.csr_array(one.matrix + other.matrix), one.constant + other.constant, shape)
        with_tables = [k for k, v in enumerate(node.inputs) if self._has_tables(v)]
        if len(with_tables) > 1 or (isinstance(scalar_op, ps.TrueDiv) and with_tables != [0]):
            raise NotLinear("counts are multiplied or divided by counts")
        factor = np.ones(parts[0].constant.size)
        for k, part in enumerate(parts):
            if k not in with_tables:
                factor = (
                    factor / part.constant if isinstance(scalar_op, ps.TrueDiv) else factor * part.constant
                )
        return parts[with_tables[0]].scaled(factor)

    def _cast(self, part: Linear, dtype: str) -> Linear:
        """Return whole numbers and floats as they are: other casts truncate, or wrap."""
        whole = np.all(part.matrix.data % 1 == 0) and np.all(part.constant % 1 == 0)
        if dtype in ("float64", "float32") or (dtype in ("int64", "int32") and whole):
            return part
        raise NotLinear(f"a cast to {dtype} is not linear")

    @_of.register
    def _(self, op: Sum, node: Any) -> Linear:
        part = self.read(node.inputs[0])
        axes = tuple(range(len(part.shape))) if op.axis is None else tuple(op.axis)
        kept = tuple(1 if a in axes else n for a, n in enumerate(part.shape))
        shape = tuple(n for a, n in enumerate(part.shape) if a not in axes)
        size = int(np.prod(shape))
        into = np.broadcast_to(np.arange(size).reshape(kept), part.shape).ravel()
        return part.times(_selection(into, np.arange(into.size), (size, into.size)), shape)

    @_of.register
    def _(self, op: CumOp, node: Any) -> Linear:
        if op.mode != "add":
            raise NotLinear("a cumulative product is not linear")
        part = self.read(node.inputs[0])
        axis = 0 if op.axis is None else op.axis % len(part.shape)
        shape = (part.constant.size,) if op.axis is None else part.shape
        before, after = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 :]))
        lower = sparse.csr_array(np.tri(shape[axis]))
        left = sparse.kron(sparse.kron(sparse.eye_array(before), lower), sparse.eye_array(after))
        return part.times(sparse.csr_array(left), shape)

    @_of.register
    def _(self, op: Dot, node: Any) -> Linear:
        return self._product(*node.inputs)

    @_of.register
    def _(self, op: Blockwise, node: Any) -> Linear:
        a, b = node.inputs[:2] if len(node.inputs) > 1 else (node.inputs * 2)
        if not isinstance(op.core_op, Dot) or a.type.ndim != 2 or b.type.ndim != 2:
            raise NotLinear(f"{op} is no product of a matrix that is known")
        return self._product(a, b)

    @_of.register
    def _(self, op: StructuredDot, node: Any) -> Linear:
        return self._product(*node.inputs)

    @_of.register
    def _(self, op: SparseDot, node: Any) -> Linear:
        return self._product(*node.inputs)

    def _product(self, a: Variable, b: Variable) -> Linear:
        if self._has_tables(a) and self._has_tables(b):
            raise NotLinear("counts are multiplied by counts")
        if self._has_tables(b):
            part, value = self.read(b), _dense_or_sparse(self.known(a))
            known = sparse.csr_array(value[None, :] if value.ndim == 1 else value)
            columns = part.shape[1] if len(part.shape) == 2 else 1
            left = sparse.csr_array(sparse.kron(known, sparse.eye_array(columns)))
            shape = ((known.shape[0],) if a.type.ndim == 2 else ()) + part.shape[1:]  # type: ignore[attr-defined]
            return part.times(left, shape)
        part, value = self.read(a), _dense_or_sparse(self.known(b))
        known = sparse.csr_array(value[:, None] if value.ndim == 1 else value)
        rows = part.shape[0] if len(part.shape) == 2 else 1
        left = sparse.csr_array(sparse.kron(sparse.eye_array(rows), known.T))
        return part.times(left, part.shape[:-1] + ((known.shape[1],) if value.ndim == 2 else ()))

    @_of.register(IncSubtensor)
    @_of.register(AdvancedIncSubtensor)
    def _(self, op: Any, node: Any) -> Linear:
        base, added = self.read(node.inputs[0]), self.read(node.inputs[1])
        index = get_idx_list([node.inputs[0], *node.inputs[2:]], op.idx_list)
        at = np.arange(base.constant.size).reshape(base.shape)[tuple(map(self._known_index, index))]
        added = added.broadcast(at.shape)
        into, size = np.ravel(at), base.constant.size
        last_alone = op.set_instead_of_inc or getattr(op, "ignore_duplicates", False)
        if last_alone and len(np.unique(into)) < into.size:
            raise NotLinear("several counts are put in one place, of which the last stays")
        if op.set_instead_of_inc:
            kept = np.ones(size)
            kept[into] = 0.0
            base = base.scaled(kept)
        more = added.times(_selection(into, np.arange(into.size), (size, into.size)), base.shape)
        return Linear(sparse.csr_array(base.matrix + more.matrix), base.constant + more.constant, base.shape)

    def _known_index(self, entry: Any) -> Any:
        if isinstance(entry, slice):
            ends = (
                None if e is None else int(self._known_index(e))
                for e in (entry.start, entry.stop, entry.step)
            )
            return slice(*ends)
        if not isinstance(entry, Variable):
            return entry
        if self._has_tables(entry):
            raise NotLinear("counts are an index")
        value = np.asarray(self.known(entry))
        return int(value) if value.ndim == 0 and value.dtype.kind in "iu" else value


def _selection(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    return sparse.csr_array((np.ones(rows.size), (rows, columns)), shape=shape)


def _dense_or_sparse(value: Any) -> Any:
    return value if sparse.issparse(value) else np.asarray(value, dtype=float)


def _evaluated(node: Any, inputs: Sequence[Any], n_positions: int) -> np.ndarray:
    """Apply an operation to positions in place of entries."""
    given = []
    for v, value in zip(node.inputs, inputs, strict=True):
        if isinstance(v.type, pt.TensorType):
            kind = "int64" if v.type.ndim or isinstance(value, np.ndarray) else v.type.dtype
            given.append(
                pt.constant(np.asarray(value), dtype=None if np.asarray(value).dtype == bool else kind)
            )
        elif isinstance(v, Constant):
            given.append(v)
        else:
            given.append(
                v.type.filter_variable(ps.constant(value)) if isinstance(v.type, ps.ScalarType) else value
            )
    op: Callable[..., Any] = node.op
    if isinstance(node.op, MakeVector):
        op = MakeVector("int64")
    result = op(*given, return_list=True)[node.outputs.index(node.outputs[0])]
    return np.asarray(pytensor.function([], result, mode="FAST_COMPILE")())
