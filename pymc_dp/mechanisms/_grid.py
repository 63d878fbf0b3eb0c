"""Releases of real numbers on a grid of whole granules, drawn in integer arithmetic.

Noise in floating point reaches only some numbers, and which ones depends on what it was added to
(Mironov 2012). Here the query is rounded to whole multiples of a granule, a power of two far below
the noise, and the noise is a whole number of granules from an exact sampler.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast, Clip
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._releases import evaluate
from pymc_dp.mechanisms.mechanism import MechanismOp
from pymc_dp.privacy.exact_noise import as_fraction
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.query.sums import Multiple, Negative, Reading, Stack, Total, Turned, read_sums

# The granule is between 2^-41 and 2^-40 of the smallest noise level: so its draws fit 64 bits, and rounding
# costs less than the digits to which any epsilon is stated.
_FINENESS = 40
# Draws of such levels are finite as floating point numbers, but for a probability of exp(-2^64).
_LARGEST = 2.0**959
_SAFE = 2**61


@dataclass(frozen=True)
class Granules:
    """The value of a query, rounded to whole granules.

    Attributes
    ----------
    count : ndarray of int64 or object (Python integers)
        The query divided by the granule, rounded.
    slack : int
        Number of granules by which rounding can increase one record's change of one entry.
    entries : int
        Number of entries that one record can change.
    """

    count: np.ndarray
    slack: int
    entries: int


def granularity(noise: np.ndarray) -> float:
    """Return the granule of a release with these noise levels, a power of two."""
    return math.ldexp(1.0, max(math.floor(math.log2(float(np.min(noise)))) - _FINENESS, -1000))


def in_granules(query: TensorVariable, granule: float, local: bool) -> Granules:
    """Return a query of data in whole granules; `local` says whether a query that is no sum is local.

    In a sum over records each contribution is rounded first, and added in integers: a floating-point sum
    would depend on the order of the records, and one record could change it by more than its contribution.
    """
    exact = _sum_in_granules(query, granule)
    if exact is None:
        values = evaluate(_before_cast(query))
        entries = values.size // max(len(values), 1) if local and values.ndim else values.size
        return Granules(_rounded(values, granule), 1, max(entries, 1))
    return _granules_of_sum(*exact)


def _granules_of_sum(count: np.ndarray, slack: int) -> Granules:
    return Granules(count, slack, max(count.size, 1))


def bounded_in_granules(query: TensorVariable, granule: float) -> Granules:
    """Return a query of data in whole granules whose sensitivity follows from its bounds.

    The bounds do not cover the rounding errors of a sum in floating point, which is therefore refused.
    """
    if _is_clamped(query):
        return in_granules(query, granule, True)
    exact = _sum_in_granules(query, granule)
    if exact is None:
        raise ValueError(
            "`bounds` do not cover how floating point rounds this sum, or what it is times or over: one "
            "record could shift it by more than its own share. Multiply by finite numbers, and inside the "
            "sum, as in dp.record_sum(x[:, None] * w); or clamp what one record contributes yourself, as in "
            "dp.record_sum(dp.clamp(x, lo, hi)), and pass instead of `bounds` a `sensitivity=` that covers "
            "rounding."
        )
    return _granules_of_sum(*exact)


def whole_counts(query: TensorVariable) -> np.ndarray:
    """Return a whole-numbered query of data; sums over records are computed in integers.

    In the data's own floating-point type, large sums may be rounded to even numbers, so that one record
    counts double.
    """
    exact = _sum_in_granules(query, 1.0)
    if exact is not None:
        return exact[0]
    for v in ancestors([query]):
        op, kind = getattr(v.owner, "op", None), str(getattr(v.type, "dtype", ""))
        over_records = isinstance(op, CAReduce) and (op.axis is None or 0 in op.axis)
        if kind in ("float16", "float32") and (over_records or isinstance(op, Dot)):
            raise ValueError(
                f"query adds up numbers of type {kind}, which leaves out some large whole numbers: convert "
                "the records before, for example with array.astype('float64')."
            )
    return evaluate(query)


def inflation(stated: float, rounded: Granules, granule: float, noise: np.ndarray, order: int) -> float:
    """Return the factor by which the noise must grow to make up for rounding.

    Parameters
    ----------
    stated : float
        Norm of (change / noise) on which the guarantee relies: epsilon (order 1) or mu (order 2).
    rounded : Granules
    granule : float
    noise : ndarray
    order : {1, 2}

    Returns
    -------
    float
        At least 1.
    """
    if stated == 0:
        return 1.0
    extra = rounded.slack * granule / float(np.min(noise)) * rounded.entries ** (1 / order)
    return 1 + extra / stated + 4 * float(np.finfo(float).eps)  # also covers rounding in the calibration


def draw_on_grid(
    op: MechanismOp,
    query: TensorVariable,
    noise: np.ndarray,
    draw: Callable[[Fraction, int], np.ndarray],
    stated: float | None,
    order: int,
) -> tuple[np.ndarray, list[np.ndarray], PrivacyGuarantee | None, dict[str, Any]]:
    """Draw a release of data with additive noise, and return what ``Mechanism._draw_release`` returns.

    Parameters
    ----------
    op : MechanismOp
    query : TensorVariable
        The clamped query.
    noise : ndarray
        Noise levels, which are increased slightly so that the guarantee holds in spite of rounding.
    draw : callable
        ``draw(level, count)`` draws exact noise; the level is in granules.
    stated : float or None
        Norm of (change / noise) on which the guarantee relies; None when it is not known.
    order : {1, 2}
        Order of that norm.
    """
    granule = granularity(noise)
    rounded = in_granules(query, granule, False) if op.bounds is None else bounded_in_granules(query, granule)
    if stated is not None:
        noise = noise * inflation(stated, rounded, granule, noise, order)
    _check_range(noise, granule)
    level = np.broadcast_to(noise, rounded.count.shape)
    drawn = np.zeros(rounded.count.shape, dtype=object)
    for value in np.unique(level):
        at = level == value
        drawn[at] = draw(as_fraction("noise", float(value)) / Fraction(granule), int(at.sum()))
    # A result with more digits than a float has is rounded here, which is post-processing and costs nothing.
    value = np.asarray(rounded.count + drawn, dtype=object).astype(float) * granule
    return value, [noise], op.guarantee, {"granularity": granule}


def _check_range(noise: np.ndarray, granule: float) -> None:
    """Refuse noise whose draws may overflow, before any is drawn: a refusal must tell nothing of them."""
    largest = float(np.max(noise))
    if largest > _LARGEST:
        raise OverflowError(
            "A draw of the noise does not fit floating point numbers: its level is too large."
        )
    if largest > _LARGEST * granule:
        raise ValueError(
            "The entries have noise levels that are too far apart to be drawn in multiples of one granule: "
            "release those with the smallest levels in a release of their own."
        )


def _is_clamped(query: TensorVariable) -> bool:
    """Return whether clamping of rows is the last operation besides new axes: it keeps the record axis.

    In a sum, contributions are clamped before they are added. Mechanisms that compute statistics of each row
    themselves pass plain numbers.
    """
    op = None if query.owner is None else query.owner.op
    if isinstance(op, DimShuffle):
        return query.owner.inputs[0].owner is not None and _is_clamped(query.owner.inputs[0])
    return op is None or (isinstance(op, Elemwise) and isinstance(op.scalar_op, Clip))


def _before_cast(query: TensorVariable) -> TensorVariable:
    """Return whole numbers before their cast to floats, which would round large ones."""
    op = None if query.owner is None else query.owner.op
    if not isinstance(op, Elemwise) or not isinstance(op.scalar_op, Cast):
        return query
    (source,) = query.owner.inputs
    return source if np.dtype(source.type.dtype).kind in "iu" else query


def _rounded(values: np.ndarray, granule: float, factor: Fraction = Fraction(1)) -> np.ndarray:
    """Return values times a factor in whole granules, each rounded exactly."""
    per = factor / Fraction(granule)
    values = np.asarray(values)
    if values.dtype.kind in "iu" and ((values >= 2**53) | (values <= -(2**53))).any():
        # floats this large have gaps, so that one record could count for more than its contribution
        exact = np.array([round(int(v) * per) for v in values.ravel()], dtype=object)
        return exact.reshape(values.shape)
    flat = values.astype(float).ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        # exact without a factor; with one, values so near to a half that rounding matters are computed again
        scaled = flat * (float(per) if abs(per) < 2**1023 else np.inf)
        nearest = np.rint(scaled)
    if not np.isfinite(nearest).all():
        raise ValueError("query is too large for the noise level: check the units of both.")
    unsure = np.zeros(flat.shape, dtype=bool)
    if factor.numerator & (factor.numerator - 1) or factor.denominator & (factor.denominator - 1):
        unsure = ~(np.abs(scaled - nearest) < 0.499 - np.abs(scaled) * 2.0**-50)
    if not unsure.any() and np.abs(nearest).max(initial=0.0) < _SAFE:
        return nearest.astype(np.int64).reshape(np.shape(values))
    whole = np.empty(flat.shape, dtype=object)
    for at, value in enumerate(nearest):
        whole[at] = round(Fraction(float(flat[at])) * per) if unsure[at] else int(value)
    return whole.reshape(np.shape(values))


def _sum_in_granules(query: TensorVariable, granule: float) -> tuple[np.ndarray, int] | None:
    """Return an exact sum over the records in granules, and the slack; None if the query is no sum."""
    reading = read_sums(query)
    return None if reading is None else _added(reading, granule, Fraction(1))


def _added(reading: Reading, granule: float, factor: Fraction) -> tuple[np.ndarray, int] | None:
    """Return sums times a factor in granules, and the slack; None where a public number cannot be a factor.

    A factor multiplies each contribution before it is rounded, so that the slack, which is published with
    the noise level, is one granule per contribution whatever the factor is.
    """
    match reading:
        case Total():
            rows = evaluate(reading.rows)
            count = _rounded(rows, granule, factor)
            if count.size and int(np.abs(count).max()) * rows.size >= _SAFE:
                count = count.astype(object)
            per_record = math.prod(rows.shape[a] for a in reading.other_axes)
            return np.asarray(count.sum(axis=reading.axes)), max(per_record, 1)
        case Negative():
            return _added(reading.part, granule, -factor)
        case Multiple():
            return _multiplied(reading, granule, factor)
        case Turned():
            inner = _added(reading.part, granule, factor)
            return None if inner is None else (_turned(inner[0], reading.op.new_order), inner[1])
        case Stack():
            parts = [p for part in reading.parts if (p := _added(part, granule, factor)) is not None]
            if len(parts) < len(reading.parts):
                return None
            together = [int(k) for count, _ in parts for k in count.ravel()]
            return np.array(together, dtype=object), max(slack for _, slack in parts)


def _turned(count: np.ndarray, order: tuple[Any, ...]) -> np.ndarray:
    """Permute, add and drop axes of counts, as a DimShuffle does."""
    kept = [axis for axis in order if axis != "x"]
    dropped = tuple(k for k in range(count.ndim) if k not in kept)
    turned = np.transpose(count, (*kept, *dropped))
    turned = turned.reshape([count.shape[k] for k in kept])
    return np.expand_dims(turned, tuple(k for k, axis in enumerate(order) if axis == "x"))


def _multiplied(reading: Multiple, granule: float, factor: Fraction) -> tuple[np.ndarray, int] | None:
    """Return a sum that is multiplied or divided by public numbers, such as a mean over the records.

    For every such number a sum of its own is computed, whose contributions are multiplied before they are
    rounded.
    """
    numbers = evaluate(reading.numbers)
    if not np.isfinite(numbers).all() or (reading.divided and not numbers.all()):
        return None
    total, largest = np.zeros((), dtype=np.int64), 1
    for number in np.unique(numbers).tolist() or [1]:  # without numbers, the sum still gives the shape
        own = Fraction(number)
        scaled = _added(reading.part, granule, factor / own if reading.divided else factor * own)
        if scaled is None:
            return None
        total, largest = np.where(numbers == number, scaled[0], total), max(largest, scaled[1])
    return total, largest
