"""Ways to integrate a record out of its release, each of which keeps its parameters in one list.

A way gives the law of the release without the record, and draws the record given the release. Its parameters
are graphs: of a model, when the marginal model is built, or of posterior draws, when records are drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.log_sums import log_sum
from pymc_dp.marginals.integer_sums import log_terms, whole_release
from pymc_dp.marginals.mixture import child_mixture, log_densities, release_mixture, taken
from pymc_dp.mechanisms.conditionals import NormalGivenLaplace
from pymc_dp.mechanisms.marginals import (
    UNCLAMPED,
    Ends,
    MvNormalMarginalRV,
    NormalLaplaceRV,
    NormalMarginalRV,
    RecordMarginal,
    call,
)

Params = tuple[TensorVariable, ...]


class Way(Protocol):
    """The interface of a way to integrate a record out of one release."""

    @property
    def params(self) -> Params:
        """The parameters, as graphs."""

    @property
    def cores(self) -> tuple[int, ...]:
        """Number of axes of each parameter that belong to one record."""

    def release(self, size: Any, promise: dict[str, Any]) -> TensorVariable:
        """Return the law of the release; `size` is the records' shape, or None if the parameters have it."""

    def record(self, released: TensorVariable) -> TensorVariable:
        """Return draws of the record given the release."""


@dataclass(frozen=True)
class ClosedWay:
    """A pair of record and noise with a closed form; parameters: those of the record, then of the noise."""

    pair: RecordMarginal
    law: Any
    channel: Any
    ends: Ends
    params: Params

    @property
    def cores(self) -> tuple[int, ...]:
        """Number of axes of each parameter that belong to one record."""
        # the noise level of a vector is one number, or one for each entry
        noise = (max(core, self.law.ndim_supp) for core in self.channel.ndims_params[1:])
        return (*self.law.ndims_params, *noise)

    def _parts(self) -> tuple[list, list]:
        k = len(self.law.ndims_params)
        return list(self.params[:k]), list(self.params[k:])

    def release(self, size: Any, promise: dict[str, Any]) -> TensorVariable:
        """Return the law of the release."""
        return self.pair.release(self.channel, promise, *self._parts(), size, self.ends)

    def record(self, released: TensorVariable) -> TensorVariable:
        """Draw the record from its law given the release and the parameters."""
        return self.pair.record(self.channel, *self._parts(), released, self.ends)

    def updated(self, released: TensorVariable) -> list[TensorVariable] | None:
        """Return the record's parameters given the release, or None where its law leaves the family."""
        if self.pair.update is None or self.ends != (-np.inf, np.inf):
            return None
        return self.pair.update(self.channel, *self._parts(), released)


@dataclass(frozen=True)
class FiniteWay:
    """A record with finitely many values, or several ones with finitely many combinations of them.

    Parameters: log probabilities of the values, then all parameters of the release at each of them, on an
    axis before those of one release.
    """

    channel: Any
    values: np.ndarray
    params: Params

    @classmethod
    def of(
        cls,
        channel: Any,
        values: np.ndarray,
        queries: np.ndarray,
        log_weights: TensorVariable,
        noise: Sequence[Any],
    ) -> "FiniteWay":
        """Return the way of values with these queries, whose noise does not depend on them."""
        levels = [
            pt.expand_dims(p, -core - 1) for p, core in zip(noise, channel.ndims_params[1:], strict=True)
        ]
        return cls(channel, values, (log_weights, pt.constant(queries), *levels))

    @property
    def cores(self) -> tuple[int, ...]:
        """Number of axes of each parameter that belong to one record."""
        return (1, *(core + 1 for core in self.channel.ndims_params))

    def _component(self, size: Any) -> TensorVariable:
        return call(self.channel, *self.params[1:], size=size)

    def release(self, size: Any, promise: dict[str, Any]) -> TensorVariable:
        """Return the law of the release, a mixture over the values."""
        log_weights = self.params[0]
        batch = log_weights.shape[:-1] if size is None else pt.as_tensor_variable(size)
        component = self._component((*_entries(batch), len(self.values)))
        return self._mixture(log_weights, component, promise)

    def _mixture(
        self, log_weights: TensorVariable, component: TensorVariable, promise: dict[str, Any]
    ) -> TensorVariable:
        return release_mixture(log_weights, [component], **promise)

    def record(self, released: TensorVariable) -> TensorVariable:
        """Draw one of the values with its probability given the release."""
        return pt.constant(self.values)[_index(self._terms(released))]

    def _terms(self, released: TensorVariable) -> TensorVariable:
        return self.params[0] + log_densities([self._component(None)], released)

    def updated(self, released: TensorVariable) -> TensorVariable:
        """Return the log probabilities of the values given the release."""
        terms = self._terms(released)
        return terms - pt.expand_dims(log_sum(terms), -1)


