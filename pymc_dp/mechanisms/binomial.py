"""Binomial noise: each record answered by a number of coin tosses; pure local differential privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.random.basic import BetaRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.samplers import register_draw_of
from pymc_dp.mechanisms._beta_tosses import BETA_BINOMIAL
from pymc_dp.mechanisms._bins import clamped_rows, interval
from pymc_dp.mechanisms._checks import as_query, exactly_one, needed_number, noise_parameter
from pymc_dp.mechanisms._integers import WholeRelease, whole_values
from pymc_dp.mechanisms._releases import as_declared
from pymc_dp.mechanisms.marginals import RecordMarginal
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, MechanismOp, PreparedQuery
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.exact_noise import bernoulli, words_from
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release
from pymc_dp.upstream.pymc_private import _logprob

MAX_TRIALS = 2**31 - 1
MAX_TABLE = 10_000
_TRIALS = "tosses per record"
_ROUNDING = 1e-6


def binomial_theta(epsilon: float, n_trials: int) -> float:
    r"""Return the theta with which `n_trials` tosses spend `epsilon`: :math:`\tanh(\epsilon/2m)/2`.

    Parameters
    ----------
    epsilon : float
        Budget of each record in nats, > 0.
    n_trials : int
        Number m of tosses, at least 1.

    Returns
    -------
    float
        In (0, 1/2), rounded so that it does not cost more than `epsilon`. The largest float below 1/2 costs
        54 log 2 = 37.4 per toss: a larger budget is not spent.

    Examples
    --------
    >>> from pymc_dp.mechanisms.binomial import binomial_epsilon, binomial_theta
    >>> round(binomial_theta(2.0, 10), 6)
    0.049834
    >>> round(binomial_epsilon(binomial_theta(2.0, 10), 10), 6)
    2.0
    """
    epsilon = positive("epsilon", epsilon)
    theta = min(0.5 * math.tanh(epsilon / (2 * n_trials)), math.nextafter(0.5, 0))
    while theta > 0 and binomial_epsilon(theta, n_trials) > epsilon:
        theta = math.nextafter(theta, 0)
    return theta


def binomial_epsilon(theta: float, n_trials: int) -> float:
    r"""Return the cost of `n_trials` tosses: :math:`m \log((1/2 + \theta)/(1/2 - \theta))`.

    Parameters
    ----------
    theta : float
        In (0, 1/2).
    n_trials : int
        Number m of tosses, at least 1.

    Returns
    -------
    float
        epsilon in nats.

    References
    ----------
    Chen et al. (2022).

    Examples
    --------
    >>> from pymc_dp.mechanisms.binomial import binomial_epsilon
    >>> round(binomial_epsilon(0.25, 1), 6)
    1.098612
    """
    return 2 * n_trials * math.atanh(2 * theta)


class BinomialMechanismRV(MechanismOp, RandomVariable):
    """Draws the number of successes of each record's tosses."""

    name = "binomial_mechanism"
    signature = "(),()->()"
    dtype = "int64"
    _print_name = ("BinomialMechanism", "\\operatorname{BinomialMechanism}")
    __props__ = (*RandomVariable.__props__, "n_trials", *MECHANISM_PROPS)  # type: ignore[assignment]
    record_marginals: ClassVar[Mapping[type, RecordMarginal]] = MappingProxyType({BetaRV: BETA_BINOMIAL})

    def __init__(self, *args: Any, n_trials: int = 1, **kwargs: Any) -> None:
        self.n_trials = n_trials
        super().__init__(*args, **kwargs)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval that the records are clamped to."""
        return (0.0, 1.0) if self.bounds is None else self.bounds

    def shift(self, query: Any, theta: Any) -> Any:
        """Return the bias of each toss, between -theta and theta."""
        lo, hi = self.interval
        return theta * ((query - lo) / (0.5 * (hi - lo)) - 1.0)

    def rng_fn(self, rng: Any, query: Any, theta: Any, size: Any = None) -> np.ndarray:
        """Draw with NumPy's sampler, for simulation."""
        shift = self.shift(query, theta)
        rare = rng.binomial(self.n_trials, 0.5 - np.abs(shift), size=size)
        return np.where(shift > 0, self.n_trials - rare, rare)

    def secure_draw(
        self, generator: np.random.Generator, query: np.ndarray, *params: np.ndarray
    ) -> np.ndarray:
        """Toss the coins one by one in integer arithmetic, for publication.

        A floating-point sampler never draws the least probable numbers of successes. Each toss decides
        whether the less likely side comes up, since a small probability is exact as a float, while one near 1
        is not.
        """
        (theta,) = params
        shift, least = self.shift(query, theta), 0.5 - theta
        least = np.where(0.5 - least > theta, np.nextafter(least, 1.0), least)  # rounded upwards
        mantissa, exponent = np.frexp(np.clip(0.5 - np.abs(shift), least, 0.5))
        numerator = np.asarray(mantissa * 2.0**53).astype(np.int64)
        denominator = 2 ** (53 - np.asarray(exponent)).astype(object)
        words, rare = words_from(generator), np.zeros(numerator.shape, dtype=np.int64)
        for _ in range(self.n_trials):
            rare += bernoulli(numerator, denominator, words)
        return np.where(shift > 0, self.n_trials - rare, rare)


