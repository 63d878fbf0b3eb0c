"""The release that a custodian publishes: a noisy value with all that an analyst needs to know."""

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

from pymc_dp.privacy._checks import words
from pymc_dp.privacy.guarantee import PrivacyGuarantee

FORMAT = "pymc_dp.Release"
VERSION = 1
_FIELDS = {"format", "version", "mechanism", "parameters", "guarantee", "value"}
_NOT_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
# Only these names are read: NumPy would accept names of types of any size, or of Python objects.
_DTYPES = {
    name: np.dtype(name)
    for name in ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
                 "float16", "float32", "float64")
}  # fmt: skip
_DEEPEST = 32  # limit of nested tuples, and of axes of a value
_LARGEST = 2**64
_LONGEST = 300  # characters of a message that quotes a file


@dataclass(frozen=True, eq=False)
class Release:
    """One published value, with its mechanism, parameters and privacy guarantee.

    A custodian gets it from a mechanism's ``release()`` and publishes it as JSON. An analyst passes it as
    ``observed=`` to the same mechanism, which takes its parameters from it. It contains nothing confidential.

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
        The guarantee of the release for each person; None when it is not known.

    Attributes
    ----------
    version : int
        Version of the published format.

    Raises
    ------
    TypeError, ValueError
        An argument cannot be written to JSON without loss, or could not be read back: whole numbers of more
        than 64 bits, tuples nested more than 32 deep, halves of surrogate pairs in text.

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
        words("mechanism", self.mechanism)
        if self.guarantee is not None and not isinstance(self.guarantee, PrivacyGuarantee):
            raise TypeError(
                f"guarantee must be a PrivacyGuarantee or None, got {type(self.guarantee).__name__}."
            )
        value = np.array(self.value)
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise TypeError(
                f"value must hold booleans, integers or floats of at most 64 bits, got dtype {value.dtype}."
            )
        if value.ndim > _DEEPEST:
            raise ValueError(f"value must have at most {_DEEPEST} axes, got {value.ndim}.")
        value.setflags(write=False)
        object.__setattr__(self, "value", value)
        parameters = {
            words("parameters", str(k)): _freeze(f"parameters[{k!r}]", v)
            for k, v in dict(self.parameters).items()
        }
        object.__setattr__(self, "parameters", MappingProxyType(parameters))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Release):
            return NotImplemented
        return self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple:
        # not the default of a dataclass, since a mapping proxy cannot be pickled
        return type(self), (self.value, self.mechanism, dict(self.parameters), self.guarantee)

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.value.shape))
        what = f"{shape} values" if shape else f"the value {self.value}"
        promise = "Its guarantee is not known." if self.guarantee is None else str(self.guarantee)
        return f"Release of {what} by {self.mechanism}. {promise}"

    def to_json(self) -> str:
        """Return the release as JSON text, without loss.

        Floats are written with enough digits to restore the same bits, and integers in full.

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
        """Return the release that a JSON text contains.

        Parameters
        ----------
        text : str or bytes
            The text that :meth:`to_json` returned.

        Returns
        -------
        Release

        Raises
        ------
        TypeError
            `text` is neither str nor bytes.
        ValueError
            The text is not JSON, not a release, damaged, or in a newer format than this version reads.
            Whatever the text, no other error is raised, and memory use is a small multiple of the text's
            size.

        Examples
        --------
        >>> import pymc_dp as dp
        >>> dp.Release.from_json('{"format": "pymc_dp.Release", "version": 99}')
        Traceback (most recent call last):
        ...
        ValueError: This release has format version 99, newer than version 1, the newest that ...
        """
        if not isinstance(text, str | bytes | bytearray):
            raise TypeError(f"text must be the JSON text of a release, got {type(text).__name__}.")
        try:
            content = json.loads(
                text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole,
                object_pairs_hook=_named_once,
            )  # fmt: skip
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"This is not a release: it is not JSON ({_short(error)}).") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(
                f'This JSON is not a release: its "format" is not {FORMAT!r}. Pass what '
                "Release.to_json() returned."
            )
        version = content.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError(f"This release has no valid format version, got {_short(repr(version))}.")
        if version > VERSION:
            raise ValueError(
                f"This release has format version {version}, newer than version {VERSION}, the newest "
                "that this pymc_dp reads: install a newer pymc_dp."
            )
        if content.keys() != _FIELDS:
            missing, unknown = sorted(_FIELDS - content.keys()), sorted(content.keys() - _FIELDS)
            raise ValueError(
                f"This release is damaged: fields missing {missing}, not known {_short(unknown)}."
            )
        try:
            return cls(
                _array_from_plain(content["value"]),
                content["mechanism"],
                {k: _from_plain(k, v) for k, v in _object("parameters", content["parameters"]).items()},
                None if content["guarantee"] is None else _guarantee_from_plain(content["guarantee"]),
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"This release is damaged: {_short(error)}") from None

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
        return cls.from_json(Path(path).read_bytes())


