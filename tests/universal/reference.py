"""The model's own log density, the reference of every step; and how a step's functions are evaluated here.

PyMC's density is compiled with its checks of parameters on, which raise: outside of a law's domain it is
minus infinity. The steps' graphs are evaluated by Python: compiling hundreds of them takes minutes. Those
operations that have machine code only are compiled one by one, once for all models.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import numpy as np
import pymc as pm
import pytensor
from pymc.logprob.utils import local_check_parameter_to_ninf_switch
from pymc.pytensorf import collect_default_updates
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter

from pymc_dp.lowering.functions.bins import CountBins
from pymc_dp.lowering.functions.tables import TableDensity
from pymc_dp.lowering.rows.inversion import TailValue
from pymc_dp.lowering.rows.quantile import CountQuantile

COMPILED_ONLY = (CountBins, CountQuantile, TableDensity, TailValue)


class ByItself(Op):
    """An operation of ours that has machine code only, compiled by itself: the graph around it is not."""

    __props__ = ("op",)

    def __init__(self, op):
        self.op = op

    def make_node(self, *inputs):
        return Apply(self, list(inputs), [v.type() for v in self.op.make_node(*inputs).outputs])

    def perform(self, node, inputs, outputs):
        compiled = compiled_alone(self.op, tuple(v.type for v in node.inputs))
        for out, value in zip(outputs, compiled(*inputs), strict=True):
            out[0] = value


@cache
def compiled_alone(op, kinds):
    inputs = [kind() for kind in kinds]
    outputs = op(*inputs, return_list=True)
    return pytensor.function(inputs, outputs, mode="NUMBA", on_unused_input="ignore")


@node_rewriter(None)
def _by_itself(fgraph, node):
    if isinstance(getattr(node.op, "scalar_op", node.op), COMPILED_ONLY):
        return ByItself(node.op)(*node.inputs, return_list=True)
    return None


# A parameter outside of its domain has density zero, as in compiled functions. Nothing else is rewritten.
PYTHON = Mode(linker="py", optimizer=dfs_rewriter(local_check_parameter_to_ninf_switch, _by_itself))

LogDensity = Callable[[dict[str, np.ndarray]], float]


def log_density(model: pm.Model, of=None, jacobian: bool = True) -> LogDensity:
    """Log density of some variables of a model, or of all, at a point in value space."""
    graph = model.logp(vars=of, jacobian=jacobian)
    function = pytensor.function(
        model.value_vars, graph, mode=Mode(linker="py", optimizer=None), on_unused_input="ignore",
        allow_input_downcast=True,
    )  # fmt: skip

    def density(point):
        try:
            with np.errstate(all="ignore"):
                value = float(function(*(point[v.name] for v in model.value_vars)))
        except (ValueError, AssertionError, ArithmeticError, np.linalg.LinAlgError):
            return -np.inf
        return -np.inf if np.isnan(value) else value

    return density


class Evaluated:
    """Stands in for a native function: same arguments, evaluated by Python."""

    def __init__(self, program, inputs, outputs, signature):
        self.takes_generator = "NumPyRandomGeneratorType" in str(signature.args[0])
        self.n_inputs = 2 + len(inputs)
        lifted = program.data.lift(outputs)
        self.generators = list(collect_default_updates(lifted))
        self.function = pytensor.function(
            [program.theta, program.data.data, *inputs], lifted, mode=PYTHON,
            on_unused_input="ignore", updates=collect_default_updates(lifted),
        )  # fmt: skip
        self.address, self.cache_key = 0, None

    def dispatcher(self, *args):
        if self.takes_generator:
            rng, *args = args
            for shared in self.generators:  # the graph draws from its own, which would differ from run to run
                shared.set_value(rng.spawn(1)[0], borrow=True)
        with np.errstate(all="ignore"):
            results = self.function(*args[: self.n_inputs])
        if len(args) == self.n_inputs:
            return float(np.squeeze(results[0]))
        for out, value in zip(args[self.n_inputs :], results, strict=True):
            out[...] = value
        return None


def places(
    start: np.ndarray, where: np.ndarray, rng: np.random.Generator, most: int = 32
) -> list[np.ndarray]:
    """Points near and far from a start, on both sides of whatever boundaries there are nearby.

    Each coordinate is moved alone, by steps from small to large either way, and all together.
    """
    steps = (0.1, 0.5, 1.0, 2.5)
    found = []
    for k, by in itertools.product(where, steps):
        for sign in (1, -1):
            other = start.copy()
            other[k] += sign * by * rng.uniform(0.8, 1.2)
            found.append(other)
    for by in steps:
        other = start.copy()
        other[where] += by * rng.uniform(-1, 1, len(where))
        found.append(other)
    return [found[i] for i in rng.permutation(len(found))[:most]]
