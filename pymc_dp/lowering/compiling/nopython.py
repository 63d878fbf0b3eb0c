"""Machine code from Python functions, in which division by zero is NumPy's: a number, never an error.

Numbers that a proposal tries may round to zero or overflow anywhere. What is infinite or no number is
compared, and refused; Python's error would end the chain instead. A callee that does not say how it divides
does as whoever compiles it first, so every function of the package says it.
"""

from collections.abc import Callable
from functools import cached_property, partial
from types import FunctionType
from typing import Any
from weakref import ref

import numba
from numba import types
from pytensor.configdefaults import config

from pymc_dp.lowering.compiling.keys import key_of
from pymc_dp.lowering.compiling.libraries import optimised_once
from pymc_dp.upstream.numba_private import (
    CPUDispatcher,
    FunctionCache,
    NullCache,
    _Cache,
    global_compiler_lock,
)
from pymc_dp.upstream.pytensor_private import CACHED_SRC_FUNCTIONS, numba_njit

DIVISION = {"error_model": "numpy"}
# what numba's decorator sets, and that C finds such functions by their address
_OF_DECLARED = {"nopython": True, "boundscheck": None, "no_cfunc_wrapper": True}
# for what PyTensor's functions call: without wrappers, and with their freedoms in arithmetic
njit_for_graphs = partial(numba_njit, **DIVISION)


class Called(CPUDispatcher):
    """A function that Python calls, compiled for the types that it is called with."""

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        with optimised_once():
            return super()._compile_for_args(*args, **kws)


class Part(CPUDispatcher):
    """A function for other functions; compiled once more, with a way into it, if Python calls it."""

    @cached_property
    def _from_python(self) -> Called:
        called = Called(self.py_func, targetoptions={**self.targetoptions, "no_cpython_wrapper": False})
        called._cache = DiskCache(called)
        return called

    def __call__(self, *args: Any) -> Any:
        """Call it from Python: at a few points, where a step is built, and in tests."""
        return self._from_python(*args)


class Declared(CPUDispatcher):
    """A function with declared types, compiled (or loaded from the disk) when it is first called.

    Numba compiles such functions where they are defined, which an import would wait for.
    """

    signature: Any = None

    def ready(self) -> None:
        """Compile the function, once: several threads may begin with it."""
        with global_compiler_lock:  # a lock of our own would wait for this one, in another order
            if self._can_compile:
                with optimised_once():
                    self.compile(self.signature)
                self.disable_compile()

    @cached_property
    def _part(self) -> CPUDispatcher:
        """The function as a part of others: Python's way into it takes as long to compile as itself."""
        options = {**self.targetoptions, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        part = CPUDispatcher(self.py_func, targetoptions=options)
        with optimised_once():
            part.compile(self.signature)
        part.disable_compile()
        return part

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile it for a caller that is being compiled."""
        return self._part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """Return what such a caller calls."""
        return self._part.get_overload(sig)

    def get_compile_result(self, sig: Any) -> Any:
        """Compile it for its address."""
        self.ready()
        return super().get_compile_result(sig)

    @cached_property
    def address(self) -> int:
        """The address at which machine code finds it."""
        compiled = self.get_compile_result(self.signature)
        return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        # numba asks for this at the first call, and then passes it the same arguments as they are
        if self.targetoptions.get("no_cpython_wrapper"):
            raise TypeError(f"{self.py_func.__name__} is called by its address only")
        self.ready()
        for given, declared in zip(args, self.signature.args, strict=True):
            if self.typingctx.can_convert(self.typeof_pyval(given), declared) is None:
                raise TypeError(f"{self.py_func.__name__} takes {self.signature}, got {type(given).__name__}")
        return self.overloads[self.signature.args].entry_point

    def _reduce_states(self) -> Any:
        return {**super()._reduce_states(), "signature": self.signature}

    @classmethod
    def _rebuild(cls, signature: Any, **states: Any) -> Any:  # type: ignore[override]
        rebuilt = super()._rebuild(**states)
        rebuilt.signature = signature
        return rebuilt


class DiskCache(_Cache):
    """The place of a function's machine code on disk, among PyTensor's, by :func:`key_of` its dispatcher.

    Numba's own goes by the time of the file that a function stands in, whatever it calls in others. The key
    is asked for when the function is compiled: by then all that it calls is defined.
    """

    def __init__(self, dispatcher: Any):
        self._dispatcher = ref(dispatcher)

    @cached_property
    def _place(self) -> Any:
        dispatcher: Any = self._dispatcher()
        key = key_of(dispatcher) if config.numba__cache else None
        if key is None:
            return NullCache()
        function = dispatcher.py_func
        code = function.__code__
        if function in CACHED_SRC_FUNCTIONS:  # of a graph: its file has another name each time
            code = code.replace(co_filename=f"{function.__name__}.py")
        same = FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
        CACHED_SRC_FUNCTIONS[same] = key  # where PyTensor's part of numba's cache looks for it
        return FunctionCache(same)

    @property
    def cache_path(self) -> Any:
        """The folder."""
        return self._place.cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load machine code for some types, or None."""
        return self._place.load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep machine code for some types."""
        self._place.save_overload(sig, data)

    def enable(self) -> None:
        """Use what is there, as is the rule."""
        self._place.enable()

    def disable(self) -> None:
        """Use nothing of what is there."""
        self._place.disable()

    def flush(self) -> None:
        """Forget what is there."""
        self._place.flush()


def njit(
    function_or_signature: Any = None, *, cache: bool = False, from_python: bool = False, **options: Any
) -> Any:
    """Decorate a function to be compiled when it is first called, with numba's options.

    A signature declares the types that it is compiled for, whatever it is called with. What takes a structure
    is called by its address only, and Python's way into it is not compiled, unless `from_python` asks for it.
    """
    options = {**DIVISION, **options}
    if isinstance(function_or_signature, FunctionType):
        return _compiler(None, cache, from_python, options)(function_or_signature)
    return _compiler(function_or_signature, cache, from_python, options)


def _compiler(
    signature: Any, cache: bool, from_python: bool, options: dict[str, Any]
) -> Callable[[Callable[..., Any]], Any]:
    def compiled_later(function: Callable[..., Any]) -> Any:
        if signature is None:
            dispatcher = numba.njit(**options)(function)
        else:
            kept = {**_OF_DECLARED, **options}
            if not from_python and any(isinstance(kind, types.BaseNamedTuple) for kind in signature.args):
                kept["no_cpython_wrapper"] = True
            dispatcher = Declared(function, targetoptions=kept)
            dispatcher.signature = signature
        if cache:
            dispatcher._cache = DiskCache(dispatcher)
        return dispatcher

    return compiled_later


def c_address(function: Callable[..., Any], signature: Any) -> int:
    """Compile a function for C, as which it is kept until the process ends; return its address."""
    compiled = numba.cfunc(signature, **DIVISION)(function)
    _OF_C.append(compiled)
    return int(compiled.address)


_OF_C: list[Any] = []
