"""Checks at declaration: of a query, of settings, of an observed release."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import convert_observed_data
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import TensorVariable
from scipy.special import gammaincc

from pymc_dp.mechanisms._arguments import DECLARING
from pymc_dp.privacy.release import Release
from pymc_dp.query.choices import change_of_one_person
from pymc_dp.query.clamping import largest
from pymc_dp.query.contributions import is_masked
from pymc_dp.query.lengths import known_lengths

StaticShape = tuple[int | None, ...]
# Minus the logarithm of a chance that is taken for none.
_UNLIKELY = 14.0
_NOT_RELEASED = (
    "If they were suppressed because they were small, say so, observed=dp.postprocessed(values, "
    "suppress_below=...); otherwise leave what was not released out of the query as well."
)


def as_variable(value: Any) -> Any:
    """Return PyTensor's variable of a value; PyTensor itself wraps integers beyond 64 bits around."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value) if abs(value) < 2**1023 else math.inf if value > 0 else -math.inf
    return pt.as_tensor_variable(value)


def as_query(query: Any) -> TensorVariable:
    """Return the query as a real tensor; idempotent."""
    if isinstance(query, Variable) and not isinstance(query, TensorVariable):
        raise TypeError(
            f"query must be a tensor, got a variable of type {query.type}: pass a dense tensor "
            "(for a variable with dims, its `.values`)."
        )
    if is_masked(query):
        raise TypeError("query must not be a masked array: every record has to contribute.")
    try:
        tensor = as_variable(query)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TypeError(f"query must be a tensor or numbers, got {type(query).__name__}.") from error
    if not isinstance(tensor.type, pt.TensorType) or np.dtype(tensor.type.dtype).kind not in "biuf":
        raise TypeError(
            f"query must be real, got dtype {tensor.type.dtype}: release a real-valued function "
            "of the records."
        )
    if isinstance(tensor, Constant) and not np.isfinite(tensor.data).all():
        raise ValueError("query has NaN or infinite entries: noise on them tells nothing.")
    # A release is real-valued whatever the records are, so the density needs a real query.
    return pt.cast(tensor, pytensor.config.floatX)


def held(value: Any) -> Any:
    """Return the present value of a shared variable or a constant; return anything else as it is."""
    if isinstance(value, SharedVariable):
        return value.get_value(borrow=True)
    return value.data if isinstance(value, Constant) else value


def known_values(values: Any) -> np.ndarray | None:
    """Return numbers known now as an array of floats; None for a graph, or for what is no numbers."""
    values = held(values)
    if isinstance(values, Variable):
        return None
    array = np.asarray(values)
    return array.astype(float) if array.dtype.kind in "iufb" else None


def observed_numbers(observed: Any) -> np.ndarray | None:
    """Return an observed release as numbers; None where it has no numbers, or none yet."""
    values = held(observed.value if isinstance(observed, Release) else observed)
    if isinstance(values, Variable) or np.ma.isMaskedArray(values):
        return None
    try:
        array = np.asarray(values)
    except ValueError:  # ragged
        return None
    return array if array.dtype.kind in "iuf" else None


def booleans_as_numbers(observed: Any) -> Any:
    """Return observed reports with booleans as the numbers 1 and 0; leave anything else as it is."""
    if isinstance(observed, Release):
        return replace(observed, value=booleans_as_numbers(observed.value))
    if isinstance(observed, Variable) or np.ma.isMaskedArray(observed):
        return observed
    try:
        array = np.asarray(observed)
    except ValueError:  # ragged
        return observed
    return array.astype(np.int64) if array.dtype == bool else observed


def check_setting(name: str, value: Any, choices: Collection[str]) -> None:
    """Refuse a setting that is none of its choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def whole_number(name: str, value: Any, least: int, most: int, what: str) -> int:
    """Return a static count as an int within its range; `what` says what it counts."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer, float, np.floating)):
        raise TypeError(f"{name} must be a whole number ({what}), got {type(value).__name__}.")
    if not (math.isfinite(value) and value == int(value) and least <= value <= most):
        raise ValueError(f"{name} must be a whole number from {least} to {most} ({what}), got {value:g}.")
    return int(value)


def needed_number(mechanism: str, name: str, value: Any, least: int, most: int, what: str) -> int:
    """Return a static count that a declaration cannot do without."""
    if value is None:
        raise ValueError(f"{mechanism} needs {name}= ({what}).")
    return whole_number(name, value, least, most, what)


def refuse_sensitivity(mechanism: str, kwargs: Mapping[str, Any]) -> None:
    """Refuse a sensitivity where the mechanism knows its own."""
    if "sensitivity" in kwargs:
        raise TypeError(
            f"{mechanism} takes no sensitivity=: what one record changes follows from what it releases. "
            "Leave it out."
        )


