"""Log density of records given their labels, for any number of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.exceptions import ShapeError
from pymc.logprob.utils import ParameterValueError
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type_other import NoneTypeT

from pymc_dp.lowering.functions.normals import factor_of, is_multivariate_normal, normal_logp
from pymc_dp.mixtures.structure import Mixture
from pymc_dp.query.recordrules import named

# This mode evaluates operation by operation on whole arrays. With many rows at once that is as fast as
# compiled code, and needs no compilation.
MODE = "FAST_COMPILE"


# What functions raise where the lengths of their arguments do not go together.
_DO_NOT_FIT = (AssertionError, IndexError, ShapeError, TypeError, ValueError)

# How many rows are compared at all positions where the law of a record could depend on its position.
_AT_ALL_POSITIONS = 64


class RowsDiffer(Exception):
    """The law of a record depends on the position of the record, not only on its label and covariates."""


def evaluator(inputs: list[Any], outputs: Any, what: str) -> Callable[..., Any]:
    """Return a function that evaluates a graph; refuse a graph with random variables."""
    left = rvs_in_graph(outputs if isinstance(outputs, list) else [outputs])
    if left:
        raise NotImplementedError(
            f"{what} depends on {named(left)} in a way that cannot be evaluated: write the law with "
            "distributions whose log density PyMC knows."
        )
    return pytensor.function(  # type: ignore[no-any-return]
        inputs, outputs, mode=MODE, on_unused_input="ignore", trust_input=True
    )


class KernelDensity:
    """Log density of rows under a mixture's kernel.

    The model's graph is made for the model's number of records and of slots. It is rebuilt for any number of
    rows, of any number of components; if parts of it do not allow that, components are evaluated in blocks of
    the model's number of slots, and, if rows cannot be of any number either, these in blocks of the model's
    number of records.

    Parameters
    ----------
    mixture : Mixture
    substitute : callable
        Replaces variables of the model in graphs, ``(graphs, replaced) -> graphs``.
    parameters : dict
        Inputs that stand for the model's variables other than atoms, by these variables.
    covariates : list of Variable
        Covariates that the caller gives for each row.
    columns : tuple of int
        Shape of one record.
    """

    def __init__(
        self,
        mixture: Mixture,
        substitute: Callable[[list[Any], Mapping[Any, Any]], list[Any]],
        parameters: dict[Any, Any],
        covariates: Sequence[Any],
        columns: tuple[int, ...],
    ) -> None:
        self._n, self._slots = mixture.n, mixture.max_components
        self._name = str(mixture.kernel.name)  # type: ignore[attr-defined]
        kernel: Any = mixture.kernel
        sized, size = _with_size_input(kernel)
        self._substitute, self._size = substitute, size
        self._columns = np.array(columns, dtype=np.int64)
        self._own = [v.type() for v in (mixture.labels, kernel, *covariates, *mixture.atoms)]
        labels, value, *others = self._own
        # inputs are put into the variable before its density is built, since that may copy its parents
        inner = dict(zip([mixture.labels, *covariates, *mixture.atoms], [labels, *others], strict=True))
        self._parameters = list(parameters.values())
        (law,) = substitute([sized], {**inner, **parameters})
        law.name = self._name
        self._logp: Any = _log_density(law, value)
        self._n_by_row = 2 + len(covariates)
        # ways to evaluate rows of any number, the faster one first: one that fails is not tried again
        self._ways: list[Callable[..., np.ndarray]] = []
        for of_components, way in ((True, self._at_once), (False, self._by_slots)):
            try:
                self._ways.append(partial(way, self._rebuilt(of_components)))
            except _DO_NOT_FIT:
                continue
        self._own_length: Callable[..., Any] | None = None

    def __call__(
        self, by_row: list[np.ndarray], atoms: list[np.ndarray], parameters: list[np.ndarray]
    ) -> np.ndarray:
        """Return the log density of each row, shape (rows,).

        Parameters
        ----------
        by_row : list of ndarray, shape (rows, ...)
            Labels, values, and covariates.
        atoms : list of ndarray, shape (components, ...)
        parameters : list of ndarray

        Raises
        ------
        RowsDiffer
            The law of a record depends on its position.
        """
        while self._ways:
            try:
                return self._ways[0](by_row, atoms, parameters)
            except ParameterValueError:
                raise
            except _DO_NOT_FIT:
                del self._ways[0]
        if self._own_length is None:
            self._own_length = self._at_own_length()
            self._check_rows_alike(by_row, atoms, parameters)
        return self._in_parts(by_row, atoms, parameters)

    def _at_once(
        self,
        function: Callable[..., Any],
        by_row: list[np.ndarray],
        atoms: list[np.ndarray],
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        """Evaluate all rows in one call."""
        rows = len(by_row[0])
        # one row more if there are 1 or n rows, so that an array with a value for each record cannot fit by
        # accident
        extra = int(rows in (1, self._n))
        if extra:
            by_row = [np.concatenate([v, v[:1]]) for v in by_row]
        logp = function(*by_row, *atoms, *parameters)
        if logp.shape[:1] != (rows + extra,):
            raise ShapeError("there is no density of each row")
        return _summed(logp)[:rows]

    def _by_slots(
        self,
        function: Callable[..., Any],
        by_row: list[np.ndarray],
        atoms: list[np.ndarray],
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        """Evaluate components in blocks of the model's slots, all rows of a block in one call."""
        result = np.empty(len(by_row[0]))
        for here, labels, tables in self._blocks_of_slots(by_row[0], atoms):
            rows = [labels, *(v[here] for v in by_row[1:])]
            result[here] = self._at_once(function, rows, tables, parameters)
        return result

    def _in_parts(
        self, by_row: list[np.ndarray], atoms: list[np.ndarray], parameters: list[np.ndarray]
    ) -> np.ndarray:
        """Evaluate rows in blocks of the model's number of records, components in blocks of its slots."""
        assert self._own_length is not None
        result = np.empty(len(by_row[0]))
        for here, labels, tables in self._blocks_of_slots(by_row[0], atoms):
            for start in range(0, len(here), self._n):
                part = np.arange(start, min(start + self._n, len(here)))
                padded = np.concatenate([part, np.repeat(part[:1], self._n - len(part))])
                rows = [labels[padded], *(v[here[padded]] for v in by_row[1:])]
                try:
                    logp = self._own_length(*rows, *tables, *parameters)
                except ParameterValueError:
                    raise
                except _DO_NOT_FIT as error:
                    raise RowsDiffer from error
                result[here[part]] = _summed(logp)[: len(part)]
        return result

    def _blocks_of_slots(
        self, labels: np.ndarray, atoms: list[np.ndarray]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
        """Yield which rows have components of a block, their labels in it, and atoms for all slots."""
        for first in range(0, len(atoms[0]), self._slots):
            here = np.flatnonzero((labels >= first) & (labels < first + self._slots))
            chosen = np.minimum(np.arange(first, first + self._slots), len(atoms[0]) - 1)
            yield here, labels[here] - first, [a[chosen] for a in atoms]

    def _check_rows_alike(
        self, by_row: list[np.ndarray], atoms: list[np.ndarray], parameters: list[np.ndarray]
    ) -> None:
        """Refuse a model in which the same label and value have different densities in different rows.

        Some rows are compared at all positions, and all rows at two.
        """
        some = np.unique(np.linspace(0, len(by_row[0]) - 1, _AT_ALL_POSITIONS).astype(int))
        for row in some:
            same = [np.repeat(v[row : row + 1], self._n, axis=0) for v in by_row]
            logp = self._in_parts(same, atoms, parameters)
            self._check_alike(logp, logp[0])
        moved = self._in_parts([np.roll(v, 1, axis=0) for v in by_row], atoms, parameters)
        self._check_alike(self._in_parts(by_row, atoms, parameters), np.roll(moved, -1))

    def _check_alike(self, logp: np.ndarray, other: Any) -> None:
        if not np.allclose(logp, other, rtol=1e-9, equal_nan=True):
            raise RowsDiffer

    def _rebuilt(self, of_components: bool) -> Callable[..., Any]:
        """Return the log density of any number of rows, and of components or of the model's slots."""
        free = len(self._own) if of_components else self._n_by_row
        longer = [
            pt.tensor(dtype=v.type.dtype, shape=(None, *v.type.shape[1:]) if i < free else v.type.shape)
            for i, v in enumerate(self._own)
        ]
        replaced: dict[Any, Any] = dict(zip(self._own, longer, strict=True))
        if self._size is not None:
            batch = self._columns[: self._size.type.shape[0] - 1]
            replaced[self._size] = pt.concatenate([longer[0].shape[:1], batch])
        logp = _of_any_length(self._logp, replaced)
        return evaluator([*longer, *self._parameters], logp, f"The density of {self._name}")

    def _at_own_length(self) -> Callable[..., Any]:
        logp = self._logp
        if self._size is not None:
            batch = self._columns[: self._size.type.shape[0] - 1]
            size = pt.constant(np.array([self._n, *batch]), dtype=self._size.type.dtype)
            (logp,) = self._substitute([logp], {self._size: size})
        return evaluator([*self._own, *self._parameters], logp, f"The density of {self._name}")


def _log_density(law: Any, value: Any) -> Any:
    """Return the log density of a variable at a value.

    That of a multivariate normal variable is written out in the entries of its vectors, because PyTensor
    evaluates factors and solutions of many small matrices one after another.
    """
    if not is_multivariate_normal(law):
        return pm.logp(law, value)
    _, cov = law.owner.op.dist_params(law.owner)
    diagonal = [row[-1] for row in factor_of(cov, law.type.shape[-1], str(law.name))]
    return check_parameters(normal_logp(law, value), *(v > 0 for v in diagonal), msg="posdef")


def _summed(logp: np.ndarray) -> np.ndarray:
    """Return the log density of each row, as the sum over its entries."""
    result: np.ndarray = logp.reshape(len(logp), -1).sum(axis=1)
    return result


def _with_size_input(rv: Any) -> tuple[Any, Any]:
    """Return a random variable with its size, if it has one, as a new input of the graph, and the input."""
    node = rv.owner
    size = node.op.size_param(node)
    if size is None or isinstance(size.type, NoneTypeT):
        return rv, None
    free = size.type()
    inputs = [free if v is size else v for v in node.inputs]
    return node.clone_with_new_inputs(inputs, strict=False).outputs[node.outputs.index(rv)], free


def _of_any_length(graph: Any, replaced: Mapping[Any, Any]) -> Any:
    """Rebuild a graph for inputs of other lengths, without its assertions about lengths."""
    new = dict(replaced)
    for node in io_toposort(list(replaced), [graph]):
        if isinstance(node.op, SpecifyShape):
            new[node.outputs[0]] = new.get(node.inputs[0], node.inputs[0])
        elif any(v in new for v in node.inputs):
            rebuilt = node.op.make_node(*(new.get(v, v) for v in node.inputs))
            new.update(zip(node.outputs, rebuilt.outputs, strict=True))
    return new.get(graph, graph)
