"""Records as a function of parameter-free noise: x = h(u, theta), u = h^{-1}(x, theta).

Location-scale families keep u exact in the tails and differentiable; other continuous families have their
nearer tail for u (:mod:`.tails`), discrete ones their distribution function, with u drawn uniformly on the
step of it that x stands on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from pymc_dp.step_methods.updates.tails import DEEPEST, tail_noise, tail_record
from pymc_dp.upstream.pymc_private import printed_name


class NoNoiseForm(ValueError):
    """A record variable that cannot be written as a function of parameter-free noise."""


EVERYWHERE = (-np.inf, np.inf)
# Upper tail of a count, as a probability, below which quantiles lose too many digits to be inverted.
SMALLEST_TAIL = 1e-13


@dataclass(frozen=True)
class NoiseForm:
    """Both directions; ``rv`` is the record with its parameters under some reading.

    ``smooth`` says whether the records are differentiable in the parameters at fixed noise. ``within`` are
    the values that give their noise back: those nearer to an end of the support are rounded to others;
    ``deepest`` is the least noise, up to its sign, that has its digits, and ``highest`` the largest. Of a
    series, ``steps`` is what each entry is beyond those before it, as a function of its own noise, and
    ``pieces`` are the laws that it is made of, each with its part of the noise and its values.
    ``slow`` says that a distribution function is inverted by iterations: some 10 us a record.
    """

    to_noise: Callable[[TensorVariable, TensorVariable], TensorVariable]
    to_record: Callable[[TensorVariable, TensorVariable], TensorVariable]
    smooth: bool = True
    within: tuple[float, float] = EVERYWHERE
    deepest: float | None = None
    highest: float | None = None
    steps: Callable[[TensorVariable, TensorVariable], TensorVariable] | None = None
    pieces: "Callable[[TensorVariable, TensorVariable], list[Piece]] | None" = None
    slow: bool = False

    def gives_back(self, u: TensorVariable, x: TensorVariable) -> list[TensorVariable]:
        """Conditions, entry by entry, for values ``x`` to give their noise ``u`` back."""
        if self.pieces is not None:
            return [c for form, *each in self.pieces(u, x) for c in form.gives_back(*each)]
        kept = []
        if self.deepest is not None:
            kept.append(pt.gt(pt.abs(u), self.deepest))
        if self.highest is not None:
            kept.append(pt.lt(u, self.highest))
        if self.within != EVERYWHERE:
            # PyTensor tries small types for a number that has none, and warns that it does not fit
            ends = (pt.constant(end, dtype="float64") for end in self.within)
            kept += [compare(x, end) for compare, end in zip((pt.ge, pt.le), ends, strict=True)]
        return kept


Of = Callable[..., TensorVariable]
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


def _transformed(to_noise: Of, to_record: Of, within: tuple[float, float] = EVERYWHERE) -> NoiseForm:
    """Families that are an expression of standard noise: functions of a value, or noise, and parameters."""

    def by(function: Of) -> Callable[[TensorVariable, TensorVariable], TensorVariable]:
        # numbers in a model may be float32, and what is computed from them alone would be, too
        return lambda v, rv: function(v, *(pt.cast(p, "float64") for p in rv.owner.op.dist_params(rv.owner)))

    return NoiseForm(by(to_noise), by(to_record), within=within)


def _mv_normal_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
    mu, cov = rv.owner.op.dist_params(rv.owner)
    chol = pt.linalg.cholesky(cov)
    return pt.linalg.solve_triangular(chol, (x - mu)[..., None], lower=True, b_ndim=2)[..., 0]


def _mv_normal_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
    mu, cov = rv.owner.op.dist_params(rv.owner)
    chol = pt.linalg.cholesky(cov)
    return mu + (chol @ u[..., None])[..., 0]


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


def noise_on_step(x: TensorVariable, rv: TensorVariable, share: TensorVariable) -> TensorVariable:
    """Return a place on the step of a discrete law's distribution function that ``x`` stands on."""
    below, at = _steps(rv, x)
    return below + (at - below) * share


def _discrete_noise(x: TensorVariable, rv: TensorVariable) -> TensorVariable:
    shape = tuple(int(s) for s in x.type.shape)  # those of the step's own arrays
    return noise_on_step(x, rv, draw(pt.random.uniform, 0.0, 1.0, size=shape))


