"""Tables of counts behind releases: which count variables of a model they are, and what is known of them.

A table is one count variable or several that releases or invariants tie together. It is never people: its law
is of counts, and everything that is known of it is a linear map of its cells. Where rows of counts can be
read as records as well (one noisy count of each, one noisy sum), they are records, which move together with
their parameters; tables are what the reading as records would serve badly, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.distribution import DiracDeltaRV, SymbolicRandomVariable
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.model.core import Model
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, walk
from pytensor.tensor.random.basic import (
    BernoulliRV,
    BetaBinomialRV,
    BinomialRV,
    GeometricRV,
    HyperGeometricRV,
    MultinomialRV,
    NegBinomialRV,
    PoissonRV,
)
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.contributions import says_its_records
from pymc_dp.query.linear import Linear, NotLinear, read_linear
from pymc_dp.query.rowlocal import RowAnalysis, leaves_of
from pymc_dp.upstream.pymc_private import _BaseMixtureRV

# Laws of several counts with a known sum, and of all that count people.
SHARED_TOTAL = (MultinomialRV, DirichletMultinomialRV)
OF_PEOPLE = (*SHARED_TOTAL, BinomialRV, BetaBinomialRV, NegBinomialRV, PoissonRV)
# Laws of single counts of which none is negative, and all between two that can be can be; and those whose
# counts begin at 0 or 1, so that mixtures of them have no gaps either.
_WITHOUT_GAPS = (
    BernoulliRV, BetaBinomialRV, BinomialRV, GeometricRV, NegBinomialRV, PoissonRV,
)  # fmt: skip

# Whether rows of counts, each with releases of its own, are a table: of a model, its counts and releases.
type OfRows = Callable[[Model, list[Any], Sequence[tuple[Any, Any]]], bool]


@dataclass(frozen=True)
class Known:
    """A release or an invariant, and its query as a linear map of the cells."""

    rv: TensorVariable
    query: TensorVariable
    linear: Linear

    @property
    def name(self) -> str:
        """Its name in the model."""
        return str(self.rv.name)


@dataclass(frozen=True)
class Tables:
    """Count variables that have to move together, as one line of cells.

    Attributes
    ----------
    variables : list of TensorVariable
        In the model's order.
    shapes : list of tuple of int
    first : list of int
        Where the cells of each variable begin.
    n_cells : int
    releases, invariants : list of Known
    """

    variables: list[TensorVariable]
    shapes: list[tuple[int, ...]]
    first: list[int]
    n_cells: int
    releases: list[Known]
    invariants: list[Known]

    @property
    def names(self) -> list[str]:
        """Names of the count variables."""
        return [str(v.name) for v in self.variables]


def is_invariant(rv: Variable) -> bool:
    """Whether a variable is a query that is known exactly."""
    return bool(getattr(getattr(rv.owner, "op", None), "is_invariant", False))


def is_count(rv: Variable) -> bool:
    """Whether a variable's law is of counts: whole numbers, each of its own or several with a known sum."""
    op: Any = getattr(rv.owner, "op", None)
    whole = str(rv.type.dtype).startswith(("int", "uint"))  # type: ignore[attr-defined]
    return whole and (isinstance(op, SHARED_TOTAL) or getattr(op, "ndim_supp", None) == 0)


def has_law_of_cells(law: Any, alone: bool = True) -> bool:
    """Whether a law is one that moves of cells reach all of: counts from 0 on, without gaps in between."""
    node = law.owner
    op: Any = getattr(node, "op", None)
    if isinstance(op, _WITHOUT_GAPS) or (alone and isinstance(op, (*SHARED_TOTAL, HyperGeometricRV))):
        return True
    if isinstance(op, _BaseMixtureRV) and len(node.inputs) > 3:
        return all(has_law_of_cells(component, alone=False) for component in node.inputs[2:])
    if isinstance(op, DiracDeltaRV):
        place = _known(node.inputs[-1])
        return bool(np.all(place >= 0) if alone else np.all(place == 0))
    return alone and isinstance(op, DiscreteUniformRV) and bool(np.all(_known(op.dist_params(node)[0]) >= 0))


def _known(graph: Any) -> np.ndarray:
    """Return the value of a constant, no numbers of anything else."""
    (folded,) = constant_fold([graph], raise_not_constant=False)
    return np.asarray(folded if isinstance(folded, np.ndarray) else np.nan, dtype=float)


def are_cells(query: TensorVariable) -> bool:
    """Whether a query is of counts only that can be of people, and not of one person's own."""
    random = nearest_random(query)
    return bool(random) and all(isinstance(v.owner.op, OF_PEOPLE) for v in random)  # type: ignore[union-attr]


def nearest_random(query: Variable) -> list[Variable]:
    """Return the random variables that a query is an expression of, not those behind their laws."""
    nearest = walk([query], lambda v: v.owner.inputs if v.owner and not _is_random(v) else ())
    return [v for v in nearest if _is_random(v)]


