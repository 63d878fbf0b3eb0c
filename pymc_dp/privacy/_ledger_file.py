"""The SQLite file of a ledger. Between calls only its last known state (a `Head`) is kept.

Every call opens a connection of its own, so that forked and unpickled copies of a ledger work like the first.
It uses SQLite's rollback journal rather than the write-ahead log, because the journal needs no memory that
processes share, and with synchronous = EXTRA a debit is on the disk when the call returns.

Rows are chained by their digests, and the file beside the ledger (`_ledger_head.py`) has the last digest. A
debit is first committed, then noted in the file beside, then granted. So after a crash the ledger agrees with
the note, or is ahead of it by debits that were never granted, which count all the same. A ledger that is
behind the note is an older copy, or was edited.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sqlite3
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pymc_dp.privacy._ledger_chain import CHAINS, Book, fill, read
from pymc_dp.privacy._ledger_head import (
    FORMAT,
    Head,
    LedgerFileError,
    Opened,
    SideFile,
    locked,
    opened_by_this_call,
    sync_folder,
)

_log = logging.getLogger("pymc")
_PATIENCE = 120.0  # seconds to wait for other processes
_OF_SQLITE = ("-journal", "-wal", "-shm")  # ends of the names by which SQLite finds parts of a file


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a file."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise TypeError(f"path must be the name of a file, or None for a temporary one, got {path!r}.")
    try:
        name = os.fsdecode(path)
        os.fsencode(name)
    except UnicodeError:
        raise ValueError(f"path = {path!r} cannot be the name of a file: it has broken characters.") from None
    if "\0" in name:
        raise ValueError(f"path = {path!r} cannot be the name of a file: it has a null character.")
    return Path(name).absolute()


def _check_name(path: Path) -> None:
    """Refuse names that belong to files beside another ledger, which SQLite may delete or heads overwrite."""
    for end in (*_OF_SQLITE, ".head"):
        if path.name.lower().endswith(end):
            raise LedgerFileError(
                f"path = {str(path)!r} ends in {end!r}, as a file does that belongs to another ledger, with "
                "which it would be deleted or written over: give another name. If there is a ledger of this "
                f"name already, rename it, and {path.name + '.head'!r} beside it in the same way."
            )


def _check_reachable(path: Path) -> None:
    """Refuse names that are too long, links in a circle, and folders that may not be entered."""
    for name in (str(path) + end for end in ("", ".head", *_OF_SQLITE)):
        try:
            os.stat(name)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise LedgerFileError(
                f"path = {str(path)!r} cannot be that of a ledger, since {name!r} cannot be that of a file "
                f"({error.strerror}): give another path."
            ) from None


def _unused_name() -> str:
    return f".pymc_dp-{uuid.uuid4().hex}.new"


def temporary_path() -> Path:
    """Return a path in a new private folder, which is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="pymc_dp-ledger-")
    atexit.register(_remove, folder, os.getpid())
    return Path(folder) / "ledger.db"


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # forked workers leave the removal to the process that made the folder
        shutil.rmtree(folder, ignore_errors=True)


