"""Confidential records: which variables of a model they are, and how a release's query uses them.

A *release* is a random variable whose operation carries a privacy guarantee; its query is the first
of its distribution parameters. The free variables behind the query that have the record axis as a
batch axis, and are conditionally independent along it, are the *records*, together with their
latent per-record parents. Everything else behind a query is a parameter.
"""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import combinations
from typing import Any, Literal

from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.counts import is_count_alone
from pymc_dp.query.lengths import joined_lengths, leading_lengths, lengths_of
from pymc_dp.query.publicshapes import is_shape
from pymc_dp.query.recordrules import (
    ONE_AXIS,
    apart_message,
    check_child,
    check_independent,
    check_parameters,
    check_some,
    named,
    no_record_message,
)
from pymc_dp.query.rowlocal import MIXED, RowAnalysis, leaves_of, rule
from pymc_dp.query.slotrules import count_of_people
from pymc_dp.query.tables import OfRows, Tables, find_tables, is_count, is_invariant

QueryKind = Literal["central", "local", "function", "general"]
_KINDS: dict[str, QueryKind] = {
    "row": "local",
    "sum": "central",
    "function": "function",
    "mixed": "general",
}


@dataclass
class Release:
    """One observed release and how its query uses the records."""

    rv: TensorVariable
    query: TensorVariable
    kind: QueryKind

    @property
    def name(self) -> str:
        """Name of the release in the model."""
        return str(self.rv.name)


@dataclass
class RecordBlock:
    """Record variables that share the record axis, with all that depends on them in the model."""

    records: list[TensorVariable]
    n: int
    analysis: RowAnalysis
    releases: list[Release]
    terms: list[TensorVariable] = field(default_factory=list)  # children that are no release
    potentials: list[TensorVariable] = field(default_factory=list)
    others: set[Variable] = field(default_factory=set)  # records of the model's other blocks
    count: TensorVariable | None = None  # how many of the n slots are people, if that is a variable
    decisions: dict[str, Any] = field(default_factory=dict)  # what steps worked out once for this block

    @property
    def names(self) -> list[str]:
        """Names of the record variables, in the model's order."""
        return [str(r.name) for r in self.records]


def is_release(rv: Variable) -> bool:
    """Whether a variable is the output of a privacy mechanism that has records behind it."""
    op = getattr(rv.owner, "op", None)
    return hasattr(op, "guarantee") and getattr(op, "of_records", True)


def is_noisy_count(model: Model, release: Variable) -> bool:
    """Whether a release is of how many people there are, a number of the model with no record behind it."""
    free, variables = set(model.free_RVs), set(model.basic_RVs)
    return is_count_alone([v for v in leaves_of([query_of(release)], variables) if v in free])


def query_of(rv: Variable) -> TensorVariable:
    """Return the query behind a release."""
    assert rv.owner is not None
    return rv.owner.op.dist_params(rv.owner)[0]


def is_elementwise(rv: Variable) -> bool:
    """Whether a release has one density per entry, each of one entry of the query."""
    assert rv.owner is not None
    return rv.owner.op.ndim_supp == 0 and not any(rv.owner.op.ndims_params)


def parameters_of(rv: Variable) -> list[Variable]:
    """Return the distribution parameters of a random variable."""
    node: Any = rv.owner
    if getattr(node.op, "extended_signature", "") is None:  # general truncations: all but generators and size
        size = node.op.base_rv_op.size_param(
            node
        )  # their inputs begin with those of the law that is truncated
        return [v for v in node.inputs if v is not size and not isinstance(v.type, RandomGeneratorType)]
    if not hasattr(node.op, "dist_params"):
        raise ValueError(f"{rv.name} is scaled by total_size: leave it out, and pass the rows of all people.")
    return list(node.op.dist_params(node))


def find_count_tables(model: Model, of_rows: OfRows | None = None) -> list[Tables]:
    """Find the tables of counts behind the releases of a model: counts that are no records.

    Parameters
    ----------
    model : pymc.Model
    of_rows : callable, optional
        Whether counts of rows with releases of their own are a table, as in :func:`find_tables`.

    Returns
    -------
    list of Tables

    Raises
    ------
    ValueError
        If an invariant is of something else than counts, or is not linear.
    """
    released = [rv for rv in model.observed_RVs if is_release(rv) and is_elementwise(rv)]
    return find_tables(model, [(rv, query_of(rv)) for rv in released], of_rows)