@lru_cache(maxsize=64)
def _compiled_draw(n_trials: int, lo: float, hi: float) -> Any:
    half = 0.5 * (hi - lo)

    @njit
    def draw(rng, query, theta):  # type: ignore[no-untyped-def]
        shift = theta * ((query - lo) / half - 1.0)
        rare = np.int64(rng.binomial(n_trials, 0.5 - abs(shift)))
        return n_trials - rare if shift > 0.0 else rare

    return draw


register_draw_of(BinomialMechanismRV, lambda op: _compiled_draw(op.n_trials, *op.interval))


class BinomialMechanism(WholeRelease):
    r"""Local release of the number of successes among coin tosses, whose bias depends on the record's value.

    With u the record's value clamped to `bounds` and rescaled to [0, 1], and m tosses,

    .. math:: z \mid y \sim \text{Binomial}\left(m, \tfrac12 + \theta (2u - 1)\right),
        \qquad 0 < \theta < \tfrac12.

    Exactly one of `theta` and `epsilon` gives the noise level; the cost of each record is
    :math:`\epsilon = m \log\frac{1/2 + \theta}{1/2 - \theta}`.

    Parameters
    ----------
    query : tensor_like, shape (n,) or ()
        One number per record. The release has its shape, and counts from 0 to m as entries.
    n_trials : int
        Number m of tosses per record.
    theta : tensor_like, optional
        Largest bias of a toss, in (0, 1/2), one number or one per record; may be random.
    epsilon : float, optional
        Budget of each record in nats.
    bounds : tuple, default (0, 1)
        Interval (lo, hi) that the records are clamped to; the likelihood uses the clamped values.
    **kwargs
        ``observed``, ``dims``, ``initval`` and so on, as for any PyMC distribution; and
        ``records``, a list of the variables (or names) that hold the confidential records, where
        they cannot be told from the query.

    Raises
    ------
    TypeError
        An argument is not of the right kind.
    ValueError
        No noise level or more than one, a number out of its range, a query that does not have one number per
        record, `observed` of another shape than the query or not counts from 0 to m.

    Notes
    -----
    :meth:`release` tosses the coins one by one in integer arithmetic, at about 1 microsecond each: every
    count has the probability that the law says, with the less likely side of each toss exact to 53 binary
    digits and no less likely than 1/2 - theta, so that the stated epsilon holds exactly. As theta is a float
    below 1/2, no toss costs more than 37.4. Where `epsilon` asks for more (or, above 26 per toss, for a value
    between those of two neighbouring floats), the guarantee states the cost of theta.

    References
    ----------
    Chen et al. (2022), in the form that Beraha, Favaro and Rao, *MCMC for Bayesian nonparametric
    mixture modeling under differential privacy*, use for local releases.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     a = pm.Exponential("a", 0.1)
    ...     y = pm.Beta("y", a, 2, shape=3)
    ...     z = dp.BinomialMechanism("z", y, n_trials=10, epsilon=2, observed=[6, 4, 9])
    >>> print(dp.guarantee(z))
    Pure differential privacy with epsilon = 2, for replace-one neighbours.
    """

    rv_op = BinomialMechanismRV()

    def __new__(  # type: ignore[misc]  # PyMC's distributions construct tensors
        cls, name: str, query: Any, *args: Any, observed: Any = None, n_trials: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Check that the observed value is a possible release, then declare it."""
        settings = {} if n_trials is None else {"n_trials": n_trials}
        values = whole_values(observed)
        if isinstance(observed, Release) and n_trials is None:
            n_trials = observed.parameters.get("n_trials")
        if n_trials is not None and values is not None and values.size:
            most = cls._trials(n_trials)
            if values.min() < 0 or values.max() > most:
                bad = values[(values < 0) | (values > most)].ravel()[0]
                raise ValueError(
                    f"observed must be counts from 0 to n_trials = {most}, got {bad:g}: the mechanism "
                    "releases nothing else. Pass the release as it was published."
                )
        return super().__new__(cls, name, query, *args, observed=observed, **settings, **kwargs)

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        n_trials: Any = None,
        theta: Any = None,
        epsilon: Any = None,
        bounds: Any = (0, 1),
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        way = exactly_one(
            cls.__name__,
            {"theta=": theta is not None, "epsilon=": epsilon is not None},
            "epsilon=, or theta=",
        )
        trials = cls._trials(n_trials)
        lo, hi = interval(bounds)
        query = as_query(query)
        clamped = cls._clamped(query, lo, hi)
        if way == "epsilon=":
            theta = binomial_theta(positive("epsilon", epsilon), trials)
        noise, known = noise_parameter("theta", theta, clamped)
        if known is not None and not (known < 0.5).all():
            raise ValueError(
                f"theta must be below 1/2, got {known.max():g}: at 1/2 a record at an end of the bounds "
                "would be told for certain, which no epsilon covers."
            )
        promise = None
        if known is not None:
            spent = binomial_epsilon(float(known.max()), trials)
            # near 1/2 floats are so coarse that theta may cost noticeably less than the budget
            within = way == "epsilon=" and float(epsilon) <= spent * (1 + _ROUNDING)
            promise = PrivacyGuarantee(float(epsilon) if within else spent)
        prepared = PreparedQuery(as_query(clamped), None, None, (lo, hi))
        return cls._release(prepared, [noise], promise, props={"n_trials": trials}, **kwargs)

    @classmethod
    def _clamped(cls, query: TensorVariable, lo: float, hi: float) -> TensorVariable:
        if query.ndim > 0:
            return clamped_rows(cls.__name__, query, lo, hi)
        return pt.clip(query, lo, hi)

    @classmethod
    def _trials(cls, n_trials: Any) -> int:
        return needed_number(cls.__name__, "n_trials", n_trials, 1, MAX_TRIALS, _TRIALS)

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        (theta,) = params
        return {"n_trials": op.n_trials, "theta": as_declared(theta), "bounds": op.interval}

    def support_point(rv: Any, size: Any, query: Any, theta: Any) -> TensorVariable:
        """Return half of the tosses, a count that is possible for every record."""
        half = pt.full(pt.broadcast_arrays(query, theta)[0].shape, rv.owner.op.n_trials // 2, dtype=rv.dtype)
        return half if rv_size_is_none(size) else pt.full(size, rv.owner.op.n_trials // 2, dtype=rv.dtype)


@_logprob.register(BinomialMechanismRV)
def _binomial_logprob(
    op: BinomialMechanismRV, values: Any, rng: Any, size: Any, query: Any, theta: Any, **kwargs: Any
) -> TensorVariable:
    """Return the log probability of each count, which is minus infinity for impossible counts."""
    (value,) = values
    m, shift = op.n_trials, op.shift(query, theta)
    k = pt.clip(value, 0, m)  # keeps the binomial coefficient finite where it is not used
    density = _log_ways(m, k) + k * pt.log(0.5 + shift) + (m - k) * pt.log(0.5 - shift)
    possible = pt.eq(value, pt.floor(value)) & pt.ge(value, 0) & pt.le(value, m)
    return check_parameters(
        pt.switch(possible, density, -np.inf), theta > 0, theta < 0.5, msg="0 < theta < 1/2"
    )


def _log_ways(m: int, k: TensorVariable) -> TensorVariable:
    """Return the log binomial coefficient; a short table is faster than gamma functions."""
    if m > MAX_TABLE:
        return math.lgamma(m + 1) - pt.gammaln(k + 1) - pt.gammaln(m - k + 1)
    table = [math.lgamma(m + 1) - math.lgamma(j + 1) - math.lgamma(m - j + 1) for j in range(m + 1)]
    return pt.constant(np.array(table))[pt.cast(k, "int64")]
