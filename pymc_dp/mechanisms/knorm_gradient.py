"""The K-norm gradient mechanism: parameters at which the summed gradient of a loss is small."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.samplers import register_draw_of
from pymc_dp.mechanisms._checks import as_query
from pymc_dp.mechanisms._grid import Granules, bounded_in_granules, granularity, inflation
from pymc_dp.mechanisms._knorm_noise import QuadraticKNormGradientRV, norm_of
from pymc_dp.mechanisms._numbers import resizable_lengths
from pymc_dp.mechanisms.exponential import Choice, ChoiceRV, choose, log_probability
from pymc_dp.mechanisms.mechanism import Mechanism
from pymc_dp.privacy.calibration import finite_noise
from pymc_dp.privacy.entropy import draw_securely
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release
from pymc_dp.upstream.pymc_private import _logprob

NORMS = (1, 2, math.inf)
_GAP = 2.0**-20  # a parameter is released only where gaps between floats are smaller, in sensitivities


class KNormGradientRV(ChoiceRV):
    """Draws the index of a candidate given the summed gradient at every candidate."""

    name = "knorm_gradient"
    signature = "(k,d),(),()->()"
    _print_name = ("KNormGradient", "\\operatorname{KNormGradient}")
    __props__ = (*ChoiceRV.__props__, "norm")  # type: ignore[assignment]

    def __init__(self, name: str | None = None, *, norm: float = 2.0, **kwargs: Any) -> None:
        self.norm = norm
        super().__init__(name, **kwargs)

    def utilities(self, query: np.ndarray) -> np.ndarray:
        """Return the negative norm of each candidate's gradient."""
        return -np.linalg.norm(query, self.norm, axis=-1)

    def whole_utilities(self, query: Granules) -> tuple[np.ndarray, int]:
        """Return the negative norms in whole granules, and the slack of their entries and rounding."""
        size = np.abs(query.count.astype(object))
        if self.norm == 2:
            squares = (size * size).sum(axis=-1)
            norms = np.array([math.isqrt(int(s)) for s in np.ravel(squares)], dtype=object)
            norms = norms.reshape(squares.shape)
        else:
            norms = size.sum(axis=-1) if self.norm == 1 else size.max(axis=-1)
        return -norms, size.shape[-1] * query.slack + 1


