"""What the private steps share: their parameters, the model's other terms, and noisy access to the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import types
from pymc.model.core import Model, modelcontext
from pymc.step_methods.compound import Competence
from pymc.util import get_value_vars_from_user_vars
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_dp.lowering.addresses.native import VECTOR, NativeFunction
from pymc_dp.privacy.costs import RunCost
from pymc_dp.private.clipped_ratios import RowRatio
from pymc_dp.private.confidential import RowTerm, confidential_terms, refuse_shared_transforms
from pymc_dp.private.density import RowDensity, domain
from pymc_dp.private.integer_noise import GaussianNoise, checked_seed, noise_scale
from pymc_dp.private.life import TIES, Life
from pymc_dp.private.normal import NormalApproximation
from pymc_dp.private.spending import relative_noise
from pymc_dp.private.sums import RowSums
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.step_methods.block.layout import DataLayout, ParameterLayout

_NUMBERS = types.void(VECTOR, VECTOR, VECTOR, VECTOR)  # parameters, other variables, data -> numbers
_LOGP = types.float64(VECTOR, VECTOR, VECTOR)
_LENGTH = types.float64(VECTOR, VECTOR, VECTOR, VECTOR)
# A row counts as 2^_COUNT_BITS units of the noise on a count.
_COUNT_BITS = 20


def parameters_behind(inputs: Sequence[Variable], model: Model) -> list[Variable]:
    """Return the free variables that a likelihood reads, without those that only their priors read."""
    leaves = set(leaves_of(inputs, model.basic_RVs))
    return [rv for rv in model.free_RVs if rv in leaves]


class PrivateStep(Life):
    """A step for the parameters of one confidential likelihood."""

    default_blocked = True
    takes_sentinels = True
    clipped_noise: float | None = None
    stats_dtypes_shapes: Any
    stats_dtypes: Any
    model: Model
    approximation: NormalApproximation | None = None

    def __new__(cls, vars: Any = None, *args: Any, model: Any = None, **kwargs: Any) -> Any:
        """Take all parameters of the likelihood when no variables are given."""
        if kwargs.get("blocked") is False:
            raise ValueError(
                f"{cls.__name__}: blocked=False would make a step of each variable, and each would pay for a "
                "whole run. Leave it out; updates='component' moves one number at a time."
            )
        model = modelcontext(model)
        return super().__new__(cls, cls._claim(vars, model), *args, model=model, **kwargs)

    @classmethod
    def _claim(cls, vars: Any, model: Model) -> list[Variable]:
        """Return the value variables of the step: parameters of one confidential likelihood."""
        behind = {term.name: parameters_behind(inputs, model) for term, inputs in confidential_terms(model)}
        if not behind:
            raise ValueError(
                f"{cls.__name__}: the model has no confidential likelihood. Declare one with "
                "dp.ConfidentialLikelihood(name, dist, data=rows, clip=...)."
            )
        if vars is None:
            if len(behind) > 1:
                raise ValueError(
                    f"{cls.__name__}: the model has the confidential likelihoods "
                    f"{', '.join(behind)}; name the parameters of one of them, and make a step for each."
                )
            (parameters,) = behind.values()
            return [model.rvs_to_values[rv] for rv in parameters]
        values = get_value_vars_from_user_vars(vars if isinstance(vars, list | tuple) else [vars], model)
        for value in values:
            rv = model.values_to_rvs[value]
            of = [name for name, parameters in behind.items() if rv in parameters]
            if not of:
                raise ValueError(
                    f"{cls.__name__}: '{rv.name}' is no parameter of a confidential likelihood, and would be "
                    "paid for without need. Leave it out: it gets a step of its own."
                )
            if len(of) > 1:
                raise ValueError(
                    f"{cls.__name__}: '{rv.name}' is a parameter of {', '.join(of)}, and a private step "
                    "looks at one table. Put their rows into one, with a covariate that says which."
                )
        return values

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Take no variable by default, since a step needs its noise level as an argument."""
        return Competence.INCOMPATIBLE

    def _prepare(
        self, vars: Any, model: Any, rng: Any, initial_point: Any, seed: int | None, clipped_noise: Any
    ) -> None:
        shapes = {**type(self).stats_dtypes_shapes, **TIES}
        if clipped_noise is not None:
            self.clipped_noise = relative_noise("clipped_noise", clipped_noise)
            shapes["private_clipped_fraction"] = (np.float64, [])
        self.stats_dtypes_shapes = shapes
        self.stats_dtypes = [{name: dtype for name, (dtype, _) in shapes.items()}]
        self.model = modelcontext(model)
        self.vars = self._claim(vars, self.model)
        mine = [self.model.values_to_rvs[v] for v in self.vars]
        found = [
            term
            for term, inputs in confidential_terms(self.model)
            if set(mine) & set(parameters_behind(inputs, self.model))
        ]
        names = sorted({term.name for term in found})
        if len(found) != 1:
            raise ValueError(
                f"{type(self).__name__}: a step looks at one confidential likelihood, and these are "
                f"parameters of {', '.join(names)}. Make a step for each."
            )
        self.likelihood = names[0]
        refuse_shared_transforms(type(self).__name__, self.likelihood, self.vars, self.model)
        point = self.model.initial_point() if initial_point is None else initial_point
        rest = [rv for rv in self.model.free_RVs if rv not in mine]
        self.layout = ParameterLayout(self.model, mine, point)
        self.others = ParameterLayout(self.model, rest, point)
        self._rounds = any(dtype != np.float64 for dtype in self.layout.dtypes)
        self._origin = self.layout.flatten(point), self.others.flatten(point)
        self.rng = np.random.default_rng(rng)
        self.insecure_noise_seed = checked_seed(seed)
        self.tune = True
        self._use(None)

    def _use(self, approximation: Any) -> None:
        """Measure moves and rows against an approximation, if there is one."""
        size = self.layout.size
        self.approximation = approximation
        self.axes, self.metric, self._inverse_metric = (np.eye(size) for _ in range(3))
        if approximation is not None:
            self._measure_against(approximation)
        self._lock()

    def _lock(self) -> None:
        for array in (self.axes, self.metric, self._inverse_metric):
            array.flags.writeable = False

    def _measure_against(self, approximation: Any) -> None:
        name = type(self).__name__
        if not isinstance(approximation, NormalApproximation):
            raise TypeError(
                f"{name}: approximation must come from dp.normal_approximation, got "
                f"{type(approximation).__name__}."
            )
        of = (self.likelihood, tuple(self.layout.names), tuple(self.layout.shapes))
        if (approximation.likelihood, approximation.names, approximation.shapes) != of:
            raise ValueError(
                f"{name}: approximation is {approximation!r}, and the step moves "
                f"{', '.join(self.layout.names)} given '{self.likelihood}'. Make one for this model, and "
                "leave vars out."
            )
        self.axes = np.linalg.cholesky(approximation.covariance)
        self.metric = np.linalg.cholesky(approximation.information).T
        self._inverse_metric = np.linalg.inv(self.metric)

    @property
    def clip(self) -> float:
        """Bound of a row's change of log density per unit of :meth:`distance`."""
        near = self.approximation
        return near.clip if near is not None and self.term.coordinates is None else self.term.clip

    def distance(self, new: np.ndarray, old: np.ndarray, other: np.ndarray) -> float:
        """Return a move's length, to which the bound of a row's change is proportional; needs no rows."""
        if self.term.coordinates is not None:
            found = float(self._distance.dispatcher(new, old, other, self.data))
            # a move that changes no coordinate has no bound: it and its reverse are refused
            return found if found > 0 or np.array_equal(new, old) else math.inf
        move = new - old
        return float(np.linalg.norm(move if self.approximation is None else self.metric @ move))

    def _found(self) -> tuple[RowTerm, list[Variable]]:
        (found,) = [f for f in confidential_terms(self.model) if f[0].name == self.likelihood]
        return found

    def _build(self) -> None:
        """Lower the model."""
        self.term, inputs = self._found()
        model = self.model
        self._data = DataLayout()
        theta, other = pt.vector("theta", dtype="float64"), pt.vector("other", dtype="float64")
        reading: dict[Variable, Variable] = {}
        for layout, flat in ((self.layout, theta), (self.others, other)):
            for k, value in enumerate(layout.values):
                graph = layout.graph(flat, k)
                reading[value] = pt.specify_shape(graph, value.type.shape)  # type: ignore[attr-defined]

        def of_values(graphs: list[Any]) -> list[Any]:
            # a random variable among them is one that was replaced by its value
            return list(graph_replace(graphs, reading, strict=False))

        natural = of_values(model.replace_rvs_by_values([pt.as_tensor(v) for v in inputs]))
        density = RowDensity(self.term)
        ratio, self._sums = self._sums_of(density, natural)
        numbers = [pt.stack(ratio.numbers)] if ratio.numbers else [pt.zeros(0)]
        self.n_numbers = len(ratio.numbers)
        self._numbers = self._native("numbers", theta, other, numbers, _NUMBERS)
        sentinels = {p for p in model.potentials if _is_confidential(p)}
        terms = [v for v in [*model.basic_RVs, *model.potentials] if v not in sentinels]
        moved = set(self.vars)
        logps = [g for g in model.logp(vars=terms, sum=False) if moved & set(ancestors([g]))]
        own: dict[Variable, Variable] = dict(zip(self.term.parameters, inputs, strict=True))
        inside = graph_replace(domain(self.term), own, strict=False)
        total = of_values([sum((g.sum() for g in logps), start=pt.constant(0.0))])
        if self.term.coordinates is not None:
            (places,) = graph_replace([self.term.coordinates], own, strict=False)
            (places,) = of_values(model.replace_rvs_by_values([places]))
            old = pt.vector("old", dtype="float64")
            change = places - graph_replace([places], {theta: old}, strict=False)[0]
            data = self._data.lift([(change**2).sum() ** 0.5])
            self._distance = NativeFunction("distance", [theta, old, other, self._data.data], data, _LENGTH)
        for condition in of_values(model.replace_rvs_by_values(inside)):
            total = [pt.switch(condition, total[0], -np.inf)]  # known without the rows
        self._logp = self._native("logp", theta, other, total, _LOGP)
        if self.clipped_noise is not None:
            ratio.counting  # noqa: B018  (compiled before a draw waits for it)
        self._graphs = (theta, other, ratio.numbers, total[0], density, ratio.features)
        self._noise: GaussianNoise | None = None
        self._counted: GaussianNoise | None = None
        self._left = {"ratios": 0, "gradients": 0}  # releases left to the chain that this process samples
        self._begun_by = 0
        self._planned, self._named = 0, -1
        self._at = None

    def _sums_of(self, density: RowDensity, natural: Sequence[Any]) -> tuple[RowRatio, Any]:
        """Return the compiled change of the rows' log density, and the object that sums it over rows."""
        ratio = density.ratio(natural)
        return ratio, RowSums(self.term, ratio)

    def _native(self, name: str, theta: Any, other: Any, graphs: list[Any], sig: Any) -> NativeFunction:
        lifted = self._data.lift(graphs)
        return NativeFunction(name, [theta, other, self._data.data], lifted, sig)

    def _noise_scales(self, noise_multiplier: float) -> dict[str, int]:
        """Return the standard deviations of all noise, in whole units of the sums that it is added to.

        Raises
        ------
        ValueError
            If the noise is too large for 64-bit integers.
        """
        scales = {"ratios": noise_scale("noise_multiplier", noise_multiplier, self._sums.bits + 1)}
        if self.clipped_noise is not None:
            # replacing a row changes a count by one
            scales["counts"] = noise_scale(
                "clipped_noise", noise_multiplier * self.clipped_noise, _COUNT_BITS
            )
        return scales

    def cost(self, draws: int, tune: int, chains: int) -> list[RunCost]:
        """Return the cost of a run, for :func:`pymc_dp.accounting.epsilon`.

        Parameters
        ----------
        draws, tune, chains : int
            As for ``pm.sample``.

        Returns
        -------
        list of GaussianCost or SubsampledGaussianCost
        """
        return self.plan.costs(draws + tune, chains, self.plan.noise_multiplier)

    def numbers_at(self, theta: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the numbers through which the rows' log density depends on the parameters."""
        out = np.zeros(self.n_numbers)  # zeros, so that a traceback cannot show stale memory
        self._numbers.dispatcher(theta, other, self.data, out)
        return out

    def logp_at(self, theta: np.ndarray, other: np.ndarray) -> float:
        """Return the log density of the model without the confidential rows."""
        return float(self._logp.dispatcher(theta, other, self.data))

    def noisy_ratio(
        self, new: np.ndarray, theta: np.ndarray, other: np.ndarray, distance: float
    ) -> tuple[float, float]:
        """Return the noisy change of the confidential log likelihood, and the noise's standard deviation.

        Sums and noise are whole numbers of ``bound * 2**-bits``: replacing a row changes the sum by at most
        ``2 * 2**bits`` of them, however changes are rounded, and the noise takes every whole number.
        """
        term, sums = self.term, self._sums
        bound = self.clip * distance
        unit = bound * 2.0**-sums.bits
        self._spend("ratios")
        if not 0 < unit < math.inf:  # the move is 0 or too small for numbers: rows are not read
            self._next, self._n_clipped = self._at, self._count_noise()
            return 0.0, math.inf if unit > 0 else 0.0
        ends = self._ends(new, theta, other)
        assert self._noise is not None
        # neither the noise nor the sum alone is a variable, which an error could show
        total = int(self._noise.draw(1)[0]) + sums.clipped(*ends, bound)
        self._count(*ends, bound)
        sd = 2 * bound * self.plan.noise_multiplier * term.temper
        return term.temper * unit * total, sd

    def _ends(self, new: np.ndarray, theta: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of a proposal, and those of the current state, which are computed only once."""
        at = self._at
        if at is None or not (_are_equal(at[0], theta) and _are_equal(at[1], other)):
            self._at = at = (theta, other, self.numbers_at(theta, other))
        numbers = self.numbers_at(new, other)
        self._next = (new, other, numbers)
        return numbers, at[2]

    def _count(self, new: np.ndarray, old: np.ndarray, bound: float) -> None:
        """Release a noisy count of clipped rows, if the run was debited for it."""
        if self._counted is not None:
            self._n_clipped = self._count_noise() + self._sums.exceeding(new, old, bound)

    @property
    def n_looked_at(self) -> int:
        """Number of rows that a release is computed from."""
        return self.term.rows.n

    def _count_noise(self) -> float:
        return 0.0 if self._counted is None else int(self._counted.draw(1)[0]) * 2.0**-_COUNT_BITS


def _are_equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a is b or np.array_equal(a, b)


def _is_confidential(potential: Variable) -> bool:
    from pymc_dp.lowering.functions.sentinel import Sentinel

    return any(v.owner is not None and isinstance(v.owner.op, Sentinel) for v in ancestors([potential]))
