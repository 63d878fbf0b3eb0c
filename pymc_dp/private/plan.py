"""What a private step may spend: reserved before the first draw, claimed chain by chain."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.step_methods.compound import CompoundStep

from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.budgets import epsilon as epsilon_of
from pymc_dp.privacy.costs import Cost, GaussianCost, cost_of
from pymc_dp.privacy.ledger import BudgetExceededError, PrivacyLedger

_log = logging.getLogger("pymc")
# Sums with less noise than this share of what one row can change protect nobody; with more than that, they
# say nothing, and their noise does not fit 64 bits.
_LEAST, _MOST = 1e-3, 1e5
# Share of a budget below which nothing is planned.
_WORTH = 1e-3


class Plan:
    """Noise of a run and the number of draws that it was paid for.

    Parameters
    ----------
    likelihood, step : str
        Names for the ledger.
    ledger : PrivacyLedger, optional
        With the plan `draws`, `tune` and `chains`: the noise follows from what is left of the budget.
    noise_multiplier : float, optional
        Standard deviation of the noise over the replace-one sensitivity, for every number released.
    draws, tune, chains : int, optional
        As for ``pm.sample``.
    gradients : int
        Noisy gradients of each draw, beside its ratio; a chain releases one more before its first draw.
    gradient_noise : float
        Noise multiplier of a gradient over that of a ratio.
    insecure : bool
        Whether the noise comes from a known seed.
    batch : tuple of int, optional
        Number of rows, and of those that each release is computed from, where these are fewer.
    """

    def __init__(
        self, likelihood: str, step: str, ledger: Any, noise_multiplier: float | None, draws: Any, tune: Any,
        chains: Any, *, gradients: int = 0, gradient_noise: float = 1.0, insecure: bool = False,
        batch: tuple[int, int] | None = None,
    ):  # fmt: skip
        if (ledger is None) == (noise_multiplier is None):
            raise ValueError(
                f"{step}: give either ledger= with the plan draws=, tune= and chains= (the noise follows "
                "from the budget), or noise_multiplier= (the cost follows), "
                f"{'and one of them' if ledger is None else 'not both'}."
            )
        self.step = step
        self._gradients, self._batch = (gradients, gradient_noise), batch or (None, None)
        self.noise_multiplier = math.nan  # of a ledger, known once it is reserved
        self.length: int | None = None
        self.chains: int | None = None
        self.reservation: Any = None
        if ledger is None:
            given = [k for k, v in {"draws": draws, "tune": tune, "chains": chains}.items() if v is not None]
            if given:
                raise ValueError(f"{', '.join(given)}: a plan belongs to a ledger, and none is given.")
            self.noise_multiplier = _in_range(positive("noise_multiplier", noise_multiplier))
            return
        if not isinstance(ledger, PrivacyLedger):
            raise TypeError(f"ledger must be a dp.PrivacyLedger, got {type(ledger).__name__}.")
        sizes = {"draws": (draws, 1), "tune": (tune, 0), "chains": (chains, 1)}
        for name, (value, least) in sizes.items():
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not whole or value < least:
                raise ValueError(
                    f"{step}: {name} must be a whole number >= {least}, got {value!r}. With a ledger the "
                    "whole run is paid for in advance: draws=, tune= and chains= as they will be given to "
                    "pm.sample."
                )
        self.length, self.chains = int(draws) + int(tune), int(chains)
        self._ledger, self._names, self._insecure = ledger, (likelihood, step), insecure

    def costs(self, length: int, chains: int, noise_multiplier: float) -> list[Cost]:
        """Return the cost of so many chains of so many draws, tuning included."""
        ratios = chains * length
        found = [cost_of(ratios, noise_multiplier, *self._batch)] if ratios else []
        if self._gradients[0] and chains:
            vectors = chains * self.gradients_of(length)
            found.append(GaussianCost(vectors, noise_multiplier * self._gradients[1]))
        return found

    def gradients_of(self, length: int) -> int:
        """Return how many noisy gradients a chain releases."""
        return length * self._gradients[0] + 1 if self._gradients[0] else 0

    def reserve(self) -> None:
        """Debit the run, once everything else is known to be right."""
        if self.length is None or self.chains is None:
            return
        ledger, (likelihood, step) = self._ledger, self._names
        one = self.costs(self.length, self.chains, 1.0)
        if self._batch == (None, None):
            # multipliers compose as sums of 1 / multiplier^2: all of it is one release with less noise
            together = math.sqrt(sum(cost.releases / cost.noise_multiplier**2 for cost in one))
            noise = ledger.noise_multiplier(1) * together * (1 + 1e-9)
        else:
            n, size = self._batch
            if ledger.epsilon_left < _WORTH * ledger.epsilon:  # what accounting on a grid left of a whole
                raise BudgetExceededError(
                    f"Less than a thousandth is left of the budget of epsilon = {ledger.epsilon:g} at "
                    f"delta = {ledger.delta:g}: {step} would draw noise only. Nothing was debited."
                )
            noise = ledger.noise_multiplier(one[0].releases, n=n, batch_size=size)
        self.noise_multiplier = _in_range(noise)
        costs = self.costs(self.length, self.chains, self.noise_multiplier)
        self.reservation = ledger.reserve(
            costs, likelihood=likelihood, step=step, chains=self.chains, insecure_noise=self._insecure
        )
        _log.info(
            f"{step} of '{likelihood}': {self.chains} x {self.length} draws, "
            f"{sum(cost.releases for cost in costs)} releases, "
            f"ratios with noise of {self.noise_multiplier:.4g} times their sensitivity, epsilon = "
            f"{epsilon_of(costs, ledger.delta):.4g} at delta = {ledger.delta:g}; debited."
        )

    def begin(self, step: Any, tune: int, draws: int) -> int:
        """Claim a chain's share, or refuse with nothing claimed; return the number of the chain."""
        _refuse_company(step)
        if self.reservation is None:
            costs = " and ".join(map(str, self.costs(tune + draws, 1, self.noise_multiplier)))
            _log.info(f"{self.step}: no ledger keeps count. This chain makes {costs or 'no release'}.")
            return 0
        assert self.length is not None
        if tune + draws > self.length:
            raise BudgetExceededError(
                f"pm.sample asks for {tune} + {draws} draws of each chain, and {self.length} are planned "
                f"for {self.step}. Nothing was spent: ask for the draws= and tune= of the plan, or make a "
                "new step."
            )
        asked = _chains_of_sample()
        if asked is not None and asked > (self.chains or 0):
            raise BudgetExceededError(
                f"pm.sample asks for {asked} chains, and {self.chains} are planned for {self.step}. Nothing "
                f"was spent: sample with chains={self.chains}, or make a new step."
            )
        return int(self.reservation.claim())


