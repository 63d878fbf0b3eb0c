"""Noise with density proportional to exp(-norm), and releases with it for a quadratic loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.samplers import register_draw_of
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, MechanismOp
from pymc_dp.upstream.pymc_private import _logprob, _support_point


def norm_of(vectors: Any, norm: float) -> TensorVariable:
    """Return the norm (1, 2 or inf) along the last axis."""
    if norm == 1:
        return pt.sum(pt.abs(vectors), axis=-1)
    if norm == 2:
        return pt.sqrt(pt.sum(vectors**2, axis=-1))
    return pt.max(pt.abs(vectors), axis=-1)


def log_normaliser(d: int, norm: float) -> float:
    """Log of the integral of exp(-||v||) over d dimensions: d! times the volume of the unit ball."""
    if norm == 1:
        return d * math.log(2)
    if norm == 2:
        return math.lgamma(d + 1) + 0.5 * d * math.log(math.pi) - math.lgamma(d / 2 + 1)
    return math.lgamma(d + 1) + d * math.log(2)


@njit(cache=True)
def knorm_noise(rng, d, norm):  # type: ignore[no-untyped-def]
    """Draw v of density proportional to exp(-||v||): a direction, and a Gamma(d) length."""
    v = np.empty(d)
    for j in range(d):
        if norm == 1.0:
            v[j] = rng.standard_exponential() * (1.0 if rng.random() < 0.5 else -1.0)
        elif norm == 2.0:
            v[j] = rng.standard_normal()
        else:
            v[j] = 2.0 * rng.random() - 1.0
    if norm == 1.0:
        return v  # the entries are independent Laplace numbers
    if norm == 2.0:
        return v * (rng.standard_gamma(float(d)) / np.linalg.norm(v))
    v[int(rng.random() * d)] = 1.0 if rng.random() < 0.5 else -1.0  # uniform on the surface of the cube
    return v * rng.standard_gamma(float(d))


class QuadraticKNormGradientRV(MechanismOp, RandomVariable):
    """Draws a parameter at which the gradient ``query + hessian @ parameter`` has a small norm."""

    name = "quadratic_knorm_gradient"
    signature = "(d),(d,d),(),()->(d)"
    dtype = "floatX"
    _print_name = ("KNormGradient", "\\operatorname{KNormGradient}")
    __props__ = (*RandomVariable.__props__, "norm", "log_det", *MECHANISM_PROPS)  # type: ignore[assignment]

    def __init__(
        self, name: str | None = None, *, norm: float = 2.0, log_det: float = 0.0, **kwargs: Any
    ) -> None:
        self.norm = norm
        self.log_det = log_det  # of the Hessian, which is public
        super().__init__(name, **kwargs)

    def rng_fn(self, rng, query, hessian, epsilon, sensitivity, size):  # type: ignore[no-untyped-def, override]
        """Draw noise in the gradient, then solve for the parameter."""
        query = np.asarray(query, dtype=float)
        shape = query.shape if size is None else (*size, query.shape[-1])
        noise = np.empty(shape)
        draw = getattr(knorm_noise, "py_func")  # noqa: B009  # takes any generator, also of system entropy
        for at in np.ndindex(*shape[:-1]):
            noise[at] = draw(rng, shape[-1], self.norm)
        scale = np.asarray(sensitivity / epsilon)[..., None]
        return np.linalg.solve(hessian, (scale * noise - query)[..., None])[..., 0]


@_logprob.register(QuadraticKNormGradientRV)
def _quadratic_logp(
    op: Any,
    values: Any,
    rng: Any,
    size: Any,
    query: Any,
    hessian: Any,
    epsilon: Any,
    sensitivity: Any,
    **kwargs: Any,
) -> TensorVariable:
    scale, d = sensitivity / epsilon, hessian.type.shape[-1]
    gradient = query + pt.sum(hessian * values[0][..., None, :], axis=-1)
    constant = op.log_det - log_normaliser(d, op.norm)
    return constant - d * pt.log(scale) - norm_of(gradient, op.norm) / scale


@_support_point.register(QuadraticKNormGradientRV)
def _quadratic_support_point(
    op: Any, rv: Any, rng: Any, size: Any, query: Any, *params: Any
) -> TensorVariable:
    point = pt.zeros_like(query)
    return point if rv_size_is_none(size) else pt.zeros((*tuple(size), query.shape[-1]))


def _draw_of(op: QuadraticKNormGradientRV) -> Any:
    norm = op.norm

    @njit
    def draw(rng, query, hessian, epsilon, sensitivity):  # type: ignore[no-untyped-def]
        noise = knorm_noise(rng, query.size, norm)
        return np.linalg.solve(hessian, sensitivity / epsilon * noise - query)

    return draw


register_draw_of(QuadraticKNormGradientRV, _draw_of)
