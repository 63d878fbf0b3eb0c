"""Values drawn from a smoothed histogram of the records: a global mechanism."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import Continuous
from pymc.distributions.dist_math import check_parameters
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.samplers import register_draw_of
from pymc_dp.mechanisms._bins import cell_of, clamped_rows, equal_edges, interval, number_of_rows, one_hot
from pymc_dp.mechanisms._checks import as_query, exactly_one, length_of, needed_number, observed_numbers
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, Mechanism, MechanismOp, PreparedQuery
from pymc_dp.privacy._checks import positive, probability
from pymc_dp.privacy.exact_noise import bernoulli, uniform_below, words_from
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release
from pymc_dp.upstream.pymc_private import _logprob

MAX_BINS = 100_000
MAX_RELEASED = 10_000_000
_BINS = "bins of equal width"
_RELEASED = "how many values are drawn and released"


def smoothed_epsilon(smoothing: float, n_bins: int, n_records: int, n_released: int) -> float:
    r"""Return the epsilon of drawing values from a smoothed histogram.

    It is :math:`k \log\left(1 + \frac{(1 - \delta) m}{n \delta}\right)`, which is attained when all released
    values fall in a bin that contains one person only.

    Parameters
    ----------
    smoothing : float
        Weight :math:`\delta` of the uniform density, in (0, 1).
    n_bins, n_records, n_released : int
        m, n and k.

    Returns
    -------
    float
        Epsilon in nats.

    References
    ----------
    Wasserman and Zhou (2010), *A Statistical Framework for Differential Privacy*, theorem 4.3; Beraha, Favaro
    and Rao, section 5, whose inequality has -1 in the place of 1 +, and so does not follow from the ratio of
    densities.

    Examples
    --------
    >>> from pymc_dp.mechanisms.smoothed_histogram import smoothed_epsilon
    >>> round(smoothed_epsilon(0.5, n_bins=10, n_records=100, n_released=20), 4)
    1.9062
    """
    return n_released * math.log1p((1 - smoothing) * n_bins / (n_records * smoothing))


def smoothing_for(epsilon: float, n_bins: int, n_records: int, n_released: int) -> float:
    r"""Return the smoothing that spends `epsilon`; inverse of :func:`smoothed_epsilon`.

    It is :math:`\delta = m / (m + n (e^{\varepsilon / k} - 1))`, the smallest with that guarantee.

    Parameters
    ----------
    epsilon : float
        Budget in nats, > 0.
    n_bins, n_records, n_released : int
        m, n and k.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        The budget is so large or so small that the smoothing is 0 or 1 to machine precision.

    Examples
    --------
    >>> from pymc_dp.mechanisms.smoothed_histogram import smoothing_for
    >>> round(smoothing_for(1.9062, n_bins=10, n_records=100, n_released=20), 4)
    0.5
    """
    rate = epsilon / n_released
    weight = n_bins * math.exp(-rate)
    smoothing = weight / (weight - n_records * math.expm1(-rate))
    # rounded upwards, since near 1 the distance from 1 has few digits as a float
    while 0 < smoothing < 1 and smoothed_epsilon(smoothing, n_bins, n_records, n_released) > epsilon:
        smoothing = math.nextafter(smoothing, 1.0)
    if not 0 < smoothing < 1:
        raise ValueError(
            f"epsilon = {epsilon:g} over {n_released} released values gives a smoothing of {smoothing:g} to "
            "machine precision: give a budget between, or smoothing=."
        )
    return smoothing


class SmoothedHistogramSampleRV(MechanismOp, RandomVariable):
    """Draws values from the smoothed histogram with given counts.

    The log density is a sum over bins, and depends on the released values only through their number in each
    bin. By :meth:`summary` and :meth:`term` a step can update it in O(1) when one record changes bins.
    """

    name = "smoothed_histogram_sample"
    signature = "(m),(),()->(k)"
    dtype = "floatX"
    _print_name = ("SmoothedHistogramSample", "\\operatorname{SmoothedHistogramSample}")
    __props__ = (*RandomVariable.__props__, "n_bins", "n_released", *MECHANISM_PROPS)  # type: ignore[assignment]

    def __init__(self, *args: Any, n_bins: int = 2, n_released: int = 1, **kwargs: Any) -> None:
        self.n_bins = n_bins
        self.n_released = n_released
        super().__init__(*args, **kwargs)

    @property
    def cells(self) -> tuple[float, ...]:  # type: ignore[override]
        """Edges of the bins."""
        return equal_edges(*self._interval, self.n_bins)

    @property
    def _interval(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.bounds is None else self.bounds

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> tuple[int]:
        return (self.n_released,)

    def summary(self, value: TensorVariable) -> TensorVariable:
        """Return how many released values are in each bin, (..., n_bins)."""
        return one_hot(value, self.cells).sum(axis=-2)

    def term(self, released: Any, count: Any, smoothing: Any, n_records: Any) -> TensorVariable:
        """Return one bin's term of the log density, given its counts of released values and records."""
        return released * pt.log((1 - smoothing) * (self.n_bins / n_records) * count + smoothing)

    def rng_fn(self, rng: Any, counts: Any, smoothing: Any, n_records: Any, size: Any = None) -> np.ndarray:
        """Return values drawn from the smoothed histogram."""
        counts, smoothing, n_records = (np.asarray(v, dtype=float) for v in (counts, smoothing, n_records))
        batch = np.broadcast_shapes(counts.shape[:-1], smoothing.shape, n_records.shape)
        batch = batch if size is None else tuple(size)
        p = (1 - smoothing[..., None]) * counts / n_records[..., None] + smoothing[..., None] / self.n_bins
        p = np.broadcast_to(p, (*batch, self.n_bins))
        out = np.empty((*batch, self.n_released))
        for index in np.ndindex(*batch):
            ends = np.cumsum(p[index])
            # the weights of the bins add up to 1 up to rounding only
            bins = np.searchsorted(ends[:-1], rng.random(self.n_released) * ends[-1], side="right")
            out[index] = self._places(bins, rng)
        return out

    def secure_draw(
        self, generator: np.random.Generator, query: np.ndarray, *params: np.ndarray
    ) -> np.ndarray:
        """Return values for publication, whose bins are drawn in integer arithmetic."""
        smoothing, n_records = params
        words, k = words_from(generator), self.n_released
        level = Fraction(smoothing.item())
        smooth = bernoulli(np.full(k, level.numerator, dtype=object), level.denominator, words)
        bins = np.empty(k, dtype=np.int64)
        bins[smooth] = uniform_below(self.n_bins, int(smooth.sum()), words)
        record = uniform_below(int(n_records.item()), int(k - smooth.sum()), words).astype(np.int64)
        bins[~smooth] = np.searchsorted(np.cumsum(query), record, side="right")
        return self._places(bins, generator)

    def _places(self, bins: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return uniform values in some bins."""
        edges = np.asarray(self.cells)
        places = edges[bins] + np.diff(edges)[bins] * rng.random(len(bins))
        # rounding must not move a value into the next bin
        return np.minimum(places, np.nextafter(edges[bins + 1], edges[0]))


def _native_draw(op: SmoothedHistogramSampleRV) -> Any:
    return _compiled_draw(op.n_released, op.cells)


@lru_cache(maxsize=16)
def _compiled_draw(n_released: int, cells: tuple[float, ...]) -> Any:
    edges = np.asarray(cells)
    n_bins = len(cells) - 1

    @njit
    def draw(rng, counts, smoothing, n_records, out=None):  # type: ignore[no-untyped-def]
        if out is None:
            out = np.empty(n_released)
        ends = np.cumsum((1.0 - smoothing) * counts / n_records + smoothing / n_bins)
        for i in range(n_released):
            b = min(np.searchsorted(ends, rng.random() * ends[-1], side="right"), n_bins - 1)
            place = edges[b] + (edges[b + 1] - edges[b]) * rng.random()
            out[i] = min(place, np.nextafter(edges[b + 1], edges[b]))
        return out

    draw.handles_out = True
    return draw


register_draw_of(SmoothedHistogramSampleRV, _native_draw)


class SmoothedHistogramSample(Mechanism, Continuous):
    r"""Global release of values drawn from a smoothed histogram of the records.

    On `bounds` (lo, hi) with m bins of equal width, of which bin b holds :math:`c_b` of the n
    records, the k released values are independent draws from the density

    .. math::
        f(w) = \frac{1}{hi - lo} \left((1 - \delta) \frac{m \, c_{b(w)}}{n} + \delta\right).

    They look like data, but an analysis that takes them for data ignores the noise. Here the likelihood of
    the confidential records given them is exact. One record changes two of the counts.

    Exactly one of `smoothing` and `epsilon` gives the noise level.

    Parameters
    ----------
    query : tensor_like, shape (n,)
        One number per record; values beyond the bounds count in the end bins. The release has shape
        (n_released,).
    n_bins : int
        Number m of bins of equal width.
    smoothing : float, optional
        Weight :math:`\delta` of the uniform density, in (0, 1).
    epsilon : float, optional
        Budget in nats of all released values together.
    n_released : int, optional
        Number k of released values; it may be left out if `observed`, `shape` or `dims` determine it.
    bounds : tuple, default (0, 1)
        Interval (lo, hi) of the histogram.
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
        record, observed values beyond the bounds.

    References
    ----------
    Wasserman and Zhou (2010), *A Statistical Framework for Differential Privacy*, section 4; Beraha, Favaro
    and Rao, *MCMC for Bayesian nonparametric mixture modeling under differential privacy*, equation (12), in
    which the factor m of a bin's density is missing; for a sign in their inequality for the budget see
    :func:`~pymc_dp.mechanisms.smoothed_histogram.smoothed_epsilon`.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     a = pm.Exponential("a", 0.1)
    ...     y = pm.Beta("y", a, 2, shape=50)
    ...     w = dp.SmoothedHistogramSample("w", y, n_bins=8, epsilon=3, observed=[0.91, 0.72, 0.68])
    >>> print(dp.guarantee(w))
    Pure differential privacy with epsilon = 3, for replace-one neighbours.
    """

    rv_op = SmoothedHistogramSampleRV()

    def __new__(  # type: ignore[misc]  # PyMC's distributions construct tensors
        cls, name: str, query: Any, *args: Any, observed: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Check that the observed values are within the bounds, then declare the release."""
        published = isinstance(observed, Release)
        values = observed_numbers(observed)
        if values is not None and values.ndim == 1:
            if kwargs.get("n_released") is None and not published:
                kwargs["n_released"] = len(values)
            lo, hi = interval((observed.parameters if published else kwargs).get("bounds", (0, 1)))
            outside = values[(values < lo) | (values > hi)]
            if outside.size:
                raise ValueError(
                    f"observed has {outside.size} of {values.size} values outside of bounds = "
                    f"({lo:g}, {hi:g}), the first being {outside[0]:g}, which {cls.__name__} never "
                    "releases: pass the release as it was published, with the bounds of its histogram."
                )
        return super().__new__(cls, name, query, *args, observed=observed, **kwargs)

    @classmethod
    def dist(
        cls,
        query: Any,
        *,
        n_bins: Any = None,
        smoothing: Any = None,
        epsilon: Any = None,
        n_released: Any = None,
        bounds: Any = (0, 1),
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        way = exactly_one(
            cls.__name__,
            {"smoothing=": smoothing is not None, "epsilon=": epsilon is not None},
            "smoothing=, or epsilon=",
        )
        n_bins = needed_number(cls.__name__, "n_bins", n_bins, 2, MAX_BINS, _BINS)
        lo, hi = interval(bounds)
        edges = equal_edges(lo, hi, n_bins)
        k = cls._number_released(n_released, kwargs.get("shape"), kwargs.get("size"))
        rows = clamped_rows(cls.__name__, as_query(query), lo, hi)
        n = number_of_rows(rows)
        if way == "epsilon=":
            epsilon = positive("epsilon", epsilon)
            smoothing = smoothing_for(epsilon, n_bins, n, k)
        else:
            smoothing = probability("smoothing", smoothing)
            epsilon = smoothed_epsilon(smoothing, n_bins, n, k)
        counts = as_query(one_hot(rows, edges).sum(axis=0))
        params = [pt.constant(np.asarray(v, dtype=counts.dtype)) for v in (smoothing, n)]
        return cls._release(
            PreparedQuery(counts, None, None, (lo, hi), (n, n_bins) if rows.type.shape[0] is None else None),
            params,
            PrivacyGuarantee(epsilon),
            props={"n_bins": n_bins, "n_released": k},
            expected=(k,),
            **kwargs,
        )

    @staticmethod
    def _number_released(n_released: Any, shape: Any, size: Any) -> int:
        if n_released is None:
            axes = np.atleast_1d(shape if size is None else size) if (shape, size) != (None, None) else []
            n_released = length_of(axes[0]) if len(axes) == 1 else None
        return needed_number("SmoothedHistogramSample", "n_released", n_released, 1, MAX_RELEASED, _RELEASED)

    @classmethod
    def _release_shape(cls, query: TensorVariable, n_released: Any = None, **settings: Any) -> tuple:
        return (None if n_released is None else cls._number_released(n_released, None, None),)

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        return {
            "n_bins": op.n_bins,
            "smoothing": float(params[0]),
            "n_released": op.n_released,
            "bounds": op.bounds,
            "n_records": int(params[1]),
        }

    def support_point(rv: Any, size: Any, counts: Any, smoothing: Any, n_records: Any) -> TensorVariable:
        """Return the middle of the bounds."""
        return pt.full(rv.shape, sum(rv.owner.op._interval) / 2)


@_logprob.register(SmoothedHistogramSampleRV)
def _smoothed_logprob(
    op: Any, values: Any, rng: Any, size: Any, counts: Any, smoothing: Any, n_records: Any, **kwargs: Any
) -> TensorVariable:
    """Return the joint log density of the released values."""
    (value,) = values
    lo, hi = op._interval
    level, n = smoothing[..., None], n_records[..., None]
    density = (1 - level) * (op.n_bins / n) * counts + level
    own = pt.take_along_axis(*_aligned(density, cell_of(value, op.cells)), axis=-1)
    logp = pt.log(own).sum(axis=-1) - op.n_released * math.log(hi - lo)
    inside = pt.all(pt.ge(value, lo) & pt.le(value, hi), axis=-1)
    return check_parameters(
        pt.switch(inside, logp, -np.inf),
        (smoothing > 0) & (smoothing < 1),
        pt.eq(pt.sum(counts, axis=-1), n_records),  # data may have another length than at the declaration
        msg="0 < smoothing < 1, n_records = sum(counts)",
    )


def _aligned(density: TensorVariable, index: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Return both, with axes added to the one that has fewer."""
    ndim = max(density.ndim, index.ndim)
    return pt.shape_padleft(density, ndim - density.ndim), pt.shape_padleft(index, ndim - index.ndim)
