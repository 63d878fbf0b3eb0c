"""People taken together: sums over them, groups with the same public rows, and graphs of other rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
from pymc.model.core import Model
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.builders import SymbolicOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, walk_toposort
from pytensor.tensor.math import Sum

from pymc_dp.query.readings import AS_WRITTEN
from pymc_dp.query.records import Release

NO_FUNCTION = "what people add is no function of their categories and groups alone"
NOT_OF_ROWS = "what people add is no function of their own rows alone"


class NotTogether(ValueError):
    """Why people are not taken together; the message goes on after 'because'."""


def sums_over(query: Variable, records: Sequence[Variable], release: Release) -> list[Variable]:
    """Return the sums over people in a query, which must be all that it sees of their records."""
    found = [
        v
        for v in ancestors([query], blockers=records)
        if v.owner is not None
        and isinstance(v.owner.op, Sum)
        and (v.owner.op.axis is None or 0 in v.owner.op.axis)
        and not set(records).isdisjoint(ancestors([v.owner.inputs[0]]))
    ]
    outer = [v for v in found if not any(v in ancestors([w.owner.inputs[0]]) for w in found if w is not v)]
    left = with_replaced(query, {v: v.type() for v in outer})
    if not set(records).isdisjoint(ancestors(left)):
        raise NotTogether(
            f"{release.name} sees people one by one, not through sums alone (write these as "
            "dp.record_sum(x), of matrices and groups as dp.record_sum(x[:, None] * weights))"
        )
    return outer


def public_rows(graphs: Sequence[Variable], n: int, model: Model) -> list[Constant]:
    """Return the arrays with a row for each person, of what is public."""
    variables = set(model.basic_RVs)
    return [
        v
        for v in dict.fromkeys(ancestors(graphs, blockers=variables))
        if isinstance(v, Constant) and isinstance(v.data, np.ndarray) and v.data.ndim and len(v.data) == n
    ]


def set_anew(graphs: Sequence[Variable], n: int, model: Model) -> Variable | None:
    """Return data with a row for each person, of which no groups follow since they may change."""
    variables = set(model.basic_RVs)
    for v in ancestors(graphs, blockers=variables):
        if isinstance(v, SharedVariable) and np.shape(v.get_value(borrow=True))[:1] == (n,):
            return v
    return None


def groups_of(public: Sequence[Constant], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each person, and the first person of each group."""
    if not public:
        return np.zeros(n, dtype=np.intp), np.zeros(1, dtype=np.intp)
    columns = [np.unique(v.data.reshape(n, -1), axis=0, return_inverse=True)[1].ravel() for v in public]
    _, first, group = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return group.ravel(), first


def graph_of_rows(graph: Variable, replaced: dict[Any, Any]) -> Any:
    """Return a graph of other rows, built anew: lengths that were known are others now."""
    again, kept = dict(replaced), rvs_in_graph([graph])
    try:
        for v in walk_toposort([graph], lambda v: v.owner.inputs if v.owner and v not in kept else ()):
            node = v.owner
            if node is None or v in kept or v in again or not any(i in again for i in node.inputs):
                continue
            inputs = [again.get(i, i) for i in node.inputs]
            if isinstance(node.op, SymbolicOp):  # which holds a graph for the lengths that it was built for
                outputs = node.op(*inputs, return_list=True)
            else:
                outputs = node.clone_with_new_inputs(inputs, strict=False).outputs
            again.update(zip(node.outputs, outputs, strict=True))
    except (TypeError, ValueError, IndexError) as error:
        raise NotTogether(f"{NO_FUNCTION} ({error})") from error
    return again.get(graph, graph)


def with_replaced(graph: Variable, replaced: dict[Any, Any]) -> list[Any]:
    """Replace variables in a graph; with none, PyTensor would return a copy."""
    return graph_replace([graph], replaced, strict=False) if replaced else [graph]


def values_as_written(graphs: Sequence[Any], otherwise: str) -> list[np.ndarray]:
    """Return the values of graphs of constants, whose lengths may not go together: why not is said then."""
    try:
        return list(map(np.asarray, pytensor.function([], list(graphs), mode=AS_WRITTEN)()))
    except (TypeError, ValueError, AssertionError, IndexError, MemoryError) as error:
        raise NotTogether(f"{otherwise} ({error})") from error
