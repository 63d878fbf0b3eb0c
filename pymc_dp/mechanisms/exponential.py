"""The exponential mechanism: a private choice among finitely many candidates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import rvs_in_graph
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.samplers import register_draw
from pymc_dp.mechanisms._checks import as_query, checked_sensitivity, exactly_one, observed_numbers
from pymc_dp.mechanisms._grid import Granules, bounded_in_granules, granularity, inflation
from pymc_dp.mechanisms._numbers import resizable_lengths
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, Mechanism, MechanismOp, PreparedQuery
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.entropy import draw_securely
from pymc_dp.privacy.exact_noise import bernoulli_exp, uniform_below, words_from
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.locality import is_local
from pymc_dp.query.publicshapes import data_behind


@njit(cache=True)
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
    generator: np.random.Generator, utility: np.ndarray, epsilon: Any, sensitivity: Any
) -> np.ndarray:
    """Draw indices of candidates without rounding the probabilities.

    A candidate is proposed uniformly and kept with probability
    exp(-epsilon (max utility - utility_c) / (2 sensitivity)), decided in integer arithmetic.

    Parameters
    ----------
    generator : numpy.random.Generator
    utility : ndarray, shape (m, k)
        One row per choice; floats, or whole numbers of any size.
    epsilon, sensitivity : array_like, shape (m,) or ()

    Returns
    -------
    ndarray of int64, shape (m,)
    """
    words, k = words_from(generator), utility.shape[1]
    epsilon, sensitivity = (np.broadcast_to(p, len(utility)) for p in (epsilon, sensitivity))
    per_nat = [Fraction(float(e)) / (2 * Fraction(float(s))) for e, s in zip(epsilon, sensitivity)]
    exact = utility.tolist()  # Python's integers keep all digits
    best = [Fraction(max(row)) for row in exact]
    chosen = np.full(len(utility), -1)
    while (left := np.flatnonzero(chosen < 0)).size:
        proposed = uniform_below(k, left.size, words)
        gaps = [per_nat[i] * (best[i] - Fraction(exact[i][c])) for i, c in zip(left, proposed)]
        top, bottom = (np.array([getattr(g, part) for g in gaps], dtype=object)
                       for part in ("numerator", "denominator"))  # fmt: skip
        kept = bernoulli_exp(top, bottom, words)
        chosen[left[kept]] = proposed[kept]
    return chosen


class ChoiceRV(MechanismOp, RandomVariable):
    """Base of the operations that draw the index of a candidate."""

    dtype = "int64"
    __props__ = (*RandomVariable.__props__, *MECHANISM_PROPS)  # type: ignore[assignment]

    def utilities(self, query: np.ndarray) -> np.ndarray:
        """Return the utility of each candidate, on the last axis."""
        return query

    def whole_utilities(self, query: Granules) -> tuple[np.ndarray, int]:
        """Return the utilities in whole granules, and the most that rounding adds to one's change."""
        return query.count, query.slack

    def rng_fn(self, rng, query, epsilon, sensitivity, size):  # type: ignore[no-untyped-def, override]
        """Draw by inversion, for simulations."""

        def draw(*rows: np.ndarray) -> np.ndarray:
            return np.array([choose(rng, *row) for row in zip(*rows, strict=True)], dtype=np.int64)

        return self.each(draw, self.utilities(np.asarray(query, float)), epsilon, sensitivity, size)

    def secure_draw(
        self, generator: np.random.Generator, query: np.ndarray, *params: np.ndarray
    ) -> np.ndarray:
        """Draw without rounding of probabilities."""
        utility, (epsilon, sensitivity) = self.utilities(np.asarray(query, dtype=float)), params
        return self.each(partial(choose_exactly, generator), utility, epsilon, sensitivity, None)

    @staticmethod
    def each(
        draw: Callable[..., np.ndarray], utility: np.ndarray, epsilon: Any, sensitivity: Any, size: Any
    ) -> np.ndarray:
        """Draw from every row of utilities."""
        batch = np.broadcast_shapes(utility.shape[:-1], np.shape(epsilon), np.shape(sensitivity))
        batch = batch if size is None else tuple(size)
        rows = np.broadcast_to(utility, (*batch, utility.shape[-1])).reshape(-1, utility.shape[-1])
        levels = (np.broadcast_to(np.asarray(p, float), batch).ravel() for p in (epsilon, sensitivity))
        return draw(np.ascontiguousarray(rows), *levels).reshape(batch)


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
        """Refuse an observed value that is not the index of a candidate, then register the release."""
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
        """Clamp the query; `change` computes a utility's change from the widths of the statistics."""
        if sensitivity is not None:
            sensitivity = positive("sensitivity", sensitivity)
        prepared = cls._prepare(query, sensitivity=None, bounds=bounds, order=1)
        if prepared.width is not None:
            implied = change(prepared.width)
            what = f"a candidate's utility by {implied:g}"
            sensitivity = positive("sensitivity", checked_sensitivity(sensitivity, implied, what))
        return replace(prepared, sensitivity=sensitivity)

    @classmethod
    def _draw_release(cls, op: Any, query: TensorVariable, params: list[np.ndarray]) -> Any:
        """Draw a choice; sums under bounds are computed in integers, without floating-point errors.

        The sensitivity is increased by the most that rounding of contributions can add to a record's change.
        """
        if op.bounds is None or not isinstance(op, ChoiceRV):
            return super()._draw_release(op, query, params)
        epsilon, sensitivity = params
        granule = granularity(sensitivity)
        rounded = bounded_in_granules(query, granule)
        utility, slack = op.whole_utilities(rounded)
        grown = inflation(1.0, replace(rounded, slack=slack, entries=1), granule, sensitivity, 1)
        sensitivity = sensitivity * grown

        def draw(generator: np.random.Generator) -> np.ndarray:
            chosen = partial(choose_exactly, generator)
            return op.each(chosen, utility, epsilon, sensitivity / granule, None)

        return draw_securely(draw), [epsilon, sensitivity], op.guarantee, {}

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        """Return the keyword arguments that declare an operation again."""
        # each is a single number, which a local query repeats over its rows
        declared = {name: p.item() for name, p in zip(("epsilon", "sensitivity"), params[-2:], strict=True)}
        return declared if op.bounds is None else declared | {"bounds": op.bounds}

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

    @staticmethod
    def _choices_per_person(query: TensorVariable, own_axes: int) -> int:
        """Return how many of the releases a person can influence; each has `own_axes` axes."""
        batch = query.ndim - own_axes
        if batch <= 0:
            return 1
        of_rows = 1 if is_local(query) and not _may_be_totals(query) else 0  # a person has one row
        return max(int(np.prod(lengths_of(query)[of_rows:batch], dtype=int)), 1)

    @classmethod
    def _choice(cls, prepared: PreparedQuery, epsilon: Any, of_what: str, /, **kwargs: Any) -> Any:
        """Build the release of a choice; `of_what` names the quantity whose change is `sensitivity`."""
        epsilon = cls._budget(epsilon)
        if prepared.sensitivity is None:
            raise ValueError(cls._no_sensitivity(of_what))
        # Changing one record moves all log weights by at most epsilon/2 either way, so that log ratios
        # of probabilities lie in an interval of length epsilon ("bounded range").
        m = cls._choices_per_person(prepared.query, cls.candidate_axes)
        if m > 1 or prepared.lengths is not None:
            prepared = replace(prepared, lengths=resizable_lengths(prepared.query))
        rho = m * (epsilon * epsilon) / 8
        if not math.isfinite(rho):
            raise ValueError(
                f"epsilon = {epsilon:g} is too large: its zero-concentrated guarantee, epsilon^2 / 8 for "
                "each choice, would not be finite. Give a smaller epsilon."
            )
        promise = PrivacyGuarantee(m * epsilon, rho=rho)
        params = [pt.constant(p, dtype=prepared.query.dtype) for p in (epsilon, prepared.sensitivity)]
        expected = cls._release_shape(prepared.query)
        return cls._release(prepared, params, promise, expected=expected, **kwargs)


