"""One record sweep by look-up tables, for records with few possible values.

Where every record variable has a small support, a candidate is drawn from tables of conditional
probabilities (computed once per sweep from the parameters), and what a record contributes to the sums is
read from tables made when the step is built: for each group of statistics that look at the same variables,
the entries that are not zero. A candidate then costs the statistics that it changes, however many there are:
ten of 150 for the log-linear model of Ju, Awan, Gong & Rao (2022). Groups are split until a record
contributes to one statistic of each: only the entry that it leaves and the one that it comes to change.
"""

from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import CategoricalRV
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.bind import Kernel
from pymc_dp.lowering.addresses.native import HOIST, NativeFunction
from pymc_dp.lowering.rows.rows import NotScalar
from pymc_dp.query.readings import AS_WRITTEN, Reading
from pymc_dp.query.records import is_elementwise, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.supports import finite_support
from pymc_dp.step_methods.block.guards import by_entry
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.block.state import ROWS
from pymc_dp.step_methods.sweeps.discrete_kernels import (
    Look,
    drawn_in_turn,
    found_in_turn,
    strides_of,
    table_sweep,
)
from pymc_dp.step_methods.sweeps.probability_cells import picked_rows, table_shape

# Largest tables: combinations of all variables of a record, times statistics.
_MAX_CELLS = 2_000_000


