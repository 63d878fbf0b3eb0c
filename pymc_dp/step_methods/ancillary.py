"""Ancillary update: parameters with the records' noise held fixed, interwoven with the rest."""

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_dp.lowering.addresses.native import addresses_of
from pymc_dp.query.records import RecordBlock
from pymc_dp.step_methods.block.layout import positions
from pymc_dp.step_methods.block.parents import ancestors_of_records, continuous_parameters
from pymc_dp.step_methods.claims import MAX_DIMENSION, default_parameters, integrates_out, without_slopes
from pymc_dp.step_methods.discovery import model_of, record_blocks
from pymc_dp.step_methods.record_step import RecordChain, RecordStep, RecordStepState
from pymc_dp.step_methods.updates import hamiltonian
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.interweaving import interweave, random_walk, slice_update
from pymc_dp.step_methods.updates.quadratic import quadratic
from pymc_dp.step_methods.updates.state import Learnt, of_random_walk

_log = logging.getLogger("pymc.dp")  # below PyMC's own, which prints to the console

# Trajectories in a cycle, given records and given the noise.
_TRAJECTORIES = (1, 2)
UPDATES = ("auto", "random_walk", "slice", "hamiltonian", "off")
# Updates given the noise in a cycle: one costs 2 ns per record for location-scale families, against 60 for
# the sweep, and up to 300 where quantile functions are computed.
_CHEAP, _DEAR = 16, 6
# Draws after which momenta get a covariance for the first time; this doubles, up to so much of the tuning.
_FIRST_WINDOW, _LAST_WINDOW = 10, 0.8
# Fewest of them, and how much more than the share of the posterior's variance that they reach is done: from a
# quarter of the variance on, all.
_FEW, _FULL_FROM = 4, 4.0
# Evaluations of a log density that a trajectory costs, those with slopes for three.
_TRAJECTORY = 20
# Work that one draw is worth, in records swept. PyMC's own loop costs tens of microseconds a draw and 90 ns
# per record to store it, so a draw is worth several cycles. Counted, not timed: draws are reproducible.
_WORK = 6000
_MIN_CYCLES, _MAX_CYCLES = 2, 8


@dataclass_state
class AncillaryUpdateState(RecordStepState):
    """What a chain needs to be continued, with what it learnt while tuning."""

    n_adapted: int
    restarts: list
    windows: list
    centred_learnt: list
    ancillary_learnt: list
    spreads: list
    n_updates: list


