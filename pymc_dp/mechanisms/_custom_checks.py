"""Checks of a user's own mechanism when it is declared: its functions, its density, its draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._arguments import DECLARING
from pymc_dp.mechanisms._checks import held
from pymc_dp.mechanisms._custom_points import (
    PYTHON,
    Point,
    different_queries,
    function_at,
    points_of,
    released_dtype,
    short,
)
from pymc_dp.privacy._line import integrate
from pymc_dp.privacy.claims import NoDensity
from pymc_dp.privacy.guarantee import PrivacyGuarantee, in_words
from pymc_dp.query.contributions import says_its_records
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.recordrules import parameter_message
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.sums import rows_added_up

_A_LAW_OF_WHOLE_NUMBERS = (
    'If only whole numbers are released, their probabilities add up to 1 instead: give dtype="int64".'
)
_NEVER_RELEASED = "It must be -inf at whole numbers that are never released (pt.switch)."
_MORE, _LESS = 1e-4, 1e-3  # by which a density may miss an integral of one


def check_functions(logp: Any, random: Any, guarantee: Any) -> None:
    """Refuse what is no function, and a guarantee that is none."""
    if not callable(logp):
        raise TypeError(
            f"logp must be a function (value, query) -> log density, got {type(logp).__name__}: write it in "
            "PyTensor, as in lambda value, query: -pt.abs(value - query) - np.log(2)."
        )
    if random is not None and not callable(random):
        raise TypeError(
            f"random must be a function (query, rng, size) -> array, got {type(random).__name__}: write it "
            "in NumPy, as in lambda query, rng, size: rng.laplace(query, 1.0, size)."
        )
    if guarantee is not None and not isinstance(guarantee, PrivacyGuarantee):
        raise TypeError(
            f"guarantee must be a PrivacyGuarantee, got {type(guarantee).__name__}: for example "
            "dp.PrivacyGuarantee(1.0) for pure privacy with epsilon = 1."
        )


def as_parameter(k: int, value: Any) -> TensorVariable:
    """Return a further parameter as a tensor."""
    try:
        tensor = pt.as_tensor_variable(value)
    except (TypeError, ValueError, NotImplementedError):
        raise TypeError(
            f"parameter {k + 1} after the query must be a tensor or numbers, got {type(value).__name__}."
        ) from None
    if np.dtype(tensor.type.dtype).kind not in "biuf":
        raise TypeError(f"parameter {k + 1} after the query must be real, got dtype {tensor.type.dtype}.")
    return tensor


def check_parameters(query: TensorVariable, params: Sequence[TensorVariable]) -> None:
    """Refuse a parameter that adds up records, or reads those that the query adds up.

    Other parameters may read a record of their own row; a model tells whose they are.
    """
    rows = rows_added_up(query)
    people = set() if rows is None else _with_rows(rows, rows)
    for k, p in enumerate(params):
        variables = rvs_in_graph([p])
        for v in ancestors([p], blockers=variables):
            if v.owner is not None and isinstance(v.owner.op, Sum) and says_its_records(v):
                raise ValueError(parameter_message(k, _with_rows(p, v.owner.inputs[0])))
        shared = people & set(leaves_of([p], variables))
        if shared:
            raise ValueError(parameter_message(k, shared))


def _with_rows(graph: TensorVariable, rows: TensorVariable) -> set[Variable]:
    """Return the random variables behind a graph that have as many rows as others."""
    n = lengths_of(rows)[0]
    leaves = leaves_of([graph], rvs_in_graph([graph]))
    return {v for v in leaves if v.type.ndim and lengths_of(v)[0] == n}


def signature_of(
    logp: Callable[..., Any],
    query: TensorVariable,
    params: Sequence[TensorVariable],
    signature: str | None,
    dtype: str,
) -> str:
    """Return how many axes belong to one release, from the shape of the log density."""
    dtype = released_dtype(dtype)
    if np.dtype(dtype).kind not in "if":
        raise TypeError(f"dtype must be a kind of real or whole numbers, got {dtype!r}.")
    if signature is not None:
        (first, *others), released = _parsed(signature, query)
        if len(others) != len(params):
            raise ValueError(
                f"signature = {signature!r} is for {len(others)} parameters after the query, but "
                f"{len(params)} are given: write the axes of each, as in '(k),()->()'."
            )
        _called(logp, pt.tensor(dtype=dtype, shape=(None,) * len(released)), query, params, len(first))
        return signature
    whole = pt.tensor("value", dtype=dtype, shape=query.type.shape)
    density = _called(logp, whole, query, params, query.ndim)
    core = query.ndim - density.ndim
    leading = query.type.shape[: density.ndim]
    fits = core >= 0 and all(
        a is None or b is None or a == b for a, b in zip(density.type.shape, leading, strict=True)
    )
    if not fits:
        raise ValueError(
            f"logp returns shape {density.type.shape} for a query of shape {query.type.shape}: it must "
            "return one log density of each entry (the query's shape), of each row (the shape of its leading "
            "axes), or of the whole release (a scalar)."
        )
    if 0 < density.ndim:  # each entry or row must have its own density
        _called(logp, pt.tensor(dtype=dtype, shape=query.type.shape[density.ndim :]), query, params, core)
    axes = [",".join(f"q{j}" for j in range(core))]
    for k, p in enumerate(params):
        own = p.ndim if p.ndim <= core else p.ndim - density.ndim
        if own < 0 or p.ndim > query.ndim:
            raise ValueError(
                f"parameter {k + 1} after the query has {p.ndim} axes, more than the query's {query.ndim}: "
                "give one number, or one per entry."
            )
        axes.append(",".join(f"p{k}{j}" for j in range(own if core else 0)))
    return f"{','.join(f'({a})' for a in axes)}->({axes[0]})"


def release_shape(signature: str, query: TensorVariable) -> tuple[int | None, ...]:
    """Return the static shape of a release."""
    (first, *_), released = _parsed(signature, query)
    batch = query.ndim - len(first)
    lengths = dict(zip(first, query.type.shape[batch:], strict=True))
    return (*query.type.shape[:batch], *(lengths[name] for name in released))


def _parsed(signature: str, query: TensorVariable) -> Any:
    """Return the names of the axes of query and parameters, and of the release."""
    try:
        law = RandomVariable("release", signature=signature, dtype="float64")
    except (ValueError, TypeError):
        raise ValueError(
            f"signature must name the axes of query and release, as in '(k)->()', got {signature!r}."
        ) from None
    read, released = law.inputs_sig, law.output_sig
    if not read or len(read[0]) > query.ndim or not set(released) <= set(read[0]):
        raise ValueError(
            f"signature = {signature!r} does not fit a query with {query.ndim} axes: name the axes of one "
            "release's query, and of the release, which must be among them, as in '(k)->()'."
        )
    return read, released


def _called(
    logp: Callable[..., Any], value: TensorVariable, query: TensorVariable, params: Sequence[Any], core: int
) -> TensorVariable:
    """Return the log density of symbolic arguments, one release of `core` axes; refuse what it cannot be."""
    batch = query.ndim - core
    of_one = [pt.tensor("query", dtype=query.dtype, shape=query.type.shape[batch:])]
    for p in params:
        axes = p.ndim if p.ndim <= core else max(p.ndim - batch, 0)
        of_one.append(pt.tensor("parameter", dtype=p.dtype, shape=p.type.shape[p.ndim - axes :]))
    try:
        density = pt.as_tensor_variable(logp(value, *of_one))
    except Exception as error:
        raise ValueError(
            f"logp could not be called with a value of {value.ndim} axes, a query of {core} axes and "
            f"{len(params)} further parameters ({type(error).__name__}: {error}): it must be a function "
            "(value, query, *params) of PyTensor's, and of one entry where it returns one density for each."
        ) from error
    if core < query.ndim and density.ndim != 0:
        raise ValueError(
            f"logp returns {density.ndim} axes for one release of {core} axes: it must be one number."
        )
    found = set(ancestors([density]))
    for name, argument in (("value", value), ("query", of_one[0])):
        if argument not in found:
            raise ValueError(
                f"logp ignores the {name}: it must be the log density of the released value given the query, "
                "and depend on both."
            )
    if any(v.type.dtype == "bool" and _is_sum(v) for v in found if isinstance(v, TensorVariable)):
        raise ValueError(
            "logp adds booleans, of which PyTensor makes 1 in Python and 2 in compiled code where two "
            "of them hold: cast each to a number first, as in pt.cast(value > query, 'float64')."
        )
    hidden = sorted({str(v.name) for v in rvs_in_graph([density])})
    if hidden:
        raise ValueError(
            f"logp reads {in_words(hidden)}, random and not among its arguments, so that a sampler could not "
            f"move it: pass it after the query, as in CustomMechanism(name, query, {hidden[0]}, logp=...), "
            f"and take it as in logp(value, query, {hidden[0]})."
        )
    if np.dtype(density.dtype).kind != "f":
        raise ValueError(f"logp must return real numbers, got dtype {density.dtype}.")
    return density


def _is_sum(v: TensorVariable) -> bool:
    return v.owner is not None and isinstance(getattr(v.owner.op, "scalar_op", None), ps.Add)


def checked_draw(
    random: Callable[..., Any], params: Point, rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> np.ndarray:
    """Return a draw of the user's function, in the shape and of the kind that it must have."""
    drawn = np.asarray(random(*params, rng=rng, size=shape))
    if drawn.shape != shape:
        raise ValueError(
            f"random returned shape {drawn.shape}, but size={shape} was asked for: return an array of shape "
            "`size`, as in rng.normal(query, 1.0, size)."
        )
    if drawn.dtype.kind not in "biuf" or not np.isfinite(drawn).all():
        raise ValueError("random returned what is no finite real number: a release is made of these.")
    cast = drawn.astype(released_dtype(dtype))
    if np.dtype(cast.dtype).kind == "i" and (cast != drawn).any():
        raise ValueError(f"random returned fractions, but dtype={dtype!r}: return whole numbers.")
    return cast


