"""The noise level for a budget, and the cost of a given noise level.

Every sensitivity is the largest change of the query when one record is exchanged for any other
(replace-one): in the L1 norm for Laplace noise, in the L2 norm for Gaussian noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy
from scipy.special import erf

from pymc_dp.privacy._checks import not_both_tiny, positive, probability
from pymc_dp.privacy._gaussian_curve import log_delta, log_one_minus_delta
from pymc_dp.privacy.bounds import parse_bounds

# Relative tolerance of root finding: a few units in the last place, the smallest that brentq accepts.
_RTOL = 4 * np.finfo(float).eps
# Range of sensitivity / sigma for which the privacy curve can be computed in floating point.
_LEAST_MU, _LARGEST_MU = 1e-150, 1e150


def l1_sensitivity(bounds: Any) -> float:
    """Return the L1 sensitivity of a sum of rows clamped to `bounds`.

    Parameters
    ----------
    bounds : tuple or list
        See :func:`pymc_dp.privacy.bounds.parse_bounds`; scalars stand for one statistic.

    Returns
    -------
    float
        sum_j (hi_j - lo_j).

    Raises
    ------
    TypeError, ValueError
        From :func:`~pymc_dp.privacy.bounds.parse_bounds`.

    Examples
    --------
    >>> from pymc_dp.privacy.calibration import l1_sensitivity
    >>> l1_sensitivity([(0, 1), (-1, 1)])
    3.0
    """
    lo, hi = parse_bounds(bounds)
    return float(np.sum(hi - lo))


def l2_sensitivity(bounds: Any) -> float:
    """Return the L2 sensitivity of a sum of rows clamped to `bounds`.

    Parameters
    ----------
    bounds : tuple or list
        See :func:`pymc_dp.privacy.bounds.parse_bounds`; scalars stand for one statistic.

    Returns
    -------
    float
        The root of sum_j (hi_j - lo_j)^2.

    Raises
    ------
    TypeError, ValueError
        From :func:`~pymc_dp.privacy.bounds.parse_bounds`.

    Examples
    --------
    >>> from pymc_dp.privacy.calibration import l2_sensitivity
    >>> l2_sensitivity([(0, 3), (0, 4)])
    5.0
    """
    lo, hi = parse_bounds(bounds)
    return float(np.linalg.norm(np.ravel(hi - lo)))


def laplace_scale(epsilon: float, sensitivity: float) -> float:
    """Return the scale of the Laplace noise that spends `epsilon`.

    Parameters
    ----------
    epsilon : float
        Budget in nats, > 0.
    sensitivity : float
        L1 sensitivity of the query, > 0.

    Returns
    -------
    float
        sensitivity / epsilon.

    Raises
    ------
    TypeError, ValueError
        An argument is not a finite number > 0.

    References
    ----------
    Dwork, McSherry, Nissim and Smith (2006), proposition 1.

    Examples
    --------
    >>> from pymc_dp.privacy.calibration import laplace_scale
    >>> laplace_scale(0.5, 2.0)
    4.0
    """
    change, epsilon = positive("sensitivity", sensitivity), positive("epsilon", epsilon)
    return finite_noise("epsilon", epsilon, change / epsilon)


def laplace_epsilon(scale: float, sensitivity: float) -> float:
    """Return the epsilon that Laplace noise spends; inverse of :func:`laplace_scale`.

    Parameters
    ----------
    scale, sensitivity : float
        Both > 0; the sensitivity in the L1 norm.

    Returns
    -------
    float
        epsilon = sensitivity / scale.

    Raises
    ------
    TypeError, ValueError
        An argument is not a finite number > 0.

    Examples
    --------
    >>> from pymc_dp.privacy.calibration import laplace_epsilon
    >>> laplace_epsilon(4.0, 2.0)
    0.5
    """
    return positive("sensitivity", sensitivity) / positive("scale", scale)


def gaussian_sigma_zcdp(rho: float, sensitivity: float) -> float:
    """Return the standard deviation of Gaussian noise that is rho-zCDP.

    Parameters
    ----------
    rho : float
        Parameter of zero-concentrated differential privacy, > 0.
    sensitivity : float
        L2 sensitivity of the query, > 0.

    Returns
    -------
    float
        sensitivity / sqrt(2 rho).

    Raises
    ------
    TypeError, ValueError
        An argument is not a finite number > 0.

    References
    ----------
    Bun and Steinke (2016), proposition 1.6.

    Examples
    --------
    >>> from pymc_dp.privacy.calibration import gaussian_sigma_zcdp
    >>> gaussian_sigma_zcdp(0.5, 3.0)
    3.0
    """
    change, rho = positive("sensitivity", sensitivity), positive("rho", rho)
    return finite_noise("rho", rho, change / math.sqrt(2 * rho))


def gaussian_rho(sigma: float, sensitivity: float) -> float:
    """Return the rho of Gaussian noise; inverse of :func:`gaussian_sigma_zcdp`.

    Parameters
    ----------
    sigma, sensitivity : float
        Both > 0; the sensitivity in the L2 norm.

    Returns
    -------
    float
        rho = (sensitivity / sigma)^2 / 2.

    Raises
    ------
    TypeError, ValueError
        An argument is not a finite number > 0.

    Examples
    --------
    >>> from pymc_dp.privacy.calibration import gaussian_rho
    >>> gaussian_rho(3.0, 3.0)
    0.5
    """
    mu = positive("sensitivity", sensitivity) / positive("sigma", sigma)
    return mu * mu / 2


def gaussian_sigma_classic(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the standard deviation by the textbook formula, which is valid up to epsilon = 1 only.

    Parameters
    ----------
    epsilon : float
        In (0, 1]; for larger ones the formula does not give the stated privacy.
    delta : float
        In (0, 1).
    sensitivity : float
        L2 sensitivity of the query, > 0.

    Returns
    -------
    float
        sensitivity sqrt(2 log(1.25 / delta)) / epsilon.

    Raises
    ------
    TypeError, ValueError
        An argument is out of its range.

    References
    ----------
    Dwork and Roth (2014), theorem A.1.

    Examples
    --------
    >>> from pymc_dp.privacy.calibration import gaussian_sigma_classic
    >>> round(gaussian_sigma_classic(1.0, 1e-6, 1.0), 4)
    5.2988
    """
    epsilon = positive("epsilon", epsilon)
    delta = probability("delta", delta)
    if epsilon > 1:
        raise ValueError(
            f'calibration="classic" is proven for epsilon <= 1 only, got epsilon = {epsilon:g}: '
            'use calibration="analytic", which is valid for every epsilon and needs less noise.'
        )
    return positive("sensitivity", sensitivity) * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def gaussian_sigma_analytic(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the smallest standard deviation of Gaussian noise that is (epsilon, delta) private.

    Parameters
    ----------
    epsilon : float
        Budget in nats, > 0.
    delta : float
        In (0, 1).
    sensitivity : float
        L2 sensitivity of the query, > 0.

    Returns
    -------
    float
        The standard deviation at which the exact privacy curve passes through (epsilon, delta).

    Raises
    ------
    TypeError, ValueError
        An argument is out of its range.

    References
    ----------
    Balle and Wang (2018), *Improving the Gaussian Mechanism for Differential Privacy*, theorem 8.

    Examples
    --------
    >>> from pymc_dp.privacy.calibration import gaussian_sigma_analytic
    >>> round(gaussian_sigma_analytic(1.0, 1e-6, 1.0), 4)
    4.2247
    """
    epsilon, delta = not_both_tiny(positive("epsilon", epsilon), probability("delta", delta))
    sensitivity = positive("sensitivity", sensitivity)
    if delta <= 0.5:
        target = math.log(delta)

        def gap(log_mu: float) -> float:
            return log_delta(epsilon, math.exp(log_mu)) - target
    else:  # near delta = 1, log(delta) is flat, while log(1 - delta) is not
        target = math.log1p(-delta)

        def gap(log_mu: float) -> float:
            return target - log_one_minus_delta(epsilon, math.exp(log_mu))

    log_mu = 0.5 * math.log(2 * epsilon)
    lower, upper = log_mu - 1.0, log_mu + 1.0
    while gap(lower) > 0:
        lower -= 2 * (upper - lower)
    while gap(upper) < 0:
        upper += 2 * (upper - lower)
    return sensitivity * math.exp(-scipy.optimize.brentq(gap, lower, upper, xtol=1e-15, rtol=_RTOL))


def gaussian_delta(epsilon: float, sigma: float, sensitivity: float) -> float:
    """Return the smallest delta of Gaussian noise at `epsilon`, from its exact privacy curve.

    Parameters
    ----------
    epsilon : float
        In nats, > 0.
    sigma, sensitivity : float
        Both > 0; the sensitivity in the L2 norm.

    Returns
    -------
    float
        Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu), mu = sensitivity / sigma.

    Raises
    ------
    TypeError, ValueError
        An argument is not a finite number > 0; or sensitivity / sigma is not within 1e-150 and 1e150.

    References
    ----------
    Balle and Wang (2018), theorem 8.

    Examples
    --------
    >>> from pymc_dp.privacy.calibration import gaussian_delta
    >>> round(gaussian_delta(1.0, 1.0, 1.0), 6)
    0.126937
    """
    mu = positive("sensitivity", sensitivity) / positive("sigma", sigma)
    if not _LEAST_MU <= mu <= _LARGEST_MU:
        raise ValueError(
            f"sensitivity / sigma must be between {_LEAST_MU:g} and {_LARGEST_MU:g}, got {mu:g}."
        )
    return math.exp(log_delta(positive("epsilon", epsilon), mu))


def gaussian_epsilon(delta: float, sigma: float, sensitivity: float) -> float:
    """Return the smallest epsilon of Gaussian noise at `delta`; inverse of :func:`gaussian_delta`.

    Parameters
    ----------
    delta : float
        In (0, 1).
    sigma, sensitivity : float
        Both > 0; the sensitivity in the L2 norm.

    Returns
    -------
    float
        epsilon in nats; 0 when `delta` alone already covers the release.

    Raises
    ------
    TypeError, ValueError
        An argument is out of its range.

    References
    ----------
    Balle and Wang (2018), theorem 8.

    Examples
    --------
    >>> from pymc_dp.privacy.calibration import gaussian_epsilon
    >>> round(gaussian_epsilon(1e-5, 1.0, 1.0), 3)
    4.377
    """
    delta = probability("delta", delta)
    mu = positive("sensitivity", sensitivity) / positive("sigma", sigma)
    if mu > _LARGEST_MU:
        raise ValueError(f"sensitivity / sigma must be at most {_LARGEST_MU:g}, got {mu:g}.")
    if float(erf(mu / math.sqrt(8))) <= delta:  # total variation distance
        return 0.0
    target = math.log(delta)
    # The zCDP conversion, rho + 2 sqrt(rho log(1/delta)) with rho = mu^2/2, is an upper bound.
    upper = mu * mu / 2 + mu * math.sqrt(-2 * target)
    return scipy.optimize.brentq(lambda e: log_delta(e, mu) - target, 0.0, upper, xtol=1e-300, rtol=_RTOL)


def finite_noise(budget: str, value: float, level: float) -> float:
    """Return the noise level that a budget gives; it must be a finite number above 0."""
    if not math.isfinite(level):
        raise ValueError(
            f"{budget} = {value:g} is too small for this sensitivity: the noise would not be finite. Give a "
            f"larger {budget}, or release the query in larger units."
        )
    if level == 0:
        raise ValueError(
            f"{budget} = {value:g} is too large for this sensitivity: the noise would round to 0. Give a "
            f"smaller {budget}, or release the query in smaller units."
        )
    return level
