"""Releases of records that are integrated out, where the marginal law has a closed form.

A :class:`RecordMarginal` is for a record of a known family and a release of it alone, possibly clamped before
the noise. It holds the law of the release without the record, and the law of the record given the release. A
mechanism lists its pairs in ``record_marginals``, and no other module refers to them.

References
----------
Reed (2006), *The normal-Laplace distribution and its relatives*, for the density without clamping.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.noisy_normal import log_clamped_normal, log_normal_laplace
from pymc_dp.lowering.functions.samplers import register_draw_of
from pymc_dp.lowering.rows.intervals import always_positive
from pymc_dp.mechanisms.conditionals import NormalGivenGaussian, NormalGivenLaplace
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, MechanismOp
from pymc_dp.upstream.pymc_private import _logprob, _support_point

Ends = tuple[float, float]
UNCLAMPED: Ends = (-math.inf, math.inf)


@dataclass(frozen=True)
class RecordMarginal:
    """How records of one family are integrated out of their own releases.

    Attributes
    ----------
    release : callable
        ``(op, promise, params, noise, size, ends) -> rv``: the law of the release, from the mechanism's
        operation, its guarantee and other properties (keyword arguments of an operation), the parameters of
        the record and of the noise, the shape of the release or None, and the ends that the record is clamped
        to.
    record : callable
        ``(op, params, noise, released, ends) -> rv``: the law of the record given its release.
    update : callable, optional
        ``(op, params, noise, released) -> params``: where the law of an unclamped record given its release is
        in the record's own family, its parameters. The record may then have further releases.
    refuse : callable, optional
        ``(op, ends) -> str or None``: the reason why there is no closed form in this case, if there is one.
    """

    release: Callable[..., TensorVariable]
    record: Callable[..., TensorVariable]
    update: Callable[..., list[TensorVariable]] | None = None
    refuse: Callable[[Any, Ends], str | None] | None = None


class MarginalOp(MechanismOp):
    """Mix-in of operations that draw a release whose records are integrated out.

    ``records`` has their names and those of the other records of their block, such as latent parents that two
    of them share: releases with one of these names in common are about the same people.
    """

    of_records = False
    noise_parameters = False


class SymbolicMarginal(MarginalOp):
    """The same mix-in for operations that are graphs, whose constructors take other arguments."""

    def __init__(
        self,
        *args: Any,
        guarantee: Any = None,
        bounds: Any = None,
        records: Any = None,
        lengths: Any = None,
        why_none: Any = None,
        **kwargs: Any,
    ):
        self.guarantee, self.bounds, self.records, self.lengths = guarantee, bounds, records, lengths
        self.why_none = why_none
        super(MechanismOp, self).__init__(*args, **kwargs)  # type: ignore[call-arg]

    def laws(self, node: Any) -> list[TensorVariable]:
        """Return the inputs of a node that are parts of its release's law, not releases themselves."""
        return []


def promise_of(op: Any, records: tuple[str, ...]) -> dict[str, Any]:
    """Return a release's guarantee and other properties, as keyword arguments of its marginal's operation."""
    why = None if op.guarantee is not None else op.why_none or op.why_unknown
    own = {"guarantee": op.guarantee, "bounds": op.bounds, "lengths": op.lengths, "why_none": why}
    return own | {"records": records}


def _total_sd(s: TensorVariable, sigma: TensorVariable) -> TensorVariable:
    return pt.sqrt(s * s + sigma * sigma)


def call(op: Any, *params: Any, size: Any = None) -> TensorVariable:
    """Return a random variable with a generator of its own."""
    return op(*params, size=size, rng=pt.random.shared_rng(seed=None), return_next_rng=True)[1]


class NormalMarginalRV(MarginalOp, NormalRV):
    """A normal release whose records are integrated out; parameters: mean, standard deviation."""

    __props__ = (*NormalRV.__props__, *MECHANISM_PROPS)  # type: ignore[assignment]
    _print_name = ("NormalMarginal", "\\operatorname{NormalMarginal}")
    family = "gaussian"


