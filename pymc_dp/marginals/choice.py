"""How a record is integrated out of its release, or the reason why that is not possible."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.discrete import DiscreteWeibullRV
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.tensor.random.basic import (
    GeometricRV,
    NegBinomialRV,
    NormalRV,
    PoissonRV,
)
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.rows.polynomial import degree
from pymc_dp.marginals.cells import MAX_VALUES, NotClosed, log_probabilities
from pymc_dp.marginals.integer_sums import MAX_TERMS
from pymc_dp.marginals.release_laws import (
    CentralWay,
    ClosedWay,
    FiniteWay,
    LaplaceSumWay,
    MixtureWay,
    Way,
    WholeWay,
)
from pymc_dp.marginals.sums import log_probability
from pymc_dp.mechanisms.marginals import NORMAL_LAPLACE, UNCLAMPED, Ends
from pymc_dp.mechanisms.processed import ProcessedRV
from pymc_dp.query.lengths import lengths_of, with_known_shapes
from pymc_dp.query.records import Release, parameters_of
from pymc_dp.query.supports import clamped_record, finite_support
from pymc_dp.upstream.pymc_private import _BaseMixtureRV, printed_name

# Laws of whole numbers from 0 on.
_FROM_ZERO = (PoissonRV, NegBinomialRV, GeometricRV, DiscreteWeibullRV)


def chosen_way(law: TensorVariable, record: TensorVariable, release: Release, tolerance: float) -> Way:
    """Return how a record is integrated out of one release.

    Parameters
    ----------
    law : TensorVariable
        The record, or a random variable of its shape that has the law of the record given other releases.
    record : TensorVariable
        The record, as it stands in the query.
    release : Release
    tolerance : float
        Share of the probability that the truncation of an infinite sum may leave out.

    Raises
    ------
    NotClosed
        No way is known.
    """
    channel = release.rv.owner.op
    noise = list(parameters_of(release.rv)[1:])
    found = clamped_record(release.query, {record})
    if found is None:
        if release.kind == "local":
            raise NotClosed("its query is not the record itself, up to a clamp to two known numbers")
        return _of_all(law, record, release)
    if channel.ndims_params[0] != 0 and law.owner.op.ndim_supp == 0:
        raise NotClosed("its query is a whole array of records")
    return _local(law, channel, noise, (found.lo, found.hi), tolerance, release)


def _summed(law: TensorVariable, channel: Any, noise: list, ends: Ends, release: Release) -> FiniteWay | None:
    support = finite_support(law, MAX_VALUES)
    if support is None:
        return None
    values = support.astype(parameters_of(release.rv)[0].type.dtype)  # type: ignore[attr-defined]
    queries = np.clip(values, *ends).astype(values.dtype)
    return FiniteWay.of(channel, values, queries, log_probabilities(law, support), noise)


def _local(
    law: TensorVariable, channel: Any, noise: list, ends: Ends, tolerance: float, release: Release
) -> Way:
    op: Any = law.owner.op
    discrete = op.ndim_supp == 0 and law.type.dtype.startswith(("int", "bool", "uint"))
    pair = channel.record_marginals.get(type(op))
    why = None if pair is None or pair.refuse is None else pair.refuse(channel, ends)
    if why is not None and not discrete:  # values of a discrete record are summed over where it is not closed
        raise NotClosed(why)
    if pair is not None and why is None:
        params = list(parameters_of(law))
        if op.ndim_supp:
            noise = [pt.broadcast_to(p, params[0].shape[-1:]) if p.type.ndim == 0 else p for p in noise]
        return ClosedWay(pair, op, channel, ends, (*params, *noise))
    if isinstance(op, _BaseMixtureRV):
        return _mixture(law, channel, noise, ends, tolerance, release)
    if discrete:
        return _discrete(law, channel, noise, ends, tolerance, release)
    raise NotClosed(f"{printed_name(op)} records have no closed marginal under {printed_name(channel)}")


def _mixture(
    law: TensorVariable, channel: Any, noise: list, ends: Ends, tolerance: float, release: Release
) -> Way:
    _, weights, *components = law.owner.inputs
    if len(components) == 1:
        core = components[0].owner.op.ndim_supp
        # the components are the last axis of the batch
        noise = [pt.expand_dims(p, -core - 1) if p.type.ndim > core else p for p in noise]
    ways = [_local(part, channel, noise, ends, tolerance, release) for part in components]
    if not all(isinstance(way, ClosedWay) for way in ways):
        raise NotClosed("a mixture is closed where its components are normal, and this one has others")
    if len(components) == 1:
        (way,) = ways
        k = lengths_of(weights)[-1]
        params = []
        for p, core in zip(way.params, way.cores, strict=True):
            shape = lengths_of(p)
            batch = shape[: len(shape) - core][:-1]
            params.append(pt.broadcast_to(p, (*batch, k, *shape[len(shape) - core :])))
    else:
        params = [p for way in ways for p in way.params]
    return MixtureWay(tuple(ways), (log_probability(weights), *params))


def _discrete(
    law: TensorVariable, channel: Any, noise: list, ends: Ends, tolerance: float, release: Release
) -> Way:
    op: Any = law.owner.op
    summed = _summed(law, channel, noise, ends, release)
    if summed is not None:
        return summed
    if not isinstance(op, RandomVariable) or any(op.ndims_params):
        raise NotClosed(
            f"how many values {printed_name(op)} records have is not told by the model (the number of "
            "probabilities, or of cutpoints, may change)"
        )
    if isinstance(channel, ProcessedRV) and channel.whole and ends == UNCLAMPED:
        return _processed(op, channel, [*parameters_of(law)], noise, tolerance)
    if ends == UNCLAMPED and hasattr(channel, "reach"):
        _check_size(channel, noise, tolerance, release)
        return WholeWay(op, channel, tolerance, (*parameters_of(law), *noise))
    if np.isfinite(ends).all():
        raise NotClosed(
            f"{printed_name(op)} records without an upper end that are clamped have no marginal here; "
            "it is there for the record itself under whole-numbered noise"
        )
    raise NotClosed(f"{printed_name(op)} records have no closed marginal under {printed_name(channel)}")


def _processed(op: Any, channel: Any, params: list, noise: list, tolerance: float) -> Way:
    """Return the way of a record without a largest value behind whole-numbered noise and what follows it."""
    if not isinstance(op, _FROM_ZERO):
        raise NotClosed(
            f"{printed_name(op)} records have no marginal behind what was processed, unless they have at "
            f"most {MAX_VALUES} values, which are constants: pm.sample moves such counts itself"
        )
    if not channel.bounded_above:
        raise NotClosed(
            "a value that was clipped from above says of its record no number that it is at most, and "
            f"{printed_name(op)} records have no largest one"
        )
    return WholeWay(op, channel, tolerance, (*params, *noise))


def _check_size(channel: Any, noise: list, tolerance: float, release: Release) -> None:
    """Refuse sums whose length follows from the noise level alone and is too large."""
    known = constant_fold(noise, raise_not_constant=False)
    if not all(isinstance(p, np.ndarray) for p in known):
        return
    reach = channel.reach(pt.constant(np.log(tolerance)), *map(pt.constant, known))
    reach = float(np.max(reach.eval(mode="FAST_COMPILE")))
    n = int(np.prod(lengths_of(release.query), dtype=float))
    if (2 * reach + 1) * n > MAX_TERMS:
        raise NotClosed(
            f"the sum over its record takes {2 * reach + 1:.0f} terms for each of {n} releases, since the "
            "noise is large"
        )


def _of_all(law: TensorVariable, record: TensorVariable, release: Release) -> Way:
    op, query = release.rv.owner.op, release.query
    pair = op.record_marginals.get(NormalRV)
    laplace = pair is NORMAL_LAPLACE and query.type.ndim == 0 and isinstance(law.owner.op, NormalRV)
    if pair is None or (pair.update is None and not laplace):
        raise NotClosed(f"{printed_name(op)} of all records together is not normal, given their parameters")
    if not isinstance(law.owner.op, NormalRV):
        raise NotClosed(f"a sum of {printed_name(law.owner.op)} records is not normal")
    if query.type.ndim > 1:
        raise NotClosed("its query has several axes")
    if degree(query, [record]) != 1:
        raise NotClosed(
            "its query is not an affine function of the records: it clamps them (as bounds= does), or "
            "computes something else of them"
        )
    shape = lengths_of(record)
    mu, s = (pt.broadcast_to(p, shape) for p in parameters_of(law))
    at_mean: dict[Variable, Variable] = {record: pt.cast(mu, record.dtype)}
    slopes = [query] if query.type.ndim == 0 else [query[j] for j in range(lengths_of(query)[0])]
    slopes = [pt.grad(slope, record).ravel() for slope in slopes]
    mean, *slopes = graph_replace(with_known_shapes([query, *slopes]), at_mean, strict=False)
    c = slopes[0] if query.type.ndim == 0 else pt.stack(slopes)
    sigma = parameters_of(release.rv)[1]
    sigma = sigma if query.type.ndim == 0 else pt.broadcast_to(sigma, lengths_of(query))
    way = LaplaceSumWay if laplace else CentralWay
    return way((mean, c, mu.ravel(), s.ravel(), sigma), shape, query.type.ndim)
