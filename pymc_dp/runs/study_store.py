"""What a study has found, in a zarr store: one chunk for each fit, in a file or in memory."""

import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_dp.runs.checkpoint import compressors
from pymc_dp.runs.fits import Outcome
from pymc_dp.runs.locks import locked
from pymc_dp.runs.summaries import SUMMARY

if TYPE_CHECKING:
    import zarr

FORMAT = 3  # of 1 there was no digest of a fit, of 2 none of its status, error and seed
# Arrays of what is known of every fit, with what stands there until it has ended.
_OF_FITS: dict[str, tuple[Any, Any]] = {
    "status": (str, ""),
    "error": (str, ""),
    "seed": (np.int64, -1),
    "seconds": (np.float64, np.nan),
    "sha256": (str, ""),
}
# What is told of a fit beside its numbers, the status last.
_TOLD = ("error", "seed", "seconds", "status")
DRAWS = "_draws"
RESERVED = (*_OF_FITS, "acceptance", "replicate", "summary", "statistic", "chain", "draw")


class StudyStore:
    """The outcomes of a study.

    A fit is written chunk by chunk, its status last: what has no status has not ended. Arrays of variables
    are made when the first fit that succeeds is written. A digest of all that is known of a fit stands beside
    it, since zarr reads a file that is gone as missing values, and most that is damaged as something else.

    Parameters
    ----------
    path : Path or None
        Folder of the store, made if there is none; None keeps it in memory.
    description : dict
        What the study is; another one in the folder is refused.

    Raises
    ------
    ValueError
        The folder holds something else: another study, one of a newer version, no study.
    """

    def __init__(self, path: Path | None, description: dict[str, Any]):
        self.path, self.n = path, int(description["fits"])
        self._arrays: dict[str, Any] = {}
        if path is None:
            from zarr.storage import MemoryStore

            self._group = _begun(MemoryStore(), description)
            return
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            _create(path, description)
        self._group = _opened(path, description)

    @property
    def entropy(self) -> int:
        """Seed of the study."""
        return int(self._attribute("study")["entropy"])

    def missing(self, indices: Sequence[int]) -> list[int]:
        """Return which of some fits have not ended."""
        with self._readable():
            status = np.asarray(self._array("status")[:])
        return [k for k in indices if status[k] == ""]

    def write(self, outcome: Outcome) -> None:
        """Keep the outcome of a fit."""
        try:
            self._write(outcome)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise OSError(
                error.errno,
                f"path: no space is left in {self.path}. All fits that had ended are kept: make room and "
                "call replicate again, which makes those that are missing.",
            ) from error

    def _write(self, outcome: Outcome) -> None:
        k = outcome.index
        if outcome.summaries:
            self._make_arrays(outcome)
            outcome = self._fitting(outcome)
        numbers = {**outcome.summaries, **{name + DRAWS: of for name, of in outcome.draws.items()}}
        if outcome.acceptance:
            names = self._attribute("acceptance")
            numbers["acceptance"] = np.array([outcome.acceptance.get(n, np.nan) for n in names])
        for name, values in numbers.items():
            self._array(name)[k] = values
        told = {name: getattr(outcome, name) for name in _TOLD}
        self._array("sha256")[k] = _digest(numbers, told)
        for name, value in told.items():
            self._array(name)[k] = value

    def read(self, indices: Sequence[int]) -> xr.Dataset:
        """Return what is known of some fits.

        Raises
        ------
        ValueError
            A file of it is damaged.
        """
        with self._readable():
            found = (
                xr.open_zarr(self._group.store, consolidated=False, chunks=None)
                .isel(replicate=list(indices))
                .load()
            )
            _check_digests(found, indices)
            found = found.drop_vars("sha256")
        coords = {d: _values(written) for d, written in (self._attribute("coords") or {}).items()}
        named = {"replicate": np.asarray(indices, dtype=np.int64), **coords}
        if "summary" in found.dims:
            named["summary"] = np.array(SUMMARY)
        if "statistic" in found.dims:
            named["statistic"] = np.array(self._attribute("acceptance"))
        for name in ("status", "error"):
            found[name] = (found[name].dims, np.asarray(found[name].values, dtype=object).astype(str))
        found["status"] = xr.where(found["status"] == "", "missing", found["status"])
        found.attrs = {"study": json.dumps(self._attribute("study"))}
        return found.assign_coords(named)

    def _array(self, name: str) -> Any:
        if name not in self._arrays:
            self._arrays[name] = self._group[name]  # which reads a file
        return self._arrays[name]

    def _attribute(self, name: str) -> Any:
        return self._group.attrs.get(name)

    def _make_arrays(self, outcome: Outcome) -> None:
        if "acceptance" in self._group.attrs:
            return
        self._arrays.clear()  # a process that was killed may have made some, which are made anew
        with self._locked():
            if "acceptance" in self._group.attrs:
                return
            sizes = {}
            for name, values in outcome.summaries.items():
                dims = tuple(outcome.dims[name])
                sizes[name] = list(values.shape[1:])
                self._make(name, values, ("summary", *dims))
                if name in outcome.draws:
                    self._make(name + DRAWS, outcome.draws[name], ("chain", "draw", *dims))
            if outcome.acceptance:
                self._make("acceptance", np.empty(len(outcome.acceptance)), ("statistic",))
            self._group.attrs["coords"] = {d: _written(v) for d, v in outcome.coords.items()}
            self._group.attrs["shapes"] = sizes
            self._group.attrs["acceptance"] = sorted(outcome.acceptance)  # last: from now on all are there

    def _make(self, name: str, values: np.ndarray, dims: tuple[str, ...]) -> None:
        if name in self._group:  # half made by a process that was killed
            del self._group[name]
        self._group.create_array(
            name, shape=(self.n, *values.shape), chunks=(1, *values.shape), dtype=np.float64,
            fill_value=np.nan, compressors=compressors(),
            dimension_names=("replicate", *dims),
        )  # fmt: skip

    def _fitting(self, outcome: Outcome) -> Outcome:
        """Return the outcome, or its failure if its variables are others than those of the first fit."""
        shapes = {name: list(values.shape[1:]) for name, values in outcome.summaries.items()}
        known = self._attribute("shapes")
        if shapes == known:
            return outcome
        return Outcome(
            outcome.index, outcome.seed, "failed",
            f"ValueError: its variables have the shapes {shapes}, and those of the first fit {known}. Name "
            "variables of equal shapes in var_names.", outcome.seconds,
        )  # fmt: skip

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise ValueError(
                f"path: files of {self.path} cannot be read ({type(error).__name__}: {error}). They were "
                "left as they are. Restore them from a copy, or give another path: the same random_seed "
                "makes the same fits."
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self.path is None:
            yield
            return
        import zarr

        with locked(beside(self.path, "arrays")):
            self._group = zarr.open_group(self.path, mode="r+")
            yield


def _digest(numbers: dict[str, np.ndarray], told: dict[str, Any]) -> str:
    """Return a digest of the numbers of one fit, by the name of their array, and of what is told of it."""
    digest = hashlib.sha256()
    for name in sorted(numbers):
        digest.update(f"{name}:".encode())
        digest.update(np.ascontiguousarray(numbers[name], dtype="<f8").tobytes())
    for name in _TOLD:
        value = float(told[name]).hex() if name == "seconds" else str(told[name])
        digest.update(f"{name}:{len(value)}:{value}".encode())
    return digest.hexdigest()


def _check_digests(found: xr.Dataset, indices: Sequence[int]) -> None:
    """Refuse fits that have ended and of which something else is read than was written."""
    arrays = {str(name): of.values for name, of in found.data_vars.items() if name not in _OF_FITS}
    for at, k in enumerate(indices):
        told = {name: found[name].values[at] for name in _TOLD}
        if told["status"] == "":
            continue
        numbers = {} if told["status"] == "failed" else {name: values[at] for name, values in arrays.items()}
        if _digest(numbers, told) != str(found["sha256"].values[at]):
            raise ValueError(f"numbers of fit {k} are not those that were written")


def _written(values: Any) -> dict[str, Any]:
    """Return coordinates in JSON's terms; of dates their numbers, of other objects what they print."""
    array = np.asarray(values)
    kind = array.dtype.kind
    if kind in "mM":
        return {"dtype": array.dtype.str, "values": array.astype(np.int64).tolist()}
    if kind in "biufU":
        return {"dtype": array.dtype.str, "values": array.tolist()}
    plain = [v if v is None or isinstance(v, bool | int | float | str) else str(v) for v in array.tolist()]
    return {"dtype": "O", "values": plain}


def _values(written: Any) -> np.ndarray:
    return np.array(written["values"]).astype(written["dtype"]) if written["dtype"] != "O" else np.array(
        written["values"], dtype=object
    )  # fmt: skip


def beside(path: Path, name: str) -> Path:
    """Return the path of a file beside a store, in which zarr would not know it."""
    return path.with_name(f".{path.name}.{name}")


def _create(path: Path, description: dict[str, Any]) -> None:
    """Make a store at once, whoever else tries to: in a folder beside it, which then gets its name.

    The folder has a name that is nobody else's, on other machines either.
    """
    made = beside(path, secrets.token_hex(8))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _begun(made, description)
        os.rename(made, path)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError) and path.is_dir():  # somebody else was faster
            return
        if isinstance(error, OSError):
            raise OSError(
                error.errno,
                f"path: {path} cannot be made ({error.strerror}). Give a folder that can be written to.",
            ) from error
        raise


