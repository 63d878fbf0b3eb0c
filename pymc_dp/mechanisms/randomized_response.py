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

from pymc_dp.lowering.functions.samplers import register_draw_of
from pymc_dp.mechanisms import _categories
from pymc_dp.mechanisms._answers import AnswerTable, answer_table
from pymc_dp.mechanisms._checks import as_query, booleans_as_numbers, exactly_one, noise_parameter
from pymc_dp.mechanisms._response_forms import FORMS, AnswerTables, UniformLies
from pymc_dp.mechanisms._told_bits import TOLD_BIT
from pymc_dp.mechanisms.marginals import RecordMarginal
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, Mechanism, MechanismOp, PreparedQuery
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release
from pymc_dp.upstream.pymc_private import _logprob, _support_point


class RandomizedResponseRV(MechanismOp, RandomVariable):
    """Draws the report of each person; parameters: category, and the noise in one of its forms."""

    name = "randomized_response"
    signature = UniformLies.of_record
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", "n_categories", "n_answers", *MECHANISM_PROPS)
    record_marginals: ClassVar[Mapping[type, RecordMarginal]] = MappingProxyType({BernoulliRV: TOLD_BIT})
    _print_name = ("RandomizedResponse", "\\operatorname{RandomizedResponse}")

    def __init__(
        self, name: str | None = None, *, n_categories: int = 2, n_answers: int | None = None, **kwargs: Any
    ):
        self.n_categories = n_categories
        self.n_answers = n_categories if n_answers is None else n_answers
        super().__init__(name, **kwargs)

    @property
    def form(self) -> Any:
        """How the law of a report is kept: `UniformLies` or `AnswerTables`."""
        return FORMS[self.ndims_params[1]]

    def rng_fn(self, rng: np.random.Generator, category: Any, noise: Any, size: Any) -> np.ndarray:
        """Draw reports with NumPy."""
        _categories.check_categories("category", category, self.n_categories)
        return self.form.draw(rng, category, noise, self.n_categories, size)

    def secure_draw(
        self, generator: np.random.Generator, query: np.ndarray, *params: np.ndarray
    ) -> np.ndarray:
        """Draw reports for publication."""
        _categories.check_categories("category", query, self.n_categories)
        return self.form.draw_for_release(generator, query, *params, self.n_categories, None)


class RandomizedResponseCountsRV(MechanismOp, RandomVariable):
    """Draws how many people report each category; parameters: probabilities, n, and the noise."""

    name = "randomized_response_counts"
    signature = UniformLies.of_counts
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", *MECHANISM_PROPS)
    _print_name = ("RandomizedResponseCounts", "\\operatorname{RandomizedResponseCounts}")
    of_records = False

    @property
    def form(self) -> Any:
        """How the law of a report is kept: `UniformLies` or `AnswerTables`."""
        return FORMS[self.ndims_params[2]]

    def rng_fn(self, rng: np.random.Generator, probs: Any, n: Any, noise: Any, size: Any) -> np.ndarray:
        """Draw counts with NumPy."""
        reports = self.form.reports(np.asarray(probs, dtype=float), np.asarray(noise, dtype=float))
        return rng.multinomial(np.asarray(n, dtype=np.int64), reports / reports.sum(-1, keepdims=True), size)


