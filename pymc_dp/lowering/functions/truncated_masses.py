"""Densities of truncated counts, with all digits far out in a tail.

PyMC divides the density of a law by a difference of its distribution function at both ends, which has no
digits where next to all of the law is below the lower one. Here the nearer tail is taken: both distribution
function and survival function of these laws are incomplete gamma and beta functions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic as ptr
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.truncated_counts import TruncatedCountRV, truncated_count
from pymc_dp.upstream.pymc_private import _logprob

Tail = Callable[..., TensorVariable]


def _poisson_below(k: Any, mean: Any) -> TensorVariable:
    return pt.gammaincc(k + 1.0, pt.maximum(mean, 0.0))


def _poisson_above(k: Any, mean: Any) -> TensorVariable:
    return pt.gammainc(k + 1.0, pt.maximum(mean, 0.0))


def _binomial_below(k: Any, n: Any, p: Any) -> TensorVariable:
    inside = pt.lt(k, n)
    at = pt.switch(inside, k, 0.0)
    whole = pt.maximum(n, 1.0)
    return pt.switch(inside, pt.betainc(whole - at, at + 1.0, 1.0 - p), 1.0)


def _binomial_above(k: Any, n: Any, p: Any) -> TensorVariable:
    inside = pt.lt(k, n)
    at = pt.switch(inside, k, 0.0)
    whole = pt.maximum(n, 1.0)
    return pt.switch(inside, pt.betainc(at + 1.0, whole - at, p), 0.0)


def _negative_binomial_below(k: Any, n: Any, p: Any) -> TensorVariable:
    return pt.betainc(n, k + 1.0, p)


def _negative_binomial_above(k: Any, n: Any, p: Any) -> TensorVariable:
    return pt.betainc(k + 1.0, n, 1.0 - p)


# By operation: the probabilities of at most k, and of more than k, for k from zero on.
_TAILS: dict[type, tuple[Tail, Tail]] = {
    ptr.PoissonRV: (_poisson_below, _poisson_above),
    ptr.BinomialRV: (_binomial_below, _binomial_above),
    ptr.NegBinomialRV: (_negative_binomial_below, _negative_binomial_above),
}


def log_mass(kind: type, law: Sequence[Any], lower: Any, upper: Any) -> TensorVariable:
    """Return the logarithm of the probability of the counts between two ends, which are among them.

    Parameters
    ----------
    kind : type
        Operation that draws the whole law: Poisson, binomial or negative binomial.
    law : sequence of tensor_like
        Its parameters, as that operation takes them.
    lower, upper : tensor_like
        Ends, any numbers or infinite.

    Returns
    -------
    TensorVariable
        To some 14 digits of the probability where that is a normal number (from 1e-307 on), or of the nearer
        tail's if few counts in the middle of a wide law are within the ends. Minus infinity where it rounds
        to zero: a density that is divided by it is infinite there, which steps refuse.
    """
    at_most, more_than = _TAILS[kind]
    least, most = pt.ceil(lower) - 1.0, pt.floor(upper)
    from_below, to_above = _always(lower, -np.inf), _always(upper, np.inf)
    first, last = pt.maximum(least, 0.0), pt.maximum(most, 0.0)
    below = 0.0 if from_below else pt.switch(pt.lt(least, 0.0), 0.0, at_most(first, *law))
    above = 0.0 if to_above else pt.switch(pt.isinf(most), 0.0, more_than(_finite(last), *law))
    if to_above:
        mass = 1.0 if from_below else pt.switch(pt.lt(least, 0.0), 1.0, more_than(first, *law))
        return pt.log(pt.as_tensor(mass))
    up_to = pt.switch(pt.isinf(most), 1.0, at_most(_finite(last), *law))
    up_to = pt.switch(pt.lt(most, 0.0), 0.0, up_to)
    if from_below:
        return pt.log(up_to)
    beyond = pt.switch(pt.lt(least, 0.0), 1.0, more_than(first, *law))
    return pt.log(pt.maximum(pt.switch(pt.lt(beyond, up_to), beyond - above, up_to - below), 0.0))


def _finite(k: TensorVariable) -> TensorVariable:
    return pt.switch(pt.isinf(k), 0.0, k)


def _always(end: Variable, value: float) -> bool:
    """Whether an end is a constant of one value."""
    return isinstance(end, Constant) and bool(np.all(end.data == value))


@_logprob.register(TruncatedCountRV)
def _truncated_count_logp(
    op: TruncatedCountRV, values: Sequence[Any], rng: Any, size: Any, *parameters: Any, **kwargs: Any
) -> TensorVariable:
    (value,) = values
    *law, lower, upper = parameters
    whole = op.kind().make_node(rng, None, *law).outputs[1]  # type: ignore[attr-defined]
    logp = pm.logp(whole, value) - log_mass(op.kind, law, lower, upper)
    logp = pt.switch(pt.and_(pt.ge(value, lower), pt.le(value, upper)), logp, -np.inf)
    return check_parameters(logp, pt.le(lower, upper), msg="lower_bound <= upper_bound")


def with_all_digits(rv: Any) -> Any:
    """Return a variable with the truncated counts that its law is made of by operations of this package.

    Variables of a model behind it, which have names, are laws of their own.
    """
    named = {v for v in ancestors([rv]) if v.name is not None and v is not rv}
    changed: dict[Variable, Variable] = {}
    for v in ancestors([rv], blockers=named):
        node = v.owner if v not in named else None
        cut = truncated_count(node) if node is not None else None
        if node is None or cut is None or v is not node.outputs[0]:
            continue
        op, parameters = cut
        drawn = op.make_node(*node.inputs[:2], *parameters).outputs[1]
        changed[v] = pt.specify_shape(drawn.astype(v.type.dtype), v.type.shape)  # type: ignore[attr-defined]
    if not changed or rv in changed:
        return changed.get(rv, rv)
    return graph_replace([rv], changed, strict=False)[0]
