"""Logistic loss of bounded rows: gradients and Hessians, the noise for a budget, and the minimiser."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.mechanisms._checks import as_query, check_setting
from pymc_dp.privacy._checks import positive, probability
from pymc_dp.privacy.calibration import gaussian_sigma_analytic

# Largest second derivative of log(1 + exp(t)), at t = 0.
CURVATURE = 0.25
CALIBRATIONS = ("tight", "chaudhuri")


def noise_scale(
    epsilon: float,
    *,
    delta: float | None = None,
    regularization: float,
    x_bound: float = 1.0,
    calibration: str = "tight",
) -> float:
    r"""Return the scale of the noise that a budget needs.

    Parameters
    ----------
    epsilon : float
        Budget in nats.
    delta : float, optional
        Slack; without it the noise has density proportional to exp(-||b|| / scale), with it the noise
        is Gaussian with standard deviation `scale`.
    regularization : float
        Coefficient of ||theta||^2 / 2 beside the *sum* of the losses.
    x_bound : float, default 1
        Largest norm of a row of features.
    calibration : {"tight", "chaudhuri"}, default "tight"
        Whether log J or 2 log J of epsilon is set aside for the ratio of Jacobian determinants (see Notes).

    Returns
    -------
    float

    Raises
    ------
    ValueError
        The regularization is too small for the budget, or a number is out of its range.

    Notes
    -----
    Let R be `x_bound` and c = R^2 / 4 the largest eigenvalue of one record's Hessian, of rank one. Between
    neighbours the determinants have the ratio (1 + a x'A x) / (1 + a' x''A x'), A being the inverse of
    what the other records and the regularization contribute: at most J = 1 + c / regularization. The
    published proof allows J^2. The gradients differ by at most 2 R, so that without delta

    .. math:: \epsilon = 2 R / \text{scale} + \log J
        \quad\text{or}\quad 2 R / \text{scale} + 2 \log J \text{ ("chaudhuri")}.

    With delta, each gradient is a multiple of its record's features, so the log ratio of the noise's
    densities is at most (R W + 2 R^2) / scale^2, with W = |b'u| + |b'v| for two fixed vectors u and v
    of norm 1 or less. P(W > t) is at most 2 P(|N(0, 1)| > t / (2 scale)), and half of that from
    t = 2 sqrt(3) scale on, where the worst case is u = v. Hence delta is at most twice that of the
    Gaussian mechanism of sensitivity 2 R at epsilon - log J (four times, where that begins below).

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), *Differentially Private Empirical Risk Minimization*,
    algorithm 2.

    Examples
    --------
    >>> from pymc_dp.mechanisms.objective_perturbation import noise_scale
    >>> round(noise_scale(1.0, regularization=10), 4)
    2.0506
    """
    epsilon = positive("epsilon", epsilon)
    regularization = positive("regularization", regularization)
    x_bound = positive("x_bound", x_bound)
    check_setting("calibration", calibration, CALIBRATIONS)
    if delta is not None and calibration == "chaudhuri":
        raise ValueError("calibration='chaudhuri' is for pure privacy: leave delta out, or calibration.")
    power = 2 if calibration == "chaudhuri" else 1
    curvature = CURVATURE * x_bound**2
    left = epsilon - power * math.log1p(curvature / regularization)
    if not left > 0:
        least = curvature / math.expm1(epsilon / power)
        raise ValueError(
            f"regularization = {regularization:g} is too small for epsilon = {epsilon:g}: the change of "
            f"the Hessian alone would cost {epsilon - left:g}. Give more than {least:g}."
        )
    if delta is None:
        return 2 * x_bound / left
    delta = probability("delta", delta)
    for share in (delta / 2, delta / 4):
        sigma = gaussian_sigma_analytic(left, share, 2 * x_bound)
        mu = 2 * x_bound / sigma
        if left / mu - mu / 2 >= math.sqrt(3):
            break
    return sigma


def rows_of(x: Any, y: Any, x_bound: float) -> TensorVariable:
    """Return the records as the loss uses them, shape (n, d + 1): features of bounded norm, then labels."""
    x, y = _real("x", x), _real("y", y)
    if x.type.ndim != 2 or y.type.ndim != 1:
        raise ValueError(
            f"x must have shape (n, d) and y shape (n,), got {x.type.ndim} and {y.type.ndim} axes: one row "
            "of features and one label per record, a column of ones among the features for an intercept."
        )
    lengths = x.type.shape[0], y.type.shape[0]
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(f"x has {lengths[0]} rows but y has {lengths[1]}: give one of each per record.")
    squared = pt.sum(x**2, axis=1)
    # written so that the derivative is not NaN at a row of zeros
    norm = pt.sqrt(pt.maximum(squared, x_bound**2))
    shortened = x * (x_bound / norm)[:, None]
    return pt.concatenate([shortened, pt.clip(y, 0, 1)[:, None]], axis=1)


def statistics_at(theta: TensorVariable, rows: TensorVariable, d: int) -> TensorVariable:
    """Return each record's gradient, then the upper triangle of its Hessian: (n, d + d (d + 1) / 2)."""
    x, y = rows[:, :d], rows[:, d]
    p = pt.sigmoid(pt.dot(x, theta))
    first, second = np.triu_indices(d)
    gradient = (p - y)[:, None] * x
    hessian = (p * (1 - p))[:, None] * x[:, first] * x[:, second]
    return pt.concatenate([gradient, hessian], axis=1)


