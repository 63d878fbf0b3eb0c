"""Parameters whose law given the records is Gaussian, their gradient and their precision.

The log density is read as a polynomial in the parameters; of the second degree, it is that of a normal law:
Normal regression coefficients with a Normal prior, say.
"""

from collections.abc import Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.native import QUADRATIC, NativeFunction
from pymc_dp.lowering.rows.polynomial import degree, without_products
from pymc_dp.step_methods.block.parents import is_real
from pymc_dp.step_methods.updates.conditionals import Conditionals

# Largest number of parameters that are drawn at once (one pass for each, compiled).
MAX_QUADRATIC = 8


def quadratic(conditionals: Conditionals) -> tuple[list[TensorVariable], NativeFunction] | None:
    """Parameters whose conditional given the records is Gaussian, with its gradient and precision."""
    program, size = conditionals.program, 0
    found: list[TensorVariable] = []
    for rv in program.parameters.variables:
        more = program.parameters.slice_length(rv)
        if (
            rv in conditionals.walking
            and is_real(rv)
            and size + more <= MAX_QUADRATIC
            and _is_quadratic(conditionals, [*found, rv])
        ):
            found, size = [*found, rv], size + more
    if not found:
        return None
    leaves, graph = _at_leaves(conditionals, found)
    # entries instead of parts of vectors, before derivatives bring vectors of zeros with them
    graph = rewrite_graph(graph, include=("canonicalize",), clone=True)
    gradient = pt.grad(graph, leaves, disconnected_inputs="ignore")
    size, zero = len(leaves), pt.constant(0.0)
    slopes = [pt.grad(g, leaves[: i + 1], disconnected_inputs="ignore") for i, g in enumerate(gradient)]
    lower = [s for i, row in enumerate(slopes) for s in (*row, *[zero] * (size - 1 - i))]
    values = pt.concatenate([program.state[rv].ravel() for rv in found])
    back = {leaf: values[k] for k, leaf in enumerate(leaves)}
    outputs = clone_replace([pt.stack(gradient), -pt.stack(lower)], back, rebuild_strict=False)
    return found, program.native("quadratic", [program.x, conditionals.totals], outputs, QUADRATIC)


def _is_quadratic(conditionals: Conditionals, rvs: Sequence[Variable]) -> bool:
    if any(conditionals.model.rvs_to_transforms.get(rv) is not None for rv in rvs):
        return False
    leaves, graph = _at_leaves(conditionals, rvs)
    d = degree(graph, leaves)
    return d is not None and d <= 2


def _at_leaves(
    conditionals: Conditionals, rvs: Sequence[Variable]
) -> tuple[list[TensorVariable], TensorVariable]:
    """Log density given the records with every entry of some parameters as a root variable of the graph.

    Derivatives in numbers are sums over records and nothing else; in a vector they would be products with
    unit vectors, several times as much to compile and to compute.
    """
    layout = conditionals.program.parameters
    leaves: list[TensorVariable] = []
    reading = dict(conditionals.program.state)
    for rv in rvs:
        shape = layout.shapes[layout.variables.index(rv)]  # type: ignore[arg-type]
        entries = [pt.scalar(f"{rv.name}{i}", dtype=rv.dtype) for i in range(int(np.prod(shape)))]  # type: ignore[attr-defined]
        reading[rv] = pt.stack(entries).reshape(shape) if shape else entries[0]
        leaves += entries
    return leaves, without_products([conditionals.centred_graph(reading)])[0]
