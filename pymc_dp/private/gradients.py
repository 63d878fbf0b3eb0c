"""What private steps with gradients share: gradients of the rows' log density and of the other terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.gradient as tg
import pytensor.tensor as pt
from numba import types

from pymc_dp.lowering.addresses.native import MATRIX, VECTOR
from pymc_dp.private.clipped_gradients import RowGradient
from pymc_dp.private.noisy_likelihood import PrivateStep, parameters_behind

_JACOBIAN = types.void(VECTOR, VECTOR, VECTOR, MATRIX)
_SLOPE = types.void(VECTOR, VECTOR, VECTOR, VECTOR)


class GradientStep(PrivateStep):
    """A private step that uses gradients of the rows' log density."""

    _here = (*PrivateStep._here, "_gradient", "_jacobian", "_slope")

    def _need_all(self, why: str) -> None:
        """Refuse a step for only some of the parameters, or a likelihood without ``clip_gradient``."""
        name = type(self).__name__
        parameters = parameters_behind(self._found()[1], self.model)
        if {self.model.values_to_rvs[v] for v in self.vars} != set(parameters):
            raise ValueError(f"{name}: {why} of '{self.likelihood}' together. Leave vars out.")
        if self.approximation is None and self._found()[0].clip_gradient is None:
            raise ValueError(
                f"{name}: '{self.likelihood}' has no bound of a row's gradient. Give it clip_gradient=."
            )

    def _build(self) -> None:
        super()._build()
        theta, other, numbers, logp, density, features = self._graphs
        d = self.layout.size
        rows = [pt.cast(tg.grad(v, theta, disconnected_inputs="ignore"), "float64") for v in numbers]
        self._jacobian = self._native("jacobian", theta, other, [pt.stack(rows).reshape((-1, d))], _JACOBIAN)
        slope = tg.grad(logp, theta, disconnected_inputs="ignore")
        self._slope = self._native("slope", theta, other, [slope], _SLOPE)
        self._gradient = RowGradient(features, density.terms, density.entries, density.rows.constant_inputs)

    def jacobian_at(self, theta: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the Jacobian of the numbers that the rows' log density depends on, shape (numbers, d)."""
        out = np.zeros((self.n_numbers, self.layout.size))  # as in numbers_at
        self._jacobian.dispatcher(theta, other, self.data, out)
        return out

    def slope_at(self, theta: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the gradient of the model's other terms."""
        out = np.zeros(self.layout.size)
        self._slope.dispatcher(theta, other, self.data, out)
        return out

    @property
    def clip_gradient(self) -> float:
        """Bound of the norm of a row's gradient, in the step's own coordinates."""
        of_rows: Any = self.term.clip_gradient
        return float(of_rows if self.approximation is None else self.approximation.clip_gradient)
