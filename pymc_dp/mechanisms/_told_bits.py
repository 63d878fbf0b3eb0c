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
from pymc_dp.mechanisms._response_forms import AnswerTables, checked_table, entry
from pymc_dp.mechanisms.marginals import Ends, MarginalOp, RecordMarginal, call
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS
from pymc_dp.upstream.pymc_private import _logprob, _support_point

_MOST = 700.0  # beyond this epsilon a lie is less probable than numbers can say


class ToldBitRV(MarginalOp, RandomVariable):
    """Draws a report whose truth is integrated out; parameters: probability of yes, table of the answers."""

    name = "told_bit"
    signature = "(),(k,a)->()"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", *MECHANISM_PROPS)
    _print_name = ("ToldBit", "\\operatorname{ToldBit}")

    def rng_fn(self, rng: np.random.Generator, p: Any, table: Any, size: Any) -> np.ndarray:
        """Draw with NumPy."""
        batch = np.broadcast_shapes(np.shape(p), np.shape(table)[:-2]) if size is None else tuple(size)
        return AnswerTables.draw(rng, rng.binomial(1, p, batch), table, 2, batch)


@njit
def _draw(rng, p, table):  # type: ignore[no-untyped-def]
    row = 1 if rng.random() < p else 0
    last = 0
    for j in range(table.shape[1]):
        if table[row, j] > 0.0:
            last = j
    u = rng.random()
    for j in range(last):
        u -= table[row, j]
        if u < 0.0:
            return np.int64(j)
    return np.int64(last)


register_draw(ToldBitRV, _draw)


@_logprob.register(ToldBitRV)
def _log_probability(
    op: Any, values: Any, rng: Any, size: Any, p: Any, table: Any, **kwargs: Any
) -> TensorVariable:
    """Return the log probability of each report; under one law for all, each is worked out once."""
    (value,) = values
    answers = table.type.shape[-1]
    alike = set(p.type.shape) | set(table.type.shape[:-2]) <= {1}
    if alike and value.type.ndim:
        # the tables' last axis takes the place of the people's
        shares = log_share(p[..., None], table[..., 0, :], table[..., 1, :])
        density = shares.reshape((-1,))[pt.clip(value, 0, answers - 1)]
    else:
        density = log_share(p, *(_picked(table[..., truth, :], value) for truth in (0, 1)))
    density = pt.switch(whole_within(value, answers - 1), density, -np.inf)
    density = check_parameters(density, p >= 0, p <= 1, msg="0 <= p <= 1")
    return checked_table(density, table)


def _picked(laws: TensorVariable, value: TensorVariable) -> TensorVariable:
    """Return the probability of each report."""
    if laws.type.shape[-1] == 2:  # which is part of one loop over people
        return pt.switch(pt.eq(value, 1), laws[..., 1], laws[..., 0])
    return entry(laws[..., None, :], pt.zeros_like(value), value)


def log_share(p: Any, no: Any, yes: Any) -> TensorVariable:
    """Return the log probability of a report that has these probabilities where the truth is no, and yes."""
    # What is small beside 1 is not lost: PyTensor knows 1 - p of a probability p that is a sigmoid, and the
    # less probable truth is taken apart.
    likelier = pt.switch(yes >= no, p, 1.0 - p)
    low, high = pt.minimum(yes, no), pt.maximum(yes, no)
    return pt.log(low + likelier * (high - low))


@_support_point.register(ToldBitRV)
def _likelier(op: Any, rv: Any, rng: Any, size: Any, p: Any, table: Any) -> TensorVariable:
    """Return the likeliest report of the likelier truth."""
    likeliest = AnswerTables.likeliest(pt.cast(pt.ge(p, 0.5), "int64"), table)
    return pt.cast(pt.broadcast_to(likeliest, rv.shape), "int64")


def _release(
    op: Any, promise: dict[str, Any], params: list, noise: list, size: Any, ends: Ends
) -> TensorVariable:
    return call(ToldBitRV(**promise), *params, op.form.bits(*noise), size=size)


def _record(op: Any, params: list, noise: list, released: TensorVariable, ends: Ends) -> TensorVariable:
    (p,) = params
    table = op.form.bits(*noise)
    no, yes = (_picked(table[..., truth, :], released) for truth in (0, 1))
    return call(BernoulliRV(), p * yes / (p * yes + (1.0 - p) * no))


def _refuse(op: Any, ends: Ends) -> str | None:
    if op.n_categories != 2 or not (ends[0] <= 0 and ends[1] >= 1):
        return "its reports are not of yes and no"
    if op.guarantee is not None and op.guarantee.epsilon > _MOST:
        return "its lies are too rare for numbers"
    return None


TOLD_BIT = RecordMarginal(_release, _record, refuse=_refuse)
