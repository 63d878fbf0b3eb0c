"""Joins of many arrays are joins of a few, with the same result."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import Join

from pymc_dp.lowering.addresses.joins import AT_ONCE
from pymc_dp.lowering.addresses.modes import own_mode


@pytest.mark.parametrize("n", [AT_ONCE, AT_ONCE + 1, AT_ONCE**2 + 3])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_many_arrays(n, axis, rng):
    parts = [pt.matrix(shape=(2, 2)) for _ in range(n)]
    graph = FunctionGraph(parts, [pt.concatenate(parts, axis=axis)], clone=True)
    own_mode().excluding("inplace").optimizer.rewrite(graph)
    joins = [node for node in graph.toposort() if isinstance(node.op, Join)]
    assert joins and all(len(node.inputs) <= AT_ONCE for node in joins)
    values = list(rng.normal(size=(n, 2, 2)))
    (found,) = graph.outputs
    joined = found.eval(dict(zip(graph.inputs, values, strict=True)), mode=Mode("py", None))
    np.testing.assert_array_equal(joined, np.concatenate(values, axis=axis))
