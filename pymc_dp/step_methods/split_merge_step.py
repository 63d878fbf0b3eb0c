"""Splits and merges of clusters, with sweeps over the labels: what pm.sample chooses for plain mixtures."""

import logging
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Variable

from pymc_dp.query.recordrules import named
from pymc_dp.step_methods.mixture.counters import SPLIT, TRIED
from pymc_dp.step_methods.mixture.cycles import Plan
from pymc_dp.step_methods.mixture.label_step import CYCLES, LabelStep
from pymc_dp.step_methods.record_step import check_positive

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

# Splits and merges after a sweep if all were accepted, how many at most, and the acceptance below which they
# are had in one draw of this many only.
_SPLITS, _MOST_SPLITS, _WORTHWHILE, _RARELY = 15, 5, 0.005, 10
_SWEEPS = ("auto", "neal2", "neal3", "neal8", "none")
# Restricted scans that lead to a launch state unless told otherwise.
_N_SCANS = 3


class SplitMerge(LabelStep):
    """Labels of a mixture by splits and merges of whole clusters, between sweeps over the labels.

    Two records are chosen; if they share a cluster it is split, otherwise their clusters are merged.
    Restricted Gibbs scans find a division of the records that fits, and the last scan proposes one. Atoms
    are integrated out where they can be; otherwise they are proposed from Student laws about the mode of
    their density. So the number of clusters changes in one move where sweeps would have to empty a cluster
    record by record.

    ``pm.sample`` chooses this step by itself for labels whose records are known. How many splits and merges
    follow a sweep is learnt while tuning, from how many are accepted.

    Parameters
    ----------
    vars : list of variables, optional
        Labels; all whose records are known if left out.
    n_scans : int, optional
        Restricted scans before the one that proposes; 3 by default.
    sweeps : {"auto", "neal2", "neal3", "neal8", "none"}
        Sweeps over the labels between the splits and merges, as of :class:`Neal2`, :class:`Neal3` and
        :class:`Neal8`. ``auto``: Neal 2 where the base is conjugate, else Neal 8. Neal 3 mixes better per
        sweep and costs more than that: on known records it gave a half to a fifth of the effective draws
        per second.
    n_moves : int, optional
        Splits and merges after each sweep, instead of what is learnt.
    n_cycles : int, optional
        Sweeps per draw, with an update of the atoms after each; by default more for fewer records.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no such mixture, atoms do not integrate out that `sweeps` ask to, an argument is
        out of range, or, while sampling, all ``max_components`` slots are occupied and a new cluster needs
        one.
    NotImplementedError
        If the kernel or the law of the atoms has no scalar form.

    Notes
    -----
    A split or merge costs ``n_scans + 1`` passes over the records of two clusters, each about as much as a
    sweep does for one cluster; without a conjugate base and a log density that is a polynomial in a few
    numbers of the record, some more passes for the modes. Where atoms are whole numbers, or their density has
    no second derivative in scalar form, there are sweeps only, and a message says so. ``sample_stats`` get
    ``n_clusters``, ``labels_moved`` (share of records that changed their cluster in a sweep) and
    ``splits_accepted`` (share of splits and merges). A line before sampling says which sweeps ``auto`` has
    chosen, that is, whether the base was recognised as conjugate.

    References
    ----------
    Jain & Neal (2004), "A split-merge Markov chain Monte Carlo procedure for the Dirichlet process mixture
    model"; Jain & Neal (2007), "Splitting and merging components of a nonconjugate Dirichlet process mixture
    model".

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
    ...     mu = pm.Normal("mu", 0, 3, shape=4)
    ...     y = pm.Normal("y", mu[labels], 1, observed=[-4.0, -3.1, 2.2, 3.0])
    ...     step = dp.SplitMerge(n_scans=4)
    >>> [v.name for v in step.vars]
    ['labels']
    """

    name = "split_merge"

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        n_scans: int | None = None,
        sweeps: Literal["auto", "neal2", "neal3", "neal8", "none"] = "auto",
        n_moves: int | None = None,
        n_cycles: int | None = None,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        check_positive("n_scans", n_scans, or_none=True)
        check_positive("n_moves", n_moves, or_none=True)
        if sweeps not in _SWEEPS:
            raise ValueError(f"`sweeps` must be one of {', '.join(map(repr, _SWEEPS))}, got {sweeps!r}.")
        check_positive("n_cycles", n_cycles, or_none=True)
        self.n_scans, self.sweeps, self.n_moves, self.n_cycles = n_scans, sweeps, n_moves, n_cycles
        self._prepare(vars, model, rng, initial_point)
        if sweeps == "auto":
            self._tell_of_sweeps()

    def _tell_of_sweeps(self) -> None:
        """Say which sweeps were chosen: whether a base is conjugate is found in the model, not stated."""
        for chain in self._mixtures:
            conjugate = chain.sweep == "neal2"
            several = chain.mixture.kernel.type.ndim > 1
            columns = " (columns with a variance each are in none)" if several else ""
            other = f"is not conjugate, or not in a form that is recognised{columns}"
            _log.info(
                "SplitMerge sweeps over %s by Neal's algorithm %s: the base of %s %s.",
                chain.mixture.labels.name, "2" if conjugate else "8", named(chain.mixture.atoms),
                "is conjugate" if conjugate else other,
            )  # fmt: skip

    @property
    def _kernels(self) -> dict[str, Any]:
        return {
            "n_auxiliary": 0,
            "conditional": {"neal3": "collapsed", "none": ""}.get(self.sweeps, self.sweeps),
            "n_scans": self.n_scans or _N_SCANS,
            "scans_needed": self.n_scans is not None or self.sweeps == "none",
        }

    def _plan(self, m: int, n_cycles: int) -> Plan:
        chain, rates = self._mixtures[m], self.rates[m]
        return Plan(np.full(n_cycles, CYCLES[chain.sweep]), (self._n_moves(rates),))

    def _n_moves(self, rates: np.ndarray) -> int:
        if self.n_moves is not None:
            return self.n_moves
        rate = rates[SPLIT] / rates[TRIED] if rates[TRIED] else 0.2  # until something is known
        if not self.tune and rate < _WORTHWHILE:
            return int(self.n_steps % _RARELY == 0)
        return int(np.clip(round(_SPLITS * rate), 1, _MOST_SPLITS))

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        return Competence.IDEAL if LabelStep._wants(var) else Competence.INCOMPATIBLE
