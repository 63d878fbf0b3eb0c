"""How picking rows and placing them depends on the records: the rules of indices.

Their verdicts are those of :mod:`.rowrules`; this module has to be imported for them to be known.
"""

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    Subtensor,
    get_idx_list,
)
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.rowrules import FUNCTION, MIXED, SUM, Role, rule

if TYPE_CHECKING:
    from pymc_dp.query.rowlocal import RowAnalysis


@dataclass(frozen=True)
class Placed:
    """A sum to which each record adds a few numbers, at places that no record changes.

    Attributes
    ----------
    values : TensorVariable, (n, ...)
        What each record adds, in the type of the sum.
    index : list of TensorVariable, (n,)
        Where, along each of the first axes of the sum; from the end where it is negative.
    shape : tuple of int
        Lengths of the axes of the sum.
    """

    values: TensorVariable
    index: list[TensorVariable]
    shape: tuple[int, ...]

    @property
    def place(self) -> TensorVariable:
        """Where each record adds, (n,), among all entries of these first axes; -1 where outside of them."""
        place = pt.zeros_like(self.index[0], dtype="int64")
        for i, size in zip(self.index, self.shape, strict=False):
            i = pt.cast(i, "int64")
            i = pt.switch(i < 0, i + size, i)
            place = pt.switch((place >= 0) & (i >= 0) & (i < size), place * size + i, -1)
        return place


def _constant(variable: Variable) -> Any:
    return variable.data if isinstance(variable, Constant) else None


