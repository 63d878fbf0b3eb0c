"""The exponential mechanism: a private choice among finitely many candidates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numba
import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.samplers import register_draw
from pymc_dp.mechanisms._checks import as_query
from pymc_dp.mechanisms.base import (
    MECHANISM_PROPS,
    Mechanism,
    MechanismOp,
    PreparedQuery,
    exactly_one,
)
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.exact_noise import bernoulli_exp, uniform_below, words_from
from pymc_dp.privacy.guarantee import PrivacyGuarantee


@numba.njit(cache=True)
def choose(rng, utility, epsilon, sensitivity):  # type: ignore[no-untyped-def]
    """Draw the index of a candidate, P(c) prop. exp(epsilon utility_c / (2 sensitivity))."""
    weights = np.exp(0.5 * epsilon / sensitivity * (utility - utility.max()))
    u = rng.random() * weights.sum()
    for c in range(weights.size - 1):
        u -= weights[c]
        if u < 0.0:
            return c
    return weights.size - 1


def choose_exactly(
    generator: np.random.Generator, utility: np.ndarray, epsilon: float, sensitivity: float
) -> int:
    """Draw the index of a candidate without rounding the probabilities.

    A candidate is proposed uniformly and kept with probability
    exp(-epsilon (max utility - utility_c) / (2 sensitivity)), decided in integer arithmetic.
    """
    words = words_from(generator)
    per_nat = Fraction(epsilon) / (2 * Fraction(sensitivity))
    exact = [Fraction(float(u)) for u in utility]
    gaps = [per_nat * (max(exact) - u) for u in exact]
    while True:
        c = int(uniform_below(len(gaps), 1, words)[0])
        if bernoulli_exp(gaps[c].numerator, gaps[c].denominator, words).item():
            return c


class ChoiceRV(MechanismOp, RandomVariable):
    """Base of the operations that draw the index of a candidate."""

    dtype = "int64"
    __props__ = (*RandomVariable.__props__, *MECHANISM_PROPS)  # type: ignore[assignment]

    def utilities(self, query: np.ndarray) -> np.ndarray:
        """Return the utility of each candidate, on the last axis."""
        return query

    def rng_fn(self, rng, query, epsilon, sensitivity, size):  # type: ignore[no-untyped-def, override]
        """Draw by inversion, for simulations."""
        return self._each(query, epsilon, sensitivity, size, lambda *args: choose(rng, *args))

    def secure_draw(
        self, generator: np.random.Generator, query: np.ndarray, *params: np.ndarray
    ) -> np.ndarray:
        """Draw without rounding of probabilities."""
        draw: Callable[..., int] = lambda *args: choose_exactly(generator, *args)  # noqa: E731
        epsilon, sensitivity = params
        return self._each(query, epsilon, sensitivity, None, draw)

    def _each(self, query: Any, epsilon: Any, sensitivity: Any, size: Any, draw: Callable[..., int]) -> Any:
        utility = np.asarray(self.utilities(np.asarray(query, dtype=float)))
        batch = np.broadcast_shapes(utility.shape[:-1], np.shape(epsilon), np.shape(sensitivity))
        batch = batch if size is None else tuple(size)
        utility = np.broadcast_to(utility, (*batch, utility.shape[-1]))
        epsilon, sensitivity = (np.broadcast_to(np.asarray(p, float), batch) for p in (epsilon, sensitivity))
        out = np.empty(batch, dtype=np.int64)
        for at in np.ndindex(*batch):
            out[at] = draw(np.ascontiguousarray(utility[at]), float(epsilon[at]), float(sensitivity[at]))
        return out


class ExponentialMechanismRV(ChoiceRV):
    """Draws the index of a candidate given the candidates' utilities."""

    name = "exponential_mechanism"
    signature = "(k),(),()->()"
    _print_name = ("ExponentialMechanism", "\\operatorname{ExponentialMechanism}")


