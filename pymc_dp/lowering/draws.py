"""A random-variable graph rewritten so that one draw of it needs no arrays.

PyTensor draws every RandomVariable as an array, 150 to 200 ns even for a single number. Here each
scalar RandomVariable of a graph becomes a :class:`ScalarDraw`, whose machine code is one call of
the numpy generator that is given to the function.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.mixture import _BaseMixtureRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_ensure_cache,
    register_funcify_and_cache_key,
)
from pytensor.scalar.basic import get_scalar_type
from pytensor.scan.op import Scan
from pytensor.tensor.random.basic import CategoricalRV, categorical, uniform
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type
from pytensor.tensor.type import TensorType

from pymc_dp.lowering.graphs import as_tensor
from pymc_dp.lowering.samplers import core_sampler
from pymc_dp.lowering.unroll import entries
from pymc_dp.lowering.version import SOURCE


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
        """Apply it to a generator and parameters: numbers, or arrays of core dimensions."""
        rng, *params = inputs[:1] + inputs[1 + self.guarded :]
        dtype = self.rv_op.make_node(rng, None, *map(as_tensor, params)).outputs[1].type.dtype
        return Apply(self, list(inputs), [get_scalar_type(dtype)()])

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: list[list[Any]]) -> None:
        """Refuse: there is no interpreted form."""
        raise NotImplementedError("compiled by numba only")


class RejectionDraw(Op):
    """Draws from a graph until one is within bounds: generator, bounds, parameters -> draw."""

    __props__ = ("index",)

    def __init__(self, fgraph: FunctionGraph, max_n_steps: int, index: int):
        self.fgraph, self.max_n_steps, self.index = fgraph, max_n_steps, index

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply it to a generator, two bounds and parameters, all numbers."""
        return Apply(self, list(inputs), [self.fgraph.outputs[0].type()])

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
    key = None
    if core_key is not None:
        kind = type(op.rv_op)
        contents = f"{SOURCE}{kind.__module__}.{kind.__qualname__}{core_key}{source}"
        key = sha256(contents.encode()).hexdigest()
    return numba.njit(_function("scalar_draw", source, core=core), forceinline=True), key


