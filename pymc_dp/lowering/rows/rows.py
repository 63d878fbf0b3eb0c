"""One row of a row-local graph as scalar code.

A vectorised draw of all records writes and reads about twenty arrays per sweep. The graph of one record
instead needs no arrays at all: :class:`RowGraph` rewrites entry (i, j, ...) of a row-local variable into a
0-d graph of the record's own entries, so that draw, statistics and densities of one record run in
registers. What depends on no record is computed once per sweep and passed in: numbers as *constants*,
per-record covariates as *columns*.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.math import All, Dot, Max, Prod, Sum
from pytensor.tensor.reshape import SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.graphs import jit_scalar
from pymc_dp.lowering.functions.normals import LARGEST, root_of
from pymc_dp.lowering.rows.places import (
    ROW,
    NotScalar,
    rank_of_picked,
    undo_advanced,
    undo_dimshuffle,
    undo_subtensor,
    writes,
)

# Longest sum over a record's own entries that is written out.
MAX_UNROLL = 24


class RowGraph:
    """Entries of row-local graphs as 0-d graphs.

    Parameters
    ----------
    is_free : callable
        Whether a variable depends on no record.
    record_entry : callable
        ``(record variable, trailing index) -> 0-d graph`` of a record's own entry.
    records : collection of Variable
        Record variables, at which the rewrite stops.

    Attributes
    ----------
    constants, columns : list
        Record-free 0-d and (n,) graphs that were hoisted out; ``constant_inputs`` and ``column_inputs``
        stand for them in the entries.
    """

    def __init__(
        self,
        is_free: Callable[[Variable], bool],
        record_entry: Callable[[Variable, tuple[int, ...]], TensorVariable],
        records: Sequence[Variable],
    ):
        self.is_free, self._record_entry, self._records = is_free, record_entry, set(records)
        self.constants: list[TensorVariable] = []
        self.constant_inputs: list[Variable] = []
        self.columns: list[TensorVariable] = []
        self.column_inputs: list[Variable] = []
        self._hoisted: dict[tuple[Variable, tuple], TensorVariable] = {}
        self._memo: dict[tuple[Variable, tuple], TensorVariable] = {}
        self._values: dict[Variable, np.ndarray | None] = {}
        self._repeated: dict[tuple[Variable, int], bool] = {}
        # entries that come together, of draws and of factors, by variable and by leading indices
        self.together: dict[tuple[Variable, tuple], list[TensorVariable]] = {}

    def fork(self, record_entry: Callable[[Variable, tuple[int, ...]], TensorVariable]) -> "RowGraph":
        """Return the same with other entries for the records, sharing what was hoisted."""
        other = self._like(record_entry)
        for name in ("constants", "constant_inputs", "columns", "column_inputs", "_hoisted"):
            setattr(other, name, getattr(self, name))
        return other

    def _like(self, record_entry: Callable[[Variable, tuple[int, ...]], TensorVariable]) -> "RowGraph":
        return RowGraph(self.is_free, record_entry, list(self._records))

    def entry(self, variable: Variable, index: tuple) -> TensorVariable:
        """Return one entry; ``index`` holds integers, and :data:`ROW` on the record axis."""
        shape = variable.type.shape
        if any(i != ROW and i < 0 and s is None for i, s in zip(index, shape, strict=True)):
            raise NotScalar("an index from the end of an axis of unknown length")
        index = tuple(
            0 if s == 1 else i if i == ROW or i >= 0 else i + s for i, s in zip(index, shape, strict=True)
        )
        if ROW in index and self.is_free(variable) and self._is_repeated(variable, index.index(ROW)):
            index = tuple(0 if i == ROW else i for i in index)
        key = (variable, index)
        if key not in self._memo:
            self._memo[key] = self._entry(variable, index)
        return self._memo[key]

    def _entry(self, variable: Variable, index: tuple) -> TensorVariable:
        if variable in self._records:
            if not index or index[0] != ROW:
                raise NotScalar(f"{variable.name} is not read row by row")
            return self._record_entry(variable, index[1:])
        if self.is_free(variable):
            return self._hoist(variable, index)
        node = variable.owner
        assert node is not None
        op, inputs = node.op, node.inputs
        if isinstance(op, Elemwise):
            entries = [self.entry(v, index) for v in inputs]
            if isinstance(op.scalar_op, ps.Log) and (log := _log_of_a_share(entries[0])) is not None:
                return log
            outputs = node.op(*entries, return_list=True)
            return outputs[node.outputs.index(variable)]
        if isinstance(op, CheckParameterValue):
            return self.entry(inputs[0], index)
        if isinstance(op, SpecifyShape | ViewOp):
            return self.entry(inputs[0], index)
        if isinstance(op, ScalarFromTensor | TensorFromScalar):
            return self.entry(pt.as_tensor(inputs[0]), index)
        if isinstance(op, DimShuffle):
            return self.entry(inputs[0], undo_dimshuffle(op, inputs[0].type.ndim, index))
        if isinstance(op, Subtensor):
            return self.entry(inputs[0], undo_subtensor(node, index))
        if isinstance(op, Alloc):  # broadcasts its first input
            return self.entry(inputs[0], index[len(index) - inputs[0].type.ndim :])
        if isinstance(getattr(op, "core_op", op), IncSubtensor | AdvancedIncSubtensor):
            return self._set(node, index)
        if isinstance(op, Join):
            return self._join(node, index)
        if isinstance(op, MakeVector):
            (k,) = index
            return self.entry(inputs[k], ())
        if isinstance(op, CAReduce):
            return self._reduce(node, index)
        if isinstance(op, Dot) or (isinstance(op, Blockwise) and isinstance(op.core_op, Dot)):
            return self._dot(node, index)
        if isinstance(op, AdvancedSubtensor):
            return self._pick(node, index)
        if isinstance(op, Reshape | SplitDims):
            return self._reshape(node, index)
        if isinstance(op, Softmax):
            return self._softmax(node, index)
        if isinstance(op, ExtractDiag) and op.offset == 0:
            axes = sorted((op.axis1 % inputs[0].type.ndim, op.axis2 % inputs[0].type.ndim))
            full = list(index[:-1])
            for axis in axes:
                full.insert(axis, index[-1])
            return self.entry(inputs[0], tuple(full))
        if isinstance(getattr(op, "core_op", op), Cholesky):
            return self._cholesky(node, index)
        raise NotScalar(f"{op} has no scalar form")

    def _hoist(self, variable: Variable, index: tuple) -> TensorVariable:
        if ROW not in index:
            known = self._known(variable)
            if known is not None:
                return pt.constant(known[index])
        key = (variable, index)
        if key not in self._hoisted:
            picked = variable[tuple(slice(None) if i == ROW else i for i in index)] if index else variable
            graphs, inputs = (
                (self.columns, self.column_inputs) if ROW in index else (self.constants, self.constant_inputs)
            )
            graphs.append(picked)
            inputs.append(ps.float64(f"h{len(self._hoisted)}"))
            self._hoisted[key] = pt.tensor_from_scalar(inputs[-1])
        hoisted = self._hoisted[key]
        return hoisted if variable.dtype == "float64" else pt.cast(hoisted, variable.dtype)

    def _is_repeated(self, variable: Variable, axis: int) -> bool:
        """Whether entries along an axis are the same by the graph: something was broadcast along it."""
        key = (variable, axis)
        if key not in self._repeated:
            self._repeated[key] = self._follows_repeated(variable, axis)
        return self._repeated[key]

    def _follows_repeated(self, variable: Any, axis: int) -> bool:
        shape, node = variable.type.shape, variable.owner
        if shape[axis] == 1:
            return True
        if node is None or shape[axis] == 0:
            return False
        op, inputs = node.op, node.inputs
        if isinstance(op, Alloc):
            own = axis - len(shape) + inputs[0].type.ndim
            return own < 0 or self._is_repeated(inputs[0], own)
        if isinstance(op, Elemwise):
            return all(self._is_repeated(v, axis) for v in inputs)
        if isinstance(op, DimShuffle):
            return op.new_order[axis] == "x" or self._is_repeated(inputs[0], op.new_order[axis])
        if isinstance(op, SpecifyShape | ViewOp | CheckParameterValue):
            return self._is_repeated(inputs[0], axis)
        if isinstance(op, IncSubtensor | AdvancedIncSubtensor) and axis == 0:
            return self._is_repeated(inputs[0], 0) and self._writes_repeat(node)
        if isinstance(op, Join):
            return axis != int(op.axis) % len(shape) and all(self._is_repeated(v, axis) for v in inputs)
        return False

    def _writes_repeat(self, node: Any) -> bool:
        """Whether ``x[:, places].set(y)`` puts the same into all rows."""
        _, y, *at = node.inputs
        try:
            rank = rank_of_picked(node, [self._known(v) for v in at])
        except NotScalar:
            return False
        return y.type.ndim < rank or self._is_repeated(y, 0)

    def _known(self, variable: Variable) -> np.ndarray | None:
        """Value of a small graph of constants (the rows of an identity matrix, say)."""
        if variable not in self._values:
            value = None
            if all(isinstance(v, Constant) for v in graph_inputs([variable])):
                known = (
                    variable.data if isinstance(variable, Constant) else variable.eval(mode="FAST_COMPILE")
                )
                value = np.asarray(known)
            self._values[variable] = value
        return self._values[variable]

    def _pick(self, node: Any, index: tuple) -> TensorVariable:
        """``table[k]`` with a record's own k, a choice among the table's rows; or known entries of rows."""
        table, entries = node.inputs[0], node.op.idx_list
        if isinstance(entries[0], slice):
            return self.entry(table, undo_advanced(node, index, [self._known(v) for v in node.inputs[1:]]))
        if len(entries) != 1 or len(node.inputs) != 2 or not self.is_free(table):
            raise NotScalar("a look-up other than table[k]")
        k, size = node.inputs[1], table.type.shape[0]
        if k.type.dtype == "bool" or k.type.ndim > len(index) or size is None or size > MAX_UNROLL:
            raise NotScalar("a look-up in a long table")
        at = self.entry(k, index[: k.type.ndim])
        return choose(at, [self.entry(table, (j, *index[k.type.ndim :])) for j in range(size)])

    def _set(self, node: Any, index: tuple) -> TensorVariable:
        """``x[places].set(y)``, or ``.inc(y)``, at known places of each row."""
        x, y, *at = node.inputs
        found = writes(node, index, [self._known(v) for v in at])
        there = [] if found and not found[-1][1] else [self.entry(x, index)]
        terms = [*there, *(self.entry(y, written) for written, _ in found)]
        dtype = node.outputs[0].type.dtype
        return reduce(pt.add, (v if v.type.dtype == dtype else pt.cast(v, dtype) for v in terms))

    def _join(self, node: Any, index: tuple) -> TensorVariable:
        axis = int(node.op.axis) % node.outputs[0].ndim
        at = index[axis]
        if at == ROW:
            raise NotScalar("records joined along the record axis")
        for part in node.inputs:
            size = part.type.shape[axis]
            if size is None:
                raise NotScalar("a joined part of unknown length")
            if at < size:
                # parts of other types become those of the whole: literals are of single precision
                entry = self.entry(part, (*index[:axis], at, *index[axis + 1 :]))
                dtype = node.outputs[0].type.dtype
                return entry if part.type.dtype == dtype else pt.cast(entry, dtype)
            at -= size
        raise NotScalar("an entry outside of a joined array")

    def _reduce(self, node: Any, index: tuple) -> TensorVariable:
        (x,) = node.inputs
        if not isinstance(node.op, Sum | Prod | Max | All):
            raise NotScalar(f"{node.op} has no scalar form")
        axes = tuple(range(x.ndim)) if node.op.axis is None else tuple(node.op.axis)
        sizes = [x.type.shape[a] for a in axes]
        if None in sizes or np.prod(sizes) > MAX_UNROLL:
            raise NotScalar("a reduction over many entries of one record")
        parts = []
        for inner in np.ndindex(*sizes):
            outer = iter(index)
            full = tuple(inner[axes.index(a)] if a in axes else next(outer) for a in range(x.ndim))
            parts.append(pt.cast(self.entry(x, full), node.outputs[0].type.dtype))
        if isinstance(node.op, Sum):
            return sum(parts[1:], start=parts[0])
        if isinstance(node.op, All):
            return reduce(pt.and_, parts)
        return reduce(pt.maximum if isinstance(node.op, Max) else pt.mul, parts)

    def _dot(self, node: Any, index: tuple) -> TensorVariable:
        a, b = node.inputs
        size = a.type.shape[-1]
        if size is None or size > MAX_UNROLL:
            raise NotScalar("a product over many entries of one record")
        if a.ndim > 2 or b.ndim > 2:  # a product of each of a stack of matrices
            if a.ndim != b.ndim:
                raise NotScalar("a product of stacks of matrices of different ranks")
            stack, left, right = index[:-2], index[:-1], index[-1:]
        else:
            stack, left, right = (), index[: a.ndim - 1], index[a.ndim - 1 :]
        dtype = node.outputs[0].type.dtype
        terms = [
            pt.cast(self.entry(a, (*left, k)), dtype) * self.entry(b, (*stack, k, *right))
            for k in range(size)
        ]
        return sum(terms[1:], start=terms[0])

    def _softmax(self, node: Any, index: tuple) -> TensorVariable:
        (x,) = node.inputs
        axes = node.op.axis if isinstance(node.op.axis, tuple) else (node.op.axis,)
        axis = axes[0]
        size = None if axis is None else x.type.shape[axis]
        if len(axes) > 1 or size is None or size > MAX_UNROLL or index[axis] == ROW:
            raise NotScalar("a softmax over many entries of one record, or over records")
        axis %= x.ndim
        parts = [self.entry(x, (*index[:axis], k, *index[axis + 1 :])) for k in range(size)]
        top = reduce(pt.maximum, parts)
        each = [pt.exp(part - top) for part in parts]
        return each[index[axis]] / sum(each[1:], start=each[0])

    def _cholesky(self, node: Any, index: tuple) -> TensorVariable:
        (matrix,), size = node.inputs, node.outputs[0].type.shape[-1]
        *lead, j, k = index
        if size is None or size > LARGEST or not getattr(node.op, "core_op", node.op).lower:
            raise NotScalar("a Cholesky factor of a large matrix")
        key = (node.outputs[0], tuple(lead))
        if key not in self.together:
            rows = root_of([[self.entry(matrix, (*lead, a, b)) for b in range(a + 1)] for a in range(size)])
            self.together[key] = [v for row in rows for v in row]
        return self.together[key][j * (j + 1) // 2 + k] if k <= j else pt.constant(0.0)

    def _reshape(self, node: Any, index: tuple) -> TensorVariable:
        x, out = node.inputs[0], node.outputs[0]
        before, after = x.type.shape, out.type.shape
        if not index or index[0] != ROW or None in before or None in after or before[:1] != after[:1]:
            raise NotScalar("a reshape of the record axis")
        flat = int(np.ravel_multi_index(index[1:], after[1:])) if len(index) > 1 else 0
        return self.entry(x, (ROW, *(int(k) for k in np.unravel_index(flat, before[1:]))))


def _log_of_a_share(share: TensorVariable) -> TensorVariable | None:
    """Return ``a - log(b)`` for the logarithm of ``exp(a) / b``: the entries of a row share that of b."""
    if share.owner is None or not isinstance(getattr(share.owner.op, "scalar_op", None), ps.TrueDiv):
        return None
    part, whole = share.owner.inputs
    if part.owner is None or not isinstance(getattr(part.owner.op, "scalar_op", None), ps.Exp):
        return None
    return part.owner.inputs[0] - pt.log(whole)


def choose(index: TensorVariable, parts: list[TensorVariable]) -> TensorVariable:
    """Return ``parts[index]``, comparing only with what differs from the most frequent part.

    A negative index counts from the end; one outside of the parts gives no number.
    """
    if not str(index.type.dtype).startswith("uint"):
        index = pt.switch(pt.lt(index, 0), index + len(parts), index)
    known = [float(v.data) if isinstance(v, Constant) else None for v in parts]
    default = max(set(known) - {None}, key=known.count, default=None)
    rest = [j for j, v in enumerate(known) if default is None or v != default]
    result = parts[known.index(default)] if default is not None else parts[rest.pop()]
    for j in rest:
        result = pt.switch(pt.eq(index, j), parts[j], result)
    if result.type.dtype.startswith("float"):  # type: ignore[union-attr]
        inside = pt.and_(pt.ge(index, 0), pt.lt(index, len(parts)))
        result = pt.switch(inside, result, np.array(np.nan, dtype=result.type.dtype))
    return result


def scalar_function(
    inputs: Sequence[Variable], outputs: Sequence[TensorVariable], ordered: bool = True
) -> tuple[Any, str | None]:
    """Compile graphs of numbers to a function of numbers; return it with its cache key.

    Graphs that are derivatives of what is in order already (``ordered=False``) compile sooner.
    """
    function, key, why = jit_scalar(inputs, [pt.cast(o, "float64") for o in outputs], ordered)
    if why:
        raise NotScalar(why)
    return function, key
