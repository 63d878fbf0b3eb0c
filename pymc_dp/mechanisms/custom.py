"""A mechanism of the user's own: any density of the release given the query."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.graph.basic import Apply
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms import _custom_checks as checks
from pymc_dp.mechanisms._custom_guarantee import check_guarantee, check_settled
from pymc_dp.mechanisms._custom_points import released_dtype
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, Mechanism, MechanismOp
from pymc_dp.privacy.claims import NoDensity
from pymc_dp.privacy.guarantee import as_stated
from pymc_dp.privacy.release import Release
from pymc_dp.upstream.pymc_private import _logprob
from pymc_dp.upstream.pytensor_private import numba_core_rv_funcify

NAME = "CustomMechanism"


class CustomMechanismRV(MechanismOp, RandomVariable):
    """Draws a release by a function of the user's, and has a log density of the user's.

    Attributes
    ----------
    density : callable
        ``(value, query, *params) -> log density`` of one release, of the rank that the signature gives.
    random : callable or None
        ``(query, *params, rng=, size=) -> draw``.
    """

    __props__ = (*RandomVariable.__props__, *MECHANISM_PROPS, "density", "random")  # type: ignore[assignment]
    noise_parameters = False
    _print_name = (NAME, "\\operatorname{CustomMechanism}")
    why_unknown = (
        "it is a mechanism of your own, declared without guarantee=. State one, as in guarantee="
        "dp.PrivacyGuarantee(epsilon)"
    )

    def __init__(
        self,
        name: str = "custom_mechanism",
        *,
        density: Callable[..., Any] | None = None,
        random: Callable[..., Any] | None = None,
        signature: str = "()->()",
        dtype: str = "floatX",
        **kwargs: Any,
    ) -> None:
        self.density = density
        self.random = random
        super().__init__(name, signature=signature, dtype=dtype, **kwargs)

    def log_density(self, value: Any, *params: Any) -> TensorVariable:
        """Return the log density of each release; the user's function sees one release at a time."""
        assert self.density is not None
        core = (self.ndim_supp, *self.ndims_params)
        inputs = [value, *params]
        if not any(core) or all(v.ndim == k for v, k in zip(inputs, core, strict=True)):
            return pt.as_tensor_variable(self.density(*inputs))
        return self.log_density_apart(*inputs)

    def log_density_apart(self, *inputs: TensorVariable) -> TensorVariable:
        """Return the log density of each release, from that of one release."""
        assert self.density is not None
        core = (self.ndim_supp, *self.ndims_params)
        one = [
            pt.tensor(dtype=v.dtype, shape=v.type.shape[v.ndim - k :])
            for v, k in zip(inputs, core, strict=True)
        ]
        density = pt.as_tensor_variable(self.density(*one))
        return vectorize_graph(density, dict(zip(one, inputs, strict=True)))

    def rng_fn(self, rng, *args):  # type: ignore[no-untyped-def, override]
        """Draw by the user's function, one call for all entries or one for each release of many entries."""
        *params, size = args
        params = [np.asarray(p) for p in params]
        if self.random is None:
            raise NotImplementedError(
                f"{NAME} was declared without random=, so that nothing can be drawn from it: give "
                "random=, a NumPy function of (query, rng, size)."
            )
        cores = [p.shape[p.ndim - k :] for p, k in zip(params, self.ndims_params, strict=True)]
        batch = np.broadcast_shapes(*(p.shape[: p.ndim - k] for p, k in zip(params, self.ndims_params)))
        batch = batch if size is None else tuple(int(n) for n in size)
        if not any(self.ndims_params):
            return checks.checked_draw(self.random, params, rng, batch, self.dtype)
        lengths: dict[str, int] = {}
        for names, core in zip(self.inputs_sig, cores, strict=True):
            lengths.update(zip(names, core, strict=True))
        shape = tuple(lengths[name] for name in self.output_sig)
        rows = [np.broadcast_to(p, (*batch, *core)) for p, core in zip(params, cores, strict=True)]
        out = np.empty((*batch, *shape), dtype=released_dtype(self.dtype))
        for i in np.ndindex(*batch):
            out[i] = checks.checked_draw(self.random, [r[i] for r in rows], rng, shape, self.dtype)
        return out