class KNormGradient(Choice):
    r"""Release of one of finitely many parameter values, favouring small gradients of a summed loss.

    .. math:: P(c \mid x) \propto \exp\left(-\frac{\epsilon}{2 \Delta}
              \Big\lVert \sum_i \nabla \ell(x_i; \theta_c) \Big\rVert\right)

    It is the exponential mechanism with the norm of the gradient in the place of the loss. The normaliser
    depends on the records through the gradients at *all* candidates, so that the imputation of records keeps
    all of these statistics up to date. Over a continuum of parameters the normaliser would not be a function
    of sums over the records, so that they could not be imputed exactly: write the candidates as a grid. The
    exception is a quadratic loss whose Hessian A is public, such as the squared distance to a mean, or to a
    regression on public features. Its normaliser is known and does not depend on the records, so that the
    factor 2 is not needed either:

    .. math:: p(\theta \mid x) = \frac{|\det A|}{Z} \left(\frac{\epsilon}{\Delta}\right)^{d}
              \exp\left(-\frac{\epsilon}{\Delta} \lVert g_0 + A \theta \rVert\right)

    with the summed gradient :math:`g_0` at zero. The release is then the parameter itself.

    Parameters
    ----------
    gradients : tensor_like, shape (k, d), (..., k, d), or (k,) for a single parameter
        Gradient of the summed loss at each of k candidates, an expression of the records; usually
        ``dp.record_sum`` of the records' own gradients, shape (n, k, d). The gradient of a public penalty may
        be added. With leading axes, each is a choice of its own about the same people, and the guarantee adds
        up their costs; only a leading record axis makes it a local release (a query of data is local if it is
        computed from a vector with one entry per record). With `hessian`: the gradient at zero, shape (d,).
    epsilon : float
        Budget in nats of one choice.
    sensitivity : float, optional
        Largest norm of the change of the gradient at any candidate when one record is exchanged for another:
        twice the largest norm of one record's gradient, unless a smaller bound is known.
    bounds : tuple or list, optional
        Clamps each record's gradient at each candidate, entry by entry: ``(lo, hi)``, or arrays that
        broadcast to (k, d). Gives the sensitivity, and enters the likelihood. See
        :func:`pymc_dp.privacy.bounds.parse_bounds`.
    norm : {2, 1, inf}, default 2
        The norm in which gradients and `sensitivity` are measured.
    hessian : array_like, shape (d, d), optional
        Hessian of the summed loss, public and not singular; the release is a parameter of d numbers
        instead of a candidate.
    **kwargs
        ``observed`` (the index of the candidate, counted from 0, or the parameter), ``dims`` and so
        on, as for any PyMC distribution; and ``records``, a list of the variables (or names) that
        hold the confidential records, where they cannot be told from the query.

    Raises
    ------
    TypeError
        An argument is not of the right kind: a gradient that is not real, a random `epsilon`.
    ValueError
        No `epsilon`, or no sensitivity to go with it; a number out of its range; another norm;
        `sensitivity` below what `bounds` imply; an observed value that is not the index of a candidate;
        a singular `hessian`.

    Notes
    -----
    The guarantee of a choice is that of
    :class:`~pymc_dp.mechanisms.exponential.ExponentialMechanism`: pure, for replace-one neighbours, and
    zero-concentrated with rho = epsilon^2 / 8. ``release`` draws it without rounding of probabilities,
    given the norms as they were computed. With `hessian` the guarantee is pure, and ``release`` computes
    in floating point: nothing protects the last digits against attacks on floating-point noise.

    References
    ----------
    Reimherr and Awan (2019), *KNG: The K-Norm Gradient Mechanism*.

    Examples
    --------
    The median of 50 people's incomes, on a grid: the loss \|x - m\| has gradient -1 or 1.

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> import pytensor.tensor as pt
    >>> grid = np.linspace(10, 50, 9)
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 3, 1)
    ...     income = pm.LogNormal("income", mu, 1, shape=50)
    ...     gradient = dp.record_sum(pt.sign(grid - income[:, None]))
    ...     median = dp.KNormGradient("median", gradient, epsilon=1, sensitivity=2, observed=5)
    >>> print(dp.guarantee(median).epsilon)
    1.0

    The mean of 50 heights in metres, clamped: half the sum of squares has gradient -sum at zero.

    >>> mean = dp.KNormGradient.dist(
    ...     -dp.record_sum(np.linspace(1.5, 1.9, 50)[:, None]), hessian=50 * np.eye(1),
    ...     epsilon=1, sensitivity=1.5,
    ... )
    >>> mean.type.shape
    (1,)
    """

    rv_op = KNormGradientRV()
    candidate_axes: ClassVar[int] = 2

    def __new__(cls, name: str, gradients: Any, *, observed: Any = None, **kwargs: Any) -> Any:
        """Check the declaration against the model, then register it as PyMC does."""
        stated = observed.parameters if isinstance(observed, Release) else kwargs
        if stated.get("hessian") is not None:  # the release is a parameter, not a choice
            return Mechanism.__new__(cls, name, gradients, observed=observed, **kwargs)
        return super().__new__(cls, name, gradients, observed=observed, **kwargs)

    @classmethod
    def dist(  # type: ignore[override]
        cls,
        gradients: Any,
        *,
        epsilon: Any = None,
        sensitivity: Any = None,
        bounds: Any = None,
        norm: Any = 2,
        hessian: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        norm = float(norm) if isinstance(norm, (int, float, np.number)) else norm
        if norm not in NORMS:
            raise ValueError(f"norm must be 1, 2 or inf, got {norm!r}.")
        query = as_query(gradients)
        if hessian is not None:
            return cls._quadratic(query, hessian, epsilon, sensitivity, bounds, norm, **kwargs)
        one_parameter = query.type.ndim == 1

        def change(width: np.ndarray) -> float:
            rows = width[..., None] if one_parameter else width
            return float(np.linalg.norm(rows, norm, axis=-1).max())

        prepared = cls._prepare_choice(query, sensitivity, bounds, change)
        prepared = replace(prepared, query=cls._as_candidates(prepared.query))
        return cls._choice(prepared, epsilon, "the gradients", props={"norm": norm}, **kwargs)

    @classmethod
    def _quadratic(
        cls,
        query: TensorVariable,
        hessian: Any,
        epsilon: Any,
        sensitivity: Any,
        bounds: Any,
        norm: float,
        /,
        **kwargs: Any,
    ) -> Any:
        """Return the release of a parameter, for a quadratic loss with a public Hessian."""
        matrix = _public_matrix(hessian, query)
        epsilon = cls._budget(epsilon)
        prepared = cls._prepare_choice(
            query, sensitivity, bounds, lambda width: float(np.linalg.norm(width, norm, axis=-1).max())
        )
        if prepared.sensitivity is None:
            raise ValueError(cls._no_sensitivity("the gradient"))
        finite_noise("epsilon", epsilon, prepared.sensitivity / epsilon)
        numbers = (pt.constant(p, dtype=query.dtype) for p in (epsilon, prepared.sensitivity))
        m = cls._choices_per_person(prepared.query, 1)
        if m > 1 or prepared.lengths is not None:
            prepared = replace(prepared, lengths=resizable_lengths(prepared.query))
        return cls._release(
            prepared,
            [pt.constant(matrix, dtype=query.dtype), *numbers],
            PrivacyGuarantee(m * epsilon),
            op_class=QuadraticKNormGradientRV,
            props={"norm": norm, "log_det": float(np.linalg.slogdet(matrix)[1])},
            expected=query.type.shape,
            **kwargs,
        )

    @classmethod
    def _release_shape(cls, query: TensorVariable, **settings: Any) -> tuple[int | None, ...]:
        return query.type.shape if settings.get("hessian") is not None else super()._release_shape(query)

    @classmethod
    def _as_candidates(cls, query: Any) -> TensorVariable:
        query = as_query(query)
        if query.type.ndim == 0 or 0 in query.type.shape[-2:]:
            raise ValueError(
                f"gradients must have shape (k, d), one row per candidate, got {query.type.shape}: "
                "release one of a finite set of parameter values, such as dp.record_sum of an array of "
                "shape (n, k, d)."
            )
        return query[:, None] if query.type.ndim == 1 else query

    @classmethod
    def _draw_release(cls, op: Any, query: TensorVariable, params: list[np.ndarray]) -> Any:
        """Draw a release; under bounds, the gradient at zero is summed in integers.

        The noise of a parameter is added in floating point, so that the sensitivity is increased by the gaps
        between floats.
        """
        if op.bounds is None or isinstance(op, ChoiceRV):
            return super()._draw_release(op, query, params)
        hessian, epsilon, sensitivity = params
        granule = granularity(sensitivity)
        rounded = bounded_in_granules(query, granule)
        known = rounded.count.astype(float) * granule
        if np.spacing(np.abs(known).max(initial=0.0)) > _GAP * sensitivity.min():
            raise ValueError(
                "query is so large that floats of its size have gaps over which one record would count for "
                "more than `bounds` say: subtract a public number, such as the lower end of `bounds`, from "
                "what is added up, and from `bounds`."
            )
        slack = known.shape[-1] * (rounded.slack + math.ceil(_GAP * sensitivity.max() / granule))
        grown = inflation(1.0, replace(rounded, slack=slack, entries=1), granule, sensitivity, 1)
        sensitivity = sensitivity * grown
        value = draw_securely(lambda rng: op.secure_draw(rng, known, hessian, epsilon, sensitivity))
        return value, [hessian, epsilon, sensitivity], op.guarantee, {}

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        """Return the keyword arguments that declare an operation again."""
        declared = super()._declaration(op, params) | {"norm": op.norm}
        if len(params) == 3:
            declared["hessian"] = params[0].reshape(params[0].shape[-2:])
        return declared

    def support_point(rv: Any, size: Any, query: Any, epsilon: Any, sensitivity: Any) -> TensorVariable:
        """Return the candidate with the smallest gradient."""
        best = pt.argmin(norm_of(query, rv.owner.op.norm), axis=-1)
        return best if rv_size_is_none(size) else pt.full(size, best)


def _public_matrix(hessian: Any, query: TensorVariable) -> np.ndarray:
    """Check the Hessian of a quadratic loss."""
    try:
        matrix = np.asarray(hessian, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(
            "hessian must be a matrix of known numbers: the normaliser of the density depends on it, and is "
            "known only where the records do not enter it."
        ) from None
    d = query.type.shape[-1] if query.type.ndim else None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or query.type.ndim == 0:
        raise ValueError(
            f"hessian must have shape (d, d) beside gradients of shape (d,), got {matrix.shape} and "
            f"{query.type.shape}."
        )
    if d is not None and d != len(matrix):
        raise ValueError(f"hessian has shape {matrix.shape}, but the gradient at zero has {d} entries.")
    if not np.isfinite(matrix).all() or np.linalg.cond(matrix) > 1e14:
        raise ValueError(
            "hessian must be finite and not singular: the loss has no single minimum, add a public penalty."
        )
    return matrix


@_logprob.register(KNormGradientRV)
def _knorm_gradient_logp(
    op: Any, values: Any, rng: Any, size: Any, query: Any, epsilon: Any, sensitivity: Any, **kwargs: Any
) -> TensorVariable:
    return log_probability(values[0], -norm_of(query, op.norm), epsilon, sensitivity)


def _draw_of(op: KNormGradientRV) -> Any:
    norm = op.norm

    @njit
    def draw(rng, query, epsilon, sensitivity):  # type: ignore[no-untyped-def]
        utility = np.empty(query.shape[0])
        for c in range(query.shape[0]):
            total = 0.0
            for j in range(query.shape[1]):
                if norm == 1:
                    total += abs(query[c, j])
                elif norm == 2:
                    total = math.hypot(total, query[c, j])
                else:
                    total = max(total, abs(query[c, j]))
            utility[c] = -total
        return choose(rng, utility, epsilon, sensitivity)

    return draw


register_draw_of(KNormGradientRV, _draw_of)
