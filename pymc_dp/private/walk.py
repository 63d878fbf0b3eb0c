"""What random walks of private steps share: their moves, what tuning learns, and their noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_dp.private.base import PrivateStep
from pymc_dp.private.plan import Plan

UPDATES = ("joint", "component", "guided")


@dataclass_state
class WalkState(StepMethodState):
    """What a chain needs to be continued; no noise."""

    tune: bool
    n_steps: int
    log_factor: float
    direction: np.ndarray


class PrivateWalk(PrivateStep):
    """A random walk whose moves are decided by noisy log likelihood ratios."""

    stats_dtypes_shapes: Any = {"private_accepted": (bool, []), "private_log_ratio": (np.float64, [])}  # noqa: RUF012
    _state_class = WalkState
    # The share of accepted proposals that moves farthest, whether the posterior is what limits the step size
    # (random walks of many parameters) or the noise is: both accept with probability 2 Phi(-s / 2) at steps
    # of size s.
    _target = 0.234

    def _begin(
        self, vars: Sequence[Variable] | None, updates: str, scale: Any, adapt: bool, model: Any, rng: Any,
        initial_point: Any, insecure_noise_seed: int | None, clipped_noise: Any, plan: dict[str, Any],
    ) -> None:  # fmt: skip
        """Check everything, compile, and debit the run last."""
        if updates not in UPDATES:
            raise ValueError(f"updates={updates!r} is none of {', '.join(UPDATES)}.")
        self.updates, self.adapt = updates, bool(adapt)
        self._prepare(vars, model, rng, initial_point, insecure_noise_seed, clipped_noise)
        given = _scale_of(scale, self.layout.size, updates)
        self.plan = Plan(
            self.likelihood, type(self).__name__, plan["ledger"], plan["noise_multiplier"], plan["draws"],
            plan["tune"], plan["chains"], share=plan["share"], epsilon=plan["epsilon"],
            clipped_noise=self.clipped_noise, insecure=insecure_noise_seed is not None, batch=self._batch(),
        )  # fmt: skip
        self._build()
        self.plan.reserve(self._noise_scales)
        self.scale = self._default_scale() if given is None else given
        self._reset()

    def _batch(self) -> tuple[int, int] | None:
        """Number of rows, and of those that a ratio is computed from, where these are fewer."""
        return None

    def _default_scale(self) -> np.ndarray:
        moved = self.layout.size if self.updates == "joint" else 1
        return np.full(self.layout.size, self._affordable() / np.sqrt(moved))

    def _affordable(self) -> float:
        """Length of a move whose noise is about as large as can be afforded."""
        raise NotImplementedError

    def _reset(self) -> None:
        self.n_steps, self.log_factor = 0, 0.0
        self.direction: Any = np.zeros(self.layout.size)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain, with what the last one learnt forgotten."""
        super().setup_chain(rng, tune, draws)
        self._reset()
        self.direction = 2.0 * self.rng.integers(2, size=self.layout.size) - 1.0

    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Propose a move and decide it."""
        theta, other = self.layout.flatten(point), self.others.flatten(point)
        move, moved = self._proposed()
        new = theta + move
        accepted, ratio, more = self._decide(new, theta, other)
        if accepted:
            self.accept()
            point = {**point, **self.layout.unflatten(new)}
        elif self.updates == "guided":
            self.direction[moved] *= -1
        if self.tune and self.adapt:
            self.log_factor += self._excess(accepted, more) * min(1.0, 3.0 / np.sqrt(1 + self.n_steps))
        self.n_steps += 1
        (said,) = self._said(accepted, ratio)
        return point, [{**said, **more}]

    def _decide(
        self, new: np.ndarray, theta: np.ndarray, other: np.ndarray
    ) -> tuple[bool, float, dict[str, Any]]:
        """Accept or reject a move, with a penalty of half of the noise's variance.

        Also returns the noisy ratio, and more statistics of the draw.
        """
        # of the point as it is in numbers, so that a rounded move is not longer than it is taken for
        ratio, sd = self.noisy_ratio(new, theta, other, float(np.linalg.norm(new - theta)))
        change = ratio + self.logp_at(new, other) - self.logp_at(theta, other)
        accepted = bool(np.log(self.rng.uniform()) < change - 0.5 * sd**2)
        return accepted, ratio, {}

    def _excess(self, accepted: bool, more: dict[str, Any]) -> float:
        """Whether moves are to be longer, as far as this one tells; of private numbers only."""
        return accepted - self._target

    def _proposed(self) -> tuple[np.ndarray, int]:
        """Return a move, and which parameter it moves if it is one."""
        size, factor = self.layout.size, np.exp(self.log_factor)
        if self.updates == "joint":
            z = self.rng.standard_normal(size)
            return factor * (self.scale @ z if self.scale.ndim == 2 else self.scale * z), -1
        j = int(self.rng.integers(size))
        move = np.zeros(size)
        move[j] = factor * self.scale[j] * self.rng.standard_normal()
        if self.updates == "guided":
            move[j] = self.direction[j] * abs(move[j])
        return move, j


def _scale_of(scale: Any, size: int, updates: str) -> np.ndarray | None:
    """Return the scale of each parameter, or a matrix."""
    if scale is None:
        return None
    try:
        given = np.asarray(scale, dtype=float)
    except (TypeError, ValueError):
        given = np.full(1, np.nan)
    if given.ndim == 0:
        given = np.full(size, given)
    matrix = given.ndim == 2
    if not np.isfinite(given).all() or (not matrix and (given <= 0).any()):
        raise ValueError("scale must be one or more finite numbers > 0, or a matrix of finite numbers.")
    if given.shape != ((size, size) if matrix else (size,)):
        raise ValueError(
            f"scale has shape {given.shape}, and the step moves {size} numbers: give one number, {size} "
            "of them, or "
            f"a matrix of shape {(size, size)}."
        )
    if matrix and updates != "joint":
        raise ValueError(f'scale is a matrix, which needs updates="joint", not "{updates}".')
    return given