@_logprob.register(CustomMechanismRV)
def _log_density(op: CustomMechanismRV, values: Any, rng: Any, size: Any, *params: Any, **kwargs: Any) -> Any:
    density = op.log_density(values[0], *params)
    return density if rv_size_is_none(size) else pt.broadcast_to(density, size)


@numba_core_rv_funcify.register(CustomMechanismRV)
def _draw_in_python(op: CustomMechanismRV, node: Apply) -> Any:
    """Leave draws to Python: PyTensor would warn of it, as if the user could do something about that."""
    warnings.filterwarnings("ignore", message="Numba will use object mode to run CustomMechanismRV")
    raise NotImplementedError(f"{op} is drawn by a Python function")


class CustomMechanism(Mechanism):
    r"""Release of a query by a mechanism of your own: any log density of the released value.

    .. math:: \log p(z \mid q) = \mathrm{logp}(z, q)

    Whatever can be written in PyTensor will do; every sampler of records takes it from there. The density
    must be normalised as a function of the value for *every* query, since a factor that changes with the
    query would change what the release says of the records.

    Parameters
    ----------
    query : tensor_like, any shape
        The statistic that the release depends on, an expression of the record variables.
    *params : tensor_like
        Further parameters of `logp` and `random`, such as a noise level; may be random variables, but no
        statistic of the records.
    logp : callable
        ``logp(value, query, *params) -> tensor``, PyTensor's. It may return a log density of each entry (the
        shape of the query: entries are released independently), or one for the whole release (a scalar), or
        one for each row (the shape of the query's leading axes).
    random : callable, optional
        ``random(query, *params, rng, size) -> array``, NumPy's: draws an array of shape `size`, that of the
        release (of one row where rows have a density each), by a ``numpy.random.Generator``. Needed for
        ``pm.draw`` and predictive draws; not for posteriors.
    guarantee : PrivacyGuarantee, optional
        What you state about the privacy of the release. It is reported as stated, not proven, and is for one
        density: none that reads data which can be set anew. See :func:`pymc_dp.testing.check_guarantee`.
    sensitivity : float, optional
        Largest change of the query in the L1 norm when one record is exchanged; with it the guarantee is
        compared with the density when the release is declared.
    bounds : tuple or list, optional
        Clamps each record's contribution, as for :class:`LaplaceMechanism`; gives the sensitivity.
    signature : str, optional
        Axes of the query and of a release, such as ``"(k)->()"``, if these differ. By default a release has
        the shape of the query.
    dtype : str, default "floatX"
        Kind of number that is released; ``"int64"`` for whole numbers, whose probabilities add up to one.
    **kwargs
        ``observed``, ``dims``, ``records`` and so on, as for any mechanism. A published
        :class:`~pymc_dp.Release` may be observed; it has the guarantee, and `logp` is given beside it.

    Raises
    ------
    TypeError
        `logp` or `random` is no function; `guarantee` is no PrivacyGuarantee.
    ValueError
        `logp` ignores the value or the query, reads a random variable of the model that is not among
        `params`, has another shape than said above, mixes entries, is NaN at the observed value, or
        integrates to more than 1; `random` returns another shape; the density contradicts `guarantee`, or
        reads data that can be set anew, such as ``pm.Data``, where there is one.

    Warns
    -----
    UserWarning
        A density of one number integrates to less than 1. That may be mass where the quadrature does not
        look, so that it is no error; more than 1 has no such excuse. Or `guarantee` is that of each entry
        alone, and `bounds` let one record change all entries at once.

    Notes
    -----
    PyTensor takes a number such as 2.0, which float32 holds, for float32, and so the logarithm of it: write
    ``np.log(2.0)`` instead of ``pt.log(2.0)``, or be content with seven digits.

    ``release`` is refused: noise by a function of NumPy's is neither from the operating system's entropy nor
    free of the holes of floating point, so that what is published would not have the stated guarantee.

    Examples
    --------
    Noise with a logistic density, whose privacy follows from its log density being Lipschitz:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pytensor.tensor as pt
    >>> import pymc_dp as dp
    >>> def logp(value, query):
    ...     u = pt.abs(value - query) / 2.0
    ...     return -u - 2 * pt.log1p(pt.exp(-u)) - np.log(2)
    >>> def random(query, rng, size):
    ...     return rng.logistic(query, 2.0, size)
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     smokes = pm.Bernoulli("smokes", p, shape=50)
    ...     z = dp.CustomMechanism(
    ...         "z", smokes.sum(), logp=logp, random=random, observed=17.3,
    ...         guarantee=dp.PrivacyGuarantee(0.5), sensitivity=1,
    ...     )
    >>> print(dp.guarantee(z))
    Stated by the user, not proven: pure differential privacy with epsilon = 0.5, for replace-one neighbours.
    """

    unpublished = frozenset({"logp", "random", "signature", "dtype", "guarantee"})
    rv_type = CustomMechanismRV
    rv_op = CustomMechanismRV()

    def __new__(cls, name: str, query: Any, *params: Any, observed: Any = None, **kwargs: Any) -> Any:
        """Register the release; the density is looked at where it was observed."""
        known = observed.value if isinstance(observed, Release) else observed
        looked = {} if known is None else {"looked_at": known}
        try:
            return super().__new__(cls, name, query, *params, observed=observed, **looked, **kwargs)
        except NoDensity as error:
            raise ValueError(f"{name}: {error}") from None

    @classmethod
    def _release_shape(cls, query: TensorVariable, **settings: Any) -> tuple[int | None, ...]:
        signature = settings.get("signature")
        return query.type.shape if signature is None else checks.release_shape(signature, query)

    @classmethod
    def dist(
        cls,
        query: Any,
        *params: Any,
        logp: Any = None,
        random: Any = None,
        guarantee: Any = None,
        sensitivity: Any = None,
        bounds: Any = None,
        signature: str | None = None,
        dtype: str = "floatX",
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        checks.check_functions(logp, random, guarantee)
        published = kwargs.pop("promised", None)
        guarantee = published if guarantee is None else guarantee
        if published is not None and as_stated(guarantee) != as_stated(published):
            raise ValueError(
                f"guarantee = {guarantee._statements()[0]} contradicts the release, which states "
                f"{published._statements()[0]}: leave guarantee out, or pass the release that it belongs to."
            )
        # bounds say what one record can change among the neighbours that the guarantee is for
        neighbours = "replace-one" if guarantee is None or bounds is None else guarantee.neighbours
        prepared = cls._prepare(query, sensitivity=sensitivity, bounds=bounds, order=1, neighbours=neighbours)
        others = [checks.as_parameter(k, p) for k, p in enumerate(params)]
        checks.check_parameters(prepared.query, others)
        said = signature is not None
        signature = checks.signature_of(logp, prepared.query, others, signature, dtype)
        stated = None if guarantee is None else as_stated(guarantee)
        props = {"density": logp, "random": random, "signature": signature, "dtype": dtype}
        op = CustomMechanismRV(**props)
        points = checks.check_law(op, prepared.query, others, kwargs.pop("looked_at", None), said)
        if stated is not None:
            check_settled(op, prepared.query, others)
            check_guarantee(op, points, stated, prepared)
        return cls._release(
            prepared, others, None, op_class=CustomMechanismRV, props=props, promised=stated,
            expected=checks.release_shape(signature, prepared.query), **kwargs,
        )  # fmt: skip

    @classmethod
    def release(cls, query: Any, **noise: Any) -> Any:
        """Refuse: a function of the user's does not draw noise that keeps a guarantee."""
        raise NotImplementedError(
            f"{cls.__name__}.release is not there: a release of confidential data needs noise from the "
            "operating system's entropy in exact arithmetic, and random= is a function of NumPy's floating "
            "point. Use a mechanism of this package, or draw the release with software made for it and "
            "declare it here by observed=."
        )

    def support_point(rv: Any, size: Any, query: Any, *params: Any) -> TensorVariable:
        """Return the query where a release has its shape, and zeros otherwise."""
        op: CustomMechanismRV = rv.owner.op
        if op.inputs_sig[0] != op.output_sig:
            return pt.zeros(rv.shape, dtype=rv.dtype)
        point = query if rv_size_is_none(size) else pt.broadcast_to(query, rv.shape)
        return pt.cast(pt.round(point) if rv.dtype.startswith("int") else point, rv.dtype) + pt.zeros_like(rv)
