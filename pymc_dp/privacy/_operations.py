"""Checks of the arguments that say what was done to a noisy value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# What unknown_keys= says where keys that count nobody got no noise, and were not published in any case.
NONEMPTY = "nonempty"
# Why the guarantee of such a release is not known.
OF_SELECTION = (
    "noise was added only to keys that occur in the data, so that a key's being listed tells that "
    "somebody is there. What holds is (epsilon, delta), delta being the probability that keys of one "
    "person alone pass the threshold: state it by PrivacyGuarantee(epsilon, delta) as guarantee of the "
    "Release"
)


def checked_number(name: str, value: Any) -> float:
    """Return a finite real number as a float."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}.")
    return float(value)


def ends_of(clip: Any) -> tuple[float, float]:
    """Return the ends of a clip, infinite where there is none."""
    if isinstance(clip, str | Mapping) or not isinstance(clip, Sequence | np.ndarray) or len(clip) != 2:
        raise TypeError(
            f"clip must be a pair (lo, hi), either of which may be None, got {clip!r}: for example clip=(0, "
            "None) for negative values set to 0."
        )
    sides = zip(clip, (-math.inf, math.inf), strict=True)
    lo, hi = (none if v is None or _is(v, none) else checked_number("clip", v) for v, none in sides)
    if not lo < hi:
        raise ValueError(f"clip must be (lo, hi) with lo < hi, got ({lo:g}, {hi:g}).")
    if (lo, hi) == (-math.inf, math.inf):
        raise ValueError("clip has no end: give lo, hi or both, or leave clip out.")
    return lo, hi


def _is(value: Any, end: float) -> bool:
    return isinstance(value, float | np.floating) and float(value) == end


def checked_order(order: Any, names: list[str]) -> tuple[str, ...]:
    """Return the order in which operations were done."""
    known = isinstance(order, Sequence) and not isinstance(order, str)
    if not known or sorted(map(str, order)) != sorted(names):
        raise ValueError(
            f"order must name each operation that is given, once: {', '.join(map(repr, names))} in the order "
            f"in which they were done, got {order!r}."
        )
    return tuple(map(str, order))


def checked_unknown(unknown_keys: Any, threshold: float | None) -> bool | str:
    """Return whether keys are unknown, of which there is a threshold."""
    if isinstance(unknown_keys, str) and unknown_keys != NONEMPTY:
        raise ValueError(f"unknown_keys must be True, False or {NONEMPTY!r}, got {unknown_keys!r}.")
    if not isinstance(unknown_keys, bool | np.bool_ | str):
        raise TypeError(
            f"unknown_keys must be True, False or {NONEMPTY!r}, got {type(unknown_keys).__name__}."
        )
    if unknown_keys and threshold is None:
        raise ValueError(
            "unknown_keys=True needs suppress_below=, the threshold that a noisy value had to reach for its "
            "key to be published."
        )
    return unknown_keys if isinstance(unknown_keys, str) else bool(unknown_keys)
