"""Secret batches of confidential rows and sums over them, in a time that depends on the batch only.

Whoever knows which rows are in a batch knows which are not, and those have less privacy than is accounted
for. So the choice comes from the source of the noise, never from a seed that is told, and is kept nowhere.
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
# Bits of a clipped change; of the sum of their squares no more than fit a whole number of 64 bits.
_BITS, _SQUARES = 30, 62
# Words beyond one for each row: one in 2^64 / n of them has to be drawn again.
_SPARE = 8


@njit(cache=True)
def choose(n: int, words: np.ndarray, taken: np.ndarray, chosen: np.ndarray) -> bool:  # pragma: no cover
    """Choose distinct numbers below n uniformly, in time that depends on how many they are only.

    Floyd's algorithm (Bentley and Floyd 1987): each set is as likely as any other, exactly, since numbers
    below j are remainders of words below the largest multiple of j.

    Parameters
    ----------
    n : int
    words : ndarray of uint64
        Uniform words: one for each, and some to spare.
    taken : ndarray of bool, shape (n,)
        All False, and again so afterwards.
    chosen : ndarray of int64, shape (b,)
        What is chosen, in no particular order.

    Returns
    -------
    bool
        Whether there were words enough; `chosen` is of no use otherwise.
    """
    used, b, done = 0, len(chosen), 0
    for k in range(b):
        j = n - b + k
        below = np.uint64(j + 1)
        # words from here on would make small remainders more likely
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


# with Python's lock, so that threads do not meet in the marks of what is taken
@njit(cache=True)
def _sums(  # type: ignore[no-untyped-def]  # pragma: no cover
    address, new, old, x, words, taken, scale, top, b
):
    """Whether words were enough, the sum of the clipped changes of a batch, and that of their squares."""
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
    """Whether words were enough, and how many changes of a batch exceed the bound."""
    chosen = np.empty(b, dtype=np.int64)
    if not choose(x.shape[1], words, taken, chosen):
        return False, 0.0
    batch = np.empty((len(x), b))
    gather(x, chosen, batch)
    return True, function_at(address, _RATIO_AT)(new, old, batch, 0, b, scale, top)


def bits_for_squares(batch_size: int) -> int:
    """Bits of a clipped change for which the sum of the squares of so many is a number of 64 bits."""
    return min(_BITS, (_SQUARES - batch_size.bit_length()) // 2)


class BatchSums:
    """Sums over batches of the confidential rows, each of them fresh.

    Nothing here is private: to be used with noise only. Rows and batches are variables of no frame that an
    error leaves.

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
        """Return what `combine` makes of the sum of the clipped changes of a batch, and how much they vary.

        It gets whole numbers of u = ``bound * 2**-bits``: the sum R of the changes r, and b sum(r^2) - R^2 in
        squares of u. If one row of the batch is replaced, the first changes by at most ``2 * 2**bits``, and
        the second by ``4 * (b - 1) * 4**bits``.
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
