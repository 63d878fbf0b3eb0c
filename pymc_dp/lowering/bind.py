"""Kernels as ordinary functions: names in them are bound to a model's functions and numbers, then compiled.

A kernel is a function of a module. Names that a model decides stand there as declarations, functions that
raise; :func:`rebound` gives the same code other meanings of them, and :class:`Kernel` compiles that to an
address. The code is never copied as text: errors, coverage and profiles point to its lines.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from types import FunctionType
from typing import Any

import numpy as np
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

from pymc_dp.lowering.native import Addressed, native_code
from pymc_dp.lowering.nopython import njit
from pymc_dp.lowering.version import SOURCE

Function = Callable[..., Any]
# Options of functions that are a part of kernels: merged into them, without counts of references to arrays
# that they are passed (atomic, and five times the work of a record), and not to be called from Python.
PART: dict[str, Any] = {
    "forceinline": True, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True
}  # fmt: skip
part_of_kernel = njit(**PART)
_PACKAGE = "pymc_dp."


def rebound(kernel: Function, names: Mapping[str, Any]) -> Function:
    """Return a kernel whose global names mean something else; it runs in plain Python, too."""
    unknown = set(names) - set(kernel.__code__.co_names)
    if unknown:
        raise NameError(f"{kernel.__qualname__} has no {', '.join(sorted(unknown))}")
    return FunctionType(kernel.__code__, {**kernel.__globals__, **names}, kernel.__name__)


def plain(kernel: Function, names: Mapping[str, Any]) -> Function:
    """Return a kernel in plain Python, with its parts: for tests, where ``names`` mean stand-ins."""
    there = kernel.__code__.co_names
    parts = {
        name: plain(value.py_func, {})
        for name, value in kernel.__globals__.items()
        if name in there and getattr(value, "targetoptions", {}).get("no_cpython_wrapper")
    }
    return rebound(kernel, {**parts, **names})


class Kernel(Addressed):
    """A kernel with a model's functions, compiled to an address.

    Parameters
    ----------
    kernel : function
    signature : numba signature
    names : mapping
        What the kernel's names mean: nopython functions, and numbers or arrays that become machine code.
    """

    def __init__(self, kernel: Function, signature: Any, names: Mapping[str, Any]):
        self.name, self.signature, python = kernel.__name__, signature, rebound(kernel, names)
        keys = [
            key_of(kernel),
            *(f"{name} {key}" if (key := key_of(v)) else None for name, v in names.items()),
        ]
        self.cache_key = _digest([*keys, str(signature)])
        if self.cache_key is not None:
            CACHED_SRC_FUNCTIONS[python] = self.cache_key
        self.dispatcher = native_code(python, signature, cached=self.cache_key is not None)


def key_of(meaning: Any) -> str | None:
    """Return what tells machine code with a function, a number or an array in it from other such code.

    The package's version stands for the code of its functions: what is left are values that they close over.
    None for a function that cannot be cached.
    """
    python = getattr(meaning, "py_func", meaning)
    if isinstance(python, FunctionType):
        if python in CACHED_SRC_FUNCTIONS:
            return CACHED_SRC_FUNCTIONS[python]
        if not python.__module__.startswith(_PACKAGE):
            return None
        held = (key_of(cell.cell_contents) for cell in python.__closure__ or ())
        line = str(python.__code__.co_firstlineno)
        return _digest([str(SOURCE), python.__module__, python.__qualname__, line, *held])
    if isinstance(meaning, tuple):
        return _digest(["tuple", *map(key_of, meaning)])
    if isinstance(meaning, np.ndarray | np.generic):
        return _digest([str(meaning.dtype), str(meaning.shape), meaning.tobytes().hex()])
    if not isinstance(meaning, bool | int | float | str):
        raise TypeError(f"machine code with a {type(meaning).__name__} in it has no key")
    return repr(meaning)


def _digest(contents: Sequence[str | None]) -> str | None:
    known = [c for c in contents if c is not None]
    return sha256("\n".join(known).encode()).hexdigest() if len(known) == len(contents) else None
