"""Gaussian noise on whole numbers, from the operating system's entropy, some hundred draws at a time.

The samplers of :mod:`pymc_dp.privacy.exact_noise` decide by comparisons of integers of any length, which
takes 50 to 100 us a draw: as long as a pass over 100,000 rows. Here the same rejection sampler compares
uniform numbers of as many bits as a comparison needs with probabilities in floating point. No draw is
rounded, and no tail is cut off: each probability has a relative error of about 1e-15 within a few standard
deviations, and of 1e-12 out to 38, beyond which lie less than 1e-315 of all draws. This changes the stated
epsilon in its last digits only, and it does not matter for a delta of 1e-300, the smallest that a run may
promise.
"""

from __future__ import annotations

import math
import os
import warnings
from threading import Lock
from typing import Any

import numpy as np

from pymc_dp.privacy._checks import probability
from pymc_dp.privacy.exact_noise import Words, system_words, words_from

# Draws made at once: the sampler works on arrays.
_BATCH = 512
# The largest standard deviation, in units, for which draws fit 64 bits.
LARGEST_SCALE = 2**52
# The smallest delta that a run may promise; the probability missing in the tails is far smaller.
LEAST_DELTA = 1e-300
# For k = 44, ..., 1: exp(-k) in units of 2^-63, split into its whole part, with which uniform numbers of 63
# bits are compared, and the remainder. From k = 44 on the whole part is 0, and the geometric law starts over.
_POWERS = np.exp(-np.arange(44.0, 0.0, -1.0)) * 2.0**63
_POWERS_OF_E, _REST_OF_POWERS = np.floor(_POWERS).astype(np.uint64), _POWERS - np.floor(_POWERS)


class GaussianNoise:
    """Discrete Gaussian noise of one scale.

    Parameters
    ----------
    scale : int
        Standard deviation, in units.
    words : callable, optional
        Source of random words; the operating system's entropy by default. Any other source is for tests.

    Notes
    -----
    Noise that was drawn in advance is secret: it is in no pickle, and a forked process draws its own. Threads
    may share one object: no two of them get the same noise.

    Examples
    --------
    >>> from pymc_dp.private.integer_noise import GaussianNoise
    >>> GaussianNoise(2**31).draw(3).shape
    (3,)
    """

    def __init__(self, scale: int, words: Words = system_words):
        self._scale, self._words = scale, words
        self._left, self._owner, self._lock = np.zeros(0, dtype=np.int64), os.getpid(), Lock()

    def draw(self, count: int) -> np.ndarray:
        """Return independent draws, int64."""
        if self._owner != os.getpid():
            # in a fork the thread that held the lock does not exist, so that the lock is made anew
            self._left, self._owner, self._lock = self._left[:0], os.getpid(), Lock()
        with self._lock:
            if len(self._left) < count:
                self._left = discrete_gaussian(self._scale, max(_BATCH, count), self._words)
            drawn, self._left = self._left[:count], self._left[count:]
        return drawn

    def __repr__(self) -> str:
        return f"<Gaussian noise of scale {self._scale}>"

    def __reduce__(self) -> Any:
        raise TypeError("Noise cannot be copied: the same noise on two sums would give both away.")


