"""A multivariate normal vector behind Gaussian noise, as scalar code of its entries.

With covariance C and noise of variances N, the noisy vector z has the covariance C + N. Given z, a draw is
that of vector and noise without z, x and e, moved by C (C + N)^-1 (z - x - e).
"""

from functools import reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import normal
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.normals import Triangle, inverse_of, root_of, sum_of
from pymc_dp.lowering.rows.draws import ScalarDraw
from pymc_dp.lowering.rows.rowdraws import draw_entry
from pymc_dp.lowering.rows.rows import ROW, RowGraph


def noisy_vector(
    rows: RowGraph, rv: Any, released: Any, sigma: Any, rng: Variable, label: int
) -> tuple[TensorVariable, list[TensorVariable]]:
    """Return the log density of one vector's noisy release, and the vector drawn given it.

    Parameters
    ----------
    rows : RowGraph
    rv : TensorVariable
        The vectors, (n, d).
    released : TensorVariable
        Their releases, (n, d).
    sigma : TensorVariable
        Standard deviation of the noise, of any shape that fits these.
    rng : Variable
    label : int
        Of the draw of the vector; those of the noise follow.
    """
    mean, cov = rv.owner.op.dist_params(rv.owner)
    each = range(rv.type.shape[-1])

    def entry(v: Any, *index: int) -> TensorVariable:
        own = index[max(len(index) - v.type.ndim, 0) :]
        lead = (ROW,) * (v.type.ndim - len(own))
        return pt.cast(rows.entry(v, (*lead, *own)), "float64")

    variances = [pt.sqr(entry(sigma, j)) for j in each]
    known: Triangle = [[entry(cov, j, k) for k in range(j + 1)] for j in each]
    total = [[c + variances[j] if j == k else c for k, c in enumerate(row)] for j, row in enumerate(known)]
    inverse = inverse_of(root_of(total))
    z = [entry(released, j) for j in each]
    white = _whitened(inverse, [z[j] - entry(mean, j) for j in each])
    density = sum_of([pt.log(row[-1]) for row in inverse]) - 0.5 * sum_of([pt.sqr(w) for w in white])
    # with the noise added, what is no covariance may look like one; a comparison with NaN is false
    proper = reduce(pt.and_, [row[-1] > 0 for row in root_of(known)])
    density = pt.switch(proper, density, np.nan)
    x = [draw_entry(rows, rv, (j,), rng, label) for j in each]
    zero, one = (ps.as_scalar(float(v)) for v in (0, 1))
    noise: list[Any] = [
        pt.tensor_from_scalar(ScalarDraw(normal, label + 1 + j)(rng, zero, one)) for j in each
    ]
    gap = _whitened(inverse, [z[j] - x[j] - pt.sqrt(variances[j]) * noise[j] for j in each])
    weights = [sum_of([inverse[j][k] * gap[j] for j in each if j >= k]) for k in each]
    drawn = [x[j] + sum_of([known[max(j, k)][min(j, k)] * weights[k] for k in each]) for j in each]
    return density - 0.5 * len(each) * np.log(2 * np.pi), drawn


def _whitened(inverse: Triangle, vector: list[Any]) -> list[Any]:
    return [sum_of([w * v for w, v in zip(row, vector, strict=False)]) for row in inverse]
