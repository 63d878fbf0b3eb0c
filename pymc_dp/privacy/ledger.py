"""A privacy budget in a file: releases and runs on confidential rows are debited before they begin."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.table import Table

from pymc_dp.privacy import budgets
from pymc_dp.privacy._checks import as_budget, as_name, whole
from pymc_dp.privacy._ledger_chain import Book
from pymc_dp.privacy._ledger_file import LedgerFile, LedgerFileError, as_path, say_where, temporary_path
from pymc_dp.privacy._ledger_table import LedgerEntry, as_text, in_words, left, now, refusal, table_of, user
from pymc_dp.privacy.costs import Cost, as_costs, from_text, to_text


class BudgetExceededError(ValueError):
    """A run or a release asks for more than is left of a privacy budget; nothing was debited.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> ledger = dp.PrivacyLedger(epsilon=1, delta=1e-6)
    >>> cost = dp.accounting.GaussianCost(1000, noise_multiplier=10.0)
    >>> ledger.reserve(cost, likelihood="x", step="PenaltyMetropolis", chains=1)
    Traceback (most recent call last):
    ...
    pymc_dp.privacy.ledger.BudgetExceededError: This does not fit into what is left of the budget...
    """


class PrivacyLedger:
    """A budget of (epsilon, delta), or of a pure epsilon, and all that was debited from it.

    A debit is on the disk before anything is drawn, so that a run that is killed still counts. Processes,
    chains and sessions may share the file: a debit is written only if no other debit was written since it was
    found to fit. All releases and runs count together, whatever they are of, since the same people may be
    behind the rows of several likelihoods. Debits are never given back. Mechanisms and private steps take it
    by ``ledger=``.

    Parameters
    ----------
    path : str or path-like, optional
        SQLite file, which is created if there is none. Do not put it on a network share, whose locks are not
        reliable. A second file, with ``.head`` added to the name, is created beside it, and the two belong
        together. Names with that ending or one of SQLite's (``-journal``, ``-wal``, ``-shm``) are refused. By
        default a private temporary file, which forked and spawned workers share, and which is removed when
        this process ends: the budget then ends with the process.
    epsilon : float
        The whole budget in nats, > 0, for replace-one neighbours.
    delta : float
        In [0, 1); choose it far below 1 / (number of people). With 0, the budget is of pure privacy: epsilons
        of pure releases add up, and nothing with Gaussian noise fits, such as private steps.
    entries : int, optional
        Number of debits in the file, as you know it from elsewhere; a file with another number is refused.
        Needed only if the file beside the ledger is lost, which is then created anew.

    Attributes
    ----------
    path : Path or None
    epsilon, delta : float
        The budget with which the file was created. They cannot be set.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is out of its range; or the file is not a ledger, has another
        budget, was made by a newer version, is damaged, edited or an older copy, or cannot be written.

    Notes
    -----
    If the plan of a run, or the epsilon of a release, is chosen after looking at earlier results, the total
    cost is proven for Gaussian costs, and for pure releases with delta = 0. For releases on batches, and for
    pure releases with delta > 0, which come to less than their sum, it is proven for plans that are fixed
    beforehand, whatever the queries are; for plans that are chosen later we know of no proof.

    A release for neighbours with a person added or removed counts as what it implies for one exchanged, twice
    its epsilon.

    Each debit, and each chain's claim, is chained to the one before it by a SHA-256 digest that begins with
    the budget; the file beside the ledger has the last digest, and so has every open ledger. So a ledger that
    was deleted, edited, cut off or put back from an older copy is refused. There is no key, and no witness
    elsewhere. Two manipulations go unnoticed: to put back an older copy of *both* files while no process has
    the ledger open, and to edit the ledger and compute the digests anew in both files. The chain protects a
    custodian from accidents, not people from a custodian.

    References
    ----------
    Räisä (2021), theorems 6 and 11; Koskela, Tobaben and Honkela (2023), *Individual Privacy Accounting with
    Gaussian Differential Privacy*, for plans chosen one after another.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> ledger = dp.PrivacyLedger(epsilon=4, delta=1e-6)
    >>> noise = ledger.noise_multiplier(4 * 2500)  # four chains of 500 tuning and 2000 other draws
    >>> run = dp.accounting.GaussianCost(4 * 2500, noise)
    >>> reservation = ledger.reserve(run, likelihood="x", step="PenaltyMetropolis", chains=4)
    >>> round(ledger.epsilon_spent, 6), ledger.epsilon_left
    (4.0, 0.0)

    A budget of pure privacy, and a release that is debited from it:

    >>> ledger = dp.PrivacyLedger(epsilon=1.5, delta=0)
    >>> hours = dp.LaplaceMechanism.release(
    ...     dp.record_sum([38.5, 20.0, 35.0]), epsilon=0.5, bounds=(0, 60), ledger=ledger, name="sum of hours"
    ... )
    >>> ledger.epsilon_left
    1.0
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        epsilon: float,
        delta: float,
        entries: int | None = None,
    ) -> None:
        epsilon, delta = as_budget(epsilon, delta)
        entries = None if entries is None else whole("entries", entries, least=0)
        self.path = None if path is None else as_path(path)
        where = temporary_path() if self.path is None else self.path
        self._file = LedgerFile(where, epsilon, delta, entries)
        say_where(self._file, self.path, relative=path is not None and not os.path.isabs(path))

    def __setattr__(self, name: str, value: Any) -> None:
        if "_file" in vars(self):
            raise self._cannot_be_changed(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise self._cannot_be_changed(name)

    @staticmethod
    def _cannot_be_changed(name: str) -> AttributeError:
        return AttributeError(
            f"PrivacyLedger.{name} is what the file of the ledger was made or opened with. Nothing was "
            "changed: open the ledger with its own path and budget, or make another ledger at another path."
        )

    @property
    def epsilon(self) -> float:
        """The whole budget in nats."""
        return self._file.budget[0]

    @property
    def delta(self) -> float:
        """The delta at which epsilon is stated."""
        return self._file.budget[1]

    def reserve(
        self,
        cost: Any,
        *,
        likelihood: str,
        step: str = "release",
        chains: int = 1,
        insecure_noise: bool = False,
    ) -> Reservation:
        """Debit a planned run, with all of its chains, or a release, before it begins.

        Parameters
        ----------
        cost : cost, PrivacyGuarantee, Release, or a sequence of these
            Cost of all chains together, tuning included; a guarantee costs what it promises.
        likelihood, step : str
            Names of the confidential likelihood, or of what is released, and of the step method or mechanism.
        chains : int, default 1
            How many chains will claim a share.
        insecure_noise : bool, default False
            Whether the noise comes from a known seed; the entry records it.

        Returns
        -------
        Reservation

        Raises
        ------
        BudgetExceededError
            The run does not fit into what is left.
        TypeError, ValueError
            An argument has the wrong type or is out of its range, or the file cannot be written. Nothing is
            debited then, unless the message says so.

        Examples
        --------
        >>> import pymc_dp as dp
        >>> ledger = dp.PrivacyLedger(epsilon=4, delta=1e-6)
        >>> run = dp.accounting.GaussianCost(1000, noise_multiplier=100.0)
        >>> reservation = ledger.reserve(run, likelihood="x", step="PenaltyMetropolis", chains=2)
        >>> reservation.claim(), reservation.claim()
        (0, 1)
        """
        costs = as_costs(cost, "cost")
        if not costs:
            raise ValueError("cost is empty: give what the run or the release costs.")
        chains = whole("chains", chains)
        row = (
            now(),
            user(),
            as_name("likelihood", likelihood),
            as_name("step", step),
            to_text(costs),
            chains,
            int(bool(insecure_noise)),
        )
        while True:
            # Whether the run fits is computed without holding the lock, since that may take seconds.
            with self._file.transaction(write=False) as book:
                decided, spent = book.rows["entry"], self._spent(book)
                epsilon, delta, _ = book.budget
            if not budgets.fits((*spent, *costs), epsilon, delta):
                raise BudgetExceededError(refusal(spent, costs, epsilon, delta, cost))
            with self._file.transaction(write=True) as book:
                if book.rows["entry"] != decided:
                    continue  # others have debited meanwhile, so that the decision is made again
                number = book.add("entry", row)
            return Reservation(self, number, chains, costs)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all debits, the oldest first.

        Returns
        -------
        tuple of LedgerEntry
        """
        with self._file.transaction(write=False) as book:
            return tuple(
                LedgerEntry(
                    number,
                    datetime.fromisoformat(at),
                    user,
                    likelihood,
                    step,
                    self._costs(costs),
                    chains,
                    book.claimed(number),
                    bool(insecure),
                )
                for number, at, user, likelihood, step, costs, chains, insecure in book.rows["entry"]
            )

    @property
    def spent(self) -> tuple[Cost, ...]:
        """All costs that were debited."""
        with self._file.transaction(write=False) as book:
            return self._spent(book)

    @property
    def epsilon_spent(self) -> float:
        """Epsilon of all debits together, at the ledger's delta."""
        return budgets.epsilon(self.spent, self.delta)

    @property
    def epsilon_left(self) -> float:
        """Largest epsilon, at the ledger's delta, that a run with Gaussian noise on all rows may still have.

        It is more than the difference to the whole budget, because epsilons compose to less than their sum.
        Of a budget of pure privacy it is that difference.
        """
        return left(self.spent, self.epsilon, self.delta)

    def epsilons(self) -> list[float]:
        """Return, for each debit, the epsilon of all debits up to and including it, at the ledger's delta.

        Returns
        -------
        list of float
            One for each entry, increasing.
        """
        costs: tuple[Cost, ...] = ()
        after = []
        for entry in self.entries():
            costs += entry.costs
            after.append(budgets.epsilon(costs, self.delta))
        return after

    def noise_multiplier(
        self, releases: int, *, n: int | None = None, batch_size: int | None = None
    ) -> float:
        """Return the smallest noise multiplier at which a number of releases fits into the remaining budget.

        Parameters
        ----------
        releases : int
            Numbers released by all chains together, tuning included, >= 1.
        n, batch_size : int, optional
            The numbers of rows and of rows in a batch, if each release is computed from a batch.

        Returns
        -------
        float
            As :func:`pymc_dp.accounting.noise_multiplier`.

        Raises
        ------
        BudgetExceededError
            Nothing is left, or the budget is of pure privacy.
        """
        if self.delta == 0:
            raise BudgetExceededError(
                f"The budget is {in_words(self.epsilon, self.delta)}, into which no Gaussian noise fits, "
                "however much it is: make a ledger with a delta in (0, 1), far below 1 / (number of people)."
            )
        try:
            return budgets.noise_multiplier(
                releases, epsilon=self.epsilon, delta=self.delta, spent=self.spent, n=n, batch_size=batch_size
            )
        except budgets.NothingLeftError as error:
            raise BudgetExceededError(
                f"Nothing is left of the budget of {in_words(self.epsilon, self.delta)}: it is all spent. "
                "Further runs need a budget of their own, which adds to what is known about the same people."
            ) from error

    def _spent(self, book: Book) -> tuple[Cost, ...]:
        return tuple(cost for row in book.rows["entry"] for cost in self._costs(row[5]))

    def _costs(self, text: str) -> tuple[Cost, ...]:
        try:
            return from_text(text)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise LedgerFileError(
                f"The ledger {str(self._file.path)!r} is damaged: the cost of an entry cannot be read "
                f"({error}). Put back the file as it was after its last debit."
            ) from None

    def __repr__(self) -> str:
        where = "" if self.path is None else f"{str(self.path)!r}, "
        return f"PrivacyLedger({where}epsilon={self.epsilon!r}, delta={self.delta!r})"

    def __str__(self) -> str:
        return as_text(self)

    def __rich__(self) -> Table:
        entries = self.entries()
        spent = tuple(cost for entry in entries for cost in entry.costs)
        gone, rest = budgets.epsilon(spent, self.delta), left(spent, self.epsilon, self.delta)
        composing = " They compose, and do not add up." if self.delta else ""
        caption = f"Spent: epsilon = {gone:.4g}. Left: epsilon = {rest:.4g}.{composing}"
        title = f"Privacy budget of {in_words(self.epsilon, self.delta)}"
        return table_of(entries, self.delta, title, caption)


@dataclass(frozen=True, repr=False)
class Reservation:
    """A debited run or release, of which each chain claims a share. :meth:`PrivacyLedger.reserve` makes it.

    It can be pickled; copies in other processes claim from the same file.

    Parameters
    ----------
    ledger : PrivacyLedger
    entry : int
        Number of the entry in the ledger.
    chains : int
        Chains of the plan.
    costs : tuple of cost
        What was debited, for all chains together.
    """

    ledger: PrivacyLedger
    entry: int
    chains: int
    costs: tuple[Cost, ...]

    def claim(self) -> int:
        """Claim a chain, and return its number, from 0, which no other caller gets.

        Returns
        -------
        int

        Raises
        ------
        BudgetExceededError
            All chains that the entry paid for have begun, or the ledger has no such entry.
        """
        with self.ledger._file.transaction(write=True) as book:
            begun, paid = book.claimed(self.entry), book.paid(self.entry)
            if begun < paid:
                book.add("claim", (self.entry, begun, now()))
        if not paid:
            raise BudgetExceededError(
                f"The ledger has no entry {self.entry!r}, and nothing is paid for: claim from what "
                "ledger.reserve returned."
            )
        if begun >= paid:
            raise BudgetExceededError(
                f"All {paid} chains that entry {self.entry} of the ledger paid for have begun. Give "
                "chains= to the step as to pm.sample; to sample again, make a new step, which debits again."
            )
        return begun

    def __repr__(self) -> str:
        return f"Reservation(entry={self.entry}, chains={self.chains})"
