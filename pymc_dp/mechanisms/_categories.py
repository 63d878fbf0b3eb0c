"""Categories, bits and counts as arguments: their number, and which values are possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Cast
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._checks import fits, known_values
from pymc_dp.mechanisms._integers import not_whole
from pymc_dp.query.locality import is_local
from pymc_dp.query.supports import ends_of_support


def number_of_categories(query: TensorVariable, given: Any = None) -> int:
    """Return the number of categories: the given one, or that of the categorical variable behind a query."""
    known = categories_of(query)
    if given is None:
        if known is None:
            reason = not_whole(query) if rvs_in_graph([query]) else None
            if reason is not None:
                raise ValueError(
                    f"query must hold the category of each person, a whole number, but {reason}: pass "
                    "records such as those of pm.Bernoulli or pm.Categorical. If it holds the probabilities "
                    "of all categories, give n=, the number of people, and observe counts of reports."
                )
            raise ValueError(
                "n_categories cannot be told from the query: it is known for a Categorical variable whose "
                "probabilities have a length known in advance, and for a Bernoulli variable. Give "
                "n_categories=."
            )
        return known
    if isinstance(given, bool | np.bool_) or not isinstance(given, int | np.integer):
        raise TypeError(f"n_categories must be a whole number, got {given!r}.")
    if given < 2:
        raise ValueError(f"n_categories must be at least 2, got {given}: one category needs no privacy.")
    if known is not None and known > given:
        raise ValueError(
            f"n_categories = {given} contradicts the query, which has {known} categories: give at least "
            "that many, or leave n_categories out."
        )
    return int(given)


def categories_of(query: Variable) -> int | None:
    """Return the number of categories of the variable behind a query, if it is known."""
    law = _law_behind(query)
    if law.owner is None:
        return None
    if isinstance(law.owner.op, BernoulliRV):
        return 2
    if isinstance(law.owner.op, CategoricalRV):
        return law.owner.op.dist_params(law.owner)[0].type.shape[-1]
    return None


def _law_behind(query: Variable) -> Variable:
    """Return what a query is of as it is, or in part."""
    while query.owner is not None:
        if not _is_cast(query.owner.op) and not isinstance(query.owner.op, Subtensor | AdvancedSubtensor):
            return query
        query = query.owner.inputs[0]
    return query


def _is_cast(op: Any) -> bool:
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, Cast)


def check_query(query: TensorVariable, n_categories: int) -> None:
    """Refuse a query that is not a vector with one category per person."""
    if query.ndim > 1:
        raise ValueError(
            f"query has {query.ndim} axes, but each person has one category: give one category, or one per "
            "person, and release several questions one by one (each spends its own budget)."
        )
    if query.ndim and not is_local(query):
        raise ValueError(
            "query must hold the category of person i in row i, but its rows mix several persons or repeat "
            "one, so that the promise to each of them would not hold: pass the categories themselves."
        )
    source: Variable = query
    while source.owner is not None and _is_cast(source.owner.op):
        source = source.owner.inputs[0]
    if isinstance(source, Constant):
        check_categories("query", source.data, n_categories)
    if not rvs_in_graph([query]):
        return  # data, whose values are checked when they are known
    reason = not_whole(query)
    if reason is not None:
        raise ValueError(
            f"query must hold categories, whole numbers 0, ..., {n_categories - 1}, but {reason}: let it say "
            "in which category each person is, as pt.cast(x > 0, 'int64') or a sum of such comparisons does."
        )
    law = _law_behind(query)
    ends = ends_of_support(law)
    if ends is not None and not 0 <= ends[0] <= ends[1] < n_categories:
        name, upto = law.name or "its law", "..." if np.isinf(ends[1]) else f"..., {ends[1]:g}"
        raise ValueError(
            f"query has the values {ends[0]:g}, {upto} of {name}, but categories are 0, ..., "
            f"{n_categories - 1}: number them from 0, give n_categories= for all, or let the last one stand "
            f"for the rest, as dp.clamp({law.name or 'query'}, 0, {n_categories - 1}) does."
        )


def check_categories(name: str, values: Any, n_categories: int) -> None:
    """Refuse known values that are not whole numbers 0, ..., n_categories - 1."""
    what = f"a category 0, ..., {n_categories - 1}"
    remedy = "Number the categories from 0, and give n_categories= if there are more."
    _check_whole(name, values, 0, n_categories - 1, what, remedy)


def check_answers(name: str, values: Any, n_answers: int) -> None:
    """Refuse known values that are not whole numbers 0, ..., n_answers - 1."""
    what = f"an answer 0, ..., {n_answers - 1}"
    remedy = "Number the answers as the columns of p_answer, from 0."
    _check_whole(name, values, 0, n_answers - 1, what, remedy)


def check_possible(name: str, values: Any, never: np.ndarray | None, *, counts: bool) -> None:
    """Refuse answers that nobody gives, which have no probability under any truth; or counts of these."""
    known = known_values(values)
    if known is None or never is None or not never.any():
        return
    if not counts:
        known = known[..., None] == np.arange(never.shape[-1])
    try:
        wrong = np.argwhere((known > 0) & never)
    except ValueError:  # wrong shapes are refused elsewhere
        return
    if len(wrong):
        at, answer = tuple(int(i) for i in wrong[0][:-1]), int(wrong[0][-1])
        where = f" at index {at}" if at else ""
        raise ValueError(
            f"{name} has answer {answer}{where}, which p_answer makes impossible whatever the truth is (its "
            "column is 0): give it the probabilities that it had, or mend the answer."
        )


def check_rows(rows: int, known: int | None, what: str) -> int:
    """Return the number of rows of a table of answers, which must be that of the categories if known."""
    if known is not None and known != rows:
        raise ValueError(
            f"p_answer has {rows} rows, but {what} {known} categories: give a row for each, the "
            "probabilities of the answers of a person with that truth."
        )
    return rows


def check_bits(name: str, values: Any) -> None:
    """Refuse known values other than 0 and 1."""
    remedy = "Pass the bits as they were published, or declare their totals with n=."
    _check_whole(name, values, 0, 1, "a bit, 0 or 1", remedy)


def check_counts(name: str, values: Any, at_most: Any = np.inf) -> None:
    """Refuse known values that are not counts."""
    upper = "" if np.isinf(at_most).all() else f" and at most n = {np.max(at_most):g}"
    remedy = "Pass the counts as they were published, and as n= how many people they are of."
    _check_whole(name, values, 0, at_most, f"a count: a whole number >= 0{upper}", remedy)


class WrongValue(ValueError):
    """An impossible value; `blind` is the message for data, without the value and its position."""

    def __init__(self, message: str, blind: str) -> None:
        super().__init__(message)
        self.blind = blind


def _check_whole(name: str, values: Any, lowest: float, highest: Any, what: str, remedy: str) -> None:
    known = known_values(values)
    if known is None:
        return
    if np.ndim(highest):
        try:
            highest = np.broadcast_to(highest, known.shape)
        except ValueError:  # wrong shapes are refused elsewhere
            return
    whole = (known == np.floor(known)) & (known >= lowest) & (known <= highest)
    wrong = np.isfinite(known) & ~whole  # missing values are refused elsewhere
    if wrong.any():
        first = np.argwhere(wrong)[0]
        where = f" at index {tuple(int(i) for i in first)}" if known.ndim else ""
        raise WrongValue(
            f"{name} has the value {known[tuple(first)]:g}{where}, which is not {what}. {remedy}",
            f"{name} has a value that is not {what}: correct the data first.",
        )


def whole_within(value: TensorVariable, highest: Any) -> TensorVariable:
    """Return whether values are whole numbers 0, ..., highest."""
    within = pt.ge(value, 0) & pt.le(value, highest)
    return (
        within
        if value.type.dtype.startswith(("int", "uint", "bool"))
        else within & pt.eq(value, pt.floor(value))
    )


def check_axis(probs: TensorVariable) -> None:
    """Refuse a single number as the probabilities of categories."""
    if probs.ndim == 0:
        raise ValueError(
            "query must hold the probabilities of all categories, shape (..., K), where n= is given, but it "
            "is one number: for no and yes with the probability p of yes that is pt.stack([1 - p, p]), and "
            "observed= has a number for each category."
        )


def check_probabilities(probs: TensorVariable, n_categories: Any = None) -> int | None:
    """Return the number of categories of the probabilities behind a table of counts, if it is known."""
    check_axis(probs)
    k = probs.type.shape[-1]
    if k is None:
        return None if n_categories is None else number_of_categories(probs, n_categories)
    if k < 2:
        raise ValueError(f"probs has {k} category: at least 2 are needed.")
    if n_categories is not None and n_categories != k:
        raise ValueError(
            f"n_categories = {n_categories} contradicts probs, whose last axis has length {k}: leave "
            "n_categories out."
        )
    if isinstance(probs, Constant):
        known = np.asarray(probs.data)
        if (known < 0).any() or (abs(known.sum(-1) - 1) > 1e-6).any():
            raise ValueError("probs must be >= 0 and sum to 1 over the last axis.")
    return int(k)


def number_of_people(n: Any, probs: TensorVariable) -> TensorVariable:
    """Return n as an integer tensor; its value must be known, and have the tables' batch shape."""
    known = known_values(n)
    if known is None or isinstance(n, bool | np.bool_):
        raise TypeError(
            f"n must be a known whole number, or one per table, got {type(n).__name__}: the number of "
            "people is public."
        )
    wrong = ~((known == np.floor(known)) & (known >= 1) & (known < 2**53))
    if wrong.any():
        raise ValueError(f"n must be a whole number >= 1, got {known[wrong][0]:g}.")
    batch = probs.type.shape[:-1]
    if known.ndim and not fits(known.shape, batch):
        raise ValueError(
            f"n has shape {known.shape}, but there are tables of shape {batch}: give one number, or one "
            "per table."
        )
    return pt.constant(known.astype(np.int64))


