"""Gaussian noise: approximate and zero-concentrated differential privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import Continuous
from pymc.distributions.dist_math import check_parameters
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._additive import GAUSSIAN, query_as_support_point
from pymc_dp.mechanisms._checks import check_setting, exactly_one, noise_parameter
from pymc_dp.mechanisms._grid import draw_on_grid
from pymc_dp.mechanisms.conditionals import NormalGivenGaussian
from pymc_dp.mechanisms.marginals import MVNORMAL_GAUSSIAN, NORMAL_GAUSSIAN, RecordMarginal
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, MechanismOp, PreparedQuery
from pymc_dp.mechanisms.processed import AddedNoise
from pymc_dp.mechanisms.processed_normal import PROCESSED_NORMAL
from pymc_dp.privacy._checks import positive, probability
from pymc_dp.privacy.calibration import (
    gaussian_sigma_analytic,
    gaussian_sigma_classic,
    gaussian_sigma_zcdp,
)
from pymc_dp.privacy.exact_noise import discrete_gaussian
from pymc_dp.privacy.guarantee import PrivacyGuarantee

_CALIBRATIONS = {"analytic": gaussian_sigma_analytic, "classic": gaussian_sigma_classic}


class GaussianMechanismRV(MechanismOp, NormalRV):
    """Draws a release with Gaussian noise (PyTensor's own draw, so it stays native)."""

    __props__ = (*NormalRV.__props__, *MECHANISM_PROPS)  # type: ignore[assignment]
    _print_name = ("GaussianMechanism", "\\operatorname{GaussianMechanism}")
    additive_noise = True
    family = "gaussian"
    conditional_draws: ClassVar[Mapping[type, RandomVariable]] = MappingProxyType(
        {NormalRV: NormalGivenGaussian}
    )
    record_marginals: ClassVar[Mapping[type, RecordMarginal]] = MappingProxyType(
        {NormalRV: NORMAL_GAUSSIAN, MvNormalRV: MVNORMAL_GAUSSIAN}
    )
    processed_marginals: ClassVar[Mapping[type, RecordMarginal]] = MappingProxyType(
        {NormalRV: PROCESSED_NORMAL}
    )

    @staticmethod
    def tail_reach(log_level: TensorVariable, sigma: TensorVariable) -> TensorVariable:
        """Return a distance such that the noise is farther, to one side, with a log probability below it."""
        return sigma * pt.sqrt(2 * pt.maximum(-log_level, 0.0))


class GaussianMechanism(AddedNoise, Continuous):
    r"""Release of a query with independent Gaussian noise on every entry.

    .. math:: p(z \mid q) = \prod_j N(z_j \mid q_j, \sigma^2)

    Exactly one of `sigma`, `epsilon` with `delta`, and `rho` gives the noise level, which is
    calibrated for the whole release (for a query that keeps the record axis: for each row of it).

    Parameters
    ----------
    query : tensor_like, any shape
        The released statistic: an expression of the record variables. The release has its shape.
    sigma : tensor_like, optional
        Standard deviation of the noise in the query's units, one number or one per entry; may be
        random.
    epsilon, delta : float, optional
        Budget of approximate differential privacy, epsilon in nats and delta in (0, 1); needs
        `sensitivity` or `bounds`.
    rho : float, optional
        Budget of zero-concentrated differential privacy; needs `sensitivity` or `bounds`.
    sensitivity : float, optional
        Largest change of the whole query in the L2 norm (root of the sum of squares) when one record is
        exchanged for another, or with one record more or less.
    bounds : tuple or list, optional
        Clamps each record's contribution to a sum or mean, or each row of a local query:
        ``(lo, hi)``, or one pair per statistic. Gives the sensitivity, and enters the likelihood.
        See :func:`pymc_dp.privacy.bounds.parse_bounds`.
    calibration : {"analytic", "classic"}, default "analytic"
        How the standard deviation follows from `epsilon` and `delta`: the smallest one with that guarantee
        (Balle and Wang), or the textbook formula, which holds for epsilon <= 1 only.
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
        No noise level or more than one, a number out of its range, `sensitivity` below what `bounds` imply,
        `observed` of another shape than the query or with missing entries.

    References
    ----------
    Balle and Wang (2018), *Improving the Gaussian Mechanism for Differential Privacy*; Bun and
    Steinke (2016), *Concentrated Differential Privacy*; Dwork and Roth (2014), theorem A.1.

    Examples
    --------
    The total of 100 heights (in metres, recorded between 1 and 2.2):

    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 1.7, 0.1)
    ...     height = pm.Normal("height", mu, 0.1, shape=100)
    ...     z = dp.GaussianMechanism(
    ...         "z", height.sum(), epsilon=1, delta=1e-6, bounds=(1, 2.2), observed=171.2
    ...     )
    >>> dp.guarantee(z).epsilon, dp.guarantee(z).delta
    (1.0, 1e-06)
    """

    rv_op = GaussianMechanismRV()

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        sigma: Any = None,
        epsilon: Any = None,
        delta: Any = None,
        rho: Any = None,
        sensitivity: Any = None,
        bounds: Any = None,
        calibration: str = "analytic",
        neighbours: str = "replace-one",
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        way = exactly_one(
            cls.__name__,
            {
                "sigma=": sigma is not None,
                "epsilon= with delta=": epsilon is not None or delta is not None,
                "rho=": rho is not None,
            },
            "sigma=, or epsilon= with delta=, or rho=; the last two with sensitivity= or bounds=",
        )
        check_setting("calibration", calibration, _CALIBRATIONS)
        if calibration != "analytic" and way != "epsilon= with delta=":
            raise ValueError(
                f"calibration={calibration!r} has no effect with {way}: it turns epsilon= and "
                "delta= into noise. Leave it out."
            )
        prepared = cls._prepare(query, sensitivity=sensitivity, bounds=bounds, order=2, neighbours=neighbours)
        promised_epsilon, promised_delta = math.inf, 0.0
        if way != "sigma=":
            sigma = cls._calibrate(epsilon, delta, rho, prepared, calibration)
        if way == "epsilon= with delta=":
            promised_epsilon, promised_delta = float(epsilon), float(delta)
        noise, known = noise_parameter("sigma", sigma, prepared.query)
        spent = float(rho) if way == "rho=" else GAUSSIAN.spent(prepared, known)
        promise = None
        if spent is not None:
            promise = PrivacyGuarantee(promised_epsilon, promised_delta, spent, mu=math.sqrt(2 * spent))
        return cls._release(prepared, [noise], promise, **kwargs)

    @staticmethod
    def _calibrate(epsilon: Any, delta: Any, rho: Any, prepared: PreparedQuery, calibration: str) -> float:
        if rho is not None:
            rho = positive("rho", rho)
        elif epsilon is None:
            raise ValueError("delta was given without epsilon: give both, or sigma=, or rho=.")
        elif delta is None:
            raise ValueError(
                "epsilon was given without delta: Gaussian noise is never purely private, so give "
                "delta= as well (or rho=), or use LaplaceMechanism."
            )
        else:
            epsilon, delta = positive("epsilon", epsilon), probability("delta", delta)
        sensitivity = GAUSSIAN.needed_sensitivity("epsilon" if rho is None else "rho", prepared)
        if rho is not None:
            return gaussian_sigma_zcdp(rho, sensitivity)
        return _CALIBRATIONS[calibration](epsilon, delta, sensitivity)

    @classmethod
    def _draw_release(cls, op: MechanismOp, query: TensorVariable, params: list[np.ndarray]) -> Any:
        """Draw whole multiples of a granule, in integer arithmetic."""
        promise = op.guarantee
        stated = None if promise is None or promise.rho is None else math.sqrt(2 * promise.rho)
        return draw_on_grid(op, query, params[0], discrete_gaussian, stated, 2)

    def support_point(rv: Any, size: Any, query: Any, sigma: Any) -> TensorVariable:
        """Return the query itself."""
        return query_as_support_point(size, query, sigma)

    def logp(value: Any, query: Any, sigma: Any) -> TensorVariable:
        """Return the log density of each entry."""
        standardised = (value - query) / sigma
        density = -0.5 * standardised**2 - 0.5 * math.log(2 * math.pi) - pt.log(sigma)
        return check_parameters(density, sigma > 0, msg="sigma > 0")
