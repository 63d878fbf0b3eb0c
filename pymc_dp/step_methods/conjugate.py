"""Exact draws of probability tables given categorical records."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.transforms import SimplexTransform
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import CategoricalRV, DirichletRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.native import CONJUGATE, draw
from pymc_dp.lowering.rows.rows import NotScalar
from pymc_dp.query.readings import AS_WRITTEN, substitute
from pymc_dp.query.records import RecordBlock, Release, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.step_methods.block.layout import positions
from pymc_dp.step_methods.block.parents import parents_of_records
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.discovery import blocks_with, model_of, record_blocks
from pymc_dp.step_methods.record_step import RecordChain, RecordStep, check_positive
from pymc_dp.step_methods.sweeps.discrete import DiscreteSweep
from pymc_dp.step_methods.sweeps.probability_cells import picked_rows
from pymc_dp.step_methods.swept import Swept, TellsOfSweeps, warn_of_passes
from pymc_dp.step_methods.updates import table_cycles
from pymc_dp.step_methods.updates.dirichlet import DirichletUpdate, Picked

# Work that one draw is worth, in records: as for the ancillary update, fixed so that draws are reproducible.
_WORK = 1000
_JOINT_WORK = 600
_MAX_CYCLES = 8
# Cycles of this step that cost as much as an effective draw of the ancillary update, measured from 50 to a
# million records and 3 to 40 numbers: so many, and one more for each number that is to move.
_ANCILLARY = 2


class ConjugateUpdate(TellsOfSweeps, RecordStep):
    r"""Exact draw of Dirichlet probabilities given categorical records.

    With a table :math:`p_{c\cdot} \sim \text{Dirichlet}(\alpha_c)` and records :math:`x_i` that are
    categorical with row :math:`c_i` of it, the law given the records is
    :math:`\text{Dirichlet}(\alpha_c + \#\{i: c_i = c, x_i = \cdot\})`, whatever the releases are. Each draw
    of this step alternates such draws with sweeps over the records.

    Where the records are ruled by such tables alone, and released by sums alone, each row is also moved
    together with its records: their places in its cumulative distribution are kept, so that the row is not
    tied to them when privacy is strong.

    ``pm.sample`` chooses this step by itself for the Dirichlet parameters of categorical records when they
    are all that is behind the records and an effective draw is expected to cost less than with
    :class:`AncillaryUpdate`, and when there are too many of them for it. The expected cost is counted in
    cycles, from the number n of records, the size S of the tables and the budget: given the records a table
    is known as from n of them, given the releases as from :math:`n r`, where :math:`r = v / (v + 8 /
    \epsilon^2)` compares the spread of what is released (v = n / S for sums, 1 for single records) with the
    noise, so that it takes :math:`(S + n) / (S + n r)` cycles; the other step costs as much as S + 2. Where
    only the level of additive noise is given, as a number or as data, its variance stands for :math:`8 /
    \epsilon^2`.

    Parameters
    ----------
    vars : list of variables, optional
        Dirichlet variables; all that have this form if left out. With records among them (all of a block, as
        ``pm.sample`` gives them), these have no other step: draws alternate with sweeps over them anyway.
    n_cycles : int, optional
        Sweeps and draws per draw; by default more of them for fewer records.
    proposals : {"auto", "independence", "informed"}
        As for :class:`RecordImputation`.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If a variable is neither the Dirichlet parameter of categorical records and of nothing else, nor one
        of such records.

    Notes
    -----
    Cost per cycle: one record sweep, and O(n + size of the tables) for the draw; joint moves cost two more
    sweeps. On the model of section 4 of the paper below (n = 100, 75 counts) a cycle takes 30 us.
    ``sample_stats`` gets ``table_acceptance``, the acceptance of joint moves (NaN where there are none), and
    where the records have no other step, ``record_acceptance`` and ``record_acceptance_min``, as of
    :class:`RecordImputation`.

    References
    ----------
    Ju, Awan, Gong & Rao (2022), section 4.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     p = pm.Dirichlet("p", np.ones(3))
    ...     g = pm.Categorical("g", p, shape=30)
    ...     counts = dp.record_sum(pm.math.eq(g[:, None], np.arange(3)))
    ...     z = dp.LaplaceMechanism("z", counts, epsilon=1, sensitivity=2, observed=[9.0, 15.0, 4.0])
    ...     step = dp.ConjugateUpdate()
    >>> [v.name for v in step.vars]
    ['p_simplex__']
    """

    name = "conjugate_update"
    _lowered = ("chains", "_parts")
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"table_acceptance": (np.float64, [])}

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        n_cycles: int | None = None,
        proposals: Literal["auto", "independence", "informed"] = "auto",
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        check_positive("n_cycles", n_cycles, or_none=True)
        self.n_cycles, self.proposals = n_cycles, proposals
        self._prepare(vars, model, rng, initial_point)
        self._tell_of_sweeps()
        for part in self._parts:
            if part.sweeps:
                warn_of_passes(part.chain.program)

    def _build(self) -> None:
        model, moving = self._sized()
        blocks = record_blocks(model)
        records = {rv for block in blocks for rv in block.records}
        own = blocks_with(model, [model.rvs_to_values[rv] for rv in moving if rv in records])
        tables = [[rv for rv in moving if _picked(model, block, rv) is not None] for block in blocks]
        self._parts = [
            _Part(self, model, block, picked, any(block is each for each in own))
            for block, picked in zip(blocks, tables, strict=True)
            if picked
        ]
        self.chains = [part.chain for part in self._parts]

    @property
    def _sweeps(self) -> bool:
        return any(part.sweeps for part in self._parts)

    def _moved(self) -> set[str]:
        return super()._moved().union(*(part.names for part in self._parts))

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Alternate record sweeps and exact draws; the records of the returned point have moved too."""
        point = self._started(point)
        tally, swept = np.zeros(2), Swept()
        for part in self._parts:
            point.update(part.run(self, point, tally, swept))
        self.n_steps += 1
        stats = {"table_acceptance": tally[0] / tally[1] if tally[1] else np.nan} | swept.stats()
        return self._checked(point), [stats]

    @classmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        able = [model.rvs_to_values[rv] for rv in conjugate_parameters(model)]
        if not able:
            raise ValueError(
                "ConjugateUpdate found no Dirichlet variable whose only children are categorical records, "
                "with rows of it for probabilities: the variable itself, p[index], or np.eye(k)[index] @ p. "
                "Declare them so, or leave this step out."
            )
        return able

    @classmethod
    def _claim(cls, vars: Any, model: Model) -> list[Variable]:
        claimed = super()._claim(vars, model)
        able = [model.rvs_to_values[rv] for rv in conjugate_parameters(model)]
        able += [model.rvs_to_values[rv] for block in record_blocks(model) for rv in block.records]
        wrong = sorted(str(model.values_to_rvs[v].name) for v in claimed if v not in able)
        if wrong:
            raise ValueError(
                f"{', '.join(wrong)} in `vars`: ConjugateUpdate draws Dirichlet variables whose only "
                "children are categorical records, picked from them by index."
            )
        return claimed

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        if var.owner is None or not isinstance(var.owner.op, DirichletRV):
            return Competence.INCOMPATIBLE
        model = model_of(var)
        if model is None:
            return Competence.INCOMPATIBLE
        return Competence.PREFERRED if var in conjugate_parameters(model) else Competence.INCOMPATIBLE


