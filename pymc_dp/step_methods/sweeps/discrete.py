"""One record sweep by look-up tables, for records with few possible values.

Where every record variable has a small support, a candidate is drawn from tables of conditional
probabilities (computed once per sweep from the parameters), and what a record contributes to the sums is
read from tables made when the step is built: for each group of statistics that look at the same variables,
the entries that are not zero. A candidate then costs the statistics that it changes, however many there are:
ten of 150 for the log-linear model of Ju, Awan, Gong & Rao (2022). Groups are split until a record
contributes to one statistic of each: only the entry that it leaves and the one that it comes to change.
"""

from collections.abc import Sequence
from hashlib import sha256
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import CategoricalRV
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.native import HOIST, ROWS, NativeFunction, SourceFunction
from pymc_dp.lowering.rows import NotScalar
from pymc_dp.readings import Reading
from pymc_dp.records import is_elementwise, parameters_of
from pymc_dp.rowlocal import leaves_of
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.sweeps.picked import picked_rows, table_shape
from pymc_dp.step_methods.sweeps.source import COUNTS, DECISION, HEADER, WAIT, indented
from pymc_dp.supports import finite_support

# Largest tables: combinations of all variables of a record, times statistics.
_MAX_CELLS = 2_000_000


class _Group(NamedTuple):
    """Statistics of one release that look at the same variables."""

    columns: list[int]
    size: int  # parts: of each, a record contributes to one statistic


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
        constant, groups = self._contributions()
        self._compile(constant, groups)

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
                table = pt.exp(pm.logp(law, reading[rv]))
        except (TypeError, ValueError) as error:
            raise NotScalar(f"the law of {rv.name} differs between records: {error}") from error
        if _has_data([table]) or self._evaluated(table).shape[0] != self._padded(rows):
            raise NotScalar(f"the law of {rv.name} differs between records")
        return table[:rows].reshape((rows if listed else rows // size, size))

    def _evaluated(self, graph: TensorVariable) -> np.ndarray:
        theta = np.zeros(self.program.parameters.size)
        inputs = {self.program.theta: theta, self.program.data.data: self.program.data.gather()}
        try:
            function = pytensor.function(
                list(inputs), graph, mode=Mode(linker="py", optimizer=None), on_unused_input="ignore"
            )
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

    def _contributions(self) -> tuple[np.ndarray, list[tuple[_Group, np.ndarray]]]:
        """Constant part of a record's contributions, and the groups of statistics with their tables."""
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
                group = _Group(list(columns), len(parts))
                entries = np.empty((len(cells), len(parts), 2))
                for e, part in enumerate(parts):
                    chosen = cells[:, np.array(statistics)[part]]
                    where = np.argmax(chosen != 0, axis=1)
                    entries[:, e, 0] = start + np.array(statistics)[part][where]
                    entries[:, e, 1] = chosen[np.arange(len(cells)), where]
                found.append((group, entries))
            start += joint.shape[-1]
        return constant, found

    def _compile(self, constant: np.ndarray, groups: list[tuple[_Group, np.ndarray]]) -> None:
        if not groups:
            raise NotScalar("no statistic depends on the records")
        arrays: dict[str, np.ndarray] = {
            "constant": constant,
            "cell": np.concatenate([c.ravel() for c in self.cells]),
        }
        self.groups = [group for group, _ in groups]
        # all tables one after the other; part e of a group follows part e - 1
        flat = [entries.transpose(1, 0, 2).reshape(-1, 2) for _, entries in groups]
        self.firsts = np.cumsum([0, *(len(entries) for entries in flat)])
        entries = np.concatenate(flat)
        arrays["statistic"], arrays["amount"] = entries[:, 0].astype(np.int64), entries[:, 1].copy()
        digest = sha256(b"".join(a.tobytes() for a in arrays.values())).hexdigest()
        functions, keys = self.program.central.functions, self.program.central.keys
        # what other generated code about the same records needs
        self.names, self.keys = {**functions, **arrays}, [*keys, digest]
        self.rows = SourceFunction("rows_sweep", self._source(), self.names, ROWS, self.keys)

    def _source(self) -> str:
        d, p = self.program.n_statistics, len(self.sizes)
        lines = [
            *HEADER,
            f"    cumulative = np.empty({self.starts[-1]})",
        ]
        for k, size in enumerate(self.sizes):
            lines += [
                f"    for row in range({self.starts[k]}, {self.starts[k + 1]}, {size}):",
                "        total = 0.0",
                f"        for at in range(row, row + {size}):",
                "            total += c[cell[at]]",
                "            cumulative[at] = total",
                # the last is exactly 1, and a value of probability zero is never drawn
                f"        for at in range(row, row + {size}):",
                "            cumulative[at] /= total",
            ]
        lines += [
            *indented(self.work(), 4),
            f"    old = np.empty({d})",
            f"    for j in range({d}):",
            "        old[j] = offset[j] + n * constant[j]",
            "    for i in range(n):",
            *(f"        a{k} = int(x[i, {k}])" for k in range(p)),
        ]
        lines += [
            *indented(self.places("a"), 8),
            "        for g in range(where_a.shape[0]):",
            "            old[statistic[where_a[g]]] += amount[where_a[g]]",
            "    for _ in range(n_sweeps):",
            "        for i in range(n):",
            *(f"            a{k} = int(x[i, {k}])" for k in range(p)),
        ]
        for k, size in enumerate(self.sizes):
            lines += [
                f"            at = {self.starts[k]} + {size} * ({self.index('b', self.parents[k])})",
                # all are compared: where the search ends cannot be foreseen
                f"            u, b{k} = random(rng), 0",
                f"            for e in range(at, at + {size - 1}):",
                f"                b{k} += u >= cumulative[e]",
            ]
        lines += [
            *indented([*self.places("a"), *self.places("b")], 12),
            "            total = 0.0",
            "            if prior_only == 0:",
            *indented(self._ratio(), 16),
            f"                total *= data[{self.program.temper_at}]",
            *indented([WAIT, *DECISION], 12),
            *(f"                x[i, {k}] = b{k}" for k in range(p)),
            *indented(self.shift("old"), 16),
            *COUNTS,
            f"    for j in range({d}):",
            "        totals[j] = old[j] - offset[j]",
        ]
        return "\n".join(lines) + "\n"

    def work(self) -> list[str]:
        """Lines that make room for where a record stands in the tables."""
        n_parts = sum(group.size for group in self.groups)
        return [f"where_a, where_b = np.empty({n_parts}, np.int64), np.empty({n_parts}, np.int64)"]

    def places(self, values: str) -> list[str]:
        """Lines that find where a record with some values stands in the tables."""
        lines, g = [], 0
        for group, first in zip(self.groups, self.firsts, strict=False):
            rows = int(np.prod([self.sizes[k] for k in group.columns]))
            row = f"{first} + {self.index(values, group.columns)}"
            if group.size == 1:
                lines += [f"where_{values}[{g}] = {row}"]
            else:
                lines += [
                    f"for e in range({group.size}):",
                    f"    where_{values}[{g} + e] = {row} + {rows} * e",
                ]
            g += group.size
        return lines

    def _ratio(self) -> list[str]:
        """Lines that add the change of the releases' density, were a record to have values b instead of a."""
        return [
            "for g in range(where_a.shape[0]):",
            "    if where_a[g] != where_b[g]:",
            "        j, k = statistic[where_a[g]], statistic[where_b[g]]",
            "        left = old[j] - amount[where_a[g]]",
            "        if j == k:",
            "            left += amount[where_b[g]]",
            "        else:",
            *indented(self.change("k", "old[k] + amount[where_b[g]]"), 12),
            *indented(self.change("j", "left"), 8),
        ]

    def shift(self, sums: str, after: Sequence[str] = ()) -> list[str]:
        """Lines that change sums by what a record contributes with values b instead of a.

        Lines ``after`` follow each changed statistic ``j``.
        """
        return [
            "for g in range(where_a.shape[0]):",
            "    if where_a[g] != where_b[g]:",
            "        j = statistic[where_a[g]]",
            f"        {sums}[j] -= amount[where_a[g]]",
            *indented(after, 8),
            "        j = statistic[where_b[g]]",
            f"        {sums}[j] += amount[where_b[g]]",
            *indented(after, 8),
        ]

    def change(self, statistic: str, new: str) -> list[str]:
        """Lines that add the change of the density of a statistic, from ``old`` to a new sum."""
        lines, start = [], 0
        releases = self.program.of_kind("central")
        for r, release in enumerate(releases):
            start += int(np.prod(self.program.shape_of(release)))
            n_params = len(parameters_of(release.rv)) - 1
            args = "".join(f", params[{statistic}, {i}]" for i in range(n_params))
            lines += [
                "else:" if r and r == len(releases) - 1 else f"{'el' if r else ''}if {statistic} < {start}:",
                f"    total += change{r}(value[{statistic}], old[{statistic}], {new}{args})[0]",
            ]
        return lines

    def index(self, name: str, columns: list[int]) -> str:
        """Expression for the row of a table that some variables pick."""
        index = ""
        for k in columns:
            index = f"({index}) * {self.sizes[k]} + {name}{k}" if index else f"{name}{k}"
        return index or "0"


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
