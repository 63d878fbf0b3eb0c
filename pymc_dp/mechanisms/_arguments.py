"""Arguments of declarations that no mechanism has, refused before anything else is said of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pymc.distributions

# The files that a declaration runs through: a warning is attributed to whoever called them.
DECLARING = (str(Path(__file__).parent), str(Path(pymc.distributions.__file__).parent))
# What mechanisms pass to each other, and what those that do not take it explain in words of their own.
_PASSED = frozenset({"op_class", "props", "expected", "promised", "processing", "at", "looked_at"})
_EXPLAINED = frozenset({"neighbours", "sensitivity"})


class RefusesUnknown:
    """Mix-in of classes of distributions: unknown arguments are refused by name, and before other faults."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let a class's own declarations look at the names of their arguments first."""
        super().__init_subclass__(**kwargs)
        for name in ("__new__", "dist"):
            own = cls.__dict__.get(name)
            if own is not None:
                setattr(cls, name, type(own)(_looking_first(own.__func__)))


def _looking_first(declare: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(declare)
    def declared(cls: type, *args: Any, **kwargs: Any) -> Any:
        unknown = kwargs.keys() - _names(cls) - _PASSED - _EXPLAINED
        if unknown:
            raise unexpected(cls, sorted(unknown))
        return declare(cls, *args, **kwargs)

    return declared


def unexpected(mechanism: type, names: Iterable[str]) -> TypeError:
    """Return the error of arguments that a mechanism does not have, with those that it has."""
    settings = inspect.signature(mechanism.dist).parameters.values()  # type: ignore[attr-defined]
    own = ", ".join(f"{p.name}=" for p in settings if p.kind is p.KEYWORD_ONLY)
    return TypeError(
        f"{mechanism.__name__} got an unexpected keyword argument {', '.join(map(repr, names))}. Its own are "
        f"{own}."
    )


@cache
def _names(mechanism: type) -> frozenset[str]:
    """Return the arguments that a mechanism, or what it is built on, has a name for."""
    functions = [
        getattr(vars(c)[name], "__func__", vars(c)[name])
        for c in mechanism.__mro__
        for name in ("__new__", "dist", "_release")
        if name in vars(c) and c is not object
    ]
    return frozenset(name for f in functions for name in inspect.signature(f).parameters)
