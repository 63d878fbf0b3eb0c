"""The object that holds confidential rows during sampling, outside of every graph."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any

import numpy as np

from pymc_dp.private.redaction import sealed

_held: weakref.WeakValueDictionary[str, ConfidentialRows] = weakref.WeakValueDictionary()


class ConfidentialRows:
    """Confidential rows as columns of numbers, in memory only.

    No representation, copy or pickle holds a number of them, nor does an error that is raised while they are
    read. A pickle says where in shared memory they are, for worker processes of the same machine; it is
    useless once this process has ended. The shared memory is removed at that time, unless the process is
    killed.

    Parameters
    ----------
    columns : ndarray, shape (p, n)
        Entries of the rows; copied.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.private.rows import ConfidentialRows
    >>> ConfidentialRows(np.array([[61.5, 72.0]]))
    <2 confidential rows>
    """

    __slots__ = ("__weakref__", "_columns", "_memory", "_token", "n")

    def __init__(self, columns: np.ndarray):
        self._columns = np.array(columns, dtype=np.float64, order="C")
        self.n = self._columns.shape[1]
        self._memory: shared_memory.SharedMemory | None = None
        self._token = secrets.token_hex(16)
        _held[self._token] = self

    @property
    def width(self) -> int:
        """Number of entries of a row."""
        return len(self._columns)

    def columns(self) -> np.ndarray:
        """Entries of the rows, shape (p, n); for tests only, since tracebacks show variables."""
        return self._columns

    def read(self, function: Callable[..., Any], before: tuple[Any, ...], after: tuple[Any, ...] = ()) -> Any:
        """Return ``function(*before, columns, *after)``, for callers that add noise to the result."""
        return sealed(function, *before, self._columns, *after)

    def __repr__(self) -> str:
        return f"<{self.n} confidential rows>"

    __str__ = __repr__

    def __copy__(self) -> ConfidentialRows:
        return self

    def __deepcopy__(self, memo: Any) -> ConfidentialRows:
        return self

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return hash(self._token)

    def __reduce__(self) -> Any:
        if self._memory is None:
            memory = shared_memory.SharedMemory(create=True, size=max(self._columns.nbytes, 1))
            self.read(_copy_to, (memory,))
            weakref.finalize(self, _discard, memory, os.getpid())
            self._memory = memory
        return _attach, (self._token, self._memory.name, self._columns.shape)


def _copy_to(memory: shared_memory.SharedMemory, columns: np.ndarray) -> None:
    np.ndarray(columns.shape, dtype=np.float64, buffer=memory.buf)[...] = columns


def _discard(memory: shared_memory.SharedMemory, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked process, since others still read the rows
        memory.close()
        memory.unlink()


def _attach(token: str, name: str, shape: tuple[int, int]) -> ConfidentialRows:
    """Return a pickle's rows, from this process or from memory shared with the process that holds them."""
    found = _held.get(token)
    if found is not None:
        return found
    try:
        memory = shared_memory.SharedMemory(name=name)
    except FileNotFoundError:
        raise RuntimeError(
            "The confidential rows are no longer there: they are in no pickle, and the process that held "
            "them has let them go. Declare the model again, with the data."
        ) from None
    rows = sealed(ConfidentialRows, np.ndarray(shape, dtype=np.float64, buffer=memory.buf))
    memory.close()
    rows._token = token
    _held[token] = rows
    return rows
