"""Unbounded whole-numbered records behind whole-numbered noise: sums over a range that is proven to suffice.

With f the law of a record and q that of the noise, the release z has probability sum_k f(k) q(z - k). The
terms with abs(z - k) > r add up to at most q(r + 1), since f adds up to at most 1; and any one term is a
lower bound of the sum. So r is chosen in the graph, at the present parameters, such that the terms left out
are at most a stated share of the sum, whatever f is.

Where the noise is large the law of the record may end the sum before, beyond a count that it exceeds with
less than that share. The two shares are half of the stated one each.

Of a processed release z is within an interval, whose lower end may be infinite. Its probability given k is at
most that of a tail of the noise, as far as k is from the interval; a law without negative values starts at 0.
"""

import math
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable, support_point
from pytensor.gradient import disconnected_grad
from pytensor.tensor.random.basic import GeometricRV
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.log_sums import log_sum
from pymc_dp.marginals.sums import by_distinct
from pymc_dp.mechanisms._count_tails import few_beyond
from pymc_dp.mechanisms.marginals import SymbolicMarginal
from pymc_dp.mechanisms.processed import ProcessedRV
from pymc_dp.mechanisms.unknown_keys import CountLaw, log_listed
from pymc_dp.upstream.pymc_private import _logprob, _support_point

# The largest number of terms over all releases, and of an end of the sum.
MAX_TERMS, _LARGEST = 2**26, 2.0**52


class WholeReleaseRV(SymbolicMarginal, SymbolicRandomVariable):
    """Draws a whole-numbered record and its noisy release; inputs: parameters of the record and of the noise.

    Attributes
    ----------
    record, channel : RandomVariable
        Operations that draw the record, and its release.
    n_params : int
        Number of parameters of the record.
    tolerance : float
        Share of the probability that the sum may leave out.
    """

    name = "whole_release"
    _print_name = ("WholeRelease", "\\operatorname{WholeRelease}")

    def __init__(
        self, *args: Any, record: Any, channel: Any, n_params: int, tolerance: float, **kwargs: Any
    ) -> None:
        self.record, self.channel = record, channel
        self.n_params, self.tolerance = n_params, tolerance
        super().__init__(*args, **kwargs)

    @property
    def unknown_keys(self) -> bool | str:
        """Whether releases list only the keys that passed a threshold."""
        return getattr(self.channel, "unknown_keys", False)

    @property
    def why_unknown(self) -> str:  # type: ignore[override]
        """Why there may be no guarantee: what is true of the release with its record."""
        return str(self.channel.why_unknown)


def whole_release(
    record: Any, channel: Any, params: list, noise: list, size: Any, tolerance: float, **promise: Any
) -> TensorVariable:
    """Return the law of a noisy whole-numbered release whose record is integrated out."""
    rng = pt.random.shared_rng(seed=None)
    given = [] if size is None else [pt.as_tensor_variable(size)]
    between, drawn = record(*params, size=given[0] if given else None, rng=rng, return_next_rng=True)
    after, release = channel(pt.cast(drawn, "int64"), *noise, rng=between, return_next_rng=True)
    numbers = ",".join("()" for _ in (*params, *noise))
    inputs = [rng, *given, *params, *noise]
    node = WholeReleaseRV(
        inputs=inputs,
        outputs=[after, release],
        extended_signature=f"[rng],{'[size],' if given else ''}{numbers}->[rng],()",
        record=record,
        channel=channel,
        n_params=len(params),
        tolerance=tolerance,
        **promise,
    ).make_node(*inputs)
    return node.outputs[1]


