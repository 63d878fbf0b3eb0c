"""An operation that is 0 and refuses to be differentiated, or to be sampled by those who would believe it.

It stands in a model for a term that is computed elsewhere. Whoever took its value for the term's would sample
a wrong law in silence, or report a wrong log density, so it tells apart who compiles it: PyMC's check of
starting values and samplers of other variables, for which its inputs are fixed, may have the 0; nobody else.
"""

import sys
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.step_methods.compound import BlockedStep
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors

from pymc_dp.lowering.compiling.keys import version_of
from pymc_dp.lowering.compiling.nopython import njit_for_graphs
from pymc_dp.upstream.pytensor_private import register_funcify_default_op_cache_key

# What of PyMC evaluates a log density only to see whether it is finite.
_CHECK = ("pymc.model.core", "check_start_vals")


class Sentinel(Op):
    """Zero, for those who may have it.

    Parameters
    ----------
    token : str
        What tells one from another.
    message : str
        What is raised otherwise.
    term : object
        What it stands for; not looked into here.
    """

    __props__ = ("message", "token")

    def __init__(self, token: str, message: str, term: Any):
        self.token, self.message, self.term = token, message, term

    def make_node(self, *inputs: Any) -> Apply:
        """Apply it to the variables that the term depends on."""
        return Apply(self, [pt.as_tensor(v) for v in inputs], [pt.scalar(dtype="float64")])

    def infer_shape(self, node: Apply, shapes: Any) -> list[tuple]:
        """Return the shape of a number."""
        return [()]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Return 0."""
        outputs[0][0] = np.zeros(())

    def prepare_node(self, node: Apply, storage_map: Any, compute_map: Any, impl: Any) -> None:
        """Refuse compilation for the wrong use, also outside of numba."""
        super().prepare_node(node, storage_map, compute_map, impl)
        self.refuse_if_believed(node)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Refuse: whoever wants a gradient would follow that of the other terms."""
        raise NotImplementedError(self.message)

    def refuse_if_believed(self, node: Apply) -> None:
        """Raise where a log density that varies with the inputs is compiled, but for those who may."""
        roots = [v for v in ancestors(node.inputs) if v.owner is None]
        if all(isinstance(v, Constant | SharedVariable) for v in roots):
            return
        frame: Any = sys._getframe(1)
        while frame is not None:
            caller = frame.f_locals.get("self")
            if isinstance(caller, BlockedStep):
                if getattr(caller, "takes_sentinels", False):
                    return
                break
            if (frame.f_globals.get("__name__"), frame.f_code.co_name) == _CHECK:
                return
            frame = frame.f_back
        raise NotImplementedError(self.message)


@register_funcify_default_op_cache_key(Sentinel)
def _funcify(op: Sentinel, node: Any = None, **kwargs: Any) -> Any:
    op.refuse_if_believed(node)

    @njit_for_graphs
    def zero(*inputs):  # type: ignore[no-untyped-def]
        return np.asarray(0.0)

    return zero, version_of(zero)
