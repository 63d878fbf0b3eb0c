"""A table to start from that meets all that is known exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from pymc_dp.query.tables import Tables
from pymc_dp.step_methods.tables.directions import Held

# No end of a law is sought beyond.
_BEYOND = 2.0**52


def near_releases(
    counts: np.ndarray,
    tables: Tables,
    released: np.ndarray,
    row_precision: np.ndarray,
    cell_precision: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Move counts that were drawn from their law to where the releases are, which a chain does slowly.

    With normal laws of these precisions it would be a draw given the releases: the draw from the law is
    changed by what explains the releases, with noise added to them, instead of the draw.

    Parameters
    ----------
    counts : ndarray
        Drawn from their law.
    tables : Tables
    released : ndarray
        Values of all releases; those that are no numbers, such as suppressed ones, are left out.
    row_precision, cell_precision : ndarray
        Inverse variances of the noise, and of the counts.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray
        Whole numbers, none negative.
    """
    known = np.isfinite(released)
    if not known.any():
        return counts
    from scipy.sparse.linalg import LinearOperator, cg  # which few models wait for

    matrix = sparse.csr_array(sparse.vstack([k.linear.matrix for k in tables.releases]))[known]
    constant = np.concatenate([k.linear.constant for k in tables.releases])[known]
    precision = row_precision[known]
    noise = rng.standard_normal(precision.size) / np.sqrt(precision)
    missing = released[known] + noise - constant - matrix @ counts
    by_cell = cell_precision + matrix.multiply(matrix).T @ precision
    n = counts.size
    normal = LinearOperator((n, n), lambda v: cell_precision * v + matrix.T @ (precision * (matrix @ v)))
    scaled = LinearOperator((n, n), lambda v: v / by_cell)
    change, _ = cg(normal, matrix.T @ (precision * missing), rtol=1e-8, maxiter=1000, M=scaled)
    return np.maximum(np.round(counts + change), 0.0)


def meeting(
    counts: np.ndarray, held: Held, laws: Callable[[np.ndarray], np.ndarray], rng: np.random.Generator
) -> np.ndarray:
    """Return the counts, changed as little as is needed to meet what is known exactly.

    Parameters
    ----------
    counts : ndarray of float
    held : Held
    laws : callable
        From counts to the log density of each cell, which is minus infinity where a cell cannot have a count.
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        If no table of counts meets it, naming what contradicts itself.
    """
    if not held.target.size or np.array_equal(held.matrix @ counts, held.target):
        return counts
    classes = held.cells.of
    lower, upper = _ends(counts, laws)
    counts = np.clip(counts, lower, upper)
    wanted = _nearest(_by_class(counts, held), _by_class(lower, held), _by_class(upper, held), held)
    order = np.argsort(classes, kind="stable")
    begins = np.searchsorted(classes[order], np.arange(held.cells.n + 1))
    for d in np.flatnonzero(wanted != _by_class(counts, held)):
        cells = order[begins[d] : begins[d + 1]]
        missing = int(wanted[d] - counts[cells].sum())
        if missing < 0:
            counts[cells] -= _spread(
                -missing, counts[cells] - lower[cells], counts[cells] - lower[cells], rng
            )
        else:
            counts[cells] += _spread(missing, upper[cells] - counts[cells], counts[cells] + 0.5, rng)
    if not np.array_equal(held.matrix @ counts, held.target):
        raise ValueError(_contradiction(held))
    return counts


def _by_class(numbers: np.ndarray, held: Held) -> np.ndarray:
    inside = held.cells.of >= 0
    return np.bincount(held.cells.of[inside], weights=numbers[inside], minlength=held.cells.n)


def _ends(counts: np.ndarray, laws: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest count of each cell, as far as its law at a possible count tells."""
    possible, ends = np.isfinite(laws(counts)), []
    for sign, limit in ((-1.0, counts), (1.0, np.full(counts.size, _BEYOND))):
        reached = np.isfinite(laws(counts + sign * limit))
        inner, outer = np.where(reached, limit, 0.0), limit  # distances: one possible, one not
        while (between := outer - inner > 1.0).any():
            middle = np.where(between, np.floor((inner + outer) / 2), inner)
            reached = np.isfinite(laws(counts + sign * middle))
            inner, outer = np.where(reached, middle, inner), np.where(reached, outer, middle)
        ends.append(counts + sign * inner)
    # of a count that is impossible itself, nothing is known
    lower, upper = np.where(possible, ends, [np.zeros(counts.size), np.full(counts.size, np.inf)])
    return lower, np.where(upper >= _BEYOND, np.inf, upper)


def _spread(total: int, room: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Spread a number over cells in proportion to weights; what a cell has no room for goes to others."""
    given = np.zeros(room.size)
    while total > 0 and (given < room).any():
        shares = np.where(given < room, weights, 0.0)
        more = np.minimum(rng.multinomial(total, shares / shares.sum()), room - given)
        given += more
        total -= int(more.sum())
    return given


def _nearest(sums: np.ndarray, lower: np.ndarray, upper: np.ndarray, held: Held) -> np.ndarray:
    """Return whole sums of classes that meet what is known exactly, by the least change."""
    if not held.cells.n:
        raise ValueError(_contradiction(held))
    n, conditions = held.cells.n, held.cells.columns
    if np.linalg.matrix_rank((conditions.T @ conditions).toarray()) == n if n <= 50 else False:
        exact = np.linalg.lstsq(conditions.toarray(), held.target, rcond=None)[0].round()
        if np.array_equal(conditions @ exact, held.target) and ((lower <= exact) & (exact <= upper)).all():
            return exact
    from scipy.optimize import Bounds, LinearConstraint, milp  # which few models wait for

    identity = sparse.eye_array(n)
    # the change of each sum is at most a number of its own, and these are made small
    change = sparse.block_array([[identity, -identity], [-identity, -identity]])
    known = sparse.block_array([[conditions, sparse.csr_array((conditions.shape[0], n))]])
    found = milp(
        np.concatenate([np.zeros(n), np.ones(n)]),
        integrality=np.concatenate([np.ones(n), np.zeros(n)]),
        bounds=Bounds(np.concatenate([lower, np.zeros(n)]), np.concatenate([upper, np.full(n, np.inf)])),
        constraints=[
            LinearConstraint(sparse.csr_matrix(known), held.target, held.target),
            LinearConstraint(sparse.csr_matrix(change), -np.inf, np.concatenate([sums, -sums])),
        ],
    )
    if found.x is None and "nfeasible" in found.message:
        raise ValueError(_contradiction(held))
    if found.x is None:
        raise ValueError(
            f"No table of counts that meets what is known exactly was found ({found.message}), which does "
            "not mean that there is none: give one that does as initval= of the counts."
        )
    return found.x[:n].round()


def _contradiction(held: Held) -> str:
    names = list(dict.fromkeys(held.names))
    negative = sorted({held.names[k] for k in np.flatnonzero(held.target < 0)})
    why = f" ({', '.join(negative)} is negative)" if negative else ""
    if len(names) == 1:
        return (
            f"No table of counts meets {names[0]}, which is known exactly: the law of the counts allows no "
            f"such numbers{why}. Compare its totals with the largest that the law allows, such as the sum of "
            "n of binomial counts."
        )
    return (
        f"No table of counts meets what is known exactly: {', '.join(names)} contradict each other, or the "
        f"support of the counts{why}. Compare their totals: margins of one table add up to the same number, "
        "and to n of a multinomial law."
    )