class LedgerFile:
    """A ledger's file and the file beside it, opened, created or converted to the newest format.

    Parameters
    ----------
    path : Path
    epsilon, delta : float
        The budget; if the file exists, it must be the budget of the file.
    entries : int or None
        How many debits the file must have; needed if the file beside it is lost.

    Attributes
    ----------
    budget : tuple of float
        Epsilon and delta, as stored in the file.
    new : bool
        Whether the file was created.
    migrated : bool
        Whether the file was converted to the newest format.
    """

    def __init__(self, path: Path, epsilon: float, delta: float, entries: int | None) -> None:
        _check_reachable(path)
        if path.is_dir():
            raise LedgerFileError(f"path = {str(path)!r} is a folder: give the name of a file in it.")
        if not path.parent.is_dir():
            raise LedgerFileError(
                f"path = {str(path)!r} is in a folder that does not exist: make it first, or mend the path."
            )
        self.path = Path(os.path.realpath(path))  # a link and the file that it names are one ledger
        _check_reachable(self.path)
        for name in (path, self.path):
            _check_name(name)
        self.beside = self.path.with_name(self.path.name + ".head")
        self._seen: Head | None = None
        self.migrated = False
        if entries and not self.path.exists():
            raise LedgerFileError(
                f"entries = {entries}, but there is no file {str(path)!r}: mend the path, or put the ledger "
                "back."
            )
        if self.path.exists() and not self.beside.exists():
            opened = opened_by_this_call(self.path)
            with _connected(self.path, False, opened) as connection:  # before a head is created beside it
                self._check_alone(read(connection, self.path), entries)
        with locked(self.beside, _PATIENCE, create=True) as side:
            self.new = not self.path.exists()
            if self.new:
                self._make(side, epsilon, delta)
            with self._checked(side, write=False, entries=entries) as book:
                pass
            if book.version < FORMAT:
                self._migrate(side)
            elif side.read() is None:
                _note(side, book.head)
        if book.budget[:2] != (epsilon, delta):
            raise LedgerFileError(
                f"The ledger in {str(path)!r} was made with epsilon = {book.budget[0]!r} and delta = "
                f"{book.budget[1]!r}, not with epsilon = {epsilon!r} and delta = {delta!r}: the budget of a "
                "ledger is fixed when it is made. Open it with its own, or give another path."
            )
        self.budget, self._seen = book.budget[:2], book.head

    @property
    def identity(self) -> str:
        """An identity that no other ledger has, whatever their file names."""
        assert self._seen is not None
        return self._seen.identity

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Book]:
        """Open the file for one transaction, which is committed at the end, and undone by any exception."""
        self._check_there()
        with locked(self.beside, _PATIENCE) as side:
            if write and not side.writable:
                raise LedgerFileError(
                    f"The file {str(self.beside)!r} beside the ledger cannot be written: a debit needs "
                    "permission to write both files and their folder. Nothing was debited."
                )
            with self._checked(side, write) as book:
                before = book.head
                yield book
            if book.head != before:
                _note(side, book.head)
            self._seen = book.head

    def _check_there(self) -> None:
        if not self.path.exists():
            raise LedgerFileError(
                f"The ledger {str(self.path)!r} is gone. One without a path ends with the process that made "
                "it; a file must not be moved while it is in use: put it back."
            )

    @contextmanager
    def _checked(self, side: SideFile, write: bool, entries: int | None = None) -> Iterator[Book]:
        with _connected(self.path, write, side.opened) as connection:
            noted = side.read()
            book = read(connection, self.path, *filter(None, (noted, self._seen)))
            if noted is None:
                self._check_alone(book, entries)
            elif entries is not None and entries != book.head.counts[0]:
                raise LedgerFileError(self._other_number(book, entries))
            yield book

    def _check_alone(self, book: Book, entries: int | None) -> None:
        """Refuse a ledger without the file beside it, unless the user states its number of debits."""
        count = book.head.counts[0]
        if book.version < FORMAT and entries is None:
            return  # the first format had no file beside it
        if entries is None:
            raise LedgerFileError(
                f"The file {str(self.beside)!r}, which says how far the ledger {str(self.path)!r} had come, "
                "is not there or is cut off, so that nobody can tell whether debits are missing: put it back "
                f"from where the ledger came, since both belong together. If it is lost: {count} debits are "
                f"in the ledger; if you know that there were no more, open it once with entries={count}."
            )
        if entries != count:
            raise LedgerFileError(self._other_number(book, entries))

    def _other_number(self, book: Book, entries: int) -> str:
        return (
            f"entries = {entries}, but the ledger {str(self.path)!r} has {book.head.counts[0]} debits. If "
            "there are too few, put the whole file back; if there are more, look at them, opened without "
            "entries=."
        )

    def _make(self, side: SideFile, epsilon: float, delta: float) -> None:
        """Make the file under another name first, so that it never exists in part."""
        noted = side.read()
        beside = [self.path.with_name(self.path.name + end) for end in _OF_SQLITE]
        left = next(filter(os.path.lexists, beside), None)
        if (noted is not None and any(noted.counts)) or left is not None:
            what = (
                f"of its debits, {noted.counts[0]}, only the number is"
                if noted is not None
                else f"its journal {str(left)!r} is"
            )
            raise LedgerFileError(
                f"The ledger {str(self.path)!r} is gone, and {what} left beside it: put the file back. A "
                "budget that begins anew, on top of what was spent from this one, needs another path."
            )
        unfinished = self.path.with_name(_unused_name())
        try:
            # O_EXCL: a file that was not made here is neither written nor removed
            os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            try:
                with _connected(unfinished, True, side.opened) as connection:
                    fill(connection, (epsilon, delta, uuid.uuid4().hex))
                with _connected(unfinished, False, side.opened) as connection:
                    head = read(connection, unfinished).head
                _note(side, head)
                os.rename(unfinished, self.path)
            except BaseException:
                for end in ("", "-journal"):
                    unfinished.with_name(unfinished.name + end).unlink(missing_ok=True)
                raise
            sync_folder(self.path.parent)
        except OSError as error:
            raise LedgerFileError(
                f"The ledger {str(self.path)!r} cannot be made ({error.strerror}): its folder must be "
                "writable, and have room."
            ) from None

    def _migrate(self, side: SideFile) -> None:
        """Convert a file of the first format, by chaining its rows."""
        if side.read() is None:
            with self._checked(side, write=False) as book:
                _note(side, book.head)  # first, since a file of the newest format needs a noted head
        with self._checked(side, write=True) as book:
            for table in ("claim", "entry", "budget"):
                book.connection.execute(f"DROP TABLE {table}")
            fresh = fill(book.connection, book.budget)
            for table in CHAINS:
                for _, *row in book.rows[table]:
                    fresh.add(table, row)
        self.migrated = True


