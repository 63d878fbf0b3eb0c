r"""Categorical records that only their releases tell apart, integrated out by counting.

Records :math:`c_i` that are categorical with common probabilities, released one by one through a finite
channel, say something about the probabilities only through the table that counts equal releases:

.. math:: p(\theta \mid z) \propto p(\theta) \prod_g \Big(\sum_k \pi_k(\theta) Q(g \mid k)\Big)^{n_g}

over the groups g of equal releases (and equal row of the table of probabilities).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.native import CONDITIONAL, RECORDS, NativeFunction
from pymc_dp.query.choices import picked_by_product
from pymc_dp.query.lengths import last_length
from pymc_dp.query.pointwise import of_values, record_behind
from pymc_dp.query.readings import substitute, uncast, with_query
from pymc_dp.query.records import RecordBlock, Release, parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.step_methods.block.parents import ancestors_of_records
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.noncentred import NoiseForm

# A random walk mixes in about as many updates as it has dimensions: beyond this, other steps keep the
# parameters.
MAX_DIMENSION = 40
# Largest number of categories that is summed over.
MAX_CATEGORIES = 256


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
    k = last_length(p) if core else 2
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
    """Whether a release is discrete and tells of each record alone, by what is data if not alike for all."""
    node = release.rv.owner
    assert node is not None
    op, others = node.op, parameters_of(release.rv)[1:]
    variables = set(model.basic_RVs)
    if release.kind != "local" or op.ndims_params[0] > 0 or np.dtype(release.rv.dtype).kind not in "iub":
        return False
    if record_behind(release.query, [record]) is None:
        return False
    ours = [others[k - 1] for k in _of_each_record(release)]
    return not leaves_of(ours, variables) and not set(leaves_of(others, variables)) & set(parameters)


def _of_each_record(release: Release) -> list[int]:
    """Return positions of the parameters of a release that differ between records."""
    node = release.rv.owner
    params = list(zip(parameters_of(release.rv), node.op.ndims_params, strict=True))  # type: ignore[union-attr]
    return [
        k
        for k, (p, core) in enumerate(params)
        if k > 0 and not all(p.type.broadcastable[: p.type.ndim - core])  # type: ignore[attr-defined]
    ]


def _picked_rows(p: Variable, core: int) -> tuple[TensorVariable, Variable] | None:
    """Return the table and the index of probabilities that are rows of a table, picked by data."""
    while p.owner is not None and isinstance(p.owner.op, ViewOp):  # of a Deterministic
        p = p.owner.inputs[0]
    node = p.owner
    product = None if node is None else picked_by_product(node)
    if product is not None and core == 1:
        return product[0], pt.constant(product[1])  # type: ignore[return-value]
    if node is None or not isinstance(node.op, AdvancedSubtensor) or len(node.inputs) != 2:
        return None
    table, rows = node.inputs
    known = isinstance(uncast(rows), Constant | SharedVariable)
    first = table.type.ndim == core + 1 and rows.type.ndim == 1 and len(node.op.idx_list) == 1
    whole = rows.type.dtype.startswith(("int", "uint"))  # a mask picks other rows
    return (table, rows) if known and first and whole else None


class CollapsedConditionals(Conditionals):
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

    def _forms(self) -> dict[Variable, NoiseForm]:
        return {}  # the records are not moved along

    def columns(self) -> NativeFunction:
        """Compile what tells records apart, one row per record."""
        n, columns, self.widths = self.program.n, [], []
        for release in self.program.block.releases:
            columns.append(pt.cast(self._observed(release), "float64").reshape((n, -1)))
            self.widths.append([int(np.prod(self.program.shape_of(release)[1:]))])
            for k in _of_each_record(release):
                (own,) = substitute([parameters_of(release.rv)[k]], self.program.state)
                columns.append(pt.cast(own, "float64").reshape((n, -1)))
                self.widths[-1].append(int(np.prod(own.shape[1:].eval())))
        if self.case.rows is not None:
            (rows,) = substitute([self.case.rows], self.program.state)
            # a negative index counts from the end
            rows = pt.switch(rows < 0, rows + self._table().shape[0], rows)
            columns.append(pt.cast(rows, "float64")[:, None])
        return self.program.native("groups", [self.program.x], [pt.concatenate(columns, axis=1)], RECORDS)

    def _observed(self, release: Release) -> TensorVariable:
        """Return the release as a part of the data, also where tables stand for its density."""
        value = self.program.model.rvs_to_values[release.rv]
        if isinstance(value, Constant | SharedVariable):
            return self.program.data.graph(value)
        return self.program.state[release.rv]

    def channels(self) -> NativeFunction:
        """Compile the relative probabilities of each group's releases given the category."""
        columns = pt.matrix("columns", dtype="float64")
        category = pt.arange(self.case.n_categories)
        total, start = pt.zeros((1, self.case.n_categories)), 0
        for release, widths in zip(self.program.block.releases, self.widths, strict=True):
            query = of_values(release.query, self.case.record, category)
            others, at = {}, start + widths[0]
            for k, width in zip(_of_each_record(release), widths[1:], strict=True):
                own = parameters_of(release.rv)[k]
                shape = (columns.shape[0], 1, *own.type.shape[1:])  # against categories along the second axis
                others[k] = pt.cast(columns[:, at : at + width].reshape(shape), own.dtype)
                at += width
            law = with_query(release, self.program.state, query[None], others)
            # shape (groups, 1, ...)
            value = columns[:, None, start : start + widths[0]]
            value = value if release.rv.owner.op.ndim_supp else value[:, :, 0]  # type: ignore[union-attr]
            value = pt.cast(value, release.rv.dtype)
            total, start = total + pm.logp(law, value), at
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

    def shares(self) -> NativeFunction:
        """Compile the law of the records given parameters and releases, one row per group."""
        return self.program.native("law of records", [self.channel], [self._shares()], RECORDS)

    def collapsed(self) -> NativeFunction:
        """Compile the log density of the parameters given the releases."""
        factors = [f for f in self._factors(self.moving) if f is not self.case.record]
        graph = self._sum(factors, self.program.state)
        if self.case.rows is None:
            mass = pt.dot(self.channel, self._table()[0])
        else:
            mass = pt.sum(self._shares(), axis=1)
        graph = graph + pt.sum(self.counts * pt.log(mass))
        graph = self._where_records_have_laws(graph, self.program.state)
        return self.program.native("collapsed", [self.channel, self.counts], [graph], CONDITIONAL)

    @cached_property
    def domains(self) -> dict[Variable, list[TensorVariable]]:
        """Conditions on the probabilities of the record that was summed over, where they may fail."""
        conditions = self._conditions(self.case.record, self.moving)
        return {self.case.record: conditions} if conditions else {}


def distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows, and which of them each row is."""
    code, span = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        if (column != np.floor(column)).any():
            column = np.unique(column, return_inverse=True)[1]
        lowest = int(column.min())
        width = int(column.max()) - lowest + 1
        if span * width >= 2**62:
            code = np.unique(code, return_inverse=True)[1]
            span = int(code.max()) + 1
        code, span = code * width + (column.astype(np.int64) - lowest), span * width
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    return np.ascontiguousarray(rows[first]), group
