"""Upper tails of laws of counts: the probability of many, and a count that few are beyond."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.random.basic import BinomialRV, GeometricRV, NegBinomialRV, PoissonRV
from pytensor.tensor.variable import TensorVariable

# Below it a probability has no number of its own; and the largest count that is told.
_TINY, _LARGEST = 1e-290, 2.0**52


def _of_poisson(k: TensorVariable, mu: TensorVariable) -> TensorVariable:
    return pt.gammainc(k, mu)


def _of_negative_binomial(k: TensorVariable, n: TensorVariable, p: TensorVariable) -> TensorVariable:
    return pt.betainc(k, n, 1.0 - p)


def _of_binomial(k: TensorVariable, n: TensorVariable, p: TensorVariable) -> TensorVariable:
    left = pt.cast(n, "float64") - k + 1.0
    return pt.switch(left > 0, pt.betainc(k, pt.maximum(left, 1.0), p), 0.0)


# The probability of k and more, an incomplete gamma or beta function, for laws that have many values.
TAILS: dict[type, Callable[..., TensorVariable]] = {
    PoissonRV: _of_poisson,
    NegBinomialRV: _of_negative_binomial,
    BinomialRV: _of_binomial,
}


def log_tail(law: Any, rows: Sequence[Any], log_f: Any, k: TensorVariable) -> TensorVariable:
    """Return the log probability of k and more.

    Parameters
    ----------
    law : RandomVariable
        Operation that draws counts, geometric ones or one of `TAILS`.
    rows : sequence of TensorVariable
        Its parameters.
    log_f : callable
        Log probability of a count.
    k : TensorVariable
    """
    at = pt.cast(k, "float64")
    if isinstance(law, GeometricRV):
        return pt.switch(pt.gt(at, 1.0), (at - 1.0) * pt.log1p(-rows[0]), 0.0)
    (tail,) = (of(at, *rows) for kind, of in TAILS.items() if isinstance(law, kind))
    few = pt.gt(tail, _TINY)
    # beyond, it is a geometric series to within a share of about 1 / k
    first = log_f(k)
    ratio = pt.exp(pt.switch(pt.gt(first, -math.inf), pt.minimum(log_f(k + 1) - first, -1e-9), -1.0))
    return pt.switch(few, pt.log(pt.switch(few, tail, 1.0)), first - pt.log1p(-ratio))


def few_beyond(law: Any, params: Sequence[Any], log_level: TensorVariable) -> TensorVariable | None:
    """Return a count that is exceeded with a log probability below a level; None for other laws.

    By Chernoff's bound: of Poisson and binomial counts in Bernstein's form; of negative binomial ones with
    two exponents, of which one is good for many expected counts and one for few.

    Parameters
    ----------
    law : RandomVariable
    params : sequence of TensorVariable
    log_level : TensorVariable

    Returns
    -------
    TensorVariable or None
        A whole number, as a float.
    """
    params = [disconnected_grad(pt.cast(p, "float64")) for p in params]
    x = pt.maximum(-disconnected_grad(log_level), 0.0)
    if isinstance(law, PoissonRV):
        found = _bernstein(params[0], x)
    elif isinstance(law, BinomialRV):
        n, p = params
        found = pt.minimum(n, _bernstein(n * p, x))
    elif isinstance(law, GeometricRV):
        found = 1.0 + x / -pt.log1p(-params[0])
    elif isinstance(law, NegBinomialRV):
        n, p = params
        q = 1.0 - p
        root = pt.sqrt(q)
        many = 2 * (x + n * pt.log1p(root)) / -pt.log1p(-p)
        rare = pt.lt(q, 0.4)
        few = (x + n * pt.log1p(q / (1 - 2 * pt.switch(rare, q, 0.0)))) / math.log(2)
        found = pt.switch(rare, pt.minimum(many, few), many)
    else:
        return None
    return pt.ceil(pt.switch(pt.lt(found, _LARGEST), pt.maximum(found, 0.0), _LARGEST))  # NaN is not less


def _bernstein(mean: TensorVariable, x: TensorVariable) -> TensorVariable:
    return mean + pt.sqrt(2 * mean * x) + x / 3
