"""Tumult Analytics: tables of group-by queries, and their noise information."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pymc_dp.importers._stated import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, GAUSSIAN, LAPLACE, stated_release
from pymc_dp.importers._tables import (
    ImportedTable,
    arrange,
    number_column,
    one_word,
    read_table,
    word_of,
)
from pymc_dp.privacy._checks import as_number

_MECHANISMS = {
    "laplace": LAPLACE, "geometric": DISCRETE_LAPLACE,
    "gaussian": GAUSSIAN, "discrete_gaussian": DISCRETE_GAUSSIAN,
}  # fmt: skip
_MECHANISM, _PARAMETER = "noise_mechanism", "noise_parameter"


def tumult(
    table: Any,
    value: str,
    *,
    noise: Any = None,
    axes: Any = None,
    sensitivity: float | None = None,
    epsilon: float | None = None,
    rho: float | None = None,
) -> ImportedTable:
    """Return a table that Tumult Analytics published as a release.

    Parameters
    ----------
    table : path, data frame or mapping
        The output of a query: key columns, and noisy numbers. CSV, TSV or parquet files, folders of part
        files as Spark writes them, frames, columns by name.
    value : str
        The column of noisy numbers, such as ``"count"``.
    noise : mapping, optional
        The query's noise information, ``{"noise_mechanism": "GEOMETRIC", "noise_parameter": 2.0}``. By
        default, these two are columns of the table.
    axes : str or sequence of str, optional
        Key columns that become the axes of the release, every combination of labels being a row. By default,
        the release has one entry for each row.
    sensitivity : float, optional
        Largest change of all numbers together by one protected unit: in the L1 norm for Laplace and geometric
        noise, in the L2 norm for Gaussian noise.
    epsilon, rho : float, optional
        The budget that was spent on this query, pure or zero-concentrated.

    Returns
    -------
    ImportedTable
        The guarantee of its release is None if neither sensitivity nor budget is given; it is for add-remove
        neighbours otherwise, since rows of a protected unit are added or removed.

    Raises
    ------
    TypeError, ValueError
        A column or the noise is missing; numbers out of their range; two rows of one key; keys that do not
        fill the axes; noise that is not added to numbers (quantiles).

    Notes
    -----
    The noise parameter is the scale of Laplace and geometric noise, and the *variance* sigma^2 of Gaussian
    noise.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> table = {"county": ["A", "B"], "count": [31, 4]}
    >>> noise = {"noise_mechanism": "GEOMETRIC", "noise_parameter": 2.0}
    >>> counts = dp.importers.tumult(table, "count", noise=noise, axes="county", epsilon=0.5)
    >>> print(counts.release)
    Release of 2 values by DiscreteLaplaceMechanism. Pure differential privacy with epsilon = 0.5,
    for add-remove neighbours.
    """
    columns = read_table(table)
    values = {"value": number_column(columns, value, "the noisy numbers, as value= says")}
    if noise is None:
        what = "the noise; or give it as noise="
        word = one_word(columns, _MECHANISM, what)
        values["level"] = number_column(columns, _PARAMETER, what)
    else:
        word, parameter = _information(noise)
        values["level"] = np.full(len(values["value"]), parameter)
    if word not in _MECHANISMS:
        raise ValueError(
            f"{_MECHANISM} is {word.upper()}, which is not noise added to numbers: "
            f"{', '.join(k.upper() for k in _MECHANISMS)} are."
        )
    law = _MECHANISMS[word]
    keys = {k: v for k, v in columns.items() if k not in (value, _MECHANISM, _PARAMETER)}
    if law.level == "sigma":  # the parameter is sigma^2; what is not above 0 is refused below, by its name
        values["level"] = np.where(values["level"] > 0, np.sqrt(np.abs(values["level"])), values["level"])
    labels, arranged = arrange(keys, values, axes)
    release = stated_release(
        law, arranged["value"], arranged["level"], sensitivity=sensitivity, epsilon=epsilon, rho=rho,
        neighbours="add-remove", named=value, level_named=_PARAMETER,
    )  # fmt: skip
    return ImportedTable(release, labels)


def _information(noise: Any) -> tuple[str, float]:
    parts = list(noise) if isinstance(noise, Iterable) and not isinstance(noise, Mapping | str) else [noise]
    if len(parts) != 1:
        raise ValueError(
            f"noise has {len(parts)} parts, and one column of numbers has one: pass the part of this column."
        )
    if not isinstance(parts[0], Mapping):
        raise TypeError(
            f"noise must be a mapping of {_MECHANISM} and {_PARAMETER}, got {type(parts[0]).__name__}: pass "
            "the query's noise information."
        )
    for name in (_MECHANISM, _PARAMETER):
        if parts[0].get(name) is None:
            raise ValueError(f"The field {name} is missing from noise: pass the query's noise information.")
    return word_of(parts[0][_MECHANISM]), as_number(_PARAMETER, parts[0][_PARAMETER])
