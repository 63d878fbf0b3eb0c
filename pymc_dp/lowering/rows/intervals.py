"""What values a graph may take: intervals, worked out operation by operation.

They answer whether a condition on parameters can fail at all. A scale that is the root of an inverse gamma
variable is positive, and nothing has to be asked where it is used; a shape with a normal law may be negative.
Everything unknown may be any number. Ends are those of real arithmetic: an exponential is positive here, even
though it rounds to 0 far out. Continuous variables do not take the ends of their support, which have no
probability.
"""

import math
from collections.abc import Callable
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.logprob.transforms import (
    CircularTransform,
    IntervalTransform,
    LogOddsTransform,
    LogTransform,
    SimplexTransform,
)
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.scalar import basic as ps
from pytensor.scalar import math as psm
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Max, Min, Sum
from pytensor.tensor.random import basic as rv
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.reshape import SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_dp.upstream.pymc_private import _default_transform

RANDOM = (RandomVariable, SymbolicRandomVariable)
_INF = math.inf


class Interval(NamedTuple):
    """Numbers from ``lo`` to ``hi``; ``without_lo``, ``without_hi`` say that an end is not taken.

    ``or_none``: or what is no number, such as the root of a negative one.
    """

    lo: float = -_INF
    hi: float = _INF
    without_lo: bool = True
    without_hi: bool = True
    or_none: bool = False

    @property
    def positive(self) -> bool:
        """Whether all are above zero."""
        return self.lo > 0 or (self.lo == 0 and self.without_lo)

    def mapped(self, function: Callable[[float], float], falls: bool = False) -> "Interval":
        """Return the values of a monotone function."""
        ends = (function(self.lo), self.without_lo), (function(self.hi), self.without_hi)
        (lo, without_lo), (hi, without_hi) = ends[::-1] if falls else ends
        return Interval(lo, hi, without_lo, without_hi, self.or_none)


REAL, UNKNOWN = Interval(), Interval(or_none=True)
_POSITIVE, _UNIT = Interval(0.0), Interval(0.0, 1.0)
_TRANSFORMS: dict[type, Interval] = {
    LogTransform: _POSITIVE, LogOddsTransform: _UNIT, SimplexTransform: _UNIT,
    CircularTransform: Interval(-math.pi, math.pi),
}  # fmt: skip
_COUNTS = (rv.PoissonRV, rv.BinomialRV, rv.NegBinomialRV, rv.BetaBinomialRV, rv.CategoricalRV)
_OF_FIRST = (
    DimShuffle, SpecifyShape, ViewOp, ScalarFromTensor, TensorFromScalar, Reshape, SplitDims, Subtensor,
    AdvancedSubtensor, Alloc, Max, Min, CheckParameterValue,
)  # fmt: skip


