"""The two forms in which the law of an answer given the truth is kept, with the same functions.

`UniformLies` has one number, epsilon: an answer is the truth, or else one of the others, which are equally
probable. It costs O(1) however many categories there are, and lies may be rarer than numbers can say.
`AnswerTables` has the probability of each answer given each truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pytensor.graph.basic import Constant
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms import _response_draws
from pymc_dp.mechanisms._answers import draw_exactly
from pymc_dp.mechanisms._categories import rounded_table


class UniformLies:
    """Noise parameter: epsilon, of one person or of one table of counts."""

    of_record = "(),()->()"
    of_counts = "(k),(),()->(k)"
    native = staticmethod(_response_draws.report_of)
    native_counts = staticmethod(_response_draws.report_counts)

    @staticmethod
    def log_report(value: Any, truth: Any, epsilon: Any, k: int) -> TensorVariable:
        """Return the log probability of each report, which is a category."""
        # log of p_truth in a form that does not overflow, however large epsilon is
        return -pt.log1p((k - 1) * pt.exp(-epsilon)) - epsilon * pt.neq(value, truth)

    @staticmethod
    def log_reports(probs: Any, epsilon: Any) -> TensorVariable:
        """Return the log probability of each report of a person from a population."""
        other = pt.exp(-epsilon)[..., None]
        return pt.log(probs + other * (1 - probs)) - pt.log1p((probs.shape[-1] - 1) * other)

    @staticmethod
    def log_bits(epsilon: Any) -> TensorVariable:
        """Return the table of log probabilities of two answers."""
        truth = -pt.log1p(pt.exp(-epsilon))
        lie = truth - epsilon
        return pt.stack([pt.stack([truth, lie], axis=-1), pt.stack([lie, truth], axis=-1)], axis=-2)

    @staticmethod
    def draw(rng: np.random.Generator, truth: Any, epsilon: Any, k: int, size: Any) -> np.ndarray:
        """Draw reports with NumPy."""
        shape = np.broadcast_shapes(np.shape(truth), np.shape(epsilon)) if size is None else size
        truth = np.broadcast_to(np.asarray(truth, dtype=np.int64), shape)
        # other categories are the true one plus 1, ..., K - 1, modulo K
        others = (k - 1) * np.exp(-np.asarray(epsilon, dtype=float))
        # exp(-epsilon) may underflow to 0, but a report that never lies has no finite epsilon
        others = np.maximum(others, np.finfo(float).smallest_subnormal)
        lies = rng.random(shape) * (1 + others) < others
        moved = truth + rng.integers(1, k, size=shape)
        return np.where(lies, moved % k, truth)

    draw_for_release = draw

    @staticmethod
    def reports(probs: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
        """Return the probability of each report of a person from a population, up to a factor."""
        other = np.exp(-epsilon)[..., None]
        return probs * (1 - other) + other

    @staticmethod
    def likeliest(truth: Any, epsilon: Any) -> TensorVariable:
        """Return the likeliest report."""
        return pt.broadcast_arrays(truth, epsilon)[0]

    @staticmethod
    def expected(probs: Any, n: Any, epsilon: Any) -> TensorVariable:
        """Return counts near n times the probabilities."""
        return rounded_table(probs, n)

    @staticmethod
    def checked(density: TensorVariable, epsilon: Any) -> TensorVariable:
        """Return the density: its own checks suffice."""
        return density


class AnswerTables:
    """Noise parameter: probabilities, shape (K, A), of one person or of one table of counts."""

    of_record = "(),(k,a)->()"
    of_counts = "(k),(),(k,a)->(a)"
    native = staticmethod(lambda op: _response_draws.answer)
    native_counts = staticmethod(_response_draws.answer_counts)

    @staticmethod
    def log_report(value: Any, truth: Any, table: Any, k: int) -> TensorVariable:
        """Return the log probability of each answer."""
        return _log(entry(table, truth, value))

    @staticmethod
    def log_reports(probs: Any, table: Any) -> TensorVariable:
        """Return the log probability of each answer of a person from a population."""
        return _log(pt.sum(probs[..., None] * table, axis=-2))

    @staticmethod
    def log_bits(table: Any) -> TensorVariable:
        """Return the table of log probabilities."""
        return _log(table)

    @staticmethod
    def draw(rng: np.random.Generator, truth: Any, table: Any, k: int, size: Any) -> np.ndarray:
        """Draw answers with NumPy."""
        rows = _rows(truth, table, size)
        ends = rows.cumsum(axis=-1)
        drawn = (rng.random(rows.shape[:-1])[..., None] * ends[..., -1:] >= ends).sum(axis=-1)
        last = rows.shape[-1] - 1 - np.argmax(rows[..., ::-1] > 0, axis=-1)
        return np.minimum(drawn, last)  # a product that was rounded upwards may reach the last end

    @staticmethod
    def draw_for_release(rng: np.random.Generator, truth: Any, table: Any, k: int, size: Any) -> np.ndarray:
        """Draw answers for publication, without rounding."""
        rows = _rows(truth, table, size)
        return draw_exactly(rng, rows.reshape(-1, rows.shape[-1])).reshape(rows.shape[:-1])

    @staticmethod
    def reports(probs: np.ndarray, table: np.ndarray) -> np.ndarray:
        """Return the probability of each answer of a person from a population."""
        return (probs[..., None] * table).sum(axis=-2)

    @staticmethod
    def likeliest(truth: Any, table: Any) -> TensorVariable:
        """Return the likeliest answer."""
        best = pt.argmax(table, axis=-1)
        return entry(best[..., None], truth, pt.zeros_like(truth))

    @staticmethod
    def expected(probs: Any, n: Any, table: Any) -> TensorVariable:
        """Return counts near their means; the likeliest answer takes up the rounding, as it is possible."""
        shares = pt.sum(probs[..., None] * table, axis=-2)
        counts = pt.floor(shares * n[..., None])
        likeliest = pt.eq(pt.arange(table.shape[-1]), pt.argmax(shares, axis=-1, keepdims=True))
        left = n[..., None] - pt.sum(counts, axis=-1, keepdims=True)
        return pt.cast(counts + likeliest * left, "int64")

    @staticmethod
    def checked(density: TensorVariable, table: Any) -> TensorVariable:
        """Return the density, checked."""
        return checked_table(density, table)


FORMS: dict[int, Any] = {0: UniformLies, 2: AnswerTables}  # by the number of axes of the noise parameter


def entry(table: TensorVariable, row: Any, column: Any) -> TensorVariable:
    """Return the entry of each table in a row and a column, which are clipped to those that there are."""
    rows, columns = table.shape[-2], table.shape[-1]
    row = pt.clip(pt.cast(row, "int64"), 0, rows - 1)
    column = pt.clip(pt.cast(column, "int64"), 0, columns - 1)
    at, batch = row * columns + column, table.type.shape[:-2]
    # a length that is not 1 counts tables along its axis; one index is faster in machine code than several
    apart = [k for k, n in enumerate(batch) if n != 1]
    stride: Any = rows * columns
    for k in reversed(apart):
        steps = pt.arange(table.shape[k]) * stride
        at = at + pt.shape_padright(steps, len(batch) - 1 - k)
        stride = stride * table.shape[k]
    return table.reshape((-1,))[at]


def checked_table(density: TensorVariable, table: TensorVariable, power: Any = None) -> TensorVariable:
    """Check probabilities of answers, which may be random; those that are known have been checked.

    `power` makes probabilities of what the table holds, if it holds others.
    """
    if isinstance(without_axes(table), Constant):
        return density
    table = table if power is None else power(table)
    sums = pt.abs(pt.sum(table, axis=-1) - 1) < 1e-6
    return check_parameters(
        density,
        pt.all(table >= 0, axis=(-2, -1)) & pt.all(sums, axis=-1),
        msg="p_answer >= 0, rows of p_answer sum to 1",
    )


def without_axes(graph: Any) -> Any:
    """Return what a random variable was given, before it was cast and got leading axes."""
    while graph.owner is not None and len(graph.owner.inputs) == 1:
        graph = graph.owner.inputs[0]
    return graph


def _rows(truth: Any, table: Any, size: Any) -> np.ndarray:
    """Return the row of each person's truth."""
    truth, table = np.asarray(truth, dtype=np.int64), np.asarray(table, dtype=float)
    shape = np.broadcast_shapes(truth.shape, table.shape[:-2]) if size is None else tuple(size)
    truth, tables = np.broadcast_to(truth, shape), np.broadcast_to(table, (*shape, *table.shape[-2:]))
    return np.take_along_axis(tables, truth[..., None, None], axis=-2)[..., 0, :]


def _log(p: TensorVariable) -> TensorVariable:
    """Return the log of probabilities; at 0 it is minus infinity, but its derivative is not NaN."""
    none = pt.le(p, 0.0)
    return pt.switch(none, -np.inf, pt.log(pt.switch(none, 1.0, p)))