@rule.register(Subtensor)
def _subtensor(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    if any(r.kind != "free" for r in roles[1:]):
        return MIXED
    if roles[0].kind == "sum":
        return SUM
    index = get_idx_list(node.inputs, op.idx_list)
    k, role = roles[0].axis, roles[0]
    assert k is not None
    dropped = sum(not isinstance(i, slice) for i in index[:k])
    role = replace(role, axis=k - dropped)
    if k >= len(index):
        return role
    if not isinstance(index[k], slice):
        return MIXED
    return _select(role, _slice(index[k]), analysis)


def _slice(entry: slice) -> Any:
    parts = []
    for bound in (entry.start, entry.stop, entry.step):
        value = bound if bound is None or isinstance(bound, int) else _constant_through(bound)
        if bound is not None and value is None:
            return None
        parts.append(None if value is None else int(value))
    return slice(*parts)


def _constant_through(variable: Variable) -> Any:
    while variable.owner is not None and isinstance(variable.owner.op, ScalarFromTensor | TensorFromScalar):
        variable = variable.owner.inputs[0]
    return _constant(variable)


def _select(role: Role, index: Any, analysis: "RowAnalysis") -> Role:
    """Rows of a row-local variable picked by a constant index (slice, mask or integers)."""
    if index is None:
        return MIXED
    rows = np.arange(analysis.n) if role.rows is None else np.array(role.rows)
    try:
        picked = rows[index]
    except IndexError:  # an index into more rows than there are records
        return MIXED
    if len(picked) == analysis.n and (picked == np.arange(analysis.n)).all():
        return replace(role, rows=None)
    return replace(role, rows=tuple(int(i) for i in picked))


@rule.register(AdvancedSubtensor)
def _advanced(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    if roles[0].kind in ("sum", "function"):
        return SUM if all(r.kind == "free" for r in roles[1:]) and roles[0].kind == "sum" else FUNCTION
    index = _index_entries(op, node)
    if index is None:
        return MIXED
    role_of = dict(zip(node.inputs, roles, strict=True))
    arrays = [(k, i) for k, i in enumerate(index) if isinstance(i, Variable)]
    if not arrays:
        return MIXED
    places = [k for k, _ in arrays]
    if places != list(range(places[0], places[-1] + 1)):
        return MIXED  # separated array indices move the result's axes
    ndim = max(i.ndim for _, i in arrays)
    if roles[0].kind == "free":
        rows = {replace(role_of[i], axis=role_of[i].axis + ndim - i.ndim) for _, i in arrays
                if role_of[i].kind == "row"}  # fmt: skip
        if len(rows) != 1:
            return MIXED
        (role,) = rows
        return replace(role, axis=role.axis + places[0])
    if any(role_of[i].kind != "free" for _, i in arrays):
        return MIXED
    k = roles[0].axis
    assert k is not None
    known = [_constant(i) for _, i in arrays]
    consumed = [c.ndim if c is not None and c.dtype == bool else 1 for c in known]
    if k in places and analysis.of_data:
        return MIXED  # whether somebody is picked twice would depend on what may be data
    if k in places and len(arrays) == 1 and ndim == 1:
        return _select(roles[0], _constant(arrays[0][1]), analysis)
    if k in places or any(c != 1 for c in consumed):
        return MIXED
    return roles[0] if k < places[0] else replace(roles[0], axis=k - len(places) + ndim)


def _index_entries(op: Any, node: Apply) -> list[Any] | None:
    """Index entries of an advanced (inc)subtensor: slices, or variables for array indices."""
    offset = 2 if isinstance(op, AdvancedIncSubtensor) else 1
    entries: list[Any] = []
    for entry in op.idx_list:
        if isinstance(entry, slice):
            if entry != slice(None):
                return None
            entries.append(entry)
        else:
            entries.append(node.inputs[offset + int(entry)])
    return entries


@rule.register(AdvancedIncSubtensor)
def _write(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    index = _index_entries(op, node)
    if index is None:
        return MIXED
    if is_placement(node):
        return _place(node, index, roles, analysis)
    return _add_up(op, node, index, roles, analysis)


def is_placement(node: Apply) -> bool:
    """Whether rows are set among others, ``base[index].set(rows)``, and not added up."""
    return isinstance(node.op, AdvancedIncSubtensor) and bool(node.op.set_instead_of_inc)


def _place(node: Apply, index: list[Any], roles: list[Role], analysis: "RowAnalysis") -> Role:
    """``base[index].set(rows)``: how PyMC joins the observed and missing entries of a covariate."""
    base, values = node.inputs[0], node.inputs[1]
    if len(index) != 1 or not isinstance(index[0], Variable):
        return MIXED
    places = _constant(index[0])
    if places is None or places.ndim != 1:
        return MIXED
    places = (
        np.flatnonzero(places) if places.dtype == bool else np.where(places < 0, places + analysis.n, places)
    )
    if len(set(places.tolist())) != len(places) or base.type.shape[0] != analysis.n:
        return MIXED
    if roles[0].kind == "row" and (roles[0].axis != 0 or roles[0].rows is not None):
        return MIXED
    if roles[1].kind == "row":
        if values not in analysis.records or roles[1].axis != 0:
            return MIXED
        if values.type.shape[0] != len(places):  # one record would be set into several rows
            return MIXED
        placed = tuple(int(i) for i in places)
        if analysis.placements.setdefault(values, placed) != placed:
            return MIXED
    return Role("row", 0)


def _add_up(op: Any, node: Apply, index: list[Any], roles: list[Role], analysis: "RowAnalysis") -> Role:
    """``zeros[index].inc(rows)``: sums by group, row i going to the entry that its index names."""
    base, values = node.inputs[0], node.inputs[1]
    rows = {r for r in roles if r.kind == "row"}
    if len(rows) != 1 or op.ignore_duplicates or not _is_zero(base):
        return MIXED
    (role,) = rows
    length = analysis.n if role.rows is None else len(role.rows)
    where = [_places(i) for i in index]
    sizes = base.type.shape[: len(index)]
    rest = base.ndim - len(index)
    if role.axis != 0 or None in where or None in sizes:
        return MIXED
    # a row that is broadcast would be added up several times
    along = [*where, *([values] if values.ndim > rest else [])]
    if values.ndim not in (0, rest, rest + 1) or any(analysis.length_of(v) != length for v in along):
        return MIXED
    if roles[1].kind == "row" and values.ndim != rest + 1:
        return MIXED
    wide = base.type.shape[len(index) :]
    if rest and values.type.shape[-rest:] != wide:
        if None in wide:
            return MIXED
        values = pt.broadcast_to(values, (length, *wide))
    total = node.outputs[0]
    if role.rows is None and None not in wide and all(r.kind == "free" for r in roles[2:]):
        analysis.placed[total] = Placed(pt.cast(values, base.type.dtype), where, base.type.shape)
    chosen = []
    for k, (i, size) in enumerate(zip(where, sizes, strict=True)):
        i = pt.switch(pt.lt(i, 0), i + size, i)
        one_hot = pt.eq(i[:, None], np.arange(size))
        chosen.append(one_hot.dimshuffle(0, *["x"] * k, 1, *["x"] * (len(where) - 1 - k + rest)))
    if values.ndim == rest + 1:
        values = values.dimshuffle(0, *["x"] * len(where), *range(1, rest + 1))
    contributions = reduce(pt.mul, [*chosen, values])
    return analysis.add_sum(total, pt.cast(contributions, base.type.dtype), role)


def _places(entry: Any) -> Any:
    """Return an index as a vector of places; None for slices, masks of unknown values and tables."""
    if not isinstance(entry, Variable) or entry.type.ndim != 1:  # type: ignore[attr-defined]
        return None
    if entry.type.dtype != "bool":  # type: ignore[attr-defined]
        return entry
    mask = _constant(entry)
    return None if mask is None else pt.constant(np.flatnonzero(mask))


def _is_zero(base: Variable) -> bool:
    """Whether a graph is known to be an array of zeros."""
    if base.owner is not None and isinstance(base.owner.op, Alloc | DimShuffle):
        return _is_zero(base.owner.inputs[0])
    value = _constant(base)
    return value is not None and not np.any(value)
