"""Normal records behind Gaussian noise and what was done after it: the law of a release without its record.

The noisy record is normal, so that what is published of it has the mass of the same interval under a wider
normal law. Given that interval the noisy record is a truncated normal, and given that the record is normal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import TruncatedNormalRV
from pymc.distributions.dist_math import check_parameters
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import standard_normal
from pymc_dp.lowering.functions.samplers import SAMPLERS, register_draw
from pymc_dp.mechanisms.marginals import (
    UNCLAMPED,
    Ends,
    MarginalOp,
    NormalMarginalRV,
    RecordMarginal,
    call,
)
from pymc_dp.mechanisms.processed import ProcessedRV

_truncated_normal = SAMPLERS[TruncatedNormalRV]


@njit
def _draw(rng, mu, s, lower, upper, sigma):  # type: ignore[no-untyped-def]
    """Draw the noisy record within its interval, then the record."""
    tau = math.hypot(s, sigma)
    z = lower if lower == upper else _truncated_normal(rng, mu, tau, lower, upper)
    share = s / tau
    return mu + (z - mu) * share * share + sigma * share * standard_normal(rng)


@njit
def _fill(rng, mu, s, lower, upper, sigma, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = _draw(rng, mu[i], s[i], lower[i], upper[i], sigma[i])


class NormalGivenIntervalRV(RandomVariable):
    """y ~ N(mu, s^2) given that y + N(0, sigma^2) is between two ends; parameters: mu, s, ends, sigma."""

    name = "normal_given_interval"
    signature = "(),(),(),(),()->()"
    dtype = "floatX"
    _print_name = ("NormalGivenInterval", "\\operatorname{NormalGivenInterval}")

    @classmethod
    def rng_fn(cls, rng: Any, *args: Any) -> np.ndarray:
        """Draw."""
        *given, size = args
        params = np.broadcast_arrays(*given)
        shape = params[0].shape if size is None else tuple(size)
        out = np.empty(int(np.prod(shape)))
        _fill(rng, *(np.broadcast_to(p, shape).astype(float).ravel() for p in params), out)
        return out.reshape(shape)


register_draw(NormalGivenIntervalRV, _draw)
normal_given_interval = NormalGivenIntervalRV()


class ProcessedMarginalRV(MarginalOp, ProcessedRV):
    """A processed release whose normal records are integrated out; parameters: mean, standard deviation."""


def _release(
    op: Any, promise: Mapping[str, Any], params: list, noise: list, size: Any, ends: Ends
) -> TensorVariable:
    (mu, s), (sigma,) = params, noise
    sd = check_parameters(pt.sqrt(s * s + sigma * sigma), s > 0, sigma > 0, msg="sigma > 0, noise > 0")
    law = ProcessedMarginalRV(noise=NormalMarginalRV(), processing=op.processing, dtype=op.dtype, **promise)
    return call(law, mu, sd, size=size)


def _record(op: Any, params: list, noise: list, released: TensorVariable, ends: Ends) -> TensorVariable:
    lower, upper = op.processing.preimage(pt, pt.cast(released, "float64"))
    return call(normal_given_interval, *params, lower, upper, *noise)


def _no_clamp(op: Any, ends: Ends) -> str | None:
    if ends == UNCLAMPED:
        return None
    return "records that are clamped before the noise have no closed marginal where it was processed after it"


PROCESSED_NORMAL = RecordMarginal(_release, _record, refuse=_no_clamp)
