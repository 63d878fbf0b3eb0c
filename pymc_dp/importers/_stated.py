"""The one way from what a file states to a release: checked, and with a guarantee only where one follows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_dp.flags import flags_lock
from pymc_dp.mechanisms._checks import check_setting
from pymc_dp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
from pymc_dp.mechanisms.discrete_laplace import DiscreteLaplaceMechanism
from pymc_dp.mechanisms.gaussian import GaussianMechanism
from pymc_dp.mechanisms.laplace import LaplaceMechanism
from pymc_dp.privacy._checks import as_number, positive, probability
from pymc_dp.privacy.guarantee import NEIGHBOURS, PrivacyGuarantee
from pymc_dp.privacy.release import Release


@dataclass(frozen=True)
class Noise:
    """A law of noise: the mechanism that adds it, its level's name, and whether it is of whole numbers."""

    words: str
    mechanism: Any
    level: str
    whole: bool


LAPLACE = Noise("Laplace", LaplaceMechanism, "scale", False)
GAUSSIAN = Noise("Gaussian", GaussianMechanism, "sigma", False)
DISCRETE_LAPLACE = Noise("discrete Laplace", DiscreteLaplaceMechanism, "scale", True)
DISCRETE_GAUSSIAN = Noise("discrete Gaussian", DiscreteGaussianMechanism, "sigma", True)


def stated_release(
    noise: Noise,
    value: Any,
    level: Any = None,
    *,
    sensitivity: Any = None,
    epsilon: Any = None,
    delta: Any = None,
    rho: Any = None,
    neighbours: str | None = None,
    named: str = "value",
    level_named: str | None = None,
) -> Release:
    """Return the release that a file or a tool states, or refuse what it lacks or contradicts.

    Of noise level, sensitivity and budget, two give the third; if all three are stated, they are compared.

    Parameters
    ----------
    noise : Noise
    value : array_like
        What was published.
    level : float or array_like, optional
        Its noise level.
    sensitivity : float, optional
        Largest change of the whole value: in the L1 norm for Laplace noise, in the L2 norm for Gaussian.
    epsilon, delta, rho : float, optional
        The budget that was spent on it.
    neighbours : str, optional
        Whom the guarantee compares.
    named, level_named : str
        What value and level are called in messages.

    Returns
    -------
    Release
        With guarantee None where neither sensitivity nor budget is stated.

    Raises
    ------
    TypeError, ValueError
        The noise is not stated; a number is out of its range; statements contradict each other.
    """
    array = values_of(named, value, noise)
    ratio = _ratio(noise, epsilon, delta, rho)
    change = None if sensitivity is None else positive("sensitivity", sensitivity)
    if level is None:
        if change is None or ratio is None:
            raise ValueError(
                f"{level_named or noise.level} is missing: nothing states how much noise was added to "
                f"{named}, and without it nobody can say what the numbers tell. Give it as its publisher "
                "states it."
            )
        level = change / ratio
    level = levels_of(level_named or noise.level, level, array.shape)
    if change is None and ratio is not None:
        if not isinstance(level, float):
            raise ValueError(
                f"sensitivity is missing: it does not follow from a budget where the {noise.level} differs "
                "between entries. Give sensitivity=, or leave the budget out."
            )
        change = level * ratio
    parameters: dict[str, Any] = {noise.level: level}
    if change is None:
        if epsilon is not None or rho is not None:
            raise ValueError(
                f"sensitivity is missing: it does not follow from epsilon with delta for {noise.words} "
                "noise. Give sensitivity=, or leave the budget out."
            )
        return Release(array, noise.mechanism.__name__, parameters)
    if neighbours is None:
        raise ValueError(
            'neighbours is missing: give "replace-one" if a guarantee is about one record exchanged for '
            'another, "add-remove" if it is about one record more or less.'
        )
    check_setting("neighbours", neighbours, NEIGHBOURS)
    parameters |= {"sensitivity": change, "neighbours": neighbours}
    stated = None
    if epsilon is not None or rho is not None:
        stated = PrivacyGuarantee(
            math.inf if epsilon is None else epsilon, 0.0 if delta is None else delta, rho, neighbours
        )
    # one person may change all of it in the entry with the least noise
    found = _guarantee_of(noise, float(np.min(level)), change, neighbours)
    if stated is None:
        guarantee = found
    elif found.exceeds(stated):
        raise ValueError(
            f"The budget contradicts the noise. Stated: {stated} But {noise.words} noise with this "
            f"{noise.level} and sensitivity = {change:g} gives: {found} Ask the publisher which of the "
            "numbers is meant."
        )
    else:
        guarantee = stated if found.implies(stated) else found
    return Release(array, noise.mechanism.__name__, parameters, guarantee)


