"""One row of a law as functions of numbers, as sweeps over records make them."""

import functools

import numpy as np
import pymc as pm
import pytensor.gradient as tg
import pytensor.scalar as ps
import pytensor.tensor as pt
from numba import types
from pymc.distributions.shape_utils import change_dist_size
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import CategoricalRV

from pymc_dp.lowering.addresses.graphs import inlined, jit_scalar
from pymc_dp.lowering.addresses.native import GENERATOR, VECTOR, NativeFunction, SourceFunction
from pymc_dp.lowering.rows.domains import row_checks_to_values
from pymc_dp.lowering.rows.rowdraws import draw_entry
from pymc_dp.lowering.rows.rows import ROW, NotScalar, RowGraph
from pymc_dp.lowering.rows.written import written_logp
from pymc_dp.query.lengths import with_known_shapes

N = 3


class RowCode:
    """A law whose value and parameters have a number for each row.

    Parameters
    ----------
    build : callable
        From the parameters to the law.
    n_parameters : int
    """

    def __init__(self, build, n_parameters):
        self.parameters = [pt.vector(f"p{k}", shape=(N,)) for k in range(n_parameters)]
        self.law = build(*self.parameters)
        self.discrete = not self.law.dtype.startswith("float")
        self.value = pt.vector("value", dtype=self.law.dtype, shape=(N,))
        self.rows = [self.value, *self.parameters]
        self.numbers = [pt.dscalar(f"n{k}") for k in range(len(self.rows))]
        self.graph = RowGraph(
            lambda v: not any(row in ancestors([v]) for row in self.rows),
            lambda v, index: pt.cast(self.numbers[self.rows.index(v)], v.dtype),
            self.rows,
        )

    @functools.cached_property
    def entry(self):
        """The log density of a row, a graph of its numbers."""
        if isinstance(self.law.owner.op, CategoricalRV):
            logp = written_logp(self.law, self.value)
        else:
            logp = inlined(pm.logp(self.law, self.value))
        (logp,) = with_known_shapes([row_checks_to_values(logp, self.has_rows)])
        return self.graph.entry(logp, (ROW,))

    def has_rows(self, condition):
        """Whether a condition has an entry of its own for each row."""
        of_rows = any(row in ancestors([condition]) for row in self.rows)
        return of_rows and condition.type.shape[0] == N

    def compiled(self, outputs, inputs, first=()):
        """Compile graphs of the numbers to a function of them, after some first inputs."""
        numbers = [ps.float64(f"x{k}") for k in range(len(inputs))]
        placed = {v: pt.tensor_from_scalar(x) for v, x in zip(inputs, numbers, strict=True)}
        outputs = [pt.cast(o, "float64") for o in graph_replace(outputs, placed, strict=False)]
        return jit_scalar([*first, *numbers], outputs)

    @functools.cached_property
    def logp(self):
        """``logp(value, *parameters)``."""
        function, key, why = self.compiled([self.entry], self.numbers)
        if why:
            raise NotScalar(why)
        names = ", ".join(f"x{k}" for k in range(len(self.numbers)))
        source = f"def logp({names}):\n    (r,) = row({names})\n    return r\n"
        signature = types.float64(*[types.float64] * len(self.numbers))
        return SourceFunction("logp", source, {"row": function}, signature, [key]).dispatcher

    @functools.cached_property
    def slopes(self):
        """``slopes(value, *parameters)``: derivatives, for the value too unless it is a whole number."""
        wrt = self.numbers[self.discrete :]
        slopes = tg.grad(self.entry, wrt, disconnected_inputs="ignore", return_disconnected="zero")
        function, _, why = self.compiled(slopes, self.numbers)
        if why:
            raise NotScalar(why)
        return function

    @functools.cached_property
    def draw(self):
        """``draw(rng, out, parameters)``: fill an array, one row after the other."""
        rng = pt.random.type.random_generator_type("rng")
        drawn = draw_entry(self.graph, self.law, (), rng, 1)
        function, key, why = self.compiled([drawn], self.numbers[1:], [rng])
        if why:
            raise NotScalar(why)
        given = ", ".join(["rng", *(f"p[{k}]" for k in range(len(self.parameters)))])
        source = (
            f"def draws(rng, out, p):\n    for i in range(out.size):\n        (r,) = row({given})\n"
            "        out[i] = r\n"
        )
        signature = types.void(GENERATOR, VECTOR, VECTOR)
        return SourceFunction("draws", source, {"row": function}, signature, [key]).dispatcher


def draw_at_once(build, n_parameters, n):
    """``draw(rng, parameters, out)``: fill an array of `n`, as sweeps draw where rows are no scalar code."""
    given = pt.vector("given")
    law = build(*(pt.alloc(given[k], n) for k in range(n_parameters)))
    law = law if law.ndim else change_dist_size(law, (n,))
    return NativeFunction("draw", [given], [law], types.void(GENERATOR, VECTOR, VECTOR)).dispatcher


def seeded(seed, code, parameters, n):
    """Draws of a row's code."""
    out = np.empty(n)
    code.draw(np.random.default_rng(seed), out, np.array(parameters, float))
    return out