class Choice(Mechanism, Discrete):
    """Base of the mechanisms that release the index of one of finitely many candidates.

    Attributes
    ----------
    candidate_axes : int
        How many trailing axes of the query belong to one release; the first of them runs over the
        candidates.
    """

    candidate_axes: ClassVar[int] = 1

    def __new__(cls, name: str, query: Any, *args: Any, observed: Any = None, **kwargs: Any) -> Any:
        """Refuse an observed value that names no candidate, then register the release."""
        if observed is not None:
            query = cls._as_candidates(query)
            _check_choice(observed, query.type.shape[query.type.ndim - cls.candidate_axes])
        return super().__new__(cls, name, query, *args, observed=observed, **kwargs)

    @classmethod
    def _as_candidates(cls, query: Any) -> TensorVariable:
        """Return the query with the axes of the candidates last."""
        return as_query(query)

    @classmethod
    def _release_shape(cls, query: TensorVariable, **settings: Any) -> tuple[int | None, ...]:
        query = cls._as_candidates(query)
        return query.type.shape[: query.type.ndim - cls.candidate_axes]

    @classmethod
    def _prepare_choice(
        cls, query: Any, sensitivity: Any, bounds: Any, change: Callable[[np.ndarray], float]
    ) -> PreparedQuery:
        """Clamp the query; `change` turns the statistics' widths into the change of a utility."""
        if sensitivity is not None:
            sensitivity = positive("sensitivity", sensitivity)
        prepared = cls._prepare(query, sensitivity=None, bounds=bounds, order=1)
        if prepared.width is not None:
            implied = change(prepared.width)
            if sensitivity is None:
                sensitivity = implied
            elif sensitivity < implied * (1 - 1e-12):
                raise ValueError(
                    f"sensitivity = {sensitivity:g} contradicts bounds, under which one record can "
                    f"change a candidate's utility by {implied:g}: leave sensitivity out, or give at "
                    "least that value."
                )
        return replace(prepared, sensitivity=sensitivity)

    @classmethod
    def _budget(cls, epsilon: Any) -> float:
        exactly_one(cls.__name__, {"epsilon=": epsilon is not None}, "epsilon= with sensitivity= or bounds=")
        return positive("epsilon", epsilon)

    @classmethod
    def _no_sensitivity(cls, of_what: str) -> str:
        return (
            f"epsilon needs the sensitivity of {of_what}: give sensitivity=, or bounds= to clamp each "
            "record's contribution."
        )

    @classmethod
    def _choice(cls, prepared: PreparedQuery, epsilon: Any, of_what: str, **kwargs: Any) -> Any:
        """Build the release of a choice; `of_what` names what `sensitivity` is the change of."""
        epsilon = cls._budget(epsilon)
        if prepared.sensitivity is None:
            raise ValueError(cls._no_sensitivity(of_what))
        # Changing one record moves all log weights by at most epsilon/2 either way, so that log ratios
        # of probabilities lie in an interval of length epsilon ("bounded range").
        promise = PrivacyGuarantee(epsilon, rho=epsilon**2 / 8)
        params = [pt.constant(p, dtype=prepared.query.dtype) for p in (epsilon, prepared.sensitivity)]
        expected = cls._release_shape(prepared.query)
        return cls._release(prepared, params, promise, expected=expected, **kwargs)


def log_probability(value: Any, utility: Any, epsilon: Any, sensitivity: Any) -> TensorVariable:
    """Log probability of the candidate numbered `value`; -inf if there is none of that number."""
    weights = (
        0.5 * epsilon[..., None] / sensitivity[..., None] * (utility - pt.max(utility, -1, keepdims=True))
    )
    chosen = pt.eq(pt.arange(utility.shape[-1]), value[..., None])
    # a sum over candidates rather than an index: a value that names none must not wrap around
    at = pt.sum(pt.switch(chosen, weights, 0.0), axis=-1)
    return pt.switch(pt.any(chosen, axis=-1), at - pt.log(pt.sum(pt.exp(weights), axis=-1)), -np.inf)


