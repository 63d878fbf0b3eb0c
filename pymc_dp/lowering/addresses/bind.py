"""Kernels as ordinary functions: names in them are bound to a model's functions and numbers, then compiled.

A kernel is a function of a module. Names that a model decides stand there as declarations, functions that
raise; :func:`rebound` gives the same code other meanings of them, and :class:`Kernel` compiles that to an
address. The code is never copied as text: errors, coverage and profiles point to its lines.
"""

from collections.abc import Callable, Mapping, Sequence
from types import CellType, FunctionType
from typing import Any

from pymc_dp.lowering.addresses.native import Addressed, native_code
from pymc_dp.lowering.compiling.keys import digest, key_of
from pymc_dp.lowering.compiling.nopython import Part, njit
from pymc_dp.upstream.pytensor_private import CACHED_SRC_FUNCTIONS

Function = Callable[..., Any]
# Options of functions that are a part of kernels: merged into them, without counts of references to arrays
# that they are passed (atomic, and five times the work of a record), and not to be called from Python.
PART: dict[str, Any] = {
    "forceinline": True, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True
}  # fmt: skip
part_of_kernel = njit(**PART)


def rebound(kernel: Function, names: Mapping[str, Any]) -> Function:
    """Return a kernel whose global names mean something else; it runs in plain Python, too."""
    _check(kernel, names)
    return FunctionType(kernel.__code__, {**kernel.__globals__, **names}, kernel.__name__)


def plain(kernel: Function, names: Mapping[str, Any]) -> Function:
    """Return a kernel in plain Python, with its parts: for tests, where ``names`` may mean stand-ins."""
    _check(kernel, names)
    there = {name: kernel.__globals__.get(name) for name in kernel.__code__.co_names if name not in names}
    parts = {name: _in_python(value) for name, value in there.items() if _is_part(value)}
    meanings = {**parts, **{name: _in_python(value) for name, value in names.items()}}
    held = tuple(CellType(_in_python(cell.cell_contents)) for cell in kernel.__closure__ or ())
    return FunctionType(kernel.__code__, {**kernel.__globals__, **meanings}, kernel.__name__, None, held)


def _check(kernel: Function, names: Mapping[str, Any]) -> None:
    unknown = set(names) - set(kernel.__code__.co_names)
    if unknown:
        raise NameError(f"{kernel.__qualname__} has no {', '.join(sorted(unknown))}")


def _is_part(meaning: Any) -> bool:
    """Whether a function is a part of kernels; one of a graph calls what Python cannot."""
    options = getattr(meaning, "targetoptions", {})
    return bool(options.get("no_cpython_wrapper")) and not isinstance(meaning, Part)


def _in_python(meaning: Any) -> Any:
    return plain(meaning.py_func, {}) if _is_part(meaning) else meaning


def bound_part(function: Function, names: Mapping[str, Any]) -> Function:
    """Return a part of kernels in which some names are bound, to be the meaning of a name itself."""
    return part_of_kernel(rebound(function, names))


def called_part(function: Function, signature: Any, names: Mapping[str, Any]) -> Function:
    """Return a part of kernels that they call: long code that is not merged into each place that wants it."""
    return njit(signature)(rebound(function, names))  # type: ignore[no-any-return]


class Kernel(Addressed):
    """A kernel with a model's functions, compiled to an address.

    Parameters
    ----------
    kernel : function
    signature : numba signature
    names : mapping
        What the kernel's names mean: nopython functions, and numbers or arrays that become machine code.
    from_python : bool, default False
        Whether Python calls it, with structures among its arguments: that takes longer to compile.
    """

    def __init__(
        self, kernel: Function, signature: Any, names: Mapping[str, Any], *, from_python: bool = False
    ):
        self.name, self.signature, python = kernel.__name__, signature, rebound(kernel, names)
        self.kernel, self.names = kernel, names
        self.cache_key = digest([key_of(python), str(signature)])
        if self.cache_key is not None:
            CACHED_SRC_FUNCTIONS[python] = self.cache_key
        self.dispatcher = native_code(python, signature, self.cache_key is not None, from_python)


def kernel_of(
    kernel: Function, parts: Sequence[Function], signature: Any, names: Mapping[str, Any]
) -> Kernel:
    """Bind names in a kernel and, before, in its parts, which may call those named before them.

    Each gets the names that it reads; those that none reads are passed over.
    """
    names = dict(names)

    def read_by(function: Function) -> dict[str, Any]:
        return {name: names[name] for name in function.__code__.co_names if name in names}

    for part in parts:
        names[part.__name__] = bound_part(part, read_by(part))
    return Kernel(kernel, signature, read_by(kernel))
