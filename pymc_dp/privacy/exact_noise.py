"""Discrete noise that is drawn in integer arithmetic, without rounding between entropy and noise.

A floating-point sampler reaches only some of the numbers that its law allows. Which ones depends on the
number that the noise is added to, so that a release can reveal more than its guarantee says (Mironov 2012).
The samplers here draw integers from uniform 64-bit words by comparisons of integers only: as long as the
words are uniform, the law is exactly the stated one, whatever the scale.

The time that a draw takes depends on the noise, as in all rejection samplers: somebody who can time a single
release learns something about its noise.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

Words = Callable[[int], np.ndarray]

_WORD = 64


def system_words(count: int) -> np.ndarray:
    """Return `count` uniform 64-bit words from the operating system's entropy.

    Parameters
    ----------
    count : int

    Returns
    -------
    ndarray of uint64, shape (count,)

    Examples
    --------
    >>> from pymc_dp.privacy.exact_noise import system_words
    >>> system_words(3).shape
    (3,)
    """
    return np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)


def words_from(generator: np.random.Generator) -> Words:
    """Return a source of words that draws on a NumPy generator.

    Parameters
    ----------
    generator : numpy.random.Generator
        For a release, it must have a cryptographic bit generator; seeded ones are for tests.

    Returns
    -------
    callable
        ``words(count)``: `count` uniform 64-bit words.
    """
    return lambda count: generator.integers(0, 2**_WORD, size=count, dtype=np.uint64)


def uniform_below(bound: int, count: int, words: Words = system_words) -> np.ndarray:
    """Draw integers uniformly from 0, ..., bound - 1.

    Parameters
    ----------
    bound : int
        At least 1, of any size.
    count : int
    words : callable, optional
        Source of uniform 64-bit words; the operating system's by default.

    Returns
    -------
    ndarray of object (Python integers), shape (count,)

    Examples
    --------
    >>> from pymc_dp.privacy.exact_noise import uniform_below
    >>> set(uniform_below(2, 100).tolist()) == {0, 1}
    True
    """
    bits = (bound - 1).bit_length()
    if not bits:
        return np.zeros(count, dtype=object)

    def attempt(size: int) -> tuple[np.ndarray, np.ndarray]:
        if bits <= _WORD:
            candidates = (words(size) >> np.uint64(_WORD - bits)).astype(object)
        else:
            candidates = _long_words(bits, size, words)
        kept = candidates < bound
        return kept, candidates[kept]

    return _by_rejection(count, attempt)


def bernoulli(numerator: Any, denominator: Any, words: Words = system_words) -> np.ndarray:
    """Draw successes of probability numerator / denominator, a ratio of integers in [0, 1].

    Parameters
    ----------
    numerator, denominator : array_like of int, or of object (Python integers)
        Arrays that broadcast together; 0 <= numerator <= denominator, denominator > 0.
    words : callable, optional
        Source of uniform 64-bit words.

    Returns
    -------
    ndarray of bool

    Notes
    -----
    The first 64 binary digits of a uniform number are compared with those of the ratio. Further digits are
    drawn only if they agree, which has probability 2^-64.
    """
    shape, top, bottom = _ratios(numerator, denominator)
    if not top.size:
        return np.zeros(shape, dtype=bool)
    shifted = top << _WORD
    digits, rest = shifted // bottom, shifted % bottom
    certain = (top >= bottom).astype(bool)
    digits[certain] = 0
    first, known = words(top.size), digits.astype(np.uint64)
    success = (first < known) | certain
    for i in np.flatnonzero((first == known) & (rest > 0).astype(bool)):  # has probability 2^-64
        success[i] = bernoulli(rest[i : i + 1], bottom[i : i + 1], words)[0]
    return success.reshape(shape)


def bernoulli_exp(numerator: Any, denominator: Any, words: Words = system_words) -> np.ndarray:
    """Draw successes of probability exp(-numerator / denominator), a ratio of integers >= 0.

    Parameters
    ----------
    numerator, denominator : array_like of int, or of object (Python integers)
        Arrays that broadcast together; numerator >= 0, denominator > 0.
    words : callable, optional
        Source of uniform 64-bit words.

    Returns
    -------
    ndarray of bool

    References
    ----------
    Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*, algorithm 1.
    """
    shape, top, bottom = _ratios(numerator, denominator)
    whole, rest = top // bottom, top % bottom
    success = np.ones(top.size, dtype=bool)
    # exp(-whole) is the probability that `whole` trials of probability exp(-1) all succeed; most fail early
    turn, trying = 0, np.flatnonzero(whole > 0)
    while trying.size:
        passed = _exp_of_one(trying.size, words)
        success[trying[~passed]] = False
        turn += 1
        trying = trying[passed]
        trying = trying[(whole[trying] > turn).astype(bool)]
    left = np.flatnonzero(success & (rest > 0).astype(bool))
    success[left] = _exp_of_at_most_one(rest[left], bottom[left], words)
    return success.reshape(shape)


def discrete_laplace(scale: Any, count: int, words: Words = system_words) -> np.ndarray:
    r"""Draw from the discrete Laplace law, :math:`P(k) \propto \exp(-|k| / \text{scale})`.

    Parameters
    ----------
    scale : Fraction, int or float
        > 0; a float is taken as the exact binary fraction that it represents.
    count : int
    words : callable, optional
        Source of uniform 64-bit words; the operating system's by default.

    Returns
    -------
    ndarray of int64, shape (count,)
        Of Python integers where a draw does not fit 64 bits: a refusal would depend on the noise, and cut
        off its law.

    Raises
    ------
    ValueError
        `scale` is not finite and > 0.

    References
    ----------
    Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*, algorithm 2.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from pymc_dp.privacy.exact_noise import discrete_laplace
    >>> discrete_laplace(Fraction(7, 3), 1000).dtype
    dtype('int64')
    """
    return _in_64_bits(_discrete_laplace(as_fraction("scale", scale), count, words))


def discrete_gaussian(sigma: Any, count: int, words: Words = system_words) -> np.ndarray:
    r"""Draw from the discrete Gaussian law, :math:`P(k) \propto \exp(-k^2 / 2 \sigma^2)`.

    Parameters
    ----------
    sigma : Fraction, int or float
        > 0; a float is taken as the exact binary fraction that it represents.
    count : int
    words : callable, optional
        Source of uniform 64-bit words; the operating system's by default.

    Returns
    -------
    ndarray of int64, shape (count,)
        Of Python integers where a draw does not fit 64 bits.

    Raises
    ------
    ValueError
        `sigma` is not finite and > 0.

    References
    ----------
    Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*, algorithm 3.

    Examples
    --------
    >>> from pymc_dp.privacy.exact_noise import discrete_gaussian
    >>> bool(abs(discrete_gaussian(10, 1000)).max() < 100)
    True
    """
    p, q = (as_fraction("sigma", sigma) ** 2).as_integer_ratio()
    t = math.isqrt(p // q) + 1

    def attempt(size: int) -> tuple[np.ndarray, np.ndarray]:
        candidates = _discrete_laplace(Fraction(t), size, words)
        excess = abs(candidates) * (t * q) - p
        kept = bernoulli_exp(excess * excess, 2 * p * q * t * t, words)
        return kept, candidates[kept]

    return _in_64_bits(_by_rejection(count, attempt))


def as_fraction(name: str, value: Any) -> Fraction:
    """Return a number as an exact fraction; it must be finite and > 0."""
    number = value if isinstance(value, Fraction | int) else float(value)
    if not (isinstance(number, Fraction | int) or math.isfinite(number)) or number <= 0:
        raise ValueError(f"{name} must be finite and > 0, got {value}.")
    return Fraction(number)


def _discrete_laplace(scale: Fraction, count: int, words: Words) -> np.ndarray:
    t, s = scale.as_integer_ratio()

    def attempt(size: int) -> tuple[np.ndarray, np.ndarray]:
        low = uniform_below(t, size, words)
        kept = bernoulli_exp(low, t, words)
        low = low[kept]
        found = (low + t * _geometric(low.size, words)) // s
        negative = words(low.size) >> np.uint64(_WORD - 1) == 1
        done = ~(negative & (found == 0).astype(bool))  # zero is counted with one sign only
        kept[kept] = done
        return kept, np.where(negative, -found, found)[done]

    return _by_rejection(count, attempt)


def _by_rejection(count: int, attempt: Callable[[int], tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return `count` draws; an attempt is repeated for those that were not kept.

    An attempt of a given size returns a mask of the draws that it keeps, and these draws.
    """
    found = np.zeros(count, dtype=object)
    open_ = np.arange(count)
    while open_.size:
        kept, draws = attempt(open_.size)
        found[open_[kept]] = draws
        open_ = open_[~kept]
    return found