def _may_be_totals(query: TensorVariable) -> bool:
    """Return whether a query of data comes from a table, whose rows may be questions rather than people."""
    if rvs_in_graph([query]):
        return False
    return any(v.ndim > 1 for v in data_behind(query))


def log_probability(value: Any, utility: Any, epsilon: Any, sensitivity: Any) -> TensorVariable:
    """Return the log probability of candidate number `value`; -inf if there is no such candidate."""
    weights = (
        0.5 * epsilon[..., None] / sensitivity[..., None] * (utility - pt.max(utility, -1, keepdims=True))
    )
    chosen = pt.eq(pt.arange(utility.shape[-1]), value[..., None])
    # a sum over candidates rather than an index, since an index out of range would wrap around
    at = pt.sum(pt.switch(chosen, weights, 0.0), axis=-1)
    return pt.switch(pt.any(chosen, axis=-1), at - pt.log(pt.sum(pt.exp(weights), axis=-1)), -np.inf)


class ExponentialMechanism(Choice):
    r"""Release of one of finitely many candidates, the better ones with higher probability.

    .. math:: P(c \mid u) = \frac{\exp\left(\epsilon u_c / (2 \Delta)\right)}
              {\sum_k \exp\left(\epsilon u_k / (2 \Delta)\right)}

    The normaliser depends on the records through the utilities of *all* candidates, so that the imputation of
    records keeps all of these statistics up to date.

    Parameters
    ----------
    utility : tensor_like, shape (k,) or (..., k)
        Utility of each of k candidates, an expression of the records; usually ``dp.record_sum`` of the
        records' own utilities, shape (n, k). With leading axes, each is a choice of its own: the same people
        are behind all of them, and the guarantee adds up their costs. Only a leading record axis makes it a
        local release, with one choice per record. A query of data is taken as local only if it is computed
        from a vector with one entry per record, since a table may hold the same people's utilities for
        several choices.
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
    probabilities have no rounding error, given the utilities as they were summed up. Under `bounds` these are
    sums of integers: each contribution in units of at most 2^-40 sensitivities. The release states a
    sensitivity that is larger by the most that this rounding can add. Without `bounds`, `sensitivity` has to
    cover the rounding of the utilities in floating point. The time that ``release`` takes depends on the
    utilities: do not let others measure it.

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
    """Refuse values that are not whole numbers from 0 to the number of candidates minus 1."""
    array = observed_numbers(observed)
    if array is None:
        return  # other checks refuse values that are no numbers
    top = math.inf if candidates is None else candidates - 1
    array = array[np.isfinite(array)]  # other checks refuse missing values
    bad = array[~((array >= 0) & (array <= top) & (array == np.floor(array)))]
    if bad.size:
        raise ValueError(
            f"observed must hold the indices of candidates, whole numbers from 0 to {top}, got "
            f"{bad.ravel()[0]:g}: the release is the position of a candidate in the query's last axis."
        )


register_draw(ExponentialMechanismRV, choose)
