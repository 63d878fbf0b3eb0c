"""One block of records in the ancillary update: its densities, its chain, how often each update is made."""

import logging
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pymc.logprob.transforms import LogTransform
from pymc.model.core import Model
from pytensor.graph.basic import Variable

from pymc_dp.lowering.addresses.native import addresses_of
from pymc_dp.query.records import RecordBlock
from pymc_dp.step_methods.block.layout import positions
from pymc_dp.step_methods.block.parents import continuous_parameters, counts_of
from pymc_dp.step_methods.claims import (
    MAX_DIMENSION,
    integrates_out,
    is_redrawn,
    takes_count,
    without_slopes,
)
from pymc_dp.step_methods.record_step import RecordChain
from pymc_dp.step_methods.sweeps.moves import independence_move
from pymc_dp.step_methods.updates import hamiltonian, redraw
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.cycles import MOST, Jumps, best_number
from pymc_dp.step_methods.updates.interweaving import interweave, random_walk, slice_update
from pymc_dp.step_methods.updates.quadratic import quadratic
from pymc_dp.step_methods.updates.redrawn import RedrawnConditionals
from pymc_dp.step_methods.updates.state import Learnt, of_random_walk

if TYPE_CHECKING:
    from pymc_dp.step_methods.ancillary import AncillaryUpdate

_log = logging.getLogger("pymc.dp")

# Trajectories in a cycle, given records and given the noise.
_TRAJECTORIES = (1, 2)
# Updates given the noise in a cycle: one costs 2 ns per record for location-scale families, against 60 for
# the sweep, and up to 300 where quantile functions are computed.
_CHEAP, _DEAR = 16, 6
# Proposals of parameters with all records in a cycle, each of which costs a sweep; and the share of them that
# has to be accepted in the last window of tuning for any to be made afterwards.
_REDRAWN, _WORTH = 4, 0.01
# Fewest of them, and how much more than the share of the posterior's variance that they reach is done: from a
# quarter of the variance on, all.
_FEW, _FULL_FROM = 4, 4.0
# Evaluations of a log density that a trajectory costs, those with slopes for three.
_TRAJECTORY = 20
# Work that one draw is worth, in records swept. PyMC's own loop costs tens of microseconds a draw and 90 ns
# per record to store it, so a draw is worth several cycles. Counted, not timed: draws are reproducible.
_WORK = 6000
_FEWEST_CYCLES = 2


@dataclass
class Tuned:
    """What a chain has learnt of one block while tuning.

    Attributes
    ----------
    given_records, given_noise : Learnt
        What updates propose with.
    proposals : redraw.Proposals
        What parameters are proposed with together with all records.
    spread : ndarray, shape (3, k)
        Count, means and sums of squares of the parameters since the adaptation last began anew.
    n_updates : int
        Updates given the noise in a cycle, or proposals with all records.
    n_cycles : int
        Cycles of a draw.
    jumps : Jumps
        How far the parameters moved since then.
    recent : list of ndarray
        Parameters of the draws of tuning in this window, for these proposals.
    redrawn : ndarray, shape (2,)
        Sum of their probabilities of acceptance in this window, and their number.
    """

    given_records: Learnt
    given_noise: Learnt
    proposals: redraw.Proposals
    spread: np.ndarray
    n_updates: int
    n_cycles: int
    jumps: Jumps
    recent: list[np.ndarray] = field(default_factory=list)
    redrawn: np.ndarray = field(default_factory=lambda: np.zeros(2))


