"""Exact and joint draws of probability tables beside the categorical records that they rule.

One cycle is (1) a sweep over the records; (2) every row of every table from its Dirichlet law given the
records; (3) every row *together with* its records, whose places in the cumulative distribution are kept.
The third is what moves the tables when privacy is strong: given the records a row can only move as far as n
records allow, though the releases would allow more. Rows are drawn anew from their prior, or moved by a
random walk of their logarithms: an autoregression of gamma variables, with the same law, mixed no better.
"""

from functools import cached_property
from hashlib import sha256

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import constant_fold
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.lowering.native import COORDINATES, TABLES, VALUES, NativeFunction, SourceFunction, addresses_of
from pymc_dp.lowering.rows import NotScalar
from pymc_dp.readings import substitute
from pymc_dp.records import parameters_of
from pymc_dp.step_methods.sweeps.discrete import DiscreteSweep
from pymc_dp.step_methods.sweeps.picked import table_shape
from pymc_dp.step_methods.sweeps.source import indented

# Joint moves draw a row anew with this probability; otherwise they move the logarithms of its probabilities
# by normal steps, of _SCALE over the root of their number, or smaller by a factor of up to _SMALLEST.
_FRESH = 0.5
_SCALE = 2.4
_SMALLEST = 0.2
# Smallest concentration for which a probability is a number as good as always: it is below _TINY with
# probability 1e-30. Smaller ones are drawn by their logarithms, without joint moves.
_SMALLEST_CONCENTRATION = 0.1
_TINY = 1e-300

# A categorical variable, and the cell numbers (..., categories) of the row it is drawn from.
Picked = tuple[TensorVariable, TensorVariable]


