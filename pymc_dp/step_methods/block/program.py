"""A block of records, lowered: the model's graph as native functions of flat arrays.

Everything here happens once, when a step is built. Two readings of the model's variables are used:

* *stand-ins*: parameters, records and observed values as functions of the flat arrays (the current state);
* *draws*: the records replaced by fresh draws from their law given the parameters (a proposal).

The same graphs (contributions to central queries, log density of the other terms) are then compiled under
either reading.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.model.core import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.native import (
    CHANGE,
    CONTRIBUTE,
    OF_SUMS,
    PROPOSE,
    RELEASES,
    WHOLE,
    NativeFunction,
    SourceFunction,
)
from pymc_dp.lowering.polynomial import without_products
from pymc_dp.records import RecordBlock, Release, is_elementwise, parameters_of
from pymc_dp.rowlocal import with_known_shapes
from pymc_dp.step_methods.block.cells import ChannelTable, find_histograms, find_tables
from pymc_dp.step_methods.block.changes import scalar_change, term_change
from pymc_dp.step_methods.block.layout import DataLayout, ParameterLayout, RecordLayout

Reading = dict[Variable, TensorVariable]


class RecordProgram:
    """Native functions of one block of records.

    Parameters
    ----------
    model : pymc.Model
        Model that holds the block.
    block : RecordBlock
        Records, and what depends on them.
    initial_point : dict, optional
        The model's initial point, for shapes.

    Attributes
    ----------
    parameters, records, data
        Layouts of the flat arrays.
    n_statistics : int
        Columns of the contributions.
    releases, change : NativeFunction or None
        Of the central releases; see the signatures in :mod:`pymc_dp.lowering.native`.
    """

    def __init__(self, model: Model, block: RecordBlock, initial_point: dict[str, Any] | None = None):
        point = model.initial_point() if initial_point is None else initial_point
        self.block = block
        self.names = block.names
        self.n = block.n
        others = [rv for rv in model.free_RVs if rv not in set(block.records)]
        for rv in block.records:
            if isinstance(rv.owner.op, FlatRV | HalfFlatRV):  # type: ignore[union-attr]
                raise ValueError(
                    f"The record variable {rv.name} has an improper law, which cannot be drawn; give it a "
                    "proper one."
                )
        self.parameters = ParameterLayout(model, others, point)
        self.records = RecordLayout(model, block.records, block.n, block.analysis.placements, point)
        self.data = DataLayout()
        # power of the density of the central releases: below 1 for the first draws of tuning only
        self.temper = self.data.graph(pytensor.shared(np.array(1.0)))
        self.temper_at = 0
        self.model = model
        self.tables: dict[Variable, ChannelTable] = {}
        self._all_tables: list[ChannelTable] = []
        self.histograms = find_histograms(block)
        for table in find_tables(model, block).values():
            self.add_table(table, stands_for_density=True)
        self.moves: dict[str, list[Any]] = {}  # ways of proposing these records, filled by moves.lowered
        # static shapes spare the compiled functions their shape checks
        self.theta = pt.vector("theta", dtype="float64", shape=(self.parameters.size,))
        self.x = pt.matrix("x", dtype="float64", shape=(self.n, self.records.width))
        self.state = self._stand_ins()
        self._compile_releases()

    # -- readings ---------------------------------------------------------------------------------

    def _stand_ins(self) -> Reading:
        reading: Reading = {}
        for rv in self.model.basic_RVs:
            if rv in self.model.observed_RVs:
                value = self.model.rvs_to_values[rv]
                if isinstance(value, Constant | SharedVariable) and rv not in self.tables:
                    reading[rv] = self.data.graph(value)
                else:
                    reading[rv] = value
                continue
            if rv in self.block.records:
                value = self.records.graph(self.x, self.block.records.index(rv))
            else:
                value = self.parameters.graph(self.theta, self.parameters.variables.index(rv))
            reading[rv] = _typed(rv, self.backward(rv, value, reading))
        return reading

    def draws(self) -> Reading:
        """Return the stand-ins with every record replaced by a draw given the parameters."""
        reading = dict(self.state)
        for rv in self.block.records:
            reading[rv] = _typed(rv, lift(rv, reading))
        return reading

    def backward(self, rv: Variable, value: TensorVariable, reading: Reading) -> TensorVariable:
        """Value space -> natural space."""
        transform = self.model.rvs_to_transforms.get(rv)
        if transform is None:
            return value
        return transform.backward(value, *substitute(rv.owner.inputs, reading))  # type: ignore[union-attr]

    def forward(self, rv: Variable, natural: TensorVariable, reading: Reading) -> TensorVariable:
        """Natural space -> value space."""
        transform = self.model.rvs_to_transforms.get(rv)
        if transform is None:
            return natural
        return transform.forward(natural, *substitute(rv.owner.inputs, reading))  # type: ignore[union-attr]

    def matrix_of(self, reading: Reading) -> TensorVariable:
        """Return the records of a reading in value space, one row per record."""
        return self.records.matrix([self.forward(rv, reading[rv], reading) for rv in self.block.records])

    # -- graphs -----------------------------------------------------------------------------------

    def of_kind(self, *kinds: str) -> list[Release]:
        """Return the block's releases of some kinds of query."""
        return [r for r in self.block.releases if r.kind in kinds]

    def contributions(self, reading: Reading) -> TensorVariable:
        """Per-record contributions (n, d) to every sum behind the central queries."""
        columns = []
        for release in self.of_kind("central", "function"):
            columns += [pt.cast(r, "float64").reshape((self.n, -1)) for r in self._all_rows(release)]
        columns = substitute(columns, reading)
        return pt.concatenate(columns, axis=1) if columns else pt.zeros((self.n, 0))

    def rows_of(self, release: Release) -> TensorVariable:
        """Contributions (n, d) to a central query, over the model's own variables."""
        rows = self.block.analysis.rows_of(release.query)
        return rows if rows.ndim == 2 else rows.reshape((self.n, -1))

    def shape_of(self, release: Release) -> tuple[int, ...]:
        """Return the shape of a release."""
        return np.shape(_static_value(self.model.rvs_to_values[release.rv]))

    @staticmethod
    def is_separable(release: Release) -> bool:
        """Whether the density is a sum of terms, one for each of the sums over records behind the query.

        True of releases with one density per entry, and of those whose operation gives the terms.
        """
        op = release.rv.owner.op  # type: ignore[union-attr]
        return release.kind == "central" and (is_elementwise(release.rv) or hasattr(op, "term"))

    def shape_of_terms(self, release: Release) -> tuple[int, ...]:
        """Return the shape of the terms of a separable release, and of the sums behind its query."""
        if is_elementwise(release.rv):
            return self.shape_of(release)
        (sums,) = self.block.analysis.sums_in(release.query)
        return tuple(int(k) for k in (sums.shape.eval() if None in sums.type.shape else sums.type.shape))

    def _all_rows(self, release: Release) -> list[TensorVariable]:
        analysis = self.block.analysis
        if self.is_separable(release):
            return [self.rows_of(release)]
        return [analysis.sums[s].reshape((self.n, -1)) for s in analysis.sums_in(release.query)]

    def weights(self, reading: Reading) -> TensorVariable:
        """Log density (n,) of every term that depends on one record at a time, but the record's own."""
        rows = []
        for release in self.of_kind("local"):
            role = self.block.analysis.role(release.query)
            logp = self.density(release.rv, reading)
            rows.append(_per_record(logp, role.axis or 0, role.rows, self.n))
        for term in self.block.terms:
            rows.append(_per_record(pm.logp(lift(term, reading), reading[term]), 0, None, self.n))
        for potential in self.block.potentials:
            role = self.block.analysis.role(potential)
            if role.kind == "row":
                graph = _per_record(potential, role.axis or 0, role.rows, self.n)
            elif role.kind == "sum":
                graph = _per_record(self.block.analysis.rows_of(potential), 0, None, self.n)
            else:
                raise ValueError(
                    f"The potential {potential.name} is neither row-local nor a sum over the records "
                    f"{', '.join(self.names)}; write it as a sum of one term per record."
                )
            rows.append(substitute([graph], reading)[0])
        return sum(rows[1:], start=rows[0]) if rows else pt.zeros(self.n)

    def density(self, rv: Variable, reading: Reading) -> TensorVariable:
        """Log density of a variable under a reading, looked up where there is a table of it."""
        table = self.tables.get(rv)
        if table is None:
            return pm.logp(lift(rv, reading), reading[rv])
        return table.density(substitute([table.release.query], reading)[0])

    def release_logp(self, reading: Reading, kinds: Sequence[str]) -> TensorVariable:
        """Sum of the log densities of the releases of some kinds."""
        return sum(
            (pt.sum(pm.logp(lift(r.rv, reading), reading[r.rv])) for r in self.of_kind(*kinds)),
            start=pt.constant(0.0),
        )

    def set_release(self, values: dict[str, Any]) -> None:
        """Use other values for releases of this block; names of other releases are passed over."""
        for release in self.block.releases:
            if release.name not in values:
                continue
            source, value = self.model.rvs_to_values[release.rv], values[release.name]
            for table in self._all_tables:
                if table.release.rv is release.rv:
                    table.override(value)
            self.data.override(source, value)

    def add_table(self, table: ChannelTable, stands_for_density: bool = False) -> None:
        """Keep a table of a release up to date with the data, from now on."""
        if stands_for_density:
            self.tables[table.release.rv] = table
        self._all_tables.append(table)
        self.data.before_gathering.append(table.refresh)

    # -- compilation ------------------------------------------------------------------------------

    def native(
        self, name: str, inputs: Sequence[Variable], outputs: Sequence[Any], sig: Any
    ) -> NativeFunction:
        """Compile graphs of the stand-ins; data-like constants become inputs."""
        graphs = without_products(self.data.lift(outputs))
        return NativeFunction(name, [self.theta, self.data.data, *inputs], graphs, sig)

    @cached_property
    def propose(self) -> NativeFunction:
        """Draws of all records given the parameters, vectorised."""
        draws = self.draws()
        outputs = [self.matrix_of(draws), self.contributions(draws), self.weights(draws)]
        return self.native("propose", [], outputs, PROPOSE)

    @cached_property
    def contribute(self) -> NativeFunction:
        """Contributions and weights of the current records, vectorised."""
        outputs = [self.contributions(self.state), self.weights(self.state)]
        return self.native("contribute", [self.x], outputs, CONTRIBUTE)

    @cached_property
    def general(self) -> NativeFunction | None:
        """Log density of the releases whose query is no sum over records."""
        if not self.of_kind("general"):
            return None
        return self.native("general", [self.x], [self.release_logp(self.state, ["general"])], WHOLE)

    def _function_of_sums(self, release: Release) -> tuple[int, NativeFunction]:
        """Log density of a release as a function of the sums behind its query, and their number."""
        analysis = self.block.analysis
        sums = analysis.sums_in(release.query)
        flat = pt.vector("sums", dtype="float64")
        parts, start = {}, 0
        for s in sums:
            shape = tuple(int(k) for k in (s.shape.eval() if None in s.type.shape else s.type.shape))
            size = int(np.prod(shape))
            parts[s] = pt.cast(flat[start : start + size].reshape(shape), s.dtype)
            start += size
        (query,) = graph_replace([release.query], parts, strict=False)
        (query,) = substitute(with_known_shapes([query]), self.state)
        logp = pt.sum(pm.logp(with_query(release, self.state, query), self.state[release.rv]))
        return start, self.native(f"log density of {release.name}", [flat], [logp], OF_SUMS)

    def _compile_releases(self) -> None:
        """Central releases: their values, parameters and offsets, and the change of their density."""
        values, params, offsets, loops, functions, keys = [], [], [], [], {}, []
        start = 0
        width = max([len(parameters_of(r.rv)) - 1 for r in self.of_kind("central", "function")] + [1])
        for k, release in enumerate(self.of_kind("central", "function")):
            if not self.is_separable(release):
                size, function = self._function_of_sums(release)
                functions[f"logp{k}"], key = function.dispatcher, function.cache_key
                keys.append(key)
                values.append(pt.zeros(size))
                offsets.append(pt.zeros(size))
                params.append(pt.zeros((size, width)))
                where = f"{start}:{start + size}"
                loops.append(
                    f"    total += logp{k}(theta, data, new[{where}]) - logp{k}(theta, data, old[{where}])\n"
                )
                start += size
                continue
            others = substitute(parameters_of(release.rv)[1:], self.state)
            offset = substitute([self.block.analysis.offset_of(release.query)], self.state)[0]
            value, op = self.state[release.rv], release.rv.owner.op  # type: ignore[union-attr]
            elementwise = is_elementwise(release.rv)
            shape = self.shape_of_terms(release)
            values.append(pt.cast(value if elementwise else op.summary(value), "float64").ravel())
            offsets.append(pt.broadcast_to(pt.cast(offset, "float64"), shape).ravel())
            columns = [pt.broadcast_to(pt.cast(p, "float64"), shape).ravel() for p in others]
            columns += [pt.zeros_like(offsets[-1])] * (width - len(columns))
            params.append(pt.stack(columns, axis=1))
            size = int(np.prod(shape))
            name = f"change{k}"
            if elementwise:
                functions[name], key = scalar_change(release.rv, value_dtype=release.rv.dtype)
            else:
                functions[name], key = term_change(op, len(others))
            keys.append(key)
            args = "".join(f", params[j, {i}]" for i in range(len(others)))
            loops.append(
                f"    for j in range({start}, {start + size}):\n"
                f"        if new[j] != old[j]:\n"
                f"            total += {name}(value[j], old[j], new[j]{args})[0]\n"
            )
            start += size
        self.n_statistics, self.n_parameters = start, width
        self.change_loops = loops
        self.change_parts = ("".join(loops), functions, keys)
        self.releases: NativeFunction | None = None
        self.change: SourceFunction | None = None
        if not values:
            return
        outputs = [pt.concatenate(values), pt.concatenate(params, axis=0), pt.concatenate(offsets)]
        self.releases = self.native("releases", [], outputs, RELEASES)
        source = (
            "def change(theta, data, value, params, old, new):\n    total = 0.0\n"
            + "".join(loops)
            + f"    return total * data[{self.temper_at}]\n"
        )
        self.change = SourceFunction("change", source, functions, CHANGE, keys)


