"""What random walks on batches share: the batches, the sensitivity of their sums, and the length of moves."""

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
# Number of the stream of random words for batches, which must not be the words of the noise.
_STREAM = 3
# Typical ratio of a row's change to its bound, from which default scales are computed.
_USUAL_SHARE = 1 / 3


class SubsampledWalk(PrivateWalk):
    """A random walk in which a fresh batch of rows decides each move."""

    batch_size: int
    _approximate = ""  # what the step says of its error

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
        """Whether a batch consists of all rows."""
        return self.batch_size == self.term.rows.n

    def _sums_of(self, density: RowDensity, natural: Sequence[Any]) -> tuple[RowRatio, Any]:
        if self.is_whole:
            return super()._sums_of(density, natural)
        ratio = density.ratio(natural)
        return ratio, BatchSums(self.term, ratio, self.batch_size)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain, with a source of batches of its own."""
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
        """Weight of a row of the batch in the log likelihood."""
        return self.term.temper * self.term.rows.n / self.batch_size

    @property
    def n_looked_at(self) -> int:
        """Rows that a release is computed from."""
        return self.batch_size

    def _paid_for(self, distance: float) -> float:
        """Count a release; return the bound of a row's change, 0 or inf if rows are not to be read."""
        bound = self.clip * distance
        self._spend("ratios")
        if 0 < bound * 2.0**-self._sums.bits < math.inf:
            return bound
        self._next, self._n_clipped = self._at, self._count_noise()
        return math.inf if bound == math.inf else 0.0

    def _length(self, change: float, sd: float) -> float:
        """Return a length of moves at which a row changes the weighted sum by `change` at most.

        Batches may give the log ratio a standard deviation of up to `sd`, if the changes of rows are a
        typical share of their bound.
        """
        spread = 0.5 * _USUAL_SHARE * math.sqrt(self._left_out * self.batch_size)
        change = 1 / math.hypot(1 / change, spread / sd)
        return change / (2 * self._weight() * self.clip)
