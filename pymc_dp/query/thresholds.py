"""Which real variables a query reads as thresholds, so that its density has no slope in them."""

from collections.abc import Collection

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape, Shape_i

from pymc_dp.query.rowlocal import leaves_of

# Functions whose real values jump; all that have whole numbers or booleans for values jump, too.
_STEPS = (ps.RoundHalfToEven, ps.RoundHalfAwayFromZero, ps.Floor, ps.Ceil, ps.Trunc, ps.IntDiv, ps.Sign)


def behind_thresholds(query: Variable, variables: Collection[Variable]) -> set[Variable]:
    """Return the real variables of a model that are compared or rounded in a query."""
    found: set[Variable] = set()
    for v in ancestors([query], blockers=variables):
        if v.owner is None or v in variables or isinstance(v.owner.op, Shape | Shape_i):
            continue
        steps = isinstance(v.owner.op, Elemwise) and isinstance(v.owner.op.scalar_op, _STEPS)
        if steps or not _is_real(v):
            found.update(leaves_of([i for i in v.owner.inputs if _is_real(i)], set(variables)))
    return {v for v in found if _is_real(v)}


def _is_real(v: Variable) -> bool:
    return np.dtype(getattr(v.type, "dtype", "int64")).kind == "f"
