"""Objective perturbation: the minimiser of a convex loss with a random linear term.

The minimiser theta of

    sum_i loss(x_i, y_i; theta) + (regularization / 2) ||theta||^2 + b' theta

determines the noise, b = -(summed gradient at theta + regularization theta). Its density is therefore that of
b times |det(summed Hessian at theta + regularization I)|. Given theta, gradient and Hessian are sums over
records, so that the query of a published release is these sums at the released value.
"""

from __future__ import annotations

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
from pymc_dp.mechanisms._checks import check_observed, exactly_one
from pymc_dp.mechanisms._logistic import (
    log_noise,
    minimise,
    noise_behind,
    noise_scale,
    perturb,
    rows_of,
    statistics_at,
)
from pymc_dp.mechanisms._releases import declared_by, without_cause
from pymc_dp.mechanisms.mechanism import MECHANISM_PROPS, Mechanism, MechanismOp, PreparedQuery
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.release import Release
from pymc_dp.query.contributions import record_sum
from pymc_dp.query.locality import is_local
from pymc_dp.upstream.pymc_private import _logprob

_JOINED = object()  # passed as y when the first argument holds checked features and labels


class ObjectivePerturbationRV(MechanismOp, RandomVariable):
    """Draws the minimiser of a perturbed objective.

    Parameters of a draw: the query; the clamped records, shape (n, d + 1); the value at which the query was
    evaluated; the regularization; the scale of the noise.
    """

    name = "objective_perturbation"
    signature = "(q),(n,e),(d),(),()->(d)"
    records_in_parameters = True
    released_parameter = 2  # `at`
    dtype = "floatX"
    __props__ = (  # type: ignore[assignment]
        *RandomVariable.__props__,
        "n_features",
        "gaussian",
        "additive",
        "declaration",
        *MECHANISM_PROPS,
    )
    _print_name = ("ObjectivePerturbation", "\\operatorname{ObjectivePerturbation}")

    def __init__(
        self,
        name: str | None = None,
        *,
        n_features: int = 1,
        gaussian: bool = False,
        additive: bool = False,
        declaration: tuple[tuple[str, Any], ...] = (),
        **kwargs: Any,
    ) -> None:
        self.n_features = n_features
        self.gaussian = gaussian
        self.additive = additive  # whether the query is the sum of statistics at the released value
        self.declaration = declaration
        super().__init__(name, **kwargs)

    def rng_fn(self, rng, query, rows, at, regularization, scale, size):  # type: ignore[no-untyped-def, override]
        """Draw noise with NumPy, then minimise."""
        batch = np.broadcast_shapes(rows.shape[:-2], np.shape(regularization), np.shape(scale))
        batch = batch if size is None else tuple(size)
        d = rows.shape[-1] - 1
        rows = np.broadcast_to(rows, (*batch, *rows.shape[-2:]))
        regularization, scale = (np.broadcast_to(p, batch) for p in (regularization, scale))
        out = np.empty((*batch, d))
        for k in np.ndindex(*batch):
            one = np.ascontiguousarray(rows[k], dtype=float)
            noise = rng.standard_normal(d)
            length = 1.0 if self.gaussian else rng.standard_gamma(d) / np.linalg.norm(noise)
            out[k] = minimise(one, float(regularization[k]), float(scale[k]) * length * noise)
        return out


