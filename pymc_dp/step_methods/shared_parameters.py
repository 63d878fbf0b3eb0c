"""Blocks of records whose laws read the same parameters, which then move with the records of all of them.

Two surveys of one quantity are such blocks. Given the records of one, its parameters are held by these where
privacy is strong, whatever those of the other do.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable

from pymc_dp.lowering.addresses.native import addresses_of
from pymc_dp.query.dependence import NONE, SEVERAL, Dependence
from pymc_dp.query.readings import substitute
from pymc_dp.query.records import parameters_of
from pymc_dp.query.rowlocal import leaves_of
from pymc_dp.step_methods.ancillary_block import AncillaryBlock
from pymc_dp.step_methods.block.layout import positions
from pymc_dp.step_methods.block.parents import (
    ancestors_of_records,
    continuous_parameters,
    is_real,
    parents_of_records,
)
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.claims import MAX_DIMENSION
from pymc_dp.step_methods.updates.columns import shape_held
from pymc_dp.step_methods.updates.noncentred import NoNoiseForm
from pymc_dp.step_methods.updates.state import GIVEN_NOISE, Learnt, of_random_walk
from pymc_dp.step_methods.updates.together import (
    Share,
    give_records,
    given_all_noise,
    take_noise,
    walk_together,
)
from pymc_dp.step_methods.whole_numbers import whole_numbers_of

if TYPE_CHECKING:
    from pymc_dp.step_methods.ancillary import AncillaryUpdate

# Cycles of a draw, each with a sweep over the records of all blocks; fewest updates in one, and where these
# compute quantile functions.
_CYCLES, _CHEAP, _DEAR = 2, 16, 6

# Names of parameters, and which of their numbers.
type Numbers = dict[str, set[int]]


class Shared(NamedTuple):
    """Blocks that move together, by number, and which numbers of parameters more than one of them reads."""

    blocks: list[int]
    numbers: Numbers


class ReadTogether(Exception):
    """Something reads records of two blocks, and would have to be counted with both."""


class TogetherBlocks:
    """Several blocks of records and the parameters that the laws of more than one of them read.

    Parameters
    ----------
    parts : sequence of AncillaryBlock
    shared : Shared
    """

    def __init__(self, parts: Sequence[AncillaryBlock], shared: Shared):
        self.parts, numbers = list(parts), shared.numbers
        programs = [part.chain.program for part in parts]
        layout, model = programs[0].parameters, programs[0].model
        moving = [rv for rv in layout.variables if rv.name in numbers]
        counted = _counted_with(programs)
        self.shares = [Share(program, moving, counted(k)) for k, program in enumerate(programs)]
        self.density, self._n_data = given_all_noise(self.shares)
        self.coordinates = self.shares[0].coordinates() or (None, None)
        self._given = [(share.noise(), share.records()) for share in self.shares]
        self.names = [str(rv.name) for rv in moving]
        self._values = [str(model.rvs_to_values[rv].name) for rv in moving]
        self._at = [positions(program.parameters, self._values) for program in programs]
        starts = {str(rv.name): layout.slices[layout.variables.index(rv)].start for rv in moving}
        at = [starts[name] + k for name in self.names for k in sorted(numbers[name])]
        self.moving = np.array(at, dtype=np.intp)
        smooth = all(form.smooth for share in self.shares for form in share.forms.values())
        self.n_updates = max(_CHEAP, 2 * self.moving.size) if smooth else max(_DEAR, self.moving.size)
        for kernel in (take_noise, give_records, walk_together):
            kernel.ready()

    def begun(self) -> Learnt:
        """Return what a chain begins with."""
        return of_random_walk(self.moving.size)

    def run(
        self, step: "AncillaryUpdate", point: dict[str, np.ndarray], learnt: Learnt, tallies: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return a point with parameters and records of all blocks moved, the latter by sweeps of theirs too.

        A draw has two cycles: a sweep over the records of each block, then updates of the parameters.
        """
        chains = [part.chain for part in self.parts]
        for chain in chains:
            if chain.data.size != chain.program.data.size:  # a function lowered later reads more data
                chain.refresh_data()
            chain.program.records.pack(point, out=chain.x)
        data = np.concatenate([c.data[:n] for c, n in zip(chains, self._n_data, strict=True)])
        given = np.empty((1, sum(chain.x.size for chain in chains)))
        noise = [
            part.reshape(shape_held(chain.program.records))
            for part, chain in zip(
                np.split(given[0], np.cumsum([c.x.size for c in chains])[:-1]), chains, strict=True
            )
        ]
        # all parameters, in the order of each block's program: what moves stands at `self._at`
        thetas = [chain.program.parameters.flatten(point) for chain in chains]
        theta, at = thetas[0], self._at[0]
        phi, addresses = np.empty_like(theta), addresses_of((self.density, *self.coordinates))
        for cycle in range(_CYCLES):
            for chain, own, (of_records, _), u in zip(chains, thetas, self._given, noise, strict=True):
                chain.sweep(step.rng, own, chain.x, step.n_steps % len(chain.moves))
                take_noise(chain.handle(step.rng), of_records.address, own, chain.data, chain.x, u)
            totals = np.concatenate([chain.totals for chain in chains])
            accepted = walk_together(
                chains[0].handle(step.rng), self.n_updates, addresses, theta, phi, chains[0].data, data,
                given, totals, self.moving, learnt, (step.n_adapted * _CYCLES + cycle) * self.n_updates,
                int(step.tune), tallies[GIVEN_NOISE],
            )  # fmt: skip
            if accepted:
                moved = theta[at]
                for chain, own, own_at, (_, of_noise), u in zip(
                    chains, thetas, self._at, self._given, noise, strict=True
                ):
                    own[own_at] = phi[at]  # some of them as noise
                    give_records(of_noise.address, own, chain.data, u, chain.x)
                    own[own_at] = moved
        point = {**point, **chains[0].program.parameters.unflatten(theta, self._values)}
        for chain in chains:
            point.update(chain.program.records.unpack(chain.x))
        return point


