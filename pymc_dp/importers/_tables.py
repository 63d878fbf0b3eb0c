"""Tables of published numbers: read from a file or a data frame, columns by name, keys checked."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pymc_dp.importers._stated import numbers_of
from pymc_dp.privacy.release import Release

Columns = dict[str, np.ndarray]
# quotation marks are letters in TSV files
_DIALECTS: dict[str, Any] = {".csv": {}, ".tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE}}


@dataclass(frozen=True, eq=False)
class ImportedTable:
    """A table of published numbers as a release.

    Attributes
    ----------
    release : Release
        For ``observed=`` of the mechanism that it names.
    labels : dict of str to ndarray
        What the entries are of. With ``axes=``, the labels along each axis, in the order of the table:
        ``pm.Model(coords=table.labels)``. Without, each key column, with one label for each entry.
    """

    release: Release
    labels: dict[str, np.ndarray]


def read_table(table: Any, names: Mapping[int, Sequence[str]] | None = None) -> Columns:
    """Return the columns of a table.

    Parameters
    ----------
    table : path, data frame or mapping
        A CSV or TSV file (also with .gz), a parquet file, a folder of such part files as Spark writes them,
        a pandas or polars frame, or a mapping of names to arrays.
    names : mapping of int to sequence of str, optional
        Names of the columns of text files without a header, by their number. A last field that is a number
        in the first row tells that there is none.

    Returns
    -------
    dict of str to ndarray
        Text files are read as text, so that codes keep their leading zeros.
    """
    columns = _read_path(Path(table), names) if isinstance(table, str | os.PathLike) else _columns_of(table)
    if not columns or not len(next(iter(columns.values()))):
        raise ValueError("The table has no rows: there is nothing to import.")
    return columns


def _columns_of(table: Any) -> Columns:
    if hasattr(table, "toPandas"):
        raise TypeError("table is a Spark frame: pass table.toPandas(), or the file that it was written to.")
    if not isinstance(table, Mapping) and not hasattr(table, "columns"):
        raise TypeError(f"table must be a path, a data frame or columns by name, got {type(table).__name__}.")
    found = {str(name): np.asarray(table[name]) for name in getattr(table, "columns", table)}
    lengths = {name: len(column) if column.ndim else None for name, column in found.items()}
    if len(set(lengths.values())) > 1 or None in lengths.values():
        raise ValueError(f"table must have columns of one length, got {lengths}.")
    return found


def column_of(columns: Columns, name: Any, what: str) -> np.ndarray:
    """Return a column; name what is missing if it is not there."""
    if not isinstance(name, str) or name not in columns:
        raise ValueError(
            f"The column {name!r} is missing from the table ({what}). Its columns are "
            f"{', '.join(map(repr, columns))}."
        )
    return columns[name]


def number_column(columns: Columns, name: Any, what: str) -> np.ndarray:
    """Return a column as numbers, also where a text file holds them."""
    column = column_of(columns, name, what)
    if column.ndim != 1:
        raise ValueError(f"The column {name!r} must have one number in each row, got lists.")
    if column.dtype.kind in "OU" and all(isinstance(v, str) for v in column.ravel()):
        return np.array(_parsed(column, name))
    return numbers_of(f"The column {name!r}", column)


def one_word(columns: Columns, name: str, what: str) -> str:
    """Return the word that all rows of a column have."""
    words = {word_of(v) for v in column_of(columns, name, what)}
    if len(words) != 1:
        raise ValueError(
            f"The column {name!r} has {'no row' if not words else ' and '.join(sorted(words))}, and one "
            "release is of one mechanism: pass the rows of one at a time."
        )
    return words.pop()


def arrange(
    columns: Columns, values: dict[str, np.ndarray], axes: Any
) -> tuple[Columns, dict[str, np.ndarray]]:
    """Check the keys of a table; return labels, and the values arranged along axes.

    Parameters
    ----------
    columns : dict
        The key columns.
    values : dict
        Numbers by row.
    axes : sequence of str or None
        Key columns that become the axes, each combination of labels being one row; None keeps the rows.
    """
    if axes is None:
        rows = list(zip(*(_keys(columns, name, "a key") for name in columns)))
        refuse_duplicates(list(columns), rows)
        return columns, values
    axes = [axes] if isinstance(axes, str) else list(axes)
    indices, labels, shape = [], {}, []
    for axis in axes:
        column = _keys(columns, axis, "named in axes")
        first: dict[Any, int] = {}
        indices.append(np.array([first.setdefault(v, len(first)) for v in column], dtype=int))
        labels[axis] = np.array(list(first))
        shape.append(len(first))
    if not axes or len(set(axes)) < len(axes):
        raise ValueError(f"axes must name key columns, each once, got {axes!r}.")
    refuse_duplicates(axes, list(zip(*(columns[axis].tolist() for axis in axes))))
    flat = np.ravel_multi_index(indices, shape)
    if len(flat) != int(np.prod(shape)):
        missing = np.setdiff1d(np.arange(int(np.prod(shape))), flat)
        where = np.unravel_index(missing[0], shape)
        key = ", ".join(f"{a} = {labels[a][i]}" for a, i in zip(axes, where))
        raise ValueError(
            f"The table has {len(flat)} rows, which do not fill the shape {tuple(shape)} of its axes: there "
            f"is none for {key}. Leave axes out to have one entry for each row."
        )
    order = np.argsort(flat)
    return labels, {name: v[order].reshape(shape) for name, v in values.items()}


def _keys(columns: Columns, name: Any, what: str) -> list[Any]:
    """Return a column of keys: words, numbers, dates."""
    keys = column_of(columns, name, what).tolist()
    for key in keys:
        if isinstance(key, list | tuple | dict | set | np.ndarray):
            raise TypeError(
                f"The column {name!r} must be words or numbers, to be a key, got {type(key).__name__}: leave "
                "it out."
            )
    return keys


def place(
    columns: Columns, values: np.ndarray, keys: Any, fill: float
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return labels, and values at the places that keys give them; keys without a row get a number.

    Parameters
    ----------
    columns : dict
    values : ndarray
        Numbers by row.
    keys : mapping of str to sequence
        Columns that become the axes, with the labels of each.
    fill : float
        For what has no row.
    """
    if not isinstance(keys, Mapping) or not keys:
        raise TypeError('keys must map columns to their labels, as in {"page_title": ["Ada_Lovelace"]}.')
    labels = {axis: np.asarray(list(listed)) for axis, listed in keys.items()}
    inside, indices = np.ones(len(values), dtype=bool), []
    for axis, listed in labels.items():
        column = column_of(columns, axis, "named in keys")
        at = {str(label): k for k, label in enumerate(listed.tolist())}
        if len(at) < len(listed) or not at:
            raise ValueError(f"keys has {'a label twice' if at else 'no label'} for {axis}: name each once.")
        index = np.array([at.get(str(v), -1) for v in column.tolist()])
        inside &= index >= 0
        indices.append(index)
    rows = list(zip(*(index[inside].tolist() for index in indices)))
    refuse_duplicates(list(labels), [tuple(labels[a][i] for a, i in zip(labels, row)) for row in rows])
    placed = np.full([len(listed) for listed in labels.values()], fill)
    placed[tuple(index[inside] for index in indices)] = values[inside]
    return labels, placed