class ObjectivePerturbation(Mechanism, Continuous):
    r"""Release of regularised logistic regression coefficients, private by a random linear term.

    .. math:: \theta = \arg\min_t \sum_i \left[\log(1 + e^{x_i' t}) - y_i x_i' t\right]
              + \frac{\lambda}{2} \lVert t \rVert^2 + b' t

    with noise b of density proportional to :math:`\exp(-\lVert b \rVert / s)`, or Gaussian when
    `delta` is given. The released minimiser determines the noise, so that

    .. math:: p(\theta \mid x, y) = p_b\left(-G - \lambda \theta\right)
              \left|\det(H + \lambda I)\right|

    with the gradient G and the Hessian H of the summed losses *at* :math:`\theta`. At the released value
    these are sums over records, which the imputation of records keeps up to date.

    Parameters
    ----------
    x : tensor_like, shape (n, d)
        Features, confidential or public; add a column of ones for an intercept. Rows longer than `x_bound`
        are shortened to it, in the release and in the likelihood.
    y : tensor_like, shape (n,)
        Labels 0 or 1, confidential; other values are clamped to [0, 1].
    epsilon : float
        Budget in nats.
    delta : float, optional
        The delta of approximate differential privacy; if given, the noise is Gaussian.
    regularization : float
        Coefficient :math:`\lambda` of the penalty added to the *sum* of the losses, which is n times that for
        their mean.
    x_bound : float, default 1
        Largest norm of a row of `x`.
    calibration : {"tight", "chaudhuri"}, default "tight"
        How the noise follows from the budget: see
        :func:`pymc_dp.mechanisms.objective_perturbation.noise_scale`.
    **kwargs
        ``observed`` (the released coefficients, or a :class:`~pymc_dp.Release`), ``dims`` and so on, as
        for any PyMC distribution; and ``records``, a list of the variables (or names) that hold the
        confidential records, where they cannot be told from `x` and `y`.

    Raises
    ------
    TypeError
        An argument is not of the right kind: labels that are words, a random `epsilon`.
    ValueError
        No `epsilon`, or no `regularization`, or one too small for the budget; a number out of its
        range; shapes that do not fit; rows that mix or repeat persons, such as features minus the mean
        over them in the same graph; another calibration.

    Notes
    -----
    The guarantee is for replace-one neighbours, with features *and* label of one record exchanged, and
    holds for the exact minimiser. ``release`` minimises until rounding lets the gradient fall no
    further, with noise from the operating system's entropy. It computes in floating point: nothing
    protects the last digits of the coefficients against attacks on floating-point noise.

    A release that is declared without ``observed`` and observed afterwards has the same density, but each
    change of a record costs O(n), since its query cannot be evaluated at the released value beforehand.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), *Differentially Private Empirical Risk Minimization*,
    algorithm 2; Kifer, Smith and Thakurta (2012), *Private Convex Empirical Risk Minimization and
    High-dimensional Regression*, for the Gaussian form.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> x = np.column_stack([np.full(50, 0.7), np.linspace(-0.7, 0.7, 50)])
    >>> with pm.Model() as model:
    ...     beta = pm.Normal("beta", 0, 3, shape=2)
    ...     y = pm.Bernoulli("y", logit_p=x @ beta)
    ...     fit = dp.ObjectivePerturbation(
    ...         "fit", x, y, epsilon=1, regularization=1, observed=[0.4, 1.1]
    ...     )
    >>> print(dp.guarantee(fit))
    Pure differential privacy with epsilon = 1, for replace-one neighbours.
    """

    rv_op = ObjectivePerturbationRV()

    def __new__(cls, name: str, x: Any, y: Any, *, observed: Any = None, **kwargs: Any) -> Any:
        """Evaluate the query at the observed value, then register the release as PyMC does."""
        published = isinstance(observed, Release)
        stated = declared_by(cls, observed, kwargs) if published else kwargs
        rows = rows_of(x, y, positive("x_bound", stated.get("x_bound", 1.0)))
        if observed is not None:
            value = check_observed(observed.value if published else observed, cls._release_shape(rows))
            # the observed variable itself, so that ``pm.set_data`` changes the query too
            kwargs["at"] = pt.cast(pt.as_tensor_variable(value), rows.dtype)
            observed = observed if published else value
        return super().__new__(cls, name, rows, _JOINED, observed=observed, **kwargs)

    @classmethod
    def _release_shape(cls, query: TensorVariable, **settings: Any) -> tuple[int | None, ...]:
        width = query.type.shape[1]  # width of the joined rows
        return (None if width is None else width - 1,)

    @classmethod
    def release(cls, x: Any, y: Any, **noise: Any) -> Release:  # type: ignore[override]
        """Draw one release from confidential data, with noise that nobody can predict.

        Parameters
        ----------
        x, y, **noise
            As for the distribution; `x` and `y` are arrays.

        Returns
        -------
        Release
            The coefficients, the parameters that an analyst needs, and the guarantee.

        Raises
        ------
        TypeError, ValueError
            As for the distribution; or `x` or `y` is not finite.
        """
        x_bound = positive("x_bound", noise.get("x_bound", 1.0))
        rows = without_cause(lambda: rows_of(x, y, x_bound))
        return super().release(rows, y=_JOINED, **noise)

    @classmethod
    def dist(  # type: ignore[override]
        cls,
        x: Any,
        y: Any,
        *,
        epsilon: Any = None,
        delta: Any = None,
        regularization: Any = None,
        x_bound: Any = 1.0,
        calibration: Any = "tight",
        **kwargs: Any,
    ) -> Any:
        """Return an unregistered release; parameters as for the class."""
        exactly_one(cls.__name__, {"epsilon=": epsilon is not None}, "epsilon=, alone or with delta=")
        if regularization is None:
            raise ValueError(
                "regularization is missing: give the coefficient of ||theta||^2 / 2 beside the sum of the "
                "losses, chosen without looking at the data."
            )
        scale = noise_scale(
            epsilon, delta=delta, regularization=regularization, x_bound=x_bound, calibration=calibration
        )
        rows = x if y is _JOINED else rows_of(x, y, positive("x_bound", x_bound))
        if not is_local(rows):
            raise ValueError(
                "x and y must hold the features and the label of person i in row i, but their rows mix "
                "several persons or repeat one, so that the promise to each of them would not hold: "
                "standardise by public numbers, and pass each person's row once."
            )
        (d,) = cls._release_shape(rows)
        if d is None:
            d = int(rows.shape[1].eval()) - 1
        at = kwargs.pop("at", None)
        if at is None:
            query, at = rows.reshape((-1,)), pt.constant(np.full(d, np.nan), dtype=rows.dtype)
        else:
            query = record_sum(statistics_at(at, rows, d))
        declaration = {
            "epsilon": float(epsilon),
            "delta": None if delta is None else float(delta),
            "regularization": float(regularization),
            "x_bound": float(x_bound),
            "calibration": calibration,
        }
        props = {
            "n_features": d,
            "gaussian": delta is not None,
            "additive": not np.isnan(getattr(at, "data", 0.0)).any(),
            "declaration": tuple((k, v) for k, v in declaration.items() if v is not None),
        }
        return cls._release(
            PreparedQuery(query, None, None, None),
            [rows, at, *(pt.constant(float(p), dtype=rows.dtype) for p in (regularization, scale))],
            PrivacyGuarantee(epsilon, delta=0.0 if delta is None else delta),
            props=props,
            expected=(d,),
            **kwargs,
        )

    @classmethod
    def _declaration(cls, op: Any, params: list[np.ndarray]) -> dict[str, Any]:
        """Return the keyword arguments that declare an operation again, without any of the records."""
        return dict(op.declaration)

    def support_point(
        rv: Any, size: Any, query: Any, rows: Any, at: Any, regularization: Any, scale: Any
    ) -> TensorVariable:
        """Return zero coefficients."""
        return pt.zeros_like(at) if rv_size_is_none(size) else pt.zeros(size)


@_logprob.register(ObjectivePerturbationRV)
def _objective_perturbation_logp(
    op: Any,
    values: Any,
    rng: Any,
    size: Any,
    query: Any,
    rows: Any,
    at: Any,
    regularization: Any,
    scale: Any,
    **kwargs: Any,
) -> TensorVariable:
    (value,) = values
    d = op.n_features
    statistics = query if op.additive else pt.sum(statistics_at(value, rows, d), axis=0)
    noise, log_slope = noise_behind(value, statistics, regularization, d)
    density = log_noise(noise, scale, op.gaussian, d) + log_slope
    if op.additive:  # the statistics hold at this value only
        density = pt.switch(pt.all(pt.eq(value, at)), density, -np.inf)
    return check_parameters(density, regularization > 0, scale > 0, msg="regularization > 0, scale > 0")


def _draw_of(op: ObjectivePerturbationRV) -> Any:
    gaussian = op.gaussian

    @njit
    def draw(rng, query, rows, at, regularization, scale):  # type: ignore[no-untyped-def]
        return perturb(rng, rows, regularization, scale, gaussian)

    return draw


register_draw_of(ObjectivePerturbationRV, _draw_of)
