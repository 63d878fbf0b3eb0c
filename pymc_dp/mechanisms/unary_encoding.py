"""Unary encoding: one noisy bit for each category, of which the true category's is set more often.

On *records*, row i of the release holds the bits of person i. On *counts*, the release says how many people
set each bit; their categories are integrated out, and no record is a variable of the model.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.bit_totals import bit_totals
from pymc_dp.lowering.functions.samplers import register_draw, register_draw_of
from pymc_dp.mechanisms import _categories, _response_draws
from pymc_dp.mechanisms._checks import as_query, booleans_as_numbers, check_setting, exactly_one
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, Mechanism, MechanismOp
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.exact_noise import words_from
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release
from pymc_dp.upstream.pymc_private import _logprob, _support_point

VARIANTS = ("symmetric", "optimized")


class UnaryEncodingRV(MechanismOp, RandomVariable):
    """Draws the bits of each person; parameters: category, log-odds of a 1 if true, and if not."""

    name = "unary_encoding"
    signature = "(),(),()->(k)"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", "n_categories", "variant", *MECHANISM_PROPS)
    _print_name = ("UnaryEncoding", "\\operatorname{UnaryEncoding}")

    def __init__(
        self, name: str | None = None, *, n_categories: int = 2, variant: str = "symmetric", **kwargs: Any
    ):
        self.n_categories, self.variant = n_categories, variant
        super().__init__(name, **kwargs)

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> tuple[Any, ...]:
        return (pt.constant(self.n_categories, dtype="int64"),)

    def rng_fn(self, rng: np.random.Generator, category: Any, own: Any, other: Any, size: Any) -> np.ndarray:
        """Draw bits with NumPy."""
        _categories.check_categories("category", category, self.n_categories)
        category, own, other = np.broadcast_arrays(category, own, other)
        if size is not None:
            category, own, other = (np.broadcast_to(a, size) for a in (category, own, other))
        true = np.arange(self.n_categories) == category[..., None]
        odds = np.exp(-np.where(true, own[..., None], other[..., None]))
        return (rng.random(true.shape) * (1 + odds) < 1).astype(np.int64)

    def secure_draw(
        self, generator: np.random.Generator, query: np.ndarray, *params: np.ndarray
    ) -> np.ndarray:
        """Draw bits for publication, by comparing random words with the first 64 bits of a probability.

        The less likely value of a bit has its probability rounded upwards, which costs no privacy.
        """
        _categories.check_categories("category", query, self.n_categories)
        true = np.arange(self.n_categories) == np.asarray(query)[..., None]
        words = words_from(generator)(true.size).reshape(true.shape)
        own, other = (words < _rare(float(np.asarray(odds).item())) for odds in params)
        return np.where(true, ~own, other).astype(np.int64)


def _rare(odds: float) -> np.uint64:
    """Return the probability of the less likely value of a bit with these log-odds, in units of 2^-64."""
    weight = math.exp(-abs(odds))
    share = Fraction(weight / (1 + weight)) * (1 + Fraction(1, 2**50))
    # for the largest budgets exp(-epsilon) underflows to 0, but a bit that never lies has no finite epsilon
    return np.uint64(max(1, min(math.ceil(share * 2**64), 2**63)))


class UnaryEncodingCountsRV(MechanismOp, RandomVariable):
    """Draws how many people set each bit; parameters: probabilities, n, and the two log-odds."""

    name = "unary_encoding_counts"
    signature = "(k),(),(),()->(k)"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", *MECHANISM_PROPS)
    _print_name = ("UnaryEncodingCounts", "\\operatorname{UnaryEncodingCounts}")
    of_records = False

    @classmethod
    def rng_fn(
        cls, rng: np.random.Generator, probs: Any, n: Any, own: Any, other: Any, size: Any
    ) -> np.ndarray:
        """Draw totals with NumPy."""
        p, q = (1 / (1 + np.exp(-np.asarray(odds, dtype=float)))[..., None] for odds in (own, other))
        people = np.asarray(n, dtype=np.int64)
        table = rng.multinomial(people, np.asarray(probs, dtype=float), size)
        return rng.binomial(table, p) + rng.binomial(people[..., None] - table, q)


class UnaryEncoding(Mechanism, Discrete):
    r"""Bits of a one-hot encoded category, which are flipped independently.

    The bit of the true category is 1 with probability p, every other bit with probability q:

    .. math:: \log P(z \mid c) = \sum_k \log P_q(z_k) + \log\frac{1 - p}{1 - q}
              + z_c \log\frac{p (1 - q)}{q (1 - p)}

    Changing the category changes two bits, so that :math:`\epsilon = \log\frac{p(1-q)}{q(1-p)}`. The
    symmetric variant has :math:`p = 1 - q = e^{\epsilon/2}/(1 + e^{\epsilon/2})`; the optimized one
    :math:`p = 1/2, q = 1/(1 + e^\epsilon)`, which estimates many rare categories with the least variance.

    With `n`, the release is the number of people that set each bit, of n people whose categories are
    independent with probabilities `query`. Given how many people c have each category the totals are
    independent, :math:`z_k = \text{Bin}(c_k, p) + \text{Bin}(n - c_k, q)`, and c is multinomial; the sum over
    all c is computed to rounding at any n, by the Poisson representation of c and Fourier integrals. It is
    differentiable, so that NUTS samples the probabilities. The counts of each *pattern* of bits would be more
    informative than these totals, but only the totals are published here.

    Parameters
    ----------
    query : tensor_like, shape () or (n,)
        Category of each person, 0, ..., K - 1: the record variable. The release has shape (K,) or (n, K).
        With `n`: the probabilities of the categories in the population, shape (..., K), which sum to 1 over
        the last axis; the release has their shape.
    epsilon : float
        Budget of each person, in nats.
    variant : {"symmetric", "optimized"}, default "symmetric"
        How the budget is spent: equally on ones and zeros, or with less noise on the zeros.
    n_categories : int, optional
        Number K of categories. It may be left out for a Categorical or Bernoulli variable, and on counts.
    n : int or array_like, optional
        Number of people in each table, which is public and fixed; the release is then of totals. Several
        tables must be of different people: each person is then in one table and spends `epsilon` once, so
        that the guarantee states the largest epsilon of a table, not the sum. Declare tables of several
        questions to the same people as separate releases, whose epsilons add up.
    **kwargs
        ``observed`` (bits, as numbers or booleans, or their totals), ``dims``, ``initval`` and so on, as for
        any PyMC distribution; and ``records``.

    Raises
    ------
    TypeError
        An argument is not of the right kind.
    ValueError
        `epsilon` missing or out of its range, `n_categories` unknown, an unknown variant, or `observed`
        with values other than 0 and 1, or with totals beyond 0, ..., `n`.

    See Also
    --------
    RandomizedResponse : Less noise when there are few categories.

    References
    ----------
    Wang, Blocki, Li and Jha (2017), *Locally differentially private protocols for frequency estimation*,
    sections 4.2 and 4.3; Erlingsson, Pihur and Korolova (2014), *RAPPOR*.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     p = pm.Dirichlet("p", np.ones(3))
    ...     c = pm.Categorical("c", p, shape=2)
    ...     z = dp.UnaryEncoding("z", c, epsilon=1, observed=[[0, 0, 1], [1, 0, 1]])
    >>> print(dp.guarantee(z))
    Pure differential privacy with epsilon = 1, for replace-one neighbours.

    Totals of a million people:

    >>> with pm.Model():
    ...     p = pm.Dirichlet("p", np.ones(3))
    ...     z = dp.UnaryEncoding("z", p, n=10**6, epsilon=1, observed=[500_000, 450_000, 430_000])
    """

    rv_op = UnaryEncodingRV()

    def __new__(cls, name: str, query: Any, *args: Any, observed: Any = None, **kwargs: Any) -> Any:  # type: ignore[misc]
        """Check the observed values, then declare the release as for any mechanism."""
        if observed is not None:
            if kwargs.get("n") is None:
                observed = booleans_as_numbers(observed)
            values = observed.value if isinstance(observed, Release) else observed
            if kwargs.get("n") is None:
                _categories.check_bits("observed", values)
            else:
                _categories.check_axis(as_query(query))
                _categories.check_totals("observed", values, kwargs["n"])
        return super().__new__(cls, name, query, *args, observed=observed, **kwargs)

    @classmethod
    def _release_shape(cls, query: TensorVariable, **settings: Any) -> tuple[int | None, ...]:
        if settings.get("n") is not None:
            return query.type.shape
        return (*query.type.shape, _categories.number_of_categories(query, settings.get("n_categories")))

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        epsilon: Any = None,
        variant: str = "symmetric",
        n_categories: Any = None,
        n: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        exactly_one(cls.__name__, {"epsilon=": epsilon is not None}, "epsilon=")
        epsilon = positive("epsilon", epsilon)
        check_setting("variant", variant, VARIANTS)
        prepared = cls._prepare(as_query(query), sensitivity=None, bounds=None, order=1)
        odds = (epsilon / 2, -epsilon / 2) if variant == "symmetric" else (0.0, -epsilon)
        noise = [pt.constant(o, dtype="float64") for o in odds]
        promise = PrivacyGuarantee(epsilon)
        if n is not None:
            _categories.check_probabilities(prepared.query, n_categories)
            people = _categories.number_of_people(n, prepared.query)
            return cls._release(
                prepared,
                [people, *noise],
                promise,
                op_class=UnaryEncodingCountsRV,
                expected=prepared.query.type.shape,
                **kwargs,
            )
        k = _categories.number_of_categories(prepared.query, n_categories)
        _categories.check_query(prepared.query, k)
        return cls._release(
            prepared,
            noise,
            promise,
            props={"n_categories": k, "variant": variant},
            expected=(*prepared.query.type.shape, k),
            **kwargs,
        )

    @classmethod
    def _check_release(cls, op: Any) -> None:
        if isinstance(op, UnaryEncodingCountsRV):
            raise ValueError(
                "UnaryEncoding.release takes the category of each person, without n=: add up the bits and "
                "publish the totals."
            )

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        epsilon = np.asarray(params[0] - params[1]).item()
        return {"epsilon": epsilon, "variant": op.variant, "n_categories": op.n_categories}

    def support_point(rv: Any, size: Any, query: Any, own: Any, other: Any) -> TensorVariable:
        """Return the encoding without noise."""
        k = rv.owner.op.n_categories
        return pt.cast(pt.eq(pt.arange(k), query[..., None]), "int64")


@_logprob.register(UnaryEncodingRV)
def _log_probability(op: Any, values: Any, *inputs: Any, **kwargs: Any) -> TensorVariable:
    """Return the log probability of each person's bits."""
    (bits,), (query, own, other) = values, inputs[2:]
    k = op.n_categories
    noise = pt.sum(bits, axis=-1) * other - k * pt.softplus(other)  # the density if no category were true
    density = noise + _bit_of(bits, query) * (own - other) - pt.softplus(own) + pt.softplus(other)
    possible = pt.all(_categories.whole_within(bits, 1), axis=-1)
    return _categories.density_of_report(density, possible, query, k)


