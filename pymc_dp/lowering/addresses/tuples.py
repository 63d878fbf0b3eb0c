"""Rows of arrays as tuples of numbers, whose length is known when a function is compiled: kept in registers.

In plain Python they are ordinary functions. Sums are taken from left to right, in both.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pymc_dp.lowering.addresses.bind import PART
from pymc_dp.lowering.compiling.keys import overload
from pymc_dp.upstream.numba_private import cgutils, make_array

Numbers = tuple[float, ...]


def entries(array: np.ndarray, n: int) -> Numbers:
    """First n entries of a vector."""
    return tuple(array[:n].tolist())


def row(array: np.ndarray, i: int, n: int) -> tuple[Any, ...]:
    """First n entries of a row."""
    return tuple(array[i, :n].tolist())


def column(array: np.ndarray, i: int, n: int) -> Numbers:
    """First n entries of a column."""
    return tuple(array[:n, i].tolist())


def part(numbers: Numbers, start: int, n: int) -> Numbers:
    """Return n of some numbers."""
    return numbers[start : start + n]


def set_entries(array: np.ndarray, numbers: Numbers) -> None:
    """Write numbers to the begin of a vector."""
    array[: len(numbers)] = numbers


def set_row(array: np.ndarray, i: int, numbers: Numbers) -> None:
    """Write numbers to the begin of a row."""
    array[i, : len(numbers)] = numbers


def set_column(array: np.ndarray, i: int, numbers: Numbers) -> None:
    """Write numbers to the begin of a column."""
    array[: len(numbers), i] = numbers


def plus(a: Numbers, b: Numbers) -> Numbers:
    """Sum of each of some numbers with one of others."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def minus(a: Numbers, b: Numbers) -> Numbers:
    """Difference, likewise."""
    return tuple(x - y for x, y in zip(a, b, strict=True))


def times(a: Numbers, b: Numbers) -> Numbers:
    """Product, likewise."""
    return tuple(x * y for x, y in zip(a, b, strict=True))


def scaled(a: Numbers, by: float) -> Numbers:
    """Product of each of some numbers with the same one."""
    return tuple(x * by for x in a)


def inverses(a: Numbers) -> Numbers:
    """Inverse of each of some numbers."""
    return tuple(1.0 / x for x in a)


def shifted(a: Numbers, j: int, by: Numbers) -> Numbers:
    """Some numbers, to the j-th of which that of others is added."""
    return tuple(x + y if k == j else x for k, (x, y) in enumerate(zip(a, by, strict=True)))


def dot_from(start: float, a: Numbers, b: Numbers) -> float:
    """Add products of some numbers with others to a number, one after the other."""
    for x, y in zip(a, b, strict=True):
        start += x * y
    return start


def dot(a: Numbers, b: Numbers) -> float:
    """Sum of the products of some numbers with others."""
    return dot_from(a[0] * b[0], a[1:], b[1:])


def whole(numbers: Numbers) -> tuple[int, ...]:
    """Some numbers that are whole, as integers."""
    return tuple(int(x) for x in numbers)


def index(strides: tuple[int, ...], values: tuple[int, ...]) -> int:
    """Sum of the products of some integers with others: where values stand in a table of several axes."""
    return sum(s * v for s, v in zip(strides, values, strict=True))


def products(array: np.ndarray, n: int, numbers: Numbers) -> Numbers:
    """Return the products of n rows of a matrix with a vector."""
    return tuple(dot(row(array, r, len(numbers)), numbers) for r in range(n))


def monomials(u: Numbers, degree: int) -> Numbers:
    """Return 1 and the numbers; for degree 2 their squares too, and the products of any two."""
    if degree == 1:
        return 1.0, *u
    return 1.0, *u, *(a * a for a in u), *(a * b for a, b in combinations(u, 2))


def _loaded(where: Callable[[Any, Any], list[Any]]) -> Any:
    @intrinsic(prefer_literal=True)
    def load(typingctx: Any, array: Any, i: Any, n: Any) -> Any:  # pragma: no cover
        size = n.literal_value

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            base = make_array(array)(context, builder, args[0])
            at = context.cast(builder, args[1], signature.args[1], types.intp)
            pointers = (
                cgutils.get_item_pointer(
                    context, builder, array, base, where(at, context.get_constant(types.intp, j))
                )
                for j in range(size)
            )
            return context.make_tuple(builder, signature.return_type, [builder.load(p) for p in pointers])

        return types.UniTuple(array.dtype, size)(array, i, n), codegen

    return load


