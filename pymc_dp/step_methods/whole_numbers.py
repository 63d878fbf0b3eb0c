"""Whole numbers in the law of records: which of them move with the parameters, and why others do not.

A number of groups, the entry of a table that a law has, a place in time at which it changes: given the
imputed records, such a number hardly ever moves under strong privacy, as little as the real ones. Steps of a
random walk, given the records and given their noise, are rounded for it.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pymc.model.core import Model
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import CategoricalRV
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    get_idx_list,
)
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mixtures.structure import is_labels
from pymc_dp.query.records import RecordBlock, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.supports import ends_by_entry
from pymc_dp.step_methods.block.parents import is_real
from pymc_dp.step_methods.lengths import with_known_lengths

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

_READS = (Subtensor, AdvancedSubtensor)
_LOOKS_UP = (*_READS, IncSubtensor, AdvancedIncSubtensor)
# What only moves the entries of its first input about.
_MOVES = (DimShuffle, Reshape, Subtensor, AdvancedSubtensor, TensorFromScalar, ScalarFromTensor)


def whole_numbers_of(model: Model, block: RecordBlock) -> list[TensorVariable]:
    """Return the whole numbers that stand in the law of a record, but for the number of people."""
    variables = set(model.basic_RVs)
    leaves = set(leaves_of([p for rv in block.records for p in parameters_of(rv)], variables))
    leaves -= {*block.records, *block.others, block.count}
    return [rv for rv in model.free_RVs if rv in leaves and not is_real(rv) and not is_labels(rv)]


def ends_of(rv: Variable) -> tuple[float, float]:
    """Return the least and the greatest value of a whole-numbered parameter, infinite where not known."""
    low, high = _ends(rv)
    return float(np.min(low)), float(np.max(high))


def ends_of_entries(model: Model, rv: Variable) -> np.ndarray:
    """Return the same for each entry of it, shape (entries, 2): each may pick from an array of its own."""
    shape = model.eval_rv_shapes()[str(rv.name)]
    return np.stack([np.broadcast_to(np.asarray(end, float), shape).ravel() for end in _ends(rv)], axis=1)


def _ends(rv: Variable) -> tuple[Any, Any]:
    ends = ends_by_entry(rv)
    if ends is None and isinstance(rv.owner.op, CategoricalRV):  # type: ignore[union-attr]
        # as many categories as data or dimensions have now: a step is made anew when that changes
        return 0, int(parameters_of(rv)[0].shape[-1].eval()) - 1  # type: ignore[attr-defined]
    return (-np.inf, np.inf) if ends is None else ends


def reason_to_leave(model: Model, rv: Variable) -> str:
    """Return why a whole number is moved by no random walk whose steps may lead anywhere; empty if it may be.

    Native code does not ask whether an array has the entries that other arrays say.
    """
    reads = _reads(model, rv)
    if not reads:
        return ""
    known = with_known_lengths(model)
    again = known.named_vars[str(rv.name)]
    if not np.all(np.isfinite(ends_of(again))):
        return "it picks an entry of an array, and its law has no constant least and greatest value"
    if not all(_stays_within(node, index, again) for node, index in _reads(known, again)):
        return "entries that it picks are not known to be those of the array"
    return ""


def _reads(model: Model, rv: Variable) -> list[tuple[Apply, Variable]]:
    """Return where an array is read or changed at entries that depend on a variable, and which entries."""
    variables = set(model.basic_RVs)
    graphs = [p for term in variables for p in parameters_of(term)] + list(model.potentials)
    return [
        (v.owner, index)
        for v in ancestors(graphs)
        if v.owner is not None and isinstance(v.owner.op, _LOOKS_UP)
        for index in v.owner.inputs[1 if isinstance(v.owner.op, _READS) else 2 :]
        if rv in leaves_of([index], variables)
    ]


def _stays_within(node: Apply, index: Variable, rv: Variable) -> bool:
    """Whether entries are those of the array: single ones are looked after by native code, others here."""
    if isinstance(node.op, Subtensor | IncSubtensor):
        return True
    array, reads = node.inputs[0], isinstance(node.op, AdvancedSubtensor)
    given = node.inputs if reads else [array, *node.inputs[2:]]
    axes = [axis for axis, entry in enumerate(get_idx_list(given, node.op.idx_list)) if entry is index]
    while index is not rv:
        if index.owner is None or (not isinstance(index.owner.op, _MOVES) and not _is_cast(index.owner.op)):
            return False
        index = index.owner.inputs[0]
    low, high = ends_of(rv)
    lengths = [array.type.shape[axis] for axis in axes]  # type: ignore[attr-defined]
    return bool(lengths) and all(n is not None and -n <= low and high < n for n in lengths)


def _is_cast(op: Any) -> bool:
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, Cast)


def say_what_is_left(left: Sequence[Variable], reason: str) -> None:
    """Tell which whole numbers are moved by other steps, given the records."""
    if left:
        _log.info(
            "AncillaryUpdate leaves %s to other steps, given the records: %s. Expect slow mixing where "
            "privacy is strong.",
            ", ".join(str(rv.name) for rv in left), reason,
        )  # fmt: skip


def refuse_unmoved(
    update: str, n_ancillary: int | None, counted: set[Variable], whole: set[Variable], redrawn: bool
) -> None:
    """Refuse whole numbers, or a number of people, that an update of a user's choice could not move.

    The number of people moves given the noise only. ``redrawn``: whether parameters are proposed with all
    records though no update was chosen.
    """
    refused: set[Variable] = set()
    given = f"`update` = {update!r}"
    if update not in ("auto", "random_walk"):
        refused = counted if update == "off" else counted | whole
    elif redrawn and whole:
        refused, given = whole, f"`update` = {update!r}, which proposes parameters with all records here,"
    elif n_ancillary == 0:
        refused, given = counted, "`n_ancillary` = 0"
    if refused:
        names = ", ".join(sorted(str(rv.name) for rv in refused))
        raise ValueError(
            f"{given} moves no whole numbers such as {names}: 'random_walk' does, and a number of people "
            "only given the noise. Leave it out, or name the other parameters in `vars`, and pm.sample "
            "chooses a step for this one."
        )


def refuse_unsafe(model: Model, whole: Iterable[Variable]) -> None:
    """Refuse whole numbers that a user named and a random walk may not move."""
    for rv in whole:
        reason = reason_to_leave(model, rv)
        if reason:
            raise ValueError(
                f"{rv.name} in `vars`: AncillaryUpdate does not move it, since {reason}. Leave it out of "
                "`vars`, and pm.sample chooses a step for it; or give it the law pm.Categorical, or "
                "pm.DiscreteUniform with constant ends, and let it pick from the array itself."
            )
