"""A private normal approximation: a few Newton steps on noisy gradients and noisy curvature."""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any

import numpy as np
from pymc.model.core import Model

from pymc_dp.privacy._checks import positive, whole
from pymc_dp.privacy.budgets import epsilon as epsilon_of
from pymc_dp.privacy.costs import GaussianCost
from pymc_dp.privacy.ledger import PrivacyLedger
from pymc_dp.private.clipped_gradients import moment_bits
from pymc_dp.private.gradients import GradientStep
from pymc_dp.private.integer_noise import GaussianNoise, noise_scale, words_of_seed
from pymc_dp.private.normal import NormalApproximation

_log = logging.getLogger("pymc")
# The noise multiplier of the sums of products, divided by that of the gradient. The covariance may be wrong
# by a tenth, while a mean that is wrong by a standard deviation makes every proposal worse.
_CHEAPER = 4.0
# Newton steps are lengthened by 1 / (1 - share), where share is the part of the gradients' second moments
# that is due to their mean. This is the largest share that is used, so that steps stay finite.
_FAR = 0.9
# Steps that lead to where the model has no density are halved down to this fraction of their length.
_SHORTEST = 2.0**-30


def normal_approximation(
    *,
    ledger: Any = None,
    share: float = 0.1,
    noise_multiplier: float | None = None,
    rounds: int = 5,
    clip: float = 2.5,
    start: dict[str, Any] | None = None,
    model: Model | None = None,
    insecure_noise_seed: int | None = None,
) -> NormalApproximation:
    r"""Release a normal approximation of the posterior given confidential rows.

    Each round releases the sum of the rows' gradients and the sum of their outer products, with noise, and
    takes a Newton step. The first round clips gradients to the norm ``clip_gradient`` of the likelihood. The
    following rounds clip in coordinates in which gradients have about the same size in all directions,
    according to the releases so far, so that the noise is small in every direction.

    Parameters
    ----------
    ledger : PrivacyLedger, optional
        The ledger that is debited, before any row is read.
    share : float, default 0.1
        The part of the remaining budget to use, in (0, 1). It is a part of the square of mu of Gaussian
        differential privacy, which adds up over releases. The rest is left for the draws.
    noise_multiplier : float, optional
        Instead of a ledger: standard deviation of the noise on a sum of gradients, divided by its replace-one
        sensitivity. The noise multiplier of the sum of products is four times as large.
    rounds : int, default 5
        Number of rounds. Three are enough for a posterior that is nearly normal, if the start is within a few
        standard deviations of a row. More are needed where the start is far away, or where the gradients of
        rows differ much in size between directions (by more than a thousand, say).
    clip : float, default 2.5
        Bound that the steps which use the approximation put on a row's change of log likelihood between
        parameters one unit apart, a unit being a standard deviation of such changes. If changes are normal,
        1.2 % of them exceed 2.5.
    start : dict, optional
        Starting values, by the names of the values that PyMC samples; they must be chosen without looking at
        the rows. The default is the model's initial point.
    model : pymc.Model, optional
        Taken from the context if left out. It has one confidential likelihood.
    insecure_noise_seed : int, optional
        For tests on made-up data: a seed that makes the noise repeatable, so that it protects nobody.

    Returns
    -------
    NormalApproximation
        For ``approximation=`` of :class:`PenaltyMetropolis` and :class:`PrivateHMC`. Chains may start from
        draws of it.

    Raises
    ------
    ValueError
        If the model has no confidential likelihood or several, if the likelihood has no ``clip_gradient``, if
        both or neither of `ledger` and `noise_multiplier` are given, or if a number is out of range.
    BudgetExceededError
        If nothing is left of the budget.

    Notes
    -----
    If the model is right, the outer products estimate the Fisher information of a row; otherwise they are
    only a rough measure of it. The approximation shapes proposals and bounds; it affects the law of the draws
    only through which rows are clipped. Other free variables of the model stay at their starting values.

    Whether noise will drown it can be known before it is paid for: with d parameters and noise multiplier m
    of a gradient, :math:`n > 8 \sqrt{2 d}\, (\sqrt d + \mathrm{clip})^2 m` rows are needed, or there is a
    warning. A `share` of a zCDP budget rho gives :math:`m = \sqrt{1.07\, \mathrm{rounds} / (2 \rho\,
    \mathrm{share})}`, nearly.

    It is better to choose ``clip_gradient`` too large than too small: if it is too small, steps go too far.

    With gradients of norm at most b, replacing a row changes their sum by at most 2 b, and the sum of the
    products by at most :math:`\sqrt 2 b^2` in the Frobenius norm.

    References
    ----------
    Biswas, Dong, Kamath and Ullman, "CoinPress: practical private mean and covariance estimation" (2020),
    for the rounds; Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss" (2014), for noise on products.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> rows = np.random.default_rng(1).normal(1, 1, 5000)
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     x = dp.ConfidentialLikelihood("x", pm.Normal.dist(mu, 1), data=rows, clip=3, clip_gradient=4)
    ...     found = dp.normal_approximation(ledger=dp.PrivacyLedger(epsilon=2, delta=1e-6))
    >>> bool(abs(found.mean[0] - 1) < 0.2)
    True
    """
    step = _Newton(model=model, seed=insecure_noise_seed)
    rounds, clip = whole("rounds", rounds), positive("clip", clip)
    theta, other = step.start(start)
    noise = _reserved(step, ledger, share, noise_multiplier, rounds, insecure_noise_seed is not None)
    return step.release(theta, other, noise, rounds, clip)