_entries, _row, _column = (
    _loaded(lambda i, j: [j]),
    _loaded(lambda i, j: [i, j]),
    _loaded(lambda i, j: [j, i]),
)
_inlined = {"prefer_literal": True, "jit_options": PART}


@overload(entries, **_inlined)
def _(array, n):
    return lambda array, n: _entries(array, 0, n)


@overload(row, **_inlined)
def _(array, i, n):
    return lambda array, i, n: _row(array, i, n)


@overload(column, **_inlined)
def _(array, i, n):
    return lambda array, i, n: _column(array, i, n)


@intrinsic(prefer_literal=True)
def _part(typingctx: Any, numbers: Any, start: Any, n: Any) -> Any:  # pragma: no cover
    first, size = start.literal_value, n.literal_value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        taken = [builder.extract_value(args[0], j) for j in range(first, first + size)]
        return context.make_tuple(builder, signature.return_type, taken)

    return types.UniTuple(types.float64, size)(numbers, start, n), codegen


@overload(part, **_inlined)
def _(numbers, start, n):
    return lambda numbers, start, n: _part(numbers, start, n)


def _stored(where: Callable[[Any, Any], list[Any]]) -> Any:
    @intrinsic
    def store(typingctx: Any, array: Any, i: Any, numbers: Any) -> Any:  # pragma: no cover
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            base = make_array(array)(context, builder, args[0])
            at = context.cast(builder, args[1], signature.args[1], types.intp)
            for j, kind in enumerate(numbers.types):
                number = context.cast(builder, builder.extract_value(args[2], j), kind, array.dtype)
                place = where(at, context.get_constant(types.intp, j))
                pointer = cgutils.get_item_pointer(context, builder, array, base, place)
                builder.store(number, pointer)
            return context.get_dummy_value()

        return types.void(array, i, numbers), codegen

    return store


def _values(context: Any, builder: Any, given: Any, value: Any) -> list[Any]:
    """Return the numbers of a tuple; whole ones become real."""
    each = given.types if isinstance(given, types.BaseTuple) else ()
    return [
        context.cast(builder, builder.extract_value(value, j), kind, types.float64)
        for j, kind in enumerate(each)
    ]


