"""Sums over rows of clipped changes of a log density, in one pass and exact.

Every clipped change is rounded to a multiple of 2^-bits of its bound before it is added, so that the sum is a
whole number of such fractions. No rounding error then depends on the order of the rows or on the other rows,
and the sensitivity to one row is bounded exactly, not up to floating point.
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.gradient as tg
import pytensor.scalar as ps
import pytensor.tensor as pt
from numba import types
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.graphs import jit_scalar
from pymc_dp.lowering.addresses.native import MATRIX, VECTOR, SourceFunction, function_at
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.rows.domains import parameter_checks_to_values
from pymc_dp.lowering.rows.polynomial import degree
from pymc_dp.lowering.rows.rows import NotScalar

# numbers of the new and of the old parameters, columns of the rows, first and last row, fractions of the
# bound per unit, the bound in fractions -> sum in fractions
RATIO = types.float64(VECTOR, VECTOR, MATRIX, types.int64, types.int64, types.float64, types.float64)
_RATIO_AT = types.FunctionType(RATIO)
# the same, with one more argument, which is filled with the clipped changes
EACH = types.float64(*RATIO.args, VECTOR)
# Number of rows in a block, whose changes are all computed before they are added: a block stays in the
# fastest cache. Blocks are longer where each column is read by itself, since memory is read fastest in long
# runs.
_BLOCK, _LONG_BLOCK = 512, 4096
# Products of two entries are looked for only in rows of at most so many entries.
_MAX_SQUARES = 10
# With at most so many products of entries, a change is written out as one expression.
_FEW = 8
# Adding and subtracting this rounds to the nearest whole number, in instructions that take several numbers at
# once.
_ROUND = 1.5 * 2.0**52
# Bits of a clipped change; sums of integers in float64 are exact below 2^53.
_BITS, _EXACT = 30, 52


@njit(cache=True)
def _add_fifteen(  # type: ignore[no-untyped-def]  # pragma: no cover
    part, m, d, x, columns, start
):
    """Add fifteen columns to partial sums, which are read and written once for all of them."""
    d0, d1, d2, d3, d4 = d[0], d[1], d[2], d[3], d[4]
    d5, d6, d7, d8, d9 = d[5], d[6], d[7], d[8], d[9]
    d10, d11, d12, d13, d14 = d[10], d[11], d[12], d[13], d[14]
    c0 = x[columns[0], start : start + m]
    c1 = x[columns[1], start : start + m]
    c2 = x[columns[2], start : start + m]
    c3 = x[columns[3], start : start + m]
    c4 = x[columns[4], start : start + m]
    c5 = x[columns[5], start : start + m]
    c6 = x[columns[6], start : start + m]
    c7 = x[columns[7], start : start + m]
    c8 = x[columns[8], start : start + m]
    c9 = x[columns[9], start : start + m]
    c10 = x[columns[10], start : start + m]
    c11 = x[columns[11], start : start + m]
    c12 = x[columns[12], start : start + m]
    c13 = x[columns[13], start : start + m]
    c14 = x[columns[14], start : start + m]
    for k in range(m):
        one = (d0 * c0[k] + d1 * c1[k]) + (d2 * c2[k] + d3 * c3[k]) + d4 * c4[k]
        two = (d5 * c5[k] + d6 * c6[k]) + (d7 * c7[k] + d8 * c8[k]) + d9 * c9[k]
        three = (d10 * c10[k] + d11 * c11[k]) + (d12 * c12[k] + d13 * c13[k]) + d14 * c14[k]
        part[k] += (one + two) + three


@njit(cache=True)
def _add_four(  # type: ignore[no-untyped-def]  # pragma: no cover
    part, m, d, x, columns, start
):
    d0, d1, d2, d3 = d[0], d[1], d[2], d[3]
    c0, c1 = x[columns[0], start : start + m], x[columns[1], start : start + m]
    c2, c3 = x[columns[2], start : start + m], x[columns[3], start : start + m]
    for k in range(m):
        part[k] += (d0 * c0[k] + d1 * c1[k]) + (d2 * c2[k] + d3 * c3[k])


@njit(cache=True)
def _add_column(part: np.ndarray, m: int, d: float, x: np.ndarray) -> None:  # pragma: no cover
    for k in range(m):
        part[k] += d * x[k]


@njit(cache=True)
def _add_product(
    part: np.ndarray, m: int, d: float, x: np.ndarray, y: np.ndarray
) -> None:  # pragma: no cover
    for k in range(m):
        part[k] += d * (x[k] * y[k])


@njit(cache=True)
def _clip(part: np.ndarray, m: int, scale: float, top: float) -> None:  # pragma: no cover
    """Clip changes and round them to whole numbers; NaN counts as 0 in both directions of a move.

    Each operation is an odd function, so that the change of the reverse move is minus the change to the last
    bit, and a move and its reverse differ in the noise only.
    """
    for k in range(m):
        part[k] = _clipped(part[k] * scale, top)


@njit(cache=True)
def _clipped(r: float, top: float) -> float:  # pragma: no cover
    r = r if r == r else 0.0
    r = min(r, top)
    r = max(r, -top)
    return (r + _ROUND) - _ROUND


@njit(cache=True)
def _exceeds(r: float, top: float) -> float:  # pragma: no cover
    """Return whether a change would be clipped; NaN counts as 0, which is not clipped."""
    return 1.0 if abs(r) > top else 0.0


@njit(cache=True)
def _mark(part: np.ndarray, m: int, scale: float, top: float) -> None:  # pragma: no cover
    for k in range(m):
        part[k] = _exceeds(part[k] * scale, top)


@njit(fastmath={"reassoc"}, cache=True)
def _sum(part: np.ndarray, m: int) -> float:  # pragma: no cover
    """Sum of whole numbers, in whatever order is fastest."""
    total = 0.0
    for k in range(m):
        total += part[k]
    return total


@njit(cache=True)
def _add(part: np.ndarray, m: int, scale: float, top: float, count: bool) -> float:  # pragma: no cover
    if count:
        _mark(part, m, scale, top)
    else:
        _clip(part, m, scale, top)
    return _sum(part, m)


@njit(cache=True)
def _linear(  # type: ignore[no-untyped-def]  # pragma: no cover
    new, old, first, second, x, low, high, scale, top, count, out
):
    """Sum of clipped changes, or the number of those to clip; each is written to `out` if that is not empty.

    Changes are linear in single entries and products of two. Term f is of columns `first[f]` and `second[f]`,
    where -1 stands for no column.
    """
    d = new - old
    constant, n_singles, products = 0.0, 0, [0 for _ in range(0)]
    by, columns = np.empty(len(d)), np.empty(len(d), np.int64)
    for f in range(len(d)):
        if first[f] < 0:
            constant = d[f]
        elif d[f] != 0.0:  # a column that did not change the density is not read
            if second[f] < 0:
                by[n_singles], columns[n_singles] = d[f], first[f]
                n_singles += 1
            else:
                products.append(f)
    part = np.empty(_LONG_BLOCK)
    total = 0.0
    for start in range(low, high, _LONG_BLOCK):
        m = min(_LONG_BLOCK, high - start)
        part[:m] = constant
        f = 0
        while f + 15 <= n_singles:
            _add_fifteen(part, m, by[f:], x, columns[f:], start)
            f += 15
        while f + 4 <= n_singles:
            _add_four(part, m, by[f:], x, columns[f:], start)
            f += 4
        while f < n_singles:
            _add_column(part, m, by[f], x[columns[f], start : start + m])
            f += 1
        for f in products:
            _add_product(part, m, d[f], x[first[f], start : start + m], x[second[f], start : start + m])
        total += _add(part, m, scale, top, count)
        if len(out) > 0:
            for k in range(m):
                out[start + k] = part[k]
    return total


@njit(nogil=True, cache=True)
def sum_ratios(  # type: ignore[no-untyped-def]  # pragma: no cover
    address, new, old, x, low, high, scale, top
):
    """Call a function of the signature :data:`RATIO` without Python's lock."""
    return function_at(address, _RATIO_AT)(new, old, x, low, high, scale, top)


