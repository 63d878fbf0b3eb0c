"""What was done to a noisy value before it was published: clipped, rounded, suppressed, in a stated order.

All three operations are monotone, a suppressed entry counting as the lowest of all. So what gives one
published value is an interval of noisy values, which is found by walking through the operations backwards.
The walk is written once, for NumPy's arrays and for PyTensor's graphs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pymc_dp.privacy._operations import checked_number, checked_order, checked_unknown, ends_of

# Names of the operations, in the order in which they are done where none is stated.
OPERATIONS = ("clip", "round_to", "suppress_below")
# What stands for a suppressed entry among numbers, since PyMC takes NaN for a value that it should impute.
SUPPRESSED = -math.inf
# Terms of a rounding step beyond which products with them may lose digits.
_EXACT = 2**26
# What a multiple may be off, in steps.
_APART = 1e-9
# Conditions that are known, in a form that arrays and tensors take.
_YES, _NO = np.array(True), np.array(False)


@dataclass(frozen=True)
class Processing:
    """Operations on a noisy value, in their order.

    Made by :meth:`of`, which checks; numbers are floats, and what is not done is None.

    Attributes
    ----------
    clip : (float, float) or None
        Ends, either of which may be infinite.
    round_to : float or None
        Values are rounded to its multiples; halves to the even multiple.
    suppress_below : float or None
        Values below it are not published.
    order : tuple of str
        Names of the operations that are done.
    unknown_keys : bool or "nonempty"
        Whether entries that are not published are not listed; "nonempty" if those of nobody got no noise.
    """

    clip: tuple[float, float] | None
    round_to: float | None
    suppress_below: float | None
    order: tuple[str, ...]
    unknown_keys: bool | str = False

    @classmethod
    def of(
        cls,
        clip: Any = None,
        round_to: Any = None,
        suppress_below: Any = None,
        order: Any = None,
        unknown_keys: Any = False,
    ) -> Processing:
        """Check the operations.

        Parameters
        ----------
        clip : pair of float or None, optional
        round_to, suppress_below : float, optional
        order : sequence of str, optional
            Names of the arguments that are given.
        unknown_keys : bool or "nonempty", optional

        Returns
        -------
        Processing

        Raises
        ------
        TypeError, ValueError
            With the name of the argument.
        """
        ends = None if clip is None else ends_of(clip)
        step = None if round_to is None else checked_number("round_to", round_to)
        threshold = None if suppress_below is None else checked_number("suppress_below", suppress_below)
        if step is not None and step <= 0:
            raise ValueError(f"round_to must be > 0, got {step:g}: values are rounded to its multiples.")
        unknown = checked_unknown(unknown_keys, threshold)
        given = {"clip": ends, "round_to": step, "suppress_below": threshold}
        names = [name for name in OPERATIONS if given[name] is not None]
        if not names:
            raise ValueError(
                "Say what was done after the noise: clip=(lo, hi), round_to= or suppress_below=. A release "
                "that was published as it is goes into observed= by itself."
            )
        done = tuple(names) if order is None else checked_order(order, names)
        found = cls(ends, step, threshold, done, unknown)
        if unknown and not found.reaches_threshold():
            raise ValueError(f"unknown_keys={unknown!r}, but {found._reaches()}: all keys were published.")
        return found

    def __str__(self) -> str:
        done = {
            "clip": f"clipped to {self.clip}",
            "round_to": f"rounded to multiples of {self.round_to}",
            "suppress_below": f"suppressed below {self.suppress_below}",
        }
        listed = ", with only those listed that were not" if self.unknown_keys else ""
        return ", then ".join(done[name] for name in self.order) + listed

    @property
    def suppresses(self) -> bool:
        """Whether an entry may be suppressed."""
        return self.suppress_below is not None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of :meth:`of`, in forms that JSON has."""
        clip = None if self.clip is None else [v if math.isfinite(v) else None for v in self.clip]
        return {
            "clip": clip,
            "round_to": self.round_to,
            "suppress_below": self.suppress_below,
            "order": list(self.order),
            **({"unknown_keys": self.unknown_keys} if self.unknown_keys else {}),
        }

    @classmethod
    def from_plain(cls, content: Any, unknown_keys: bool = False) -> Processing:
        """Return what :meth:`arguments` described.

        Parameters
        ----------
        content : mapping
        unknown_keys : bool
            Whether it has to say that keys are unknown; otherwise it must not.

        Returns
        -------
        Processing

        Raises
        ------
        TypeError, ValueError
            From :meth:`of`; or there are fields missing or unknown.
        """
        fields = (*OPERATIONS, "order", *(["unknown_keys"] if unknown_keys else []))
        if not isinstance(content, Mapping) or content.keys() != set(fields):
            raise ValueError(f"postprocessed must have the fields {', '.join(fields)}.")
        found = cls.of(**content)
        if bool(found.unknown_keys) != unknown_keys:
            raise ValueError("unknown_keys must not be false where it is written.")
        return found

    def check_whole(self, mechanism: str) -> None:
        """Refuse operations that do not keep whole numbers whole."""
        broken = [v for v in self.clip or () if math.isfinite(v) and v != math.floor(v)]
        if broken:
            raise ValueError(
                f"clip has the end {broken[0]:g}, but {mechanism} gives whole numbers, which are clipped to "
                "whole numbers: give the end that was published."
            )
        if self.round_to is not None and self.round_to != math.floor(self.round_to):
            raise ValueError(
                f"round_to = {self.round_to:g} does not go with {mechanism}, which gives whole numbers: they "
                "are rounded to multiples of a whole number, and are left as they are by a step of 1 or "
                "less. Leave it out, or give the step that was used."
            )

    def process(self, xp: Any, z: Any) -> Any:
        """Return what is published of noisy values, ``SUPPRESSED`` where that is nothing.

        Parameters
        ----------
        xp : module
            ``numpy``, or ``pytensor.tensor``.
        z : array or tensor

        Returns
        -------
        array or tensor
        """
        hidden = None
        for name in self.order:
            if name == "clip":
                lo, hi = self._clip
                z = xp.minimum(xp.maximum(z, lo), hi)
            elif name == "round_to":
                p, q = self.ratio
                z = xp.round(z * q / p) * p / q + 0.0  # which is no -0
            else:
                hidden = z < self._threshold
        return z if hidden is None else xp.where(hidden, SUPPRESSED, z)

    def preimage(self, xp: Any, y: Any, whole: bool = False) -> tuple[Any, Any]:
        """Return the ends of the interval of noisy values of which a value is published.

        Parameters
        ----------
        xp : module
            ``numpy``, or ``pytensor.tensor``.
        y : array or tensor of float
            Published values, ``SUPPRESSED`` where nothing was.
        whole : bool
            Whether noisy values are whole numbers. Both ends then belong to the interval.

        Returns
        -------
        lower, upper : array or tensor
            Equal where the noisy value is known, if it may be any real number; ``inf, -inf`` where there is
            none.
        """
        lower, upper, possible = self.walk(xp, y, whole)[-1][1:]
        return xp.where(possible, lower, math.inf), xp.where(possible, upper, -math.inf)

    def reaches_threshold(self) -> bool:
        """Whether there are noisy values that are suppressed."""
        lower, upper = self.preimage(np, np.array(SUPPRESSED))
        return bool(lower < upper)

    def least_published(self, whole: bool) -> float:
        """Return the least noisy value that is published, where some are not: all above it are."""
        hidden = float(self.preimage(np, np.array(SUPPRESSED), whole)[1])
        return hidden + 1.0 if whole else hidden

    def walk(self, xp: Any, y: Any, whole: bool) -> list[tuple[str, Any, Any, Any]]:
        """Walk backwards; return of each operation its name, the ends before it, and whether there are any.

        Whether an end belongs to an interval matters where values are clipped to that end, which then have a
        probability above zero.
        """
        hidden = y <= SUPPRESSED if self.suppresses else _NO
        # any number will do for entries that are suppressed, until that is undone
        value = xp.where(hidden, self.suppress_below, y) if self.suppresses else y
        lower, upper = _End(value, _YES), _End(value, _YES)
        possible: Any = y < math.inf
        if not self.suppresses:
            possible = possible & (y > -math.inf)
        steps = []
        unseen = hidden
        for name in reversed(self.order):
            if name == "clip":
                lower, upper, some = self._before_clip(xp, lower, upper)
            elif name == "round_to":
                lower, upper, some = self._before_rounding(xp, lower, upper, whole)
            else:
                lower, upper, some = self._before_suppression(xp, lower, upper, hidden, whole)
                unseen = _NO
            possible = possible & (some | unseen)
            steps.append((name, lower.at, upper.at, possible))
        return steps

    @property
    def ratio(self) -> tuple[float, float]:
        """The rounding step as a ratio of whole numbers, by which multiples are the decimal numbers meant."""
        assert self.round_to is not None
        exact = Fraction(repr(self.round_to))
        if max(exact.numerator, exact.denominator) > _EXACT:
            return self.round_to, 1.0
        return float(exact.numerator), float(exact.denominator)

    @property
    def _clip(self) -> tuple[float, float]:
        assert self.clip is not None
        return self.clip

    @property
    def _threshold(self) -> float:
        assert self.suppress_below is not None
        return self.suppress_below

    def _before_clip(self, xp: Any, lower: _End, upper: _End) -> tuple[_End, _End, Any]:
        lo, hi = self._clip
        below_hi, above_lo = _before(xp, lower.at, hi, lower.closed), _before(xp, lo, upper.at, upper.closed)
        to_lo, to_hi = _before(xp, lower.at, lo, lower.closed), _before(xp, hi, upper.at, upper.closed)
        return (
            _End(xp.where(to_lo, -math.inf, lower.at), lower.closed),
            _End(xp.where(to_hi, math.inf, upper.at), upper.closed),
            below_hi & above_lo,
        )

    def _before_rounding(self, xp: Any, lower: _End, upper: _End, whole: bool) -> tuple[_End, _End, Any]:
        p, q = self.ratio
        first, last = lower.at * q / p, upper.at * q / p
        near = xp.round(first)
        at_multiple = _equal(xp, first, near, _APART)
        first = xp.where(at_multiple, xp.where(lower.closed, near, near + 1), xp.ceil(first))
        near = xp.round(last)
        at_multiple = _equal(xp, last, near, _APART)
        last = xp.where(at_multiple, xp.where(upper.closed, near, near - 1), xp.floor(last))
        some = first <= last
        if whole:  # half of the step, without the half itself where that goes to another multiple
            half = p // 2
            odd = 1.0 if p == 2 * half else 0.0
            return (
                _End(first * p - half + odd * _is_odd(xp, first), _YES),
                _End(last * p + half - odd * _is_odd(xp, last), _YES),
                some,
            )
        return (
            _End((2 * first - 1) * p / (2 * q), ~_is_odd(xp, first)),
            _End((2 * last + 1) * p / (2 * q), ~_is_odd(xp, last)),
            some,
        )

    def _before_suppression(
        self, xp: Any, lower: _End, upper: _End, hidden: Any, whole: bool
    ) -> tuple[_End, _End, Any]:
        threshold = math.ceil(self._threshold) if whole else self._threshold
        cut = lower.at < threshold
        some = _before(xp, threshold, upper.at, upper.closed)
        below = _End(threshold - 1.0, _YES) if whole else _End(threshold, _NO)
        return (
            _End(
                xp.where(hidden, -math.inf, xp.where(cut, threshold, lower.at)), hidden | cut | lower.closed
            ),
            _End(
                xp.where(hidden, below.at, upper.at),
                (hidden & below.closed) | (~hidden & upper.closed),
            ),
            hidden | some,
        )

    def canonical(self, values: np.ndarray) -> np.ndarray:
        """Return published values with those that are multiples but for rounding errors made multiples."""
        if self.round_to is None:
            return values
        p, q = self.ratio
        with np.errstate(invalid="ignore"):
            k = np.round(values * q / p)
            return np.where(_equal(np, values * q / p, k, _APART), k * p / q, values)

    def fault(self, values: np.ndarray, whole: bool) -> str | None:
        """Say which of some published values nothing gives, and why; None if all are possible.

        Parameters
        ----------
        values : ndarray
            ``SUPPRESSED`` where nothing was published.
        whole : bool
            Whether noisy values are whole numbers.
        """
        if self.unknown_keys and (values == SUPPRESSED).any():
            return "an entry is missing, but with unknown_keys=True only keys that were published have one"
        with np.errstate(invalid="ignore"):
            steps = self.walk(np, np.asarray(values, dtype=float), whole)
        for name, _, _, possible in steps:
            if not possible.all():
                wrong = values[~possible].ravel()[0]
                hidden = values == SUPPRESSED
                if hidden[~possible].any():
                    return f"an entry is suppressed, but {self._reaches()}"
                return f"the value {wrong:.12g} was published, {self._reason(name)}"
        lower, upper = steps[-1][1:3]
        if (lower > upper).any():
            return f"the value {values[lower > upper].ravel()[0]:.12g} was published, which nothing gives"
        return None

    def _reason(self, name: str) -> str:
        if name == "clip":
            lo, hi = self._clip
            return f"outside of clip = ({lo:g}, {hi:g})"
        if name == "round_to":
            return f"no multiple of round_to = {self.round_to:g}"
        return f"below suppress_below = {self.suppress_below:g}"

    def _reaches(self) -> str:
        if not self.suppresses:
            return "no threshold says that any is"
        return f"nothing that is clipped and rounded before is below suppress_below = {self.suppress_below:g}"


@dataclass(frozen=True)
class _End:
    """An end of an interval, and whether it belongs to it."""

    at: Any
    closed: Any


def _is_odd(xp: Any, k: Any) -> Any:
    return 2 * xp.floor(k / 2) < k


def _equal(xp: Any, a: Any, b: Any, apart: float = 0.0) -> Any:
    """Whether numbers are the same but for rounding errors, or so little; infinite ones are not."""
    with np.errstate(invalid="ignore"):
        distance = xp.abs(a - b)
        return (distance <= apart + 8 * np.finfo(float).eps * (xp.abs(a) + xp.abs(b))) & (distance < math.inf)


def _before(xp: Any, a: Any, b: Any, closed: Any) -> Any:
    """Whether a number is before another, or is the same and counts; both may have rounding errors."""
    same = _equal(xp, a, b)
    return ((a < b) & ~same) | (same & closed)
