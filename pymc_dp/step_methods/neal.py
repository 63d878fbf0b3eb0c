"""Marginal sampler of mixtures behind private releases."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Variable

from pymc_dp.step_methods.base import check_positive
from pymc_dp.step_methods.mixture.cycles import COLLAPSED, CONDITIONAL, JOINT, RELABEL
from pymc_dp.step_methods.mixture.source import ACCEPTED, DEALINGS, DEALT, PROPOSED, SPLIT, TRIED
from pymc_dp.step_methods.mixture.step import MixtureStep

# The share of sweeps given the records: from the sixth power of the share of joint proposals refused, and
# this number, at which it is one half; at least this part of the share refused; and at most so much.
_EVEN, _LEAST, _MOST = 0.5, 0.3, 0.95
# From this acceptance on joint sweeps move the records well enough for sweeps that move the labels only.
_REFRESHED = 0.3
# Splits and merges after a sweep: more the more are accepted, up to so many, and fewer again where the first
# few have done what can be done; and the acceptance below which they are not worth their cost.
_SPLITS, _MOST_SPLITS, _ENOUGH, _WORTHWHILE = 70, 10, 3, 0.005
# Accepted splits and merges that make two draws of 200 records about independent.
_INDEPENDENT = 12
# Dealt splits in a collapsed sweep: one for so many records, between these.
_DEALT_PER, _LEAST_DEALT, _MOST_DEALT = 100, 3, 10


class PrivateNeal5(MixtureStep):
    r"""Labels and confidential records of a mixture, with the weights of its clusters integrated out.

    *Joint* sweeps are the private form of Neal's algorithm 5: record i is proposed a label from the law of
    one more record given all others' labels, and values from the law of that cluster, and both are accepted
    with probability

    .. math:: \min\left\{1, \frac{g(z_i\mid\theta^*)}{g(z_i\mid\theta_{c_i})}\right\}, \qquad
        g(z_i\mid\theta) = \frac1m \sum_{j=1}^m q(z_i\mid y_{ij}), \quad y_{ij}\sim f(\cdot\mid\theta)

    with m auxiliary values, of which one is the record. Under strong privacy nearly all are accepted. With
    infinitely many, g is the density of the release itself, with the record integrated out; the record is
    drawn afterwards, given its release.
    *Conditional* sweeps draw labels given the records (Neal's algorithm 8; algorithm 3 with splits and merges
    where the atoms integrate out) and then, unless joint sweeps do that well, records given labels, by the
    exact or informed moves of :class:`RecordImputation`; they keep moving when the release pins the records
    down. *Splits and merges*
    move whole clusters, with the records of one part drawn anew. All leave the same posterior unchanged;
    their shares are learnt while tuning from how often they are accepted.

    ``pm.sample`` chooses this step by itself for the labels and records of a mixture behind a mechanism.

    Parameters
    ----------
    vars : list of variables, optional
        Labels and records; all that are behind a release if left out.
    n_auxiliary : int or inf, default 1
        Auxiliary values m per record in joint sweeps; more than 1 with local releases only, and infinitely
        many (``np.inf``) with closed ones only: normal numbers, clamped or not, behind Laplace or Gaussian
        noise; discrete records of a finite support behind any local releases; whole numbers without an end,
        unclamped, behind discrete Laplace or Gaussian noise, where values of a share of at most 1e-12 of
        each probability are left out.
    moves : {"auto", "joint", "conditional"}, default "auto"
        Which sweeps; "auto" takes both, and splits and merges where all releases are local.
    n_cycles : int, optional
        Sweeps per draw, with an update of the atoms between them; by default more for fewer records.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no such mixture, an argument is out of range, or, while sampling, all
        ``max_components`` slots are occupied and a new cluster needs one.
    NotImplementedError
        If the kernel or the law of the atoms has no scalar form.

    Notes
    -----
    A joint sweep costs O(m) per record, whatever the number of clusters; a conditional sweep O(number of
    clusters). Infinitely many auxiliaries cost two densities of the release and an exact draw per record:
    five to seven times as much as one for normal records. For discrete records they cost two sums over the
    K values of a record, or as many as the noise may bridge. ``sample_stats`` gets ``n_clusters``,
    ``cluster_acceptance`` (of joint proposals) and ``labels_moved`` (share of records that changed their
    cluster).

    References
    ----------
    Beraha, Favaro & Rao, "MCMC for Bayesian nonparametric mixture
    modeling under differential privacy", algorithm 1; Neal (2000),
    "Markov chain sampling methods for Dirichlet process mixture models", algorithms 5 and 8.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
    ...     mu = pm.Normal("mu", 0, 3, shape=4)
    ...     y = pm.Normal("y", mu[labels], 1)
    ...     z = dp.LaplaceMechanism("z", y, epsilon=5, bounds=(-10, 10), observed=[-4.0, -3.1, 2.2, 3.0])
    ...     step = dp.PrivateNeal5()
    >>> [v.name for v in step.vars]
    ['labels', 'y']
    """

    name = "private_neal5"

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        n_auxiliary: float = 1,
        moves: Literal["auto", "joint", "conditional"] = "auto",
        n_cycles: int | None = None,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        if n_auxiliary != math.inf:
            check_positive("n_auxiliary", n_auxiliary)
        check_positive("n_cycles", n_cycles, or_none=True)
        if moves not in ("auto", "joint", "conditional"):
            raise ValueError(f"`moves` must be 'auto', 'joint' or 'conditional', got {moves!r}.")
        self.n_auxiliary, self.moves, self.n_cycles = n_auxiliary, moves, n_cycles
        self._prepare(vars, model, rng, initial_point)

    @property
    def _kernels(self) -> dict[str, Any]:
        joint = self.n_auxiliary if self.moves != "conditional" else 0
        conditional = {"auto": "collapsed", "conditional": "neal8", "joint": ""}[self.moves]
        return {"n_auxiliary": joint, "conditional": conditional, "splits": self.moves == "auto"}

    def _cycles(self, m: int) -> int:
        most = super()._cycles(m)
        if self.moves != "auto" or self.tune:
            return most
        _, _, (n_splits, _) = self._shares(m)
        accepted = n_splits * float(self.rates[m, SPLIT] / max(self.rates[m, TRIED], 1.0))
        return most if accepted * most < _INDEPENDENT else min(max(int(_INDEPENDENT / accepted), 1), most)

    def _plan(self, m: int, n_cycles: int) -> tuple[np.ndarray, tuple[int, int]]:
        if self.moves == "joint":
            return np.full(n_cycles, JOINT), (0, 0)
        if self.moves == "conditional":
            return np.full(n_cycles, CONDITIONAL), (0, 0)
        share, kind, splits = self._shares(m)
        # spread over cycles and draws alike
        first = self.n_steps * n_cycles
        plan = [
            kind if int(share * (t + 1)) > int(share * t) else JOINT for t in range(first, first + n_cycles)
        ]
        return np.array(plan), splits

    def _shares(self, m: int) -> tuple[float, int, tuple[int, int]]:
        """Share and kind of the sweeps given records, and how many splits and merges, as learnt."""
        rates = self.rates[m]
        # some of each until something is known
        accepted = float(rates[ACCEPTED] / rates[PROPOSED]) if rates[PROPOSED] else 0.3
        split = float(rates[SPLIT] / rates[TRIED]) if rates[TRIED] else 0.2
        dealt = float(rates[DEALT] / rates[DEALINGS]) if rates[DEALINGS] else 1.0
        refused = (1 - accepted) ** 6
        share = min(max(refused / (refused + _EVEN), _LEAST * (1 - accepted)), _MOST)
        mixture = self._mixtures[m]
        kind = CONDITIONAL
        if mixture.collapses:
            kind = RELABEL if accepted > _REFRESHED else COLLAPSED
        # none at all while tuning would leave nothing to learn from
        n_splits = 1 if self.tune else 0
        if split > _WORTHWHILE:
            n_splits = int(max(min(_SPLITS * split, _ENOUGH / split, _MOST_SPLITS), 1))
        n_dealt = int(min(max(mixture.mixture.n / _DEALT_PER, _LEAST_DEALT), _MOST_DEALT))
        return share, kind, (n_splits, n_dealt if dealt > _WORTHWHILE else 1)

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        return Competence.IDEAL if MixtureStep._wants(var) else Competence.INCOMPATIBLE
