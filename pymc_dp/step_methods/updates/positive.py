"""Positive numbers in trajectories: as logarithms, or as they are, with a reflection at zero.

PyMC samples the logarithm of a positive number. Where little is known of a scale, its logarithm has a long
tail towards small scales along which slopes are small, while at large scales they are steep: one step size
cannot serve both, and trajectories crawl along the tail. The scale itself is then closer to a normal number.
Far from zero the two are alike; where the tail is towards large values, the logarithm is closer.

While tuning, both are measured: of a normal number, variance times mean square of the slope is 1, and the
larger this product, the further is the law from one that a step size fits. The number moves as it is where
the product is less than that of its logarithm when a window of tuning ends; the last one decides. To ask for
much less would not do: a chain that has not yet been near zero sees products that are nearly equal, and as
its logarithm the number does not get there. A number whose density has no bound at zero, such as that of a
gamma law of shape 0.2, always moves as its logarithm: in a window without small values it may look closer to
normal as it is, and where it then meets zero, no step is short enough. What the density does there is looked
at, once a window.

A trajectory that meets zero is reflected there (Afshar & Domke 2015): what it had of velocity towards zero
changes its sign, in the metric of its momenta, so that its energy stays.
"""

import numpy as np

from pymc_dp.lowering.addresses.bind import part_of_kernel

# Rows of what is known of each number: whether it is the logarithm of a positive one, whether that moves as
# it is, sums over updates of values, their squares and those of slopes, of the logarithm and the number, and
# the slope of the log density of the logarithm next to zero.
IS_LOG, AS_IT_IS = 0, 1
_LOG, _LOG_SQUARED, _LOG_SLOPE, _SELF, _SELF_SQUARED, _SELF_SLOPE = range(2, 8)
NEXT_TO_ZERO = 8
_ROWS = 9
# How far below the logarithm of a number one looks; and the slope there below which the number has no bounded
# density: t^(a - 1) has slope a, and a density that is neither zero nor infinite at zero has 1.
_FAR, _BOUNDED = 50.0, 0.95
# Updates from which variances are known; and reflections in one step, after which it is refused.
_FEWEST, _MOST_REFLECTIONS = 20, 100


def begun(is_log: np.ndarray) -> np.ndarray:
    """Return what is known of some numbers before the first update: all begin as they are sampled."""
    charts = np.zeros((_ROWS, is_log.size))
    charts[IS_LOG] = is_log
    charts[NEXT_TO_ZERO] = np.inf
    return charts


def again(charts: np.ndarray, n: float) -> tuple[np.ndarray, np.ndarray]:
    """Return charts for the next window, and mean squares of slopes in them (0 where they are not known).

    Parameters
    ----------
    charts : ndarray, shape (9, k)
        With sums over `n` updates.
    """
    new, k = begun(charts[IS_LOG]), charts.shape[1]
    if n < _FEWEST:
        new[AS_IT_IS] = charts[AS_IT_IS]
        return new, np.zeros(k)
    mean = charts / n
    with np.errstate(invalid="ignore", over="ignore"):
        of_log = (mean[_LOG_SQUARED] - mean[_LOG] ** 2) * mean[_LOG_SLOPE]
        of_self = (mean[_SELF_SQUARED] - mean[_SELF] ** 2) * mean[_SELF_SLOPE]
        new[AS_IT_IS] = (charts[IS_LOG] > 0) & (of_self < of_log)
    new[AS_IT_IS, charts[NEXT_TO_ZERO] < _BOUNDED] = 0.0
    return new, np.where(new[AS_IT_IS] > 0, mean[_SELF_SLOPE], mean[_LOG_SLOPE]) * charts[IS_LOG]


@part_of_kernel
def in_chart(density, place, moving, charts):
    """Change a log density and its slopes to the numbers that move, in place."""
    for i in range(moving.size):
        if charts[AS_IT_IS, i] > 0.0:
            density[0] -= place[moving[i]]
            density[1 + moving[i]] = (density[1 + moving[i]] - 1.0) * np.exp(-place[moving[i]])


@part_of_kernel
def look_next_to_zero(charts, slopes, place, data, given, totals, moving, out):
    """Note the slope of the log density of each logarithm next to zero; infinite if there is no density."""
    for i in range(moving.size):
        if charts[IS_LOG, i] > 0.0:
            log = place[moving[i]]
            place[moving[i]] = log - _FAR
            slopes(place, data, given, totals, out)
            place[moving[i]] = log
            charts[NEXT_TO_ZERO, i] = out[1 + moving[i]] if abs(out[0]) < np.inf else np.inf


@part_of_kernel
def go(at, velocity, momentum, inverse, charts, size):
    """Move along a velocity, with a reflection wherever a positive number meets zero; whether it could."""
    left = size
    for _ in range(_MOST_REFLECTIONS):
        time, first = left, -1
        for i in range(at.size):
            if charts[AS_IT_IS, i] > 0.0 and at[i] + time * velocity[i] < 0.0:
                time, first = -at[i] / velocity[i], i
        for i in range(at.size):
            at[i] += time * velocity[i]
        if first < 0:
            return True
        at[first] = 0.0
        left -= time
        turned = 2.0 * velocity[first] / inverse[first, first]
        momentum[first] -= turned
        for i in range(at.size):
            velocity[i] -= turned * inverse[first, i]
    return False


@part_of_kernel
def learn_charts(charts, slopes, theta, moving):
    """Add the numbers after an update, and the slopes there, to the sums of both coordinates."""
    for i in range(moving.size):
        if charts[IS_LOG, i] > 0.0:
            log = theta[moving[i]]
            itself, slope = np.exp(log), slopes[1 + moving[i]]
            of_log = slope * itself + 1.0 if charts[AS_IT_IS, i] > 0.0 else slope
            of_self = (of_log - 1.0) / itself
            charts[_LOG, i] += log
            charts[_LOG_SQUARED, i] += log * log
            charts[_LOG_SLOPE, i] += of_log * of_log
            charts[_SELF, i] += itself
            charts[_SELF_SQUARED, i] += itself * itself
            charts[_SELF_SLOPE, i] += of_self * of_self