class Ranges:
    """Intervals of the variables of graphs, each worked out once.

    Parameters
    ----------
    known : dict, optional
        Intervals of variables that are given, such as inputs.
    any_data : bool, optional
        Whether data that may be changed (``pm.Data``) count as any numbers; by default they count as they
        are now.
    """

    def __init__(self, known: dict[Variable, Interval] | None = None, any_data: bool = False) -> None:
        self._known, self._any_data = dict(known or {}), any_data

    def __call__(self, v: Variable) -> Interval:
        """Interval of a variable."""
        if v not in self._known:
            self._known[v] = REAL  # against endless recursion, should there be a way round
            self._known[v] = self._interval(v)
        return self._known[v]

    def always(self, condition: Variable) -> bool:
        """Whether a comparison, or an ``and`` of some, holds for all values that its variables may have."""
        node = condition.owner
        if node is None:
            return isinstance(condition, Constant) and bool(np.all(condition.data))
        kind = getattr(node.op, "scalar_op", node.op)
        if isinstance(kind, ps.AND):
            return all(map(self.always, node.inputs))
        if isinstance(node.op, _OF_FIRST):
            return self.always(node.inputs[0])
        if isinstance(kind, ps.EQ):
            return any(_is_floor_of(a, b) and _is_whole(b) for a, b in permutations(node.inputs))
        if isinstance(kind, ps.GT | ps.GE):
            high, low = map(self, node.inputs)
        elif isinstance(kind, ps.LT | ps.LE):
            low, high = map(self, node.inputs)
        else:
            return False
        if low.or_none or high.or_none:
            return False
        if low.hi == high.lo and isinstance(kind, ps.GT | ps.LT):
            return low.without_hi or high.without_lo
        return low.hi <= high.lo

    def _interval(self, v: Variable) -> Interval:
        if isinstance(v, SharedVariable):
            return UNKNOWN if self._any_data else _of_data(v.get_value(borrow=True))
        if isinstance(v, Constant):
            return _of_data(v.data)
        node = v.owner
        if node is None:
            return REAL
        if isinstance(node.op, Elemwise) or isinstance(node.op, ps.ScalarOp):
            return self._of_number(getattr(node.op, "scalar_op", node.op), node)
        if isinstance(node.op, _OF_FIRST):
            return self(node.inputs[0])
        if isinstance(node.op, Join | MakeVector):
            return _union([self(p) for p in node.inputs])
        if isinstance(node.op, Sum):
            x = self(node.inputs[0])
            return Interval(0.0, _INF, False, or_none=x.or_none) if x.lo >= 0 else Interval(or_none=x.or_none)
        if isinstance(node.op, RANDOM):
            return self._of_variable(v)
        # other operations are taken to have a value wherever their inputs have one
        return Interval(or_none=any(self(i).or_none for i in node.inputs if hasattr(i.type, "dtype")))

    def _of_variable(self, v: Any) -> Interval:
        """Support of a random variable."""
        op = v.owner.op
        transform = _default_transform(op, v)
        if isinstance(transform, IntervalTransform):
            ends = transform.args_fn(*v.owner.inputs)
            lo, hi = (end if end is None else self(end) for end in ends)
            return Interval(-_INF if lo is None else lo.lo, _INF if hi is None else hi.hi)
        if type(transform) in _TRANSFORMS:
            return _TRANSFORMS[type(transform)]
        if isinstance(op, rv.BernoulliRV):
            return Interval(0.0, 1.0, False, False)
        if isinstance(op, rv.GeometricRV):
            return Interval(1.0, _INF, False)
        return Interval(0.0, _INF, False) if isinstance(op, _COUNTS) else REAL

    def _of_number(self, op: Any, node: Any) -> Interval:
        if isinstance(op, ps.Sub) and _is_above(*node.inputs):
            return _POSITIVE
        x = [self(i) for i in node.inputs]
        if isinstance(op, ps.Switch):
            return x[1] if self.always(node.inputs[0]) else _union(x[1:])
        found = self._by_rule(op, node, x)
        return found._replace(or_none=found.or_none or any(i.or_none for i in x))

    def _by_rule(self, op: Any, node: Any, x: list[Interval]) -> Interval:
        for kinds, rule in _RULES:
            if isinstance(op, kinds):
                return rule(*x)
        if isinstance(op, ps.Cast):
            given, to = node.inputs[0].type.dtype, node.outputs[0].type.dtype
            return x[0] if to.startswith("float") or not given.startswith("float") else REAL
        if isinstance(op, ps.Pow):
            return _power(*x)
        if isinstance(op, ps.Add):
            total = x[0]
            for other in x[1:]:
                total = _sum(total, other)
            return total
        if isinstance(op, ps.Mul):
            total = x[0]
            for other in x[1:]:
                total = _product(total, other)
            return total
        return UNKNOWN


