"""Printing of results: tables, and names of the entries of parameters."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

_WIDTH = 96


def as_text(renderable: Any) -> str:
    """Return the output of a console as plain text."""
    shown = StringIO()
    Console(file=shown, width=_WIDTH, color_system=None).print(renderable)
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())


def table_of(title: str, *columns: str, words: str = "", caption: str | None = None) -> Table:
    """Return an empty table, whose columns are numbers but for the first and the one named `words`."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k == 0 or column == words else "right")
    return table


def entry_name(name: str, at: tuple[Any, ...]) -> str:
    """Return the name of an entry of a parameter, such as ``"beta[0, 2]"``."""
    return f"{name}[{', '.join(map(str, at))}]" if at else name
