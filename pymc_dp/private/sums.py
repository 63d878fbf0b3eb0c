"""Sums over the confidential rows, on several cores where they are many."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from multiprocessing import parent_process
from typing import Any

import numpy as np

from pymc_dp.private.clipped_ratios import RowRatio, bits_for
from pymc_dp.private.confidential import RowTerm
from pymc_dp.private.redaction import sealed

# Numbers that a pass reads from which it is worth several threads; where the log density is no polynomial,
# every number of a row takes as long as many.
_PARALLEL_FROM, _DEAR = 1_500_000, 30


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
        # chains in processes of their own have the cores already, and threads do not survive a fork
        n_threads = _n_cores() if parent_process() is None else 1
        self._ends = np.linspace(0, term.rows.n, n_threads + 1).astype(int)
        self._pool, self._owner = ThreadPoolExecutor(n_threads), os.getpid()

    def clipped(self, new: np.ndarray, old: np.ndarray, bound: float) -> int:
        """Sum of the changes of log density, each clipped to `bound`, in units of ``bound * 2**-bits``."""
        return int(self.over_rows(self._ratio.total, (new, old), (bound, self.bits), self._width(new, old)))

    def exceeding(self, new: np.ndarray, old: np.ndarray, bound: float) -> int:
        """Return how many changes of log density exceed `bound`, in either direction."""
        return int(
            self.over_rows(self._ratio.exceeding, (new, old), (bound, self.bits), self._width(new, old))
        )

    def over_rows(
        self, total: Callable[..., Any], before: tuple[Any, ...], after: tuple[Any, ...], width: int
    ) -> Any:
        """Return the sum over parts of the rows of ``total(*before, columns, first, last, *after)``.

        ``width`` says how much there is to do for a row, in numbers that are read. Sums are of whole numbers,
        so that it does not matter how many parts there are.
        """
        return sealed(self._in_parts, total, before, after, width)

    def _in_parts(self, total: Callable[..., Any], before: tuple, after: tuple, width: int) -> Any:
        def part(low: int, high: int) -> Any:
            return self._rows.read(total, before, (low, high, *after))

        if self._rows.n * width < _PARALLEL_FROM or self._owner != os.getpid():
            return part(0, self._rows.n)
        first, *others = pairwise(self._ends)
        futures = [self._pool.submit(part, *ends) for ends in others]
        return part(*first) + sum(future.result() for future in futures)

    def _width(self, new: np.ndarray, old: np.ndarray) -> int:
        """Numbers of a row that a pass reads: columns whose coefficients do not change are left out."""
        if self._ratio.features is None:
            return self._rows.width * _DEAR
        return int(np.count_nonzero(new != old))


def _n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
