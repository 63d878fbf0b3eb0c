"""Metropolis with a penalty for the noise on its log likelihood ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_dp.private.base import PrivateStep
from pymc_dp.private.normal import NormalApproximation
from pymc_dp.private.plan import Plan

UPDATES = ("joint", "component", "guided", "autoregressive")
# The share of accepted proposals that moves farthest, whether the posterior is what limits the step size
# (random walks of many parameters) or the noise is: both accept with probability 2 Phi(-s / 2) at steps of
# size s.
_TARGET = 0.234
# A step size at which noise and penalty alone, or posterior alone, are accepted that often.
_AT_TARGET = 2.38
# The scale at which an autoregressive proposal does not depend on where the chain is.
_INDEPENDENT = 2**0.5


@dataclass_state
class PenaltyState(StepMethodState):
    """What a chain needs to be continued; no noise."""

    tune: bool
    n_steps: int
    log_factor: float
    direction: np.ndarray


class PenaltyMetropolis(PrivateStep):
    r"""Metropolis draws of the parameters of a confidential likelihood, with noise on every ratio.

    A move from :math:`\theta` to :math:`\theta'` is decided by the log likelihood ratio of all rows, each
    clipped to :math:`\pm c`, :math:`c = L\|\theta - \theta'\|_2`, plus Gaussian noise of standard deviation
    :math:`s`, :math:`2c` times the noise multiplier. It is accepted if the logarithm of a uniform number is
    below the noisy log ratio of the posterior minus :math:`s^2 / 2`. This penalty makes up for the noise:
    where no row is clipped, draws follow the posterior exactly.

    Parameters
    ----------
    vars : list of variables, optional
        Parameters of one confidential likelihood; all of them if left out.
    ledger : PrivacyLedger, optional
        Budget. The run that is planned by `draws`, `tune` and `chains` gets all that is left of it, and is
        debited at once.
    noise_multiplier : float, optional
        In the place of a ledger: standard deviation of the noise over the replace-one sensitivity.
    draws, tune, chains : int, optional
        The plan, as it will be given to ``pm.sample``: tuning draws cost as much as others.
    updates : {"joint", "component", "guided", "autoregressive"}, default "joint"
        Whether proposals move all parameters, one of them, or one of them in a direction that is kept as
        long as its proposals are accepted. Noise grows with the length of a move, so that moves of one
        parameter need less. The last, which needs an `approximation`, draws from an autoregression that has
        it for its law: only the noise, and what the approximation gets wrong, is ever refused.
    scale : float, array of shape (d,) or array of shape (d, d), optional
        Standard deviation of proposals, for all parameters or for each, in the space of the values that PyMC
        samples; or a matrix that standard normal numbers are multiplied with ("joint" only). By default from
        the noise: the length at which it is about as large as can be afforded. With an `approximation` one
        number, in its standard deviations.
    adapt : bool, default True
        Whether a common factor of the scale is learnt in tuning. It sees accepted and rejected moves only,
        which are private.
    approximation : NormalApproximation, optional
        What :func:`~pymc_dp.normal_approximation` released. Moves then follow its covariance, one parameter
        becomes one column of its Cholesky factor, and rows are clipped by its own bounds and distance.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain. It drives proposals and decisions, never the noise.
    insecure_noise_seed : int, optional
        For tests on made-up data: noise that can be repeated, and that protects nobody.

    Raises
    ------
    ValueError
        If the model has no confidential likelihood, noise is given in no way or in two, a variable is no
        parameter of it, or `updates` or `scale` is none of the above; if the plan does not fit into the
        budget (:class:`~pymc_dp.BudgetExceededError`). When a chain begins: if another step moves the
        same parameters, or ``pm.sample`` asks for more than was planned.

    Notes
    -----
    ``sample_stats`` get ``private_accepted`` and ``private_log_ratio``, the noisy change of the (clipped,
    tempered) log likelihood; both are paid for, and nothing else that depends on rows is kept. R-hat and
    effective sample sizes cannot see what clipping does to the draws.

    What is chosen after looking at the rows tells of them and is not paid for: starting points, scales,
    bounds. Chains start where the model says.

    The noise comes from the operating system's entropy. Sums are whole numbers of c / 2^30 and so is the
    noise (a discrete Gaussian law), so that nothing is left to rounding.

    References
    ----------
    Ceperley and Dewing, "The penalty method for random walks with uncertain energies" (1999); Yıldırım and
    Ermiş, "Exact MCMC with differentially private moves" (2019); Räisä, "Differentially private Markov chain
    Monte Carlo" (2021), section 3.1 and theorem 6. The sensitivity there holds for log densities. Cotter,
    Roberts, Stuart and White, "MCMC methods for functions" (2013), section 4.3, for autoregressive proposals.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> rows = np.random.default_rng(1).normal(1, 1, 500)
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     x = dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), data=rows, clip=3)
    ...     ledger = dp.PrivacyLedger(epsilon=2, delta=1e-6)
    ...     step = dp.PenaltyMetropolis(ledger=ledger, draws=200, tune=50, chains=1)
    ...     idata = pm.sample(200, tune=50, chains=1, step=step, progressbar=False)
    >>> sorted(idata.sample_stats.data_vars)
    ['private_accepted', 'private_log_ratio']
    """

    name = "penalty_metropolis"
    stats_dtypes_shapes: Any = {"private_accepted": (bool, []), "private_log_ratio": (np.float64, [])}  # noqa: RUF012
    _state_class = PenaltyState

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        ledger: Any = None,
        noise_multiplier: float | None = None,
        draws: int | None = None,
        tune: int | None = None,
        chains: int | None = None,
        updates: str = "joint",
        scale: Any = None,
        adapt: bool = True,
        approximation: NormalApproximation | None = None,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
        insecure_noise_seed: int | None = None,
    ):
        if updates not in UPDATES:
            raise ValueError(f"updates={updates!r} is none of {', '.join(UPDATES)}.")
        self.updates, self.adapt = updates, bool(adapt)
        self._prepare(vars, model, rng, initial_point, insecure_noise_seed)
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
            self.likelihood, type(self).__name__, ledger, noise_multiplier, draws, tune, chains,
            insecure=insecure_noise_seed is not None,
        )  # fmt: skip
        self._build()
        self.plan.reserve()
        self.scale = self._default_scale() if given is None else given
        self._reset()

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Take the parameters of confidential likelihoods: no other step may."""
        confidential = getattr(var.tag, "pymc_dp_confidential", None) is not None
        return Competence.IDEAL if confidential else Competence.INCOMPATIBLE

    def _default_scale(self) -> np.ndarray:
        noise_per_distance = 2 * self.plan.noise_multiplier * self.clip * self.term.temper
        size = self.layout.size
        moved = 1 if self.updates in ("component", "guided") else size
        lengths = self._lengths()
        if self.approximation is None:
            return _AT_TARGET / (noise_per_distance * np.sqrt(moved) * lengths)
        # variance of a log ratio by noise, and by how the posterior falls off, for a move of scale 1
        noise = noise_per_distance**2 * moved * np.mean(lengths**2)
        if self.updates == "autoregressive":
            return np.full(size, min(_INDEPENDENT, _AT_TARGET / np.sqrt(noise)))
        return np.full(size, _AT_TARGET / np.sqrt(noise + moved))

    def _lengths(self) -> np.ndarray:
        """Distances of moves along each axis, per unit, where the model begins or the approximation is."""
        self.data = self._data.gather()
        near, (origin, other) = self.approximation, self._origin
        origin, unit = (origin, 1e-6) if near is None else (near.mean.copy(), 1.0)
        found = np.array([self.distance(origin + unit * v, origin, other) / unit for v in self.axes.T])
        return np.maximum(found, max(1e-3 * found.max(), np.finfo(float).tiny))

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
        if self.updates == "autoregressive":
            new, change, moved = *self._autoregressed(theta), -1
        else:
            move, moved = self._proposed()
            new, change = theta + move, 0.0
        # of the point as it is in numbers, so that a rounded move is not longer than it is taken for
        ratio, sd = self.noisy_ratio(new, theta, other, self.distance(new, theta, other))
        change += ratio + self.logp_at(new, other) - self.logp_at(theta, other)
        accepted = bool(np.log(self.rng.uniform()) < change - 0.5 * sd**2)
        if accepted:
            self.accept()
            point = {**point, **self.layout.unflatten(new)}
        elif self.updates == "guided":
            self.direction[moved] *= -1
        if self.tune and self.adapt:
            self.log_factor += (accepted - _TARGET) * min(1.0, 3.0 / np.sqrt(1 + self.n_steps))
        self.n_steps += 1
        return point, [{"private_accepted": accepted, "private_log_ratio": ratio}]

    def _proposed(self) -> tuple[np.ndarray, int]:
        """Return a move, and which parameter it moves if it is one."""
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
        """Return a proposal, and what to add to its log ratio for how likely it was, and the way back.

        Crank-Nicolson: proposals are in balance with the approximation, whose log density is taken off.
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
