"""Sums over rows of clipped gradients of a log density, in one pass and exact.

The log density of a row depends on the parameters through a few numbers that all rows share. By the chain
rule, a row's gradient is the Jacobian of these numbers, which is computed once, times the derivatives of the
row's log density with respect to each number (called the number's *worth* to the row). Gradients are clipped
in norm, rounded towards zero to whole numbers of 2^-bits of the bound, and added without error, as in
:mod:`.clipped_ratios`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.gradient as tg
import pytensor.scalar as ps
import pytensor.tensor as pt
from numba import types
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.bind import Kernel, part_of_kernel
from pymc_dp.lowering.addresses.graphs import jit_scalar
from pymc_dp.lowering.addresses.native import MATRIX, VECTOR, function_at
from pymc_dp.lowering.addresses.tuples import Numbers, column, entries, set_column
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.rows.rows import NotScalar

# numbers of the parameters, columns of the rows, first and last row -> worth of each number to each row
WORTH = types.void(VECTOR, MATRIX, types.int64, types.int64, MATRIX)
_WORTH_AT = types.FunctionType(WORTH)
_BLOCK = 512
_EXACT = 52  # sums of integers in float64 are exact below 2^53


@njit(cache=True)
def _fill(  # type: ignore[no-untyped-def]  # pragma: no cover
    address, numbers, slopes, ends, which, columns, x, start, m, top, worth, gradient, factors
):
    """Fill the gradients of a block of rows, and the factors that clip them."""
    function_at(address, _WORTH_AT)(numbers, x, start, start + m, worth)
    if 4 * ends[-1] < slopes.size:
        _multiply(slopes, ends, which, columns, x, start, m, worth, gradient)
    else:
        for k in range(len(columns)):
            if columns[k] >= 0:
                worth[k, :m] = x[columns[k], start : start + m]
        np.dot(slopes, worth, gradient)  # columns past m are of an earlier block, and not used
    factors[:m] = 0.0
    d = len(gradient)
    for j in range(0, d - 1, 2):
        _add_squares(factors, m, gradient[j], gradient[j + 1])
    if d % 2:
        _add_square(factors, m, gradient[d - 1])
    _to_factors(factors, m, top, d)


@njit(cache=True)
def _multiply(  # type: ignore[no-untyped-def]  # pragma: no cover
    slopes, ends, which, columns, x, start, m, worth, gradient
):
    """Fill the gradients number by number, since most parameters enter few numbers."""
    for j in range(len(slopes)):
        to, at = gradient[j], ends[j]
        left = ends[j + 1] - at
        if left == 0:
            to[:m] = 0.0
        elif left % 2:
            _times(to, m, slopes[j, which[at]], _worth_of(which[at], columns, x, start, m, worth))
            at += 1
        else:
            one, other = which[at], which[at + 1]
            _two_times(
                to,
                m,
                slopes[j, one],
                _worth_of(one, columns, x, start, m, worth),
                slopes[j, other],
                _worth_of(other, columns, x, start, m, worth),
            )
            at += 2
        for t in range(at, ends[j + 1], 2):
            one, other = which[t], which[t + 1]
            _add_two_times(
                to,
                m,
                slopes[j, one],
                _worth_of(one, columns, x, start, m, worth),
                slopes[j, other],
                _worth_of(other, columns, x, start, m, worth),
            )


@njit(inline="always")
def _worth_of(k, columns, x, start, m, worth):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Return a number's worth to a block of rows; a column of the rows is not copied."""
    return x[columns[k], start : start + m] if columns[k] >= 0 else worth[k, :m]


@njit(cache=True)
def _times(to, m, a, x):  # type: ignore[no-untyped-def]  # pragma: no cover
    for i in range(m):
        to[i] = a * x[i]


@njit(cache=True)
def _two_times(to, m, a, x, b, y):  # type: ignore[no-untyped-def]  # pragma: no cover
    for i in range(m):
        to[i] = a * x[i] + b * y[i]


@njit(cache=True)
def _add_two_times(to, m, a, x, b, y):  # type: ignore[no-untyped-def]  # pragma: no cover
    for i in range(m):
        to[i] += a * x[i] + b * y[i]