def exactly_one(mechanism: str, given: Mapping[str, bool], choices: str) -> str:
    """Return the one way in which the noise level was given; none or two are refused."""
    ways = [way for way, is_given in given.items() if is_given]
    if len(ways) != 1:
        problem = f"got both {' and '.join(ways)}" if ways else "got none"
        raise ValueError(
            f"{mechanism} needs exactly one way to give the noise level, {problem}. Choose {choices}."
        )
    return ways[0]


def noise_parameter(name: str, value: Any, query: TensorVariable) -> tuple[Any, Any]:
    """Check a noise level; return it as a tensor, and as an array (None if it is symbolic)."""
    try:
        tensor = as_variable(value)
        kind = np.dtype(tensor.type.dtype).kind
    except (TypeError, ValueError, NotImplementedError):
        kind = ""
    if kind not in ("i", "u", "f") or np.ma.isMaskedArray(value):
        raise TypeError(f"{name} must be a real number, array or tensor, got {type(value).__name__}.")
    known = tensor.data if isinstance(tensor, pt.TensorConstant) else None
    if known is not None and not (np.isfinite(known).all() and (known > 0).all()):
        bad = known[~(np.isfinite(known) & (known > 0))].ravel()[0]
        raise ValueError(f"{name} must be finite and > 0 everywhere, got {bad:g}.")
    shape = query.type.shape
    if tensor.type.ndim and None in shape:  # one number that is released with several levels costs each
        shape = known_lengths(query) or shape  # unknown in the graph of a law, which releases nothing
    if not fits(tensor.type.shape, shape):
        raise ValueError(
            f"{name} has shape {tensor.type.shape}, which is more than the query's shape "
            f"{shape}: give one number, or one per entry of the query."
        )
    return pt.cast(tensor, query.type.dtype), None if known is None else known.astype(float)


def checked_sensitivity(given: float | None, implied: float, change: str) -> float:
    """Return the sensitivity that bounds imply, or the one given if that is larger.

    A smaller one is refused, unless it is smaller by rounding only, as (hi - lo) / n may be: then the implied
    one is taken, so that the noise is never too small. `change` says, for the message, what a record changes.
    """
    if given is None:
        return implied
    if given < implied * (1 - 1e-12):
        raise ValueError(
            f"sensitivity = {given:g} contradicts bounds, under which one record can change {change}: leave "
            "sensitivity out, or give at least that value."
        )
    return max(given, implied)


def names_of_records(records: Any) -> tuple[str, ...] | None:
    """Return the names that ``records=`` gives, either as variables of the model or as names."""
    if records is None:
        return None
    given = records if isinstance(records, (list, tuple)) else [records]
    names: list[Any] = [getattr(record, "name", record) for record in given]
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(
            "records must list variables of the model, or their names, that hold one row per "
            f"person, got {records!r}."
        )
    return tuple(names)


def check_observed(observed: Any, expected: StaticShape, suppresses: bool = False) -> Any:
    """Refuse an observed release that is incomplete, not numeric, or of another shape.

    With `suppresses`, minus infinity stands for entries that were not published.
    """
    data = observed if isinstance(observed, Variable) else _as_array(observed)
    values = held(data)
    if isinstance(values, Variable):
        shape: StaticShape = values.type.shape
        kind = np.dtype(values.type.dtype).kind
    else:
        # Data of changeable size may be replaced by longer data later, but their present value must fit.
        shape, kind = values.shape, values.dtype.kind
    if kind not in "iuf":
        raise TypeError(
            f"observed must hold real numbers, got dtype {values.dtype}: {_as_numbers(values.dtype)}."
        )
    check_static_shape("observed", shape, expected)
    if not isinstance(values, Variable):
        missing = ~(np.isfinite(values) | (suppresses & np.isneginf(values)))
        if missing.any():
            first = tuple(int(i) for i in np.argwhere(missing)[0])
            raise ValueError(
                f"observed has {int(missing.sum())} missing or infinite "
                f"{'entry' if missing.sum() == 1 else 'entries'}, the first at index {first}: a "
                f"mechanism releases all entries of its query. {_NOT_RELEASED}"
            )
    return data


