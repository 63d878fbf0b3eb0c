"""Atoms of a mixture given its labels and records."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_dp.mixtures._arguments import the_labels
from pymc_dp.mixtures.structure import Mixture, is_labels
from pymc_dp.query.records import RecordBlock
from pymc_dp.step_methods.discovery import model_of
from pymc_dp.step_methods.mixture.counters import ATOMS_ACCEPTED, ATOMS_PROPOSED, N_TALLY
from pymc_dp.step_methods.mixture.cycles import ATOMS_ONLY, Plan
from pymc_dp.step_methods.mixture.step import chain_of, plain_mixtures, private_mixtures
from pymc_dp.step_methods.record_step import RecordStep, RecordStepState, check_positive


@dataclass_state
class AtomUpdateState(RecordStepState):
    """What a chain needs to be continued."""

    learnt: list[np.ndarray]


def _all_mixtures(model: Model) -> list[tuple[Mixture, RecordBlock]]:
    return [*private_mixtures(model), *plain_mixtures(model)]


class AtomUpdate(RecordStep):
    """Atoms of a mixture, given the labels and the records.

    Numbers of a slot whose law given its records is known are drawn from it: normal ones together (means,
    regression coefficients), a variance that scales their law with them (Normal-Inverse-Gamma), others one
    after another (Gamma, Inverse-Gamma and Beta laws, whichever way the model writes them), and rows of
    probabilities with a Dirichlet law behind a categorical kernel. All others
    move by the Metropolis-adjusted Langevin algorithm in value space, every slot on its own, with scales and
    step sizes that are learnt while tuning for each size of cluster. Atoms of unoccupied slots are drawn from
    the base.

    ``pm.sample`` chooses this step by itself for the atoms of a mixture, of confidential records or of data.
    The steps for the labels move atoms in the same way between their sweeps.

    ``sample_stats`` get ``atom_acceptance``, the share of Langevin moves that were accepted; it is nan where
    all atoms are drawn from a known law, which accepts every draw.

    Parameters
    ----------
    vars : list of variables, optional
        All atoms of a mixture; of every mixture if left out.
    n_updates : int, default 1
        Updates per draw.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no such mixture, or some atoms of a mixture are left out.

    Notes
    -----
    One update costs one or two passes over the records where the kernel's log density is a polynomial in a
    few numbers of the record, 2 to 5 ns per record; otherwise one to three densities per record.

    References
    ----------
    Beraha, Favaro & Rao, "MCMC for Bayesian nonparametric mixture
    modeling under differential privacy", section 3.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     labels = dp.ChineseRestaurantProcess("labels", concentration=1, shape=4, max_components=4)
    ...     mu = pm.Normal("mu", 0, 3, shape=4)
    ...     y = pm.Normal("y", mu[labels], 1)
    ...     z = dp.LaplaceMechanism("z", y, epsilon=5, bounds=(-10, 10), observed=[-4.0, -3.1, 2.2, 3.0])
    ...     step = dp.AtomUpdate()
    >>> [v.name for v in step.vars]
    ['mu']
    """

    name = "atom_update"
    _state_class = AtomUpdateState
    _lowered = ("chains", "_mixtures")
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"atom_acceptance": (np.float64, [])}

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        n_updates: int = 1,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        check_positive("n_updates", n_updates)
        self.n_updates = n_updates
        self._prepare(vars, model, rng, initial_point)

    def _build(self) -> None:
        self.chains, self._mixtures = [], []
        model, moving = self._sized()
        for mixture, block in _all_mixtures(model):
            if not set(mixture.atoms) & set(moving):
                continue
            missing = [str(model.rvs_to_values[rv].name) for rv in mixture.atoms if rv not in moving]
            if missing:
                raise ValueError(
                    f"The atoms of {the_labels(mixture.labels.name)} have to move together; `vars` leaves "
                    f"out {', '.join(missing)}."
                )
            found = chain_of(
                model, mixture, block, "auto", self._default_point, n_auxiliary=0, conditional=""
            )
            self.chains.append(found.records)
            self._mixtures.append(found)
        if not hasattr(self, "learnt"):
            self.learnt = [m.learnt for m in self._mixtures]

    def _moved(self) -> set[str]:
        return {name for mixture in self._mixtures for name in mixture.names[1:]}

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Prepare for a new chain: forget what the last one learnt."""
        super().setup_chain(rng, tune, draws)
        if not all(chain.lowered.holds for chain in self._mixtures):
            self._build()
        self.learnt = [np.zeros_like(m.learnt) for m in self._mixtures]

    def _started(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(point)  # the labels' step disperses the start

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the atoms."""
        point = self._started(point)
        tally = np.zeros(N_TALLY)
        for m, mixture in enumerate(self._mixtures):
            mixture.learnt = self.learnt[m]
            # the labels' step ends with a draw of the atoms, which need not be done twice
            done = point[mixture.names[-1]] is mixture.lowered.just_drawn
            plan = Plan(np.full(self.n_updates - done, ATOMS_ONLY))
            if plan.cycles.size:
                moved, _ = mixture.run(self.rng, point, plan, self.tune)
                mixture.lowered.just_drawn = None  # by this step itself: to be drawn again at the next
                point.update({name: moved[name] for name in mixture.names[1:]})
            tally += mixture.lowered.atoms_tally
        self.n_steps += 1
        rate = tally[ATOMS_ACCEPTED] / tally[ATOMS_PROPOSED] if tally[ATOMS_PROPOSED] else np.nan
        return self._checked(point), [{"atom_acceptance": rate}]

    @classmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        claimed = [model.rvs_to_values[rv] for mixture, _ in _all_mixtures(model) for rv in mixture.atoms]
        if not claimed:
            raise ValueError(
                "AtomUpdate found no mixture in this model: declare labels with "
                "dp.ChineseRestaurantProcess, and a law of the records that picks atoms by them."
            )
        return claimed

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        model = model_of(var)
        if model is None or not any(is_labels(rv) for rv in model.free_RVs):
            return Competence.INCOMPATIBLE
        wanted = any(var in mixture.atoms for mixture, _ in _all_mixtures(model))
        return Competence.IDEAL if wanted else Competence.INCOMPATIBLE
