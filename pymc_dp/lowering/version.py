"""The package's source, as part of every key under which compiled code is kept on disk.

The keys of generated code hold that code, but not the functions of this package that it calls: after an
upgrade, or while working on a sampler, a cache would go on running the old ones.
"""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path


def digest(files: Iterable[Path]) -> int:
    """Return a number that changes with the contents of some files; PyTensor asks for an integer."""
    return int(sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:15], 16)


# reading the files takes some milliseconds
SOURCE = digest(Path(__file__).resolve().parents[1].rglob("*.py"))
