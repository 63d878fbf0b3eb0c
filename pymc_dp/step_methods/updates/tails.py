"""Continuous laws as functions of one number that tells their nearer tail: F, or minus 1 - F.

A probability near 1 has no digits left for what is above it, so F itself would lose records far up. The noise
of a record below the median is F there, and of one above it -(1 - F), which is negative: its sign says which
tail is solved, and is the same before and after a move.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions import continuous
from pytensor.tensor.math import betaincinv, gammainccinv, gammaincinv
from pytensor.tensor.random import basic as rb
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.rows.inversion import LAWS, value_of_tail

Of = Callable[..., TensorVariable]

# Probability of a tail from which on quantiles may have no digits, or be none.
DEEPEST = 1e-300


@dataclass(frozen=True)
class Tails:
    """Both tails of a law and their inverses, as functions of a value, or a tail, and of its parameters.

    ``below`` and ``above`` are F and 1 - F; ``from_below`` and ``from_above`` take these back to values. All
    take next to no time at the end of their tail, where probability is 0; ``top`` is the upper end. So only
    the tail that a record is in costs anything, though a graph has both.
    """

    below: Of
    above: Of
    from_below: Of
    from_above: Of
    top: float = np.inf


def tail_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
    """Return the nearer tail of records ``x`` under the law of ``rv``."""
    params = _parameters(rv)
    solved, law = LAWS.get(_kind(rv)), TAILS.get(_kind(rv))
    if law is None:
        assert solved is not None
        below = pt.exp(solved.below(x, *params))
        return pt.switch(pt.le(below, 0.5), below, -pt.exp(solved.above(x, *params)))
    below = law.below(x, *params)
    low = pt.le(below, 0.5)
    return pt.switch(low, below, -law.above(pt.switch(low, law.top, x), *params))


def tail_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
    """Return the records that have the tails ``u`` under the law of ``rv``."""
    law, params = TAILS.get(_kind(rv)), _parameters(rv)
    if law is None:
        return value_of_tail(rv, u)
    low = pt.gt(u, 0)
    below = law.from_below(pt.switch(low, u, 0.0), *params)
    return pt.switch(low, below, law.from_above(pt.switch(low, 0.0, -u), *params))


def _kind(rv: TensorVariable) -> type:
    return type(rv.owner.op)  # type: ignore[union-attr]


def _parameters(rv: TensorVariable) -> list[Any]:
    # numbers in a model may be float32, and what is computed from them alone would be, too
    return [pt.cast(p, "float64") for p in rv.owner.op.dist_params(rv.owner)]  # type: ignore[union-attr]


_GAMMA = Tails(
    lambda x, shape, scale: pt.gammainc(shape, x / scale),
    lambda x, shape, scale: pt.gammaincc(shape, x / scale),
    lambda p, shape, scale: scale * gammaincinv(shape, p),
    lambda p, shape, scale: scale * gammainccinv(shape, p),
)
_INVERSE_GAMMA = Tails(
    lambda x, shape, scale: pt.gammaincc(shape, scale / x),
    lambda x, shape, scale: pt.gammainc(shape, scale / x),
    lambda p, shape, scale: scale / gammainccinv(shape, p),
    lambda p, shape, scale: scale / gammaincinv(shape, p),
)
_BETA = Tails(
    lambda x, a, b: pt.betainc(a, b, x),
    lambda x, a, b: pt.betainc(b, a, 1 - x),
    lambda p, a, b: betaincinv(a, b, p),
    lambda p, a, b: 1 - betaincinv(b, a, p),
    top=1.0,
)


def _student_tail(t: TensorVariable, nu: TensorVariable) -> TensorVariable:
    """Mass beyond the distance ``t`` from zero, on one side: near zero, a half less what is within."""
    square, near = t**2, pt.lt(pt.abs(t), 1)
    far = pt.betainc(nu / 2, 0.5, nu / (nu + pt.switch(near, np.inf, square)))
    within = pt.switch(near, square, 0.0)
    return 0.5 * pt.switch(near, 1 - pt.betainc(0.5, nu / 2, within / (nu + within)), far)


def _student_distance(p: TensorVariable, nu: TensorVariable) -> TensorVariable:
    """Distance from zero that a mass is beyond: near zero, that of what is within."""
    far = pt.lt(p, 0.25)
    share = betaincinv(nu / 2, 0.5, pt.switch(far, 2 * p, 0.0))
    within = betaincinv(0.5, nu / 2, pt.switch(far, 0.0, pt.maximum(1 - 2 * p, 0.0)))
    beyond = pt.switch(pt.gt(share, DEEPEST), (1 - share) / share, np.inf)
    return pt.sqrt(nu * pt.switch(far, beyond, within / (1 - within)))


_STUDENT = Tails(
    # above the middle it is more than a half: what it is there does not matter
    lambda x, nu, mu, sigma: pt.switch(pt.le(x, mu), _student_tail(pt.minimum(x - mu, 0.0) / sigma, nu), 1.0),
    lambda x, nu, mu, sigma: _student_tail((x - mu) / sigma, nu),
    lambda p, nu, mu, sigma: mu - sigma * _student_distance(p, nu),
    lambda p, nu, mu, sigma: mu + sigma * _student_distance(p, nu),
)


def _share_below(kappa: TensorVariable) -> TensorVariable:
    return kappa**2 / (1 + kappa**2)


_ASYMMETRIC_LAPLACE = Tails(
    lambda x, b, kappa, mu: pt.switch(
        pt.le(x, mu),
        _share_below(kappa) * pt.exp(pt.minimum(x - mu, 0.0) * b / kappa),
        1 - pt.exp(pt.minimum(mu - x, 0.0) * b * kappa) / (1 + kappa**2),
    ),
    lambda x, b, kappa, mu: pt.switch(
        pt.le(x, mu),
        1 - _share_below(kappa) * pt.exp(pt.minimum(x - mu, 0.0) * b / kappa),
        pt.exp(pt.minimum(mu - x, 0.0) * b * kappa) / (1 + kappa**2),
    ),
    lambda p, b, kappa, mu: (
        mu
        + pt.switch(
            pt.le(p, _share_below(kappa)),
            kappa / b * pt.log(p / _share_below(kappa)),
            -pt.log((1 - p) * (1 + kappa**2)) / (kappa * b),
        )
    ),
    lambda p, b, kappa, mu: (
        mu
        + pt.switch(
            pt.le(p, 1 / (1 + kappa**2)),
            -pt.log(p * (1 + kappa**2)) / (kappa * b),
            kappa / b * pt.log((1 - p) / _share_below(kappa)),
        )
    ),
)
_TRIANGULAR = Tails(
    lambda x, lo, c, hi: pt.switch(
        pt.le(x, c), (x - lo) ** 2 / ((hi - lo) * (c - lo)), 1 - (hi - x) ** 2 / ((hi - lo) * (hi - c))
    ),
    lambda x, lo, c, hi: pt.switch(
        pt.le(x, c), 1 - (x - lo) ** 2 / ((hi - lo) * (c - lo)), (hi - x) ** 2 / ((hi - lo) * (hi - c))
    ),
    lambda p, lo, c, hi: pt.switch(
        pt.le(p * (hi - lo), c - lo),
        lo + pt.sqrt(p * (hi - lo) * (c - lo)),
        hi - pt.sqrt((1 - p) * (hi - lo) * (hi - c)),
    ),
    lambda p, lo, c, hi: pt.switch(
        pt.le(p * (hi - lo), hi - c),
        hi - pt.sqrt(p * (hi - lo) * (hi - c)),
        lo + pt.sqrt((1 - p) * (hi - lo) * (c - lo)),
    ),
)

TAILS: dict[type, Tails] = {
    rb.GammaRV: _GAMMA,
    rb.InvGammaRV: _INVERSE_GAMMA,
    rb.BetaRV: _BETA,
    rb.StudentTRV: _STUDENT,
    continuous.AsymmetricLaplaceRV: _ASYMMETRIC_LAPLACE,
    rb.TriangularRV: _TRIANGULAR,
}
