"""Groups of parameters that are independent of each other given the other parameters, told by the graph.

A log density is a sum of terms. Where no term depends on two groups, each group can be moved by itself, at
the same time as the others. Effects of areas with people of their own are such groups.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.scalar.basic import AND, Add, Cast, Mul, Neg, Sub, Switch
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import All, Sum
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_dp.lowering.addresses.graphs import inlined
from pymc_dp.lowering.addresses.native import SLOPES, NativeFunction
from pymc_dp.lowering.rows.domains import entry_checks_to_values, idle_check_by_entry
from pymc_dp.query.dependence import NONE, SEVERAL, Dependence, ways
from pymc_dp.query.publicshapes import Public
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.updates.columns import native
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.summed import summed_over

# Numbers in a group at most: a random walk in more of them takes short steps.
_LARGEST = 12
# Types whose sums are those of their parts as real numbers: short integers and booleans are not.
_ADD_UP = ("float64", "float32", "int64")


class Grouped:
    """Densities of parameters, term by term, and the groups of parameters that no term ties.

    Parameters
    ----------
    program : RecordProgram
    moving : sequence of Variable
        Parameters that move, in the order of their numbers.
    summed : bool
        Whether the records are summed over in place of their noise.

    Attributes
    ----------
    part : ndarray of int
        The group of each number that moves, -1 of those that are in none. Without groups all are.
    """

    def __init__(self, program: RecordProgram, moving: Sequence[Variable], summed: bool):
        # queries as they are written: of a sum that is computed by itself, all groups are behind
        conditionals = self._conditionals = Conditionals(program, moving, many_sums=0)
        self._program, self._layout, self._moving = program, program.parameters, list(moving)
        second = summed_over(conditionals) if summed else conditionals.given_noise()
        inputs = [program.theta, program.data.data, program.x, conditionals.u, conditionals.totals]
        fixed = Public(lambda leaf: leaf not in inputs, in_model=True)
        self._terms = [
            # of an array whose length depends on numbers that move, entries are of no group
            [_by_entry(term) if fixed.shape(term) else pt.sum(term) for term in terms_of(graph)]
            for graph in (conditionals.given_records(), second)
        ]
        # copies, since rewriting changes graphs in place
        written_out = [inlined(_copy(term)) for terms in self._terms for term in terms]
        self._told = Dependence(written_out, program.theta, inputs)
        self.part, self._of_terms = self._found()

    @property
    def n(self) -> int:
        """How many groups there are."""
        return int(self.part.max()) + 1

    @property
    def n_shared(self) -> float:
        """How many numbers are in none; infinite without groups."""
        return float(np.sum(self.part < 0)) if self.n else np.inf

    @property
    def names(self) -> list[str]:
        """Names of the variables whose numbers are in groups."""
        ends = np.cumsum([self._layout.slice_length(rv) for rv in self._moving])
        inside = np.split(self.part >= 0, ends[:-1])
        return [str(rv.name) for rv, own in zip(self._moving, inside, strict=True) if own.any()]

    def check(self) -> None:
        """Refuse data, set anew, that tie groups."""
        part, of_terms = self._found()
        if not np.array_equal(part, self.part) or any(
            not np.array_equal(*each) for each in zip(of_terms, self._of_terms, strict=True)
        ):
            raise ValueError(
                "Data of the model were set anew, and parameters that were independent of each other given "
                "the others are in other groups now: make the step again, with the present data."
            )

    def functions(self) -> tuple[NativeFunction, NativeFunction]:
        """Native functions to the terms by group, given the records and given the noise or summed over."""
        given = (self._program.x, self._conditionals.u)
        n = len(self._terms[0])
        by_density = (self._of_terms[:n], self._of_terms[n:])
        totals = self._conditionals.totals
        first, second = (
            native(self._program, name, records, [totals], self._summed(terms, groups), SLOPES)
            for name, records, terms, groups in zip(
                ("centred by group", "ancillary by group"), given, self._terms, by_density, strict=True
            )
        )
        return first, second

    def _summed(self, terms: Sequence[TensorVariable], groups: Sequence[np.ndarray]) -> TensorVariable:
        total = pt.zeros(self.n + 1)
        for term, group in zip(terms, groups, strict=True):
            which = np.where(group < 0, self.n, group)
            total = total[which].inc(pt.cast(term, "float64").ravel())
        return total

    def _found(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the group of each number, and of each entry of each term, -1 of those in none.

        Variables with many entries come first. Those whose entries a term depends on together, or that would
        join groups to larger ones than some numbers, are in no group.
        """
        layout, program = self._layout, self._program
        values = [
            np.zeros(layout.size), program.data.gather(), program.first_records,
            np.zeros(self._conditionals.u.type.shape), np.zeros(program.n_statistics),
        ]  # fmt: skip
        taken: list[_Divided] = []
        for rv in sorted(self._moving, key=lambda rv: -layout.slice_length(rv)):
            index = layout.variables.index(rv)
            for parts in ways(layout.shapes[index]):
                of_all = np.full(layout.size, NONE)
                of_all[layout.slices[index]] = parts.ravel()
                terms = np.concatenate(found := self._told.of(values, of_all))
                if SEVERAL not in terms:
                    divided = _Divided(rv, parts.ravel(), terms)
                    taken += [divided] if _joined([*taken, divided]) else []
                    break
        joined, sizes = _joined(taken), [each.size for each in found] if taken else []
        if joined is None:
            return np.full(sum(map(layout.slice_length, self._moving)), -1, dtype=np.intp), []
        of_numbers = dict(zip((each.rv for each in taken), joined[0], strict=True))
        none = {rv: np.full(layout.slice_length(rv), -1) for rv in self._moving}
        part = np.concatenate([of_numbers.get(rv, none[rv]) for rv in self._moving])
        return part.astype(np.intp), np.split(joined[1], np.cumsum(sizes)[:-1])