def _begun(store: Any, description: dict[str, Any]) -> "zarr.Group":
    import zarr  # here, because most sessions need none

    group = zarr.open_group(store, mode="w")
    for name, (dtype, fill) in _OF_FITS.items():
        group.create_array(
            name, shape=(description["fits"],), chunks=(1,), dtype=dtype, fill_value=fill,
            dimension_names=("replicate",),
        )  # fmt: skip
    entropy = description["entropy"]
    if entropy is None:
        entropy = secrets.randbits(63)
    group.attrs["study"] = {"format": FORMAT, **description, "entropy": entropy}
    return group


def _opened(path: Path, description: dict[str, Any]) -> "zarr.Group":
    import zarr

    kept: dict[str, Any] | None = None
    with suppress(Exception):
        group = zarr.open_group(path, mode="r+")
        kept = dict(group.attrs["study"])  # type: ignore[arg-type, call-overload]
    if kept is None:
        raise ValueError(
            f"path: {path} is there and holds no study that can be read. Give another path, or remove it if "
            "nothing in it is needed."
        )
    if kept["format"] > FORMAT:
        raise ValueError(
            f"path: {path} was written by a newer version of pymc_dp (format {kept['format']}, this one "
            f"knows {FORMAT}). Nothing was changed: update pymc_dp, or give another path."
        )
    if kept["format"] < FORMAT:
        raise ValueError(
            f"path: {path} was written by an older version of pymc_dp (format {kept['format']}, this one "
            f"writes {FORMAT}). Nothing was changed: xarray.open_zarr reads it; give another path to go on, "
            "in which the same random_seed makes the same fits."
        )
    differs = sorted(
        name for name, value in description.items() if value is not None and kept.get(name) != value
    )
    if differs:
        raise ValueError(
            f"path: {path} holds another study, which differs in {', '.join(differs)}"
            + "".join(
                f"; {name} there is {kept.get(name)!r}, here {description[name]!r}"
                for name in differs
                if len(repr(description[name])) < 60 and name not in ("model", "observed")
            )
            + ". Nothing was changed: give another path, or the arguments of the study there."
        )
    return group
