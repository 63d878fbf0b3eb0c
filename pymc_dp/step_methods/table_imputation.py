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
from pymc_dp.step_methods.discovery import model_of, parameters_of_tables, table_blocks
from pymc_dp.step_methods.record_step import RecordStep, RecordStepState, check_positive
from pymc_dp.step_methods.starts import set_by_the_model
from pymc_dp.step_methods.tables.chain import TableChain
from pymc_dp.step_methods.tables.parameters import Draws, find_parameters

# Moves per draw for each cell, and for tables of few cells.
_PER_CELL, _LEAST = 2, 2000
# Sweeps by the law of the counts alone that disperse the start of a chain.
DISPERSING = 20


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

    Parameters whose law given the counts is known move along: :class:`pymc.Dirichlet` probabilities of
    multinomial counts, :class:`pymc.Gamma` or :class:`pymc.Exponential` rates of Poisson counts, each times
    a known exposure, and :class:`pymc.Beta` probabilities of binomial counts, where each cell reads one entry
    of them and nothing else depends on them. Given the counts they hardly move, and the counts given them
    neither, so that the moves integrate them out: with :math:`s_k` the sum of the cells that read entry k,
    and :math:`E_k` that of their exposures or numbers of trials, the counts have the density

    .. math::

       \prod_k \frac{\Gamma(a_k + s_k)}{\Gamma(a_k)}, \quad
       \prod_k \frac{\Gamma(a_k + s_k)}{(b_k + E_k)^{a_k + s_k}} \quad \text{or} \quad
       \prod_k \text{B}(a_k + s_k, b_k + E_k - s_k),

    times what depends on single cells. After the moves, and before anything else reads them, the parameters
    are drawn from their law given the counts: with those of Dirichlet, Gamma and Beta.

    Other real parameters in the law of the counts move together with these, and then once more by the steps
    that PyMC gives them. A number u is drawn uniformly between F(c - 1) and F(c), F being the distribution
    function of a count c; new parameters are proposed, each count becomes the quantile of its new law at u,
    and

    .. math::

       p(\theta')\; q(z \mid c') \,/\, p(\theta)\; q(z \mid c)

    decides, with every other term that the parameters enter: the law of u drops out, the domain of the
    parameters does not. The entries of a parameter that have cells of their own, such as an effect of each
    row, are decided one by one, and up to 12 numbers that share cells at once; effects then follow an
    intercept in the proportion that tuning has seen. This needs laws with quantiles (:class:`pymc.Poisson`,
    :class:`pymc.NegativeBinomial`, :class:`pymc.Binomial` and others of single counts; mixtures and
    multinomial counts have none), parameters that are in no noise level, and cells that nothing known exactly
    holds. Lengths are learnt while tuning, after which moves that reach less than two hundredths of the
    variance are left out, with a message.

    ``pm.sample`` chooses this step by itself for counts that are no records (multinomial tables, tables with
    invariants, and tables with queries at several levels), for counts that noise tells closely (those with an
    effect of each, or with parameters that are integrated out; where they share all others, still more
    closely), and for parameters that are integrated out. Other parameters, and what the laws of these depend
    on, keep PyMC's steps.

    Parameters
    ----------
    vars : list of variables, optional
        Counts, with the parameters that are to move along; all tables of the model and all such parameters if
        left out. Counts alone move given their parameters, and parameters alone are drawn given the counts.
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
    A move costs what it touches: some 140 ns for two cells with four levels of sums, however many people are
    counted, 340 ns in tables too large for the processor's cache, and about a tenth more with parameters
    integrated out.
    An entry that many rows of counts read still mixes slowly where these are small and the noise is large: a
    move changes one row at a time. ``sample_stats`` gets ``table_acceptance``, the share of moves that were
    made, and ``joint_acceptance``, that of the moves with parameters, which is no number in draws without
    any. These cost some 2 us a cell each; four are made in a draw for up to 2,000 cells, and fewer for more:
    one for 8,000, and one in two draws for 16,000.

    References
    ----------
    Yu & Meng (2011), "To Center or Not to Center: That Is Not the Question", for moves at fixed noise; Hara,
    Aoki and Takemura (2010), for random combinations of a lattice basis; van Dyk and Park (2008), "Partially
    Collapsed Gibbs Samplers", for the order of a draw.

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
    ['c', 'p_simplex__']
    """

    name = "table_imputation"
    _state_class = TableImputationState
    _lowered: tuple[str, ...] = ("chains", "parts", "given")
    parts: list[TableChain]
    # parameters that are drawn given counts that other steps move: the names of these, and the draws
    given: list[tuple[list[str], Draws]]
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "table_acceptance": (np.float64, []),
        "joint_acceptance": (np.float64, []),
    }

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
        if not self.parts:  # without counts there is no share of moves; PyMC reads these of the instance
            self.__dict__.update(stats_dtypes_shapes={}, stats_dtypes=[{}])

    def _build(self) -> None:
        model, moving = self._sized()
        self.chains, self.parts, self.given = [], [], []
        self._seen = list(map(id, table_blocks(model)))
        for tables in table_blocks(model):
            behind = find_parameters(model, tables, moving)
            left = [str(v.name) for v in tables.variables if v not in moving]
            if not left:
                self.parts.append(TableChain(model, tables, behind))
            elif len(left) < len(tables.variables):
                raise ValueError(
                    f"The counts {', '.join(tables.names)} have to move together; `vars` leaves out "
                    f"{', '.join(left)}."
                )
            else:
                names = [str(model.rvs_to_values[rv].name) for rv in tables.variables]
                self.given += [(names, Draws(model, each)) for each in behind]

    @property
    def learnt(self) -> list[np.ndarray]:
        """What tuning has learnt of each table."""
        return [part.learnt for part in self.parts]

    @learnt.setter
    def learnt(self, values: list[np.ndarray]) -> None:
        for part, known in zip(self.parts, values, strict=True):
            part.learnt = known

    def _moved(self) -> set[str]:
        moved = {name for part in self.parts for name in (*part.names, *part.parameters)}
        return moved.union(*(draws.names for _, draws in self.given))

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Prepare for a new chain: forget what the last one learnt, read the data again."""
        super().setup_chain(rng, tune, draws)
        if not self._is_as_built():
            self._rebuild()  # coefficients are data, which have been set since
        for part in self.parts:
            part.forget(tune)

    def _is_as_built(self) -> bool:
        model, _ = self._sized()
        return self._seen == list(map(id, table_blocks(model)))

    @building()
    def _rebuild(self) -> None:
        self._build()

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Try moves of every table, and draw the parameters that these integrate out."""
        point, stats = self._after_moves(self._started(point))
        self.n_steps += 1
        return self._checked(point), [stats]

    def _after_moves(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return where moves and draws lead from a point, and what is told of them."""
        made = tried = 0.0
        joint = list[float]()
        for part in self.parts:
            part.read(point)
            n = part.n_cells * (self.n_sweeps or _PER_CELL)
            n = n if self.n_sweeps else max(n, _LEAST)
            made += part.sweep(self.rng, n, self.tune)
            tried += n
            if self.tune:
                part.learn(self.n_steps + 1)
            # what moves integrated out is drawn anew before anything else reads it
            point.update(part.counts() | part.draw_parameters(point, self.rng))
            moved, share = part.move_jointly(point, self.rng, self.tune)
            point.update(part.counts() | moved)
            joint.append(share)
        for names, draws in self.given:
            point.update(draws.at(point, np.concatenate([np.ravel(point[name]) for name in names]), self.rng))
        if not self.parts:
            return point, {}
        tried_jointly = [share for share in joint if np.isfinite(share)]
        together = float(np.mean(tried_jointly)) if tried_jointly else np.nan
        return point, {"table_acceptance": made / tried, "joint_acceptance": together}

    def _starts(self, point: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray] | str]:
        """Yield tables that meet what is known exactly: dispersed by their law, and as near as can be."""
        kept = set_by_the_model(self.model)
        for sweeps in (DISPERSING, 0):
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
        counts = [rv for tables in table_blocks(model) for rv in tables.variables]
        if not counts:
            raise ValueError(
                "TableImputation found no table of counts behind a release: variables of pm.Multinomial, "
                "pm.Poisson and the like, in linear queries of mechanisms with observed=. Counts with one "
                "release of each, or of their sum, are records: leave this step out, and pm.sample moves "
                "them."
            )
        return [model.rvs_to_values[rv] for rv in (*counts, *parameters_of_tables(model))]

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        model = model_of(var)
        if model is None:
            return Competence.INCOMPATIBLE
        own = {rv for tables in table_blocks(model) for rv in tables.variables}
        own.update(parameters_of_tables(model) if own else ())
        return Competence.IDEAL if var in own else Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[ProgressColumn], dict[str, list[float]]]:
        columns: list[ProgressColumn] = [
            TextColumn("{task.fields[table_acceptance]:0.2f}", table_column=Column("Table accept", ratio=1))
        ]
        return columns, {"table_acceptance": [0.0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Any]:
        def update(stats: dict[str, Any]) -> dict[str, Any]:
            return {"table_acceptance": stats.get("table_acceptance", 0.0)}

        return (update,)
