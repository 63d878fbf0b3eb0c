"""How a release is drawn from confidential data, and how a release is declared in a model."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import explicit_graph_inputs, graph_inputs
from pytensor.tensor import constant
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.flags import flags_lock
from pymc_dp.mechanisms._checks import as_variable
from pymc_dp.mechanisms._debit import Debit
from pymc_dp.mechanisms._numbers import records_averaged
from pymc_dp.privacy._ledger_file import LedgerFileError
from pymc_dp.privacy.bounds import hashable_bounds, parse_bounds
from pymc_dp.privacy.entropy import NoEntropyError
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.privacy.ledger import BudgetExceededError
from pymc_dp.privacy.release import Release
from pymc_dp.query.publicshapes import is_number, value_is_public
from pymc_dp.query.readings import AS_WRITTEN

_FAILED = "query could not be computed from the data ({}): try it on invented data first."
_NEVER = {
    "rng": "the noise of a release comes from the operating system's entropy, so that nobody can repeat it",
    "random_seed": "the noise of a release comes from the operating system's entropy, so that nobody "
    "can repeat it",
    "observed": "release() draws the value; declare a published one with the mechanism itself",
    "dims": "a release has the shape of its query",
    "shape": "a release has the shape of its query",
    "size": "a release has the shape of its query",
    "initval": "a release has no starting point",
    "records": "the query is made of data, not of a model's variables",
    "processing": "process the release that it returns, by its postprocessed(...)",
    "return_next_rng": "the noise of a release comes from the operating system's entropy",
    "promised": "the guarantee follows from the noise",
    "granularity": "the grid that sums are rounded to follows from the noise",
    "changes": "what one person can change follows from the query",
    "n_records": "how many records the query is of follows from the data",
}
# arguments that only mechanisms pass to each other
_INTERNAL = frozenset({"op_class", "props", "expected", "promised"})
_NOISE_TOO_LARGE = ("A draw of the noise does not fit", "noise must be finite")  # by the exact samplers
# Numbers that a release states besides the arguments of its mechanism.
_STATED = {"granularity", "n_records", "changes"}
# Arguments that may be a graph in a model; a release is drawn with their value.
_LEVELS = {"scale", "sigma", "theta", "p_truth", "p_answer"}
# Parts of a release's guarantee, which are compared with the budget that a declaration repeats.
_BUDGET = ("epsilon", "delta", "rho")


def evaluate(variable: TensorVariable) -> np.ndarray:
    """Return the value of a graph without random variables, computed by NumPy alone."""
    fn = pytensor.function([], variable, mode=AS_WRITTEN, on_unused_input="ignore")
    try:
        return np.asarray(fn())
    except Exception as error:  # PyTensor's own messages quote numbers of the computation
        kind = type(error).__name__
    raise ValueError(_FAILED.format(kind))


def without_cause[Read](read: Callable[[], Read]) -> Read:
    """Return the result of a function that reads confidential data, and drop the causes of its errors."""
    try:
        return read()
    except TypeError as error:
        refusal: Exception = TypeError(str(error))
    except ValueError as error:
        refusal = ValueError(str(error))
    except Exception as error:
        refusal = ValueError(_FAILED.format(type(error).__name__))
    raise refusal


def refuse_internal(mechanism: Any, given: dict[str, Any]) -> None:
    """Refuse arguments that only mechanisms pass to each other."""
    internal = _INTERNAL & given.keys()
    if internal:
        raise TypeError(f"{mechanism.__name__} got an unexpected keyword argument {min(internal)!r}.")


def draw_release(mechanism: Any, query: Any, noise: dict[str, Any], debit: Debit) -> Release:
    """Draw a release of confidential data by a mechanism; see ``Mechanism.release``."""
    name = mechanism.__name__
    for key in _NEVER:
        if key in noise:
            raise TypeError(f"{name}.release takes no {key}=: {_NEVER[key]}.")
    refuse_internal(mechanism, noise)
    refusal: Exception | None = None
    try:
        noise = {key: _level(value) if key in _LEVELS else value for key, value in noise.items()}
        op, value, known, guarantee, published = _draw(mechanism, query, noise, debit)
    except (OSError, NoEntropyError, BudgetExceededError, LedgerFileError) as error:
        if debit.entry is not None:
            error.add_note(debit.after_refusal().strip())
        raise
    except Exception as error:
        if str(error).startswith(_NOISE_TOO_LARGE):
            refusal = ValueError(_too_much_noise(noise))
        elif isinstance(error, TypeError | ValueError):
            kind = TypeError if isinstance(error, TypeError) else ValueError
            refusal = kind(getattr(error, "blind", None) or str(error))
        else:  # an error of a library, which may quote numbers
            refusal = ValueError(_FAILED.format(type(error).__name__))
    if refusal is not None:
        # with people added or removed, their number is confidential, too
        if noise.get("neighbours") == "add-remove" or not _is_of_settings(
            str(refusal), mechanism, query, noise
        ):
            refusal = type(refusal)(_without_data(str(refusal), query, noise))
        refusal = type(refusal)(str(refusal) + debit.after_refusal())
        # It is raised outside of the except block: Python would show the original error with it, and the
        # messages of libraries may quote confidential numbers.
        raise refusal
    if guarantee is None:
        warnings.warn(
            f"The guarantee of this release by {name} is not known: its noise level was given without "
            "sensitivity= or bounds=.",
            stacklevel=3,
        )
    parameters = mechanism._declaration(op, known) | published
    if noise.get("sensitivity") is not None:
        parameters.setdefault("sensitivity", float(noise["sensitivity"]))
    return Release(value, name, parameters, guarantee, name=debit.name)


def _too_much_noise(noise: dict[str, Any]) -> str:
    """Return a message that says which argument asks for noise that cannot be drawn."""
    levels = ("epsilon", "rho", "scale", "sigma")
    key = next((k for k in levels if noise.get(k) is not None), "the noise level")
    level = np.ravel(noise.get(key, ()))
    value = f" = {level[0]:g}" if level.size == 1 else ""
    change = "larger" if key in _BUDGET else "smaller"
    return (
        f"{key}{value} asks for so much noise that its draws would not be finite, or too large for the "
        f"integers that they are drawn in: give a {change} {key}."
    )


def _draw(
    mechanism: Any, query: Any, noise: dict[str, Any], debit: Debit
) -> tuple[Any, np.ndarray, list[np.ndarray], PrivacyGuarantee | None, dict[str, Any]]:
    """Return the operation, and the result of ``Mechanism._draw_release``."""
    name = mechanism.__name__
    for key, value in noise.items():
        _check_public(key, value)
    # inner graphs are compiled in the mode of the configuration; counts and noise levels need float64
    with flags_lock, pytensor.config.change_flags(mode=AS_WRITTEN, cxx="", floatX="float64"):
        rv = mechanism.dist(query, **noise)
        op = rv.owner.op
        clamped, *params = op.dist_params(rv.owner)
        if rvs_in_graph([clamped, *params]):
            raise ValueError(
                f"{name}.release works on data, but its arguments depend on random variables: pass "
                "the confidential values, such as dp.record_sum(array), and known noise levels. In a "
                f"model, declare dp.{name}(...) instead."
            )
        # clamping keeps NaN, but a histogram would leave it out of all counts
        if not np.isfinite(evaluate(clamped)).all() or np.isnan(evaluate(as_variable(query))).any():
            raise ValueError(
                "query has NaN or infinite entries: the release would show them, whatever the noise. "
                "Clean the confidential values first."
            )
        known = [evaluate(p) for p in params]
        mechanism._check_release(op)
        debit.pay(op.guarantee)
        value, known, guarantee, published = mechanism._draw_release(op, clamped, known)
        if op.additive_noise and op.bounds is not None and noise.get("sensitivity") is None:
            # bounds in a file do not show how the query changes with one person's contribution
            prepared = mechanism._prepare(
                query,
                sensitivity=None,
                bounds=noise["bounds"],
                order=1,
                neighbours=noise.get("neighbours", "replace-one"),
            )
            published = {"changes": prepared.width} | published
    if guarantee is not None and guarantee.neighbours == "replace-one" and noise.get("sensitivity") is None:
        # the sensitivity of a mean depends on the number of records
        n = None if op.bounds is None else records_averaged(clamped)
        published = published if n is None else {"n_records": n} | published
    return op, value, known, guarantee, published


def _check_public(key: str, setting: Any) -> None:
    """Refuse a setting that a graph computes from arrays: settings are published, arrays may be secret."""
    for v in setting if isinstance(setting, list | tuple) else [setting]:
        if isinstance(v, Variable) and v.owner is not None and not rvs_in_graph([v]):
            if not value_is_public(v, is_number, in_model=False):
                raise ValueError(
                    f"{key} is computed from arrays, and would be published without noise: give known "
                    "numbers, chosen without looking at the data."
                )


def _level(value: Any) -> Any:
    """Return a noise level that a graph computes as a number, which is checked as any other.

    A level that depends on random variables, or that may show data, is returned as it is, to be refused.
    """
    if isinstance(value, list | tuple) and any(isinstance(v, Variable) for v in value):
        value = as_variable(value)
    if not isinstance(value, TensorVariable) or isinstance(value, TensorConstant) or rvs_in_graph([value]):
        return value
    if not isinstance(value, SharedVariable) and not value_is_public(value, is_number, in_model=False):
        return value
    inputs = [str(v) for v in explicit_graph_inputs([value])]
    if inputs:
        raise ValueError(
            f"A noise level depends on {', '.join(inputs)}, an input without a value: give numbers."
        )
    return evaluate(value)


def _is_of_settings(message: str, mechanism: Any, query: Any, noise: dict[str, Any]) -> bool:
    """Return whether zeros in the place of the data raise the same error, which then reveals no data."""
    try:
        tensor = as_variable(query)
        zeros: dict[Variable, Variable] = {}
        for v in graph_inputs([tensor]):
            values = v.data if isinstance(v, TensorConstant) else v.get_value()  # type: ignore[attr-defined]
            if v is tensor or values.ndim or values.dtype.kind == "f":  # other scalars are axes and lengths
                zeros[v] = constant(np.zeros_like(values))
        mechanism.dist(graph_replace([tensor], zeros, strict=False)[0], **noise)
    except Exception as error:
        return str(error) == message
    return False


def _without_data(message: str, query: Any, noise: dict[str, Any]) -> str:
    """Return an error message without confidential numbers.

    There is no list of all numbers that can be computed from the data. So only these numbers are kept: those
    of the arguments, the lengths, and those that are part of a word.
    """
    known = {0.0, 1.0, 2.0} | {v for n in noise.values() for v in _floats(n)}
    known |= {v - 1 for v in known}  # as K categories are 0, ..., K - 1
    if noise.get("neighbours") != "add-remove":
        known |= {float(k) for k in _lengths(query)}
    shown = {f"{v:g}" for v in known}

    def cleaned(found: re.Match) -> str:
        number = found.group()
        return number if f"{float(number):g}" in shown else "(a number not shown)"

    return re.sub(r"(?<![\w.^])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)", cleaned, message)


def _lengths(query: Any) -> tuple[int, ...]:
    if isinstance(query, Variable):
        return tuple(k for k in getattr(query.type, "shape", ()) if k is not None)
    try:
        return np.shape(query)
    except (TypeError, ValueError):
        return ()


def _floats(value: Any) -> list[float]:
    try:
        return np.ravel(np.asarray(value, dtype=float)).tolist()
    except (TypeError, ValueError):
        return []


def declared_by(mechanism: Any, release: Release, given: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a declaration whose observed value is a release.

    Parameters
    ----------
    mechanism : type
        The mechanism that is declared.
    release : Release
    given : dict
        Further arguments of the declaration, which may repeat what the release says.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        The release is by another mechanism, or `given` contradicts it.
    """
    name = mechanism.__name__
    if release.mechanism != name:
        raise ValueError(
            f"observed is a release of {release.mechanism}, not of {name}: declare it with "
            f"dp.{release.mechanism}."
        )
    if release.processing is None and given.get("processing") is None:
        _check_grid(release)
    signature = inspect.signature(mechanism.dist).parameters
    declares = {k for k, p in signature.items() if p.kind is p.KEYWORD_ONLY}  # the others are the query
    unknown = release.parameters.keys() - declares - _STATED
    if unknown:
        raise ValueError(
            f"observed states {', '.join(sorted(unknown))}, which is no parameter of {name} here: the "
            "release was written by a newer pymc_dp, or is damaged. Install the newest, or ask for it again."
        )
    arguments = {k: _argument(k, v) for k, v in release.parameters.items() if k in declares}
    for key, value in given.items():
        if key not in declares or value is None or key in mechanism.unpublished:
            continue
        if key in release.parameters:
            stated = release.parameters[key]
        elif key in _BUDGET and release.guarantee is not None:
            stated = getattr(release.guarantee, key)
        else:
            raise ValueError(
                f"{key}= was given beside a release, which does not state it: leave {key} out, the "
                "release holds all that is needed."
            )
        if not _agree(key, value, stated):
            raise ValueError(
                f"{key} = {value!r} contradicts the release, which states {key} = {stated!r}: leave "
                f"{key} out, or pass the release that it belongs to."
            )
    others = {k: v for k, v in given.items() if k not in declares or k in mechanism.unpublished}
    stated_n = {k: v for k, v in release.parameters.items() if k == "n_records"}
    return others | arguments | stated_n | {"promised": release.guarantee}


