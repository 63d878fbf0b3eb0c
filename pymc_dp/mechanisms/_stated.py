"""The guarantee that follows from the noise level in a published file, without its query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_dp.flags import flags_lock
from pymc_dp.mechanisms._additive import GAUSSIAN, LAPLACE
from pymc_dp.mechanisms._checks import noise_parameter
from pymc_dp.mechanisms._releases import declared_by
from pymc_dp.mechanisms.exponential import Choice
from pymc_dp.mechanisms.mechanism import Mechanism, PreparedQuery
from pymc_dp.privacy.guarantee import PrivacyGuarantee, as_stated
from pymc_dp.privacy.release import Release


def checked_guarantee(release: Release) -> PrivacyGuarantee:
    """Return the guarantee of a published release, checked as it would be in a model's declaration.

    Parameters
    ----------
    release : Release

    Returns
    -------
    PrivacyGuarantee
        The stated guarantee, or, if it does not follow from the noise, the one that does. That of a user's
        own mechanism is said to be stated, not proven.

    Raises
    ------
    ValueError
        The noise contradicts the statement; the file does not say what one person can change; the mechanism
        is not known; or the release is damaged.
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
    if mechanism.unpublished:  # its density is a function, so that no noise level in a file tells anything
        return as_stated(stated)
    query = _query_of(mechanism, release)
    if query is None:
        raise ValueError(
            f"This release of {release.mechanism} does not say by how much one person can change what was "
            "released, which its bounds alone do not tell, so that nobody can tell whether its guarantee "
            "follows from its noise: declare it in a model, or ask for it again, drawn by the newest pymc_dp."
        )
    if "sensitivity" in release.parameters or "changes" in release.parameters:
        arguments.pop("bounds", None)  # bounds are for the query's records, which the file lacks
    # noise levels are stated in float64
    with flags_lock, pytensor.config.change_flags(floatX="float64"):
        if _says_changes(mechanism, release):
            arguments |= _of_one_level(query[0], release.parameters["changes"], arguments)
        found: PrivacyGuarantee = mechanism.dist(*query, **arguments).owner.op.guarantee
    # only the query tells in how many of several choices a person takes part
    return stated if issubclass(mechanism, Choice) and release.value.ndim else found


def _known(base: type) -> dict[str, Any]:
    """Return all mechanisms that can draw a release, by name, also those defined in other packages."""
    found: dict[str, Any] = {}
    subclasses: list[Any] = type.__subclasses__(base)
    for mechanism in subclasses:
        own = {} if getattr(mechanism, "rv_op", None) is None else {mechanism.__name__: mechanism}
        found |= own | _known(mechanism)
    return found


def _query_of(mechanism: Any, release: Release) -> tuple[Any, ...] | None:
    """Return a stand-in for the query, for mechanisms whose guarantee is the same for every query."""
    of = next((_STAND_INS[c.__name__] for c in mechanism.__mro__ if c.__name__ in _STAND_INS), None)
    if of is not None:
        return of(release)
    known = "sensitivity" in release.parameters or _says_changes(mechanism, release)
    # which may be any: entries that were suppressed are no query; and floats, which are not cast by a graph
    value = (release.value if release.processing is None else np.zeros_like(release.value)).astype(float)
    return (pt.constant(value),) if known else None


def _says_changes(mechanism: Any, release: Release) -> bool:
    return mechanism.rv_op.additive_noise and "changes" in release.parameters


def _of_one_level(value: Any, changes: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return noise of level 1 and a sensitivity, such that they have the cost of what a file states.

    Parameters
    ----------
    value : TensorVariable
        The release.
    changes : float or tuple
        The most that one person can change each entry of the release, or of the person's own row.
    arguments : dict
        Arguments of the declaration, with the noise level.
    """
    if "sensitivity" in arguments:
        raise ValueError(
            "observed states both sensitivity and changes, of which a release states one: it is damaged. Ask "
            "for it again."
        )
    kind = next((k for k in (LAPLACE, GAUSSIAN) if k.level in arguments), None)
    if kind is None:  # the declaration will ask for a noise level
        return {}
    _, noise = noise_parameter(kind.level, arguments[kind.level], value)
    try:
        width = np.asarray(changes)
    except ValueError:  # ragged
        width = np.array(None)
    shape, numbers = value.type.shape, width.dtype.kind in "iuf"
    if not numbers or width.shape not in (shape, shape[1:]) or not ((0 <= width) & (width < np.inf)).all():
        raise ValueError(
            f"observed states changes = {changes!r}, which are no sizes of the entries of a release of shape "
            f"{shape}: the release is damaged. Ask for it again."
        )
    spent = kind.spent(PreparedQuery(value, 1.0, width, None), noise)
    assert spent is not None
    return {kind.level: 1.0, "sensitivity": (kind.order * spent) ** (1 / kind.order)}


def _records(release: Release) -> tuple[Any, ...] | None:
    """Return as many records as the release states; with another number, its declaration would be refused."""
    n = release.parameters.get("n_records", 2)
    return (pm.Uniform.dist(0, 1, shape=(n if isinstance(n, int) and 0 < n < 2**62 else 2,)),)


def _of_known_number(release: Release) -> tuple[Any, ...] | None:
    return _records(release) if "n_records" in release.parameters else None


def _categories(axes: int) -> Callable[[Release], tuple[Any, ...] | None]:
    def of(release: Release) -> tuple[Any, ...] | None:
        shape = release.value.shape
        if release.parameters.get("n") is not None:  # n is the number of people, who are in one category each
            return (pt.constant(np.full(shape, 1 / max(shape[-1:], default=1))),)
        return (pm.Bernoulli.dist(0.5, shape=shape[: len(shape) - axes]),)

    return of


def _answers(release: Release) -> tuple[Any, ...] | None:
    """Return categories, or their probabilities; a table of probabilities of answers has a row for each."""
    rows = np.shape(release.parameters.get("p_answer", ()))
    if len(rows) < 2:  # of whatever else a file has there, the declaration tells what is wrong
        return _categories(0)(release)
    law, shape = np.full(rows[-2], 1 / max(rows[-2], 1)), release.value.shape
    if release.parameters.get("n") is not None:
        return (pt.constant(np.broadcast_to(law, (*shape[:-1], rows[-2])).copy()),)
    return (pm.Categorical.dist(law, shape=shape),)


def _tosses(release: Release) -> tuple[Any, ...]:
    """Return one record for each person, or the total of all."""
    total = release.value.ndim == 0
    records = pm.Bernoulli.dist(0.5, shape=2 if total else release.value.shape)
    return (records.sum() if total else records,)


def _candidates(release: Release) -> tuple[Any, ...] | None:
    if "sensitivity" not in release.parameters:
        return None
    if "hessian" in release.parameters:
        return (pm.Normal.dist(0, 1, shape=release.value.shape),)
    axes = (2,) if release.mechanism == "ExponentialMechanism" else (2, 2)
    return (pm.Normal.dist(0, 1, shape=(*release.value.shape, *axes)),)


_STAND_INS: dict[str, Callable[[Release], tuple[Any, ...] | None]] = {
    "RandomizedResponse": _answers,
    "UnaryEncoding": _categories(1),
    "BinomialMechanism": _tosses,
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