class RandomizedResponse(Mechanism, Discrete):
    r"""Report of a category that a random device may change, as a coin, a die or a spinner does in surveys.

    With `epsilon` or `p_truth` a report is true with probability `p_truth`, else uniform among the others:

    .. math:: P(z = k \mid c) = \frac{e^{\epsilon [k = c]}}{e^\epsilon + K - 1},
              \qquad p_\text{truth} = \frac{e^\epsilon}{e^\epsilon + K - 1}

    With `p_answer`, a table P of probabilities, errors may differ, and so may the numbers of categories and
    of answers:

    .. math:: P(z = k \mid c) = P_{ck}, \qquad
              \epsilon = \max_k \log \frac{\max_c P_{ck}}{\min_c P_{ck}}

    With `n`, the release is the count of each report among n people whose categories are independent with
    probabilities `query`:

    .. math:: z \sim \text{Multinomial}(n, q), \qquad q_k = \sum_c \pi_c P(k \mid c)

    This density of the probabilities is differentiable and costs O(K) however large n is (with `p_answer` as
    many terms as the table has entries); it has no latent records, so NUTS samples the probabilities.

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
    p_answer : tensor_like, shape (K, A) or (n, K, A), optional
        ``p_answer[c, k]`` is the probability of answer k where the truth is c, so that each row sums to 1
        (one table, or one per person; on counts: per table of counts). Known numbers give a guarantee, which
        is computed and proven; rows that were rounded are divided by their sums, which may be off by 1e-6.
        There is none where an answer is possible under some truths only, nor where the table is random.
    n_categories : int, optional
        Number K of categories. It may be left out for a Categorical or Bernoulli variable, on counts, and
        with `p_answer`.
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
        No noise level or more than one, a number out of its range, `n_categories` unknown, rows of `p_answer`
        that do not sum to 1, `observed` with values that cannot be reported, or with counts that do not add
        up to `n`; or confidential answers are to be released by a `p_answer` that guarantees nothing.

    See Also
    --------
    UnaryEncoding : Less noise when there are many categories.

    Notes
    -----
    With `p_answer`, :meth:`release` draws by comparisons of integers: the probabilities of an answer under
    two truths have exactly the ratio of the numbers in the table. Its epsilon is rounded upwards.

    References
    ----------
    Warner (1965), *Randomized response*; Kairouz, Bonawitz and Ramage (2016), *Discrete distribution
    estimation under local privacy*, section 2; for tables, Gouweleeuw, Kooiman, Willenborg and De Wolf
    (1998), *Post randomisation for statistical disclosure control*.

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

    A die that forces "yes" for 1 and 2 and "no" for 6, and otherwise asks for the truth; rows are the truths
    no and yes, columns the answers:

    >>> die = [[4/6, 2/6], [1/6, 5/6]]
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     truth = pm.Bernoulli("truth", p, shape=5)
    ...     z = dp.RandomizedResponse("z", truth, p_answer=die, observed=[1, 0, 0, 1, 1])
    >>> print(dp.guarantee(z))
    Pure differential privacy with epsilon = 1.38629, for replace-one neighbours.
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
        cls,
        query: Any,
        observed: Any,
        *,
        n: Any = None,
        n_categories: Any = None,
        p_answer: Any = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(observed, Release):
            n_categories = observed.parameters.get("n_categories", n_categories)
            p_answer = observed.parameters.get("p_answer", p_answer)
            observed = observed.value
        table = None if p_answer is None else answer_table(p_answer)
        if n is not None:
            _categories.check_axis(as_query(query))
            _categories.check_table("observed", observed, n)
        elif table is None:
            k = _categories.number_of_categories(as_query(query), n_categories)
            _categories.check_categories("observed", observed, k)
        else:
            _categories.check_answers("observed", observed, table.n_answers)
        if table is not None:
            _categories.check_possible("observed", observed, table.never(), counts=n is not None)

    @classmethod
    def _release_shape(cls, query: TensorVariable, **settings: Any) -> tuple[int | None, ...]:
        if settings.get("n") is None or settings.get("p_answer") is None:
            return query.type.shape
        return (*query.type.shape[:-1], answer_table(settings["p_answer"]).n_answers)

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        epsilon: Any = None,
        p_truth: Any = None,
        p_answer: Any = None,
        n_categories: Any = None,
        n: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        given = {"epsilon=": epsilon, "p_truth=": p_truth, "p_answer=": p_answer}
        way = exactly_one(
            cls.__name__,
            {name: value is not None for name, value in given.items()},
            "epsilon=, or p_truth=, or p_answer=",
        )
        prepared = cls._prepare(query, sensitivity=None, bounds=None, order=1)
        table = answer_table(p_answer, prepared.query.type.dtype) if way == "p_answer=" else None
        k = cls._number_of_categories(prepared.query, n_categories, n, table)
        one_per = prepared.query if n is None else prepared.query[..., 0]
        promise: PrivacyGuarantee | None
        props: dict[str, Any] = {}
        if table is not None:
            table.check_batch(one_per, "person" if n is None else "table of counts")
            noise, promise = table.table, table.guarantee
            props = {
                "signature": AnswerTables.of_record if n is None else AnswerTables.of_counts,
                "why_none": table.why_none,
            }
        elif way == "epsilon=":
            epsilon = positive("epsilon", epsilon)
            noise, promise = pt.constant(epsilon, dtype="float64"), PrivacyGuarantee(epsilon)
        else:
            noise, promise = _epsilon_of(p_truth, prepared.query.shape[-1] if k is None else k, one_per)
        if n is None:
            props |= {"n_categories": k, "n_answers": None if table is None else table.n_answers}
            return cls._release(prepared, [noise], promise, props=props, **kwargs)
        return cls._release(
            PreparedQuery(prepared.query, None, None, None),
            [_categories.number_of_people(n, prepared.query), noise],
            promise,
            op_class=RandomizedResponseCountsRV,
            props=props,
            expected=cls._release_shape(prepared.query, n=n, p_answer=p_answer),
            **kwargs,
        )

    @staticmethod
    def _number_of_categories(
        query: TensorVariable, given: Any, n: Any, table: AnswerTable | None
    ) -> int | None:
        rows = None if table is None else table.n_truths
        if n is not None:
            k = _categories.check_probabilities(query, given)
            return k if rows is None else _categories.check_rows(rows, k, "the query has probabilities of")
        if rows is not None:
            known = given if given is not None else _categories.categories_of(query)
            what = "the query has" if given is None else "n_categories says"
            given = _categories.check_rows(rows, known, what)
        k = _categories.number_of_categories(query, given)
        _categories.check_query(query, k)
        return k

    @classmethod
    def _check_release(cls, op: Any) -> None:
        if isinstance(op, RandomizedResponseCountsRV):
            raise ValueError(
                "RandomizedResponse.release takes the category of each person, without n=: count the reports "
                "(numpy.bincount) and publish the counts."
            )
        if op.guarantee is None and op.why_none is not None:
            raise ValueError(
                f"RandomizedResponse.release would guarantee nothing with this p_answer: {op.why_none}. "
                "Nothing was released. Let each answer that some truth makes possible be possible under all."
            )

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        noise, k = np.asarray(params[-1]), op.n_categories
        if op.form is AnswerTables:
            table = noise.reshape(noise.shape[-2:]) if noise.size == k * op.n_answers else noise
            return {"p_answer": table, "n_categories": k}
        if noise.size == 1:
            return {"epsilon": noise.item(), "n_categories": k}
        return {"p_truth": 1 / (1 + (k - 1) * np.exp(-noise)), "n_categories": k}

    def support_point(rv: Any, size: Any, query: Any, noise: Any) -> TensorVariable:
        """Return the true categories, or the likeliest answers."""
        return pt.cast(rv.owner.op.form.likeliest(query, noise), "int64")


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
    (value,), (query, noise) = values, inputs[2:]
    density = op.form.log_report(value, query, noise, op.n_categories)
    possible = _categories.whole_within(value, op.n_answers - 1)
    density = _categories.density_of_report(density, possible, query, op.n_categories)
    return op.form.checked(density, noise)


@_logprob.register(RandomizedResponseCountsRV)
def _log_probability_of_counts(op: Any, values: Any, *inputs: Any, **kwargs: Any) -> TensorVariable:
    """Return the log probability of a table of reports."""
    (value,), (probs, n, noise) = values, inputs[2:]
    reports = op.form.log_reports(probs, noise)
    density = factln(n) + pt.sum(pt.switch(pt.eq(value, 0), 0.0, value * reports) - factln(value), axis=-1)
    possible = pt.all(_categories.whole_within(value, n[..., None]), axis=-1) & pt.eq(
        pt.sum(value, axis=-1), n
    )
    return op.form.checked(_categories.density_of_table(density, possible, probs), noise)


@_support_point.register(RandomizedResponseCountsRV)
def _expected_counts(op: Any, rv: Any, *inputs: Any) -> TensorVariable:
    """Return counts near their means."""
    probs, n, noise = inputs[2:]
    return op.form.expected(probs, n, noise)


register_draw_of(RandomizedResponseRV, lambda op: op.form.native(op))
register_draw_of(RandomizedResponseCountsRV, lambda op: op.form.native_counts)
