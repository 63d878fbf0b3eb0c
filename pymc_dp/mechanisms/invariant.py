"""Numbers that are published exactly beside noisy ones: invariants of a table of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import DiracDelta, DiracDeltaRV, Discrete
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._checks import as_query, beyond_32_bits, check_static_shape, known_values


class InvariantRV(DiracDeltaRV):
    """The value of a query, without noise."""

    name = "invariant"
    is_invariant = True
    _print_name = ("Invariant", "\\operatorname{Invariant}")


class Invariant(Discrete):
    r"""Query of counts that is known exactly.

    Published tables often have totals or margins without noise. An invariant has no privacy: the promise of
    the releases beside it holds between tables that agree on it, and :func:`pymc_dp.guarantee` of the model
    names it.

    Parameters
    ----------
    query : tensor_like of int, any shape
        A linear map of count variables with known whole coefficients, such as ``c.sum()`` or
        ``c.sum(axis=0)``.
    observed : array_like, shape of the query
        The published numbers, which are whole.
    **kwargs
        ``dims`` and so on, as for any PyMC distribution.

    Raises
    ------
    TypeError
        `query` is not of whole numbers.
    ValueError
        `observed` is missing, has another shape than the query, or fractions; when sampling begins,
        invariants that no table meets.

    Notes
    -----
    :class:`pymc_dp.TableImputation` draws tables that meet all invariants. Other steps would not leave the
    table where they start from.

    References
    ----------
    Gao, Gong and Yu (2022), *Subspace Differential Privacy*; Hara, Aoki and Takemura (2010), *Minimal and
    minimal invariant Markov bases of decomposable models for contingency tables*.

    Examples
    --------
    A table of 100 people with noisy cells, of whom the numbers by row are known:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> noisy = np.array([[21, 36, -2], [8, 10, 27]])
    >>> with pm.Model() as model:
    ...     rate = pm.Gamma("rate", 1, 0.1, shape=(2, 3))
    ...     c = pm.Poisson("c", rate)
    ...     z = dp.DiscreteGaussianMechanism("z", c, sigma=4, observed=noisy)
    ...     rows = dp.Invariant("rows", c.sum(axis=1), observed=[57, 43])
    """

    rv_type = InvariantRV
    rv_op = InvariantRV.rv_op

    def __new__(  # type: ignore[misc]  # PyMC's distributions construct tensors
        cls, name: str, query: Any, *args: Any, observed: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Check the declaration, then register it as PyMC does."""
        if observed is None:
            raise ValueError(
                f"The invariant {name} needs observed=, the numbers that are known exactly. A number that "
                "nobody published is a pm.Deterministic."
            )
        query = _whole_query(query)
        if not rvs_in_graph([query]):
            raise ValueError("query depends on no random variable of the model: pass a sum of counts.")
        values = known_values(observed)
        if not isinstance(observed, Variable):
            if values is None or np.ma.isMaskedArray(observed):
                raise TypeError(f"observed must be whole numbers, got {type(observed).__name__}.")
            if not np.isfinite(values).all() or (values != np.floor(values)).any():
                raise ValueError(
                    "observed has missing numbers or fractions: an invariant is known exactly. Leave what "
                    "was not published out of the query; what was rounded is a release with "
                    "dp.postprocessed."
                )
            check_static_shape("observed", values.shape, query.type.shape)
            observed = beyond_32_bits(values.astype(np.int64))
        return super().__new__(cls, name, query, *args, observed=observed, **kwargs)

    @classmethod
    def dist(cls, query: Any, **kwargs: Any) -> Any:
        """Return an unregistered invariant; parameters as for the class."""
        return super().dist([_whole_query(query)], **kwargs)

    def support_point(rv: Any, size: Any, query: Any) -> Any:
        """Return the query itself."""
        return query

    def logp(value: Any, query: Any) -> Any:
        """Return 0 where the query has this value, and minus infinity elsewhere."""
        return DiracDelta.logp(value, query)


def _whole_query(query: Any) -> TensorVariable:
    """Return a query of whole numbers."""
    tensor = as_query(query) if not isinstance(query, Variable) else query
    if np.dtype(tensor.type.dtype).kind not in "iub":
        raise TypeError(
            f"query must be of whole numbers, got dtype {tensor.type.dtype}: a sum of counts, with whole "
            "coefficients (an array of integers, not of floats)."
        )
    return pt.cast(tensor, "int64")