def _freeze(name: str, value: Any, depth: int = 0) -> Any:
    """Return a parameter as plain numbers, strings and nested tuples."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        if depth == _DEEPEST:
            raise ValueError(f"{name} has tuples nested more than {_DEEPEST} deep: flatten them.")
        return tuple(_freeze(name, v, depth + 1) for v in value)
    if isinstance(value, str):
        return words(name, value)
    if isinstance(value, int) and not -_LARGEST < value < _LARGEST:
        raise ValueError(f"{name} has a whole number of more than 64 bits: give it as a float.")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(
        f"{name} must be made of numbers, words and tuples of them, got {type(value).__name__}: a "
        "release is published as JSON."
    )


def _to_plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # JSON has no NaN and no infinity
    return value


def _from_plain(name: str, value: Any, depth: int = 0) -> Any:
    if isinstance(value, list):
        if depth == _DEEPEST:
            raise ValueError(f"{name} has lists nested more than {_DEEPEST} deep.")
        return tuple(_from_plain(name, v, depth + 1) for v in value)
    if isinstance(value, dict):
        word = value.get("float")
        if len(value) != 1 or not isinstance(word, str) or word not in _NOT_NUMBERS:
            raise ValueError(f'{name} has an object that is not {{"float": "inf"}}, "-inf" or "nan".')
        return _NOT_NUMBERS[word]
    return value


def _array_from_plain(content: Any) -> np.ndarray:
    if set(_object("value", content)) != {"dtype", "shape", "data"}:
        raise ValueError("the value must have the fields data, dtype and shape, and no others.")
    name, shape, listed = content["dtype"], content["shape"], content["data"]
    if not isinstance(name, str) or name not in _DTYPES:
        raise ValueError(f"the dtype of the value is none of {', '.join(_DTYPES)}.")
    if not isinstance(listed, list) or not isinstance(shape, list):
        raise ValueError("data and shape of the value must be lists.")
    dtype = _DTYPES[name]
    kinds: Any = {"b": bool, "i": int, "u": int}.get(dtype.kind, (int, float))
    data = [_from_plain("value", v) for v in listed]
    if any(not isinstance(v, kinds) or (isinstance(v, bool) and dtype.kind != "b") for v in data):
        raise ValueError(f"an entry of the value does not fit dtype {dtype}.")
    if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 2**63 for n in shape):
        raise ValueError("the shape of the value holds other than lengths.")
    if len(shape) > _DEEPEST or math.prod(shape) != len(data):
        raise ValueError(
            f"cannot reshape the value: {len(data)} entries do not have the shape {_short(shape)}, or it has "
            f"more than {_DEEPEST} axes."
        )
    if dtype.kind in "iu" and data:
        limits = np.iinfo(dtype)
        if min(data) < limits.min or max(data) > limits.max:
            raise ValueError(f"an entry of the value does not fit dtype {dtype}.")
    with np.errstate(over="ignore"):
        array = np.array(data, dtype=dtype)
    if np.isinf(array).sum() != sum(map(math.isinf, data)):
        raise ValueError(f"an entry of the value is too large for dtype {dtype}.")
    return array.reshape(shape)


def _guarantee_to_plain(guarantee: PrivacyGuarantee) -> dict[str, Any]:
    plain = {f.name: _to_plain(getattr(guarantee, f.name)) for f in fields(PrivacyGuarantee)}
    if not guarantee.stated:  # as before there were mechanisms of a user's own
        del plain["stated"]
    return plain


def _guarantee_from_plain(content: Any) -> PrivacyGuarantee:
    stated = _object("guarantee", content)
    known = {f.name for f in fields(PrivacyGuarantee)}
    if "epsilon" not in stated or not stated.keys() <= known:
        unknown = _short(sorted(stated.keys() - known))
        raise ValueError(f"guarantee must have epsilon, and fields that are known, not {unknown}.")
    for name, value in stated.items():
        if name != "neighbours" and isinstance(value, list | str):
            raise ValueError(f"{name} of the guarantee must be a number, got {type(value).__name__}.")
    try:
        return PrivacyGuarantee(**{k: _from_plain(k, v) for k, v in stated.items()})
    except ArithmeticError:
        raise ValueError("a number of the guarantee is too large.") from None


def _object(name: str, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{name} must be an object with named fields, got {type(content).__name__}.")
    return content


def _short(what: Any) -> str:
    """Return a message, cut to a short text that every encoding can write."""
    text = str(what).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"This release is damaged: the number {text[:20]} is too large for a float.")
    return number


def _whole(text: str) -> int:
    if len(text) > 21:  # 2^64 has 20 digits
        raise ValueError(f"This release is damaged: it has a whole number of {len(text)} digits.")
    return int(text)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; refuse two fields of one name, of which readers could see either."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("This release is damaged: a field is in it twice.")
    return dict(pairs)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"This is not a release: {name} is not JSON.")