def _reserved(
    step: _Newton, ledger: Any, share: float, noise_multiplier: float | None, rounds: int, insecure: bool
) -> float:
    """Debit all rounds; return the noise multiplier of a gradient."""
    if (ledger is None) == (noise_multiplier is None):
        raise ValueError("normal_approximation: give either ledger=, or noise_multiplier=.")
    if ledger is None:
        multiplier = positive("noise_multiplier", noise_multiplier)
        step.noise(multiplier)
        _log.info(f"normal_approximation: no ledger keeps count. {step.costs(rounds, multiplier)}")
        return multiplier
    if not isinstance(ledger, PrivacyLedger):
        raise TypeError(f"ledger must be a dp.PrivacyLedger, got {type(ledger).__name__}.")
    if not 0 < positive("share", share) < 1:
        raise ValueError(f"share must be between 0 and 1, got {share}.")
    each = rounds * (1 + _CHEAPER**-2)
    multiplier = ledger.noise_multiplier(1) * math.sqrt(each / share) * (1 + 1e-9)
    try:
        step.noise(multiplier)
    except ValueError:
        raise ValueError(
            f"share: {share:g} of what is left of the ledger's budget takes noise of {multiplier:.3g} times "
            "the sensitivity, which does not fit 64-bit numbers. Nothing was spent: give a larger share, or "
            "a ledger with more left."
        ) from None
    costs = step.costs(rounds, multiplier)
    ledger.reserve(
        costs, likelihood=step.likelihood, step="normal_approximation", chains=1, insecure_noise=insecure
    ).claim()
    _log.info(
        f"normal_approximation of '{step.likelihood}': {rounds} gradients and {rounds} matrices, epsilon = "
        f"{epsilon_of(costs, ledger.delta):.4g} at delta = {ledger.delta:g}; debited."
    )
    return multiplier


