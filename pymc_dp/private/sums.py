"""Sums over the confidential rows, on several cores where they are many."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import parent_process

import numpy as np

from pymc_dp.lowering.ratios import RowRatio, bits_for
from pymc_dp.private.confidential import RowTerm

# Numbers of all rows from which a pass is worth several threads, and the parts it is then split into.
_PARALLEL_FROM, _PARTS = 2_000_000, 8


class RowSums:
    """Sums over the confidential rows, on several cores where they are many.

    Nothing here is private: to be used with noise only. Rows are arguments of calls, never variables.

    Parameters
    ----------
    term : RowTerm
    ratio : RowRatio
    """

    def __init__(self, term: RowTerm, ratio: RowRatio):
        self._rows, self._ratio = term.rows, ratio
        ratio.function  # noqa: B018  (compiled before a draw waits for it)
        self.bits = bits_for(term.rows.n)
        n = term.rows.n
        # chains in processes of their own have the cores already, and threads do not survive a fork
        several = n * term.rows.width >= _PARALLEL_FROM and parent_process() is None
        self._ends = np.linspace(0, n, (_PARTS if several else 1) + 1).astype(int)
        self._pool, self._owner = ThreadPoolExecutor() if several else None, os.getpid()

    def clipped(self, new: np.ndarray, old: np.ndarray, bound: float) -> int:
        """Sum of the changes of log density, each clipped to `bound`, in units of ``bound * 2**-bits``."""
        return self._sum(self._ratio.total, new, old, bound)

    def exceeding(self, new: np.ndarray, old: np.ndarray, bound: float) -> int:
        """Return how many changes of log density exceed `bound`, in either direction."""
        return self._sum(self._ratio.exceeding, new, old, bound)

    def _sum(self, total: Callable[..., float], new: np.ndarray, old: np.ndarray, bound: float) -> int:
        def part(k: int) -> float:
            ends = self._ends[k], self._ends[k + 1]
            return float(self._rows.read(total, (new, old), (*ends, bound, self.bits)))

        each = self._pool.map if self._pool is not None and self._owner == os.getpid() else map
        return int(sum(each(part, range(len(self._ends) - 1))))
