"""Graphs in two halves, put together again."""

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import graph_inputs

from pymc_dp.lowering.rows import halves
from pymc_dp.lowering.rows.halves import in_two
from pymc_dp.lowering.rows.rows import scalar_function

A, B, LATE = ps.float64("a"), ps.float64("b"), ps.float64("late")
a, b, x = (pt.tensor_from_scalar(v) for v in (A, B, LATE))
GRAPHS = {
    "both": lambda: [pt.exp(a) * x + pt.sqrt(b), x**2],
    "one only": lambda: [pt.log(b) * 2, x - 1],
    "an input as it is": lambda: [a, x * b],
    "nothing before": lambda: [x + 1.5],
    "nothing after": lambda: [a * b],
    "a condition": lambda: [pt.switch(pt.gt(a, b), x, -x)],
    "a whole number": lambda: [x * pt.cast(pt.floor(3 * b), "int64")],
    "the same twice": lambda: [pt.exp(a * b) * x, pt.exp(a * b) * x**2],
    "a constant": lambda: [pt.constant(2.0), x * a],
}


@pytest.mark.parametrize("name", GRAPHS)
def test_halves_give_the_same_number(name):
    graphs = GRAPHS[name]()
    before, between, after = in_two(graphs, [LATE])
    assert LATE not in set(graph_inputs(before))
    assert not {A, B} & set(graph_inputs(after))
    early, _ = scalar_function([A, B], before)
    late, _ = scalar_function([LATE, *between], after)
    whole = pytensor.function([A, B, LATE], graphs, mode="FAST_COMPILE", on_unused_input="ignore")
    for at in ((0.3, 1.2, -0.7), (2.0, 0.5, 1.1)):
        np.testing.assert_allclose(late(at[2], *early(*at[:2])), whole(*at), rtol=1e-14)


def test_what_is_the_same_is_known_once():
    before, between, _ = in_two(GRAPHS["the same twice"](), [LATE])
    assert len(before) == len(between) == 1


def test_stand_ins_have_the_type_of_what_they_stand_for(monkeypatch):
    """Broken on purpose: a number that was true or false is a real one."""
    monkeypatch.setattr(halves, "_like", lambda variable, number: pt.tensor_from_scalar(number))
    with pytest.raises(TypeError):
        in_two(GRAPHS["a condition"](), [LATE])
