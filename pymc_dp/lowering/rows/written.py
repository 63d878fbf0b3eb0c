"""Log densities without a shape or an index in their graphs, so that one row of them is scalar code."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import walk
from pytensor.tensor.random.basic import CategoricalRV, DirichletRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.functions.normals import is_multivariate_normal, normal_logp, sum_of
from pymc_dp.lowering.functions.truncated_masses import with_all_digits
from pymc_dp.lowering.rows.intervals import RANDOM
from pymc_dp.lowering.rows.rows import MAX_UNROLL, choose


def written_logp(rv: Any, value: Any = None) -> TensorVariable:
    """Log density of a variable's rows at a value, or at its own: a graph of the variable itself."""
    value = rv if value is None else value
    if is_multivariate_normal(rv):
        return normal_logp(rv, value)
    if (
        isinstance(rv.owner.op, CategoricalRV)
        and (rv.owner.inputs[-1].type.shape[-1] or np.inf) <= MAX_UNROLL
    ):
        return _category_logp(rv, value)
    if isinstance(rv.owner.op, DirichletRV) and (rv.type.shape[-1] or np.inf) <= MAX_UNROLL:
        return _dirichlet_logp(rv, value)
    return density_at(rv, value)


def density_at(rv: Any, value: Any) -> TensorVariable:
    """Log density of a variable at a value, or at itself, as a graph of the model's own variables.

    PyMC derives that of some laws (censored ones, a user's own graph of random variables) from a clone of all
    that is behind them, which would be drawn anew: inputs stand for the model's variables meanwhile. These
    have names; those without one are parts of the law.
    """
    node = rv.owner
    if not isinstance(node.op, SymbolicRandomVariable):
        return pm.logp(rv, value)
    stand_in = rv.clone()
    behind = {v: v.type(name=v.name) for v in walk(node.inputs, _before_variables) if _is_variable(v)}
    inputs = graph_replace(node.inputs, behind, strict=False) if behind else node.inputs
    law = node.clone_with_new_inputs(inputs, strict=False).outputs[node.outputs.index(rv)]
    back = {stand_in: value, **{v: variable for variable, v in behind.items()}}
    return graph_replace([pm.logp(with_all_digits(law), stand_in)], back, strict=False)[0]


def _is_variable(v: Variable) -> bool:
    return v.owner is not None and isinstance(v.owner.op, RANDOM) and v.name is not None


def _before_variables(v: Variable) -> list[Variable] | None:
    return None if v.owner is None or _is_variable(v) else v.owner.inputs


def _dirichlet_logp(rv: Any, value: TensorVariable) -> TensorVariable:
    """Log density of probabilities, up to where they are no probabilities: what is drawn always is."""
    (alpha,) = rv.owner.op.dist_params(rv.owner)
    each = [alpha[..., k] for k in range(rv.type.shape[-1])]
    terms = [pt.log(value[..., k]) * (a - 1.0) - pt.gammaln(a) for k, a in enumerate(each)]
    total = sum_of(terms) + pt.gammaln(sum_of(each))
    return check_parameters(total, *(a > 0 for a in each), msg="a > 0")


def _category_logp(rv: Any, value: TensorVariable) -> TensorVariable:
    """Log probability of a category, a choice among the logarithms of few probabilities."""
    (p,) = rv.owner.op.dist_params(rv.owner)
    k = p.type.shape[-1]
    inside = pt.and_(pt.ge(value, 0), pt.lt(value, k))
    chosen = choose(value, [p[..., j] for j in range(k)])
    logp = pt.switch(inside, pt.log(chosen), -np.inf)
    close = pt.isclose(pt.sum(p, axis=-1), 1)
    return check_parameters(logp, 0 <= p, p <= 1, close, msg="0 <= p <=1, sum(p) = 1")
