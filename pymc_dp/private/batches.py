"""Secret batches of confidential rows and sums over them, in a time that depends on the batch size only.

The privacy of a batch relies on nobody knowing which rows are in it: with that knowledge, the rows of the
batch would have less privacy than is accounted for. So the choice is drawn from the source of the noise,
never from a seed that others may know, and is stored nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from pymc_dp.lowering.addresses.native import function_at
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.privacy.exact_noise import Words, system_words
from pymc_dp.private.clipped_ratios import EACH, RATIO, RowRatio
from pymc_dp.private.confidential import RowTerm
from pymc_dp.private.redaction import sealed

_EACH_AT, _RATIO_AT = types.FunctionType(EACH), types.FunctionType(RATIO)
# Bits of a clipped change, and the most bits that the sum of their squares may take in a 64-bit integer.
_BITS, _SQUARES = 30, 62
# Spare words, beyond one for each row of the batch: one word in 2^64 / n is rejected and replaced.
_SPARE = 8


@njit(cache=True)
def choose(n: int, words: np.ndarray, taken: np.ndarray, chosen: np.ndarray) -> bool:  # pragma: no cover
    """Choose b distinct numbers below n uniformly, in time that depends on b only.

    Floyd's algorithm (Bentley and Floyd 1987): each set is as likely as any other, exactly, since numbers
    below j are remainders of words below the largest multiple of j.

    Parameters
    ----------
    n : int
    words : ndarray of uint64
        Uniform words: one for each number, and some to spare.
    taken : ndarray of bool, shape (n,)
        Marks of what is chosen: all False before the call and after it.
    chosen : ndarray of int64, shape (b,)
        Filled with the chosen numbers, in no particular order.

    Returns
    -------
    bool
        Whether there were enough words; if not, `chosen` must not be used.
    """
    used, b, done = 0, len(chosen), 0
    for k in range(b):
        j = n - b + k
        below = np.uint64(j + 1)
        # words above this one are rejected, since they would make small remainders more likely
        last = np.uint64(0xFFFFFFFFFFFFFFFF) - (np.uint64(0xFFFFFFFFFFFFFFFF) % below + np.uint64(1)) % below
        while used < len(words) and words[used] > last:
            used += 1
        if used == len(words):
            break
        i = np.int64(words[used] % below)
        used += 1
        chosen[k] = j if taken[i] else i
        taken[chosen[k]] = True
        done += 1
    for k in range(done):
        taken[chosen[k]] = False
    return done == b


@njit(cache=True)
def gather(x: np.ndarray, chosen: np.ndarray, out: np.ndarray) -> None:  # pragma: no cover
    """Copy some columns of a matrix."""
    for j in range(len(x)):
        for k in range(len(chosen)):
            out[j, k] = x[j, chosen[k]]


# Python's lock is kept, so that no two threads write the marks of chosen rows at once
@njit(cache=True)
def _sums(  # type: ignore[no-untyped-def]  # pragma: no cover
    address, new, old, x, words, taken, scale, top, b
):
    """Return whether there were enough words, a batch's sum of clipped changes, and that of their squares."""
    chosen = np.empty(b, dtype=np.int64)
    if not choose(x.shape[1], words, taken, chosen):
        return False, 0, 0
    batch, changes = np.empty((len(x), b)), np.empty(b)
    gather(x, chosen, batch)
    function_at(address, _EACH_AT)(new, old, batch, 0, b, scale, top, changes)
    total, squares = 0, 0
    for k in range(b):
        r = np.int64(changes[k])
        total += r  # type: ignore[assignment]
        squares += r * r  # type: ignore[assignment]
    return True, total, squares


@njit(cache=True)
def _count(  # type: ignore[no-untyped-def]  # pragma: no cover
    address, new, old, x, words, taken, scale, top, b
):
    """Return whether there were enough words, and how many changes of a batch exceed the bound."""
    chosen = np.empty(b, dtype=np.int64)
    if not choose(x.shape[1], words, taken, chosen):
        return False, 0.0
    batch = np.empty((len(x), b))
    gather(x, chosen, batch)
    return True, function_at(address, _RATIO_AT)(new, old, batch, 0, b, scale, top)


def bits_for_squares(batch_size: int) -> int:
    """Return the bits of a clipped change for which a batch's sum of squares fits 64 bits."""
    return min(_BITS, (_SQUARES - batch_size.bit_length()) // 2)


class BatchSums:
    """Sums over batches of the confidential rows; each sum is of a fresh batch.

    These sums are exact, so that they protect nobody: callers must add noise before anything leaves. Rows and
    batches are never local variables of a frame that a traceback shows.

    Parameters
    ----------
    term : RowTerm
    ratio : RowRatio
    batch_size : int
        From 2 to the number of rows.

    Attributes
    ----------
    bits : int
    words : callable
        Source of uniform words.
    """

    def __init__(self, term: RowTerm, ratio: RowRatio, batch_size: int):
        self._rows, self._ratio, self.batch_size = term.rows, ratio, batch_size
        ratio.each  # noqa: B018  (compiled before a draw waits for it)
        self.bits = bits_for_squares(batch_size)
        self.words: Words = system_words
        self._taken = np.zeros(term.rows.n, dtype=np.bool_)

    def combined(
        self, new: np.ndarray, old: np.ndarray, bound: float, combine: Callable[[int, int], Any]
    ) -> Any:
        """Return `combine` of the sum of a batch's clipped changes and of a measure of their spread.

        Both arguments are whole numbers: the sum R of the changes r in units of u = ``bound * 2**-bits``, and
        b sum(r^2) - R^2 in units of u^2. If one row of the batch is replaced, the first changes by at most
        ``2 * 2**bits``, and the second by at most ``4 * (b - 1) * 4**bits``.
        """
        return sealed(self._combined, new, old, bound, combine)

    def _combined(self, new: Any, old: Any, bound: float, combine: Callable[[int, int], Any]) -> Any:
        total, squares = self._of_a_batch(_sums, self._ratio.each.address, new, old, bound)
        return combine(total, self.batch_size * squares - total**2)

    def exceeding(self, new: np.ndarray, old: np.ndarray, bound: float) -> int:
        """Return how many changes of a batch exceed `bound`, in either direction."""
        (count,) = sealed(self._of_a_batch, _count, self._ratio.counting.address, new, old, bound)
        return int(count)

    def _of_a_batch(self, loop: Any, address: int, new: Any, old: Any, bound: float) -> tuple[Any, ...]:
        top, b, enough = 2.0**self.bits, self.batch_size, False
        while not enough:
            words = self.words(b + _SPARE)
            enough, *found = self._rows.read(
                loop, (address, new, old), (words, self._taken, top / bound, top, b)
            )
        return tuple(found)
