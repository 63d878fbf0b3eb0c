"""Calls of functions with confidential arguments, which no traceback shows.

A traceback holds the frames that it went through, and tools that show local variables (``rich`` with
``show_locals``, ``pytest -l``, error reporting services) print what is in them. Functions that handle rows
are therefore called from here, so that the traceback of an error has no frame with rows among its variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def sealed(function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(*args)``; an error keeps its message, but loses the frames below this call.

    Parameters
    ----------
    function : callable
    *args
        Arguments, which may be confidential.

    Examples
    --------
    >>> from pymc_dp.private.redaction import sealed
    >>> sealed(max, [61.5, 72.0])
    72.0
    """
    try:
        return function(*args)
    except BaseException as error:
        del args  # this frame stays in the traceback, with its variables
        error.__context__ = None
        raise error.with_traceback(None) from None
