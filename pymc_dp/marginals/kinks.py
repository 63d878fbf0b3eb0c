"""Where functions of a record have kinks and jumps, read from their graphs.

Points for numerical integration are laid between them. Clamping, comparing and absolute values are the
functions that make them; where these are of one number of a record, whatever was computed from it, the places
are found as roots. Kinks of functions of several numbers, or at ends that are no constants, lie anywhere, and
are refused: the integral would be wrong without a sign.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import constant_fold, rvs_in_graph
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import basic as ps
from pytensor.scalar import math as sm
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.grids import Cuts
from pymc_dp.marginals.groups import NOT_OF_ROWS, NotTogether, graph_of_rows, values_as_written
from pymc_dp.query.rowlocal import leaves_of

# Operations on arrays that move entries about, and that add them up as well.
_MOVES = (
    AdvancedSubtensor, Alloc, DimShuffle, Join, JoinDims, MakeVector, Reshape, SpecifyShape, SplitDims,
    Subtensor, ViewOp,
)  # fmt: skip
_SUMS = (AdvancedIncSubtensor, Dot, IncSubtensor, Sum)
_SMOOTH = (
    ps.Add, ps.ArcTan, ps.Cos, ps.Cosh, ps.Exp, ps.Exp2, ps.Expm1, ps.Identity, ps.Mul, ps.Neg, ps.Sin,
    ps.Sinh, ps.Sqr, ps.Sub, ps.Tanh, sm.Erf, sm.Erfc, sm.Sigmoid, sm.Softplus,
)  # fmt: skip
# Functions of what was compared, which have no jumps but those of the comparisons.
_LOGIC = (ps.AND, ps.EQ, ps.Invert, ps.NEQ, ps.OR, ps.Switch, ps.XOR)
# Functions with kinks where their inputs are equal.
_CUTTERS = (ps.Clip, ps.GE, ps.GT, ps.LE, ps.LT, ps.Maximum, ps.Minimum)
# Functions with a kink or a pole where their input has a value.
_SINGULAR: dict[type, float] = {
    ps.Abs: 0.0, ps.Log: 0.0, ps.Log10: 0.0, ps.Log1p: -1.0, ps.Log2: 0.0, ps.Pow: 0.0, ps.Reciprocal: 0.0,
    ps.Sign: 0.0, ps.Sqrt: 0.0, ps.TrueDiv: 0.0,
}  # fmt: skip
# Smooth functions that change in a layer, beyond which they hardly do: values of their input between which a
# polynomial follows them.
_LAYERS: dict[type, tuple[float, ...]] = {
    ps.ArcTan: (-1e5, -1e3, -10.0, 0.0, 10.0, 1e3, 1e5), ps.Exp: (-40.0, 0.0), ps.Expm1: (-40.0, 0.0),
    ps.Exp2: (-60.0, 0.0), ps.Tanh: (-16.0, 0.0, 16.0), sm.Erf: (-5.5, 0.0, 5.5), sm.Erfc: (-5.5, 0.0, 5.5),
    sm.Sigmoid: (-32.0, 0.0, 32.0), sm.Softplus: (-32.0, 0.0, 32.0),
}  # fmt: skip
_TAKEN_OUT = "some of the people are taken out of the others: multiply by an array of 0 and 1 instead"
# What an entry of an array depends on, if on no single number of a record.
_CONSTANT, _SEVERAL, _OTHER = -1, -2, -3
_ROWS = 3
_MOST_CUTS = 64
_SIZES = np.geomspace(1e-8, 1e8, 1601)
_LINE = np.unique(np.concatenate([-_SIZES, [0.0], _SIZES, np.linspace(-30, 30, 3001)]))


def cuts_of(
    graphs: Sequence[TensorVariable],
    records: Sequence[TensorVariable],
    others: Sequence[TensorVariable] = (),
    layers: bool = False,
) -> dict[tuple[Variable, int], Cuts]:
    """Return where functions of records have kinks in each number of a record.

    Parameters
    ----------
    graphs : sequence of TensorVariable
        What each record adds to sums, and the parameters of laws of records.
    records : sequence of TensorVariable, shapes (n,) or (n, k)
        Variables of real numbers.
    others : sequence of TensorVariable
        Other variables of the same people, at whose few values everything is known.
    layers : bool
        Whether numbers are also cut where smooth functions of one of them, such as sigmoids, may be steep.

    Returns
    -------
    dict
        From (record, position in its row) to `Cuts`; of numbers without a kink there is none.

    Raises
    ------
    NotTogether
        A function is not known to be smooth, or has kinks elsewhere than at constants.
    """
    return _Reader(records, others).read(graphs, layers)


class _Reader:
    """One reading of graphs: which number of a record each entry is a function of, and where it is cut."""

    def __init__(self, records: Sequence[TensorVariable], others: Sequence[TensorVariable]):
        self._records, self._others = records, others
        self._numbers: list[tuple[Variable, int]] = []
        self._of: dict[Variable, np.ndarray | None] = {}
        # numbers that a variable still depends on below all cuts, and above them
        self._sides: dict[Variable, tuple[frozenset[int], frozenset[int]]] = {}
        for rv in records:
            width = 1 if rv.type.ndim == 1 else rv.type.shape[1]
            if rv.type.ndim > 2 or width is None:
                raise NotTogether(f"{rv.name} has more than one axis of known length in each row")
            own = len(self._numbers) + np.arange(width)
            self._numbers += [(rv, j) for j in range(width)]
            self._of[rv] = np.broadcast_to(own, (_ROWS, width)).reshape(_ROWS, *rv.type.shape[1:])
            self._sides[rv] = (frozenset(own.tolist()), frozenset(own.tolist()))

    def read(
        self, graphs: Sequence[TensorVariable], layers: bool = False
    ) -> dict[tuple[Variable, int], Cuts]:
        """Return the cuts of all numbers."""
        places: dict[int, set[float]] = defaultdict(set)
        for node in dependants(graphs, self._records, self._others):
            scalar = getattr(node.op, "scalar_op", None) if isinstance(node.op, Elemwise) else None
            flat: dict[int, tuple[bool, bool]] = {}
            if isinstance(scalar, _CUTTERS) or (type(scalar) in _SINGULAR and not self._is_smooth(node)):
                for number, at, sides in self._cut(node):
                    places[number].update(at)
                    flat[number] = sides
            elif type(scalar) not in _SINGULAR:
                check_smooth(node, self._records)
                if layers and type(scalar) in _LAYERS:
                    for number, at in self._steep(node, _LAYERS[type(scalar)]):
                        places[number].update(at)
            self._check_all(node)
            self._note(node, scalar, flat)
        found = {}
        left = [self._sides[v] for v in graphs if v in self._sides]
        for number, at in places.items():
            if len(at) > _MOST_CUTS:
                raise NotTogether(f"{self._numbers[number][0].name} is cut at more than {_MOST_CUTS} places")
            if at:
                flat_sides = tuple(all(number not in sides[k] for sides in left) for k in (0, 1))
                found[self._numbers[number]] = Cuts(tuple(sorted(at)), (flat_sides[0], flat_sides[1]))
        return found

    def _check_all(self, node: Apply) -> None:
        """Refuse a mask over people, or another choice of some of them."""
        if isinstance(node.op, AdvancedSubtensor) and node.inputs[0] in self._of:
            n = self._records[0].type.shape[0]
            if node.inputs[0].type.shape[0] == n != (*node.outputs[0].type.shape, None)[0]:  # type: ignore[attr-defined]
                raise NotTogether(_TAKEN_OUT)

    def _note(self, node: Apply, scalar: Any, flat: dict[int, tuple[bool, bool]]) -> None:
        """Note what the output of a node depends on, entry by entry."""
        out = node.outputs[0]
        inputs = [v for v in node.inputs if hasattr(v.type, "ndim")]
        sides = []
        for k in (0, 1):
            own = frozenset().union(*(self._sides[v][k] for v in inputs if v in self._sides))
            sides.append(own - {number for number, constant in flat.items() if constant[k]})
        self._sides[out] = (sides[0], sides[1])
        if scalar is not None:
            codes = [self._code(v) for v in inputs]
            known = all(code is not None for code in codes)
            self._of[out] = _joined(codes) if known else None  # type: ignore[arg-type]
        elif isinstance(node.op, _MOVES):
            self._of[out] = self._moved(node)
        else:
            self._of[out] = None

    def _code(self, v: Variable) -> np.ndarray | None:
        """Return which number each entry of a variable is a function of; None where that is not known."""
        if v in self._of:
            return self._of[v]
        return np.array(_OTHER if rvs_in_graph([v]) else _CONSTANT)

    def _moved(self, node: Apply) -> np.ndarray | None:
        """Return the same of the output of an operation that moves entries: it moves the codes."""
        codes = {}
        for v in node.inputs:
            if not hasattr(v.type, "ndim") or not (v in self._of or isinstance(node.op, Join | MakeVector)):
                continue
            code = self._code(v)
            shape = [_ROWS if k == 0 else length for k, length in enumerate(v.type.shape)]
            if code is None or None in shape:
                return None
            codes[v] = pt.constant(np.broadcast_to(code, shape).astype(v.type.dtype))  # type: ignore[attr-defined]
        try:
            (moved,) = values_as_written([graph_of_rows(node.outputs[0], codes)], NOT_OF_ROWS)
        except NotTogether:
            return None
        return np.rint(moved).astype(int)

    def _is_smooth(self, node: Apply) -> bool:
        """Whether a power or a quotient is smooth: a whole power, or a quotient by what is no record's."""
        scalar: Any = node.op.scalar_op  # type: ignore[attr-defined]
        if isinstance(scalar, ps.TrueDiv):
            return node.inputs[1] not in self._of
        if not isinstance(scalar, ps.Pow) or node.inputs[1] in self._of:
            return False
        (power,) = constant_fold([node.inputs[1]], raise_not_constant=False)
        return isinstance(power, np.ndarray) and bool(np.all((power >= 0) & (power == np.rint(power))))

    def _ends(self, node: Apply) -> tuple[Variable | None, list[Any]]:
        """Return what a function with kinks has them in, and at which of its values; None if in several."""
        scalar: Any = node.op.scalar_op  # type: ignore[attr-defined]
        inner = [v for v in node.inputs if v in self._of]
        if type(scalar) in _SINGULAR:
            of = node.inputs[1] if isinstance(scalar, ps.TrueDiv) else node.inputs[0]
            alone = of in self._of and not (isinstance(scalar, ps.Pow) and len(inner) > 1)
            return (of if alone else None), [np.array(_SINGULAR[type(scalar)])]
        ends = constant_fold([v for v in node.inputs if v not in self._of], raise_not_constant=False)
        known = len(inner) == 1 and all(isinstance(end, np.ndarray) for end in ends)
        if isinstance(scalar, ps.Clip) and inner[0] is not node.inputs[0]:
            known = False
        return (inner[0] if known else None), list(ends)

    def _steep(self, node: Apply, levels: Sequence[float]) -> list[tuple[int, set[float]]]:
        """Return for the numbers that a function with a layer is of, one in each entry, where that may be."""
        (inner,) = node.inputs
        code = self._of[inner]
        if code is None or not np.all(code >= _CONSTANT):
            return []
        line = self._on_line(inner, _LINE)
        shape = line.shape[1:]
        where = np.broadcast_to(code[:1], (1, *shape))[0]
        return [
            (int(where[entry]), self._roots(inner, entry, shape, _entry(line, entry) - level, level))
            for entry in (tuple(place) for place in np.argwhere(where >= 0).tolist())
            for level in levels
        ]

    def _cut(self, node: Apply) -> list[tuple[int, set[float], tuple[bool, bool]]]:
        """Return for each number that a function with kinks is of: where, and on which sides it is flat."""
        inner, ends = self._ends(node)
        code = None if inner is None else self._of[inner]
        if inner is None or code is None or _SEVERAL in code:
            self._refuse(node)
        assert inner is not None and code is not None
        numbers = [int(k) for k in np.unique(code) if k >= 0]
        if not numbers:
            return []
        if node.outputs[0].type.shape[0] != self._records[0].type.shape[0]:  # type: ignore[attr-defined]
            raise NotTogether(_TAKEN_OUT)
        above = self._on_line(node.outputs[0], _LINE)
        shape = above.shape[1:]
        below = self._on_line(inner, _LINE, shape)
        try:
            where = np.broadcast_to(code[:1], (1, *shape))[0]
            levels = [np.broadcast_to(end, (1, *shape))[0] for end in ends]
        except ValueError:
            raise NotTogether("each record has ends of its own that it is cut at") from None
        found = []
        for number in numbers:
            entries = np.argwhere(where == number)
            at: set[float] = set()
            flat = [True, True]
            for entry in (tuple(place) for place in entries.tolist()):
                own = set()
                for level in {float(end[entry]) for end in levels}:
                    own |= self._roots(inner, entry, shape, _entry(below, entry) - level, level)
                shown = _entry(above, entry).astype(float)
                for k, outside in enumerate(
                    (_LINE < min(own, default=np.inf), _LINE > max(own, default=-np.inf))
                ):
                    values = shown[outside & np.isfinite(shown)]
                    flat[k] = flat[k] and bool(own) and values.size > 0 and np.ptp(values) == 0
                at |= own
            found.append((number, at, (flat[0], flat[1])))
        return found

    def _on_line(self, v: Variable, line: np.ndarray, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """Return the values of a variable where every number of a record is the same, shape (places, ...)."""
        values: dict[Any, Any] = {
            rv: pt.constant(
                np.broadcast_to(line.reshape(-1, *[1] * (rv.type.ndim - 1)), (len(line), *rv.type.shape[1:]))
            )
            for rv in self._records
        }
        for rv in leaves_of([v], rvs_in_graph([v])):
            lengths = [len(line) if rv in self._others and k == 0 else n for k, n in enumerate(rv.type.shape)]  # type: ignore[attr-defined]
            values.setdefault(rv, pt.ones([1 if n is None else n for n in lengths], dtype=rv.type.dtype))  # type: ignore[attr-defined]
        (found,) = values_as_written([graph_of_rows(v, values)], NOT_OF_ROWS)
        try:
            return found if shape is None else np.broadcast_to(found, (len(line), *shape))
        except ValueError:
            raise NotTogether("what people add has lengths that do not go together") from None

    def _roots(
        self, v: Variable, entry: tuple[int, ...], shape: tuple[int, ...], left: np.ndarray, level: float
    ) -> set[float]:
        """Return where one entry of a function of one number has a value, crossed or touched."""
        if not np.isfinite(level):
            return set()
        sign = np.sign(left)
        known = np.isfinite(left[:-1]) & np.isfinite(left[1:])
        between = np.flatnonzero(known & (sign[:-1] * sign[1:] < 0))
        exact = np.flatnonzero(sign == 0)
        if len(exact) > 2 * _MOST_CUTS:  # it is constant there, and so without a kink
            exact = exact[[0, -1]]
        size = np.abs(left)
        least = 1 + np.flatnonzero((size[1:-1] < size[:-2]) & (size[1:-1] < size[2:]) & (sign[1:-1] != 0))

        def far(x: np.ndarray) -> np.ndarray:
            """Return how far the function is from the value at some places."""
            return _entry(self._on_line(v, x.ravel(), shape), entry).reshape(x.shape) - level

        def changed(off: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Return the places around the first change of sign."""
            after = np.argmax(np.sign(off) != np.sign(off[:, :1]), axis=1)
            return after - 1, after

        def lowest(off: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Return the places around the one that is nearest to the value."""
            at = np.argmin(np.abs(off), axis=1)
            return np.maximum(at - 1, 0), np.minimum(at + 1, off.shape[1] - 1)

        crossed = _refined(far, _LINE[between], _LINE[between + 1], changed)
        touched = _refined(far, _LINE[least - 1], _LINE[least + 1], lowest)
        if len(touched):
            touched = touched[np.abs(far(touched)) < 1e-12 * (1 + abs(level))]
        return {float(x) for x in (*_LINE[exact], *crossed, *touched)}

    def _refuse(self, node: Apply) -> None:
        raise NotTogether(
            f"{type(node.op.scalar_op).__name__} of more than one number of a record, or at ends that are no "
            "constants, has kinks anywhere: clamp or compare "
            f"{', '.join(str(rv.name) for rv in self._records)} themselves, or functions of one of them"
        )


def dependants(
    graphs: Sequence[Variable], records: Collection[Variable], others: Collection[Variable]
) -> list[Apply]:
    """Return the nodes of graphs that depend on records, each after those that it reads."""
    found: dict[Apply, None] = {}
    depends: dict[Variable, bool] = dict.fromkeys(others, False) | dict.fromkeys(records, True)
    stack = list(graphs)
    while stack:
        v = stack[-1]
        waiting = [] if v in depends or v.owner is None else [i for i in v.owner.inputs if i not in depends]
        if waiting:
            stack.extend(waiting)
            continue
        if v not in depends:
            depends[v] = v.owner is not None and any(depends[i] for i in v.owner.inputs)
            if depends[v]:
                found[v.owner] = None  # type: ignore[index]
        stack.pop()
    return list(found)


def check_smooth(node: Apply, records: Sequence[Variable]) -> None:
    """Refuse an operation that is not known to be smooth."""
    op: Any = node.op
    core = op.core_op if isinstance(op, Blockwise) else op
    if isinstance(core, (*_MOVES, *_SUMS)):
        return
    name = type(core).__name__
    if isinstance(core, Elemwise):
        scalar, out = core.scalar_op, node.outputs[0].type.dtype
        if isinstance(scalar, (*_SMOOTH, *_LOGIC)):
            return
        if isinstance(scalar, ps.Cast) and (out.startswith("float") or node.inputs[0].type.dtype == "bool"):
            return
        name = type(scalar).__name__
    raise NotTogether(
        f"{name}, computed of {', '.join(str(rv.name) for rv in records)}, is not known to be smooth, and "
        "would be integrated wrongly where it has kinks"
    )


def _refined(far: Any, lo: np.ndarray, hi: np.ndarray, around: Any) -> np.ndarray:
    """Return places between others, which are divided again and again where `around` says."""
    rows = np.arange(len(lo))
    for _ in range(8 if len(lo) else 0):
        x = lo[:, None] + (hi - lo)[:, None] * np.linspace(0, 1, 129)
        before, after = around(far(x))
        lo, hi = x[rows, before], x[rows, after]
    return 0.5 * (lo + hi)


def _entry(values: np.ndarray, entry: tuple[int, ...]) -> np.ndarray:
    """Return one entry of each row."""
    at: Any = (slice(None), *entry)
    return values[at]


def _joined(codes: Sequence[np.ndarray]) -> np.ndarray:
    """Return what functions of several arrays, entry by entry, depend on."""
    found = np.array(_CONSTANT)
    for code in codes:
        both = (found != _CONSTANT) & (code != _CONSTANT) & (found != code)
        found = np.where(both, _SEVERAL, np.where(found == _CONSTANT, code, found))
    return found
