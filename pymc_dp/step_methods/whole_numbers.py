"""Whole numbers in the law of records: which of them move with the parameters, and why others do not.

A number of groups, the entry of a table that a law has, a place in time at which it changes: given the
imputed records, such a number hardly ever moves under strong privacy, as little as the real ones. Steps of a
random walk, given the records and given their noise, are rounded for it.
"""

import logging
from collections.abc import Sequence

import numpy as np
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mixtures.structure import is_labels
from pymc_dp.query.records import RecordBlock, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.supports import ends_by_entry, ends_of_support
from pymc_dp.step_methods.block.parents import is_real

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

_LOOKS_UP = (Subtensor, AdvancedSubtensor, IncSubtensor, AdvancedIncSubtensor)


def whole_numbers_of(model: Model, block: RecordBlock) -> list[TensorVariable]:
    """Return the whole numbers that stand in the law of a record, but for the number of people."""
    variables = set(model.basic_RVs)
    leaves = set(leaves_of([p for rv in block.records for p in parameters_of(rv)], variables))
    leaves -= {*block.records, *block.others, block.count}
    return [rv for rv in model.free_RVs if rv in leaves and not is_real(rv) and not is_labels(rv)]


def ends_of(rv: Variable) -> tuple[float, float]:
    """Return the least and the greatest value of a whole-numbered parameter, where they are known."""
    ends = ends_of_support(rv)
    return (-np.inf, np.inf) if ends is None else (float(ends[0]), float(ends[1]))


def ends_of_entries(model: Model, rv: Variable) -> np.ndarray:
    """Return the same for each entry of it, shape (entries, 2): each may pick from an array of its own."""
    ends, shape = ends_by_entry(rv), model.eval_rv_shapes()[str(rv.name)]
    each = (-np.inf, np.inf) if ends is None else ends
    return np.stack([np.broadcast_to(np.asarray(end, float), shape).ravel() for end in each], axis=1)


def reason_to_leave(model: Model, rv: Variable) -> str:
    """Return why a whole number is moved by no random walk whose steps may lead anywhere; empty if it may be.

    Native code does not ask whether an array has an entry of some index.
    """
    if np.all(np.isfinite(ends_of(rv))):
        return ""
    variables = set(model.basic_RVs)
    graphs = [p for term in variables for p in parameters_of(term)] + list(model.potentials)
    looked_up: list[Variable] = [
        index for v in ancestors(graphs) if v.owner is not None for index in _indices(v.owner)
    ]
    if rv not in leaves_of(looked_up, variables):
        return ""
    return "it picks an entry of an array, and its law has no known least and greatest value"


def _indices(node: object) -> Sequence[Variable]:
    """Return what says which entry of an array a node of a graph reads or changes."""
    op, inputs = node.op, node.inputs  # type: ignore[attr-defined]
    if not isinstance(op, _LOOKS_UP):
        return []
    return inputs[1:] if isinstance(op, Subtensor | AdvancedSubtensor) else inputs[2:]


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