def data_in_queries(model: Model, of: Callable[[Any], bool] = is_count) -> tuple[bytes, ...]:
    """Return what changes with the data in queries that may be of tables, and in laws of counts.

    Those are coefficients, indices, and exposures beside parameters that are not known. `of` says which
    variables count.
    """
    counts = [rv for rv in model.free_RVs if of(rv)]
    if not counts:
        return ()
    queries = [
        rv.owner.inputs[-1] if is_invariant(rv) else query_of(rv)  # type: ignore[union-attr]
        for rv in model.observed_RVs
        if is_invariant(rv) or (is_release(rv) and is_elementwise(rv))
    ]
    free = set(model.free_RVs)
    laws = [v for rv in counts for v in parameters_of(rv) if free.intersection(leaves_of([v], free))]
    behind = ancestors([*queries, *laws], blockers=model.basic_RVs)
    data = [
        v for v in behind if isinstance(v, SharedVariable) and not isinstance(v.type, RandomGeneratorType)
    ]
    return tuple(blake2b(pickle.dumps(v.get_value(borrow=True))).digest() for v in data)


def find_record_blocks(model: Model, of_rows: OfRows | None = None) -> list[RecordBlock]:
    """Find the confidential records of a model.

    Parameters
    ----------
    model : pymc.Model
        Model with at least one observed release.
    of_rows : callable, optional
        As for :func:`find_count_tables`, whose counts are no records.

    Returns
    -------
    list of RecordBlock
        One block per set of records that have to move together; empty if the model has no release of records.

    Raises
    ------
    ValueError
        If a query touches no record, or if records are not conditionally independent of each other.
    """
    of_tables = {known.rv for tables in find_count_tables(model, of_rows) for known in tables.releases}
    released = [rv for rv in model.observed_RVs if is_release(rv) and rv not in of_tables]
    observed = [rv for rv in released if not is_noisy_count(model, rv)]
    if not observed:
        return []
    lengths = leading_lengths(model)
    merged: list[tuple[set[Variable], int, list[Variable]]] = []
    for rv in observed:
        records, n = _records_behind(model, rv, lengths)
        together, joined = records, [rv]
        for block in list(merged):
            if block[0] & together:
                if block[1] != n:
                    raise ValueError(
                        f"The releases {named(block[2])} and {rv.name} share records but disagree "
                        f"on their number ({block[1]} and {n}); name the records with `records=`."
                    )
                merged.remove(block)
                together, joined = together | block[0], block[2] + joined
        merged.append((together, n, joined))
    blocks = [_block(model, *parts) for parts in merged]
    for own in blocks:
        own.others = {rv for block in blocks if block is not own for rv in block.records}
    return blocks


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
            raise ValueError(
                f"`records` of {release.name} names {names}, not all free variables of the model."
            )
        sizes = {lengths.get(rv) for rv in chosen}
        if len(sizes) != 1 or None in sizes:
            raise ValueError(
                f"`records` of {release.name} must share one leading record axis; got {names}. {ONE_AXIS}"
            )
        if not chosen & set(leaves_of([query], variables)):
            raise ValueError(
                f"`records` of {release.name} names {names}, none of which its query depends on."
            )
        n = lengths[next(iter(chosen))]
        check_some(release, chosen, n)
        return _with_parents(model, chosen, n, lengths), n
    # the missing entries of a covariate stand for as many rows as the covariate has
    rows = {**lengths, **joined_lengths([query], variables)}
    candidates = [v for v in leaves if v in lengths]
    if not candidates:
        raise ValueError(no_record_message(release, leaves))
    check_some(release, candidates, max(rows[v] for v in candidates))
    chosen, n = _chosen(release, query, candidates, rows, variables)
    for rv in candidates:
        own, theirs = RowAnalysis({rv}, rows[rv], variables), RowAnalysis(chosen, n, variables)
        if rows[rv] != n and _are_apart(query, own, theirs, variables):
            raise ValueError(apart_message(release, rv, rows[rv], chosen, n))
    return _with_parents(model, chosen, n, lengths), n


def _chosen(
    release: Variable,
    query: TensorVariable,
    candidates: list[Variable],
    rows: dict[Variable, int],
    variables: set[Variable],
) -> tuple[set[Variable], int]:
    """Return which of the variables with rows are records, and how many records there are."""
    summed = _summed_over(query)
    if summed is not None:  # then its rows are the records, whatever else is longer
        n = lengths_of(summed.owner.inputs[0])[0]
        for chosen in _subsets([v for v in candidates if rows[v] == n]):
            analysis = RowAnalysis(chosen, n, variables)
            analysis.role(query)
            if summed in analysis.sums and analysis.role(summed.owner.inputs[0]).rows is None:
                return chosen, n
    for n in sorted({rows[v] for v in candidates}, reverse=True):
        for chosen in _subsets([v for v in candidates if rows[v] == n]):
            analysis = RowAnalysis(chosen, n, variables)
            if analysis.role(query).kind not in ("free", "mixed"):
                _check_rows_apart(release, summed, chosen, analysis)
                return chosen, n
    n = max(rows[v] for v in candidates)  # no row-local or additive reading: a general query
    return {v for v in candidates if rows[v] == n}, n


