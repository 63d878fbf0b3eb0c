"""Marginal sampler of mixtures behind private releases."""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Variable

from pymc_dp.step_methods.mixture.counters import (
    ACCEPTED,
    DEALINGS,
    DEALT,
    FIRST_SPLIT,
    PROPOSED,
    SPLIT_KINDS,
)
from pymc_dp.step_methods.mixture.cycles import COLLAPSED, CONDITIONAL, JOINT, RELABEL, Plan
from pymc_dp.step_methods.mixture.step import MixtureStep
from pymc_dp.step_methods.record_step import check_positive

# The share of sweeps given the records: from the sixth power of the share of joint proposals refused, and
# this number, at which it is one half; at least this part of the share refused; and at most so much.
_EVEN, _LEAST, _MOST = 0.5, 0.3, 0.95
# From this acceptance on joint sweeps move the records well enough for sweeps that move the labels only.
_REFRESHED = 0.3
# Splits and merges after a sweep, fewer below a rate of acceptance; and the one below which they are not
# worth their cost.
_SPLITS, _SPLITS_FOR, _WORTHWHILE = 10, 0.1, 0.005
# From this acceptance of joint proposals on, releases tell so little that splits draw records anew, and below
# this one so much that splits keep them.
_TELL_LITTLE, _TELL_MUCH = 0.65, 0.35
# Accepted splits and merges that make two draws of 200 records about independent.
_INDEPENDENT = 12
# Dealt splits in a collapsed sweep: one for so many records, between these.
_DEALT_PER, _LEAST_DEALT, _MOST_DEALT = 100, 3, 10


class Shares(NamedTuple):
    """Share and kind of the sweeps given records; splits by kind, and in such a sweep; accepted ones."""

    conditional: float
    kind: int
    splits: tuple[int, ...]
    dealt: int
    accepted: float


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
    down. *Splits and merges* move whole clusters: a part of a cluster gets atoms from the base and a weight
    v, and each record goes there with probability :math:`v r / (1 - v + v r)`, where r says how much better
    off it is. Under strong privacy records are drawn anew for that; otherwise they are integrated out of
    their releases where these are closed, and kept as they are where releases tell nearly all of them. All
    leave the same posterior unchanged; their shares are learnt while tuning from how often they are
    accepted.

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
        Which sweeps; "auto" takes both, and splits and merges.
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
    clusters). A split or merge costs O(1) per record of its clusters: a draw, or a density of its release or
    of the kernel; up to ten of one kind follow a sweep. Infinitely many auxiliaries cost two densities of the
    release and an exact draw per record: four to five times as much as one for normal records. For discrete
    records they cost two sums over the K values of a record, or as many as the noise may bridge.
    ``sample_stats`` gets ``n_clusters``, ``cluster_acceptance`` (of joint proposals), ``labels_moved``
    (share of records that changed their cluster) and ``record_acceptance`` (share of all proposals for
    records that were accepted, with their labels or given them).

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
        accepted = self._shares(m).accepted
        return most if accepted * most < _INDEPENDENT else min(max(int(_INDEPENDENT / accepted), 1), most)

    def _plan(self, m: int, n_cycles: int) -> Plan:
        if self.moves == "joint":
            return Plan(np.full(n_cycles, JOINT))
        if self.moves == "conditional":
            return Plan(np.full(n_cycles, CONDITIONAL))
        of, kind, splits, dealt, _ = self._shares(m)
        # spread over cycles and draws alike
        first = self.n_steps * n_cycles
        plan = [kind if int(of * (t + 1)) > int(of * t) else JOINT for t in range(first, first + n_cycles)]
        return Plan(np.array(plan), splits, dealt)

    def _shares(self, m: int) -> Shares:
        """What the cycles of a draw are made of, as learnt; some of each until something is known."""
        rates, mixture = self.rates[m].tolist(), self._mixtures[m]
        closed, n = mixture.lowered.is_closed, mixture.mixture.n
        # 1 where releases tell nothing of records
        accepted = rates[ACCEPTED] / rates[PROPOSED] if rates[PROPOSED] else 0.3
        refused = (1 - accepted) ** 6
        share = min(max(refused / (refused + _EVEN), _LEAST * (1 - accepted)), _MOST)
        kind = CONDITIONAL
        if mixture.collapses:
            kind = RELABEL if accepted > _REFRESHED else COLLAPSED
        much, little = accepted < _TELL_MUCH, accepted > _TELL_LITTLE
        local = mixture.splits[0] is not None  # otherwise records can only be kept
        suited = {
            "fresh": local and (little or not (closed or much)),
            "released": closed and not little,
            "kept": much or not local,
        }
        splits, expected = [], 0.0
        for k, name in enumerate(SPLIT_KINDS):
            if mixture.splits[k] is None:
                splits.append(0)
                continue
            yes, tried = rates[FIRST_SPLIT + 2 * k : FIRST_SPLIT + 2 * k + 2]
            rate = yes / tried if tried else _SPLITS_FOR
            wanted = _SPLITS * min(rate / _SPLITS_FOR, 1.0) if suited[name] and rate > _WORTHWHILE else 0.0
            # none at all while tuning would leave nothing to learn from
            splits.append(max(round(wanted), int(self.tune)))
            expected += splits[-1] * rate
        dealt = int(min(max(n / _DEALT_PER, _LEAST_DEALT), _MOST_DEALT))
        if rates[DEALINGS] and rates[DEALT] <= _WORTHWHILE * rates[DEALINGS]:
            dealt = 1
        return Shares(share, kind, tuple(splits), dealt, expected)

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        return Competence.IDEAL if MixtureStep._wants(var) else Competence.INCOMPATIBLE
