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

# Number of entries read by a pass from which several threads pay off. Where the log density is no polynomial,
# every entry counts as _DEAR, since it takes about as long.
_PARALLEL_FROM, _DEAR = 1_500_000, 30


class RowSums:
    """Sums over the confidential rows, on several cores where they are many.

    These sums are exact, so that they protect nobody: callers must add noise before anything leaves. Rows are
    passed as arguments of calls, and are never local variables of this class.

    Parameters
    ----------
    term : RowTerm
    ratio : RowRatio
    """

    def __init__(self, term: RowTerm, ratio: RowRatio):
        self._rows, self._ratio = term.rows, ratio
        ratio.function  # noqa: B018  (compiled before a draw waits for it)
        self.bits = bits_for(term.rows.n)
        # worker processes share the cores among chains already, and threads do not survive a fork
        n_threads = _n_cores() if parent_process() is None else 1
        self._ends = np.linspace(0, term.rows.n, n_threads + 1).astype(int)
        self._pool, self._owner = ThreadPoolExecutor(n_threads), os.getpid()

    def clipped(self, new: np.ndarray, old: np.ndarray, bound: float) -> int:
        """Return the sum of changes in log density, clipped to `bound`, in units of ``bound * 2**-bits``."""
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

        ``width`` is the work for one row, as a number of entries read. Sums are of whole numbers, so that the
        result does not depend on the number of parts.
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
        """Return how many entries of a row a pass reads; it skips columns with unchanged coefficients."""
        if self._ratio.features is None:
            return self._rows.width * _DEAR
        return int(np.count_nonzero(new != old))


def _n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