class _Part:
    """The exact draw of tables for one block of records, which may have no other step that sweeps over it."""

    def __init__(
        self,
        step: ConjugateUpdate,
        model: Model,
        block: RecordBlock,
        tables: list[TensorVariable],
        sweeps: bool,
    ):
        self.sweeps, self.chain = sweeps, RecordChain(model, block, step.proposals, step._default_point)
        program = self.chain.program
        self.names = [str(model.rvs_to_values[rv].name) for rv in tables]
        self.where = positions(program.parameters, self.names)
        self.update = self._update(tables)
        if self.update is None:
            outputs = [pt.concatenate([_draw(program, rv).ravel() for rv in tables])]
            self.draw = program.native("conjugate draw", [program.x], outputs, CONJUGATE)
        (table_cycles.conjugate_cycles if self.update is None else table_cycles.table_cycles).ready()
        work, most = _WORK if self.update is None else _JOINT_WORK, _MAX_CYCLES
        self.n_cycles = step.n_cycles or int(np.clip(work / program.n, 1, most))

    def _update(self, tables: list[TensorVariable]) -> DirichletUpdate | None:
        """Return the update with joint moves, where all records are ruled by the tables alone."""
        program, move = self.chain.program, self.chain.moves[0]
        if len(self.chain.moves) > 1 or not isinstance(move.fused, DiscreteSweep):
            return None
        picked = {rv: _picked(program.model, program.block, rv) or [] for rv in tables}
        try:
            return DirichletUpdate(move.fused, tables, picked)
        except NotScalar:
            return None

    def run(
        self, step: ConjugateUpdate, point: dict[str, np.ndarray], tally: np.ndarray, swept: Swept
    ) -> dict[str, np.ndarray]:
        chain, program = self.chain, self.chain.program
        if chain.data.size != program.data.size:  # a function lowered later reads more data
            chain.refresh_data()
        theta = program.parameters.flatten(point)
        program.records.pack(point, out=chain.x)
        handle, record_tally = chain.handle(step.rng), np.array([0.0, 1.0])
        if self.update is None:
            table_cycles.conjugate_cycles(
                handle, self.n_cycles, self.draw.address, *chain.native(step.n_steps % len(chain.moves)),
                theta, chain.data, self.where, chain.x, chain.totals, record_tally,
            )  # fmt: skip
        else:
            table_cycles.table_cycles(
                handle, self.n_cycles, self.update.sizes, self.update.addresses,
                theta, chain.data, self.where, chain.x, chain.totals, record_tally, tally,
            )  # fmt: skip
        if self.sweeps:
            swept.add(record_tally, self.n_cycles * program.n)
        return {**program.parameters.unflatten(theta, self.names), **program.records.unpack(chain.x)}


