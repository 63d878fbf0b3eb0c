"""Discrete Gaussian noise: zero-concentrated differential privacy of whole numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.samplers import register_draw
from pymc_dp.mechanisms._additive import GAUSSIAN, query_as_support_point
from pymc_dp.mechanisms._integers import AddedWhole, add_noise
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, MechanismOp
from pymc_dp.privacy.exact_noise import discrete_gaussian, words_from


@njit(cache=True)
def _noise(rng, sigma):
    # Canonne, Kamath and Steinke (2020), algorithm 3: from discrete Laplace noise, by rejection
    if not 0.0 < sigma < math.inf:
        return math.nan
    t = math.floor(sigma) + 1.0
    while True:
        k = math.floor(t * rng.standard_exponential()) - math.floor(t * rng.standard_exponential())
        excess = (abs(k) - sigma * sigma / t) / sigma
        if rng.standard_exponential() >= 0.5 * excess * excess:
            return k


@njit(cache=True)
def _draw(rng, query, sigma):
    if query != math.floor(query):
        raise ValueError("query must be whole numbers: round it before.")
    return np.int64(query) + np.int64(_noise(rng, sigma))


@njit(cache=True)
def _fill(rng, query, sigma, out):
    for i in range(out.size):
        out[i] = _draw(rng, query[i], sigma[i])


class DiscreteGaussianMechanismRV(MechanismOp, RandomVariable):
    """Draws a release with discrete Gaussian noise."""

    name = "discrete_gaussian_mechanism"
    signature = "(),()->()"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", *MECHANISM_PROPS)
    _print_name = ("DiscreteGaussianMechanism", "\\operatorname{DiscreteGaussianMechanism}")
    additive_noise = True
    family = "discrete_gaussian"

    @classmethod
    def rng_fn(cls, rng, query, sigma, size=None):
        """Draw with floating-point arithmetic, for simulation."""
        query, sigma = np.broadcast_arrays(query, sigma)
        shape = query.shape if size is None else tuple(size)
        query, sigma = (np.broadcast_to(a, shape).astype(float).ravel() for a in (query, sigma))
        out = np.empty(query.size, dtype=np.int64)
        _fill(rng, query, sigma, out)
        return out.reshape(shape)

    @staticmethod
    def reach(log_level: TensorVariable, sigma: TensorVariable) -> TensorVariable:
        """Return a distance beyond which the noise's log probability is below `log_level`."""
        return pt.ceil(sigma * pt.sqrt(2 * pt.maximum(-_log_normaliser(sigma) - log_level, 0.0)))

    @staticmethod
    def tail_reach(log_level: TensorVariable, sigma: TensorVariable) -> TensorVariable:
        """Return a distance such that the noise is farther, to one side, with a log probability below it.

        The noise is subgaussian (Canonne, Kamath and Steinke, 2020).
        """
        return pt.ceil(sigma * pt.sqrt(2 * pt.maximum(-log_level, 0.0)))

    @staticmethod
    def log_total(sigma: TensorVariable) -> TensorVariable:
        """Return what log masses of intervals are to be reduced by: the log of the sum of all weights."""
        return _log_normaliser(sigma)

    def secure_draw(
        self, generator: np.random.Generator, query: np.ndarray, *params: np.ndarray
    ) -> np.ndarray:
        """Draw in integer arithmetic, for publication."""
        return add_noise(query, params[0], discrete_gaussian, words_from(generator))


register_draw(DiscreteGaussianMechanismRV, _draw)


