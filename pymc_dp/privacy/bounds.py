"""The interpretation of ``bounds=``, which clamping and sensitivities share."""

from __future__ import annotations

from typing import Any

import numpy as np

_FORMS = (
    "Write (lo, hi) for all statistics alike, [(lo_1, hi_1), (lo_2, hi_2), ...] with one pair per "
    "statistic, or (numpy.array(lo), numpy.array(hi))."
)


def parse_bounds(bounds: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return `bounds` as two float arrays of one shape, lower and upper.

    Parameters
    ----------
    bounds : tuple or list or ndarray
        One of

        * ``(lo, hi)``, two numbers, the same for every statistic;
        * ``(lo, hi)`` with arrays that broadcast to one row of statistics;
        * ``[(lo_1, hi_1), ..., (lo_d, hi_d)]``, or an array of shape (d, 2): one pair per
          statistic.

        The last two forms can be confused only if d = 2. In that case a *list* or an array of shape (2, 2)
        consists of pairs, and a tuple of two numpy arrays is ``(lo, hi)``. Any other 2 x 2 nesting is read in
        the way that has lo < hi; if both ways have it, it is refused.

    Returns
    -------
    lo, hi : ndarray
        Finite, lo < hi everywhere; shape () for two numbers, (d,) for d pairs.

    Raises
    ------
    TypeError
        Not made of known numbers (a tensor, a string, None).
    ValueError
        Of another form, NaN or infinite, not lo < hi, or ambiguous.

    Examples
    --------
    >>> from pymc_dp.privacy.bounds import parse_bounds
    >>> lo, hi = parse_bounds([(0, 1), (-5, 5), (0, 2)])
    >>> (hi - lo).tolist()
    [1.0, 10.0, 2.0]
    """
    if not isinstance(bounds, (tuple, list, np.ndarray)):
        raise TypeError(f"bounds must be a pair of numbers, got {type(bounds).__name__}. {_FORMS}")
    if len(bounds) == 0:
        raise ValueError(f"bounds is empty. {_FORMS}")
    items = [_known_numbers(item) for item in bounds]
    if all(item.shape == (2,) for item in items) and not _is_lower_upper(bounds):
        pairs = np.stack(items)
        lo, hi = pairs[:, 0], pairs[:, 1]
        if len(items) == 2 and _is_undecided(bounds):
            lo, hi = _resolve(pairs)
    elif len(items) == 2:
        try:
            lo, hi = np.broadcast_arrays(*items)
        except ValueError:
            raise ValueError(
                f"bounds has a lower part of shape {items[0].shape} and an upper part of shape "
                f"{items[1].shape}, which do not fit together. {_FORMS}"
            ) from None
    else:
        raise ValueError(f"bounds has {len(items)} entries that are not pairs. {_FORMS}")
    if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
        raise ValueError(
            "bounds must be finite: an unbounded contribution has no finite sensitivity, and a "
            "NaN no meaning. Choose bounds without looking at the data."
        )
    if not (lo < hi).all():
        where = int(np.flatnonzero(~(lo < hi))[0])
        raise ValueError(
            f"bounds must have lo < hi, got lo = {np.ravel(lo)[where]:g} and "
            f"hi = {np.ravel(hi)[where]:g} for statistic {where}. {_FORMS}"
        )
    return np.array(lo), np.array(hi)


def hashable_bounds(lo: np.ndarray, hi: np.ndarray) -> tuple:
    """Return ``(lo, hi)`` as nested tuples of floats, which can be a property of an operation."""

    def freeze(value: Any) -> Any:
        return tuple(freeze(v) for v in value) if isinstance(value, list) else value

    return freeze(lo.tolist()), freeze(hi.tolist())


def _known_numbers(item: Any) -> np.ndarray:
    try:
        array = np.asarray(item)
    except ValueError:  # ragged
        raise ValueError(f"bounds is ragged. {_FORMS}") from None
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"bounds must be known numbers, got {type(item).__name__}: the guarantee depends on "
            f"them, so they can be neither tensors nor random variables. {_FORMS}"
        )
    return array.astype(float)


def _is_lower_upper(bounds: Any) -> bool:
    return (
        isinstance(bounds, tuple)
        and len(bounds) == 2
        and all(isinstance(item, np.ndarray) for item in bounds)
    )


def _is_undecided(bounds: Any) -> bool:
    if isinstance(bounds, np.ndarray):
        return False
    return isinstance(bounds, tuple) or any(isinstance(item, np.ndarray) for item in bounds)


def _resolve(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    as_pairs, as_rows = bool((table[:, 0] < table[:, 1]).all()), bool((table[0] < table[1]).all())
    if as_pairs and as_rows and table[0, 1] != table[1, 0]:
        raise ValueError(
            "bounds is ambiguous: it can be read as the pairs "
            f"{tuple(table[0].tolist())}, {tuple(table[1].tolist())} or as "
            f"lo = {tuple(table[0].tolist())}, hi = {tuple(table[1].tolist())}. Pass a list of "
            "pairs for the first, a tuple of two numpy arrays for the second."
        )
    return (table[0], table[1]) if as_rows and not as_pairs else (table[:, 0], table[:, 1])
