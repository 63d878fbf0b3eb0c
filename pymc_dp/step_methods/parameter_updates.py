"""What moves the parameters of one block in a cycle: the densities they follow, lowered, and how often."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from pytensor.tensor.variable import TensorVariable

from pymc_dp.lowering.addresses.native import NativeFunction, addresses_of
from pymc_dp.step_methods.block.layout import positions
from pymc_dp.step_methods.groups import Grouped
from pymc_dp.step_methods.record_step import RecordChain
from pymc_dp.step_methods.sweeps.moves import independence_move
from pymc_dp.step_methods.updates import by_group, hamiltonian
from pymc_dp.step_methods.updates.conditionals import Conditionals
from pymc_dp.step_methods.updates.cycles import MOST
from pymc_dp.step_methods.updates.interweaving import interweave
from pymc_dp.step_methods.updates.quadratic import quadratic
from pymc_dp.step_methods.updates.redrawn import RedrawnConditionals
from pymc_dp.step_methods.updates.sufficient import given_sums
from pymc_dp.step_methods.updates.upper import upper
from pymc_dp.step_methods.updates.walks import random_walk, slice_update

# Trajectories in a cycle, given records and given the noise.
_TRAJECTORIES = (1, 2)
# Updates of what groups share and of the groups in a cycle: given the records, given the noise; and these
# where quantile functions are computed.
_BY_GROUP, _DEAR_BY_GROUP = (4, 32), (4, 8)
# Updates of each parameter of parameters given these in a cycle: they cost nothing beside a sweep.
_UPPER = 8
# Updates of each parameter given sums of the records in a cycle, which cost as little.
_GIVEN_SUMS = 8
# Updates given the noise in a cycle: one costs 2 ns per record for location-scale families, against 60 for
# the sweep, and up to 300 where quantile functions are computed.
_CHEAP, _DEAR = 16, 6
# Proposals of parameters with all records in a cycle, each of which costs a sweep.
_REDRAWN = 4
# Evaluations of a log density that a trajectory costs, those with slopes for three.
_TRAJECTORY = 20
# Updates given the noise in a cycle where the number of people moves, too: a cycle costs the slots of all, an
# update the people alone.
_WITH_COUNT = 32
# Work that one draw is worth, in records swept. PyMC's own loop costs tens of microseconds a draw and 90 ns
# per record to store it, so a draw is worth several cycles. Counted, not timed: draws are reproducible.
_WORK = 6000
_FEWEST_CYCLES = 2


class ParameterUpdates:
    """Updates of one kind, by random walks or slices, by trajectories, or with all records drawn anew.

    Parameters
    ----------
    chain : RecordChain
    conditionals : Conditionals
        Of the parameters that move.
    mine : sequence of variables
        These, whole numbers included; `n_walking` numbers of them are none.
    kind : {"random_walk", "slice", "hamiltonian", "by_group", "redraw"}
    grouped : Grouped, optional
        The densities by group, where that is how they move.
    summed : bool
        Whether the records may be summed over in place of updates given the noise.
    n_centred, n_ancillary, n_cycles : int, optional
        As the user gave them.

    Attributes
    ----------
    counts : ndarray of int, shape (7,)
        Cycles of a draw, updates given the records, given the noise, proposals with all records, updates of
        the upper level, and the number of sums that updates given the records read in place of these.
    cost : float
        Of a cycle, in records swept.
    gaussian : ndarray of int
        Positions of the parameters that are drawn exactly given the records.
    """

    def __init__(
        self,
        chain: RecordChain,
        conditionals: Conditionals,
        mine: Sequence[TensorVariable],
        kind: str,
        grouped: Grouped | None = None,
        *,
        n_walking: int,
        summed: bool,
        n_centred: int | None,
        n_ancillary: int | None,
        n_cycles: int | None,
    ):
        program, model, layout = chain.program, chain.program.model, chain.program.parameters
        self.kind, self.follows_slopes, self.in_groups = kind, kind == "hamiltonian", grouped is not None
        redraws, smooth = kind == "redraw", all(form.smooth for form in conditionals.forms.values())
        k = sum(layout.slice_length(rv) for rv in mine)
        by_default, chosen = self._defaults(k, smooth, program.block.count in mine), n_centred is not None
        n_centred = by_default[0] if n_centred is None else n_centred
        n_ancillary = by_default[1] if n_ancillary is None else n_ancillary
        n_ancillary, n_redrawn = (0, n_ancillary) if redraws else (n_ancillary, 0)
        self.ancillary = self.noise = self.records = None
        summed = summed and not redraws
        if n_ancillary:
            given_noise = conditionals.marginal if summed else conditionals.ancillary
            self.ancillary = None if self.in_groups else given_noise(self.follows_slopes)
            if not summed:
                self.noise, self.records = conditionals.noise(), conditionals.records()
        drawn = None if self.follows_slopes or self.in_groups else quadratic(conditionals)
        self.quadratic, self.gaussian = None, np.zeros(0, dtype=np.intp)
        if drawn is not None:
            exact, self.quadratic = drawn
            self.gaussian = positions(layout, [str(model.rvs_to_values[rv].name) for rv in exact])
            n_centred = 0 if len(self.gaussian) == n_walking else n_centred
        n_centred = n_centred if n_walking else 0
        self.sums, self.n_sums = None, 0
        if grouped is not None:
            in_groups = grouped.functions()
            self.centred = in_groups[0] if n_centred else None
            self.ancillary = in_groups[1] if n_ancillary else None
        elif redraws and n_centred and (found := given_sums(conditionals)):
            self.sums, self.centred, self.n_sums = found
            n_centred = n_centred if chosen else _GIVEN_SUMS * k
        else:
            self.centred = conditionals.centred(self.follows_slopes) if n_centred else None
        self.with_records: tuple[NativeFunction | None, NativeFunction | None] = (None, None)
        if n_redrawn and isinstance(conditionals, RedrawnConditionals):
            self.with_records = conditionals.with_records()
        self.draws_records = chain.moves[0]
        if n_redrawn and self.draws_records.name != "independence":
            self.draws_records = independence_move(program)  # what is informed by a release has another law
        evaluations = n_ancillary * (_TRAJECTORY if self.follows_slopes else 2 if self.in_groups else 1)
        self.cost = program.n * (1 + n_redrawn + evaluations / (25 if smooth else 1))
        self.n_cycles = n_cycles or int(np.clip(_WORK / self.cost, _FEWEST_CYCLES, MOST))
        self.upper_at, self.upper = np.zeros(0, dtype=np.intp), None
        if n_centred and (self.follows_slopes or self.in_groups):
            self.upper_at, self.upper = upper(conditionals)
        n_upper = _UPPER * self.upper_at.size
        counts = [self.n_cycles, n_centred, n_ancillary, n_redrawn, n_upper, self.n_sums, 0]
        self.counts = np.array(counts, dtype=np.int64)
        self.update = hamiltonian.hamiltonian if self.follows_slopes else random_walk
        if kind == "slice":
            self.update = slice_update
        if self.in_groups:
            self.update = by_group.by_group
        interweave.ready()
        self.update.ready()
        self.coordinates = (conditionals.coordinates() if n_ancillary else None) or (None, None)

    def _defaults(self, k: int, smooth: bool, counted: bool) -> tuple[int, int]:
        """Updates of a cycle given records, and given the noise or with all records."""
        if self.follows_slopes:
            return _TRAJECTORIES
        if self.in_groups:
            return _BY_GROUP if smooth else _DEAR_BY_GROUP
        if self.kind == "redraw":
            return max(4, k), _REDRAWN
        cheap = _WITH_COUNT if counted else _CHEAP
        return max(4, k), max(cheap, 2 * k) if smooth else max(_DEAR, k)

    @cached_property
    def addresses(self) -> np.ndarray:
        """Addresses of the native functions, in the order that :func:`interweave` takes them."""
        return addresses_of(
            (
                self.centred, self.ancillary, self.noise, self.records, self.quadratic, *self.coordinates,
                self.update, *self.with_records, self.upper, self.sums,
            )
        )  # fmt: skip
