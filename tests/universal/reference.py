"""The model's own log density, the reference of every step; and how a step's functions are evaluated here.

PyMC's density is compiled with its checks of parameters on, which raise: outside of a law's domain it is
minus infinity. The steps' graphs are evaluated by Python: compiling hundreds of them takes minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor
from pymc.logprob.utils import local_check_parameter_to_ninf_switch
from pymc.pytensorf import collect_default_updates
from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.graph.traversal import ancestors

# A parameter outside of its domain has density zero, as in compiled functions. Nothing else is rewritten.
PYTHON = Mode(linker="py", optimizer=dfs_rewriter(local_check_parameter_to_ninf_switch))

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


def evaluation_mode(graphs):
    """Return how to evaluate some graphs: by Python, but for operations of ours that are compiled."""
    for v in ancestors(graphs):
        op = getattr(v.owner, "op", None)
        if type(getattr(op, "scalar_op", op)).__module__.startswith("pymc_dp.lowering"):
            return pytensor.compile.mode.get_mode("NUMBA").including("local_check_parameter_to_ninf_switch")
    return PYTHON


class Evaluated:
    """Stands in for a native function: same arguments, evaluated by Python."""

    def __init__(self, program, inputs, outputs, signature):
        self.takes_generator = "NumPyRandomGeneratorType" in str(signature.args[0])
        self.n_inputs = 2 + len(inputs)
        lifted = program.data.lift(outputs)
        self.generators = list(collect_default_updates(lifted))
        self.function = pytensor.function(
            [program.theta, program.data.data, *inputs], lifted, mode=evaluation_mode(lifted),
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
