"""Records as a function of parameter-free noise: x = h(u, theta), u = h^{-1}(x, theta).

Location-scale families keep u exact in the tails and differentiable; other continuous families use their
quantile function, discrete ones too, with u drawn uniformly on the step of the distribution function that
x stands on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions import continuous, discrete
from pytensor.tensor.random import basic as rb
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.native import draw
from pymc_dp.lowering.rows.domains import parameter_checks_to_values
from pymc_dp.lowering.rows.quantile import LARGEST, count_quantile, count_steps
from pymc_dp.upstream.pymc_private import printed_name


class NoNoiseForm(ValueError):
    """A record variable that cannot be written as a function of parameter-free noise."""


EVERYWHERE = (-np.inf, np.inf)
# Upper tail, as a probability, below which quantiles lose too many digits to be inverted.
SMALLEST_TAIL = 1e-13


@dataclass(frozen=True)
class NoiseForm:
    """Both directions; ``rv`` is the record with its parameters under some reading.

    ``smooth`` says whether the records are differentiable in the parameters at fixed noise. ``within`` are
    the values that give their noise back: those nearer to an end of the support are rounded to others. Of a
    series, ``steps`` is what each entry is beyond those before it, as a function of its own noise, and
    ``pieces`` are the laws that it is made of, each with its part of the noise and its values.
    """

    to_noise: Callable[[TensorVariable, TensorVariable], TensorVariable]
    to_record: Callable[[TensorVariable, TensorVariable], TensorVariable]
    smooth: bool = True
    within: tuple[float, float] = EVERYWHERE
    steps: Callable[[TensorVariable, TensorVariable], TensorVariable] | None = None
    pieces: "Callable[[TensorVariable, TensorVariable], list[Piece]] | None" = None

    def gives_back(self, u: TensorVariable, x: TensorVariable) -> list[TensorVariable]:
        """Conditions, entry by entry, for values ``x`` to give their noise ``u`` back."""
        if self.pieces is not None:
            return [c for form, *each in self.pieces(u, x) for c in form.gives_back(*each)]
        kept = [] if self.smooth else [pt.gt(u, 0), pt.lt(u, 1 - SMALLEST_TAIL)]
        if self.within != EVERYWHERE:
            kept += [pt.ge(x, self.within[0]), pt.le(x, self.within[1])]
        return kept


Piece = tuple[NoiseForm, TensorVariable, TensorVariable]


def _location_scale(location: int | None, scale: int | None) -> NoiseForm:
    """Families whose standardised value is free of parameters; indices of location and scale."""

    def ends(rv: TensorVariable) -> tuple[Any, Any]:
        params = rv.owner.op.dist_params(rv.owner)
        return 0.0 if location is None else params[location], 1.0 if scale is None else params[scale]

    def to_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
        loc, s = ends(rv)
        return (x - loc) / s

    def to_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
        loc, s = ends(rv)
        return loc + s * u

    return NoiseForm(to_noise, to_record)


def _log_normal_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
    mu, sigma = rv.owner.op.dist_params(rv.owner)
    return (pt.log(x) - mu) / sigma


def _log_normal_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
    mu, sigma = rv.owner.op.dist_params(rv.owner)
    return pt.exp(mu + sigma * u)


def _uniform_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
    lo, hi = rv.owner.op.dist_params(rv.owner)
    return (x - lo) / (hi - lo)


def _uniform_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
    lo, hi = rv.owner.op.dist_params(rv.owner)
    return lo + (hi - lo) * u


def _mv_normal_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
    mu, cov = rv.owner.op.dist_params(rv.owner)
    chol = pt.linalg.cholesky(cov)
    return pt.linalg.solve_triangular(chol, (x - mu)[..., None], lower=True, b_ndim=2)[..., 0]


def _mv_normal_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
    mu, cov = rv.owner.op.dist_params(rv.owner)
    chol = pt.linalg.cholesky(cov)
    return mu + (chol @ u[..., None])[..., 0]


def _quantile_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
    return pt.exp(pm.logcdf(rv, x))


def _quantile_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
    # PyMC's check would end the chain where there is no law; the density is zero there and refuses the move
    return parameter_checks_to_values(pm.icdf(rv, u))


def _steps(rv: TensorVariable, x: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Distribution function just below and at x, for a discrete law."""
    if isinstance(rv.owner.op, rb.CategoricalRV):
        (p,) = rv.owner.op.dist_params(rv.owner)
        k = pt.arange(p.shape[-1])
        below = pt.sum(p * pt.lt(k, x[..., None]), axis=-1)
        return below, below + pt.sum(p * pt.eq(k, x[..., None]), axis=-1)
    if _FORMS[type(rv.owner.op)] is _COUNT:
        return count_steps(rv, x)
    return pt.exp(pm.logcdf(rv, x - 1)), pt.exp(pm.logcdf(rv, x))


