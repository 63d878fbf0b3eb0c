"""Rows with a single 1: sums of such rows of people, how far one person moves them; products with them."""

import logging

import numpy as np
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import EQ, Cast
from pytensor.tensor.basic import ARange, Eye
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.query.sums import Total, read_sums
from pymc_dp.query.tablechanges import shared_total_sensitivity

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

# By kind of neighbours and order of the norm: what leaving a cell and entering another changes, or entering
# one.
_CHANGES = {
    ("replace-one", 1): 2.0,
    ("replace-one", 2): 2.0**0.5,
    ("add-remove", 1): 1.0,
    ("add-remove", 2): 1.0,
}


def change_of_one_choice(query: TensorVariable, order: int, neighbours: str) -> float | None:
    """Return how far one person moves a sum of rows with at most one 1; None where it may be none.

    Parameters
    ----------
    query : TensorVariable
        A sum such as ``dp.record_sum(pt.eye(K)[y])`` or ``dp.record_sum(pt.eq(y[:, None], np.arange(K)))``.
    order : {1, 2}
    neighbours : {"replace-one", "add-remove"}
    """
    reading, in_model = read_sums(query), bool(rvs_in_graph([query]))
    if (
        not isinstance(reading, Total)
        or reading.axes != (0,)
        or not _picks_one(reading.contributions, in_model)
    ):
        return None
    return _CHANGES[neighbours, order]


def tell_of_choices(query: TensorVariable, implied: float, order: int, neighbours: str) -> None:
    """Say where bounds allow one person to move a sum by more than picking one cell can."""
    change = change_of_one_choice(query, order, neighbours)
    if change is not None and change < implied * (1 - 1e-12):
        written = {1.0: "1", 2.0: "2"}.get(change, "2**0.5")
        _log.info(
            "The query adds up rows with a single 1 each, so that one person moves it by %s (L%d), and "
            "bounds allow %.4g, for which there is %.3g times as much noise. sensitivity=%s in place of "
            "bounds says so.",
            written, order, implied, implied / change, written,
        )  # fmt: skip


def change_of_one_person(query: TensorVariable, order: int, neighbours: str) -> float | None:
    """Return how far one person who is in one cell moves a query; None where people may be in several.

    Rows with a single 1 say so, and counts whose law has a known total.
    """
    change = change_of_one_choice(query, order, neighbours)
    return shared_total_sensitivity(query, order, neighbours) if change is None else change


def picked_by_product(node: Apply) -> tuple[Variable, np.ndarray] | None:
    """Return what a matrix product picks rows from, and which; None of other products.

    Its first factor is constant, each row of it with a single 1 among zeros, as ``np.eye(k)[group]``.
    """
    if not isinstance(getattr(node.op, "core_op", node.op), Dot):
        return None
    ones, source = node.inputs
    if not isinstance(ones, Constant) or ones.type.ndim != 2 or source.type.ndim != 2:  # type: ignore[attr-defined]
        return None
    entries = np.asarray(ones.data)
    if not (np.isin(entries, (0, 1)).all() and (entries.sum(axis=1) == 1).all()):
        return None
    return source, entries.argmax(axis=1)


def _picks_one(rows: Variable, in_model: bool) -> bool:
    """Whether each row of a matrix has at most one entry that is 1, and zeros."""
    node = rows.owner
    if node is None or rows.type.ndim != 2:  # type: ignore[attr-defined]
        return False
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Cast):
        return _picks_one(node.inputs[0], in_model)
    if isinstance(node.op, AdvancedSubtensor):
        whole = node.op.idx_list == (0,) and len(node.inputs) == 2
        return whole and node.inputs[1].type.ndim == 1 and _is_identity(node.inputs[0])
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, EQ):
        of_rows = [v for v in node.inputs if v.type.broadcastable == (False, True)]
        cells = [v for v in node.inputs if v.type.broadcastable == (True, False)]
        return len(of_rows) == len(cells) == 1 and _are_distinct(cells[0], in_model)
    return False


def _is_identity(matrix: Variable) -> bool:
    """Whether a matrix is written as an identity: values of others would have to be looked at."""
    if matrix.owner is None or not isinstance(matrix.owner.op, Eye):
        return False
    n, m, k = matrix.owner.inputs
    return all(isinstance(v, Constant) for v in (n, m, k)) and n.data == m.data and k.data == 0  # type: ignore[attr-defined]


def _are_distinct(cells: Variable, in_model: bool) -> bool:
    """Whether cells are told apart; of data, where any array may be confidential, if counted off."""
    while cells.owner is not None and isinstance(cells.owner.op, DimShuffle):
        cells = cells.owner.inputs[0]
    if cells.owner is not None:
        return isinstance(cells.owner.op, ARange)
    return in_model and isinstance(cells, Constant) and len(np.unique(cells.data)) == np.size(cells.data)
