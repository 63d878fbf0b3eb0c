"""Machine code from Python functions, in which division by zero is NumPy's: a number, never an error.

Numbers that a proposal tries may round to zero or overflow anywhere. What is infinite or no number is
compared, and refused; Python's error would end the chain instead. A callee that does not say how it divides
does as whoever compiles it first, so every function of the package says it.
"""

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import numba
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from pytensor.link.numba.dispatch.basic import numba_njit

_DIVISION = {"error_model": "numpy"}
# for what PyTensor's functions call: without wrappers, and with their freedoms in arithmetic
njit_for_graphs = partial(numba_njit, **_DIVISION)


class Declared(CPUDispatcher):
    """A function with declared types, compiled (or loaded from the disk) when it is first called.

    Numba compiles such functions where they are defined, which an import would wait for.
    """

    signature: Any = None

    def ready(self) -> None:
        """Compile the function, once: several threads may begin with it."""
        with global_compiler_lock:  # a lock of our own would wait for this one, in another order
            if self._can_compile:
                self.compile(self.signature)
                self.disable_compile()

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile it for a caller that is being compiled."""
        self.ready()
        return super().get_call_template(args, kws)

    def get_compile_result(self, sig: Any) -> Any:
        """Compile it for its address."""
        self.ready()
        return super().get_compile_result(sig)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        # numba asks for this at the first call, and then passes it the same arguments as they are
        self.ready()
        for given, declared in zip(args, self.signature.args, strict=True):
            if self.typingctx.can_convert(self.typeof_pyval(given), declared) is None:
                raise TypeError(f"{self.py_func.__name__} takes {self.signature}, got {type(given).__name__}")
        return self.overloads[self.signature.args].entry_point

    def _reduce_states(self) -> Any:
        self.ready()
        return super()._reduce_states()


def njit(function_or_signature: Any = None, *, cache: bool = False, **options: Any) -> Any:
    """Decorate a function to be compiled when it is first called, with numba's options.

    A signature declares the types that it is compiled for, whatever it is called with.
    """
    options = {**_DIVISION, **options}
    if function_or_signature is None or isinstance(function_or_signature, FunctionType):
        return numba.njit(function_or_signature, cache=cache, **options)

    def declare(function: Callable[..., Any]) -> Declared:
        declared = Declared(function, targetoptions={"nopython": True, "boundscheck": None, **options})
        declared.signature = function_or_signature
        if cache:
            declared.enable_caching()
        return declared

    return declare