@njit(cache=True)
def _work(jacobian, scale):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Return the scaled derivatives by parameter, which of them are not 0, and arrays for a block of rows."""
    n_numbers, d = jacobian.shape
    slopes = np.ascontiguousarray(jacobian.T) * scale
    ends, which = np.zeros(d + 1, np.int64), np.empty(slopes.size, np.int64)
    for j in range(d):
        ends[j + 1] = ends[j]
        for k in range(n_numbers):
            if slopes[j, k] != 0.0:
                which[ends[j + 1]] = k
                ends[j + 1] += 1
    return slopes, ends, which, np.zeros((n_numbers, _BLOCK)), np.empty((d, _BLOCK)), np.empty(_BLOCK)


@njit(nogil=True, cache=True)
def sum_gradients(  # type: ignore[no-untyped-def]  # pragma: no cover
    address, numbers, jacobian, columns, x, low, high, scale, top, out
):
    """Add the clipped gradients of some rows to ``out``, in units of the bound over ``top``.

    ``jacobian`` has a row for each number and a column for each parameter; ``columns`` says which column of
    the rows a number is multiplied with, -1 where it is another function of them. A gradient that is not
    finite counts as 0.
    """
    slopes, ends, which, worth, gradient, factors = _work(jacobian, scale)
    for start in range(low, high, _BLOCK):
        m = min(_BLOCK, high - start)
        _fill(address, numbers, slopes, ends, which, columns, x, start, m, top, worth, gradient, factors)
        for j in range(len(out)):
            out[j] += _sum_rounded(gradient[j], factors, m)


@njit(nogil=True, cache=True)
def sum_moments(  # type: ignore[no-untyped-def]  # pragma: no cover
    address, numbers, jacobian, columns, x, low, high, scale, top, out, products
):
    """Add clipped gradients to ``out``, and the lower triangles of their outer products to ``products``."""
    slopes, ends, which, worth, gradient, factors = _work(jacobian, scale)
    for start in range(low, high, _BLOCK):
        m = min(_BLOCK, high - start)
        _fill(address, numbers, slopes, ends, which, columns, x, start, m, top, worth, gradient, factors)
        for j in range(len(out)):
            out[j] += _sum_rounded(gradient[j], factors, m)
            _round(gradient[j], factors, m)
            for k in range(j + 1):
                products[j, k] += _dot(gradient[j], gradient[k], m)


@njit(cache=True)
def _add_squares(norm, m, part, other):  # type: ignore[no-untyped-def]  # pragma: no cover
    for i in range(m):
        norm[i] += part[i] * part[i] + other[i] * other[i]


@njit(cache=True)
def _add_square(norm, m, part):  # type: ignore[no-untyped-def]  # pragma: no cover
    for i in range(m):
        norm[i] += part[i] * part[i]


@njit(cache=True)  # no divisor is 0, and a check for it would prevent vectorisation
def _to_factors(norm, m, top, d):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Turn squared norms of gradients with d entries into factors that clip them, to at most ``top``.

    The norm that is aimed at is a little less, so that no rounding can exceed the bound. With u = 2^-53:
    the sum of d squares is at least (1 - u)^d times the exact one (a square is rounded once, and there
    are d - 1 additions, of which none is met more than once), its root at least (1 - u)^(d/2 + 1) times
    the exact norm N. The factor is then at most ``most`` (1 + u) / (N (1 - u)^(d/2 + 1)), or 1 where the
    rounded root is at most ``most``, so that N is at most ``most`` / (1 - u)^(d/2 + 1). Multiplication
    rounds each entry by at most 1 + u, and truncation makes none larger. The norm of the result is so at
    most ``most`` (1 + u)^2 (1 - u)^-(d/2 + 1), and ``most`` itself at most ``top`` (1 - (d + 16) u) (1 +
    u). As (1 - u)^-1 <= exp(u + u^2) and 1 - x <= exp(-x), the product is at most ``top`` times exp(u (3
    + (d/2 + 1) (1 + u) - d - 16)), less than 1 for every d. (Squares that underflow belong to entries
    that are no part of a norm of 1 or more; ``top`` is at least 1.)
    """
    most = top * (1.0 - (d + 16) * 2.0**-53)
    for i in range(m):
        norm[i] = most / max(np.sqrt(norm[i]), most) if norm[i] < np.inf else 0.0


@njit(fastmath={"reassoc"}, cache=True)
def _sum_rounded(part, factors, m):  # type: ignore[no-untyped-def]  # pragma: no cover
    total = 0.0
    for i in range(m):
        g = part[i] * factors[i]
        total += np.trunc(g) if factors[i] > 0.0 else 0.0
    return total


@njit(cache=True)
def _round(part, factors, m):  # type: ignore[no-untyped-def]  # pragma: no cover
    for i in range(m):
        g = part[i] * factors[i]
        part[i] = np.trunc(g) if factors[i] > 0.0 else 0.0


