"""Checks of the numbers that fix a guarantee, with messages that name the argument."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_LARGEST_EPSILON = 1e6
# Floating point cannot compute Gaussian noise for a budget whose epsilon and delta are both below this.
_SMALLEST = 1e-100
_ENDLESS = 2**63  # what a file holds in 64 bits


def as_number(name: str, value: Any) -> float:
    """Return `value` as a float; refuse anything but one known real number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(
            f"{name} must be one real number, got {type(value).__name__}. The guarantee of a "
            "release is fixed when it is declared, so its budget cannot be an array, a tensor or "
            "a random variable. Give the number itself; noise of which the level is data or random is "
            "declared by that level, where the mechanism has one (scale=, sigma=, p_truth=)."
        )
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number of at most 1.8e308, got a larger whole number.") from None


def words(name: str, value: str) -> str:
    """Return `value`; it must be text that every encoding of Unicode can write."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{name} has half of a surrogate pair in it, {value[:99]!r}, which no file can hold: "
            "leave it out."
        ) from None
    return value


def as_name(argument: str, name: Any) -> str:
    """Return `name`; it must be text of at least one character."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"{argument} must be a name, got {name!r}.")
    return words(argument, name)


def positive(name: str, value: Any) -> float:
    """Return `value` as a float; it must be finite and above 0."""
    number = as_number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {number:g}.")
    return number


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return `value` as an int; it must be a whole number of at least `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, got {value!r} of type {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value}.")
    if value >= _ENDLESS:
        raise ValueError(f"{name} must be a whole number below 2^63, got a larger one.")
    return int(value)


def probability(name: str, value: Any, *, or_zero: bool = False) -> float:
    """Return `value` as a float; it must be strictly between 0 and 1, or 0 where that means something."""
    number = as_number(name, value)
    if not (0 < number < 1 or (or_zero and number == 0)):
        advice = {
            "delta": "It is usually far below 1/n, n being the number of people.",
            "smoothing": "The nearer to 1, the more private and the less informative.",
        }
        raise ValueError(
            f"{name} must be strictly between 0 and 1{', or 0 for pure privacy' if or_zero else ''}, got "
            f"{number:g}. {advice.get(name, '')}".rstrip()
        )
    return number


def as_budget(epsilon: Any, delta: Any) -> tuple[float, float]:
    """Return a budget as two floats, delta = 0 for a pure one; refuse one for which noise is not computed."""
    epsilon, delta = not_both_tiny(positive("epsilon", epsilon), probability("delta", delta, or_zero=True))
    if epsilon > _LARGEST_EPSILON:
        raise ValueError(
            f"epsilon must be at most {_LARGEST_EPSILON:g} for a budget, got {epsilon:g}: a larger one "
            "protects nobody, and noise for it is not computed. Give a smaller epsilon."
        )
    return epsilon, delta


def not_both_tiny(epsilon: float, delta: float) -> tuple[float, float]:
    """Return epsilon and delta; refuse them if both are so small that noise cannot be computed."""
    if max(epsilon, delta) < _SMALLEST:
        raise ValueError(
            f"epsilon = {epsilon:g} and delta = {delta:g} are too small together: the noise for them is not "
            f"computed. Give an epsilon or a delta of at least {_SMALLEST:g}."
        )
    return epsilon, delta
