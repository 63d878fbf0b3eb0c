"""What the noise level in a published file gives, as far as the file says it without the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_dp.mechanisms._releases import declared_by
from pymc_dp.mechanisms.base import Mechanism
from pymc_dp.mechanisms.exponential import Choice
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release


def checked_guarantee(release: Release) -> PrivacyGuarantee:
    """Return what may be said of a release that states a guarantee, as of one that is declared in a model.

    Parameters
    ----------
    release : Release

    Returns
    -------
    PrivacyGuarantee
        What is stated, or what the noise gives where that does not follow from it. Where the file does not
        say the sensitivity, what is stated is believed.

    Raises
    ------
    ValueError
        The noise contradicts the statement; the mechanism is not known; or the release is damaged.
    """
    stated = release.guarantee
    assert stated is not None
    mechanism = _known(Mechanism).get(release.mechanism)
    if mechanism is None:
        raise ValueError(
            f"This release is of {release.mechanism!r}, which is no mechanism that is known here, so that "
            "nobody can tell whether its guarantee follows from its noise: install the newest pymc_dp, or "
            "import what defines the mechanism."
        )
    arguments = declared_by(mechanism, release, {})
    query = _query_of(mechanism, release)
    if query is None:
        return stated
    if "sensitivity" in release.parameters:
        arguments.pop("bounds", None)  # of the query's records, which are not here
    # noise levels are in the digits in which they were worked out
    with pytensor.config.change_flags(floatX="float64"):
        found: PrivacyGuarantee = mechanism.dist(*query, **arguments).owner.op.guarantee
    # how many of several choices one person has a part in is known with the query only
    return stated if issubclass(mechanism, Choice) and release.value.ndim else found


def _known(base: type) -> dict[str, Any]:
    """Return all mechanisms by their names, those of other packages too."""
    found: dict[str, Any] = {}
    subclasses: list[Any] = type.__subclasses__(base)
    for mechanism in subclasses:
        found |= {mechanism.__name__: mechanism} | _known(mechanism)
    return found


def _query_of(mechanism: Any, release: Release) -> tuple[Any, ...] | None:
    """Return what may stand in for the query, where the guarantee is the same for every query."""
    of = next((_STAND_INS[c.__name__] for c in mechanism.__mro__ if c.__name__ in _STAND_INS), None)
    if of is not None:
        return of(release)
    return (pt.constant(release.value),) if "sensitivity" in release.parameters else None


def _records(release: Release) -> tuple[Any, ...] | None:
    """Return records as many as the release states; of another number its declaration is refused."""
    n = release.parameters.get("n_records", 2)
    return (pm.Uniform.dist(0, 1, shape=(n if isinstance(n, int) and 0 < n < 2**62 else 2,)),)


def _of_known_number(release: Release) -> tuple[Any, ...] | None:
    return _records(release) if "n_records" in release.parameters else None


def _categories(axes: int) -> Callable[[Release], tuple[Any, ...] | None]:
    def of(release: Release) -> tuple[Any, ...] | None:
        shape = release.value.shape
        if release.parameters.get("n") is not None:  # of people, each in one of the categories
            return (pt.constant(np.full(shape, 1 / max(shape[-1:], default=1))),)
        return (pm.Bernoulli.dist(0.5, shape=shape[: len(shape) - axes]),)

    return of


def _candidates(release: Release) -> tuple[Any, ...] | None:
    if "sensitivity" not in release.parameters:
        return None
    if "hessian" in release.parameters:
        return (pt.constant(release.value),)
    axes = (2,) if release.mechanism == "ExponentialMechanism" else (2, 2)
    return (pm.Normal.dist(0, 1, shape=(*release.value.shape, *axes)),)


_STAND_INS: dict[str, Callable[[Release], tuple[Any, ...] | None]] = {
    "RandomizedResponse": _categories(0),
    "UnaryEncoding": _categories(1),
    "BinomialMechanism": lambda release: (pm.Bernoulli.dist(0.5, shape=(2, *release.value.shape)).sum(0),),
    "PerturbedHistogram": _records,
    "SmoothedHistogramSample": _of_known_number,
    "ProjectionMechanism": _of_known_number,
    "WaveletMechanism": lambda release: (pm.Uniform.dist(0, 1, shape=release.value.shape[:-1]),),
    "Choice": _candidates,
    "ObjectivePerturbation": lambda release: (
        pm.Normal.dist(0, 1, shape=(2, release.value.size)),
        pm.Bernoulli.dist(0.5, shape=2),
    ),
}
