"""How far one person moves queries of a table of counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from scipy import sparse

from pymc_dp.query.contributions import says_its_records
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.linear import NotLinear, read_linear
from pymc_dp.query.tables import SHARED_TOTAL, is_count, nearest_random

# Most kinds of cells that are compared with each other, pair by pair.
_MOST_PAIRED = 2000


def count_sensitivity(
    query: Any, counts: Any = None, *, order: int, neighbours: str = "replace-one"
) -> float:
    """Return how far one person can move linear queries of a table in which everybody is counted once.

    One person exchanged for another leaves one cell and enters another; one more enters a cell. The largest
    change follows from the coefficients of the query alone. Bounds of (0, 1) on each of K counts would give K
    or its root, where 2 or the root of 2 hold.

    Parameters
    ----------
    query : tensor_like, or a list of these
        Linear queries of the counts with known coefficients; of a list, all are taken for one release.
    counts : variable or list of variables, optional
        The counts, where they are no random variables: ``pt.constant(table)``, of which the query is an
        expression. By default the count variables behind the query.
    order : {1, 2}
        Order of the norm: 1 for Laplace noise, 2 for Gaussian noise, discrete or not.
    neighbours : {"replace-one", "add-remove"}, default "replace-one"
        Which tables are compared: with one person exchanged, or with one more or less.

    Returns
    -------
    float
        Exact for up to 2000 kinds of cells (those with the same coefficients are of one kind); otherwise an
        upper bound, which holds exactly where the two cells that count for most share no entry.

    Raises
    ------
    ValueError
        A query is not linear, depends on no counts or on what people answered, or an argument is none of its
        choices.

    Notes
    -----
    It is right only where a person is in one cell, and counts for one there: of visits, a person may have
    many.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     c = pm.Poisson("c", np.ones((3, 4)))
    >>> round(dp.count_sensitivity(c.sum(axis=1), order=2) ** 2, 12)
    2.0
    >>> dp.count_sensitivity([c, c.sum(axis=0), c.sum(axis=1)], order=1, neighbours="add-remove")
    3.0
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 (Laplace noise) or 2 (Gaussian noise), got {order!r}.")
    if neighbours not in ("replace-one", "add-remove"):
        raise ValueError(f"neighbours must be 'replace-one' or 'add-remove', got {neighbours!r}.")
    queries = list(query) if isinstance(query, list | tuple) else [query]
    if any(says_its_records(v) for v in ancestors([q for q in queries if isinstance(q, Variable)])):
        raise ValueError(
            "query has dp.record_sum, whose rows are people, not cells of a table: give bounds= to the "
            "mechanism, or the table's own sum, such as c.sum(axis=0)."
        )
    columns = _columns(queries, _counts_behind(queries, counts))
    norms = _norms(columns, order)
    if neighbours == "add-remove":
        return float(norms.max())
    return _largest_difference(columns, norms, order)


def shared_total_sensitivity(query: Variable, order: int, neighbours: str) -> float | None:
    """Return how far one person moves a query of counts with a known total; None of anything else.

    Their law says that each person is in one cell: of other counts, a row may be all of a person.
    """
    found = nearest_random(query)
    if not found or not all(isinstance(v.owner.op, SHARED_TOTAL) for v in found):
        return None
    try:
        return count_sensitivity(query, order=order, neighbours=neighbours)
    except ValueError:
        return None


def _counts_behind(queries: Sequence[Any], counts: Any) -> list[Any]:
    if counts is not None:
        given = list(counts) if isinstance(counts, list | tuple) else [counts]
        if not all(isinstance(v, Variable) for v in given):
            raise ValueError(
                "counts must be variables: table = pt.constant(counts), the query an expression of table, "
                "and counts=table."
            )
        return given
    if not all(isinstance(q, Variable) for q in queries):
        raise ValueError(
            "query is an array, of which nothing says what the counts are: give an expression of them, "
            "table = pt.constant(counts), and counts=table."
        )
    found = list(dict.fromkeys(v for query in queries for v in nearest_random(query)))
    others = sorted(str(v.name) for v in found if not is_count(v))
    if others or not found:
        raise ValueError(
            f"query depends on {', '.join(others) or 'no random variable'}, not on counts alone. Where the "
            "counts are data, name them: counts=table, with table = pt.constant(counts)."
        )
    own = sorted(str(v.name) for v in found if isinstance(v.owner.op, BernoulliRV | CategoricalRV))
    if own:
        raise ValueError(
            f"query depends on {', '.join(own)}, whose entries are answers of one person each, not counts of "
            "people in cells: give bounds= to the mechanism."
        )
    return found


def _columns(queries: Sequence[Any], counts: list[Any]) -> sparse.csc_array:
    """Return what one more person in each cell adds to the queries, cells of one kind once."""
    shapes = {v: lengths_of(v) for v in counts}
    sizes = [int(np.prod(shapes[v])) for v in counts]
    first = dict(zip(counts, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
    parts = []
    for query in queries:
        if not set(counts) & set(ancestors([query], blockers=counts)):
            raise ValueError("A query depends on none of the counts.")
        try:
            parts.append(read_linear(query, first, shapes).matrix)
        except NotLinear as error:
            raise ValueError(f"query is no linear map of the counts: {error}.") from None
    if not sum(sizes):
        raise ValueError("The counts have no cells, so that nobody moves the query.")
    columns = sparse.csc_array(sparse.vstack(parts))
    columns.sort_indices()
    begins, kinds = columns.indptr, dict[tuple[bytes, bytes], int]()
    for k in range(columns.shape[1]):
        part = slice(begins[k], begins[k + 1])
        kinds.setdefault((columns.indices[part].tobytes(), columns.data[part].tobytes()), k)
    return columns[:, sorted(kinds.values())]


def _norms(columns: Any, order: int) -> np.ndarray:
    each = abs(columns) if order == 1 else columns.multiply(columns)
    total = np.asarray(each.sum(axis=0)).ravel()
    return total if order == 1 else np.sqrt(total)


def _largest_difference(columns: sparse.csc_array, norms: np.ndarray, order: int) -> float:
    """Return the largest distance between two columns; there is none between one kind of cell and itself."""
    n = columns.shape[1]
    if n == 1:
        return 0.0
    if n > _MOST_PAIRED:
        one, other = np.sort(norms)[-2:]
        overlap = (columns.data < 0).any()
        return float(one + other) if order == 1 or overlap else float(np.hypot(one, other))
    if order == 2:
        products = (columns.T @ columns).toarray()
        squares = norms[:, None] ** 2 + norms[None, :] ** 2 - 2 * products
        return float(np.sqrt(squares.max()))
    return max(float(abs(columns - columns[:, [k]] @ np.ones((1, n))).sum(axis=0).max()) for k in range(n))