def check_law(
    op: Any, query: TensorVariable, params: Sequence[TensorVariable], observed: Any, said: bool
) -> list[Point]:
    """Evaluate density and draws at queries that the model can have; return these with their parameters.

    `said` is whether the user gave the signature; otherwise the shape of the density told it.
    """
    try:
        points = points_of([query, *params])
    except Exception as error:  # a flat prior, parameters outside of a law's domain, an input without a value
        warnings.warn(
            "The density, draws and guarantee of this CustomMechanism are not compared with each other, "
            f"because its query cannot be drawn from the prior ({type(error).__name__}): see to it that logp "
            "integrates to one.",
            UserWarning,
            skip_file_prefixes=DECLARING,
        )
        return []
    if op.random is not None:
        op.rng_fn(np.random.default_rng(0), *points[0], None)
    if not said:
        _check_entries(op, query, params, points)
    if observed is not None:
        _check_observed(op, points, observed)
    # of other releases nobody knows here where their mass is, or there are too many numbers to integrate over
    if op.ndim_supp == 0 and not any(op.ndims_params):
        _check_density(op, points, observed)
    return points


def _check_entries(op: Any, query: TensorVariable, params: Sequence[Any], points: list[Point]) -> None:
    """Refuse a density that has one number for each entry, but depends on the other entries."""
    if op.ndims_params[0] == query.ndim:
        return
    inputs = [pt.tensor(dtype=p.dtype, shape=p.type.shape) for p in (query, *params)]
    value = pt.tensor(dtype=released_dtype(op.dtype), shape=query.type.shape)
    both = [op.log_density_apart(value, *inputs), op.density(value, *inputs)]
    compiled = pytensor.function([value, *inputs], both, mode=PYTHON, on_unused_input="ignore")
    for point in points[:2]:
        spread = np.linspace(-1, 1, point[0].size).reshape(point[0].shape)
        with np.errstate(all="ignore"):
            one, other = compiled((point[0] + spread).astype(value.dtype), *point)
        if not np.allclose(one, other, rtol=1e-6, atol=1e-9, equal_nan=True):
            raise ValueError(
                "logp returns one log density for each entry, but that of one entry depends on the others: "
                "return their sum, a scalar, for a release whose entries are not independent."
            )


