"""Probabilities of the answers given the truth, as an argument: checked, what they promise, exact draws.

Rows are truths, columns answers: each row is the law of what a person with this truth says.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.mechanisms._checks import as_variable, fits
from pymc_dp.privacy.exact_noise import Words, words_from
from pymc_dp.privacy.guarantee import PrivacyGuarantee
from pymc_dp.query.lengths import known_lengths

_ROUNDING = 1e-6  # of the sum of a row
_WORD = 64
RANDOM = "p_answer is itself random, or can be set anew: give known probabilities for a guarantee"


@dataclass(frozen=True)
class AnswerTable:
    """Probabilities of answers.

    Attributes
    ----------
    table : TensorVariable, shape (..., K, A)
        With leading axes, one table for each person, or for each table of counts.
    known : ndarray or None
        The same as numbers, whose rows sum to 1; None where they are a graph.
    """

    table: TensorVariable
    known: np.ndarray | None

    @property
    def n_truths(self) -> int:
        """Number K of rows."""
        return int(self.table.type.shape[-2])  # type: ignore[arg-type]

    @property
    def n_answers(self) -> int:
        """Number A of columns."""
        return int(self.table.type.shape[-1])  # type: ignore[arg-type]

    @property
    def why_none(self) -> str | None:
        """Why there is no guarantee; None where there is one."""
        return RANDOM if self.known is None else _ruled_out(self.known)

    @property
    def guarantee(self) -> PrivacyGuarantee | None:
        """The guarantee for each person; None where there is none."""
        if self.known is None or self.why_none is not None:
            return None
        return PrivacyGuarantee(log_ratio(self.known))

    def never(self) -> np.ndarray | None:
        """Return which answers nobody gives, shape (..., A); None where that is not known."""
        return None if self.known is None else ~(self.known > 0).any(axis=-2)

    def check_batch(self, one_per: TensorVariable, each: str) -> None:
        """Refuse leading axes that are not those of the query: more tables would be more releases."""
        batch, shape = self.table.type.shape[:-2], one_per.type.shape
        if batch and None in shape:  # unknown in the graph of a law, which releases nothing
            shape = known_lengths(one_per) or shape
        if not fits(batch, shape):
            raise ValueError(
                f"p_answer has shape {self.table.type.shape}, which is more than one table of truths by "
                f"answers for each {each}, of which there are {shape}: give one table, or one for each."
            )


def answer_table(p_answer: Any, dtype: str = "float64") -> AnswerTable:
    """Check probabilities of answers given the truth.

    Parameters
    ----------
    p_answer : tensor_like, shape (..., K, A)
    dtype : str
        Of the result.

    Raises
    ------
    TypeError
        They are no real numbers.
    ValueError
        They are no table of two truths or more, or not the laws of two answers or more.
    """
    try:
        tensor = as_variable(_stacked(p_answer))
        kind = np.dtype(tensor.type.dtype).kind
    except (TypeError, ValueError, NotImplementedError):  # also rows of different lengths
        kind = ""
    rows = p_answer if isinstance(p_answer, list | tuple) else [p_answer]
    if kind not in ("i", "u", "f") or any(map(np.ma.isMaskedArray, rows)):
        raise TypeError(
            "p_answer must be a table of real numbers, the probabilities of the answers (columns) for each "
            f"truth (rows), got {type(p_answer).__name__}."
        )
    shape = tensor.type.shape
    if len(shape) < 2 or any(n is not None and n < 2 for n in shape[-2:]):
        raise ValueError(
            f"p_answer has shape {shape}, but must have a row for each of two or more truths and a column "
            "for each of two or more answers, as [[5/6, 1/6], [2/6, 4/6]]."
        )
    if None in shape[-2:]:
        raise ValueError(
            f"p_answer has shape {shape}, which does not tell how many truths and answers there are: give "
            "pt.specify_shape(p_answer, (K, A))."
        )
    if not isinstance(tensor, TensorConstant):
        return AnswerTable(pt.cast(tensor, dtype), None)
    known = np.asarray(tensor.data, dtype=float)
    totals = known.sum(axis=-1, keepdims=True)
    _check_numbers(known, totals[..., 0])
    # what is promised is the ratio of the numbers that are drawn by, which may be of single precision
    rounded = (known / totals).astype(dtype)
    return AnswerTable(pt.constant(rounded), rounded.astype(float))


def _stacked(rows: Any) -> Any:
    """Return nested lists with tensors among the numbers as a tensor; PyTensor takes lists of one level."""
    if not isinstance(rows, list | tuple):
        return rows
    parts = [_stacked(row) for row in rows]
    return pt.stack(parts) if any(isinstance(part, Variable) for part in parts) else rows


def _check_numbers(known: np.ndarray, totals: np.ndarray) -> None:
    wrong = ~((known >= 0) & (known <= 1 + _ROUNDING))  # also NaN
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"p_answer has {known[at]:g} at index {at}, which is no probability: numbers from 0 to 1."
        )
    off = np.abs(totals - 1) > _ROUNDING
    if off.any():
        at = tuple(int(i) for i in np.argwhere(off)[0])
        hint = "divide each row by its sum if it is rounded"
        if (np.abs(known.sum(axis=-2) - 1) <= _ROUNDING).all():
            hint = "its columns do, so that it may have to be transposed"
        raise ValueError(
            f"Row {at[-1]} of p_answer{_of_table(at[:-1])} sums to {totals[at]:.9g}, but p_answer[c, k] is "
            f"the probability of answer k where the truth is c, so that each row sums to 1: {hint}."
        )


def _of_table(at: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, at))}]" if at else ""


def _ruled_out(known: np.ndarray) -> str | None:
    """Say which answer rules out a truth, if one does."""
    ruled_out = (known == 0) & (known > 0).any(axis=-2, keepdims=True)
    if not ruled_out.any():
        return None
    *_, truth, answer = (int(i) for i in np.argwhere(ruled_out)[0])
    return (
        f"answer {answer} is never given where the truth is {truth}, but where it is another, so that it "
        "rules a truth out, which no epsilon covers; its posterior is right all the same"
    )


def log_ratio(known: np.ndarray) -> float:
    """Return the largest log ratio of an answer's probabilities under two truths, never too small.

    Answers that nobody gives do not count. Where laws differ, the result is rounded upwards, by more than the
    rounding of sums of rows, of ratios and of logarithms.
    """
    highest, lowest = known.max(axis=-2), known.min(axis=-2)
    if np.array_equal(highest, lowest):
        return 0.0
    given = highest > 0
    high, low = np.log(highest[given]), np.log(lowest[given])
    rounding = np.finfo(float).eps * (2 * known.shape[-1] + 4 + 2 * float(np.abs(low).max()))
    return float((high - low).max() + rounding)


def draw_exactly(generator: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    """Draw an answer from each row, in integer arithmetic, with the ratios of the numbers in it.

    Parameters
    ----------
    generator : numpy.random.Generator
    rows : ndarray, shape (m, A)
        Probabilities, taken as the binary fractions that they are, and divided by their exact sum.

    Returns
    -------
    ndarray of int64, shape (m,)
    """
    laws, which = np.unique(rows, axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    people = np.split(order, np.cumsum(np.bincount(which.ravel(), minlength=len(laws)))[:-1])
    words, found = words_from(generator), np.empty(len(rows), dtype=np.int64)
    for law, own in zip(laws.tolist(), people, strict=True):
        weights = [Fraction(p) for p in law]
        ends = np.cumsum(np.array(weights, dtype=object)) / sum(weights)
        found[own] = _by_inversion([end for end in ends[:-1] if end < 1], own.size, words)
    return found


def _by_inversion(ends: list[Fraction], count: int, words: Words) -> np.ndarray:
    """Return how many of some ascending numbers below 1 uniform numbers reach.

    The first 64 binary digits of a uniform number are compared. Further digits are drawn only where these
    agree with an end's, which has probability 2^-64.
    """
    digits = [(end * 2**_WORD).__floor__() for end in ends]
    known, first = np.array(digits, dtype=np.uint64), words(count)
    reached = np.searchsorted(known, first, side="right")
    for i in np.flatnonzero(np.isin(first, known)):
        at = int(first[i])
        rest = [end * 2**_WORD - at for end, d in zip(ends, digits, strict=True) if d == at]
        reached[i] = sum(d < at for d in digits) + _by_inversion(rest, 1, words)[0]
    return reached
