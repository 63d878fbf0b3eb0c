"""Yes-or-no records behind randomized response, integrated out.

A report is z with probability (1 - p) P(z | no) + p P(z | yes), where p is the probability that the truth is
yes. That is one logarithm for each person, where a sum over both truths takes several. The truth given its
report is again a Bernoulli record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.samplers import register_draw
from pymc_dp.mechanisms._categories import whole_within
from pymc_dp.mechanisms._response_draws import answer
from pymc_dp.mechanisms._response_forms import AnswerTables, checked_table, entry
from pymc_dp.mechanisms.marginals import Ends, MarginalOp, RecordMarginal, call
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS
from pymc_dp.upstream.pymc_private import _logprob, _support_point

_MOST = 700.0  # beyond this epsilon a lie is less probable than numbers can say


class ToldBitRV(MarginalOp, RandomVariable):
    """Draws a report whose truth is integrated out; parameters: probability of yes, log table of answers."""

    name = "told_bit"
    signature = "(),(k,a)->()"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", *MECHANISM_PROPS)
    _print_name = ("ToldBit", "\\operatorname{ToldBit}")

    def rng_fn(self, rng: np.random.Generator, p: Any, logs: Any, size: Any) -> np.ndarray:
        """Draw with NumPy."""
        batch = np.broadcast_shapes(np.shape(p), np.shape(logs)[:-2]) if size is None else tuple(size)
        return AnswerTables.draw(rng, rng.binomial(1, p, batch), np.exp(logs), 2, batch)


@njit
def _draw(rng, p, logs):  # type: ignore[no-untyped-def]
    return answer(rng, 1 if rng.random() < p else 0, np.exp(logs))


register_draw(ToldBitRV, _draw)


@_logprob.register(ToldBitRV)
def _log_probability(
    op: Any, values: Any, rng: Any, size: Any, p: Any, logs: Any, **kwargs: Any
) -> TensorVariable:
    """Return the log probability of each report; under one law for all, each is worked out once."""
    (value,) = values
    answers = logs.type.shape[-1]
    no, yes = logs[..., 0, :], logs[..., 1, :]
    low, high = pt.minimum(no, yes), pt.maximum(no, yes)
    change = pt.switch(pt.eq(high, -np.inf), 0.0, low - high)
    parts = (pt.ge(yes, no), high, pt.exp(change), pt.expm1(change))
    if set(p.type.shape) | set(logs.type.shape[:-2]) <= {1} and value.type.ndim:
        shares = _log_share(p[..., None], *parts)  # their last axis takes the place of the people's
        density = shares.reshape((-1,))[pt.clip(value, 0, answers - 1)]
    else:
        density = _log_share(p, *(_picked(part, value) for part in parts))
    density = pt.switch(whole_within(value, answers - 1), density, -np.inf)
    density = check_parameters(density, p >= 0, p <= 1, msg="0 <= p <= 1")
    return checked_table(density, logs, pt.exp)


def _log_share(p: Any, is_yes: Any, log_high: Any, ratio: Any, ratio_minus_one: Any) -> TensorVariable:
    """Return the log probability of a report, from its log probability where the truth is likelier.

    `ratio` is by how much less probable it is where the truth is the other, which may be small beside 1.
    """
    own = pt.switch(is_yes, p, 1.0 - p)
    # as own + (1 - own) ratio, PyTensor would take own = 1 - p apart, and lose what is small beside 1
    return log_high + pt.log(ratio - own * ratio_minus_one)


def _picked(of_answers: TensorVariable, value: TensorVariable) -> TensorVariable:
    """Return what is known of each report."""
    if of_answers.type.shape[-1] == 2:  # which is part of one loop over people
        return pt.switch(pt.eq(value, 1), of_answers[..., 1], of_answers[..., 0])
    return entry(of_answers[..., None, :], pt.zeros_like(value), value)


@_support_point.register(ToldBitRV)
def _likelier(op: Any, rv: Any, rng: Any, size: Any, p: Any, logs: Any) -> TensorVariable:
    """Return the likeliest report of the likelier truth."""
    likeliest = AnswerTables.likeliest(pt.cast(pt.ge(p, 0.5), "int64"), logs)
    return pt.cast(pt.broadcast_to(likeliest, rv.shape), "int64")


def _release(
    op: Any, promise: dict[str, Any], params: list, noise: list, size: Any, ends: Ends
) -> TensorVariable:
    return call(ToldBitRV(**promise), *params, op.form.log_bits(*noise), size=size)


def _record(op: Any, params: list, noise: list, released: TensorVariable, ends: Ends) -> TensorVariable:
    (p,) = params
    logs = op.form.log_bits(*noise)
    no, yes = (_picked(logs[..., truth, :], released) for truth in (0, 1))
    high = pt.maximum(no, yes)
    no, yes = (1.0 - p) * pt.exp(no - high), p * pt.exp(yes - high)
    return call(BernoulliRV(), yes / (yes + no))


def _refuse(op: Any, ends: Ends) -> str | None:
    if op.n_categories != 2 or not (ends[0] <= 0 and ends[1] >= 1):
        return "its reports are not of yes and no"
    if op.guarantee is not None and op.guarantee.epsilon > _MOST:
        return "its lies are too rare for numbers"
    return None


TOLD_BIT = RecordMarginal(_release, _record, refuse=_refuse)
