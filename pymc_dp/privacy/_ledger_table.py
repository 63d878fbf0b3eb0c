"""The debits of a ledger, one by one and as a table."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pymc_dp.privacy import budgets
from pymc_dp.privacy.costs import Cost

_WIDTH = 110


@dataclass(frozen=True)
class LedgerEntry:
    """One debit.

    Parameters
    ----------
    id : int
        Number of the entry, from 1.
    at : datetime
        Time of the debit, in UTC.
    user : str
        Login name of the user who made the debit.
    likelihood, step : str
        Names of the confidential likelihood and of the step method.
    costs : tuple of cost
        The debited cost, for all chains together.
    chains, claimed : int
        Chains of the plan, and how many of them have begun.
    insecure_noise : bool
        Whether the noise came from a known seed; if so, there is no guarantee.
    """

    id: int
    at: datetime
    user: str
    likelihood: str
    step: str
    costs: tuple[Cost, ...]
    chains: int
    claimed: int
    insecure_noise: bool


def table_of(entries: Iterable[LedgerEntry], delta: float, title: str, caption: str) -> Table:
    """Return a table of debits, each with its epsilon by itself."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for column in ("", "when (UTC)", "who", "likelihood", "step", "chains", "epsilon"):
        table.add_column(column, justify="right" if column in ("", "chains", "epsilon") else "left")
    for entry in entries:
        table.add_row(
            str(entry.id),
            f"{entry.at:%Y-%m-%d %H:%M}",
            # names are plain text, since brackets in them would be read as markup
            Text(entry.user),
            Text(entry.likelihood),
            Text(entry.step + (" (insecure noise)" if entry.insecure_noise else "")),
            f"{entry.claimed} of {entry.chains}",
            f"{budgets.epsilon(entry.costs, delta):.4g}",
        )
    return table


def as_text(renderable: Any) -> str:
    """Return the output of a console as plain text."""
    shown = StringIO()
    Console(file=shown, width=_WIDTH, color_system=None).print(renderable)
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())


def now() -> str:
    """Return the present time for an entry."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def user() -> str:
    """Return the name of the present user for an entry."""
    try:
        return getpass.getuser().encode("utf-8", "backslashreplace").decode()
    except (ImportError, KeyError, OSError):  # a user without a name, as in some containers
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
