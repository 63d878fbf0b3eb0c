"""Rewrites and compilation that keep a scalar graph scalar, down to machine code."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.io import In, Out
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_dp.lowering.addresses.modes import own_mode
from pymc_dp.upstream.pytensor_private import CACHED_SRC_FUNCTIONS


@node_rewriter(tracks=[OpFromGraph])
def _inline(fgraph: Any, node: Apply) -> list[Variable] | None:
    return list(node.op.fgraph.bind(node.inputs))


def inlined(graph: Variable) -> Variable:
    """Write out graphs within a graph, such as the logarithm of a sum of exponentials."""
    rewritten: Any = rewrite_graph(graph, include=(), custom_rewrite=dfs_rewriter(_inline), clone=False)
    return rewritten


@node_rewriter(tracks=[Elemwise, ps.Pow])
def _float_power(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Powers of whole exponents as those of numbers: machine code for the former raises on 0 ** -1."""
    op = node.op
    if not isinstance(getattr(op, "scalar_op", op), ps.Pow):
        return None
    base, exponent = node.inputs
    if exponent.type.dtype.startswith("float"):
        return None
    to: Any = pt.cast if isinstance(op, Elemwise) else ps.cast
    number = to(exponent, "float64")
    if isinstance(exponent, Constant):
        constant: Any = pt.constant if isinstance(op, Elemwise) else ps.constant
        number = constant(np.asarray(exponent.data, dtype="float64"))
    return [to(op(to(base, "float64"), number), node.outputs[0].type.dtype)]


def jit_scalar(
    inputs: Sequence[Variable], outputs: Sequence[Variable], ordered: bool = True
) -> tuple[Any, str | None, str]:
    """Compile a graph; return the numba function, its cache key and why it is not scalar code."""
    outputs = [pt.scalar_from_tensor(o) if o.type.ndim == 0 else o for o in outputs]
    # a gradient may hold graphs within graphs, which would be compiled apart, on arrays
    flat: Any = rewrite_graph(
        outputs, include=(), custom_rewrite=dfs_rewriter(_inline, _float_power), clone=False
    )
    wrapped: Any = [In(v, mutable=isinstance(v.type, RandomGeneratorType), borrow=True) for v in inputs]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function = pytensor.function(
            wrapped,
            list[Any](Out(o, borrow=True) for o in flat),
            mode=own_mode(ordered),
            on_unused_input="ignore",
            trust_input=True,
        )
    interpreted = []
    for warning in caught:
        if "object mode" in str(warning.message):
            interpreted.append(str(warning.message).split("run ")[-1].split("'s perform")[0])
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    inner = function.vm.jit_fn
    # or it inherits from the part of a kernel that compiles it first to have no counts of references at all
    inner.targetoptions["_nrt"] = True
    if any(isinstance(v.type, RandomGeneratorType) for v in inputs):
        # a call would count references to the generator, which costs more than a draw
        inner.targetoptions["forceinline"] = True
    why = ""
    if interpreted:
        why = f"interpreter: {', '.join(sorted(set(interpreted)))}"
    else:
        arrays = sorted({type(n.op).__name__ for n in function.maker.fgraph.apply_nodes if not _is_scalar(n)})
        if arrays:
            why = f"arrays: {', '.join(arrays)}"
    return inner, CACHED_SRC_FUNCTIONS.get(inner.py_func), why


def _is_scalar(node: Apply) -> bool:
    """Whether a node of a compiled graph takes and gives plain numbers only."""
    if isinstance(node.op, ScalarFromTensor) and isinstance(node.inputs[0], Constant):
        return True
    return all(isinstance(v.type, ScalarType | RandomGeneratorType) for v in node.inputs + node.outputs)


def as_tensor(variable: Variable) -> Any:
    """Return a number of PyTensor's scalar type as a 0-d tensor."""
    return pt.tensor_from_scalar(variable) if isinstance(variable.type, ScalarType) else variable