def bits_for(n: int) -> int:
    """Return the bits of a clipped change for which the sum over n rows is exact."""
    return min(_BITS, _EXACT - max(n - 1, 1).bit_length())


class RowRatio:
    """Change of the log density of rows between two values of the parameters, summed after clipping.

    Parameters
    ----------
    terms : sequence of 0-d TensorVariable
        Log density of one row as a sum, in the entries of the row and in hoisted numbers.
    x : sequence of 0-d TensorVariable
        The entries of the row, in the order of the columns.
    constant_inputs : sequence of ScalarVariable
        The inputs that stand for the hoisted numbers in the terms.
    constants : sequence of TensorVariable
        The hoisted numbers, as graphs of the parameters.

    Attributes
    ----------
    numbers : list of 0-d TensorVariable
        The numbers that the function takes instead of the parameters, as graphs of the parameters.
    features : list of tuple of int, or None
        Products of entries in which the change is linear; None where it is no polynomial.
    """

    def __init__(
        self,
        terms: Sequence[TensorVariable],
        x: Sequence[TensorVariable],
        constant_inputs: Sequence[Variable],
        constants: Sequence[TensorVariable],
    ):
        terms = [parameter_checks_to_values(t) for t in terms]  # type: ignore[misc]
        polynomial = _expand(terms, x, constant_inputs)
        hoisted = dict(zip(constant_inputs, (pt.scalar_from_tensor(_float(c)) for c in constants)))
        functions: dict[str, Any]
        keys: list[str | None]
        if polynomial is not None:
            self.features: list[tuple[int, ...]] | None = list(polynomial)
            self.numbers = list(graph_replace(list(polynomial.values()), hoisted, strict=False))
            if len(self.features) <= _FEW:
                source, functions, keys = _short_source(self.features), {"add": _sum}, []
            else:
                source, functions, keys = _linear_source(self.features), {"linear": _linear}, []
        else:
            self.features = None
            self.numbers = [_float(c) for c in constants]
            density, key = self._density(terms, x, constant_inputs)
            source = _source(len(constants), len(x))
            functions, keys = {"density": density, "add": _sum}, [key]
        self._parts = source, functions, keys

    @cached_property
    def function(self) -> SourceFunction:
        """The sum of clipped changes, a function of the signature :data:`RATIO`."""
        return self._compiled("clipped")

    @cached_property
    def each(self) -> SourceFunction:
        """The clipped changes and their sum, a function of the signature :data:`EACH`."""
        return self._compiled("clipped", each=True)

    @cached_property
    def counting(self) -> SourceFunction:
        """The number of changes that exceed the bound, a function of the signature :data:`RATIO`."""
        return self._compiled("exceeds")

    def _compiled(self, what: str, each: bool = False) -> SourceFunction:
        source, functions, keys = self._parts
        add_up = {"clipped": _clipped, "exceeds": _exceeds}[what]
        out, store = (", out", _STORE) if each else ("", "")
        written = "out" if each else "np.empty(0)"
        source = source.format(what=what, count=what == "exceeds", out=out, store=store, written=written)
        return SourceFunction("row_ratio", source, {**functions, what: add_up}, EACH if each else RATIO, keys)

    @staticmethod
    def _density(terms: Any, x: Any, constant_inputs: Any) -> tuple[Any, str | None]:
        entries = [ps.float64(f"x{j}") for j in range(len(x))]
        total = sum(terms[1:], start=terms[0])
        (graph,) = graph_replace(
            [total], {v: pt.tensor_from_scalar(e) for v, e in zip(x, entries)}, strict=False
        )
        function, key, why = jit_scalar([*constant_inputs, *entries], [_float(graph)])
        if why:
            raise NotScalar(why)
        return function, key

    def total(
        self, new: np.ndarray, old: np.ndarray, x: np.ndarray, low: int, high: int, bound: float, bits: int
    ) -> float:
        """Return the sum of some rows' changes, clipped to `bound`, in units of ``bound * 2**-bits``."""
        top = 2.0**bits
        return sum_ratios(self.function.address, new, old, x, low, high, top / bound, top)

    def exceeding(
        self, new: np.ndarray, old: np.ndarray, x: np.ndarray, low: int, high: int, bound: float, bits: int
    ) -> float:
        """Return how many of the changes of some rows :meth:`total` clips."""
        top = 2.0**bits
        return sum_ratios(self.counting.address, new, old, x, low, high, top / bound, top)