@register_funcify_and_cache_key(RejectionDraw)
def _funcify_rejection(op: RejectionDraw, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    inner, inner_key = numba_funcify_ensure_cache(op.fgraph, **kwargs)
    args = ", ".join(f"i{k}" for k in range(len(node.inputs) - 3))
    message = f"a truncated distribution gave nothing within its bounds in {op.max_n_steps} draws"
    source = (
        f"def rejection_draw(rng, lower, upper, {args}):\n"
        f"    for _ in range({op.max_n_steps}):\n"
        f"        (x,) = inner(rng, {args})\n"
        f"        if lower <= x <= upper:\n"
        f"            return x\n"
        f"    raise ValueError('{message}')\n"
    )
    key = None
    if inner_key is not None:
        key = sha256(f"{SOURCE}{inner_key}{source}".encode()).hexdigest()
    return numba.njit(_function("rejection_draw", source, inner=inner)), key


def scalar_draw_graph(rv: Variable, rng: Variable) -> Variable:
    """Rewrite the graph of a scalar random variable into scalar draws from one generator.

    Parameters
    ----------
    rv : TensorVariable
        Scalar random variable; every random variable among its ancestors is part of its law.
    rng : Variable
        Generator input that replaces all others.

    Returns
    -------
    draw : Variable
        0-d tensor variable.

    Raises
    ------
    NotImplementedError
        A node draws from several generators, or does not return its generator.
    """
    return _Rewriter(rng).visit(rv)


class _Rewriter:
    """One pass over a graph, from its roots, that carries the generator along."""

    def __init__(self, rng: Variable):
        self.rng = rng
        self.memo: dict[Variable, Variable] = {}
        self.count = 0

    def visit(self, variable: Variable) -> Any:
        """Return the rewritten form of a variable (never of a generator)."""
        if variable in self.memo or variable.owner is None:
            return self.memo.get(variable, variable)
        node = variable.owner
        if not _draws(node):
            new_node = node.clone_with_new_inputs([self.visit(i) for i in node.inputs])
            self.memo.update(zip(node.outputs, new_node.outputs))
            return self.memo[variable]
        special = self.special(node)
        if special is not None:
            self.memo[variable] = special
        elif isinstance(node.op, OpFromGraph):
            self.inline(node)
        else:
            inputs = [i if isinstance(i.type, RandomGeneratorType) else self.visit(i) for i in node.inputs]
            drawn = None
            if isinstance(node.op, RandomVariable):
                drawn = self.scalar_draw(node, inputs)
            if drawn is None:
                self.tensor_draw(node, inputs)
            else:
                self.memo[variable] = drawn
        return self.memo[variable]

    def inline(self, node: Apply) -> None:
        """Replace a symbolic distribution by the graph inside it."""
        assert isinstance(node.op, OpFromGraph)
        for old, new in zip(node.outputs, node.op.fgraph.bind(node.inputs)):
            if not isinstance(old.type, RandomGeneratorType):
                self.memo[old] = self.visit(new)

    def scalar_draw(self, node: Apply, inputs: list[Variable]) -> Variable | None:
        """Draw a scalar RandomVariable by the generator itself; None where that is not possible."""
        op = node.op
        params = list(op.dist_params(node.clone_with_new_inputs(inputs)))
        if node.outputs[1].type.ndim or any(p.type.ndim != n for p, n in zip(params, op.ndims_params)):
            return None
        if core_sampler(op, node)[0] is None:
            return None
        if isinstance(op, CategoricalRV) and (parts := entries(params[0])) is not None:
            return self.choice(parts, [pt.constant(k, dtype="int64") for k in range(len(parts))])
        return self.core_draw(op, *params)

    def tensor_draw(self, node: Apply, inputs: list[Variable]) -> None:
        """Keep a draw that needs arrays, on the threaded generator."""
        positions = [k for k, i in enumerate(inputs) if isinstance(i.type, RandomGeneratorType)]
        if len(positions) != 1:
            raise NotImplementedError(f"{node.op} draws from {len(positions)} generators")
        inputs[positions[0]] = self.rng
        new_node = node.clone_with_new_inputs(inputs)
        update = new_node.op.update(new_node) if hasattr(new_node.op, "update") else {}
        if self.rng not in update:
            raise NotImplementedError(f"{node.op} does not return its generator")
        self.rng = update[self.rng]
        self.memo.update(
            (old, new)
            for old, new in zip(node.outputs, new_node.outputs)
            if not isinstance(old.type, RandomGeneratorType)
        )

    def special(self, node: Apply) -> Any:
        """Draw by a better route than the graph that PyMC draws from, where there is one."""
        if isinstance(node.op, _BaseMixtureRV) and node.default_output().type.ndim == 0:
            return self.mixture(node)
        if isinstance(node.op, TruncatedRV) and node.default_output().type.ndim == 0:
            return self.rejection(node)
        return None

    def mixture(self, node: Apply) -> Any:
        """Draw the component, then from it."""
        _, weights, *components = node.inputs
        if weights.type.ndim != 1:
            return None
        if len(components) > 1:
            # every component is drawn, the index chooses: cheaper than arrays of any length
            weights = self.visit(weights)
            drawn = [self.visit(c) for c in components]
            shares = [weights[k] for k in range(len(drawn))]
            return pt.cast(self.choice(shares, drawn), node.default_output().type.dtype)
        [component] = components
        op = component.owner.op
        if not isinstance(op, RandomVariable) or any(op.ndims_params):
            return None
        if component.type.ndim != 1 or core_sampler(op, component.owner)[0] is None:
            return None
        params = [self.visit(p) for p in op.dist_params(component.owner)]
        if any(p.type.ndim > 1 for p in params):
            return None
        weights = self.visit(weights)
        parts = entries(weights)
        if parts is None:
            index = self.core_draw(categorical, weights)
        else:
            index = self.choice(parts, [pt.constant(k, dtype="int64") for k in range(len(parts))])
        chosen = [p if p.type.ndim == 0 else p[0] if p.type.shape == (1,) else p[index] for p in params]
        return pt.cast(self.core_draw(op, *chosen), node.default_output().type.dtype)

    def choice(self, weights: Any, values: list[Any]) -> Any:
        """Draw one of a few values; what the weights lack to 1 by rounding goes to the last."""
        u = self.core_draw(uniform, pt.constant(0.0), pt.constant(1.0))
        out, below = values[-1], [weights[0]]
        for weight in weights[1:-1]:
            below.append(below[-1] + weight)
        for k in range(len(values) - 2, -1, -1):
            out = pt.switch(u < below[k], values[k], out)
        return out

    def core_draw(self, op: RandomVariable, *params: Variable) -> Any:
        scalars = [pt.scalar_from_tensor(p) if p.type.ndim == 0 else p for p in params]
        self.count += 1
        return pt.tensor_from_scalar(ScalarDraw(op, self.count)(self.rng, *scalars))

    def rejection(self, node: Apply) -> Any:
        """Draw until within the bounds, where PyMC does so too (there is no inverse cdf)."""
        if not any(isinstance(n.op, Scan) for n in node.op.fgraph.apply_nodes):
            return None
        *base_inputs, lower, upper = node.inputs
        base = node.op.base_rv_op.make_node(*base_inputs).default_output()
        params = [
            p for p in base_inputs
            if isinstance(p.type, TensorType) and not isinstance(p, Constant)
        ]  # fmt: skip
        if any(p.type.ndim for p in params):
            return None
        dummies = [get_scalar_type(p.type.dtype)() for p in params]
        [inner_base] = graph_replace([base], {p: as_tensor(d) for p, d in zip(params, dummies)}, strict=False)
        inner_rng = random_generator_type("rng")
        draw = scalar_draw_graph(inner_base, inner_rng)
        fgraph = FunctionGraph([inner_rng, *dummies], [pt.scalar_from_tensor(draw)], clone=True)
        get_mode("NUMBA").excluding("inplace").optimizer.rewrite(fgraph)
        if any(isinstance(n.op, RandomVariable | Scan) for n in fgraph.apply_nodes):
            return None
        bounds = [pt.scalar_from_tensor(pt.cast(self.visit(b), "float64")) for b in (lower, upper)]
        outer = [pt.scalar_from_tensor(self.visit(p)) for p in params]
        self.count += 1
        draw_op = RejectionDraw(fgraph, node.op.max_n_steps, self.count)
        return pt.tensor_from_scalar(draw_op(self.rng, *bounds, *outer))


def _draws(node: Apply) -> bool:
    return any(isinstance(i.type, RandomGeneratorType) for i in node.inputs) or (
        isinstance(node.op, SymbolicRandomVariable)
    )


def _function(name: str, source: str, **names: Any) -> Any:
    # the module that `__name__` names must be importable, or numba cannot load the code from its
    # cache
    return compile_numba_function_src(source, name, {**names, "np": np, "__name__": __name__})