def _bit_of(bits: TensorVariable, category: TensorVariable) -> TensorVariable:
    """Return each person's bit of a category, without a loop over categories."""
    category = pt.cast(category, "int64")
    if category.ndim == 0:
        return bits[..., category]
    if bits.ndim == 1:
        return bits[category]
    if bits.ndim == 2 and category.ndim == 1:
        return bits[pt.arange(bits.shape[0]), category]
    batch = pt.broadcast_shape(bits[..., 0], category)
    rows = pt.broadcast_to(bits, (*batch, bits.shape[-1])).reshape((-1, bits.shape[-1]))
    picked = rows[pt.arange(rows.shape[0]), pt.broadcast_to(category, batch).ravel()]
    return picked.reshape(batch, ndim=max(bits.ndim - 1, category.ndim))


@_logprob.register(UnaryEncodingCountsRV)
def _log_probability_of_totals(op: Any, values: Any, *inputs: Any, **kwargs: Any) -> TensorVariable:
    """Return the log probability of the totals of bits, with the categories integrated out."""
    (value,), (probs, n, own, other) = values, inputs[2:]
    possible = pt.all(_categories.whole_within(value, n[..., None]), axis=-1)
    shape = pt.broadcast_shape(probs, value)
    tables = [pt.broadcast_to(a, shape).reshape((-1, shape[-1])) for a in (probs, value)]
    people = pt.broadcast_to(n, shape[:-1]).reshape((-1,))
    p, q = (pt.sigmoid(odds.ravel()[0]) for odds in (own, other))
    # totals are clipped to the possible range, since the law is not defined beyond it
    totals = pt.clip(tables[1], 0, people[:, None])
    density = bit_totals(tables[0], people, totals, p, q)[0]
    density = density.reshape(shape[:-1], ndim=max(probs.ndim, value.ndim) - 1)
    return _categories.density_of_table(density, possible, probs)


@_support_point.register(UnaryEncodingCountsRV)
def _expected_totals(op: Any, rv: Any, *inputs: Any) -> TensorVariable:
    """Return totals near their means."""
    probs, n, own, other = inputs[2:]
    p, q = pt.sigmoid(own)[..., None], pt.sigmoid(other)[..., None]
    return pt.cast(pt.round(n[..., None] * (q + (p - q) * probs)), "int64")


register_draw(UnaryEncodingCountsRV, _response_draws.bit_totals)
register_draw_of(UnaryEncodingRV, _response_draws.bits_of)