def log_terms(
    value: TensorVariable, record: Any, channel: Any, params: list, noise: list, tolerance: float
) -> tuple[TensorVariable, TensorVariable]:
    """Return the values k of the record in the range, on the last axis, and log f(k) q(z - k) of each."""

    def log_f(k: TensorVariable, row: list) -> TensorVariable:
        return pm.logp(_applied(record, row), k)

    def log_q(k: TensorVariable, row: list, at: TensorVariable) -> TensorVariable:
        return pm.logp(_applied(channel, [k, *row]), at)

    likely = pt.cast(support_point(_applied(record, params)), "int64")
    if isinstance(channel, ProcessedRV):
        like, sure = value, channel.near(value, pt.constant(0.0), *noise)[1]
        sure = pt.cast(pt.maximum(sure, 0.0), "int64")  # which is finite
    else:
        like = sure = value = pt.cast(value, "int64")
    least = pt.maximum(
        log_f(sure, params) + log_q(sure, noise, like), log_f(likely, params) + log_q(likely, noise, like)
    )
    level = disconnected_grad(least) + math.log(tolerance / 2)
    if isinstance(channel, ProcessedRV):
        first, last = channel.near(value, level, *noise)
    else:
        reach = channel.reach(level, *noise)
        first, last = value - reach, value + reach
    beyond = few_beyond(record, params, level)
    if beyond is not None:
        last = pt.minimum(last, beyond)
    if isinstance(channel, ProcessedRV) or beyond is not None:
        first, last = pt.maximum(first, 0.0), pt.maximum(last, 0.0)
    # where noise and record are beyond all that data are like, no number is left
    last = pt.switch(pt.lt(last, _LARGEST), last, _LARGEST)
    first = pt.cast(pt.minimum(first, last), "int64")
    terms = pt.max(pt.cast(last, "int64") - first) + 1
    short = pt.le(terms, MAX_TERMS)
    k = first[..., None] + pt.arange(pt.switch(short, terms, 1))
    params, noise, likely = [p[..., None] for p in params], [p[..., None] for p in noise], likely[..., None]
    # derivatives may be NaN at impossible values of the record, which a likely value therefore replaces
    possible = pt.gt(disconnected_grad(log_f(k, params)), -np.inf)
    inside = log_f(pt.switch(possible, k, likely), params)
    possible = possible & short
    return k, pt.switch(possible, inside, -np.inf) + log_q(k, noise, value[..., None])


def _applied(op: Any, params: list) -> TensorVariable:
    """Return a random variable that is only needed for its law, and is never drawn."""
    return op.make_node(pt.random.shared_rng(seed=None), NoneConst, *params).outputs[1]


@_logprob.register(WholeReleaseRV)
def _log_probability(op: Any, values: Any, *inputs: Any, **kwargs: Any) -> TensorVariable:
    """Return the log probability of each release, of which a share of at most `tolerance` is left out."""
    given = list(inputs[-len(op.ndims_params) :])
    params, noise = given[: op.n_params], given[op.n_params :]

    def density(value: TensorVariable) -> TensorVariable:
        return log_sum(log_terms(value, op.record, op.channel, params, noise, op.tolerance)[1])

    (value,) = values
    found = by_distinct(density, value, given, [0] * len(given))
    if op.unknown_keys:
        law = CountLaw(op.record, params, int(isinstance(op.record, GeometricRV)))
        log_share = log_listed(law, op.channel, noise)
        found = pt.switch(pt.gt(log_share, -np.inf), found - log_share, -np.inf)
    return (
        found
        if value.type.dtype.startswith("int")
        else pt.switch(pt.eq(value, pt.floor(value)), found, -np.inf)
    )


@_support_point.register(WholeReleaseRV)
def _likely(op: Any, rv: Any, *inputs: Any) -> TensorVariable:
    """Return the support point of the record."""
    params = list(inputs[-len(op.ndims_params) :][: op.n_params])
    point = pt.broadcast_to(support_point(_applied(op.record, params)), rv.shape)
    if isinstance(op.channel, ProcessedRV):
        point = op.channel.processing.process(pt, pt.cast(point, "float64"))
    return pt.cast(point, rv.dtype)
