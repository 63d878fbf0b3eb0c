"""A univariate PyMC distribution as nopython scalar functions: log density, gradient, draw.

The parameters of the distribution are functions of named inputs, and the functions take plain
numbers, so a loop over records or labels calls them at the cost of the arithmetic in them: 1 to 10
ns for the common families. What cannot be made so runs through arrays or the interpreter, which
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
from pymc.distributions.continuous import InterpolatedRV
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import get_scalar_type
from pytensor.tensor.random.type import random_generator_type

from pymc_dp.lowering.base import Lowering, describe, named_inputs
from pymc_dp.lowering.draws import scalar_draw_graph
from pymc_dp.lowering.errors import LoweringError
from pymc_dp.lowering.graphs import as_tensor, jit_scalar, parameter_checks_to_values
from pymc_dp.lowering.native import GENERATOR, address_of
from pymc_dp.lowering.unroll import write_out_vectors

__all__ = ["ScalarKernel", "lower_scalar"]

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
        ``logp(value, *inputs) -> float64``: ``-inf`` off the support and where a parameter is
        outside its domain. Values of discrete distributions may be given as floats; one that is not
        an integer has log density ``-inf``.
    grad : callable or None
        ``grad(value, *inputs) -> tuple``: the derivatives of the log density with respect to the
        value and each input; 0 for the value of a discrete distribution and for integer inputs.
        Without meaning where the log density is ``-inf``.
    logp_grad : callable or None
        ``logp_grad(value, *inputs) -> tuple``: the log density, then what ``grad`` returns.
    draw : callable or None
        ``draw(rng, *inputs) -> float64`` (``int64`` for a discrete distribution); ``rng`` is a
        ``numpy.random.Generator``, which it advances. Parameters outside their domain are not
        checked.
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
        """Return the address of one of the functions, for ``function_at``.

        The address is good as long as this object lives, in this process.
        """
        return address_of(getattr(self, name), self.signature(name))

    def __reduce__(self) -> Any:
        raise TypeError(
            "A ScalarKernel holds machine code of this process and cannot be pickled: keep the "
            "random variable and its inputs, and call lower_scalar again (compiled code is cached "
            "on disk)."
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
        become arguments of the functions. Scalars become numbers; a variable with ``ndim > 0``
        becomes an array of its dtype. Everything else in the graph must be constant.
    want : sequence of {"logp", "grad", "logp_grad", "draw"}
        What to compile.

    Returns
    -------
    ScalarKernel

    Raises
    ------
    LoweringError
        The distribution has no such function, or its parameters depend on variables that are not
        among ``inputs``.

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
    named = named_inputs(inputs)
    description = describe(rv)
    if rv.type.ndim != 0:
        raise LoweringError(
            description,
            "scalar functions",
            f"it has {rv.type.ndim} dimension(s) and a scalar is needed",
            "index it down to one row with scalar parameters, or use lower_vector",
        )
    graph = _ScalarLowering(rv, named, description)
    functions: dict[str, Any] = {}
    fallback: dict[str, str] = {}
    for name in want:
        functions[name], why = graph.compile(name)
        if why:
            fallback[name] = why
    return ScalarKernel(tuple(named), graph.discrete, description, fallback=fallback, **functions)


class _ScalarLowering(Lowering):
    def density(self, name: str) -> tuple[Any, str]:
        value = self.rv.type()
        logp = write_out_vectors(self.checked_logp(_logp(self.rv, value)))
        outputs = [logp] if name != "grad" else []
        if name != "logp":
            variables = [value, *self.roots]
            wrt = [v for v in variables if v.type.dtype.startswith("float")]
            slopes: Any = tg.grad(logp, wrt, disconnected_inputs="ignore", return_disconnected="zero")
            found = dict(zip(wrt, slopes))
            outputs += [found.get(v, pt.zeros_like(v, dtype="float64")) for v in variables]
        number = get_scalar_type(value.type.dtype)()
        outputs = self.on_numbers(outputs, {value: as_tensor(number)})
        inner, key, why = jit_scalar([number, *self.arguments], outputs)
        given, guard = "v", ""
        if self.discrete:
            given = f"np.{value.type.dtype}(v)"
            # what is no integer, or does not fit one; `not`, so that nan is refused too
            bad = "not (v == np.floor(v) and abs(v) < 9e18)"
            nothing = {"logp": "-np.inf", "logp_grad": f"(-np.inf{', 0.0' * (len(outputs) - 1)})"}
            if name in nothing and all(o.type.ndim == 0 for o in outputs):
                guard = f"if {bad}: return {nothing[name]}"
        results = [f"np.float64(r{k})" if o.type.ndim == 0 else f"r{k}" for k, o in enumerate(outputs)]
        result = f"return {results[0]}" if name == "logp" else f"return ({', '.join(results)},)"
        first = {"v": types.float64}
        function = self.wrap(name, first, (inner, key), given, result, len(outputs), guard)
        return function, why

    def draw(self) -> tuple[Any, str]:
        self.check_drawable()
        rng = random_generator_type("rng")
        draw = parameter_checks_to_values(scalar_draw_graph(self.rv, rng))
        draw = write_out_vectors(draw)
        inner, key, why = jit_scalar([rng, *self.arguments], self.on_numbers([draw], {}))
        result = f"return np.{'int64' if self.discrete else 'float64'}(r0)"
        return self.wrap("draw", {"rng": GENERATOR}, (inner, key), "rng", result), why


def _logp(rv: Variable, value: Variable) -> Variable:
    if rv.owner is not None and isinstance(rv.owner.op, InterpolatedRV):
        # PyMC evaluates a SciPy spline, in the interpreter and without a cache
        x, pdf, _ = rv.owner.op.dist_params(rv.owner)
        k = pt.clip(pt.searchsorted(x, value) - 1, 0, x.shape[0] - 2)
        weight = (value - x[k]) / (x[k + 1] - x[k])
        density = (1 - weight) * pdf[k] + weight * pdf[k + 1]
        return pt.switch((value >= x[0]) & (value <= x[-1]), pt.log(density), -float("inf"))
    return pm.logp(rv, value)
