"""One block of records in the ancillary update: its densities, its chain, how often each update is made."""

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pymc.logprob.transforms import LogTransform
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.utils import MethodNotDefined

from pymc_dp.lowering.addresses.native import compile_lowered
from pymc_dp.lowering.compiling.building import building
from pymc_dp.step_methods.block.layout import positions
from pymc_dp.step_methods.block.parents import continuous_parameters, counts_of
from pymc_dp.step_methods.claims import (
    FEW,
    MAX_DIMENSION,
    integrates_out,
    is_redrawn,
    takes_count,
    without_slopes,
)
from pymc_dp.step_methods.groups import Grouped
from pymc_dp.step_methods.parameter_updates import ParameterUpdates
from pymc_dp.step_methods.parts import parts_of
from pymc_dp.step_methods.record_step import RecordChain
from pymc_dp.step_methods.swept import Swept
from pymc_dp.step_methods.tuned import Tuned, Walked
from pymc_dp.step_methods.updates import by_group, hamiltonian, redraw
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.cycles import FEWEST, Jumps, best_number, cost_of_a_draw, sweeps_first
from pymc_dp.step_methods.updates.interweaving import interweave
from pymc_dp.step_methods.updates.redrawn import RedrawnConditionals
from pymc_dp.step_methods.updates.state import of_random_walk
from pymc_dp.step_methods.walks_or_trajectories import choose, worth
from pymc_dp.step_methods.whole_numbers import (
    ends_of_entries,
    refuse_unmoved,
    refuse_unsafe,
    whole_numbers_of,
)

if TYPE_CHECKING:
    from pymc_dp.step_methods.ancillary import AncillaryUpdate

_log = logging.getLogger("pymc.dp")

# Share of the proposals with all records, in the last window of tuning, that has to be accepted for any to be
# made afterwards.
_WORTH = 0.01
# Fewest updates given the noise, and how much more than the share of the posterior's variance that they reach
# is done: from a quarter of the variance on, all.
_FEW, _FULL_FROM = 4, 4.0
# A draw by random walks is poor if, for the worst parameter, it is worth less of an independent one than
# this: then trajectories are tried. The autocorrelations of some cycles tell at no cost what may be poor, all
# draws together what is.
_POOR, _MAY_BE_POOR = 0.15, 0.3
# Draws after which what is learnt begins anew for the first time; this doubles, up to so much of the tuning.
_FIRST_WINDOW, _LAST_WINDOW = 10, 0.8