def _float(graph: Any) -> Any:
    return graph if graph.type.dtype == "float64" else pt.cast(graph, "float64")


def _expand(
    terms: Sequence[TensorVariable], x: Sequence[TensorVariable], constant_inputs: Sequence[Variable]
) -> dict[tuple[int, ...], TensorVariable] | None:
    """Return the coefficients of a polynomial in the entries, without those free of the parameters."""
    found: dict[tuple[int, ...], list[TensorVariable]] = {}
    for term in terms:
        behind = set(ancestors([term]))
        used = [j for j, v in enumerate(x) if v in behind]
        order = degree(term, [x[j] for j in used]) if used else 0
        if order not in (0, 1, 2) or (order == 2 and len(used) > _MAX_SQUARES):
            return None
        zero: dict[Variable, Variable] = {x[j]: pt.constant(0.0, dtype="float64") for j in used}
        coefficients: dict[tuple[int, ...], TensorVariable] = {(): term}
        if order:
            # zeros_like of an entry depends on the entry in the graph, but not in value
            slopes: Any = tg.grad(_float(term), [x[j] for j in used], disconnected_inputs="ignore")
            coefficients |= {(j,): slope for j, slope in zip(used, slopes)}
        if order == 2:
            for a, j in enumerate(used):
                seconds: Any = tg.grad(
                    coefficients[(j,)], [x[k] for k in used[a:]], disconnected_inputs="ignore"
                )
                coefficients |= {
                    (j, k): second * (0.5 if k == j else 1.0) for k, second in zip(used[a:], seconds)
                }
        for feature, graph in coefficients.items():
            (value,) = graph_replace([graph], zero, strict=False)
            found.setdefault(feature, []).append(_float(value))
    varying = set(constant_inputs)
    kept = {}
    for feature, parts in found.items():
        simple: Any = rewrite_graph(sum(parts[1:], start=parts[0]), include=("canonicalize",), clone=True)
        if varying & set(ancestors([simple])) and not isinstance(simple, Constant):
            kept[feature] = simple
    return kept


