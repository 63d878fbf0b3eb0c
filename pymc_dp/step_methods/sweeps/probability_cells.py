"""Which cells of a table of probabilities a categorical variable is drawn from."""

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

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
