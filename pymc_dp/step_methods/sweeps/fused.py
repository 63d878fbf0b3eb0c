"""One record sweep as scalar code, where the model allows it.

Draw, statistics and densities of a record are functions of numbers, which loops over blocks of records call
(:mod:`pymc_dp.step_methods.sweeps.blocks`). Several times faster than drawing all proposals first, and the
same Markov kernel. Models whose rows have no scalar form (table look-ups, vectors of other than normal laws,
partly observed covariates) keep the vectorised sweep.
"""

from functools import reduce
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.distributions.transforms import SimplexTransform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import DirichletRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.bind import Function, Kernel, kernel_of, part_of_kernel
from pymc_dp.lowering.addresses.native import HOIST, NativeFunction
from pymc_dp.lowering.addresses.tuples import column
from pymc_dp.lowering.functions.simplex import probability
from pymc_dp.lowering.rows.domains import Domain, inside_of, is_number, may_be_extreme
from pymc_dp.lowering.rows.rowdraws import draw_entry
from pymc_dp.lowering.rows.rows import ROW, NotScalar, RowGraph, scalar_function
from pymc_dp.lowering.rows.valuedraws import draw_log_ratios, draw_value, entry_from_values
from pymc_dp.lowering.rows.written import density_at
from pymc_dp.query.indexrules import Placed
from pymc_dp.query.lengths import with_known_shapes
from pymc_dp.query.readings import substitute
from pymc_dp.query.records import Release, parameters_of
from pymc_dp.query.rowlocal import columns_of, rows_behind
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.block.state import ROWS
from pymc_dp.step_methods.sweeps import blocks

# Draws of a record, at the start of a chain, until the records that depend on it have a law.
TRIES = 1000


