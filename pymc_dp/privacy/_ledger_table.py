"""What a ledger says: its debits, one by one and as a table, what is left, and why it refuses."""

from __future__ import annotations

import getpass
import math
import os
from collections.abc import Callable, Iterable
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
from pymc_dp.privacy.release import Release

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


def _most_left(
    spent: tuple[Cost, ...],
    epsilon: float,
    delta: float,
    of: Callable[[float], PrivacyGuarantee],
    most: float,
) -> float:
    """Return the largest number up to `most` of which a guarantee still fits, or a little less."""

    def fit(number: float) -> bool:
        return fits((*spent, of(number).to_replace_one()), epsilon, delta)

    low, high = 0.0, most
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fit(middle) else (low, middle)
        if high < 1e-6 * most:
            return 0.0
    above = float(f"{high:.3g}")
    if fit(above):
        return above
    return _to_three_digits(low, math.floor) if low else 0.0


def _to_three_digits(number: float, towards: Callable[[float], int]) -> float:
    """Return a positive number rounded to the safe side, math.floor or math.ceil."""
    last = 10.0 ** (math.floor(math.log10(number)) - 2)
    return float(f"{towards(number / last) * last:.3g}")


def _less(spent: tuple[Cost, ...], asked: tuple[PrivacyGuarantee, ...], epsilon: float, delta: float) -> str:
    """Return what would fit, in the units in which the noise of what was asked for is given.

    Asked for are one guarantee, for its own neighbours, or several for replace-one neighbours.
    """
    neighbours = asked[0].neighbours
    of_whom = "" if neighbours == "replace-one" else f" for {neighbours} neighbours"
    rhos = [cost.rho for cost in asked if cost.rho is not None and not cost.is_pure]
    if len(rhos) < len(asked):

        def pure(number: float) -> PrivacyGuarantee:
            return PrivacyGuarantee(number, neighbours=neighbours)

        each = pure(1.0).to_replace_one().epsilon  # by which epsilons of such releases count
        whole = left(spent, epsilon, delta) / each
        rest = whole if delta == 0 else _most_left(spent, epsilon, delta, pure, epsilon / each)
        return f"Ask for a smaller epsilon: of pure releases{of_whom}, {rest:.4g} is left."
    gaussian = all(cost.mu is not None for cost in asked)

    def noise(rho: float) -> PrivacyGuarantee:
        mu = math.sqrt(2 * rho) if gaussian else None
        return PrivacyGuarantee(math.inf, rho=rho, mu=mu, neighbours=neighbours)

    # Gaussian noise of a given rho costs least
    most = budgets.noise_multiplier(1, epsilon=epsilon, delta=delta) ** -2 / 2
    whole = math.fsum(rhos)
    rho = _most_left(spent, epsilon, delta, noise, min(whole, most))
    if rho == 0:
        return "No such release fits any more, however much noise it has."
    also = ""
    if len(asked) == 1 and asked[0].delta > 0:
        at_delta = noise(rho).to_approximate(asked[0].delta).epsilon
        also = f", or epsilon = {_to_three_digits(at_delta, math.floor):.4g} at the delta that was asked for"
    times = _to_three_digits(math.sqrt(whole / rho), math.ceil)
    return (
        f"Ask for more noise: rho = {rho:.4g}{of_whom} is left{also}, for which sigma has to be at "
        f"least {times:g} times what was asked for."
    )


def refusal(
    spent: tuple[Cost, ...], asked: tuple[Cost, ...], epsilon: float, delta: float, given: Any = None
) -> str:
    """Return why what is asked for is refused, and what would do; `given` is what it was asked by."""

    def cost(costs: tuple[Cost, ...]) -> str:
        return f"epsilon = {budgets.epsilon(costs, delta):.4g}"

    what = "; ".join(str(c).removesuffix(".") for c in asked[:_MOST_NAMED])
    if len(asked) > _MOST_NAMED:
        what += f"; and {len(asked) - _MOST_NAMED} more"
    guarantees = tuple(c for c in asked if isinstance(c, PrivacyGuarantee))
    if delta == 0 and math.isinf(budgets.epsilon(asked, 0.0)):
        remedy = (
            "A budget of pure privacy has room for pure releases only: make a ledger with a delta in (0, 1)."
        )
    elif len(guarantees) < len(asked):
        remedy = (
            "Ask for fewer draws or chains, or for more noise: ledger.noise_multiplier(releases) says how "
            "much would do."
        )
    else:
        own = given.guarantee if isinstance(given, Release) else given
        if isinstance(own, PrivacyGuarantee) and len(guarantees) == 1:
            guarantees = (own,)
        remedy = _less(spent, guarantees, epsilon, delta)
    return (
        f"This does not fit into what is left of the budget of {in_words(epsilon, delta)}. Spent: "
        f"{cost(spent)}. Asked for: {cost(asked)} ({what}). Left: epsilon = "
        f"{left(spent, epsilon, delta):.4g}. Spent and asked for make {cost((*spent, *asked))} together. "
        f"Nothing was debited. {remedy}"
    )
