"""A budget that runs on confidential rows are debited from, before they spend it."""

from __future__ import annotations

import getpass
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pymc_dp.privacy import _ledger_file as file
from pymc_dp.privacy import budgets
from pymc_dp.privacy._checks import positive, probability
from pymc_dp.privacy.costs import Cost, as_costs, from_plain, to_plain, whole


class BudgetExceededError(ValueError):
    """A run asks for more than is left of a privacy budget; nothing was debited."""


@dataclass(frozen=True)
class LedgerEntry:
    """One debit.

    Parameters
    ----------
    id : int
        Number of the entry, from 1.
    at : datetime
        When it was debited.
    user : str
        Who did it: the login name.
    likelihood, step : str
        Names of the confidential likelihood and of the step method.
    costs : tuple of cost
        What was debited, all chains together.
    chains, claimed : int
        Chains of the plan, and those that have begun.
    insecure_noise : bool
        Whether the noise came from a known seed, so that nothing is promised.
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


class PrivacyLedger:
    """Budget of (epsilon, delta), with everything that was debited from it.

    Parameters
    ----------
    path : str or path-like, optional
        SQLite file, made where there is none. By default a private temporary one, which ends with this
        process.
    epsilon : float
        The whole budget in nats, > 0, for replace-one neighbours.
    delta : float
        In (0, 1).
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = positive("epsilon", epsilon), probability("delta", delta)
        self.path = None if path is None else _as_path(path)
        self._file = file.temporary_path() if self.path is None else self.path
        self._identity = file.create_or_check(self._file, self.epsilon, self.delta)

    def reserve(
        self, cost: Any, *, likelihood: str, step: str, chains: int, insecure_noise: bool = False
    ) -> Reservation:
        """Debit a planned run, all chains together, before it begins.

        Parameters
        ----------
        cost : cost or sequence of costs
            Of all chains together, tuning draws included.
        likelihood, step : str
            Names of the confidential likelihood and of the step method.
        chains : int
            How many chains may claim a share.
        insecure_noise : bool, default False
            Whether the noise comes from a known seed.

        Returns
        -------
        Reservation

        Raises
        ------
        BudgetExceededError
            The plan does not fit into what is left; nothing is debited.
        """
        costs = as_costs(cost, "cost")
        if not costs:
            raise ValueError("cost is empty: give the cost of the run.")
        chains = whole("chains", chains)
        with file.transaction(self._file, self._identity, write=True) as connection:
            spent = _spent(connection)
            if not budgets.fits((*spent, *costs), self.epsilon, self.delta):
                raise BudgetExceededError(self._refusal(spent, costs))
            row = (_now(), _user(), str(likelihood), str(step), _to_text(costs), chains, bool(insecure_noise))
            added = connection.execute(
                "INSERT INTO entry (at, user, likelihood, step, costs, chains, insecure_noise)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            entry = int(added.lastrowid or 0)
        return Reservation(self, entry, chains, costs)

    def _refusal(self, spent: tuple[Cost, ...], asked: tuple[Cost, ...]) -> str:
        at = self.delta
        return (
            f"The plan does not fit into the budget of epsilon = {self.epsilon:g} at delta = {at:g}. "
            f"Spent: epsilon = {budgets.epsilon(spent, at):.4g}. Asked for: {budgets.epsilon(asked, at):.4g}. "
            f"Left: {self._left(spent):.4g}. Together they would cost "
            f"{budgets.epsilon((*spent, *asked), at):.4g}. Nothing was debited. Plan fewer draws or chains, or "
            "more noise."
        )

    def _left(self, spent: tuple[Cost, ...]) -> float:
        try:
            noise = budgets.noise_multiplier(1, epsilon=self.epsilon, delta=self.delta, spent=spent)
        except ValueError:
            return 0.0
        return budgets.epsilon(budgets.cost_of(1, noise), self.delta)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all debits, the oldest first."""
        with file.transaction(self._file, self._identity, write=False) as connection:
            rows = connection.execute(
                "SELECT id, at, user, likelihood, step, costs, chains,"
                " (SELECT count(*) FROM claim WHERE claim.entry = entry.id), insecure_noise"
                " FROM entry ORDER BY id"
            ).fetchall()
        return tuple(
            LedgerEntry(
                k, datetime.fromisoformat(at), user, likelihood, step, _from_text(costs), *rest, bool(flag)
            )
            for k, at, user, likelihood, step, costs, *rest, flag in rows
        )

    @property
    def spent(self) -> tuple[Cost, ...]:
        """All costs that were debited."""
        return tuple(cost for entry in self.entries() for cost in entry.costs)

    @property
    def epsilon_spent(self) -> float:
        """Epsilon of all that was debited, at the ledger's delta."""
        return budgets.epsilon(self.spent, self.delta)

    @property
    def epsilon_left(self) -> float:
        """Largest epsilon, at the ledger's delta, of Gaussian releases that still fit."""
        return self._left(self.spent)

    def noise_multiplier(
        self, releases: int, *, n: int | None = None, batch_size: int | None = None
    ) -> float:
        """Return the smallest noise multiplier at which so many releases fit into what is left."""
        return budgets.noise_multiplier(
            releases, epsilon=self.epsilon, delta=self.delta, spent=self.spent, n=n, batch_size=batch_size
        )

    def __repr__(self) -> str:
        where = "" if self.path is None else f"{str(self.path)!r}, "
        return f"PrivacyLedger({where}epsilon={self.epsilon!r}, delta={self.delta!r})"

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Reservation:
    """A debited plan, of which each chain claims a numbered share.

    Parameters
    ----------
    ledger : PrivacyLedger
    entry : int
        Number of the entry in the ledger.
    chains : int
        Chains of the plan.
    costs : tuple of cost
        What was debited.
    """

    def __init__(self, ledger: PrivacyLedger, entry: int, chains: int, costs: tuple[Cost, ...]) -> None:
        self.ledger, self.entry, self.chains, self.costs = ledger, entry, chains, costs

    def claim(self) -> int:
        """Return the next chain number, from 0.

        Raises
        ------
        BudgetExceededError
            All chains of the plan have begun.
        """
        with file.transaction(self.ledger._file, self.ledger._identity, write=True) as connection:
            (taken,) = connection.execute(
                "SELECT count(*) FROM claim WHERE entry = ?", (self.entry,)
            ).fetchone()
            if taken >= self.chains:
                raise BudgetExceededError(
                    f"All {self.chains} planned chains of entry {self.entry} have begun, and each is paid for "
                    "once: for more chains, or for another run, plan and debit them with a new step."
                )
            connection.execute("INSERT INTO claim VALUES (?, ?, ?)", (self.entry, taken, _now()))
        return taken

    def __repr__(self) -> str:
        return f"Reservation(entry={self.entry}, chains={self.chains})"


def _spent(connection: Any) -> tuple[Cost, ...]:
    rows = connection.execute("SELECT costs FROM entry ORDER BY id").fetchall()
    return tuple(cost for (text,) in rows for cost in _from_text(text))


def _as_path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise TypeError(f"path must be the name of a file, or None, got {path!r}.")
    return Path(path).absolute()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


def _to_text(costs: tuple[Cost, ...]) -> str:
    return json.dumps([to_plain(cost) for cost in costs])


def _from_text(text: str) -> tuple[Cost, ...]:
    return tuple(from_plain(plain) for plain in json.loads(text))
