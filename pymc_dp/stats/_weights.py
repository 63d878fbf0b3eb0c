"""Weights of a random mixture given the sizes of its clusters."""

from __future__ import annotations

import warnings

import numpy as np

# The largest number of sticks broken in one draw; a discount near 1 would need millions.
MAX_STICKS = 2000
_BLOCK = 32


def expected_weights(sizes: np.ndarray, concentration: float, discount: float) -> tuple[np.ndarray, float]:
    """Return the expected weights of the occupied components, and the total weight of all others.

    Parameters
    ----------
    sizes : ndarray of int, shape (k,)
        Number of records in each cluster, at least 1 each; an empty array for the prior.
    concentration, discount : float
        Parameters of the two-parameter urn; a discount of -g and a concentration of K g give a mixture of K
        components.
    """
    if not sizes.size:
        return np.empty(0), 1.0
    total = sizes.sum() + concentration
    return (sizes - discount) / total, _of_others(sizes.size, concentration, discount) / total


def draw_weights(
    rng: np.random.Generator, sizes: np.ndarray, concentration: float, discount: float, tolerance: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Draw the weights of the occupied components, and those of the others down to a tolerance.

    The weights of occupied components and the sum of the others are Dirichlet. The others divide that sum
    like the weights of an independent process, in size-biased order; the last of them gets all that remains.

    Parameters
    ----------
    rng : numpy.random.Generator
    sizes, concentration, discount
        As for :func:`expected_weights`.
    tolerance : float
        The remaining weight is not divided further once it is below this.

    Returns
    -------
    occupied : ndarray, shape (k,)
    others : ndarray, shape (m,)
        Together with `occupied` they sum to 1.
    undivided : float
        The remaining weight if it exceeds the tolerance, because there were too many sticks; otherwise 0.
    """
    others = _of_others(sizes.size, concentration, discount)
    if not sizes.size:
        occupied, rest = np.empty(0), 1.0
    else:
        gammas = rng.standard_gamma(np.append(sizes - discount, others))
        gammas /= gammas.sum()
        occupied, rest = gammas[:-1], float(gammas[-1])
    if rest <= 0.0:
        return occupied, np.empty(0), 0.0
    sticks, undivided = _sticks(rng, others, discount, rest, tolerance)
    return occupied, sticks, undivided


def _of_others(k: int, concentration: float, discount: float) -> float:
    """Return the concentration of the components without records; 0 if a finite mixture has none left."""
    if discount < 0.0 and k >= round(-concentration / discount):
        return 0.0
    return concentration + k * discount


def _sticks(
    rng: np.random.Generator, concentration: float, discount: float, rest: float, tolerance: float
) -> tuple[np.ndarray, float]:
    weights: list[np.ndarray] = []
    broken = 0
    while rest > tolerance and broken < MAX_STICKS:
        left = concentration + discount * np.arange(broken + 1, broken + _BLOCK + 1)
        # the last component of a finite mixture takes all that remains
        ends = (left < -discount / 2) if discount < 0.0 else np.zeros(_BLOCK, dtype=bool)
        shares = np.ones(_BLOCK)
        shares[~ends] = rng.beta(1.0 - discount, left[~ends])
        remains = rest * np.cumprod(1.0 - shares)
        pieces = shares * np.concatenate([[rest], remains[:-1]])
        enough = np.flatnonzero(remains <= tolerance)
        stop = int(enough[0]) + 1 if enough.size else _BLOCK
        weights.append(pieces[:stop])
        rest, broken = float(remains[stop - 1]), broken + stop
    if rest > 0.0:
        weights.append(np.array([rest]))
    return np.concatenate(weights), rest if rest > tolerance else 0.0


def warn_of_undivided(most: float, tolerance: float, stacklevel: int = 3) -> None:
    """Warn if there were too many sticks."""
    if most > 0.0:
        warnings.warn(
            f"In some draws a weight of up to {most:.2g}, more than the tolerance {tolerance:g}, is that of "
            f"one more component, because {MAX_STICKS} were not enough: the bands may be too wide. The "
            "discount is large; raise the tolerance to say that this is enough.",
            UserWarning,
            stacklevel=stacklevel,
        )
