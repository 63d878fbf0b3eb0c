"""Keys under which compiled code is kept on disk: what a function is, with all that it means.

Machine code depends on a function's own code, on what it closes over, and on the functions and numbers that
its global names mean, and so on down. All of it is in the key and nothing else is: after an edit or an
upgrade what is not concerned is loaded, and what is can never be taken for the old code. Docstrings, comments
and the place of a function in its file are not in it.
"""

import builtins
import dis
import sys
from collections.abc import Callable, Iterable
from hashlib import sha256
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload as numba_overload

from pymc_dp.upstream.numba_private import Dispatcher, Signature, _Intrinsic, definition, global_compiler_lock
from pymc_dp.upstream.pytensor_private import CACHED_SRC_FUNCTIONS

# Libraries whose functions are what their version says.
_LIBRARIES = {"llvmlite", "numba", "numpy", "pymc", "pytensor", "scipy"}
# Values that print what they are.
_PRINTED = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis),
    np.dtype, np.ufunc, types.Type, Signature, ir.Type,
)  # fmt: skip
_known: WeakKeyDictionary[FunctionType, str | None] = WeakKeyDictionary()
# Functions that are being read, since one may call itself.
_reading: list[FunctionType] = []
# The machine code of functions that have another in Python.
_in_machine_code: dict[Callable[..., Any], Callable[..., Any]] = {}


def overload(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Register what numba compiles for a function, as numba's decorator does, and put it into keys."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        _in_machine_code[function] = implementation
        return numba_overload(function, **options)(implementation)  # type: ignore[no-any-return]

    return register


def digest(contents: Iterable[str | None]) -> str | None:
    """Return one key for several; None if there is None among them, which stands for no key."""
    known = list(contents)
    return None if None in known else sha256("\n".join(known).encode()).hexdigest()  # type: ignore[arg-type]


def version_of(function: Any) -> int:
    """Return the key of a function as a number, which PyTensor asks for."""
    key = key_of(function)
    if key is None:
        raise TypeError(f"{function} depends on something that has no key")
    return int(key[:15], 16)


def key_of(meaning: Any) -> str | None:
    """Return what tells a value that machine code is made from from others; None if that cannot be told."""
    if isinstance(meaning, Dispatcher):
        options = (f"{name} {_option(value)}" for name, value in sorted(meaning.targetoptions.items()))
        return digest([key_of(meaning.py_func), str(getattr(meaning, "signature", "")), *options])
    if isinstance(meaning, FunctionType):
        with global_compiler_lock:  # for several threads may read
            return CACHED_SRC_FUNCTIONS.get(meaning) or _key_of_function(meaning)
    if isinstance(meaning, _Intrinsic):
        return key_of(definition(meaning))
    if isinstance(meaning, np.ndarray | np.generic):
        return digest([str(meaning.dtype), str(meaning.shape), meaning.tobytes().hex()])
    if isinstance(meaning, tuple | frozenset):
        parts = [key_of(part) for part in meaning]
        return digest(
            [key_of(type(meaning)), *(parts if isinstance(meaning, tuple) else sorted(map(str, parts)))]
        )
    if isinstance(meaning, ModuleType):
        return f"module {meaning.__name__}"
    if isinstance(meaning, type | BuiltinFunctionType):
        fields = getattr(meaning, "_fields", "")
        return f"{meaning.__module__}.{meaning.__qualname__} {fields}"
    if isinstance(meaning, _PRINTED):
        return f"{type(meaning).__name__} {meaning!r}"
    return None


def _option(value: Any) -> str:
    return repr(sorted(value) if isinstance(value, set) else value)


def _key_of_function(function: FunctionType) -> str | None:
    if function in _known:
        return _known[function]
    if function in _reading:  # a loop of several functions cannot be told from another by one of them
        return "itself" if function is _reading[-1] else None
    library = function.__module__.partition(".")[0] if function.__module__ else ""
    if library in _LIBRARIES and "<locals>" not in function.__qualname__:
        return f"{function.__module__}.{function.__qualname__} {sys.modules[library].__version__}"
    _reading.append(function)
    try:
        found = digest(_contents(_in_machine_code.get(function, function)))
    finally:
        _reading.pop()
    _known[function] = found
    return found


def _contents(function: Any) -> Iterable[str | None]:
    """Yield what tells a function from others."""
    code = function.__code__
    yield from (function.__module__, function.__qualname__)
    yield from _code(code, function.__doc__)
    yield key_of(function.__defaults__)
    yield key_of(tuple((function.__kwdefaults__ or {}).items()))
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield name
        yield key_of(cell.cell_contents)
    names = _names(code)
    for name in sorted(names["LOAD_GLOBAL"]):
        yield name
        if name in function.__globals__:
            meaning = function.__globals__[name]
            yield key_of(meaning)
            if isinstance(meaning, ModuleType) and meaning.__name__.partition(".")[0] not in _LIBRARIES:
                yield from (
                    key_of(getattr(meaning, a)) for a in sorted(names["LOAD_ATTR"]) if hasattr(meaning, a)
                )
        else:
            yield "builtin" if hasattr(builtins, name) else None


def _code(code: CodeType, docstring: str | None = None) -> Iterable[str | None]:
    """Yield what tells bytecode from other bytecode, without its place in a file."""
    yield from map(str, (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount))
    yield from (code.co_code.hex(), repr(code.co_names), repr(code.co_varnames))
    for k, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif k or docstring is None or constant != docstring:
            yield key_of(constant)


def _names(code: CodeType) -> dict[str, set[str]]:
    """Names of global variables and of attributes, in a function and in those inside it."""
    found: dict[str, set[str]] = {"LOAD_GLOBAL": set(), "LOAD_ATTR": set()}
    for instruction in dis.get_instructions(code):
        if instruction.opname in found:
            found[instruction.opname].add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            for what, names in _names(constant).items():
                found[what] |= names
    return found
