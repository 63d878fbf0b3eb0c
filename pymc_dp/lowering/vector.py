"""A multivariate PyMC distribution as nopython functions: log density of one row, draw of one row.

For records that are vectors (multivariate normal, Dirichlet, multinomial, ...). The functions go
through small arrays, 0.2 to 2 us a call: a step that draws many rows at once should compile the
model's own vectorised graph instead (see :mod:`pymc_dp.lowering.native`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.type import random_generator_type

from pymc_dp.lowering.base import Lowering, describe, named_inputs
from pymc_dp.lowering.draws import scalar_draw_graph
from pymc_dp.lowering.errors import LoweringError
from pymc_dp.lowering.graphs import jit_scalar, parameter_checks_to_values
from pymc_dp.lowering.native import GENERATOR, VECTOR, address_of

__all__ = ["VectorKernel", "lower_vector"]


@dataclass(frozen=True)
class VectorKernel:
    """Nopython functions of one multivariate distribution.

    Attributes
    ----------
    names : tuple of str
        The inputs, in the order in which the functions take them.
    discrete : bool
        Whether draws are integers (they are stored as floats).
    logp : callable or None
        ``logp(value, *inputs) -> float64`` with ``value`` a contiguous float64 vector; ``-inf``
        off the support and where a parameter is outside its domain.
    draw : callable or None
        ``draw(rng, out, *inputs)`` fills the contiguous float64 vector ``out``, advancing ``rng``.
    fallback : dict of str to str
        For each function, the array operations or interpreted operations that it goes through.
    description : str
        The distribution, for messages.
    """

    names: tuple[str, ...]
    discrete: bool
    description: str
    logp: Any
    draw: Any
    fallback: dict[str, str]

    def signature(self, name: str) -> Any:
        """Return the numba signature of one of the functions."""
        return getattr(self, name).nopython_signatures[0]

    def address(self, name: str) -> int:
        """Return the address of one of the functions, good as long as this object lives."""
        return address_of(getattr(self, name), self.signature(name))


def lower_vector(
    rv: Variable,
    inputs: Mapping[str, Variable] | Sequence[Variable] = (),
    *,
    want: Sequence[str] = ("logp", "draw"),
) -> VectorKernel:
    """Lower a multivariate distribution to nopython functions of one row.

    Parameters
    ----------
    rv : TensorVariable
        Vector (1-d) random variable whose law has one support dimension, from ``.dist`` or of a
        model.
    inputs : mapping of str to TensorVariable, or sequence of TensorVariable
        As for :func:`~pymc_dp.lowering.scalar.lower_scalar`: scalars become numbers, vectors and
        matrices contiguous arrays.
    want : sequence of {"logp", "draw"}
        What to compile.

    Returns
    -------
    VectorKernel

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
    >>> from pymc_dp.lowering.vector import lower_vector
    >>> mu = pt.dscalar("mu")
    >>> rv = pm.MvNormal.dist(pt.stack([mu, mu]), np.eye(2))
    >>> kernel = lower_vector(rv, [mu])
    >>> round(kernel.logp(np.array([1.0, 2.0]), 1.0), 6)
    -2.337877
    >>> row = np.empty(2)
    >>> kernel.draw(np.random.default_rng(1), row, 1.0)
    >>> row.round(3)
    array([1.346, 1.822])
    """
    unknown = set(want) - {"logp", "draw"}
    if unknown:
        raise ValueError(f"want={sorted(unknown)} is not among ('logp', 'draw').")
    named = named_inputs(inputs)
    description = describe(rv)
    support = getattr(getattr(rv.owner, "op", None), "ndim_supp", None)
    if rv.type.ndim != 1 or support != 1:
        raise LoweringError(
            description,
            "functions of one row",
            f"it has {rv.type.ndim} dimension(s), {support} of them of one draw; both must be 1",
            "index it down to one row, or write its log density as a CustomDist of vectors",
        )
    graph = _VectorLowering(rv, named, description)
    functions: dict[str, Any] = {"logp": None, "draw": None}
    fallback = {}
    for name in want:
        functions[name], why = graph.compile(name)
        if why:
            fallback[name] = why
    return VectorKernel(
        tuple(named), graph.discrete, description, functions["logp"], functions["draw"], fallback
    )


class _VectorLowering(Lowering):
    def density(self, name: str) -> tuple[Any, str]:
        value = self.rv.type()
        row = pt.vector("row", dtype="float64", shape=self.rv.type.shape)
        logp = self.checked_logp(pm.logp(self.rv, value))
        if self.discrete:
            logp = pt.switch(pt.all(pt.eq(row, pt.floor(row))), logp, -float("inf"))
        outputs = self.on_numbers([logp], {value: pt.cast(row, value.type.dtype)})
        inner, key, why = jit_scalar([row, *self.arguments], outputs)
        return self.wrap(name, {"v": VECTOR}, (inner, key), "v", "return np.float64(r0)"), why

    def draw(self) -> tuple[Any, str]:
        self.check_drawable()
        rng = random_generator_type("rng")
        row = parameter_checks_to_values(scalar_draw_graph(self.rv, rng))
        outputs = self.on_numbers([pt.cast(row, "float64")], {})
        inner, key, why = jit_scalar([rng, *self.arguments], outputs)
        first = {"rng": GENERATOR, "out": VECTOR}
        return self.wrap("draw", first, (inner, key), "rng", "out[:] = r0"), why
