"""Exact draws of probability tables given categorical records."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import CategoricalRV, DirichletRV
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.native import CONJUGATE, draw
from pymc_dp.records import RecordBlock, parameters_of
from pymc_dp.rowlocal import leaves_of
from pymc_dp.step_methods import kernels
from pymc_dp.step_methods.base import RecordChain, RecordStep
from pymc_dp.step_methods.discovery import (
    model_of,
    parents_of_records,
    record_blocks,
)
from pymc_dp.step_methods.layout import positions
from pymc_dp.step_methods.program import RecordProgram, substitute

# Work that one draw is worth, in records: as for the ancillary update, fixed so that draws are reproducible.
_WORK = 1000
_MAX_CYCLES = 8


class ConjugateUpdate(RecordStep):
    r"""Exact draw of Dirichlet probabilities given categorical records.

    With a table :math:`p_{c\cdot} \sim \text{Dirichlet}(\alpha_c)` and records :math:`x_i` that are
    categorical with row :math:`c_i` of it, the law given the records is
    :math:`\text{Dirichlet}(\alpha_c + \#\{i: c_i = c, x_i = \cdot\})`, whatever the releases are. Each draw
    of this step alternates such draws with sweeps over the records.

    ``pm.sample`` chooses this step by itself for the Dirichlet parameters of categorical records when there
    are too many of them for :class:`AncillaryUpdate`.

    Parameters
    ----------
    vars : list of variables, optional
        Dirichlet variables; all that have this form if left out.
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
        If a variable is not the Dirichlet parameter of categorical records and of nothing else.

    Notes
    -----
    Cost per cycle: one record sweep, and O(n + size of the tables) for the draw.

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
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {}

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
        if n_cycles is not None and (not isinstance(n_cycles, int | np.integer) or n_cycles < 1):
            raise ValueError(f"`n_cycles` must be a positive integer, got {n_cycles!r}.")
        self.n_cycles, self.proposals = n_cycles, proposals
        self._prepare(vars, model, rng, initial_point)

    def _build(self) -> None:
        moving = [self.model.values_to_rvs[v] for v in self.vars]
        self._parts = [
            _Part(self, block, [rv for rv in moving if _cells(self.model, block, rv) is not None])
            for block in record_blocks(self.model)
            if any(rv in parents_of_records(self.model, block) for rv in moving)
        ]
        self.chains = [part.chain for part in self._parts]

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Alternate record sweeps and exact draws; the records of the returned point have moved too."""
        point = self._started(point)
        for part in self._parts:
            point.update(part.run(self, point))
        self.n_steps += 1
        return point, [{}]

    @classmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        able = [model.rvs_to_values[rv] for rv in conjugate_parameters(model)]
        if not able:
            raise ValueError(
                "ConjugateUpdate found no Dirichlet variable whose only children are categorical records; "
                "leave this step out."
            )
        return able

    @classmethod
    def _claim(cls, vars: Any, model: Model) -> list[Variable]:
        claimed = super()._claim(vars, model)
        able = [model.rvs_to_values[rv] for rv in conjugate_parameters(model)]
        wrong = sorted(str(v.name) for v in claimed if v not in able)
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
    """The update for one block of records."""

    def __init__(self, step: ConjugateUpdate, block: RecordBlock, tables: list[TensorVariable]):
        self.chain = RecordChain(step.model, block, step.proposals, step._default_point)
        program = self.chain.program
        self.names = [str(step.model.rvs_to_values[rv].name) for rv in tables]
        self.where = positions(program.parameters, self.names)
        outputs = [pt.concatenate([_draw(program, rv).ravel() for rv in tables])]
        self.draw = program.native("conjugate draw", [program.x], outputs, CONJUGATE)
        self.n_cycles = step.n_cycles or int(np.clip(_WORK / program.n, 1, _MAX_CYCLES))

    def run(self, step: ConjugateUpdate, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        chain, program = self.chain, self.chain.program
        if chain.data.size != program.data.size:  # a function lowered later reads more data
            chain.refresh_data()
        theta = program.parameters.flatten(point)
        program.records.pack(point, out=chain.x)
        kernels.conjugate_cycles(
            step.rng, self.n_cycles, self.draw.address, *chain.native(step.n_steps % len(chain.moves)),
            theta, chain.data, self.where, chain.x, chain.totals, np.array([0.0, 1.0, 0.0]),
        )  # fmt: skip
        return {**program.parameters.unflatten(theta, self.names), **program.records.unpack(chain.x)}


def _draw(program: RecordProgram, rv: TensorVariable) -> TensorVariable:
    """Draw a table given the records, in value space."""
    cells = _cells(program.model, program.block, rv)
    assert cells is not None and rv.owner is not None
    alpha = substitute(parameters_of(rv), program.state)[0]
    shape = tuple(int(s) for s in program.model.eval_rv_shapes()[rv.name])
    counts = pt.zeros(int(np.prod(shape)))
    for cell in substitute(cells, program.state):
        counts = counts[pt.cast(cell, "int64").ravel()].inc(1.0)
    table = draw(pt.random.dirichlet, pt.broadcast_to(alpha, shape) + counts.reshape(shape))
    return program.forward(rv, table, program.state)


def _cells(model: Model, block: RecordBlock, rv: Variable) -> list[TensorVariable] | None:
    """Cells of a Dirichlet table that each categorical child counts into; None if it is not conjugate.

    The child's probabilities must be rows of the table picked by index. Picking from a table of cell
    numbers instead of probabilities tells which cell each record falls into.
    """
    variables = set(model.basic_RVs)
    if rv.owner is None or not isinstance(rv.owner.op, DirichletRV):
        return None
    children = [v for v in model.basic_RVs if rv in leaves_of(parameters_of(v), variables)]
    if any(rv in leaves_of([p], variables) for p in model.potentials) or not children:
        return None
    shape = tuple(int(s) for s in model.eval_rv_shapes()[rv.name])
    numbers = pt.constant(np.arange(np.prod(shape), dtype="float64").reshape(shape))
    found = []
    for child in children:
        if not isinstance(child.owner.op, CategoricalRV) or child not in block.records:
            return None
        (p,) = parameters_of(child)
        if not _picks_rows(p, rv, variables):
            return None
        rows = substitute([p], {rv: pt.specify_shape(numbers, rv.type.shape)})[0]  # type: ignore[attr-defined]
        rows = pt.broadcast_to(rows, (*(int(s) for s in model.eval_rv_shapes()[child.name]), shape[-1]))
        k = pt.arange(shape[-1])
        found.append(pt.sum(rows * pt.eq(k, child[..., None]), axis=-1))
    return found


def _picks_rows(p: Variable, table: Variable, variables: set[Variable]) -> bool:
    """Whether a graph only picks rows of a table, leaving its last axis whole."""
    while p is not table:
        node = p.owner
        if node is None:
            return False
        op = node.op
        if isinstance(op, DimShuffle):
            whole = len(op.new_order) > 0 and op.new_order[-1] == node.inputs[0].type.ndim - 1
        elif isinstance(op, Subtensor | AdvancedSubtensor):
            whole = len(op.idx_list) < node.inputs[0].type.ndim
        else:
            whole = isinstance(op, SpecifyShape)
        if not whole or table in leaves_of(node.inputs[1:], variables):
            return False
        p = node.inputs[0]
    return True


def conjugate_parameters(model: Model) -> list[Variable]:
    """Return the Dirichlet variables whose law given the records is Dirichlet again."""
    return [
        rv
        for block in record_blocks(model)
        for rv in parents_of_records(model, block)
        if _cells(model, block, rv) is not None
    ]
