"""Integrals over the real line, or sums over whole numbers, of functions whose scale is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# Half an e-fold per piece, from far below any noise to far above it.
_FOLDS = np.exp(np.arange(-32.0, 38.0, 0.5))
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_ROUNDS = 48  # halvings until a jump is pinned down to rounding
_WHOLE = 50_000  # whole numbers on each side of a centre

type Integrand = Callable[[np.ndarray], np.ndarray]


def integrate(
    f: Integrand, centres: Any, *, whole: bool = False, tolerance: float = 1e-9
) -> tuple[np.ndarray, np.ndarray]:
    """Integrate several functions of one number at once, or add them up over the whole numbers.

    Pieces get longer with the distance from the centres, so that noise of any scale around one of them is
    seen; pieces on which Gauss and Legendre's rule and its halves differ are halved, which pins down kinks
    and jumps. A narrow peak far from all centres can be missed.

    Parameters
    ----------
    f : callable
        From values, shape (n,), to the functions there, shape (k, n).
    centres : array_like, shape (m,)
        Where most of the mass may be.
    whole : bool
        Whether to sum over the whole numbers within 50,000 of the centres.
    tolerance : float
        Of each piece, relative to the sum of all pieces.

    Returns
    -------
    total, error : ndarray, shape (k,)
        The integrals, and how far from them they may be, were the functions smooth on each piece.
    """
    middle = np.unique(np.asarray(centres, dtype=float))
    if whole:
        steps = np.arange(-_WHOLE, _WHOLE + 1)
        total = f(np.unique(np.round(middle)[:, None] + steps).astype(float)).sum(axis=1)
        return total, np.zeros_like(total)
    edges = np.unique(np.concatenate([middle, *(c + s * _FOLDS for c in middle for s in (1, -1))]))
    lo, hi = edges[:-1], edges[1:]
    coarse = _rule(f, lo, hi)
    total = error = np.zeros(len(coarse))
    for _ in range(_ROUNDS):
        half = 0.5 * (lo + hi)
        fine = _rule(f, np.concatenate([lo, half]), np.concatenate([half, hi]))
        both = fine[:, : len(lo)] + fine[:, len(lo) :]
        off = np.abs(both - coarse)
        scale = np.abs(total + both.sum(axis=1))[:, None]
        rough = (off > tolerance / len(edges) * scale).any(axis=0) & (half > lo) & (half < hi)
        total, error = total + both[:, ~rough].sum(axis=1), error + off[:, ~rough].sum(axis=1)
        if not rough.any():
            return total, error
        lo, hi = np.concatenate([lo[rough], half[rough]]), np.concatenate([half[rough], hi[rough]])
        coarse = np.concatenate([fine[:, : len(rough)][:, rough], fine[:, len(rough) :][:, rough]], axis=1)
    return total + coarse.sum(axis=1), error + np.abs(coarse).sum(axis=1)


def _rule(f: Integrand, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    half = 0.5 * (hi - lo)[:, None]
    values = f((0.5 * (lo + hi)[:, None] + half * _NODES).ravel())
    return (values.reshape(len(values), *half.shape[:1], _NODES.size) * (half * _WEIGHTS)).sum(axis=-1)