class AncillaryUpdate(RecordStep):
    r"""Update of the parameters behind confidential records, interweaving two parametrisations.

    Given the imputed records, parameters barely move when privacy is strong: each record accepts almost
    every proposal, yet a draw of :math:`\theta` is tied to the records it was given. This step also writes
    the records as a function of parameter-free noise, :math:`x_i = h(u_i, \theta)`, and moves
    :math:`\theta` with :math:`u` held fixed, so that the records move along. The target is then

    .. math:: p(\theta)\; q(s \mid h(u, \theta)) \times
              \text{every other term with } \theta \text{ or records in it,}

    where the records have a law, and zero elsewhere: the law of :math:`u` drops out, its domain does not.
    Each draw runs ``n_cycles`` cycles of `n_centred` updates given the records, `n_ancillary` updates given
    the noise, and one sweep over the records (as :class:`RecordImputation` does).

    ``pm.sample`` chooses this step by itself for the continuous parameters behind the law of the records,
    where the records have such a form: location-scale families, and families with a quantile function,
    discrete ones included. Beyond 40 numbers it follows the slopes of the log density, for which the form has
    to be smooth: location-scale families are, quantile functions are not. Records of few values that discrete
    mechanisms release one by one are then summed over in place of the update given the noise, and drawn anew
    after it. Dirichlet parameters of categorical records are left to :class:`ConjugateUpdate` where it is
    expected to cost less, and all of them to PyMC where :class:`RecordImputation` is given as a step.
    Otherwise the parameters stay with NUTS, with a message.

    Parameters
    ----------
    vars : list of variables, optional
        Parameters to update; all parameters in the law of the records if left out.
    update : {"auto", "random_walk", "slice", "hamiltonian", "off"}, default "auto"
        Kernel of both kinds of updates: ``"random_walk"`` for up to 40 numbers, ``"hamiltonian"`` for more
        (trajectories of Hamiltonian Monte Carlo, each an update); ``"off"`` leaves the ancillary ones out.
    n_centred : int, optional
        Updates given the records in a cycle, for parameters that are not drawn exactly; by default as many
        as there are parameters, and at least 4; one trajectory.
    n_ancillary : int, optional
        Updates given the noise in a cycle; by default twice as many as there are parameters and at least
        16, fewer where that takes quantile functions, and as few as 4 once tuning has shown that they reach
        little of the posterior's variance; two trajectories.
    n_cycles : int, optional
        Cycles per draw; by default more of them for fewer records.
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
    A cycle costs one record sweep and one pass over the records for each update, O(n) in all. The
    covariances of the proposals are learnt while tuning (robust adaptive Metropolis) and then frozen. A
    trajectory of k numbers takes 15 steps on average and 64 at most, each with a pass over the records that
    costs about twice that of an update, and some k^2 operations; step sizes and a covariance of momenta for
    each of the two parametrisations are learnt and then frozen.
    ``sample_stats`` gets ``ancillary_acceptance`` and ``centred_acceptance``.

    References
    ----------
    Yu & Meng (2011), "To Center or Not to Center: That Is Not the Question"; Vihola (2012), "Robust
    adaptive Metropolis algorithm with coerced acceptance rate"; Neal (2011), "MCMC using Hamiltonian
    dynamics"; Ju, Awan, Gong & Rao (2022).

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
    _lowered = ("chains", "_parts")
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "centred_acceptance": (np.float64, []),
        "ancillary_acceptance": (np.float64, []),
    }

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        update: Literal["auto", "random_walk", "slice", "hamiltonian", "off"] = "auto",
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
        self.restarts: list[int] = [-1]
        self.windows: list[int] = []
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
        self._forget()

    def _build(self) -> None:
        model, moved = self._sized()
        moving = set(moved)
        self._parts = [
            _Part(self, model, block, moving)
            for block in record_blocks(model)
            if moving & set(ancestors_of_records(model, block))
        ]
        self.chains = [part.chain for part in self._parts]

    def _moved(self) -> set[str]:
        return super()._moved().union(*(part.names for part in self._parts))

    def _forget(self) -> None:
        self.centred_learnt = [part.begun() for part in self._parts]
        self.ancillary_learnt = [part.begun() for part in self._parts]
        # count, means and sums of squares of the parameters since the last restart of the adaptation
        self.spreads = [np.zeros((3, len(p.moving))) for p in self._parts]
        self.n_updates = [int(p.counts[2]) for p in self._parts]

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Prepare for a new chain: forget what the last one learnt, read the data again."""
        super().setup_chain(rng, tune, draws)
        self.n_adapted, self.restarts = 0, [tune // 10, tune // 3, tune]
        self.windows = [n for n in (_FIRST_WINDOW * 2**k for k in range(30)) if n <= _LAST_WINDOW * tune]
        self._forget()

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Run the cycles of one draw; the records of the returned point have moved too."""
        point = self._started(point)
        tallies = np.zeros((2, 2))
        for k, part in enumerate(self._parts):
            point.update(part.run(self, point, k, tallies))
        self.n_steps += 1
        if self.tune:
            # start afresh twice: what was learnt on the way to the posterior is no guide to its shape
            self.n_adapted = 0 if self.n_steps in self.restarts else self.n_adapted + 1
            if self.n_steps == self.restarts[-1]:
                self.n_updates = [part.worthwhile(self, k) for k, part in enumerate(self._parts)]
            elif self.n_adapted == 0:
                self.spreads = [np.zeros_like(spread) for spread in self.spreads]
            if self.n_steps in self.windows:
                self.centred_learnt, self.ancillary_learnt = (
                    [part.again(learnt) for part, learnt in zip(self._parts, each, strict=True)]
                    for each in (self.centred_learnt, self.ancillary_learnt)
                )
        rates = tallies[:, 0] / np.maximum(tallies[:, 1], 1)
        return self._checked(point), [{"centred_acceptance": rates[0], "ancillary_acceptance": rates[1]}]

    @classmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        parents = {rv for block in record_blocks(model) for rv in ancestors_of_records(model, block)}
        claimed = [model.rvs_to_values[rv] for rv in model.free_RVs if rv in parents]
        if not claimed:
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


class _Part:
    """The ancillary update of one block of records: lowered conditionals and the records' own chain."""

    def __init__(self, step: AncillaryUpdate, model: Model, block: RecordBlock, moving: set[Variable]):
        self.chain = RecordChain(model, block, step.proposals, step._default_point)
        program = self.chain.program
        layout = program.parameters
        # what is whole, and records of other blocks, have moves of their own and no random walk
        walking = moving & continuous_parameters(model, block)
        mine = [rv for rv in layout.variables if rv in walking]
        self.names = [str(model.rvs_to_values[rv].name) for rv in mine]
        self.moving = positions(layout, self.names)
        conditionals = Conditionals(program, mine)
        self.held = [str(rv.name) for rv in conditionals.held()]
        smooth = all(form.smooth for form in conditionals.forms.values())
        summed = self.chain.moves[0].exact and integrates_out(model, block)
        has_slopes = summed or (smooth and not without_slopes(model, block, conditionals.forms))
        many = len(self.moving) > MAX_DIMENSION
        self.follows_slopes = step.update == "hamiltonian" or (step.update == "auto" and many and has_slopes)
        n_centred, n_ancillary = self._defaults(smooth)
        n_centred = n_centred if step.n_centred is None else step.n_centred
        n_ancillary = n_ancillary if step.n_ancillary is None else step.n_ancillary
        self.ancillary = self.noise = self.records = None
        if n_ancillary:
            summed = summed and self.follows_slopes
            self.ancillary = (conditionals.marginal if summed else conditionals.ancillary)(
                self.follows_slopes
            )
            if not summed:
                self.noise, self.records = conditionals.noise(), conditionals.records()
        drawn = None if self.follows_slopes else quadratic(conditionals)
        self.quadratic, self.gaussian = None, np.zeros(0, dtype=np.intp)
        if drawn is not None:
            exact, self.quadratic = drawn
            self.gaussian = positions(layout, [str(model.rvs_to_values[rv].name) for rv in exact])
            n_centred = 0 if len(exact) == len(mine) else n_centred
        self.centred = conditionals.centred(self.follows_slopes) if n_centred else None
        evaluations = n_ancillary * (_TRAJECTORY if self.follows_slopes else 1)
        cost = program.n * (1 + evaluations / (25 if smooth else 1))
        self.n_cycles = step.n_cycles or int(np.clip(_WORK / cost, _MIN_CYCLES, _MAX_CYCLES))
        self.counts = np.array([self.n_cycles, n_centred, n_ancillary], dtype=np.int64)
        self.update = hamiltonian.hamiltonian if self.follows_slopes else random_walk
        if step.update == "slice":
            self.update = slice_update
        interweave.ready()
        self.update.ready()
        self.coordinates = (conditionals.coordinates() if n_ancillary else None) or (None, None)

    def _defaults(self, smooth: bool) -> tuple[int, int]:
        """Updates of a cycle given records, and given the noise."""
        if self.follows_slopes:
            return _TRAJECTORIES
        k = len(self.moving)
        return max(4, k), max(_CHEAP, 2 * k) if smooth else max(_DEAR, k)

    def begun(self) -> Learnt:
        """Return what updates begin with, given records or given the noise."""
        k = len(self.moving)
        return hamiltonian.begun(k) if self.follows_slopes else of_random_walk(k)

    def again(self, learnt: Learnt) -> Learnt:
        """Return what updates go on with when a window of tuning ends."""
        return hamiltonian.again(learnt) if self.follows_slopes else learnt

    @cached_property
    def addresses(self) -> np.ndarray:
        """Addresses of the native functions, in the order that :func:`interweave` takes them."""
        return addresses_of(
            (
                self.centred, self.ancillary, self.noise, self.records, self.quadratic, *self.coordinates,
                self.update,
            )
        )  # fmt: skip

    def run(
        self,
        step: AncillaryUpdate,
        point: dict[str, np.ndarray],
        which: int,
        tallies: np.ndarray,
    ) -> dict[str, np.ndarray]:
        chain, program = self.chain, self.chain.program
        if chain.data.size != program.data.size:  # a function lowered later reads more data
            chain.refresh_data()
        theta = program.parameters.flatten(point)
        program.records.pack(point, out=chain.x)
        counts = self.counts.copy()  # what it holds is the default, which the next chain starts from
        counts[2] = step.n_updates[which]
        interweave(
            chain.handle(step.rng), counts, self.addresses,
            *chain.native(step.n_steps % len(chain.moves)), step.n_adapted * self.n_cycles, int(step.tune),
            theta, chain.data, self.moving, self.gaussian,
            chain.x, chain.totals, step.centred_learnt[which], step.ancillary_learnt[which],
            np.array([0.0, 1.0]), tallies,
        )  # fmt: skip
        if step.tune:
            spread, values = step.spreads[which], theta[self.moving]
            spread[0] += 1
            change = values - spread[1]
            spread[1] += change / spread[0]
            spread[2] += change * (values - spread[1])
        return {
            **program.parameters.unflatten(theta, self.names),
            **program.records.unpack(chain.x),
        }

    def worthwhile(self, step: AncillaryUpdate, which: int) -> int:
        """Updates given the noise that a cycle is worth, by what was learnt while tuning.

        They can only move the parameters as far as the noise and the releases allow. Where that is little of
        the posterior's spread (weak privacy), a few updates do all that they can; else the default number.
        """
        n_default, factor, spread = (
            int(self.counts[2]),
            step.ancillary_learnt[which].factor,
            step.spreads[which],
        )
        chosen = step.n_ancillary is not None or self.coordinates[0] is not None or self.follows_slopes
        if chosen or n_default <= _FEW or step.update == "slice" or spread[0, 0] < 50:
            return n_default
        # a random walk of the acceptance aimed at has 2.38^2 / dimension times the covariance of its target
        reach = np.sum(factor**2, axis=1) * len(self.moving) / 2.38**2
        share = np.max(reach / np.maximum(spread[2] / spread[0], 1e-300))
        return int(np.clip(np.ceil(_FULL_FROM * share * n_default), _FEW, n_default))