class ChildWay(FiniteWay):
    """Something else that is observed of a person, whose law depends on records with few values."""

    def _mixture(
        self, log_weights: TensorVariable, component: TensorVariable, promise: dict[str, Any]
    ) -> TensorVariable:
        return child_mixture(log_weights, component)


@dataclass(frozen=True)
class WholeWay:
    """An unbounded whole-numbered record; parameters: those of the record, then of the noise."""

    law: Any
    channel: Any
    tolerance: float
    params: Params

    @property
    def cores(self) -> tuple[int, ...]:
        """Number of axes of each parameter that belong to one record."""
        return (0,) * len(self.params)

    def _parts(self) -> tuple[list, list]:
        k = len(self.law.ndims_params)
        return list(self.params[:k]), list(self.params[k:])

    def release(self, size: Any, promise: dict[str, Any]) -> TensorVariable:
        """Return the law of the release."""
        return whole_release(self.law, self.channel, *self._parts(), size, self.tolerance, **promise)

    def record(self, released: TensorVariable) -> TensorVariable:
        """Draw the record from values that have all but a share `tolerance` of the probability."""
        k, terms = log_terms(released, self.law, self.channel, *self._parts(), self.tolerance)
        return taken(pt.broadcast_to(k, terms.shape), _index(terms))


@dataclass(frozen=True)
class MixtureWay:
    """A record whose law is a finite mixture; parameters: log weights, then those of the components."""

    components: tuple[Any, ...]
    params: Params

    @property
    def cores(self) -> tuple[int, ...]:
        """Number of axes of each parameter that belong to one record, including that of the components."""
        one = len(self.components) == 1
        return (1, *(core + one for way in self.components for core in way.cores))

    def _ways(self) -> list[Any]:
        ways, start = [], 1
        for way in self.components:
            stop = start + len(way.params)
            ways.append(replace(way, params=self.params[start:stop]))
            start = stop
        return ways

    def release(self, size: Any, promise: dict[str, Any]) -> TensorVariable:
        """Return the law of the release, a mixture of the components' releases."""
        laws = []
        for way in self._ways():
            own = size
            if len(self.components) == 1 and size is not None:
                own = (*_entries(pt.as_tensor_variable(size)), self.params[0].shape[-1])
            laws.append(way.release(own, promise))
        return release_mixture(self.params[0], laws, **promise)

    def record(self, released: TensorVariable) -> TensorVariable:
        """Draw the component given the release, then the record given both."""
        ways = self._ways()
        ndim_supp = ways[0].law.ndim_supp
        if len(ways) == 1:
            at = pt.expand_dims(released, -ndim_supp - 1)
            draws = ways[0].record(
                pt.broadcast_to(at, _inserted(released, self.params[0].shape[-1], ndim_supp))
            )
        else:
            draws = pt.stack([way.record(released) for way in ways], axis=-ndim_supp - 1)
        terms = self.params[0] + log_densities([way.release(None, {}) for way in ways], released)
        return taken(draws, _index(terms), ndim_supp)


