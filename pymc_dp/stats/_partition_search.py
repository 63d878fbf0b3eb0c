"""Search for the partition of least expected loss, by moves of single records and mergers of clusters."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from pymc_dp.stats._draws import by_appearance

_SPARE = 4  # empty clusters, so that a record can always open one
_SMALL = 1e-10


class PartitionLoss(ABC):
    """Expected loss of a partition, and its changes, up to a constant.

    Attributes
    ----------
    labels : ndarray of int64, shape (n,)
        The present partition of the search.
    sizes : ndarray of int64, shape (capacity,)
        Number of records in each of its clusters.
    """

    labels: np.ndarray
    sizes: np.ndarray

    @abstractmethod
    def expected(self, labels: np.ndarray) -> float:
        """Return the expected loss of a partition with labels 0, 1, ..."""

    @abstractmethod
    def _start(self, capacity: int) -> None:
        """Prepare the tables from which changes are computed, for up to `capacity` clusters."""

    @abstractmethod
    def _change(self, i: int, cluster: int, by: int) -> None:
        """Update the tables after record i enters (by = 1) or leaves (by = -1) a cluster."""

    @abstractmethod
    def _costs(self, i: int) -> np.ndarray:
        """Return the loss of adding record i, which is in no cluster now, to each cluster."""

    @abstractmethod
    def _costs_of_merging(self, a: int) -> np.ndarray:
        """Return, for each cluster, the change of the loss if it is merged with cluster a."""

    def improved(self, labels: np.ndarray, max_sweeps: int = 100) -> np.ndarray:
        """Return a partition that no move of a single record and no merger improves."""
        self._begin(by_appearance(labels))
        for _ in range(max_sweeps):
            if not self._sweep() and not self._merge():
                break
        return by_appearance(self.labels)

    def _begin(self, labels: np.ndarray) -> None:
        self.labels = labels.copy()
        k = int(labels.max()) + 1
        capacity = k + k // 2 + _SPARE
        self.sizes = np.bincount(labels, minlength=capacity)
        self._start(capacity)

    def _sweep(self) -> bool:
        moved = False
        for i in range(len(self.labels)):
            a = int(self.labels[i])
            self.sizes[a] -= 1
            self._change(i, a, -1)
            costs = self._costs(i)
            # all empty clusters are alike, so that a record in a cluster of its own stays where it is
            b = int(np.argmin(costs))
            if costs[b] < costs[a] - _SMALL:
                moved = True
            else:
                b = a
            self.labels[i] = b
            self.sizes[b] += 1
            self._change(i, b, 1)
            if (self.sizes == 0).sum() == 0:
                self._begin(by_appearance(self.labels))
        return moved

    def _merge(self) -> bool:
        occupied = np.flatnonzero(self.sizes)
        best, pair = -_SMALL, None
        for x, a in enumerate(occupied[:-1]):
            others = occupied[x + 1 :]
            costs = self._costs_of_merging(int(a))[others]
            if costs.min() < best:
                best, pair = costs.min(), (a, others[np.argmin(costs)])
        if pair is None:
            return False
        self._begin(by_appearance(np.where(self.labels == pair[1], pair[0], self.labels)))
        return True


class BinderLoss(PartitionLoss):
    """Share of the pairs of records that are together in one partition and apart in the other one.

    Parameters
    ----------
    similarity : ndarray, shape (n, n)
        Posterior probabilities that two records are in one cluster.
    """

    def __init__(self, similarity: np.ndarray) -> None:
        n = len(similarity)
        self._apart = 1.0 - 2.0 * similarity
        np.fill_diagonal(self._apart, 0.0)
        self._pairs = max(n * (n - 1) / 2, 1.0)
        self._all_apart = (similarity.sum() - np.trace(similarity)) / 2

    def expected(self, labels: np.ndarray) -> float:
        """Return the expected loss of a partition with labels 0, 1, ..."""
        together = np.eye(int(labels.max()) + 1)[labels]
        cost = float(np.einsum("ik,ik->", self._apart @ together, together))
        return (cost / 2 + self._all_apart) / self._pairs

    def _start(self, capacity: int) -> None:
        self._sums = self._apart @ np.eye(capacity)[self.labels]

    def _change(self, i: int, cluster: int, by: int) -> None:
        self._sums[:, cluster] += by * self._apart[:, i]

    def _costs(self, i: int) -> np.ndarray:
        costs: np.ndarray = self._sums[i]
        return costs

    def _costs_of_merging(self, a: int) -> np.ndarray:
        costs: np.ndarray = self._sums[self.labels == a].sum(axis=0)
        return costs


class InformationLoss(PartitionLoss):
    """Variation of information between two partitions, in bits.

    Parameters
    ----------
    draws : ndarray of int64, shape (draws, n)
        Posterior draws, each with labels 0, 1, ...
    """

    def __init__(self, draws: np.ndarray) -> None:
        size, n = draws.shape
        self._draws, self._n = draws, n
        self._own = int(draws.max()) + 1
        m = np.arange(n + 1)
        self._entropy = m * np.log2(np.maximum(m, 1)) / n
        self._gain = np.append(np.diff(self._entropy), 0.0)
        sizes = self._table(np.zeros(n, np.int64), 1)
        self._of_draws = float(self._entropy[sizes].sum() / size)

    def _table(self, labels: np.ndarray, capacity: int) -> np.ndarray:
        """Return counts of records by draw, cluster in the draw, and cluster in the partition."""
        size = len(self._draws)
        at = (np.arange(size)[:, None] * self._own + self._draws) * capacity + labels
        counts = np.bincount(at.ravel(), minlength=size * self._own * capacity)
        return counts.reshape(size, self._own, capacity)

    def expected(self, labels: np.ndarray) -> float:
        """Return the expected loss of a partition with labels 0, 1, ..."""
        capacity = int(labels.max()) + 1
        shared = self._entropy[self._table(labels, capacity)].sum() / len(self._draws)
        own = self._entropy[np.bincount(labels)].sum()
        return max(float(own + self._of_draws - 2 * shared), 0.0)

    def _start(self, capacity: int) -> None:
        self._shared = self._table(self.labels, capacity)

    def _change(self, i: int, cluster: int, by: int) -> None:
        self._shared[np.arange(len(self._draws)), self._draws[:, i], cluster] += by

    def _costs(self, i: int) -> np.ndarray:
        beside = self._shared[np.arange(len(self._draws)), self._draws[:, i]]
        costs: np.ndarray = self._gain[self.sizes] - 2 * self._gain[beside].mean(axis=0)
        return costs

    def _costs_of_merging(self, a: int) -> np.ndarray:
        own = self._entropy[self.sizes]
        apart = self._entropy[self._shared].sum(axis=(0, 1))
        together = self._entropy[np.minimum(self._shared + self._shared[:, :, a, None], self._n)].sum(
            axis=(0, 1)
        )
        shared = (together - apart - apart[a]) / len(self._draws)
        costs: np.ndarray = (
            self._entropy[self.sizes[a] + self.sizes * (np.arange(len(own)) != a)] - own - own[a]
        )
        return costs - 2 * shared