class DiscreteSweep:
    """Native functions of a sweep by look-up tables; takes the place of a fused sweep.

    Parameters
    ----------
    program : RecordProgram

    Raises
    ------
    NotScalar
        If the records have no such tables: a large support, a law or a contribution with covariates, terms
        beside the central releases, no contribution that differs between values.
    """

    n_columns = 0

    def __init__(self, program: RecordProgram):
        block = program.block
        whole = not all(is_elementwise(r.rv) for r in program.of_kind("central"))
        others = program.of_kind("local", "function", "general") or block.terms or block.potentials
        if whole or others or block.analysis.placements or not program.of_kind("central"):
            raise NotScalar("terms beside central releases")
        self.program = program
        self.sizes = [self._size(rv) for rv in block.records]
        if float(np.prod(self.sizes, dtype=float)) * program.n_statistics > _MAX_CELLS:
            raise NotScalar("too many combinations of the records' values")
        self.parents = [
            [k for k, other in enumerate(block.records) if other in self._leaves(parameters_of(rv))]
            for rv in block.records
        ]
        self._parts: list[TensorVariable] = []  # what the tables of probabilities are picked from, flat
        self.tables: dict[Variable, int] = {}  # variables among them, and where each begins
        self.n_constants = 0
        # where the probabilities of each variable are: a row for each combination of its parents
        self.cells = [self._cells(k) for k in range(len(self.sizes))]
        self.starts = np.cumsum([0, *(c.size for c in self.cells)])
        self.hoist: NativeFunction = program.native(
            "hoist", [], [pt.concatenate(self._parts), pt.constant(np.zeros((0, program.n)))], HOIST
        )
        self._compile(*self._contributions())

    def _size(self, rv: TensorVariable) -> int:
        support = finite_support(rv)
        if support is None or support[0] != 0 or rv.ndim != 1:
            raise NotScalar(f"{rv.name} is no vector of few values")
        if self.program.model.rvs_to_transforms.get(rv) is not None:
            raise NotScalar(f"{rv.name} is transformed")
        return len(support)

    def _leaves(self, graphs: Any) -> set[Any]:
        return set(leaves_of(graphs, set(self.program.model.basic_RVs)))

    def _grid(self, columns: list[int]) -> tuple[int, Reading]:
        """Every combination of some variables, one per row, as a reading of the model; and their number."""
        combinations = list(product(*(range(self.sizes[k]) for k in columns)))
        rows = len(combinations)
        padding = combinations[:1] * (self._padded(rows) - rows)
        values = np.array(combinations + padding).reshape(self._padded(rows), len(columns))
        records = self.program.block.records
        grid = {records[k]: pt.constant(values[:, i].astype(records[k].dtype)) for i, k in enumerate(columns)}
        return rows, {**self.program.state, **grid}

    def _padded(self, rows: int) -> int:
        """Return a number of rows that is not the number of records, so that covariates do not fit."""
        rows = max(rows, 2)
        return rows + (rows == self.program.n)

    def _cells(self, k: int) -> np.ndarray:
        """Where the probabilities of a variable stand among the hoisted numbers."""
        child = self.program.block.records[k]
        if isinstance(child.owner.op, CategoricalRV):
            for table in self._leaves(parameters_of(child)) & set(self.program.parameters.variables):
                rows = picked_rows(self.program.model, child, table)
                if rows is not None:
                    if table not in self.tables:
                        self.tables[table] = self._add(self.program.state[table])
                    return self.tables[table] + self.tabulated(k, rows).astype(np.int64)
        law = self._law(k)
        start = self._add(law)
        return np.arange(start, self.n_constants).reshape(-1, self.sizes[k])

    def extent(self, table: Variable) -> int:
        """Return how many numbers a table is."""
        return int(np.prod(table_shape(self.program.model, table)))

    def _add(self, graph: TensorVariable) -> int:
        """Add to the hoisted numbers; return where they begin."""
        start = self.n_constants
        self._parts.append(pt.cast(graph, "float64").ravel())
        self.n_constants += self._evaluated(graph).size
        return start

    def _law(self, k: int) -> TensorVariable:
        """Probabilities of a variable, one row for each combination of its parents."""
        rv, size = self.program.block.records[k], self.sizes[k]
        node = rv.owner
        assert node is not None
        listed = isinstance(node.op, CategoricalRV)  # its parameter is the table already
        rows, reading = self._grid(self.parents[k] + [k] * (not listed))
        params = _read(parameters_of(rv), reading)
        try:
            if listed:
                table = pt.broadcast_to(params[0], (self._padded(rows), size))
            else:
                law = node.op.make_node(node.inputs[0], NoneConst, *params).default_output()
                table = pt.exp(by_entry(pm.logp(law, reading[rv])))
        except (TypeError, ValueError) as error:
            raise NotScalar(f"the law of {rv.name} differs between records: {error}") from error
        if _has_data([table]) or self._evaluated(table).shape[0] != self._padded(rows):
            raise NotScalar(f"the law of {rv.name} differs between records")
        return table[:rows].reshape((rows if listed else rows // size, size))

    def _evaluated(self, graph: TensorVariable) -> np.ndarray:
        theta = np.zeros(self.program.parameters.size)
        inputs = {self.program.theta: theta, self.program.data.data: self.program.data.gather()}
        try:
            function = pytensor.function(list(inputs), graph, mode=AS_WRITTEN, on_unused_input="ignore")
            return function(*inputs.values())
        except Exception as error:  # any misfit of shapes: the fused sweep takes these records
            raise NotScalar(f"a table cannot be made: {error}") from error

    def tabulated(self, k: int, graph: TensorVariable) -> np.ndarray:
        """Evaluate what depends on the parents of a variable, one row for each combination of them."""
        rows, reading = self._grid(self.parents[k])
        table = self._evaluated(_read([graph], reading)[0])
        if table.shape[0] not in (1, self._padded(rows)):
            raise NotScalar(f"the law of {self.program.names[k]} differs between records")
        return np.broadcast_to(table, (self._padded(rows), table.shape[-1]))[:rows]

    def _contributions(self) -> tuple[np.ndarray, list[tuple[list[int], np.ndarray]]]:
        """Constant part of a record's contributions, and tables of the others by the variables they look at.

        A table has a row for each combination of these, a column for each part: of the statistics of a part,
        a record contributes to one. An entry is the number of this statistic and what is contributed.
        """
        program, everything = self.program, list(range(len(self.sizes)))
        rows, reading = self._grid(everything)
        constant, found, start = np.zeros(program.n_statistics), [], 0
        for release in program.of_kind("central"):
            graph = program.block.analysis.rows_of(release.query)
            if self._leaves([graph]) - set(program.block.records) or _has_data([graph]):
                raise NotScalar(f"the query of {release.name} has parameters or covariates in it")
            (graph,) = _read([graph], reading)
            table = self._evaluated(graph)
            if table.shape[0] < rows or table.shape[1:] != program.shape_of(release):
                raise NotScalar(f"the contributions to {release.name} have another shape")
            joint = table[:rows].reshape(*self.sizes, -1).astype(float)
            sets: dict[tuple[int, ...], list[int]] = {}
            for j in range(joint.shape[-1]):
                seen = [i for i in everything if np.any(np.diff(joint[..., j], axis=i))]
                sets.setdefault(tuple(seen), []).append(j)
            for j in sets.pop((), []):
                constant[start + j] = joint[..., j].flat[0]
            for columns, statistics in sets.items():
                at = tuple(slice(None) if i in columns else 0 for i in everything)
                cells = joint[at].reshape(-1, joint.shape[-1])
                parts = _apart(cells[:, statistics] != 0)
                entries = np.empty((len(cells), len(parts), 2))
                for e, part in enumerate(parts):
                    chosen = cells[:, np.array(statistics)[part]]
                    where = np.argmax(chosen != 0, axis=1)
                    entries[:, e, 0] = start + np.array(statistics)[part][where]
                    entries[:, e, 1] = chosen[np.arange(len(cells)), where]
                found.append((list(columns), entries))
            start += joint.shape[-1]
        return constant, found

    def _compile(self, constant: np.ndarray, groups: list[tuple[list[int], np.ndarray]]) -> None:
        if not groups:
            raise NotScalar("no statistic depends on the records")
        # all tables one after the other; part e of a group follows part e - 1
        looks, first = [], 0
        for columns, entries in groups:
            n_rows, n_parts, _ = entries.shape
            strides = strides_of(columns, self.sizes, len(self.sizes))
            looks.append(Look(strides, first, n_parts, n_rows))
            first += n_rows * n_parts
        flat = np.concatenate([entries.transpose(1, 0, 2).reshape(-1, 2) for _, entries in groups])
        program = self.program
        # what kernels about the same records need
        self.names = {
            "WIDTH": len(self.sizes),
            "N_STATISTICS": program.n_statistics,
            "N_PARTS": sum(look.n_parts for look in looks),
            "find": found_in_turn(looks),
            "STATISTIC": flat[:, 0].astype(np.int64),
            "AMOUNT": flat[:, 1].copy(),
            "density": program.central.part_of_one(),
        }
        picks = [
            Look(strides_of(parents, self.sizes, k, last=self.sizes[k]), int(self.starts[k]))
            for k, parents in enumerate(self.parents)
        ]
        self.rows = Kernel(
            table_sweep,
            ROWS,
            {
                **self.names,
                "TEMPER_AT": program.temper_at,
                "SIZES": np.array(self.sizes, np.int64),
                "STARTS": self.starts.astype(np.int64),
                "CELL": np.concatenate([c.ravel() for c in self.cells]),
                "draw_values": drawn_in_turn(picks, self.sizes),
                "CONSTANT": constant,
            },
        )


def _apart(entries: np.ndarray) -> list[np.ndarray]:
    """Split statistics so that no value of a record contributes to two of the same part.

    Of a part, a record that moves changes two statistics at most, those of its old and of its new value.
    """
    together = entries.T.astype(float) @ entries.astype(float) > 0
    parts: list[list[int]] = []
    for j in range(entries.shape[1]):
        part = next((part for part in parts if not np.any(together[j, part])), None)
        if part is None:
            parts.append([j])
        else:
            part.append(j)
    return [np.array(part) for part in parts]


def _read(graphs: list[Any], reading: Reading) -> list[Any]:
    """Replace the model's variables by a reading with another number of rows."""
    try:
        return clone_replace(graphs, reading, rebuild_strict=False)  # type: ignore[arg-type,return-value]
    except (TypeError, ValueError, IndexError) as error:
        raise NotScalar(f"the number of records is in the graph: {error}") from error


def _has_data(graphs: list[TensorVariable]) -> bool:
    """Whether ``pm.Data`` is behind some graphs: it may be set to other values after the tables are made."""
    return any(
        isinstance(v, SharedVariable) and not isinstance(v.type, RandomGeneratorType)
        for v in ancestors(graphs)
    )