def say_where(file: LedgerFile, path: Path | None, *, relative: bool) -> None:
    """Log where the budget is stored: if the file is not found later, the budget may be spent twice."""
    if path is None:
        warnings.warn(
            "PrivacyLedger without a path: it ends with this process, and what is spent from it is "
            "forgotten then. Give path= where the rows may be used in another session.",
            stacklevel=3,
        )
        return
    if file.migrated:
        warnings.warn(
            f"The ledger {str(path)!r} had the format of an earlier pymc_dp and now has the "
            f"newest: its debits are chained, and {file.beside.name!r} beside it says how far it "
            "had come; keep both together. Debits that were lost before cannot be found: under the "
            "earlier format they could be, "
            "where the process that debited also read the file by other means, as for a backup.",
            stacklevel=3,
        )
    new = file.new
    _log.info(f"PrivacyLedger {str(path)!r}: {'new, nothing is spent' if new else 'opened'}.")
    if new and relative:
        warnings.warn(
            f"A new ledger was made, {str(path)!r}: nothing is spent from it. From another folder "
            "the same relative path begins anew: if there is a ledger of these rows already, open it "
            "by its absolute path.",
            stacklevel=3,
        )


def _note(side: SideFile, head: Head) -> None:
    try:
        side.write(head)
    except OSError as error:
        raise LedgerFileError(
            f"The file {str(side.path)!r} beside the ledger cannot be written ({error.strerror}), so that "
            "nothing is granted: make room or mend the disk, then try again. What was debited by this "
            "call, if anything, stays debited."
        ) from None


@contextmanager
def _connected(path: Path, write: bool, opened: Opened) -> Iterator[sqlite3.Connection]:
    try:
        address = f"{path.as_uri()}?mode=rw"
        # Autocommit mode, so that transactions begin and end only where this code says so. What an interrupt
        # left may be closed by another thread, where Python's collector of garbage happens to run.
        opened.connections.append(
            sqlite3.connect(
                address, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
        )
        with closing(opened.connections[-1]) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            # IMMEDIATE locks the file, so that it cannot change between reading and writing
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield connection
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise LedgerFileError(_in_words(error, path)) from error


def _in_words(error: sqlite3.Error, path: Path) -> str:
    what = str(error)
    if any(
        word in what
        for word in ("not a database", "malformed", "encrypted", "no such", "UTF-8", "unsupported")
    ):
        return (
            f"path = {str(path)!r} is not a ledger, or is damaged ({what}): put back the file as it was "
            "after its last debit, or give another path."
        )
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
