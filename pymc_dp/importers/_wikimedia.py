"""Wikimedia's daily pageviews by country, project and page: counts with noise, above a threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymc_dp.importers._stated import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, numbers_of, stated_release
from pymc_dp.importers._tables import ImportedTable, number_column, place, read_table, rows_where
from pymc_dp.privacy._checks import as_number

# Files have no header; those before 2017 have no items.
_COLUMNS = {
    7: ("country", "country_code", "project", "page_id", "page_title", "item_id", "count"),
    6: ("country", "country_code", "project", "page_id", "page_title", "count"),
}


def wikimedia(
    table: Any,
    keys: Mapping[str, Any],
    *,
    threshold: float,
    sigma: float | None = None,
    scale: float | None = None,
    where: Mapping[str, Any] | None = None,
    value: str = "count",
    sensitivity: float | None = None,
    epsilon: float | None = None,
    rho: float | None = None,
) -> ImportedTable:
    """Return pageviews that Wikimedia published as a release, with those below the threshold suppressed.

    Parameters
    ----------
    table : path, data frame or mapping
        A daily file, whose columns are ``country``, ``country_code``, ``project``, ``page_id``,
        ``page_title``, ``item_id`` (not before 2017) and ``count``; or a frame with these.
    keys : mapping of str to sequence
        Columns that become the axes of the release, each with the labels that it shall have:
        ``{"page_title": ["Ada_Lovelace", "Alan_Turing"]}``. What has no row was below the threshold. It takes
        part as such: the rows of a file alone are those that noise lifted.
    threshold : float
        Smallest number that was published.
    sigma, scale : float, optional
        Parameter of the discrete Gaussian noise, or scale of the discrete Laplace noise. It may also follow
        from `sensitivity` with `rho`, or with `epsilon`.
    where : mapping, optional
        Values, or lists of values, that columns must have, since noise and threshold differ between
        countries: ``{"country_code": "FR", "project": "fr.wikipedia"}``.
    value : str, default "count"
        The column of pageviews.
    sensitivity : float, optional
        Largest change of all counts together by one reader in one day: in the L2 norm for Gaussian noise (the
        root of 10 for 10 different pages), in the L1 norm for Laplace noise.
    epsilon, rho : float, optional
        The budget of one day.

    Returns
    -------
    ImportedTable
        Its release is processed by ``suppress_below``. The guarantee is None if neither sensitivity nor
        budget is given; it is for add-remove neighbours otherwise.

    Raises
    ------
    TypeError, ValueError
        The noise or a column is missing; counts that are not whole or below the threshold; two rows of one
        key.

    Notes
    -----
    The readme of the current data set states rho = 0.015, a noise scale of 10 and a threshold of 90 for most
    countries: with 10 pages a day, rho means sigma = 18.3, which is also what its intervals mean.

    References
    ----------
    Adeleye et al. (2023), *Publishing Wikipedia usage data with strong privacy guarantees*.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> table = {"page_title": ["Ada_Lovelace"], "count": [131]}
    >>> keys = {"page_title": ["Ada_Lovelace", "Alan_Turing"]}
    >>> views = dp.importers.wikimedia(table, keys, threshold=90, rho=0.015, sensitivity=10**0.5)
    >>> views.release.value
    array([131.,  nan])
    """
    if sigma is not None and scale is not None:
        raise ValueError("sigma and scale are both given: noise is Gaussian or Laplace, give one of them.")
    gaussian = sigma is not None or (scale is None and epsilon is None)
    noise = DISCRETE_GAUSSIAN if gaussian else DISCRETE_LAPLACE
    least = as_number("threshold", threshold)
    columns = rows_where(read_table(table, _COLUMNS), where)
    counts = number_column(columns, value, "the pageviews")
    below = numbers_of(value, counts) < least
    if below.any():
        raise ValueError(
            f"{value} has {counts[below][0]:g}, which is below threshold = {least:g} and would not have "
            "been published: the threshold is that of other countries or days, or the file is another."
        )
    labels, counts = place(columns, counts, keys, least - 1)
    release = stated_release(
        noise, counts, sigma if gaussian else scale, sensitivity=sensitivity, epsilon=epsilon, rho=rho,
        neighbours="add-remove", named=value,
    )  # fmt: skip
    return ImportedTable(release.postprocessed(suppress_below=least), labels)
