"""Laplace and Gaussian noise, continuous or discrete: its level for a budget, or the cost of a given level.

Sensitivity is measured in a norm whose order is 1 for Laplace noise and 2 for Gaussian noise. The cost is the
sum of (change / level)^order / order over the statistics: epsilon for order 1, rho for order 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms._checks import exactly_one, noise_parameter
from pymc_dp.mechanisms.mechanism import Mechanism, PreparedQuery
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.calibration import gaussian_sigma_zcdp, laplace_scale
from pymc_dp.privacy.guarantee import PrivacyGuarantee


@dataclass(frozen=True)
class AdditiveNoise:
    """A kind of noise, with the names of its arguments in a declaration.

    Attributes
    ----------
    order : int
        Order of the norm in which sensitivity is measured, 1 or 2.
    level, budget : str
        Names of two arguments, of which a declaration gives exactly one.
    calibrate : callable
        Computes the noise level from a budget and a sensitivity.
    promise : callable
        Makes the guarantee that belongs to a budget.
    """

    order: int
    level: str
    budget: str
    calibrate: Callable[[float, float], float]
    promise: Callable[[float], PrivacyGuarantee]

    def declared(
        self,
        mechanism: type[Mechanism],
        query: Any,
        level: Any,
        budget: Any,
        *,
        sensitivity: Any,
        bounds: Any,
        neighbours: str = "replace-one",
        exact: bool = False,
    ) -> tuple[PreparedQuery, TensorVariable, PrivacyGuarantee | None]:
        """Return the query of a declaration, its noise level, and the guarantee if it is known.

        With `exact`, a level that follows from a budget is rounded upwards, so that it costs no more than
        that.
        """
        given = {f"{self.level}=": level is not None, f"{self.budget}=": budget is not None}
        choices = f"{self.level}=, or {self.budget}= with sensitivity= or bounds="
        exactly_one(mechanism.__name__, given, choices)
        prepared = mechanism._prepare(
            query, sensitivity=sensitivity, bounds=bounds, order=self.order, neighbours=neighbours
        )
        spent = None
        if budget is not None:
            spent = positive(self.budget, budget)
            change = self.needed_sensitivity(self.budget, prepared)
            level = self.calibrate(spent, change)
            if exact:
                level = self._rounded_up(level, spent, change)
        noise, known = noise_parameter(self.level, level, prepared.query)
        if budget is None:
            spent = self.spent(prepared, known)
        return prepared, noise, None if spent is None else self.promise(spent)

    def needed_sensitivity(self, budget: str, prepared: PreparedQuery) -> float:
        """Return the sensitivity with which a level follows from a budget; raise if it is not known."""
        if prepared.sensitivity is None:
            raise ValueError(
                f"{budget} needs the sensitivity of the query: give sensitivity= (L{self.order}), or "
                "bounds= to clamp each record's contribution."
            )
        return prepared.sensitivity

    def spent(self, prepared: PreparedQuery, noise: np.ndarray | None) -> float | None:
        """Return the cost of a noise level; None where the level or the sensitivity is not known."""
        if noise is None or prepared.sensitivity is None:
            return None
        with np.errstate(over="ignore"):
            if prepared.width is None:
                spent = float((np.float64(prepared.sensitivity) / noise.min()) ** self.order) / self.order
            else:
                # `width` has the shape of one release, or of one row of a local query; a noise level with
                # more axes than that differs between rows, and a person is in one row only.
                terms = (prepared.width / noise) ** self.order
                axes = tuple(range(terms.ndim - prepared.width.ndim, terms.ndim))
                spent = float(np.max(np.sum(terms, axis=axes))) / self.order
        if not math.isfinite(spent):
            raise ValueError(
                f"{self.level} = {float(noise.min()):g} is too small for a sensitivity of "
                f"{prepared.sensitivity:g}: the {self.budget} that it spends is beyond what floating point "
                f"holds. Give a larger {self.level}."
            )
        if spent == 0 < prepared.sensitivity:  # a release would be rounded at no cost
            raise ValueError(
                f"{self.level} = {float(noise.max()):g} is so large for a sensitivity of "
                f"{prepared.sensitivity:g} that the {self.budget} that it spends rounds to 0. Give a smaller "
                f"{self.level}."
            )
        return spent

    def _rounded_up(self, level: float, budget: float, sensitivity: float) -> float:
        """Return `level`, or the next number where rounding has made it cost more than `budget`."""
        change, limit = Fraction(sensitivity) ** self.order, self.order * Fraction(budget)
        while change > limit * Fraction(level) ** self.order:
            level = math.nextafter(level, math.inf)
        return level


LAPLACE = AdditiveNoise(1, "scale", "epsilon", laplace_scale, PrivacyGuarantee)
GAUSSIAN = AdditiveNoise(
    2, "sigma", "rho", gaussian_sigma_zcdp, lambda rho: PrivacyGuarantee(math.inf, rho=rho)
)


def given_once(mechanism: str, calibration: str | None = None, **levels: Any) -> tuple[dict[str, Any], bool]:
    """Return those arguments for the noise level that were given, and whether they mean Gaussian noise.

    Parameters
    ----------
    mechanism : str
    calibration : str, optional
        How the level of Gaussian noise follows from epsilon and delta.
    **levels
        ``scale``, ``sigma``, ``epsilon``, ``delta`` and ``rho``: None where it was not given.
    """
    given = {k: v for k, v in levels.items() if v is not None}
    ways = {f"{k}=": k in given for k in ("scale", "sigma", "epsilon", "rho")}
    ways["delta="] = "delta" in given and "epsilon" not in given
    exactly_one(mechanism, ways, "epsilon= (with delta= for Gaussian noise), rho=, scale= or sigma=")
    normal = bool({"sigma", "rho", "delta"} & given.keys())
    if calibration is not None:
        if not normal:
            raise ValueError(
                f"calibration={calibration!r} is for Gaussian noise: give delta= beside epsilon=, or leave "
                "calibration out."
            )
        given["calibration"] = calibration
    return given, normal


def query_as_support_point(size: Any, query: TensorVariable, noise: TensorVariable) -> Any:
    """Return the query in the release's shape, as the support point of a release with additive noise."""
    point, _ = pt.broadcast_arrays(query, noise)
    return point if rv_size_is_none(size) else pt.full(size, point)
