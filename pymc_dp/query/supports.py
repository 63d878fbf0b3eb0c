"""Where the law of a record has its mass, and which queries are a record up to a clamp."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.truncated import TruncatedRV
from pymc.pytensorf import constant_fold, rvs_in_graph
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import (
    BernoulliRV,
    BinomialRV,
    CategoricalRV,
    GeometricRV,
    NegBinomialRV,
    PoissonRV,
)
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.query.readings import lift
from pymc_dp.query.records import parameters_of
from pymc_dp.upstream.pymc_private import _BaseMixtureRV, can_be_drawn

# Largest support of one variable that is tabulated or enumerated.
MAX_SUPPORT = 64
# Values of the parameters, drawn from their law, at which components of a mixture are compared.
_PLACES = 200
# Functions that are strictly monotone in each input.
_MONOTONE = (ps.Add, ps.Exp, ps.Log, ps.Neg, Sigmoid, ps.Sub, ps.Tanh)
# Functions that may have the same value at two places.
_FOLDS = (ps.Abs, ps.Sqr, ps.Pow, ps.Cosh)
# Modules whose distributions of real numbers are continuous; a user's own distribution need not be.
_CONTINUOUS = ("pymc.distributions.continuous", "pytensor.tensor.random.basic")


def finite_support(record: TensorVariable, largest: int = MAX_SUPPORT) -> np.ndarray | None:
    """Return the constant finite support of a record, if it is known and small."""
    ends = ends_of_support(record)
    return None if ends is None or ends[1] - ends[0] >= largest else np.arange(ends[0], ends[1] + 1)


def ends_of_support(law: Variable) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a law of whole numbers, if they are constants and known."""
    ends = ends_by_entry(law)
    return None if ends is None else (np.min(ends[0]), np.max(ends[1]))


def ends_by_entry(law: Variable) -> tuple[Any, Any] | None:
    """Return the same for each entry of a law, as numbers or arrays that broadcast to its shape."""
    op = law.owner.op if law.owner is not None else None
    if isinstance(op, BernoulliRV):
        return 0, 1
    if isinstance(op, PoissonRV | NegBinomialRV):
        return 0, np.inf
    if isinstance(op, GeometricRV):
        return 1, np.inf
    if isinstance(op, CategoricalRV):
        size = parameters_of(law)[0].type.shape[-1]  # type: ignore[attr-defined]
        return None if size is None else (0, size - 1)
    if isinstance(op, BinomialRV | DiscreteUniformRV):
        params = parameters_of(law)
        # constants only: a random number of trials would be drawn here, not known
        folded = constant_fold(params[: 1 if isinstance(op, BinomialRV) else 2], raise_not_constant=False)
        if not all(isinstance(end, np.ndarray) for end in folded):
            return None
        return (0, folded[0]) if isinstance(op, BinomialRV) else (folded[0], folded[1])
    return None


def has_density(rv: Variable) -> bool:
    """Whether a law is known to be continuous everywhere, without a value of positive probability.

    Where a law has such values (censoring, hurdles), PyMC's log density is a log probability there, which
    must not be compared with the density of a continuous proposal.
    """
    node = rv.owner
    if node is None or not rv.type.dtype.startswith("float"):  # type: ignore[attr-defined]
        return False
    op: Any = node.op
    if isinstance(op, _BaseMixtureRV):  # hurdles too
        return all(has_density(component) for component in parameters_of(rv)[1:])
    if isinstance(op, CustomSymbolicDistRV):  # PyMC's LogitNormal is one, too
        return _is_monotone(op.fgraph.outputs[node.outputs.index(rv)])
    return type(op.base_rv_op if isinstance(op, TruncatedRV) else op).__module__ in _CONTINUOUS


def _is_monotone(graph: Any) -> bool:
    """Whether a graph is a continuous law, or a strictly monotone function of one."""
    node = graph.owner
    if node is None or not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, _MONOTONE):
        return has_density(graph)
    laws = [v for v in node.inputs if rvs_in_graph([v])]
    return len(laws) == 1 and _is_monotone(laws[0])


def has_no_draws(rv: Variable) -> bool:
    """Whether a law was given by its log density alone."""
    op: Any = rv.owner.op if rv.owner is not None else None
    return isinstance(op, CustomDistRV) and not can_be_drawn(op)


def behind_atoms(rv: TensorVariable, variables: Collection[Variable]) -> list[Variable]:
    """Return the variables that say where a law of real numbers has values of positive probability.

    A density is a ratio of the law to a measure that counts these values. Where they depend on a variable, so
    does the measure, and densities of a value given two values of the variable are of different kinds.

    Such values are recognised by the log density, which has to ask whether a value is one of them: by an
    equation between the value and a number. An infinite number is none, and its equations guard logarithms.

    Parameters
    ----------
    rv : TensorVariable
        Record variable of a model.
    variables : collection of Variable
        Random variables of the model.
    """
    if has_density(rv) or not rv.type.dtype.startswith("float"):
        return []
    reading: Any = {v: v.type(name=v.name) for v in variables if v is not rv}
    value = rv.type()
    try:
        logp = pm.logp(lift(rv, reading), value)
    except NotImplementedError:
        return []  # no step can move a variable by a density that there is not
    found: set[Variable] = set()
    for graph in ancestors([logp]):
        node = graph.owner
        asks = (
            node is not None
            and isinstance(node.op, Elemwise)
            and isinstance(node.op.scalar_op, ps.EQ | ps.NEQ)
        )
        if asks and not any(np.isinf(_number(side) or 0.0) for side in node.inputs):
            compared = set(ancestors([graph]))
            found |= compared if value in compared else set()
    return [v for v, leaf in reading.items() if leaf in found]


