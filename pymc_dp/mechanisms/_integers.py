"""Whole numbers: which queries are known to give them, and the base of mechanisms that release them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
from pymc.distributions.distribution import Discrete
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._checks import as_query, as_variable, booleans_as_numbers, held, observed_numbers
from pymc_dp.mechanisms._grid import whole_counts
from pymc_dp.mechanisms.mechanism import Mechanism, MechanismOp, PreparedQuery
from pymc_dp.mechanisms.processed import AddedNoise
from pymc_dp.privacy.bounds import parse_bounds
from pymc_dp.privacy.entropy import draw_securely
from pymc_dp.privacy.exact_noise import Words
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release

# Draws at this level fit 64 bits, but for a probability of exp(-128).
_LARGEST = 2.0**56
# What an observed release is held in.
_BITS = 63
# operations that give whole numbers from any numbers, and from whole numbers only
_ROUNDING = (ps.RoundHalfToEven, ps.RoundHalfAwayFromZero, ps.Floor, ps.Ceil, ps.Trunc, ps.IntDiv, ps.Sign)
_KEEPING = (
    ps.Add, ps.Sub, ps.Mul, ps.Neg, ps.Abs, ps.Sqr, ps.Clip, ps.Maximum, ps.Minimum, ps.Mod, ps.Cast,
    ps.Identity, ps.Second,
)  # fmt: skip
# operations whose results are made of all of their inputs, and of the first only; the others are indices and
# shapes
_ARRANGING = (
    Join, MakeVector, CAReduce, CumOp, Dot, IncSubtensor, AdvancedIncSubtensor,
)  # fmt: skip
_FIRST_INPUT = (
    Alloc, CheckAndRaise, DeepCopyOp, DimShuffle, Reshape, ScalarFromTensor, SpecifyShape, Split,
    Subtensor, AdvancedSubtensor, TensorFromScalar, ViewOp,
)  # fmt: skip


def not_whole(query: Variable) -> str | None:
    """Say why a query may not be whole numbers; return None if it is sure to be.

    Inputs of float type are accepted here: their values are checked when the density is evaluated.
    """
    seen: set[Variable] = set()
    queue = [query]
    while queue:
        v = queue.pop()
        if v in seen or np.dtype(getattr(v.type, "dtype", "int64")).kind in "biu":
            continue
        seen.add(v)
        node = v.owner
        if node is None:
            data = held(v)
            if not isinstance(data, Variable) and not (np.floor(data) == data).all():
                return f"{v.name or 'an array'} holds fractions"  # which may be confidential
            continue
        op = getattr(node.op, "core_op", node.op)
        inner = op.scalar_op if isinstance(op, Elemwise) else None
        if isinstance(inner, _ROUNDING):
            continue
        if isinstance(inner, ps.Switch):
            queue += node.inputs[1:]
        elif isinstance(inner, _KEEPING) or isinstance(op, _ARRANGING):
            queue += node.inputs
        elif isinstance(op, _FIRST_INPUT):
            queue.append(node.inputs[0])
        elif isinstance(op, RandomVariable):
            return f"it uses {v.name or op}, which is continuous"
        else:
            return f"it uses the result of {inner or op}"
    return None


def whole_query(mechanism: str, query: Any, bounds: Any = None) -> TensorVariable:
    """Return the query as a tensor, after checking that it and its bounds are whole numbers."""
    checked = as_query(query)  # raises if it is no query at all
    reason = not_whole(as_variable(query))
    if reason is not None:
        raise ValueError(
            f"query must be whole numbers for {mechanism}, but {reason}: release counts, or sums of "
            "integer records, or round it before (pt.round(...), with the sensitivity of what is "
            "rounded)."
        )
    if bounds is not None:
        ends = np.array(parse_bounds(bounds))
        if (np.floor(ends) != ends).any():
            raise ValueError(
                f"bounds must be whole numbers for {mechanism}, got {_first_broken(ends):g}: values "
                "clamped to them would be fractions."
            )
    return checked


class WholeRelease(Mechanism, Discrete):
    """Base of the mechanisms whose releases are whole numbers."""

    def __new__(  # type: ignore[misc]  # PyMC's distributions construct tensors
        cls, name: str, query: Any, *args: Any, observed: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Check that the observed value consists of whole numbers, then declare the release."""
        observed = booleans_as_numbers(observed)
        if isinstance(observed, Release):
            cls._whole_observed(observed.value)
        elif observed is not None:
            observed = cls._whole_observed(observed)
        return super().__new__(cls, name, query, *args, observed=observed, **kwargs)

    @classmethod
    def _prepare(
        cls, query: Any, *, sensitivity: Any, bounds: Any, order: int, neighbours: str = "replace-one"
    ) -> PreparedQuery:
        query = whole_query(cls.__name__, query, bounds)
        return super()._prepare(
            query, sensitivity=sensitivity, bounds=bounds, order=order, neighbours=neighbours
        )

    @classmethod
    def _whole_observed(cls, observed: Any) -> Any:
        array = whole_values(observed)
        if array is None:
            return observed
        beyond = np.abs(array.astype(float)) >= 2.0**_BITS
        if beyond.any():
            raise ValueError(
                f"observed must be below 2^{_BITS} in size, got {array[beyond].ravel()[0]:g}: {cls.__name__} "
                "releases nothing else. Release the query in larger units."
            )
        if (np.floor(array) != array).any():
            raise ValueError(
                f"observed must be whole numbers, got {_first_broken(array):g}: {cls.__name__} "
                "releases nothing else. Pass the release as it was published."
            )
        return observed if isinstance(observed, Variable) else array.astype(np.int64)


