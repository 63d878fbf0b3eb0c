"""What random walks of private steps share: their moves, what tuning learns, and their noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_dp.lowering.addresses.native import compile_lowered
from pymc_dp.private.noisy_likelihood import PrivateStep
from pymc_dp.private.normal import NormalApproximation
from pymc_dp.private.spending import Plan

UPDATES = ("joint", "component", "guided", "autoregressive")
# Step size at which the acceptance rate is _target, if only the noise, or only the posterior, rejects moves.
_AT_TARGET = 2.38
# Scale at which an autoregressive proposal is independent of the current state.
_INDEPENDENT = 2**0.5


@dataclass_state
class WalkState(StepMethodState):
    """What a chain needs to be continued; noise is never stored."""

    tune: bool
    n_steps: int
    log_factor: float
    direction: np.ndarray


class PrivateWalk(PrivateStep):
    """A random walk whose moves are decided by noisy log likelihood ratios."""

    stats_dtypes_shapes: Any = {"private_accepted": (bool, []), "private_log_ratio": (np.float64, [])}  # noqa: RUF012
    _state_class = WalkState
    _moves = (*PrivateStep._moves, "n_steps", "log_factor", "direction")
    # The acceptance rate at which chains move farthest. It is the same whether the posterior limits the step
    # size (random walks of many parameters) or the noise does: with steps of size s, both accept with
    # probability 2 Phi(-s / 2).
    _target = 0.234

    def _begin(
        self, vars: Sequence[Variable] | None, updates: str, scale: Any, adapt: bool, model: Any, rng: Any,
        initial_point: Any, insecure_noise_seed: int | None, clipped_noise: Any, plan: dict[str, Any],
        approximation: NormalApproximation | None = None,
    ) -> None:  # fmt: skip
        """Check all arguments, compile, and debit the run last."""
        if updates not in UPDATES:
            raise ValueError(f"updates={updates!r} is none of {', '.join(UPDATES)}.")
        self.updates, self.adapt = updates, bool(adapt)
        self._prepare(vars, model, rng, initial_point, insecure_noise_seed, clipped_noise)
        self._use(approximation)
        if approximation is None and updates == "autoregressive":
            raise ValueError(
                'updates="autoregressive" draws from an approximation, and none is given: '
                "approximation=dp.normal_approximation(...)."
            )
        given = _scale_of(scale, self.layout.size, updates)
        if approximation is not None and given is not None and np.ptp(given) > 0:
            raise ValueError("scale must be one number with an approximation, which has the others.")
        self.plan = Plan(
            self.likelihood, type(self).__name__, plan["ledger"], plan["noise_multiplier"], plan["draws"],
            plan["tune"], plan["chains"], share=plan["share"], epsilon=plan["epsilon"],
            clipped_noise=self.clipped_noise, insecure=insecure_noise_seed is not None, batch=self._batch(),
        )  # fmt: skip
        self._build()
        compile_lowered()
        self._debit()
        self.scale = self._default_scale() if given is None else given
        self._reset()
        self._fix()

    def _batch(self) -> tuple[int, int] | None:
        """Return the number of rows and that of a batch, where a ratio is computed from fewer rows."""
        return None

    def _default_scale(self) -> np.ndarray:
        size, lengths = self.layout.size, self._lengths()
        moved = 1 if self.updates in ("component", "guided") else size
        if self.approximation is None:
            return self._affordable() / (np.sqrt(moved) * lengths)
        # variance of the log ratio of a move of scale 1 that is due to noise; `moved` is that due to the
        # posterior
        noise = (_AT_TARGET / self._affordable()) ** 2 * moved * np.mean(lengths**2)
        if self.updates == "autoregressive":
            return np.full(size, min(_INDEPENDENT, _AT_TARGET / np.sqrt(noise)))
        return np.full(size, _AT_TARGET / np.sqrt(noise + moved))

    def _lengths(self) -> np.ndarray:
        """Return the distance per unit of each axis, at the initial point or the approximation's mean."""
        self.data = self._data.gather()
        near, (origin, other) = self.approximation, self._origin
        origin, unit = (origin, 1e-6) if near is None else (near.mean.copy(), 1.0)
        found = np.array([self.distance(origin + unit * v, origin, other) / unit for v in self.axes.T])
        return np.maximum(found, max(1e-3 * found.max(), np.finfo(float).tiny))

    def _affordable(self) -> float:
        """Return the length of a move at which the noise just leaves a useful acceptance rate."""
        raise NotImplementedError

    def _reset(self) -> None:
        self.n_steps, self.log_factor = 0, 0.0
        self.direction: Any = np.zeros(self.layout.size)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain, and forget what the last chain learnt."""
        super().setup_chain(rng, tune, draws)
        self._reset()
        self.direction = 2.0 * self.rng.integers(2, size=self.layout.size) - 1.0

    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Propose a move and decide it."""
        theta, other = self._begin_at(point)
        if self.updates == "autoregressive":
            new, bonus, moved = *self._autoregressed(theta), -1
        else:
            move, moved = self._proposed()
            new, bonus = theta + move, 0.0
        accepted, ratio, more = self._decide(new, theta, other, bonus)
        if accepted:
            point = self.accept(point, new)
        elif self.updates == "guided":
            self.direction[moved] *= -1
        if self.tune and self.adapt:
            self.log_factor += self._excess(accepted, more) * min(1.0, 3.0 / np.sqrt(1 + self.n_steps))
        self.n_steps += 1
        (said,) = self._said(accepted, ratio)
        return point, [{**said, **more}]

    def _decide(
        self, new: np.ndarray, theta: np.ndarray, other: np.ndarray, bonus: float = 0.0
    ) -> tuple[bool, float, dict[str, Any]]:
        """Accept or reject a move, with half of the noise's variance as a penalty.

        `bonus` is the log of the proposal density of the reverse move minus that of the move. Also returns
        the noisy ratio, and further statistics of the draw.
        """
        # the distance is that between the floating-point values, since rounding may lengthen the move
        ratio, sd = self.noisy_ratio(new, theta, other, self.distance(new, theta, other))
        change = bonus + ratio + self.logp_at(new, other) - self.logp_at(theta, other)
        accepted = bool(np.log(self.rng.uniform()) < change - 0.5 * sd * sd)
        return accepted, ratio, {}

    def _excess(self, accepted: bool, more: dict[str, Any]) -> float:
        """Return by how much the scale should grow after this move; it depends on private numbers only."""
        return accepted - self._target

    def _proposed(self) -> tuple[np.ndarray, int]:
        """Return a move, and the index of the parameter that it moves if that is a single one."""
        size, factor = self.layout.size, np.exp(self.log_factor)
        if self.updates == "joint":
            z = self.rng.standard_normal(size)
            return factor * self.axes @ (self.scale @ z if self.scale.ndim == 2 else self.scale * z), -1
        j = int(self.rng.integers(size))
        move = np.zeros(size)
        move[j] = factor * self.scale[j] * self.rng.standard_normal()
        if self.updates == "guided":
            move[j] = self.direction[j] * abs(move[j])
        return self.axes @ move, j

    def _autoregressed(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        """Return a proposal, and the log of the reverse proposal's density minus that of the proposal.

        This is a Crank-Nicolson proposal: it leaves the approximation invariant, so that the log ratio of the
        two proposal densities is the difference of the approximation's log densities.
        """
        assert self.approximation is not None
        size = min(float(self.scale[0]) * np.exp(self.log_factor), _INDEPENDENT)
        kept = 1 - 0.5 * size**2
        mean, axes = self.approximation.mean, self.axes
        z = np.linalg.solve(axes, theta - mean)
        new = kept * z + np.sqrt(1 - kept**2) * self.rng.standard_normal(len(z))
        return mean + axes @ new, 0.5 * float(new @ new - z @ z)


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
