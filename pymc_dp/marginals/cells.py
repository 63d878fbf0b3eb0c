"""Records with few values, alone or linked to each other, as the cells of a table of their values."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.custom import CustomDistRV
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.marginals.release_laws import ChildWay, FiniteWay
from pymc_dp.marginals.sums import log_probabilities_of_two, log_probability
from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.readings import AS_WRITTEN
from pymc_dp.query.records import Release, parameters_of
from pymc_dp.query.rowlocal import RowAnalysis, leaves_of
from pymc_dp.query.supports import clamped_record, finite_support

# Most values of one record that are summed over, and most cells of linked ones, each of which takes graphs of
# its own.
MAX_VALUES = 2048
MAX_CELLS = 256
# Most values of a query, over people and cells, where it differs between people.
_MAX_QUERIES = 2**24


class NotClosed(ValueError):
    """No way is known. The message gives the reason; callers add the names and what to do instead."""


@dataclass(frozen=True)
class Cells:
    """All combinations of the values of some records of one person.

    Attributes
    ----------
    records : tuple of TensorVariable
        Of one shape.
    values : tuple of ndarray, each of shape (K,)
        The value of each record in each cell.
    log_weights : TensorVariable, shape (..., K)
        Log probability of each cell.
    variables : collection of Variable
        All random variables of the model: records are read up to these, not behind them.
    """

    records: tuple[TensorVariable, ...]
    values: tuple[np.ndarray, ...]
    log_weights: TensorVariable
    variables: Collection[Variable]

    @property
    def n(self) -> int:
        """How many cells there are."""
        return len(self.values[0])

    def at(self, graphs: Sequence[Variable], k: int) -> list[Any]:
        """Return graphs with everybody in cell k."""
        return _with(
            graphs, dict(zip(self.records, (v[k] for v in self.values), strict=True)), self.variables
        )

    def _is_by_entry(self, graph: Variable) -> bool:
        return _is_by_entry(graph, self.records, self.variables)

    def way(self, release: Release) -> FiniteWay:
        """Return how the cells are summed out of a release, each person's of that person's records.

        Raises
        ------
        NotClosed
            Its query reads anything else, or is not one number of each person.
        """
        if getattr(release.rv.owner.op, "unknown_keys", False):
            raise NotClosed("its keys are told by the release itself")
        queries = self._queries(release)
        noise = parameters_of(release.rv)[1:]
        return FiniteWay.of(release.rv.owner.op, np.arange(self.n), queries, self.log_weights, noise)

    def _queries(self, release: Release) -> np.ndarray:
        """Return the query in each cell, shape (K,), or (..., K) where it differs between people."""
        channel, query = release.rv.owner.op, release.query
        itself = clamped_record(query, set(self.records)) if len(self.records) == 1 else None
        if itself is not None and channel.ndims_params[0] == 0:
            return np.clip(self.values[0], itself.lo, itself.hi).astype(query.type.dtype)
        if release.kind != "local" or not self._is_by_entry(query):
            raise NotClosed(
                "its query is computed from several people, or several answers of one, or has people in "
                "another order"
            )
        if channel.ndims_params[0] != 0 or query.type.ndim != self.records[0].type.ndim:
            raise NotClosed("its query is no single number of each person")
        lengths = lengths_of(self.records[0])
        if lengths_of(query) != lengths:
            raise NotClosed(f"its query has shape {lengths_of(query)}, and the records have {lengths}")
        inputs = [record.type() for record in self.records]
        (graph,) = graph_replace([query], dict(zip(self.records, inputs, strict=True)), strict=False)
        others = {v for v in ancestors([graph]) if v.owner is None and not isinstance(v, Constant)}
        if others - set(inputs) or rvs_in_graph([graph]):
            raise NotClosed("its query reads what is no constant, beside the records")
        if prod(lengths) * self.n > _MAX_QUERIES:
            raise NotClosed("there are too many people for a table of its query")
        function = pytensor.function(inputs, graph, mode=AS_WRITTEN, on_unused_input="ignore")
        found = np.stack([function(*self._everybody(k, lengths)) for k in range(self.n)], axis=-1)
        people = found.reshape(-1, self.n)
        return people[0] if len(people) and (people == people[0]).all() else found

    def _everybody(self, k: int, lengths: tuple[int, ...]) -> list[np.ndarray]:
        """Return the values of records of people who are all in cell k."""
        values = zip(self.records, self.values, strict=True)
        return [np.full(lengths, value[k], dtype=record.type.dtype) for record, value in values]

    def child(self, rv: TensorVariable) -> ChildWay:
        """Return how the cells are summed out of the law of something observed of the same people.

        Raises
        ------
        NotClosed
            The law is not one of each person.
        """
        op: Any = rv.owner.op
        if not isinstance(op, RandomVariable) or rv.type.ndim - op.ndim_supp != self.records[0].type.ndim:
            raise NotClosed(f"the law of {rv.name} is not a plain law of each person")
        if isinstance(op, CustomDistRV):
            raise NotClosed(f"the density of {rv.name} is a function of yours, which may read others' rows")
        shape, lengths = lengths_of(rv)[: rv.type.ndim - op.ndim_supp], lengths_of(self.records[0])
        if shape != lengths:
            raise NotClosed(f"{rv.name} has shape {shape}, and the records have {lengths}")
        if self.n > MAX_CELLS:
            raise NotClosed(f"the records have {self.n} values, each of which takes a law of {rv.name}")
        params = parameters_of(rv)
        if not all(map(self._is_by_entry, params)):
            raise _several(rv, self.records)
        each = [self.at(params, k) for k in range(self.n)]
        stacked = [
            pt.stack([of[i] for of in each], axis=-core - 1)
            if not set(self.records).isdisjoint(leaves_of([p], self.variables))
            else pt.expand_dims(pt.as_tensor_variable(p), -core - 1)
            for i, (p, core) in enumerate(zip(params, op.ndims_params, strict=True))
        ]
        return ChildWay(op, np.arange(self.n), (self.log_weights, *stacked))


def cells_of(records: Sequence[TensorVariable], variables: Collection[Variable]) -> Cells | None:
    """Return the cells of records of the same people, of which some may enter the laws of others.

    `variables` are all random variables of the model.

    None where one of them has not few values, which are constants.

    Raises
    ------
    NotClosed
        They are too many, or of different shapes.
    """
    found = [finite_support(record, MAX_VALUES) for record in records]
    if any(support is None for support in found):
        return None
    supports = [np.asarray(s).astype(r.type.dtype) for s, r in zip(found, records, strict=True)]
    sizes = [len(s) for s in supports]
    if len(records) == 1:
        return Cells(tuple(records), (supports[0],), log_probabilities(records[0], supports[0]), variables)
    if len({lengths_of(record) for record in records}) > 1:
        raise NotClosed("they have different shapes, and are integrated out together where they have one")
    if prod(sizes) > MAX_CELLS:
        raise NotClosed(f"together they have {prod(sizes)} values, and at most {MAX_CELLS} are summed over")
    log_weights = sum(_log_weights(i, records, supports, variables) for i in range(len(records)))
    # the last axes are those of the records
    batch = [log_weights.shape[k] for k in range(log_weights.type.ndim - len(records))]
    grid = np.meshgrid(*supports, indexing="ij")
    log_weights = log_weights.reshape((*batch, prod(sizes)))
    return Cells(tuple(records), tuple(v.ravel() for v in grid), log_weights, variables)


def _log_weights(
    i: int,
    records: Sequence[TensorVariable],
    supports: Sequence[np.ndarray],
    variables: Collection[Variable],
) -> TensorVariable:
    """Return a record's log probabilities given the others, on axes of all records behind those of people."""
    law = records[i]
    behind = leaves_of(parameters_of(law), variables)
    if not all(_is_by_entry(p, records, variables) for p in parameters_of(law)):
        raise _several(law, records)
    parents = [j for j, record in enumerate(records) if j != i and record in behind]
    each = []
    for values in product(*(supports[j] for j in parents)):
        given = {records[j]: value for j, value in zip(parents, values, strict=True)}
        each.append(log_probabilities(law, supports[i], _with(parameters_of(law), given, variables)))
    stacked = pt.stack(each, axis=-2)  # (..., combinations of the parents' values, own values)
    people = [stacked.shape[k] for k in range(stacked.type.ndim - 2)]
    sizes = {j: len(supports[j]) for j in (*parents, i)}
    order = sorted(sizes)
    apart = stacked.reshape((*people, *sizes.values()))
    axes = list(range(len(people))) + [len(people) + list(sizes).index(j) for j in order]
    return apart.transpose(axes).reshape((*people, *(sizes.get(j, 1) for j in range(len(records)))))


