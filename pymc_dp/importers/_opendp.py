"""OpenDP: a value, the measurement that gave it, and what its privacy map says."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymc_dp.importers._stated import (
    DISCRETE_GAUSSIAN,
    DISCRETE_LAPLACE,
    GAUSSIAN,
    LAPLACE,
    Noise,
    numbers_of,
    stated_release,
)
from pymc_dp.privacy._checks import as_number, positive
from pymc_dp.privacy.release import Release

# noise by whether it is Gaussian, and whether it is of whole numbers
_KINDS = {
    (False, False): LAPLACE, (False, True): DISCRETE_LAPLACE,
    (True, False): GAUSSIAN, (True, True): DISCRETE_GAUSSIAN,
}  # fmt: skip
_ADDED = ("make_laplace", "make_gaussian", "make_geometric", "make_noise")
# combinators that restate the privacy of a measurement and leave its value as it is
_RESTATED = {"make_fix_delta", "make_approximate", "make_pureDP_to_zCDP", "make_zCDP_to_approxDP"}
_NEIGHBOURS = {
    "symmetric_distance": "add-remove", "insert_delete_distance": "add-remove",
    "change_one_distance": "replace-one", "hamming_distance": "replace-one",
}  # fmt: skip
_SUPPRESSED = " Declare the noise, and what was suppressed by dp.postprocessed."
_FINEST = 2.0**-10  # of the scale: below that, steps of the noise do not show in its density


def opendp(
    value: Any,
    measurement: Any,
    *,
    d_in: Any = None,
    d_out: Any = None,
    sensitivity: float | None = None,
    neighbours: str | None = None,
) -> Release:
    """Return what an OpenDP measurement gave as a release.

    Parameters
    ----------
    value : float, int or array_like
        What the measurement returned.
    measurement : opendp.mod.Measurement, str, mapping or path
        The measurement, or its JSON as ``opendp.prelude.serialize`` writes it: as text, parsed, or in a file.
        ``make_laplace``, ``make_gaussian``, ``make_geometric`` and ``make_noise`` are read, also after
        transformations and with their privacy restated (``make_fix_delta``).
    d_in : float, optional
        How far data of neighbours are apart, in the measurement's input metric. If that is the distance of
        what noise is added to, it is the sensitivity.
    d_out : float or (float, float), optional
        What ``measurement.map(d_in)`` says, in the measurement's output measure: epsilon, rho, or epsilon and
        delta. Computed where the measurement itself is given with `d_in`.
    sensitivity : float, optional
        That of the query, where it follows from none of these.
    neighbours : {"add-remove", "replace-one"}, optional
        Whom the guarantee compares, where the input metric does not tell.

    Returns
    -------
    Release
        With guarantee None if nothing is said of sensitivity or budget.

    Raises
    ------
    TypeError, ValueError
        The measurement is not noise added to numbers, or lacks a field; what is stated of the release is
        missing, out of its range, or contradictory.

    Notes
    -----
    OpenDP draws noise on floats in multiples of 2^k; the density here is that of the continuous law, which a
    ``k`` that shows in it is refused for.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> text = '''{"__function__": "make_laplace", "__module__": "measurements", "__kwargs__":
    ... {"input_domain": {"__function__": "atom_domain", "__kwargs__": {"T": "i32"}},
    ... "input_metric": {"__function__": "absolute_distance", "__kwargs__": {"T": "i32"}},
    ... "scale": 2.0, "k": null, "MO": "MaxDivergence"}, "__version__": "0.14.0"}'''
    >>> print(dp.importers.opendp(31, text, d_in=1, neighbours="add-remove"))
    Release of the value 31 by DiscreteLaplaceMechanism. Pure differential privacy with epsilon = 0.5,
    for add-remove neighbours.
    """
    parts = _parts_of(_read(measurement))
    scale = positive("scale", _field(parts.given, "scale", parts.names[-1]))
    noise = _KINDS[_is_gaussian(parts), _is_whole(parts.given, value)]
    _refuse_other_laws(parts.given, scale, noise)
    if d_in is not None and d_out is None and hasattr(measurement, "map"):
        d_out = measurement.map(d_in)
    if d_in is not None and not parts.transformed:
        if sensitivity is not None and as_number("sensitivity", sensitivity) != as_number("d_in", d_in):
            raise ValueError(
                f"sensitivity = {sensitivity!r} contradicts d_in = {d_in!r}, which is measured in what "
                "noise is added to: give d_in alone."
            )
        sensitivity = d_in
    if d_in is not None and sensitivity is None and d_out is None:
        raise ValueError(
            "d_out is missing: d_in is a distance before the transformations of this measurement, and their "
            "stability map is in OpenDP only. Give d_out = measurement.map(d_in), or sensitivity=."
        )
    budget = {} if d_out is None else _budget(parts, d_out)
    return stated_release(
        noise, value, scale, sensitivity=sensitivity, **budget,
        neighbours=_NEIGHBOURS.get(parts.metric) if neighbours is None else neighbours,
    )  # fmt: skip


@dataclass
class _Parts:
    """A measurement taken apart.

    Attributes
    ----------
    names : list of str
        Functions that made it, from the outermost to the one that adds noise.
    given : mapping
        Arguments of the one that adds noise.
    metric : str
        Metric of the data, before any transformation.
    transformed : bool
        Whether there is one.
    """

    names: list[str] = field(default_factory=list)
    given: Mapping[str, Any] = field(default_factory=dict)
    metric: str = ""
    transformed: bool = False


def _read(measurement: Any) -> Mapping[str, Any]:
    if isinstance(measurement, os.PathLike):
        measurement = Path(measurement).read_text(encoding="utf-8")
    if isinstance(measurement, str | bytes):
        try:
            measurement = json.loads(measurement)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"measurement is not JSON ({error}): pass what opendp.prelude.serialize(measurement) "
                "returned, or its file as a pathlib.Path."
            ) from None
    node = _fields(measurement)
    if "__function__" not in node:
        raise ValueError(
            "The field __function__ is missing from measurement: pass the measurement, or what "
            "opendp.prelude.serialize(measurement) returned."
        )
    return node


def _fields(node: Any) -> Mapping[str, Any]:
    node = getattr(node, "__opendp_dict__", node)
    return node if isinstance(node, Mapping) else {}


def _field(given: Mapping[str, Any], name: str, of: Any) -> Any:
    if given.get(name) is None:
        raise ValueError(
            f"The field {name} is missing from {of} in measurement, so that its noise is not stated."
        )
    return given[name]


def _parts_of(node: Mapping[str, Any]) -> _Parts:
    parts = _Parts()
    while True:
        if "__function__" not in node:
            raise ValueError(f"The field __function__ is missing inside of {parts.names[-1]} in measurement.")
        name, given = str(node["__function__"]), _fields(node.get("__kwargs__", {}))
        parts.names.append(name)
        if name in _ADDED:
            parts.given, parts.metric = given, parts.metric or _metric(given)
            return parts
        if name == "make_chain_mt":
            parts.metric, parts.transformed = parts.metric or _metric_of_data(given), True
            node = _fields(_field(given, "measurement1", name))
        elif name in _RESTATED:
            node = _fields(_field(given, "measurement", name))
        else:
            hint = _SUPPRESSED if name.endswith("_threshold") else ""
            raise ValueError(
                f"measurement is {name}, which is not noise added to numbers: {', '.join(_ADDED)} are, "
                f"one at a time.{hint}"
            )


def _metric(given: Mapping[str, Any]) -> str:
    return str(_fields(given.get("input_metric")).get("__function__"))


def _metric_of_data(given: Mapping[str, Any]) -> str:
    """Return the metric before the first of the transformations."""
    while "transformation0" in given:
        given = _fields(_fields(given["transformation0"]).get("__kwargs__"))
    return _metric(given)


def _is_gaussian(parts: _Parts) -> bool:
    if parts.names[-1] == "make_noise":  # its noise follows from the measure of privacy
        measure = _fields(_field(parts.given, "output_measure", "make_noise")).get("__function__")
        return measure == "zero_concentrated_divergence"
    return parts.names[-1] == "make_gaussian"


def _is_whole(given: Mapping[str, Any], value: Any) -> bool:
    """Return whether noise is added to integers: by the domain, or where that is computed, by the value."""
    domain = _fields(_fields(given.get("input_domain")).get("__kwargs__"))
    atom = _fields(_fields(domain.get("atom_domain")).get("__kwargs__")) or domain
    stated = atom.get("T")
    if isinstance(stated, str) and stated[:1] in ("i", "u", "f"):
        return stated[:1] != "f"
    return numbers_of("value", value).dtype.kind in "iu"


def _refuse_other_laws(given: Mapping[str, Any], scale: float, noise: Noise) -> None:
    k = given.get("k")
    if not noise.whole and k is not None and as_number("k", k) > math.log2(_FINEST * scale):
        raise ValueError(
            f"k = {k} of measurement makes noise in steps of 2^{k}, which is not small "
            f"beside scale = {scale:g}: the density of continuous noise is not that of this release. "
            "Declare it with dp.CustomMechanism."
        )
    if given.get("bounds") is not None:
        raise ValueError(
            "measurement has bounds, to which the noisy value is clamped: declare the noise, and "
            "dp.postprocessed(value, clip=bounds)."
        )


def _budget(parts: _Parts, d_out: Any) -> dict[str, Any]:
    """Return d_out as the budget that it is in the measurement's output measure."""
    concentrated = _is_gaussian(parts) or "make_pureDP_to_zCDP" in parts.names
    fixed = "make_fix_delta" in parts.names
    if "make_zCDP_to_approxDP" in parts.names and not fixed:
        raise ValueError(
            "d_out is a privacy profile, not a number: give that of the measurement before "
            "make_zCDP_to_approxDP, or after make_fix_delta."
        )
    pair = isinstance(d_out, tuple | list)
    if pair != (fixed or "make_approximate" in parts.names) or (pair and len(d_out) != 2):
        raise ValueError(
            f"d_out = {d_out!r} is not in the measurement's output measure: that of {parts.names[0]} is "
            f"{'one number' if pair else 'a pair with delta'}."
        )
    distance, delta = d_out if pair else (d_out, 0.0)
    if not concentrated or fixed:
        return {"epsilon": distance, "delta": delta}
    if delta:
        raise ValueError(
            f"d_out = {d_out!r} is zero-concentrated with a delta, which no guarantee here states: give that "
            "of the measurement before make_approximate."
        )
    return {"rho": distance}
