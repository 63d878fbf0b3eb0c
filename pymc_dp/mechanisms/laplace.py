"""Laplace noise: pure differential privacy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import Continuous
from pymc.distributions.dist_math import check_parameters
from pytensor.tensor.random.basic import LaplaceRV, NormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._additive import LAPLACE, query_as_support_point
from pymc_dp.mechanisms._grid import draw_on_grid
from pymc_dp.mechanisms.conditionals import NormalGivenLaplace
from pymc_dp.mechanisms.marginals import NORMAL_LAPLACE, RecordMarginal
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, MechanismOp
from pymc_dp.mechanisms.processed import AddedNoise
from pymc_dp.privacy.exact_noise import discrete_laplace


class LaplaceMechanismRV(MechanismOp, LaplaceRV):
    """Draws a release with Laplace noise (PyTensor's own draw, so it stays native)."""

    __props__ = (*LaplaceRV.__props__, *MECHANISM_PROPS)  # type: ignore[assignment]
    _print_name = ("LaplaceMechanism", "\\operatorname{LaplaceMechanism}")
    additive_noise = True
    family = "laplace"
    conditional_draws: ClassVar[Mapping[type, RandomVariable]] = MappingProxyType(
        {NormalRV: NormalGivenLaplace}
    )
    record_marginals: ClassVar[Mapping[type, RecordMarginal]] = MappingProxyType({NormalRV: NORMAL_LAPLACE})

    @staticmethod
    def tail_reach(log_level: TensorVariable, scale: TensorVariable) -> TensorVariable:
        """Return a distance such that the noise is farther, to one side, with a log probability below it."""
        return scale * pt.maximum(-log_level, 0.0)


class LaplaceMechanism(AddedNoise, Continuous):
    r"""Release of a query with independent Laplace noise on every entry.

    .. math:: p(z \mid q) = \prod_j \frac{1}{2b} \exp\left(-\frac{|z_j - q_j|}{b}\right)

    Exactly one of `scale` and `epsilon` gives the noise level; a noise level shared by all entries
    is calibrated so that the whole release (for a query that keeps the record axis: each row of
    it) spends `epsilon`.

    Parameters
    ----------
    query : tensor_like, any shape
        The released statistic: an expression of the record variables. The release has its shape.
    scale : tensor_like, optional
        Scale b of the noise in the query's units, one number or one per entry; may be random.
    epsilon : float, optional
        Budget in nats; needs `sensitivity` or `bounds`.
    sensitivity : float, optional
        Largest change of the whole query in the L1 norm (sum of absolute changes) when one record is
        exchanged for another, or with one record more or less.
    bounds : tuple or list, optional
        Clamps each record's contribution to a sum or mean, or each row of a local query:
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
        No noise level or more than one, a number out of its range, `sensitivity` below what `bounds` imply,
        `observed` of another shape than the query or with missing entries.

    References
    ----------
    Dwork, McSherry, Nissim and Smith (2006), *Calibrating Noise to Sensitivity in Private Data
    Analysis*.

    Examples
    --------
    A count of 50 people, released at epsilon = 1:

    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     smokes = pm.Bernoulli("smokes", p, shape=50)
    ...     z = dp.LaplaceMechanism("z", smokes.sum(), epsilon=1, sensitivity=1, observed=17.3)
    >>> print(dp.guarantee(z))
    Pure differential privacy with epsilon = 1, for replace-one neighbours.
    """

    rv_op = LaplaceMechanismRV()

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
            cls, query, scale, epsilon, sensitivity=sensitivity, bounds=bounds, neighbours=neighbours
        )
        return cls._release(prepared, [noise], promise, **kwargs)

    @classmethod
    def _draw_release(cls, op: MechanismOp, query: TensorVariable, params: list[np.ndarray]) -> Any:
        """Draw whole multiples of a granule, in integer arithmetic."""
        stated = None if op.guarantee is None else op.guarantee.epsilon
        return draw_on_grid(op, query, params[0], discrete_laplace, stated, 1)

    def support_point(rv: Any, size: Any, query: Any, scale: Any) -> TensorVariable:
        """Return the query itself."""
        return query_as_support_point(size, query, scale)

    def logp(value: Any, query: Any, scale: Any) -> TensorVariable:
        """Return the log density of each entry."""
        density = -pt.log(2 * scale) - pt.abs(value - query) / scale
        return check_parameters(density, scale > 0, msg="scale > 0")