def log_probabilities(
    law: TensorVariable, support: np.ndarray, params: Sequence[Variable] | None = None
) -> TensorVariable:
    """Return the log probability of each value of a record, shape (..., K), also with other parameters."""
    op: Any = law.owner.op
    params = [pt.as_tensor_variable(p) for p in (parameters_of(law) if params is None else params)]
    # logarithms of constants in few bits, such as the ends of a range, would have few digits
    params = [pt.cast(p, {"i": "int64", "f": "float64"}.get(np.dtype(p.dtype).kind, p.dtype)) for p in params]
    if isinstance(op, CategoricalRV):
        return log_probability(params[0])
    if isinstance(op, BernoulliRV):
        return log_probabilities_of_two(params[0])
    rng = pt.random.shared_rng(seed=None)
    row = op.make_node(rng, NoneConst, *(p[..., None] for p in params)).outputs[1]
    return pm.logp(row, pt.constant(support.astype(law.type.dtype)))


def _with(
    graphs: Sequence[Variable], values: dict[TensorVariable, Any], variables: Collection[Variable]
) -> list[Any]:
    """Return graphs with the same value of a record for everybody."""
    # variables that records enter themselves, such as another outcome, stay as they are
    replaced: dict[Variable, Variable] = {v: v for v in leaves_of(graphs, variables)}
    for record, value in values.items():
        replaced[record] = pt.full(size_of(record), np.asarray(value, dtype=record.type.dtype))
    return list(graph_replace(list(graphs), replaced, strict=False))


