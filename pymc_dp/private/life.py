"""The life cycle of a private step: it is debited, then fixed, then sampled chain by chain."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
from pymc.step_methods.compound import BlockedStep

from pymc_dp.privacy._checks import whole
from pymc_dp.privacy.ledger import BudgetExceededError
from pymc_dp.private.confidential import RowTerm
from pymc_dp.private.integer_noise import GaussianNoise, words_of_seed
from pymc_dp.private.normal import NormalApproximation
from pymc_dp.private.spending import Plan
from pymc_dp.private.terms import Terms, cannot_be_changed
from pymc_dp.step_methods.block.layout import DataLayout, ParameterLayout

# Statistics of every private step: the name of the chain that a draw is from, and its number in the chain,
# from 1.
TIES: dict[str, Any] = {"private_chain": (np.int64, []), "private_iteration": (np.int64, [])}


class Life(BlockedStep):
    """The order of what a private step does: its debit, its noise and its place in a chain.

    :class:`Terms` records what the run was debited for. Chains take their noise from it, and begin only if
    the step would still run on the same terms. After the debit, a step refuses to have attributes set, other
    than those that chains change.
    """

    # attributes that belong to one process and are not pickled: machine code, noise and threads
    _here: tuple[str, ...] = (
        "_numbers", "_logp", "_distance", "_sums", "_noise", "_counted", "_data", "_graphs", "_at", "_next",
        "_left",
    )  # fmt: skip
    # Attributes that chains change. Once a run is debited, no other data of a step can be set.
    _moves: tuple[str, ...] = (
        "rng", "tune", "adapt", "data", "_chain", "_named", "_begun_by", "_planned", "_left", "_noise",
        "_counted", "_at", "_next", "_n_clipped",
    )  # fmt: skip
    _fixed: frozenset[str] = frozenset()
    # attributes that the subclasses set
    plan: Plan
    term: RowTerm
    layout: ParameterLayout
    others: ParameterLayout
    approximation: NormalApproximation | None
    metric: np.ndarray
    insecure_noise_seed: int | None
    n_looked_at: Any
    _inverse_metric: np.ndarray
    _rounds: bool  # whether values are stored with fewer digits than the flat vector has
    _sums: Any
    _data: DataLayout
    _noise_scales: Callable[[float], dict[str, int]]
    _build: Callable[[], None]
    _lock: Callable[[], None]
    _n_clipped: float
    _at: tuple[np.ndarray, np.ndarray, np.ndarray] | None
    _next: Any
    numbers_at: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._fixed:
            raise cannot_be_changed(type(self).__name__, name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise cannot_be_changed(type(self).__name__, name)

    def _debit(self) -> None:
        """Debit the run on the step's present terms."""
        self.plan.reserve(self._terms)

    def _fix(self) -> None:
        """Forbid changes of all attributes other than those that chains change."""
        of_classes = {
            name: value
            for base in type(self).__mro__
            if issubclass(base, Life)
            for name, value in vars(base).items()
        }
        data = {name for name, value in of_classes.items() if not hasattr(value, "__get__")}
        self._fixed = frozenset(data | set(vars(self))) - frozenset(self._moves)

    def _terms(self, noise_multiplier: float) -> Terms:
        """Return what cost and protection of the rows depend on; raise if there is no such noise."""
        term, near = self.term, self.approximation
        return Terms(
            noise_multiplier=noise_multiplier,
            scales=tuple(sorted(self._noise_scales(noise_multiplier).items())),
            plan=self.plan.outline(),
            bounds=(term.clip, term.clip_gradient, term.temper, term.coordinates is not None),
            rows=(term.rows.n, self.n_looked_at, self._sums.bits),
            metric=self.metric.tobytes() + self._inverse_metric.tobytes(),
            approximation=()
            if near is None
            else (near.clip, near.clip_gradient, near.costs, near.insecure_noise),
            seed=self.insecure_noise_seed,
        )

    def __getstate__(self) -> dict[str, Any]:
        # chains whose steps come from one pickle are of one run
        kept = {k: v for k, v in self.__dict__.items() if k not in self._here}
        return {**kept, "_pickled_as": secrets.token_hex(8)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _fixed=frozenset())
        self._build()
        self._lock()
        self.__dict__["_fixed"] = state["_fixed"] | {"_pickled_as"}

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Claim the budget's share for one chain, then prepare the chain with noise of its own."""
        tune, draws = whole("tune", tune, least=0), whole("draws", draws, least=0)
        terms = self._terms(self.plan.noise_multiplier)
        self._chain = self.plan.begin(self, terms, tune, draws)
        self._begun_by, self._named = os.getpid(), self.plan.name_of(self._chain)
        super().setup_chain(rng, tune, draws)
        self._planned = tune + draws
        self._left = {"ratios": self._planned, "gradients": self.plan.gradients_of(self._planned)}
        self._noise, self._counted = self._source("ratios", 0), self._source("counts", 2)
        self.data = self._data.gather()
        self.tune, self._at = tune > 0, None

    def _source(self, of: str, stream: int) -> GaussianNoise | None:
        """Return the noise that was debited for a kind of release, or None if there is none."""
        assert self.plan.terms is not None
        scale = self.plan.terms.scale(of)
        if scale is None:
            return None
        return GaussianNoise(scale, words_of_seed(self.insecure_noise_seed, self._chain, stream))

    def _spend(self, what: str) -> None:
        """Take one release off the chain's share, before it is made."""
        if self._left[what] < 1:
            raise BudgetExceededError(
                f"{type(self).__name__}: all {what} that this chain was begun for are released. Nothing was "
                "spent: to go on, sample again, with a new step where a ledger keeps count."
            )
        if self._begun_by != os.getpid():
            raise BudgetExceededError(
                f"{type(self).__name__}: this chain was begun by another process, of which this one is a "
                "fork, and its share was paid for once. Nothing was spent: begin a chain here."
            )
        self._left[what] -= 1

    def _begin_at(self, point: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return the flat parameters and other variables; raise if another step has moved the parameters."""
        theta, other = self.layout.flatten(point), self.others.flatten(point)
        if self._at is None:
            self._at = self._rounded(point)
        at, others_at, _ = self._at
        if at.tobytes() != theta.tobytes():
            raise ValueError(
                f"{', '.join(str(v.name) for v in self.vars)}: moved by another step since the last draw of "
                f"{type(self).__name__}, which decides from where it left them. Leave that step out."
            )
        # the stored arrays themselves, by which the numbers computed at this state are found again
        return at, others_at if others_at.tobytes() == other.tobytes() else other

    def _said(self, accepted: bool, ratio: float) -> list[dict[str, Any]]:
        """Return the statistics of a draw."""
        said = {
            "private_accepted": accepted,
            "private_log_ratio": ratio,
            "private_chain": self._named,
            "private_iteration": self._planned - self._left["ratios"],
        }
        if self._counted is not None:
            said["private_clipped_fraction"] = self._n_clipped / self.n_looked_at
        return [said]

    def accept(self, point: dict[str, Any], new: np.ndarray) -> dict[str, Any]:
        """Return the point after the last proposal is accepted, and keep the numbers computed for it."""
        point = {**point, **self.layout.unflatten(new)}
        self._at = self._next if not self._rounds else self._rounded(point)
        return point

    def _rounded(self, point: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the flat parameters as the point stores them, the other variables, and their numbers."""
        theta, other = self.layout.flatten(point), self.others.flatten(point)
        return theta, other, self.numbers_at(theta, other)
