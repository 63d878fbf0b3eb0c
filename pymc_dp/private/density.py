"""The log density of one confidential row, in numbers of the row and numbers of the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import CategoricalRV, MvNormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.graphs import inlined
from pymc_dp.lowering.functions.normals import LARGEST
from pymc_dp.lowering.rows.domains import row_checks_to_values
from pymc_dp.lowering.rows.rows import ROW, NotScalar, RowGraph
from pymc_dp.lowering.rows.written import written_logp
from pymc_dp.private.clipped_ratios import RowRatio
from pymc_dp.private.confidential import RowTerm
from pymc_dp.query.lengths import with_known_shapes, with_lengths_of_rows
from pymc_dp.query.rowlocal import RowAnalysis

_ONE_LAW = "the law of one row. Laws that differ from row to row are functions of covariates={...}"
# Largest length of a multivariate normal row with a known covariance.
_LARGEST_KNOWN = 100


def check_rows(term: RowTerm) -> None:
    """Refuse a law that does not fit the data's shape, or in which a row's density depends on other rows.

    Raises
    ------
    ValueError
    """
    if term.rows.n < 2:
        raise ValueError(
            f"The data of '{term.name}' have {term.rows.n} row: a confidential likelihood needs two."
        )
    RowDensity(term).terms  # noqa: B018  (worked out here so that it fails where the model is written)


def domain(term: RowTerm) -> list[Variable]:
    """Return the conditions for parameters to be in the domain of the law that do not depend on the rows.

    Where one of them fails, no row has a density: all changes would count as 0, and the prior alone would
    decide.
    """
    rows: set[Variable] = {term.value, *term.covariates}
    of_vectors = term.law.owner.op.ndim_supp > 0  # type: ignore[union-attr]
    found: list[Variable] = []
    for v in ancestors(with_lengths_of_rows([pm.logp(term.law, term.value)], rows)):
        if v.owner is not None and isinstance(v.owner.op, CheckParameterValue):
            for condition in v.owner.inputs[1:]:
                behind = set(ancestors([condition]))
                # a known matrix was checked where it was declared
                known = of_vectors and not behind & set(term.parameters)
                if not rows & behind and not known:
                    found.append(pt.all(pt.as_tensor(condition)))
    return found


class RowDensity:
    """Log density of one row, as scalar graphs.

    Parameters
    ----------
    term : RowTerm

    Attributes
    ----------
    entries : list of 0-d TensorVariable
        The numbers of a row, in the order of the columns.
    """

    def __init__(self, term: RowTerm):
        self.term = term
        self.n = term.rows.n
        self._inputs = [term.value, *term.covariates]
        self._analysis = RowAnalysis(self._inputs, self.n, [])
        self.entries: list[TensorVariable] = []
        self._starts: dict[Variable, int] = {}
        for v in self._inputs:
            self._starts[v] = len(self.entries)
            width = int(np.prod(v.type.shape[1:]))
            self.entries += [pt.dscalar(f"{v.name}_{k}") for k in range(width)]
        self.rows = RowGraph(self._is_free, self._entry, self._inputs)

    def _is_free(self, v: Variable) -> bool:
        return self._analysis.role(v).kind == "free"

    def _has_rows(self, v: Variable) -> bool:
        role = self._analysis.role(v)
        return role.kind == "row" and role.axis == 0

    def _entry(self, v: Any, index: tuple[int, ...]) -> TensorVariable:
        return pt.cast(self.entries[self._starts[v] + (index[0] if index else 0)], v.type.dtype)

    @cached_property
    def terms(self) -> list[TensorVariable]:
        """Log density of a row as a sum of 0-d graphs, without terms that are free of the parameters."""
        try:
            found = self._of_known_covariance() or self._of_any_law()
        except NotScalar as error:
            raise ValueError(
                f"The law of '{self.term.name}' cannot be evaluated row by row ({error}): write it with "
                "entries of the parameters and of the covariates, or with another distribution."
            ) from None
        if self.rows.columns:
            raise ValueError(
                f"The law of '{self.term.name}' reads an array or a parameter with an entry for each of the "
                f"{self.n} rows. Pass what is known of each row in covariates={{...}}, which keeps it out of "
                "the graph; give a number that all rows share as that number, which is broadcast; a "
                "parameter for each row cannot be estimated privately."
            )
        return found

    def _of_known_covariance(self) -> list[TensorVariable] | None:
        """Return the terms, linear in the row, of a multivariate normal law with a constant covariance."""
        law, value = self.term.law, self.term.value
        if not isinstance(law.owner.op, MvNormalRV) or law.type.ndim != 1 or value.type.ndim != 2:
            return None
        mean, cov = law.owner.op.dist_params(law.owner)  # type: ignore[attr-defined]
        if not all(isinstance(v, Constant) for v in graph_inputs([cov])) or not self._is_free(mean):
            return None
        matrix = np.asarray(cov.data if isinstance(cov, Constant) else cov.eval(mode="FAST_COMPILE"))
        if len(matrix) != value.type.shape[1] or len(matrix) > _LARGEST_KNOWN:
            return None
        try:
            np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"The covariance of '{self.term.name}' is not positive definite: give a symmetric matrix "
                "with positive eigenvalues."
            ) from None
        mean = pt.broadcast_to(mean, (len(matrix),))
        precision = np.linalg.inv(matrix)
        if np.array_equal(precision, np.diag(np.diag(precision))):
            pull = pt.constant(np.diag(precision)) * mean
        else:  # written as a sum: a product of matrices takes a minute to compile
            pull = (pt.constant(precision) * mean).sum(axis=1)
        linear = [self.rows.entry(value, (ROW, j)) * self._hoist(pull[j]) for j in range(len(matrix))]
        return [*linear, self._hoist(-0.5 * (pull * mean).sum())]

    def _hoist(self, graph: TensorVariable) -> TensorVariable:
        return self.rows.entry(graph, ())

    def _of_any_law(self) -> list[TensorVariable]:
        logp = self._row_logp()
        role = self._analysis.role(logp)
        if role.kind != "row" or role.axis != 0:
            raise ValueError(
                f"The rows of '{self.term.name}' are not independent given the parameters, or cannot be "
                "seen to be: the law of each may depend on its own entries of the covariates only."
            )
        widths = logp.type.shape[1:]
        if None in widths:
            raise NotScalar("a log density of unknown shape")
        return [self.rows.entry(logp, (ROW, *index)) for index in np.ndindex(*widths)]  # type: ignore[arg-type]

    def _row_logp(self) -> TensorVariable:
        """Log density with the record axis in front, shape (n,) or (n, k)."""
        term = self.term
        law, value, name = term.law, term.value, term.name
        support = law.owner.op.ndim_supp  # type: ignore[union-attr]
        if support > 1 or value.type.ndim < 1 + support:
            raise ValueError(
                f"The law of '{name}' gives {support}-dimensional draws, and a row of the data has "
                f"{value.type.ndim - 1} dimension(s). Rows must be independent: one draw of dist is one "
                "row, so a process over all rows (a random walk, say) cannot be one."
            )
        # with covariates there is a law for each row; otherwise one law for any row, whose shape may
        # broadcast
        expected = tuple(value.type.shape)[0 if term.covariates else 1 :]
        lengths = tuple(law.type.shape)
        rank = len(lengths) == len(expected) or (len(lengths) < len(expected) and not support and not lengths)
        if not (rank and all(a in (None, 1, b) for a, b in zip(reversed(lengths), reversed(expected)))):
            raise ValueError(
                f"The law of '{name}' has shape {lengths}, and data of shape {tuple(value.type.shape)} need "
                f"{expected}: {'a law for each row' if term.covariates else _ONE_LAW}."
            )
        if isinstance(law.owner.op, MvNormalRV):  # type: ignore[union-attr]
            if value.type.shape[-1] > LARGEST:
                raise ValueError(
                    f"The multivariate normal rows of '{name}' have {value.type.shape[-1]} entries: with a "
                    f"covariance that has parameters they may have at most {LARGEST}."
                )
        if isinstance(law.owner.op, MvNormalRV | CategoricalRV):  # type: ignore[union-attr]
            logp = written_logp(law, value)
        else:
            logp = inlined(pm.logp(law, value))
        (logp,) = with_lengths_of_rows([logp], set(self._inputs))
        (logp,) = with_known_shapes([row_checks_to_values(logp, self._has_rows)])
        return logp  # type: ignore[return-value]

    def ratio(self, parameters: Sequence[TensorVariable]) -> RowRatio:
        """Compile the clipped sum; its numbers become graphs of the given values of the parameters."""
        from pytensor.graph.replace import graph_replace

        terms = self.terms
        stands = {r: pt.specify_shape(v, r.type.shape) for r, v in zip(self.term.parameters, parameters)}
        constants = [pt.as_tensor(c) for c in self.rows.constants]
        constants = list(graph_replace(constants, stands, strict=False)) if constants else []  # type: ignore[arg-type]
        return RowRatio(terms, self.entries, self.rows.constant_inputs, constants)
