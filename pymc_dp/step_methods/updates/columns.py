"""Records and their noise as densities of parameters read them: column by column.

A sweep reads one record after the other, a row of a matrix. A density of parameters reads the same number of
all records: where these lie side by side, a processor computes several at once, for a third of the time.
Records of one number are held as they are.
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
    rows = (records.n, records.width)
    return rows[::-1] if records.by_columns else rows


def as_held(records: RecordLayout, x: np.ndarray) -> np.ndarray:
    """Return a matrix with a row per record as densities of parameters read it."""
    return np.ascontiguousarray(x.T) if records.by_columns else x


def turned(records: RecordLayout, matrix: TensorVariable) -> Any:
    """Return the array that holds a matrix with a row per record, or the matrix that an array holds."""
    return matrix.T if records.by_columns else matrix


def native(
    program: RecordProgram,
    name: str,
    x: TensorVariable,
    others: Sequence[Variable],
    graph: Any,
    signature: Any,
) -> NativeFunction:
    """Compile a graph of a matrix ``x`` with a row per record, as a function of the array that holds it."""
    held = x
    if program.records.by_columns:
        held = pt.matrix(x.name, dtype="float64", shape=shape_held(program.records))
        (graph,) = clone_replace([graph], {x: held.T}, rebuild_strict=False)
    return program.native(name, [held, *others], [graph], signature)


@njit(types.void(MATRIX, MATRIX), cache=True)
def turn(x: np.ndarray, columns: np.ndarray) -> None:
    """Write the columns of a matrix one after the other, in place."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            columns[j, i] = x[i, j]
