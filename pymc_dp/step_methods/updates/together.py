"""Parameters that the laws of several blocks of records read: their density given the noise of all blocks.

Given the records of one block, a parameter is tied to these however freely those of another move. Here the
records of all of them move along. The density is the sum of what each block adds: releases of its records
where these move to, and what else reads them; what reads no records is counted with the first block.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytensor.tensor as pt
from numba import types
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.native import (
    CONDITIONAL,
    COORDINATES,
    HANDLE,
    MATRIX,
    NOISE,
    RECORDS,
    VECTOR,
    NativeFunction,
    function_at,
    generator_at,
)
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.query.records import parameters_of
from pymc_dp.step_methods.block.layout import ParameterLayout
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.updates.columns import shape_held
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.state import LEARNT, ParameterState
from pymc_dp.step_methods.updates.walks import random_walk

_CONDITIONAL, _COORDINATES = types.FunctionType(CONDITIONAL), types.FunctionType(COORDINATES)
_NOISE, _RECORDS = types.FunctionType(NOISE), types.FunctionType(RECORDS)
_INDEX = types.Array(types.intp, 1, "C")


class Share(Conditionals):
    """What one of several blocks adds to the density of parameters given the noise of all.

    Parameters
    ----------
    program : RecordProgram
    moving : collection of Variable
    counted : callable
        Whether a variable or a potential of the model is counted with this block.

    Raises
    ------
    NoNoiseForm
        If a record that depends on the moving parameters is not a function of parameter-free noise.
    """

    def __init__(
        self, program: RecordProgram, moving: Collection[Variable], counted: Callable[[Variable], bool]
    ):
        self._counted = counted
        super().__init__(program, moving)

    def _noncentred(self):  # type: ignore[no-untyped-def]
        # records move with the parameters: what reads them would have to be written as noise after them
        records = {*self.program.block.records, *self.program.block.others}
        found = super()._noncentred().items()
        return {rv: form for rv, form in found if not self._depends(parameters_of(rv), records)}

    def _factors(self, on):  # type: ignore[no-untyped-def]
        return [factor for factor in super()._factors(on) if self._counted(factor)]


def given_all_noise(shares: Sequence[Share]) -> tuple[NativeFunction, np.ndarray]:
    """Log density of parameters given the noise of several blocks, and how many data each block reads.

    The function takes the parameters as the first block's program has them, and data, noise and totals of the
    blocks one after the other; the noise of all is one row.
    """
    first = shares[0].program
    graphs = [share.program.lifted([share.given_noise()])[0] for share in shares]
    data, given = pt.vector("data", dtype="float64"), pt.matrix("noise", dtype="float64")
    n_totals = sum(share.program.n_statistics for share in shares)
    totals = pt.vector("totals", dtype="float64", shape=(n_totals,))
    sizes = np.array([share.program.data.size for share in shares])
    total, at = pt.constant(0.0), np.zeros(3, dtype=int)
    for share, graph, n_data in zip(shares, graphs, sizes, strict=True):
        program = share.program
        shape = shape_held(program.records)
        ends = at + np.array([n_data, shape[0] * shape[1], program.n_statistics])
        noise = given[0, at[1] : ends[1]].reshape(shape)
        theta = first.theta if program is first else _seen_by(program.parameters, first)
        (own,) = clone_replace(
            [graph],
            {
                program.theta: theta,
                program.data.data: data[at[0] : ends[0]],
                share.u: noise.T,
                share.totals: totals[at[2] : ends[2]],
            },
            rebuild_strict=False,
        )
        total, at = total + own, ends
    inputs = [first.theta, data, given, totals]
    return NativeFunction("given the noise of several blocks", inputs, [total], CONDITIONAL), sizes


def _seen_by(layout: ParameterLayout, first: RecordProgram) -> TensorVariable:
    """Return the parameters as another block's program has them; it reads no records of the first."""
    known = first.parameters
    return pt.concatenate([
        first.theta[known.slices[known.variables.index(rv)]]
        if rv in known.variables
        else pt.zeros(layout.slice_length(rv))
        for rv in layout.variables
    ])  # fmt: skip


@njit(types.void(HANDLE, types.intp, VECTOR, VECTOR, MATRIX, MATRIX), cache=True, from_python=True)
def take_noise(handle, address, theta, data, x, u):
    """Write the noise behind records."""
    function_at(address, _NOISE)(generator_at(handle), theta, data, x, u)


@njit(types.void(types.intp, VECTOR, VECTOR, MATRIX, MATRIX), cache=True, from_python=True)
def give_records(address, theta, data, u, x):
    """Write the records that noise belongs to."""
    function_at(address, _RECORDS)(theta, data, u, x)


@njit(
    types.int64(
        HANDLE, types.int64, _INDEX, VECTOR, VECTOR, VECTOR, VECTOR, MATRIX, VECTOR, _INDEX, LEARNT,
        types.int64, types.int64, VECTOR,
    ),
    cache=True,
    from_python=True,
)  # fmt: skip
def walk_together(
    handle, n_updates, addresses, theta, phi, own_data, data, given, totals, moving, learnt, n_adapted,
    adapting, tally,
):  # fmt: skip
    """Move parameters given the noise of several blocks, in place; return how often.

    ``addresses``: the density, to and from its coordinates, 0 where these are the parameters. ``phi`` gets
    the coordinates, ``own_data`` are those of the first block.
    """
    if addresses[1] != 0:
        function_at(addresses[1], _COORDINATES)(theta, own_data, phi)
    else:
        phi[:] = theta
    state = ParameterState(
        phi,
        data,
        given,
        totals,
        moving,
        np.empty((0, 2)),
        learnt,
        n_adapted,
        adapting,
        tally,
    )
    accepted = random_walk(n_updates, generator_at(handle), addresses[0], state)
    if accepted > 0:
        if addresses[2] != 0:
            function_at(addresses[2], _COORDINATES)(phi, own_data, theta)
        else:
            theta[:] = phi
    return accepted
