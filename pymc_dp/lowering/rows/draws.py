"""A draw from a univariate distribution within a graph of numbers.

PyTensor draws every RandomVariable as an array, 150 to 200 ns even for a single number. The machine code of a
:class:`ScalarDraw` is one call of the numpy generator that is given to the function.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import get_scalar_type
from pytensor.tensor.random.op import RandomVariable

from pymc_dp.lowering.addresses.graphs import as_tensor
from pymc_dp.lowering.compiling.keys import digest
from pymc_dp.lowering.compiling.nopython import njit
from pymc_dp.lowering.functions.samplers import core_sampler
from pymc_dp.upstream.pytensor_private import compile_numba_function_src, register_funcify_and_cache_key


class ScalarDraw(Op):
    """One draw from a univariate RandomVariable ``Op``: generator, parameters -> draw.

    The generator is advanced in place and not returned: returning it from a compiled function costs
    50 ns, ten times the draw. The order of the draws is that of the compiled program. ``index``
    tells equal draws of one graph apart, which PyTensor would otherwise merge into one. A *guarded* draw
    takes whether its parameters have a law before them, and gives no number (0 if it is an integer) if not.
    """

    __props__ = ("rv_op", "index", "guarded")

    def __init__(self, rv_op: RandomVariable, index: int, guarded: bool = False):
        self.rv_op, self.index, self.guarded = rv_op, index, guarded

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply it to a generator and parameters, all numbers."""
        rng, *params = inputs[:1] + inputs[1 + self.guarded :]
        dtype = self.rv_op.make_node(rng, None, *map(as_tensor, params)).outputs[1].type.dtype
        return Apply(self, list(inputs), [get_scalar_type(dtype)()])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: list[list[Any]]) -> None:
        """Refuse: there is no interpreted form."""
        raise NotImplementedError("compiled by numba only")


@register_funcify_and_cache_key(ScalarDraw)
def _funcify_scalar_draw(op: ScalarDraw, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    rng, *params = node.inputs[:1] + node.inputs[1 + op.guarded :]
    core, core_key = core_sampler(op.rv_op, op.rv_op.make_node(rng, None, *map(as_tensor, params)))
    dtype = node.outputs[0].type.dtype
    numbers = [f"i{k}" for k in range(len(params))]
    args = ", ".join(["rng", *(["inside"] if op.guarded else []), *numbers])
    nothing = "np.nan" if dtype.startswith("float") else "0"
    source = f"def scalar_draw({args}):\n"
    source += f"    if not inside:\n        return np.{dtype}({nothing})\n" if op.guarded else ""
    source += f"    return np.{dtype}(core({', '.join(['rng', *numbers])}))\n"
    kind = type(op.rv_op)
    key = digest([f"{kind.__module__}.{kind.__qualname__}", core_key, source])
    # numba can load the code from its cache only if the module that `__name__` names can be imported
    names = {"core": core, "np": np, "__name__": __name__}
    function = compile_numba_function_src(source, "scalar_draw", names)
    return njit(function, forceinline=True), key