def _in_range(noise_multiplier: float) -> float:
    if not _LEAST <= noise_multiplier <= _MOST:
        raise ValueError(
            f"noise_multiplier = {noise_multiplier:g} is out of range: it is the standard deviation of the "
            f"noise over what one row can change, from {_LEAST:g} to {_MOST:g}. (A budget that is nearly "
            "spent asks for a large one.)"
        )
    return noise_multiplier


def _frames() -> Any:
    frame: Any = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _refuse_company(step: Any) -> None:
    """Refuse a run in which another step moves the same parameters."""
    for frame in _frames():
        whole = frame.f_locals.get("self")
        if isinstance(whole, CompoundStep):
            shared = _shared(step, [other for other in whole.methods if other is not step])
            if shared:
                raise ValueError(
                    f"{', '.join(shared)}: sampled by two steps of this run, each of which would spend "
                    "budget on it. Nothing was spent: leave one of them out."
                )


def _shared(step: Any, others: Sequence[Any]) -> list[str]:
    return sorted({str(v.name) for other in others for v in other.vars if v in step.vars})


def _chains_of_sample() -> int | None:
    """Chains that the ``pm.sample`` around this call was asked for; PyMC tells no step."""
    for frame in _frames():
        if frame.f_code.co_name == "sample" and frame.f_globals.get("__name__") == "pymc.sampling.mcmc":
            chains = frame.f_locals.get("chains")
            return int(chains) if isinstance(chains, int | np.integer) else None
    return None
