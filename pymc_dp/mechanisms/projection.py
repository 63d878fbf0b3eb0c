"""Noisy means of orthonormal functions of the records: a global mechanism."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._additive import given_once
from pymc_dp.mechanisms._bases import BASES
from pymc_dp.mechanisms._bins import clamped_rows, interval, number_of_rows
from pymc_dp.mechanisms._checks import as_query, check_setting, needed_number, refuse_sensitivity
from pymc_dp.mechanisms._numbers import records_added
from pymc_dp.mechanisms._releases import as_declared
from pymc_dp.mechanisms.gaussian import GaussianMechanism, GaussianMechanismRV
from pymc_dp.mechanisms.laplace import LaplaceMechanism, LaplaceMechanismRV
from pymc_dp.mechanisms.mechanism import Mechanism

MAX_TERMS = 1024
_TERMS = "how many functions, the constant not counted"


class ProjectionOp:
    """Mix-in of the operations of noisy means, with the functions and their interval."""

    _print_name = ("ProjectionMechanism", "\\operatorname{ProjectionMechanism}")

    def __init__(
        self,
        *args: Any,
        basis: str = "cosine",
        n_terms: int = 1,
        interval: tuple[float, float] = (0.0, 1.0),
        **kwargs: Any,
    ) -> None:
        self.basis = basis
        self.n_terms = n_terms
        self.interval = interval
        super().__init__(*args, **kwargs)


class ProjectionLaplaceRV(ProjectionOp, LaplaceMechanismRV):  # type: ignore[misc]
    """Draws means with Laplace noise."""

    __props__ = ("basis", "n_terms", "interval", *LaplaceMechanismRV.__props__)  # type: ignore[assignment]


class ProjectionGaussianRV(ProjectionOp, GaussianMechanismRV):  # type: ignore[misc]
    """Draws means with Gaussian noise."""

    __props__ = ("basis", "n_terms", "interval", *GaussianMechanismRV.__props__)  # type: ignore[assignment]


def projection_sensitivity(basis: str, n_terms: int, n_records: int, order: int) -> float:
    r"""Return the sensitivity of the means of a basis's functions to one record.

    It is :math:`\sup_{u, u'} \|\phi(u) - \phi(u')\| / n`. It is exact for the cosines, for the Haar wavelets
    and, in the L2 norm, for the trigonometric functions; a maximum that has to be searched for is rounded up
    by less than one part in 10^9. For the trigonometric functions in the L1 norm it is an upper bound, which
    exceeds the supremum by less than one part in 500 for up to 64 terms.

    Parameters
    ----------
    basis : {"cosine", "fourier", "haar"}
    n_terms, n_records : int
    order : {1, 2}
        Order of the norm: 1 for Laplace noise, 2 for Gaussian noise.

    Returns
    -------
    float

    Examples
    --------
    >>> from pymc_dp.mechanisms.projection import projection_sensitivity
    >>> round(projection_sensitivity("cosine", 3, n_records=10, order=2), 5)
    0.4
    """
    return float(BASES[basis].largest_change(n_terms, order)) / n_records


class ProjectionMechanism(Mechanism):
    r"""Global release of the noisy means of orthonormal functions of the records.

    With u the record's value clamped to `bounds` (lo, hi) and rescaled to [0, 1],

    .. math:: z_j = \frac{1}{n} \sum_{i=1}^n \phi_j(u_i) + \text{noise}_j, \qquad j = 1, \dots, N.

    The functions are orthonormal on [0, 1], and the constant one, whose mean is 1 for all data, is
    left out; so :math:`(1 + \sum_j z_j \phi_j(u)) / (hi - lo)` estimates the density of the records
    without bias. The bases:

    * "cosine": :math:`\sqrt 2 \cos \pi j u`;
    * "fourier": :math:`\sqrt 2 \cos 2 \pi j u, \sqrt 2 \sin 2 \pi j u` in turn;
    * "haar": the mother wavelets of :class:`WaveletMechanism`, for 1, 3, 7, 15, ... terms.

    Exactly one of `epsilon` (with `delta` for Gaussian noise), `rho`, `scale` and `sigma` gives the noise
    level. Noise is Gaussian where `delta`, `rho` or `sigma` is given, and Laplace otherwise. The sensitivity
    is that of the vector of all means (:func:`~pymc_dp.mechanisms.projection.projection_sensitivity`).

    Parameters
    ----------
    query : tensor_like, shape (n,)
        One number per record. The release has shape (n_terms,).
    basis : {"cosine", "fourier", "haar"}, default "cosine"
        Orthonormal functions on [0, 1].
    n_terms : int
        Number N of functions.
    bounds : tuple, default (0, 1)
        Interval (lo, hi) that the records are clamped to.
    epsilon, delta, rho, scale, sigma : optional
        Noise level, as for :class:`LaplaceMechanism` and :class:`GaussianMechanism`.
    calibration : {"analytic", "classic"}, optional
        As for :class:`GaussianMechanism`.
    **kwargs
        ``observed``, ``dims``, ``initval`` and so on, as for any PyMC distribution; and
        ``records``, a list of the variables (or names) that hold the confidential records, where
        they cannot be told from the query.

    Raises
    ------
    TypeError
        An argument is not of the right kind.
    ValueError
        No noise level or more than one, an unknown basis, a number out of its range, a query that does not
        have one number per record, `observed` of another shape than the means.

    References
    ----------
    Lalanne, Garivier and Gribonval (2023), *About the Cost of Central Privacy in Density Estimation*.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     a = pm.Exponential("a", 0.1)
    ...     y = pm.Beta("y", a, 2, shape=50)
    ...     z = dp.ProjectionMechanism("z", y, n_terms=3, epsilon=2, observed=[-0.9, 0.4, -0.1])
    >>> print(dp.guarantee(z))
    Pure differential privacy with epsilon = 2, for replace-one neighbours.
    """

    rv_op = ProjectionLaplaceRV()

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        basis: str = "cosine",
        n_terms: Any = None,
        bounds: Any = (0, 1),
        epsilon: Any = None,
        delta: Any = None,
        rho: Any = None,
        scale: Any = None,
        sigma: Any = None,
        calibration: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        refuse_sensitivity(cls.__name__, kwargs)
        given, normal = given_once(
            cls.__name__, calibration, scale=scale, sigma=sigma, epsilon=epsilon, delta=delta, rho=rho
        )
        mechanism: type[Mechanism] = GaussianMechanism if normal else LaplaceMechanism
        check_setting("basis", basis, BASES)
        terms = cls._terms(n_terms)
        lo, hi = interval(bounds)
        rows = clamped_rows(cls.__name__, as_query(query), lo, hi)
        n = number_of_rows(rows)
        resizable = rows.type.shape[0] is None
        present = pt.cast(rows.shape[0], rows.dtype) if resizable else n
        functions = BASES[basis].evaluate((rows - lo) / (hi - lo), terms)
        given["sensitivity"] = projection_sensitivity(basis, terms, n, 2 if normal else 1)
        return mechanism.dist(
            pt.cast(functions, rows.dtype).sum(axis=0) / present,
            **given,
            op_class=ProjectionGaussianRV if normal else ProjectionLaplaceRV,
            props={"basis": basis, "n_terms": terms, "interval": (lo, hi)}
            | ({"lengths": (n, terms)} if resizable else {}),
            **kwargs,
        )

    @classmethod
    def _terms(cls, n_terms: Any) -> int:
        return needed_number(cls.__name__, "n_terms", n_terms, 1, MAX_TERMS, _TERMS)

    @classmethod
    def _release_shape(
        cls, query: TensorVariable, n_terms: Any = None, **settings: Any
    ) -> tuple[int | None, ...]:
        return (cls._terms(n_terms),)

    @classmethod
    def _draw_release(cls, op: Any, query: TensorVariable, params: list[np.ndarray]) -> Any:
        """Draw as the mechanism of that noise does, for which means are a query like any other."""
        mechanism = GaussianMechanism if isinstance(op, ProjectionGaussianRV) else LaplaceMechanism
        *drawn, published = mechanism._draw_release(op, query, params)
        return *drawn, published | {"n_records": records_added(query)}

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        (level,) = params
        return {
            "basis": op.basis,
            "n_terms": op.n_terms,
            "bounds": op.interval,
            "sigma" if isinstance(op, ProjectionGaussianRV) else "scale": as_declared(level),
        }
