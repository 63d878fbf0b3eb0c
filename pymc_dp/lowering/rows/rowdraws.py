"""Draws of entries of records, and of slots of a mixture, as scalar code."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import walk
from pytensor.tensor.random.basic import CategoricalRV, DirichletRV, GammaRV, MvNormalRV, normal, uniform
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.normals import LARGEST, factor_of, is_multivariate_normal
from pymc_dp.lowering.functions.samplers import core_sampler
from pymc_dp.lowering.functions.truncated_counts import truncated_count
from pymc_dp.lowering.rows.domains import inside_of
from pymc_dp.lowering.rows.draws import ScalarDraw
from pymc_dp.lowering.rows.intervals import RANDOM
from pymc_dp.lowering.rows.rows import MAX_UNROLL, ROW, NotScalar, RowGraph
from pymc_dp.upstream.pymc_private import printed_name

# Gamma numbers are not let go below: the logarithm of a probability is a number.
SMALLEST = 1e-300


def draw_entry(
    rows: RowGraph, rv: Variable, index: tuple[int, ...], rng: Variable, label: int, defined: bool = False
) -> TensorVariable:
    """Return a scalar draw of one entry of a record variable given the entries of its parameters.

    Outside of the law's domain nothing is drawn, and the entry is no number, or 0 if it is an integer: draws
    there need not come to an end. ``defined``: the law is known to be defined wherever it is drawn from.
    """
    node = rv.owner
    assert node is not None
    op = node.op
    full = (ROW, *index)
    if isinstance(op, CategoricalRV):
        return _draw_category(rows, rv, full, rng, label)
    if isinstance(op, MvNormalRV):
        if (rv, full[:-1]) not in rows.together:
            rows.together[rv, full[:-1]] = _draw_normal(rows, rv, full[:-1], rng, label)
        return rows.together[rv, full[:-1]][index[-1]]
    if isinstance(op, DirichletRV):
        if (rv, full[:-1]) not in rows.together:
            rows.together[rv, full[:-1]] = _draw_probabilities(rows, rv, full[:-1], rng, label)
        return rows.together[rv, full[:-1]][index[-1]]
    law = printed_name(op)
    if op.ndim_supp > 0 or (isinstance(op, RandomVariable) and any(op.ndims_params)):
        raise NotScalar(f"{rv.name} has a law ({law}) that is neither univariate nor multivariate normal")
    cut = truncated_count(node)
    if cut is not None:
        guard = [] if defined else inside_of(rows, rv, index)
        return _draw_number(rows, rv, *cut, full, rng, label, guard)
    if isinstance(op, SymbolicRandomVariable):
        # those of pm.Truncated are not told apart from their size
        if getattr(op, "extended_signature", None) is None or _made_from_laws(op.dist_params(node)):
            raise NotScalar(
                f"{rv.name} has a law that is made from others ({law}). Declare these as records, and what "
                "is made of them as the query, as x * b with a Bernoulli b, or pt.clip(x, 0, 1)"
            )
        guard = [] if defined else inside_of(rows, rv, index)
        return _InnerGraph(rows, rv, index, rng, label, guard).drawn()
    guard = [] if defined else inside_of(rows, rv, index)
    return _draw_number(rows, rv, op, op.dist_params(node), full, rng, label, guard)


def _draw_number(
    rows: RowGraph,
    rv: Any,
    op: RandomVariable,
    parameters: list,
    full: tuple,
    rng: Variable,
    label: int,
    guard: list[Variable],
) -> TensorVariable:
    """Draw one number from a law with numbers for parameters."""
    if core_sampler(op, rv.owner)[0] is None:
        raise NotScalar(f"{rv.name} has no scalar draw")
    params = [rows.entry(p, full[len(full) - p.type.ndim :] if p.type.ndim else ()) for p in parameters]
    scalars = [pt.scalar_from_tensor(pt.cast(p, "float64") if p.dtype == "float32" else p) for p in params]
    drawn = ScalarDraw(op, label, guarded=bool(guard))(rng, *guard, *scalars)
    return pt.cast(pt.tensor_from_scalar(drawn), rv.dtype)


def _made_from_laws(parameters: list) -> bool:
    """Whether variables of no model are behind parameters, as those of pm.Censored and of pm.Mixture are."""

    def before(v: Variable) -> list | None:
        return v.owner.inputs if v.owner and not isinstance(v.owner.op, RANDOM) else None

    return any(v.owner and isinstance(v.owner.op, RANDOM) and not v.name for v in walk(parameters, before))


class _InnerGraph(RowGraph):
    """Entries of the graph that a law of PyMC's is drawn by: a function of numbers from other laws.

    A draw must be of the entry that is asked for alone, so that no two entries share it.
    """

    def __init__(
        self, rows: RowGraph, rv: Any, index: tuple[int, ...], rng: Variable, label: int, guard: list
    ):
        super().__init__(lambda v: isinstance(v, Constant), lambda v, index: v, [])  # type: ignore[arg-type]
        self._rows, self._rv, self._rng = rows, rv, rng
        self._own = (ROW, *index)[len(index) + 1 - rv.type.ndim :]
        self._label, self._guard, self._n_draws = label, guard, 0
        op = rv.owner.op
        self._outer = dict(zip(op.inner_inputs, rv.owner.inputs, strict=True))

    def drawn(self) -> TensorVariable:
        """Return the entry, which is no number, or 0 if it is an integer, where the law is not defined."""
        node = self._rv.owner
        entry = self.entry(node.op.inner_outputs[node.outputs.index(self._rv)], self._own)
        if self._guard:
            nothing = np.nan if self._rv.dtype.startswith("float") else 0
            entry = pt.switch(pt.tensor_from_scalar(self._guard[0]), entry, nothing)
        return pt.cast(entry, self._rv.dtype)

    def _entry(self, variable: Variable, index: tuple) -> TensorVariable:
        if variable in self._outer:
            return self._rows.entry(self._outer[variable], index)
        node = variable.owner
        if node is None or not isinstance(node.op, RANDOM):
            return super()._entry(variable, index)
        op = node.op
        scalar = isinstance(op, RandomVariable) and op.ndim_supp == 0 and not any(op.ndims_params)
        if not scalar or index != self._own or self._n_draws == MAX_UNROLL:
            raise NotScalar(f"{self._rv.name} is drawn by way of {op}")
        # apart from the labels of single draws, of vectors and of probabilities
        label = -(2 * 10**9 + self._label * MAX_UNROLL + self._n_draws)
        self._n_draws += 1
        parameters = op.dist_params(node)
        return _draw_number(self, variable, op, parameters, index, self._rng, label, self._guard)


def _draw_category(rows: RowGraph, rv: Any, full: tuple, rng: Variable, label: int) -> TensorVariable:
    """Draw a category by inversion: how many of the cumulated probabilities a uniform number exceeds."""
    (p,) = rv.owner.op.dist_params(rv.owner)
    size = p.type.shape[-1]
    if size is None or size > MAX_UNROLL:
        raise NotScalar(f"{rv.name} has many categories")
    own = full[len(full) - (p.type.ndim - 1) :] if p.type.ndim > 1 else ()
    zero, one = pt.scalar_from_tensor(pt.constant(0.0)), pt.scalar_from_tensor(pt.constant(1.0))
    u = pt.tensor_from_scalar(ScalarDraw(uniform, label)(rng, zero, one))
    category, end = pt.constant(0, dtype=rv.dtype), pt.constant(0.0)
    for k in range(size - 1):
        end = end + rows.entry(p, (*own, k))
        category = category + pt.cast(pt.ge(u, end), rv.dtype)
    return category


def _draw_probabilities(
    rows: RowGraph, rv: Any, lead: tuple, rng: Variable, label: int
) -> list[TensorVariable]:
    """Draw probabilities from a Dirichlet law: gamma numbers divided by their sum."""
    (alpha,), size = rv.owner.op.dist_params(rv.owner), rv.type.shape[-1]
    if size is None or size > MAX_UNROLL:
        raise NotScalar(f"{rv.name} has many probabilities")
    one = pt.scalar_from_tensor(pt.constant(1.0))
    weights: list[TensorVariable] = []
    for k in range(size):
        a = rows.entry(alpha, (*lead[len(lead) - (alpha.type.ndim - 1) :], k))
        scalar = pt.scalar_from_tensor(pt.cast(a, "float64"))
        own_label = -(10**9 + label * MAX_UNROLL + k)  # apart from those of single draws, and of vectors
        drawn = pt.tensor_from_scalar(ScalarDraw(GammaRV(), own_label)(rng, scalar, one))
        weights.append(pt.maximum(drawn, SMALLEST))
    total = sum(weights[1:], start=weights[0])
    return [w / total for w in weights]


def _draw_normal(rows: RowGraph, rv: Any, lead: tuple, rng: Variable, label: int) -> list[TensorVariable]:
    """Draw a multivariate normal vector: its mean, and the Cholesky factor times standard normal numbers."""
    if not is_multivariate_normal(rv):
        raise NotScalar(f"{rv.name} is multivariate normal, of more than {LARGEST} numbers or unknown length")
    mean, cov = rv.owner.op.dist_params(rv.owner)

    def entry(v: Any, *index: int) -> TensorVariable:
        return rows.entry(v, (*lead[len(lead) - (v.type.ndim - len(index)) :], *index))

    size = rv.type.shape[-1]
    zero, one = pt.scalar_from_tensor(pt.constant(0.0)), pt.scalar_from_tensor(pt.constant(1.0))
    # labels apart from those of single draws
    labels = [-(label * (LARGEST + 1) + k) for k in range(size)]
    noise: list = [pt.tensor_from_scalar(ScalarDraw(normal, k)(rng, zero, one)) for k in labels]
    drawn = []
    for j, row in enumerate(factor_of(cov, size, str(rv.name))):
        parts = [entry(v) * e for v, e in zip(row, noise, strict=False)]
        drawn.append(pt.cast(sum(parts, start=entry(mean, j)), rv.dtype))
    return drawn
