"""Entries of arrays that are set or added to: one array in a loop, in PyTensor's machine code.

PyTensor computes what is written in the loop that writes it. With several arrays in one loop, numbers in them
may be wrong, and others from call to call: seen with PyTensor 3.3.8 and three arrays that are written by one
index, not without its operations in place. What one loop computes for several arrays is therefore computed
first, and written then. :class:`KnownShape`, which keeps the two apart, stands here for shapes, too.
"""

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor

from pymc_dp.lowering.compiling.keys import version_of
from pymc_dp.lowering.compiling.nopython import njit_for_graphs
from pymc_dp.upstream.pytensor_private import register_funcify_default_op_cache_key


class KnownShape(Op):
    """Identity whose static shape is known to hold; a check would compile an error message for a second."""

    __props__ = ("shape",)
    view_map = {0: [0]}  # noqa: RUF012  (PyTensor's name) the output is the input: nothing may overwrite either

    def __init__(self, shape: tuple[int | None, ...]):
        self.shape = shape

    def make_node(self, x: Any) -> Apply:
        """Apply it to a tensor."""
        return Apply(self, [x], [x.type.clone(shape=self.shape)()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Return the input."""
        outputs[0][0] = inputs[0]


@register_funcify_default_op_cache_key(KnownShape)
def _funcify_known_shape(op: KnownShape, **kwargs: Any) -> Any:
    @njit_for_graphs
    def known_shape(x):  # type: ignore[no-untyped-def]
        return x

    return known_shape, version_of(known_shape)


@node_rewriter([AdvancedIncSubtensor])
def written_apart(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Keep what is written out of the loop that computes other arrays, too."""
    target, value, *index = node.inputs
    source = value.owner
    while source is not None and isinstance(source.op, DimShuffle):
        source = source.inputs[0].owner
    if source is None or not isinstance(source.op, Elemwise) or len(source.outputs) < 2:
        return None
    return [node.op(target, KnownShape(value.type.shape)(value), *index)]
