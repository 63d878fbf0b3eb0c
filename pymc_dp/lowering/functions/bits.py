"""Random numbers from a generator's own memory, without a call.

numba reaches the bits of a NumPy generator through a pointer to a C function, which costs as much as the
number itself. PyMC's generators are PCG64, whose step is one multiplication: here it is done in place,
where ``native.generator_at`` says that a generator is one. The numbers are NumPy's,
bit by bit, and so is the generator afterwards; numbers that the first comparison of a ziggurat does not
accept (1 in 80), and other generators, are left to numba.

PCG64: O'Neill (2014), "PCG: A family of simple fast space-efficient statistically good algorithms for random
number generation"; ziggurat: Marsaglia and Tsang (2000), with the tables of NumPy.
"""

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.upstream.numba_private import cgutils, ke_double, ki_double, we_double, wi_double

GENERATOR_TYPE = types.NumPyRandomGeneratorType
# What `generator_at` writes into a field of numba's generators that nothing reads; Python objects, whose
# addresses stand there otherwise, do not live at 1.
KNOWN_LAYOUT = 1
_MULTIPLIER = (2549297995355413924 << 64) + 4865540595714422341
_WORD, _LONG = ir.IntType(64), ir.IntType(128)
# Widths of the strips of the normal law, then the same for numbers below zero: the bit after a strip's number
# is the sign, which no processor can guess.
_SIGNED = np.concatenate([wi_double, -wi_double])
_TO_UNIT = 1.0 / 9007199254740992.0  # 2 ** -53


def has_known_layout(bit_generator: np.random.BitGenerator) -> bool:
    """Whether the memory of a bit generator is that of a PCG64 on a machine with numbers of 128 bits."""
    if type(bit_generator) is not np.random.PCG64:
        return False
    state = bit_generator.state["state"]
    expected = [(number >> shift) % 2**64 for number in (state["state"], state["inc"]) for shift in (0, 64)]
    pointer = ctypes.c_uint64.from_address(bit_generator.ctypes.state_address).value
    return list((ctypes.c_uint64 * 4).from_address(pointer)) == expected


def _numbers(context: Any, builder: Any, rng: Any) -> tuple[Any, Any]:
    """Return pointers to the state and to the increment."""
    generator = cgutils.create_struct_proxy(GENERATOR_TYPE("generator"))(context, builder, value=rng)
    bits = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))(
        context, builder, value=generator.bit_generator
    )
    holder = builder.inttoptr(bits.state_address, _WORD.as_pointer())
    state = builder.inttoptr(builder.load(holder), _LONG.as_pointer())
    return state, builder.gep(state, [ir.Constant(_WORD, 1)])


def _next_state(builder: Any, state: Any, increment: Any) -> Any:
    # NumPy aligns to 8 bytes only
    product = builder.mul(builder.load(state, align=8), ir.Constant(_LONG, _MULTIPLIER))
    return builder.add(product, builder.load(increment, align=8))


@intrinsic
def _is_known(typingctx: Any, rng: Any) -> Any:  # pragma: no cover
    """Tell whether `generator_at` marked the generator."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        generator = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
        bits = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))(
            context, builder, value=generator.bit_generator
        )
        return builder.icmp_unsigned("==", bits.bit_generator, ir.Constant(_WORD, KNOWN_LAYOUT))

    return types.boolean(rng), codegen


@intrinsic
def _peek(typingctx: Any, rng: Any) -> Any:  # pragma: no cover
    """Return the next 64 bits, and leave the generator where it is."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        new = _next_state(builder, *_numbers(context, builder, args[0]))
        high = builder.trunc(builder.lshr(new, ir.Constant(_LONG, 64)), _WORD)
        mixed = builder.xor(high, builder.trunc(new, _WORD))
        right = builder.lshr(high, ir.Constant(_WORD, 58))
        left = builder.and_(builder.neg(right), ir.Constant(_WORD, 63))
        return builder.or_(builder.lshr(mixed, right), builder.shl(mixed, left))

    return types.uint64(rng), codegen


@intrinsic
def _advance(typingctx: Any, rng: Any) -> Any:  # pragma: no cover
    """Move the generator past the bits that `_peek` returned; the compiler multiplies once for both."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        state, increment = _numbers(context, builder, args[0])
        builder.store(_next_state(builder, state, increment), state, align=8)
        return context.get_dummy_value()

    return types.void(rng), codegen


@intrinsic
def _likely(typingctx: Any, condition: Any) -> Any:  # pragma: no cover
    """Tell the compiler that a condition nearly always holds, so that it keeps the rest out of the way."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bit = ir.IntType(1)
        expect = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(bit, [bit, bit]), "llvm.expect.i1"
        )
        return builder.call(expect, [args[0], ir.Constant(bit, 1)])

    return types.boolean(types.boolean), codegen


@njit(forceinline=True)
def random(rng):
    """``rng.random()``: uniform on [0, 1)."""
    if not _is_known(rng):
        return rng.random()
    bits = _peek(rng)
    _advance(rng)
    return np.float64(np.int64(bits >> np.uint64(11))) * _TO_UNIT


@njit(forceinline=True)
def standard_normal(rng):
    """``rng.standard_normal()``."""
    if _likely(_is_known(rng)):
        bits = _peek(rng)
        strip = np.intp(bits & np.uint64(0xFF))
        size = (bits >> np.uint64(9)) & np.uint64(0x000FFFFFFFFFFFFF)
        if _likely(size < ki_double[strip]):
            _advance(rng)
            return np.float64(np.int64(size)) * _SIGNED[np.intp(bits & np.uint64(0x1FF))]
    return rng.standard_normal()


@njit(forceinline=True)
def standard_exponential(rng):
    """``rng.standard_exponential()``."""
    if _likely(_is_known(rng)):
        bits = _peek(rng) >> np.uint64(3)
        strip, size = np.intp(bits & np.uint64(0xFF)), bits >> np.uint64(8)
        if _likely(size < ke_double[strip]):
            _advance(rng)
            return np.float64(np.int64(size)) * we_double[strip]
    return rng.standard_exponential()
