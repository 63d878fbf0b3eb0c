"""What random walks on batches share: the batches, what their sums can change by, and how far to move."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from pymc_dp.privacy._checks import whole
from pymc_dp.private.batches import BatchSums
from pymc_dp.private.clipped_ratios import RowRatio
from pymc_dp.private.density import RowDensity
from pymc_dp.private.integer_noise import words_of_seed
from pymc_dp.private.walk import PrivateWalk

_log = logging.getLogger("pymc")
# Batches of a known seed are not of the same words as the noise.
_STREAM = 3
# A row's change over its bound, in the usual case, for scales that nobody has chosen.
_USUAL_SHARE = 1 / 3


class SubsampledWalk(PrivateWalk):
    """A random walk whose moves are decided by a fresh batch of rows each."""

    batch_size: int
    _approximate = ""  # what to say of it where a batch is not all rows

    def _batch(self) -> tuple[int, int] | None:
        n = self._found()[0].rows.n
        size = whole("batch_size", self.batch_size)
        if not min(2, n) <= size <= n:
            raise ValueError(
                f"batch_size = {size} is out of range: a batch has from 2 rows (one says nothing of how "
                f"much rows differ) to all {n}."
            )
        self.batch_size = size
        return (n, size) if size < n else None

    @property
    def is_whole(self) -> bool:
        """Whether a batch is all of the rows."""
        return self.batch_size == self.term.rows.n

    def _sums_of(self, density: RowDensity, natural: Sequence[Any]) -> tuple[RowRatio, Any]:
        if self.is_whole:
            return super()._sums_of(density, natural)
        ratio = density.ratio(natural)
        return ratio, BatchSums(self.term, ratio, self.batch_size)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain, with batches of its own."""
        super().setup_chain(rng, tune, draws)
        if not self.is_whole:
            self._sums.words = words_of_seed(self.insecure_noise_seed, self._chain, _STREAM)
        if self._approximate:
            _log.info(f"{type(self).__name__} of '{self.likelihood}' is approximate: {self._approximate}")

    @property
    def _left_out(self) -> float:
        """Share of the rows that a batch leaves out."""
        return 1 - self.batch_size / self.term.rows.n

    def _weight(self) -> float:
        """What a row of the batch counts for in the log likelihood."""
        return self.term.temper * self.term.rows.n / self.batch_size

    @property
    def n_looked_at(self) -> int:
        """Rows that a release is computed from."""
        return self.batch_size

    def _paid_for(self, distance: float) -> float:
        """Count a release; return the bound of a row's change. Nothing is asked if it is 0 or infinite."""
        bound = self.clip * distance
        self._spend("ratios")
        if 0 < bound * 2.0**-self._sums.bits < math.inf:
            return bound
        self._next, self._n_clipped = self._at, self._count_noise()
        return math.inf if bound == math.inf else 0.0

    def _length(self, change: float, sd: float) -> float:
        """Length of a move at which a row can change the weighted sum by so much, and batches hardly vary.

        They are taken to make the log ratio vary by no more than `sd`, if rows are as far from their bound
        as they usually are.
        """
        spread = 0.5 * _USUAL_SHARE * math.sqrt(self._left_out * self.batch_size)
        change = 1 / math.hypot(1 / change, spread / sd)
        return change / (2 * self._weight() * self.clip)
