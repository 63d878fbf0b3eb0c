"""The release that a custodian publishes: a noisy value with all that an analyst needs to know."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from pymc_dp.privacy._checks import as_name, words
from pymc_dp.privacy._operations import NONEMPTY, OF_SELECTION
from pymc_dp.privacy._plain import (
    DEEPEST,
    array_from_plain,
    finite_number,
    freeze,
    from_plain,
    guarantee_from_plain,
    guarantee_to_plain,
    named_fields,
    named_once,
    refuse_constant,
    shortened,
    to_plain,
    whole_number,
)
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.processing import SUPPRESSED, Processing

FORMAT = "pymc_dp.Release"
# A release that was processed after the noise is written in version 2, in version 3 if its keys are unknown
# (which older readers would take for all keys), in version 4 if it has a name, any other in version 1.
VERSION = 4
_FIELDS = {"format", "version", "mechanism", "parameters", "guarantee", "value"}
# Mechanisms whose processed releases have a law, and those of them that give whole numbers.
_WHOLE = {"DiscreteLaplaceMechanism", "DiscreteGaussianMechanism"}
_ADDITIVE = {"LaplaceMechanism", "GaussianMechanism", *_WHOLE}


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
    processing : Processing or None
        What was done to the noisy value; see :meth:`postprocessed`.
    name : str or None
        What was released, in words for people: "sum of hours".

    Attributes
    ----------
    version : int
        Newest version of the published format.

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
    processing: Processing | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            as_name("name", self.name)
        if not isinstance(self.mechanism, str) or not self.mechanism:
            raise TypeError(f"mechanism must be the name of a mechanism's class, got {self.mechanism!r}.")
        words("mechanism", self.mechanism)
        if self.guarantee is not None and not isinstance(self.guarantee, PrivacyGuarantee):
            raise TypeError(
                f"guarantee must be a PrivacyGuarantee or None, got {type(self.guarantee).__name__}."
            )
        if self.processing is not None and not isinstance(self.processing, Processing):
            raise TypeError(f"processing must be a Processing or None, got {type(self.processing).__name__}.")
        if self.guarantee is not None and self._selects() and self.guarantee.delta == 0:
            raise ValueError(
                f"guarantee has delta = 0, which does not hold: {OF_SELECTION}, or leave guarantee out."
            )
        value = np.array(self.value)
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise TypeError(
                f"value must hold booleans, integers or floats of at most 64 bits, got dtype {value.dtype}."
            )
        if value.ndim > DEEPEST:
            raise ValueError(f"value must have at most {DEEPEST} axes, got {value.ndim}.")
        value.setflags(write=False)
        object.__setattr__(self, "value", value)
        parameters = {
            words("parameters", str(k)): freeze(f"parameters[{k!r}]", v)
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
        content = (self.value, self.mechanism, dict(self.parameters), self.guarantee, self.processing)
        return type(self), (*content, self.name)

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.value.shape))
        what = f"{shape} values" if shape else f"the value {self.value}"
        promise = "Its guarantee is not known." if self.guarantee is None else str(self.guarantee)
        done = "" if self.processing is None else f" Processed after the noise: {self.processing}."
        named = "" if self.name is None else f"{self.name}: "
        return f"{named}Release of {what} by {self.mechanism}. {promise}{done}"

    def postprocessed(
        self,
        *,
        clip: Any = None,
        round_to: Any = None,
        suppress_below: Any = None,
        order: Any = None,
        unknown_keys: bool | str = False,
    ) -> Release:
        """Return the release as it is published after its value was clipped, rounded, suppressed.

        The guarantee is that of the noise, and is dropped where keys that count nobody got none
        (``unknown_keys="nonempty"``). Nothing else needs to be said to an analyst, who passes the
        processed release as ``observed=``.

        Parameters
        ----------
        clip, round_to, suppress_below, order, unknown_keys
            As for :func:`pymc_dp.postprocessed`. Suppressed entries of the value are NaN; with
            `unknown_keys` they are left out, and the names of the others are published beside the
            release, in the same order.

        Returns
        -------
        Release

        Raises
        ------
        TypeError
            The mechanism adds no noise of a known law; an argument is of another kind.
        ValueError
            The release is processed already; an argument is out of its range; `unknown_keys` of a value that
            has no axis of keys, or several.

        Examples
        --------
        >>> import pymc_dp as dp
        >>> release = dp.Release([31, -2, 4], "DiscreteLaplaceMechanism", {"scale": 2.0})
        >>> release.postprocessed(clip=(0, None), suppress_below=3).value
        array([31., nan,  4.])
        >>> release.postprocessed(suppress_below=3, unknown_keys=True).value
        array([31.,  4.])
        """
        if self.mechanism not in _ADDITIVE:
            raise TypeError(
                f"A release by {self.mechanism} cannot be processed: the law of what is published is known "
                f"for {', '.join(sorted(_ADDITIVE))}. Publish it as it is."
            )
        if self.processing is not None:
            raise ValueError("This release is processed already: process the noisy release in one call.")
        processing = Processing.of(clip, round_to, suppress_below, order, unknown_keys)
        if self.mechanism in _WHOLE:
            processing.check_whole(self.mechanism)
        value = processing.process(np, self.value.astype(float))
        if processing.unknown_keys:
            return self._listed(value, processing)
        if processing.suppresses:
            value = np.where(value == SUPPRESSED, np.nan, value)
        elif self.mechanism in _WHOLE:
            value = value.astype(np.int64)
        return replace(self, value=value, processing=processing)

    def _listed(self, value: np.ndarray, processing: Processing) -> Release:
        """Return the release of the keys that were published."""
        if value.ndim != 1:
            raise ValueError(
                f"unknown_keys=True is for values with one axis, that of the keys, got {value.ndim} axes: "
                "release the counts of all keys as one vector."
            )
        listed = value != SUPPRESSED
        parameters = {
            k: tuple(np.asarray(v)[listed].tolist()) if np.shape(v) == value.shape else v
            for k, v in self.parameters.items()
        }
        # what the noise alone guarantees does not hold where empty keys got none
        known = None if processing.unknown_keys == NONEMPTY else self.guarantee
        return replace(
            self, value=value[listed], parameters=parameters, guarantee=known, processing=processing
        )

    def _selects(self) -> bool:
        """Whether empty keys got no noise."""
        return self.processing is not None and self.processing.unknown_keys == NONEMPTY

    def _version(self) -> int:
        """Return the version of the format that holds what this release has."""
        if self.name is not None:
            return 4
        return 1 if self.processing is None else 3 if self.processing.unknown_keys else 2

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
            "version": self._version(),
            "mechanism": self.mechanism,
            "parameters": {k: to_plain(v) for k, v in self.parameters.items()},
            "guarantee": None if self.guarantee is None else guarantee_to_plain(self.guarantee),
            "value": {
                "dtype": self.value.dtype.name,
                "shape": list(self.value.shape),
                "data": [to_plain(v) for v in self.value.ravel().tolist()],
            },
        }
        if self.processing is not None or self.name is not None:
            content["postprocessed"] = None if self.processing is None else self.processing.arguments()
        if self.name is not None:
            content["name"] = self.name
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
        ValueError: This release has format version 99, newer than version 4, the newest that ...
        """
        if not isinstance(text, str | bytes | bytearray):
            raise TypeError(f"text must be the JSON text of a release, got {type(text).__name__}.")
        try:
            content = json.loads(
                text, parse_constant=refuse_constant, parse_float=finite_number, parse_int=whole_number,
                object_pairs_hook=named_once,
            )  # fmt: skip
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"This is not a release: it is not JSON ({shortened(error)}).") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(
                f'This JSON is not a release: its "format" is not {FORMAT!r}. Pass what '
                "Release.to_json() returned."
            )
        version = content.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError(f"This release has no valid format version, got {shortened(repr(version))}.")
        if version > VERSION:
            raise ValueError(
                f"This release has format version {version}, newer than version {VERSION}, the newest "
                "that this pymc_dp reads: install a newer pymc_dp."
            )
        fields = {*_FIELDS, *["postprocessed", "name"][: 0 if version == 1 else 1 if version < 4 else 2]}
        if content.keys() != fields:
            missing, unknown = sorted(fields - content.keys()), sorted(content.keys() - fields)
            raise ValueError(
                f"This release is damaged: fields missing {missing}, not known {shortened(unknown)}."
            )
        processed = content.get("postprocessed")
        as_it_is = version == 1 or (version > 3 and processed is None)
        says_keys = version == 3 or (
            isinstance(processed, dict) and "unknown_keys" in processed and version > 3
        )
        try:
            return cls(
                array_from_plain(content["value"]),
                content["mechanism"],
                {k: from_plain(k, v) for k, v in named_fields("parameters", content["parameters"]).items()},
                None if content["guarantee"] is None else guarantee_from_plain(content["guarantee"]),
                None if as_it_is else Processing.from_plain(processed, says_keys),
                as_name("name", content["name"]) if version > 3 else None,
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"This release is damaged: {shortened(error)}") from None

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
