"""The kernel of :mod:`.split_merge`, and what the kinds of splits differ in."""

import math

import numpy as np

from pymc_dp.lowering.addresses.bind import Function
from pymc_dp.lowering.addresses.tuples import entries, row, set_row
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random, standard_exponential
from pymc_dp.lowering.functions.urn import weight_of_new_cluster
from pymc_dp.step_methods.mixture.bound import (
    N_ATOMS,
    N_CONSTANTS,
    WIDTH,
    base_draw,
    current,
    features,
    given_release,
    inside,
    own,
    propose,
    released,
    urn,
)
from pymc_dp.step_methods.mixture.slots import (
    commit,
    slots_of,
)
from pymc_dp.step_methods.mixture.state import Generator, State

# Weights of the part of a cluster that is split off, the least one for one record.
_LEAST, _MOST = 0.7, 0.6
# Ratios of densities whose logarithm is larger are not multiplied up.
_LARGE = 300.0
# Whether records that are drawn are kept until it is decided.
KEEPS = False
# Records that are tried, for each that would go if all had the same density.
TRIED = np.inf
# Where moves of the kind are counted.
SPLITS_ACCEPTED = SPLITS_PROPOSED = 0


def as_it_is(c, cov, i, x, a):
    """Log density of a record, or of its release, in its cluster."""
    raise NotImplementedError


def given_cluster(rng, c, cov, i, x, a, fresh):
    """Log density of a record with other atoms, -inf where the kernel has no law."""
    raise NotImplementedError


def settle(rng, c, cov, i, x, a, fresh):
    """Give a record what it is in its new cluster."""
    raise NotImplementedError


def weight_as_it_is(c, cov, i, x, a):
    """Log density of a record's release."""
    return current(c, cov, i, row(x, i, WIDTH))[1]


def weight_drawn_anew(rng, c, cov, i, x, a, fresh):
    """Draw the record from a cluster; return the log density of its release."""
    if not inside(c, cov, i, a):
        return -np.inf
    y, _, weight, _ = propose(rng, c, cov, i, a)
    for j in range(WIDTH):
        fresh[i, j] = y[j]
    return weight


def take_drawn(rng, c, cov, i, x, a, fresh):
    """Take the record that was drawn."""
    for j in range(WIDTH):
        x[i, j] = fresh[i, j]


def released_as_it_is(c, cov, i, x, a):
    """Log density of a record's release, with the record integrated out."""
    return released(c, cov, i, a)


def released_given_cluster(rng, c, cov, i, x, a, fresh):
    """Log density of a record's release in another cluster, likewise."""
    return released(c, cov, i, a) if inside(c, cov, i, a) else -np.inf


def draw_given_release(rng, c, cov, i, x, a, fresh):
    """Draw the record given its release."""
    y = given_release(rng, c, cov, i, a)
    for j in range(WIDTH):
        x[i, j] = y[j]


def density_as_it_is(c, cov, i, x, a):
    """Log density of a record."""
    return own(c, cov, i, features(c, cov, i, row(x, i, WIDTH)), a)


def density_given_cluster(rng, c, cov, i, x, a, fresh):
    """Log density of a record in another cluster."""
    if not inside(c, cov, i, a):
        return -np.inf
    return own(c, cov, i, features(c, cov, i, row(x, i, WIDTH)), a)


def stay(rng, c, cov, i, x, a, fresh):
    """Leave the record as it is."""


# By the names that they are the meaning of.
KINDS: dict[str, dict[str, Function]] = {
    "fresh": {"as_it_is": weight_as_it_is, "given_cluster": weight_drawn_anew, "settle": take_drawn},
    "released": {
        "as_it_is": released_as_it_is,
        "given_cluster": released_given_cluster,
        "settle": draw_given_release,
    },
    "kept": {"as_it_is": density_as_it_is, "given_cluster": density_given_cluster, "settle": stay},
}


@njit(inline="always")
def draw_weight(rng, m):
    """Draw the weight of a part of a cluster of m, with a density of 1/v between some ends."""
    return _MOST * np.exp(random(rng) * np.log(_LEAST / (_MOST * m)))


