"""The noisy measurement files of the United States census: one release for each geography and query."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pymc_dp.importers._stated import DISCRETE_GAUSSIAN, levels_of, numbers_of, stated_release, values_of
from pymc_dp.importers._tables import column_of, number_column, read_table, refuse_duplicates, rows_where
from pymc_dp.privacy.release import Release

Key = tuple[str, str]
_NAMES = ("geocode", "query_name")
_EXACT = {"=", "=="}
_BETWEEN = {"<=", ">="}


@dataclass(frozen=True, eq=False)
class NoisyMeasurements:
    """What a noisy measurement file holds, by geocode and name of the query.

    Attributes
    ----------
    releases : dict of (str, str) to Release
        Noisy counts.
    invariants : dict of (str, str) to ndarray
        Counts without noise, for ``observed=`` of :class:`~pymc_dp.Invariant`.
    bounds : dict of (str, str) to (str, ndarray)
        Inequalities, as their sign and their numbers: what was known to the publisher besides.
    unmeasured : list of (str, str)
        Queries of the file on which no budget was spent.
    """

    releases: dict[Key, Release]
    invariants: dict[Key, np.ndarray]
    bounds: dict[Key, tuple[str, np.ndarray]]
    unmeasured: list[Key]


def census(
    table: Any,
    constraints: Any = None,
    *,
    where: Mapping[str, Any] | None = None,
    sensitivity: float | None = None,
) -> NoisyMeasurements:
    """Return the noisy measurements of a census, each as a release.

    Parameters
    ----------
    table : path, data frame or mapping
        The file of noisy measurements, with the columns ``geocode``, ``query_name``, ``query_shape``,
        ``value`` and ``variance``. Lists in text files are written as in JSON.
    constraints : path, data frame or mapping, optional
        The file of constraints beside it, with ``sign`` in the place of ``variance``.
    where : mapping, optional
        Values, or lists of values, that columns must have: ``{"geocode": "0500000US01001"}``.
    sensitivity : float, optional
        Largest change of one query in the L2 norm when a person is exchanged: the root of 2 for a table in
        which everybody is in one cell, which the files do not say.

    Returns
    -------
    NoisyMeasurements
        The guarantees of its releases are None without `sensitivity`; each is that of one query alone.

    Raises
    ------
    TypeError, ValueError
        A column is missing; a noisy query without variance; a value that is not whole, or does not fit its
        shape; two rows of one geography and query; a sign that is none.

    Notes
    -----
    Noise is discrete Gaussian, and the files state its variance, which for small noise is less than the
    square of its parameter sigma: for variances below 2, sigma is solved for.

    References
    ----------
    Abowd et al. (2022), *The 2020 Census Disclosure Avoidance System TopDown Algorithm*; U.S. Census Bureau,
    2020 Census Redistricting Data (P.L. 94-171) Noisy Measurement File.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> table = {
    ...     "geocode": ["01"], "query_name": ["votingage_dpq"], "query_shape": [[2]],
    ...     "value": [[1032, 287]], "variance": [44.2],
    ... }
    >>> nmf = dp.importers.census(table, sensitivity=2**0.5)
    >>> print(nmf.releases["01", "votingage_dpq"])
    Release of 2 values by DiscreteGaussianMechanism. Zero-concentrated differential privacy with
    rho = 0.0226244, for replace-one neighbours.
    """
    columns = rows_where(read_table(table), where)
    variances = number_column(columns, "variance", "the noise")
    releases: dict[Key, Release] = {}
    unmeasured = []
    for key, named, value, shape, row in _queries(columns):
        if np.isposinf(variances[row]) and not _is_known(value):
            unmeasured.append(key)
            continue
        variance = levels_of(f"variance of {key[1]} in {key[0]}", variances[row], ())
        releases[key] = stated_release(
            DISCRETE_GAUSSIAN, _shaped(named, value, shape), _sigma_of(float(variance)), named=named,
            sensitivity=sensitivity, neighbours="replace-one",
        )  # fmt: skip
    exact: dict[Key, np.ndarray] = {}
    bounds = {}
    if constraints is not None:
        known = rows_where(read_table(constraints), where)
        signs = column_of(known, "sign", "whether a constraint is exact")
        for key, named, value, shape, row in _queries(known):
            sign = str(signs[row]).strip()
            numbers = values_of(named, _shaped(named, value, shape), DISCRETE_GAUSSIAN)
            if sign in _EXACT:
                exact[key] = numbers
            elif sign in _BETWEEN:
                bounds[key] = (sign, numbers)
            else:
                raise ValueError(f"sign of {key[1]} in {key[0]} must be =, <= or >=, got {sign!r}.")
    return NoisyMeasurements(releases, exact, bounds, unmeasured)


def _queries(columns: dict[str, np.ndarray]) -> list[tuple[Key, str, Any, Any, int]]:
    """Return key, name for messages, value, shape and row of each query."""
    codes, names = (column_of(columns, name, "what a row is of") for name in _NAMES)
    shapes = column_of(columns, "query_shape", "lengths of the axes of a query")
    values = column_of(columns, "value", "its numbers")
    keys: list[Key] = [(str(code), str(name)) for code, name in zip(codes, names)]
    refuse_duplicates(_NAMES, keys)
    return [
        (key, f"value of {key[1]} in {key[0]}", _listed(values[row]), _listed(shapes[row]), row)
        for row, key in enumerate(keys)
    ]


def _is_known(value: Any) -> bool:
    return value is not None and bool(np.isfinite(numbers_of("value", value)).any())


def _shaped(named: str, value: Any, shape: Any) -> np.ndarray:
    flat = np.ravel(numbers_of(named, value))
    lengths = np.ravel(numbers_of(f"query_shape beside the {named}", shape))
    if not (lengths >= 0).all() or (lengths != np.floor(lengths)).any() or np.prod(lengths) != flat.size:
        raise ValueError(
            f"{named} has {flat.size} numbers, which do not fit query_shape = {lengths.tolist()}: the row is "
            "damaged, or of another query."
        )
    return flat.reshape([int(n) for n in lengths])


def _listed(value: Any) -> Any:
    """Return a list that a text file holds; an empty field is none."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(f"A list must be written as in JSON, [1, 2, 3], got {value[:40]!r}.") from None


@lru_cache
def _sigma_of(variance: float) -> float:
    """Return the parameter of discrete Gaussian noise of a variance."""
    if variance > 2:  # they agree to rounding
        return math.sqrt(variance)
    import scipy.optimize

    squares = np.arange(1.0, 40.0) ** 2

    def excess(log_sigma: float) -> float:
        weights = np.exp(-0.5 * squares * math.exp(-2 * log_sigma))
        return float(2 * (squares * weights).sum() / (1 + 2 * weights.sum())) - variance

    ends = math.log(0.02), math.log(1.5)
    return math.exp(scipy.optimize.brentq(excess, *ends, xtol=1e-15, rtol=1e-14))
