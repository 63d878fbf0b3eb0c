"""A release whose law is a finite mixture: over its record's values, or over components of their law."""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable, support_point
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.log_sums import log_sum
from pymc_dp.marginals.sums import by_distinct
from pymc_dp.mechanisms.marginals import SymbolicMarginal
from pymc_dp.query.records import parameters_of
from pymc_dp.upstream.pymc_private import _logprob, _logprob_helper, _support_point


class LogMixtureRV(SymbolicRandomVariable):
    """Draws from one of several laws; inputs: log weights (..., K), and the laws.

    If there is one law, the last axis of its batch is that of the components; several laws are one component
    each. Unlike weights, their logarithms do not underflow.
    """

    name = "log_mixture"
    _print_name = ("LogMixture", "\\operatorname{LogMixture}")

    def update(self, node: Any) -> dict:
        """Return the update of the random generator."""
        return {node.inputs[0]: node.outputs[0]}


class ReleaseMixtureRV(SymbolicMarginal, LogMixtureRV):
    """Such a mixture that is the law of a release."""

    name = "release_mixture"
    _print_name = ("ReleaseMixture", "\\operatorname{ReleaseMixture}")

    def laws(self, node: Any) -> list[TensorVariable]:
        """Return the components."""
        return list(node.inputs[2:])


def release_mixture(
    log_weights: TensorVariable, components: Sequence[TensorVariable], **promise: Any
) -> TensorVariable:
    """Return a release whose law is a mixture.

    Parameters
    ----------
    log_weights : TensorVariable, shape (K,) or (..., K)
    components : sequence of TensorVariable
        One random variable of shape (..., K, *support), or K of shape (..., *support).
    **promise
        Guarantee, bounds and records.
    """
    return _mixture(ReleaseMixtureRV, log_weights, components, **promise)


def child_mixture(log_weights: TensorVariable, component: TensorVariable) -> TensorVariable:
    """Return the law of something that is no release, with one component for each value of a record."""
    return _mixture(LogMixtureRV, log_weights, [component])


def _mixture(
    op: Any, log_weights: TensorVariable, components: Sequence[TensorVariable], **promise: Any
) -> TensorVariable:
    # a law whose probabilities do not sum to 1 has no density, even where the other factors are 0
    total = pt.sum(pt.exp(log_weights), axis=-1)
    log_weights = check_parameters(log_weights, pt.isclose(total, 1.0), msg="probabilities that sum to 1")
    ndim_supp = components[0].owner.op.ndim_supp
    axis = -ndim_supp - 1
    stacked = components[0] if len(components) == 1 else pt.stack(components, axis=axis)
    batch = stacked.shape[: stacked.ndim - ndim_supp]
    rng = pt.random.shared_rng(seed=None)
    weights = pt.special.softmax(pt.broadcast_to(log_weights, batch), axis=-1)
    next_rng, index = pt.random.categorical(weights, rng=rng, return_next_rng=True)
    drawn = taken(stacked, index, ndim_supp)
    support = [f"s{k}" for k in range(ndim_supp)]
    core = ",".join([*(["w"] if len(components) == 1 else []), *support])
    laws = ",".join(f"({core})" for _ in components)
    inputs = [rng, log_weights, *components]
    node = op(
        inputs=inputs,
        outputs=[next_rng, drawn],
        extended_signature=f"[rng],(w),{laws}->[rng],({','.join(support)})",
        **promise,
    ).make_node(*inputs)
    return node.outputs[1]


def taken(stacked: TensorVariable, index: TensorVariable, ndim_supp: int = 0) -> TensorVariable:
    """Return, for each release, the component that an index selects."""
    axis = -ndim_supp - 1
    picked = pt.take_along_axis(stacked, pt.shape_padright(index, ndim_supp + 1), axis=axis)
    return pt.squeeze(picked, axis=axis)


@_logprob.register(LogMixtureRV)
def _log_density(
    op: Any, values: Any, rng: Any, log_weights: TensorVariable, *components: Any, **kwargs: Any
) -> TensorVariable:
    """Sum over the components; if all releases have the same law, equal releases are computed once."""
    ndim_supp = components[0].owner.op.ndim_supp

    def density(value: TensorVariable) -> TensorVariable:
        return log_sum(log_weights + log_densities(components, value))

    params, cores = [log_weights], [1]
    for law in components:
        params += parameters_of(law)  # type: ignore[arg-type]
        # several laws have no axis for the components
        cores += [core + (len(components) == 1) for core in law.owner.op.ndims_params]
    found = by_distinct(density, values[0], params, cores, ndim_supp)
    channel: Any = components[0].owner.op
    if len(components) == 1 and getattr(channel, "unknown_keys", False):
        shown = channel.log_published(*parameters_of(components[0]))
        found = found - log_sum(log_weights + shown)  # all values of a count are components
    return found


def log_densities(components: Sequence[TensorVariable], value: TensorVariable) -> TensorVariable:
    """Return the log density of each release under each component, on the last axis."""
    if len(components) > 1:
        return pt.stack([_logprob_helper(law, value) for law in components], axis=-1)
    (law,) = components
    return _logprob_helper(law, pt.expand_dims(value, -law.owner.op.ndim_supp - 1))


@_support_point.register(LogMixtureRV)
def _first_component(op: Any, rv: Any, rng: Any, log_weights: Any, *components: Any) -> TensorVariable:
    """Return the support point of the first component."""
    points = support_point(components[0])
    if len(components) > 1:
        return points
    return pt.take(points, 0, axis=-components[0].owner.op.ndim_supp - 1)
