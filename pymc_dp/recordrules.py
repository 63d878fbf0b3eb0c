"""What the variables around confidential records must be like, and how it is said when they are not."""

from collections.abc import Collection
from typing import Any

from pymc.model.core import Model
from pytensor.graph.basic import Variable

from pymc_dp.rowlocal import RowAnalysis, leaves_of, rule


def check_independent(model: Model, rv: Variable, analysis: RowAnalysis, n: int) -> None:
    """Refuse a record variable whose rows are not conditionally independent."""
    node = rv.owner
    assert node is not None
    transform = model.rvs_to_transforms.get(rv)
    if rv.type.ndim - (getattr(transform, "ndim_supp", 0) or 0) < 1:
        raise ValueError(
            f"The transform {transform.name} of {rv.name} ties its {n} rows together, so they are "
            "no independent records; leave `transform` out."
        )
    roles = [analysis.role(v) for v in node.inputs]
    free = all(r.kind == "free" for r in roles)
    placed = analysis.placements.get(rv)
    if placed is not None:
        free = all(r.kind == "free" or (r.kind == "row" and r.rows == placed) for r in roles)
    if free or (placed is None and rule(node.op, node, roles, analysis).kind == "row"):
        return
    raise ValueError(
        f"The rows of {rv.name} are not conditionally independent records: each of its {n} rows "
        "may depend on the same row of other records and on parameters only (no lag, cumulative "
        "sum, mean over records, random walk or Gaussian process along the record axis)."
    )


def check_child(model: Model, term: Variable, records: Collection[Variable], analysis: RowAnalysis) -> None:
    """Refuse a child of the records that has no row for each of them, or no value of its own."""
    node = term.owner
    assert node is not None
    if rule(node.op, node, [analysis.role(v) for v in node.inputs], analysis).kind != "row":
        raise ValueError(
            f"{term.name} depends on several records at once. A variable that depends on the "
            f"records {named(records)} must have one row per record; write a statistic of all "
            "of them as a release."
        )
    transform = model.rvs_to_transforms.get(term)
    if transform is None:
        return
    natural = transform.backward(model.rvs_to_values[term], *node.inputs)
    if set(leaves_of([natural], set(model.basic_RVs))) & set(records):
        raise ValueError(
            f"{term.name} is sampled between ends that are records ({named(records)}), so that it would move "
            f"with them. Write it as a share of them, for example pm.Deterministic({term.name!r}, lower + "
            "(upper - lower) * pm.Uniform('share', 0, 1, ...)), or give it transform=None."
        )


def named(variables: Any) -> str:
    """Names of some variables, in a sentence."""
    return ", ".join(sorted(str(v.name) for v in variables))