def shared_by(
    programs: Sequence[RecordProgram], moving: Collection[Variable]
) -> tuple[list[Shared], list[str]]:
    """Return blocks that share parameters and move together, and names of parameters of those that cannot.

    Blocks whose records are no function of noise, or whose number is a parameter, cannot.
    """
    if len(programs) < 2:
        return [], []
    read = [_read_by_law(program, moving) for program in programs]
    able = [_may_move_with_others(program, moving) for program in programs]
    found: list[Shared] = []
    apart = _of_several(read)
    for which in _tied([numbers if able[k] else {} for k, numbers in enumerate(read)]):
        numbers = _of_several([read[k] for k in which])
        if sum(map(len, numbers.values())) > MAX_DIMENSION:
            continue
        try:
            _counted_with([programs[k] for k in which])
        except ReadTogether:
            continue
        found.append(Shared(which, numbers))
        others = _of_several([read[k] for k in range(len(programs)) if k not in which] + [numbers])
        apart = {name: others.get(name, set()) if name in numbers else own for name, own in apart.items()}
    return found, [name for name, own in apart.items() if own]


def _may_move_with_others(program: RecordProgram, moving: Collection[Variable]) -> bool:
    block = program.block
    if block.count is not None or set(whole_numbers_of(program.model, block)) & set(moving):
        return False
    try:
        Share(program, moving, lambda factor: True)
    except NoNoiseForm:
        return False
    return True


