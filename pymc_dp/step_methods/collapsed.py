"""Parameters of exchangeable categorical records, with the records integrated out.

Records :math:`c_i` that are categorical with common probabilities, released one by one through a finite
channel, say something about the probabilities only through the table that counts equal releases:

.. math:: p(\\theta \\mid z) \\propto p(\\theta) \\prod_g \\Big(\\sum_k \\pi_k(\\theta) Q(g \\mid k)\\Big)^{n_g}

over the groups g of equal releases (and equal row of the table of probabilities). One evaluation costs
O(groups x categories), however many records there are, and nothing ties the parameters to imputed records.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numba import njit, types
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pymc.step_methods.state import dataclass_state
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Cast
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.native import CONDITIONAL, GENERATOR, MATRIX, RECORDS
from pymc_dp.records import RecordBlock, Release, parameters_of
from pymc_dp.rowlocal import leaves_of
from pymc_dp.step_methods.base import RecordChain, RecordStep, RecordStepState
from pymc_dp.step_methods.conditionals import Conditionals
from pymc_dp.step_methods.discovery import ancestors_of_records, model_of, record_blocks
from pymc_dp.step_methods.interweaving import update
from pymc_dp.step_methods.layout import positions
from pymc_dp.step_methods.program import RecordProgram, substitute, with_query

# A random walk mixes in about as many updates as it has dimensions: beyond this, other steps keep the
# parameters.
MAX_DIMENSION = 40
# Largest number of categories that is summed over.
MAX_CATEGORIES = 256
# Nanoseconds that the updates of one draw are worth: what PyMC's loop costs, in all and per record. Counted
# in the model's sizes, not timed, so that draws are reproducible.
_PER_DRAW, _PER_RECORD = 150_000, 100
_PER_UPDATE, _PER_ENTRY = 600, 2
_MIN_UPDATES = 8


@dataclass(frozen=True)
class Exchangeable:
    """Categorical records that only their releases tell apart.

    Attributes
    ----------
    record : TensorVariable
    n_categories : int
    probabilities : TensorVariable
        Over the model's variables; the categories (for Bernoulli records: nothing) are the last axis.
    rows : Variable or None
        Row of the probabilities for each record, where they are a table; data.
    parameters : list of TensorVariable
        Continuous parameters in the law of the records.
    """

    record: TensorVariable
    n_categories: int
    probabilities: TensorVariable
    rows: Variable | None
    parameters: list[TensorVariable]


def exchangeable(model: Model, block: RecordBlock) -> Exchangeable | None:
    """Return how the records of a block can be integrated out by counting; None if they cannot."""
    if "collapsed" not in block.decisions:
        block.decisions["collapsed"] = _exchangeable(model, block)
    return block.decisions["collapsed"]


def _exchangeable(model: Model, block: RecordBlock) -> Exchangeable | None:
    if len(block.records) != 1 or block.terms or block.potentials or block.analysis.placements:
        return None
    (record,) = block.records
    if record.ndim != 1 or model.rvs_to_transforms.get(record) is not None:
        return None
    op = record.owner.op
    if not isinstance(op, CategoricalRV | BernoulliRV):
        return None
    (p,) = parameters_of(record)
    core = int(isinstance(op, CategoricalRV))
    k = p.type.shape[-1] if core else 2  # type: ignore[attr-defined]
    parameters = ancestors_of_records(model, block)
    shapes = model.eval_rv_shapes()
    size = sum(int(np.prod(shapes[rv.name])) for rv in parameters)
    if k is None or k > MAX_CATEGORIES or not 0 < size <= MAX_DIMENSION:
        return None
    if not all(_is_finite_channel(model, release, record, parameters) for release in block.releases):
        return None
    picked = _picked_rows(p, core)
    if picked is not None:
        return Exchangeable(record, k, *picked, parameters)
    if p.ndim == core or (p.ndim == core + 1 and p.type.broadcastable[0]):  # type: ignore[attr-defined]
        return Exchangeable(record, k, p, None, parameters)  # type: ignore[arg-type]
    return None


def _is_finite_channel(
    model: Model, release: Release, record: TensorVariable, parameters: Sequence[Variable]
) -> bool:
    """Whether a release is of the record itself, discrete, and alike for all records."""
    node = release.rv.owner
    assert node is not None
    op, others = node.op, parameters_of(release.rv)[1:]
    if release.kind != "local" or _source(release.query) is not record or op.ndims_params[0] > 0:
        return False
    if np.dtype(release.rv.dtype).kind not in "iub":
        return False
    alike = all(
        all(p.type.broadcastable[: p.type.ndim - core])  # type: ignore[attr-defined]
        for p, core in zip(others, op.ndims_params[1:], strict=True)
    )
    return alike and not set(leaves_of(others, set(model.basic_RVs))) & set(parameters)


def _source(graph: Variable) -> Variable:
    """Look through changes of dtype."""
    while graph.owner is not None and isinstance(getattr(graph.owner.op, "scalar_op", None), Cast):
        graph = graph.owner.inputs[0]
    return graph


def _picked_rows(p: Variable, core: int) -> tuple[TensorVariable, Variable] | None:
    """Return the table and the index of probabilities that are rows of a table, picked by data."""
    node = p.owner
    if node is None or not isinstance(node.op, AdvancedSubtensor) or len(node.inputs) != 2:
        return None
    table, rows = node.inputs
    known = isinstance(_source(rows), Constant | SharedVariable)
    first = table.type.ndim == core + 1 and rows.type.ndim == 1 and len(node.op.idx_list) == 1
    whole = rows.type.dtype.startswith(("int", "uint"))  # a mask picks other rows
    return (table, rows) if known and first and whole else None


class _Collapsed(Conditionals):
    """Log density of parameters with the records integrated out, and the law of the records given them.

    Inputs of the functions: ``columns`` (groups, m), what tells the groups apart; ``channel``
    (groups, K [+ 1]), relative probabilities of the releases given the category, and the row of the table
    of probabilities if there is one; ``counts`` (groups,).
    """

    def __init__(self, program: RecordProgram, case: Exchangeable):
        super().__init__(program, case.parameters)
        self.case = case
        self.channel = pt.matrix("channel", dtype="float64")
        self.counts = pt.vector("counts", dtype="float64")

    def columns(self) -> Any:
        """Compile what tells records apart, one row per record."""
        releases = [self.program.state[r.rv] for r in self.program.block.releases]
        columns = [pt.cast(z, "float64").reshape((self.program.n, -1)) for z in releases]
        self.widths = [int(np.prod(self.program.shape_of(r)[1:])) for r in self.program.block.releases]
        if self.case.rows is not None:
            (rows,) = substitute([self.case.rows], self.program.state)
            # a negative index counts from the end
            rows = pt.switch(rows < 0, rows + self._table().shape[0], rows)
            columns.append(pt.cast(rows, "float64")[:, None])
        return self.program.native("groups", [self.program.x], [pt.concatenate(columns, axis=1)], RECORDS)

    def channels(self) -> Any:
        """Compile the relative probabilities of each group's releases given the category."""
        columns = pt.matrix("columns", dtype="float64")
        category = pt.arange(self.case.n_categories)[None, :]
        total, start = pt.zeros((1, self.case.n_categories)), 0
        for release, width in zip(self.program.block.releases, self.widths, strict=True):
            law = with_query(release, self.program.state, category)
            # shape (groups, 1, ...), against categories along the second axis
            value = columns[:, None, start : start + width]
            value = value if release.rv.owner.op.ndim_supp else value[:, :, 0]  # type: ignore[union-attr]
            value = pt.cast(value, release.rv.dtype)
            total, start = total + pm.logp(law, value), start + width
        relative = pt.exp(total - pt.max(total, axis=1, keepdims=True))
        return self.program.native(
            "channel", [columns], [pt.concatenate([relative, columns[:, start:]], axis=1)], RECORDS
        )

    def _table(self) -> TensorVariable:
        (p,) = substitute([self.case.probabilities], self.program.state)
        if isinstance(self.case.record.owner.op, BernoulliRV):
            p = pt.stack([1 - p, p], axis=-1)
        return p if p.ndim == 2 else p[None, :]

    def _shares(self) -> TensorVariable:
        """Joint probabilities (groups, K) of category and releases, up to a factor for each group."""
        p = self._table()
        if self.case.rows is not None:
            p = p[pt.cast(self.channel[:, -1], "int64")]
        return p * self.channel[:, : self.case.n_categories]

    def shares(self) -> Any:
        """Compile the law of the records given parameters and releases, one row per group."""
        return self.program.native("law of records", [self.channel], [self._shares()], RECORDS)

    def collapsed(self) -> Any:
        """Compile the log density of the parameters given the releases."""
        factors = [f for f in self._factors(self.moving) if f is not self.case.record]
        graph = self._sum(factors, self.program.state)
        graph = graph + pt.sum(self.counts * pt.log(pt.sum(self._shares(), axis=1)))
        return self.program.native("collapsed", [self.channel, self.counts], [graph], CONDITIONAL)


