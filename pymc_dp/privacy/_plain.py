"""Parts of a published release as JSON has them, and back; what is damaged is refused in few words."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from pymc_dp.privacy._checks import words
from pymc_dp.privacy.guarantee import PrivacyGuarantee

_NOT_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
# Only these names are read: NumPy would accept names of types of any size, or of Python objects.
_DTYPES = {
    name: np.dtype(name)
    for name in ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
                 "float16", "float32", "float64")
}  # fmt: skip
DEEPEST = 32  # limit of nested tuples, and of axes of a value
_LARGEST = 2**64
_LONGEST = 300  # characters of a message that quotes a file


def freeze(name: str, value: Any, depth: int = 0) -> Any:
    """Return a parameter as plain numbers, strings and nested tuples."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        if depth == DEEPEST:
            raise ValueError(f"{name} has tuples nested more than {DEEPEST} deep: flatten them.")
        return tuple(freeze(name, v, depth + 1) for v in value)
    if isinstance(value, str):
        return words(name, value)
    if isinstance(value, int) and not -_LARGEST < value < _LARGEST:
        raise ValueError(f"{name} has a whole number of more than 64 bits: give it as a float.")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(
        f"{name} must be made of numbers, words and tuples of them, got {type(value).__name__}: a "
        "release is published as JSON."
    )


def to_plain(value: Any) -> Any:
    """Return a parameter in a form that JSON has."""
    if isinstance(value, tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # JSON has no NaN and no infinity
    return value


def from_plain(name: str, value: Any, depth: int = 0) -> Any:
    """Return a parameter that JSON had."""
    if isinstance(value, list):
        if depth == DEEPEST:
            raise ValueError(f"{name} has lists nested more than {DEEPEST} deep.")
        return tuple(from_plain(name, v, depth + 1) for v in value)
    if isinstance(value, dict):
        word = value.get("float")
        if len(value) != 1 or not isinstance(word, str) or word not in _NOT_NUMBERS:
            raise ValueError(f'{name} has an object that is not {{"float": "inf"}}, "-inf" or "nan".')
        return _NOT_NUMBERS[word]
    return value


def array_from_plain(content: Any) -> np.ndarray:
    """Return a value from its type, shape and numbers."""
    if set(named_fields("value", content)) != {"dtype", "shape", "data"}:
        raise ValueError("the value must have the fields data, dtype and shape, and no others.")
    name, shape, listed = content["dtype"], content["shape"], content["data"]
    if not isinstance(name, str) or name not in _DTYPES:
        raise ValueError(f"the dtype of the value is none of {', '.join(_DTYPES)}.")
    if not isinstance(listed, list) or not isinstance(shape, list):
        raise ValueError("data and shape of the value must be lists.")
    dtype = _DTYPES[name]
    kinds: Any = {"b": bool, "i": int, "u": int}.get(dtype.kind, (int, float))
    data = [from_plain("value", v) for v in listed]
    if any(not isinstance(v, kinds) or (isinstance(v, bool) and dtype.kind != "b") for v in data):
        raise ValueError(f"an entry of the value does not fit dtype {dtype}.")
    if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 2**63 for n in shape):
        raise ValueError("the shape of the value holds other than lengths.")
    if len(shape) > DEEPEST or math.prod(shape) != len(data):
        raise ValueError(
            f"cannot reshape the value: {len(data)} entries do not have the shape {shortened(shape)}, or it "
            f"has more than {DEEPEST} axes."
        )
    if dtype.kind in "iu" and data:
        limits = np.iinfo(dtype)
        if min(data) < limits.min or max(data) > limits.max:
            raise ValueError(f"an entry of the value does not fit dtype {dtype}.")
    with np.errstate(over="ignore"):
        array = np.array(data, dtype=dtype)
    if np.isinf(array).sum() != sum(map(math.isinf, data)):
        raise ValueError(f"an entry of the value is too large for dtype {dtype}.")
    return array.reshape(shape)


def guarantee_to_plain(guarantee: PrivacyGuarantee) -> dict[str, Any]:
    """Return a guarantee as named fields."""
    plain = {f.name: to_plain(getattr(guarantee, f.name)) for f in fields(PrivacyGuarantee)}
    if not guarantee.stated:  # as before there were mechanisms of a user's own
        del plain["stated"]
    if not guarantee.renyi:  # as before there were guarantees by Renyi divergences
        del plain["renyi"]
    return plain


def guarantee_from_plain(content: Any) -> PrivacyGuarantee:
    """Return the guarantee of named fields."""
    stated = named_fields("guarantee", content)
    known = {f.name for f in fields(PrivacyGuarantee)}
    if "epsilon" not in stated or not stated.keys() <= known:
        unknown = shortened(sorted(stated.keys() - known))
        raise ValueError(f"guarantee must have epsilon, and fields that are known, not {unknown}.")
    for name, value in stated.items():
        if name == "renyi" and not (isinstance(value, list) and value):
            raise ValueError("renyi of the guarantee must be a list of pairs, an order and its divergence.")
        if name not in ("neighbours", "renyi") and isinstance(value, list | str):
            raise ValueError(f"{name} of the guarantee must be a number, got {type(value).__name__}.")
    try:
        return PrivacyGuarantee(**{k: from_plain(k, v) for k, v in stated.items()})
    except ArithmeticError:
        raise ValueError("a number of the guarantee is too large.") from None


def named_fields(name: str, content: Any) -> dict[str, Any]:
    """Return an object of JSON; refuse anything else."""
    if not isinstance(content, dict):
        raise ValueError(f"{name} must be an object with named fields, got {type(content).__name__}.")
    return content


def shortened(what: Any) -> str:
    """Return a message, cut to a short text that every encoding can write."""
    text = str(what).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def finite_number(text: str) -> float:
    """Return a number with a fraction or an exponent; refuse one that a float does not hold."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"This release is damaged: the number {text[:20]} is too large for a float.")
    return number


def whole_number(text: str) -> int:
    """Return a whole number; refuse one too long to be of use."""
    if len(text) > 21:  # 2^64 has 20 digits
        raise ValueError(f"This release is damaged: it has a whole number of {len(text)} digits.")
    return int(text)


def named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; refuse two fields of one name, of which readers could see either."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("This release is damaged: a field is in it twice.")
    return dict(pairs)


def refuse_constant(name: str) -> float:
    """Refuse NaN and infinity, which JSON does not have."""
    raise ValueError(f"This is not a release: {name} is not JSON.")
