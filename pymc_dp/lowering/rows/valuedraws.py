"""Draws in value space, of laws whose draws round to the end of their support.

A beta variable with a parameter of 0.05 is 1 in floating point one time in six, and its log odds then
infinite; a gamma variable of small shape underflows, and its inverse overflows. Their log odds and logarithm
are ordinary numbers, and are drawn here.
"""

import math
from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
from pymc.distributions.transforms import SimplexTransform
from pymc.logprob.transforms import LogOddsTransform, LogTransform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BetaRV, GammaRV, InvGammaRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.normals import sum_of
from pymc_dp.lowering.functions.samplers import log_gamma, register_draw_of
from pymc_dp.lowering.functions.simplex import probability
from pymc_dp.lowering.rows.domains import inside_of
from pymc_dp.lowering.rows.draws import ScalarDraw
from pymc_dp.lowering.rows.rows import MAX_UNROLL, ROW, NotScalar, RowGraph


@njit
def _log_odds(rng, alpha, beta):  # type: ignore[no-untyped-def]
    return log_gamma(rng, alpha) - log_gamma(rng, beta)


@njit
def _logarithm(rng, shape, scale):  # type: ignore[no-untyped-def]
    return log_gamma(rng, shape) + math.log(scale)


@njit
def _logarithm_of_inverse(rng, shape, scale):  # type: ignore[no-untyped-def]
    return math.log(scale) - log_gamma(rng, shape)


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


class LogInverseGammaRV(RandomVariable):
    """Logarithm of an inverse gamma variable with shape and scale."""

    name = "log_inverse_gamma"
    signature = "(),()->()"
    dtype = "float64"


register_draw_of(LogOddsBetaRV, lambda op: _log_odds)
register_draw_of(LogGammaRV, lambda op: _logarithm)
register_draw_of(LogInverseGammaRV, lambda op: _logarithm_of_inverse)

_LAWS = {
    (BetaRV, LogOddsTransform): (LogOddsBetaRV(), pt.expit),
    (GammaRV, LogTransform): (LogGammaRV(), pt.exp),
    (InvGammaRV, LogTransform): (LogInverseGammaRV(), pt.exp),
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


def entry_from_values(
    transform: Any,
    rv: Any,
    index: tuple[int, ...],
    number: Callable[[tuple[int, ...]], Variable],
    inputs: Callable[[], list[Variable]],
) -> TensorVariable:
    """Return an entry of a variable from its numbers in value space, of which ``number`` gives any.

    ``inputs`` gives those of the variable's operation, with entries for parameters, as transforms take them.
    """
    if isinstance(transform, SimplexTransform):
        *lead, k = index
        values: list[Any] = [pt.tensor_from_scalar(number((*lead, j))) for j in range(rv.type.shape[-1] - 1)]
        return pt.cast(probability(values, k), rv.dtype)
    value: Any = pt.tensor_from_scalar(number(index))
    return pt.cast(value if transform is None else transform.backward(value, *inputs()), rv.dtype)


def draw_log_ratios(
    rows: RowGraph, rv: Any, lead: tuple[int, ...], rng: Variable, label: int
) -> list[TensorVariable]:
    """Return a row of a Dirichlet law as the simplex transform has it: logarithms less their mean.

    They are numbers however small a probability is. Rows with one that rounds to zero must not be refused:
    how likely they are depends on the concentrations.
    """
    (alpha,), size = rv.owner.op.dist_params(rv.owner), rv.type.shape[-1]
    if size is None or size > MAX_UNROLL or not rows.is_free(alpha):
        raise NotScalar(f"{rv.name} has many probabilities, or concentrations that depend on records")
    one = pt.scalar_from_tensor(pt.constant(1.0))
    full = (ROW, *lead)
    logs: list[Any] = []
    for k in range(size):
        a = rows.entry(alpha, (*full[len(full) - (alpha.type.ndim - 1) :], k))
        own_label = -(10**9 + label * MAX_UNROLL + k)  # apart from those of single draws, and of vectors
        drawn = ScalarDraw(LogGammaRV(), own_label)(rng, pt.scalar_from_tensor(pt.cast(a, "float64")), one)
        logs.append(pt.tensor_from_scalar(drawn))
    mean = sum_of(logs) / size
    return [v - mean for v in logs[:-1]]
