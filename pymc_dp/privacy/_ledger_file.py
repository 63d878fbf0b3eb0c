"""The file of a ledger: SQLite, one transaction per debit, nothing kept between calls.

Every call opens a connection of its own, so that forked and unpickled copies are as good as the first. The
rollback journal is used rather than the write-ahead log: it needs no memory shared between processes, and
with synchronous = EXTRA a debit is on the disk when the call returns.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_APPLICATION = 0x70796470  # "pydp", where SQLite keeps what kind of file this is
_FORMAT = 1
_PATIENCE = 120.0  # seconds to wait for other processes
_TABLES = (
    "CREATE TABLE budget (epsilon REAL NOT NULL, delta REAL NOT NULL, identity TEXT NOT NULL)",
    """CREATE TABLE entry (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, user TEXT NOT NULL, likelihood TEXT NOT NULL,
        step TEXT NOT NULL, costs TEXT NOT NULL, chains INTEGER NOT NULL, insecure_noise INTEGER NOT NULL)""",
    """CREATE TABLE claim (
        entry INTEGER NOT NULL REFERENCES entry (id), chain INTEGER NOT NULL, at TEXT NOT NULL,
        PRIMARY KEY (entry, chain))""",
)


class LedgerFileError(ValueError):
    """The file of a ledger cannot be read or written, or is not what it should be."""


def temporary_path() -> Path:
    """Return a path in a new private folder, which is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="pymc_dp-ledger-")
    atexit.register(_remove, folder, os.getpid())
    return Path(folder) / "ledger.db"


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # forked workers leave it to the process that made it
        shutil.rmtree(folder, ignore_errors=True)


def create_or_check(path: Path, epsilon: float, delta: float) -> str:
    """Make the file where there is none, and return the identity of the ledger in it."""
    if path.is_dir():
        raise LedgerFileError(f"path = {str(path)!r} is a folder: give the name of a file in it.")
    if not path.parent.is_dir():
        raise LedgerFileError(
            f"path = {str(path)!r} is in a folder that does not exist: make it first, or mend the path."
        )
    with _transaction(path, "rwc", write=False) as connection:
        # Asked of SQLite and not of the file system: what a killed process began is undone by this.
        empty = _is_empty(connection)
    if empty:
        with _transaction(path, "rw", write=True) as connection:
            if _is_empty(connection):  # still: nobody else was faster
                for table in _TABLES:
                    connection.execute(table)
                identity = uuid.uuid4().hex
                connection.execute("INSERT INTO budget VALUES (?, ?, ?)", (epsilon, delta, identity))
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_FORMAT}")
    with _transaction(path, "rw", write=False) as connection:
        found = _checked_budget(connection, path)
    if found[:2] != (epsilon, delta):
        raise LedgerFileError(
            f"The ledger in {str(path)!r} was made with epsilon = {found[0]!r} and delta = {found[1]!r}, not "
            f"with epsilon = {epsilon!r} and delta = {delta!r}: the budget of a ledger is fixed when it is "
            "made. Open it with its own, or give another path."
        )
    return str(found[2])


@contextmanager
def transaction(path: Path, identity: str, *, write: bool) -> Iterator[sqlite3.Connection]:
    """Open the file for one transaction, committed at the end and undone by any exception."""
    if not path.exists():
        raise LedgerFileError(
            f"The ledger {str(path)!r} is gone. One without a path ends with the process that made it; a "
            "file must not be moved while it is in use: put it back."
        )
    with _transaction(path, "rw", write) as connection:
        if _checked_budget(connection, path)[2] != identity:
            raise LedgerFileError(
                f"The file {str(path)!r} was exchanged for another ledger after it was opened: put the first "
                "one back, or open the ledger again."
            )
        yield connection


@contextmanager
def _transaction(path: Path, mode: str, write: bool) -> Iterator[sqlite3.Connection]:
    try:
        # Autocommit, so that the transaction is exactly what is written here.
        address = f"{path.as_uri()}?mode={mode}"
        with closing(
            sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)
        ) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            # immediate: what is read is still so when it is written
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield connection
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise LedgerFileError(_in_words(error, path)) from error


def _in_words(error: sqlite3.Error, path: Path) -> str:
    what = str(error)
    if "not a database" in what or "malformed" in what or "encrypted" in what:
        return f"path = {str(path)!r} is not a ledger, or is damaged ({what}): give another path."
    if "readonly" in what or "unable to open" in what or "read-only" in what:
        return (
            f"The ledger {str(path)!r} cannot be written ({what}): a debit needs permission to write the "
            "file and its folder. Nothing was debited."
        )
    if "locked" in what or "busy" in what:
        return (
            f"The ledger {str(path)!r} was in use by other processes for more than {_PATIENCE:g} s: try "
            "again. Nothing was debited."
        )
    return f"The ledger {str(path)!r} cannot be used ({what}). See whether its disk is full or gone."


def _is_ledger(connection: sqlite3.Connection) -> bool:
    return connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION


def _is_empty(connection: sqlite3.Connection) -> bool:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return tables == 0 and connection.execute("PRAGMA application_id").fetchone()[0] == 0


def _checked_budget(connection: sqlite3.Connection, path: Path) -> tuple[float, float, str]:
    if not _is_ledger(connection):
        raise LedgerFileError(
            f"path = {str(path)!r} is a database of something else, not a ledger: give another path."
        )
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > _FORMAT:
        raise LedgerFileError(
            f"The ledger {str(path)!r} has format {found}, newer than {_FORMAT}, the newest that this "
            "pymc_dp reads: install a newer pymc_dp."
        )
    return connection.execute("SELECT epsilon, delta, identity FROM budget").fetchone()
