"""Marginal sampler of mixtures behind private releases."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Variable

from pymc_dp.step_methods.mixture.cycles import COLLAPSED, CONDITIONAL, JOINT
from pymc_dp.step_methods.mixture.source import ACCEPTED, DEALINGS, DEALT, PROPOSED, SPLIT, TRIED
from pymc_dp.step_methods.mixture.step import MixtureStep

# Least share of each kind of sweep; and the sixth power of the share of joint proposals refused at which both
# kinds are had alike. On 200 records in two clusters, conditional sweeps pay from three refusals in four.
_LEAST, _EVEN = 0.05, 0.2
# Splits and merges after a sweep if all were accepted, and how many at most; in a collapsed sweep; and the
# acceptance below which they are not worth their cost.
_SPLITS, _MOST_SPLITS, _DEALT, _WORTHWHILE = 15, 10, 5, 0.005


class PrivateNeal5(MixtureStep):
    r"""Labels and confidential records of a mixture, with the weights of its clusters integrated out.

    *Joint* sweeps are the private form of Neal's algorithm 5: record i is proposed a label from the law of
    one more record given all others' labels, and values from the law of that cluster, and both are accepted
    with probability

    .. math:: \min\left\{1, \frac{g(z_i\mid\theta^*)}{g(z_i\mid\theta_{c_i})}\right\}, \qquad
        g(z_i\mid\theta) = \frac1m \sum_{j=1}^m q(z_i\mid y_{ij}), \quad y_{ij}\sim f(\cdot\mid\theta)

    with m auxiliary values, of which one is the record. Under strong privacy nearly all are accepted.
    *Conditional* sweeps draw labels given the records (Neal's algorithm 8; algorithm 3 with splits and merges
    where the atoms integrate out) and then records given labels, by the exact or informed moves of
    :class:`RecordImputation`; they keep moving when the release pins the records down. *Splits and merges*
    move whole clusters, with the records of one part drawn anew. All leave the same posterior unchanged;
    their shares are learnt while tuning from how often they are accepted.

    ``pm.sample`` chooses this step by itself for the labels and records of a mixture behind a mechanism.

    Parameters
    ----------
    vars : list of variables, optional
        Labels and records; all that are behind a release if left out.
    n_auxiliary : int, default 1
        Auxiliary values m per record in joint sweeps; more than 1 with local releases only.
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
    clusters). ``sample_stats`` gets ``n_clusters``, ``cluster_acceptance`` (of joint proposals) and
    ``labels_moved`` (share of records that changed their cluster).

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
        n_auxiliary: int = 1,
        moves: Literal["auto", "joint", "conditional"] = "auto",
        n_cycles: int | None = None,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        for name, value in (("n_auxiliary", n_auxiliary), ("n_cycles", n_cycles)):
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not (whole and value >= 1) and not (name == "n_cycles" and value is None):  # type: ignore[operator]
                raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")
        if moves not in ("auto", "joint", "conditional"):
            raise ValueError(f"`moves` must be 'auto', 'joint' or 'conditional', got {moves!r}.")
        self.n_auxiliary, self.moves, self.n_cycles = n_auxiliary, moves, n_cycles
        self._prepare(vars, model, rng, initial_point)

    @property
    def _kernels(self) -> dict[str, Any]:
        joint = self.n_auxiliary if self.moves != "conditional" else 0
        conditional = {"auto": "collapsed", "conditional": "neal8", "joint": ""}[self.moves]
        return {"n_auxiliary": joint, "conditional": conditional, "splits": self.moves == "auto"}

    def _plan(self, m: int, n_cycles: int) -> tuple[np.ndarray, tuple[int, int]]:
        if self.moves == "joint":
            return np.full(n_cycles, JOINT), (0, 0)
        if self.moves == "conditional":
            return np.full(n_cycles, CONDITIONAL), (0, 0)
        rates = self.rates[m]
        # some of each until something is known
        accepted = rates[ACCEPTED] / rates[PROPOSED] if rates[PROPOSED] else 0.3
        split = rates[SPLIT] / rates[TRIED] if rates[TRIED] else 0.2
        dealt = rates[DEALT] / rates[DEALINGS] if rates[DEALINGS] else 1.0
        refused = (1 - accepted) ** 6
        share = np.clip(refused / (refused + _EVEN), _LEAST, 1 - _LEAST)
        # spread over cycles and draws alike
        steps = np.floor(share * (self.n_steps * n_cycles + np.arange(n_cycles + 1)))
        conditional = COLLAPSED if self._mixtures[m].collapses else CONDITIONAL
        # none at all while tuning would leave nothing to learn from
        least = 1 if self.tune or split > _WORTHWHILE else 0
        n_splits = int(np.clip(_SPLITS * split, least, _MOST_SPLITS))
        return np.where(np.diff(steps) > 0, conditional, JOINT), (
            n_splits,
            _DEALT if dealt > _WORTHWHILE else 1,
        )

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        return Competence.IDEAL if MixtureStep._wants(var) else Competence.INCOMPATIBLE