@njit(inline="always")
def has_weight(v, m):
    """Whether a part of m records could have been drawn this weight."""
    return _LEAST < v * m and v < _MOST


@njit
def log_split(alpha, d, k, n, m, s, v):
    """Logarithm of what does not depend on records, where a cluster of m, one of k, loses s of weight v."""
    partition = np.log(weight_of_new_cluster(alpha, d, k) * np.log(_MOST * m / _LEAST))
    partition -= d * np.log(v) + (1.0 + d) * np.log1p(-v)
    if d != 0.0:
        partition += math.lgamma(m - 2.0 * d) - math.lgamma(m - d) - math.lgamma(1.0 - d)
    return partition + np.log((m - s) / ((k + 1.0) * (n - s)) / (m / n))


def splits(n_sweeps: int, rng: Generator, state: State) -> None:
    """Moves of a kind: each a pass over the labels, and the records of two clusters."""
    cov, x, labels, atoms, counts = state.covariates, state.records, state.labels, state.atoms, state.counts
    tally, n, n_slots = state.tally, x.shape[0], counts.size
    c, full = entries(state.constants, N_CONSTANTS), state.full
    alpha, d = urn(c)
    k, slots = slots_of(state)
    w, there, goes = np.full(n, np.nan), np.empty(n), np.zeros(n, np.bool_)
    fresh = np.empty((n if KEEPS else 0, WIDTH))
    for _ in range(n_sweeps):
        splits = random(rng) < 0.5
        if splits:
            h = labels[int(random(rng) * n)]
            g, m = -1, counts[h]
            if m == 1 or weight_of_new_cluster(alpha, d, k) == 0.0:
                continue
            v = draw_weight(rng, m)
            a = base_draw(rng, c)
        else:
            g = slots.order[int(random(rng) * k)]
            if counts[g] == n:
                continue
            h = g
            while h == g:
                h = labels[int(random(rng) * n)]
            m = counts[h] + counts[g]
            v = rng.beta(counts[g] - d, counts[h] - d)
            if not has_weight(v, m):
                continue
            a = row(atoms, g, N_ATOMS)
        tried = min(1.0, TRIED * v) if TRIED < np.inf else 1.0
        weight, again = v / tried, (tried - v) / (1.0 - v)
        total, product, size = 0.0, 1.0, 0
        for i in range(n):
            if labels[i] == h:
                goes[i] = False
                if tried < 1.0 and random(rng) >= (tried if splits else again):
                    continue
                there[i] = given_cluster(rng, c, cov, i, x, a, fresh)
            elif labels[i] == g:
                there[i] = given_cluster(rng, c, cov, i, x, row(atoms, h, N_ATOMS), fresh)
            else:
                continue
            if np.isnan(w[i]):
                w[i] = as_it_is(c, cov, i, x, row(atoms, labels[i], N_ATOMS))
            # whoever starts where its release is impossible may go anywhere
            change = there[i] - w[i] if w[i] != -np.inf else 0.0
            change = change if labels[i] == h else -change
            if change < _LARGE:
                gain = weight * np.exp(change)
                each = 1.0 - weight + gain
                product *= each
                if not 1e-100 < product < 1e100:
                    total += np.log(product)
                    product = 1.0
                goes[i] = splits and random(rng) * each < gain
            else:
                total += change + np.log(weight)
                goes[i] = splits
            size += goes[i]
        tally[SPLITS_PROPOSED] += 1.0
        if splits and (size == 0 or size == m):
            continue
        size = size if splits else counts[g]
        total += np.log(product) + log_split(alpha, d, k if splits else k - 1, n, m, size, v)
        total = total if splits else -total
        if not (total >= 0.0 or total > -standard_exponential(rng)):
            continue
        tally[SPLITS_ACCEPTED] += 1.0
        if splits and k == n_slots:
            full[0] = True
            return
        g, k = commit(rng, splits, h, g, m, size, k, slots)
        if splits:
            set_row(atoms, g, a)
        to = g if splits else h
        for i in range(n):
            if (splits and labels[i] == h and goes[i]) or (not splits and labels[i] == g):
                labels[i], w[i] = to, there[i]
                settle(rng, c, cov, i, x, row(atoms, to, N_ATOMS), fresh)