def _check_grid(release: Release) -> None:
    """Refuse a value that is not on the grid that the release states."""
    if "granularity" not in release.parameters:
        return
    granule, value = release.parameters["granularity"], np.ravel(release.value).astype(float)
    number = isinstance(granule, int | float) and not isinstance(granule, bool)
    if not number or not 0 < granule < np.inf:
        raise ValueError(
            f"observed states granularity = {granule!r}, which is no size: the release is damaged. Ask for "
            "it again."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        granules = value / granule  # exact, since a granule is a power of two
        off = np.isfinite(granules) & (granules != np.rint(granules))
    if off.any():
        raise ValueError(
            f"observed has the value {value[off][0]!r}, which is no multiple of the granularity = "
            f"{granule!r} that it states: the release was rounded, converted or damaged. "
            "Pass it as it was published."
        )


def as_declared(param: np.ndarray) -> Any:
    """Return a parameter as the user gave it: broadcasting may have added axes of length 1 to a number."""
    return param.item() if param.size == 1 else param


def _argument(key: str, value: Any) -> Any:
    """Return a parameter in the form that the mechanism takes: lists as arrays, bounds as a pair of ends."""
    if value is None or (key != "bounds" and not isinstance(value, tuple)):
        return value
    try:
        if key != "bounds":
            return np.asarray(value)
        low, high = value
        return np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    except (TypeError, ValueError):  # text among numbers, or rows of different lengths
        what = "pair of a lower and an upper end" if key == "bounds" else "array of numbers"
    raise ValueError(
        f"observed states {key} = {value!r}, which is no {what}: the release is damaged. Ask for it again."
    )


def _agree(key: str, given: Any, stated: Any) -> bool:
    if key == "bounds":
        try:
            return hashable_bounds(*parse_bounds(given)) == stated
        except (TypeError, ValueError):
            return False
    if isinstance(given, str) or isinstance(stated, str) or stated is None:
        return given == stated
    try:
        return bool(np.allclose(np.asarray(given, dtype=float), np.asarray(stated, dtype=float), 1e-9, 0))
    except (TypeError, ValueError):
        return False
