"""PipelineDP: collections of metrics by partition, with the standard deviations of their noise."""

from __future__ import annotations

import math
from typing import Any

from pymc_dp.importers._stated import GAUSSIAN, LAPLACE, stated_release
from pymc_dp.importers._tables import (
    ImportedTable,
    arrange,
    number_column,
    one_word,
    read_table,
    word_of,
)

_KINDS = {"laplace": LAPLACE, "gaussian": GAUSSIAN}
_SUFFIX = "_noise_stddev"


def pipelinedp(
    table: Any,
    value: str = "noised_value",
    *,
    noise_kind: Any = None,
    noise_stddev: str | None = None,
    axes: Any = None,
    sensitivity: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> ImportedTable:
    """Return a table that PipelineDP computed with ``output_noise_stddev=True`` as a release.

    Parameters
    ----------
    table : path, data frame or mapping
        One row for each partition: its key, and its metrics. CSV, TSV or parquet files, folders of part
        files, frames, columns by name.
    value : str, default "noised_value"
        The column of noisy numbers: ``"count"``, ``"privacy_id_count"``, ``"sum"``, or the default, which is
        what ``DPEngine.add_dp_noise`` gives.
    noise_kind : {"laplace", "gaussian"}, optional
        As in ``AggregateParams``; by default, the column ``noise_kind``. Standard deviations alone do not
        tell.
    noise_stddev : str, optional
        The column of standard deviations of the noise; by default `value` and ``_noise_stddev``, and
        ``noise_stddev`` beside ``noised_value``.
    axes : str or sequence of str, optional
        Key columns that become the axes of the release, every combination of labels being a row. By default,
        the release has one entry for each row.
    sensitivity : float, optional
        Largest change of all numbers together by one privacy unit: in the L1 norm for Laplace noise, in the
        L2 norm for Gaussian noise.
    epsilon, delta : float, optional
        The budget that was spent on this metric.

    Returns
    -------
    ImportedTable
        The guarantee of its release is None if neither sensitivity nor budget is given; it is for add-remove
        neighbours otherwise, since a privacy unit is added or removed.

    Raises
    ------
    TypeError, ValueError
        A column or the kind of noise is missing; numbers out of their range; two rows of one partition; keys
        that do not fill the axes.

    Notes
    -----
    The scale of Laplace noise is its standard deviation over sqrt 2. Private partition selection drops small
    partitions by a rule of its own, which is no part of the release here: the numbers of partitions that
    were kept are too large on average. With public partitions there is no such rule.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> table = {"day": [1, 2], "count": [31.2, 3.9], "count_noise_stddev": [2.8284271247461903] * 2}
    >>> counts = dp.importers.pipelinedp(table, "count", noise_kind="laplace", axes="day")
    >>> counts.release.parameters["scale"]
    2.0
    """
    columns = read_table(table)
    values = {"value": number_column(columns, value, "the noisy numbers, as value= says")}
    if noise_stddev is None:
        noise_stddev = "noise_stddev" if value == "noised_value" else f"{value}{_SUFFIX}"
    if noise_kind is None:
        word = one_word(columns, "noise_kind", "the kind of noise; or give it as noise_kind=")
    else:
        word = word_of(noise_kind)
    if word not in _KINDS:
        raise ValueError(f"noise_kind must be one of {', '.join(map(repr, _KINDS))}, got {word!r}.")
    law = _KINDS[word]
    values["level"] = number_column(columns, noise_stddev, "the noise, by output_noise_stddev=True")
    if law is LAPLACE:
        values["level"] = values["level"] / math.sqrt(2)
    others = (value, noise_stddev, "noise_kind")
    keys = {k: v for k, v in columns.items() if k not in others and not _of_a_metric(k, columns)}
    labels, arranged = arrange(keys, values, axes)
    release = stated_release(
        law, arranged["value"], arranged["level"], sensitivity=sensitivity, epsilon=epsilon, delta=delta,
        neighbours="add-remove", named=value, level_named=noise_stddev,
    )  # fmt: skip
    return ImportedTable(release, labels)


def _of_a_metric(name: str, columns: Any) -> bool:
    """Return whether a column is a metric or the noise of one, which is no key of its row."""
    return name.endswith(_SUFFIX) or f"{name}{_SUFFIX}" in columns
