"""Draws from the two-parameter urn in nopython code: cluster labels as slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random


@njit
def weight_of_new_cluster(concentration, discount, k):  # type: ignore[no-untyped-def]
    """Return the weight of all new clusters together beside k that there are.

    An old cluster of m records has the weight m - `discount`. With a negative discount there are
    ``-concentration / discount`` clusters in all, and rounding must leave no weight for one more.
    """
    if discount < 0.0 and k >= np.round(-concentration / discount):
        return 0.0
    return concentration + discount * k


@njit
def draw_labels(rng, concentration, discount, labels, slots):  # type: ignore[no-untyped-def]
    """Draw labels one after another; False where more clusters were needed than there are slots.

    Parameters
    ----------
    rng : numpy.random.Generator
    concentration, discount : float
        Of the urn; they must be valid, or the draw may not end.
    labels : ndarray of int64, shape (n,)
        Filled with the draw.
    slots : ndarray of int64, shape (H,)
        Slots 0 to H - 1 in any order; the first ones become those of the clusters, in order of appearance.

    Returns
    -------
    bool
    """
    counts = np.zeros(slots.size, np.int64)
    k = 0
    for i in range(labels.size):
        if i == 0 or random(rng) * (concentration + i) < weight_of_new_cluster(concentration, discount, k):
            if k == slots.size:
                return False
            # a uniformly chosen free slot
            j = rng.integers(k, slots.size)
            slots[k], slots[j] = slots[j], slots[k]
            label = slots[k]
            k += 1
        elif discount < 0.0 and random(rng) * (i - discount * k) >= i:
            label = slots[rng.integers(0, k)]
        else:
            # an earlier record has a cluster with chances as its size; a discount is by rejection, whose
            # trials are many only where an old cluster is as rare
            label = labels[rng.integers(0, i)]
            while discount > 0.0 and random(rng) * counts[label] < discount:
                label = labels[rng.integers(0, i)]
        labels[i] = label
        counts[label] += 1
    return True


def urn(n: int, max_components: int, finite: bool) -> Callable[..., Any]:
    """Return the nopython function ``(rng, concentration, discount) -> labels``.

    Parameters
    ----------
    n : int
        Number of records.
    max_components : int
        Number of slots H.
    finite : bool
        Whether the discount is negative: a mixture of finitely many components.

    Returns
    -------
    callable
        It raises ValueError where the parameters are not valid, or a draw needs more slots.
    """
    reached = (
        f"max_components = {max_components} was reached: a draw of the labels of {n} records needs more "
        "clusters than there are slots. Raise max_components, or make a small concentration likelier."
    )
    outside = (
        "concentration must be a finite number > 0, and n_components at least 1, but a draw has other "
        "values: give them priors on such values only."
        if finite
        else "discount must be in [0, 1) and concentration a finite number > -discount, but a draw has other "
        "values: give them priors on such values only."
    )

    @njit
    def draw(rng, concentration, discount):  # type: ignore[no-untyped-def]
        if finite:
            valid = discount < 0.0 and concentration >= -discount
        else:
            valid = 0.0 <= discount and discount < 1.0 and concentration > -discount
        if not (valid and concentration < np.inf):
            raise ValueError(outside)
        labels = np.empty(n, np.int64)
        if not draw_labels(rng, concentration, discount, labels, np.arange(max_components)):
            raise ValueError(reached)
        return labels

    return draw