def moved_with_each(
    programs: Sequence[RecordProgram], moving: Collection[Variable], shared: Sequence[Shared]
) -> list[set[Variable]]:
    """Return what moves with each block of records by itself: what is behind them, but for what is left out.

    The density of a number that is behind several blocks has a term for each: as many such densities take the
    square of their number to compile and to compute. It moves with the blocks whose law reads it, of those
    that move together with the first; if no law reads it, with the first block that it is behind. Of an array
    each block may read entries of its own: it moves with all that read it. So do whole numbers.
    """
    read = [set(parents_of_records(p.model, p.block)) for p in programs]
    behind = [set(ancestors_of_records(p.model, p.block)) for p in programs]
    found: list[set[Variable]] = [set() for _ in programs]
    for rv in moving if programs else ():
        readers = [k for k, own in enumerate(read) if rv in own]
        others = [k for k, own in enumerate(behind) if rv in own]
        if not is_real(rv):
            with_it = readers or others or list(range(len(programs)))
        elif not readers:
            with_it = others[:1] or [0]
        elif rv.type.ndim:  # type: ignore[attr-defined]
            with_it = readers
        else:
            groups = [[k for k in each.blocks if k in readers] for each in shared if rv.name in each.numbers]
            with_it = [k for k in readers if not any(k in group[1:] for group in groups)]
        for k in with_it:
            found[k].add(rv)
    # a block that reads nothing of its own moves what others move, too
    return [own or set(moving) & behind[k] for k, own in enumerate(found)]


def _read_by_law(program: RecordProgram, moving: Collection[Variable]) -> Numbers:
    """Which numbers of parameters that move the law of a block's records reads, told by the graph."""
    model, block = program.model, program.block
    inputs = [program.theta, program.data.data, program.x]
    graphs = program.data.lift(
        substitute([p for rv in block.records for p in parameters_of(rv)], program.state)
    )
    told = Dependence([g for g in graphs if hasattr(g.type, "ndim")], program.theta, inputs)
    layout = program.parameters
    values = [np.zeros(layout.size), program.data.gather(), program.first_records]
    found: Numbers = {}
    movable = continuous_parameters(model, block) & set(moving)
    for rv in parents_of_records(model, block):
        if rv in movable:
            start, n = layout.slices[layout.variables.index(rv)].start, layout.slice_length(rv)

            def seen(numbers: range, start: int = start) -> set[int]:
                parts = np.full(layout.size, NONE)
                parts[start + np.array(numbers)] = numbers
                return set(np.concatenate(told.of(values, parts)).tolist()) - {NONE}

            read = seen(range(n))
            # where entries of a law read several numbers, each is asked for by itself
            found[str(rv.name)] = (
                read if SEVERAL not in read else {k for k in range(n) if seen(range(k, k + 1))}
            )
    return found


def _of_several(read: Sequence[Numbers]) -> Numbers:
    """Which numbers more than one of some blocks read."""
    names = dict.fromkeys(name for numbers in read for name in numbers)
    found = {}
    for name in names:
        every = [k for numbers in read for k in numbers.get(name, ())]
        shared = {k for k in every if every.count(k) > 1}
        if shared:
            found[name] = shared
    return found


def _tied(read: Sequence[Numbers]) -> list[list[int]]:
    """Blocks by number, those together that share a number with another of them."""
    sets: list[list[int]] = []
    for k, numbers in enumerate(read):
        sharing = [s for s in sets if any(_of_several([numbers, read[j]]) for j in s)]
        sets = [s for s in sets if s not in sharing] + [[*(j for s in sharing for j in s), k]]
    return [sorted(s) for s in sets if len(s) > 1]


def _counted_with(programs: Sequence[RecordProgram]) -> Callable[[int], Callable[[Variable], bool]]:
    """Return what is counted with each block: what reads its records, and with the first the rest."""
    model = programs[0].model
    variables = set(model.basic_RVs)
    whose = {rv: k for k, program in enumerate(programs) for rv in program.block.records}

    def block_of(factor: Variable) -> int:
        if factor in whose:
            return whose[factor]
        read = leaves_of([factor] if factor in model.potentials else parameters_of(factor), variables)
        blocks = {whose[v] for v in read if v in whose}
        if len(blocks) > 1:
            raise ReadTogether(factor.name)
        return blocks.pop() if blocks else 0

    counted = {factor: block_of(factor) for factor in (*model.basic_RVs, *model.potentials)}
    return lambda k: lambda factor: counted[factor] == k
