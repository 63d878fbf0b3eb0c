"""Draws of the local mechanisms for categories in machine code, for PyTensor's numba backend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pymc_dp.lowering.compiling.nopython import njit


def report_of(op: Any) -> Any:
    """Return the draw of one person's report under randomized response."""
    k = op.n_categories

    @njit
    def draw(rng, category, epsilon):
        if not 0 <= category < k:
            raise ValueError("category is outside of 0, ..., n_categories - 1")
        others = (k - 1) * math.exp(-epsilon)
        truth = np.int64(category)
        if rng.random() * (1.0 + others) < others:
            return (truth + 1 + np.int64(rng.random() * (k - 1))) % k
        return truth

    return draw


@njit
def report_counts(rng, probs, n, epsilon, out=None):
    """Draw how many of n people report each category."""
    k = probs.shape[0]
    if out is None:
        out = np.empty(k, dtype=np.int64)
    other = math.exp(-epsilon)
    people, rest = n, 1.0 + (k - 1) * other
    for j in range(k - 1):
        share = probs[j] + other * (1.0 - probs[j])
        out[j] = rng.binomial(people, min(share / rest, 1.0)) if people > 0 else 0
        people -= out[j]
        rest -= share
    out[k - 1] = people
    return out


report_counts.handles_out = True


@njit
def answer(rng, truth, table):
    """Draw one person's answer from a table of probabilities."""
    rows, columns = table.shape
    if not 0 <= truth < rows:
        raise ValueError("category is outside of 0, ..., n_categories - 1")
    row = np.int64(truth)
    total, last = 0.0, 0
    for j in range(columns):
        total += table[row, j]
        if table[row, j] > 0.0:
            last = j
    u = rng.random() * total
    for j in range(last):
        u -= table[row, j]
        if u < 0.0:
            return np.int64(j)
    return np.int64(last)


@njit
def answer_counts(rng, probs, n, table, out=None):
    """Draw how many of n people give each answer."""
    rows, columns = table.shape
    if out is None:
        out = np.empty(columns, dtype=np.int64)
    shares = np.zeros(columns)
    last = 0
    for j in range(columns):
        for c in range(rows):
            shares[j] += probs[c] * table[c, j]
        if shares[j] > 0.0:
            last = j
    people, rest = n, shares.sum()
    for j in range(columns):
        out[j] = 0
        if j < last and people > 0:
            out[j] = rng.binomial(people, min(shares[j] / rest, 1.0))
        people -= out[j]
        rest = max(rest - shares[j], 1e-300)
    out[last] += people
    return out


answer_counts.handles_out = True


def bits_of(op: Any) -> Any:
    """Return the draw of one person's bits under unary encoding."""
    k = op.n_categories

    @njit
    def draw(rng, category, own, other, out=None):
        if out is None:
            out = np.empty(k, dtype=np.int64)
        if not 0 <= category < k:
            raise ValueError("category is outside of 0, ..., n_categories - 1")
        odds_own, odds_other = math.exp(-own), math.exp(-other)
        for j in range(k):
            odds = odds_own if j == category else odds_other
            out[j] = 1 if rng.random() * (1.0 + odds) < 1.0 else 0
        return out

    draw.handles_out = True
    return draw


@njit
def bit_totals(rng, probs, n, own, other, out=None):
    """Draw how many of n people set each bit."""
    k = probs.shape[0]
    if out is None:
        out = np.empty(k, dtype=np.int64)
    p, q = 1.0 / (1.0 + math.exp(-own)), 1.0 / (1.0 + math.exp(-other))
    people, rest = n, 1.0
    for j in range(k):
        own_people = people
        if j < k - 1:
            own_people = rng.binomial(people, min(max(probs[j] / rest, 0.0), 1.0)) if people > 0 else 0
        people -= own_people
        rest = max(rest - probs[j], 1e-300)
        out[j] = 0
        if own_people > 0:
            out[j] += rng.binomial(own_people, p)
        if n > own_people:
            out[j] += rng.binomial(n - own_people, q)
    return out


bit_totals.handles_out = True