def terms_of(graph: Any) -> list[TensorVariable]:
    """Return arrays whose entries add up to a log density, as many as its graph shows.

    A density that is minus infinity where conditions fail becomes one that does not ask, and terms that are
    minus infinity in the entries that fail: the sum is as little a number.
    """
    node = graph.owner
    if node is None:
        is_zero = isinstance(graph, TensorConstant) and not np.any(graph.data)
        return [] if is_zero else [pt.cast(graph, "float64")]
    op, adds_up = node.op, graph.ndim == 0 and graph.dtype in _ADD_UP
    if isinstance(op, Sum) and adds_up:
        return _addends(node.inputs[0]) if node.inputs[0].ndim else terms_of(node.inputs[0])
    if isinstance(op, Elemwise) and adds_up:
        scalar = op.scalar_op
        if isinstance(scalar, Add):
            return [term for part in node.inputs for term in terms_of(part)]
        if isinstance(scalar, Cast) and not _is_rounded(node):
            return terms_of(node.inputs[0])
        if isinstance(scalar, Neg | Sub):
            *kept, taken = node.inputs
            return [*(term for part in kept for term in terms_of(part)), *(-term for term in terms_of(taken))]
        if isinstance(scalar, Mul):  # a number of the data by a density: the terms by that number
            of = [(v, terms) for v in node.inputs if _is_of_several(terms := terms_of(v))]
            if len(of) == 1:
                factor = reduce(pt.mul, [v for v in node.inputs if v is not of[0][0]])
                return [factor * term for term in of[0][1]]
        if isinstance(scalar, Switch) and _is_refusal(node.inputs[2]):
            failing = [pt.switch(c, 0.0, -np.inf) for c in _conditions(node.inputs[0])]
            return [*terms_of(node.inputs[1]), *failing]
    return [pt.cast(graph, "float64")]


def _addends(graph: Any) -> list[TensorVariable]:
    """Return arrays whose entries add up to the sum of an array."""
    node = graph.owner
    if node is not None and isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Add):
        alike = all(v.type.broadcastable == graph.type.broadcastable for v in node.inputs)
        if alike and graph.dtype in _ADD_UP:
            return [term for v in node.inputs for term in _addends(v)]
    return [pt.cast(graph, "float64")]


def _is_of_several(terms: Sequence[TensorVariable]) -> bool:
    return len(terms) > 1 or any(term.ndim for term in terms)


def _is_rounded(node: Any) -> bool:
    """Whether a cast makes whole numbers of others."""
    to, given = node.outputs[0].dtype, node.inputs[0].dtype
    return given.startswith("float") and not to.startswith("float")


def _is_refusal(graph: Any) -> bool:
    return isinstance(graph, TensorConstant) and bool(np.all(np.isneginf(graph.data)))


def _conditions(graph: Any) -> list[Any]:
    """Return arrays all of whose entries have to hold for a condition to hold."""
    node = graph.owner
    if graph.dtype != "bool":  # `and` of whole numbers is that of their bits
        return [graph]
    if node is not None and isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, AND):
        return [c for v in node.inputs for c in _conditions(v)]
    if node is not None and isinstance(node.op, CAReduce) and isinstance(node.op, All):
        return [node.inputs[0]]
    return [graph]


def _copy(graph: Any) -> Any:
    return clone_replace([graph], {})[0]


def _by_entry(term: Any) -> Any:
    """Return a term whose checks of parameters do not tie its entries, as far as that is possible."""
    by_entry = dfs_rewriter(idle_check_by_entry)
    return entry_checks_to_values(
        rewrite_graph(_copy(term), include=(), custom_rewrite=by_entry, clone=False)
    )


class _Divided(NamedTuple):
    """A variable, the part of each of its numbers, and the part that each entry of all terms depends on."""

    rv: Variable
    parts: np.ndarray
    terms: np.ndarray


def _joined(taken: Sequence[_Divided]) -> tuple[list[np.ndarray], np.ndarray] | None:
    """Join parts of variables that terms tie; return the group of each number, and of each entry of a term.

    None where there is one group only, or one of too many numbers.
    """
    # imported here, because importing the package is to be quick
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    if not taken:
        return None
    first = np.cumsum([0, *(int(each.parts.max()) + 1 for each in taken)])
    n_parts, n = int(first[-1]), int(first[-1]) + taken[0].terms.size
    touched = [np.flatnonzero(each.terms >= 0) for each in taken]
    rows = [start + each.terms[at] for start, each, at in zip(first, taken, touched, strict=False)]
    ends = (np.concatenate(rows), n_parts + np.concatenate(touched))
    ties = sparse.coo_array((np.ones(ends[0].size), ends), shape=(n, n))
    labels = connected_components(ties, directed=False)[1]
    kept, group = np.unique(labels[:n_parts], return_inverse=True)
    of_numbers = [group[start + each.parts] for start, each in zip(first, taken, strict=False)]
    if kept.size < 2 or np.bincount(np.concatenate(of_numbers)).max() > _LARGEST:
        return None
    at = np.minimum(np.searchsorted(kept, labels[n_parts:]), kept.size - 1)
    return of_numbers, np.where(kept[at] == labels[n_parts:], at, -1)