def values_of(named: str, value: Any, noise: Noise) -> np.ndarray:
    """Return published numbers as the mechanism gives them, float64 or int64."""
    array = numbers_of(named, value)
    if not np.isfinite(array).all():
        raise ValueError(
            f"{named} has missing or infinite entries, the first at index {_first(~np.isfinite(array))}: one "
            "release is of all entries of a query. Leave out of the query what was not published."
        )
    if not noise.whole:
        return array.astype(float)
    broken = np.floor(array) != array if array.dtype.kind == "f" else np.zeros(array.shape, dtype=bool)
    if broken.any():
        raise ValueError(
            f"{named} must be whole numbers, got {array[broken].ravel()[0]:g} at index {_first(broken)}: "
            f"{noise.words} noise gives no fractions, so that either the noise is another, or the numbers "
            "were processed afterwards."
        )
    if (np.abs(array.astype(float)) >= 2.0**63).any():
        raise ValueError(f"{named} must be below 2^63 in size: no whole number with noise is larger.")
    return array.astype(np.int64)


def numbers_of(named: str, value: Any) -> np.ndarray:
    """Return real numbers as an array; masked entries become NaN."""
    if np.ma.isMaskedArray(value) and np.ma.count_masked(value):
        value = np.ma.filled(value.astype(float), np.nan)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{named} must be one array, got rows of different lengths.") from None
    if array.dtype.kind == "O":  # whole numbers beside missing ones, or text
        try:
            array = np.array([np.nan if v is None else v for v in array.ravel()]).reshape(array.shape)
        except (TypeError, ValueError):
            pass
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{named} must be real numbers, got {_sample(array)}: pass what was published.")
    return array


def levels_of(named: str, level: Any, shape: tuple[int, ...]) -> float | np.ndarray:
    """Return a noise level: one number if it is the same for all entries, else one for each."""
    array = numbers_of(named, level).astype(float)
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        raise ValueError(
            f"{named} must be finite and > 0, got {array[bad].ravel()[0]:g}: a number without noise is not a "
            "release; declare one that is known exactly with dp.Invariant."
        )
    if array.ndim == 0 or (array.size and (array == array.ravel()[0]).all()):
        return float(array.ravel()[0])
    if array.shape != shape:
        raise ValueError(
            f"{named} has shape {array.shape}, and what was published shape {shape}: give one number, or one "
            "for each entry."
        )
    return array


def _ratio(noise: Noise, epsilon: Any, delta: Any, rho: Any) -> float | None:
    """Return sensitivity over noise level as a budget fixes it; check the budget."""
    if delta is not None:
        if epsilon is None:
            raise ValueError("epsilon is missing: delta alone states no budget. Give both, or rho.")
        if as_number("delta", delta) != 0:
            probability("delta", delta)
    pure = None if epsilon is None else positive("epsilon", epsilon)
    if rho is not None:
        return math.sqrt(2 * positive("rho", rho))
    return pure if not delta and noise.level == "scale" else None


@lru_cache
def _guarantee_of(noise: Noise, level: float, sensitivity: float, neighbours: str) -> PrivacyGuarantee:
    """Return the guarantee that follows from noise and sensitivity, whatever the value is."""
    given = {noise.level: level, "sensitivity": sensitivity, "neighbours": neighbours}
    with flags_lock, pytensor.config.change_flags(floatX="float64"):
        release = noise.mechanism.dist(pt.constant(0.0), **given)
    return release.owner.op.guarantee


def _first(where: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(where)[0])


def _sample(array: np.ndarray) -> str:
    return f"{array.ravel()[0]!r}" if array.size and array.dtype.kind in "OUS" else f"dtype {array.dtype}"
