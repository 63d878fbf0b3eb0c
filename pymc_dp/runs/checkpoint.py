"""A run on disk: draws in a zarr store, and of each chain where it stands, written at once."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pymc_dp.runs.states import dumped, loaded

FORMAT = 1
_RUN, _DRAWS = "run.json", "draws.zarr"


class Checkpoint:
    """The folder of a run.

    Draws of a block are written first, then the state of the chain, which says how many count: whatever is
    beyond is written again, with the same values.

    Parameters
    ----------
    path : Path
    description : dict
        What the run is, in JSON's terms. `draws` may be larger than before; anything else that differs is
        refused.

    Raises
    ------
    ValueError
        The folder holds another run, one of a newer version, or something else.
    """

    def __init__(self, path: Path, description: dict[str, Any]):
        self.path = path
        kept = self._kept()
        if kept is None:
            self.description = {"format": FORMAT, **description}
            self._write(path / _RUN, json.dumps(self.description).encode())
            return
        refuse_other(path, kept, description)
        self.description = {**kept, "draws": max(kept["draws"], description["draws"])}
        if self.description != kept:
            self._write(path / _RUN, json.dumps(self.description).encode())

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.description["seed"])

    def chain(self, chain: int) -> dict[str, Any] | None:
        """Return where a chain stands, None if it has not begun.

        Returns
        -------
        dict
            ``done``, how many draws are kept; ``ends`` of their blocks, and their ``digest``; ``state`` of
            the steps; ``point``, by name of a variable.

        Raises
        ------
        ValueError
            The file is damaged, or of another run.
        """
        file = self.path / f"chain-{chain}.state"
        if not file.exists():
            return None
        header, _, body = file.read_bytes().partition(b"\n")
        try:
            known = json.loads(header)
            whole = known["sha256"] == hashlib.sha256(body).hexdigest()
            found = loaded(body) if whole else None
        except Exception as error:
            raise self._damaged(file, error) from error
        if found is None:
            raise self._damaged(file, "its digest is another")
        return found

    def keep(
        self, chain: int, first: int, last: int, arrays: Mapping[str, np.ndarray], total: int, block: int,
        state: dict[str, Any], before: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write the draws from `first` to `last` of a chain, then where it stands.

        `before` is where it stood, from which the digest of all its draws goes on.

        Raises
        ------
        OSError
            With what to do about it, if there is no space; nothing that was kept is lost.
        """
        try:
            group = self._group(chain)
            for name, values in arrays.items():
                if name not in group:
                    group.create_array(
                        name, shape=(total, *values.shape[1:]), chunks=(block, *values.shape[1:]),
                        dtype=values.dtype, compressors=compressors(),
                    )  # fmt: skip
                array: Any = group[name]
                if array.shape[0] < total:
                    array.resize((total, *values.shape[1:]))
                array[first:last] = values
            ends, digest = ([], "") if before is None else (before["ends"], before["digest"])
            known = {"done": last, "ends": [*ends, last], "digest": _chained(digest, arrays)}
            body = dumped({**known, **state})
            header = json.dumps({"chain": chain, "done": last, "sha256": hashlib.sha256(body).hexdigest()})
            self._write(self.path / f"chain-{chain}.state", header.encode() + b"\n" + body)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise OSError(
                error.errno,
                f"path: no space is left in {self.path}. All blocks before draw {first} of chain {chain} are "
                "kept: make room and call sample_in_blocks again, which goes on from there.",
            ) from error

    def draws(self, chain: int, kept: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return the draws of a chain that are kept, by name of an array.

        Raises
        ------
        ValueError
            They are not those that were written: zarr reads zeros where a file is gone.
        """
        folder = self.path / _DRAWS / str(chain)
        try:
            found = {name: np.asarray(array[: kept["done"]]) for name, array in self._group(chain).arrays()}
        except Exception as error:
            raise self._damaged(folder, error) from error
        digest, first = "", 0
        for last in kept["ends"]:
            digest = _chained(digest, {name: values[first:last] for name, values in found.items()})
            first = last
        if digest != kept["digest"]:
            raise self._damaged(folder, "draws are missing, or others than were written")
        return found

    def _group(self, chain: int) -> Any:
        import zarr  # here, because most sessions need none

        return zarr.open_group(self.path / _DRAWS, path=str(chain), mode="a")

    def _kept(self) -> dict[str, Any] | None:
        file = self.path / _RUN
        if not file.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            others = [p.name for p in self.path.iterdir() if p.name != "lock"]
            if others:
                raise ValueError(
                    f"path: {self.path} is there and holds {', '.join(sorted(others)[:3])}, but no run. Give "
                    "a path that does not exist, or an empty folder."
                )
            return None
        try:
            return dict(json.loads(file.read_bytes()))
        except ValueError as error:
            raise self._damaged(file, error) from error

    def _damaged(self, file: Path, why: Any) -> ValueError:
        return ValueError(
            f"path: {file} cannot be read ({why}). Nothing was changed. Restore it from a copy; without one, "
            "give another path to begin anew: what is in this one is still there."
        )

    def _write(self, file: Path, data: bytes) -> None:
        """Write a file at once, so that a kill leaves the old or the new one."""
        beside = file.with_name(f".{file.name}.partial")
        with open(beside, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(beside, file)


def refuse_other(path: Path, kept: dict[str, Any], description: dict[str, Any]) -> None:
    """Refuse a folder that holds another run than was asked for."""
    if kept.get("format", 0) > FORMAT:
        raise ValueError(
            f"path: {path} was written by a newer version of pymc_dp (format {kept['format']}; this one "
            f"knows {FORMAT}). Nothing was changed: update pymc_dp, or give another path."
        )
    differs = [name for name, value in description.items() if name != "draws" and kept.get(name) != value]
    if differs:
        raise ValueError(
            f"path: {path} holds another run, which differs in {', '.join(sorted(differs))}"
            + "".join(
                f"; {name} was {kept.get(name)!r}, is {description[name]!r}"
                for name in sorted(differs)
                if len(repr(description[name])) < 80 and name not in ("model", "observed")
            )
            + ". Nothing was changed: call with what that run was called with, or give another path."
        )
    if kept["draws"] > description["draws"]:
        raise ValueError(
            f"path: {path} holds a run of draws={kept['draws']}, which is more than {description['draws']}: "
            "give at least as many, or another path."
        )


def _chained(digest: str, arrays: Mapping[str, np.ndarray]) -> str:
    """Return the digest of a block of draws and of all blocks before it."""
    state = hashlib.sha256(digest.encode())
    for name, values in sorted(arrays.items()):
        state.update(f"{name} {values.dtype.str} {values.shape}".encode())
        state.update(np.ascontiguousarray(values).tobytes())
    return state.hexdigest()


def compressors() -> list[Any]:
    """Return how arrays are packed: with a checksum, so that damage is an error and not other numbers."""
    from zarr.codecs import Crc32cCodec, ZstdCodec

    return [ZstdCodec(), Crc32cCodec()]


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Refuse a folder that another process is writing to."""
    from pymc_dp.runs.locks import locked

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            error.errno,
            f"path: {path} cannot be made ({error.strerror}). Give a folder, one that is there or one that "
            "can be made.",
        ) from error
    with locked(
        path / "lock",
        f"path: another process is running this run in {path}. Wait for it, or give another path.",
    ):
        yield
