"""A model's mixture as functions: the urn, atoms from the base measure, and the kernel on a grid.

The functions are the model's own graphs with its random variables replaced by inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymc as pm
from pymc.logprob.utils import CheckParameterValue, ParameterValueError
from pymc.model.core import BaseModel, Model
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, toposort

from pymc_dp.mixtures.structure import Mixture, find_mixtures
from pymc_dp.query.recordrules import named
from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import RowAnalysis, leaves_of
from pymc_dp.query.rowrules import rule
from pymc_dp.stats._kernels import MODE, KernelDensity, RowsDiffer, evaluator


def mixture_of(model: Any, labels: str | None) -> Mixture:
    """Return the mixture of a model with these labels, or its only one."""
    if not isinstance(model, BaseModel):
        raise TypeError(f"model must be a pymc.Model, got {type(model).__name__}.")
    if labels is not None and not isinstance(labels, str):
        raise TypeError(f"labels must be the name of a variable, got {type(labels).__name__}.")
    found = {str(m.labels.name): m for m in find_mixtures(model)}
    if not found:
        raise ValueError(
            "model has no mixture: declare labels with dp.ChineseRestaurantProcess, and a variable whose law "
            "picks atoms by them, as in pm.Normal('y', mu[labels], 1)."
        )
    if labels is None and len(found) > 1:
        raise ValueError(
            f"labels= must say which mixture is meant, the model has several: {', '.join(found)}."
        )
    if labels is not None and labels not in found:
        raise ValueError(
            f"labels must name the labels of a mixture of the model, which are {', '.join(found)}, got "
            f"{labels!r}."
        )
    return found[labels] if labels is not None else next(iter(found.values()))


class PredictiveMixture:
    """The functions of a mixture from which its density is computed.

    Parameters
    ----------
    model : pymc.Model
    mixture : Mixture
    grid : array_like, shape (G, ...)
        Points, each with the shape of a record.
    covariates : mapping of str to array_like, optional
        For data and variables with a row per record: the row of the record whose density is computed.

    Attributes
    ----------
    parameters : list of str
        Names of the variables, other than labels and atoms, whose draws are needed.
    atoms : list of str
    """

    def __init__(
        self, model: Model, mixture: Mixture, grid: Any, covariates: Mapping[str, Any] | None = None
    ) -> None:
        self.model, self.mixture = model, mixture
        self.grid = _checked_grid(grid, mixture.kernel)
        self._variables = set(model.basic_RVs)
        self._covariates = self._checked_covariates(covariates)
        self._check_rows()
        given = set(self._covariates)
        inner = {mixture.labels, mixture.kernel, *mixture.atoms, *given}
        graphs = [g for rv in (mixture.labels, mixture.kernel, *mixture.atoms) for g in parameters_of(rv)]
        leaves = set(leaves_of(graphs, self._variables | given)) - inner
        self.hyperparameters = [rv for rv in model.free_RVs if rv in leaves]
        self._observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
        self.parameters = [str(rv.name) for rv in self.hyperparameters]
        self.atoms = [str(rv.name) for rv in mixture.atoms]
        self.finite = bool(mixture.labels.owner.op.finite)  # type: ignore[union-attr]
        self._inputs = [rv.type() for rv in self.hyperparameters]
        replaced = dict(zip(self.hyperparameters, self._inputs, strict=True))
        urn = self._replaced(list(parameters_of(mixture.labels)[:2]), replaced)
        self._urn = evaluator(self._inputs, urn, f"The law of {mixture.labels.name}")
        self._kernel = KernelDensity(
            mixture, self._replaced, replaced, list(self._covariates), self.grid.shape[1:]
        )
        self._base: Callable[..., Any] | None = None

    # -- functions --------------------------------------------------------------------------------

    def urn(self, parameters: list[np.ndarray]) -> tuple[float, float]:
        """Return the concentration and the discount, given the parameters."""
        concentration, discount = self._urn(*parameters)
        return float(concentration), float(discount)

    def seed(self, seed: Any) -> None:
        """Compile the function that draws atoms from the base measure, with this seed."""
        replaced = dict(zip(self.hyperparameters, self._inputs, strict=True))
        outputs: list[Any] = self._replaced(list(self.mixture.atoms), replaced)
        self._base = pm.compile(self._inputs, outputs, random_seed=seed, mode=MODE, on_unused_input="ignore")

    def base(self, parameters: list[np.ndarray], m: int) -> list[np.ndarray]:
        """Draw the atoms of m components from the base measure: arrays of shape (m, ...)."""
        assert self._base is not None
        drawn = [self._base(*parameters) for _ in range(-(-m // self.mixture.max_components))]
        return [np.concatenate(parts)[:m] for parts in zip(*drawn, strict=True)]

    def kernel(
        self, atoms: list[np.ndarray], parameters: list[np.ndarray], n_occupied: int | None = None
    ) -> np.ndarray:
        """Return the density of each grid point under each component, shape (components, points).

        The first `n_occupied` components have records (by default all); the others are draws from the base
        measure.
        """
        components, points = len(atoms[0]), len(self.grid)
        labels = np.repeat(np.arange(components), points)
        values = np.concatenate([self.grid] * components)
        rows = [np.broadcast_to(v, (len(labels), *v.shape)) for v in self._covariates.values()]
        try:
            logp = self._kernel([labels, values, *rows], atoms, parameters)
        except ParameterValueError as error:
            if n_occupied is None or n_occupied == components:
                raise ValueError(
                    f"The law of {self.mixture.kernel.name} is not defined for some draw of the atoms and "  # type: ignore[attr-defined]
                    f"parameters: {error}. Pass the draws of this model."
                ) from error
            if n_occupied:
                self.kernel([a[:n_occupied] for a in atoms], parameters)
            raise self._base_reaches_outside(bool(n_occupied), error) from error
        except RowsDiffer as error:
            raise self._rows_do_not_fit() from error
        densities: np.ndarray = np.exp(logp).reshape(components, points)
        return densities

    def prior(self, seed: Any, size: int) -> list[list[np.ndarray]]:
        """Draw the parameters from their prior, `size` times."""
        variables = set(self._variables)
        for potential in self.model.potentials:
            behind = set(ancestors([potential], blockers=variables)) & variables
            above = set(ancestors(self.hyperparameters)) & variables
            if behind & above:
                raise ValueError(
                    f"The potential {potential.name} is part of the prior of {named(behind & above)}, which "
                    "cannot be simulated: put what it says into their laws."
                )
        if not self.hyperparameters:
            return [[] for _ in range(size)]
        draw = pm.compile([], self._replaced(list(self.hyperparameters), {}), random_seed=seed, mode=MODE)
        return [[np.asarray(v) for v in draw()] for _ in range(size)]

    # -- graphs -----------------------------------------------------------------------------------

    def _replaced(self, graphs: list[Any], replaced: Mapping[Any, Any]) -> list[Any]:
        return list(graph_replace(graphs, {**self._observed_in(graphs), **replaced}, strict=False))

    def _observed_in(self, graphs: list[Any]) -> dict[Any, Any]:
        behind = set(ancestors(graphs)) - set(graphs)
        return {rv: value for rv, value in self._observed.items() if rv in behind}

    # -- checks -----------------------------------------------------------------------------------

    def _checked_covariates(self, covariates: Mapping[str, Any] | None) -> dict[Any, np.ndarray]:
        checked: dict[Any, np.ndarray] = {}
        if covariates is not None and not isinstance(covariates, Mapping):
            raise TypeError(
                f"covariates must map names to values, as in {{'x': 1.5}}, got {type(covariates).__name__}."
            )
        behind = set(ancestors(parameters_of(self.mixture.kernel)))
        for name, value in (covariates or {}).items():
            variable: Any = self.model.named_vars.get(name)
            if variable is None or variable not in behind:
                raise ValueError(
                    f"covariates must name data or variables in the law of {self.mixture.kernel.name}, which "
                    f"{name!r} is not; give values of pm.Data that it uses."
                )
            if variable.type.ndim < 1:
                raise ValueError(
                    f"covariates has {name!r}, which has no value for each record: leave it out."
                )
            row = np.asarray(value, dtype=variable.type.dtype)
            fits = row.ndim == variable.type.ndim - 1 and all(
                length in (None, size)
                for length, size in zip(variable.type.shape[1:], row.shape, strict=True)
            )
            if not fits:
                raise ValueError(
                    f"covariates[{name!r}] must be the value for one record, of {variable.type.ndim - 1} "
                    f"dimensions {variable.type.shape[1:]}, got shape {row.shape}."
                )
            checked[variable] = row
        return checked

    def _check_rows(self) -> None:
        """Refuse a kernel in which a row depends on more than its own label."""
        mixture = self.mixture
        if mixture.n == 1 and self._by_record():
            # a single row would broadcast to any number of rows
            raise self._rows_do_not_fit()
        analysis = RowAnalysis({mixture.labels, *self._covariates}, mixture.n, self._variables)
        node: Any = mixture.kernel.owner
        # PyMC's parameter checks look at all rows, but do not change values
        for check in toposort(node.inputs):
            if isinstance(check.op, CheckParameterValue):
                analysis.roles[check.outputs[0]] = analysis.role(check.inputs[0])
        if rule(node.op, node, [analysis.role(v) for v in node.inputs], analysis).kind != "row":
            raise ValueError(
                f"Record i of {mixture.kernel.name} must depend on label i of {mixture.labels.name} only, "
                f"as in pm.Normal('y', mu[{mixture.labels.name}], 1): there is no "
                "density of one record otherwise."
            )

    def _by_record(self) -> list[str]:
        """Return the names of data and parameters in the kernel that seem to have a value per record."""
        behind = set(ancestors(parameters_of(self.mixture.kernel), blockers=self._variables))
        return [
            str(v.name)
            for v in (*self.model.data_vars, *self.model.free_RVs)
            if v in behind
            and v not in {*self._covariates, self.mixture.labels, *self.mixture.atoms}
            and _length(v) == self.mixture.n
        ]

    def _base_reaches_outside(self, parameters_have_records: bool, error: Exception) -> ValueError:
        """Return the error for components that can have no records.

        Samplers treat the density of such components as zero. A new record could then not be drawn from the
        urn, and its density would depend on the share of the base measure that is inside the domain, of which
        draws of this model say nothing.
        """
        kernel, atoms = self.mixture.kernel.name, ", ".join(self.atoms)  # type: ignore[attr-defined]
        behind = set(ancestors(parameters_of(self.mixture.kernel), blockers=self._variables))
        others = [str(rv.name) for rv in self.hyperparameters if rv in behind]
        at = atoms if parameters_have_records or not others else ", ".join([atoms, *others])
        return ValueError(
            f"The law of {kernel} is not defined at some values that the laws of {at} reach: {error}. A "
            "component there can have no records, so the weights given the labels, and with them the density "
            f"of one more record, are not those of the urn. Give {at} laws inside of the domain of {kernel}, "
            "as HalfNormal for a standard deviation, and sample again."
        )

    def _rows_do_not_fit(self) -> ValueError:
        by_record = self._by_record()
        if by_record:
            return ValueError(
                f"The law of {self.mixture.kernel.name} depends on {', '.join(by_record)}, with a value for "
                f"each record: give that of one record, as in covariates={{{by_record[0]!r}: ...}}."
            )
        return ValueError(
            f"The law of {self.mixture.kernel.name} seems to depend on numbers that each record has for "
            "itself. Declare them in the model as pm.Data('x', ...), and give those of one record, as in "
            "covariates={'x': ...}."
        )


def _length(variable: Any) -> int | None:
    """Return the length of the leading axis, if it is known."""
    if variable.type.ndim < 1:
        return None
    if hasattr(variable, "get_value"):
        return int(variable.get_value(borrow=True).shape[0])
    length = variable.type.shape[0]
    return None if length is None else int(length)


def _checked_grid(grid: Any, kernel: Variable) -> np.ndarray:
    kind: Any = kernel.type
    try:
        points = np.asarray(grid, dtype=kind.dtype if np.dtype(kind.dtype).kind == "f" else float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"grid must be an array of points, got {type(grid).__name__}.") from error
    expected = ("G", *("?" if s is None else str(s) for s in kind.shape[1:]))
    fits = points.ndim == kind.ndim and all(
        length in (None, size) for length, size in zip(kind.shape[1:], points.shape[1:], strict=False)
    )
    if not fits:
        raise ValueError(
            f"grid must have shape ({', '.join(expected)}{',' if len(expected) == 1 else ''}), points of the "
            f"values of {kernel.name}, got {points.shape}."  # type: ignore[attr-defined]
        )
    if not len(points):
        raise ValueError("grid must have at least one point, got none.")
    if not np.isfinite(points).all():
        raise ValueError("grid must be finite numbers, but has NaN or infinite ones: leave these points out.")
    if np.dtype(kind.dtype).kind in "iu":
        if np.any(points != np.floor(points)):
            raise ValueError(f"grid must be whole numbers, as {kernel.name} is discrete, but has fractions.")  # type: ignore[attr-defined]
        points = points.astype(kind.dtype)
    return points
