"""What releases of slots must be like, of which an unknown number are people, and how it is said."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from pymc.model.core import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import ARange
from pytensor.tensor.math import Sum
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.counts import counted_rows
from pymc_dp.query.rowlocal import RowAnalysis
from pymc_dp.query.rowrules import Role


def counts_behind(query: Variable, variables: Collection[Variable]) -> list[TensorVariable | None]:
    """Return the variables that count the people of sums over a leading axis, None where all rows count."""
    found: list[TensorVariable | None] = []
    for v in ancestors([query], blockers=variables):
        op = getattr(v.owner, "op", None)
        if isinstance(op, Sum) and (op.axis is None or 0 in op.axis):
            counted = counted_rows(v.owner.inputs[0])  # type: ignore[union-attr]
            found.append(None if counted is None or counted.count not in variables else counted.count)
    return found


def count_of_people(
    model: Model, releases: Sequence[tuple[str, Variable, str]], records: Sequence[Variable], n: int
) -> TensorVariable | None:
    """Return the variable that counts the people among some records, and refuse what would not fit it.

    Parameters
    ----------
    model : pymc.Model
    releases : sequence of (str, Variable, str)
        Name, query and kind of each release of the records.
    records : sequence of Variable
    n : int
        Number of slots.

    Raises
    ------
    ValueError
        If one release counts people and another one all slots, or others; if slots differ by what is known
        of them; or if the records are released one by one.
    """
    variables = set(model.basic_RVs)
    counts = {name: counts_behind(query, variables) for name, query, _ in releases}
    known = {v for found in counts.values() for v in found if v is not None}
    if not known:
        return None
    count, *others = sorted(known, key=lambda v: str(v.name))
    names = ", ".join(str(v.name) for v in records)
    if others:
        raise ValueError(
            f"The releases of {names} count people by {count.name} and by {others[0].name}: the records of "
            "one block are the same people. Give count= the same variable in every dp.record_sum, or release "
            "what is about different people separately."
        )
    for name, _, kind in releases:
        if kind not in ("central", "function"):
            raise ValueError(
                f"{name} releases the records {names} one by one, or is no function of sums of them, but how "
                f"many are people is unknown ({count.name}): a release by each person shows how many there "
                "are. Give the records that many rows and leave count= out."
            )
        if None in counts[name] or not counts[name]:
            raise ValueError(
                f"{name} adds up all {n} slots of {names}, and another release the first {count.name} only: "
                f"slots without a person would be in it. Write dp.record_sum(t, count={count.name})."
            )
    rows = [v for _, query, _ in releases for v in _summed(query, variables)]
    laws = [v for rv in records for v in rv.owner.inputs]  # type: ignore[union-attr]
    for v in ancestors([*rows, *laws], blockers=variables):
        if _differs_by_slot(v, n, model) and _runs_along_the_slots(v, [*rows, *laws], records, n, variables):
            what = f"{v.name or 'a constant'} of shape {v.type.shape}"  # type: ignore[attr-defined]
            raise ValueError(
                f"The records {names} are slots, of which the first {count.name} are people, but {what} "
                "differs between slots, so that the first people would be others than the last. Covariates "
                "that are known for each person say how many people there are: leave count= out. Those that "
                "are not known are records themselves, with a law."
            )
    return count


def _runs_along_the_slots(
    v: Variable,
    graphs: Sequence[Variable],
    records: Sequence[Variable],
    n: int,
    variables: Collection[Variable],
) -> bool:
    """Whether rows of some graphs are computed from a row each of an array."""
    for graph in (g for g in graphs if v in set(ancestors([g], blockers=variables))):
        analysis = RowAnalysis(records, n, variables)
        analysis.roles[v] = Role("row", 0)
        if analysis.role(graph).kind == "row":
            return True
    return False


def _summed(query: Variable, variables: Collection[Variable]) -> list[Variable]:
    """Return what counted sums add up, without what tells people from empty slots."""
    found: list[Variable] = []
    for v in ancestors([query], blockers=variables):
        if v.owner is not None and isinstance(v.owner.op, Sum):
            counted = counted_rows(v.owner.inputs[0])
            found += [] if counted is None else [counted.rows]
    return found


def _differs_by_slot(v: Variable, n: int, model: Model) -> bool:
    """Whether an array, the index of slots, or data that are observed have n rows that are not all equal."""
    shape = getattr(v.type, "shape", ())
    if not shape or shape[0] not in (None, n) or n < 2:
        return False
    if v in model.observed_RVs:
        return True
    if v.owner is not None:
        return isinstance(v.owner.op, ARange)
    value = v.data if isinstance(v, Constant) else v.get_value() if isinstance(v, SharedVariable) else None
    return isinstance(value, np.ndarray) and len(value) == n and bool((np.diff(value, axis=0) != 0).any())
