"""One process at a time, by a lock that the system releases when its holder dies."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, refused: str | None = None) -> Iterator[None]:
    """Hold the lock of a file, which is made.

    Parameters
    ----------
    path : Path
    refused : str, optional
        What to say where somebody else holds it; by default wait.

    Raises
    ------
    BlockingIOError
        Somebody else holds it, and `refused` is given.
    """
    try:
        file = open(path, "a")
    except OSError as error:
        raise OSError(
            error.errno,
            f"path: {path.parent} cannot be written to ({error.strerror}). Give another path, or a copy of "
            "that folder where files can be made.",
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refused else 0))
        except BlockingIOError:
            raise BlockingIOError(refused) from None
        yield