def size_of(record: TensorVariable) -> Any:
    """Return the batch shape of the records, as a graph that does not contain the records."""
    node = record.owner
    batch = record.type.ndim - node.op.ndim_supp
    if None not in record.type.shape[:batch]:
        return record.type.shape[:batch]
    size = node.op.size_param(node) if isinstance(node.op, RandomVariable) else None
    if size is not None and hasattr(size.type, "ndim"):
        return size
    return pt.constant(lengths_of(record)[:batch])


def _several(law: TensorVariable, records: Sequence[TensorVariable]) -> NotClosed:
    if records[0].type.ndim > 1:
        return NotClosed(f"the law of {law.name} depends on several answers of a person")
    return NotClosed(
        f"the law of {law.name} reads people in another order (x[index], x[::-1]), or several in one row"
    )


def _is_by_entry(graph: Variable, records: Sequence[TensorVariable], variables: Collection[Variable]) -> bool:
    """Whether each entry of a graph with rows of people is computed from the same entry of the records."""
    lengths = lengths_of(records[0])
    role = RowAnalysis(records, lengths[0], variables).role(graph)
    if role.kind == "free":
        return True
    if role.kind != "row" or role.rows is not None:  # somebody else's, or those of people in another order
        return False
    if len(lengths) == 1:  # an entry is a person
        return True
    others = set(variables) - set(records)
    between = [v for v in ancestors([graph], blockers={*records, *others}) if v.owner is not None]
    reading = [v for v in between if v not in variables and set(records) & set(leaves_of([v], variables))]
    return all(isinstance(v.owner.op, Elemwise) and lengths_of(v) == lengths for v in reading)