class DirichletUpdate:
    """Native functions for the tables of one block of records.

    Parameters
    ----------
    sweep : DiscreteSweep
    tables : list of TensorVariable
        The Dirichlet variables.
    picked : dict
        From a table to its children, each with the cell numbers of the row that it is drawn from.

    Raises
    ------
    NotScalar
        If some record is not drawn from a row of one of the tables.
    """

    def __init__(
        self, sweep: DiscreteSweep, tables: list[TensorVariable], picked: dict[TensorVariable, list[Picked]]
    ):
        self.sweep, program = sweep, sweep.program
        if {child for rv in tables for child, _ in picked[rv]} != set(program.block.records):
            raise NotScalar("some records are not ruled by these tables")
        if sweep.n_constants != sum(sweep.extent(rv) for rv in tables):
            raise NotScalar("a table of probabilities is no Dirichlet variable")
        self.size = sweep.n_constants
        # first cell of the row that each combination of parents picks, and where each row ends
        self._arrays = {f"row{k}": cells[:, 0].copy() for k, cells in enumerate(sweep.cells)}
        shapes = {rv: table_shape(program.model, rv) for rv in tables}
        order = sorted(tables, key=lambda rv: sweep.tables[rv])
        lengths = [shapes[rv][-1] for rv in order for _ in range(sweep.extent(rv) // shapes[rv][-1])]
        self._arrays["end"] = np.cumsum(lengths)
        alphas = [
            pt.broadcast_to(substitute(parameters_of(rv), program.state)[0], shapes[rv]) for rv in order
        ]
        if not all(_known_and_large(parameters_of(rv)[0]) for rv in tables):
            raise NotScalar("a concentration is random, or so small that probabilities would underflow")
        self.start: NativeFunction = program.native(
            "concentrations", [], [pt.concatenate([a.ravel() for a in alphas])], COORDINATES
        )
        p = pt.vector("p", dtype="float64", shape=(self.size,))
        values = [program.forward(rv, self._part(p, rv).reshape(shapes[rv]), program.state) for rv in tables]
        self.finish: NativeFunction = program.native(
            "values of tables", [p], [pt.concatenate([v.ravel() for v in values])], VALUES
        )
        digest = sha256(b"".join(a.tobytes() for a in self._arrays.values())).hexdigest()
        self.update = SourceFunction(
            "update_tables", self._source(), {**sweep.names, **self._arrays}, TABLES,
            [*sweep.keys, digest],
        )  # fmt: skip

    def _part(self, p: TensorVariable, rv: TensorVariable) -> TensorVariable:
        start = self.sweep.tables[rv]
        return p[start : start + self.sweep.extent(rv)]

    @cached_property
    def addresses(self) -> np.ndarray:
        """Addresses of the native functions, in the order that :func:`kernels.table_cycles` takes them."""
        sweep = self.sweep
        functions = (
            sweep.program.central.releases,
            sweep.hoist,
            sweep.rows,
            self.start,
            self.update,
            self.finish,
        )
        return addresses_of(functions)

    @property
    def sizes(self) -> np.ndarray:
        """Sizes of the work arrays, in the order that :func:`kernels.table_cycles` takes them."""
        program = self.sweep.program
        return np.array([program.n_statistics, program.n_parameters, self.size], dtype=np.int64)

    def _source(self) -> str:
        sweep = self.sweep
        d, columns = sweep.program.n_statistics, range(len(sweep.sizes))
        width = len(columns)
        rows_of_a = [f"row{k}[{sweep.index('a', sweep.parents[k])}]" for k in columns]
        touch = [
            "if stamp[j] != now:",
            "    stamp[j] = now",
            "    touched[n_touched] = j",
            "    n_touched += 1",
        ]
        rows_of_b = [f"row{k}[{sweep.index('b', sweep.parents[k])}]" for k in columns]
        lines = [
            "def update_tables(rng, alpha, p, value, params, offset, x, totals, tally):",
            "    n, size = x.shape[0], p.shape[0]",
            f"    a, b = np.empty((n, {width}), np.int64), np.empty((n, {width}), np.int64)",
            f"    row, counts = np.empty((n, {width}), np.int64), np.zeros(size)",
            "    before = np.empty(size)",  # probability of the categories before each, in its row
            "    for i in range(n):",
            *(f"        a{k} = int(x[i, {k}])" for k in columns),
            *(f"        a[i, {k}], row[i, {k}] = a{k}, {rows_of_a[k]}" for k in columns),
            *(f"        counts[row[i, {k}] + a{k}] += 1.0" for k in columns),
            "    first = 0",
            "    for r in range(end.shape[0]):",
            "        total = 0.0",
            "        for j in range(first, end[r]):",
            f"            p[j] = max(rng.standard_gamma(alpha[j] + counts[j]), {_TINY})",
            "            total += p[j]",
            "        below = 0.0",
            "        for j in range(first, end[r]):",
            "            p[j] /= total",
            "            before[j] = below",
            "            below += p[j]",
            "        first = end[r]",
            *indented(sweep.work(), 4),
            f"    old, new = np.empty({d}), np.empty({d})",
            f"    touched, stamp, now = np.empty({d}, np.int64), np.empty({d}, np.int64), 0",
            f"    for j in range({d}):",
            "        old[j] = offset[j] + totals[j]",
            "        new[j], stamp[j] = old[j], -1",
            "    q, q_before, changed = p.copy(), before.copy(), np.empty(n, np.int64)",
            f"    head, link = np.empty(size, np.int64), np.empty(n * {width}, np.int64)",
            "    first, stale = 0, True",
            "    for r in range(end.shape[0]):",
            "        if stale:",  # list the records behind each row
            "            stale = False",
            "            for j in range(size):",
            "                head[j] = -1",
            "            for i in range(n):",
            f"                for k in range({width}):",
            "                    j = row[i, k]",
            f"                    if head[j] < 0 or head[j] // {width} != i:",
            f"                        link[i * {width} + k] = head[j]",
            f"                        head[j] = i * {width} + k",
            "        prior, total = 0.0, 0.0",
            f"        if random(rng) < {_FRESH}:",
            "            for j in range(first, end[r]):",
            f"                q[j] = max(rng.standard_gamma(alpha[j]), {_TINY})",
            "                total += q[j]",
            "        else:",
            # in the logarithms, the law is the probabilities to the power of their concentrations
            f"            scale = {_SCALE} * {_SMALLEST} ** random(rng)",
            "            scale /= np.sqrt(max(end[r] - first - 1, 1))",
            "            for j in range(first, end[r]):",
            "                step = scale / np.sqrt(max(alpha[j], 1.0)) * standard_normal(rng)",
            f"                q[j] = max(p[j] * np.exp(step), {_TINY})",
            "                prior += alpha[j] * step",
            "                total += q[j]",
            "            for j in range(first, end[r]):",
            "                prior -= alpha[j] * np.log(total)",
            "        below = 0.0",
            "        for j in range(first, end[r]):",
            "            q[j] /= total",
            "            q_before[j] = below",
            "            below += q[j]",
            "        now += 1",
            "        n_touched, n_changed = 0, 0",
            "        node = head[first]",
            "        while node >= 0:",
            f"            i, node = node // {width}, link[node]",
            "            moved = False",
        ]
        for k in columns:
            lines += [
                f"            a{k}, at, to = a[i, {k}], row[i, {k}], {rows_of_b[k]}",
                f"            b{k} = a{k}",
                "            if to != at or to == first:",
                f"                u, b{k} = before[at + a{k}] + random(rng) * p[at + a{k}], 0",
                f"                for j in range(to + 1, to + {sweep.sizes[k]}):",
                f"                    b{k} += u >= q_before[j]",
                f"                moved |= b{k} != a{k}",
            ]
        lines += [
            "            if moved:",
            "                changed[n_changed] = i",
            "                n_changed += 1",
            *(f"                b[i, {k}] = b{k}" for k in columns),
            *indented([*sweep.places("a"), *sweep.places("b"), *sweep.shift("new", touch)], 16),
            "        total = prior",
            "        for e in range(n_touched):",
            "            j = touched[e]",
            *indented(sweep.change("j", "new[j]"), 12),
            "        tally[1] += 1.0",
            "        tally[0] += min(1.0, np.exp(total)) if total == total else 0.0",
            "        if total >= 0.0 or random(rng) < np.exp(total):",
            "            for j in range(first, end[r]):",
            "                p[j], before[j] = q[j], q_before[j]",
            "            for e in range(n_changed):",
            "                i = changed[e]",
            *(f"                b{k} = b[i, {k}]" for k in columns),
        ]
        for k in columns:
            lines += [
                f"                a[i, {k}], to = b{k}, {rows_of_b[k]}",
                f"                if to != row[i, {k}]:",
                f"                    row[i, {k}], stale = to, True",
            ]
        lines += [
            "            for e in range(n_touched):",
            "                old[touched[e]] = new[touched[e]]",
            "        else:",
            "            for j in range(first, end[r]):",
            "                q[j], q_before[j] = p[j], before[j]",
            "            for e in range(n_touched):",
            "                new[touched[e]] = old[touched[e]]",
            "        first = end[r]",
            "    for i in range(n):",
            *(f"        x[i, {k}] = a[i, {k}]" for k in columns),
            f"    for j in range({d}):",
            "        totals[j] = old[j] - offset[j]",
        ]
        return "\n".join(lines) + "\n"


def _known_and_large(alpha: TensorVariable) -> bool:
    """Whether a concentration is constant, with no entry so small that probabilities underflow."""
    (folded,) = constant_fold([alpha], raise_not_constant=False)
    folded = folded.data if isinstance(folded, TensorConstant) else folded
    return isinstance(folded, np.ndarray) and bool(np.min(folded) >= _SMALLEST_CONCENTRATION)
