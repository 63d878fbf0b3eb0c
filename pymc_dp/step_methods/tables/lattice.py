"""Integer vectors that a matrix of whole numbers takes to zero: a short basis of all of them."""

from __future__ import annotations

import numpy as np
from scipy import sparse

# Most vectors that are made short: the time grows with the fourth power of their number.
_MOST_REDUCED = 150


def integer_kernel(matrix: np.ndarray) -> np.ndarray:
    """Return a basis of the integer vectors v with ``matrix @ v == 0``, a row for each.

    It spans all of them: rows are added to each other by Euclid's algorithm, a unimodular operation, until
    those of ``matrix.T`` are in echelon form; what was done to rows that end as zero is the basis. A basis of
    the rational kernel, scaled to whole numbers, would span less.

    Parameters
    ----------
    matrix : ndarray of int, shape (conditions, n)

    Returns
    -------
    ndarray of int, shape (n - rank, n)
        Reduced, so that its vectors are short, if they are 150 at most.
    """
    conditions, n = matrix.shape
    rows = [[int(a) for a in column] for column in matrix.T]
    done = [[int(i == j) for j in range(n)] for i in range(n)]
    top = 0
    for c in range(conditions):
        while True:
            below = [i for i in range(top, n) if rows[i][c]]
            if not below:
                break
            least = min(below, key=lambda i: abs(rows[i][c]))
            rows[top], rows[least] = rows[least], rows[top]
            done[top], done[least] = done[least], done[top]
            for i in range(top + 1, n):
                times = rows[i][c] // rows[top][c]
                if times:
                    rows[i] = [a - times * b for a, b in zip(rows[i], rows[top], strict=True)]
                    done[i] = [a - times * b for a, b in zip(done[i], done[top], strict=True)]
            if not any(rows[i][c] for i in range(top + 1, n)):
                top += 1
                break
    basis = np.array(done[top:], dtype=object).reshape(n - top, n)
    return reduced(basis) if len(basis) <= _MOST_REDUCED else basis.astype(np.int64)


def reduced(basis: np.ndarray) -> np.ndarray:
    """Return a short basis of the same lattice, by the algorithm of Lenstra, Lenstra and Lovász (1982).

    Whole numbers are exact; the Gram-Schmidt coefficients that decide are floats, which may leave the basis a
    little longer, and never another lattice.
    """
    b = [list(map(int, v)) for v in basis]
    m = len(b)
    if m < 2:
        return np.array(b, dtype=np.int64).reshape(m, basis.shape[1])
    k, attempts = 1, 0
    while k < m and attempts < 50 * m * m:
        attempts += 1
        star, mu = _orthogonal(b, k)
        for j in range(k - 1, -1, -1):
            times = round(mu[k][j])
            if times:
                b[k] = [x - times * y for x, y in zip(b[k], b[j], strict=True)]
                mu[k][: j + 1] -= times * mu[j][: j + 1]
        if star[k] >= (0.75 - mu[k][k - 1] ** 2) * star[k - 1]:
            k += 1
        else:
            b[k], b[k - 1] = b[k - 1], b[k]
            k = max(k - 1, 1)
    return np.array(b, dtype=np.int64)


def _orthogonal(b: list[list[int]], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared lengths of the first k + 1 vectors made orthogonal, and the coefficients of that."""
    vectors = np.array(b[: k + 1], dtype=float)
    _, r = np.linalg.qr(vectors.T)
    diagonal = np.diag(r)
    mu = (r / np.where(diagonal == 0, 1.0, diagonal)[:, None]).T
    return diagonal**2, np.tril(mu)


def classes_of_columns(matrix: sparse.csr_array) -> np.ndarray:
    """Return a number for each column of a matrix, the same for equal ones; -1 for those of zeros."""
    columns = sparse.csc_array(matrix)
    columns.sort_indices()
    known: dict[bytes, int] = {}
    classes = np.full(columns.shape[1], -1, dtype=np.int64)
    begins = columns.indptr
    for k in np.flatnonzero(np.diff(begins)):
        part = slice(begins[k], begins[k + 1])
        key = columns.indices[part].tobytes() + columns.data[part].tobytes()
        classes[k] = known.setdefault(key, len(known))
    return classes
