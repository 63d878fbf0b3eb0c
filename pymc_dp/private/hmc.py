"""Hamiltonian Monte Carlo with noisy gradients, and a penalty for the noise on the acceptance ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_dp.lowering.addresses.native import compile_lowered
from pymc_dp.privacy._checks import positive
from pymc_dp.private.gradients import GradientStep
from pymc_dp.private.integer_noise import GaussianNoise, noise_scale
from pymc_dp.private.normal import NormalApproximation
from pymc_dp.private.spending import Plan, relative_noise
from pymc_dp.step_methods.record_step import check_positive

# The share of accepted trajectories that tuning aims at.
_TARGET = 0.65


@dataclass_state
class HMCState(StepMethodState):
    """What a chain needs to be continued; noise is never stored."""

    tune: bool
    n_steps: int
    log_factor: float


class PrivateHMC(GradientStep):
    r"""Hamiltonian draws of the parameters of a confidential likelihood, with noisy gradients and decisions.

    Leapfrog steps follow the sum of the rows' gradients, each clipped to the norm `clip_gradient` of the
    likelihood, plus Gaussian noise. A trajectory with such noise is as likely backwards as forwards, so that
    the decision at its end makes draws follow the posterior: it takes the noisy log likelihood ratio minus
    half of the variance of its noise, as in :class:`PenaltyMetropolis`. Clipped gradients only lower the
    acceptance rate; clipped ratios change the law of the draws.

    Parameters
    ----------
    vars : list of variables, optional
        All parameters of one confidential likelihood, which is the default.
    ledger : PrivacyLedger, optional
        Budget; with the plan `draws`, `tune` and `chains`.
    noise_multiplier : float, optional
        Instead of a ledger: standard deviation of the noise on a log likelihood ratio, divided by its
        replace-one sensitivity.
    draws, tune, chains : int, optional
        The plan, as it will be given to ``pm.sample``.
    share, epsilon : float, optional
        The part of the ledger's budget that the run gets, as for :class:`PenaltyMetropolis`.
    clipped_noise : float, optional
        Whether and how precisely rows with clipped ratios are counted, as for :class:`PenaltyMetropolis`.
        Rows with clipped gradients are not counted.
    step_size : float
        Leapfrog step, in the space of the values that PyMC samples; with an `approximation`, in its
        standard deviations.
    n_leapfrog : int, default 10
        Steps of a trajectory, each of which costs one noisy gradient.
    gradient_noise : float, default 4
        Noise multiplier of a gradient, divided by that of a ratio.
    mass : float or array of shape (d,), default 1
        Variances of the momenta.
    adapt : bool, default True
        Whether the step size is learnt in tuning, from accepted and rejected trajectories only.
    approximation : NormalApproximation, optional
        Trajectories and bounds are measured against it, as for :class:`PenaltyMetropolis`.
    model, rng, insecure_noise_seed
        As for :class:`PenaltyMetropolis`.

    Raises
    ------
    ValueError
        As for :class:`PenaltyMetropolis`; if the likelihood has no `clip_gradient`, or `vars` leaves out a
        parameter.

    Notes
    -----
    A chain of k draws of L steps each releases k ratios and k L + 1 gradients: the gradient at the start of a
    trajectory, with its noise, is the one released last at that point. ``sample_stats`` get
    ``private_accepted`` and ``private_log_ratio``.

    References
    ----------
    Räisä, "Differentially private Markov chain Monte Carlo" (2021), algorithm 3 and theorem 11. There the
    decision compares u where it should compare log u, and the gradient has no noise.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> rows = np.random.default_rng(1).normal(1, 1, 500)
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     x = dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), data=rows, clip=3, clip_gradient=3)
    ...     step = dp.PrivateHMC(noise_multiplier=30, step_size=0.02, n_leapfrog=5)
    >>> step.n_leapfrog
    5
    """

    name = "private_hmc"
    _kept: np.ndarray | None  # noisy gradient of the likelihood at the chain's current state
    stats_dtypes_shapes: Any = {"private_accepted": (bool, []), "private_log_ratio": (np.float64, [])}  # noqa: RUF012
    _state_class = HMCState
    _here = (*GradientStep._here, "_gradient_noise")
    _moves = (*GradientStep._moves, "n_steps", "log_factor", "_kept", "_gradient_noise")
    _gradient_noise: GaussianNoise | None = None

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        step_size: float,
        n_leapfrog: int = 10,
        ledger: Any = None,
        noise_multiplier: float | None = None,
        draws: int | None = None,
        tune: int | None = None,
        chains: int | None = None,
        share: float | None = None,
        epsilon: float | None = None,
        clipped_noise: float | None = None,
        gradient_noise: float = 4.0,
        mass: Any = 1.0,
        adapt: bool = True,
        approximation: NormalApproximation | None = None,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
        insecure_noise_seed: int | None = None,
    ):
        self.step_size, self.gradient_noise = (
            positive("step_size", step_size), relative_noise("gradient_noise", gradient_noise)
        )  # fmt: skip
        check_positive("n_leapfrog", n_leapfrog)
        self.n_leapfrog, self.adapt = int(n_leapfrog), bool(adapt)
        self._prepare(vars, model, rng, initial_point, insecure_noise_seed, clipped_noise)
        self._use(approximation)
        self._need_all("keeps a noisy gradient from draw to draw, and moves all parameters")
        self.mass = np.array(np.broadcast_to(np.asarray(mass, dtype=float), (self.layout.size,)))
        if not (np.isfinite(self.mass).all() and (self.mass > 0).all()):
            raise ValueError("mass must be one or more finite numbers > 0.")
        self.plan = Plan(
            self.likelihood, type(self).__name__, ledger, noise_multiplier, draws, tune, chains,
            share=share, epsilon=epsilon, gradients=self.n_leapfrog, gradient_noise=self.gradient_noise,
            clipped_noise=self.clipped_noise, insecure=insecure_noise_seed is not None,
        )  # fmt: skip
        self._build()
        compile_lowered()
        self._debit()
        self.n_steps, self.log_factor = 0, 0.0
        self._fix()

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain, and forget what the last chain learnt."""
        super().setup_chain(rng, tune, draws)
        self._gradient_noise = self._source("gradients", 1)
        self.n_steps, self.log_factor, self._kept = 0, 0.0, None

    def _noise_scales(self, noise_multiplier: float) -> dict[str, int]:
        multiplier = noise_multiplier * self.gradient_noise
        return {
            **super()._noise_scales(noise_multiplier),
            "gradients": noise_scale("gradient_noise", multiplier, self._sums.bits + 1),
        }

    def noisy_gradient(self, theta: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the gradient of the confidential log likelihood, with noise."""
        self._spend("gradients")
        assert self._gradient_noise is not None
        bits, bound, near = self._sums.bits, self.clip_gradient, self.approximation
        jacobian = self.jacobian_at(theta, other)
        if near is not None:  # in coordinates in which gradients have about one size in all directions
            jacobian = np.ascontiguousarray(jacobian @ self._inverse_metric)
        # whole numbers, since noisy ones may be too large for float64 to hold exactly; the noise and the
        # exact sum are never variables of their own, since a traceback could show them
        noisy = self._gradient_noise.draw(self.layout.size) + self._sums.over_rows(
            self._gradient.total,
            (self.numbers_at(theta, other), jacobian),
            (bound, bits),
            self.n_numbers + 2 * self.layout.size,
        ).astype(np.int64)
        found = self.term.temper * bound * 2.0**-bits * noisy
        return found if near is None else self.metric.T @ found

    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Follow a trajectory and decide it."""
        theta, other = self._begin_at(point)  # a kept gradient belongs to this state
        if self._kept is None:
            self._kept = self.noisy_gradient(theta, other)
        size = self.step_size * math.exp(self.log_factor)
        first = momentum = np.sqrt(self.mass) * self.rng.standard_normal(theta.size)
        new, gradient, axes = theta, self._kept, self.axes
        for _ in range(self.n_leapfrog):
            # the likelihood's gradient keeps its noise; the gradient of the other terms is computed anew
            momentum = momentum + 0.5 * size * (gradient + self.slope_at(new, other)) @ axes
            new = new + size * axes @ (momentum / self.mass)
            gradient = self.noisy_gradient(new, other)
            momentum = momentum + 0.5 * size * (gradient + self.slope_at(new, other)) @ axes
        ratio, sd = self.noisy_ratio(new, theta, other, self.distance(new, theta, other))
        change = ratio + self.logp_at(new, other) - self.logp_at(theta, other)
        change += 0.5 * float(((first**2 - momentum**2) / self.mass).sum())
        accepted = bool(np.log(self.rng.uniform()) < change - 0.5 * sd * sd)
        if accepted:
            self._kept = gradient
            point = self.accept(point, new)
        if self.tune and self.adapt:
            self.log_factor += (accepted - _TARGET) * min(0.5, 2.0 / np.sqrt(1 + self.n_steps))
        self.n_steps += 1
        return point, self._said(accepted, ratio)
