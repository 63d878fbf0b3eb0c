"""How closely noise tells counts: whether chains move counts of rows better as records, or as a table.

Both readings are exact. Records move together with the effects of their rows, by proposals of which few are
made where the noise is small beside the counts. Counts of a table move given the effects, and together with
them where their law has quantiles; where it has none, these move given the counts, a little at a time where
the noise is large beside what counts differ by given the effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.model.core import Model
from pymc.pytensorf import constant_fold
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.basic import BetaRV, DirichletRV, ExponentialRV, GammaRV
from scipy import sparse

from pymc_dp.query.linear import Linear
from pymc_dp.query.rowlocal import leaves_of

# Laws of parameters that moves of tables may integrate out, so that they do not hold the counts.
_INTEGRATED = (BetaRV, DirichletRV, ExponentialRV, GammaRV)
# How likely all cells of a record, and a sum of them, are proposed within the noise, below which counts
# with effects of their own are a table, of laws with quantiles. Of 20 models measured both ways, the worst
# number had 155 to 1,430 of 2,000 draws effective as a table and 2 to 373 as records where it is less;
# where it is more, records had 1.7 to 14 times the effective draws per second.
_SMALL = 0.05
# The same where moves of a table integrate the effects out, which then do not hold the counts. Of 13 models
# measured both ways where it is less, with conjugate effects of each row, the worst number had 1,437 to 1,674
# of 2,000 draws effective as a table and 2 to 85 as records; with .23 it were 1,659 and 238, and records were
# twice as fast.
_SMALL_INTEGRATED = 0.2
# The same where rows share all effects, of laws with quantiles: records had 56 and 13 of 2,000 draws
# effective where it is less, and the table 921 and 774; with .0006 records had 395, at twice the speed.
_TINY = 1e-4
# For other laws: how many times better a table has to be, by these estimates, for counts that records could
# serve as well.
_CLEARLY = 12.0


def table_is_better(
    model: Model,
    counts: Sequence[Any],
    known: Sequence[tuple[Any, Any]],
    maps: Sequence[Linear],
    *,
    adds: bool,
    jointly: bool,
) -> bool:
    """Whether chains move counts of rows better as a table than as records.

    Parameters
    ----------
    model : pymc.Model
    counts : sequence of TensorVariable
        Count variables with as many rows each.
    known : sequence of (variable, query)
        Releases, row by row.
    maps : sequence of Linear
        Their queries.
    adds : bool
        Whether they tell cells and sums of these, which records cannot move against each other.
    jointly : bool
        Whether a table moves the counts together with their effects.

    Notes
    -----
    What is compared are shares of moves: of proposals of the noisiest knowledge of a record that are made,
    noise over count, and of the variance of effects that one draw given the counts goes through.
    """
    variables = set(model.basic_RVs)
    laws = [v for rv in counts for v in rv.owner.inputs if hasattr(v.type, "ndim")]
    behind = [v for v in leaves_of(laws, variables) if v in set(model.free_RVs) and v not in counts]
    held = [v for v in behind if not isinstance(v.owner.op, _INTEGRATED)]
    shares = _shares(model, known, maps)
    if shares is None:  # noise that is not known
        return adds
    records, table = shares
    if not held:
        if adds or not jointly:
            return adds
        least = _SMALL_INTEGRATED if _has_effects(model, counts, behind) else _SMALL
        return records ** _cells_of_a_row(model, counts) < least
    if not adds and not _has_effects(model, counts, held):
        return jointly and records ** _cells_of_a_row(model, counts) < _TINY
    if jointly:
        return records ** (_cells_of_a_row(model, counts) + adds) < _SMALL
    return table > (1.0 if adds else _CLEARLY) * records


def _has_effects(model: Model, counts: Sequence[Any], held: Sequence[Variable]) -> bool:
    """Whether a parameter has an entry for each row, so that it would be a record with the counts."""
    lengths = model.eval_rv_shapes()
    rows = lengths[counts[0].name][0]
    return any(lengths[str(v.name)][:1] == (rows,) for v in held)  # type: ignore[attr-defined]


def _cells_of_a_row(model: Model, counts: Sequence[Any]) -> int:
    lengths = model.eval_rv_shapes()
    return sum(int(np.prod(lengths[str(rv.name)][1:])) for rv in counts)


def _shares(
    model: Model, known: Sequence[tuple[Any, Any]], maps: Sequence[Linear]
) -> tuple[float, float] | None:
    """Return how records and a table would move, from 0 to 1; None where noise or data are not known."""
    noise, size = [], []
    for (rv, _), linear in zip(known, maps, strict=True):
        levels = rv.owner.op.dist_params(rv.owner)[1:2]
        observed = model.rvs_to_values[rv]
        if not levels or not isinstance(observed, Constant | SharedVariable):
            return None
        (level,) = constant_fold(list(levels), raise_not_constant=False)
        if not isinstance(level, np.ndarray):
            return None
        value = observed.data if isinstance(observed, Constant) else observed.get_value(borrow=True)
        try:
            size.append(np.broadcast_to(value, linear.shape).ravel() - linear.constant)
            noise.append(np.broadcast_to(level, linear.shape).ravel())
        except ValueError:  # shapes that do not fit are told where the density is built
            return None
    matrix = sparse.csr_array(sparse.vstack([linear.matrix for linear in maps]))
    by = abs(matrix).max(axis=1).toarray().ravel()
    sizes, noises = np.concatenate(size), np.concatenate(noise)
    told = np.isfinite(sizes) & (by > 0)  # what was suppressed has no size
    if not told.any():
        return None
    count = np.maximum(sizes[told] / by[told], 1.0)
    spread = np.minimum(noises[told] / by[told], count)
    given = count / (count + spread**2)
    cells = sparse.csc_array(matrix[np.flatnonzero(told)])
    best = np.zeros(cells.shape[1])
    entries = np.repeat(np.arange(cells.shape[1]), np.diff(cells.indptr))
    np.maximum.at(best, entries, given[cells.indices])
    return float((spread / count).min()), float(best[best > 0].min(initial=1.0))
