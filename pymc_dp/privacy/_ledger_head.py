"""The file beside a ledger: it carries the lock that every call takes, and the ledger's last state.

SQLite locks its file by POSIX advisory locks, which a process loses as soon as it closes any descriptor of
that file, as a thread that makes a backup does. So calls exclude each other by flock(2) on a separate file.
Such a lock belongs to the descriptor by which it was taken: closing other descriptors does not release it,
and threads exclude each other as processes do, since each opens the file anew.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

FORMAT = 2  # format of the ledger and of this file
_SLOT = 512  # bytes that a disk writes in one piece
_BEGINNING = f'{{"format": {FORMAT}, '.encode()
_SQLITE = b"SQLite format 3\0"
_PAUSE = 0.002  # seconds between two attempts to get the lock


class LedgerFileError(ValueError):
    """The file of a ledger cannot be read or written, or its contents are not as they should be."""


@dataclass(frozen=True)
class Head:
    """The state of a ledger: how many rows it has, and their last digests.

    Parameters
    ----------
    identity : str
        Identity of the ledger.
    counts, digests : tuple
        Numbers of rows in the tables of entries and of claims, and the digest of the last row of each.
    """

    identity: str
    counts: tuple[int, ...]
    digests: tuple[str, ...]


class Opened:
    """What one call of a ledger has open. Closing it again does nothing."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self.connections: list[sqlite3.Connection] = []

    def close(self) -> None:
        """Close connections, then give the lock back and close descriptors."""
        for connection in self.connections:
            connection.close()
        for descriptor in self.descriptors:
            # closing is not enough: a process that another thread forked meanwhile has the descriptor too
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        while self.descriptors:
            os.close(self.descriptors.pop())


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.opened: dict[Path, Opened] = {}


_of_thread = _OfThread()


def opened_by_this_call(path: Path) -> Opened:
    """Return what a call will have open of a file, after closing what an interrupted one has left open.

    Python may raise KeyboardInterrupt within whatever closes or unlocks a file. Calls of one thread are not
    nested, so that whatever its last one has not closed is left over.
    """
    if path in _of_thread.opened:
        _of_thread.opened[path].close()
    # not the same object: who has the last one, perhaps a traceback, may close it at any time
    _of_thread.opened[path] = opened = Opened()
    return opened


class SideFile:
    """The file beside a ledger, while its lock is held.

    Heads are written to two places in turn, so that the previous head survives if a write is interrupted.
    """

    def __init__(self, path: Path, opened: Opened, writable: bool) -> None:
        self.path, self.opened, self.writable = path, opened, writable

    @property
    def _descriptor(self) -> int:
        return self.opened.descriptors[0]

    def read(self) -> Head | None:
        """Return the head that was written last, or None if none was ever written."""
        found = self._found()
        return None if found is None else found[1]

    def write(self, head: Head) -> None:
        """Write a head; on return it is on the disk."""
        found = self._found()
        serial = 0 if found is None else found[0] + 1
        text = json.dumps({"format": FORMAT, "serial": serial, **asdict(head)})
        line = f"{text} {_sum(text)}".ljust(_SLOT - 1).encode() + b"\n"
        for slot in (0, 1) if found is None else (serial % 2,):
            if os.pwrite(self._descriptor, line, slot * _SLOT) != _SLOT:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._descriptor)
        if found is None:
            sync_folder(self.path.parent)

    def _found(self) -> tuple[int, Head] | None:
        try:
            lines = [os.pread(self._descriptor, _SLOT, slot * _SLOT) for slot in (0, 1)]
        except OSError as error:
            raise LedgerFileError(
                f"The file {str(self.path)!r} beside the ledger cannot be read ({error.strerror}): mend it, "
                "or put it back. Nothing was debited."
            ) from None
        if lines[0].startswith(_SQLITE) or not _begins_as_a_head(lines[0]):
            what = "is a database, perhaps a ledger, and not" if lines[0].startswith(_SQLITE) else "is not"
            raise LedgerFileError(
                f"The file {str(self.path)!r} {what} what belongs to a ledger under this name. Nothing was "
                "changed: leave it as it is, and give another path. If there is a ledger beside it, move "
                "this file elsewhere and put back the one that was there."
            )
        if len(lines[0]) < _SLOT:  # the first head was not written yet, or the file was cut off
            return None
        found = [head for head in map(_parsed, lines) if head is not None]
        if not found:
            raise LedgerFileError(
                f"The file {str(self.path)!r}, which says how far the ledger beside it had come, is damaged "
                "or of a newer pymc_dp: put it back as it was, or, if it is lost, delete it and open the "
                "ledger with entries=, the number of debits that you know it had."
            )
        return max(found, key=lambda each: each[0])


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _begins_as_a_head(line: bytes) -> bool:
    """Return whether a place is empty or has the beginning of a head, as a crash may leave it."""
    return len(line) == _SLOT or _BEGINNING.startswith(line.rstrip(b"\0")[: len(_BEGINNING)])


