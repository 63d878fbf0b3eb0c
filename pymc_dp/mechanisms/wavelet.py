"""Laplace noise on the Haar coefficients of each record: pure local differential privacy."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import Continuous
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.samplers import register_draw_of
from pymc_dp.mechanisms._bins import cell_of, clamped_rows, equal_edges, interval
from pymc_dp.mechanisms._checks import as_query, check_setting, exactly_one, needed_number, noise_parameter
from pymc_dp.mechanisms._grid import draw_on_grid
from pymc_dp.mechanisms._releases import evaluate
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, Mechanism, MechanismOp, PreparedQuery
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.calibration import finite_noise
from pymc_dp.privacy.exact_noise import discrete_laplace
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.upstream.pymc_private import _logprob

MAX_LEVEL = 16
_LEVEL = "the finest resolution: 2^level wavelets at that scale"


def haar_sensitivity(level: int) -> float:
    r"""Return the L1 sensitivity of the Haar coefficients up to a level.

    It is :math:`2 \sum_{j=0}^{J} 2^{j/2}`, attained by two values in different halves of the interval: at
    each resolution each value has one coefficient of :math:`\pm 2^{j/2}`, and at the coarsest resolution,
    where they share the coefficient, the signs differ.

    Parameters
    ----------
    level : int
        Finest resolution J, from 0.

    Returns
    -------
    float

    Examples
    --------
    >>> from pymc_dp.mechanisms.wavelet import haar_sensitivity
    >>> haar_sensitivity(0), round(haar_sensitivity(4), 4)
    (2.0, 22.4853)
    """
    return 2 * math.fsum(2 ** (j / 2) for j in range(level + 1))


def butucea_sensitivity(level: int) -> float:
    r"""Return the bound of the sensitivity that Butucea et al. use for any wavelet.

    It is :math:`12 \frac{\sqrt 2}{\sqrt 2 - 1} 2^{J/2}`, which is 20, 9.3, 7.3 and 6.6 times
    :func:`haar_sensitivity` at J = 0, 2, 4 and 6.

    Parameters
    ----------
    level : int
        Finest resolution J, from 0.

    Returns
    -------
    float

    References
    ----------
    Butucea, Dubois, Kroll and Saumard (2020), equation 3.1; Beraha, Favaro and Rao, equation (3).

    Examples
    --------
    >>> from pymc_dp.mechanisms.wavelet import butucea_sensitivity, haar_sensitivity
    >>> round(butucea_sensitivity(4) / haar_sensitivity(4), 2)
    7.29
    """
    return 12 * math.sqrt(2) / (math.sqrt(2) - 1) * 2 ** (level / 2)


_CALIBRATIONS = {"haar": haar_sensitivity, "butucea": butucea_sensitivity}


class WaveletMechanismRV(MechanismOp, RandomVariable):
    """Draws the noisy Haar coefficients of each record.

    Coefficient k of resolution j is entry 2^j - 1 + k.
    """

    name = "wavelet_mechanism"
    signature = "(),()->(k)"
    dtype = "floatX"
    _print_name = ("WaveletMechanism", "\\operatorname{WaveletMechanism}")
    __props__ = (*RandomVariable.__props__, "level", *MECHANISM_PROPS)  # type: ignore[assignment]

    def __init__(self, *args: Any, level: int = 0, **kwargs: Any) -> None:
        self.level = level
        super().__init__(*args, **kwargs)

    @property
    def n_coefficients(self) -> int:
        """Length of a row of the release."""
        return 2 ** (self.level + 1) - 1

    @property
    def cells(self) -> tuple[float, ...]:  # type: ignore[override]
        """Edges of the dyadic cells, on each of which the coefficients are constant."""
        return equal_edges(*self._interval, self.n_coefficients + 1, "level")

    @property
    def _interval(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.bounds is None else self.bounds

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> tuple[int]:
        return (self.n_coefficients,)

    def coefficients(self, y: Any) -> np.ndarray:
        """Return the exact Haar coefficients of some values, one row each."""
        cell = np.searchsorted(np.asarray(self.cells[1:-1]), np.asarray(y, dtype=float), side="right")
        rows = np.zeros((*cell.shape, self.n_coefficients))
        for j in range(self.level + 1):
            half = cell >> (self.level - j)
            height = 2 ** (j / 2) * (1 - 2 * (half & 1))
            np.put_along_axis(rows, (2**j - 1 + (half >> 1))[..., None], height[..., None], axis=-1)
        return rows

    def rng_fn(self, rng: Any, query: Any, scale: Any, size: Any = None) -> np.ndarray:
        """Return the coefficients with independent Laplace noise."""
        rows = self.coefficients(query)
        batch = np.broadcast_shapes(np.shape(query), np.shape(scale)) if size is None else tuple(size)
        shape = (*batch, self.n_coefficients)
        return rng.laplace(np.broadcast_to(rows, shape), np.asarray(scale)[..., None])


def _native_draw(op: WaveletMechanismRV) -> Any:
    return _compiled_draw(op.level, op.cells)


@lru_cache(maxsize=16)
def _compiled_draw(level: int, edges: tuple[float, ...]) -> Any:
    n_coefficients = 2 ** (level + 1) - 1
    inner = np.asarray(edges[1:-1])
    heights = np.array([2 ** (j / 2) for j in range(level + 1)])

    @njit
    def draw(rng, y, scale, out=None):  # type: ignore[no-untyped-def]
        if out is None:
            out = np.empty(n_coefficients)
        for k in range(n_coefficients):
            out[k] = rng.laplace(0.0, scale)
        cell = np.searchsorted(inner, y, side="right")
        for j in range(level + 1):
            half = cell >> (level - j)
            out[2**j - 1 + (half >> 1)] += heights[j] * (1 - 2 * (half & 1))
        return out

    draw.handles_out = True
    return draw


register_draw_of(WaveletMechanismRV, _native_draw)


class WaveletMechanism(Mechanism, Continuous):
    r"""Local release of each record's Haar wavelet coefficients with Laplace noise.

    With u the record's value clamped to `bounds` and rescaled to [0, 1],

    .. math::
        z_{jk} \mid y \sim \text{Laplace}(\psi_{jk}(u), b), \qquad
        \psi_{jk}(u) = 2^{j/2} \left(1_{[0, 1/2)} - 1_{[1/2, 1)}\right)(2^j u - k),
        \qquad 0 \le j \le J, \; 0 \le k < 2^j.

    The last interval includes u = 1, where clamped records may pile up. The coefficient of the father wavelet
    is the same for all records, so that it says nothing and is not part of the release. Coefficient (j, k) is
    entry :math:`2^j - 1 + k` of a row.

    Exactly one of `epsilon` and `scale` gives the noise level. :meth:`release` draws on a grid far
    finer than the noise, in integer arithmetic, as :class:`LaplaceMechanism` does.

    Parameters
    ----------
    query : tensor_like, shape (n,) or ()
        One number per record. The release has shape (n, 2^(level + 1) - 1).
    epsilon : float, optional
        Budget of each record in nats.
    scale : float, optional
        Scale b of the noise; the same for all coefficients, and not random.
    level : int
        Finest resolution J: the release distinguishes values by 2^(level + 1) equal cells.
    bounds : tuple, default (0, 1)
        Interval (lo, hi) that the records are clamped to; the likelihood uses the clamped values.
    calibration : {"haar", "butucea"}, default "haar"
        How the scale follows from `epsilon`: by the L1 sensitivity of the Haar coefficients themselves
        (:func:`~pymc_dp.mechanisms.wavelet.haar_sensitivity`, which needs the least noise), or by the larger
        published constant for any wavelet.
    **kwargs
        ``observed``, ``dims``, ``initval`` and so on, as for any PyMC distribution; and
        ``records``, a list of the variables (or names) that hold the confidential records, where
        they cannot be told from the query.

    Raises
    ------
    TypeError
        An argument is not of the right kind.
    ValueError
        No noise level or more than one, a number out of its range, a query that does not have one number per
        record, `observed` of another shape than the release.

    References
    ----------
    Butucea, Dubois, Kroll and Saumard (2020), *Local differential privacy: elbow effect in optimal
    density estimation and adaptation over Besov ellipsoids*, equation 3.1; Beraha, Favaro and Rao,
    *MCMC for Bayesian nonparametric mixture modeling under differential privacy*, equation (3).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     a = pm.Exponential("a", 0.1)
    ...     y = pm.Beta("y", a, 2, shape=3)
    ...     z = dp.WaveletMechanism("z", y, epsilon=5, level=1, observed=np.zeros((3, 3)))
    >>> print(dp.guarantee(z))
    Pure differential privacy with epsilon = 5, for replace-one neighbours.
    """

    rv_op = WaveletMechanismRV()

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        level: Any = None,
        epsilon: Any = None,
        scale: Any = None,
        bounds: Any = (0, 1),
        calibration: str = "haar",
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        way = exactly_one(
            cls.__name__,
            {"scale=": scale is not None, "epsilon=": epsilon is not None},
            "epsilon=, or scale=",
        )
        level = cls._level(level)
        check_setting("calibration", calibration, _CALIBRATIONS)
        lo, hi = interval(bounds)
        equal_edges(lo, hi, 2 ** (level + 1), "level")
        query = as_query(query)
        if query.ndim == 0:  # a single number is a record, whatever it is computed from
            clamped: TensorVariable = pt.clip(query, lo, hi)
        else:
            clamped = clamped_rows(cls.__name__, query, lo, hi)
        if way == "epsilon=":
            epsilon = positive("epsilon", epsilon)
            scale = finite_noise("epsilon", epsilon, _CALIBRATIONS[calibration](level) / epsilon)
        else:
            scale = positive("scale", scale)
            epsilon = haar_sensitivity(level) / scale
        noise, _ = noise_parameter("scale", scale, clamped)
        prepared = PreparedQuery(as_query(clamped), haar_sensitivity(level), None, (lo, hi))
        return cls._release(
            prepared,
            [noise],
            PrivacyGuarantee(epsilon),
            props={"level": level},
            expected=cls._release_shape(clamped, level=level),
            **kwargs,
        )

    @staticmethod
    def _level(level: Any) -> int:
        return needed_number("WaveletMechanism", "level", level, 0, MAX_LEVEL, _LEVEL)

    @classmethod
    def _release_shape(cls, query: TensorVariable, level: Any = None, **settings: Any) -> tuple:
        return (*query.type.shape, 2 ** (cls._level(level) + 1) - 1)

    @classmethod
    def _draw_release(cls, op: Any, query: TensorVariable, params: list[np.ndarray]) -> Any:
        """Draw whole multiples of a granule, in integer arithmetic."""
        known = evaluate(query)
        rows = op.coefficients(np.atleast_1d(known))
        value, *others = draw_on_grid(
            op, pt.constant(rows), params[0], discrete_laplace, op.guarantee.epsilon, 1
        )
        return value.reshape(*known.shape, op.n_coefficients), *others

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        return {"scale": params[0].item(), "level": op.level, "bounds": op.bounds}

    def support_point(rv: Any, size: Any, query: Any, scale: Any) -> TensorVariable:
        """Return zeros, which are between the coefficients of all values."""
        return pt.zeros_like(rv) if rv_size_is_none(size) else pt.zeros(rv.shape)


@_logprob.register(WaveletMechanismRV)
def _wavelet_logprob(
    op: WaveletMechanismRV, values: Any, rng: Any, size: Any, query: Any, scale: Any, **kwargs: Any
) -> TensorVariable:
    """Return the log density of each row of coefficients.

    All but level + 1 coefficients of a record are zero, and their terms |z| do not depend on the record, so
    that a new value of a record costs O(level).
    """
    (value,) = values
    batch = value.ndim - 1
    query, scale = (pt.shape_padleft(v, batch - v.ndim) if v.ndim < batch else v for v in (query, scale))
    cell = cell_of(query, op.cells)[..., None]
    shifts = np.arange(op.level, -1, -1)
    half = cell // 2**shifts  # which half of its wavelet's interval, at each resolution
    entry = 2 ** np.arange(op.level + 1) - 1 + half // 2
    height = 2 ** (np.arange(op.level + 1) / 2) * (1 - 2 * (half % 2))
    own = pt.take_along_axis(value, entry, axis=-1)
    # each difference is at most the height, so that nothing cancels where z is large
    change = (pt.abs(own - height) - pt.abs(own)).sum(axis=-1)
    distance = pt.abs(value).sum(axis=-1) + change
    density = -op.n_coefficients * pt.log(2 * scale) - distance / scale
    return check_parameters(density, scale > 0, msg="scale > 0")