def _discrete_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
    if isinstance(rv.owner.op, rb.CategoricalRV):
        (p,) = rv.owner.op.dist_params(rv.owner)
        # the last step ends at 1 whatever rounding says
        ends = pt.cumsum(p, axis=-1)[..., :-1]
        return pt.sum(pt.gt(u[..., None], ends), axis=-1)
    if isinstance(rv.owner.op, rb.BernoulliRV):
        (p,) = rv.owner.op.dist_params(rv.owner)
        return pt.cast(pt.gt(u, 1 - p), rv.dtype)
    # PyMC's check would end the chain where there is no law; the density is zero there and refuses the move
    return pt.cast(parameter_checks_to_values(pm.icdf(rv, u)), rv.dtype)


def _count_record(u: TensorVariable, rv: TensorVariable) -> TensorVariable:
    return pt.cast(count_quantile(rv, u), rv.dtype)


# Numbers with all their digits; and below one, the largest whose distance to it has six of them.
_SMALLEST, _HUGE, _BELOW_ONE = 1e-290, 1e290, 1 - 1e-10

_POSITIVE, _REAL = (
    NoiseForm(tail_noise, tail_record, smooth=False, within=ends, deepest=DEEPEST, slow=True)
    for ends in ((_SMALLEST, _HUGE), (-_HUGE, _HUGE))
)
# further down, the inverse of its distribution function may stop too early
_BETA = replace(_POSITIVE, within=(_SMALLEST, _BELOW_ONE), deepest=1e-100)
# its tails are differences of two numbers: what is left of them has seven digits down to here
_SKEW_NORMAL = replace(_REAL, deepest=1e-9)
_DISCRETE, _COUNT = (
    NoiseForm(
        _discrete_noise,
        back,
        smooth=False,
        within=(-LARGEST, LARGEST),
        deepest=0.0,
        highest=1 - SMALLEST_TAIL,
    )
    for back in (_discrete_record, _count_record)
)

_LOG_NORMAL = _transformed(
    lambda x, mu, sigma: (pt.log(x) - mu) / sigma,
    lambda u, mu, sigma: pt.exp(mu + sigma * u),
    (_SMALLEST, _HUGE),
)
_UNIFORM = _transformed(lambda x, lo, hi: (x - lo) / (hi - lo), lambda u, lo, hi: lo + (hi - lo) * u)
# of exponential noise
_WEIBULL = _transformed(
    lambda x, shape, scale: (x / scale) ** shape,
    lambda u, shape, scale: scale * u ** (1 / shape),
    (_SMALLEST, _HUGE),
)
_PARETO = _transformed(
    lambda x, shape, least: shape * pt.log(x / least),
    lambda u, shape, least: least * pt.exp(u / shape),
    (_SMALLEST, _HUGE),
)
_KUMARASWAMY = _transformed(
    lambda x, a, b: -b * pt.log1mexp(a * pt.log(x)),
    lambda u, a, b: (-pt.expm1(-u / b)) ** (1 / a),
    (_SMALLEST, _BELOW_ONE),
)

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
    rb.LogNormalRV: _LOG_NORMAL,
    rb.UniformRV: _UNIFORM,
    rb.MvNormalRV: NoiseForm(_mv_normal_noise, _mv_normal_record),
    rb.GammaRV: _POSITIVE,
    rb.BetaRV: _BETA,
    rb.InvGammaRV: _POSITIVE,
    rb.ParetoRV: _PARETO,
    continuous.WeibullBetaRV: _WEIBULL,
    continuous.KumaraswamyRV: _KUMARASWAMY,
    continuous.AsymmetricLaplaceRV: replace(_REAL, slow=False),
    continuous.ExGaussianRV: _REAL,
    continuous.SkewNormalRV: _SKEW_NORMAL,
    rb.TriangularRV: replace(_REAL, deepest=1e-20, slow=False),  # beyond, its ends are too near
    continuous.WaldRV: _POSITIVE,
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


def count_form(rv: Any) -> NoiseForm | None:
    """Return how counts are a function of noise, each of its own; None where their law has no quantiles."""
    try:
        return family_form(rv, lambda graph: True)
    except NoNoiseForm:
        return None
