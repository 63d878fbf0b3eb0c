"""What an attacker proves of epsilon, who knows all rows but one and sees what is released."""

import numpy as np
from scipy import stats


def proven_epsilon(first, second, delta):
    """Lower bound of epsilon from a statistic of runs on two neighbouring tables.

    The event, a half-line, is chosen on one half of the runs and counted on the other; 99.9 % confidence.
    """
    if np.mean(first) < np.mean(second):
        first, second = second, first
    half = len(first) // 2

    def bound(threshold, part):
        hits = [int((r[part] > threshold).sum()) for r in (first, second)]
        low = stats.beta.ppf(5e-4, hits[0], half - hits[0] + 1) if hits[0] else 0.0
        high = stats.beta.ppf(1 - 5e-4, hits[1] + 1, half - hits[1])
        return np.log(max(low - delta, 1e-12) / high)

    thresholds = np.quantile(np.concatenate([first, second]), np.linspace(0.3, 0.995, 60))
    best = max(thresholds, key=lambda t: bound(t, slice(0, half)))
    return bound(best, slice(half, None))


class Smaller:
    """Noise of a fraction of what it should be."""

    def __init__(self, source, factor):
        self._source, self._factor = source, factor

    def draw(self, count):
        return np.rint(self._source.draw(count) * self._factor).astype(np.int64)
