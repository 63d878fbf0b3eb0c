"""Unary encoding: one noisy bit for each category, the true one's more often set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Discrete
from pymc.logprob.abstract import _logprob
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.samplers import register_draw_of
from pymc_dp.mechanisms import _categories, _response_draws
from pymc_dp.mechanisms._checks import as_query
from pymc_dp.mechanisms.base import MECHANISM_PROPS, Mechanism, MechanismOp, exactly_one
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.guarantee import PrivacyGuarantee

VARIANTS = ("symmetric", "optimized")


class UnaryEncodingRV(MechanismOp, RandomVariable):
    """Draws the bits of each person; parameters: category, log-odds of a one where true, and elsewhere."""

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


class UnaryEncoding(Mechanism, Discrete):
    r"""Bits of a one-hot encoded category, each flipped on its own.

    The bit of the true category is 1 with probability p, every other bit with probability q:

    .. math:: \log P(z \mid c) = \sum_k \log P_q(z_k) + \log\frac{1 - p}{1 - q}
              + z_c \log\frac{p (1 - q)}{q (1 - p)}

    Changing the category changes two bits, so that :math:`\epsilon = \log\frac{p(1-q)}{q(1-p)}`. The
    symmetric variant has :math:`p = 1 - q = e^{\epsilon/2}/(1 + e^{\epsilon/2})`; the optimized one
    :math:`p = 1/2, q = 1/(1 + e^\epsilon)`, which estimates many rare categories with the least variance.

    Parameters
    ----------
    query : tensor_like, shape () or (n,)
        Category of each person, 0, ..., K - 1: the record variable. The release has shape (K,) or (n, K).
    epsilon : float
        Budget of each person, in nats.
    variant : {"symmetric", "optimized"}, default "symmetric"
        How the budget is spent: equally on ones and zeros, or with less noise on the zeros.
    n_categories : int, optional
        K. Found by itself for a Categorical or Bernoulli variable.
    **kwargs
        ``observed`` (bits), ``dims``, ``initval`` and so on, as for any PyMC distribution; and
        ``records``.

    Raises
    ------
    TypeError
        An argument is not of the right kind.
    ValueError
        `epsilon` missing or out of its range, `n_categories` unknown, an unknown variant, or `observed`
        with values other than 0 and 1.

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
    """

    rv_op = UnaryEncodingRV()

    def __new__(cls, name: str, query: Any, *args: Any, observed: Any = None, **kwargs: Any) -> Any:  # type: ignore[misc]
        """Check the observed values, then declare as any mechanism."""
        if observed is not None:
            _categories.check_bits("observed", getattr(observed, "value", observed))
        return super().__new__(cls, name, query, *args, observed=observed, **kwargs)

    @classmethod
    def _release_shape(cls, query: TensorVariable, **settings: Any) -> tuple[int | None, ...]:
        return (*query.type.shape, _categories.number_of_categories(query, settings.get("n_categories")))

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        epsilon: Any = None,
        variant: str = "symmetric",
        n_categories: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        exactly_one(cls.__name__, {"epsilon=": epsilon is not None}, "epsilon=")
        epsilon = positive("epsilon", epsilon)
        if variant not in VARIANTS:
            raise ValueError(f"variant must be one of {', '.join(map(repr, VARIANTS))}, got {variant!r}.")
        prepared = cls._prepare(as_query(query), sensitivity=None, bounds=None, order=1)
        k = _categories.number_of_categories(prepared.query, n_categories)
        _categories.check_query(prepared.query, k)
        odds = (epsilon / 2, -epsilon / 2) if variant == "symmetric" else (0.0, -epsilon)
        return cls._release(
            prepared,
            [pt.constant(o, dtype="float64") for o in odds],
            PrivacyGuarantee(epsilon),
            props={"n_categories": k, "variant": variant},
            expected=(*prepared.query.type.shape, k),
            **kwargs,
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
    """Log probability of each person's bits."""
    (bits,), (query, own, other) = values, inputs[2:]
    k = op.n_categories
    noise = pt.sum(bits, axis=-1) * other - k * pt.softplus(other)  # as if no category were true
    density = noise + _bit_of(bits, query) * (own - other) - pt.softplus(own) + pt.softplus(other)
    possible = pt.all(_categories.whole_within(bits, 1), axis=-1)
    return check_parameters(
        pt.switch(possible, density, -np.inf),
        pt.ge(query, 0) & pt.lt(query, k),
        msg=f"category in 0, ..., {k - 1}",
    )


def _bit_of(bits: TensorVariable, category: TensorVariable) -> TensorVariable:
    """Pick each person's bit of a category, without a loop over categories."""
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


register_draw_of(UnaryEncodingRV, _response_draws.bits_of, version=1)