class DiscreteGaussianMechanism(AddedWhole):
    r"""Release of whole numbers with discrete Gaussian noise on every entry.

    .. math:: P(z = k \mid q) = \frac{\exp(-(k - q)^2 / 2 \sigma^2)}
        {\sum_{j \in \mathbb{Z}} \exp(-j^2 / 2 \sigma^2)}, \quad k \in \mathbb{Z}

    Its guarantee of zero-concentrated privacy is that of Gaussian noise with the same `sigma`; a draw with
    :meth:`release` uses integer arithmetic only, so that attacks on the rounding of floating-point noise do
    not apply. For small `sigma` the standard deviation of the noise is less than `sigma`.

    Exactly one of `sigma` and `rho` gives the noise level, which is calibrated for the whole release
    (for a query that keeps the record axis: for each row of it). For an (epsilon, delta) statement,
    see :func:`pymc_dp.privacy.discrete_gaussian.discrete_gaussian_epsilon` (one whole number,
    exact), or the conversion ``dp.guarantee(z).to_approximate(delta)``.

    Parameters
    ----------
    query : tensor_like, any shape
        The released statistic: a whole-numbered expression of the record variables, such as a count. The
        release has its shape, and whole numbers as entries.
    sigma : tensor_like, optional
        Parameter of the noise, one number or one per entry; may be random.
    rho : float, optional
        Budget of zero-concentrated differential privacy; needs `sensitivity` or `bounds`.
    sensitivity : float, optional
        Largest change of the whole query in the L2 norm (root of the sum of squares) when one record is
        exchanged for another, or with one record more or less.
    bounds : tuple or list, optional
        Clamps each record's contribution to a sum, or each row of a local query; whole numbers:
        ``(lo, hi)``, or one pair per statistic. Gives the sensitivity, and enters the likelihood.
        See :func:`pymc_dp.privacy.bounds.parse_bounds`.
    neighbours : {"replace-one", "add-remove"}, default "replace-one"
        Which data the guarantee compares: with one record exchanged, so that their number is public, or
        with one record more or less.
    **kwargs
        ``observed``, ``dims``, ``initval`` and so on, as for any PyMC distribution; and
        ``records``, a list of the variables (or names) that hold the confidential records, where
        they cannot be told from the query.

    Raises
    ------
    TypeError
        An argument is not of the right kind: a query that is not real, a random `rho`.
    ValueError
        A query or bounds that are not whole numbers, no noise level or two, a number out of its
        range, `sensitivity` below what `bounds` imply, `observed` of another shape than the query,
        with missing entries or with fractions.

    References
    ----------
    Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*, definition 1
    and theorems 4 and 14.

    Examples
    --------
    How many of 300 people fall into each of two (overlapping) groups:

    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> import pytensor.tensor as pt
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     visits = pm.Binomial("visits", 5, p, shape=300)
    ...     groups = pt.stack([visits >= 1, visits >= 3], axis=1)
    ...     z = dp.DiscreteGaussianMechanism(
    ...         "z", dp.record_sum(groups), rho=0.5, bounds=(0, 1), observed=[211, 40]
    ...     )
    >>> print(dp.guarantee(z))
    Zero-concentrated differential privacy with rho = 0.5, for replace-one neighbours.
    """

    rv_op = DiscreteGaussianMechanismRV()

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        sigma: Any = None,
        rho: Any = None,
        sensitivity: Any = None,
        bounds: Any = None,
        neighbours: str = "replace-one",
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        prepared, noise, promise = GAUSSIAN.declared(
            cls, query, sigma, rho, sensitivity=sensitivity, bounds=bounds, neighbours=neighbours, exact=True
        )
        return cls._release(prepared, [noise], promise, **kwargs)

    def support_point(rv: Any, size: Any, query: Any, sigma: Any) -> TensorVariable:
        """Return the query itself."""
        return pt.cast(query_as_support_point(size, query, sigma), rv.dtype)

    def logp(value: Any, query: Any, sigma: Any) -> TensorVariable:
        """Return the log probability of each entry, which is minus infinity for fractions."""
        standardised = (value - query) / sigma
        density = -0.5 * standardised**2 - _log_normaliser(sigma)
        density = pt.switch(pt.eq(value, pt.floor(value)), density, -np.inf)
        return check_parameters(
            density, sigma > 0, pt.eq(query, pt.floor(query)), msg="sigma > 0, query a whole number"
        )


def _log_normaliser(sigma: TensorVariable) -> TensorVariable:
    """Return the log of the sum of exp(-k^2/2 sigma^2) over the whole numbers k, a theta function.

    By Poisson's summation formula it is sigma sqrt(2 pi) times the same sum at 1/(2 pi sigma). Of the two
    sums, the faster one converges so fast that k = -3, ..., 3 are enough, also for derivatives: the next term
    is below 2e-22 of the first.
    """
    dual = 1 / (2 * math.pi * sigma)
    direct = pt.lt(sigma, dual)
    narrow = pt.minimum(sigma, dual)
    tails = pt.log1p(2 * sum(pt.exp(-0.5 * (k / narrow) ** 2) for k in (3, 2, 1)))
    return tails + pt.switch(direct, 0.0, pt.log(sigma) + 0.5 * math.log(2 * math.pi))
