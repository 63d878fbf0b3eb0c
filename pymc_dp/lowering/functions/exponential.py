"""Exponentials of several numbers at once.

A call of the C library for each number is most of what a sweep over labels costs. Without calls and branches
the compiler computes four or eight numbers together: a quarter to a half of the time from four numbers on.
"""

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pymc_dp.lowering.compiling.nopython import njit

# Entries that an array needs beyond those that are asked for.
SPARE = 3
# numbers whose exponential has an exponent of full range
_LEAST, _MOST = -708.0, 709.0
# added to a number, it rounds to a whole one, which is then in the lowest bits
_ROUND = 6755399441055744.0  # 1.5 * 2 ** 52
_PER_LOG_2 = 1 / math.log(2.0)
# log(2) in two parts, the first with so few bits that its multiples are exact
_LOG_2_HIGH = math.ldexp(math.floor(math.ldexp(math.log(2.0), 32)), -32)
_LOG_2_LOW = 1.9082149292705877e-10
_C = tuple(1 / math.factorial(k) for k in range(14))


@intrinsic
def _as_bits(typingctx: Any, x: Any) -> Any:  # pragma: no cover
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def _as_number(typingctx: Any, bits: Any) -> Any:  # pragma: no cover
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@njit(forceinline=True, fastmath={"contract"})
def _exp(x):  # type: ignore[no-untyped-def]
    """Exponential of x as 2^n exp(r), with a polynomial for |r| <= log(2) / 2."""
    y = _MOST if x > _MOST else x
    y = _LEAST if y < _LEAST else y
    shifted = y * _PER_LOG_2 + _ROUND
    n = shifted - _ROUND
    r = (y - n * _LOG_2_HIGH) - n * _LOG_2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = ((_C[0] + _C[1] * r) + (_C[2] + _C[3] * r) * r2) + (
        (_C[4] + _C[5] * r) + (_C[6] + _C[7] * r) * r2
    ) * r4
    high = ((_C[8] + _C[9] * r) + (_C[10] + _C[11] * r) * r2) + (_C[12] + _C[13] * r) * r4
    power = _as_number((_as_bits(shifted) + 1023) << 52)
    value = (low + high * (r4 * r4)) * power
    return 0.0 if x < _LEAST else value


@njit
def exp_in_place(values, m):  # type: ignore[no-untyped-def]
    """Replace the first m numbers by their exponentials, to 5e-16 of each, and ``SPARE`` more by anything.

    Below exp(-708) they are 0, above exp(709) they are that; what is no number stays none.
    """
    for j in range((m + 3) // 4 * 4):
        values[j] = _exp(values[j])