def _is_random(rv: Variable) -> bool:
    return isinstance(getattr(rv.owner, "op", None), RandomVariable | SymbolicRandomVariable)


def find_tables(
    model: Model, releases: Sequence[tuple[Variable, TensorVariable]], of_rows: OfRows | None = None
) -> list[Tables]:
    """Find the tables of counts of a model.

    Parameters
    ----------
    model : pymc.Model
    releases : sequence of (variable, query)
        Its observed releases.
    of_rows : callable, optional
        From model, counts and releases of each row alone to whether these are a table;
        :func:`adds_cells_of_a_row` if left out.

    Returns
    -------
    list of Tables
        One for each set of count variables that releases and invariants tie together.

    Raises
    ------
    ValueError
        If an invariant is of something else than counts, or is not linear, or counts that cannot be records
        are no table either.
    """
    variables, free = set(model.basic_RVs), set(model.free_RVs)
    invariants = [(rv, rv.owner.inputs[-1]) for rv in model.observed_RVs if is_invariant(rv)]
    if not invariants and not any(map(is_count, free)):
        return []
    groups: list[tuple[set[Variable], list[tuple[Variable, TensorVariable]]]] = []
    for rv, query in [*releases, *invariants]:
        leaves, known = {v for v in leaves_of([query], variables) if v in free}, [(rv, query)]
        for group in [g for g in groups if g[0] & leaves]:
            groups.remove(group)
            leaves, known = leaves | group[0], group[1] + known
        groups.append((leaves, known))
    order = {rv: k for k, rv in enumerate(model.basic_RVs)}
    found = []
    for leaves, known in groups:
        counts = sorted(leaves, key=lambda v: order[v])
        in_order = sorted(known, key=lambda k: order[k[0]])
        tables = _tables(model, counts, in_order, of_rows or adds_cells_of_a_row)
        if tables is not None:
            found.append(tables)
    return found


def _tables(
    model: Model, counts: list[Any], known: list[tuple[Variable, TensorVariable]], of_rows: OfRows
) -> Tables | None:
    """Return some variables as a table; None where they are records, or left to be refused as such."""
    exact = [rv for rv, _ in known if is_invariant(rv)]
    others = [str(v.name) for v in counts if not is_count(v)]
    if others or not counts:
        if exact:
            raise ValueError(
                f"The invariant {exact[0].name} is about {', '.join(others) or 'no free variable'}, and "
                "invariants are of counts that are not known: variables of pm.Multinomial, pm.Poisson, "
                "pm.Binomial, pm.NegativeBinomial and the like, in a linear query with known coefficients."
            )
        return None
    lengths = model.eval_rv_shapes()
    without = [str(v.name) for v in counts if 0 in lengths[str(v.name)][1:]]
    if without:
        raise ValueError(
            f"{', '.join(without)} has no cells (its shape is {tuple(map(int, lengths[without[0]]))}), so "
            f"that {known[0][0].name} tells of nobody: leave these counts and releases of them out."
        )
    if not exact and _are_records(model, counts, known, of_rows):
        return None
    others = [str(v.name) for v in counts if not has_law_of_cells(v)]
    if others and exact:
        raise ValueError(
            f"The invariant {exact[0].name} makes {', '.join(v.name for v in counts)} a table of counts, and "
            f"the law of {', '.join(others)} is not known to be of counts from 0 on without gaps: those of "
            "pm.Multinomial, pm.DirichletMultinomial, pm.Poisson, pm.NegativeBinomial, pm.Binomial, "
            "pm.BetaBinomial, pm.Bernoulli, pm.Geometric, pm.HyperGeometric and pm.DiscreteUniform with a "
            "constant lower end are, and zero-inflated ones."
        )
    if others:
        return None
    shapes, first = _placed(model, counts)
    read: list[Known] = []
    for rv, query in known:
        try:
            linear = read_linear(query, first, shapes)
        except NotLinear as error:
            if exact:
                raise ValueError(
                    f"The query of {rv.name} is no linear map of the counts "
                    f"{', '.join(v.name for v in counts)}, which the invariant {exact[0].name} makes a "
                    f"table: {error}. Sums, slices, products with known matrices and sums by an index are "
                    "linear."
                ) from None
            return None
        read.append(Known(rv, query, linear))  # type: ignore[arg-type]
    releases = [k for k in read if not is_invariant(k.rv)]
    invariants = [k for k in read if is_invariant(k.rv)]
    n_cells = sum(int(np.prod(shape)) for shape in shapes.values())
    tables = Tables(counts, list(shapes.values()), list(first.values()), n_cells, releases, invariants)
    return tables if _stands_alone(model, tables, bool(exact)) else None


