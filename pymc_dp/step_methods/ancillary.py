"""Ancillary update: parameters with the records' noise held fixed, interwoven with the rest."""

import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_dp.query.recordrules import named
from pymc_dp.step_methods.ancillary_block import AncillaryBlock
from pymc_dp.step_methods.block.parents import ancestors_of_records, is_real
from pymc_dp.step_methods.claims import behind_records, default_parameters, takes_count
from pymc_dp.step_methods.discovery import blocks_with, check_no_table, model_of, record_blocks
from pymc_dp.step_methods.record_step import RecordChain, RecordStep, RecordStepState
from pymc_dp.step_methods.shared_parameters import TogetherBlocks, moved_with_each, shared_by
from pymc_dp.step_methods.swept import Swept, TellsOfSweeps, warn_of_passes
from pymc_dp.step_methods.updates.state import GIVEN_NOISE, N_TALLIES, REDRAWN

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

UPDATES = ("auto", "random_walk", "slice", "hamiltonian", "by_group", "redraw", "off")


@dataclass_state
class AncillaryUpdateState(RecordStepState):
    """What a chain needs to be continued, with what it learnt while tuning."""

    n_adapted: int
    restarts: list
    learnt: list
    learnt_together: list


class AncillaryUpdate(TellsOfSweeps, RecordStep):
    r"""Update of the parameters behind confidential records, interweaving two parametrisations.

    Given the imputed records, parameters barely move when privacy is strong: each record accepts almost
    every proposal, yet a draw of :math:`\theta` is tied to the records it was given. This step also writes
    the records as a function of parameter-free noise, :math:`x_i = h(u_i, \theta)`, and moves
    :math:`\theta` with :math:`u` held fixed, so that the records move along. The target is then

    .. math:: p(\theta)\; q(s \mid h(u, \theta)) \times
              \text{every other term with } \theta \text{ or records in it,}

    where the records have a law, and zero elsewhere: the law of :math:`u` drops out, its domain does not.
    Each draw runs ``n_cycles`` cycles of a sweep over the records (as that of :class:`RecordImputation`; the
    first of several cycles has none), `n_centred` updates given the records, and `n_ancillary` updates given
    the noise.

    ``pm.sample`` chooses this step by itself for the continuous parameters behind the law of the records,
    and for whole numbers in it with up to 40 numbers in all, where the records have such a form: location-
    scale families, and families with a quantile function, discrete ones included. Of more than 12 numbers
    it moves groups that are independent of each other given the others (effects of areas, each behind the
    people of its area). Where there are no such groups, it follows, beyond 40 numbers, the slopes of the
    log density, for which the form has to be smooth: location-scale families are, quantile functions are
    not. Records of up to 16 values that are released one by one, each by itself or as what a function of
    it says, are summed over in place of the update given the noise, and drawn anew after it. Dirichlet
    parameters of categorical records are left to :class:`ConjugateUpdate` where it is expected to cost
    less, and all of them to PyMC where :class:`RecordImputation` is given as a step.
    Up to 12 parameters of records that are no function of noise (mixtures, shares with a Dirichlet law, laws
    of a user's) are proposed together with all records, which are drawn anew. Otherwise the parameters stay
    with NUTS, with a message.

    Parameters
    ----------
    vars : list of variables, optional
        Parameters to update; all parameters in the law of the records if left out. Where the records are
        among them, as where ``pm.sample`` chooses the steps, no other step has to move these; else the first
        cycle of a draw never sweeps over them.
    update : {"auto", "random_walk", "slice", "hamiltonian", "by_group", "redraw", "off"}, default "auto"
        Kernel of both kinds of updates: ``"random_walk"`` for up to 12 numbers; for more ``"by_group"`` (a
        walk of the numbers that groups share, up to 40, then one of each group by itself, up to 12 numbers),
        with a message. Where there are no such groups, ``"random_walk"`` for up to 40 numbers, and
        ``"hamiltonian"`` (trajectories of Hamiltonian Monte Carlo, each an update) for more, also in groups
        where records are summed over, and for fewer where tuning shows that walks do poorly and trajectories
        better, with a message;
        ``"redraw"`` proposes parameters with all
        records in place of updates given the noise, which takes no function of noise; ``"off"`` leaves the
        ancillary ones out.
    n_centred : int, optional
        Updates given the records in a cycle, for parameters that are not drawn exactly; by default as many
        as there are parameters, and at least 4; eight times as many given sums of the records; four by
        group; one trajectory.
    n_ancillary : int, optional
        Updates given the noise in a cycle; by default twice as many as there are parameters and at least
        16 (32 with an unknown number of people), fewer where that takes quantile functions, and as few as 4
        once tuning has shown that they reach little of the posterior's variance; 32 by group, eight where
        that takes quantile functions; two
        trajectories; four proposals with all records, none once
        tuning has shown that less than one in a hundred is accepted, with a message.
    n_cycles : int, optional
        Cycles per draw. By default two to eight of them while tuning, more for fewer records; afterwards the
        number, up to that, with the most effective draws of the worst parameter for its cost, as
        ``ancillary_cycles`` of ``sample_stats`` says.
    proposals : {"auto", "independence", "informed"}
        As for :class:`RecordImputation`.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no records, no parameters to update, or the records that depend on them cannot be
        written as a function of parameter-free noise.

    Notes
    -----
    A cycle costs one record sweep and one pass over the records for each update, O(n) in all. What is learnt
    while tuning is frozen afterwards:

    * The covariances of the proposals (robust adaptive Metropolis).
    * The number of cycles in a draw: in the last two thirds of tuning, the autocorrelations of every
      parameter after 1, 2, 4, ... cycles say how many independent draws a draw of so many cycles is worth.
      Its cost is counted in records swept, not timed, so that draws are a function of the seed.
    * Whether trajectories replace random walks, where these have slopes to follow, records would not be
      summed over, and no other option was given: they are tried from a third, a half or two thirds of tuning
      on, if a draw by random walks has been worth less than 0.15 independent ones, for the parameter that
      mixes worst. They are kept if they were worth no less for their cost, and given up if walks were worth
      more by a factor of two and what chance may do; in between, both make every other draw.
    * For trajectories, step sizes and a covariance of momenta for each of the two parametrisations, and
      whether a positive number moves as its logarithm or as it is, with a reflection at zero: what is closer
      to a normal number, by the product of its variance and the mean square of its slope, and the logarithm
      where the density has no bound at zero.

    With whole numbers, half of the updates of a random walk move one of these alone, to any other of up to 64
    values or else to a neighbour. The others move all numbers by one step, which is rounded for whole ones;
    the real numbers have the law that the covariance says given the rounded step. Where some records are
    whole numbers, steps of the parameters of these, of other real parameters, and of each whole number by
    itself are as frequent as those of all and those of one whole number alone, and their covariances are
    learnt apart.

    An update by group costs two passes over the records: one for the numbers that groups share, half of the
    time with positive ones as they are, not as their logarithms, and one for all groups at once. By group
    and by trajectories, parameters of parameters that no law of a record reads also move by themselves, at no
    cost that depends on the records: eight updates of each in a cycle.

    Where the laws of records of several blocks read the same parameters (two surveys of one mean, each behind
    a sum of its own), a draw ends with two more cycles: a sweep over the records of each block, then at least
    16 updates of these parameters (six where that takes quantile functions) by random walks, given the noise
    of all blocks at once. They cost what updates of all blocks by themselves do. A message says which; up to
    40 numbers, with `update` left out or ``"random_walk"``, and where all records are functions of noise.

    A trajectory of k numbers takes 15 steps on average and 64 at most, each with a pass over the records that
    costs about twice that of an update, and some k^2 operations. A quarter of them (an eighth beyond 40
    numbers) take steps up to 16 times as short, which fit where the posterior is narrower than
    elsewhere. A proposal with all records costs a draw of all of them, O(n). Where the law of records is a
    gamma, beta or Dirichlet one with the same parameters for all, updates given the records then read a few
    sums of these, one pass in a cycle.

    ``sample_stats`` gets ``ancillary_acceptance``, ``centred_acceptance``, ``ancillary_cycles``,
    ``ancillary_trajectories`` (whether these were followed, for any block of records), and where the records
    have no other step, ``record_acceptance`` and ``record_acceptance_min``, as of
    :class:`RecordImputation`.

    References
    ----------
    Yu & Meng (2011), "To Center or Not to Center: That Is Not the Question"; Vihola (2012), "Robust
    adaptive Metropolis algorithm with coerced acceptance rate"; Neal (2011), "MCMC using Hamiltonian
    dynamics"; Afshar & Domke (2015), "Reflection, Refraction, and Hamiltonian Monte
    Carlo"; Ju, Awan, Gong & Rao (2022).

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 2)
    ...     y = pm.Normal("y", mu, 1, shape=20)
    ...     z = dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=8.0)
    ...     step = dp.AncillaryUpdate(update="slice")
    >>> [v.name for v in step.vars]
    ['mu']
    """

    name = "ancillary_update"
    _state_class = AncillaryUpdateState
    _lowered = ("chains", "_parts", "_together")
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "centred_acceptance": (np.float64, []),
        "ancillary_acceptance": (np.float64, []),
        "ancillary_cycles": (np.int64, []),
        "ancillary_trajectories": (bool, []),
    }

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        update: Literal["auto", "random_walk", "slice", "hamiltonian", "by_group", "redraw", "off"] = "auto",
        n_centred: int | None = None,
        n_ancillary: int | None = None,
        n_cycles: int | None = None,
        proposals: Literal["auto", "independence", "informed"] = "auto",
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        if update not in UPDATES:
            raise ValueError(f"`update` must be one of {', '.join(map(repr, UPDATES))}, got {update!r}.")
        for name, count in (("n_centred", n_centred), ("n_ancillary", n_ancillary), ("n_cycles", n_cycles)):
            if count is not None and (
                not isinstance(count, int | np.integer) or count < (name == "n_cycles")
            ):
                raise ValueError(f"`{name}` must be a whole number, got {count!r}.")
        self.update, self.proposals = update, proposals
        self.n_centred, self.n_ancillary = n_centred, 0 if update == "off" else n_ancillary
        self.n_cycles, self.n_adapted = n_cycles, 0
        self.restarts: list[int] = [-1, -1, -1]
        self._prepare(vars, model, rng, initial_point)
        held = dict.fromkeys(name for part in self._parts for name in part.held)
        if held and update != "off":
            _log.info(
                "AncillaryUpdate moves %s and the parameters of the law of it only as far as each lets the "
                "other: where that law is narrow they hold each other fast, and no R-hat shows a region that "
                "no chain has seen. If the law allows, write it as a function of parameters with fixed laws, "
                "such as theta = mu + sigma * e with e = pm.Normal('e', shape=5).",
                ", ".join(held),
            )
        for part in self._parts:
            if part.grouped is not None:
                _log.info(
                    "AncillaryUpdate moves %s in %d groups, which are independent of each other given all "
                    "else, and the other numbers together.",
                    ", ".join(part.grouped.names), part.grouped.n,
                )  # fmt: skip
        for blocks in self._together:
            _log.info(
                "AncillaryUpdate also moves %s with the records of %s, whose laws read %s, together.",
                ", ".join(blocks.names),
                named([rv for part in blocks.parts for rv in part.block.records]),
                "it" if len(blocks.names) == 1 else "them",
            )
        if self._apart:
            _log.warning(
                "The laws of records of several blocks read %s, and the records of one stand still while %s "
                "with those of another. Expect slow mixing where privacy is strong.",
                ", ".join(self._apart), "it moves" if len(self._apart) == 1 else "they move",
            )  # fmt: skip
        self._tell_of_sweeps()
        for part in self._parts:
            if part.sweeps:
                warn_of_passes(part.chain.program)
        self._forget()

    def _build(self) -> None:
        model, moved = self._sized()
        records = {rv for block in record_blocks(model) for rv in block.records}
        moving = {rv for rv in moved if rv not in records}
        own = blocks_with(model, [model.rvs_to_values[rv] for rv in moved if rv in records])
        chains = [
            RecordChain(model, block, self.proposals, self._default_point)
            for block in record_blocks(model)
            if moving & behind_records(model, block)
        ]
        programs = [chain.program for chain in chains]
        by_walks = self.update in ("auto", "random_walk") and self.n_ancillary != 0
        shared, self._apart = shared_by(programs, moving) if by_walks else ([], [])
        self._parts = [
            AncillaryBlock(self, chain, with_it, any(chain.program.block is block for block in own))
            for chain, with_it in zip(chains, moved_with_each(programs, moving, shared), strict=True)
        ]
        self.chains = chains
        self._together = [TogetherBlocks([self._parts[k] for k in each.blocks], each) for each in shared]

    def _moved(self) -> set[str]:
        return super()._moved().union(*(part.names for part in self._parts))

    @property
    def _sweeps(self) -> bool:
        return any(part.sweeps for part in self._parts)

    def _forget(self) -> None:
        self.learnt = [part.begun() for part in self._parts]
        self.learnt_together = [blocks.begun() for blocks in self._together]

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Prepare for a new chain: forget what the last one learnt, read the data again."""
        super().setup_chain(rng, tune, draws)
        self.n_adapted, self.restarts = 0, [tune // 10, tune // 3, tune]
        self._forget()

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Run the cycles of one draw; the records of the returned point have moved too."""
        point = self._started(point)
        tallies = np.zeros((N_TALLIES, 2))
        used = [part.used(self, learnt) for part, learnt in zip(self._parts, self.learnt, strict=True)]
        cycles, swept = max(each.n_cycles for each in used), Swept()
        follows = any(part.running(each).follows_slopes for part, each in zip(self._parts, used, strict=True))
        for part, learnt in zip(self._parts, self.learnt, strict=True):
            before = tallies[REDRAWN].copy()
            point.update(part.run(self, point, learnt, tallies, swept))
            learnt.redrawn += (tallies[REDRAWN] - before) * self.tune
        for blocks, learnt_together in zip(self._together, self.learnt_together, strict=True):
            point.update(blocks.run(self, point, learnt_together, tallies))
        self.n_steps += 1
        if self.tune:
            # start afresh twice: what was learnt on the way to the posterior is no guide to its shape
            self.n_adapted = 0 if self.n_steps in self.restarts else self.n_adapted + 1
            for part, learnt in zip(self._parts, self.learnt, strict=True):
                part.adapt(self, learnt)
        tallies[GIVEN_NOISE] += tallies[REDRAWN]
        rates = tallies[:, 0] / np.maximum(tallies[:, 1], 1)
        stats = {"centred_acceptance": rates[0], "ancillary_acceptance": rates[1]}
        stats |= {"ancillary_cycles": cycles, "ancillary_trajectories": follows} | swept.stats()
        return self._checked(point), [stats]

    @classmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        parents = {
            rv
            for block in record_blocks(model)
            for rv in ancestors_of_records(model, block)
            if rv is not block.count or takes_count(model, block)
        }
        parents |= {rv for rv in default_parameters(model) if not is_real(rv)}
        claimed = [model.rvs_to_values[rv] for rv in model.free_RVs if rv in parents]
        if not claimed:
            check_no_table(model)
            raise ValueError(
                "AncillaryUpdate found no continuous parameter in the law of a confidential record: declare "
                "the release with a mechanism, or leave this step out."
            )
        return claimed

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        model = model_of(var)
        if model is None or not record_blocks(model):
            return Competence.INCOMPATIBLE
        return Competence.IDEAL if var in default_parameters(model) else Competence.INCOMPATIBLE