@njit(fastmath={"reassoc"}, cache=True)
def _dot(x, y, m):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Scalar product of whole numbers, in whatever order is fastest."""
    total = 0.0
    for i in range(m):
        total += x[i] * y[i]
    return total


# Placeholders, to which each model gives its values: the columns whose product is the worth of number k are
# COLUMNS[ENDS[k]] to COLUMNS[ENDS[k + 1] - 1]; where worth is no such product, the count of numbers.
ENDS, COLUMNS = np.zeros(1, np.int64), np.zeros(0, np.int64)
N_NUMBERS = 0


def slopes(numbers: Numbers, x: np.ndarray, i: int) -> Numbers:
    """Return the derivatives of the log density of a row with respect to each number."""
    raise NotImplementedError


@part_of_kernel
def _multiply_columns(to: np.ndarray, m: int, a: np.ndarray, b: np.ndarray) -> None:
    for i in range(m):
        to[i] = a[i] * b[i]


def worth_of_products(numbers: np.ndarray, x: np.ndarray, low: int, high: int, out: np.ndarray) -> None:
    """Fill the worth of numbers that multiply a product of entries; single entries are read from `x`."""
    m = high - low
    for k in range(ENDS.size - 1):
        at, n_factors = ENDS[k], ENDS[k + 1] - ENDS[k]
        if n_factors == 0:
            for i in range(m):
                out[k, i] = 1.0
        elif n_factors > 1:
            _multiply_columns(out[k], m, x[COLUMNS[at], low:high], x[COLUMNS[at + 1], low:high])
            for t in range(at + 2, at + n_factors):
                _multiply_columns(out[k], m, out[k], x[COLUMNS[t], low:high])


def worth_of_rows(numbers: np.ndarray, x: np.ndarray, low: int, high: int, out: np.ndarray) -> None:
    """Fill the worth of each number, row by row."""
    given = entries(numbers, N_NUMBERS)
    for i in range(low, high):
        set_column(out, i - low, slopes(given, x, i))


class RowGradient:
    """Worth of each number to a row.

    Parameters
    ----------
    features : list of tuple of int, or None
        Products of entries that the log density is linear in, if it is.
    terms, x, constant_inputs
        As for :class:`~pymc_dp.private.clipped_ratios.RowRatio`.
    """

    def __init__(
        self,
        features: Sequence[tuple[int, ...]] | None,
        terms: Sequence[TensorVariable],
        x: Sequence[TensorVariable],
        constant_inputs: Sequence[Variable],
    ):

        single = [f[0] if len(f) == 1 else -1 for f in features or ()]
        self._columns = np.array(
            single if features is not None else [-1] * len(constant_inputs), dtype=np.int64
        )
        if features is not None:
            ends = np.cumsum([0, *(len(f) for f in features)])
            names: dict[str, Any] = {
                "ENDS": ends,
                "COLUMNS": np.array([j for f in features for j in f], np.int64),
            }
            self.function = Kernel(worth_of_products, WORTH, names)
        else:
            f, n_numbers, width = _slopes(terms, x, constant_inputs), len(constant_inputs), len(x)

            @part_of_kernel
            def slopes(numbers, x, i):  # type: ignore[no-untyped-def]
                return f(*numbers, *column(x, i, width))

            self.function = Kernel(worth_of_rows, WORTH, {"N_NUMBERS": n_numbers, "slopes": slopes})

    def total(
        self,
        numbers: np.ndarray,
        jacobian: np.ndarray,
        x: np.ndarray,
        low: int,
        high: int,
        bound: float,
        bits: int,
    ) -> np.ndarray:
        """Return the sum of some rows' gradients, clipped to `bound`, in units of ``bound * 2**-bits``."""
        out, top = np.zeros(jacobian.shape[1]), 2.0**bits
        address, columns = self.function.address, self._columns
        sum_gradients(address, numbers, jacobian, columns, x, low, high, top / bound, top, out)
        return out

    def moments(
        self, numbers: np.ndarray, jacobian: np.ndarray, x: np.ndarray, bound: float, bits: int
    ) -> np.ndarray:
        """Return the sums over all rows of gradients clipped to `bound`, and of their products.

        Sums are whole numbers; of the products there is the lower triangle. The units are
        ``bound * 2**-bits`` for gradients and its square for products; sums are exact for at most
        :func:`moment_bits` bits.
        """
        d, top = jacobian.shape[1], 2.0**bits
        out, products = np.zeros(d), np.zeros((d, d))
        n = x.shape[1]
        address, columns = self.function.address, self._columns
        sum_moments(address, numbers, jacobian, columns, x, 0, n, top / bound, top, out, products)
        return np.concatenate([out, products[np.tril_indices(d)]]).astype(np.int64)


def moment_bits(n: int) -> int:
    """Return the bits of a clipped gradient's entries with which sums of products over n rows are exact."""
    return (_EXACT - max(n - 1, 1).bit_length()) // 2


def _slopes(terms: Any, x: Any, constant_inputs: Any) -> Any:
    """Return the derivatives of the log density with respect to the hoisted numbers."""
    entries = [ps.float64(f"x{j}") for j in range(len(x))]
    numbers = [pt.dscalar() for _ in constant_inputs]
    total = sum(terms[1:], start=terms[0])
    placed = {v: pt.scalar_from_tensor(h) for v, h in zip(constant_inputs, numbers)}
    (graph,) = graph_replace([total], placed, strict=False)
    slopes: Any = tg.grad(graph, numbers, disconnected_inputs="ignore")
    back: dict[Any, Any] = {v: pt.tensor_from_scalar(e) for v, e in zip(x, entries)}
    back |= {h: pt.tensor_from_scalar(v) for v, h in zip(constant_inputs, numbers)}
    outputs = [pt.cast(s, "float64") for s in graph_replace(list(slopes), back, strict=False)]
    function, _, why = jit_scalar([*constant_inputs, *entries], outputs)
    if why:
        raise NotScalar(why)
    return function