@njit(types.void(GENERATOR, MATRIX, types.Array(types.intp, 1, "C"), MATRIX), cache=True)
def draw_categories(rng, shares, group, x):
    """Draw the category of every record from the row of its group, in place; ``shares`` are summed up."""
    k = shares.shape[1]
    for g in range(shares.shape[0]):
        for j in range(1, k):
            shares[g, j] += shares[g, j - 1]
    for i in range(group.shape[0]):
        g = group[i]
        u = rng.random() * shares[g, k - 1]
        j = 0
        while j < k - 1 and u >= shares[g, j]:
            j += 1
        x[i, 0] = j


@dataclass_state
class CollapsedUpdateState(RecordStepState):
    """What a chain needs to be continued, with what it learnt while tuning."""

    n_adapted: int
    restarts: list
    factors: list


class CollapsedUpdate(RecordStep):
    r"""Update of the probabilities of categorical records with the records integrated out.

    Given imputed categories, their probabilities barely move when privacy is strong: a chain that
    alternates the two needs about :math:`2/\kappa^2` sweeps per effective draw,
    :math:`\kappa = (e^\epsilon - 1)/(e^\epsilon + K - 1)` for randomized response among K categories
    (47,000 for K = 16 at epsilon 0.1). This step moves the parameters given the releases alone,

    .. math:: p(\theta \mid z) \propto p(\theta) \prod_g \Big(\sum_k \pi_k(\theta) Q(g \mid k)\Big)^{n_g},

    where g runs over groups of equal releases, then draws every category from its law given parameters and
    release.

    ``pm.sample`` chooses this step by itself for the continuous parameters (at most 40 numbers) behind
    Categorical or Bernoulli records whose probabilities are common to all records, or rows of a table
    picked by data, when each record is released itself by discrete mechanisms
    (:class:`RandomizedResponse`, :class:`UnaryEncoding`) and nothing else depends on it.

    Parameters
    ----------
    vars : list of variables, optional
        Parameters to update; all that have this form if left out.
    n_updates : int, optional
        Metropolis updates per draw; by default as many as cost about what the rest of a draw costs.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no such records, a variable in `vars` is no parameter of them, or `n_updates` is no
        whole number >= 1.

    See Also
    --------
    RandomizedResponse : On counts, for which no record has to be a variable of the model.

    Notes
    -----
    An update costs O(groups x categories), the draw of the categories O(n). The proposals' covariance is
    learnt while tuning (robust adaptive Metropolis) and then frozen. ``sample_stats`` gets
    ``collapsed_acceptance``.

    References
    ----------
    Liu (1994), "The Collapsed Gibbs Sampler in Bayesian Computations"; Vihola (2012), "Robust adaptive
    Metropolis algorithm with coerced acceptance rate".

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     p = pm.Dirichlet("p", np.ones(3))
    ...     c = pm.Categorical("c", p, shape=6)
    ...     z = dp.RandomizedResponse("z", c, epsilon=0.5, observed=[0, 2, 2, 1, 2, 2])
    ...     step = dp.CollapsedUpdate()
    >>> [v.name for v in step.vars]
    ['p_simplex__']
    """

    name = "collapsed_update"
    _state_class = CollapsedUpdateState
    _lowered = ("chains", "_parts")
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"collapsed_acceptance": (np.float64, [])}

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        n_updates: int | None = None,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        if n_updates is not None and (not isinstance(n_updates, int | np.integer) or n_updates < 1):
            raise ValueError(f"`n_updates` must be a whole number >= 1, got {n_updates!r}.")
        self.n_updates, self.n_adapted = n_updates, 0
        self.restarts: list[int] = []
        self._prepare(vars, model, rng, initial_point)
        self._reset_factors()

    def _build(self) -> None:
        moving = {self.model.values_to_rvs[v] for v in self.vars}
        cases = [(block, exchangeable(self.model, block)) for block in record_blocks(self.model)]
        self._parts = [
            _Part(self, block, case) for block, case in cases if case and moving & set(case.parameters)
        ]
        self.chains = [part.chain for part in self._parts]

    def _reset_factors(self) -> None:
        self.factors = [np.eye(len(part.moving)) * 0.1 for part in self._parts]

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Prepare for a new chain: forget what the last one learnt, read the data again."""
        super().setup_chain(rng, tune, draws)
        self.n_adapted, self.restarts = 0, [tune // 10, tune // 3]
        self._reset_factors()

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Move the parameters given the releases, then draw the records given both."""
        point = self._started(point)
        tally = np.zeros(2)
        for part, factor in zip(self._parts, self.factors, strict=True):
            point.update(part.run(self, point, factor, tally))
        self.n_steps += 1
        if self.tune:
            # start afresh twice: what was learnt on the way to the posterior is no guide to its shape
            self.n_adapted = 0 if self.n_steps in self.restarts else self.n_adapted + 1
        return point, [{"collapsed_acceptance": tally[0] / max(tally[1], 1.0)}]

    @classmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        able = set(collapsed_parameters(model))
        if not able:
            raise ValueError(
                "CollapsedUpdate found no parameters of exchangeable categorical records that are released "
                "one by one by a discrete mechanism; leave this step out."
            )
        return [model.rvs_to_values[rv] for rv in model.free_RVs if rv in able]

    @classmethod
    def _claim(cls, vars: Any, model: Model) -> list[Variable]:
        claimed = super()._claim(vars, model)
        able = {model.rvs_to_values[rv] for rv in collapsed_parameters(model)}
        wrong = sorted(str(v.name) for v in claimed if v not in able)
        if wrong:
            raise ValueError(
                f"{', '.join(wrong)} in `vars`: CollapsedUpdate moves continuous parameters (at most "
                f"{MAX_DIMENSION} numbers) of Categorical or Bernoulli records with common probabilities, "
                "each released itself by discrete mechanisms and used nowhere else."
            )
        return claimed

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        model = model_of(var)
        if model is None or not record_blocks(model):
            return Competence.INCOMPATIBLE
        return Competence.IDEAL if var in collapsed_parameters(model) else Competence.INCOMPATIBLE


