"""A univariate PyMC distribution as nopython scalar functions: log density, gradient, draw.

The parameters of the distribution are functions of named inputs, and the functions take plain numbers,
so a loop over records or labels calls them at the cost of the arithmetic in them: 1 to 10 ns for the
common families. What cannot be made so runs through arrays or the interpreter, which
:attr:`ScalarKernel.fallback` states, and what cannot be made at all raises a
:class:`~pymc_dp.lowering.errors.LoweringError` that names the distribution.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pymc as pm
import pytensor.gradient as tg
import pytensor.tensor as pt
from numba import types
from pymc.distributions.continuous import FlatRV, HalfFlatRV, InterpolatedRV
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import get_scalar_type
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type

from pymc_dp.lowering.draws import scalar_draw_graph
from pymc_dp.lowering.errors import LoweringError
from pymc_dp.lowering.graphs import as_tensor, jit_scalar, numba_type, parameter_checks_to_values
from pymc_dp.lowering.native import GENERATOR, address_of, compile_source

FUNCTIONS = ("logp", "grad", "logp_grad", "draw")


@dataclass(frozen=True)
class ScalarKernel:
    """Nopython functions of one univariate distribution.

    Attributes
    ----------
    names : tuple of str
        The inputs, in the order in which the functions take them.
    discrete : bool
        Whether draws are integers.
    logp : callable or None
        ``logp(value, *inputs) -> float64``. ``-inf`` off the support and where a parameter is outside
        its domain. Values of discrete distributions may be given as floats; one that is not an integer
        has log density ``-inf``.
    grad : callable or None
        ``grad(value, *inputs) -> tuple`` of the derivatives of the log density with respect to the value
        and each input; 0 for the value of a discrete distribution and for integer inputs. Without
        meaning where the log density is ``-inf``.
    logp_grad : callable or None
        ``logp_grad(value, *inputs) -> tuple``: the log density, then what ``grad`` returns.
    draw : callable or None
        ``draw(rng, *inputs) -> float64`` (``int64`` for a discrete distribution); ``rng`` is a
        ``numpy.random.Generator``, which it advances. Parameters outside their domain are not checked.
    fallback : dict of str to str
        For each function that is not plain scalar code: why.
    description : str
        The distribution, for messages.
    """

    names: tuple[str, ...]
    discrete: bool
    description: str
    logp: Any = None
    grad: Any = None
    logp_grad: Any = None
    draw: Any = None
    fallback: dict[str, str] = field(default_factory=dict)

    def signature(self, name: str) -> Any:
        """Return the numba signature of one of the functions."""
        return getattr(self, name).nopython_signatures[0]

    def address(self, name: str) -> int:
        """Return the address of one of the functions, for :func:`~pymc_dp.lowering.native.function_at`.

        The address is good as long as this object lives, in this process.
        """
        return address_of(getattr(self, name), self.signature(name))

    def __reduce__(self) -> Any:
        raise TypeError(
            "A ScalarKernel holds machine code of this process and cannot be pickled: keep the random "
            "variable and its inputs, and call lower_scalar again (compiled code is cached on disk)."
        )


def lower_scalar(
    rv: Variable,
    inputs: Mapping[str, Variable] | Sequence[Variable] = (),
    *,
    want: Sequence[str] = ("logp", "grad", "draw"),
) -> ScalarKernel:
    """Lower a univariate distribution to nopython functions of plain numbers.

    Parameters
    ----------
    rv : TensorVariable
        Scalar (0-d) random variable, from ``.dist`` or of a model.
    inputs : mapping of str to TensorVariable, or sequence of TensorVariable
        Variables of the graph of ``rv`` (inputs or intermediate results, random variables too) that
        become arguments of the functions. Scalars become numbers; a variable with ``ndim > 0`` becomes an
        array of its dtype. Everything else in the graph must be constant.
    want : sequence of {"logp", "grad", "logp_grad", "draw"}
        What to compile.

    Returns
    -------
    ScalarKernel

    Raises
    ------
    LoweringError
        The distribution has no such function, or its parameters depend on variables that are not among
        ``inputs``.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.lowering.scalar import lower_scalar
    >>> mu = pt.dscalar("mu")
    >>> kernel = lower_scalar(pm.Normal.dist(mu, 2.0), [mu])
    >>> round(kernel.logp(1.0, 0.0), 6)
    -1.737086
    >>> kernel.grad(1.0, 0.0)
    (-0.25, 0.25)
    >>> kernel.fallback
    {}
    >>> type(kernel.draw(np.random.default_rng(1), 0.0))
    <class 'float'>
    """
    unknown = set(want) - set(FUNCTIONS)
    if unknown:
        raise ValueError(f"want={sorted(unknown)} is not among {FUNCTIONS}.")
    named = _named(inputs)
    description = describe(rv)
    if rv.type.ndim != 0:
        raise LoweringError(
            description,
            "scalar functions",
            f"it has {rv.type.ndim} dimension(s) and a scalar is needed",
            "index it down to one row with scalar parameters, or use lower_vector",
        )
    graph = _Graph(rv, named, description)
    functions: dict[str, Any] = {}
    fallback: dict[str, str] = {}
    for name in want:
        functions[name], why = graph.compile(name)
        if why:
            fallback[name] = why
    return ScalarKernel(
        tuple(named), graph.discrete, description, fallback=fallback, **functions
    )


def describe(rv: Variable) -> str:
    """Name a random variable for messages: its distribution, and its own name if it has one."""
    op = rv.owner.op if rv.owner is not None else None
    kind = getattr(op, "_print_name", None)
    family = kind[0] if kind else str(op if op is not None else rv.type)
    return f"{family} '{rv.name}'" if rv.name else str(family)


class _Graph:
    """A random variable on fresh inputs, and what can be compiled from it."""

    def __init__(self, rv: Variable, named: Mapping[str, Variable], description: str):
        self.description = description
        # numbers for scalars, so that PyTensor makes scalar code of the graph; arrays stay
        self.arguments = [
            v.type() if v.type.ndim else get_scalar_type(v.type.dtype)() for v in named.values()
        ]
        # Substitute in the random variable itself, by inputs and not by expressions: what PyMC derives
        # from it may clone every node below it, and a gradient with respect to the node would be 0.
        self.roots = [v.type() for v in named.values()]
        [self.rv] = graph_replace([rv], dict(zip(named.values(), self.roots)), strict=False)
        self.discrete = not rv.type.dtype.startswith("float")
        self.value = get_scalar_type(rv.type.dtype)()
        self._check_inputs(rv)

    def _check_inputs(self, rv: Variable) -> None:
        own = set(self.roots)
        for v in ancestors([self.rv]):
            if v is self.rv or v in own or isinstance(v, Constant):
                continue
            if isinstance(v.type, RandomGeneratorType):
                continue
            random = v.owner is not None and v.name and rvs_in_graph([v]) and _is_random(v)
            if v.owner is None or random:
                kind = (
                    "data that may change" if isinstance(v, SharedVariable)
                    else "a random variable" if random else "a free variable"
                )  # fmt: skip
                raise LoweringError(
                    self.description,
                    "it",
                    f"its parameters depend on '{v.name or v}', {kind} that is not among the inputs",
                    "name that variable among the inputs, or replace it by a constant",
                )

    def compile(self, name: str) -> tuple[Any, str]:
        try:
            if name == "draw":
                return self._draw()
            return self._density(name)
        except LoweringError:
            raise
        except Exception as error:
            what = {"logp": "the log density", "draw": "draws"}.get(name, "the gradient")
            remedy = {
                "logp": "use a distribution that pm.logp knows, or a CustomDist with logp=",
                "draw": "use a distribution that numba can draw from, or a CustomDist with dist=",
            }.get(name, "use a step that needs no gradient of this variable")
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            raise LoweringError(self.description, what, reason, remedy) from error

    def _density(self, name: str) -> tuple[Any, str]:
        value = self.rv.type()
        logp = _logp(self.rv, value)
        left = rvs_in_graph([logp])
        if left:
            raise LoweringError(
                self.description,
                "the log density",
                f"it depends on the random variable(s) {sorted(str(v) for v in left)}",
                "name them among the inputs",
            )
        # simplify first: stacks that are indexed again would leave arrays in the gradient
        logp = rewrite_graph(
            parameter_checks_to_values(logp), include=("canonicalize",), clone=False
        )
        outputs = [logp] if name != "grad" else []
        if name != "logp":
            wrt = [v for v in [value, *self.roots] if v.type.dtype.startswith("float")]
            found = dict(
                zip(wrt, tg.grad(logp, wrt, disconnected_inputs="ignore", return_disconnected="zero"))
            )
            outputs += [
                found[v] if v in found else v.zeros_like(dtype="float64")
                for v in [value, *self.roots]
            ]
        outputs = self._on_numbers(outputs, {value: pt.tensor_from_scalar(self.value)})
        inner, key, why = jit_scalar([self.value, *self.arguments], outputs)
        lines, given = [], "v"
        if self.discrete:
            given = f"np.{self.value.type.dtype}(v)"
            # what is no integer, or does not fit one; `not`, so that nan is refused too
            bad = "not (v == np.floor(v) and abs(v) < 9e18)"
            if name == "logp":
                lines.append(f"if {bad}: return -np.inf")
            elif name == "logp_grad" and all(a.type.ndim == 0 for a in self.arguments):
                lines.append(f"if {bad}: return (-np.inf{', 0.0' * (len(outputs) - 1)})")
        return self._wrap(name, inner, key, lines, given, len(outputs)), why

    def _draw(self) -> tuple[Any, str]:
        if any(isinstance(v.owner.op, FlatRV | HalfFlatRV) for v in ancestors([self.rv]) if v.owner):
            raise LoweringError(
                self.description, "draws", "it is improper", "give it a proper distribution"
            )
        rng = random_generator_type("rng")
        draw = scalar_draw_graph(self.rv, rng)
        [draw] = self._on_numbers([parameter_checks_to_values(draw)], {})
        inner, key, why = jit_scalar([rng, *self.arguments], [draw])
        return self._wrap("draw", inner, key, [], "", 1), why

    def _on_numbers(
        self, graphs: list[Variable], more: dict[Variable, Variable]
    ) -> list[Variable]:
        numbers = {r: as_tensor(a) for r, a in zip(self.roots, self.arguments)}
        return graph_replace(graphs, {**numbers, **more}, strict=False)

    def _wrap(
        self, name: str, inner: Any, key: Any, lines: list[str], value: str, n_outputs: int
    ) -> Any:
        names = [f"i{k}" for k in range(len(self.arguments))]
        converted = [
            n if a.type.dtype == "float64" or getattr(a.type, "ndim", 0) else f"np.{a.type.dtype}({n})"
            for n, a in zip(names, self.arguments)
        ]
        first, given = ("rng", "rng") if name == "draw" else ("v", value)
        signature = [GENERATOR if name == "draw" else types.float64, *map(numba_type, self.arguments)]
        outputs = [f"r{k}" for k in range(n_outputs)]
        single = name in ("logp", "draw")
        if name == "draw":
            result = "np.int64(r0)" if self.discrete else "np.float64(r0)"
        elif single:
            result = "np.float64(r0)"
        else:
            result = f"({', '.join(outputs)},)"
        source = "\n    ".join(
            [
                f"def {name}({', '.join([first, *names])}):",
                *lines,
                f"{', '.join(outputs)}, = inner({', '.join([given, *converted])})",
                f"return {result}",
            ]
        )
        dispatcher, _ = compile_source(name, source, {"inner": inner}, tuple(signature), [key])
        return dispatcher


def _named(inputs: Mapping[str, Variable] | Sequence[Variable]) -> dict[str, Variable]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    names = [v.name or f"input{k}" for k, v in enumerate(inputs)]
    if len(set(names)) < len(names):
        raise ValueError(f"inputs: the names {names} are not distinct; give a dict of name to variable.")
    return dict(zip(names, inputs))


def _is_random(variable: Variable) -> bool:
    return variable in rvs_in_graph([variable])


def _logp(rv: Variable, value: Variable) -> Variable:
    if rv.owner is not None and isinstance(rv.owner.op, InterpolatedRV):
        # PyMC evaluates a SciPy spline, in the interpreter and without a cache
        x, pdf, _ = rv.owner.op.dist_params(rv.owner)
        k = pt.clip(pt.searchsorted(x, value) - 1, 0, x.shape[0] - 2)
        weight = (value - x[k]) / (x[k + 1] - x[k])
        density = (1 - weight) * pdf[k] + weight * pdf[k + 1]
        return pt.switch((value >= x[0]) & (value <= x[-1]), pt.log(density), -float("inf"))
    return pm.logp(rv, value)