class MvNormalMarginalRV(MarginalOp, MvNormalRV):
    """A multivariate normal release whose records are integrated out; parameters: mean, covariance."""

    __props__ = (*MvNormalRV.__props__, *MECHANISM_PROPS)  # type: ignore[assignment]
    _print_name = ("MvNormalMarginal", "\\operatorname{MvNormalMarginal}")


class _NormalReleaseRV(MarginalOp, RandomVariable):
    """A noisy release of a normal record; parameters: the record's mean and sd, the noise level."""

    signature = "(),(),()->()"
    dtype = "floatX"
    __props__ = ("name", "signature", "dtype", "inplace", "ends", *MECHANISM_PROPS)

    def __init__(self, name: str | None = None, *, ends: Ends = UNCLAMPED, **kwargs: Any) -> None:
        self.ends = ends
        super().__init__(name, **kwargs)

    def rng_fn(self, rng: np.random.Generator, mu: Any, s: Any, noise: Any, size: Any) -> np.ndarray:
        """Draw the record, then its release."""
        shape = np.broadcast_shapes(*map(np.shape, (mu, s, noise))) if size is None else tuple(size)
        record = np.clip(rng.normal(mu, s, shape), *self.ends)
        return record + self.noise(rng, noise, shape)

    @staticmethod
    def noise(rng: np.random.Generator, level: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Draw noise."""
        raise NotImplementedError


class NormalLaplaceRV(_NormalReleaseRV):
    """clamp(y, lo, hi) + Laplace noise, y normal."""

    name = "normal_laplace"
    _print_name = ("NormalLaplace", "\\operatorname{NormalLaplace}")

    @staticmethod
    def noise(rng: np.random.Generator, level: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Draw Laplace noise."""
        return rng.laplace(0.0, level, shape)


class ClampedNormalRV(_NormalReleaseRV):
    """clamp(y, lo, hi) + Gaussian noise, y normal."""

    name = "clamped_normal"
    _print_name = ("ClampedNormal", "\\operatorname{ClampedNormal}")

    @staticmethod
    def noise(rng: np.random.Generator, level: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Draw Gaussian noise."""
        return rng.normal(0.0, level, shape)


@lru_cache(maxsize=64)
def _draw_laplace(lo: float, hi: float) -> Any:
    @njit
    def draw(rng, mu, s, b):  # type: ignore[no-untyped-def]
        return min(max(rng.normal(mu, s), lo), hi) + rng.laplace(0.0, b)

    return draw


@lru_cache(maxsize=64)
def _draw_gaussian(lo: float, hi: float) -> Any:
    @njit
    def draw(rng, mu, s, sigma):  # type: ignore[no-untyped-def]
        return min(max(rng.normal(mu, s), lo), hi) + rng.normal(0.0, sigma)

    return draw


register_draw_of(NormalLaplaceRV, lambda op: _draw_laplace(*op.ends))
register_draw_of(ClampedNormalRV, lambda op: _draw_gaussian(*op.ends))


def _density(log_density: Callable[..., TensorVariable]) -> Callable[..., TensorVariable]:
    def logprob(
        op: Any, values: Any, rng: Any, size: Any, mu: Any, s: Any, noise: Any, **kwargs: Any
    ) -> TensorVariable:
        density = log_density(values[0], mu, s, noise, *op.ends)
        return check_parameters(density, s > 0, noise > 0, msg="sigma > 0, noise > 0")

    return logprob


_logprob.register(NormalLaplaceRV)(_density(log_normal_laplace))
_logprob.register(ClampedNormalRV)(_density(log_clamped_normal))


@_support_point.register(_NormalReleaseRV)
def _centre(op: Any, rv: Any, rng: Any, size: Any, mu: Any, s: Any, noise: Any) -> TensorVariable:
    """Return the record's mean, clamped."""
    return pt.broadcast_to(pt.clip(mu, *op.ends), rv.shape)


def _gaussian_release(
    op: Any, promise: Mapping[str, Any], params: list, noise: list, size: Any, ends: Ends
) -> TensorVariable:
    (mu, s), (sigma,) = params, noise
    if ends == UNCLAMPED:
        sd = _total_sd(s, sigma)
        # a negative standard deviation would go unnoticed in the sum of squares
        for deviation in (s, sigma):
            if not always_positive(deviation):
                sd = pt.switch(deviation > 0, sd, np.nan)
        sd = check_parameters(sd, s > 0, sigma > 0, msg="sigma > 0, noise > 0")
        return call(NormalMarginalRV(**promise), mu, sd, size=size)
    return call(ClampedNormalRV(ends=ends, **promise), mu, s, sigma, size=size)


def _laplace_release(
    op: Any, promise: Mapping[str, Any], params: list, noise: list, size: Any, ends: Ends
) -> TensorVariable:
    return call(NormalLaplaceRV(ends=ends, **promise), *params, *noise, size=size)


def _given(law: RandomVariable) -> Callable[..., TensorVariable]:
    def record(op: Any, params: list, noise: list, released: TensorVariable, ends: Ends) -> TensorVariable:
        return call(law, *params, released, *noise, *ends)

    return record


def _normal_update(op: Any, params: list, noise: list, released: TensorVariable) -> list[TensorVariable]:
    (mu, s), (sigma,) = params, noise
    share = s / _total_sd(s, sigma)
    return [mu + (released - mu) * share * share, sigma * share]


def _mv_release(
    op: Any, promise: Mapping[str, Any], params: list, noise: list, size: Any, ends: Ends
) -> TensorVariable:
    mean, cov = params
    # a matrix that is no covariance may look like one after the noise is added, and samplers of mixtures
    # ignore checks, so that the density itself has to tell
    root = pt.linalg.cholesky(cov, lower=True, on_error="nan")
    proper = pt.prod(pt.diagonal(root, axis1=-2, axis2=-1), axis=-1) > 0
    total = pt.switch(proper[..., None, None], cov + _noise_covariance(mean, noise), np.nan)
    total = check_parameters(total, proper, msg="posdef covariance")
    return call(MvNormalMarginalRV(method="cholesky", **promise), mean, total, size=size)


def _noise_covariance(mean: TensorVariable, noise: list) -> TensorVariable:
    (sigma,) = noise
    variances = sigma * sigma * pt.ones_like(mean)
    size = mean.type.shape[-1]
    return variances[..., None] * (pt.eye(mean.shape[-1]) if size is None else np.eye(size))


def _mv_record(op: Any, params: list, noise: list, released: TensorVariable, ends: Ends) -> TensorVariable:
    return call(
        MvNormalRV(method="cholesky"), *_mv_update(op, params, noise, released), size=released.shape[:-1]
    )


def _mv_update(op: Any, params: list, noise: list, released: TensorVariable) -> list[TensorVariable]:
    mean, cov = params
    gain = pt.linalg.solve(cov + _noise_covariance(mean, noise), cov)  # transposed: both are symmetric
    moved = mean + pt.sum((released - mean)[..., :, None] * gain, axis=-2)
    left = cov - pt.matmul(cov, gain)
    return [moved, 0.5 * (left + pt.swapaxes(left, -1, -2))]


def _no_clamp(op: Any, ends: Ends) -> str | None:
    if ends == UNCLAMPED:
        return None
    return "vectors that are clamped before the noise is added have no closed marginal"


NORMAL_GAUSSIAN = RecordMarginal(_gaussian_release, _given(NormalGivenGaussian), _normal_update)
NORMAL_LAPLACE = RecordMarginal(_laplace_release, _given(NormalGivenLaplace))
MVNORMAL_GAUSSIAN = RecordMarginal(_mv_release, _mv_record, _mv_update, _no_clamp)
