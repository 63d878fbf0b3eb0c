"""Which rows of a query of data are whose, read off its graph.

In a model the records are random variables. In a query of data any array may hold them, and nothing of that
follows from lengths: a group may have one person, or as many as there are columns. So three rules decide,
whatever the lengths are:

* the leading axis of an array of data is that of the people, also where there is one of them, or none;
* every array has to be along the rows of the query, person i in row i only, and is not repeated over them;
* an array along other axes (thresholds, weights) could hold the people as well as the one along the rows. It
  is public where :func:`pymc_dp.record_sum` says which axis is that of the people, and refused elsewhere. One
  with a single row is refused there too: that may be the only person of a group.
"""

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.query.lengths import lengths_of
from pymc_dp.query.publicshapes import data_behind, may_hold_data
from pymc_dp.query.rowlocal import RowAnalysis
from pymc_dp.query.rowrules import Role

_WITH_NUMPY = "compute that part with NumPy before, so that the query is of one array with a row per person"
_MIXED = (
    "the rows of an array of data are mixed, picked, repeated, added up or not those of the query: "
    + _WITH_NUMPY
)
_HIDDEN = "an operation in it may hold data that are not seen: " + _WITH_NUMPY
_NO_DATA = "no array of data has its leading axis along that of the query: " + _WITH_NUMPY
_UNKNOWN = "an input of it has no value: pass data"
_UNEQUAL = "arrays of data along its rows have different numbers of rows: give each the same people"
_BESIDE = (
    "beside the array along its rows there is one along other axes, and which of them holds the people "
    "cannot be told: add up with dp.record_sum(...), over the axis of the people, or " + _WITH_NUMPY
)
_ONE_ROW = (
    "an array along other axes has one row, or none, which may be that of the only person: write a number "
    "as a number instead of an array, or " + _WITH_NUMPY
)


def fault_in_rows(t: TensorVariable, declared: bool = False) -> str | None:
    """Return why rows of a query of data are not one person's each, with a remedy; None where they are.

    Parameters
    ----------
    t : TensorVariable
        With the rows along its leading axis.
    declared : bool, default False
        Whether somebody said that this axis is that of the people (:func:`pymc_dp.record_sum`).

    Returns
    -------
    str or None
    """
    if t.ndim == 0:
        return _MIXED
    bare: Variable = t
    while bare.owner is not None and isinstance(bare.owner.op, Elemwise) and len(bare.owner.inputs) == 1:
        bare = bare.owner.inputs[0]
    if bare.owner is None:  # row by row, whatever is computed of each entry
        return None
    if any(v.owner is not None and may_hold_data(v.owner.op) for v in ancestors([t])):
        return _HIDDEN
    data = data_behind(t)
    if any(_is_input(v) and None in v.type.shape for v in data):
        return _UNKNOWN
    along, beside = [], []
    for v in data:
        role = _role(t, [v])
        if is_row_by_row(role):
            along.append(v)
        elif role.kind == "row" and role.axis != 0:
            beside.append(v)
        else:
            return _MIXED
    if not along:
        return _NO_DATA
    if len({lengths_of(v)[0] for v in along}) > 1:
        return _UNEQUAL
    joint = _role(t, along)
    if not is_row_by_row(joint) or lengths_of(t)[0] != number_of_rows(joint, lengths_of(along[0])[0]):
        return _MIXED
    if beside and not declared:
        return _BESIDE
    return _ONE_ROW if any(lengths_of(v)[0] <= 1 for v in beside) else None


def is_row_by_row(role: Role) -> bool:
    """Whether a role is that of rows, none of which holds two records, and no record two of them."""
    once = role.rows is None or len(set(role.rows)) == len(role.rows)
    return role.kind == "row" and role.axis == 0 and once


def number_of_rows(role: Role, n: int) -> int:
    """Return how many rows a role has, of `n` records."""
    return n if role.rows is None else len(role.rows)


def _role(t: TensorVariable, people: list[TensorVariable]) -> Role:
    return RowAnalysis(people, lengths_of(people[0])[0], people, of_data=True).role(t)


def _is_input(v: Variable) -> bool:
    """Whether a variable stands for data that are given when a graph is evaluated."""
    return not isinstance(v, TensorConstant | TensorSharedVariable)