def _is_above(number: Variable, subtracted: Variable) -> bool:
    """Whether a variable's own lower end is taken from it, written as a single number both times."""
    v, end = number, subtracted
    while v.owner is not None and isinstance(v.owner.op, _OF_FIRST):
        v = v.owner.inputs[0]
    if v.owner is None or not isinstance(v.owner.op, RANDOM) or not str(v.type.dtype).startswith("float"):  # type: ignore[attr-defined]
        return False
    transform = _default_transform(v.owner.op, v)  # type: ignore[arg-type]
    if not isinstance(transform, IntervalTransform):
        return False
    lower = transform.args_fn(*v.owner.inputs)[0]
    if lower is None:
        return False
    lower, end = _single(lower), _single(end)
    return lower.type.ndim == end.type.ndim == 0 and equal_computations([lower], [end])  # type: ignore[attr-defined]


def _single(v: Variable) -> Variable:
    """Return the number that is broadcast, where one is."""
    while v.owner is not None and isinstance(v.owner.op, DimShuffle) and v.owner.inputs[0].type.ndim == 0:  # type: ignore[attr-defined]
        v = v.owner.inputs[0]
    return v


def _of_data(data: Any) -> Interval:
    data = np.asarray(data)
    if data.size == 0 or data.dtype.kind not in "biuf" or np.isnan(data).any():
        return UNKNOWN
    return Interval(float(data.min()), float(data.max()), False, False)


def _union(parts: list[Interval]) -> Interval:
    lo, hi = min(p.lo for p in parts), max(p.hi for p in parts)
    return Interval(
        lo,
        hi,
        all(p.without_lo for p in parts if p.lo == lo),
        all(p.without_hi for p in parts if p.hi == hi),
        any(p.or_none for p in parts),
    )


def _sum(x: Interval, y: Interval) -> Interval:
    without = x.without_lo or y.without_lo, x.without_hi or y.without_hi
    return Interval(x.lo + y.lo, x.hi + y.hi, *without, x.or_none or y.or_none)


def _negative(x: Interval) -> Interval:
    return x.mapped(lambda v: -v, falls=True)


def _product(x: Interval, y: Interval) -> Interval:
    corners = []
    for a, without_a in ((x.lo, x.without_lo), (x.hi, x.without_hi)):
        for b, without_b in ((y.lo, y.without_lo), (y.hi, y.without_hi)):
            if a == 0 or b == 0:  # zero is taken if one of the factors takes it
                corners.append((0.0, (a != 0 or without_a) and (b != 0 or without_b)))
            else:
                corners.append((a * b, without_a or without_b))
    lo, hi = min(v for v, _ in corners), max(v for v, _ in corners)
    without = all(o for v, o in corners if v == lo), all(o for v, o in corners if v == hi)
    return Interval(lo, hi, *without, x.or_none or y.or_none)


def _reciprocal(x: Interval) -> Interval:
    if x.positive:
        return x.mapped(lambda v: 1 / v if v else _INF, falls=True)
    if _negative(x).positive:
        return _negative(_reciprocal(_negative(x)))
    return UNKNOWN


def _absolute(x: Interval) -> Interval:
    if x.lo >= 0:
        return x
    if x.hi <= 0:
        return _negative(x)
    return Interval(0.0, max(-x.lo, x.hi), False, x.without_lo and x.without_hi)


def _square(x: Interval) -> Interval:
    return _product(_absolute(x), _absolute(x))


def _power(x: Interval, exponent: Interval) -> Interval:
    k = exponent.lo
    if k != exponent.hi:
        return _POSITIVE if x.positive else UNKNOWN
    if k == 0:
        return Interval(1.0, 1.0, False, False)
    if k < 0:
        return _power(_reciprocal(x), Interval(-k, -k, False, False)) if x.positive else UNKNOWN
    if x.lo >= 0:
        with np.errstate(over="ignore"):
            return x.mapped(lambda v: float(np.power(v, k)))
    if k % 2 == 0:
        return _power(_absolute(x), exponent)
    return REAL if k % 1 == 0 else UNKNOWN


def _exp(v: float) -> float:
    return math.exp(v) if v < 700.0 else _INF


def _sign(x: Interval) -> Interval:
    lo = 1.0 if x.positive else 0.0 if x.lo >= 0 else -1.0
    return Interval(lo, -1.0 if _negative(x).positive else 0.0 if x.hi <= 0 else 1.0, False, False)


