"""Tests of a user's own: a mechanism's density against its guarantee, a model against what samples it.

Examples
--------
>>> import pymc_dp as dp
>>> z = dp.GaussianMechanism.dist(0.0, sigma=2.0, sensitivity=1.0)
>>> dp.testing.check_guarantee(z, [(0.0, 1.0)]).contradicted
False
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import ParameterValueError
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.mechanism import MechanismOp
from pymc_dp.privacy.claims import ORDERS, GuaranteeCheck, compare
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.runs.calibration import CalibrationCheck, calibrate

__all__ = ["CalibrationCheck", "GuaranteeCheck", "calibrate", "check_guarantee"]

_PYTHON = Mode(linker="py", optimizer="fast_compile")


def check_guarantee(
    release: TensorVariable,
    neighbours: Sequence[tuple[Any, Any]],
    *,
    guarantee: PrivacyGuarantee | None = None,
    values: Any = None,
    orders: Sequence[float] = ORDERS,
) -> GuaranteeCheck:
    """Compare the density of a mechanism with a guarantee, for neighbouring queries.

    This can contradict a guarantee, and cannot prove one: only the queries and values that were tried are
    covered, and the result says which. A claim of pure privacy is compared with the largest log ratio of
    densities at values near and far from the queries; claims of rho, mu, delta and Renyi divergences with
    what is integrated over the releases, where these are single numbers.

    Parameters
    ----------
    release : TensorVariable
        A mechanism's variable, from a model or from ``.dist``, with known parameters; its query is replaced.
    neighbours : sequence of pairs of array_like
        Queries of neighbouring data (clamped, where there are bounds), each of the shape of the query. Each
        pair is compared in both directions. Choose the worst that one record can do.
    guarantee : PrivacyGuarantee, optional
        The claim; by default the one that the release carries.
    values : array_like, shape (n, ...), optional
        Releases at which log ratios are compared. Added to a grid for releases of one number; needed for
        releases of several.
    orders : sequence of float
        Orders of the Renyi divergences, each above 1, that a claim of rho is compared with; one of Renyi
        divergences is compared at its own orders.

    Returns
    -------
    GuaranteeCheck
        Its text says what was covered; ``contradicted`` whether the claim is wrong, ``faults`` where.

    Raises
    ------
    TypeError
        `release` is not a mechanism's, or `guarantee` is no guarantee; a query or an order is no real number.
    ValueError
        There is no guarantee, or there are no pairs; a pair or the values have another shape; a query is what
        data cannot have; an order is not above 1; a parameter is random; `values` are missing; the log
        density is NaN.

    References
    ----------
    Bun and Steinke (2016), *Concentrated Differential Privacy*, definition 1.1, for rho; Dong, Roth and Su
    (2022), *Gaussian Differential Privacy*, for mu.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> z = dp.LaplaceMechanism.dist(0.0, scale=2.0, sensitivity=1.0)
    >>> found = dp.testing.check_guarantee(z, [(0.0, 1.0), (3.0, 2.5)])
    >>> found.contradicted, round(found.log_ratio, 6)
    (False, 0.5)
    >>> claim = dp.PrivacyGuarantee(0.4)
    >>> dp.testing.check_guarantee(z, [(0.0, 1.0)], guarantee=claim).contradicted
    True
    """
    node = release.owner if isinstance(release, TensorVariable) else None
    op: Any = None if node is None else node.op
    if not isinstance(op, MechanismOp):
        raise TypeError(
            f"release must be the variable that a mechanism returned, got {type(release).__name__}: for "
            "example dp.LaplaceMechanism.dist(0.0, scale=2.0)."
        )
    label = release.name or "the release"  # one that is in no model prints as its operation, of many words
    guarantee = op.guarantee if guarantee is None else guarantee
    if guarantee is None:
        raise ValueError(f"The guarantee of {label} is not known: give guarantee=, the claim to be compared.")
    if not isinstance(guarantee, PrivacyGuarantee):
        raise TypeError(f"guarantee must be a PrivacyGuarantee, got {type(guarantee).__name__}.")
    query, *params = op.dist_params(node)  # type: ignore[attr-defined]
    if rvs_in_graph(params):
        raise ValueError(
            f"A parameter of {label} is random, so that its density is not known: declare it with numbers."
        )
    orders = _checked_orders(orders)
    given = _pairs(neighbours)
    pairs: list[Any] = [tuple(q.astype(query.dtype) for q in pair) for pair in given]
    for q, said in zip(sum(pairs, ()), sum(given, ()), strict=True):
        if q.ndim != query.ndim or any(
            b not in (None, a) for a, b in zip(q.shape, query.type.shape, strict=True)
        ):
            raise ValueError(
                f"neighbours has a query of shape {q.shape}, but that of {label} has {query.type.shape}: "
                "give queries of that shape, and values=; or, where each entry is released by itself, the "
                f"release of one, dp.{_name(op)}.dist({np.ravel(q)[0] if q.size else 0:g}, ...) with "
                "the same settings and guarantee."
            )
        whole = np.dtype(query.dtype).kind in "biu"
        if not np.isfinite(said).all() or (whole and (q != said).any()):
            kind = "whole" if whole else "finite"
            raise ValueError(
                f"neighbours has the query {said}, but that of {label} is of {kind} numbers: give queries "
                "that data can have."
            )
    scalar = release.type.ndim == 0
    if not scalar:
        if values is None:
            raise ValueError(
                f"{label} releases several numbers: give values=, an array of shape (n, ...) of releases "
                "to compare at, such as draws by pm.draw."
            )
        values = np.asarray(values)
        if values.ndim != release.type.ndim + 1:
            raise ValueError(
                f"values must have an axis more than a release, which has {release.type.ndim}, got shape "
                f"{values.shape}."
            )
        if values.size == 0:
            raise ValueError("values has no release: give at least one, such as draws by pm.draw.")
        if any(b not in (None, a) for a, b in zip(values.shape[1:], release.type.shape, strict=True)):
            raise ValueError(
                f"values has releases of shape {values.shape[1:]}, but those of {label} have "
                f"{release.type.shape}: give an array of shape (n, *{release.type.shape})."
            )
    at = (
        query.type("query")
        if None in query.type.shape
        else pt.tensor("query", dtype=query.dtype, shape=query.type.shape)
    )
    law = op.make_node(node.inputs[0], NoneConst, at, *params).default_output()  # type: ignore[attr-defined, union-attr]
    value = pt.tensor("value", dtype=release.dtype, shape=release.type.shape)
    many = pt.tensor("values", dtype=release.dtype, shape=(None, *release.type.shape))
    logp = vectorize_graph(pm.logp(law, value).sum(), {value: many})
    compiled = pytensor.function([many, at], logp, mode=_PYTHON)

    def log_density(points: np.ndarray, q: np.ndarray) -> np.ndarray:
        try:
            with np.errstate(all="ignore"):
                found = compiled(points.astype(release.dtype), q.astype(query.dtype))
        except ParameterValueError as error:
            why = str(error).splitlines()[0]
            raise ValueError(
                f"neighbours has the query {q}, for which {label} has no density ({why}): give "
                "queries that data can have."
            ) from None
        return np.broadcast_to(found, len(points))

    return compare(
        log_density, pairs, guarantee, values=values, dtype=release.dtype, scalar=scalar, orders=orders
    )


def _name(op: Any) -> str:
    return str(op._print_name[0])


def _pairs(neighbours: Any) -> list[tuple[np.ndarray, ...]]:
    """Return pairs of queries as arrays; refuse what is no pair, or not of real numbers."""
    try:
        pairs = [tuple(pair) for pair in neighbours]
    except TypeError:
        pairs = []
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise ValueError("neighbours must list pairs of queries, as in [(0.0, 1.0)].")
    for q in sum(pairs, ()):
        try:
            real = np.asarray(q).dtype.kind in "biuf"
        except ValueError:  # rows of different lengths
            real = False
        if not real:
            raise TypeError(f"neighbours has the query {q!r}, which is no array of real numbers.")
    return [tuple(np.asarray(q) for q in pair) for pair in pairs]


def _checked_orders(orders: Any) -> list[float]:
    try:
        found = [float(alpha) for alpha in orders]
    except (TypeError, ValueError):
        raise TypeError(f"orders must list numbers, as in [2.0, 8.0], got {orders!r}.") from None
    if not all(1 < alpha < np.inf for alpha in found):
        raise ValueError(f"orders must be finite numbers above 1, as in [2.0, 8.0], got {found}.")
    return found
