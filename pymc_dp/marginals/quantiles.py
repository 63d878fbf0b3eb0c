"""Functions of the law of one number of a record, such as its quantiles, with their derivatives."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import HalfCauchyRV, KumaraswamyRV, WeibullBetaRV
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

# Laws of independent numbers with a quantile function whose draws PyMC writes as a graph.
AS_GRAPHS = (HalfCauchyRV, KumaraswamyRV, WeibullBetaRV)


def of_law(function: Callable[..., Any], op: Any, params: Sequence[Any], value: Any) -> TensorVariable:
    """Return a function of PyMC's, such as `pm.logcdf`, of a law whose parameters are in their domain.

    PyMC derives some by rewriting a copy of all that is behind the law: of parameters of the model and of
    records there would be others, so that it is given stand-ins. Checks of parameters would end a chain that
    has tried wrong ones, and are made to values.
    """
    inputs = [v.type() for v in (*params, value)]
    if isinstance(op, AS_GRAPHS):  # their values have the shape of their parameters
        law = type(op).rv_op(*pt.broadcast_arrays(*inputs)[:-1])
    else:
        law = op.make_node(pt.random.shared_rng(seed=None), NoneConst, *inputs[:-1]).outputs[1]
    found = function(law, inputs[-1])
    checks: dict[Any, Any] = {
        v: pt.switch(reduce(pt.and_, v.owner.inputs[1:]), v.owner.inputs[0], np.nan)
        for v in ancestors([found])
        if v.owner is not None and isinstance(v.owner.op, CheckParameterValue)
    }
    if checks:
        (found,) = graph_replace([found], checks, strict=False)
    return graph_replace([found], dict(zip(inputs, (*params, value), strict=True)), strict=False)[0]  # type: ignore[return-value]


def quantile(op: Any, params: list[TensorVariable], u: TensorVariable) -> TensorVariable:
    """Return a quantile, with derivatives by its inverse: PyTensor lacks those of some quantile functions."""
    inputs = [v.type() for v in (*params, u)]

    def derivatives(inputs: list[Any], outputs: list[Any], given: list[Any]) -> list[Any]:
        (*own, _), (x,) = inputs, outputs
        density = pt.exp(of_law(pm.logp, op, own, x))
        slope = given[0] / pt.switch(density > 0, density, np.inf)
        reached = pt.exp(of_law(pm.logcdf, op, own, x))
        moved = pt.grad(
            None, own, known_grads={reached: -slope}, consider_constant=[x], disconnected_inputs="ignore"
        )
        return [*moved, slope]

    inner = of_law(pm.icdf, op, inputs[:-1], inputs[-1])
    return OpFromGraph(inputs, [inner], pullback=derivatives)(*params, u)


def chance_below(op: Any, params: list[TensorVariable], place: float) -> TensorVariable:
    """Return the probability below a place, with derivatives that are 0 where it is 0 or 1.

    At the ends of what is possible, and beyond, PyTensor's derivatives of its logarithm are no numbers.
    """
    params = list(pt.broadcast_arrays(*params))
    inputs = [v.type() for v in params]

    def derivatives(inputs: list[Any], outputs: list[Any], given: list[Any]) -> list[Any]:
        below = pt.exp(of_law(pm.logcdf, op, inputs, pt.constant(place)))
        moved = pt.grad(None, inputs, known_grads={below: given[0]}, disconnected_inputs="ignore")
        inside = (outputs[0] > 0) & (outputs[0] < 1)
        return [pt.switch(inside, v, 0.0) for v in moved]

    inner = pt.exp(of_law(pm.logcdf, op, inputs, pt.constant(place)))
    # a constant, such as the 0 below the least value, has derivatives, too: they are 0
    connected = [[True] for _ in inputs]
    return OpFromGraph(inputs, [inner], pullback=derivatives, connection_pattern=connected)(*params)