def _are_records(
    model: Model, counts: list[Any], known: list[tuple[Variable, TensorVariable]], of_rows: OfRows
) -> bool:
    """Whether counts are read as records: the model says so, or one release is of each, or of their sum."""
    if any(getattr(rv.owner.op, "records", None) is not None for rv, _ in known):  # type: ignore[union-attr]
        return True
    sums = {v for _, query in known for v in ancestors([query], blockers=counts) if says_its_records(v)}
    if sums or all(v.type.ndim == 0 for v in counts):
        return True
    if any(isinstance(v.owner.op, SHARED_TOTAL) and v.type.ndim == 1 for v in counts):
        return False
    lengths = {model.eval_rv_shapes()[str(v.name)][:1] for v in counts}
    if len(lengths) > 1 or () in lengths:
        return False
    analysis = RowAnalysis(set(counts), int(next(iter(lengths))[0]), set(model.basic_RVs))
    kinds = [analysis.role(query).kind for _, query in known]
    if any(isinstance(v.owner.op, SHARED_TOTAL) for v in counts):
        return kinds == ["sum"]
    if set(kinds) == {"row"}:
        return not of_rows(model, counts, known)
    return "mixed" not in kinds and set(kinds) != {"row", "sum"}


def adds_cells_of_a_row(model: Model, counts: list[Any], known: Sequence[tuple[Any, Any]]) -> bool:
    """Whether releases, row by row, tell cells of a table and sums of them."""
    maps = maps_of_rows(model, counts, known)
    return maps is not None and at_several_levels(maps)


def maps_of_rows(model: Model, counts: list[Any], known: Sequence[tuple[Any, Any]]) -> list[Linear] | None:
    """Return the queries of counts with rows that may be cells of a table; None where they are not."""
    if not all(_counts_people(v) and has_law_of_cells(v) for v in counts) or _have_labels(model, counts):
        return None
    shapes, first = _placed(model, counts)
    try:
        return [read_linear(query, first, shapes) for _, query in known]
    except NotLinear:
        return None


def _have_labels(model: Model, counts: list[Any]) -> bool:
    """Whether the law of a row depends on whole numbers of its own, such as the label of a cluster.

    Steps of mixtures and of records move these with the counts; beside a table nothing would.
    """
    lengths, free = model.eval_rv_shapes(), set(model.free_RVs)
    rows = lengths[str(counts[0].name)][:1]
    behind = leaves_of([v for rv in counts for v in _inputs(rv)], set(model.basic_RVs))
    return any(
        v in free and v.type.dtype.startswith(("int", "uint", "bool")) and lengths[str(v.name)][:1] == rows  # type: ignore[attr-defined]
        for v in behind
        if v not in counts
    )


def at_several_levels(maps: Sequence[Linear]) -> bool:
    """Whether entries of some queries add cells, and others tell these as well, or there are several."""
    adds = any((np.diff(linear.matrix.indptr) > 1).any() for linear in maps)
    told = np.concatenate([linear.matrix.indices for linear in maps])
    return adds and (len(maps) > 1 or np.unique(told).size < told.size)


def _counts_people(law: Any) -> bool:
    """Whether a law is of numbers of people or things, and not of one person's answer."""
    op: Any = getattr(law.owner, "op", None)
    if isinstance(op, _BaseMixtureRV):
        return all(map(_counts_people, law.owner.inputs[2:]))
    return isinstance(op, (*OF_PEOPLE, DiracDeltaRV, GeometricRV))


def _placed(model: Model, counts: list[Any]) -> tuple[dict[Variable, tuple[int, ...]], dict[Variable, int]]:
    """Return the shapes of count variables, and where the cells of each begin in one line."""
    lengths = model.eval_rv_shapes()
    shapes: dict[Variable, tuple[int, ...]] = {v: tuple(map(int, lengths[str(v.name)])) for v in counts}
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes.values())])
    return shapes, {v: int(k) for v, k in zip(counts, ends, strict=False)}


def _stands_alone(model: Model, tables: Tables, needed: bool) -> bool:
    """Whether nothing else depends on the counts; said where they have to be a table."""
    variables, own = set(model.basic_RVs), set(tables.variables)
    known = {k.rv for k in (*tables.releases, *tables.invariants)}
    terms = [
        v for v in model.basic_RVs if v not in known and set(leaves_of(_inputs(v), variables) or ()) & own
    ]
    terms += [p for p in model.potentials if set(ancestors([p], blockers=variables)) & own]
    if not terms:
        return True
    if needed or any(isinstance(v.owner.op, SHARED_TOTAL) and v.type.ndim == 1 for v in tables.variables):  # type: ignore[union-attr]
        raise ValueError(
            f"{', '.join(str(t.name) for t in terms)} depends on the counts {', '.join(tables.names)}, which "
            "are a table behind releases. The step for tables knows linear queries of counts only: those of "
            "releases, and of dp.Invariant. Write shares and rates by the parameters of the counts' law, "
            "and totals of parts as sums of the parts."
        )
    return False


def _inputs(rv: Variable) -> list[Variable]:
    assert rv.owner is not None
    return [v for v in rv.owner.inputs if hasattr(v.type, "ndim")]
