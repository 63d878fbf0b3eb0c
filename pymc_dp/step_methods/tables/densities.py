"""Log densities entry by entry: of each cell at its count, and of each release at its query.

Either is a function of one number of its own and of numbers that no count changes. The function is compiled
once for each variable; the numbers are worked out once per draw, from the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.distributions.dist_math import logpow
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.bind import Function, bound_part, part_of_kernel
from pymc_dp.lowering.addresses.graphs import inlined
from pymc_dp.lowering.addresses.modes import default_mode
from pymc_dp.lowering.addresses.tuples import row
from pymc_dp.lowering.rows.rows import ROW, NotScalar, RowGraph, scalar_function
from pymc_dp.query.tables import Known
from pymc_dp.step_methods.tables.parameters import Behind
from pymc_dp.upstream.pymc_private import _BaseMixtureRV

# What stands for one function in a chain of them.
WHICH, WIDTH = 0, 1


class EntryDensities:
    """Densities of several variables, entry by entry.

    Parameters
    ----------
    model : pymc.Model
        With known lengths.
    graphs : sequence of TensorVariable
        One vector for each variable: log densities of its entries, at the entries of `at`.
    at : sequence of TensorVariable
        The numbers that they are functions of, vectors of float64.
    sizes : sequence of int
        Their lengths, which their types leave open: of an axis known to be 1, entries would be no rows.

    Attributes
    ----------
    function : function
        Part of kernels: which variable, a number, the numbers of :meth:`numbers` and an entry to a log
        density.
    which : ndarray of int
        The variable of each entry.
    width : int
        How many numbers are in the density of an entry, at most.
    """

    def __init__(
        self,
        model: Model,
        graphs: Sequence[TensorVariable],
        at: Sequence[TensorVariable],
        sizes: Sequence[int],
    ):
        # of values, in graphs of their own: what is written out below is written in place
        graphs = model.replace_rvs_by_values(list(graphs))
        parts = [_entrywise(graph, x) for graph, x in zip(graphs, at, strict=True)]
        self.which = np.repeat(np.arange(len(sizes)), sizes).astype(np.int64)
        self.function: Function = part_of_kernel(_nothing)
        for k, (function, numbers) in reversed(list(enumerate(parts))):
            names = {"WHICH": k, "WIDTH": len(numbers), "own": function, "rest": self.function}
            self.function = bound_part(
                _one_or_rest if numbers else _bare_or_rest, _without(names, bool(numbers))
            )
        self.width = max([1, *(len(numbers) for _, numbers in parts)])
        rows = [_matrix(numbers, size, self.width) for (_, numbers), size in zip(parts, sizes, strict=True)]
        whole = pt.concatenate(rows, axis=0) if rows else pt.zeros((0, self.width))
        behind = set(ancestors([whole]))
        self.inputs = [v for v in model.value_vars if v in behind]
        self._numbers = pytensor.function(self.inputs, whole, mode=default_mode(), on_unused_input="ignore")

    def numbers(self, point: dict[str, np.ndarray]) -> np.ndarray:
        """Return the numbers in the densities at a point: a row for each entry."""
        found = self._numbers(*(point[str(v.name)] for v in self.inputs))
        return np.asarray(found, dtype=np.float64)


def laws_of_cells(
    model: Model,
    variables: Sequence[TensorVariable],
    shapes: Sequence[tuple[int, ...]],
    integrated: Sequence[Behind] = (),
) -> EntryDensities:
    """Return what each cell adds to the log density of its variable, up to what no move changes.

    With some parameters integrated out: cells that share an entry of one also add through their sum, which
    :func:`densities_of_rows` has.

    Raises
    ------
    NotScalar
        Where a law is not known cell by cell.
    """
    at = [pt.vector(f"cells of {rv.name}", dtype="float64") for rv in variables]
    without = {rv: behind for behind in integrated for rv in behind.counts}
    graphs = [
        without[rv].law(rv, x) if rv in without else _law(rv, shape, x)
        for rv, shape, x in zip(variables, shapes, at, strict=True)
    ]
    return EntryDensities(model, graphs, at, [int(np.prod(shape)) for shape in shapes])


def densities_of_rows(
    model: Model, releases: Sequence[Known], integrated: Sequence[Behind] = ()
) -> EntryDensities:
    """Return the log density of each release, as a function of its query; then of sums by shared entries."""
    at = [pt.vector(f"query of {r.name}", dtype="float64") for r in releases]
    sizes = [r.linear.constant.size for r in releases]
    graphs = []
    for release, x, size in zip(releases, at, sizes, strict=True):
        node: Any = release.rv.owner
        _, *levels = node.op.dist_params(node)
        flat = [_flat(level, release.linear.shape) for level in levels]
        noisy = node.op.make_node(pt.random.shared_rng(seed=None), NoneConst, x, *flat).default_output()
        value = model.rvs_to_values[release.rv]
        graphs.append(pm.logp(noisy, pt.reshape(value, (size,))))
    for behind in integrated:
        if behind.shared.size:
            at.append(pt.vector("sum by an entry", dtype="float64"))
            sizes.append(behind.shared.size)
            graphs.append(behind.of_sums(at[-1]))
    return EntryDensities(model, graphs, at, sizes)


def _law(rv: Any, shape: tuple[int, ...], x: TensorVariable) -> TensorVariable:
    count = pt.cast(x, rv.type.dtype)
    if isinstance(rv.owner.op, MultinomialRV):
        p = rv.owner.op.dist_params(rv.owner)[1]
        return logpow(_flat(p, shape), count) - pt.gammaln(x + 1)
    if isinstance(rv.owner.op, DirichletMultinomialRV):
        a = rv.owner.op.dist_params(rv.owner)[1]
        return pt.gammaln(x + _flat(a, shape)) - pt.gammaln(x + 1)
    return pm.logp(in_one_line(rv, shape), count)


def in_one_line(rv: Any, shape: tuple[int, ...]) -> TensorVariable:
    """Return a variable with the law of another, whose entries are in one line."""
    node = rv.owner
    if isinstance(node.op, _BaseMixtureRV):
        weights, components = node.op.dist_params(node)[0], node.inputs[2:]
        if len(components) == 1:
            raise NotScalar(f"a mixture over the last axis of one variable, {rv.name}")
        n = weights.type.shape[-1]
        flat = pt.broadcast_to(weights, (*shape, n)).reshape((int(np.prod(shape)), n))
        return pm.Mixture.dist(flat, [in_one_line(c, shape) for c in components])
    if type(node.op).__name__ == "DiracDeltaRV":
        return pm.DiracDelta.dist(_flat(node.inputs[-1], shape), size=_length(shape))
    if not isinstance(node.op, RandomVariable) or any(node.op.ndims_params):
        raise NotScalar(f"the law {node.op} of {rv.name}")
    flat = [_flat(p, shape) for p in node.op.dist_params(node)]
    size = NoneConst if any(p.ndim for p in flat) else _length(shape)
    return node.op.make_node(pt.random.shared_rng(seed=None), size, *flat).default_output()


def _length(shape: tuple[int, ...]) -> Any:
    """Return how many entries there are, left open: of an axis known to be 1, they would be no rows."""
    return pytensor.shared(np.array([int(np.prod(shape))]), shape=(1,))


def _flat(parameter: Any, shape: tuple[int, ...]) -> TensorVariable:
    """Return a parameter for entries in one line: one number where it is the same for all."""
    parameter = pt.as_tensor_variable(parameter)
    if all(parameter.type.broadcastable):
        return parameter.reshape(())
    return pt.broadcast_to(parameter, shape).reshape((int(np.prod(shape)),))


def _entrywise(graph: TensorVariable, x: TensorVariable) -> tuple[Any, list[Variable]]:
    """Return one entry of a vector as a function of numbers, and the graphs of those behind the first."""
    known: dict[Variable, bool] = {}

    def is_free(variable: Variable) -> bool:
        if variable not in known:
            known[variable] = x not in ancestors([variable])
        return known[variable]

    number = ps.float64("x")
    rows = RowGraph(is_free, lambda variable, index: pt.tensor_from_scalar(number), [x])
    entry = rows.entry(inlined(graph), (ROW,))  # type: ignore[arg-type]
    function, _ = scalar_function([number, *rows.constant_inputs, *rows.column_inputs], [entry])
    return function, [*rows.constants, *rows.columns]


def _matrix(numbers: Sequence[Any], size: int, width: int) -> TensorVariable:
    columns = [pt.broadcast_to(pt.cast(v, "float64"), (size,)) for v in numbers]
    columns += [pt.zeros((size,))] * (width - len(columns))
    return pt.stack(columns, axis=1)


def own(*numbers: float) -> tuple[float]:
    """Return the log density of one variable's entry."""
    raise NotImplementedError


def rest(which: int, x: float, numbers: np.ndarray, k: int) -> float:
    """Return that of one of the others."""
    raise NotImplementedError


def _nothing(which: int, x: float, numbers: np.ndarray, k: int) -> float:
    return 0.0


def _one_or_rest(which: int, x: float, numbers: np.ndarray, k: int) -> float:
    if which == WHICH:
        return own(x, *row(numbers, k, WIDTH))[0]
    return rest(which, x, numbers, k)


def _bare_or_rest(which: int, x: float, numbers: np.ndarray, k: int) -> float:
    if which == WHICH:
        return own(x)[0]
    return rest(which, x, numbers, k)


def _without(names: dict[str, Any], with_width: bool) -> dict[str, Any]:
    return names if with_width else {k: v for k, v in names.items() if k != "WIDTH"}