def tell_of_far_values(name: str, query: TensorVariable, rv: TensorVariable, observed: Any) -> None:
    """Warn where a release is beyond what its bounds leave of the query, by more than its noise can be.

    Bounds of what one person adds to a count were given for the count, say. The chance that noise of a right
    release is so large, in one number or in all together, is below 1e-6.
    """
    op, values = rv.owner.op, observed_numbers(observed)  # type: ignore[union-attr]
    if op.bounds is None or not op.additive_noise or op.family is None or values is None or not values.size:
        return
    level = op.dist_params(rv.owner)[1]
    while level.owner is not None and len(level.owner.inputs) == 1:  # it was cast, and given leading axes
        level = level.owner.inputs[0]
    noise = known_values(level)
    if noise is None:
        return
    most = largest(query, op.bounds)
    with np.errstate(invalid="ignore", over="ignore"):
        beyond = np.nan_to_num(np.maximum((np.abs(values) - most) / noise, 0.0))
    # what is beyond is less than the noise, and so is its sum than one of as many exponential numbers
    each, half = (beyond, 1.0) if "laplace" in op.family else (beyond**2 / 2, 0.5)
    far = each > _UNLIKELY + math.log(values.size)
    together = gammaincc(half * beyond.size, each.sum()) < math.exp(-_UNLIKELY)
    if not (far.any() or together):
        return
    at = np.unravel_index(each.argmax(), each.shape)
    value, end, times = (np.broadcast_to(v, each.shape)[at] for v in (values, most, beyond))
    others = "" if far.any() else f", and of others among its {beyond.size} numbers,"
    warnings.warn(
        f"{name} was released as {value:g}, but with these bounds the query is at most {end:g} in absolute "
        f"value: noise of {times:.3g} times its level{others} has a chance below 1e-6. bounds= clamps each "
        "row, released or added up. Where rows are groups of people, such as counts, leave it out, and give "
        "as sensitivity= how far one person changes the query; or mend the bounds or the level of the noise.",
        skip_file_prefixes=DECLARING,
    )


def tell_of_low_sensitivity(query: TensorVariable, given: float | None, order: int, neighbours: str) -> None:
    """Warn where a stated sensitivity is less than one person moves counts of people in one cell each."""
    moved = None if given is None else change_of_one_person(query, order, neighbours)
    if given is None or moved is None or given >= moved * (1 - 1e-12):
        return
    others = ', or neighbours="add-remove", if people who come or go are meant'
    warnings.warn(
        f"sensitivity = {given:g} is stated, and the query counts people in cells, of which each is in one: "
        f"one person moves it by up to {moved:.6g} (L{order}, {neighbours} neighbours), and the guarantee "
        f"promises too much. Give sensitivity={moved!r}{others if neighbours == 'replace-one' else ''}.",
        skip_file_prefixes=DECLARING,
    )


def beyond_32_bits(observed: np.ndarray) -> np.ndarray:
    """Return whole numbers as PyMC takes them: it wraps integers around at 32 bits, and floats not."""
    if observed.dtype.kind in "iu" and np.any(np.abs(observed.astype(float)) >= 2.0**31):
        return observed.astype(np.float64)
    return observed


def check_static_shape(name: str, shape: StaticShape, expected: StaticShape) -> None:
    """Refuse a release shape that cannot be the query's; accept lengths that are not known yet."""
    agree = len(shape) == len(expected) and all(
        a is None or b is None or a == b for a, b in zip(shape, expected, strict=True)
    )
    if not agree:
        raise ValueError(
            f"{name} means a release of shape {_show(shape)}, but the query gives one of shape "
            f"{_show(expected)}: one call of a mechanism is one release of the whole query."
        )


def fits(shape: StaticShape, target: StaticShape) -> bool:
    """Return whether `shape` broadcasts to `target` without enlarging it, as far as lengths are known."""
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return all(a is None or a == 1 or b is None or a == b for a, b in zip(shape, tail, strict=True))


def length_of(length: Any) -> int | None:
    """Return a dimension's present length as an int, None when it is not known yet."""
    known = held(length)
    return None if isinstance(known, Variable) else int(known)


def _as_array(observed: Any) -> np.ndarray:
    if np.ma.isMaskedArray(observed):
        masked = int(np.ma.count_masked(observed))
    elif hasattr(observed, "isnull"):
        masked = int(np.sum(np.asarray(observed.isnull())))
    else:
        masked = 0
    if masked:
        raise ValueError(
            f"observed has {masked} missing {'entry' if masked == 1 else 'entries'}: a mechanism "
            f"releases all entries of its query. {_NOT_RELEASED}"
        )
    array = np.asarray(observed)
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"observed must hold real numbers, got {type(observed).__name__} of dtype "
            f"{array.dtype}: {_as_numbers(array.dtype)}."
        )
    if not np.isfinite(array).all():  # PyMC would impute NaN entries
        return array
    wide = beyond_32_bits(array)
    return convert_observed_data(observed if wide is array else wide)


def _show(shape: StaticShape) -> str:
    lengths = ", ".join("?" if n is None else str(n) for n in shape)
    return f"({lengths},)" if len(shape) == 1 else f"({lengths})"


def _as_numbers(dtype: Any) -> str:
    """Say what makes numbers of values that are none."""
    if str(dtype) == "bool":
        return "pass them as whole numbers (values.astype(int))"
    if np.dtype(dtype).kind in "OUST" or str(dtype).startswith("str"):
        return "pass numbers (categories: numbered from 0, as .astype('category').cat.codes of pandas does)"
    return "pass the released values"