class AddedWhole(AddedNoise, WholeRelease):
    """Base of the mechanisms that add whole-numbered noise to a whole-numbered query."""

    @classmethod
    def _draw_release(
        cls, op: MechanismOp, query: TensorVariable, params: list[np.ndarray]
    ) -> tuple[np.ndarray, list[np.ndarray], PrivacyGuarantee | None, dict[str, Any]]:
        """Draw in integer arithmetic, which sums over the records use too."""
        known = whole_counts(query)
        value = draw_securely(lambda generator: op.secure_draw(generator, known, *params))
        return value, params, op.guarantee, {}


def whole_values(observed: Any) -> np.ndarray | None:
    """Return the numbers of an observed release, whether whole or not.

    Return None where they are not known yet, or have faults that every mechanism checks for anyway.
    """
    values = observed_numbers(observed)
    return values if values is not None and np.isfinite(values).all() else None


def add_noise(query: Any, level: Any, draw: Any, words: Words) -> np.ndarray:
    """Return whole numbers `query` plus exact noise; `level` is one number, or one per entry."""
    query, level = np.broadcast_arrays(as_whole(query), level)
    if (level > _LARGEST).any():  # decided before the noise is drawn: a refusal must tell nothing of it
        raise OverflowError("A draw of the noise does not fit 64 bits: the level is too large.")
    noise = np.empty(query.shape, dtype=np.int64)
    for value in np.unique(level):
        at = level == value
        noise[at] = draw(float(value), int(at.sum()), words)
    return query + noise


def as_whole(query: Any) -> np.ndarray:
    """Return a query's value as integers; fractions are refused."""
    query = np.asarray(query)
    if query.dtype.kind == "f" and (np.floor(query) != query).any():
        raise ValueError("query must be whole numbers: round it before.")
    if (np.abs(query) >= 2**53).any():  # floats this large have gaps: a record's change is not exact
        raise ValueError("query must be below 2^53 in size: release it in larger units.")
    return query.astype(np.int64)


def _first_broken(numbers: Any) -> float:
    flat = np.ravel(numbers)
    return float(flat[np.floor(flat) != flat][0])
