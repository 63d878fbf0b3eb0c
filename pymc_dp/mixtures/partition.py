"""Random partitions as cluster labels: the Chinese restaurant process, and finite mixtures."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.model.core import modelcontext
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.samplers import register_draw_of
from pymc_dp.lowering.functions.urn import urn
from pymc_dp.mixtures._arguments import check_start, components_of, number_of_records, scalar, slots_for
from pymc_dp.upstream.pymc_private import _logprob, _support_point


class ChineseRestaurantProcessRV(RandomVariable):
    """Draws labels from the two-parameter urn, in uniformly chosen slots.

    The inputs of a node are ``(rng, size, concentration, discount)``.

    Attributes
    ----------
    n : int
        Number of records.
    max_components : int
        Number of slots H; labels are 0 to H - 1.
    finite : bool
        Whether `discount` is -g and `concentration` K g: K components with Dirichlet(g, ..., g) weights.
    """

    name = "chinese_restaurant_process"
    signature = "(),()->(n)"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", "n", "max_components", "finite")
    _print_name = ("ChineseRestaurantProcess", "\\operatorname{ChineseRestaurantProcess}")

    def __init__(
        self,
        name: str | None = None,
        *,
        n: int = 1,
        max_components: int = 1,
        finite: bool = False,
        **kwargs: Any,
    ) -> None:
        self.n = n
        self.max_components = max_components
        self.finite = finite
        super().__init__(name, **kwargs)

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> list[TensorVariable]:
        return [pt.constant(self.n, dtype="int64")]

    def rng_fn(self, rng: Any, concentration: Any, discount: Any, size: Any = None) -> np.ndarray:  # type: ignore[override]
        """Draw labels, for every entry of `size` and of the parameters."""
        batch = np.broadcast_shapes(np.shape(concentration), np.shape(discount)) if size is None else size
        concentrations, discounts = (np.broadcast_to(x, batch) for x in (concentration, discount))
        draw = _urn_of(self)
        labels = np.empty((*batch, self.n), dtype=np.int64)
        for i in np.ndindex(*batch):
            labels[i] = draw(rng, float(concentrations[i]), float(discounts[i]))
        return labels


def _urn_of(op: ChineseRestaurantProcessRV) -> Callable[..., Any]:
    return _urn(op.n, op.max_components, op.finite)


_urn = functools.lru_cache(maxsize=32)(urn)
register_draw_of(ChineseRestaurantProcessRV, _urn_of)


class ChineseRestaurantProcess(Discrete):
    r"""Cluster labels of n exchangeable records, with the clusters' weights integrated out.

    Without `n_components` the partition is that of a Dirichlet process (`discount` 0) or of a Pitman-Yor
    process. With `n_components` it is that of a mixture of K components whose weights are Dirichlet(g, ...,
    g), where g is the `concentration`: the same urn, with discount -g and concentration K g. K may be random,
    which gives a mixture of finite mixtures.

    Labels are numbers of *slots*, of which there are H = `max_components`: atoms are ordinary variables of
    ``shape=H``, and the atoms of the records are ``atoms[labels]``. A new cluster takes each free slot with
    the same probability. So with k occupied slots that hold :math:`n_1, \ldots, n_k` records,

    .. math:: p(\text{labels}) = \frac{(H - k)!}{H!}\;
        \frac{\prod_{j=0}^{k-1} (\alpha + d j)}{\alpha (\alpha + 1) \cdots (\alpha + n - 1)}\;
        \prod_{h=1}^{k} (1 - d) (2 - d) \cdots (n_h - 1 - d)

    where :math:`\alpha` is the concentration and d the discount. This is not renormalised. If H is at least n
    or the number of components, the model is exact; otherwise the posterior is restricted to at most H
    clusters. A draw that needs more than H clusters raises an error, and is never truncated.

    Parameters
    ----------
    concentration : tensor_like of float, scalar
        With `n_components`: g > 0. Otherwise a number above -`discount`; a larger one means more clusters,
        and a Dirichlet process has about ``concentration * log(1 + n / concentration)`` of them. May be
        random.
    discount : tensor_like of float, scalar, optional
        In [0, 1); 0 by default. A larger one means more small clusters. May be random.
    n_components : int or discrete variable, scalar, optional
        Number of components K of a finite mixture, with or without records, such as
        ``1 + pm.Poisson("more", 3)``. It cannot be combined with `discount`.
    max_components : int, optional
        Number of slots H. By default `n_components` if that is a number, otherwise n, but at most 50: with
        concentration 1, a Dirichlet process has more than 50 clusters in a million records with probability
        3e-15.
    **kwargs
        ``shape``, the number of records n, which ``dims`` or ``observed`` may give instead; ``initval`` and
        so on, as for any PyMC distribution. The number of records does not change with the data afterwards
        (steps refuse other data, and the model has to be built again). Batch dimensions are not supported.

    Raises
    ------
    TypeError
        An argument is not of the right kind, such as a random `max_components`.
    ValueError
        A number out of its range, both `n_components` and `discount`, fewer slots than components, or a
        shape that is missing, of several dimensions, or without records. While drawing:
        `max_components` was reached.

    References
    ----------
    Pitman and Yor (1997), *The two-parameter Poisson-Dirichlet distribution derived from a stable
    subordinator*; Miller and Harrison (2018), *Mixture models with a prior on the number of components*.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     alpha = pm.Gamma("alpha", 2, 2)
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=alpha, shape=20, max_components=20)
    ...     mu = pm.Normal("mu", 0, 3, shape=20)
    ...     y = pm.Normal("y", mu[labels], 1)

    Three records are in one cluster with probability 1/3 if the concentration is 1; this is one of the three
    slots that it could be in:

    >>> three = dp.ChineseRestaurantProcess.dist(concentration=1, shape=3)
    >>> print(np.exp(pm.logp(three, [2, 2, 2]).eval()).round(4))
    0.1111
    """

    rv_op = ChineseRestaurantProcessRV()

    def __new__(cls, name: str, *args: Any, observed: Any = None, **kwargs: Any) -> TensorVariable:  # type: ignore[misc]
        """Check observed labels, then register the variable as PyMC does."""
        if isinstance(observed, (list, tuple, np.ndarray)):
            given = np.ma.asarray(observed)
            # PyMC would round fractions; it imputes missing labels
            if given.dtype.kind == "f" and np.ma.any(np.floor(given) < given):
                raise ValueError(
                    "observed must hold slots, which are whole numbers from 0 to max_components - 1, but has "
                    "fractions: give labels as integers."
                )
        start = kwargs.pop("initval", None)
        labels = super().__new__(cls, name, *args, observed=observed, **kwargs)
        check_start(name, start, labels.owner.op.max_components)
        if start is not None:  # PyMC's own error for fractions does not name the variable
            modelcontext(None).set_initval(labels, start)
        return labels

    @classmethod
    def dist(
        cls,
        concentration: Any,
        discount: Any = None,
        *,
        n_components: Any = None,
        max_components: Any = None,
        shape: Any = None,
        size: Any = None,
        rng: Any = None,
        return_next_rng: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return unregistered labels; parameters as for the class."""
        for name in ("initval", "dims", *kwargs):
            if name in kwargs:
                raise TypeError(f"{cls.__name__}.dist got an unexpected keyword argument {name!r}.")
        if size is not None:
            raise ValueError(
                "size asks for a batch of partitions, which is not supported: give shape=n, the number of "
                "records, and declare one variable for each partition."
            )
        n = number_of_records(shape)
        finite = n_components is not None
        if finite and discount is not None:
            raise ValueError(
                "n_components and discount cannot be given together: the discount of a finite mixture is "
                "-concentration. Leave one of them out."
            )
        if finite:
            g = scalar("concentration", concentration, lambda x: x > 0, "a finite number > 0")
            components = components_of(n_components)
            known = int(components.data) if isinstance(components, Constant) else None
            alpha, d = g * components, -g
        else:
            known = None
            d = scalar("discount", 0.0 if discount is None else discount, lambda x: 0 <= x < 1, "in [0, 1)")
            least = -float(d.data) if isinstance(d, Constant) else -1.0
            above = "> 0" if least == 0 else f"> -discount = {least:g}" if isinstance(d, Constant) else "> -1"
            alpha = scalar("concentration", concentration, lambda x: x > least, f"a finite number {above}")
        op = type(cls.rv_op)(n=n, max_components=slots_for(max_components, n, known), finite=finite)
        next_rng, rv = op(
            pt.cast(alpha, pytensor.config.floatX),
            d,
            rng=pt.random.shared_rng(seed=None) if rng is None else rng,
            return_next_rng=True,
        )
        return (next_rng, rv) if return_next_rng else rv


