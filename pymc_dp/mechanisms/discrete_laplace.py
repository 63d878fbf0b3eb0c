"""Discrete Laplace (two-sided geometric) noise: pure differential privacy of whole numbers."""

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
from pymc_dp.mechanisms._additive import LAPLACE, query_as_support_point
from pymc_dp.mechanisms._integers import AddedWhole, add_noise, as_whole
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, MechanismOp
from pymc_dp.privacy.exact_noise import discrete_laplace, words_from


@njit(cache=True)
def _draw(rng, query, scale):
    if query != math.floor(query):
        raise ValueError("query must be whole numbers: round it before.")
    # the whole part of an exponential number is geometric
    up = math.floor(scale * rng.standard_exponential())
    down = math.floor(scale * rng.standard_exponential())
    return np.int64(query) + np.int64(up - down)


class DiscreteLaplaceMechanismRV(MechanismOp, RandomVariable):
    """Draws a release with discrete Laplace noise."""

    name = "discrete_laplace_mechanism"
    signature = "(),()->()"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", *MECHANISM_PROPS)
    _print_name = ("DiscreteLaplaceMechanism", "\\operatorname{DiscreteLaplaceMechanism}")
    additive_noise = True
    family = "discrete_laplace"

    @classmethod
    def rng_fn(cls, rng, query, scale, size=None):
        """Draw with floating-point arithmetic, for simulation."""
        shape = np.broadcast_shapes(np.shape(query), np.shape(scale)) if size is None else tuple(size)
        up, down = (np.floor(scale * rng.standard_exponential(shape)) for _ in range(2))
        return as_whole(query) + (up - down).astype(np.int64)

    @staticmethod
    def reach(log_level: TensorVariable, scale: TensorVariable) -> TensorVariable:
        """Return a distance beyond which the noise's log probability is below `log_level`."""
        return pt.ceil(scale * pt.maximum(_log_at_query(scale) - log_level, 0.0))

    @staticmethod
    def log_total(scale: TensorVariable) -> TensorVariable:
        """Return what log masses of intervals are to be reduced by."""
        return pt.log1p(pt.exp(-1 / scale))

    @staticmethod
    def tail_reach(log_level: TensorVariable, scale: TensorVariable) -> TensorVariable:
        """Return a distance such that the noise is farther, to one side, with a log probability below it."""
        return pt.ceil(scale * pt.maximum(-log_level, 0.0))

    def secure_draw(
        self, generator: np.random.Generator, query: np.ndarray, *params: np.ndarray
    ) -> np.ndarray:
        """Draw in integer arithmetic, for publication."""
        return add_noise(query, params[0], discrete_laplace, words_from(generator))


register_draw(DiscreteLaplaceMechanismRV, _draw)


class DiscreteLaplaceMechanism(AddedWhole):
    r"""Release of whole numbers with discrete Laplace noise on every entry.

    .. math:: P(z = k \mid q) = \tanh\left(\frac{1}{2b}\right) \exp\left(-\frac{|k - q|}{b}\right),
        \quad k \in \mathbb{Z}

    Also known as two-sided geometric noise. Its guarantee is that of Laplace noise of the same scale; a draw
    with :meth:`release` uses integer arithmetic only, so that attacks on the rounding of floating-point noise
    do not apply.

    Exactly one of `scale` and `epsilon` gives the noise level; a noise level shared by all entries
    is calibrated so that the whole release (for a query that keeps the record axis: each row of
    it) spends `epsilon`.

    Parameters
    ----------
    query : tensor_like, any shape
        The released statistic: a whole-numbered expression of the record variables, such as a count. The
        release has its shape, and whole numbers as entries.
    scale : tensor_like, optional
        Scale b of the noise, one number or one per entry; may be random.
    epsilon : float, optional
        Budget in nats; needs `sensitivity` or `bounds`.
    sensitivity : float, optional
        Largest change of the whole query in the L1 norm (sum of absolute changes) when one record is
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
        An argument is not of the right kind: a query that is not real, a random `epsilon`.
    ValueError
        A query or bounds that are not whole numbers, no noise level or two, a number out of its
        range, `sensitivity` below what `bounds` imply, `observed` of another shape than the query,
        with missing entries or with fractions.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan (2012), *Universally Utility-Maximizing Privacy Mechanisms*;
    drawn for publication by algorithm 2 of Canonne, Kamath and Steinke (2020), *The Discrete Gaussian
    for Differential Privacy*.

    Examples
    --------
    A count of 50 people, released at epsilon = 1:

    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     smokes = pm.Bernoulli("smokes", p, shape=50)
    ...     z = dp.DiscreteLaplaceMechanism("z", smokes.sum(), epsilon=1, sensitivity=1, observed=17)
    >>> print(dp.guarantee(z))
    Pure differential privacy with epsilon = 1, for replace-one neighbours.
    """

    rv_op = DiscreteLaplaceMechanismRV()

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        scale: Any = None,
        epsilon: Any = None,
        sensitivity: Any = None,
        bounds: Any = None,
        neighbours: str = "replace-one",
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        prepared, noise, promise = LAPLACE.declared(
            cls,
            query,
            scale,
            epsilon,
            sensitivity=sensitivity,
            bounds=bounds,
            neighbours=neighbours,
            exact=True,
        )
        return cls._release(prepared, [noise], promise, **kwargs)

    def support_point(rv: Any, size: Any, query: Any, scale: Any) -> TensorVariable:
        """Return the query itself."""
        return pt.cast(query_as_support_point(size, query, scale), rv.dtype)

    def logp(value: Any, query: Any, scale: Any) -> TensorVariable:
        """Return the log probability of each entry, which is minus infinity for fractions."""
        density = _log_at_query(scale) - pt.abs(value - query) / scale
        density = pt.switch(pt.eq(value, pt.floor(value)), density, -np.inf)
        return check_parameters(
            density, scale > 0, pt.eq(query, pt.floor(query)), msg="scale > 0, query a whole number"
        )


def _log_at_query(scale: TensorVariable) -> TensorVariable:
    """Return log tanh(1/2b), without loss of digits for large b and without overflow for small b."""
    return pt.log(-pt.expm1(-1 / scale)) - pt.log1p(pt.exp(-1 / scale))
