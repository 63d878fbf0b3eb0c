"""Confidential records: how a query is written over them, and which variables of a model they are.

A *release* is a random variable whose operation carries a privacy guarantee; its query is the first of
its distribution parameters. The free variables behind the query that have the record axis as a batch axis,
and are conditionally independent along it, are the *records*, together with their latent per-record
parents. Everything else behind a query is a parameter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.rowlocal import MIXED, RowAnalysis, leaves_of, rule

QueryKind = Literal["central", "local", "function", "general"]
_KINDS: dict[str, QueryKind] = {
    "row": "local",
    "sum": "central",
    "function": "function",
    "mixed": "general",
}


def record_sum(t: Any) -> TensorVariable:
    """Sum per-record contributions over the leading record axis.

    This is the record-additive form of a query: when one record changes, the query is brought up to date in
    O(d) instead of O(n d).

    Parameters
    ----------
    t : tensor_like, shape (n, ...) or (n,)
        Row i holds what record i contributes to each statistic.

    Returns
    -------
    TensorVariable, shape (...) or ()
        The statistics.

    Raises
    ------
    ValueError
        If `t` has no axis to sum over.

    References
    ----------
    Ju, Awan, Gong & Rao (2022), "Data Augmentation MCMC for Bayesian Inference from Privatized Data",
    assumption 2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dp as dp
    >>> dp.record_sum(np.ones((5, 2))).eval()
    array([5., 5.])
    """
    t = pt.as_tensor_variable(t)
    if t.ndim == 0:
        raise ValueError(
            "`t` is a scalar: record_sum needs per-record contributions with a leading record axis, "
            "shape (n,) or (n, d)."
        )
    return t.sum(axis=0)


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
    return pt.clip(pt.as_tensor_variable(x), lo, hi)


@dataclass
class Release:
    """One observed release and how its query uses the records."""

    rv: TensorVariable
    query: TensorVariable
    kind: QueryKind

    @property
    def name(self) -> str:
        return str(self.rv.name)


@dataclass
class RecordBlock:
    """Record variables that share the record axis, with everything in the model that depends on them."""

    records: list[TensorVariable]
    n: int
    analysis: RowAnalysis
    releases: list[Release]
    terms: list[TensorVariable] = field(default_factory=list)  # children that are no release
    potentials: list[TensorVariable] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [str(r.name) for r in self.records]


def is_release(rv: Variable) -> bool:
    """Whether a variable is the output of a privacy mechanism."""
    return rv.owner is not None and hasattr(rv.owner.op, "guarantee")


def query_of(rv: Variable) -> TensorVariable:
    """Return the query behind a release."""
    assert rv.owner is not None
    return rv.owner.op.dist_params(rv.owner)[0]


def parameters_of(rv: Variable) -> list[Variable]:
    """Return the distribution parameters of a random variable."""
    assert rv.owner is not None
    return list(rv.owner.op.dist_params(rv.owner))


def find_record_blocks(model: Model) -> list[RecordBlock]:
    """Find the confidential records of a model.

    Parameters
    ----------
    model : pymc.Model
        Model with at least one observed release.

    Returns
    -------
    list of RecordBlock
        One block per set of records that have to move together; empty if the model has no release.

    Raises
    ------
    ValueError
        If a query touches no record, or if records are not conditionally independent of each other.
    """
    observed = [rv for rv in model.observed_RVs if is_release(rv)]
    if not observed:
        return []
    lengths = _leading_lengths(model)
    merged: list[tuple[set[Variable], int, list[Variable]]] = []
    for rv in observed:
        records, n = _records_behind(model, rv, lengths)
        together, joined = records, [rv]
        for block in list(merged):
            if block[0] & together:
                if block[1] != n:
                    raise ValueError(
                        f"The releases {_names(block[2])} and {rv.name} share records but disagree on their "
                        f"number ({block[1]} and {n}); name the records with `records=`."
                    )
                merged.remove(block)
                together, joined = together | block[0], block[2] + joined
        merged.append((together, n, joined))
    return [_block(model, *parts) for parts in merged]


def _leading_lengths(model: Model) -> dict[Variable, int]:
    """Lengths of the leading batch axis of every free variable that has one."""
    shapes = model.eval_rv_shapes()
    return {
        rv: int(shapes[rv.name][0])
        for rv in model.free_RVs
        if rv.owner is not None and rv.ndim - getattr(rv.owner.op, "ndim_supp", 0) >= 1
    }


def _records_behind(
    model: Model, release: Variable, lengths: dict[Variable, int]
) -> tuple[set[Variable], int]:
    query = query_of(release)
    variables = set(model.basic_RVs)
    leaves = [v for v in leaves_of([query], variables) if v in set(model.free_RVs)]
    names = getattr(release.owner.op, "records", None)
    if names is not None:
        chosen = {rv for rv in model.free_RVs if rv.name in names}
        if {rv.name for rv in chosen} != set(names):
            raise ValueError(f"`records` of {release.name} names {names}, not all free variables of the model.")
        sizes = {lengths.get(rv) for rv in chosen}
        if len(sizes) != 1 or None in sizes:
            raise ValueError(f"`records` of {release.name} must share one leading record axis; got {names}.")
        return _with_parents(model, chosen, sizes.pop(), lengths), lengths[next(iter(chosen))]
    candidates = [v for v in leaves if v in lengths]
    if not candidates:
        raise ValueError(_no_record_message(release, leaves))
    for n in sorted({lengths[v] for v in candidates}, reverse=True):
        same = [v for v in candidates if lengths[v] == n]
        for size in range(len(same), 0, -1):
            for chosen in map(set, combinations(same, size)):
                if RowAnalysis(chosen, n, variables).role(query) != MIXED:
                    return _with_parents(model, chosen, n, lengths), n
    n = max(lengths[v] for v in candidates)  # no row-local or additive reading: a general query
    return _with_parents(model, {v for v in candidates if lengths[v] == n}, n, lengths), n


def _no_record_message(release: Variable, leaves: list[Variable]) -> str:
    tied = [v for v in leaves if v.ndim and getattr(v.owner.op, "ndim_supp", 0) == v.ndim]
    if tied:
        return (
            f"The query of {release.name} uses {_names(tied)}, whose entries are tied together by one "
            "multivariate distribution, so they are not independent records. Give the record axis as a "
            "batch axis (for example pm.MvNormal(..., shape=(n, d)) with n records)."
        )
    return (
        f"The query of {release.name} touches no record: it must depend on a free random variable with a "
        f"leading record axis, shape (n,) or (n, d); it depends on {_names(leaves) or 'no free variable'}."
    )


def _with_parents(
    model: Model, records: set[Variable], n: int, lengths: dict[Variable, int]
) -> set[Variable]:
    """Add the latent per-record parents (x_i behind y_i when only y is released)."""
    found, queue, variables = set(records), list(records), set(model.basic_RVs)
    while queue:
        rv = queue.pop()
        for parent in leaves_of(parameters_of(rv), variables):
            if parent in lengths and parent not in found:
                analysis = RowAnalysis({parent}, n, variables)
                roles = [analysis.role(p) for p in parameters_of(rv)]
                # a parent of another length is a record only where its rows are placed among the records
                fits = lengths[parent] == n or parent in analysis.placements
                if fits and any(r.kind == "row" for r in roles) and MIXED not in roles:
                    found.add(parent)
                    queue.append(parent)
    return found


def _block(model: Model, records: set[Variable], n: int, releases: list[Variable]) -> RecordBlock:
    variables = set(model.basic_RVs)
    analysis = RowAnalysis(records, n, variables)
    # reading the joined columns first tells where partly observed covariates belong
    for graph in [*map(query_of, releases), *(p for r in records for p in parameters_of(r))]:
        analysis.role(graph)
    for placed in set(analysis.placements):
        if placed not in records:
            raise ValueError(f"{placed.name} is placed among the records {_names(records)} but is not one.")
    ordered = [rv for rv in model.free_RVs if rv in records]
    for rv in ordered:
        _check_independent(rv, analysis, n)
    found = [Release(rv, query_of(rv), _KINDS[analysis.role(query_of(rv)).kind]) for rv in releases]
    terms = [
        rv
        for rv in model.basic_RVs
        if rv not in records
        and rv not in set(releases)
        and set(leaves_of(parameters_of(rv), variables)) & records
    ]
    potentials = [p for p in model.potentials if set(ancestors([p], blockers=variables)) & records]
    for term in terms:
        node = term.owner
        assert node is not None
        if rule(node.op, node, [analysis.role(v) for v in node.inputs], analysis).kind != "row":
            raise ValueError(
                f"{term.name} depends on several records at once. A variable that depends on the records "
                f"{_names(records)} must have one row per record; write a statistic of all of them as a "
                "release."
            )
    return RecordBlock(ordered, n, analysis, found, terms, potentials)


def _check_independent(rv: Variable, analysis: RowAnalysis, n: int) -> None:
    node = rv.owner
    assert node is not None
    roles = [analysis.role(v) for v in node.inputs]
    free = all(r.kind == "free" for r in roles)
    placed = analysis.placements.get(rv)
    if placed is not None:
        free = all(r.kind == "free" or (r.kind == "row" and r.rows == placed) for r in roles)
    if free or (placed is None and rule(node.op, node, roles, analysis).kind == "row"):
        return
    raise ValueError(
        f"The rows of {rv.name} are not conditionally independent records: each of its {n} rows may depend "
        "on the same row of other records and on parameters only (no lag, cumulative sum, mean over "
        "records, random walk or Gaussian process along the record axis)."
    )


def _names(variables: Any) -> str:
    return ", ".join(sorted(str(v.name) for v in variables))


def clamp_query(query: TensorVariable, bounds: tuple[Any, Any]) -> tuple[TensorVariable, np.ndarray]:
    """Clamp what one record can contribute to a query, and say by how much it can change it.

    Rows of a local query are clamped elementwise. Of a sum or mean over the leading axis (possibly scaled
    by a constant, or stacked), each record's contribution is clamped before it is summed.

    Parameters
    ----------
    query : TensorVariable
        Query over the records.
    bounds : tuple of array_like
        Lower and upper ends, scalars or one per statistic.

    Returns
    -------
    clamped : TensorVariable
        The query of clamped values.
    width : ndarray
        How much each statistic can change when one record is replaced, in the shape of the statistics
        (central) or of one row (local).

    Raises
    ------
    ValueError
        If the query is neither local nor a plain sum or mean, so that clamping it is ambiguous.
    """
    lo, hi = (np.asarray(b, dtype=float) for b in bounds)
    clamped = _clamp_sum(query, lo, hi)
    if clamped is not None:
        graph, width = clamped
        return graph, width
    if query.ndim == 0:
        raise ValueError(
            "`bounds` cannot be applied to this scalar query: it is no plain sum or mean over the records. "
            "Clamp the contributions yourself (dp.record_sum(dp.clamp(x, lo, hi))) and pass `sensitivity=`."
        )
    _check_broadcast(lo, hi, query.ndim - 1, query.type.shape[1:])
    return clamp(query, lo, hi), np.broadcast_to(hi - lo, _static(query.type.shape[1:], (hi - lo).shape))


def _clamp_sum(
    query: TensorVariable, lo: np.ndarray, hi: np.ndarray
) -> tuple[TensorVariable, np.ndarray] | None:
    from pytensor.scalar.basic import Cast, Mul, TrueDiv
    from pytensor.tensor.basic import Join, MakeVector
    from pytensor.tensor.elemwise import DimShuffle, Elemwise
    from pytensor.tensor.math import Sum

    node = query.owner
    if node is None:
        return None
    if isinstance(node.op, Sum):
        (t,) = node.inputs
        axes = tuple(range(t.ndim)) if node.op.axis is None else tuple(node.op.axis)
        if 0 not in axes:
            return None
        rest = [a for a in axes if a != 0]
        rows = t.sum(axis=rest) if rest else t
        _check_broadcast(lo, hi, rows.ndim - 1, rows.type.shape[1:])
        width = np.broadcast_to(hi - lo, _static(query.type.shape, (hi - lo).shape))
        return clamp(rows, lo, hi).sum(axis=0), width
    if isinstance(node.op, DimShuffle):
        inner = _clamp_sum(node.inputs[0], lo.squeeze(), hi.squeeze())
        if inner is None:
            return None
        return node.op(inner[0]), inner[1].reshape(_static(query.type.shape, inner[1].shape))
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Cast):
        inner = _clamp_sum(node.inputs[0], lo, hi)
        return None if inner is None else (pt.cast(inner[0], query.dtype), inner[1])
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, TrueDiv | Mul) and len(node.inputs) == 2:
        for position, part in enumerate(node.inputs):
            inner = _clamp_sum(part, lo, hi)
            if inner is None or (position == 1 and isinstance(node.op.scalar_op, TrueDiv)):
                continue
            other = node.inputs[1 - position]
            try:
                factor = np.asarray(other.eval())
            except Exception:
                return None
            args = [inner[0], other] if position == 0 else [other, inner[0]]
            scale = 1 / factor if isinstance(node.op.scalar_op, TrueDiv) else factor
            return node.op(*args), np.abs(scale) * inner[1]
        return None
    if isinstance(node.op, MakeVector | Join):
        if isinstance(node.op, Join) and query.ndim != 1:
            return None
        sizes = [1 if v.ndim == 0 else v.type.shape[0] for v in node.inputs]
        if None in sizes:
            return None
        total = sum(sizes)  # type: ignore[arg-type]
        los, his = np.broadcast_to(lo, total), np.broadcast_to(hi, total)
        parts, widths, start = [], [], 0
        for v, size in zip(node.inputs, sizes, strict=True):
            stop = start + size  # type: ignore[operator]
            inner = _clamp_sum(v, los[start:stop].reshape(v.type.shape), his[start:stop].reshape(v.type.shape))
            if inner is None:
                return None
            parts.append(inner[0])
            widths.append(np.ravel(inner[1]))
            start = stop
        return node.op(*parts) if isinstance(node.op, MakeVector) else pt.concatenate(parts), np.concatenate(widths)
    return None


def _check_broadcast(lo: np.ndarray, hi: np.ndarray, ndim: int, shape: Sequence[int | None]) -> None:
    for name, b in (("lower", lo), ("upper", hi)):
        fits = b.ndim <= ndim and all(
            s in (1, k) or k is None for s, k in zip(b.shape[::-1], tuple(shape)[::-1], strict=False)
        )
        if not fits:
            raise ValueError(
                f"`bounds` has a {name} end of shape {b.shape}, but one record contributes an array of shape "
                f"{tuple(shape)}: give scalars or one pair per statistic."
            )


def _static(shape: Sequence[int | None], fallback: tuple[int, ...]) -> tuple[int, ...]:
    return fallback if any(s is None for s in shape) else tuple(int(s) for s in shape if s is not None)