def _ratios(numerator: Any, denominator: Any) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
    """Return the common shape of ratios, and their numerators and denominators as vectors."""
    top, bottom = np.broadcast_arrays(*(np.asarray(a, dtype=object) for a in (numerator, denominator)))
    return top.shape, top.ravel(), bottom.ravel()


def _geometric(count: int, words: Words) -> np.ndarray:
    """Draw the number of successes of probability exp(-1) before the first failure."""
    successes = np.zeros(count, dtype=object)
    trying = np.arange(count)
    while trying.size:
        trying = trying[_exp_of_one(trying.size, words)]
        successes[trying] += 1
    return successes


def _exp_of_one(count: int, words: Words) -> np.ndarray:
    """Draw successes of probability exp(-1)."""
    return _even_runs(count, lambda at, k: bernoulli(1, np.full(at.size, k, dtype=object), words))


def _exp_of_at_most_one(top: np.ndarray, bottom: np.ndarray, words: Words) -> np.ndarray:
    """Draw successes of probability exp(-top/bottom), a ratio in [0, 1]."""

    def attempt(at: np.ndarray, k: int) -> np.ndarray:
        # a success of probability (top/bottom)/k is a success of top/bottom together with one of 1/k
        success = bernoulli(top[at], bottom[at], words)
        on = np.flatnonzero(success) if k > 1 else at[:0]
        success[on] = bernoulli(1, np.full(on.size, k, dtype=object), words)
        return success

    return _even_runs(top.size, attempt)


def _even_runs(count: int, attempt: Callable[[np.ndarray, int], np.ndarray]) -> np.ndarray:
    """Return whether the run of successes of attempts k = 1, 2, ... has even length (algorithm 1)."""
    even = np.ones(count, dtype=bool)
    trying, k = np.arange(count), 1
    while trying.size:
        success = attempt(trying, k)
        trying, k = trying[success], k + 1
        even[trying] = ~even[trying]
    return even


def _long_words(bits: int, count: int, words: Words) -> np.ndarray:
    pieces = -(-bits // _WORD)
    table = words(count * pieces).reshape(count, pieces).astype(object)
    total = np.zeros(count, dtype=object)
    for piece in table.T:
        total = (total << _WORD) | piece
    return total >> (pieces * _WORD - bits)


def _in_64_bits(draws: np.ndarray) -> np.ndarray:
    try:
        return draws.astype(np.int64)
    except OverflowError:
        return draws
