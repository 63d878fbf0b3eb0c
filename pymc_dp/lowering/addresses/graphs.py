"""Rewrites and compilation that keep a scalar graph scalar, down to machine code."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.io import In, Out
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import MakeVector, ScalarFromTensor
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import All
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_dp.lowering.addresses.modes import own_mode
from pymc_dp.upstream.pytensor_private import CACHED_SRC_FUNCTIONS


@node_rewriter(tracks=[CheckParameterValue])
def _check_to_value(fgraph: Any, node: Apply) -> list[Variable] | None:
    expression, *conditions = node.inputs
    # `and` of 0-d conditions stays scalar code, where `all` of a list of them makes an array
    valid = None
    for condition in (c for given in conditions for c in listed(given)):
        condition = condition if condition.type.ndim == 0 else pt.all(condition)
        valid = condition if valid is None else pt.and_(valid, condition)
    if valid is None:
        return [expression]
    bad = -float("inf") if node.op.can_be_replaced_by_ninf else float("nan")
    return [pt.cast(pt.switch(valid, expression, bad), node.outputs[0].type.dtype)]


def listed(condition: Variable) -> list[Variable]:
    """Return the conditions that ``all([a, b, ...])`` is made of."""
    node = condition.owner
    if node is not None and isinstance(node.op, ScalarFromTensor):
        return listed(node.inputs[0])
    condition = as_tensor(condition)
    if node is None or not isinstance(node.op, All):
        return [condition]
    inner = node.inputs[0]
    if inner.type.ndim == 0:
        return listed(inner)
    made = inner.owner
    if made is not None and isinstance(made.op, MakeVector):
        return [c for given in made.inputs for c in listed(given)]
    return [condition]


def parameter_checks_to_values(graph: Variable) -> Variable:
    """Make a log density -inf where a parameter is outside its domain, instead of raising.

    Dropping the checks, as ``local_remove_check_parameter`` does, is faster by less than 1 ns, but
    then a Gamma density with a negative shape is a number like any other.
    """
    rewritten: Any = rewrite_graph(
        graph, include=(), custom_rewrite=dfs_rewriter(_check_to_value), clone=False
    )
    return rewritten


def row_checks_to_values(graph: Variable, has_rows: Callable[[Variable], bool]) -> Variable:
    """Make the log density of a row -inf where its own parameters are outside of their domain.

    PyMC's checks ask whether the parameters of *all* rows are inside. Conditions on parameters that rows
    share stay as they are.

    Parameters
    ----------
    graph : Variable
    has_rows : callable
        Whether a condition has the rows on its leading axis, row i being of row i only. Equal lengths do not
        tell: there may be as many components of a mixture as rows.

    Returns
    -------
    Variable
    """

    @node_rewriter(tracks=[CheckParameterValue])
    def check_by_row(fgraph: Any, node: Apply) -> list[Variable] | None:
        expression, *conditions = node.inputs
        for condition in (c for given in conditions for c in listed(given)):
            made = condition.owner
            each = made.inputs[0] if made is not None and isinstance(made.op, All) else condition
            if each.type.ndim and has_rows(each):
                if each.type.ndim > expression.type.ndim:  # of probabilities, several for a row
                    each = pt.all(each, axis=tuple(range(expression.type.ndim, each.type.ndim)))
                condition = pt.shape_padright(each, expression.type.ndim - each.type.ndim)
            expression = pt.switch(condition, expression, -float("inf"))
        return [pt.cast(expression, node.outputs[0].type.dtype)]

    rewritten: Any = rewrite_graph(graph, include=(), custom_rewrite=dfs_rewriter(check_by_row), clone=False)
    return rewritten


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


def jit_scalar(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> tuple[Any, str | None, str]:
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
            mode=own_mode(),
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
