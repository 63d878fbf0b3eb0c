"""Metropolis with a penalty for the noise on its log likelihood ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Variable

from pymc_dp.private.normal import NormalApproximation
from pymc_dp.private.walk import PrivateWalk

# Standard deviation of noise at which, with its penalty, the acceptance rate is that which tuning aims at.
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
        Instead of a ledger: standard deviation of the noise, divided by the replace-one sensitivity.
    draws, tune, chains : int, optional
        The plan, as it will be given to ``pm.sample``: tuning draws cost as much as others.
    share : float, optional
        The part of the ledger's whole budget that the run gets, in (0, 1], for several steps or likelihoods
        that share a ledger. Shares add up to 1, because they are parts of the sum of 1 / noise_multiplier^2
        over all releases, which is how Gaussian releases compose; epsilons do not add up. By default the run
        gets all that is left.
    epsilon : float, optional
        Instead of a share: the epsilon of the run by itself, at the ledger's delta.
    clipped_noise : float, optional
        Noise multiplier of a count of clipped rows, divided by that of a ratio, > 0. If given, each draw also
        releases the share of rows whose change exceeded the bound, with noise, which costs
        ``1 / clipped_noise**2`` of what its ratio costs (1 % for ``clipped_noise=10``). By default no rows
        are counted.
    updates : {"joint", "component", "guided", "autoregressive"}, default "joint"
        Whether proposals move all parameters ("joint"), one of them ("component"), or one of them in a
        direction that is kept as long as its proposals are accepted ("guided"). Noise grows with the length
        of a move, so that moves of one parameter get less noise. "autoregressive" needs an `approximation`:
        proposals come from an autoregression that has the approximation as its stationary law, so that they
        are rejected only because of the noise and of errors of the approximation.
    scale : float, array of shape (d,) or array of shape (d, d), optional
        Standard deviation of proposals, for all parameters or for each, in the space of the values that PyMC
        samples; or a matrix by which standard normal numbers are multiplied ("joint" only). By default it is
        chosen such that the noise of a typical move just leaves a useful acceptance rate. With an
        `approximation` it is one number, in units of its standard deviations.
    adapt : bool, default True
        Whether a common factor of the scale is learnt in tuning. It is learnt from which moves were accepted,
        which is private already.
    approximation : NormalApproximation, optional
        The result of :func:`~pymc_dp.normal_approximation`. Moves then follow its covariance, moves of one
        parameter become moves along one column of its Cholesky factor, and rows are clipped by its bounds and
        distance.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain. It drives proposals and decisions, never the noise.
    insecure_noise_seed : int, optional
        For tests on made-up data: a seed that makes the noise repeatable, so that it protects nobody.

    Raises
    ------
    ValueError
        If the model has no confidential likelihood, if both or neither of `ledger` and `noise_multiplier` are
        given, if a variable is no parameter of the likelihood, if `updates` or `scale` is none of the above,
        or if the plan exceeds the budget (:class:`~pymc_dp.BudgetExceededError`). When a chain begins: if
        another step moves the same parameters, or ``pm.sample`` asks for more than was planned.

    Notes
    -----
    ``sample_stats`` get ``private_accepted`` and ``private_log_ratio``, the noisy change of the (clipped,
    tempered) log likelihood. Both are part of the run's cost, and nothing else that depends on rows is kept.
    R-hat and effective sample sizes do not show what clipping does to the draws. `clipped_noise` adds
    ``private_clipped_fraction``: each number has Gaussian noise of standard deviation
    ``noise_multiplier * clipped_noise / n``, and may be negative; their mean is unbiased.

    However many draws are made, a budget of `rho` in zCDP buys about ``rho / (12 d (clip sd)^2)`` effective
    ones, ``sd`` being posterior standard deviations, where that is less than a tenth of the draws (derived
    for small moves, at the noise that tuning aims at; measured at half to twice that).

    A step serves one call of ``pm.sample``. With a ledger only one call was debited; without a ledger another
    call is refused too, since nothing would add up the cost of the two. Make a new step for another call.

    Do not choose starting points, scales or bounds by looking at the rows: such choices tell something of the
    rows, which no cost covers. Chains start at the model's initial point.

    The noise comes from the operating system's entropy. Sums and noise (of a discrete Gaussian law) are whole
    numbers of c / 2^30, so that the guarantee does not depend on rounding.

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
        """Take the parameters of confidential likelihoods, which no other step may move."""
        confidential = getattr(var.tag, "pymc_dp_confidential", None) is not None
        return Competence.IDEAL if confidential else Competence.INCOMPATIBLE

    def _affordable(self) -> float:
        return NOISE_AT_TARGET / (2 * self.plan.noise_multiplier * self.clip * self.term.temper)
