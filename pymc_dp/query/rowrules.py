"""How the outputs of a PyTensor operation depend on the records, given how its inputs do.

One small function per operation, registered on :func:`rule`; one without a rule mixes the records. Those of
indices are in :mod:`pymc_dp.query.indexrules`.
"""

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Argmax, Dot, Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax

if TYPE_CHECKING:
    from pymc_dp.query.rowlocal import RowAnalysis


@dataclass(frozen=True)
class Role:
    """What a variable has to do with the records (see the module's docstring)."""

    kind: str
    axis: int | None = None
    rows: tuple[int, ...] | None = None  # the record behind each row, None for all in order


FREE = Role("free")
SUM = Role("sum")
FUNCTION = Role("function")
MIXED = Role("mixed")


def op_axis(node: Apply) -> int:
    """Return the axis of a Join."""
    return int(node.op.axis)


@singledispatch
def rule(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    """Return the role of a node's outputs given its inputs' roles; by default they are mixed."""
    return MIXED


@rule.register(Elemwise)
def _elemwise(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    kinds = [r.kind for r in roles]
    if "row" in kinds:
        rows = {r for r in roles if r.kind == "row"}
        if len(rows) > 1:
            return MIXED
        (role,) = rows
        length = analysis.n if role.rows is None else len(role.rows)
        sizes = {v.type.shape[role.axis] for v in node.inputs}
        return role if sizes <= {None, 1, length} and (1 not in sizes or _fits(node, roles, role)) else MIXED
    scalar = op.scalar_op
    if isinstance(scalar, ps.Add | ps.Sub | ps.Neg | ps.Identity):
        return SUM
    if isinstance(scalar, ps.Cast):
        # a cast to integers would truncate, which is not affine
        return SUM if np.dtype(node.outputs[0].dtype).kind == "f" else FUNCTION
    if isinstance(scalar, ps.Mul | ps.TrueDiv) and analysis.counts_people(node):
        return FUNCTION  # of nobody, the rows would be 0 where the query may be no number
    if isinstance(scalar, ps.Mul):
        return SUM if kinds.count("sum") == 1 else FUNCTION
    if isinstance(scalar, ps.TrueDiv):
        return SUM if kinds == ["sum", "free"] else FUNCTION
    return FUNCTION


def _fits(node: Apply, roles: list[Role], role: Role) -> bool:
    """Whether no row-local input is broadcast along its record axis."""
    out = node.outputs[0].type.shape[role.axis]
    return all(
        v.type.shape[role.axis] == out or v.type.shape[role.axis] is None
        for v, r in zip(node.inputs, roles, strict=True)
        if r.kind == "row"
    )


@rule.register(DimShuffle)
def _dimshuffle(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    if roles[0].kind == "sum":
        return SUM
    order = list(op.new_order)
    return replace(roles[0], axis=order.index(roles[0].axis)) if roles[0].axis in order else MIXED


@rule.register(CAReduce)
def _reduce(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    (x,), (role,) = node.inputs, roles
    axes = tuple(range(x.ndim)) if op.axis is None else tuple(op.axis)
    if role.kind == "sum":
        return SUM if isinstance(op, Sum) else FUNCTION
    k = role.axis
    assert k is not None
    if k not in axes:
        return replace(role, axis=k - sum(a < k for a in axes))
    if not isinstance(op, Sum):
        return MIXED
    rest = [a - (a > k) + 1 for a in axes if a != k]
    rows = pt.moveaxis(x, k, 0) if k else x
    rows = rows.sum(axis=rest) if rest else rows
    return analysis.add_sum(node.outputs[0], rows, role)


@rule.register(Argmax)
def _argmax(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    (x,), (role,) = node.inputs, roles
    axes = tuple(range(x.ndim)) if op.axis is None else tuple(op.axis)
    k = role.axis
    if role.kind != "row" or k is None or k in axes:
        return MIXED
    return replace(role, axis=k - sum(a < k for a in axes))


@rule.register(Dot)
def _dot(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    a, b = node.inputs
    if "sum" in {r.kind for r in roles}:
        return SUM if {r.kind for r in roles} == {"sum", "free"} else FUNCTION
    contracted = (a.ndim - 1, max(b.ndim - 2, 0))
    on_contraction = [r.kind == "row" and r.axis == c for r, c in zip(roles, contracted, strict=True)]
    if not any(on_contraction):
        if roles[0].kind == "row" and roles[1].kind == "free":
            return roles[0]
        if roles[1].kind == "row" and roles[0].kind == "free":
            return replace(roles[1], axis=a.ndim - 1 if b.ndim == 2 else roles[1].axis)
        return MIXED
    rows = {r for r in roles if r.kind == "row"}
    if len({r.rows for r in rows}) > 1 or any(
        r.kind == "row" and not on for r, on in zip(roles, on_contraction, strict=True)
    ):
        return MIXED
    # the product sums over records: row i contributes the outer product of a[:, i] and b[i, :]
    left = pt.moveaxis(a, contracted[0], 0)
    right = pt.moveaxis(b, contracted[1], 0)
    outer = left.reshape((left.shape[0], -1, 1)) * right.reshape((right.shape[0], 1, -1))
    shape = (
        outer.shape[0],
        *(a.shape[k] for k in range(a.ndim) if k != contracted[0]),
        *(b.shape[k] for k in range(b.ndim) if k != contracted[1]),
    )
    rows_graph = outer.reshape(shape, ndim=node.outputs[0].ndim + 1)
    return analysis.add_sum(node.outputs[0], rows_graph, next(iter(rows)))


@rule.register(Blockwise)
def _blockwise(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    if isinstance(op.core_op, Dot) and all(v.ndim == 2 for v in node.inputs):
        return _dot(op.core_op, node, roles, analysis)
    batch = op.batch_ndim(node)
    rows = {r for r in roles if r.kind == "row"}
    if len(rows) != 1 or any(r.kind not in ("row", "free") for r in roles):
        return MIXED
    (role,) = rows
    return role if role.axis is not None and role.axis < batch else MIXED


@rule.register(RandomVariable)
@rule.register(SymbolicRandomVariable)
def _random(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    """Rows of a random variable are conditionally independent if its parameters are row-local."""
    role_of = dict(zip(node.inputs, roles, strict=True))
    batch = node.default_output().type.ndim - op.ndim_supp
    if batch < 1:
        return MIXED
    if getattr(op, "extended_signature", "") is None:  # of pm.Truncated, whose parameters are all numbers
        if op.ndim_supp:
            return MIXED
        params = tuple(v for v, r in role_of.items() if r.kind != "free")
        cores = [0] * len(params)
    else:
        params, cores = op.dist_params(node), op.ndims_params
    rows = set()
    for parameter, core in zip(params, cores, strict=True):
        role = role_of[parameter]
        if role.kind == "free":
            continue
        if role.kind != "row" or role.axis != parameter.type.ndim - core - batch:
            return MIXED
        rows.add(role.rows)
        # one record with several children: they are broadcast along what would be the record axis
        if parameter.type.shape[role.axis] == 1 and node.default_output().type.shape[0] != 1:
            return MIXED
    others = [r for v, r in role_of.items() if v not in params]
    if len(rows) > 1 or any(r.kind != "free" for r in others):
        return MIXED
    return Role("row", 0, *rows)


@rule.register(Join)
def _join(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    if any(r.kind == "sum" for r in roles):
        return SUM
    rows = {r for r in roles if r.kind == "row"}
    if len(rows) != 1:
        return MIXED
    (role,) = rows
    return MIXED if op_axis(node) % node.outputs[0].ndim == role.axis else role


@rule.register(MakeVector)
def _make_vector(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    return SUM if any(r.kind == "sum" for r in roles) else MIXED


@rule.register(ViewOp)
@rule.register(SpecifyShape)
@rule.register(ScalarFromTensor)
@rule.register(TensorFromScalar)
def _pass(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    return roles[0]


@rule.register(Softmax)
@rule.register(LogSoftmax)
def _softmax(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    if roles[0].kind != "row" or op.axis is None:
        return MIXED
    axes = op.axis if isinstance(op.axis, tuple) else (op.axis,)
    ndim = node.inputs[0].ndim
    return MIXED if roles[0].axis in {a % ndim for a in axes} else roles[0]


@rule.register(Reshape)
def _reshape(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    if roles[1].kind != "free":
        return MIXED
    if roles[0].kind == "sum":
        return SUM
    before, after = node.inputs[0].type.shape, node.outputs[0].type.shape
    same = len(after) > 0 and before[0] is not None and before[0] == after[0]
    return roles[0] if roles[0].axis == 0 and same else MIXED


@rule.register(Alloc)
def _alloc(op: Any, node: Apply, roles: list[Role], analysis: "RowAnalysis") -> Role:
    value, out = node.inputs[0], node.outputs[0]
    if roles[0].kind == "sum" and all(r.kind == "free" for r in roles[1:]):
        return SUM
    if roles[0].kind != "row" or any(r.kind != "free" for r in roles[1:]):
        return MIXED
    k = roles[0].axis
    assert k is not None
    axis = k + out.ndim - value.ndim
    same = value.type.shape[k] is not None and value.type.shape[k] == out.type.shape[axis]
    return replace(roles[0], axis=axis) if same else MIXED
