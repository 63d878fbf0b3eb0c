"""How a query over records is written: what each contributes, clamped, and summed over all or the first."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.counts import as_count, first_of


def record_sum(t: Any, count: Any = None) -> TensorVariable:
    """Sum per-record contributions over the leading record axis.

    This is the record-additive form of a query: when one record changes, the query is brought up to
    date in O(d) instead of O(n d).

    It also says which axis is that of the people, which in a query of data nothing else does: arrays along
    the leading axis of `t` are confidential, one row per person, and those along its other axes (thresholds,
    weights) are public. ``record_sum(grid[:, None] > x)`` would say that the grid holds the people.

    Parameters
    ----------
    t : tensor_like, shape (n, ...) or (n,)
        Row i holds what record i contributes to each statistic, however many records there are.
    count : TensorVariable, optional
        How many people there are, where that is unknown: a whole-numbered scalar variable of the model. The n
        records are then slots, of which the first `count` are people; slots beyond them enter no sum. They
        have to be enough: a chain that reaches more people than slots ends with an error. All releases of
        the same records have to use the same `count`, and rows may have no covariates of their own.

    Returns
    -------
    TensorVariable, shape (...) or ()
        The statistics.

    Raises
    ------
    ValueError
        If `t` has no axis to sum over.
    TypeError
        If `count` is no whole-numbered scalar random variable.

    References
    ----------
    Ju, Awan, Gong & Rao (2022), "Data Augmentation MCMC for Bayesian Inference from Privatized
    Data", assumption 2. Awan, Barrientos & Ju (2024), "Statistical Inference for Privatized Data with
    Unknown Sample Size".

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dp as dp
    >>> dp.record_sum(np.ones((5, 2))).eval()
    array([5., 5.])

    At most 80 people, of whom a noisy sum and a noisy count are known:

    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     people = pm.DiscreteUniform("people", 0, 80)
    ...     mu = pm.Normal("mu", 0, 2)
    ...     y = pm.Normal("y", mu, 1, shape=80)
    ...     noise = {"epsilon": 1, "neighbours": "add-remove"}
    ...     total = dp.record_sum(y, count=people)
    ...     z = dp.LaplaceMechanism("z", total, bounds=(-3, 3), observed=48.0, **noise)
    ...     c = dp.LaplaceMechanism("c", people, sensitivity=1, observed=41.3, **noise)
    """
    t = _as_tensor("t", t)
    if t.ndim == 0:
        raise ValueError(
            "`t` is a scalar: record_sum needs per-record contributions with a leading record "
            "axis, shape (n,) or (n, d)."
        )
    total = (t if count is None else first_of(t, as_count(count))).sum(axis=0)
    total.tag.over_records = True  # read by `says_its_records`
    return total


def says_its_records(total: Variable) -> bool:
    """Whether a sum is one of :func:`record_sum`, which says that it is over the axis of the people."""
    return bool(getattr(total.tag, "over_records", False))


def clamp(x: Any, lo: Any, hi: Any) -> TensorVariable:
    """Clamp values to an interval, which bounds what one record can change.

    Parameters
    ----------
    x : tensor_like
        Values of any shape.
    lo, hi : tensor_like
        Ends of the interval, broadcast against `x`; ``lo < hi`` everywhere.

    Returns
    -------
    TensorVariable
        ``min(max(x, lo), hi)``.

    Raises
    ------
    ValueError
        If constant ends are not numbers with ``lo < hi``.

    Examples
    --------
    >>> import pymc_dp as dp
    >>> dp.clamp([-3.0, 0.5, 9.0], 0, 1).eval()
    array([0. , 0.5, 1. ])
    """
    if not any(isinstance(b, Variable) for b in (lo, hi)):
        lo, hi = np.asarray(lo, dtype=float), np.asarray(hi, dtype=float)
        if np.isnan(lo).any() or np.isnan(hi).any() or not (lo < hi).all():
            raise ValueError(f"`lo` and `hi` must be numbers with lo < hi everywhere; got lo={lo}, hi={hi}.")
    return pt.clip(_as_tensor("x", x), lo, hi)


def is_masked(value: Any) -> bool:
    """Whether values are masked, or in a list of masked ones, which NumPy would join without their masks."""
    if isinstance(value, list | tuple):
        return any(map(is_masked, value))
    return bool(np.ma.isMaskedArray(value))


def _as_tensor(name: str, value: Any) -> TensorVariable:
    """Return an argument as a tensor; PyTensor's refusal would show what may be confidential."""
    if is_masked(value):
        raise TypeError(f"`{name}` must not be masked: every record has to contribute.")
    try:
        return pt.as_tensor_variable(value)
    except (TypeError, ValueError, NotImplementedError):
        refusal = TypeError(f"`{name}` must be a tensor or an array of numbers, got {type(value).__name__}.")
    raise refusal