class _Part:
    """The update for one block of records."""

    def __init__(self, step: CollapsedUpdate, block: RecordBlock, case: Exchangeable):
        self.chain = RecordChain(step.model, block, "auto", step._default_point)
        program = self.chain.program
        values = [step.model.rvs_to_values[rv] for rv in case.parameters]
        self.names = [str(v.name) for v in values if v in step.vars]
        self.moving = positions(program.parameters, self.names)
        self.n_categories = case.n_categories
        lowered = _Collapsed(program, case)
        self.columns, self.channels = lowered.columns(), lowered.channels()
        self.collapsed, self.shares = lowered.collapsed(), lowered.shares()
        self.width = sum(lowered.widths) + (case.rows is not None)
        self.wide = case.n_categories + (case.rows is not None)
        self.seen = np.zeros((0, self.width))

    def group(self) -> None:
        """Count equal releases; done again when the data have changed."""
        program, chain = self.chain.program, self.chain
        rows = np.empty((program.n, self.width))
        self.columns.dispatcher(np.zeros(program.parameters.size), chain.data, chain.x, rows)
        if np.array_equal(rows, self.seen):
            return
        self.seen = rows
        self.distinct, group = _distinct(rows)
        self.member = group.astype(np.intp)
        self.counts = np.bincount(group).astype(float)

    def n_updates(self, step: CollapsedUpdate) -> int:
        """Metropolis updates of one draw."""
        if step.n_updates is not None:
            return step.n_updates
        cost = _PER_UPDATE + _PER_ENTRY * self.counts.size * self.n_categories
        worth = _PER_DRAW + _PER_RECORD * self.chain.program.n
        return int(np.clip(worth / cost, _MIN_UPDATES, 20 * max(self.moving.size, 2)))

    def run(
        self, step: CollapsedUpdate, point: dict[str, np.ndarray], factor: np.ndarray, tally: np.ndarray
    ) -> dict[str, np.ndarray]:
        chain, program = self.chain, self.chain.program
        if chain.data.size != program.data.size:  # a function lowered later reads more data
            chain.refresh_data()
        if self.data is not chain.data:
            self.data = chain.data
            self.group()
        theta = program.parameters.flatten(point)
        channel = np.empty((self.counts.size, self.wide))
        self.channels.dispatcher(theta, chain.data, self.distinct, channel)
        n = self.n_updates(step)
        update(
            step.rng, self.collapsed.address, n, step.n_adapted * n, 0, theta, chain.data, channel,
            self.counts, self.moving, factor, int(step.tune), tally,
        )  # fmt: skip
        shares = np.empty((self.counts.size, self.n_categories))
        self.shares.dispatcher(theta, chain.data, channel, shares)
        draw_categories(step.rng, shares, self.member, chain.x)
        return {**program.parameters.unflatten(theta, self.names), **program.records.unpack(chain.x)}

    data: np.ndarray | None = None


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of whole numbers, and which of them each row is."""
    code, span = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        lowest = int(column.min())
        width = int(column.max()) - lowest + 1
        if span * width >= 2**62:
            code = np.unique(code, return_inverse=True)[1]
            span = int(code.max()) + 1
        code, span = code * width + (column.astype(np.int64) - lowest), span * width
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    return np.ascontiguousarray(rows[first]), group


def collapsed_parameters(model: Model) -> list[Variable]:
    """Return the parameters that this step takes by default."""
    found: list[Variable] = []
    for block in record_blocks(model):
        case = exchangeable(model, block)
        found += [rv for rv in case.parameters if rv not in found] if case else []
    return found
