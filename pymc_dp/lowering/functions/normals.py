"""Multivariate normal laws as scalar code of their entries.

With the Cholesky factor L of the covariance and its inverse W, a vector is drawn as mean + L e, with standard
normal e, and its log density is that of W (y - mean). Both factors are written out entry by entry: where the
covariance is the same for all records they are numbers that are computed once per sweep, and constants where
it is a constant; otherwise they are code of each record, or of each slot of a mixture.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg import MatrixInverse
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.random.basic import MvNormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.rewriting.linalg.decomposition import cholesky_ldotlt
from pytensor.tensor.variable import TensorVariable

# Numbers of a vector up to which its law is written out: the code grows with their third power.
LARGEST = 10

_RANDOM = (RandomVariable, SymbolicRandomVariable)

Triangle = list[list[TensorVariable]]


def is_multivariate_normal(rv: Variable) -> bool:
    """Whether the rows of a variable are multivariate normal, of a length that can be written out."""
    size = rv.type.shape[-1] if rv.owner is not None and isinstance(rv.owner.op, MvNormalRV) else None
    return size is not None and size <= LARGEST


def normal_logp(rv: Any, value: TensorVariable) -> TensorVariable:
    """Log density of the rows of a multivariate normal variable at a value."""
    mean, cov = rv.owner.op.dist_params(rv.owner)
    size = rv.type.shape[-1]
    factor = factor_of(cov, size, str(rv.name))
    inverse = inverse_of(factor)
    distance = [value[..., j] - mean[..., j] for j in range(size)]
    z = [sum_of([w * x for w, x in zip(row, distance, strict=False)]) for row in inverse]
    squares = sum_of([pt.sqr(x) for x in z])
    logp = -0.5 * size * np.log(2 * np.pi) - _log_det(inverse) - 0.5 * squares
    if _given_factor(cov) is None:
        return logp  # no number where the factor is none
    return check_parameters(logp, *(row[-1] > 0 for row in factor), msg="posdef covariance")


def with_known_factors(graphs: list[Any]) -> list[Any]:
    """Write the factor of a covariance L L' as L, in several graphs at once.

    PyTensor does so wherever it compiles a graph, and PyMC's condition on the covariance is then one on L,
    whose diagonal has to be positive. A graph that is changed before it is compiled has to keep that
    condition: L L' alone is a covariance for a negative scale, too. Random variables stay those that they
    are, with the parameters that they have: readers know them by their identity.
    """
    drawn = [v for v in ancestors(graphs) if v.owner is not None and isinstance(v.owner.op, _RANDOM)]
    stand_ins = {v: v.type() for v in drawn}
    graphs = list(graph_replace(graphs, stand_ins, strict=False))
    back: dict[Any, Any] = {stand_in: v for v, stand_in in stand_ins.items()}
    return list(graph_replace(_with_known_factors(graphs), back, strict=False))


def _with_known_factors(graphs: list[Any]) -> list[Any]:
    nodes = {v.owner for v in ancestors(graphs) if v.owner is not None and _is_cholesky(v.owner.op)}
    if not nodes:
        return graphs
    whole = FunctionGraph(outputs=graphs, clone=False)
    known = {node.outputs[0]: found[0] for node in nodes if (found := cholesky_ldotlt.transform(whole, node))}
    return list(graph_replace(graphs, known, strict=False)) if known else graphs


def _is_cholesky(op: Any) -> bool:
    return isinstance(getattr(op, "core_op", op), Cholesky)


def factor_of(cov: Any, size: int, name: str) -> Triangle:
    """Entries of the Cholesky factor of a stack of matrices, row by row up to the diagonal.

    Raises
    ------
    ValueError
        If the covariance is a constant and not positive definite.
    """
    if all(isinstance(v, Constant) for v in graph_inputs([cov])):
        try:
            value = cov.data if isinstance(cov, Constant) else cov.eval(mode="FAST_COMPILE")
            root = np.linalg.cholesky(value)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"The covariance of {name} is not positive definite: give a symmetric matrix with positive "
                "eigenvalues."
            ) from None
        return [[pt.constant(root[..., j, k], dtype="float64") for k in range(j + 1)] for j in range(size)]
    op = cov.owner.op if cov.owner is not None else None
    if isinstance(getattr(op, "core_op", op), MatrixInverse):  # the law is given by its precision
        inverse = inverse_of(root_of(_entries(cov.owner.inputs[0], size)))
        return root_of(
            [
                [sum_of([inverse[m][j] * inverse[m][k] for m in range(j, size)]) for k in range(j + 1)]
                for j in range(size)
            ]
        )
    given = _given_factor(cov)
    return root_of(_entries(cov, size)) if given is None else _entries(given, size)


def _given_factor(cov: Any) -> Any:
    """Return L of a covariance that was written as L L', None of any other."""
    (factor,) = with_known_factors([pt.linalg.cholesky(cov)])
    return None if factor.owner is not None and _is_cholesky(factor.owner.op) else factor


def _entries(matrix: Any, size: int) -> Triangle:
    return [[_entry(matrix, j, k) for k in range(j + 1)] for j in range(size)]


def _entry(matrix: Any, j: int, k: int) -> TensorVariable:
    """Entry of a stack of matrices, of a product the product of entries, whose signs are known then."""
    if isinstance(matrix, Constant):
        return pt.constant(matrix.data[..., j, k])
    node = matrix.owner
    if node is not None and isinstance(node.op, Elemwise):
        parts = [(v, v.type.broadcastable[-2:]) for v in node.inputs]
        return node.op(*(_entry(v, 0 if one else j, 0 if each else k) for v, (one, each) in parts))
    return matrix[..., j, k]


def root_of(matrix: Triangle) -> Triangle:
    """Cholesky factor of a matrix given by its entries up to the diagonal."""
    factor: Triangle = []
    for given in matrix:
        row: list[TensorVariable] = []
        for k, value in enumerate(given):
            above = row if k == len(factor) else factor[k]
            rest = value - sum_of([row[m] * above[m] for m in range(k)]) if k else value
            row.append(pt.sqrt(rest) if k == len(factor) else rest / above[k])
        factor.append(row)
    return factor


def inverse_of(factor: Triangle) -> Triangle:
    """Entries of the inverse of a triangular factor, row by row up to the diagonal."""
    if all(isinstance(v, Constant) and v.data.ndim == 0 for row in factor for v in row):
        root = np.array([[v.data for v in row] + [0.0] * (len(factor) - len(row)) for row in factor])
        inverse = np.linalg.inv(root)
        return [[pt.constant(inverse[j, k]) for k in range(j + 1)] for j in range(len(factor))]
    rows: Triangle = []
    for j, row in enumerate(factor):
        rows.append([-sum_of([row[m] * rows[m][k] for m in range(k, j)]) / row[j] for k in range(j)])
        rows[j].append(1.0 / row[j])
    return rows


def _log_det(inverse: Triangle) -> TensorVariable:
    """Logarithm of the determinant of a factor, from its inverse."""
    return -sum_of([pt.log(row[-1]) for row in inverse])


def sum_of(terms: list[Any]) -> Any:
    """Sum of at least one term, without the zero that Python's own begins with."""
    return sum(terms[1:], start=terms[0])