_SOURCE = """def row_ratio(new, old, x, low, high, scale, top{{out}}):
{setup}
    part = np.empty({block})
    total = 0.0
    for start in range(low, high, {block}):
        m = min({block}, high - start)
{columns}
        for k in range(m):
            part[k] = {{what}}(({change}) * scale, top)
        total += add(part, m)
{{store}}
    return total
"""
_STORE = """        for k in range(m):
            out[start + k] = part[k]"""


def _written(setup: Sequence[str], columns: Collection[int], change: str) -> str:
    slices = [f"        c{j} = x[{j}, start : start + m]" for j in sorted(columns)]
    return _SOURCE.format(setup="\n".join(setup), block=_BLOCK, columns="\n".join(slices), change=change)


def _short_source(features: Sequence[tuple[int, ...]]) -> str:
    """Return the source for a change that is linear in few products of entries."""
    setup = [f"    d{k} = new[{k}] - old[{k}]" for k in range(len(features))]
    products = [" * ".join([f"d{k}", *(f"c{j}[k]" for j in feature)]) for k, feature in enumerate(features)]
    return _written(setup, {j for feature in features for j in feature}, " + ".join(products) or "0.0")


def _linear_source(features: Sequence[tuple[int, ...]]) -> str:
    """Return the source for a change that is linear in many products: one pass for each that changed."""
    first, second = ([f[k] if len(f) > k else -1 for f in features] for k in range(2))
    return (
        "def row_ratio(new, old, x, low, high, scale, top{out}):\n"
        f"    first, second = np.array({first}), np.array({second})\n"
        "    return linear(new, old, first, second, x, low, high, scale, top, {count}, {written})\n"
    )


def _source(n_constants: int, width: int) -> str:
    """Return the source for any other log density, which is evaluated under both values of the parameters."""
    setup = [f"    a{k}, b{k} = new[{k}], old[{k}]" for k in range(n_constants)]
    entries = [f"c{j}[k]" for j in range(width)]
    calls = [
        f"density({', '.join([*(f'{side}{k}' for k in range(n_constants)), *entries])})[0]" for side in "ab"
    ]
    return _written(setup, range(width), " - ".join(calls))
