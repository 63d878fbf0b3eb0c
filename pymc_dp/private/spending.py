"""The budget of a private step: reserved before the first draw, and claimed chain by chain."""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pymc_dp.privacy import budgets
from pymc_dp.privacy._checks import positive
from pymc_dp.privacy.costs import GaussianCost, RunCost, cost_of
from pymc_dp.privacy.ledger import BudgetExceededError, PrivacyLedger
from pymc_dp.private import calling_frames
from pymc_dp.private.integer_noise import kept_delta
from pymc_dp.private.spent import Tally
from pymc_dp.private.terms import Terms, cannot_be_changed

_log = logging.getLogger("pymc")
# Range of noise multipliers. With less noise than _LEAST times the sensitivity, sums protect nobody; with
# more than _MOST times, they say nothing, and the noise does not fit 64 bits.
_LEAST, _MOST = 1e-3, 1e5
_MOST_RELATIVE = 1e15
_HOW_MUCH = (
    "A step takes all that is left, unless it is told how much: where several share a ledger, give each "
    "share= or epsilon=."
)
# If less than this share of a budget is left, no run on batches is planned: such runs never use the last
# digits of a budget, because of how they are accounted for.
_WORTH = 1e-3
# Bits of the name of a chain: few enough for a float64, as which results may be stored.
_NAME_BITS = 52
# The kinds of releases that a step may make.
RELEASES = ("ratio", "gradient", "clipped count")


