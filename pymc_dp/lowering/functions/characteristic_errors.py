"""How exact the density of a noisy sum is: what its integrals and its points leave out.

The points of one number of a record are Gauss-Legendre points between two cuts, so that what is integrated
has coefficients by Legendre polynomials there. Those of the highest degrees, and how fast they fall, tell
what the points do not see (Trefethen, *Approximation Theory and Approximation Practice*, chapter 8), also
where two sets of points happen to agree, as on both sides of a steep place in the middle.
"""

import math

import numpy as np

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.characteristic import _LARGEST, _folded, _tilted, log_density
from pymc_dp.lowering.functions.characteristic_pairs import log_density as pair_density
from pymc_dp.lowering.functions.characteristic_pairs import tilted

# Frequencies beyond the last node at which one person's function is looked at, and how many steps between
# them make half a turn of the widest difference between two people.
_FAR, _TURN = 128, 16
# Probability of the scores of a number that have no points (grids.py).
_UNSEEN = 8e-11
# Fewest points of a rule whose coefficients are looked at: pieces with fewer have no weight, or one value.
_FEWEST = 8


@njit
def _beyond(  # type: ignore[no-untyped-def]
    s, sd, start, found, added, chances, people, constant, noise, laplace, nodes, width, pieces
):
    """Bound the share of the density beyond the last node, from the size of the function at the last ones."""
    groups, points = added.shape
    ratio, parts = np.empty((groups, points)), np.empty(int(pieces.max()) + 1, np.complex128)
    _tilted(s, added, chances, people, constant, ratio)
    step = 2.0 * math.pi / (width * sd)
    end, left = nodes * step, 0.0
    for g in range(groups):
        largest, smallest, highest, mean, square = 0.0, added[g, 0], added[g, 0], 0.0, 0.0
        for j in range(points):
            smallest, highest = min(smallest, added[g, j]), max(highest, added[g, j])
            mean += chances[g, j] * ratio[g, j] * added[g, j]
            square += chances[g, j] * ratio[g, j] * added[g, j] ** 2
        # until the widest difference has made half a turn, the function falls
        half = math.pi / max(highest - smallest, 1e-300)
        apart, begin = half / _TURN, max(end, half)
        for k in range(_FAR):
            t, total = begin + (k + 0.5) * apart, complex(0.0, 0.0)
            for j in range(points):
                turned = t * (added[g, j] - added[g, 0])
                total += chances[g, j] * ratio[g, j] * complex(math.cos(turned), math.sin(turned))
            # a peak between two of these is higher by no more than its curvature, a person's variance, tells
            here = abs(total) + 0.125 * apart * apart * max(square - mean * mean, 0.0)
            largest = max(largest, min(here, 1.0))
        for k in range(max(nodes - 8, 0), nodes):
            t = (k + 0.5) * step
            parts[:] = 0.0
            for j in range(points):
                turned = t * (added[g, j] - added[g, 0])
                parts[pieces[j]] += chances[g, j] * ratio[g, j] * complex(math.cos(turned), math.sin(turned))
            # a piece with one value keeps its size however far out; smooth ones lose theirs
            largest = max(largest, np.abs(parts).sum())
        left += people[g] * math.log(largest)
    left += start - found - math.log(math.pi * noise * noise * end)
    if not laplace:
        left -= 0.5 * (noise * end) ** 2
    return math.exp(min(left, _LARGEST))


@njit
def _unseen(s, sd, side, z, added, chances, people, constant, noise, laplace, width):  # type: ignore[no-untyped-def]
    """Estimate what people at scores without points may add to the density, relative to it."""
    groups, points = added.shape
    ratio, most = np.empty((groups, points)), 0.0
    for which in range(3 if laplace else 1):
        at = s if which == 0 else (1.0 if which == 1 else -1.0) / noise
        _, mean, variance = _tilted(at, added, chances, people, constant, ratio)
        if which > 0 and not _folded(z, s, sd, side, at * noise, mean, variance, noise, width):
            continue
        total = 0.0
        for g in range(groups):
            centre = likelier = far = 0.0
            for j in range(points):
                centre += chances[g, j] * ratio[g, j] * added[g, j]
                likelier = max(likelier, ratio[g, j])
            for j in range(points):
                far = max(far, abs(added[g, j] - centre))
            total += people[g] * (abs(likelier - 1.0) + likelier * min(far / sd, 1.0))
        most = max(most, _UNSEEN * total)
    return most


