"""What the scalar and the vector lowering share: inputs, checks, the outermost function."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from pymc.distributions.continuous import FlatRV, HalfFlatRV, PolyaGammaRV
from pymc.distributions.custom import CustomDistRV
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import ScalarType, get_scalar_type
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_dp.lowering.errors import LoweringError
from pymc_dp.lowering.graphs import as_tensor, numba_type, parameter_checks_to_values
from pymc_dp.lowering.native import compile_source

_REMEDIES = {
    "logp": "use a distribution that pm.logp knows, or a CustomDist with logp=",
    "draw": "use a distribution that numba can draw from, or a CustomDist with dist=",
}


def named_inputs(inputs: Mapping[str, Variable] | Sequence[Variable]) -> dict[str, Variable]:
    """Return inputs by name, whichever way they were given."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    names = [v.name or f"input{k}" for k, v in enumerate(inputs)]
    if len(set(names)) < len(names):
        raise ValueError(f"inputs={names}: the names are not distinct; give a dict of name to variable.")
    return dict(zip(names, inputs))


def describe(rv: Variable) -> str:
    """Name a random variable for messages: its distribution, and its own name if it has one."""
    op = rv.owner.op if rv.owner is not None else None
    kind = getattr(op, "_print_name", None)
    family = kind[0] if kind else str(op if op is not None else rv.type)
    return f"{family} '{rv.name}'" if rv.name else str(family)


class Lowering:
    """A random variable on inputs of its own, and the way from its graphs to functions.

    Parameters
    ----------
    rv : TensorVariable
        The random variable.
    named : mapping of str to Variable
        What becomes an argument.
    description : str
        Its name in messages.
    """

    def __init__(self, rv: Variable, named: Mapping[str, Variable], description: str):
        self.description = description
        # numbers for scalars, so that PyTensor makes scalar code of the graph; arrays stay
        self.arguments = [
            v.type() if v.type.ndim else get_scalar_type(v.type.dtype)() for v in named.values()
        ]
        # Substitute in the random variable itself, by inputs and not by expressions: what PyMC
        # derives from it may clone every node below it, and a gradient with respect to the node
        # would be 0.
        self.roots = [v.type() for v in named.values()]
        [self.rv] = graph_replace([rv], dict(zip(named.values(), self.roots)), strict=False)
        self.discrete = not rv.type.dtype.startswith("float")
        self._check_inputs()

    def _check_inputs(self) -> None:
        for v in ancestors([self.rv]):
            if v is self.rv or v in self.roots or isinstance(v, Constant):
                continue
            if isinstance(v.type, RandomGeneratorType):
                continue
            op = v.owner.op if v.owner is not None else None
            random = bool(v.name) and isinstance(op, RandomVariable | SymbolicRandomVariable)
            if op is not None and not random:
                continue
            kind = (
                "a random variable" if random
                else "data that may change" if isinstance(v, SharedVariable) else "a free variable"
            )  # fmt: skip
            raise LoweringError(
                self.description,
                "functions",
                f"its parameters depend on '{v.name or v}', {kind} that is not among the inputs",
                "name that variable among the inputs, or replace it by a constant",
            )

    def compile(self, name: str) -> tuple[Any, str]:
        """Return one of the functions, and why it is not plain scalar code ("" if it is)."""
        try:
            return self.draw() if name == "draw" else self.density(name)
        except LoweringError:
            raise
        except Exception as error:
            what = {"logp": "the log density", "draw": "draws"}.get(name, "the gradient")
            remedy = _REMEDIES.get(name, "use a step that needs no gradient of this variable")
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            raise LoweringError(self.description, what, reason, remedy) from error

    def density(self, name: str) -> tuple[Any, str]:
        """Compile the log density or its gradient."""
        raise NotImplementedError

    def draw(self) -> tuple[Any, str]:
        """Compile a draw."""
        raise NotImplementedError

    def checked_logp(self, logp: Variable) -> Variable:
        """Return a log density without random variables, without checks that raise, simplified."""
        if isinstance(self.rv.owner.op, PolyaGammaRV) and find_spec("polyagamma") is None:
            raise LoweringError(
                self.description, "densities", "the package polyagamma is missing", "install it"
            )
        left = rvs_in_graph([logp])
        if left:
            raise LoweringError(
                self.description,
                "the log density",
                f"it depends on the random variable(s) {sorted(str(v) for v in left)}",
                "name them among the inputs",
            )
        # simplify before a gradient is taken: stacks that are indexed again would leave arrays in
        # it
        simplified: Any = rewrite_graph(
            parameter_checks_to_values(logp), include=("canonicalize",), clone=False
        )
        return simplified

    def check_drawable(self) -> None:
        """Refuse what would only fail when it is drawn, inside a compiled loop."""
        for op in (v.owner.op for v in ancestors([self.rv]) if v.owner):
            if isinstance(op, FlatRV | HalfFlatRV):
                why, remedy = "it is improper", "give it a proper distribution"
            elif isinstance(op, CustomDistRV) and is_placeholder(op._random_fn):
                why, remedy = "it was built from a log density alone", "give it dist= or random="
            elif isinstance(op, PolyaGammaRV) and find_spec("polyagamma") is None:
                why, remedy = "the package polyagamma is missing", "install it"
            else:
                continue
            raise LoweringError(self.description, "draws", why, remedy)

    def on_numbers(self, graphs: list[Variable], more: dict[Variable, Variable]) -> list[Variable]:
        """Put the arguments of the functions in place of the inputs of the graphs."""
        numbers = {r: as_tensor(a) for r, a in zip(self.roots, self.arguments)}
        return graph_replace(graphs, {**numbers, **more}, strict=False)

    def wrap(
        self,
        name: str,
        first: dict[str, Any],
        inner: tuple[Any, str | None],
        given: str,
        result: str,
        n_results: int = 1,
        guard: str = "",
    ) -> Any:
        """Compile the outermost function, on float64 scalars and contiguous arrays.

        Parameters
        ----------
        name : str
            Name of the function.
        first : dict of str to numba type
            Arguments before the inputs.
        inner : callable, str
            The compiled graph and its cache key.
        given : str
            First argument of ``inner``, an expression.
        result : str
            Last statement, on the results ``r0``, ``r1``, ...
        n_results : int
            How many results ``inner`` has.
        guard : str
            Statement before the call.
        """
        names = [f"i{k}" for k in range(len(self.arguments))]
        converted = [
            f"np.{a.type.dtype}({n})"
            if isinstance(a.type, ScalarType) and a.type.dtype != "float64" else n
            for n, a in zip(names, self.arguments)
        ]  # fmt: skip
        results = ", ".join(f"r{k}" for k in range(n_results))
        source = (
            f"def {name}({', '.join([*first, *names])}):\n"
            + (f"    {guard}\n" if guard else "")
            + f"    {results}, = inner({', '.join([given, *converted])})\n    {result}\n"
        )
        signature = (*first.values(), *map(numba_type, self.arguments))
        function, key = inner
        dispatcher, _ = compile_source(name, source, {"inner": function}, signature, [key])
        return dispatcher


def is_placeholder(function: Any) -> bool:
    """Whether PyMC put a function in the place of one that the user did not give; it raises when called."""
    return getattr(function, "__qualname__", "").startswith("default_not_implemented")
