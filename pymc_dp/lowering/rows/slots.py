"""Graphs of a mixture as scalar code: one slot of its atoms, and one record with the atoms of its slot."""

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.rows.rows import ROW, NotScalar, RowGraph

Entry = Callable[[Variable, tuple[int, ...]], TensorVariable]


class SlotGraph(RowGraph):
    """Entries of graphs with one row per slot, as functions of the atoms of that slot.

    What depends on no atom is hoisted together with what ``rows`` hoists.
    """

    def __init__(
        self, is_free: Callable[[Variable], bool], atom_entry: Entry, atoms: Sequence[Variable], hoisted: Any
    ):
        super().__init__(is_free, atom_entry, atoms)
        self._shared = hoisted
        for name in ("constants", "constant_inputs", "_hoisted"):
            setattr(self, name, getattr(hoisted, name))

    def _like(self, record_entry: Entry) -> RowGraph:
        return SlotGraph(self.is_free, record_entry, list(self._records), self._shared)

    def _hoist(self, variable: Variable, index: tuple) -> TensorVariable:
        if ROW in index:
            raise NotScalar("a parameter with a row of its own for every slot")
        return super()._hoist(variable, index)


class LabelledGraph(RowGraph):
    """Entries of row-local graphs, in which ``table[labels]`` is the row of the record's own slot."""

    def __init__(
        self,
        is_free: Callable[[Variable], bool],
        record_entry: Entry,
        records: Sequence[Variable],
        labels: Any,
    ):
        super().__init__(is_free, record_entry, records)
        self._labels = labels
        self.slots: SlotGraph | None = None  # known once there is something to hoist with

    def _like(self, record_entry: Entry) -> RowGraph:
        other = LabelledGraph(self.is_free, record_entry, list(self._records), self._labels)
        other.slots = self.slots
        return other

    def _pick(self, node: Any, index: tuple) -> TensorVariable:
        table, entries = node.inputs[0], node.op.idx_list
        if node.inputs[1] is not self._labels:
            return super()._pick(node, index)
        assert self.slots is not None
        if any(isinstance(e, slice) for e in entries):
            raise NotScalar("a slice of atoms beside the labels")
        further = tuple(_constant(node.inputs[1 + e]) for e in entries[1:])
        return self.slots.entry(table, (*index[:1], *further, *index[1:]))


def _constant(index: Variable) -> int:
    while index.owner is not None and len(index.owner.inputs) == 1:
        index = index.owner.inputs[0]
    data = getattr(index, "data", None)
    if data is None or data.size != 1:
        raise NotScalar("an index of atoms that is no constant")
    return int(data.item())
