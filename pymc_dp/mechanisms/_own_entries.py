"""Variables with an entry for each row of something, found by changing one entry after the other.

How a graph reads a variable (picked, transposed, compared, multiplied by a matrix) does not matter: an entry
is a row's own if nothing but this row is other after it has changed. Entries are changed among values that
they may have: few values are all tried, and others drawn from the prior, beside numbers between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.readings import substitute
from pymc_dp.query.rowlocal import RowAnalysis, leaves_of
from pymc_dp.query.supports import finite_support

# Values that an entry is changed between, draws of the prior among which they are, and entries of a variable
# that are changed.
_ROUNDS, _DRAWS, _MOST_ENTRIES = 6, 24, 512
_FEW_VALUES = 64


def has_own_entries(parent: Any, params: Sequence[Any], n: int, variables: Collection[Variable]) -> bool:
    """Return whether each of n rows has an entry of a variable for itself, which no other row reads.

    Parameters
    ----------
    parent : TensorVariable
        A variable of the model.
    params : sequence of TensorVariable
        Each with a row for each of the n, or one for all.
    n : int
    variables : collection of Variable
        The model's variables.
    """
    if parent.type.ndim == 0 or math.prod(lengths_of(parent)) < n:
        return False
    if lengths_of(parent)[0] == n:
        analysis = RowAnalysis({parent}, n, set(variables))
        if any(analysis.role(p).kind == "row" for p in params):
            return True
    return n > 1 and _reach_one_row_each(parent, params, n, variables)


def _reach_one_row_each(parent: Any, params: Sequence[Any], n: int, variables: Collection[Variable]) -> bool:
    rng = np.random.default_rng(0)
    leaves = leaves_of(params, variables)
    inputs = {v: v.type() for v in leaves}  # type: ignore[attr-defined]
    shapes = [pt.cast(pt.broadcast_to(p, (n, *p.shape[1:])), "float64") for p in substitute(params, inputs)]
    rows = pt.concatenate([p.reshape((n, -1)) for p in shapes], axis=1)
    read = pytensor.function(list(inputs.values()), rows, mode="FAST_COMPILE", on_unused_input="ignore")
    at = leaves.index(parent)
    size = math.prod(lengths_of(parent))
    tried = np.arange(size) if size <= _MOST_ENTRIES else rng.choice(size, _MOST_ENTRIES, replace=False)
    reached = np.zeros((len(tried), n), dtype=bool)
    drawn = _values(leaves, rng)
    for values, others in pairwise(drawn):
        before = read(*values)
        for k, j in enumerate(tried):
            changed = values[at].copy()
            changed.flat[j] = others[at].flat[j]
            after = read(*(changed if i == at else v for i, v in enumerate(values)))
            reached[k] |= ~((after == before) | (np.isnan(after) & np.isnan(before))).all(axis=1)
    own = reached[reached.sum(axis=1) == 1].argmax(axis=1)
    # of a part of the entries, one looks for as large a part of the rows but for chance
    least = n if len(tried) == size else 0.8 * n * len(tried) / size
    return len(set(own.tolist())) >= least


def _values(leaves: list[Any], rng: np.random.Generator) -> list[list[np.ndarray]]:
    """Return values of variables, one list for each round."""
    try:
        prior = pm.draw(leaves, draws=_DRAWS, random_seed=rng, mode="FAST_COMPILE")
        prior = [np.reshape(p, (_DRAWS, *lengths_of(v))) for p, v in zip(prior, leaves, strict=True)]
    except NotImplementedError:  # a law that cannot be drawn, such as a flat one
        prior = [rng.normal(size=(_DRAWS, *lengths_of(v))) for v in leaves]
    found = [_alternating(v, np.sort(draws, axis=0), rng) for draws, v in zip(prior, leaves, strict=True)]
    return [[values[k] for values in found] for k in range(_ROUNDS)]


def _alternating(v: Any, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return values of each entry, of which two that follow each other are on both sides of most others."""
    support = finite_support(v, _FEW_VALUES)
    if support is not None:
        first = rng.integers(len(support), size=draws.shape[1:])
        values = support[np.add.outer(np.arange(_ROUNDS), first) % len(support)]
    else:
        values = np.stack([draws[k // 2 if k % 2 else -1 - k // 2] for k in range(_ROUNDS)])
        if v.type.dtype.startswith("float"):
            values[:2] = rng.uniform(0.2, 0.8, values[:2].shape)  # where most parameters may be
    return values.astype(v.type.dtype)