def _on_positive(function: Callable[[float], float]) -> Callable[[Interval], Interval]:
    return lambda x: x.mapped(function) if x.lo >= 0 else UNKNOWN


def _log(v: float) -> float:
    return math.log(v) if v > 0 else -_INF


def _larger(x: Interval, y: Interval) -> Interval:
    below = x if (x.lo, x.without_lo) >= (y.lo, y.without_lo) else y
    above = x if x.hi > y.hi else y
    return Interval(below.lo, above.hi, below.without_lo, False if x.hi == y.hi else above.without_hi)


def _smaller(x: Interval, y: Interval) -> Interval:
    return _negative(_larger(_negative(x), _negative(y)))


# what is decreasing or has no bound of its own is left to be any number
_RULES: list[tuple[Any, Callable[..., Interval]]] = [
    (ps.Identity, lambda x: x),
    (ps.Second, lambda x, y: y),
    (ps.Sub, lambda x, y: _sum(x, _negative(y))),
    (ps.Neg, _negative),
    (ps.TrueDiv, lambda x, y: _product(x, _reciprocal(y))),
    (ps.Reciprocal, _reciprocal),
    (ps.Sqr, _square),
    (ps.Abs, _absolute),
    (ps.Sign, _sign),
    (ps.Sqrt, _on_positive(math.sqrt)),
    (ps.Log, _on_positive(_log)),
    (ps.Log1p, _on_positive(math.log1p)),
    (ps.Exp, lambda x: x.mapped(_exp)),
    (ps.Expm1, lambda x: x.mapped(lambda v: _exp(v) - 1)),
    (psm.Softplus, lambda x: _POSITIVE),
    (psm.Sigmoid, lambda x: _UNIT),
    (psm.Erf, lambda x: Interval(-1.0, 1.0)),
    (psm.Erfc, lambda x: Interval(0.0, 2.0)),
    (ps.Tanh, lambda x: Interval(-1.0, 1.0)),
    ((ps.Cos, ps.Sin), lambda x: Interval(-1.0, 1.0, False, False)),
    (ps.Cosh, lambda x: Interval(1.0, _INF, False)),
    (ps.ScalarMaximum, _larger),
    (ps.ScalarMinimum, _smaller),
    # below the lower end that is what it becomes, even where the upper end is lower still
    (ps.Clip, lambda x, lo, hi: _union([lo, _smaller(_larger(x, lo), hi)])),
    (ps.Floor, lambda x: Interval(float(np.floor(x.lo)), x.hi, False, False)),
]


# Operations whose value is whole where all inputs are.
_KEEP_WHOLE = (ps.Add, ps.Sub, ps.Mul, ps.Neg, ps.Abs, ps.Minimum, ps.Maximum, ps.Clip, ps.Cast, ps.Identity)


def _is_floor_of(a: Variable, b: Variable) -> bool:
    op = getattr(getattr(a.owner, "op", None), "scalar_op", None)
    return isinstance(op, ps.Floor) and a.owner.inputs[0] is b  # type: ignore[union-attr]


def _is_whole(v: Any) -> bool:
    """Whether a variable is a whole number by its type, or by how it is computed."""
    if v.type.dtype.startswith(("int", "uint", "bool")):
        return True
    if isinstance(v, Constant):
        return bool(np.all(np.floor(v.data) == v.data))
    op = getattr(v.owner, "op", None)
    if isinstance(op, _OF_FIRST):
        return _is_whole(v.owner.inputs[0])
    return isinstance(getattr(op, "scalar_op", None), _KEEP_WHOLE) and all(map(_is_whole, v.owner.inputs))


def always_positive(v: Variable, known: dict[Variable, Interval] | None = None) -> bool:
    """Whether a variable is above zero for any data, where inputs have known intervals."""
    found = Ranges(known, any_data=True)(v)
    return found.positive and not found.or_none