def substitute(graphs: Sequence[Any], reading: Reading) -> list[Any]:
    """Replace the model's random variables in some graphs by a reading of them."""
    return list(graph_replace(list(graphs), reading, strict=False)) if graphs else []


def lift(rv: Variable, reading: Reading) -> TensorVariable:
    """Return a random variable with its parameters under a reading.

    Substituting before asking for a log density matters: densities that PyMC derives may clone their
    inputs, and a substitution afterwards would do nothing.
    """
    node = rv.owner
    assert node is not None
    inputs = substitute(node.inputs, reading)
    return node.clone_with_new_inputs(inputs, strict=False).outputs[node.outputs.index(rv)]  # type: ignore[return-value]


def with_query(release: Release, reading: Reading, query: TensorVariable) -> TensorVariable:
    """Return the law of a release with another query in the place of its own."""
    lifted = lift(release.rv, reading).owner
    query = pt.cast(query, parameters_of(release.rv)[0].type.dtype)
    params = [query, *lifted.op.dist_params(lifted)[1:]]
    return lifted.op.make_node(lifted.inputs[0], NoneConst, *params).default_output()


def _typed(rv: Variable, graph: TensorVariable) -> TensorVariable:
    if rv.type.is_super(graph.type):
        return graph
    return rv.type.filter_variable(pt.specify_shape(graph, rv.type.shape))  # type: ignore[attr-defined]


def _per_record(logp: TensorVariable, axis: int, rows: tuple[int, ...] | None, n: int) -> TensorVariable:
    """Sum a row-local graph over all axes but the record axis, and place it among n records."""
    graph = pt.moveaxis(logp, axis, 0) if axis else logp
    graph = graph.sum(axis=tuple(range(1, graph.ndim))) if graph.ndim > 1 else graph
    graph = pt.cast(graph, "float64")
    return graph if rows is None else pt.zeros(n)[np.array(rows)].inc(graph)


def _static_value(value: Variable) -> Any:
    if isinstance(value, SharedVariable):
        return value.get_value()
    return value.data if isinstance(value, Constant) else value.eval()
