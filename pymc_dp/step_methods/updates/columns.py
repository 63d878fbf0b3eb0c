"""Records and their noise as densities of parameters read them: column by column.

A sweep reads one record after the other, a row of a matrix. A density of parameters reads the same number of
all records: where these lie side by side, a processor computes several at once, for a third of the time.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import types
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.native import MATRIX, NativeFunction
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.step_methods.block.layout import RecordLayout
from pymc_dp.step_methods.block.program import RecordProgram


def shape_held(records: RecordLayout) -> tuple[int, int]:
    """Shape of the array that holds all records, or their noise."""
    return records.width, records.n


def native(
    program: RecordProgram,
    name: str,
    x: TensorVariable,
    others: Sequence[Variable],
    graph: Any,
    signature: Any,
) -> NativeFunction:
    """Compile a graph of a matrix ``x`` with a row per record as a function of the array that holds it."""
    held = pt.matrix(x.name, dtype="float64", shape=shape_held(program.records))
    (graph,) = clone_replace([graph], {x: held.T}, rebuild_strict=False)
    return program.native(name, [held, *others], [graph], signature)


@njit(types.void(MATRIX, MATRIX), cache=True)
def turn(x: np.ndarray, columns: np.ndarray) -> None:
    """Write the columns of a matrix one after the other, in place."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            columns[j, i] = x[i, j]
