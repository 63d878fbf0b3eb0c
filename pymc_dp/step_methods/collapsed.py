"""Update of parameters with exchangeable categorical records integrated out, then of the records."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numba import types
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_dp.lowering.addresses.native import GENERATOR, MATRIX
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.bits import random
from pymc_dp.query.records import RecordBlock
from pymc_dp.step_methods.block.layout import positions
from pymc_dp.step_methods.discovery import model_of, record_blocks
from pymc_dp.step_methods.record_step import RecordChain, RecordStep, RecordStepState, check_positive
from pymc_dp.step_methods.updates.exchangeable import (
    MAX_DIMENSION,
    CollapsedConditionals,
    Exchangeable,
    distinct_rows,
    exchangeable,
)
from pymc_dp.step_methods.updates.walks import run_random_walk

# Nanoseconds that the updates of one draw are worth: what PyMC's loop costs, in all and per record. Counted
# in the model's sizes, not timed, so that draws are reproducible.
_PER_DRAW, _PER_RECORD = 150_000, 100
_PER_UPDATE, _PER_GROUP, _PER_ENTRY = 600, 8, 1
# A draw may cost this many times as much, if that is what a few updates per dimension cost.
_AT_MOST = 10
_MIN_UPDATES = 8


@njit(types.void(GENERATOR, MATRIX, types.Array(types.intp, 1, "C"), MATRIX), cache=True)
def draw_categories(rng, shares, group, x):
    """Draw the category of every record from the row of its group, in place; ``shares`` are summed up."""
    k = shares.shape[1]
    for g in range(shares.shape[0]):
        for j in range(1, k):
            shares[g, j] += shares[g, j - 1]
    for i in range(group.shape[0]):
        g = group[i]
        u = random(rng) * shares[g, k - 1]
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

    where g runs over groups of equal releases with equal channels Q, then draws every category from its law
    given parameters and release.

    ``pm.sample`` chooses this step by itself for the continuous parameters (at most 40 numbers) behind
    Categorical or Bernoulli records whose probabilities are common to all records, or rows of a table
    picked by data, when each record, or what a function of it says (``pt.eq(c, 2)``), is released by discrete
    mechanisms (:class:`RandomizedResponse`, :class:`UnaryEncoding`) with known parameters, which may be
    those of each person, and nothing else depends on it.

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
        positive integer.

    See Also
    --------
    RandomizedResponse : On counts, for which no record has to be a variable of the model.

    Notes
    -----
    An update costs O(groups x categories), the draw of the categories O(n). Noise levels of each person
    make up to n groups. The proposals' covariance is learnt while tuning (robust adaptive Metropolis)
    and then frozen. ``sample_stats`` gets ``collapsed_acceptance``.

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
        check_positive("n_updates", n_updates, or_none=True)
        self.n_updates, self.n_adapted = n_updates, 0
        self.restarts: list[int] = []
        self._prepare(vars, model, rng, initial_point)
        self._reset_factors()

    def _build(self) -> None:
        model, moved = self._sized()
        moving = set(moved)
        cases = [(block, exchangeable(model, block)) for block in record_blocks(model)]
        self._parts = [
            _Part(self, model, block, case, moving)
            for block, case in cases
            if case and moving & set(case.parameters)
        ]
        self.chains = [part.chain for part in self._parts]

    def _moved(self) -> set[str]:
        return super()._moved().union(*(part.names for part in self._parts))

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
        return self._checked(point), [{"collapsed_acceptance": tally[0] / max(tally[1], 1.0)}]

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
        wrong = sorted(str(model.values_to_rvs[v].name) for v in claimed if v not in able)
        if wrong:
            raise ValueError(
                f"{', '.join(wrong)} in `vars`: CollapsedUpdate moves continuous parameters (at most "
                f"{MAX_DIMENSION} numbers) of Categorical or Bernoulli records with common probabilities, "
                "each released by discrete mechanisms and used nowhere else."
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
    """The collapsed update of one block of records."""

    def __init__(
        self,
        step: CollapsedUpdate,
        model: Model,
        block: RecordBlock,
        case: Exchangeable,
        moving: set[Variable],
    ):
        self.chain = RecordChain(model, block, "auto", step._default_point)
        program = self.chain.program
        self.names = [str(model.rvs_to_values[rv].name) for rv in case.parameters if rv in moving]
        self.moving = positions(program.parameters, self.names)
        self.n_categories = case.n_categories
        lowered = CollapsedConditionals(program, case)
        self.columns, self.channels = lowered.columns(), lowered.channels()
        self.collapsed, self.shares = lowered.collapsed(), lowered.shares()
        self.width = sum(map(sum, lowered.widths)) + (case.rows is not None)
        self.wide = case.n_categories + (case.rows is not None)
        self.seen, self.data = np.zeros((0, self.width)), np.zeros(0)
        run_random_walk.ready()
        draw_categories.ready()

    def group(self) -> None:
        """Count equal releases; done again when the data have changed."""
        program, chain = self.chain.program, self.chain
        rows = np.empty((program.n, self.width))
        self.columns.dispatcher(np.zeros(program.parameters.size), chain.data, chain.x, rows)
        if np.array_equal(rows, self.seen):
            return
        self.seen = rows
        self.distinct, group = distinct_rows(rows)
        self.member = group.astype(np.intp)
        self.counts = np.bincount(group).astype(float)

    def n_updates(self, step: CollapsedUpdate) -> int:
        """Metropolis updates of one draw."""
        if step.n_updates is not None:
            return step.n_updates
        cost = _PER_UPDATE + self.counts.size * (_PER_GROUP + _PER_ENTRY * self.n_categories)
        affordable = (_PER_DRAW + _PER_RECORD * self.chain.program.n) / cost
        wanted = np.clip(affordable, 4 * self.moving.size, 20 * max(self.moving.size, 2))
        return int(max(min(wanted, _AT_MOST * affordable), _MIN_UPDATES))

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
        run_random_walk(
            step.rng, self.collapsed.address, n, step.n_adapted * n, theta, chain.data, channel, self.counts,
            self.moving, factor, int(step.tune), tally,
        )  # fmt: skip
        shares = np.empty((self.counts.size, self.n_categories))
        self.shares.dispatcher(theta, chain.data, channel, shares)
        draw_categories(step.rng, shares, self.member, chain.x)
        return {**program.parameters.unflatten(theta, self.names), **program.records.unpack(chain.x)}


def collapsed_parameters(model: Model) -> list[Variable]:
    """Return the parameters that this step takes by default."""
    found: list[Variable] = []
    for block in record_blocks(model):
        case = exchangeable(model, block)
        found += [rv for rv in case.parameters if rv not in found] if case else []
    return found