@njit
def _lost(weights, rules):  # type: ignore[no-untyped-def]
    """How much of the integral of a function the points do not see, from its weighted values at them.

    `rules` has for each number of a record three rows: of each point the number of its rule, its place in
    that, between -1 and 1, and how many points that has.
    """
    points, off = weights.shape[0], 0.0
    for axis in range(rules.shape[0]):
        which, place, count = rules[axis]
        before, now = np.zeros(points), np.ones(points)
        lines = int(which.max()) + 1
        third, fourth = np.zeros(lines), np.zeros(lines)
        coefficient = np.empty(lines, np.complex128)
        for k in range(int(count.max())):
            coefficient[:] = 0.0
            for j in range(points):
                if 2 * k >= count[j] >= max(k + 1, _FEWEST):
                    coefficient[int(which[j])] += (k + 0.5) * now[j] * weights[j]
                before[j], now[j] = now[j], ((2 * k + 1) * place[j] * now[j] - k * before[j]) / (k + 1)
            for j in range(points):
                if 2 * k >= count[j] >= max(k + 1, _FEWEST):
                    line = int(which[j])
                    if 4 * k < 3 * count[j]:
                        third[line] = max(third[line], abs(coefficient[line]))
                    else:
                        fourth[line] = max(fourth[line], abs(coefficient[line]))
        for line in range(lines):
            # the points integrate twice their number of degrees: the fall goes on, five times as far
            if fourth[line] > 0.0:
                fall = min(fourth[line] / max(third[line], 1e-300), 1.0)
                off += 0.5 * fourth[line] * fall**5
    return off


@njit
def unresolved(s, sd, added, chances, people, constant, rules):  # type: ignore[no-untyped-def]
    """Estimate how far the density is off since the points do not see all of one person's function.

    For the rules see `_lost`.
    """
    groups, points = added.shape
    ratio, off = np.empty((groups, points)), 0.0
    _tilted(s, added, chances, people, constant, ratio)
    weights = np.empty(points, np.complex128)
    for g in range(groups):
        centre = 0.0
        for j in range(points):
            centre += chances[g, j] * ratio[g, j] * added[g, j]
        for j in range(points):
            turned = (added[g, j] - centre) / sd
            weights[j] = chances[g, j] * ratio[g, j] * complex(math.cos(turned), math.sin(turned))
        off += people[g] * _lost(weights, rules)
    return off


@njit
def unresolved_in_pair(s, sd, added, chances, people, constant, rules):  # type: ignore[no-untyped-def]
    """Estimate what people at scores without points, and what points do not see, take off the density."""
    groups, points = chances.shape
    ratio, off = np.empty((groups, points)), 0.0
    tilted(s, added, chances, people, constant, ratio)
    weights = np.empty(points, np.complex128)
    for g in range(groups):
        centre, likelier, far, lost = np.zeros(2), 0.0, 0.0, 0.0
        for j in range(points):
            centre += chances[g, j] * ratio[g, j] * added[g, j]
            likelier = max(likelier, ratio[g, j])
        for j in range(points):
            apart = np.abs(added[g, j] - centre) / sd
            far = max(far, apart[0] + apart[1])
        for way in range(4):  # of either sum alone, and of both
            for j in range(points):
                apart = (added[g, j] - centre) / sd
                turned = apart[way] if way < 2 else apart[0] + (2 * way - 5) * apart[1]
                weights[j] = chances[g, j] * ratio[g, j] * complex(math.cos(turned), math.sin(turned))
            lost = max(lost, _lost(weights, rules))
        off += people[g] * (lost + _UNSEEN * (abs(likelier - 1.0) + likelier * min(far, 1.0)))
    return off


@njit
def relative_error_of_pair(  # type: ignore[no-untyped-def]
    z, added, chances, people, constant, noise, pieces, more_added, more_chances, more_pieces, rules, laplace,
    width,
):  # fmt: skip
    """Estimate the relative error of the density of two sums: see `NoisyPairError`."""
    no_added, no_chances = np.empty((people.shape[0], 0, 2)), np.empty((people.shape[0], 0))
    found, _, _, s, sd, beyond = pair_density(
        z, added, chances, people, constant, noise, pieces, laplace, width, no_added, no_chances
    )
    finer = pair_density(
        z, more_added, more_chances, people, constant, noise, more_pieces, laplace, 1.25 * width, no_added,
        no_chances,
    )[0]  # fmt: skip
    off = unresolved_in_pair(s, sd, added, chances, people, constant, rules)
    return math.expm1(min(abs(finer - found), _LARGEST)) + beyond + off


@njit
def relative_error(  # type: ignore[no-untyped-def]
    z, added, chances, people, constant, noise, pieces, more_added, more_chances, more_pieces, rules, laplace,
    nodes, width,
):  # fmt: skip
    """Estimate the relative error of the density: see `NoisySumError`."""
    none, more = np.empty((people.shape[0], 0)), nodes * 3 // 2
    found, _, _, s, sd, side, start, end = log_density(
        z, added, chances, people, constant, noise, pieces, laplace, nodes, width, none, none
    )
    finer = log_density(
        z, more_added, more_chances, people, constant, noise, more_pieces, laplace, more, 1.25 * width, none,
        none,
    )[0]  # fmt: skip
    beyond = _beyond(
        s, sd, start, found, added, chances, people, constant, noise, laplace, end, width, pieces
    )
    unseen = _unseen(s, sd, side, z, added, chances, people, constant, noise, laplace, width)
    off = unresolved(s, sd, added, chances, people, constant, rules)
    return math.expm1(min(abs(finer - found), _LARGEST)) + beyond + unseen + off
