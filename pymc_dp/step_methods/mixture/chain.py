"""A mixture as a chain sees it: lowered kernels, and the arrays that they work on."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np

from pymc_dp.lowering.errors import LoweringError
from pymc_dp.lowering.native import SourceFunction
from pymc_dp.lowering.rows import NotScalar
from pymc_dp.mixtures.structure import Mixture
from pymc_dp.step_methods.base import RecordChain
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.mixture import (
    atoms,
    collapsed,
    conjugacy,
    labels,
    langevin,
    split_merge,
    sticks,
    transfer,
    urn,
)
from pymc_dp.step_methods.mixture.cycles import mixture_cycles
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.source import FULL, N_TALLY

# Records up to which labels given records are drawn with the atoms integrated out where they can be: a sweep
# costs two to three times as much, and gains less the larger clusters are.
_COLLAPSED_UP_TO = 5000
# Auxiliary clusters of the conditional sweep.
_N_EMPTY = 3

# By program and labels: one block of records may have several mixtures.
_LOWERED: "WeakValueDictionary[tuple[int, int], LoweredMixture]" = WeakValueDictionary()


@contextmanager
def explained(mixture: Mixture) -> Iterator[None]:
    """Say what could not be lowered, and what can be."""
    try:
        yield
    except (NotScalar, LoweringError) as reason:
        raise NotImplementedError(
            f"The mixture of {mixture.kernel.name} cannot be lowered: {reason}. Kernels and laws of atoms of "
            "one number each are supported, with parameters that no slot has for itself."
        ) from reason


class LoweredMixture:
    """Compiled kernels of a mixture, each made when it is first asked for."""

    def __init__(self, program: RecordProgram, mixture: Mixture):
        with explained(mixture):
            self.program = MixtureProgram(program, mixture)
        self._joint: dict[int, SourceFunction] = {}
        self._labels: dict[str, SourceFunction] = {}
        # the atoms that a step has drawn last, so that another need not draw them again
        self.just_drawn: np.ndarray | None = None
        self.atoms_tally = np.zeros(N_TALLY)

    def joint(self, n_auxiliary: int) -> SourceFunction:
        """Return the sweep over labels and records together."""
        if n_auxiliary not in self._joint:
            one = n_auxiliary == 1
            self._joint[n_auxiliary] = (
                urn.urn_sweep(self.program) if one else urn.auxiliary_sweep(self.program, n_auxiliary)
            )
        return self._joint[n_auxiliary]

    def labels(self, kind: str) -> SourceFunction:
        """Return the sweep over the labels given the records: "neal8", "collapsed" or "slice"."""
        if kind not in self._labels:
            if kind == "collapsed":
                self._labels[kind] = collapsed.collapsed_sweep(self.program, self.laws)
            elif kind == "slice":
                self._labels[kind] = sticks.slice_sweep(self.program)
            else:
                self._labels[kind] = labels.conditional_sweep(self.program, _N_EMPTY)
        return self._labels[kind]

    @cached_property
    def splits(self) -> SourceFunction:
        """Splits and merges."""
        return split_merge.split_merge(self.program)

    @cached_property
    def laws(self) -> conjugacy.AtomLaws:
        """How the atoms are drawn."""
        return conjugacy.find_laws(self.program, self._derivatives)

    @cached_property
    def _derivatives(self) -> conjugacy.Derivatives:
        return conjugacy.Derivatives(self.program)

    @cached_property
    def updates(self) -> list[SourceFunction]:
        """Updates of the atoms given labels and records."""
        found = []
        if self.laws.normal or self.laws.single:
            found.append(atoms.conjugate_draws(self.program, self.laws))
        if self.laws.other:
            with explained(self.program.mixture):
                found.append(langevin.langevin(self.program, self._derivatives, self.laws.other))
        return found

    @property
    def n_learnt(self) -> int:
        """How many numbers the updates of the atoms learn while tuning."""
        return langevin.room_for(self.program, self.laws.other)

    @cached_property
    def transfer(self) -> tuple[SourceFunction, SourceFunction, SourceFunction]:
        """Load, store, refresh."""
        return transfer.load(self.program), transfer.store(self.program), transfer.refresh(self.program)


def lowered_mixture(chain: RecordChain, mixture: Mixture) -> LoweredMixture:
    """Return the lowered mixture behind a chain of records; the steps of one model share it."""
    key = id(chain.program), id(mixture.labels)
    found = _LOWERED.get(key)
    if found is None:
        found = _LOWERED[key] = LoweredMixture(chain.program, mixture)
    return found


class MixtureChain:
    """One mixture with the records behind its kernel."""

    def __init__(
        self,
        records: RecordChain,
        mixture: Mixture,
        n_auxiliary: int,
        conditional: str,
        splits: bool = False,
    ):
        self.records, self.mixture = records, mixture
        if n_auxiliary > 1 and records.program.n_statistics:
            raise ValueError(
                f"`n_auxiliary` must be 1, got {n_auxiliary}: a release depends on all records "
                f"{mixture.kernel.name} together, and auxiliary ones serve releases of each record by itself."
            )
        self.lowered = lowered_mixture(records, mixture)
        self.collapses = mixture.n <= _COLLAPSED_UP_TO and collapsed.can_collapse(
            self.lowered.program, self.lowered.laws
        )
        program = records.program
        shape = (mixture.max_components, self.lowered.program.width)
        self.labels, self.counts = np.zeros(mixture.n, np.int64), np.zeros(shape[0], np.int64)
        self.atoms = np.zeros(shape)
        self.learnt = np.zeros(self.lowered.program.learnt_from + self.lowered.n_learnt)
        names = [program.model.rvs_to_values[rv].name for rv in (mixture.labels, *mixture.atoms)]
        self.names = [str(name) for name in names]
        functions = [
            program.central.releases, self.lowered.program.hoist, *self.lowered.transfer,
            self.lowered.joint(n_auxiliary) if n_auxiliary else None,
            self.lowered.labels(conditional if self.collapses or conditional != "collapsed" else "neal8")
            if conditional
            else None,
            self.lowered.splits if splits and not program.n_statistics else None,
        ]  # fmt: skip
        self._addresses = np.array([0 if f is None else f.address for f in functions], dtype=np.intp)
        self._updates = np.array([u.address for u in self.lowered.updates], dtype=np.intp)
        moves = [records.native(k) for k in range(len(records.moves))]
        self._move_sizes, self._move_addresses = (np.array([m[k] for m in moves]) for k in range(2))
        inner = self.lowered.program
        self._sizes = np.array(
            [program.n_statistics, program.n_parameters, inner.n_constants, inner.n_columns, 0, 0],
            dtype=np.int64,
        )

    def run(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        plan: np.ndarray,
        n_splits: tuple[int, int],
        tune: bool,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Run the cycles of a plan from a point; return what has moved, and the tally.

        ``n_splits``: splits and merges after each cycle, and in each collapsed sweep.
        """
        records, program = self.records, self.records.program
        if records.data.size != program.data.size:
            records.refresh_data()
        theta = program.parameters.flatten(point)
        program.records.pack(point, out=records.x)
        self._sizes[4:], self.learnt[0] = n_splits, tune
        tally, record_tally = np.zeros(N_TALLY), np.array([0.0, 1.0])
        mixture_cycles(
            records.handle(rng), plan, self._sizes, self._addresses, self._updates,
            self._move_sizes, self._move_addresses, theta, records.data, records.x, self.labels, self.atoms,
            self.counts, self.learnt, records.totals, tally, record_tally,
        )  # fmt: skip
        if tally[FULL]:
            raise ValueError(
                f"All {self.mixture.max_components} slots of {self.mixture.labels.name} are occupied and a "
                "new cluster found none: raise max_components (and the shape of the atoms)."
            )
        moved = program.parameters.unflatten(theta, self.names)
        self.lowered.just_drawn, self.lowered.atoms_tally = moved[self.names[-1]], tally
        return {**moved, **program.records.unpack(records.x)}, tally
