"""Yes-or-no records behind randomized response, integrated out.

A report is z with probability (o + p_z (1 - o)) / (1 + o), where p_z is the probability that the truth is z,
and o = exp(-epsilon) is how much less probable a lie is. That is one logarithm for each person, where a sum
over both truths takes several. The truth given its report is again a Bernoulli record.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.samplers import register_draw
from pymc_dp.mechanisms.marginals import Ends, MarginalOp, RecordMarginal, call
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS
from pymc_dp.upstream.pymc_private import _logprob, _support_point

_MOST = 700.0  # beyond this epsilon a lie is less probable than numbers can say


class ToldBitRV(MarginalOp, RandomVariable):
    """Draws a report of yes or no whose truth is integrated out; parameters: probability of yes, epsilon."""

    name = "told_bit"
    signature = "(),()->()"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", *MECHANISM_PROPS)
    _print_name = ("ToldBit", "\\operatorname{ToldBit}")

    def rng_fn(self, rng: np.random.Generator, p: Any, epsilon: Any, size: Any) -> np.ndarray:
        """Draw with NumPy."""
        lie = np.exp(-np.asarray(epsilon, dtype=float))
        return rng.binomial(1, (p + (1 - p) * lie) / (1 + lie), size)


@njit
def _draw(rng, p, epsilon):  # type: ignore[no-untyped-def]
    lie = math.exp(-epsilon)
    return np.int64(rng.random() * (1.0 + lie) < p + (1.0 - p) * lie)


register_draw(ToldBitRV, _draw)


@_logprob.register(ToldBitRV)
def _log_probability(
    op: Any, values: Any, rng: Any, size: Any, p: Any, epsilon: Any, **kwargs: Any
) -> TensorVariable:
    """Return the log probability of each report; under one law for all, yes and no are worked out once."""
    (value,) = values
    lie = pt.exp(-epsilon)

    def log_share(own: TensorVariable) -> TensorVariable:
        # as own + (1 - own) lie, PyTensor would take own = 1 - p apart, and lose what is small beside 1
        return pt.log(lie - own * pt.expm1(-epsilon)) - pt.log1p(lie)

    if all(set(v.type.shape) <= {1} for v in (p, epsilon)) and value.type.ndim:
        density = pt.switch(pt.eq(value, 1), log_share(p), log_share(1.0 - p))
    else:
        density = log_share(pt.switch(pt.eq(value, 1), p, 1.0 - p))
    density = pt.switch(pt.eq(value, 0) | pt.eq(value, 1), density, -np.inf)
    return check_parameters(density, p >= 0, p <= 1, epsilon >= 0, msg="0 <= p <= 1, epsilon >= 0")


@_support_point.register(ToldBitRV)
def _likelier(op: Any, rv: Any, rng: Any, size: Any, p: Any, epsilon: Any) -> TensorVariable:
    """Return the likelier report."""
    return pt.cast(pt.broadcast_to(pt.ge(p, 0.5), rv.shape), "int64")


def _release(
    op: Any, promise: dict[str, Any], params: list, noise: list, size: Any, ends: Ends
) -> TensorVariable:
    return call(ToldBitRV(**promise), *params, *noise, size=size)


def _record(op: Any, params: list, noise: list, released: TensorVariable, ends: Ends) -> TensorVariable:
    (p,), (epsilon,) = params, noise
    lie = pt.exp(-epsilon)
    yes = p * pt.switch(pt.eq(released, 1), 1.0, lie)
    no = (1.0 - p) * pt.switch(pt.eq(released, 0), 1.0, lie)
    return call(BernoulliRV(), yes / (yes + no))


def _refuse(op: Any, ends: Ends) -> str | None:
    if op.n_categories != 2 or not (ends[0] <= 0 and ends[1] >= 1):
        return "its reports are not of yes and no"
    if op.guarantee is not None and op.guarantee.epsilon > _MOST:
        return "its lies are too rare for numbers"
    return None


TOLD_BIT = RecordMarginal(_release, _record, refuse=_refuse)
