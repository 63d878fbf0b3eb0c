"""One table of counts as a chain sees it: its densities, directions and state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytensor
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dp.lowering.addresses.bind import Kernel
from pymc_dp.lowering.addresses.native import generator_handle
from pymc_dp.lowering.rows.rows import NotScalar
from pymc_dp.query.tables import SHARED_TOTAL, Tables
from pymc_dp.step_methods.block.program import static_value
from pymc_dp.step_methods.tables import kernels
from pymc_dp.step_methods.tables.densities import densities_of_rows, laws_of_cells
from pymc_dp.step_methods.tables.directions import Held, entries_of, find_directions
from pymc_dp.step_methods.tables.joint import JointMoves
from pymc_dp.step_methods.tables.parameters import Behind, Draws
from pymc_dp.step_methods.tables.start import meeting, near_releases
from pymc_dp.step_methods.tables.state import (
    CELL_COLUMNS,
    CELL_PRECISION,
    COUNT,
    LAW,
    LAW_OF,
    NOISE_OF,
    REFRESH,
    ROW_COLUMNS,
    ROW_PRECISION,
    SWEEP,
    Table,
    in_lines,
)

# Draws of tuning after which the scale of each cell is set anew.
_RESCALED = tuple(2**k for k in range(1, 20))


class TableChain:
    """One table as a chain sees it: its densities, directions and state.

    Parameters
    ----------
    model : pymc.Model
        With known lengths.
    tables : Tables
    behind : sequence of Behind
        Parameters that are integrated out of the moves, and drawn anew after them.
    """

    def __init__(self, model: Model, tables: Tables, behind: Sequence[Behind] = ()):
        self.model, self.tables, self.n_cells = model, tables, tables.n_cells
        self.behind, self._draws = list(behind), [Draws(model, each) for each in behind]
        self._values = [model.rvs_to_values[rv] for rv in tables.variables]
        self.names = [str(v.name) for v in self._values]
        try:
            laws = laws_of_cells(model, tables.variables, tables.shapes, behind)
            noises = densities_of_rows(model, tables.releases, behind)
        except NotScalar as error:
            raise ValueError(
                f"The table {', '.join(tables.names)} has a density that is not known cell by cell: {error}. "
                "Counts of pm.Multinomial, pm.DirichletMultinomial and of laws of single counts, and "
                "mixtures of these, are."
            ) from None
        self._laws, self._noises = laws, noises
        self.held = Held(tables, self._totals(), self._exact())
        of_sweep, of_refresh = kernels.with_densities(laws.function, noises.function)
        self._sweep = Kernel(kernels.sweep, SWEEP, of_sweep, from_python=True)
        self._refresh = Kernel(kernels.refresh, REFRESH, of_refresh, from_python=True)
        n_rows = noises.which.size + self.held.target.size
        self.table = Table(
            cells=in_lines(self.n_cells, laws.width + CELL_COLUMNS),
            rows=in_lines(n_rows, noises.width + ROW_COLUMNS),
            **entries_of(tables, self.held, [each.in_shared(self.n_cells) for each in behind]),
        )
        # columns of these, by name
        self._cells = self.table.cells[:, laws.width :].T
        self._rows = self.table.rows[: noises.which.size, noises.width :].T
        self._cells[LAW_OF], self._rows[NOISE_OF] = laws.which, noises.which
        known = self._row_precision()
        self._of_releases = self._rows[:, : known.size]  # before those of shared entries
        self._cells[CELL_PRECISION], self._of_releases[ROW_PRECISION] = 1.0, known
        self._mean = np.zeros(self.n_cells)
        self.directions = find_directions(tables, self.held, self._empty())
        integrated = {rv for each in behind for rv in each.counts}
        self.joint = JointMoves(model, tables, integrated, noises.function)
        self.joint.begin(0, self.held)

    @property
    def parameters(self) -> list[str]:
        """Names of the values of parameters that are drawn after the moves."""
        return [name for draws in self._draws for name in draws.names]

    def _totals(self) -> dict[str, np.ndarray]:
        """Return the known sums of multinomial variables."""
        return {
            str(rv.name): self._known(rv.owner.op.dist_params(rv.owner)[0], f"n of {rv.name}")  # type: ignore[union-attr]
            for rv in self.tables.variables
            if isinstance(rv.owner.op, SHARED_TOTAL)  # type: ignore[union-attr]
        }

    def _known(self, graph: Variable, what: str) -> np.ndarray:
        behind = set(ancestors([graph], blockers=self.model.basic_RVs))
        free = [rv for rv in self.model.free_RVs if rv in behind]
        if free:
            raise ValueError(
                f"{what} depends on {', '.join(str(v.name) for v in free)}: the number that a multinomial "
                "law divides has to be known. Where it is not, independent pm.Poisson counts are such a law "
                "with a total of its own: pm.Poisson(name, total * p)."
            )
        (value,) = self.model.replace_rvs_by_values([graph])  # what is observed is not drawn anew
        return np.asarray(pytensor.function([], value, mode="FAST_COMPILE")())

    def _exact(self) -> dict[str, np.ndarray]:
        return {
            k.name: np.asarray(static_value(self.model.rvs_to_values[k.rv]), dtype=float)
            for k in self.tables.invariants
        }

    def _empty(self) -> np.ndarray:
        """Return which cells their law leaves at 0, as a rate of 0 does."""
        self.read(self.model.initial_point())
        none, one = (np.isfinite(self._log_laws(np.full(self.n_cells, count))) for count in (0.0, 1.0))
        return none & ~one

    def _released(self) -> np.ndarray:
        values = [static_value(self.model.rvs_to_values[k.rv]) for k in self.tables.releases]
        return np.concatenate([*(np.ravel(v).astype(float) for v in values), np.zeros(0)])

    def _row_precision(self) -> np.ndarray:
        """Return what a noise level at the starting point says of how far a query may move."""
        found = []
        for release in self.tables.releases:
            levels = release.rv.owner.op.dist_params(release.rv.owner)[1:2]  # type: ignore[union-attr]
            (level,) = self.model.replace_rvs_by_values(levels) if levels else [1.0]
            inputs = [
                v for v in self.model.value_vars if isinstance(level, Variable) and v in ancestors([level])
            ]
            start = self.model.initial_point()
            value = (
                pytensor.function(inputs, level, mode="FAST_COMPILE")(*(start[str(v.name)] for v in inputs))
                if isinstance(level, Variable)
                else level
            )
            found.append(np.broadcast_to(np.asarray(value, dtype=float), release.linear.shape).ravel())
        return 1.0 / np.concatenate(found) ** 2 if found else np.zeros(0)

    def forget(self, tune: int) -> None:
        """Forget what was learnt, and read what is known exactly again, for a chain with so much tuning."""
        self.directions.reach[:] = 0.5
        self.directions.tally[:] = 0.0
        self._mean[:] = 0.0
        self.held = Held(self.tables, self._totals(), self._exact())
        self.joint.begin(tune, self.held)

    @property
    def learnt(self) -> np.ndarray:
        """What tuning has learnt so far, in one array: how far moves go, scales and means of cells."""
        known = (self.directions.reach, self._cells[CELL_PRECISION], self._mean, self.joint.learnt)
        return np.concatenate(known)

    @learnt.setter
    def learnt(self, values: np.ndarray) -> None:
        lengths = len(self.directions.reach), self.n_cells, self.n_cells
        reach, precision, mean, joint = np.split(values, np.cumsum(lengths))
        self.directions.reach[:], self._cells[CELL_PRECISION], self._mean[:] = reach, precision, mean
        self.joint.learnt = joint

    def read(self, point: dict[str, np.ndarray]) -> None:
        """Take counts and parameters from a point."""
        parts = [np.asarray(point[name], dtype=float).ravel() for name in self.names]
        self.table.cells[:, : self._laws.width] = self._laws.numbers(point)
        self.table.rows[: self._noises.which.size, : self._noises.width] = self._noises.numbers(point)
        self._set(np.concatenate(parts))

    def _set(self, counts: np.ndarray) -> None:
        self._cells[COUNT] = counts
        self._refresh.dispatcher(self.table)

    def sweep(self, rng: np.random.Generator, n: int, tuning: bool) -> float:
        """Try moves; return how many were made."""
        if not self.directions.shares[-1]:  # what is known exactly leaves one table only
            return 0.0
        self.directions.tally[:] = 0.0
        self._sweep.dispatcher(generator_handle(rng), n, tuning, self.table, self.directions)
        return float(self.directions.tally[:, 1].sum())

    def learn(self, n_steps: int) -> None:
        """Learn the scale of each cell."""
        self._mean += (self._cells[COUNT] - self._mean) / n_steps
        if n_steps in _RESCALED:
            here = self._cells[COUNT].copy()
            self._cells[CELL_PRECISION] = self._precision(np.round(self._mean))
            self._set(here)

    def _precision(self, counts: np.ndarray) -> np.ndarray:
        """Return how fast the law of each cell falls; a Poisson law's where it has an end."""
        apart = np.ceil(np.sqrt(counts + 1.0))
        middle = np.maximum(counts, apart)
        below, at, above = (self._log_laws(middle + k * apart) for k in (-1, 0, 1))
        with np.errstate(invalid="ignore"):
            found = (2.0 * at - below - above) / apart**2
        # where the law is flat, or rises, cells move as far as they have counts
        return np.where(np.isfinite(found), np.maximum(found, 0.25 / middle**2), 1.0 / (counts + 1.0))

    def draw_parameters(
        self, point: dict[str, np.ndarray], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Draw the parameters that moves integrate out, given the counts as they are now."""
        found: dict[str, np.ndarray] = {}
        for draws in self._draws:
            found |= draws.at(point, self._cells[COUNT], rng)
        return found

    def move_jointly(
        self, point: dict[str, np.ndarray], rng: np.random.Generator, tuning: bool
    ) -> tuple[dict[str, np.ndarray], float]:
        """Move parameters and the counts whose law they enter; return the parameters, and how many moved.

        What cells add to the density is as it was until the next point is read.
        """
        return self.joint.move(point, rng, self.table, tuning)

    def counts(self) -> dict[str, np.ndarray]:
        """Return the counts as values of the model's variables."""
        ends = [*self.tables.first[1:], self.n_cells]
        parts = zip(self._values, self.names, self.tables.shapes, self.tables.first, ends, strict=True)
        return {
            name: self._cells[COUNT, begin:end].reshape(shape).astype(value.dtype)
            for value, name, shape, begin, end in parts
        }

    def start(
        self, point: dict[str, np.ndarray], rng: np.random.Generator, sweeps: int, given: bool
    ) -> dict[str, np.ndarray]:
        """Return a table that meets what is known exactly, after sweeps by the law of the counts alone."""
        self.read(point)
        before = self._cells[COUNT].copy()
        counts = meeting(np.maximum(before, 0.0), self.held, self._log_laws, rng)
        if given and not np.array_equal(before, counts):
            raise ValueError(
                f"The starting values of {', '.join(self.tables.names)} do not meet what is known exactly "
                f"({', '.join(dict.fromkeys(self.held.names))}). Leave them out, or give a table that does."
            )
        self._cells[CELL_PRECISION] = 1.0 / (counts + 1.0)
        if sweeps:
            rows = self._of_releases
            which, precision = rows[NOISE_OF].copy(), rows[ROW_PRECISION].copy()
            rows[NOISE_OF], rows[ROW_PRECISION] = -1, 0.0
            self._set(counts)
            self.sweep(rng, sweeps * self.n_cells, False)
            drawn = self._cells[COUNT].copy()
            rows[NOISE_OF], rows[ROW_PRECISION] = which, precision
            near = near_releases(drawn, self.tables, self._released(), precision, self._precision(drawn), rng)
            near = np.where(np.isfinite(self._log_laws(near)), near, drawn)
            counts = meeting(near, self.held, self._log_laws, rng)
        self._set(counts)
        return self.counts()

    def _log_laws(self, counts: np.ndarray) -> np.ndarray:
        self._set(counts)
        return self._cells[LAW].copy()
