"""Whether a log density contradicts a privacy guarantee, at the queries and values that were tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_dp.privacy._conversions import gaussian_delta_at
from pymc_dp.privacy._line import integrate
from pymc_dp.privacy.guarantee import PrivacyGuarantee

ORDERS = (1.25, 1.5, 2.0, 4.0, 8.0, 32.0)
_EPSILONS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)  # where the curve of mu is compared
_ROUNDING = 1e-6
_INTEGRATED = 1e-5  # what rounding of single-precision densities makes of integrals
_BESIDE = 64  # units in the last place that a value is moved by, away from where a density may jump
_GRID = np.exp(np.arange(-20.0, 20.0, 0.02))

type LogDensity = Callable[[np.ndarray, np.ndarray], np.ndarray]


class NoDensity(ValueError):
    """A log density that has no value at a query."""


@dataclass(frozen=True)
class GuaranteeCheck:
    """What a comparison of a guarantee with a density found, and what it covered.

    Attributes
    ----------
    guarantee : PrivacyGuarantee
        The claim.
    pairs, values : int
        How many pairs of neighbouring queries were compared, in both directions, and at how many values.
    log_ratio : float
        The largest log ratio of densities, in nats.
    divergences : dict
        From an order to the largest Renyi divergence of that order; empty if none was integrated.
    faults : tuple of str
        Where the density contradicts the claim; empty if nowhere.
    not_covered : tuple of str
        Parts of the claim that were not compared.
    """

    guarantee: PrivacyGuarantee
    pairs: int
    values: int
    log_ratio: float
    divergences: dict[float, float]
    faults: tuple[str, ...]
    not_covered: tuple[str, ...]

    @property
    def contradicted(self) -> bool:
        """Whether the density contradicts the claim."""
        return bool(self.faults)

    def __str__(self) -> str:
        pairs = "one pair" if self.pairs == 1 else f"{self.pairs} pairs"
        found = f"{pairs} of queries, {self.values} values, log ratio at most {self.log_ratio:g}"
        if self.divergences:
            at = max(self.divergences)
            found += f", divergence of order {at:g} at most {self.divergences[at]:g}"
        left = f" Not compared: {'; '.join(self.not_covered)}." if self.not_covered else ""
        if self.faults:
            return f"Contradicted: {'; '.join(self.faults)}. (Compared: {found}.){left}"
        return (
            f"Not contradicted by {found}. This is no proof: other queries and values were not tried.{left}"
        )


def compare(
    log_density: LogDensity,
    pairs: Sequence[tuple[Any, Any]],
    guarantee: PrivacyGuarantee,
    *,
    values: Any = None,
    dtype: str = "float64",
    scalar: bool = True,
    orders: Sequence[float] = ORDERS,
) -> GuaranteeCheck:
    """Compare the densities of releases of neighbouring queries with a guarantee.

    Parameters
    ----------
    log_density : callable
        ``(values, query) -> log densities``, shapes (n, ...) and (n,).
    pairs : sequence of pairs of array_like
        Neighbouring queries.
    guarantee : PrivacyGuarantee
    values : array_like, shape (n, ...), optional
        Releases to compare at; those of one number have a grid by default.
    dtype : str
        Kind of number that is released.
    scalar : bool
        Whether a release is one number, so that divergences are integrated.
    orders : sequence of float
        Orders of the divergences that rho is compared at, each above 1; a curve is, at its own.

    Returns
    -------
    GuaranteeCheck
    """
    worst, faults, tried = -math.inf, {}, 0
    divergences: dict[float, float] = {}
    bounds, lost = dict(guarantee.renyi), set()
    integrated = not guarantee.is_pure or guarantee.rho is not None or bool(bounds)
    for pair in pairs:
        for one, other in (pair, pair[::-1]):
            grid = _grid(pair, values, dtype) if values is None or scalar else np.asarray(values)
            here, there = log_density(grid, np.asarray(one)), log_density(grid, np.asarray(other))
            bad = np.isnan(here) | np.isnan(there)
            if bad.any():
                value = grid[int(np.argmax(bad))]
                raise NoDensity(f"logp is NaN at the value {value} for the query {one} or {other}.")
            tried += len(grid)
            ratio = _log_ratio(here, there)
            # what rounding of large log densities can make of it
            slack = (
                4 * np.finfo(float).eps * np.where(np.isfinite(here + there), np.abs(here) + np.abs(there), 0)
            )
            k = int(np.argmax(ratio - slack))
            if ratio[k] - slack[k] > worst:
                worst = float(ratio[k] - slack[k])
                if guarantee.is_pure and worst > guarantee.epsilon * (1 + _ROUNDING) + 1e-9:
                    faults["epsilon"] = (
                        f"the log ratio is {ratio[k]:g} > epsilon = {guarantee.epsilon:g} at the value "
                        f"{_short(grid[k])}, for the queries {_short(one)} and {_short(other)}"
                    )
            if scalar and integrated:
                found = _integrated(log_density, one, other, guarantee, dtype, orders)
                for alpha, (spent, error) in found[0].items():
                    if math.isnan(spent):
                        lost.add(alpha)
                        continue
                    divergences[alpha] = max(divergences.get(alpha, 0.0), spent)
                    limit = math.inf if guarantee.rho is None else guarantee.rho * alpha
                    if spent - error > limit * (1 + _INTEGRATED) + 1e-9:
                        faults["rho"] = (
                            f"the Renyi divergence of order {alpha:g} is {spent:g} > rho * {alpha:g} = "
                            f"{limit:g}, for the queries {_short(one)} and {_short(other)}"
                        )
                    limit = bounds.get(alpha, math.inf)
                    if spent - error > limit * (1 + _INTEGRATED) + 1e-9:
                        faults[f"order {alpha:g}"] = (
                            f"the Renyi divergence of order {alpha:g} is {spent:g} > {limit:g}, for the "
                            f"queries {_short(one)} and {_short(other)}"
                        )
                for epsilon, delta, (excess, error) in found[1]:
                    if excess - error > delta * (1 + _INTEGRATED) + 1e-12:
                        faults["delta"] = (
                            f"the delta at epsilon = {epsilon:g} is {excess:g} > {delta:g}, for the queries "
                            f"{_short(one)} and {_short(other)}"
                        )
    left = []
    if not scalar and integrated:
        curve = "rho, mu, delta and divergences" if bounds else "rho, mu and delta"
        left.append(f"{curve}, for which releases of several numbers would have to be integrated")
    elif guarantee.rho is not None and not orders and not bounds:
        left.append("rho, since orders is empty")
    left += [
        f"the divergence of order {alpha:g}, whose integral floating point lost" for alpha in sorted(lost)
    ]
    return GuaranteeCheck(
        guarantee, len(pairs), tried, worst, divergences, tuple(faults.values()), tuple(left)
    )  # fmt: skip


def _integrated(
    log_density: LogDensity, one: Any, other: Any, guarantee: PrivacyGuarantee, dtype: str, orders: Any
) -> tuple[dict[float, tuple[float, float]], list[tuple[float, float, tuple[float, float]]]]:
    """Return divergences by order, and (epsilon, promised delta, delta), each with its possible error."""
    own = {order for order, _ in guarantee.renyi}
    orders = sorted({*(orders if guarantee.rho is not None else ()), *own})
    curve = [(guarantee.epsilon, guarantee.delta)] if math.isfinite(guarantee.epsilon) else []
    if guarantee.mu is not None:
        curve += [(e, gaussian_delta_at(e, guarantee.mu)) for e in _EPSILONS]

    def exponents(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        here, there = (np.asarray(log_density(values, np.asarray(q)), dtype=float) for q in (one, other))
        ratio = _log_ratio(here, there)
        with np.errstate(invalid="ignore", over="ignore"):
            powers = [np.where(here > -np.inf, here + (a - 1) * ratio, -np.inf) for a in orders]
        return here, ratio, np.array(powers).reshape(len(orders), len(values))

    if not orders and not curve:
        return {}, []
    # the integrand of a high order has its peak far from the queries, and more than floating point holds
    grid = _grid((one, other), None, dtype)
    here, ratio, powers = exponents(grid)
    shift = powers.max(axis=1, keepdims=True)
    at_peak = powers.argmax(axis=1)
    peaks = grid[at_peak]
    with np.errstate(invalid="ignore"):
        sizes = np.abs(here[at_peak]) + np.array([a - 1 for a in orders]) * (
            np.abs(here[at_peak]) + np.abs(here[at_peak] - ratio[at_peak])
        )
    # what rounding of log densities makes of each; order times as much, of the log of the integral
    kind = np.result_type(log_density(grid[:1], np.asarray(one)), np.float32)
    rounding = 4 * np.finfo(kind).eps * (1 + sizes)

    def integrands(values: np.ndarray) -> np.ndarray:
        here, ratio, powers = exponents(values)
        with np.errstate(invalid="ignore", over="ignore"):
            excess = [np.exp(here) * np.maximum(-np.expm1(np.minimum(e - ratio, 0.0)), 0.0) for e, _ in curve]
            scaled = np.where(np.isfinite(shift), np.exp(powers - shift), 0.0)
        return np.concatenate([scaled, np.array(excess).reshape(len(curve), len(values))])

    centres = np.unique(np.concatenate([np.ravel(one), np.ravel(other), [0.0], peaks]).astype(float))
    with np.errstate(over="ignore", invalid="ignore"):
        total, error = integrate(integrands, centres, whole=_whole(dtype))
    found = {}
    for k, alpha in enumerate(orders):
        if not np.isfinite(shift[k, 0]):
            found[alpha] = math.inf, 0.0
        elif not np.isfinite(total[k] + error[k]):
            found[alpha] = math.nan, math.inf  # the grid missed the peak by more than floating point holds
        else:
            spent = float(shift[k, 0]) + math.log(max(total[k], 1e-300))
            wrong = float(error[k] / max(total[k], 1e-300) + rounding[k])
            found[alpha] = spent / (alpha - 1), wrong / (alpha - 1)
    n = len(orders)
    return found, [(e, d, (float(total[n + k]), float(error[n + k]))) for k, (e, d) in enumerate(curve)]


def _log_ratio(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return the log ratio of two densities; where both are infinite or there is none, it says nothing."""
    with np.errstate(invalid="ignore"):
        ratio = here - there
    return np.where((here > -np.inf) & ~np.isnan(ratio), ratio, -np.inf)


def _whole(dtype: str) -> bool:
    return np.dtype(dtype).kind in "iu"


def _grid(pair: tuple[Any, Any], values: Any, dtype: str) -> np.ndarray:
    """Values near and far from two queries, and those that were given.

    A density is nobody's promise at a single real number, where it may jump or have a pole: each value is
    replaced by one on either side of it.
    """
    centres = np.unique(np.concatenate([np.ravel(q) for q in pair]).astype(float))
    grid = np.concatenate([centres, *(c + s * _GRID for c in centres for s in (1, -1))])
    grid = grid if values is None else np.concatenate([grid, np.ravel(np.asarray(values, dtype=float))])
    if _whole(dtype):
        return np.unique(np.round(grid))
    aside = _BESIDE * np.finfo(dtype).eps * np.maximum(np.abs(grid), np.abs(centres).max())
    return np.unique(np.concatenate([grid - aside, grid + aside]))


def _short(what: Any) -> str:
    return np.array2string(np.asarray(what), precision=6, threshold=8)
