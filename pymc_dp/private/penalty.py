"""Metropolis with a penalty for the noise on its log likelihood ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Variable

from pymc_dp.private.normal import NormalApproximation
from pymc_dp.private.walk import PrivateWalk

# Standard deviation of noise that is accepted with its penalty as often as tuning aims at.
NOISE_AT_TARGET = 2.38


class PenaltyMetropolis(PrivateWalk):
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
        Budget. The run that is planned by `draws`, `tune` and `chains` gets all that is left of it, or what
        `share` or `epsilon` says, and is debited at once.
    noise_multiplier : float, optional
        In the place of a ledger: standard deviation of the noise over the replace-one sensitivity.
    draws, tune, chains : int, optional
        The plan, as it will be given to ``pm.sample``: tuning draws cost as much as others.
    share : float, optional
        Which part of the ledger's whole budget the run gets, in (0, 1], where several steps or likelihoods
        share a ledger. Shares add up to 1: they are of the sum of 1 / noise_multiplier^2 of all releases,
        in which Gaussian releases compose; epsilons do not add up. By default the run gets all that is left.
    epsilon : float, optional
        In the place of a share: what the run costs by itself, at the ledger's delta.
    clipped_noise : float, optional
        Noise multiplier of a count of clipped rows over that of a ratio, > 0. If given, each draw also
        releases the share of rows whose change exceeded the bound, with noise, which costs
        ``1 / clipped_noise**2`` of what its ratio costs: 1 % of it for 10. By default nothing is counted.
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
    effective sample sizes cannot see what clipping does to the draws. `clipped_noise` adds
    ``private_clipped_fraction``: each number has Gaussian noise of standard deviation
    ``noise_multiplier * clipped_noise / n``, and may be negative; their mean is unbiased.

    A step is sampled by one call of ``pm.sample``. With a ledger that is all that was paid for; without one,
    another call is refused too, since nothing would add up what the two cost: make a new step.

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
    ['private_accepted', 'private_chain', 'private_iteration', 'private_log_ratio']
    """

    name = "penalty_metropolis"

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        ledger: Any = None,
        noise_multiplier: float | None = None,
        draws: int | None = None,
        tune: int | None = None,
        chains: int | None = None,
        share: float | None = None,
        epsilon: float | None = None,
        clipped_noise: float | None = None,
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
        plan = {
            "ledger": ledger, "noise_multiplier": noise_multiplier, "draws": draws, "tune": tune,
            "chains": chains, "share": share, "epsilon": epsilon,
        }  # fmt: skip
        self._begin(
            vars,
            updates,
            scale,
            adapt,
            model,
            rng,
            initial_point,
            insecure_noise_seed,
            clipped_noise,
            plan,
            approximation,
        )

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Take the parameters of confidential likelihoods: no other step may."""
        confidential = getattr(var.tag, "pymc_dp_confidential", None) is not None
        return Competence.IDEAL if confidential else Competence.INCOMPATIBLE

    def _affordable(self) -> float:
        return NOISE_AT_TARGET / (2 * self.plan.noise_multiplier * self.clip * self.term.temper)