def _check_observed(op: Any, points: list[Point], observed: Any) -> None:
    value = held(observed)
    if not isinstance(value, np.ndarray | float | int):
        return
    released = pt.tensor(dtype=released_dtype(op.dtype), shape=(None,) * np.ndim(value))
    density = function_at(op, released, points[0], [p.ndim for p in points[0]])
    for point in points:
        found = density(np.asarray(value, dtype=released.dtype), *point)
        if np.isnan(found).any():
            raise ValueError(
                f"logp is NaN at the observed value {short(value)} for the query {short(point[0])}: return "
                "-inf where a release is impossible (pt.switch), with logarithms of positive numbers only."
            )


def _check_density(op: Any, points: list[Point], observed: Any) -> None:
    """Integrate the density of one entry, at a few queries."""
    value = pt.vector(dtype=released_dtype(op.dtype))
    whole = np.dtype(value.dtype).kind == "i"
    discrete = _NEVER_RELEASED if whole else _A_LAW_OF_WHOLE_NUMBERS
    singles = different_queries(op, points)
    density = function_at(op, value, singles[0], op.ndims_params)
    near = [] if observed is None else np.ravel(np.asarray(held(observed), dtype=float))[:4].tolist()
    # with parameters, nobody knows which of the two it is that a density changes with
    ignored = not any(len(p) > 1 for p in singles) and len({tuple(np.ravel(s[0])) for s in singles}) > 1
    for k, single in enumerate(singles):
        centres = [*np.ravel(single[0])[:8], 0.0, *near]
        if op.random is not None:
            rng = np.random.default_rng(0)
            centres += [float(op.rng_fn(rng, *single, None)) for _ in range(8)]

        def mass(values: np.ndarray, single: Point = single, other: Point = singles[k - 1]) -> np.ndarray:
            nonlocal ignored
            values = values.astype(value.dtype)
            found = density(values, *single)
            if np.isnan(found).any():
                where = values[int(np.argmax(np.isnan(np.broadcast_to(found, values.shape))))]
                raise NoDensity(
                    f"logp is NaN at the value {where:g} for the query {short(single[0])}: return -inf "
                    "where a release is impossible (pt.switch)."
                )
            if ignored:  # compared wherever the integral goes, as it looks for mass and jumps of any scale
                ignored = np.array_equal(found, density(values, *other))
            with np.errstate(over="ignore"):
                return np.exp(np.broadcast_to(found, values.shape))[None]

        (total,), (error,) = integrate(mass, centres, whole=whole)
        at = f"for the query {short(single[0])}"
        kind = "adds up" if whole else "integrates"
        if not total < 1 + _MORE + 10 * error:
            raise ValueError(
                f"logp is no log density of the value: its exponential {kind} to {total:g} {at}, not to 1. "
                "Subtract the logarithm of that, as a function of the query and of the parameters. "
                f"{discrete}"
            )
        if total + error < 1 - _LESS:
            warnings.warn(
                f"The exponential of logp {kind} to {total:g} {at}, not to 1. Either it is no density of the "
                "value, or its mass is where the quadrature does not look (far from the query, 0, the "
                "observed value and the draws of random=; in a pole so steep that floating point has no "
                f"numbers there). {discrete}",
                skip_file_prefixes=DECLARING,
            )
            ignored = False  # the rest of the mass may well depend on the query
    if ignored:
        raise ValueError(
            "logp ignores the query: it has the same values at the queries that were drawn from the prior. "
            "It must be the log density of the released value given the query."
        )
