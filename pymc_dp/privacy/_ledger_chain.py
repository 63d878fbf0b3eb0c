"""The contents of a ledger: rows of debits and of claims, each chained to the row before it by a digest.

The digests need no secret. So the chain shows accidents and careless edits, but somebody who wants to deceive
can compute it anew, in the ledger and in the file beside it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pymc_dp.privacy._ledger_head import FORMAT, Head, LedgerFileError

_APPLICATION = 0x70796470  # "pydp", in the field in which SQLite stores the type of a file
_TABLES = (
    "CREATE TABLE budget (epsilon REAL NOT NULL, delta REAL NOT NULL, identity TEXT NOT NULL)",
    """CREATE TABLE entry (
        id INTEGER PRIMARY KEY, at TEXT NOT NULL, user TEXT NOT NULL, likelihood TEXT NOT NULL,
        step TEXT NOT NULL, costs TEXT NOT NULL, chains INTEGER NOT NULL, insecure_noise INTEGER NOT NULL,
        digest TEXT NOT NULL)""",
    """CREATE TABLE claim (
        id INTEGER PRIMARY KEY, entry INTEGER NOT NULL REFERENCES entry (id), chain INTEGER NOT NULL,
        at TEXT NOT NULL, digest TEXT NOT NULL, UNIQUE (entry, chain))""",
)
_COLUMNS = {
    "entry": "at, user, likelihood, step, costs, chains, insecure_noise",
    "claim": "entry, chain, at",
}
CHAINS = tuple(_COLUMNS)  # the tables, in the order of Head.counts


class Book:
    """The contents of a ledger, within one transaction.

    Parameters
    ----------
    connection : sqlite3.Connection
    budget : tuple
        Epsilon and delta, and the identity of the ledger.
    rows : dict
        Rows of the tables of entries and of claims; each row begins with its number.
    head : Head
    version : int
        Format of the file.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        budget: tuple[float, float, str],
        rows: dict[str, list[tuple]],
        head: Head,
        version: int,
    ) -> None:
        self._claimed = Counter(entry for _, entry, *_ in rows.get("claim", ()))
        self.connection, self.budget, self.rows, self.head, self.version = (
            connection, budget, rows, head, version,
        )  # fmt: skip

    def add(self, table: str, row: Sequence[Any]) -> int:
        """Append a row to the chain of a table, and return its number."""
        at = CHAINS.index(table)
        number = self.head.counts[at] + 1
        digest = _digest(self.head.digests[at], (number, *row))
        marks = ", ".join("?" * (len(row) + 2))
        self.connection.execute(
            f"INSERT INTO {table} (id, {_COLUMNS[table]}, digest) VALUES ({marks})", (number, *row, digest)
        )
        counts, digests = list(self.head.counts), list(self.head.digests)
        counts[at], digests[at] = number, digest
        self.head = Head(self.head.identity, tuple(counts), tuple(digests))
        return number

    def claimed(self, entry: int) -> int:
        """Return how many chains of an entry have begun."""
        return self._claimed[entry]

    def paid(self, entry: int) -> int:
        """Return how many chains an entry paid for; 0 if there is no such entry."""
        return next((chains for number, *_, chains, _ in self.rows["entry"] if number == entry), 0)


def fill(connection: sqlite3.Connection, budget: tuple[float, float, str]) -> Book:
    for table in _TABLES:
        connection.execute(table)
    connection.execute("INSERT INTO budget VALUES (?, ?, ?)", budget)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    return Book(connection, budget, {}, Head(budget[2], (0, 0), (_digest("", budget),) * 2), FORMAT)


def _digest(before: str, row: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps([before, *row]).encode()).hexdigest()


def read(connection: sqlite3.Connection, path: Path, *marks: Head) -> Book:
    """Return the contents of the file; refuse it unless it is one chain without gaps through all marks."""
    version = _version(connection, path, marks)
    budgets = connection.execute("SELECT epsilon, delta, identity FROM budget").fetchall()
    if [tuple(map(type, budget)) for budget in budgets] != [(float, float, str)]:
        raise LedgerFileError(_changed(path, "its budget"))
    (budget,) = budgets
    for mark in marks:
        if mark.identity != budget[2]:
            raise LedgerFileError(
                f"The file {str(path)!r} was exchanged for another ledger, or the file beside it was: put "
                "back the one that was there first, or move both files of a ledger together."
            )
    rows, counts, digests = {}, [], []
    for at, table in enumerate(CHAINS):
        digest = "digest" if version == FORMAT else "NULL"
        number = "id" if version == FORMAT or table == "entry" else "rowid"
        found = connection.execute(
            f"SELECT {number}, {_COLUMNS[table]}, {digest} FROM {table} ORDER BY {number}"
        ).fetchall()
        kind = {"entry": "debit", "claim": "claim of a chain"}[table]
        through = [_digest("", budget)]
        for expected, (*row, stored) in enumerate(found, 1):
            if row[0] != expected:
                raise LedgerFileError(_changed(path, f"{kind} {expected} is missing: something"))
            try:
                through.append(_digest(through[-1], row))
            except TypeError:
                raise LedgerFileError(_changed(path, f"{kind} {expected}")) from None
            if stored not in ((None,) if version < FORMAT else (through[-1],)):
                raise LedgerFileError(_changed(path, f"{kind} {expected} or its budget"))
        for mark in marks:
            if mark.counts[at] > len(found):
                raise LedgerFileError(_older(path, kind, len(found), mark.counts[at]))
            if through[mark.counts[at]] != mark.digests[at]:
                upto = f" or a {kind} up to number {mark.counts[at]}" if mark.counts[at] else ""
                raise LedgerFileError(_changed(path, f"its budget{upto}"))
        rows[table] = [tuple(row) for *row, _ in found]
        counts.append(len(found))
        digests.append(through[-1])
    return Book(connection, budget, rows, Head(budget[2], tuple(counts), tuple(digests)), version)


def _changed(path: Path, what: str) -> str:
    return (
        f"The ledger {str(path)!r} is damaged: {what} was changed after it was written. Put back the file "
        "as it was after its last debit; if it is lost, take its budget for spent."
    )


def _older(path: Path, kind: str, found: int, made: int) -> str:
    return (
        f"The ledger {str(path)!r} has {found} of {made} (each one a {kind}): rows were deleted, or an "
        "older copy was put in its place. Put back the file as it was after the last one; if it is lost, "
        "so is what the others cost: take its budget for spent."
    )


def _version(connection: sqlite3.Connection, path: Path, marks: Sequence[Head]) -> int:
    application, version, tables = (
        connection.execute(question).fetchone()[0]
        for question in (
            "PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master",
        )
    )  # fmt: skip
    if application == tables == 0:
        count = f"{max(mark.counts[0] for mark in marks)} debits" if marks else "what was in it, if anything,"
        raise LedgerFileError(
            f"path = {str(path)!r} is an empty file, and {count} may be lost: put back the ledger that was "
            "there. If there never was one, delete the file: a ledger is made only where there is none."
        )
    if application != _APPLICATION:
        raise LedgerFileError(
            f"path = {str(path)!r} is a database of something else, not a ledger: give another path."
        )
    if version > FORMAT:
        raise LedgerFileError(
            f"The ledger {str(path)!r} has format {version}, newer than {FORMAT}, the newest that this "
            "pymc_dp reads: install a newer pymc_dp."
        )
    if version < 1:
        raise LedgerFileError(_changed(path, "the number of its format"))
    return int(version)
