"""Checks of confidential tables, with messages that say nothing of their contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from pymc_dp.query.contributions import is_masked


class ConfidentialTable:
    """A checked table that shows nothing but its shape.

    Parameters
    ----------
    array : ndarray of float64 or int64, shape (n,) or (n, k)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.private.tables import ConfidentialTable
    >>> ConfidentialTable(np.array([61.5, 72.0]))
    <table of shape (2,)>
    """

    __slots__ = ("_array",)

    def __init__(self, array: np.ndarray):
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,) or (n, k)."""
        return self._array.shape

    @property
    def dtype(self) -> str:
        """Name of the type of its entries."""
        return self._array.dtype.name

    @property
    def whole(self) -> bool:
        """Whether all entries are whole numbers."""
        return not (self._array % 1 != 0).any()

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return f"<table of shape {self.shape}>"

    def __reduce__(self) -> Any:
        raise TypeError("A confidential table cannot be copied.")


def as_tables(data: Any, covariates: Any) -> tuple[ConfidentialTable, dict[str, ConfidentialTable]]:
    """Check the rows and their covariates.

    Raises
    ------
    TypeError, ValueError
        As for :func:`as_table`.
    """
    if covariates is not None and not isinstance(covariates, Mapping):
        raise TypeError(
            f"covariates must be a mapping of names to arrays, got {type(covariates).__name__}: "
            'covariates={"age": age}.'
        )
    table = ConfidentialTable(as_table("data", data))
    given = {
        key: ConfidentialTable(as_table(f"covariates['{key}']", v)) for key, v in (covariates or {}).items()
    }
    return table, given


def columns_of(tables: Sequence[ConfidentialTable]) -> np.ndarray:
    """Return the columns of all tables as the rows of one array, shape (p, n)."""
    return np.concatenate([t._array.reshape(len(t), -1).T for t in tables])


def as_table(name: str, data: Any) -> np.ndarray:
    """Return rows as an array of float64 or int64, of one or two dimensions.

    Parameters
    ----------
    name : str
        Name of the argument, for messages.
    data : array_like, shape (n,) or (n, k)

    Raises
    ------
    TypeError
        If it is part of a graph, or holds anything but numbers.
    ValueError
        If it has neither one nor two dimensions, or has missing values.

    Examples
    --------
    >>> from pymc_dp.private.tables import as_table
    >>> as_table("data", [1, 0, 1]).shape
    (3,)
    """
    if isinstance(data, Variable):
        raise TypeError(
            f"{name} is a variable of a graph (pm.Data, say), and what is in a model's graph is written to "
            "disk with its results: pass an array."
        )
    if isinstance(data, list | tuple) and is_masked(data):
        raise ValueError(
            f"{name} is a list of masked arrays, whose masks NumPy drops: join them by np.ma.stack."
        )
    message = f"{name} must be an array of numbers: encode categories as whole numbers."
    table = None
    try:
        table = np.ma.filled(data, np.nan) if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
        if table.dtype == object:  # columns of several types
            table = table.astype(float)
    except Exception:
        numbers = False  # its message may quote entries, so that it must not become the context of our error
    else:
        numbers = True
    if not numbers or table is None:
        raise TypeError(message)
    if table.dtype.kind not in "biuf":
        raise TypeError(message)
    if table.ndim not in (1, 2):
        raise ValueError(
            f"{name} must have one row for each person, shape (n,) or (n, k), got {table.shape}."
        )
    if table.size == 0:
        raise ValueError(f"{name} is empty, shape {table.shape}.")
    if table.dtype.kind == "f" and np.isnan(table).any():
        raise ValueError(
            f"{name} has missing values (NaN). Leave those rows out, or fill them in, by a rule that "
            "looks at no other row."
        )
    return table.astype(np.int64 if table.dtype.kind in "biu" else np.float64)