class AncillaryBlock:
    """The updates of one block of records and its parameters.

    Parameters
    ----------
    step : AncillaryUpdate
        The step, for its options and its default point.
    model : pymc.Model
    block : RecordBlock
    moving : set of Variable
        What the step is to move, in all blocks.
    """

    def __init__(self, step: "AncillaryUpdate", model: Model, block: RecordBlock, moving: set[Variable]):
        self.chain = RecordChain(model, block, step.proposals, step._default_point)
        program = self.chain.program
        layout = program.parameters
        # records of other blocks, and whole numbers but that of the people, have moves of their own
        counted = moving & counts_of(model, block)
        if counted and (step.update not in ("auto", "random_walk") or step.n_ancillary == 0):
            given = "`n_ancillary` = 0" if step.n_ancillary == 0 else f"`update` = {step.update!r}"
            raise ValueError(
                f"{given} moves no whole numbers such as {block.count}, which moves given the noise only, by "
                "'random_walk'. Leave it out, or name the other parameters in `vars`, and pm.sample chooses "
                "a step for this one."
            )
        walking = moving & continuous_parameters(model, block)
        if not takes_count(model, block):
            if not moving & continuous_parameters(model, block):
                raise ValueError(
                    f"{block.count} in `vars`: AncillaryUpdate moves the number of people only together with "
                    f"less than {MAX_DIMENSION} parameters of records that are functions of noise. Leave it "
                    "out of `vars`: pm.sample chooses a step for it."
                )
            counted = set()
        mine = [rv for rv in layout.variables if rv in walking | counted]
        self.names = [str(model.rvs_to_values[rv].name) for rv in mine]
        self.moving = positions(layout, self.names)
        is_whole = np.concatenate([np.full(layout.slice_length(rv), rv in counted) for rv in mine])
        logs = [isinstance(model.rvs_to_transforms.get(rv), LogTransform) for rv in mine]
        self.logs = np.repeat(np.array(logs, dtype=np.float64), [layout.slice_length(rv) for rv in mine])
        self.walking, self.whole = self.moving[~is_whole], np.flatnonzero(is_whole)
        self.redraws = step.update == "redraw" or (step.update == "auto" and is_redrawn(model, block))
        redrawn = RedrawnConditionals(program, mine, with_noise=False) if self.redraws else None
        conditionals = redrawn or Conditionals(program, mine, whole=counted)
        if redrawn and (lacking := redrawn.may_lack_a_law()):
            raise ValueError(
                f"`update` = {step.update!r}: parameters are proposed with all records drawn anew, and "
                f"{', '.join(lacking)} may have no law given other records. How likely that is depends on "
                "the parameters, and is not known. Leave `update` out."
            )
        self.held = [str(rv.name) for rv in conditionals.held()]
        smooth = all(form.smooth for form in conditionals.forms.values())
        summed = self.chain.moves[0].exact and integrates_out(model, block)
        has_slopes = summed or (smooth and not without_slopes(model, block, conditionals.forms))
        many = len(self.moving) > MAX_DIMENSION and not self.redraws
        self.follows_slopes = step.update == "hamiltonian" or (step.update == "auto" and many and has_slopes)
        n_centred, n_ancillary = self._defaults(smooth)
        n_centred = n_centred if step.n_centred is None else step.n_centred
        n_ancillary = n_ancillary if step.n_ancillary is None else step.n_ancillary
        n_ancillary, n_redrawn = (0, n_ancillary) if self.redraws else (n_ancillary, 0)
        self.ancillary = self.noise = self.records = None
        if n_ancillary:
            summed = summed and self.follows_slopes
            given_noise = conditionals.marginal if summed else conditionals.ancillary
            self.ancillary = given_noise(self.follows_slopes)
            if not summed:
                self.noise, self.records = conditionals.noise(), conditionals.records()
        drawn = None if self.follows_slopes else quadratic(conditionals)
        self.quadratic, self.gaussian = None, np.zeros(0, dtype=np.intp)
        if drawn is not None:
            exact, self.quadratic = drawn
            self.gaussian = positions(layout, [str(model.rvs_to_values[rv].name) for rv in exact])
            n_centred = 0 if len(exact) == len(mine) - len(counted) else n_centred
        n_centred = n_centred if len(self.walking) else 0
        self.centred = conditionals.centred(self.follows_slopes) if n_centred else None
        self.with_records = redrawn.with_records() if redrawn and n_redrawn else (None, None)
        self.draws_records = self.chain.moves[0]
        if n_redrawn and self.draws_records.name != "independence":
            self.draws_records = independence_move(program)  # what is informed by a release has another law
        evaluations = n_ancillary * (_TRAJECTORY if self.follows_slopes else 1)
        cost = program.n * (1 + n_redrawn + evaluations / (25 if smooth else 1))
        self.cost = cost
        self.n_cycles = step.n_cycles or int(np.clip(_WORK / cost, _FEWEST_CYCLES, MOST))
        self.counts = np.array([self.n_cycles, n_centred, n_ancillary, n_redrawn], dtype=np.int64)
        self.update = hamiltonian.hamiltonian if self.follows_slopes else random_walk
        if step.update == "slice":
            self.update = slice_update
        interweave.ready()
        self.update.ready()
        self.coordinates = (conditionals.coordinates() if n_ancillary else None) or (None, None)

    def _defaults(self, smooth: bool) -> tuple[int, int]:
        """Updates of a cycle given records, and given the noise or with all records."""
        if self.follows_slopes:
            return _TRAJECTORIES
        k = len(self.moving)
        if self.redraws:
            return max(4, k), _REDRAWN
        return max(4, k), max(_CHEAP, 2 * k) if smooth else max(_DEAR, k)

    def begun(self) -> Tuned:
        """Return what a chain begins with."""
        k = len(self.moving)
        if self.follows_slopes:
            given_records, given_noise = hamiltonian.begun(self.logs), hamiltonian.begun(self.logs)
        else:
            given_records, given_noise = of_random_walk(len(self.walking)), of_random_walk(k)
        return Tuned(
            given_records,
            given_noise,
            redraw.begun(np.zeros(k)),
            np.zeros((3, k)),
            int(self.counts[2] + self.counts[3]),
            self.n_cycles,
            Jumps(k, self.n_cycles),
        )

    def again(self, learnt: Tuned) -> None:
        """Go on with what was learnt when a window of tuning ends."""
        if self.follows_slopes:
            learnt.given_records = hamiltonian.again(learnt.given_records)
            learnt.given_noise = hamiltonian.again(learnt.given_noise)
        if self.redraws and len(learnt.recent) > 1:
            learnt.proposals = redraw.again(learnt.proposals, np.array(learnt.recent))
        learnt.recent, learnt.redrawn = [], np.zeros(2)

    @cached_property
    def addresses(self) -> np.ndarray:
        """Addresses of the native functions, in the order that :func:`interweave` takes them."""
        return addresses_of(
            (
                self.centred, self.ancillary, self.noise, self.records, self.quadratic, *self.coordinates,
                self.update, *self.with_records,
            )
        )  # fmt: skip

    def run(
        self, step: "AncillaryUpdate", point: dict[str, np.ndarray], learnt: Tuned, tallies: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Run the cycles of a draw, and learn from it while tuning."""
        chain, program = self.chain, self.chain.program
        if chain.data.size != program.data.size:  # a function lowered later reads more data
            chain.refresh_data()
        theta = program.parameters.flatten(point)
        program.records.pack(point, out=chain.x)
        counts = self.counts.copy()  # what it holds is the default, which the next chain starts from
        counts[0] = learnt.n_cycles
        counts[2:] = (0, learnt.n_updates) if self.redraws else (learnt.n_updates, 0)
        trace = np.empty((learnt.n_cycles + 1, len(self.moving)))
        interweave(
            chain.handle(step.rng), counts, self.addresses,
            *chain.native(step.n_steps % len(chain.moves)), step.n_adapted * self.n_cycles, int(step.tune),
            theta, chain.data, self.walking, self.moving, self.whole, self.gaussian,
            chain.x, chain.totals, learnt.given_records, learnt.given_noise, learnt.proposals,
            self.draws_records.sizes, self.draws_records.addresses,
            np.array([0.0, 1.0]), tallies, trace,
        )  # fmt: skip
        if step.tune:
            spread, values = learnt.spread, theta[self.moving]
            spread[0] += 1
            change = values - spread[1]
            spread[1] += change / spread[0]
            spread[2] += change * (values - spread[1])
            learnt.jumps.add(trace)
            if self.redraws:
                learnt.recent.append(values)
        return {
            **program.parameters.unflatten(theta, self.names),
            **program.records.unpack(chain.x),
        }

    def worthwhile(self, step: "AncillaryUpdate", learnt: Tuned) -> int:
        """Updates given the noise, or with all records, that a cycle is worth, as tuning has shown.

        They can only move the parameters as far as the noise and the releases allow. Where that is little of
        the posterior's spread (weak privacy), a few updates do all that they can; else the default number.
        """
        n_default, spread = int(self.counts[2] + self.counts[3]), learnt.spread
        if self.redraws:
            accepted, tried = learnt.redrawn
            rate = accepted / max(tried, 1.0)
            if step.n_ancillary is not None or tried == 0 or rate >= _WORTH:
                return n_default
            _log.info(
                "AncillaryUpdate no longer proposes %s with all records drawn anew: %.1g were accepted.",
                ", ".join(self.names), rate,
            )  # fmt: skip
            return 0
        factor = learnt.given_noise.factor
        chosen = step.n_ancillary is not None or self.coordinates[0] is not None or self.follows_slopes
        if chosen or n_default <= _FEW or step.update == "slice" or spread[0, 0] < 50:
            return n_default
        # a random walk of the acceptance aimed at has 2.38^2 / dimension times the covariance of its target
        reach = np.sum(factor**2, axis=1) * len(self.moving) / 2.38**2
        share = np.max(reach / np.maximum(spread[2] / spread[0], 1e-300))
        return int(np.clip(np.ceil(_FULL_FROM * share * n_default), _FEW, n_default))

    def worthwhile_cycles(self, step: "AncillaryUpdate", learnt: Tuned) -> int:
        """Cycles that a draw is worth, as tuning has shown."""
        if step.n_cycles is not None:
            return self.n_cycles
        variance = learnt.spread[2] / np.maximum(learnt.spread[0], 1)
        return best_number(learnt.jumps, variance, self.chain.program.n, self.cost)
