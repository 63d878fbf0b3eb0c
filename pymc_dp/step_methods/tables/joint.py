"""Joint moves of parameters and of the counts whose law they enter, with the counts' own noise held fixed.

Given the counts, parameters hardly move where releases tell little of these, and the counts given the
parameters neither. With u drawn uniformly on the step of F(.; theta) that a count stands on, the count is
F^-1(u; theta), whose law given u has no density left: theta is proposed with u held, the counts move along,
and all that is asked is the prior of theta and the noise of the releases.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.bind import Function, Kernel
from pymc_dp.lowering.addresses.modes import default_mode
from pymc_dp.lowering.addresses.native import generator_handle
from pymc_dp.lowering.rows.domains import entry_checks_to_values
from pymc_dp.query.dependence import NONE, SEVERAL, Dependence, ways
from pymc_dp.query.tables import Tables
from pymc_dp.step_methods.block.parents import is_real
from pymc_dp.step_methods.tables import joint_groups, joint_kernel
from pymc_dp.step_methods.tables.densities import in_one_line
from pymc_dp.step_methods.tables.directions import Held
from pymc_dp.step_methods.tables.joint_groups import Group, OneByOne, Together
from pymc_dp.step_methods.tables.state import CELL_COLUMNS, COUNT, Table
from pymc_dp.step_methods.updates.noncentred import count_form, noise_on_step

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

# Numbers that move together, at most, with all cells: a random walk in more of them takes short steps.
_SHORT = 12
# Moves of each group in a draw, at most, and cells that move in it: a quantile costs some ten moves of a
# cell, so that large tables move jointly in some draws only.
_MOST, _CELLS = 4, 8000
# Moves from which it is known what they reach.
_FEWEST = 20
# Share of a parameter's variance that a move has to reach, to be made once tuning has shown it.
_WORTH = 0.02


class JointMoves:
    """Joint moves of the parameters of a table with its counts.

    Parameters
    ----------
    model : pymc.Model
        With known lengths.
    tables : Tables
    integrated : collection of TensorVariable
        Counts whose parameters are integrated out of other moves; they are left to these.
    noise : function
        The releases' log densities, as part of kernels.
    """

    def __init__(self, model: Model, tables: Tables, integrated: Collection[Any], noise: Function):
        self._model, self._tables = model, tables
        self._forms = {
            rv: form for rv in tables.variables if rv not in integrated and (form := count_form(rv))
        }
        placed = zip(tables.variables, tables.first, tables.shapes, strict=True)
        self._where = {rv: slice(first, first + int(np.prod(shape))) for rv, first, shape in placed}
        shapes = dict(zip(tables.variables, tables.shapes, strict=True))
        self._laws = {rv: in_one_line(rv, shapes[rv]) for rv in self._forms}
        self.groups: list[Group] = []
        self._said: tuple[list[str], list[str]] = [], []
        self._n_steps, self._n_draws, self._restarts = 0, 0, (-1, -1, -1)
        self._read_by = self._at_values([self._parameters_of(rv) for rv in self._forms])
        self._moving = self._find_moving()
        if self._moving:
            self._compile()
            names = joint_kernel.with_noise(noise)
            self._decide = Kernel(joint_kernel.decide, joint_kernel.DECIDE, names, from_python=True)
            joint_groups.adapt.ready()

    def _parameters_of(self, rv: Any) -> TensorVariable:
        """Return a graph that depends on what each cell's law does."""
        node = self._laws[rv].owner
        parameters = [pt.cast(p, "float64") for p in node.op.dist_params(node)]
        return reduce(pt.add, parameters, pt.zeros(self._where[rv].stop - self._where[rv].start))

    def _find_moving(self) -> list[Any]:
        """Return the real parameters in the law of the counts that are in no noise of the releases."""
        releases = [k.rv.owner for k in self._tables.releases]
        levels = [p for node in releases for p in node.op.dist_params(node)[1:]]  # type: ignore[union-attr]
        behind = set(ancestors(self._read_by)) - set(ancestors(self._at_values(levels)))
        return [rv for rv in self._model.free_RVs if is_real(rv) and self._model.rvs_to_values[rv] in behind]

    def _at_values(self, graphs: Sequence[Any]) -> list[Any]:
        return list(self._model.replace_rvs_by_values([pt.as_tensor_variable(g) for g in graphs]))

    def _compile(self) -> None:
        model, tables = self._model, self._tables
        own = {*self._forms, *(k.rv for k in (*tables.releases, *tables.invariants))}
        others = [v for v in (*model.basic_RVs, *model.potentials) if v not in own]
        moving = {model.rvs_to_values[rv] for rv in self._moving}
        graphs = [entry_checks_to_values(graph) for graph in model.logp(others, sum=False)]
        terms = pt.concatenate(
            [pt.cast(graph, "float64").ravel() for graph in graphs if moving.intersection(ancestors([graph]))]  # type: ignore[attr-defined]
        )
        x, share, u = (pt.vector(name, dtype="float64") for name in ("x", "share", "u"))
        noises, counts, allowed = [], [], []
        for rv, where in self._where.items():
            if rv not in self._forms:
                noises.append(pt.zeros_like(x[where]))
                counts.append(pt.zeros_like(u[where]))
                allowed.append(pt.zeros_like(u[where], dtype=bool))
                continue
            law, form = self._laws[rv], self._forms[rv]
            back = form.to_record(u[where], law)
            noises.append(noise_on_step(x[where], law, share[where]))
            counts.append(pt.cast(back, "float64"))
            allowed.append(reduce(pt.and_, [*form.gives_back(u[where], back), lawful(law, back)]))
        before, *after = self._at_values([pt.concatenate(parts) for parts in (noises, counts, allowed)])
        self._inputs = [v for v in model.value_vars if v in set(ancestors([before, *after, terms]))]
        self._before, self._after = (
            pytensor.function([*self._inputs, *given], outputs, mode=default_mode(), on_unused_input="ignore")
            for given, outputs in (([x, share], [before, terms]), ([u], [*after, terms]))
        )
        for function in (self._before, self._after):
            function.trust_input = True  # a third of a call would go into looking at them
        values = [model.rvs_to_values[rv] for rv in self._moving]
        self._behind = {
            rv: Dependence([*self._read_by, terms], value, self._inputs)
            for rv, value in zip(self._moving, values, strict=True)
        }

    def begin(self, tune: int, held: Held) -> None:
        """Prepare for a chain: read which cells each number touches, and forget what the last one learnt."""
        self._n_steps, self._n_draws, self._restarts = 0, 0, (tune // 10, tune // 3, tune)
        self.groups = self._grouped(held) if self._moving else []

    def _grouped(self, held: Held) -> list[Group]:
        point = self._model.initial_point()
        values = [point[str(v.name)] for v in self._inputs]
        known = np.zeros(self._tables.n_cells, dtype=bool)
        known[held.matrix.nonzero()[1]] = True
        alone: list[Group] = []
        short, left = list[Any](), list[str]()
        sizes = {rv: point[str(self._model.rvs_to_values[rv].name)].size for rv in self._moving}
        for rv in self._moving:
            name = str(self._model.rvs_to_values[rv].name)
            told = ((parts, *self._told(rv, values, parts)) for parts in ways(point[name].shape))
            clear = next((t for t in told if SEVERAL not in t[1] and SEVERAL not in t[2]), None)
            if clear is not None:
                alone.append(OneByOne([name], *clear, known))
            elif sizes[rv] + sum(sizes[each] for each in short) <= _SHORT:
                short.append(rv)
            else:
                left.append(str(rv.name))
        names = {name for group in alone if group.movable.all() for name in group.names}
        following = [rv for rv in self._moving if str(self._model.rvs_to_values[rv].name) in names]
        groups = [self._together(short, following, sizes, values, known), *alone] if short else alone
        kept = [group for group in groups if group.movable.any()]
        left += [name for group in groups if group not in kept for name in self._named(group)]
        self._say(list(dict.fromkeys(name for group in kept for name in self._named(group))), left)
        return kept

    def _say(self, moved: list[str], left: list[str]) -> None:
        """Tell which parameters move with counts, and which do not: once, not by each chain."""
        if (moved, left) == self._said:
            return
        self._said, counts = (moved, left), ", ".join(self._tables.names)
        if moved:
            _log.info(
                "TableImputation moves %s together with the counts of %s, beside the parameters' own steps.",
                ", ".join(moved), counts,
            )  # fmt: skip
        if left:
            _log.info(
                "TableImputation moves %s and the counts of %s only given each other: more than %d numbers "
                "are in the law of the same cells, or in one term of the density, or something known exactly "
                "holds these.",
                ", ".join(left), counts, _SHORT,
            )  # fmt: skip

    def _named(self, group: Group) -> list[str]:
        """Return the names of the parameters of a group, for messages."""
        values = self._model.rvs_to_values
        return [str(rv.name) for rv in self._moving if str(values[rv].name) in group.leading]

    def _told(
        self, rv: Any, values: Sequence[np.ndarray], parts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the part of a parameter that each cell and each term of the density depends on."""
        *laws, terms = self._behind[rv].of(values, parts)
        cells = np.full(self._tables.n_cells, NONE)
        for counts, of in zip(self._forms, laws, strict=True):
            cells[self._where[counts]] = of
        return cells, terms

    def _together(
        self, short: list[Any], following: list[Any], sizes: dict[Any, int], values: list[np.ndarray],
        known: np.ndarray,
    ) -> Group:  # fmt: skip
        """Return some parameters and those that follow them as one part, with all cells that they touch."""
        both = [self._model.rvs_to_values[rv] for rv in (*short, *following)]
        told = [
            self._told(rv, values, np.zeros(value.type.shape))
            for rv, value in zip((*short, *following), both, strict=True)
        ]
        cells, terms = (
            np.where(np.all(np.array(of) == NONE, axis=0), NONE, 0) for of in zip(*told, strict=True)
        )
        n, n_leading = (sum(sizes[rv] for rv in some) for some in ((*short, *following), short))
        names = [str(value.name) for value in both]
        return Together(
            names[: len(short)], n_leading, names, np.zeros(n, dtype=np.int64), cells, terms, known
        )

    def move(
        self, point: dict[str, np.ndarray], rng: np.random.Generator, table: Table, tuning: bool
    ) -> tuple[dict[str, np.ndarray], float]:
        """Move parameters, and counts of the table with them, their noise as it is.

        Returns
        -------
        changed : dict
            Values of the parameters.
        float
            Share of the moves that were made; no number where none were tried.
        """
        groups = [group for group in self.groups if group.on[0]] * self._n_moves()
        if not groups:
            self._count(tuning)
            return {}, np.nan
        values, handle, made = self._values(point), generator_handle(rng), np.zeros(2)
        counts = table.cells[:, table.cells.shape[1] - CELL_COLUMNS + COUNT].copy()
        noise, terms = self._before(*values, counts, rng.random(counts.size))
        for group in groups:
            where = self._places(group)
            theta = np.concatenate([values[k].ravel() for k in where])
            step, z = group.draw(rng)
            moved = values.copy()
            self._put(theta + step, where, moved)
            proposed, allowed, after = self._after(*moved, noise)
            changes = group.change_of(after - terms)
            probability, accepted = np.empty(changes.size), np.empty(changes.size, dtype=bool)
            self._decide.dispatcher(
                handle, changes, group.begins, group.members, proposed, allowed, table, probability, accepted
            )
            if accepted.any():
                theta = np.where(accepted[group.parts], theta + step, theta)
                self._put(theta, where, values)
                terms = np.where(np.append(accepted, False)[group.terms], after, terms)
            made += probability[group.movable].sum(), group.movable.sum()
            if tuning:
                group.learn(z, theta, probability)
        self._count(tuning)
        changed = dict.fromkeys(name for group in groups for name in group.names)
        found = {str(v.name): value for v, value in zip(self._inputs, values, strict=True)}
        return {name: found[name] for name in changed}, float(made[0] / made[1])

    def _values(self, point: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(point[str(v.name)], dtype=v.type.dtype) for v in self._inputs]

    def _places(self, group: Group) -> list[int]:
        """Return which inputs the numbers of a group are."""
        names = [str(v.name) for v in self._inputs]
        return [names.index(name) for name in group.names]

    @staticmethod
    def _put(theta: np.ndarray, where: Sequence[int], values: list[np.ndarray]) -> None:
        """Put numbers in one line into the values that they are of."""
        first = 0
        for k in where:
            old = values[k]
            values[k] = theta[first : first + old.size].reshape(old.shape).astype(old.dtype)
            first += old.size

    def _n_moves(self) -> int:
        """Return how many moves of each group this draw makes: as many as cells allow, evenly over draws."""
        rate = min(_MOST, _CELLS / self._tables.n_cells)
        self._n_draws += 1
        return int(self._n_draws * rate) - int((self._n_draws - 1) * rate)

    def _count(self, tuning: bool) -> None:
        if tuning:
            self._n_steps += 1
            self._adapt()

    def _adapt(self) -> None:
        """Begin anew twice while tuning; at its end, leave out what is not worth while."""
        *begun, end = self._restarts
        if self._n_steps in begun:
            for group in self.groups:
                group.again()
        if self._n_steps == end:
            for group in self.groups:
                if group.n_seen[0] >= _FEWEST and (reach := group.reach()) < _WORTH:
                    group.on[0] = 0.0
                    _log.info(
                        "TableImputation no longer moves %s together with the counts: such moves reach %.1g "
                        "of the variance.",
                        ", ".join(self._named(group)), reach,
                    )  # fmt: skip

    @property
    def learnt(self) -> np.ndarray:
        """What tuning has learnt so far, in one array."""
        arrays = [a.ravel() for group in self.groups for a in group.arrays]
        return np.concatenate([[self._n_steps, self._n_draws, *self._restarts], *arrays])

    @learnt.setter
    def learnt(self, values: np.ndarray) -> None:
        if values.size != self.learnt.size:  # of other groups: data that make these have been set since
            return
        self._n_steps, self._n_draws, *restarts = map(int, values[:5])
        self._restarts, first = (restarts[0], restarts[1], restarts[2]), 5
        for array in (a for group in self.groups for a in group.arrays):
            array[:] = values[first : first + array.size].reshape(array.shape)
            first += array.size


def lawful(law: Any, counts: Any) -> TensorVariable:
    """Whether counts have a law: that of their noise drops out, the domain of the parameters does not."""
    return pt.isfinite(entry_checks_to_values(pm.logp(law, counts)))
