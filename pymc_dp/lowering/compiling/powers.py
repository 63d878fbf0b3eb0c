"""Powers with whole exponents, which LLVM takes from a library that numba does not link.

LLVM turns ``x ** float(k)`` into a call of ``__powidf2`` where k has fewer than 64 bits, or is a truth value,
and arithmetic may be reordered. The symbol is known where C compilers link their own library; in numba's code
it is missing, and the process ends when such a function is first called (numba 0.68, llvmlite 0.50).
"""

import ctypes

from llvmlite import binding as llvm
from numba import types

from pymc_dp.lowering.compiling.nopython import c_address

# What LLVM calls, by how many bits the number has; of the library that comes with GCC.
SYMBOLS = {64: "__powidf2", 32: "__powisf2"}
_LIBRARY = "libgcc_s.so.1"


def provide_powers(library: str = _LIBRARY) -> None:
    """Tell LLVM where powers with whole exponents are, if it does not know.

    Parameters
    ----------
    library : str
        Where to look first; if it is not there, the functions are compiled here.
    """
    for bits, symbol in SYMBOLS.items():
        if llvm.address_of_symbol(symbol) is None:
            llvm.add_symbol(symbol, _address(library, symbol) or _compiled(bits))


def _address(library: str, symbol: str) -> int | None:
    try:
        return ctypes.cast(getattr(ctypes.CDLL(library), symbol), ctypes.c_void_p).value
    except (OSError, AttributeError):  # another system's compiler, or none
        return None


def _compiled(bits: int) -> int:
    number = {64: types.float64, 32: types.float32}[bits]
    return c_address(power, number(number, types.int32))


def power(x: float, n: int) -> float:
    """Return x to the power of a whole number."""
    left, result = abs(int(n)), 1.0
    while left > 0:
        if left % 2:
            result *= x
        x *= x
        left //= 2
    return 1.0 / result if n < 0 else result