class AncillaryBlock:
    """The updates of one block of records and its parameters.

    Parameters
    ----------
    step : AncillaryUpdate
        The step, for its options and its default point.
    chain : RecordChain
        What sweeps over the records of the block.
    moving : set of Variable
        Parameters that the step is to move with this block.
    sweeps : bool
        Whether no other step moves the records.
    """

    def __init__(self, step: "AncillaryUpdate", chain: RecordChain, moving: set[Variable], sweeps: bool):
        self.chain, self.sweeps, program = chain, sweeps, chain.program
        model, block = program.model, program.block
        layout = program.parameters
        # records of other blocks have moves of their own
        counted = moving & counts_of(model, block)
        whole = moving & set(whole_numbers_of(model, block))
        redrawn_by_default = step.update == "auto" and is_redrawn(model, block)
        refuse_unmoved(step.update, step.n_ancillary, counted, whole, redrawn_by_default)
        refuse_unsafe(model, whole)
        if not takes_count(model, block):
            if not whole and not moving & continuous_parameters(model, block):
                raise ValueError(
                    f"{block.count} in `vars`: AncillaryUpdate moves the number of people only together with "
                    f"less than {MAX_DIMENSION} parameters of records that are functions of noise. Leave it "
                    "out of `vars`: pm.sample chooses a step for it."
                )
            counted = set()
        real = moving & continuous_parameters(model, block)
        mine = [rv for kind in (counted, whole, real) for rv in layout.variables if rv in kind]
        self.names = [str(model.rvs_to_values[rv].name) for rv in mine]
        self.moving = positions(layout, self.names)
        lengths = [layout.slice_length(rv) for rv in mine]
        logs = [isinstance(model.rvs_to_transforms.get(rv), LogTransform) for rv in mine]
        self.logs = np.repeat(np.array(logs, dtype=np.float64), lengths)
        ends = [ends_of_entries(model, rv) for rv in mine if rv not in real]
        self.ends = np.concatenate([np.empty((0, 2)), *ends])
        self.n_counted = sum(layout.slice_length(rv) for rv in counted)
        self.redraws = step.update == "redraw" or redrawn_by_default
        redrawn = RedrawnConditionals(program, mine, with_noise=False) if self.redraws else None
        conditionals = redrawn or Conditionals(program, mine, given_noise_only=counted)
        if redrawn and (lacking := redrawn.may_lack_a_law()):
            raise ValueError(
                f"`update` = {step.update!r}: parameters are proposed with all records drawn anew, and "
                f"{', '.join(lacking)} may have no law given other records. How likely that is depends on "
                "the parameters, and is not known. Leave `update` out."
            )
        self.part = parts_of(model, conditionals.forms, mine, real, lengths)
        self.held = [str(rv.name) for rv in conditionals.held()]
        self.conditionals, self.mine, self.block, self.model = conditionals, mine, block, model
        self.summed = self.chain.moves[0].exact and integrates_out(model, block)
        self.given = (step.n_centred, step.n_ancillary, step.n_cycles)
        kind = "redraw" if self.redraws else "slice" if step.update == "slice" else "random_walk"
        by_itself = step.update == "auto" and not self.redraws and not self.ends.size
        many, several = len(self.moving) > MAX_DIMENSION, len(self.moving) > FEW
        self.grouped = None
        # where records are summed over, trajectories did better with 84 numbers (35 effective draws a second,
        # by group 28) and worse with 36 (83, by group 105)
        if step.update == "by_group" or (by_itself and several and not (many and self.summed)):
            grouped = Grouped(program, mine, self.summed)
            if grouped.n_shared <= MAX_DIMENSION:
                self.grouped, kind = grouped, "by_group"
            elif step.update == "by_group":
                raise ValueError(_without_groups(grouped, [str(rv.name) for rv in mine]))
        if step.update == "hamiltonian" or (
            by_itself and many and self.grouped is None and self._has_slopes()
        ):
            kind = "hamiltonian"
        try:
            self.updates = self._lowered(kind)
        except (NotImplementedError, MethodNotDefined, NullTypeGradError) as error:
            reason = without_slopes(model, block, conditionals.forms) or str(error)
            raise ValueError(
                f"`update` = {step.update!r}: trajectories follow slopes, and {reason}. Leave `update` "
                "out, or integrate records with few values out: dp.marginalize."
            ) from error
        # What a user chose is not changed. Whole numbers have no slopes. Records that are summed over cost a
        # trajectory as many evaluations as they have values: 20 times a draw by walks for 16 of them.
        self.may_change = (
            step.update == "auto" and kind == "random_walk" and not self.ends.size
            and not self.summed and all(given is None for given in self.given)
        )  # fmt: skip

    def _has_slopes(self) -> bool:
        """Whether what trajectories would follow has slopes."""
        forms = self.conditionals.forms
        smooth = all(form.smooth for form in forms.values())
        return self.summed or (smooth and not without_slopes(self.model, self.block, forms))

    def _lowered(self, kind: str) -> ParameterUpdates:
        n_centred, n_ancillary, n_cycles = self.given
        return ParameterUpdates(
            self.chain, self.conditionals, self.mine, kind, self.grouped,
            n_walking=len(self.moving) - self.n_counted, summed=self.summed,
            n_centred=n_centred, n_ancillary=n_ancillary, n_cycles=n_cycles,
        )  # fmt: skip

    @cached_property
    def trajectories(self) -> ParameterUpdates | None:
        """Trajectories in place of random walks, lowered when a chain asks for them; None without slopes."""
        if not self._has_slopes():
            return None
        with building():
            made = self._lowered("hamiltonian")
            compile_lowered()
        return made

    def used(self, step: "AncillaryUpdate", learnt: Tuned) -> Tuned | Walked:
        """Return what the updates of the next draw go by, which are taken in turn where neither is better."""
        in_turn = step.n_steps // len(self.chain.moves) % 2
        return learnt.walked if learnt.in_turn and learnt.walked is not None and in_turn else learnt

    def running(self, used: Tuned | Walked) -> ParameterUpdates:
        """Return the updates that run in a chain."""
        if not used.follows:
            return self.updates
        assert self.trajectories is not None
        return self.trajectories

    def begun(self) -> Tuned:
        """Return what a chain begins with."""
        k, updates = len(self.moving), self.updates
        if updates.follows_slopes:
            given_records, given_noise = hamiltonian.begun(self.logs), hamiltonian.begun(self.logs)
        elif self.grouped is not None:
            self.grouped.check()
            given_records, given_noise = (by_group.begun(self.grouped.part, self.logs) for _ in range(2))
        else:
            n_counted, n_whole = self.n_counted, len(self.ends)
            given_records = of_random_walk(k - n_counted, n_whole - n_counted)
            given_noise = of_random_walk(k, n_whole, self.part)
        return Tuned(
            given_records,
            given_noise,
            of_random_walk(updates.upper_at.size),
            redraw.begun(np.zeros(k)),
            np.zeros((3, k)),
            int(updates.counts[2] + updates.counts[3]),
            updates.n_cycles,
            Jumps(k, updates.n_cycles),
        )

    def adapt(self, step: "AncillaryUpdate", learnt: Tuned) -> None:
        """Go on with what was learnt, after a draw of tuning."""
        first, second, tune = step.restarts
        if step.n_steps == tune:
            self._settle(step, learnt)
        elif self.may_change and not learnt.follows and step.n_steps in (second, tune // 2, 2 * tune // 3):
            # asked three times: a chain that has seen little of a curve seems to mix well
            self._try_trajectories(step, learnt)
        if step.n_steps in (first, second) or learnt.begun_at == step.n_steps:
            learnt.spread = np.zeros_like(learnt.spread)
            learnt.jumps, learnt.draws = Jumps(len(self.moving), self.running(learnt).n_cycles), []
        n, last = step.n_steps - learnt.begun_at, int(_LAST_WINDOW * tune)
        # proposals with all records are those that the last and longest window was the guide to
        ends = (last >> k if self.redraws else _FIRST_WINDOW << k for k in range(30))
        if _FIRST_WINDOW <= step.n_steps <= last and n in ends:
            self._again(learnt)

    def _again(self, learnt: Tuned) -> None:
        """Go on with what was learnt when a window of tuning ends."""
        if self.running(learnt).follows_slopes:
            learnt.given_records = hamiltonian.again(learnt.given_records)
            learnt.given_noise = hamiltonian.again(learnt.given_noise)
            learnt.draws = []
        if self.redraws and len(learnt.recent) > 1:
            learnt.proposals = redraw.again(learnt.proposals, np.array(learnt.recent))
        learnt.recent, learnt.redrawn = [], np.zeros(2)

    def _try_trajectories(self, step: "AncillaryUpdate", learnt: Tuned) -> None:
        """Follow trajectories from here on if random walks have done poorly; remember what these learnt."""
        if learnt.jumps.n_draws < FEWEST or learnt.jumps.effective(_variance(learnt))[-1] > _MAY_BE_POOR:
            return
        draws = np.array(learnt.draws)
        if worth(draws, draws.var(axis=0)) > _POOR or self.trajectories is None:
            return
        learnt.walked = Walked(
            learnt.given_records, learnt.given_noise, self.worthwhile(step, learnt),
            self.worthwhile_cycles(step, learnt), draws,
        )  # fmt: skip
        learnt.given_records, learnt.given_noise = hamiltonian.begun(self.logs), hamiltonian.begun(self.logs)
        learnt.n_updates = int(self.trajectories.counts[2])
        learnt.follows, learnt.begun_at, learnt.n_cycles = True, step.n_steps, self.trajectories.n_cycles

    def _settle(self, step: "AncillaryUpdate", learnt: Tuned) -> None:
        """Choose how often each update is made from now on, and whether to go back to random walks."""
        n_cycles, n_updates = self.worthwhile_cycles(step, learnt), self.worthwhile(step, learnt)
        if learnt.walked is not None:
            walked, n, draws = learnt.walked, self.chain.program.n, np.array(learnt.draws)
            prices = [
                cost_of_a_draw(n, each.n_cycles, each.cost) for each in (self.updates, self.running(learnt))
            ]
            choice, by_walks, by_trajectories = choose(walked.draws, draws, (prices[0], prices[1]))
            if choice == "walks":
                learnt.follows = False
                learnt.given_records, learnt.given_noise = walked.given_records, walked.given_noise
                n_cycles, n_updates = walked.n_cycles, walked.n_updates
            else:
                learnt.in_turn = choice == "both"
                _log.info(
                    "AncillaryUpdate follows trajectories for %s%s: such a draw is worth %.2g independent "
                    "ones, and %.2g by random walks.",
                    ", ".join(self.names), " in every other draw" if learnt.in_turn else "",
                    by_trajectories, by_walks,
                )  # fmt: skip
            walked.draws = draws[:0]  # checkpoints hold what was learnt
        learnt.n_cycles, learnt.n_updates, learnt.draws = n_cycles, n_updates, []

    def run(
        self,
        step: "AncillaryUpdate",
        point: dict[str, np.ndarray],
        learnt: Tuned,
        tallies: np.ndarray,
        swept: Swept,
    ) -> dict[str, np.ndarray]:
        """Run the cycles of a draw, and learn from it while tuning."""
        chain, program = self.chain, self.chain.program
        if chain.data.size != program.data.size:  # a function lowered later reads more data
            chain.refresh_data()
        theta = program.parameters.flatten(point)
        program.records.pack(point, out=chain.x)
        used = self.used(step, learnt)
        updates = self.running(used)
        counts = updates.counts.copy()  # what it holds is the default, which the next chain starts from
        counts[0] = used.n_cycles
        counts[6] = self.sweeps * sweeps_first(program.n, used.n_cycles)
        counts[2:4] = (0, used.n_updates) if self.redraws else (used.n_updates, 0)
        trace = np.empty((used.n_cycles + 1, len(self.moving)))
        tally = np.array([0.0, 1.0])
        n_sweeps = interweave(
            chain.handle(step.rng), counts, updates.addresses,
            *chain.native(step.n_steps % len(chain.moves)), step.n_adapted * updates.n_cycles, int(step.tune),
            theta, chain.data, self.moving, self.n_counted, updates.upper_at, self.ends, updates.gaussian,
            chain.x, chain.totals, used.given_records, used.given_noise, learnt.given_effects,
            learnt.proposals,
            updates.draws_records.sizes, updates.draws_records.addresses,
            tally, tallies, trace,
        )  # fmt: skip
        if self.sweeps:
            swept.add(tally, n_sweeps * program.n)
        if step.tune:
            spread, values = learnt.spread, theta[self.moving]
            spread[0] += 1
            change = values - spread[1]
            spread[1] += change / spread[0]
            spread[2] += change * (values - spread[1])
            learnt.jumps.add(trace)
            if self.may_change:
                learnt.draws.append(values)
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
        updates, spread = self.running(learnt), learnt.spread
        n_default = int(updates.counts[2] + updates.counts[3])
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
        chosen = step.n_ancillary is not None or updates.coordinates[0] is not None
        chosen = chosen or updates.follows_slopes or updates.in_groups
        if chosen or n_default <= _FEW or step.update == "slice" or spread[0, 0] < 50:
            return n_default
        # a random walk of the acceptance aimed at has 2.38^2 / dimension times the covariance of its target
        reach = np.sum(learnt.given_noise.factor**2, axis=1) * len(self.moving) / 2.38**2
        if self.part.size:
            alone = np.sum(learnt.given_noise.apart**2, axis=1) * np.bincount(self.part)[self.part]
            reach = np.maximum(reach, alone / 2.38**2)
        share = np.max(reach / np.maximum(spread[2] / spread[0], 1e-300))
        return int(np.clip(np.ceil(_FULL_FROM * share * n_default), _FEW, n_default))

    def worthwhile_cycles(self, step: "AncillaryUpdate", learnt: Tuned) -> int:
        """Cycles that a draw is worth, as tuning has shown."""
        updates = self.running(learnt)
        if step.n_cycles is not None:
            return updates.n_cycles
        return best_number(learnt.jumps, _variance(learnt), self.chain.program.n, updates.cost)


def _without_groups(grouped: Grouped, names: Sequence[str]) -> str:
    """Say why parameters do not move by group."""
    why = (
        f"of {', '.join(names)} none have entries that are independent of each other given the others"
        if not grouped.n
        else f"{grouped.n_shared:g} numbers are in no group, more than the {MAX_DIMENSION} of a random walk"
    )
    return f"`update` is 'by_group', but {why}. Leave `update` out: the step chooses how they move."


def _variance(learnt: Tuned) -> np.ndarray:
    """Of each parameter, since the adaptation last began anew."""
    return learnt.spread[2] / np.maximum(learnt.spread[0], 1)