def _all_components(concentration: TensorVariable, discount: TensorVariable) -> TensorVariable:
    """Return K from K g and -g, without the rounding error of the product."""
    return pt.round(-concentration / discount)


@_support_point.register(ChineseRestaurantProcessRV)
def _start(
    op: ChineseRestaurantProcessRV,
    rv: TensorVariable,
    rng: Variable,
    size: Any,
    concentration: TensorVariable,
    discount: TensorVariable,
) -> TensorVariable:
    """Return labels of three clusters of equal size, or of fewer if there cannot be three."""
    clusters = pt.as_tensor(min(3, op.max_components))
    if op.finite:
        clusters = pt.minimum(clusters, _all_components(concentration, discount))
    labels = pt.arange(op.n) % clusters[..., None]
    return labels if rv_size_is_none(size) else pt.broadcast_to(labels, (*size, op.n))


@_logprob.register(ChineseRestaurantProcessRV)
def _log_density(
    op: ChineseRestaurantProcessRV,
    values: tuple[TensorVariable],
    rng: Variable,
    size: Any,
    concentration: TensorVariable,
    discount: TensorVariable,
    **kwargs: Any,
) -> TensorVariable:
    """Return the log probability of one vector of labels, which is minus infinity if a label is no slot."""
    (value,) = values
    if value.type.ndim != 1 or concentration.type.ndim or discount.type.ndim:
        raise NotImplementedError(
            "The log density of a batch of partitions is not supported: take one by one."
        )
    slots = op.max_components
    is_slot = pt.ge(value, 0) & pt.lt(value, slots) & pt.eq(value, pt.floor(value))
    places = pt.cast(pt.switch(is_slot, value, 0), "int64")
    counts = pt.inc_subtensor(pt.zeros(slots)[places], 1.0)
    occupied = pt.gt(counts, 0)
    k = occupied.sum()

    # Factors that do not count are replaced both before and after the logarithm is taken: otherwise zero
    # times their derivative would be NaN. The factor of the first cluster cancels.
    later = np.arange(1, min(op.n, slots))
    counted = pt.lt(later, k)
    allowed: Any = np.array(True)
    if op.finite:
        components = _all_components(concentration, discount)
        counted &= pt.lt(later, components)
        allowed = pt.le(k, components)
    new = pt.log(pt.switch(counted, concentration + discount * later, 1.0)).sum()
    total = pt.gammaln(concentration + op.n) - pt.gammaln(concentration + 1)
    sizes = pt.switch(occupied, counts - discount, 1.0)
    old = pt.switch(occupied, pt.gammaln(sizes) - pt.gammaln(1 - discount), 0.0).sum()
    ways = math.lgamma(slots + 1) - pt.gammaln(slots + 1 - k)

    logp = pt.switch(is_slot.all() & allowed, new - total + old - ways, -np.inf)
    if op.finite:
        return check_parameters(
            logp, discount < 0, components >= 1, msg="concentration > 0, n_components >= 1"
        )
    return check_parameters(
        logp,
        discount >= 0,
        discount < 1,
        concentration > -discount,
        msg="0 <= discount < 1, concentration > -discount",
    )