def noise_behind(theta: Any, statistics: Any, regularization: Any, d: int) -> tuple[Any, Any]:
    """Return the noise that makes `theta` the minimiser, and log |d noise / d theta|."""
    place = np.zeros((d, d), dtype=np.int64)
    first, second = np.triu_indices(d)
    place[first, second] = place[second, first] = d + np.arange(first.size)
    noise = -(statistics[:d] + regularization * theta)
    hessian = statistics[place.ravel()].reshape((d, d)) + regularization * np.eye(d)
    if d == 1:
        return noise, pt.log(hessian[0, 0])
    return noise, 2 * pt.sum(pt.log(pt.diag(pt.linalg.cholesky(hessian))))


@njit(cache=True)
def _gradient(rows, regularization, noise, theta, slopes):  # type: ignore[no-untyped-def]
    """Return the gradient of the perturbed sum; write the losses' second derivatives to `slopes`."""
    n, d = rows.shape[0], theta.size
    out = noise + regularization * theta
    for i in range(n):
        t = 0.0
        for j in range(d):
            t += rows[i, j] * theta[j]
        e = math.exp(-abs(t))
        p = 1.0 / (1.0 + e) if t >= 0.0 else e / (1.0 + e)
        slopes[i] = e / ((1.0 + e) * (1.0 + e))
        for j in range(d):
            out[j] += (p - rows[i, d]) * rows[i, j]
    return out


@njit(cache=True)
def minimise(rows, regularization, noise):  # type: ignore[no-untyped-def]
    """Minimise the perturbed sum of losses to rounding error.

    This is Newton's method, damped so that the norm of the gradient falls at every step, which the direction
    always allows, as the Hessian is positive definite. It ends when, because of rounding, the norm falls no
    further.

    Parameters
    ----------
    rows : ndarray, shape (n, d + 1)
    regularization : float
    noise : ndarray, shape (d,)

    Returns
    -------
    theta : ndarray, shape (d,)
    """
    n, d = rows.shape[0], noise.size
    theta, slopes = np.zeros(d), np.empty(n)
    gradient = _gradient(rows, regularization, noise, theta, slopes)
    size = np.linalg.norm(gradient)
    for _ in range(1000):
        hessian = regularization * np.eye(d)
        for i in range(n):
            for j in range(d):
                for k in range(d):
                    hessian[j, k] += slopes[i] * rows[i, j] * rows[i, k]
        step = np.linalg.solve(hessian, gradient)
        fell, t = False, 1.0
        while t > 1e-10 and not fell:
            candidate = theta - t * step
            new = _gradient(rows, regularization, noise, candidate, slopes)
            new_size = np.linalg.norm(new)
            fell = new_size < (1.0 - 0.25 * t) * size
            t *= 0.5
        if not fell:
            break
        theta, gradient, size = candidate, new, new_size
    return theta


@njit(cache=True)
def perturb(rng, rows, regularization, scale, gaussian):  # type: ignore[no-untyped-def]
    """Draw the noise and minimise."""
    d = rows.shape[1] - 1
    noise = np.empty(d)
    for j in range(d):
        noise[j] = rng.standard_normal()
    if gaussian:
        noise *= scale
    else:
        # a uniform direction, and a length with density proportional to r^(d - 1) exp(-r / scale)
        noise *= scale * rng.standard_gamma(float(d)) / np.linalg.norm(noise)
    return minimise(rows, regularization, noise)


def log_noise(noise: Any, scale: Any, gaussian: bool, d: int) -> Any:
    """Return the log density of the noise."""
    squared = pt.sum(noise**2)
    if gaussian:
        return -0.5 * squared / scale**2 - d * pt.log(scale) - 0.5 * d * math.log(2 * math.pi)
    area = math.log(2) + 0.5 * d * math.log(math.pi) - math.lgamma(d / 2)  # log area of the unit sphere
    return -pt.sqrt(squared) / scale - d * pt.log(scale) - math.lgamma(d) - area


def _real(name: str, value: Any) -> TensorVariable:
    try:
        return as_query(value)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("query", name)) from None
