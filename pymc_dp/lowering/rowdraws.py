"""Draws of entries of records, and of slots of a mixture, as scalar code."""

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import CategoricalRV, DirichletRV, GammaRV, MvNormalRV, normal, uniform
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.domains import domain_of
from pymc_dp.lowering.draws import ScalarDraw
from pymc_dp.lowering.normals import LARGEST, factor_of, is_multivariate_normal
from pymc_dp.lowering.rows import MAX_UNROLL, ROW, NotScalar, RowGraph
from pymc_dp.lowering.samplers import core_sampler

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
    if not isinstance(op, RandomVariable) or op.ndim_supp > 0 or any(op.ndims_params):
        raise NotScalar(f"{rv.name} is neither univariate nor multivariate normal")
    if core_sampler(op, node)[0] is None:
        raise NotScalar(f"{rv.name} has no scalar draw")
    params = [
        rows.entry(p, full[len(full) - p.type.ndim :] if p.type.ndim else ()) for p in op.dist_params(node)
    ]
    scalars = [pt.scalar_from_tensor(pt.cast(p, "float64") if p.dtype == "float32" else p) for p in params]
    guard = [] if defined else inside_of(rows, rv, index)
    drawn = ScalarDraw(op, label, guarded=bool(guard))(rng, *guard, *scalars)
    return pt.cast(pt.tensor_from_scalar(drawn), rv.dtype)


def inside_of(rows: RowGraph, rv: Variable, index: tuple[int, ...]) -> list[Variable]:
    """Return whether one entry of a variable has a law, as a list of no condition if it always has."""
    domain = domain_of(rv, rows.is_free)
    if domain is None or not domain.conditions:
        return []
    return [pt.scalar_from_tensor(domain.inside(rows, index))]


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
