"""Imputation of tables of counts behind releases, at a cost in cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable
from rich.progress import ProgressColumn, TextColumn
from rich.table import Column

from pymc_dp.lowering.compiling.building import building
from pymc_dp.step_methods.discovery import model_of, table_blocks
from pymc_dp.step_methods.record_step import RecordStep, RecordStepState, check_positive
from pymc_dp.step_methods.starts import set_by_the_model
from pymc_dp.step_methods.tables.chain import TableChain

# Moves per draw for each cell, and for tables of few cells.
_PER_CELL, _LEAST = 2, 2000
# Sweeps by the law of the counts alone that disperse the start of a chain.
_DISPERSING = 20


@dataclass_state
class TableImputationState(RecordStepState):
    """What a chain needs to be continued, with what it learnt while tuning."""

    learnt: list


class TableImputation(RecordStep):
    r"""Metropolis moves of tables of counts given noisy and exact linear queries of them.

    A table is a variable of counts (:class:`pymc.Multinomial`, :class:`pymc.DirichletMultinomial`,
    :class:`pymc.Poisson`, :class:`pymc.NegativeBinomial`, :class:`pymc.Binomial` and others of whole
    numbers), or several, behind mechanisms with independent noise whose queries are linear with known
    coefficients: cells, margins, products with a matrix, sums by an index. The cells are the latent
    variables, never the people.

    A move adds t times an integer direction: one cell; two cells that count alike in an entry of a query, so
    that precise sums do not slow the cells below them; the corners of a rectangle of a table with several
    axes, which keeps margins; and, where sums are known exactly (a multinomial total,
    :class:`pymc_dp.Invariant`), random combinations of a basis of all integer directions that keep these.
    Directions and lengths are proposed symmetrically, and lengths learnt while tuning.

    ``pm.sample`` chooses this step by itself for counts that are no records: multinomial tables, tables with
    invariants, and tables with queries at several levels. Parameters keep PyMC's steps; those that can be
    integrated out should be, as the probabilities are in a Dirichlet-multinomial law: given the counts they
    hardly move.

    Parameters
    ----------
    vars : list of variables, optional
        Count variables; all tables of the model if left out.
    n_sweeps : int, optional
        Moves per draw, for each cell: 2 by default, and at least 2000 moves in all.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no table of counts behind a release, no table meets all invariants, a query is not
        linear, or an argument is out of range.

    Notes
    -----
    A move costs what it touches: some 100 ns for two cells with four levels of sums, however many people are
    counted. ``sample_stats`` gets ``table_acceptance``, the share of moves that were made.

    References
    ----------
    Hara, Aoki and Takemura (2010), for random combinations of a lattice basis.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model() as model:
    ...     p = pm.Dirichlet("p", np.ones(4))
    ...     c = pm.Multinomial("c", n=200, p=p)
    ...     cells = dp.DiscreteGaussianMechanism("cells", c, sigma=5, observed=[61, 38, 77, 30])
    ...     first = dp.DiscreteGaussianMechanism("first", c[:2].sum(), sigma=1, observed=97)
    ...     step = dp.TableImputation()
    >>> [v.name for v in step.vars]
    ['c']
    """

    name = "table_imputation"
    _state_class = TableImputationState
    _lowered = ("chains", "parts")
    parts: list[TableChain]
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"table_acceptance": (np.float64, [])}

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        n_sweeps: int | None = None,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        check_positive("n_sweeps", n_sweeps, or_none=True)
        self.n_sweeps = n_sweeps
        self._prepare(vars, model, rng, initial_point)

    def _build(self) -> None:
        model, moving = self._sized()
        self.chains = []
        blocks = [tables for tables in table_blocks(model) if set(tables.variables) & set(moving)]
        for tables in blocks:
            left = [str(v.name) for v in tables.variables if v not in moving]
            if left:
                raise ValueError(
                    f"The counts {', '.join(tables.names)} have to move together; `vars` leaves out "
                    f"{', '.join(left)}."
                )
        self.parts = [TableChain(model, tables) for tables in blocks]

    @property
    def learnt(self) -> list[np.ndarray]:
        """What tuning has learnt of each table."""
        return [part.learnt for part in self.parts]

    @learnt.setter
    def learnt(self, values: list[np.ndarray]) -> None:
        for part, known in zip(self.parts, values, strict=True):
            part.learnt = known

    def _moved(self) -> set[str]:
        return {name for part in self.parts for name in part.names}

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Prepare for a new chain: forget what the last one learnt, read the data again."""
        super().setup_chain(rng, tune, draws)
        model, _ = self._sized()
        if not {id(part.tables) for part in self.parts} <= set(map(id, table_blocks(model))):
            self._rebuild()  # coefficients are data, which have been set since
        for part in self.parts:
            part.forget()

    @building()
    def _rebuild(self) -> None:
        self._build()

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Try moves of every table."""
        point = self._started(point)
        made = tried = 0.0
        for part in self.parts:
            part.read(point)
            n = part.n_cells * (self.n_sweeps or _PER_CELL)
            n = n if self.n_sweeps else max(n, _LEAST)
            made += part.sweep(self.rng, n, self.tune)
            tried += n
            if self.tune:
                part.learn(self.n_steps + 1)
            point.update(part.counts())
        self.n_steps += 1
        return self._checked(point), [{"table_acceptance": made / tried}]

    def _starts(self, point: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray] | str]:
        """Yield tables that meet what is known exactly: dispersed by their law, and as near as can be."""
        kept = set_by_the_model(self.model)
        for sweeps in (_DISPERSING, 0):
            values: dict[str, np.ndarray] = {}
            for part in self.parts:
                given = any(name in kept or not self._is_default(name, point) for name in part.names)
                values |= part.start(point, self.rng, 0 if given else sweeps, given)
            yield values

    def _is_default(self, name: str, point: dict[str, np.ndarray]) -> bool:
        """Whether a variable stands where its model lets it start, which data or draws may have moved."""
        if np.array_equal(point[name], self._default_point[name]):
            return True
        one, other = (self.model.initial_point(random_seed=seed)[name] for seed in (1, 2))
        return np.array_equal(point[name], one) or not np.array_equal(one, other)

    @classmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        claimed = [model.rvs_to_values[rv] for tables in table_blocks(model) for rv in tables.variables]
        if not claimed:
            raise ValueError(
                "TableImputation found no table of counts behind a release: variables of pm.Multinomial, "
                "pm.Poisson and the like, in linear queries of mechanisms with observed=. Counts with one "
                "release of each, or of their sum, are records: leave this step out, and pm.sample moves "
                "them."
            )
        return claimed

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        model = model_of(var)
        if model is None:
            return Competence.INCOMPATIBLE
        counts = {rv for tables in table_blocks(model) for rv in tables.variables}
        return Competence.IDEAL if var in counts else Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[ProgressColumn], dict[str, list[float]]]:
        columns: list[ProgressColumn] = [
            TextColumn("{task.fields[table_acceptance]:0.2f}", table_column=Column("Table accept", ratio=1))
        ]
        return columns, {"table_acceptance": [0.0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Any]:
        def update(stats: dict[str, Any]) -> dict[str, Any]:
            return {"table_acceptance": stats["table_acceptance"]}

        return (update,)