def check_table(name: str, values: Any, n: Any) -> None:
    """Refuse values that are not counts, or that do not add up to the number of people."""
    known, people = known_values(values), known_values(n)
    check_counts(name, values)
    if known is None or people is None or known.ndim == 0:
        return
    totals = known.sum(-1)
    if (totals != people).any():
        raise ValueError(
            f"{name} adds up to {np.ravel(totals)[0]:g}, but n = {np.ravel(people)[0]:g}: every one of the n "
            "people reports one category, so the counts have to add up to n."
        )


def check_totals(name: str, values: Any, n: Any) -> None:
    """Refuse totals of bits that are not whole numbers from 0 to n."""
    people = known_values(n)
    check_counts(name, values, np.inf if people is None else people[..., None])


def rounded_table(probs: TensorVariable, n: TensorVariable) -> TensorVariable:
    """Return whole numbers near n probs that add up to n."""
    ends = pt.floor(pt.cumsum(probs[..., :-1], axis=-1) * n[..., None])
    zero, full = pt.zeros_like(ends[..., :1]), pt.broadcast_to(n[..., None], ends[..., :1].shape)
    return pt.cast(pt.diff(pt.concatenate([zero, ends, full], axis=-1), axis=-1), "int64")


def density_of_report(
    density: TensorVariable, possible: TensorVariable, category: TensorVariable, n_categories: int
) -> TensorVariable:
    """Return the log density of one person's report, which is minus infinity for an impossible report."""
    return check_parameters(
        pt.switch(possible, density, -np.inf),
        pt.ge(category, 0) & pt.lt(category, n_categories),
        msg=f"query in 0, ..., {n_categories - 1}: give n_categories= for all categories, or clamp the query",
    )


def density_of_table(
    density: TensorVariable, possible: TensorVariable, probs: TensorVariable
) -> TensorVariable:
    """Return the log density of a table of reports, which is minus infinity for an impossible table."""
    return check_parameters(
        pt.switch(possible, density, -np.inf),
        pt.all(probs >= 0, axis=-1) & (pt.abs(pt.sum(probs, axis=-1) - 1) < 1e-6),
        msg="probs >= 0, sum(probs) = 1",
    )
