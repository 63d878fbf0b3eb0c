"""What ``observed=`` of a mechanism gets when the release was processed after the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from pymc_dp.mechanisms._checks import held
from pymc_dp.privacy.processing import SUPPRESSED, Processing
from pymc_dp.privacy.release import Release


@dataclass(frozen=True, eq=False)
class Postprocessed:
    """Published values, and what was done to the noisy ones; made by :func:`postprocessed`.

    Attributes
    ----------
    values : ndarray, Variable or None
        Published values, minus infinity where an entry was suppressed; None if they are not known yet.
    processing : Processing
    """

    values: Any
    processing: Processing


def postprocessed(
    values: Any,
    *,
    clip: Any = None,
    round_to: float | None = None,
    suppress_below: float | None = None,
    order: Any = None,
    unknown_keys: bool | str = False,
) -> Postprocessed:
    r"""Say what was done to a noisy release before it was published.

    For ``observed=`` of a mechanism that adds independent noise: :class:`~pymc_dp.LaplaceMechanism`,
    :class:`~pymc_dp.GaussianMechanism`, :class:`~pymc_dp.DiscreteLaplaceMechanism` and
    :class:`~pymc_dp.DiscreteGaussianMechanism`. An entry that was published as y = g(z), z being the query
    plus noise, then has the probability of all z with g(z) = y: the posterior is that given what was
    published, neither of the noisy value itself nor of zeros and suppressed cells read as counts.

    Values are clipped first, then rounded, then suppressed, unless `order` says otherwise. Processing costs
    no privacy: the guarantee is that of the noise.

    Parameters
    ----------
    values : array_like, pm.Data or None
        What was published. Suppressed entries are NaN, or masked; in ``pm.Data``, which takes no NaN, minus
        infinity. None declares a release that has not been observed yet.
    clip : (lo, hi), optional
        Ends that noisy values were clipped to; either may be None, as in ``clip=(0, None)``.
    round_to : float, optional
        Values were rounded to multiples of it, halves to the even multiple (25 by tens to 20).
    suppress_below : float, optional
        Values were published only if they were at least so large, as they stood then.
    order : tuple of str, optional
        Names of the arguments that are given, in the order in which that was done, if it is another.
    unknown_keys : bool or "nonempty", default False
        Whether only the entries (keys) are listed that were not suppressed, and nobody knows which others
        there are: `values` are then those of the K published keys, shape (K,), and the query is the count of
        each of these keys itself. The posterior is that given that these were published, for any number of
        keys that were not. True means that noise was added to every key there is, ``"nonempty"`` that it was
        to keys that count somebody, and no others could be listed (partition selection): counts are then from
        1 on, and the guarantee of the noise does not hold.

    Returns
    -------
    Postprocessed

    Raises
    ------
    TypeError
        A value or a number is of another kind: complex, boolean, text.
    ValueError
        The operations do not give these values: one outside of `clip`, no multiple of `round_to`, below
        `suppress_below`, or missing without it; a value is infinite; there is no operation, or one with a
        number out of its range; `order` does not name the operations. `unknown_keys` without
        `suppress_below`, without values, with missing ones or with several axes.

    Notes
    -----
    Inside of the model, in predictive draws and in ``idata``, suppressed entries are minus infinity: PyMC
    would take NaN for values to impute. Whole-numbered releases with suppressed entries are stored as floats
    for that reason. Numbers are read as the decimal numbers that they are written as: 0.3 is a multiple of
    0.1.

    With unknown keys the published ones contribute the product of f(c) q(z | c) over the keys, c being the
    count of a key and f its law, divided by the K-th power of the probability that a key is published at all,
    the sum of f(c) P(published | c) over c. It depends on the parameters of f and not on the counts, and is a
    term of the model, a ``pm.Potential`` with ``_listed`` after the release's name;
    :func:`~pymc_dp.marginalize` makes it part of the release's law. Counts are of the laws ``pm.Poisson``,
    ``pm.NegativeBinomial``, ``pm.Geometric``, ``pm.Binomial``, ``pm.Bernoulli`` or ``pm.DiscreteUniform``,
    whose parameters the keys share, or have from data.
    Where noise was added to keys of the data only, that a key is listed tells that somebody is there. What
    holds is (epsilon, delta): delta is the probability that keys of one person alone pass the threshold. It
    depends on how many keys one person is counted in, and is not worked out here: ``dp.guarantee`` refuses,
    or reports what a :class:`~pymc_dp.Release` states, as stated.

    References
    ----------
    Dwork and Roth (2014), *The Algorithmic Foundations of Differential Privacy*, proposition 2.1.

    Examples
    --------
    Counts in four groups, negative ones published as 0, small ones not at all. Who is in which group is
    public, so that one person changes one count by one:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> published = dp.postprocessed(
    ...     [35, 20, np.nan, np.nan], clip=(0, None), round_to=5, suppress_below=10
    ... )
    >>> with pm.Model() as model:
    ...     rate = pm.Gamma("rate", 2, 0.1)
    ...     people = pm.Poisson("people", rate, shape=4)
    ...     z = dp.DiscreteLaplaceMechanism("z", people, epsilon=0.5, sensitivity=1, observed=published)
    >>> print(dp.guarantee(z))
    Pure differential privacy with epsilon = 0.5, for replace-one neighbours.

    Pages that were read at least 10 times, by noisy counts; which other pages there are is not told:

    >>> listed = dp.postprocessed([35, 20, 11], suppress_below=10, unknown_keys=True)
    >>> with pm.Model() as model:
    ...     mean = pm.Gamma("mean", 2, 0.1)
    ...     readers = pm.Geometric("readers", 1 / (1 + mean), shape=3)
    ...     z = dp.DiscreteLaplaceMechanism("z", readers, epsilon=0.5, sensitivity=1, observed=listed)
    >>> [v.name for v in model.potentials]
    ['z_listed']
    """
    processing = Processing.of(clip, round_to, suppress_below, order, unknown_keys)
    if isinstance(values, Release):
        raise TypeError(
            "values must be numbers, got a Release: say what was done to it by release.postprocessed(...), "
            "and pass what that returns as observed= alone."
        )
    if values is None:
        if processing.unknown_keys:
            raise ValueError(
                "values must be given with unknown_keys=True: before a release nobody knows which keys it "
                "will list. Leave unknown_keys out to draw what all keys would give, and count as listed "
                "those that are not minus infinity."
            )
        return Postprocessed(None, processing)
    if isinstance(values, Variable):
        data = held(values)
        if isinstance(data, np.ndarray):
            _checked(data, processing, named="minus infinity")
        return Postprocessed(values, processing)
    return Postprocessed(_checked(_numbers(values), processing), processing)


def refuse_processed(mechanism: Any, observed: Any) -> None:
    """Refuse a processed release of a mechanism whose noise is not additive."""
    if isinstance(observed, Postprocessed) or getattr(observed, "processing", None) is not None:
        raise TypeError(
            f"observed was processed after the noise, of which {mechanism.__name__} knows no law: there is "
            "one for LaplaceMechanism, GaussianMechanism, DiscreteLaplaceMechanism and "
            "DiscreteGaussianMechanism. Pass the release as the mechanism gave it."
        )


def _numbers(values: Any) -> np.ndarray:
    """Return published values as an array, NaN where they are masked or missing."""
    if np.ma.isMaskedArray(values) and values.dtype.kind in "iuf":
        return np.ma.filled(values.astype(float), np.nan)
    if hasattr(values, "isnull"):  # pandas and xarray, which may hold whole numbers beside missing ones
        missing = np.asarray(values.isnull())
        if missing.any() and hasattr(values, "to_numpy"):
            try:
                return np.where(missing, np.nan, values.where(~values.isnull(), np.nan).to_numpy(dtype=float))
            except (TypeError, ValueError):
                pass  # text among them, which is refused below
    try:
        return np.asarray(values)
    except ValueError:
        raise TypeError("values must hold real numbers, got rows of different lengths.") from None


def _checked(array: np.ndarray, processing: Processing, named: str = "NaN") -> np.ndarray:
    """Return published values with minus infinity where they are NaN; refuse those that nothing gives."""
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"values must hold real numbers, got dtype {array.dtype}: pass what was published, "
            f"{named} where it was suppressed."
        )
    if array.dtype.kind == "f" and array.dtype.itemsize < 8:  # the decimal numbers that were meant
        array = array.astype(str).astype(float)
    missing = np.isnan(array) | np.isneginf(array)
    if processing.unknown_keys and (array.ndim != 1 or missing.any()):
        _refuse_unlisted(array, missing)
    if missing.any() and not processing.suppresses:
        raise ValueError(
            f"values has {int(missing.sum())} missing {'entry' if missing.sum() == 1 else 'entries'}, but "
            "nothing is suppressed: give suppress_below=, the threshold below which values were not "
            "published."
        )
    if np.isposinf(array).any():
        raise ValueError("values has infinite entries, which no noise gives: pass what was published.")
    if missing.any():
        array = np.where(missing, SUPPRESSED, array)
    check_values(array, processing, whole=False)
    return array if array.dtype.kind in "iu" else processing.canonical(array)


def _refuse_unlisted(array: np.ndarray, missing: np.ndarray) -> None:
    """Refuse values that are not one for each published key."""
    if array.ndim != 1:
        raise ValueError(
            f"values must have one axis with unknown_keys=True, one entry for each published key, got "
            f"{array.ndim} axes: give the published values as one vector."
        )
    some = "1 missing entry" if missing.sum() == 1 else f"{missing.sum()} missing entries"
    raise ValueError(
        f"values has {some}, but with unknown_keys=True only keys that were published have one. If it is "
        "known which keys were suppressed, leave unknown_keys out; otherwise leave the entries out."
    )


def check_values(array: np.ndarray, processing: Processing, whole: bool) -> None:
    """Refuse published values that no noisy ones give, real or whole."""
    fault = processing.fault(array, whole)
    if fault is not None:
        raise ValueError(f"values cannot be what was published: {fault} (values were {processing}).")