def _parsed(line: bytes) -> tuple[int, Head] | None:
    try:
        text, _, checked = line.decode("ascii").rstrip().rpartition(" ")
        if len(line) != _SLOT or checked != _sum(text):
            return None
        content = json.loads(text)
        if content["format"] != FORMAT:
            return None
        head = Head(content["identity"], tuple(content["counts"]), tuple(content["digests"]))
        return content["serial"], head
    except (ValueError, KeyError, TypeError):
        return None


@contextmanager
def locked(path: Path, patience: float, *, create: bool = False) -> Iterator[SideFile]:
    """Hold the lock; refuse if the file is gone and may not be made, or after `patience` seconds."""
    until = time.monotonic() + patience
    opened = opened_by_this_call(path)
    while True:
        try:
            writable = _open(path, create, opened)
            (descriptor,) = opened.descriptors
            _wait(path, descriptor, until, patience)
            if not _is_at(path, descriptor):
                continue  # the file was deleted or replaced while this call waited
            _check_that_it_excludes(path, opened)
            yield SideFile(path, opened, writable)
            return
        finally:
            try:
                opened.close()
            finally:
                opened.close()  # if the first one was interrupted; after another, the next call does it


def _open(path: Path, create: bool, opened: Opened) -> bool:
    """Open the file, and return whether it can be written."""
    try:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        opened.descriptors.append(os.open(path, flags, 0o666))
        return True
    except FileNotFoundError:
        raise LedgerFileError(
            f"The file {str(path)!r}, which belongs to the ledger beside it, is gone: put it back."
        ) from None
    except OSError as error:
        try:
            opened.descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))  # users who may only read
            return False
        except OSError:
            raise LedgerFileError(
                f"The file {str(path)!r} beside the ledger cannot be written ({error.strerror}): a debit "
                "needs permission to write both files and their folder. Nothing was debited."
            ) from None


def _wait(path: Path, descriptor: int, until: float, patience: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise LedgerFileError(
                    f"The ledger beside {str(path)!r} was in use by other processes for more than "
                    f"{patience:g} s: try again. Nothing was debited."
                ) from None
            time.sleep(_PAUSE)
        except OSError as error:
            raise LedgerFileError(_no_locks(path, str(error.strerror))) from None


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _check_that_it_excludes(path: Path, opened: Opened) -> None:
    """Refuse a file system that implements flock(2) as a POSIX lock, which belongs to the process."""
    _open(path, False, opened)
    try:
        fcntl.flock(opened.descriptors[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    except OSError as error:
        raise LedgerFileError(_no_locks(path, str(error.strerror))) from None
    raise LedgerFileError(_no_locks(path, "a second lock was granted beside the first"))


def _no_locks(path: Path, what: str) -> str:
    return (
        f"The file system of {str(path)!r} has no locks that can be relied on ({what}): keep the ledger on a "
        "local disk. Nothing was debited."
    )


def sync_folder(folder: Path) -> None:
    """Write the names of a folder's files to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
