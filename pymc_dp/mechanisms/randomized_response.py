"""Randomized response: each person reports the true category, or, with some probability, another one.

On *records*, row i of the release is the report of person i. On *counts*, the release says how many people
reported each category; the categories of people are integrated out, so that no record is a variable of the
model and the cost of a density does not grow with n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import factln
from pymc.distributions.distribution import Discrete
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.samplers import register_draw, register_draw_of
from pymc_dp.mechanisms import _categories, _response_draws
from pymc_dp.mechanisms._checks import as_query, booleans_as_numbers, exactly_one, noise_parameter
from pymc_dp.mechanisms._told_bits import TOLD_BIT
from pymc_dp.mechanisms.marginals import RecordMarginal
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, Mechanism, MechanismOp, PreparedQuery
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release
from pymc_dp.upstream.pymc_private import _logprob, _support_point


class RandomizedResponseRV(MechanismOp, RandomVariable):
    """Draws the report of each person; parameters: category, epsilon."""

    name = "randomized_response"
    signature = "(),()->()"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", "n_categories", *MECHANISM_PROPS)
    record_marginals: ClassVar[Mapping[type, RecordMarginal]] = MappingProxyType({BernoulliRV: TOLD_BIT})
    _print_name = ("RandomizedResponse", "\\operatorname{RandomizedResponse}")

    def __init__(self, name: str | None = None, *, n_categories: int = 2, **kwargs: Any):
        self.n_categories = n_categories
        super().__init__(name, **kwargs)

    def rng_fn(self, rng: np.random.Generator, category: Any, epsilon: Any, size: Any) -> np.ndarray:
        """Draw reports with NumPy."""
        _categories.check_categories("category", category, self.n_categories)
        shape = np.broadcast_shapes(np.shape(category), np.shape(epsilon)) if size is None else size
        category = np.broadcast_to(np.asarray(category, dtype=np.int64), shape)
        # other categories are the true one plus 1, ..., K - 1, modulo K
        others = (self.n_categories - 1) * np.exp(-np.asarray(epsilon, dtype=float))
        # exp(-epsilon) may underflow to 0, but a report that never lies has no finite epsilon
        others = np.maximum(others, np.finfo(float).smallest_subnormal)
        lies = rng.random(shape) * (1 + others) < others
        moved = category + rng.integers(1, self.n_categories, size=shape)
        return np.where(lies, moved % self.n_categories, category)


class RandomizedResponseCountsRV(MechanismOp, RandomVariable):
    """Draws how many people report each category; parameters: probabilities, n, epsilon."""

    name = "randomized_response_counts"
    signature = "(k),(),()->(k)"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", *MECHANISM_PROPS)
    _print_name = ("RandomizedResponseCounts", "\\operatorname{RandomizedResponseCounts}")
    of_records = False

    @classmethod
    def rng_fn(cls, rng: np.random.Generator, probs: Any, n: Any, epsilon: Any, size: Any) -> np.ndarray:
        """Draw counts with NumPy."""
        other = np.exp(-np.asarray(epsilon, dtype=float))[..., None]
        reports = np.asarray(probs, dtype=float) * (1 - other) + other
        return rng.multinomial(np.asarray(n, dtype=np.int64), reports / reports.sum(-1, keepdims=True), size)


class RandomizedResponse(Mechanism, Discrete):
    r"""Report of a category that is true with probability `p_truth`, otherwise uniform among the others.

    .. math:: P(z = k \mid c) = \frac{e^{\epsilon [k = c]}}{e^\epsilon + K - 1},
              \qquad p_\text{truth} = \frac{e^\epsilon}{e^\epsilon + K - 1}

    With `n`, the release is the count of each report among n people whose categories are independent with
    probabilities `query`:

    .. math:: z \sim \text{Multinomial}(n, Q \pi), \qquad
              (Q \pi)_k = \frac{1 + (e^\epsilon - 1) \pi_k}{e^\epsilon + K - 1}

    This density of the probabilities is differentiable and costs O(K) however large n is; it has no latent
    records, so NUTS samples the probabilities.

    Parameters
    ----------
    query : tensor_like, shape () or (n,)
        Category of each person, 0, ..., K - 1: the record variable. With `n`: the probabilities of the
        categories in the population, shape (..., K), which sum to 1 over the last axis.
    epsilon : float, optional
        Budget of each person, in nats.
    p_truth : tensor_like, optional
        Probability of a true report, at least 1/K and below 1; one number, or one per person (on counts:
        per table); may be random. An answer that is forced by a die or a coin counts as true where it
        happens to be: with 1 for a forced "yes", 6 for a forced "no", and the truth otherwise, it is 5/6.
    n_categories : int, optional
        Number K of categories. It may be left out for a Categorical or Bernoulli variable, and on counts.
    n : int or array_like, optional
        Number of people in each table, which is public and fixed; the release is then of counts. Several
        tables must be of different people: each person is then in one table and spends `epsilon` once, so
        that the guarantee states the largest epsilon of a table, not the sum. Declare tables of several
        questions to the same people as separate releases, whose epsilons add up.
    **kwargs
        ``observed`` (reports, or counts that add up to n), ``dims``, ``initval`` and so on, as for any
        PyMC distribution; and ``records``.

    Raises
    ------
    TypeError
        An argument is not of the right kind.
    ValueError
        No noise level or more than one, a number out of its range, `n_categories` unknown, `observed` with
        values that cannot be reported, or with counts that do not add up to `n`.

    See Also
    --------
    UnaryEncoding : Less noise when there are many categories.

    References
    ----------
    Warner (1965), *Randomized response*; Kairouz, Bonawitz and Ramage (2016), *Discrete distribution
    estimation under local privacy*, section 2.

    Examples
    --------
    Five people reported their category at epsilon = 1:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     p = pm.Dirichlet("p", np.ones(3))
    ...     c = pm.Categorical("c", p, shape=5)
    ...     z = dp.RandomizedResponse("z", c, epsilon=1, observed=[0, 2, 2, 1, 2])
    >>> print(dp.guarantee(z))
    Pure differential privacy with epsilon = 1, for replace-one neighbours.

    A thousand million people, counted:

    >>> counts = [400_000_000, 350_000_000, 250_000_000]
    >>> with pm.Model() as model:
    ...     p = pm.Dirichlet("p", np.ones(3))
    ...     z = dp.RandomizedResponse("z", p, n=10**9, epsilon=0.1, observed=counts)
    """

    rv_op = RandomizedResponseRV()

    def __new__(cls, name: str, query: Any, *args: Any, observed: Any = None, **kwargs: Any) -> Any:  # type: ignore[misc]
        """Check the observed values, then declare the release as for any mechanism."""
        if observed is not None:
            observed = observed if kwargs.get("n") is not None else booleans_as_numbers(observed)
            cls._check_values(query, observed, **kwargs)
        return super().__new__(cls, name, query, *args, observed=observed, **kwargs)

    @classmethod
    def _check_values(
        cls, query: Any, observed: Any, *, n: Any = None, n_categories: Any = None, **kwargs: Any
    ) -> None:
        if isinstance(observed, Release):
            n_categories = observed.parameters.get("n_categories", n_categories)
            observed = observed.value
        if n is None:
            k = _categories.number_of_categories(as_query(query), n_categories)
            _categories.check_categories("observed", observed, k)
        else:
            _categories.check_axis(as_query(query))
            _categories.check_table("observed", observed, n)

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        epsilon: Any = None,
        p_truth: Any = None,
        n_categories: Any = None,
        n: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        way = exactly_one(
            cls.__name__,
            {"epsilon=": epsilon is not None, "p_truth=": p_truth is not None},
            "epsilon=, or p_truth=",
        )
        prepared = cls._prepare(query, sensitivity=None, bounds=None, order=1)
        k: int | None
        if n is None:
            k = _categories.number_of_categories(prepared.query, n_categories)
            _categories.check_query(prepared.query, k)
            one_per = prepared.query
        else:
            k = _categories.check_probabilities(prepared.query, n_categories)
            people = _categories.number_of_people(n, prepared.query)
            one_per = prepared.query[..., 0]
        promise: PrivacyGuarantee | None
        if way == "epsilon=":
            epsilon = positive("epsilon", epsilon)
            noise, promise = pt.constant(epsilon, dtype="float64"), PrivacyGuarantee(epsilon)
        else:
            noise, promise = _epsilon_of(p_truth, prepared.query.shape[-1] if k is None else k, one_per)
        if n is None:
            return cls._release(prepared, [noise], promise, props={"n_categories": k}, **kwargs)
        return cls._release(
            PreparedQuery(prepared.query, None, None, None),
            [people, noise],
            promise,
            op_class=RandomizedResponseCountsRV,
            **kwargs,
        )

    @classmethod
    def _draw_release(cls, op: Any, query: Any, params: list[np.ndarray]) -> Any:
        if isinstance(op, RandomizedResponseCountsRV):
            raise ValueError(
                "RandomizedResponse.release takes the category of each person, without n=: count the reports "
                "(numpy.bincount) and publish the counts."
            )
        return super()._draw_release(op, query, params)

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        epsilon, k = np.asarray(params[-1]), op.n_categories
        if epsilon.size == 1:
            return {"epsilon": epsilon.item(), "n_categories": k}
        return {"p_truth": 1 / (1 + (k - 1) * np.exp(-epsilon)), "n_categories": k}

    def support_point(rv: Any, size: Any, query: Any, epsilon: Any) -> TensorVariable:
        """Return the true categories."""
        return pt.cast(pt.broadcast_arrays(query, epsilon)[0], "int64")


def _epsilon_of(p_truth: Any, k: Any, one_per: TensorVariable) -> tuple[Any, PrivacyGuarantee | None]:
    """Return the epsilon of a probability of truth, and the guarantee if it is known."""
    p, known = noise_parameter("p_truth", p_truth, one_per)
    if known is not None and isinstance(k, int):
        if (known < (1 - 1e-12) / k).any():
            raise ValueError(
                f"p_truth must be at least 1/n_categories = {1 / k:g}, where reports say nothing, got "
                f"{known.min():g}: below that the truth would be the least likely report."
            )
        if (known >= 1).any():
            raise ValueError(f"p_truth must be below 1, got {known.max():g}: truth for sure is not private.")
        epsilon = np.maximum(np.log(known) - np.log1p(-known) + math.log(k - 1), 0.0)
        return pt.constant(epsilon, dtype="float64"), PrivacyGuarantee(float(epsilon.max()))
    return pt.log(p) - pt.log1p(-p) + pt.log(pt.cast(k, "float64") - 1), None


@_logprob.register(RandomizedResponseRV)
def _log_probability(op: Any, values: Any, *inputs: Any, **kwargs: Any) -> TensorVariable:
    """Return the log probability of each report."""
    (value,), (query, epsilon) = values, inputs[2:]
    k = op.n_categories
    # log of p_truth in a form that does not overflow, however large epsilon is
    truth = -pt.log1p((k - 1) * pt.exp(-epsilon))
    density = truth - epsilon * pt.neq(value, query)
    return _categories.density_of_report(density, _categories.whole_within(value, k - 1), query, k)


@_logprob.register(RandomizedResponseCountsRV)
def _log_probability_of_counts(op: Any, values: Any, *inputs: Any, **kwargs: Any) -> TensorVariable:
    """Return the log probability of a table of reports."""
    (value,), (probs, n, epsilon) = values, inputs[2:]
    k = probs.shape[-1]
    other = pt.exp(-epsilon)[..., None]
    reports = pt.log(probs + other * (1 - probs)) - pt.log1p((k - 1) * other)
    density = factln(n) + pt.sum(pt.switch(pt.eq(value, 0), 0.0, value * reports) - factln(value), axis=-1)
    possible = pt.all(_categories.whole_within(value, n[..., None]), axis=-1) & pt.eq(
        pt.sum(value, axis=-1), n
    )
    return _categories.density_of_table(density, possible, probs)


@_support_point.register(RandomizedResponseCountsRV)
def _expected_counts(op: Any, rv: Any, *inputs: Any) -> TensorVariable:
    """Return counts near n times the probabilities."""
    return _categories.rounded_table(inputs[2], inputs[3])


register_draw_of(RandomizedResponseRV, _response_draws.report_of)
register_draw(RandomizedResponseCountsRV, _response_draws.report_counts)
