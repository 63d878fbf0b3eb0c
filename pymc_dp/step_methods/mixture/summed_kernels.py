"""The decision of :mod:`.summed` and the terms that it adds up: of finitely many values or without an end."""

import math
from typing import NamedTuple

import numpy as np

from pymc_dp.lowering.addresses.bind import Function
from pymc_dp.lowering.addresses.tuples import row
from pymc_dp.lowering.functions.bits import random
from pymc_dp.lowering.functions.exponential import SPARE
from pymc_dp.step_methods.mixture.bound import N_ATOMS, current
from pymc_dp.step_methods.mixture.slots import exponentials, pick, weighted
from pymc_dp.step_methods.mixture.state import Matrix, Vector

# Where values have no end: logarithm of the share of a sum that may be left out, and the distance from the
# release beyond which no value is asked for, which only ends sums that have no term.
_LEFT_OUT, FARTHEST = math.log(1e-12), 2**20
# Values beside those released for which the kernel's density is kept by cluster.
_BESIDE = 64
# Where values have an end: the first of them, and how many they are.
FIRST, N_VALUES = 0, 0
# Values for which there is room; the most numbers for which a density is kept.
ROOM, MOST_KEPT = 0, 0


def mass(c, cov, i, y, a):
    """Kernel's log density of a value of record i."""
    raise NotImplementedError


def centre(c, cov, i):
    """Value that was released of record i."""
    raise NotImplementedError


def kept_values(c, cov, n):
    """Return the first value for which the kernel's density is kept, and how many there are."""
    raise NotImplementedError


def kept_mass(c, cov, i, y, a, first, kept, g):
    """Kernel's log density of a value in row g, which has atoms a; a value without one is impossible."""
    raise NotImplementedError


def both_terms(c, cov, i, y, q, t, first, h, g, own, a, kept, before, after):
    """Write the logarithms of the terms of a value: of cluster h, which has its own atoms, and of row g."""
    raise NotImplementedError


def terms(c, cov, i, u, first, h, g, own, a, kept, before, after):
    """Write the logarithms of both clusters' terms; return how many."""
    raise NotImplementedError


def value_of(c, cov, i, t):
    """Value of the t-th term."""
    raise NotImplementedError


def kept_while_finite(c, cov, n):
    """All values."""
    return FIRST, N_VALUES


def kept_around(c, cov, n):
    """Values around those released."""
    low = high = centre(c, cov, 0)
    for i in range(n):
        z = centre(c, cov, i)
        low, high = min(low, z), max(high, z)
    return int(low) - _BESIDE, int(high - low) + 2 * _BESIDE


def mass_once(c, cov, i, y, a, first, kept, g):
    """Density of a value, worked out once."""
    at = int(y) - first
    f = kept[g, at] if 0 <= at < kept.shape[1] else np.nan
    if f != f:
        f = mass(c, cov, i, y, a)
        f = f if f == f else -np.inf
        if 0 <= at < kept.shape[1]:
            kept[g, at] = f
    return f


def mass_each_time(c, cov, i, y, a, first, kept, g):
    """Density of a value, where records differ in it."""
    f = mass(c, cov, i, y, a)
    return f if f == f else -np.inf


def terms_of_a_value(c, cov, i, y, q, t, first, h, g, own, a, kept, before, after):
    """Write a term of both clusters, q being the log density of the release; one if they are the same."""
    before[t] = q + kept_mass(c, cov, i, y, own, first, kept, h)
    if g != h:
        after[t] = q + kept_mass(c, cov, i, y, a, first, kept, g)


def listed(c, cov, i, u, first, h, g, own, a, kept, before, after):
    """Write the terms of finitely many values."""
    for t in range(N_VALUES):
        y = float(FIRST + t)
        q = current(c, cov, i, (y,))[1]
        both_terms(c, cov, i, y, q, t, first, h, g, own, a, kept, before, after)
    return N_VALUES


def outwards(c, cov, i, u, first, h, g, own, a, kept, before, after):
    """Write the terms of a sum without an end, from the release outwards.

    As the kernel adds up to at most 1, what lies beyond a distance is below the noise's probability there;
    and any term is a lower bound of its sum. The new cluster's sum may also stop where the move will be
    refused.
    """
    z = centre(c, cov, i)
    both_terms(c, cov, i, z, current(c, cov, i, (z,))[1], 0, first, h, g, own, a, kept, before, after)
    one, other = before[0], after[0] if g != h else np.inf
    m, r = 1, 1.0
    while True:
        up, down = current(c, cov, i, (z + r,))[1], current(c, cov, i, (z - r,))[1]
        edge = max(up, down)
        beyond = r > FARTHEST
        if beyond or edge <= _LEFT_OUT + one:
            if beyond or edge <= _LEFT_OUT + other:
                break
            if max(edge, other + np.log(m)) < np.log(u) + one - np.log(2.0):
                break
        for t in range(2):
            y, q = (z + r, up) if t == 0 else (z - r, down)
            both_terms(c, cov, i, y, q, m, first, h, g, own, a, kept, before, after)
            one = max(one, before[m])
            if g != h:
                other = max(other, after[m])
            m += 1
        r += 1.0
    return m


def value_listed(c, cov, i, t):
    """Value of the t-th of finitely many terms."""
    return float(FIRST + t)


def value_outwards(c, cov, i, t):
    """Value of the t-th term from the release outwards: by turns above and below it."""
    return centre(c, cov, i) + ((t + 1) // 2 if t % 2 else -(t // 2))


class Values(NamedTuple):
    """Kernel's log densities of values by slot, where they have been asked for, and room for terms.

    ``first``: the value of the first column; the last row is for a new cluster.
    """

    first: int
    kept: Matrix
    before: Vector
    after: Vector
    weights: Vector


def no_density_yet(c, state):
    """Make room for them."""
    n_slots = state.counts.size
    first, n_kept = kept_values(c, state.covariates, state.records.shape[0])
    kept = np.full((n_slots + 1, min(n_kept, MOST_KEPT // (n_slots + 1))), np.nan)
    return Values(first, kept, np.empty(ROOM + SPARE), np.empty(ROOM + SPARE), np.empty(ROOM + SPARE))


def by_all_values(rng, c, state, room, i, g, h, a, defined):
    """Decide on sums over the values of the record: O(K) for K values.

    Return, too, which term the record becomes, and the row of densities that was asked for.
    """
    first, kept, before, after, weights = room
    line = g
    if g < 0:
        line = state.counts.size
        for j in range(kept.shape[1]):
            kept[line, j] = np.nan
    u, own = random(rng), row(state.atoms, h, N_ATOMS)
    m = terms(c, state.covariates, i, u, first, h, line, own, a, kept, before, after)
    if g == h:
        return True, (pick(rng, before, m), line)
    now, then = exponentials(before, after, weights, m)
    # where neither has a term, all stays as it is
    if defined and then > 0.0 and (now == 0.0 or u * now < then):
        return True, (weighted(rng, weights, then, m), line)
    return False, (weighted(rng, before, now, m) if now > 0.0 else -1, line)


def take_value(rng, c, state, room, i, goes, g, new):
    """Take the value that was drawn; the densities of a new cluster are those of its slot."""
    t, line = new
    if goes and line == state.counts.size:
        for j in range(room.kept.shape[1]):
            room.kept[g, j] = room.kept[line, j]
    if t >= 0:
        state.records[i, 0] = value_of(c, state.covariates, i, t)


# By the names that they are the meaning of.
SUMMED: dict[str, Function] = {"room_for": no_density_yet, "decide": by_all_values, "settle": take_value}