def _draw(program: RecordProgram, rv: TensorVariable) -> TensorVariable:
    """Draw a table given the records, in value space."""
    picked = _picked(program.model, program.block, rv)
    assert picked is not None and rv.owner is not None
    alpha = substitute(parameters_of(rv), program.state)[0]
    shapes = program.model.eval_rv_shapes()
    shape = tuple(int(s) for s in shapes[rv.name])
    counts = pt.zeros(int(np.prod(shape)))
    for child, rows in picked:
        rows = pt.broadcast_to(rows, (*(int(s) for s in shapes[child.name]), shape[-1]))
        cell = pt.sum(rows * pt.eq(pt.arange(shape[-1]), child[..., None]), axis=-1)
        (cell,) = substitute([cell], program.state)
        counts = counts[pt.cast(cell, "int64").ravel()].inc(1.0)
    log_p = _log_dirichlet(pt.broadcast_to(alpha, shape) + counts.reshape(shape))
    if isinstance(program.model.rvs_to_transforms.get(rv), SimplexTransform):
        # the same value, where a probability is too small for a number but its logarithm is not
        return log_p[..., :-1] - pt.mean(log_p, axis=-1, keepdims=True)
    return program.forward(rv, pt.special.softmax(log_p, axis=-1), program.state)


def _log_dirichlet(alpha: TensorVariable) -> TensorVariable:
    """Logarithms of gamma variables, which are those of a Dirichlet draw up to a constant per row.

    A gamma variable of shape a is one of shape a + 1 times a uniform variable to the power 1/a, so that its
    logarithm does not underflow where a is small.
    """
    log_gamma = pt.log(draw(partial(pt.random.gamma, scale=1.0), alpha + 1.0))
    return log_gamma + pt.log(draw(pt.random.uniform, pt.zeros_like(alpha), 1.0)) / alpha


def _picked(model: Model, block: RecordBlock, rv: Variable) -> list[Picked] | None:
    """Categorical children of a Dirichlet table, with the row of it that each is drawn from.

    None if the table is not conjugate: a child's probabilities must be rows of the table picked by index.
    """
    variables = set(model.basic_RVs)
    if rv.owner is None or not isinstance(rv.owner.op, DirichletRV):
        return None
    children = [v for v in model.basic_RVs if rv in leaves_of(parameters_of(v), variables)]
    if any(rv in leaves_of([p], variables) for p in model.potentials) or not children:
        return None
    found = []
    for child in children:
        if not isinstance(child.owner.op, CategoricalRV) or child not in block.records:
            return None
        rows = picked_rows(model, child, rv)
        if rows is None:
            return None
        found.append((child, rows))
    return found


def conjugate_parameters(model: Model) -> list[Variable]:
    """Return the Dirichlet variables whose law given the records is Dirichlet again."""
    return [
        rv
        for block in record_blocks(model)
        for rv in parents_of_records(model, block)
        if _picked(model, block, rv) is not None
    ]


def cheaper_by_cycles(model: Model, block: RecordBlock, parameters: Sequence[Variable]) -> bool:
    """Whether exact draws are expected to cost less per effective draw than moves with the noise held fixed.

    Alternating records and parameters takes as many cycles as the complete data tell more than what is
    released. That is counted from sizes and budgets, not timed: draws are reproducible.

    Parameters
    ----------
    model : pymc.Model
    block : RecordBlock
    parameters : sequence of Variable
        All parameters behind the block's records.
    """
    if any(_picked(model, block, rv) is None for rv in parameters):
        return False
    shapes = model.eval_rv_shapes()
    size = sum(int(np.prod(shapes[rv.name])) for rv in parameters)
    told = 0.0
    for release in block.releases:
        precision = (1.0 if release.kind == "local" else block.n / size) * _budget(model, release) ** 2
        told += precision / (precision + 8)
    return (size + block.n) / (size + block.n * min(told, 1.0)) <= _ANCILLARY + size


def _budget(model: Model, release: Release) -> float:
    """Return what a release of counts spends, as epsilon of replaced records; 0 where nobody knows.

    Counts have Laplace noise of variance 8 / epsilon^2. Where no guarantee is known, since a noise level is
    all that was given, it is that of counts with the same noise, if the level is a number or data.
    """
    op: Any = release.rv.owner.op  # type: ignore[union-attr]
    guarantee = op.guarantee
    if guarantee is not None and guarantee.delta == 0 and np.isfinite(guarantee.epsilon):
        return guarantee.epsilon
    if guarantee is not None and guarantee.rho is not None:
        return np.sqrt(8 * guarantee.rho)
    noise = op.unprocessed
    level = parameters_of(release.rv)[1] if noise.additive_noise and noise.family else None
    if level is None or leaves_of([level], set(model.basic_RVs)):
        return 0.0
    variance = np.mean(np.square(pytensor.function([], level, mode=AS_WRITTEN)()))
    if not variance > 0:  # no law: data that are set before sampling, or refused there
        return 0.0
    return float(np.sqrt(8 / (2 * variance if "laplace" in noise.family else variance)))