def discrete_gaussian(scale: int, count: int, words: Words = system_words) -> np.ndarray:
    """Draw whole numbers k with probability proportional to ``exp(-k**2 / (2 * scale**2))``.

    Parameters
    ----------
    scale : int
        From 1 to 2^52.
    count : int
    words : callable, optional
        Source of uniform 64-bit words.

    Returns
    -------
    ndarray of int64, shape (count,)

    References
    ----------
    Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (2020), algorithms 2 and 3.

    Examples
    --------
    >>> from pymc_dp.private.integer_noise import discrete_gaussian
    >>> discrete_gaussian(1000, 3).dtype
    dtype('int64')
    """
    if not 1 <= scale <= LARGEST_SCALE:
        raise ValueError(f"scale must be a whole number from 1 to 2^52, got {scale}.")
    shift = np.uint64(64 - max((scale - 1).bit_length(), 1))
    found: list[np.ndarray] = []
    missing = count
    while missing > 0:
        size = 4 * missing + 32
        given = words(4 * size).reshape(4, size)
        # a discrete Laplace number of the same scale: its remainder and quotient by the scale, and its sign
        rest = (given[0] >> shift).astype(np.int64)
        times = _geometric(given[1] >> np.uint64(1), words)
        magnitude = rest + scale * times
        negative = (given[1] & np.uint64(1)).astype(bool)
        proposed = (rest < scale) & ~(negative & (magnitude == 0))
        excess = (magnitude - scale).astype(float) / scale
        kept = proposed & _below(given[2], np.exp(-rest / scale), words)
        kept &= _below(given[3], np.exp(-0.5 * excess**2), words)
        drawn = np.where(negative, -magnitude, magnitude)[kept][:missing]
        found.append(drawn)
        missing -= len(drawn)
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _below(first: np.ndarray, p: np.ndarray, words: Words) -> np.ndarray:
    """Return whether uniform numbers are below `p`, compared to the last bit of `p`.

    Their first 64 bits are given; further bits are drawn in the rare cases where these do not decide.
    """
    scaled = p * 2.0**64  # this product is exact
    certain = p >= 1
    known = np.where(certain, 0.0, scaled).astype(np.uint64)
    below = certain | (first < known)
    beyond = scaled - known.astype(float)
    tied = np.flatnonzero((first == known) & ~certain & (beyond > 0))
    if len(tied):
        below[tied] = _below(words(len(tied)), beyond[tied], words)
    return below


def _geometric(first: np.ndarray, words: Words) -> np.ndarray:
    """Return for how many k >= 1 each uniform number is below ``exp(-k)``; the first 63 bits are given."""
    at = np.searchsorted(_POWERS_OF_E, first, side="right") - 1
    times = len(_POWERS_OF_E) - 1 - at
    tied = np.flatnonzero(_POWERS_OF_E[at] == first)
    if len(tied):  # rare: the first bits do not decide for one k
        passed = tied[_below(words(len(tied)), _REST_OF_POWERS[at[tied]], words)]
        times[passed] += 1
        endless = passed[at[passed] == 0]
        if len(endless):
            times[endless] += _geometric(words(len(endless)) >> np.uint64(1), words)
    return times


def kept_delta(delta: Any) -> float:
    """Return a delta as a float, if it is large enough for the precision of the noise.

    Raises
    ------
    ValueError
    """
    delta = probability("delta", delta)
    if delta < LEAST_DELTA:
        raise ValueError(
            f"delta = {delta:g} is less than the noise of private steps can keep, whose tails are numbers of "
            f"64 bits: give at least {LEAST_DELTA:g}."
        )
    return delta


def checked_seed(seed: Any) -> int | None:
    """Return the seed of insecure noise, and warn if there is one."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"insecure_noise_seed must be a whole number >= 0, got {seed!r}.")
    warnings.warn(
        "insecure_noise_seed: the noise of this run can be computed by whoever knows the seed, so that its "
        "draws are not private. It is for tests on made-up data.",
        stacklevel=2,
    )
    return int(seed)


def words_of_seed(seed: int | None, chain: int, stream: int = 0) -> Words:
    """Return the system's entropy, or, if a seed is given, words that anyone who knows the seed can repeat.

    Parameters
    ----------
    seed : int, optional
    chain, stream : int
        Together they name a stream of the seed: each chain, and each kind of noise of a chain, has its own.
    """
    seed = checked_seed(seed)
    if seed is None:
        return system_words
    return words_from(np.random.default_rng([seed, chain, stream]))


def noise_scale(argument: str, multiplier: float, bits: int) -> int:
    """Return the standard deviation of noise in units of 2^-bits of a sensitivity."""
    scale = math.ceil(multiplier * 2.0**bits)
    if not 1 <= scale <= LARGEST_SCALE:
        raise ValueError(
            f"{argument}: noise of {multiplier:g} times its sensitivity does not fit 64-bit numbers, which "
            f"takes at most {LARGEST_SCALE / 2**bits:.3g} times. Nothing was spent: give a smaller one."
        )
    return scale