class FusedSweep:
    """Native functions of a fused sweep.

    Parameters
    ----------
    program : RecordProgram

    Raises
    ------
    NotScalar
        If a part of the model has no scalar form.
    """

    def __init__(self, program: RecordProgram):
        vector = any(not program.is_separable(r) for r in program.of_kind("central"))
        if vector or program.of_kind("function", "general") or program.block.analysis.placements:
            raise NotScalar("a query that is no sum over records, or a partly observed covariate")
        self.program = program
        records = program.block.records
        self._x = [ps.float64(f"x{k}") for k in range(program.records.width)]
        self._rng = pt.random.type.random_generator_type("rng")
        self._state = self._row_graph()
        self._draws = self._state.fork(self._draw_entry)
        self._n_draws = 0
        self._drawn: dict[tuple[Variable, tuple[int, ...]], TensorVariable] = {}
        self._drawn_values: dict[tuple[Variable, tuple[int, ...]], TensorVariable] = {}
        # places of records that no record changes; for each number that a record adds to a sum, which of
        # these it goes by and what to add to it: that sum, and -1, where it is the same for all records
        self._places: list[TensorVariable] = []
        self._goes_to: list[tuple[int, int]] = []
        statistics = self._statistics()
        # where a release, or a child, has no law given a record, its expression may be a number all the same
        weights = [Domain(graph, self._state.is_free).guarded() for graph in self._weight_graphs()]
        each = [
            (rv, index)
            for rv, shape in zip(records, program.records.shapes, strict=True)
            for index in np.ndindex(*shape[1:])
        ]
        columns = [self._to_value(rv, index, self._draws) for rv, index in each]
        # a record whose law depends on another record may have none, and a number may be too large
        self._conditions = [condition for rv, index in each for condition in self._defined(rv, index)]
        self._compile(statistics, weights, columns, each)

    # -- entries ----------------------------------------------------------------------------------

    def _row_graph(self) -> RowGraph:
        analysis = self.program.block.analysis
        return RowGraph(
            lambda v: analysis.role(v).kind == "free", self._state_entry, self.program.block.records
        )

    def _column(self, rv: Variable, index: tuple[int, ...]) -> int:
        layout = self.program.records
        position = self.program.block.records.index(rv)  # type: ignore[arg-type]
        shape = layout.shapes[position][1:]
        natural = rv.type.shape[1:]  # type: ignore[attr-defined]
        if isinstance(self._transform(rv), SimplexTransform):
            natural = (*natural[:-1], natural[-1] - 1)
        if natural != tuple(shape):
            raise NotScalar(f"{rv.name} is transformed to another shape")
        inner = int(np.ravel_multi_index(index, shape)) if index else 0
        return layout.columns[position].start + inner

    def _inputs(self, rv: Variable, index: tuple[int, ...], rows: RowGraph) -> list[Variable]:
        """Inputs of a record's operation with its parameters as entries, as transforms want them."""
        node = rv.owner
        assert node is not None
        params = parameters_of(rv)
        full = (ROW, *index)
        if any(p.type.ndim > len(full) for p in params):
            raise NotScalar(f"{rv.name} has a parameter that is a vector")
        entries = {p: rows.entry(p, full[len(full) - p.type.ndim :] if p.type.ndim else ()) for p in params}
        return [entries.get(v, v) for v in node.inputs]

    def _transform(self, rv: Variable) -> Any:
        transform = self.program.model.rvs_to_transforms.get(rv)
        if isinstance(transform, SimplexTransform) and isinstance(rv.owner.op, DirichletRV):
            return transform
        if transform is not None and getattr(transform, "ndim_supp", 0) != 0:
            raise NotScalar(f"{rv.name} has a transform over several entries")
        return transform

    def _state_entry(self, rv: Variable, index: tuple[int, ...]) -> TensorVariable:
        return self._from_value(lambda at: self._x[self._column(rv, at)], rv, index, self._state)

    def _from_value(self, number: Any, rv: Variable, index: tuple[int, ...], rows: RowGraph) -> Any:
        """Return an entry, given the number in value space at any index of its variable."""
        inputs = lambda: self._inputs(rv, index, rows)  # noqa: E731
        return entry_from_values(self._transform(rv), rv, index, number, inputs)

    def _draw_entry(self, rv: Variable, index: tuple[int, ...]) -> TensorVariable:
        key = (rv, index)
        if key not in self._drawn:
            # numbered before its parameters are drawn: equal draws with equal labels would be merged
            self._n_draws, label = self._n_draws + 1, self._n_draws + 1
            if isinstance(self._transform(rv), SimplexTransform):
                self._draw_probabilities(rv, index[:-1], label)
                return self._drawn[key]
            exact = draw_value(self._draws, rv, self._transform(rv), index, self._rng, label)
            if exact is None:
                self._drawn[key] = draw_entry(self._draws, rv, index, self._rng, label)
            else:
                self._drawn_values[key], self._drawn[key] = exact
        return self._drawn[key]

    def _draw_probabilities(self, rv: Variable, lead: tuple[int, ...], label: int) -> None:
        """Draw a row of probabilities in value space, where those that round to zero are numbers."""
        values = draw_log_ratios(self._draws, rv, lead, self._rng, label)
        for k in range(len(values) + 1):
            self._drawn[rv, (*lead, k)] = pt.cast(probability(values, k), rv.dtype)  # type: ignore[attr-defined]
        self._drawn_values |= {(rv, (*lead, k)): v for k, v in enumerate(values)}

    def _defined(self, rv: Variable, index: tuple[int, ...]) -> list[Any]:
        """Whether a candidate has a law given the others and a density, as a list of what is to be asked."""
        conditions: list[Any] = [pt.tensor_from_scalar(c) for c in inside_of(self._draws, rv, index)]
        self._draws.entry(rv, (ROW, *index))  # drawn, which tells in which space
        if may_be_extreme(rv, (rv, index) in self._drawn_values):
            numbers = (
                self._draws.entry(density_at(rv, rv), (ROW, *index)),
                self._to_value(rv, index, self._draws),
            )
            conditions += map(is_number, numbers)
        return conditions

    def _to_value(self, rv: Variable, index: tuple[int, ...], rows: RowGraph) -> TensorVariable:
        natural = rows.entry(rv, (ROW, *index))
        if rows is self._draws and (rv, index) in self._drawn_values:
            return self._drawn_values[(rv, index)]
        transform = self._transform(rv)
        self._column(rv, index)
        return natural if transform is None else transform.forward(natural, *self._inputs(rv, index, rows))

    # -- graphs over the model's own variables ----------------------------------------------------

    def _statistics(self) -> list[TensorVariable]:
        """Return the numbers that each record adds to the sums, and note to which."""
        program, start = self.program, 0
        found: list[TensorVariable] = []
        for release in program.of_kind("central"):
            size = int(np.prod(program.shape_of_terms(release)))
            placed, by = self._placed(release), -1
            if placed is None:
                columns = columns_of(program.rows_of(release), size)
            else:
                shape = placed.values.type.shape[1:]
                columns = with_known_shapes([placed.values[:, *k] for k in np.ndindex(*shape)])
                by, place = len(self._places), placed.place
                self._places.append(pt.switch(place < 0, -program.n_statistics, place * len(columns)))
            self._goes_to += [(by, start + k) for k in range(len(columns))]
            found += columns
            start += size
        return found

    def _placed(self, release: Release) -> Placed | None:
        """Return where each record adds to a release, if that is known and the kernel takes places."""
        placed = self.program.block.analysis.placed.get(release.query)
        if self.program.n_statistics <= blocks.IN_REGISTERS or placed is None:
            return None
        return placed if placed.shape == self.program.shape_of_terms(release) else None

    def _release_graphs(self) -> list[TensorVariable]:
        program = self.program
        return [
            pm.logp(r.rv, program.state[r.rv])
            if r.rv not in program.tables
            else program.tables[r.rv].density(r.query)
            for r in program.of_kind("local")
        ]

    def _weight_graphs(self) -> list[TensorVariable]:
        program, analysis = self.program, self.program.block.analysis
        graphs = self._release_graphs()
        if any(
            analysis.role(r.query).rows is not None or analysis.role(r.query).axis
            for r in program.of_kind("local")
        ):
            raise NotScalar("a local release of some of the records")
        for term in program.block.terms:
            if rows_behind(term, analysis) is not None:
                raise NotScalar("a variable that depends on some of the records")
            observed = term in program.model.observed_RVs
            graphs.append(density_at(term, program.state[term] if observed else term))
        for potential in program.block.potentials:
            role = analysis.role(potential)
            if role.kind == "sum":
                graphs.append(analysis.rows_of(potential))
            elif role.kind == "row" and role.axis == 0 and role.rows is None:
                graphs.append(potential)
            else:
                raise NotScalar(f"the potential {potential.name}")
        return graphs

    def _weight(self, rows: RowGraph, graphs: list[TensorVariable]) -> TensorVariable:
        total = pt.constant(0.0)
        for graph in graphs:
            sizes = graph.type.shape[1:]
            if None in sizes or np.prod(sizes, initial=1) > 24:
                raise NotScalar("a release of many entries per record")
            for index in np.ndindex(*sizes):
                total = total + rows.entry(graph, (ROW, *index))
        return total

    # -- kernels that ask for a candidate and for what is to be known of it -----------------------

    def _given(self) -> Variable:
        """Return what a candidate is computed from, beside parameters."""
        return self._rng

    def _more(self) -> list[TensorVariable]:
        """Further outputs of the current state, which proposals take."""
        return []

    def _candidate(self, f: Any) -> Function:
        """Return a part of kernels that draws a candidate, and how much likelier the way back is, in logs."""
        m = self.n_columns
        return part_of_kernel(lambda rng, c, cov, i, own: (f(rng, *c, *column(cov, i, m)), 0.0))

    # -- compilation ------------------------------------------------------------------------------

    @property
    def may_be_undefined(self) -> bool:
        """Whether a candidate may be without a law, given another record, or without a density."""
        return bool(self._conditions)

    def _of(self, rows: RowGraph, statistics: list, weights: list) -> list[TensorVariable]:
        """Statistics of a record and its log weight."""
        return [*(rows.entry(c, (ROW,)) for c in statistics), self._weight(rows, weights)]

    def _of_draws(self, statistics: list, weights: list) -> list[TensorVariable]:
        """Statistics of a candidate and its log weight, as functions of random numbers."""
        *contributions, weight = self._of(self._draws, statistics, weights)
        if self._conditions:
            weight = pt.switch(reduce(pt.and_, self._conditions), weight, -np.inf)
        return [*contributions, weight]

    def _compile(self, statistics: list, weights: list, columns: list, each: list) -> None:
        rows = self._state
        # candidates are drawn first, and their statistics taken from what was drawn: from the value where
        # that is drawn, as those of records are, since it tells numbers apart that round to one
        drawn = [ps.float64(f"y{k}") for k in range(len(each))]
        places = dict(zip(each, drawn, strict=True))

        def candidate_entry(rv: Variable, index: tuple[int, ...]) -> TensorVariable:
            if (rv, index) in self._drawn_values or (rv, index) not in places:
                return self._from_value(lambda at: places[rv, at], rv, index, candidates)
            return pt.cast(pt.tensor_from_scalar(places[rv, index]), rv.dtype)  # type: ignore[attr-defined]

        candidates = rows.fork(candidate_entry)
        state, proposed = (self._of(graph, statistics, weights) for graph in (rows, candidates))
        entries = [
            value if key in self._drawn_values else self._draws.entry(key[0], (ROW, *key[1]))
            for key, value in zip(each, columns, strict=True)
        ]
        value_of = {}
        for k, (entry, value) in enumerate(zip(list(entries), columns, strict=True)):
            if value is not entry:
                value_of[k] = len(entries)
                entries.append(value)
        if self._conditions:
            entries.append(reduce(pt.and_, self._conditions))
        inputs = [*rows.constant_inputs, *rows.column_inputs]
        draw, _ = scalar_function([self._rng, *inputs], entries)
        current, _ = scalar_function([*inputs, *self._x], state)
        candidate = current
        if value_of:
            candidate, _ = scalar_function([*inputs, *drawn], proposed)
        self._compile_hoist()
        self.rows = self._kernel(draw, current, candidate, len(entries), value_of, bool(weights))

    def _kernel(
        self, draw: Any, current: Any, candidate: Any, n_drawn: int, value_of: dict[int, int], weighted: bool
    ) -> Kernel:
        """Bind the loops over blocks to the functions of a record.

        ``value_of``: entries whose value space is not that of the draws, and the result of ``draw`` that is
        their value.
        """
        program, m = self.program, len(self._state.columns)
        d, width = len(self._goes_to), program.records.width
        tries = TRIES if self.may_be_undefined else 0
        calls = {
            "draw": part_of_kernel(lambda rng, c, cov, i: draw(rng, *c, *column(cov, i, m))),
            "current": part_of_kernel(lambda c, cov, i, x: current(*c, *column(cov, i, m), *x)),
            "candidate": part_of_kernel(lambda c, cov, i, y: candidate(*c, *column(cov, i, m), *y)),
        }
        names = {
            "N_CONSTANTS": self.n_constants,
            "WIDTH": width,
            "N_DRAWN": n_drawn,
            "N_CONTRIBUTIONS": d,
            "N_PARAMETERS": d * program.n_parameters,
            "TEMPER_AT": program.temper_at,
            "PEOPLE_AT": -1 if weighted or tries else program.people_at,
            "WEIGHTED": weighted or tries > 0,
            "TRIES": tries,
            "VALUE_AT": np.array([value_of.get(j, j) for j in range(width)], np.int64),
            "PLACED_BY": np.array([m + k if k >= 0 else -1 for k, _ in self._goes_to], np.int64),
            "PLACED_FROM": np.array([start for _, start in self._goes_to], np.int64),
            **calls,
        }

        kernel, last = blocks.few_sums_sweep, [blocks.take_all, blocks.take_rest]
        if program.n_statistics > blocks.IN_REGISTERS:
            kernel = blocks.many_sums_sweep
            last = [blocks.sum_of, blocks.add_to_sums, blocks.take_all_of_many]
            names["change_of_one"] = program.central.part_of_one()
        else:
            names["change"] = program.central.part_of_numbers()
        parts: Any = (blocks.draw_block, blocks.load_block, blocks.summarise_block, *last)
        return kernel_of(kernel, parts, ROWS, names)

    def _compile_hoist(self) -> None:
        """Compile what the sweep takes from outside of the records, once all entries are known."""
        program, rows = self.program, self._state
        columns = [*rows.columns, *self._places]
        self.n_constants, self.n_columns = len(rows.constants), len(columns)
        constants = [
            pt.cast(c, "float64") for c in substitute(with_known_shapes(rows.constants), program.state)
        ]
        covariates = [pt.cast(c, "float64") for c in substitute(with_known_shapes(columns), program.state)]
        self.hoist: NativeFunction = program.native(
            "hoist",
            [],
            [
                pt.stack(constants) if constants else pt.constant(np.zeros(0)),
                pt.stack(covariates) if covariates else pt.constant(np.zeros((0, program.n))),
            ],
            HOIST,
        )


class FromNumber(FusedSweep):
    """Candidates for the one record variable that are a number drawn by the kernel, whatever its law."""

    _number = ps.float64("drawn")

    def _weight_graphs(self) -> list[TensorVariable]:
        (record,) = self.program.block.records
        return [*super()._weight_graphs(), density_at(record, record)]

    def _draw_entry(self, rv: Variable, index: tuple[int, ...]) -> TensorVariable:
        return pt.cast(pt.tensor_from_scalar(self._number), rv.dtype)  # type: ignore[attr-defined]

    def _given(self) -> Variable:
        return self._number
