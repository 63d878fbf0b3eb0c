"""Whether row i of a query is computed from record i only, in a model and in a query of data."""

from collections.abc import Collection

from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.contributions import says_its_records
from pymc_dp.query.datarows import fault_in_rows, is_row_by_row, number_of_rows
from pymc_dp.query.lengths import joined_lengths, lengths_of
from pymc_dp.query.rowlocal import RowAnalysis, leaves_of

_MIXED = (
    "rows mix several records, repeat one, or are along another axis than the leading one of the records: "
    "write them so that row i is computed from record i"
)
_TOTALS = "rows are computed from a dp.record_sum, which leaves no records: release that sum itself"


def is_local(t: TensorVariable) -> bool:
    """Whether row i of `t` is computed from row i of the variables that have its leading axis.

    Which of several variables hold the records is not known, so that the verdict must hold whichever
    do: another one may at most be broadcast along axes of its own. Without random variables these are
    the arrays of data behind `t`; see :mod:`pymc_dp.query.datarows`.
    """
    return fault_in_locality(t) is None


def fault_in_locality(t: TensorVariable, declared: bool = False) -> str | None:
    """Return why rows are not one record's each; `declared` says that their axis is that of the people."""
    variables = {v for v in rvs_in_graph([t]) if isinstance(v, TensorVariable)}
    if _adds_up_records(t, variables):
        return _TOTALS
    if not variables:
        return fault_in_rows(t, declared)
    return None if t.ndim and _is_local_in_records(t, variables) else _MIXED


def _adds_up_records(t: TensorVariable, variables: Collection[Variable]) -> bool:
    """Whether `t` has a sum behind it that was said to be over the records, which leaves no rows."""
    totals = [v for v in ancestors([t], blockers=variables) if says_its_records(v)]
    return bool(totals) and (not variables or bool(leaves_of(totals, variables)))


def _is_local_in_records(t: TensorVariable, variables: Collection[Variable]) -> bool:
    lengths = {
        v: lengths_of(v)[0]
        for v in leaves_of([t], variables)
        if v.owner is not None and v.type.ndim - getattr(v.owner.op, "ndim_supp", 0) >= 1
    }
    lengths.update(joined_lengths([t], variables))  # type: ignore[arg-type]
    roles = {
        n: RowAnalysis({v for v in lengths if lengths[v] == n}, n, variables).role(t)
        for n in set(lengths.values())
    }
    rows = {n: role for n, role in roles.items() if role.kind != "free"}
    if not rows or not all(map(is_row_by_row, rows.values())):
        return False
    # where PyTensor does not know the length, one record could be repeated over many rows
    return t.type.shape[0] is not None or {number_of_rows(role, n) for n, role in rows.items()} == {
        lengths_of(t)[0]
    }
