"""Calls with confidential arguments, whose errors show none of them.

A traceback holds the frames that it went through, and tools that show local variables (``rich`` with
``show_locals``, ``pytest -l``, error reporting services) print what is in them. So rows are the variables of
no frame that an error leaves behind: what handles them is called from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def sealed(function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(*args)``; an error keeps its message, and loses the frames that it comes from.

    Parameters
    ----------
    function : callable
    *args
        May be confidential.

    Examples
    --------
    >>> from pymc_dp.private.redaction import sealed
    >>> sealed(max, [61.5, 72.0])
    72.0
    """
    try:
        return function(*args)
    except BaseException as error:
        del args  # a variable of this frame, which is shown
        error.__context__ = None
        raise error.with_traceback(None) from None