def _computed(n_arguments: int, formula: Callable[..., list[Any]], size: Callable[..., int]) -> Any:
    """Return an intrinsic that makes a tuple of tuples, and of single numbers that are handed on."""

    def typed(*given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pairs = zip(given, args, strict=True)
            values = (
                _values(context, builder, g, a) if isinstance(g, types.BaseTuple) else a for g, a in pairs
            )
            return context.make_tuple(builder, signature.return_type, formula(builder, *values))

        n = size(*(len(g) if isinstance(g, types.BaseTuple) else 0 for g in given))
        return types.UniTuple(types.float64, n)(*given), codegen

    # numba asks an intrinsic for the names of its arguments
    of = {
        1: lambda typingctx, a: typed(a),
        2: lambda typingctx, a, b: typed(a, b),
        3: lambda typingctx, a, b, c: typed(a, b, c),
    }
    return intrinsic(of[n_arguments])


def _of_each(operation: str) -> Any:
    def formula(builder: Any, a: list[Any], b: Any) -> list[Any]:
        others = b if isinstance(b, list) else [b] * len(a)
        return [getattr(builder, operation)(x, y) for x, y in zip(a, others, strict=True)]

    return _computed(2, formula, lambda n, _: n)


def _shifted_values(builder: Any, a: list[Any], j: Any, by: list[Any]) -> list[Any]:
    return [
        builder.select(builder.icmp_signed("==", j, j.type(k)), builder.fadd(x, y), x)
        for k, (x, y) in enumerate(zip(a, by, strict=True))
    ]


def _dot_values(builder: Any, start: Any, a: list[Any], b: list[Any]) -> list[Any]:
    for x, y in zip(a, b, strict=True):
        start = builder.fadd(start, builder.fmul(x, y))
    return [start]


@intrinsic
def _whole(typingctx: Any, numbers: Any) -> Any:  # pragma: no cover
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = (builder.extract_value(args[0], j) for j in range(len(numbers)))
        integers = [
            context.cast(builder, value, kind, types.int64)
            for value, kind in zip(values, numbers.types, strict=True)
        ]
        return context.make_tuple(builder, signature.return_type, integers)

    return types.UniTuple(types.int64, len(numbers))(numbers), codegen


@intrinsic
def _index(typingctx: Any, strides: Any, values: Any) -> Any:  # pragma: no cover
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total = context.get_constant(types.int64, 0)
        for j in range(len(strides)):
            s, v = (
                context.cast(builder, builder.extract_value(value, j), kind.types[j], types.int64)
                for value, kind in zip(args, (strides, values), strict=True)
            )
            total = builder.add(total, builder.mul(s, v))
        return total

    return types.int64(strides, values), codegen


def _monomial_values(builder: Any, u: list[Any], degree: int) -> list[Any]:
    more = [] if degree == 1 else [*((a, a) for a in u), *combinations(u, 2)]
    return [ir.Constant(ir.DoubleType(), 1.0), *u, *(builder.fmul(a, b) for a, b in more)]


def _inverse_values(builder: Any, a: list[Any]) -> list[Any]:
    return [builder.fdiv(ir.Constant(ir.DoubleType(), 1.0), x) for x in a]


_set_entries, _set_row, _set_column = (
    _stored(lambda i, j: [j]),
    _stored(lambda i, j: [i, j]),
    _stored(lambda i, j: [j, i]),
)
_plus, _minus, _times = _of_each("fadd"), _of_each("fsub"), _of_each("fmul")
_shifted = _computed(3, _shifted_values, lambda n, *_: n)
_dot = _computed(3, _dot_values, lambda *_: 1)
_inverses = _computed(1, _inverse_values, lambda n: n)
_linear = _computed(1, lambda builder, u: _monomial_values(builder, u, 1), lambda n: 1 + n)
_quadratic = _computed(
    1, lambda builder, u: _monomial_values(builder, u, 2), lambda n: 1 + 2 * n + n * (n - 1) // 2
)


@overload(set_entries, **_inlined)
def _(array, numbers):
    return lambda array, numbers: _set_entries(array, 0, numbers)


@overload(set_row, **_inlined)
def _(array, i, numbers):
    return lambda array, i, numbers: _set_row(array, i, numbers)


@overload(set_column, **_inlined)
def _(array, i, numbers):
    return lambda array, i, numbers: _set_column(array, i, numbers)


@overload(plus, **_inlined)
def _(a, b):
    return lambda a, b: _plus(a, b)


@overload(minus, **_inlined)
def _(a, b):
    return lambda a, b: _minus(a, b)


@overload(times, **_inlined)
def _(a, b):
    return lambda a, b: _times(a, b)


@overload(scaled, **_inlined)
def _(a, by):
    return lambda a, by: _times(a, float(by))


@overload(inverses, **_inlined)
def _(a):
    return lambda a: _inverses(a)


@overload(shifted, **_inlined)
def _(a, j, by):
    return lambda a, j, by: _shifted(a, j, by)


@overload(dot_from, **_inlined)
def _(start, a, b):
    return lambda start, a, b: _dot(start, a, b)[0]


@overload(dot, **_inlined)
def _(a, b):
    rest = len(a) - 1
    return lambda a, b: _dot(a[0] * b[0], part(a, 1, rest), part(b, 1, rest))[0]


@overload(whole, **_inlined)
def _(numbers):
    return lambda numbers: _whole(numbers)


@overload(index, **_inlined)
def _(strides, values):
    return lambda strides, values: _index(strides, values)


@overload(products, **_inlined)
def _(array, n, numbers):
    size, last = len(numbers), n.literal_value - 1
    if last < 0:
        return lambda array, n, numbers: ()
    return lambda array, n, numbers: (
        *products(array, last, numbers),
        dot(row(array, last, size), numbers),
    )


@overload(monomials, **_inlined)
def _(u, degree):
    if degree.literal_value == 1:
        return lambda u, degree: _linear(u)
    return lambda u, degree: _quadratic(u)