@dataclass(frozen=True)
class CentralWay:
    """One release of noisy affine functions of all normal records.

    Parameters: the functions at the mean records, (d,) or (); their coefficients, (d, n) or (n,); means and
    standard deviations of the records, (n,); and standard deviations of the noise, (d,) or (). Records with
    several axes are flattened to one.
    """

    params: Params
    shape: tuple[Any, ...]

    @property
    def cores(self) -> tuple[int, ...]:
        """Number of axes of each parameter that belong to one data set."""
        d = self.params[0].type.ndim
        return (d, d + 1, 1, 1, d)

    def _covariance(self) -> TensorVariable:
        _, c, _, s, sigma = self.params
        scaled = c * pt.expand_dims(s, -2)
        variances = sigma * sigma + pt.zeros_like(scaled[..., 0])  # either may have an axis of draws in front
        eye = pt.eye(scaled.shape[-2])
        return pt.matmul(scaled, pt.swapaxes(scaled, -1, -2)) + variances[..., None] * eye

    def release(self, size: Any, promise: dict[str, Any]) -> TensorVariable:
        """Return the normal law of the release."""
        mean, c, _, s, sigma = self.params
        positive = {"msg": "sigma > 0, noise > 0"}
        if mean.type.ndim == 0:
            sd = pt.sqrt(pt.sum((c * s) ** 2) + sigma * sigma)
            return call(NormalMarginalRV(**promise), mean, check_parameters(sd, s > 0, sigma > 0, **positive))
        covariance = check_parameters(self._covariance(), s > 0, sigma > 0, **positive)
        return call(MvNormalMarginalRV(method="cholesky", **promise), mean, covariance)

    def record(self, released: TensorVariable) -> TensorVariable:
        """Draw records and noise from the prior, then shift the records to agree with the release."""
        mean, c, mu, s, sigma = self.params
        batch = released.shape[: released.type.ndim - self.n_axes]
        if self.n_axes == 0:
            mean, c, sigma, released = (
                mean[..., None],
                pt.expand_dims(c, -2),
                sigma[..., None],
                released[..., None],
            )
        way = replace(self, params=(mean, c, mu, s, sigma))
        free = s * call(NormalRV(), 0.0, 1.0, size=(*_entries(batch), mu.shape[-1]))
        noise = sigma * call(NormalRV(), 0.0, 1.0, size=released.shape)
        gap = released - mean - noise - pt.sum(c * pt.expand_dims(free, -2), axis=-1)
        weights = pt.linalg.solve(way._covariance(), gap[..., None])[..., 0]
        moved = mu + free + s * s * pt.sum(c * weights[..., None], axis=-2)
        return moved.reshape((*_entries(batch), *self.shape))

    n_axes: int = 0


@dataclass(frozen=True)
class LaplaceSumWay(CentralWay):
    """One number, an affine function of all normal records, with Laplace noise; parameters: the same."""

    def _sd(self) -> TensorVariable:
        _, c, _, s, _ = self.params
        return pt.sqrt(pt.sum((c * s) ** 2, axis=-1))

    def release(self, size: Any, promise: dict[str, Any]) -> TensorVariable:
        """Return the law of the release, normal and Laplace."""
        mean, _, _, s, scale = self.params
        sd = check_parameters(self._sd(), s > 0, msg="sigma > 0")
        return call(NormalLaplaceRV(**promise), mean, sd, scale)

    def record(self, released: TensorVariable) -> TensorVariable:
        """Draw the sum given the release, and records from the prior, which are shifted to have that sum."""
        mean, c, mu, s, scale = self.params
        sd = self._sd()
        total = call(NormalGivenLaplace, mean, sd, released, scale, *UNCLAMPED)
        free = s * call(NormalRV(), 0.0, 1.0, size=(*_entries(released.shape), mu.shape[-1]))
        gap = (total - mean - pt.sum(c * free, axis=-1)) / sd**2
        moved = mu + free + s * s * c * gap[..., None]
        return moved.reshape((*_entries(released.shape), *self.shape))


def _entries(shape: TensorVariable) -> list[TensorVariable]:
    """Return the entries of a shape as a list."""
    return [shape[k] for k in range(shape.type.shape[0])]


def _inserted(t: TensorVariable, length: Any, ndim_supp: int) -> list[Any]:
    """Return the shape of an array with an axis of `length` inserted before its last `ndim_supp` axes."""
    entries: Sequence[Any] = [t.shape[k] for k in range(t.type.ndim)]
    k = t.type.ndim - ndim_supp
    return [*entries[:k], length, *entries[k:]]


def _index(terms: TensorVariable) -> TensorVariable:
    """Draw an index along the last axis, with probabilities in proportion to exp(terms)."""
    rng = pt.random.shared_rng(seed=None)
    return pt.random.categorical(pt.special.softmax(terms, axis=-1), rng=rng, return_next_rng=True)[1]
