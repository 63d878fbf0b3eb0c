"""A block of records, lowered: the model's graph as native functions of flat arrays.

Everything here happens once, when a step is built. Two readings of the model's variables are used:

* *stand-ins*: parameters, records and observed values as functions of the flat arrays (the current state);
* *draws*: the records replaced by fresh draws from their law given the parameters (a proposal).

The same graphs (contributions to central queries, log density of the other terms) are then compiled under
either reading.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.logprob.transforms import SimplexTransform
from pymc.model.core import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.native import (
    CONTRIBUTE,
    PROPOSE,
    WHOLE,
    NativeFunction,
)
from pymc_dp.lowering.functions.normals import with_known_factors
from pymc_dp.lowering.functions.simplex import simplex_forward
from pymc_dp.lowering.rows.domains import may_be_extreme
from pymc_dp.lowering.rows.polynomial import without_products
from pymc_dp.query.counts import counted_rows
from pymc_dp.query.readings import Reading, lift, substitute
from pymc_dp.query.records import RecordBlock, Release, is_elementwise
from pymc_dp.query.rowlocal import rows_behind
from pymc_dp.query.supports import has_no_draws
from pymc_dp.step_methods.block.cells import ChannelTable, find_histograms, find_tables
from pymc_dp.step_methods.block.central import CentralReleases
from pymc_dp.step_methods.block.guards import (
    by_entry,
    density,
    draw_inside,
    inside,
    law_domain,
    per_record,
)
from pymc_dp.step_methods.block.layout import DataLayout, ParameterLayout, RecordLayout
from pymc_dp.step_methods.block.parents import check_atoms


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
    central : CentralReleases
        The releases of sums over records, and the change of their density.
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
            if has_no_draws(rv):
                raise ValueError(
                    f"The record variable {rv.name} was built from a log density alone and cannot be drawn; "
                    "give its CustomDist random= beside logp=, or dist= in place of both."
                )
        if block.releases:
            check_atoms(model, block)
        self.parameters = ParameterLayout(model, others, point)
        self.records = self._layout_of_records(model, point)
        self.first_records = self.records.pack(point)
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
        self.central = CentralReleases(self)
        self.n_statistics, self.n_parameters = self.central.n_statistics, self.central.n_parameters

    def _layout_of_records(self, model: Model, point: dict[str, Any]) -> RecordLayout:
        return RecordLayout(model, self.block.records, self.n, self.block.analysis.placements, point)

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
            reading[rv] = _typed(rv, draw_inside(self, rv, reading))
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
        if isinstance(transform, SimplexTransform):
            return simplex_forward(natural)
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
        return np.shape(static_value(self.model.rvs_to_values[release.rv]))

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
            rows.append(per_record(logp, role.axis or 0, role.rows, self.n))
        for term in self.block.terms:
            which = rows_behind(term, self.block.analysis)
            rows.append(per_record(density(self, term, reading), 0, which, self.n))
        for potential in self.block.potentials:
            role = self.block.analysis.role(potential)
            if role.kind == "row":
                graph = per_record(by_entry(potential), role.axis or 0, role.rows, self.n)
            elif role.kind == "sum":
                graph = per_record(by_entry(self.block.analysis.rows_of(potential)), 0, None, self.n)
            else:
                continue  # one of the whole terms
            rows.append(substitute([graph], reading)[0])
        return sum(rows[1:], start=rows[0]) if rows else pt.zeros(self.n)

    @property
    def whole_potentials(self) -> list[TensorVariable]:
        """Potentials that are no sum of one term per record, such as a condition on a total."""
        role = self.block.analysis.role
        return [p for p in self.block.potentials if role(p).kind not in ("row", "sum")]

    def _guarded_weights(self, reading: Reading) -> TensorVariable:
        """Weights, minus infinity where a record has no law given others, or a density that is no number."""
        weights = self.weights(reading)
        for rv in self.block.records:
            holds = inside(self, rv, reading)
            if holds is not None:
                weights = pt.switch(holds, weights, -np.inf)
            if may_be_extreme(rv, in_value_space=False):
                rows = self.block.analysis.placements.get(rv)
                for each in (density(self, rv, reading), self.forward(rv, reading[rv], reading)):
                    extreme = per_record(pt.cast(~pt.isfinite(each), "int64"), 0, rows, self.n)
                    weights = pt.switch(pt.eq(extreme, 0), weights, -np.inf)
        return weights

    def density(self, rv: Variable, reading: Reading) -> TensorVariable:
        """Log density of a variable under a reading, looked up where there is a table of it."""
        table = self.tables.get(rv)
        if table is None:
            return density(self, rv, reading)
        return table.density(substitute([table.release.query], reading)[0])

    @property
    def people_at(self) -> int:
        """Where the number of people stands among the parameters; -1 if a release reads other slots."""
        count, variables = self.block.count, self.parameters.variables
        sums = [counted_rows(self.block.analysis.rows_of(r.query)) for r in self.of_kind("central")]
        if count not in variables or any(s is None or s.count is not count for s in sums):
            return -1
        return self.parameters.slices[variables.index(count)].start

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

    # -- domain -----------------------------------------------------------------------------------

    @cached_property
    def _law_checks(self) -> Any:
        """Whether the parameters are where the records have a law; None if they always are."""
        domains = [law_domain(self, rv, lambda v: False) for rv in self.block.records]
        conditions = [c for domain in domains if domain is not None for c in domain.conditions]
        free = [c for c in conditions if self.block.analysis.role(c).kind == "free"]
        if not free:
            return None
        graph = reduce(pt.and_, (pt.all(c) for c in substitute(free, self.state)))
        # evaluated a few times, when a chain starts
        return pytensor.function(
            [self.theta, self.data.data],
            self.data.lift([graph]),
            mode="FAST_COMPILE",
            on_unused_input="ignore",
        )

    def have_law(self, theta: np.ndarray) -> bool:
        """Whether records have a law at values of the parameters."""
        check = self._law_checks
        return check is None or bool(check(theta, self.data.gather())[0])

    # -- compilation ------------------------------------------------------------------------------

    def native(
        self, name: str, inputs: Sequence[Variable], outputs: Sequence[Any], sig: Any
    ) -> NativeFunction:
        """Compile graphs of the stand-ins; data-like constants become inputs."""
        return NativeFunction(name, [self.theta, self.data.data, *inputs], self.lifted(outputs), sig)

    def lifted(self, outputs: Sequence[Any]) -> list[Any]:
        """Return graphs of the stand-ins as they are compiled."""
        return without_products(self.data.lift(with_known_factors(list(outputs))))

    @cached_property
    def propose(self) -> NativeFunction:
        """Draws of all records given the parameters, vectorised."""
        draws = self.draws()
        outputs = [self.matrix_of(draws), self.contributions(draws), self._guarded_weights(draws)]
        return self.native("propose", [self.x], outputs, PROPOSE)

    @cached_property
    def contribute(self) -> NativeFunction:
        """Contributions and weights of the current records, vectorised."""
        outputs = [self.contributions(self.state), self._guarded_weights(self.state)]
        return self.native("contribute", [self.x], outputs, CONTRIBUTE)

    @cached_property
    def general(self) -> NativeFunction | None:
        """Log density of the releases and potentials that are no sum over records."""
        if not self.of_kind("general") and not self.whole_potentials:
            return None
        total = self.release_logp(self.state, ["general"])
        for graph in substitute(self.whole_potentials, self.state):
            total = total + pt.cast(pt.sum(graph), "float64")
        return self.native("general", [self.x], [total], WHOLE)


def _typed(rv: Variable, graph: TensorVariable) -> TensorVariable:
    if rv.type.is_super(graph.type):
        return graph
    return rv.type.filter_variable(pt.specify_shape(graph, rv.type.shape))  # type: ignore[attr-defined]


def static_value(value: Variable) -> Any:
    """Return what an observed variable's value is now."""
    if isinstance(value, SharedVariable):
        return value.get_value()
    return value.data if isinstance(value, Constant) else value.eval()


# Programs of living steps; a program keeps its block alive, so the block's id names it.
_PROGRAMS: "WeakValueDictionary[int, RecordProgram]" = WeakValueDictionary()


def shared_program(block: RecordBlock, make: Callable[[], RecordProgram]) -> RecordProgram:
    """Return the program of a block, made if no living step has one."""
    program = _PROGRAMS.get(id(block))
    if program is None:
        program = _PROGRAMS[id(block)] = make()
    return program