class Plan:
    """The noise of a run and its planned number of draws; it cannot be changed once the run is debited.

    Parameters
    ----------
    likelihood, step : str
        Names for the ledger.
    ledger : PrivacyLedger, optional
        With the plan `draws`, `tune` and `chains`: the noise follows from what is left of the budget.
    noise_multiplier : float, optional
        Standard deviation of the noise, divided by the replace-one sensitivity, for every number released.
    draws, tune, chains : int, optional
        As for ``pm.sample``.
    share, epsilon : float, optional
        The part of the ledger's budget that the run gets; all that is left by default.
    gradients : int
        Number of noisy gradients that each draw releases beside its ratio; a chain releases one more before
        its first draw.
    gradient_noise : float
        Noise multiplier of a gradient, divided by that of a ratio.
    clipped_noise : float, optional
        Noise multiplier of a count of clipped rows, divided by that of a ratio; without it no count is
        released.
    insecure : bool
        Whether the noise comes from a known seed.
    batch : tuple of int, optional
        The number of rows, and the number that each release is computed from, where the latter is smaller.
    """

    def __init__(
        self, likelihood: str, step: str, ledger: Any, noise_multiplier: float | None, draws: Any, tune: Any,
        chains: Any, *, share: Any = None, epsilon: Any = None, gradients: int = 0,
        gradient_noise: float = 1.0, clipped_noise: float | None = None, insecure: bool = False,
        batch: tuple[int, int] | None = None,
    ):  # fmt: skip
        if (ledger is None) == (noise_multiplier is None):
            raise ValueError(
                f"{step}: give either ledger= with the plan draws=, tune= and chains= (the noise follows "
                "from the budget), or noise_multiplier= (the cost follows), "
                f"{'and one of them' if ledger is None else 'not both'}."
            )
        self.likelihood, self.step, self.ledger, self.insecure = likelihood, step, ledger, insecure
        self._gradients, self._clipped_noise = (gradients, gradient_noise), clipped_noise
        self._batch = batch or (None, None)
        self.noise_multiplier = math.nan  # with a ledger, it is known after the reservation
        self.length: int | None = None
        self.chains: int | None = None
        self.reservation: Any = None
        self.terms: Terms | None = None
        self._secret = secrets.token_bytes(16)  # makes the names of chains unique
        if ledger is None:
            given = {"draws": draws, "tune": tune, "chains": chains, "share": share, "epsilon": epsilon}
            names = [k for k, v in given.items() if v is not None]
            if names:
                raise ValueError(f"{', '.join(names)}: a plan belongs to a ledger, and none is given.")
            self.noise_multiplier = _in_range(positive("noise_multiplier", noise_multiplier))
            self._tally = Tally(step)
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
        kept_delta(ledger.delta)
        self.length, self.chains = int(draws) + int(tune), int(chains)
        self.share, self.epsilon = _part_of(ledger, share, epsilon)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("terms") is not None:
            raise cannot_be_changed("plan", name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise cannot_be_changed("plan", name)

    def outline(self) -> tuple[Any, ...]:
        """Return the kinds of releases of a draw, and the planned number of draws."""
        return (*self._gradients, self._clipped_noise, *self._batch, self.length, self.chains, self.insecure)

    def name_of(self, chain: int) -> int:
        """Return the name of a chain of this plan, which no chain of another plan has."""
        found = hashlib.blake2b(chain.to_bytes(8, "big"), key=self._secret, digest_size=8).digest()
        return int.from_bytes(found, "big") >> (64 - _NAME_BITS)

    def releases(self, lengths: Iterable[int], noise_multiplier: float) -> dict[str, RunCost]:
        """Return the cost of chains of these lengths, tuning included, for each kind of release."""
        lengths = list(lengths)
        many = (
            (sum(lengths), 1.0),
            (sum(map(self.gradients_of, lengths)), self._gradients[1]),
            (0 if self._clipped_noise is None else sum(lengths), self._clipped_noise or 1.0),
        )
        return {
            what: cost_of(count, noise_multiplier * factor, *self._batch)
            for what, (count, factor) in zip(RELEASES, many)
            if count
        }

    def costs(self, length: int, chains: int, noise_multiplier: float) -> list[RunCost]:
        """Return the cost of so many chains of so many draws, tuning included."""
        return list(self.releases([length] * chains, noise_multiplier).values())

    def gradients_of(self, length: int) -> int:
        """Return how many noisy gradients a chain releases."""
        return length * self._gradients[0] + 1 if self._gradients[0] else 0

    def reserve(self, terms_of: Callable[[float], Terms]) -> None:
        """Debit the run, after all other checks have passed.

        Parameters
        ----------
        terms_of : callable
            Takes the noise multiplier of a ratio, and returns the terms of the run; raises if such noise
            cannot be drawn.
        """
        if self.length is None or self.chains is None:
            self.terms = terms_of(self.noise_multiplier)
            return
        ledger = self.ledger
        if self._batch == (None, None):
            # 1 / multiplier^2 adds up: all releases together cost as much as one release with less noise
            one = self.costs(self.length, self.chains, 1.0)
            together = math.sqrt(sum(cost.releases / cost.noise_multiplier**2 for cost in one))
            noise_multiplier = self._noise_of_one_release() * together * (1 + 1e-9)
        else:
            noise_multiplier = self._noise_on_batches(self.length, self.chains)
        if noise_multiplier > _MOST:
            raise BudgetExceededError(
                f"{self.step}: too little of the budget for this run, which would need noise of "
                f"{noise_multiplier:.3g} times what one row can change (at most {_MOST:g}). Nothing was "
                f"debited. {_HOW_MUCH}"
            )
        self.noise_multiplier = _in_range(noise_multiplier)
        terms = terms_of(self.noise_multiplier)
        costs = self.costs(self.length, self.chains, self.noise_multiplier)
        self.reservation = ledger.reserve(
            costs,
            likelihood=self.likelihood,
            step=self.step,
            chains=self.chains,
            insecure_noise=self.insecure,
        )
        _log.info(
            f"{self.step} of '{self.likelihood}': {self.chains} x {self.length} draws, "
            f"{sum(cost.releases for cost in costs)} releases, "
            f"ratios with noise of {self.noise_multiplier:.4g} times their sensitivity, epsilon = "
            f"{budgets.epsilon(costs, ledger.delta):.4g} at delta = {ledger.delta:g}; debited from "
            f"{ledger.path or 'a ledger that ends with this process'}."
        )
        self.terms = terms

    def _noise_of_one_release(self) -> float:
        """Return the noise multiplier of a single release that would cost as much as the run may."""
        budget = {"epsilon": self.epsilon or self.ledger.epsilon, "delta": self.ledger.delta}
        if self.epsilon is not None:
            return budgets.noise_multiplier(1, **budget)
        if self.share is not None:  # a share of 1 / multiplier^2, which adds up
            return budgets.noise_multiplier(1, **budget) / math.sqrt(self.share)
        try:
            return float(self.ledger.noise_multiplier(1))
        except BudgetExceededError as error:
            raise BudgetExceededError(f"{error} {_HOW_MUCH}") from None

    def _noise_on_batches(self, length: int, chains: int) -> float:
        """Return the noise multiplier of a ratio from a batch at which the run costs as much as it may."""
        ledger = self.ledger
        budget, before = ledger.epsilon, ()
        if self.epsilon is not None:
            budget = self.epsilon
        elif self.share is not None:  # the epsilon of Gaussian releases with that share
            budget = budgets.epsilon(GaussianCost(1, self._noise_of_one_release()), ledger.delta)
        elif ledger.epsilon_left < _WORTH * ledger.epsilon:
            raise BudgetExceededError(
                f"Less than a thousandth is left of the budget of epsilon = {ledger.epsilon:g} at delta = "
                f"{ledger.delta:g}: {self.step} would draw noise only. Nothing was debited. {_HOW_MUCH}"
            )
        else:
            before = ledger.spent
        return budgets.smallest_noise(
            lambda noise: (*before, *self.costs(length, chains, noise)), budget, ledger.delta
        )

    def begin(self, step: Any, terms: Terms, tune: int, draws: int) -> int:
        """Claim a chain's share and return the chain's number; a chain that is refused claims nothing."""
        if self.terms is None or terms != self.terms:
            changed = "all" if self.terms is None else ", ".join(self.terms.differences(terms))
            raise ValueError(
                f"{self.step} of '{self.likelihood}' is not what the run was debited with: {changed} changed "
                "since. Nothing was spent: make a new step, and a new model if that was changed."
            )
        calling_frames.refuse(step)
        length = tune + draws
        if self.reservation is None:
            chain = self._tally.begin(calling_frames.run_of(step), length)
            costs = " and ".join(map(str, self.costs(length, 1, self.noise_multiplier)))
            _log.info(f"{self.step}: no ledger keeps count. This chain makes {costs or 'no release'}.")
            return chain
        assert self.length is not None
        if length > self.length:
            raise BudgetExceededError(
                f"pm.sample asks for {tune} + {draws} draws of each chain, and {self.length} are planned "
                f"for {self.step}. Nothing was spent: ask for the draws= and tune= of the plan, or make a "
                "new step."
            )
        asked = calling_frames.chains_asked_for()
        if asked is not None and asked > (self.chains or 0):
            raise BudgetExceededError(
                f"pm.sample asks for {asked} chains, and {self.chains} are planned for {self.step}. Nothing "
                f"was spent: sample with chains={self.chains}, or make a new step."
            )
        return int(self.reservation.claim())

    def iterations(self) -> int:
        """Return the number of draws of all chains that were debited, tuning included."""
        return (
            sum(self._tally.lengths())
            if self.reservation is None
            else (self.length or 0) * (self.chains or 0)
        )

    def lengths(self) -> list[int]:
        """Return the largest number of draws that each chain begun in any process may make."""
        if self.reservation is None:
            return self._tally.lengths()
        (entry,) = (e for e in self.ledger.entries() if e.id == self.reservation.entry)
        return [self.length or 0] * int(entry.claimed)

    def begun(self) -> int:
        """Return how many chains have begun, over all processes."""
        return len(self.lengths())

    def spent(self) -> dict[str, RunCost]:
        """Return the debited cost, or, without a ledger, the cost of all chains that have begun."""
        if self.reservation is None:
            return self.releases(self._tally.lengths(), self.noise_multiplier)
        return self.releases([self.length or 0] * (self.chains or 0), self.noise_multiplier)


def _part_of(ledger: PrivacyLedger, share: Any, epsilon: Any) -> tuple[float | None, float | None]:
    """Check `share` and `epsilon`, of which at most one is given, and return them."""
    if share is not None and epsilon is not None:
        raise ValueError(
            "share and epsilon both say how much of the ledger's budget the run gets: give one of them."
        )
    if share is not None:
        share = positive("share", share)
        if share > 1:
            raise ValueError(f"share = {share:g} is more than the whole of the ledger's budget, which is 1.")
    if epsilon is not None:
        epsilon = positive("epsilon", epsilon)
        if epsilon > ledger.epsilon:
            raise ValueError(
                f"epsilon = {epsilon:g} is more than the ledger's whole budget of {ledger.epsilon:g}: give a "
                "smaller one."
            )
    return share, epsilon


def relative_noise(name: str, value: Any) -> float:
    """Check and return a noise multiplier that is given as a multiple of that of the ratios.

    Raises
    ------
    ValueError
    """
    value = positive(name, value)
    if not _LEAST <= value <= _MOST_RELATIVE:
        raise ValueError(
            f"{name} = {value:g} is out of range: it is a noise multiplier over that of the ratios, from "
            f"{_LEAST:g} to {_MOST_RELATIVE:g}."
        )
    return value


def _in_range(noise_multiplier: float) -> float:
    if not _LEAST <= noise_multiplier <= _MOST:
        raise ValueError(
            f"noise_multiplier = {noise_multiplier:g} is out of range: it is the standard deviation of the "
            f"noise over what one row can change, from {_LEAST:g} to {_MOST:g}."
        )
    return noise_multiplier
