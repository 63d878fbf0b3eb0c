"""A histogram of the records with noise on its counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._additive import given_once
from pymc_dp.mechanisms._bins import clamped_rows, equal_edges, interval, one_hot, parse_edges
from pymc_dp.mechanisms._checks import as_query, check_setting, refuse_sensitivity, whole_number
from pymc_dp.mechanisms._releases import as_declared
from pymc_dp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism, DiscreteGaussianMechanismRV
from pymc_dp.mechanisms.discrete_laplace import DiscreteLaplaceMechanism, DiscreteLaplaceMechanismRV
from pymc_dp.mechanisms.gaussian import GaussianMechanism, GaussianMechanismRV
from pymc_dp.mechanisms.laplace import LaplaceMechanism, LaplaceMechanismRV
from pymc_dp.mechanisms.mechanism import Mechanism, MechanismOp
from pymc_dp.privacy.guarantee import NEIGHBOURS
from pymc_dp.privacy.release import Release

MAX_BINS = 100_000
_WHOLE = {"discrete_laplace": DiscreteLaplaceMechanism, "discrete_gaussian": DiscreteGaussianMechanism}
_BINS = "bins of equal width"


class HistogramOp:
    """Mix-in of the operations of noisy histograms, with the edges of their bins.

    A release depends on a record through its bin only, so that the cells are the bins.
    """

    _print_name = ("PerturbedHistogram", "\\operatorname{PerturbedHistogram}")

    def __init__(self, *args: Any, edges: tuple[float, ...] = (0.0, 0.5, 1.0), **kwargs: Any) -> None:
        self.edges = edges
        super().__init__(*args, **kwargs)

    @property
    def cells(self) -> tuple[float, ...]:
        """Edges of the bins."""
        return self.edges


class HistogramLaplaceRV(HistogramOp, LaplaceMechanismRV):  # type: ignore[misc]
    """Draws counts with Laplace noise."""

    __props__ = ("edges", *LaplaceMechanismRV.__props__)  # type: ignore[assignment]


class HistogramGaussianRV(HistogramOp, GaussianMechanismRV):  # type: ignore[misc]
    """Draws counts with Gaussian noise."""

    __props__ = ("edges", *GaussianMechanismRV.__props__)  # type: ignore[assignment]


class HistogramDiscreteLaplaceRV(HistogramOp, DiscreteLaplaceMechanismRV):  # type: ignore[misc]
    """Draws counts with discrete Laplace noise."""

    __props__ = ("edges", *DiscreteLaplaceMechanismRV.__props__)  # type: ignore[assignment]


class HistogramDiscreteGaussianRV(HistogramOp, DiscreteGaussianMechanismRV):  # type: ignore[misc]
    """Draws counts with discrete Gaussian noise."""

    __props__ = ("edges", *DiscreteGaussianMechanismRV.__props__)  # type: ignore[assignment]


@dataclass(frozen=True)
class _Noise:
    """One kind of noise: its mechanism, its operation on counts, and the arguments that give its level."""

    mechanism: type[Mechanism]
    op_class: type[MechanismOp]
    order: int  # of the norm of the sensitivity
    native: str
    levels: dict[str, str]  # arguments for the level, and their names in messages


_NOISES = {
    "laplace": _Noise(
        LaplaceMechanism, HistogramLaplaceRV, 1, "scale", {"epsilon": "epsilon=", "scale": "scale="}
    ),
    "gaussian": _Noise(
        GaussianMechanism,
        HistogramGaussianRV,
        2,
        "sigma",
        {"epsilon": "epsilon= with delta=", "delta": "", "calibration": "", "rho": "rho=", "sigma": "sigma="},
    ),
    "discrete_laplace": _Noise(
        DiscreteLaplaceMechanism,
        HistogramDiscreteLaplaceRV,
        1,
        "scale",
        {"epsilon": "epsilon=", "scale": "scale="},
    ),
    "discrete_gaussian": _Noise(
        DiscreteGaussianMechanism,
        HistogramDiscreteGaussianRV,
        2,
        "sigma",
        {"rho": "rho=", "sigma": "sigma="},
    ),
}


def histogram_sensitivity(order: int, neighbours: str = "replace-one") -> float:
    """Return the sensitivity of the counts of a histogram to one record.

    A record exchanged for another leaves one bin and enters another; one that is added or removed
    changes one count only.

    Parameters
    ----------
    order : {1, 2}
        Order of the norm: 1 for Laplace noise, 2 for Gaussian noise.
    neighbours : {"replace-one", "add-remove"}
        Which data sets count as neighbouring.

    Returns
    -------
    float

    Examples
    --------
    >>> from pymc_dp.mechanisms.perturbed_histogram import histogram_sensitivity
    >>> histogram_sensitivity(1), round(histogram_sensitivity(2), 4), histogram_sensitivity(1, "add-remove")
    (2.0, 1.4142, 1.0)
    """
    if neighbours == "add-remove":
        return 1.0
    return 2.0 if order == 1 else math.sqrt(2)


class PerturbedHistogram(Mechanism):
    r"""Global release of a histogram with independent noise on every count.

    .. math:: z_b = \sum_{i=1}^n 1\{y_i \in B_b\} + \text{noise}_b

    The last bin is closed at the top; values beyond the ends count in the end bins. Exchanging one
    record changes two counts by one: the sensitivity is 2 in the L1 norm and the root of 2 in the
    L2 norm.

    Exactly one of `epsilon` (with `delta` for Gaussian noise), `rho`, `scale` and `sigma` gives the
    noise level, and exactly one of `n_bins` and `edges` the bins.

    Parameters
    ----------
    query : tensor_like, shape (n,)
        One number per record. The release has shape (n_bins,).
    n_bins : int, optional
        Number of bins of equal width on `bounds`.
    edges : array_like, optional
        Ascending edges of the bins, one more than there are bins.
    bounds : tuple, optional
        Interval (lo, hi) of the bins of equal width, (0, 1) by default.
    noise : {"laplace", "gaussian", "discrete_laplace", "discrete_gaussian"}, optional
        By default "gaussian" if `delta`, `rho` or `sigma` is given, and "laplace" otherwise. Discrete noise
        releases whole numbers.
    epsilon, delta, rho, scale, sigma : optional
        Noise level, as for the mechanism of that noise: :class:`LaplaceMechanism`,
        :class:`GaussianMechanism`, :class:`DiscreteLaplaceMechanism`,
        :class:`DiscreteGaussianMechanism`.
    calibration : str, optional
        As for that mechanism.
    neighbours : {"replace-one", "add-remove"}, default "replace-one"
        Which data sets the guarantee compares. Under add-remove one record changes one count, so that the
        same epsilon needs half the Laplace noise; but then the number of records is confidential too, while a
        model of n records takes n as known.
    **kwargs
        ``observed``, ``dims``, ``initval`` and so on, as for any PyMC distribution; and
        ``records``, a list of the variables (or names) that hold the confidential records, where
        they cannot be told from the query.

    Raises
    ------
    TypeError
        An argument is not of the right kind.
    ValueError
        No noise level or more than one, bins given twice or not at all, a number out of its range, a query
        that does not have one number per record, `observed` of another shape than the histogram.

    References
    ----------
    Dwork, McSherry, Nissim and Smith (2006), *Calibrating Noise to Sensitivity in Private Data
    Analysis*, section 3.2, under add-remove neighbours; Beraha, Favaro and Rao, *MCMC for Bayesian
    nonparametric mixture modeling under differential privacy*, section 5.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, shape=50)
    ...     z = dp.PerturbedHistogram(
    ...         "z", y, n_bins=4, bounds=(-2, 2), epsilon=1, observed=[3.1, 20.4, 15.9, 9.2]
    ...     )
    >>> print(dp.guarantee(z))
    Pure differential privacy with epsilon = 1, for replace-one neighbours.
    """

    rv_op = HistogramLaplaceRV()

    def __new__(  # type: ignore[misc]  # PyMC's distributions construct tensors
        cls, name: str, query: Any, *args: Any, observed: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Check that a value observed under discrete noise has whole numbers, then declare the release."""
        if isinstance(observed, Release):
            noise = observed.parameters.get("noise")
            if noise in _WHOLE:
                _WHOLE[noise]._whole_observed(observed.value)
        elif kwargs.get("noise") in _WHOLE and observed is not None:
            observed = _WHOLE[kwargs["noise"]]._whole_observed(observed)
        return super().__new__(cls, name, query, *args, observed=observed, **kwargs)

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        n_bins: Any = None,
        edges: Any = None,
        bounds: Any = None,
        noise: str | None = None,
        epsilon: Any = None,
        delta: Any = None,
        rho: Any = None,
        scale: Any = None,
        sigma: Any = None,
        calibration: str | None = None,
        neighbours: str = "replace-one",
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        refuse_sensitivity(cls.__name__, kwargs)
        cut = cls._edges(n_bins, edges, bounds)
        given, normal = given_once(
            cls.__name__, calibration, scale=scale, sigma=sigma, epsilon=epsilon, delta=delta, rho=rho
        )
        if noise is None:
            noise = "gaussian" if normal else "laplace"
        kind = cls._noise(noise, given)
        check_setting("neighbours", neighbours, NEIGHBOURS)
        given["sensitivity"] = histogram_sensitivity(kind.order, neighbours)
        rows = clamped_rows(cls.__name__, as_query(query), cut[0], cut[-1])
        counts = one_hot(rows, cut).sum(axis=0)
        special = {"op_class": kind.op_class, "props": {"edges": cut}}
        return kind.mechanism.dist(counts, **given, **special, neighbours=neighbours, **kwargs)

    @staticmethod
    def _noise(noise: str, given: dict[str, Any]) -> _Noise:
        """Return the kind of noise, after checking that it takes the level that was given."""
        check_setting("noise", noise, _NOISES)
        kind = _NOISES[noise]
        wrong = given.keys() - kind.levels.keys()
        if wrong:
            choices = ", ".join(filter(None, kind.levels.values()))
            raise ValueError(
                f"noise = {noise!r} takes no {min(wrong)}=: choose {choices}, or another kind of noise."
            )
        return kind

    @classmethod
    def _edges(cls, n_bins: Any, edges: Any, bounds: Any) -> tuple[float, ...]:
        if (n_bins is None) == (edges is None):
            problem = "got both" if edges is not None else "got none"
            raise ValueError(f"{cls.__name__} needs exactly one of n_bins= and edges=, {problem}.")
        if edges is None:
            lo, hi = interval((0, 1) if bounds is None else bounds)
            return equal_edges(lo, hi, whole_number("n_bins", n_bins, 2, MAX_BINS, _BINS))
        if bounds is not None:
            raise ValueError("bounds was given beside edges, whose ends they are: leave bounds out.")
        return parse_edges(edges)

    @classmethod
    def _release_shape(
        cls, query: TensorVariable, n_bins: Any = None, edges: Any = None, bounds: Any = None, **settings: Any
    ) -> tuple[int | None, ...]:
        return (len(cls._edges(n_bins, edges, bounds)) - 1,)

    @staticmethod
    def _kind_of(op: Any) -> tuple[str, _Noise]:
        return next((name, kind) for name, kind in _NOISES.items() if isinstance(op, kind.op_class))

    @classmethod
    def _draw_release(cls, op: Any, query: TensorVariable, params: list[np.ndarray]) -> Any:
        """Draw as the mechanism of that noise does, for which counts are a query like any other."""
        return cls._kind_of(op)[1].mechanism._draw_release(op, query, params)

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        (level,) = params
        name, kind = cls._kind_of(op)
        lo, hi, n_bins = op.edges[0], op.edges[-1], len(op.edges) - 1
        even = op.edges == equal_edges(lo, hi, n_bins)
        return {
            **({"n_bins": n_bins, "bounds": (lo, hi)} if even else {"edges": op.edges}),
            "noise": name,
            kind.native: as_declared(level),
            "neighbours": "replace-one" if op.guarantee is None else op.guarantee.neighbours,
        }