class ExponentialMechanism(Choice):
    r"""Release of one of finitely many candidates, the better ones with higher probability.

    .. math:: P(c \mid u) = \frac{\exp\left(\epsilon u_c / (2 \Delta)\right)}
              {\sum_k \exp\left(\epsilon u_k / (2 \Delta)\right)}

    The normaliser depends on the records, through the utilities of *all* candidates: those are the
    statistics that the imputation of records keeps up to date.

    Parameters
    ----------
    utility : tensor_like, shape (k,) or (..., k)
        Utility of each of k candidates, an expression of the records; usually ``dp.record_sum`` of
        the records' own utilities, shape (n, k). With leading axes, each is a choice of its own, and
        a leading record axis makes it a local release, one choice per record.
    epsilon : float
        Budget in nats of one choice.
    sensitivity : float, optional
        Largest change of any candidate's utility when one record is exchanged for another. (The
        guarantee needs no more than half the largest difference between two candidates' changes.)
    bounds : tuple or list, optional
        Clamps each record's utility of each candidate: ``(lo, hi)``, or one pair per candidate. Gives
        the sensitivity, and enters the likelihood. See :func:`pymc_dp.privacy.bounds.parse_bounds`.
    **kwargs
        ``observed`` (the index of the candidate that was released, counted from 0), ``dims`` and so
        on, as for any PyMC distribution; and ``records``, a list of the variables (or names) that
        hold the confidential records, where they cannot be told from the query.

    Raises
    ------
    TypeError
        An argument is not of the right kind: a utility that is not real, a random `epsilon`.
    ValueError
        No `epsilon`, or no sensitivity to go with it; a number out of its range; `sensitivity` below
        what `bounds` imply; an observed value that is not the index of a candidate.

    Notes
    -----
    The guarantee is pure differential privacy for replace-one neighbours. As the log ratios of one
    pair of neighbours lie in an interval of length epsilon, it is also zero-concentrated with
    rho = epsilon^2 / 8, a quarter of what pure privacy alone implies.

    ``release`` proposes candidates uniformly and accepts them by comparisons of integers, so that its
    probabilities have no rounding error, given the utilities as they were summed up. How long it takes
    depends on the utilities: do not let others time it.

    References
    ----------
    McSherry and Talwar (2007), *Mechanism Design via Differential Privacy*, definition 2 and theorem 6;
    Cesar and Rogers (2021), *Bounding, Concentrating, and Truncating: Unifying Privacy Loss Composition
    for Data Analytics*, for the concentrated guarantee.

    Examples
    --------
    Which of three answers did most of 50 people give?

    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     p = pm.Dirichlet("p", [1, 1, 1])
    ...     answer = pm.Categorical("answer", p, shape=50)
    ...     votes = dp.record_sum(pm.math.stack([pm.math.eq(answer, c) for c in range(3)], axis=1))
    ...     top = dp.ExponentialMechanism("top", votes, epsilon=1, sensitivity=1, observed=2)
    >>> print(dp.guarantee(top).epsilon)
    1.0
    """

    rv_op = ExponentialMechanismRV()

    def __new__(cls, name: str, utility: Any, **kwargs: Any) -> Any:
        """Check the declaration against the model, then register it as PyMC does."""
        return super().__new__(cls, name, utility, **kwargs)

    @classmethod
    def dist(  # type: ignore[override]
        cls, utility: Any, *, epsilon: Any = None, sensitivity: Any = None, bounds: Any = None, **kwargs: Any
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        utility = cls._as_candidates(utility)
        prepared = cls._prepare_choice(utility, sensitivity, bounds, lambda width: float(np.max(width)))
        return cls._choice(prepared, epsilon, "a candidate's utility", **kwargs)

    @classmethod
    def _as_candidates(cls, query: Any) -> TensorVariable:
        query = as_query(query)
        if query.type.ndim == 0 or query.type.shape[-1] == 0:
            raise ValueError(
                f"utility must have the candidates on its last axis, got shape {query.type.shape}: give "
                "one utility per candidate, such as dp.record_sum of an array of shape (n, k)."
            )
        return query

    def support_point(rv: Any, size: Any, utility: Any, epsilon: Any, sensitivity: Any) -> TensorVariable:
        """Return the best candidate."""
        best = pt.argmax(utility, axis=-1)
        return best if rv_size_is_none(size) else pt.full(size, best)

    def logp(value: Any, utility: Any, epsilon: Any, sensitivity: Any) -> TensorVariable:
        """Return the log probability of the released candidate."""
        return log_probability(value, utility, epsilon, sensitivity)


def _check_choice(observed: Any, candidates: int | None) -> None:
    """Refuse values that are not whole numbers from 0 to the number of candidates less one."""
    values = getattr(observed, "value", observed)  # that of a Release
    if hasattr(values, "get_value"):
        values = values.get_value(borrow=True)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        return  # refused with the other observed values that are no numbers
    if array.dtype.kind not in "iuf":
        return
    top = math.inf if candidates is None else candidates - 1
    bad = array[~((array >= 0) & (array <= top) & (array == np.floor(array)))]
    if bad.size:
        raise ValueError(
            f"observed must hold the indices of candidates, whole numbers from 0 to {top}, got "
            f"{bad.ravel()[0]:g}: the release is the position of a candidate in the query's last axis."
        )


register_draw(ExponentialMechanismRV, choose, version=1)