def rows_where(columns: Columns, where: Any) -> Columns:
    """Return the rows in which columns have the values, or one of the values, that are asked for."""
    kept = np.ones(len(next(iter(columns.values()))), dtype=bool)
    for name, asked in ({} if where is None else dict(where)).items():
        listed = isinstance(asked, Iterable) and not isinstance(asked, str)
        among = {str(v) for v in (asked if listed else [asked])}
        kept &= np.array([str(v) in among for v in column_of(columns, name, "named in where").tolist()])
    if not kept.any():
        raise ValueError(f"No row of the table has {where}: there is nothing to import.")
    return columns if kept.all() else {name: column[kept] for name, column in columns.items()}


def refuse_duplicates(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Refuse two rows of one key."""
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        if row in seen:
            key = ", ".join(f"{n} = {v}" for n, v in zip(names, row))
            raise ValueError(
                f"The table has two rows for {key}: which of them is the release, or whether both are, "
                "nobody can tell. Pass one at a time, or name the column that tells them apart as a key."
            )
        seen.add(row)


def _parsed(column: np.ndarray, name: str) -> list[float] | list[int]:
    for kind in (int, float):
        try:
            return [kind(v.replace("_", "x")) for v in column]  # Python takes 1_000 for a number
        except ValueError:
            continue
    for row, v in enumerate(column, 1):
        try:
            float(v.replace("_", "x"))
        except ValueError:
            raise ValueError(
                f"The column {name!r} must be numbers, got {str(v)!r} in row {row}: leave out of the table "
                "what was not published."
            ) from None
    raise AssertionError("one of the numbers is none")


def word_of(value: Any) -> str:
    """Return the name of a member of an enumeration, or the last part of one that was written as text."""
    return str(getattr(value, "name", value)).rpartition(".")[2].strip().lower()


def _read_path(path: Path, names: Mapping[int, Sequence[str]] | None) -> Columns:
    if path.is_dir():
        parts = [_read_path(p, names) for p in sorted(path.glob("part-*"))]
        if not parts:
            raise ValueError(f"{path} is a folder without part files, as Spark writes them.")
        if any(list(p) != list(parts[0]) for p in parts):
            raise ValueError(f"{path} has part files with different columns.")
        return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    kinds = [s.lower() for s in path.suffixes if s.lower() != ".gz"]
    kind = kinds[-1] if kinds else ""
    if kind == ".parquet":
        return _read_parquet(path)
    if kind not in _DIALECTS:
        raise ValueError(f"{path} must end in .csv, .tsv, .parquet, or the first two with .gz.")
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, **_DIALECTS[kind]) if row]
    except (csv.Error, UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise ValueError(
            f"{path} cannot be read as text with columns ({error}): read it yourself, and pass a frame."
        ) from None
    header = list(_header(path, rows, names))
    if len(set(header)) < len(header):
        raise ValueError(f"{path} has two columns of one name among {', '.join(header)}.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise ValueError(
                f"{path} has {len(row)} fields in row {number}, and {len(header)} columns: "
                f"{', '.join(header)}."
            )
    return {name: np.array([row[i] for row in rows], dtype=object) for i, name in enumerate(header)}


def _header(path: Path, rows: list[list[str]], names: Mapping[int, Sequence[str]] | None) -> Sequence[str]:
    """Return the names of columns; take them from the rows where they are the first of these."""
    if not rows:
        return ()
    if names is None or not rows[0][-1].lstrip("-").isdigit():
        return rows.pop(0)
    if len(rows[0]) not in names:
        raise ValueError(
            f"{path} has {len(rows[0])} columns and no header: {' or '.join(map(str, names))} are known."
        )
    return names[len(rows[0])]


def _read_parquet(path: Path) -> Columns:
    import pandas

    try:
        frame = pandas.read_parquet(path)
    except ImportError:
        raise ImportError(
            f"{path} is a parquet file, which needs pyarrow: install it, or read the file yourself and pass "
            "the data frame."
        ) from None
    return _columns_of(frame)