def _are_apart(query: Variable, own: RowAnalysis, theirs: RowAnalysis, variables: set[Variable]) -> bool:
    """Whether rows of another length than the records' meet these only when both are added up, or joined.

    Parameters meet records row by row, as coefficients and means of groups do.
    """
    apart = False
    for node in {v.owner for v in ancestors([query], blockers=variables) if v not in variables} - {None}:
        kinds = [(own.role(v).kind, theirs.role(v).kind) for v in node.inputs]
        mine, records = ({kind for kind in each if kind != "free"} for each in zip(*kinds, strict=True))
        if not mine or not records or any("free" not in pair for pair in kinds):
            continue  # it uses one of them, or they have met before
        if "row" in mine | records:
            if not (isinstance(node.op, Join) and "row" in mine and "row" in records):
                return False
        apart = True
    return apart


def _check_rows_apart(
    release: Variable, summed: Variable | None, records: set[Variable], analysis: RowAnalysis
) -> None:
    """Refuse a sum over rows that each mix several records, as those of a Gaussian process do."""
    if summed is None or lengths_of(summed.owner.inputs[0])[0] != analysis.n:
        return
    if analysis.role(summed.owner.inputs[0]).kind in ("sum", "function"):
        raise ValueError(
            f"The query of {release.name} sums rows that each depend on several rows of "
            f"{named(records)}, so they are not conditionally independent records (a Gaussian "
            "process, or another map along the record axis). If the rows of "
            f"{named(records)} are the confidential records, say so with `records=`."
        )


def _subsets(variables: list[Variable]) -> Iterator[set[Variable]]:
    """Yield the subsets of some variables, larger ones first."""
    for size in range(len(variables), 0, -1):
        yield from map(set, combinations(variables, size))


def _summed_over(query: Variable) -> Variable | None:
    """Return the sum over a leading axis that a query is, up to scaling."""
    node = query.owner
    while node is not None:
        if isinstance(node.op, Sum):
            return node.outputs[0] if node.op.axis is None or 0 in node.op.axis else None
        if not isinstance(node.op, Elemwise | DimShuffle):
            return None
        inner = [v for v in node.inputs if rvs_in_graph(v) and not is_shape(v)]
        if len(inner) != 1:
            return None
        node = inner[0].owner
    return None


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
                # a parent of another length is a record only where its rows are placed among them
                fits = lengths[parent] == n or parent in analysis.placements
                local = any(r.kind == "row" and r.rows is None for r in roles)
                if fits and local and MIXED not in roles and _along_the_rows(rv, parent, analysis):
                    found.add(parent)
                    queue.append(parent)
    return found


def _along_the_rows(rv: Variable, parent: Variable, analysis: RowAnalysis) -> bool:
    """Whether the rows of a parent run along those of its child, not along another axis of equal length."""
    if parent in analysis.placements:
        return True
    node = rv.owner
    assert node is not None
    return rule(node.op, node, [analysis.role(v) for v in node.inputs], analysis).kind == "row"


def _block(model: Model, records: set[Variable], n: int, releases: list[Variable]) -> RecordBlock:
    variables = set(model.basic_RVs)
    analysis = RowAnalysis(records, n, variables)
    # reading the joined columns first tells where partly observed covariates belong
    for graph in [*map(query_of, releases), *(p for r in records for p in parameters_of(r))]:
        analysis.role(graph)
    for placed in set(analysis.placements):
        if placed not in records:
            raise ValueError(f"{placed.name} is placed among the records {named(records)} but is not one.")
    ordered = [rv for rv in model.free_RVs if rv in records]
    for rv in ordered:
        check_independent(model, rv, analysis, n)
    found = [Release(rv, query_of(rv), _kind(rv, analysis)) for rv in releases]
    terms = [
        rv
        for rv in model.basic_RVs
        if rv not in records
        and rv not in set(releases)
        and set(leaves_of(parameters_of(rv), variables)) & records
    ]
    potentials = [p for p in model.potentials if set(ancestors([p], blockers=variables)) & records]
    for rv in [*releases, *filter(is_release, terms)]:
        check_parameters(rv, records, analysis)
    for term in terms:
        check_child(model, term, records, analysis)
    count = count_of_people(model, [(r.name, r.query, r.kind) for r in found], ordered, n)
    return RecordBlock(ordered, n, analysis, found, terms, potentials, count=count)


def _kind(release: Variable, analysis: RowAnalysis) -> QueryKind:
    """How a release uses the records, given how its query does."""
    query, op = query_of(release), release.owner.op  # type: ignore[union-attr]
    role = analysis.role(query)
    if role.kind == "row" and role.axis is not None and role.axis >= query.type.ndim - op.ndims_params[0]:
        return "general"  # one release of a whole array of records, not one of each row
    return _KINDS[role.kind]
