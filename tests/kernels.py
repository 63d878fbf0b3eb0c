"""Kernels in tests: called from Python, in plain Python, and with errors planted in them."""

import inspect
from types import ModuleType

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


def in_python(module, *changes):
    """A module of kernels in plain Python, with errors planted in it: (text, text instead)."""
    source = inspect.getsource(module).replace("@njit\n", "")
    for text, instead in changes:
        assert text in source
        source = source.replace(text, instead)
    made = ModuleType("planted")
    exec(source, made.__dict__)
    return made


def planted(module, *changes):
    """The names of a module, with errors planted in functions of it: (function, text, text instead)."""
    names = {**vars(module)}
    for function, text, instead in changes:
        source = inspect.getsource(function)
        assert text in source
        exec(source.replace(text, instead), names)
    return names
