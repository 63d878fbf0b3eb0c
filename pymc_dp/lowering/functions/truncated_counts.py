"""Truncated Poisson, binomial and negative binomial variables, drawn without an end to the number of trials.

PyMC draws from the whole law again until the number is within the ends, up to a number of times, and raises
an error then. Here a few such trials are followed by sums of the probabilities within the ends, as those of
all counts follow from that of one by ratios.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.random import basic as ptr
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random
from pymc_dp.lowering.functions.samplers import register_draw_of

# Draws from the whole law before probabilities are summed up; and after that, where it would take too long.
TRIALS, LAST_TRIALS = 8, 100_000
# A probability below this, of those summed up so far, is not told apart from zero by a uniform number.
_NOTHING = 1e-17
# Counts whose probabilities are summed up, at most, on either side of the likeliest.
_MOST = 1_000_000
# Counts from here on are not looked for.
_LARGEST = 1e15


@njit
def poisson_ratio(k: float, mean: float) -> float:
    """Return the probability of k + 1 in that of k."""
    return mean / (k + 1.0)


@njit
def binomial_ratio(k: float, n: float, p: float) -> float:
    """Return the probability of k + 1 in that of k."""
    return (n - k) / (k + 1.0) * (p / (1.0 - p))


@njit
def negative_binomial_ratio(k: float, n: float, p: float) -> float:
    """Return the probability of k + 1 in that of k."""
    return (n + k) / (k + 1.0) * (1.0 - p)


@njit
def _poisson(rng, mean):  # type: ignore[no-untyped-def]
    return rng.poisson(mean)


@njit
def _binomial(rng, n, p):  # type: ignore[no-untyped-def]
    return rng.binomial(np.int64(n), p)


@njit
def _negative_binomial(rng, n, p):  # type: ignore[no-untyped-def]
    return rng.poisson(rng.standard_gamma(n) * (1.0 - p) / p)


@njit
def _poisson_mode(mean: float) -> float:
    return mean if mean >= 0.0 else np.nan


@njit
def _binomial_mode(n: float, p: float) -> float:
    return n * p if n >= 0.0 and 0.0 <= p <= 1.0 else np.nan


@njit
def _negative_binomial_mode(n: float, p: float) -> float:
    return max((n - 1.0) * (1.0 - p) / p, 0.0) if n > 0.0 and 0.0 < p <= 1.0 else np.nan


def _truncated(draw: Callable, mode: Callable, ratio: Callable) -> Callable[..., Any]:
    """Return the function that draws a truncated variable: of a generator, parameters and both ends."""

    @njit
    def truncated(rng, *numbers):  # type: ignore[no-untyped-def]
        law, least, most = numbers[:-2], max(np.ceil(numbers[-2]), 0.0), np.floor(numbers[-1])
        middle = mode(*law)
        if not (middle < _LARGEST and least <= most and least < _LARGEST):
            return -1  # no law, and no count
        for _ in range(TRIALS):
            k = draw(rng, *law)
            if least <= k <= most:
                return k
        # the likeliest, or another in proportion to its probability, in place of one before it
        top = min(max(np.floor(middle), least), most)
        chosen, total, weight, at = top, 1.0, 1.0, top
        n_up = n_down = 0
        while n_up < _MOST:
            share = ratio(at, *law) if at < most else 0.0
            weight *= share
            if not weight > _NOTHING * total * max(1.0 - share, 0.0):
                break
            at, n_up = at + 1.0, n_up + 1
            total += weight
            if random(rng) * total < weight:
                chosen = at
        weight, at = 1.0, top
        while n_down < _MOST:
            share = 1.0 / ratio(at - 1.0, *law) if at > least else 0.0
            weight *= share
            if not weight > _NOTHING * total * max(1.0 - share, 0.0):
                break
            at, n_down = at - 1.0, n_down + 1
            total += weight
            if random(rng) * total < weight:
                chosen = at
        if max(n_up, n_down) < _MOST:
            return np.int64(chosen)
        for _ in range(LAST_TRIALS):
            k = draw(rng, *law)
            if least <= k <= most:
                return k
        return -1

    return truncated


# By operation: the probability of k + 1 in that of k, given k and the parameters.
RATIOS: dict[type, Callable[..., float]] = {
    ptr.PoissonRV: poisson_ratio,
    ptr.BinomialRV: binomial_ratio,
    ptr.NegBinomialRV: negative_binomial_ratio,
}
# By operation: how a truncated variable is drawn, and how many parameters its law has.
LAWS: dict[type, tuple[Callable[..., Any], int]] = {
    ptr.PoissonRV: (_truncated(_poisson, _poisson_mode, poisson_ratio), 1),
    ptr.BinomialRV: (_truncated(_binomial, _binomial_mode, binomial_ratio), 2),
    ptr.NegBinomialRV: (
        _truncated(_negative_binomial, _negative_binomial_mode, negative_binomial_ratio),
        2,
    ),
}


class TruncatedCountRV(RandomVariable):
    """A variable of one of these laws restricted to values between two ends, which are among them."""

    name = "truncated_count"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", "kind")

    def __init__(self, kind: type, **kwargs: Any):
        self.kind = kind
        kwargs["signature"] = ",".join(["()"] * (LAWS[kind][1] + 2)) + "->()"
        super().__init__(**kwargs)


register_draw_of(TruncatedCountRV, lambda op: LAWS[op.kind][0])


def truncated_count(node: Apply) -> tuple[TruncatedCountRV, list[Variable]] | None:
    """Return the law of a truncated count, and its parameters with both ends; None for other variables."""
    op = node.op
    if not isinstance(op, TruncatedRV) or type(op.base_rv_op) not in LAWS:
        return None
    numbers = [v for v in node.inputs if not isinstance(v.type, RandomGeneratorType)]
    n = LAWS[type(op.base_rv_op)][1] + 2  # before them is the size, if one was given
    return TruncatedCountRV(type(op.base_rv_op)), numbers[-n:]


@node_rewriter([TruncatedRV])
def truncated_counts_without_errors(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Let truncated counts be drawn by the functions of this module."""
    law = truncated_count(node)
    if law is None:
        return None
    rng, size = node.inputs[:2]
    op, parameters = law
    after, drawn = op.make_node(rng, size, *parameters).outputs
    return [drawn.astype(node.outputs[0].dtype), after]
