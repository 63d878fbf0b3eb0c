"""Where an entry of a graph comes from: indices of what was reordered, cut out of or put into an array."""

from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import get_idx_list

ROW = "row"


class NotScalar(NotImplementedError):
    """A graph whose rows cannot be written as scalar code; the vectorised form is used instead."""


def undo_dimshuffle(op: DimShuffle, ndim: int, index: tuple) -> tuple:
    """Return the index in an array of an entry of it with its axes in another order."""
    before: list[Any] = [0] * ndim
    for position, axis in enumerate(op.new_order):
        if axis != "x":
            before[axis] = index[position]
    return tuple(before)


def undo_subtensor(node: Any, index: tuple) -> tuple:
    """Return the index in an array of an entry of a part of it."""
    x = node.inputs[0]
    entries = get_idx_list(node.inputs, node.op.idx_list)
    outer = iter(index)
    before: list[Any] = []
    for axis in range(x.ndim):
        if axis >= len(entries):
            before.append(next(outer))
            continue
        entry = entries[axis]
        if isinstance(entry, slice):
            at = next(outer)
            if at == ROW:
                if entry != slice(None):
                    raise NotScalar("a slice of the record axis")
                before.append(ROW)
            else:
                size = x.type.shape[axis]
                bounds = [None if b is None else _number(b) for b in (entry.start, entry.stop, entry.step)]
                if size is None:
                    raise NotScalar("a slice of an axis of unknown length")
                before.append(range(size)[slice(*bounds)][at])
        else:
            before.append(_number(entry))
    return tuple(before)


def _number(bound: Any) -> int:
    while (
        isinstance(bound, Variable)
        and bound.owner is not None
        and isinstance(bound.owner.op, ScalarFromTensor | TensorFromScalar)
    ):
        bound = bound.owner.inputs[0]
    if isinstance(bound, Constant):
        return int(bound.data)
    if isinstance(bound, int | np.integer):
        return int(bound)
    raise NotScalar("an index that is no constant")


def undo_advanced(node: Any, index: tuple, known: list[np.ndarray | None]) -> tuple:
    """Return the index in an array of an entry of what known indices, the same in all rows, pick from it."""
    if ROW in index[1:]:
        raise NotScalar("records along another axis than the first")
    whole = node.inputs[0].type.shape
    row = tuple(ROW if i == 0 and index[:1] == (ROW,) else None for i in range(len(whole)))
    shape, places = _picked(row, whole, node.op, _whole_numbers(known))
    rows = row[:1] if row[:1] == (ROW,) else ()
    at = np.unravel_index(places[tuple(index[len(rows) :])], shape)
    return (*rows, *(int(k) for k in at[len(rows) :]))


def _whole_numbers(known: list[np.ndarray | None]) -> list[np.ndarray]:
    if any(v is None for v in known):
        raise NotScalar("an index that is no constant")
    return [np.asarray(v) for v in known]


def _picked(index: tuple, whole: tuple, op: Any, at: list[np.ndarray]) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the shape of an array and the places in it that an operation picks, without those of other rows.

    Two rows of the axis of records stand for all, since nothing is picked from it.
    """
    by_row = index[:1] == (ROW,)
    if by_row and op.idx_list[0] != slice(None):
        raise NotScalar("a part of the record axis (of all rows it is x[:, i, j].set(entries))")
    shape = tuple(2 if by_row and k == 0 else s for k, s in enumerate(whole))
    if ROW in index[1:] or None in shape:
        raise NotScalar("places along an axis of unknown length")
    where = tuple(
        slice(*(None if b is None else int(at[b]) for b in (e.start, e.stop, e.step)))
        if isinstance(e, slice)
        else at[e]
        for e in op.idx_list
    )
    size = int(np.prod(shape))
    places = np.arange(size).reshape(shape)[where]
    if not by_row:
        return shape, places
    if len(places) != 2 or not np.array_equal(places[1], places[0] + size // 2):
        raise NotScalar("records along another axis than the first")
    return shape, places[0]


def rank_of_picked(node: Any, known: list[np.ndarray | None]) -> int:
    """Return the number of axes of ``x[:, places]``, whose first is that of rows."""
    whole = node.inputs[0].type.shape
    row = (ROW, *(None for _ in whole[1:]))
    return 1 + _picked(row, whole, node.op, _whole_numbers(known))[1].ndim


def writes(node: Any, index: tuple, known: list[np.ndarray | None]) -> list[tuple[tuple, bool]]:
    """Return which entries of y an entry of ``x[places].set(y)`` or ``.inc(y)`` is made of.

    Parameters
    ----------
    node : Apply
        The operation, by itself or for each of a batch of arrays.
    index : tuple
        Index of the entry.
    known : list
        Numbers and arrays that say where, None of those that are no constants.

    Returns
    -------
    list of (tuple, bool)
        Indices in y, and whether each is added to what is there; if none is, the last stands alone.
    """
    op, batch = node.op, 0
    if isinstance(op, Blockwise):
        op, batch = op.core_op, op.batch_ndim(node)
    x, y = node.inputs[:2]
    at = _whole_numbers(known)
    if any(v.shape[:batch] != (1,) * batch for v in at):
        raise NotScalar("entries that are set at other places of each of several arrays")
    own = index[batch:]
    shape, places = _picked(own, x.type.shape[batch:], op, [v.reshape(v.shape[batch:]) for v in at])
    wanted = np.ravel_multi_index([0 if i == ROW else i for i in own], shape) if own else 0
    found = [tuple(int(k) for k in p) for p in np.argwhere(places == wanted)]
    if op.set_instead_of_inc or getattr(op, "ignore_duplicates", False):  # only the last of repeated places
        found = found[-1:]
    rows = own[:1] if own[:1] == (ROW,) else ()
    return [
        ((*index[:batch], *(full[len(full) - (y.type.ndim - batch) :])), not op.set_instead_of_inc)
        for full in ((*rows, *p) for p in found)
    ]
