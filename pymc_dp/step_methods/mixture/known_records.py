"""Mixtures whose kernel is no confidential record, as chains of the mixture steps see them.

The records of such a mixture are the values of the kernel: data, or a variable that other steps move. A sweep
over labels, or an update of atoms, takes them as they are. So they form a block of records behind no release,
with no moves of their own.
"""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from pymc.model.core import Model
from pytensor.graph.basic import Variable

from pymc_dp.mixtures.structure import Mixture, find_mixtures
from pymc_dp.query.records import RecordBlock
from pymc_dp.query.rowlocal import RowAnalysis
from pymc_dp.step_methods.block.layout import RecordLayout
from pymc_dp.step_methods.block.program import RecordProgram, shared_program, static_value
from pymc_dp.step_methods.discovery import record_blocks
from pymc_dp.step_methods.record_step import RecordChain

_BLOCKS: "WeakKeyDictionary[Model, dict[Variable, RecordBlock]]" = WeakKeyDictionary()


def kernel_blocks(model: Model) -> list[tuple[Mixture, RecordBlock]]:
    """Return the mixtures of a model whose kernel is no confidential record, with the block of its values."""
    mixtures = find_mixtures(model)
    confidential = {rv for block in record_blocks(model) for rv in block.records} if mixtures else set()
    return [(m, _block_of(model, m)) for m in mixtures if m.kernel not in confidential]


def _block_of(model: Model, mixture: Mixture) -> RecordBlock:
    kernel = mixture.kernel
    if kernel.type.ndim - kernel.owner.op.ndim_supp < 1:  # type: ignore[union-attr]
        raise ValueError(
            f"The records of {kernel.name} are tied together by one multivariate distribution, and labels "
            "need a law of each record given its atoms: give the record axis as a batch axis."
        )
    known = _BLOCKS.setdefault(model, {})
    block = known.get(kernel)
    if block is None or block.n != mixture.n:
        analysis = RowAnalysis({kernel}, mixture.n, set(model.basic_RVs))
        block = known[kernel] = RecordBlock([kernel], mixture.n, analysis, [])
    return block


class KernelLayout(RecordLayout):
    """Values of a kernel as a matrix with a row per record; what is packed is not written back."""

    def __init__(self, model: Model, kernel: Any, n: int, initial_point: dict[str, Any]):
        self._kernel, self.source = kernel, model.rvs_to_values[kernel]
        self.observed = kernel in model.observed_RVs
        name = str(self.source.name)
        values = self.values_now() if self.observed else initial_point[name]
        if np.shape(values)[:1] != (n,):
            raise ValueError(
                f"{kernel.name} has values of shape {np.shape(values)}, and its labels are those of {n} "
                "records, as many as there were when they were declared: the first axis must be the records, "
                "and with other data, build the model again."
            )
        super().__init__(model, [kernel], n, {}, {name: values})
        self.moved_by_others, self.names = self.names, []
        self._whole = []  # what does not move is not drawn as numbers that are too large, either

    def values_now(self) -> np.ndarray:
        """Return the data, which ``pm.set_data`` may have changed."""
        values = np.asarray(static_value(self.source))
        if np.isnan(values).any():
            raise ValueError(
                f"The data of {self._kernel.name} are NaN in {int(np.isnan(values).sum())} place(s), and a "
                "record needs a value to have a cluster: leave these records out."
            )
        return values

    def pack(self, point: dict[str, Any], out: np.ndarray | None = None) -> np.ndarray:
        """Write the values into a matrix, one row per record."""
        x = np.zeros((self.n, self.width)) if out is None else out
        if not self.observed:
            x[:] = np.reshape(point[self.moved_by_others[0]], x.shape)
        elif out is None:
            x[:] = self.values_now().reshape(x.shape)
        return x

    def unpack(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Return nothing: the values do not move."""
        return {}


class KernelProgram(RecordProgram):
    """Native functions of the values of a kernel."""

    def _layout_of_records(self, model: Model, point: dict[str, Any]) -> RecordLayout:
        return KernelLayout(model, self.block.records[0], self.n, point)


class KernelChain(RecordChain):
    """The values of a kernel, in the place of records that would move.

    Attributes
    ----------
    under_base : array
        See :class:`.State`; not worked out where NaN.
    """

    def __init__(self, model: Model, block: RecordBlock, initial_point: dict[str, Any]):
        self.program = shared_program(block, lambda: KernelProgram(model, block, initial_point))
        self.moves, self._sizes = [], []
        self.x, self.totals = np.zeros((self.program.n, self.program.records.width)), np.zeros(0)
        self.under_base = np.zeros((2, self.program.n))
        self.first_power, self.observed = 1.0, bool(getattr(self.program.records, "observed", True))
        self._rng, self._handle = None, ()
        self.refresh_data()

    def refresh_data(self) -> None:
        """Read the data again (``pm.set_data`` may have changed them)."""
        super().refresh_data()
        layout = self.program.records
        if isinstance(layout, KernelLayout) and layout.observed:
            other = self.program.data.in_use(layout.source)
            values = layout.values_now() if other is None else other
            if values.size != self.x.size or len(values) != len(self.x):
                raise ValueError(
                    f"{self.program.names[0]} now has data of shape {values.shape}, not {layout.shapes[0]}: "
                    "the number of records is that of their labels; build the model again."
                )
            self.x[:] = values.reshape(self.x.shape)
        self.under_base[:] = np.nan

    def draw(self, rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        """Return the values, which are not drawn."""
        return self.x
