"""Which cells of a table of probabilities a categorical variable is drawn from."""

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import Model
from pymc.pytensorf import constant_fold
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.choices import picked_by_product
from pymc_dp.query.readings import substitute
from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of


def picked_rows(model: Model, child: Variable, table: Variable) -> TensorVariable | None:
    """Cell numbers of the row of a table that a categorical variable is drawn from, if it picks one by index.

    Picking from a table of cell numbers instead of probabilities tells which cells they are.
    """
    (p,) = parameters_of(child)
    variables = set(model.basic_RVs)
    if not _picks_rows(p, table, variables):
        return None
    shape = table_shape(model, table)
    numbers = pt.constant(np.arange(np.prod(shape), dtype=table.type.dtype).reshape(shape))
    # the others stand still: a record may pick its row by a record drawn from the same table
    still = {v: v.type() for v in variables if v is not table}
    rows = substitute([p], {**still, table: pt.specify_shape(numbers, table.type.shape)})  # type: ignore[attr-defined]
    return substitute(rows, {stand_in: v for v, stand_in in still.items()})[0]


def table_shape(model: Model, table: Variable) -> tuple[int, ...]:
    """Return the shape of a table; the model is evaluated only where its graph does not tell."""
    known = table.type.shape  # type: ignore[attr-defined]
    return tuple(int(s) for s in (model.eval_rv_shapes()[table.name] if None in known else known))


def _picks_rows(p: Variable, table: Variable, variables: set[Variable]) -> bool:
    """Whether a graph only picks rows of a table, or repeats them, leaving its last axis whole."""
    while p is not table:
        node = p.owner
        if node is None:
            return False
        product = picked_by_product(node)
        source = node.inputs[0] if product is None else product[0]
        others = [v for v in node.inputs if v is not source]
        if isinstance(node.op, Reshape | Alloc):  # lengths, which may be written as those of the table
            folded = constant_fold(others, raise_not_constant=False)
            others = [v for v in folded if isinstance(v, Variable)]
        if not (product or _leaves_rows_whole(node)) or table in leaves_of(others, variables):
            return False
        p = source
    return True


def _leaves_rows_whole(node: Apply) -> bool:
    """Whether rows of the first input are rows of the output."""
    op, source, made = node.op, node.inputs[0], node.outputs[0]
    if isinstance(op, DimShuffle):
        return len(op.new_order) > 0 and op.new_order[-1] == source.type.ndim - 1
    if isinstance(op, Subtensor | AdvancedSubtensor):
        return len(op.idx_list) < source.type.ndim
    if isinstance(op, Reshape | Alloc):
        length = source.type.shape[-1] if source.type.ndim else None
        return length is not None and length > 1 and made.type.shape[-1:] == (length,)
    return isinstance(op, SpecifyShape | ViewOp)  # the latter makes a Deterministic
