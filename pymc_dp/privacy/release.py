"""What a custodian publishes: a noisy value with everything that an analyst needs to know of it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from pymc_dp.privacy.guarantee import PrivacyGuarantee

FORMAT = "pymc_dp.Release"
VERSION = 1
_FIELDS = {"format", "version", "mechanism", "parameters", "guarantee", "value"}
_NOT_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@dataclass(frozen=True, eq=False)
class Release:
    """One published value: what was drawn, by which mechanism, and what it promises.

    A custodian gets it from a mechanism's ``release()`` and publishes it as JSON; an analyst passes it
    as ``observed=`` to the same mechanism, which takes its parameters from it. It holds nothing that
    is confidential.

    Parameters
    ----------
    value : array_like
        The noisy value; kept as a read-only array of booleans, integers or floats.
    mechanism : str
        Name of the mechanism's class, such as ``"LaplaceMechanism"``.
    parameters : mapping
        Keyword arguments that declare the mechanism again: the noise level as a number, the bounds,
        settings. Lists and arrays are kept as nested tuples.
    guarantee : PrivacyGuarantee or None
        What the release promises each person; None when it is not known.

    Attributes
    ----------
    version : int
        Version of the published format.

    Raises
    ------
    TypeError
        Something that JSON cannot hold without loss.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dp as dp
    >>> release = dp.LaplaceMechanism.release(
    ...     dp.record_sum(np.array([0.2, 0.9, 0.4])), epsilon=1, bounds=(0, 1)
    ... )
    >>> text = release.to_json()
    >>> dp.Release.from_json(text) == release
    True
    """

    version: ClassVar[int] = VERSION
    value: np.ndarray
    mechanism: str
    parameters: Mapping[str, Any]
    guarantee: PrivacyGuarantee | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, str) or not self.mechanism:
            raise TypeError(f"mechanism must be the name of a mechanism's class, got {self.mechanism!r}.")
        if self.guarantee is not None and not isinstance(self.guarantee, PrivacyGuarantee):
            raise TypeError(
                f"guarantee must be a PrivacyGuarantee or None, got {type(self.guarantee).__name__}."
            )
        value = np.array(self.value)
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise TypeError(
                f"value must hold booleans, integers or floats of at most 64 bits, got dtype {value.dtype}."
            )
        value.setflags(write=False)
        object.__setattr__(self, "value", value)
        parameters = {str(k): _freeze(f"parameters[{k!r}]", v) for k, v in dict(self.parameters).items()}
        object.__setattr__(self, "parameters", MappingProxyType(parameters))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Release):
            return NotImplemented
        return self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple:
        # not as the dataclass would: a mapping proxy cannot be pickled
        return type(self), (self.value, self.mechanism, dict(self.parameters), self.guarantee)

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.value.shape))
        what = f"{shape} values" if shape else f"the value {self.value}"
        promise = "Its guarantee is not known." if self.guarantee is None else str(self.guarantee)
        return f"Release of {what} by {self.mechanism}. {promise}"

    def to_json(self) -> str:
        """Return the release as JSON text, without loss.

        Floats are written with as many digits as bring back the same bits, integers in full.

        Returns
        -------
        str

        Examples
        --------
        >>> import pymc_dp as dp
        >>> release = dp.Release(0.1, "LaplaceMechanism", {"scale": 2.0})
        >>> dp.Release.from_json(release.to_json()).value
        array(0.1)
        """
        content = {
            "format": FORMAT,
            "version": VERSION,
            "mechanism": self.mechanism,
            "parameters": {k: _to_plain(v) for k, v in self.parameters.items()},
            "guarantee": None if self.guarantee is None else _guarantee_to_plain(self.guarantee),
            "value": {
                "dtype": self.value.dtype.name,
                "shape": list(self.value.shape),
                "data": [_to_plain(v) for v in self.value.ravel().tolist()],
            },
        }
        return json.dumps(content, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Release:
        """Return the release that a JSON text holds.

        Parameters
        ----------
        text : str or bytes
            What :meth:`to_json` returned.

        Returns
        -------
        Release

        Raises
        ------
        ValueError
            Not JSON, not a release, or written in a newer format than this version reads.

        Examples
        --------
        >>> import pymc_dp as dp
        >>> dp.Release.from_json('{"format": "pymc_dp.Release", "version": 99}')
        Traceback (most recent call last):
        ...
        ValueError: This release has format version 99, newer than version 1, the newest that ...
        """
        try:
            content = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_named_once)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"This is not a release: it is not JSON ({error}).") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(
                f'This JSON is not a release: its "format" is not {FORMAT!r}. Pass what '
                "Release.to_json() returned."
            )
        version = content.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError(f"This release has no valid format version, got {version!r}.")
        if version > VERSION:
            raise ValueError(
                f"This release has format version {version}, newer than version {VERSION}, the newest "
                "that this pymc_dp reads: install a newer pymc_dp."
            )
        if content.keys() != _FIELDS:
            missing, unknown = sorted(_FIELDS - content.keys()), sorted(content.keys() - _FIELDS)
            raise ValueError(f"This release is damaged: fields missing {missing}, not known {unknown}.")
        try:
            return cls(
                _array_from_plain(content["value"]),
                content["mechanism"],
                {k: _from_plain(v) for k, v in content["parameters"].items()},
                None if content["guarantee"] is None else _guarantee_from_plain(content["guarantee"]),
            )
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"This release is damaged: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the release to a file as JSON.

        Parameters
        ----------
        path : str or path-like
        """
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release:
        """Read a release from a file.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        Release

        Raises
        ------
        ValueError
            From :meth:`from_json`.
        """
        return cls.from_json(Path(path).read_text(encoding="utf-8"))


def _freeze(name: str, value: Any) -> Any:
    """Return a parameter as plain numbers, words and nested tuples."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(_freeze(name, v) for v in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{name} must be made of numbers, words and tuples of them, got {type(value).__name__}: a "
        "release is published as JSON."
    )


def _to_plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # JSON has no such numbers
    return value


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_plain(v) for v in value)
    if isinstance(value, dict):
        return _NOT_NUMBERS[value["float"]]
    return value


def _array_from_plain(content: dict) -> np.ndarray:
    dtype = np.dtype(content["dtype"])
    data = [_from_plain(v) for v in content["data"]]
    kinds: Any = {"b": bool, "i": int, "u": int}.get(dtype.kind, (int, float))
    if any(not isinstance(v, kinds) or (isinstance(v, bool) and dtype.kind != "b") for v in data):
        raise ValueError(f"an entry of the value does not fit dtype {dtype}.")
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in content["shape"]):
        raise ValueError("the shape of the value holds other than lengths.")
    return np.array(data, dtype=dtype).reshape(content["shape"])


def _guarantee_to_plain(guarantee: PrivacyGuarantee) -> dict[str, Any]:
    return {f.name: _to_plain(getattr(guarantee, f.name)) for f in fields(PrivacyGuarantee)}


def _guarantee_from_plain(content: dict[str, Any]) -> PrivacyGuarantee:
    return PrivacyGuarantee(**{k: _from_plain(v) for k, v in content.items()})


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; of two fields of one name a reader could see either."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("This release is damaged: a field is in it twice.")
    return dict(pairs)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"This is not a release: {name} is not JSON.")
