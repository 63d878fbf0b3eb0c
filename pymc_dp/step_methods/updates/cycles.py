"""How many cycles a draw is worth, from how well the parameters mixed in each cycle while tuning.

A draw costs what PyMC's loop, its trace and its sweep over the records cost, and its cycles. Few cycles make
cheap draws that depend on each other, many cycles dear ones that hardly do. From the autocorrelations rho
after 1, 2, 4, ... cycles it follows how many independent draws one draw of n cycles is worth,
1 / (1 + 2 (rho_n + rho_2n + ...)). The number with most of them for its cost is taken. Costs are counted, in
records swept, not timed: draws are a function of the seed.
"""

from typing import Any

import numpy as np

# Most cycles of a draw.
MOST = 8
# What a draw costs in PyMC's loop, in records swept, and for each record in the trace.
_DRAW, _RECORD = 900.0, 1.0
# What a cycle costs beside its passes over the records.
_CYCLE = 250.0
# Up to so many records the first of several cycles has a sweep too: it is little of what a draw costs, and
# records whose conditionals are narrow beside their marginals hardly move otherwise.
_FEW_RECORDS = 200
# Draws of tuning from which autocorrelations are known, and how much better than the default another number
# has to be: chance alone makes one look better by less.
FEWEST, _BETTER = 50, 1.1
# Largest ratio of autocorrelations, one after a draw more than the other, that is believed.
_LARGEST = 0.98


class Jumps:
    """Squares of how far parameters went in some numbers of cycles, added up over draws of tuning.

    Parameters
    ----------
    k : int
        Number of parameters.
    n_cycles : int
        Cycles of a draw while tuning.

    Attributes
    ----------
    lags : ndarray
        Numbers of cycles: powers of two, and those of a draw.
    squares : ndarray, shape (len(lags), k)
    n_draws : int
    """

    def __init__(self, k: int, n_cycles: int):
        self.lags = np.unique([*(2**i for i in range(n_cycles.bit_length())), n_cycles])
        self.squares = np.zeros((self.lags.size, k))
        self.n_draws = 0

    def add(self, trace: np.ndarray) -> None:
        """Take another draw: the parameters before it, and after each of its cycles."""
        for row, lag in enumerate(self.lags):
            self.squares[row] += np.sum((trace[lag:] - trace[:-lag]) ** 2, axis=0)
        self.n_draws += 1

    def autocorrelations(self, variance: np.ndarray) -> np.ndarray:
        """Return those of each parameter after each number of cycles, shape (len(lags), k)."""
        pairs = self.n_draws * (self.lags[-1] - self.lags + 1)
        return 1 - self.squares / (2 * pairs[:, None] * np.maximum(variance, 1e-300))

    def effective(self, variance: np.ndarray) -> np.ndarray:
        """Return how many independent draws one is worth, for the worst parameter, by number of cycles."""
        left = np.clip(self.autocorrelations(variance)[:, variance > 0], 1e-3, 1.0)
        if not left.size:
            return np.ones(self.lags.size)
        logs, end = np.log(left), self.lags[-1]
        # geometric between the numbers that are known, and beyond the last as between the last two
        grid = np.arange(1, end + 1)
        inside = np.stack([np.interp(grid, [0, *self.lags], [0.0, *log]) for log in logs.T], axis=1)
        decay = logs[-1] / end
        if len(self.lags) > 1:
            decay = (logs[-1] - logs[-2]) / (end - self.lags[-2])
        known = left[-1] > 2 / np.sqrt(max(self.n_draws, 1))  # what is less is chance
        decay = np.minimum(decay, np.log(_LARGEST) / end)
        worth = []
        for n in self.lags:
            beyond = end - end % n + n  # the first multiple that is
            total = np.exp(inside[n - 1 :: n]).sum(axis=0)
            total = total + known * np.exp(logs[-1] + decay * (beyond - end)) / (1 - np.exp(decay * n))
            worth.append(np.min(1 / (1 + 2 * total)))
        return np.array(worth)


def best_number(jumps: Jumps, variance: np.ndarray, n_records: int, cost: float) -> int:
    """Return the number of cycles, up to those while tuning, with the most effective draws for their cost.

    Parameters
    ----------
    jumps : Jumps
    variance : ndarray, shape (k,)
        Of the parameters, over the same draws.
    n_records : int
    cost : float
        Of a cycle, in records swept.
    """
    default = int(jumps.lags[-1])
    if jumps.n_draws < FEWEST:
        return default
    rates = jumps.effective(variance) / cost_of_a_draw(n_records, jumps.lags, cost)
    best = int(np.argmax(rates))
    return int(jumps.lags[best]) if rates[best] > _BETTER * rates[-1] else default


def cost_of_a_draw(n_records: int, n_cycles: Any, cost: float) -> Any:
    """Return what draws of some numbers of cycles cost, in records swept, given the cost of a cycle.

    Where the first of several cycles has no sweep (:func:`sweeps_first`), the draw costs less by it.
    """
    n_cycles = np.asarray(n_cycles)
    spared = n_records * (1 - sweeps_first(n_records, n_cycles))
    return _DRAW + _RECORD * n_records + n_cycles * (_CYCLE + cost) - spared


def sweeps_first(n_records: int, n_cycles: Any) -> Any:
    """Return of draws of some numbers of cycles whether the first cycle has a sweep: 1 or 0."""
    return np.where((np.asarray(n_cycles) == 1) | (n_records <= _FEW_RECORDS), 1, 0)
