"""The cost of discrete Gaussian noise on one whole number, by exact sums.

The guarantee in terms of zero-concentrated privacy is that of the continuous law,
:func:`pymc_dp.privacy.calibration.gaussian_rho`; in terms of (epsilon, delta) the discrete law has a
curve of its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy

from pymc_dp.privacy._checks import positive, probability

_LARGEST_SUM = 1e6  # largest sigma, beyond which sums have too many terms
_REACH = 40.0  # terms so many standard deviations beyond the first are below 1e-300 of it


def log_normaliser(sigma: float) -> float:
    """Return the logarithm of the sum of exp(-k^2 / 2 sigma^2) over the whole numbers k.

    Parameters
    ----------
    sigma : float

    Returns
    -------
    float

    Notes
    -----
    The sum is a theta function: by Poisson's summation formula it is also sigma sqrt(2 pi) times the
    same sum with 1/(2 pi sigma) in the place of sigma. At least one of both converges so fast that
    three terms on each side give full precision.

    Examples
    --------
    >>> from pymc_dp.privacy.discrete_gaussian import log_normaliser
    >>> round(log_normaliser(0.5), 6)
    0.240073
    """
    sigma = positive("sigma", sigma)
    dual = 1 / (2 * math.pi * sigma)
    scale, factor = (sigma, 0.0) if sigma < dual else (dual, math.log(sigma * math.sqrt(2 * math.pi)))
    return factor + math.log1p(2 * sum(math.exp(-0.5 * (k / scale) ** 2) for k in (3, 2, 1)))


def discrete_gaussian_delta(epsilon: float, sigma: float, sensitivity: int) -> float:
    """Return the smallest delta of discrete Gaussian noise on one whole number, at `epsilon`.

    Parameters
    ----------
    epsilon : float
        In nats, > 0.
    sigma : float
        Parameter of the noise, in (0, 1e6].
    sensitivity : int
        Largest change of the query, a whole number.

    Returns
    -------
    float
        The hockey-stick divergence at `epsilon`, summed exactly.

    Raises
    ------
    TypeError, ValueError
        An argument is out of its range.

    References
    ----------
    Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*, theorem 7.

    Examples
    --------
    >>> from pymc_dp.privacy.discrete_gaussian import discrete_gaussian_delta
    >>> round(discrete_gaussian_delta(1.0, 1.0, 1), 4)
    0.1414
    """
    return math.exp(_log_delta(positive("epsilon", epsilon), *_checked(sigma, sensitivity)))


def discrete_gaussian_epsilon(delta: float, sigma: float, sensitivity: int) -> float:
    """Return the smallest epsilon of discrete Gaussian noise on one whole number, at `delta`.

    The inverse of :func:`discrete_gaussian_delta`.

    Parameters
    ----------
    delta : float
        In (0, 1).
    sigma : float
        Parameter of the noise, in (0, 1e6].
    sensitivity : int
        Largest change of the query, a whole number.

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
    Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*, theorem 7.

    Examples
    --------
    >>> from pymc_dp.privacy.discrete_gaussian import discrete_gaussian_epsilon
    >>> round(discrete_gaussian_epsilon(1e-6, 10.0, 1), 4)
    0.3968
    """
    target = math.log(probability("delta", delta))
    sigma, shift = _checked(sigma, sensitivity)
    if _log_delta(0.0, sigma, shift) <= target:
        return 0.0
    rho = 0.5 * (shift / sigma) ** 2
    upper = rho + 2 * math.sqrt(-rho * target)  # the conversion of zero-concentrated privacy
    return scipy.optimize.brentq(
        lambda e: _log_delta(e, sigma, shift) - target, 0.0, upper, xtol=1e-300, rtol=1e-14
    )


def _checked(sigma: Any, sensitivity: Any) -> tuple[float, int]:
    sigma, shift = positive("sigma", sigma), positive("sensitivity", sensitivity)
    if shift != math.floor(shift):
        raise ValueError(
            f"sensitivity must be a whole number for discrete noise on one number, got {shift:g}."
        )
    if sigma > _LARGEST_SUM:
        raise ValueError(
            f"sigma = {sigma:g} makes the exact sum too long: use the guarantee's rho, or "
            "gaussian_delta, from which the discrete law cannot be told at this scale."
        )
    return sigma, int(shift)


def _log_delta(epsilon: float, sigma: float, shift: int) -> float:
    """Return the log of the sum of P(k) - exp(epsilon) P(k - shift) over the k where that is positive."""
    last = math.ceil(shift / 2 - epsilon * sigma**2 / shift) - 1
    first = last - math.ceil(_REACH * sigma + 2)
    if last >= 0:  # the sum includes the mode
        first = math.floor(-_REACH * sigma) - 2
    k = np.arange(first, last + 1, dtype=float)
    log_p = -0.5 * (k / sigma) ** 2
    ratio = (shift - 2 * k) * shift / (2 * sigma**2)
    top = log_p.max()
    total = float(np.sum(np.exp(log_p - top) * -np.expm1(np.minimum(epsilon - ratio, 0.0))))
    return (math.log(total) + float(top) if total > 0 else -math.inf) - log_normaliser(sigma)
