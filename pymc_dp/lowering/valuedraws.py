"""Draws in value space, of laws whose draws round to the end of their support.

A beta variable with a parameter of 0.05 is 1 in floating point one time in six, and its log odds then
infinite; a gamma variable of small shape underflows. Their log odds and logarithm are ordinary numbers, and
are drawn here.
"""

import math
from typing import Any

import numba
import pytensor.tensor as pt
from pymc.logprob.transforms import LogOddsTransform, LogTransform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BetaRV, GammaRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.bits import standard_exponential
from pymc_dp.lowering.draws import ScalarDraw
from pymc_dp.lowering.rowdraws import inside_of
from pymc_dp.lowering.rows import ROW, RowGraph
from pymc_dp.lowering.samplers import register_draw_of


@numba.njit
def _log_gamma(rng, shape):  # type: ignore[no-untyped-def]
    # a gamma variable of shape a is one of shape a + 1 times the power 1/a of a uniform one
    if shape >= 1.0:
        return math.log(rng.standard_gamma(shape))
    return math.log(rng.standard_gamma(shape + 1.0)) - standard_exponential(rng) / shape


@numba.njit
def _log_odds(rng, alpha, beta):  # type: ignore[no-untyped-def]
    return _log_gamma(rng, alpha) - _log_gamma(rng, beta)


@numba.njit
def _logarithm(rng, shape, scale):  # type: ignore[no-untyped-def]
    return _log_gamma(rng, shape) + math.log(scale)


class LogOddsBetaRV(RandomVariable):
    """Log odds of a beta variable."""

    name = "log_odds_beta"
    signature = "(),()->()"
    dtype = "float64"


class LogGammaRV(RandomVariable):
    """Logarithm of a gamma variable with shape and scale."""

    name = "log_gamma"
    signature = "(),()->()"
    dtype = "float64"


register_draw_of(LogOddsBetaRV, lambda op: _log_odds)
register_draw_of(LogGammaRV, lambda op: _logarithm)

_LAWS = {
    (BetaRV, LogOddsTransform): (LogOddsBetaRV(), pt.expit),
    (GammaRV, LogTransform): (LogGammaRV(), pt.exp),
}


def draw_value(
    rows: RowGraph, rv: Any, transform: Any, index: tuple[int, ...], rng: Variable, label: int
) -> tuple[TensorVariable, TensorVariable] | None:
    """Return a draw of one entry in value space and in natural space, for the laws that need it."""
    op = rv.owner.op
    found = _LAWS.get((type(op), type(transform)))
    if found is None or rv.dtype != "float64":
        return None
    law, backward = found
    full = (ROW, *index)
    numbers = []
    for p in op.dist_params(rv.owner):
        entry = rows.entry(p, full[len(full) - p.type.ndim :] if p.type.ndim else ())
        numbers.append(pt.scalar_from_tensor(pt.cast(entry, "float64")))
    guard = inside_of(rows, rv, index)
    value: Any = pt.tensor_from_scalar(ScalarDraw(law, label, guarded=bool(guard))(rng, *guard, *numbers))
    return value, backward(value)