def _discrete_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
    below, at = _steps(rv, x)
    shape = tuple(int(s) for s in x.type.shape)  # those of the step's own arrays
    return below + (at - below) * draw(pt.random.uniform, 0.0, 1.0, size=shape)


def _discrete_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
    if isinstance(rv.owner.op, rb.CategoricalRV):
        (p,) = rv.owner.op.dist_params(rv.owner)
        # the last step ends at 1 whatever rounding says
        ends = pt.cumsum(p, axis=-1)[..., :-1]
        return pt.sum(pt.gt(u[..., None], ends), axis=-1)
    if isinstance(rv.owner.op, rb.BernoulliRV):
        (p,) = rv.owner.op.dist_params(rv.owner)
        return pt.cast(pt.gt(u, 1 - p), rv.dtype)
    return pt.cast(_quantile_record(u, rv), rv.dtype)


def _count_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
    return pt.cast(count_quantile(rv, u), rv.dtype)


# Numbers with all their digits; and below one, the largest whose distance to it has six of them.
_SMALLEST, _HUGE, _BELOW_ONE = 1e-290, 1e290, 1 - 1e-10

_POSITIVE = NoiseForm(_quantile_noise, _quantile_record, smooth=False, within=(_SMALLEST, _HUGE))
_SHARE = NoiseForm(_quantile_noise, _quantile_record, smooth=False, within=(_SMALLEST, _BELOW_ONE))
_REAL = NoiseForm(_quantile_noise, _quantile_record, smooth=False, within=(-_HUGE, _HUGE))
_DISCRETE = NoiseForm(_discrete_noise, _discrete_record, smooth=False, within=(-LARGEST, LARGEST))
_COUNT = NoiseForm(_discrete_noise, _count_record, smooth=False, within=(-LARGEST, LARGEST))

# One row per family: adding a family is adding its operation here.
_FORMS: dict[type, NoiseForm] = {
    rb.NormalRV: _location_scale(0, 1),
    rb.LaplaceRV: _location_scale(0, 1),
    rb.LogisticRV: _location_scale(0, 1),
    rb.CauchyRV: _location_scale(0, 1),
    rb.GumbelRV: _location_scale(0, 1),
    rb.StudentTRV: _location_scale(1, 2),  # with fixed degrees of freedom: checked in family_form
    rb.ExponentialRV: _location_scale(None, 0),
    rb.HalfNormalRV: _location_scale(0, 1),
    continuous.HalfCauchyRV: _location_scale(None, 0),
    rb.LogNormalRV: NoiseForm(_log_normal_noise, _log_normal_record, within=(_SMALLEST, _HUGE)),
    rb.UniformRV: NoiseForm(_uniform_noise, _uniform_record),
    rb.MvNormalRV: NoiseForm(_mv_normal_noise, _mv_normal_record),
    rb.GammaRV: _POSITIVE,
    rb.BetaRV: _SHARE,
    rb.InvGammaRV: _POSITIVE,
    rb.ParetoRV: _POSITIVE,
    continuous.WeibullBetaRV: _POSITIVE,
    continuous.KumaraswamyRV: _SHARE,
    continuous.MoyalRV: _location_scale(0, 1),
    rb.BernoulliRV: _DISCRETE,
    rb.CategoricalRV: _DISCRETE,
    rb.GeometricRV: _DISCRETE,
    rb.BinomialRV: _COUNT,
    rb.PoissonRV: _COUNT,
    rb.NegBinomialRV: _COUNT,
    discrete.DiscreteUniformRV: _DISCRETE,
}


def family_form(
    rv: TensorVariable, moving: Callable[[TensorVariable], bool], name: str | None = None
) -> NoiseForm:
    """Return how a variable of a known family is a function of parameter-free noise.

    Parameters
    ----------
    rv : TensorVariable
        Record variable or parameter of the model, or a law that one is made of.
    moving : callable
        Whether a graph depends on the parameters that are to move.
    name : str, optional
        What the law is of, for the message; the variable's name by default.

    Raises
    ------
    NoNoiseForm
        If its family has no known form; the message says why.
    """
    op: RandomVariable = rv.owner.op
    form = _FORMS.get(type(op))
    if form is None:
        raise NoNoiseForm(
            f"{name or rv.name} has the law {printed_name(op)}, for which no "
            "quantile function or location-scale form is known"
        )
    params = op.dist_params(rv.owner)
    if isinstance(op, rb.StudentTRV) and moving(params[0]):
        return _REAL
    if isinstance(op, rb.MvNormalRV) and getattr(op, "method", "cholesky") is None:
        raise NoNoiseForm(f"{name or rv.name} has no Cholesky form")
    return form
