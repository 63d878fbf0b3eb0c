"""Integrals over the real line, or sums over whole numbers, of functions whose scale is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import legendre

# A quarter of an e-fold per piece, from far below any noise to far above it.
_FOLDS = np.exp(np.arange(-32.0, 38.0, 0.25))
_ROUNDS = 64  # halvings until a jump is pinned down to rounding
_SMOOTH = 25  # halvings after which kinks are resolved, and what is left are jumps and poles
_SHARE = 1 / 1024  # the most that one piece may hold of the integral of a function that jumps
_GAP = 0.1  # of a piece: more than lies between two nodes
_MOST = 1 << 17  # pieces in one round
_WHOLE = 50_000  # whole numbers on each side of a centre

type Integrand = Callable[[np.ndarray], np.ndarray]


def _lobatto(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the rule of Gauss and Lobatto, the ends of [-1, 1] among the nodes."""
    last = np.eye(n)[-1]
    x = np.concatenate([[-1.0], np.sort(legendre.legroots(legendre.legder(last)).real), [1.0]])
    return x, 2 / (n * (n - 1) * legendre.legval(x, last) ** 2)


# A piece is integrated by Gauss's rule on its halves, and compared with Lobatto's on the whole. Wherever a
# jump lies in the piece, the two have other weight to its left, so that it shows: Gauss's alone is blind
# between an end and its first node. Lobatto's end nodes lie inside, since a function may jump at an end.
_GAUSS = legendre.leggauss(8)
_LOBATTO = _lobatto(9)
_INSIDE = 1 - 1e-12


def integrate(
    f: Integrand, centres: Any, *, whole: bool = False, tolerance: float = 1e-9
) -> tuple[np.ndarray, np.ndarray]:
    """Integrate several functions of one number at once, or add them up over the whole numbers.

    Pieces get longer with the distance from the centres, so that noise of any scale around one of them is
    seen. Pieces on which two rules differ are halved, which pins down kinks and jumps; so are pieces that
    hold much of the integral of a function that jumps. A narrow peak far from all centres can be missed.

    Parameters
    ----------
    f : callable
        From values, shape (n,), to the functions there, shape (k, n), none of them negative.
    centres : array_like, shape (m,)
        Where most of the mass may be.
    whole : bool
        Whether to sum over the whole numbers within 50,000 of the centres.
    tolerance : float
        Of each piece, relative to the sum of all pieces.

    Returns
    -------
    total, error : ndarray, shape (k,)
        The integrals, and how far from them they may be: what the rules differ by, the width of each piece
        that is still rough after all halvings times the largest value on it, and, for a function that jumps,
        what may be hidden between two nodes of any one piece.
    """
    middle = np.unique(np.asarray(centres, dtype=float))
    if whole:
        steps = np.arange(-_WHOLE, _WHOLE + 1)
        total = f(np.unique(np.round(middle)[:, None] + steps).astype(float)).sum(axis=1)
        return total, np.zeros_like(total)
    edges = np.unique(np.concatenate([middle, *(c + s * _FOLDS for c in middle for s in (1, -1))]))
    total, error, jumps = _halved(f, edges, tolerance, 1.0)
    if jumps.any():
        total, error, _ = _halved(f, edges, tolerance, _SHARE)
    return total, error


def _halved(
    f: Integrand, edges: np.ndarray, tolerance: float, share: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return integrals, their errors, and which of the functions jump; no piece holds more than a share."""
    lo, hi = edges[:-1], edges[1:]
    total = error = largest = np.zeros(1)
    jumps = np.zeros(1, dtype=bool)
    for k in range(_ROUNDS):
        half = 0.5 * (lo + hi)
        fine, most = _on(f, np.concatenate([lo, half]), np.concatenate([half, hi]), *_GAUSS)
        both = fine[:, : len(lo)] + fine[:, len(lo) :]
        inside = (half > lo) & (half < hi)
        both[:, ~inside & ~np.isfinite(both).all(axis=0)] = 0.0  # a pole, at one of two neighbouring numbers
        coarse, _ = _on(f, lo, hi, _LOBATTO[0] * _INSIDE, _LOBATTO[1])
        with np.errstate(invalid="ignore"):
            off = np.abs(both - coarse)
            scale = (total + np.where(np.isfinite(both), both, 0.0).sum(axis=1))[:, None]
            agree = off <= tolerance / len(edges) * scale
            rough = ~(agree & (both <= share * scale)).all(axis=0) & inside
        if k >= _SMOOTH:
            jumps = jumps | (~agree).any(axis=1)
        off[:, ~inside] = both[:, ~inside]
        total, error = total + both[:, ~rough].sum(axis=1), error + off[:, ~rough].sum(axis=1)
        largest = np.maximum(largest, both[:, ~rough].max(axis=1, initial=0.0))
        if not rough.any():
            break
        lo, hi = np.concatenate([lo[rough], half[rough]]), np.concatenate([half[rough], hi[rough]])
        if k == _ROUNDS - 1 or lo.size > _MOST:
            last, most = _on(f, lo, hi, *_GAUSS)
            total, error = total + last.sum(axis=1), error + (most * (hi - lo)).sum(axis=1)
            break
    return total, error + np.where(jumps, _GAP * largest, 0.0), jumps


def _on(
    f: Integrand, lo: np.ndarray, hi: np.ndarray, nodes: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the integrals over pieces by a rule, and the largest value at its nodes."""
    half = 0.5 * (hi - lo)[:, None]
    values = f((0.5 * (lo + hi)[:, None] + half * nodes).ravel())
    values = values.reshape(len(values), *half.shape[:1], nodes.size)
    # a piece between a number and itself holds nothing, also where the number is a pole
    weighted = np.multiply(values, half * weights, where=half > 0, out=np.zeros_like(values))
    return weighted.sum(axis=-1), values.max(axis=-1)