class _Newton(GradientStep):
    """The lowered model, for Newton steps; it is never given to ``pm.sample``."""

    name = "normal_approximation"

    def __init__(self, *, model: Model | None = None, seed: int | None = None, **kwargs: Any):
        self._prepare(None, model, None, None, seed, None)
        self._need_all("approximates the law of all parameters")
        self._build()
        self.data = self._data.gather()

    def step(self, point: Any) -> Any:
        raise NotImplementedError("normal_approximation is no step of pm.sample.")

    @staticmethod
    def costs(rounds: int, multiplier: float) -> list[GaussianCost]:
        """Cost of all rounds."""
        return [GaussianCost(rounds, multiplier), GaussianCost(rounds, _CHEAPER * multiplier)]

    def start(self, given: dict[str, Any] | None) -> tuple[np.ndarray, np.ndarray]:
        """Parameters and other variables to begin with."""
        point = dict(self.model.initial_point())
        if not isinstance(given, dict | None):
            raise TypeError(f"start must be a dict of values by their names, got {type(given).__name__}.")
        for name, value in (given or {}).items():
            if name not in point or np.shape(value) != np.shape(point[name]):
                raise ValueError(f"start: {name} with shape {np.shape(value)} is none of the model's values.")
            point[name] = np.asarray(value, dtype=float)
        theta, other = self.layout.flatten(point), self.others.flatten(point)
        if not np.isfinite(self.logp_at(theta, other)):
            raise ValueError("start: the model has no density there. Give other values.")
        return theta, other

    def release(
        self, theta: np.ndarray, other: np.ndarray, multiplier: float, rounds: int, clip: float
    ) -> NormalApproximation:
        """Take the Newton steps."""
        d, temper = self.layout.size, self.term.temper
        noise = self.noise(multiplier)
        metric, bound = np.eye(d), self.clip_gradient
        for k in range(rounds):
            gradient, moments, error = self.moments(theta, other, np.linalg.inv(metric), bound, noise)
            # Eigenvalues smaller than the noise cannot be told from it. In the units of the round before they
            # are about one: larger noise has drowned all of them, whatever it happens to have made of them.
            least = 2 * math.sqrt(d) * error
            drowned = d if least >= 1 and k > 0 else int((np.linalg.eigvalsh(moments) < least).sum())
            moments = _at_least(moments, least)
            # second moments about 0 rather than about the mean make steps too short when the start is far
            # away
            mean = gradient / self.term.rows.n
            length = 1 / (1 - min(float(mean @ np.linalg.solve(moments, mean)), _FAR))
            information = metric.T @ moments @ metric
            precision = self.term.rows.n * temper * information + self._curvature(theta, other)
            step = np.linalg.solve(precision, temper * metric.T @ gradient + self.slope_at(theta, other))
            while length > _SHORTEST and not np.isfinite(self.logp_at(theta + length * step, other)):
                length /= 2
            theta = theta + length * step
            metric, bound = np.linalg.cholesky(information).T, math.sqrt(d) + clip
        if drowned:
            warnings.warn(
                f"normal_approximation of '{self.likelihood}': in {drowned} of {d} directions noise is as "
                "large as what it was to measure, so that mean and covariance are mostly noise. Do not "
                "start chains from it: give it more of the budget (share=), fewer rounds, a smaller "
                "clip_gradient of the likelihood, or do without.",
                stacklevel=3,
            )
        covariance = np.linalg.inv(precision)
        return NormalApproximation(
            self.likelihood, tuple(self.layout.names), tuple(self.layout.shapes), theta,
            0.5 * (covariance + covariance.T), information, clip, bound,
            tuple(self.costs(rounds, multiplier)), self.insecure_noise_seed is not None,
        )  # fmt: skip

    def noise(self, multiplier: float) -> tuple[GaussianNoise, GaussianNoise, int]:
        """Return the noise of a gradient, the noise of the products, and the scale of the latter.

        Raises
        ------
        ValueError
            If the noise is too large for 64-bit integers.
        """
        bits, words = (
            moment_bits(self.term.rows.n),
            [words_of_seed(self.insecure_noise_seed, 0, k) for k in (3, 4)],
        )
        first = noise_scale("noise_multiplier", multiplier, bits + 1)
        second = noise_scale("noise_multiplier", _CHEAPER * multiplier * math.sqrt(2.0), 2 * bits)
        return GaussianNoise(first, words[0]), GaussianNoise(second, words[1]), second

    def moments(
        self, theta: np.ndarray, other: np.ndarray, back: np.ndarray, bound: float,
        noise: tuple[GaussianNoise, GaussianNoise, int],
    ) -> tuple[np.ndarray, np.ndarray, float]:  # fmt: skip
        """Return the noisy sum of gradients, the noisy mean of their products, and the scale of its noise.

        Gradients are taken in new coordinates, in which `bound` bounds the norm of a row's gradient; the
        matrix `back` leads from these to the coordinates of the model.
        """
        rows, d, lower = self.term.rows, self.layout.size, np.tril_indices(self.layout.size)
        bits = moment_bits(rows.n)
        jacobian = np.ascontiguousarray(self.jacobian_at(theta, other) @ back)
        # the noise and the exact sums are never variables of their own, since a traceback could show them
        noisy = np.concatenate([noise[0].draw(d), noise[1].draw(len(lower[0]))]) + rows.read(
            self._gradient.moments, (self.numbers_at(theta, other), jacobian), (bound, bits)
        )
        unit = bound * 2.0**-bits
        moments = np.zeros((d, d))
        moments[lower] = noisy[d:]
        weight = unit**2 / rows.n
        return unit * noisy[:d], weight * (moments + np.tril(moments, -1).T), weight * noise[2]

    def _curvature(self, theta: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the positive part of the other terms' curvature, from differences of their gradient."""
        found = np.zeros((theta.size, theta.size))
        for j in range(theta.size):
            away = np.zeros(theta.size)
            away[j] = 1e-4 * (1 + abs(theta[j]))
            ends = [self.slope_at(theta + sign * away, other) for sign in (1, -1)]
            found[j] = (ends[1] - ends[0]) / (2 * away[j])
        found = np.where(np.isfinite(found), found, 0.0)
        return _at_least(0.5 * (found + found.T), 0.0)


_Newton.__name__ = normal_approximation.__name__  # errors name the class, and users know the function


def _at_least(matrix: np.ndarray, floor: float) -> np.ndarray:
    """Return a symmetric matrix with all eigenvalues raised to at least `floor`."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, floor)) @ vectors.T
