"""Kernels that take a structure of arrays, from Python."""

import numba
from numba import types

from pymc_dp.lowering.addresses.native import function_at


def in_machine_code(kernel):
    """Return a kernel as a function to call from Python, which otherwise has no way into it."""
    kind, address = types.FunctionType(kernel.signature), kernel.address

    @numba.njit
    def call(n_sweeps, rng, state):
        function_at(address, kind)(n_sweeps, rng, state)

    return call
