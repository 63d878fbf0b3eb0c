"""The step of categories of many people that are seen through sums alone: moved as a table of counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_dp.lowering.compiling.building import building
from pymc_dp.marginals.marginalize import without
from pymc_dp.marginals.removal import check_children
from pymc_dp.marginals.tabulated import Tabulated, can_be_counted, tabulated
from pymc_dp.query.records import data_in_queries, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.query.tables import Tables
from pymc_dp.step_methods.discovery import model_of, record_blocks, table_blocks, version_of
from pymc_dp.step_methods.lengths import with_known_lengths
from pymc_dp.step_methods.starts import set_by_the_model
from pymc_dp.step_methods.table_imputation import DISPERSING, TableImputation
from pymc_dp.step_methods.tables.chain import TableChain
from pymc_dp.step_methods.tables.parameters import Behind, find_parameters

# People from which on a table is moved in their place by default: with 500 it gave half to three quarters of
# the effective draws a second, with 20,000 eight times as many.
_MANY = 5_000


@dataclass(frozen=True)
class Counted:
    """People of a model as a table of another one.

    Attributes
    ----------
    table : Tabulated
    model : pymc.Model
        With the table in place of the people.
    tables : Tables
    behind : list of Behind
        Probabilities that its moves integrate out.
    value : str
        Name of the value of the people.
    """

    table: Tabulated
    model: Model
    tables: Tables
    behind: list[Behind]
    value: str

    @property
    def parameters(self) -> list[str]:
        """Names of the probabilities."""
        return [str(rv.name) for behind in self.behind for rv in behind.parameters]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table."""
        return self.tables.shapes[0]

    def counts(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Count the people of a point."""
        k = self.shape[-1]
        cells = self.table.group * k + np.asarray(point[self.value], dtype=np.int64)
        return {self.table.name: np.bincount(cells, minlength=int(np.prod(self.shape))).reshape(self.shape)}

    def people(self, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw the people with these counts: any order within each group is as likely as another."""
        n, k = len(self.table.group), self.shape[-1]
        places = rng.permutation(n)
        places = places[np.argsort(self.table.group[places], kind="stable")]
        found = np.empty(n, dtype=self.table.record.dtype)
        found[places] = np.repeat(np.tile(np.arange(k), counts.size // k), counts.ravel())
        return found


_COUNTED: WeakKeyDictionary[Model, dict[int, tuple[tuple[Any, ...], list[Counted]]]] = WeakKeyDictionary()


@building()
def counted_people(model: Model, least: int = 0) -> list[Counted]:
    """Return the people of a model, so many at least, that can be moved as tables.

    They are remembered until the model gets other variables or lengths, or data in its queries change.
    """
    version = (*version_of(model), *data_in_queries(model, can_be_counted))
    known = _COUNTED.setdefault(model, {})
    if least not in known or known[least][0] != version:
        sized = with_known_lengths(model)
        found = [_counted(sized, block, least) for block in record_blocks(sized)]
        known[least] = (version, [c for c in found if c is not None])
    return known[least][1]


def _counted(model: Model, block: Any, least: int) -> Counted | None:
    """Return the people of a block as a table; None where something sees more of them than sums."""
    (record, *others) = block.records
    if others or not can_be_counted(record) or (record.type.shape[0] or 0) < least:
        return None
    try:
        check_children(model, record, block, drawn_back=True)
        table = tabulated(model, record, block)
    except ValueError:
        return None
    counted = without(model, [], [table])
    for data in model.data_vars:  # pm.set_data reaches both models
        if isinstance(data, SharedVariable) and data.name in counted.named_vars:
            counted[data.name].container = data.container
    for tables in table_blocks(counted):
        if tables.names == [table.name]:
            behind = find_parameters(counted, tables)
            result = Counted(table, counted, tables, behind, str(model.rvs_to_values[record].name))
            own = {str(v.name) for v in leaves_of(parameters_of(record), set(model.basic_RVs))}
            return result if own and own <= set(result.parameters) else None
    return None


class TabulatedImputation(TableImputation):
    r"""Moves of categories of many people as a table of counts, with their probabilities integrated out.

    Where releases see categories through sums alone, such as ``dp.record_sum(pt.eye(K)[y])``, people of one
    public group differ in nothing, and only their counts matter. This step counts them, moves the counts as
    :class:`TableImputation` does, draws their Dirichlet probabilities given the counts, and draws the people
    with these counts: any order of them within a group is as likely as another. Its target is the law of
    people and probabilities together.

    ``pm.sample`` chooses this step by itself for 5,000 people and more whose probabilities are Dirichlet
    variables that nothing else depends on, one row for all or rows that a public group picks.

    Parameters
    ----------
    vars : list of variables, optional
        Categories, with their probabilities; all that have this form if left out.
    n_sweeps : int, optional
        Moves per draw, for each cell: 2 by default, and at least 2000 moves in all.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If there are no people of this form, or something else is in `vars`.

    See Also
    --------
    marginalize : A model with the table in place of the people, whose draws take no memory for each.

    Notes
    -----
    A draw costs its moves, as of a table, and some 30 ns for each person. ``sample_stats`` gets
    ``table_acceptance``.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pytensor.tensor as pt
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     p = pm.Dirichlet("p", np.ones(3))
    ...     y = pm.Categorical("y", p, shape=600)
    ...     query = dp.record_sum(pt.eye(3, dtype="int64")[y])
    ...     z = dp.DiscreteLaplaceMechanism("z", query, scale=2, observed=[310, 207, 85])
    ...     step = dp.TabulatedImputation()
    >>> [v.name for v in step.vars]
    ['p_simplex__', 'y']
    """

    name = "tabulated_imputation"
    _lowered = ("chains", "parts", "given", "counted")
    counted: list[Counted]

    def _build(self) -> None:
        model, moving = self._sized()
        names = {str(rv.name) for rv in moving}
        self.chains, self.given = [], []
        self.counted = [c for c in counted_people(model) if c.table.record.name in names]
        self.parts = []
        for case in self.counted:
            among = [case.model[name] for name in case.parameters if name in names]
            behind = find_parameters(case.model, case.tables, among)
            self.parts.append(TableChain(case.model, case.tables, behind))

    def _moved(self) -> set[str]:
        return {
            name
            for case, part in zip(self.counted, self.parts, strict=True)
            for name in (case.value, *part.parameters)
        }

    def _is_as_built(self) -> bool:
        model, _ = self._sized()
        known = list(map(id, counted_people(model)))
        return all(id(case) in known for case in self.counted)

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Count the people, try moves of the counts, and draw the people with these counts."""
        point = self._started(point)
        moved, stats = self._after_moves({**point, **self._counts(point)})
        point = {name: moved[name] for name in point} | self._people(moved)
        self.n_steps += 1
        return self._checked(point), [stats]

    def _counts(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: n for case in self.counted for name, n in case.counts(point).items()}

    def _people(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {case.value: case.people(point[case.table.name], self.rng) for case in self.counted}

    def _starts(self, point: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray] | str]:
        """Yield people whose counts are dispersed by their law, or as near the releases as can be."""
        kept = set_by_the_model(self.model)
        for sweeps in (DISPERSING, 0):
            values: dict[str, np.ndarray] = {}
            for case, part in zip(self.counted, self.parts, strict=True):
                if case.value in kept or not self._is_default(case.value, point):
                    continue
                counts = part.start({**point, **self._counts(point)}, self.rng, sweeps, False)
                values[case.value] = case.people(counts[case.table.name], self.rng)
            yield values

    @classmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        claimed = _variables(model, 0)
        if not claimed:
            raise ValueError(
                "TabulatedImputation found no categories that releases see through sums alone, with "
                "Dirichlet probabilities for all people or for public groups of them; leave this step out."
            )
        return [v for v in model.value_vars if model.values_to_rvs[v].name in claimed]

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        model = model_of(var)
        blocks = [] if model is None else record_blocks(model)
        if model is None or not any(can_be_counted(rv) for block in blocks for rv in block.records):
            return Competence.INCOMPATIBLE
        return Competence.IDEAL if var.name in _variables(model, _MANY) else Competence.INCOMPATIBLE


def _variables(model: Model, least: int) -> set[str]:
    """Return the names of people, and of their probabilities, that are at least so many."""
    return {
        name
        for case in counted_people(model, least)
        for name in (str(case.table.record.name), *case.parameters)
    }