def adds_to_atoms(rv: Variable, variables: Collection[Variable]) -> bool:
    """Whether PyMC adds a probability and a density in a law, or in one that it is made of.

    Parameters
    ----------
    rv : Variable
        Random variable, of a model or not.
    variables : collection of Variable
        Random variables of the model, whose laws are matters of their own.
    """
    for v in ancestors([rv], set(variables) - {rv}):
        if mixes_atoms(v):
            return True
        op: Any = v.owner.op if v.owner is not None else None
        if isinstance(op, CustomSymbolicDistRV):  # its law is a graph of its own
            graph = op.fgraph.unfreeze()
            if op.inline_logprob and any(map(_folds_atoms, ancestors(graph.outputs))):
                return True
            given = dict(zip(graph.inputs, v.owner.inputs, strict=True))  # type: ignore[union-attr]
            inner = graph_replace(graph.outputs, given, strict=False)
            if any(adds_to_atoms(law, variables) for law in inner):
                return True
    return False


def _folds_atoms(graph: Any) -> bool:
    """Whether two values of a law become one, where one may have a probability and the other a density."""
    node = graph.owner
    if node is None or not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, _FOLDS):
        return False
    return any(
        v.type.dtype.startswith("float") and rvs_in_graph([v]) and not _is_monotone(v) for v in node.inputs
    )


def mixes_atoms(rv: Any) -> bool:
    """Whether PyMC's log density of a mixture adds a probability and a density at some value.

    It adds the components' log densities, of which those with values of positive probability give a
    probability there. What another component gives at such a value must then be one, too, or zero.
    """
    node = rv.owner
    if node is None or not isinstance(node.op, _BaseMixtureRV):
        return False
    if not getattr(rv.type, "dtype", "").startswith("float"):  # whole numbers, or the generator behind them
        return False
    components = parameters_of(rv)[1:]
    places = [atoms_of(component) for component in components]
    known = [some for some in places if some is not None]
    if len(known) < len(places):
        return True
    if len(components) == 1:  # it stands for several, along its last axis
        return any(place.type.broadcastable[-1:] == (False,) for place in known[0])
    # an end of a support may be anywhere, and at a place for some parameters only
    density = [
        _has_density_at(place, other, own)
        for k, some in enumerate(known)
        for j, (other, own) in enumerate(zip(components, known, strict=True))
        for place in some
        if j != k
    ]
    return (
        any(np.any(drawn) for drawn in pm.draw(density, draws=_PLACES, random_seed=0)) if density else False
    )


def atoms_of(component: Any) -> list[Any] | None:
    """Return where a component of a mixture has values of positive probability, None if it is not known."""
    if has_density(component):
        return []
    op: Any = component.owner.op
    first, *others = parameters_of(component) or [None]
    if isinstance(op, DiracDeltaRV):
        return [first]
    if isinstance(op, CensoredRV):
        return others if has_density(first) else None
    if isinstance(op, _BaseMixtureRV) and len(others) > 1:  # hurdles too
        parts = [atoms_of(part) for part in others]
        return [place for part in parts for place in part or ()]
    return None


def _has_density_at(place: Any, component: Any, own: Collection[Any]) -> Variable:
    """Whether a component has a density at a place that is none of its own values of positive probability."""
    reached = pt.isfinite(place) & pt.gt(pm.logp(component, place, warn_rvs=False), -np.inf)
    for other in own:
        reached = reached & pt.neq(place, other)
    return reached


@dataclass(frozen=True)
class Clamped:
    """A query that is a record, or a record clamped to constants."""

    record: TensorVariable
    lo: float = -np.inf
    hi: float = np.inf


def clamped_record(query: Variable, records: Any) -> Clamped | None:
    """Return which record a query is, seen through casts of integers and clamps to constants."""
    lo, hi = -np.inf, np.inf
    while query not in records:
        node = query.owner
        if node is None or not isinstance(node.op, Elemwise):
            return None
        scalar, inner = node.op.scalar_op, node.inputs[0]
        if isinstance(scalar, ps.Cast) and _exact_cast(inner.type.dtype, query.type.dtype):  # type: ignore[attr-defined]
            pass
        elif isinstance(scalar, ps.Clip) and all(_number(v) is not None for v in node.inputs[1:]):
            # what is clipped here is clipped again by the ends found so far
            lo, hi = (float(np.clip(_number(v), lo, hi)) for v in node.inputs[1:])  # type: ignore[arg-type]
        else:
            return None
        query = inner
    return Clamped(query, lo, hi)  # type: ignore[arg-type]


def _exact_cast(old: str, new: str) -> bool:
    """Whether a cast changes no value: whole numbers may wrap around in few bits, and to bool all are 1."""
    return np.can_cast(old, new) or (np.dtype(old).kind in "iub" and np.dtype(new) == np.float64)


def _number(v: Variable) -> float | None:
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        v = v.owner.inputs[0]
    if isinstance(v, TensorConstant) and v.data.size == 1:
        return float(v.data.ravel()[0])
    return None
