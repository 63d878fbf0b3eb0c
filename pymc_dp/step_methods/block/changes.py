"""Changes of a log density when its query changes: differences of graphs, taken before compilation."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Variable, equal_computations
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.native import jit_function
from pymc_dp.query.records import parameters_of


def difference(after: Any, before: Any) -> TensorVariable:
    """Return ``after - before`` for two graphs of one form, without what is the same in both."""
    if after is before or equal_computations([after], [before]):
        return pt.zeros_like(after)
    if np.dtype(after.type.dtype).kind in "bu":
        # PyTensor has no difference of booleans, and that of unsigned numbers is never below zero
        return pt.cast(after, "int64") - pt.cast(before, "int64")
    a, b = after.owner, before.owner
    if a is None or b is None or type(a.op) is not type(b.op) or len(a.inputs) != len(b.inputs):
        return after - before
    if isinstance(a.op, CheckParameterValue):
        # the state before was valid
        return a.op(difference(a.inputs[0], b.inputs[0]), *a.inputs[1:])
    scalar = getattr(a.op, "scalar_op", None)
    if not isinstance(a.op, Elemwise) or type(scalar) is not type(getattr(b.op, "scalar_op", None)):
        return after - before
    same = [v is w or equal_computations([v], [w]) for v, w in zip(a.inputs, b.inputs, strict=True)]
    parts = list(zip(a.inputs, b.inputs, strict=True))
    if isinstance(scalar, ps.Add):
        changed = [difference(*part) for part, fixed in zip(parts, same, strict=True) if not fixed]
        return sum(changed[1:], start=changed[0])
    if isinstance(scalar, ps.Sub):
        return difference(*parts[0]) - difference(*parts[1])
    if isinstance(scalar, ps.Neg):
        return -difference(*parts[0])
    if isinstance(scalar, ps.Mul) and same.count(False) == 1:
        k = same.index(False)
        return pt.mul(*(difference(*part) if j == k else part[0] for j, part in enumerate(parts)))
    if isinstance(scalar, ps.TrueDiv) and same[1]:
        return difference(*parts[0]) / a.inputs[1]
    if isinstance(scalar, ps.Switch) and same[0]:
        return pt.switch(a.inputs[0], difference(*parts[1]), difference(*parts[2]))
    return after - before


def scalar_change(rv: Variable, value_dtype: str) -> tuple[Any, str | None]:
    """Lower the change of an elementwise log density when its query changes.

    The difference is taken in the graph, so that what does not depend on the query (a normalising constant,
    which may be a long series) cancels before anything is compiled.
    """
    node = rv.owner
    assert node is not None
    value, old, new = (ps.float64(name) for name in ("value", "old", "new"))
    others = [ps.float64(f"p{i}") for i in range(len(parameters_of(rv)) - 1)]
    tensors = [pt.tensor_from_scalar(p) for p in others]
    v = pt.cast(pt.tensor_from_scalar(value), value_dtype)

    def logp(query: Variable) -> TensorVariable:
        moved = node.op.make_node(node.inputs[0], NoneConst, pt.tensor_from_scalar(query), *tensors)
        return pm.logp(moved.default_output(), v)

    return jit_function(
        [value, old, new, *others],
        [pt.scalar_from_tensor(pt.cast(difference(logp(new), logp(old)), "float64"))],
    )


def term_change(op: Any, n_params: int) -> tuple[Any, str | None]:
    """Lower the change of one term of a separable log density when its sum changes."""
    released, old, new, *params = (ps.float64(f"p{i}") for i in range(3 + n_params))
    value, *others = (pt.tensor_from_scalar(p) for p in (released, *params))
    before, after = (op.term(value, pt.tensor_from_scalar(query), *others) for query in (old, new))
    return jit_function(
        [released, old, new, *params], [pt.scalar_from_tensor(pt.cast(difference(after, before), "float64"))]
    )
