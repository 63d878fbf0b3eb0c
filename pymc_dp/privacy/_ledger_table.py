"""What a ledger says: its debits, one by one and as a table, what is left, and why it refuses."""

from __future__ import annotations

import getpass
import math
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
from pymc_dp.privacy.composition import fits
from pymc_dp.privacy.costs import Cost, cost_of
from pymc_dp.privacy.guarantee import PrivacyGuarantee

_WIDTH = 110
_MOST_NAMED = 5  # costs that a message lists


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
        Names of the confidential likelihood, or of what was released, and of the step method or mechanism.
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
    for column in ("", "when (UTC)", "who", "what", "by", "chains", "epsilon"):
        table.add_column(column, justify="right" if column in ("", "chains", "epsilon") else "left")
    for entry in entries:
        table.add_row(
            str(entry.id),
            f"{entry.at:%Y-%m-%d %H:%M}",
            # names are plain text, since brackets in them would be read as markup
            Text(_shown(entry.user)),
            Text(_shown(entry.likelihood)),
            Text(_shown(entry.step) + (" (insecure noise)" if entry.insecure_noise else "")),
            f"{entry.claimed} of {entry.chains}",
            f"{budgets.epsilon(entry.costs, delta):.4g}",
        )
    return table


def _shown(name: str) -> str:
    """Return a name with escapes for control characters, which would steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


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


def in_words(epsilon: float, delta: float) -> str:
    """Return a budget in words."""
    return f"epsilon = {epsilon:g} " + (f"at delta = {delta:g}" if delta else "(pure privacy)")


def left(spent: tuple[Cost, ...], epsilon: float, delta: float) -> float:
    """Return the largest epsilon that Gaussian noise, or a release from a pure budget, may still have."""
    if delta == 0:
        return max(0.0, epsilon - budgets.epsilon(spent, 0.0))
    try:
        noise = budgets.noise_multiplier(1, epsilon=epsilon, delta=delta, spent=spent)
    except ValueError:
        return 0.0
    return budgets.epsilon(cost_of(1, noise), delta)


def _pure_left(spent: tuple[Cost, ...], epsilon: float, delta: float) -> float:
    """Return the largest epsilon that a pure release may still have, or a little less."""
    if delta == 0:
        return left(spent, epsilon, delta)
    low, high = 0.0, epsilon
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        if fits((*spent, PrivacyGuarantee(middle)), epsilon, delta):
            low = middle
        else:
            high = middle
        if high < 1e-6 * epsilon:
            return 0.0
    return low if low == 0 else float(f"{low - 5e-4 * low:.3g}")


def refusal(spent: tuple[Cost, ...], asked: tuple[Cost, ...], epsilon: float, delta: float) -> str:
    """Return why what is asked for is refused, and what would do."""

    def cost(costs: tuple[Cost, ...]) -> str:
        return f"epsilon = {budgets.epsilon(costs, delta):.4g}"

    what = "; ".join(str(c).removesuffix(".") for c in asked[:_MOST_NAMED])
    if len(asked) > _MOST_NAMED:
        what += f"; and {len(asked) - _MOST_NAMED} more"
    if delta == 0 and math.isinf(budgets.epsilon(asked, 0.0)):
        remedy = (
            "A budget of pure privacy has room for pure releases only: make a ledger with a delta in (0, 1)."
        )
    elif any(not isinstance(c, PrivacyGuarantee) for c in asked):
        remedy = (
            "Ask for fewer draws or chains, or for more noise: ledger.noise_multiplier(releases) says how "
            "much would do."
        )
    else:
        remedy = (
            f"Ask for a smaller epsilon: of pure releases, {_pure_left(spent, epsilon, delta):.4g} is left."
        )
    return (
        f"This does not fit into what is left of the budget of {in_words(epsilon, delta)}. Spent: "
        f"{cost(spent)}. Asked for: {cost(asked)} ({what}). Left: epsilon = "
        f"{left(spent, epsilon, delta):.4g}. Spent and asked for make {cost((*spent, *asked))} together. "
        f"Nothing was debited. {remedy}"
    )
