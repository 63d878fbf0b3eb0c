"""A mixture as a chain sees it: lowered kernels, and the arrays that they work on."""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np
from pymc.distributions.custom import CustomDistRV

from pymc_dp.lowering.addresses.native import Addressed, addresses_of
from pymc_dp.lowering.functions.normals import LARGEST
from pymc_dp.lowering.rows.rows import NotScalar
from pymc_dp.mixtures.structure import Mixture
from pymc_dp.step_methods.block.program import RecordProgram
from pymc_dp.step_methods.mixture import (
    conjugacy,
    conjugate_atoms,
    langevin,
    laplace_scans,
    neal2,
    neal3,
    neal5,
    neal8,
    restricted_scans,
    slice_sampler,
    slot_sums,
    split_merge,
    start,
    transfer,
)
from pymc_dp.step_methods.mixture.counters import GIVEN_LABELS, N_TALLY, SPLIT_KINDS
from pymc_dp.step_methods.mixture.cycles import SWEEPING, Plan, mixture_cycles
from pymc_dp.step_methods.mixture.known_records import KernelChain
from pymc_dp.step_methods.mixture.program import MixtureProgram
from pymc_dp.step_methods.mixture.released import SummedRelease
from pymc_dp.step_methods.mixture.summed import summed_sweep
from pymc_dp.step_methods.record_step import RecordChain

_log = logging.getLogger("pymc.dp")

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
    except NotScalar as reason:
        op = mixture.kernel.owner.op
        if isinstance(op, CustomDistRV) and op.ndim_supp == 0 and mixture.kernel.type.ndim > 1:
            raise NotImplementedError(
                f"The mixture of {mixture.kernel.name} cannot be lowered: {reason}. A pm.CustomDist of "
                "several numbers for each record needs signature=, such as '(k),()->(k)' where the first of "
                "two parameters has as many entries as a record."
            ) from reason
        raise NotImplementedError(
            f"The mixture of {mixture.kernel.name} cannot be lowered: {reason}. Kernels and laws of atoms "
            f"may be univariate, or multivariate normal of up to {LARGEST} numbers, with parameters that no "
            "slot has for itself; atoms may be probabilities with a Dirichlet law where the kernel is "
            "categorical; make a covariance of each slot from atoms such as standard deviations."
        ) from reason


class LoweredMixture:
    """Compiled kernels of a mixture, each made when it is first asked for."""

    def __init__(self, program: RecordProgram, mixture: Mixture):
        with explained(mixture):
            self.program = MixtureProgram(program, mixture)
        self._joint: dict[float, Addressed] = {}
        self._labels: dict[str, Addressed] = {}
        self._scans: dict[int, Addressed] = {}
        self._splits: dict[str, Addressed | None] = {}
        # the atoms that a step has drawn last, so that another need not draw them again
        self.just_drawn: np.ndarray | None = None
        self.atoms_tally = np.zeros(N_TALLY)

    def joint(self, n_auxiliary: float) -> Addressed:
        """Return the sweep over labels and records together."""
        if n_auxiliary not in self._joint:
            if n_auxiliary == 1:
                self._joint[n_auxiliary] = neal5.urn_sweep(self.program)
            elif n_auxiliary == math.inf:
                found = self.program.closed_graphs
                self._joint[n_auxiliary] = (
                    summed_sweep(self.program, found)
                    if isinstance(found, SummedRelease)
                    else neal5.closed_sweep(self.program)
                )
            else:
                self._joint[n_auxiliary] = neal5.auxiliary_sweep(self.program, int(n_auxiliary))
        return self._joint[n_auxiliary]

    def labels(self, kind: str, n_empty: int = _N_EMPTY) -> Addressed:
        """Return the sweep over the labels given the records: "neal2", "neal8", "collapsed" or "slice".

        ``n_empty``: empty clusters of Neal's algorithm 8.
        """
        key = f"{kind} {n_empty}" if kind == "neal8" else kind
        if key not in self._labels:
            if kind == "collapsed":
                self._labels[key] = neal3.compiled(self.program, self.laws)
            elif kind == "slice":
                self._labels[key] = slice_sampler.compiled(self.program)
            elif kind == "neal2":
                self._labels[key] = neal2.compiled(self.program, self.laws)
            else:
                self._labels[key] = neal8.compiled(self.program, n_empty)
        return self._labels[key]

    def scans(self, n_scans: int) -> Addressed:
        """Return splits and merges by restricted scans of the labels."""
        if n_scans not in self._scans:
            if self.integrates_out:
                self._scans[n_scans] = restricted_scans.compiled(self.program, self.laws, n_scans)
            else:
                with explained(self.program.mixture):
                    self._scans[n_scans] = laplace_scans.compiled(self.program, self._derivatives, n_scans)
        return self._scans[n_scans]

    @cached_property
    def integrates_out(self) -> bool:
        """Whether the atoms of a cluster integrate out in closed form."""
        return slot_sums.can_collapse(self.program, self.laws)

    def splits(self, kind: str) -> Addressed | None:
        """Return splits and merges of a kind by weights; None where releases have no closed law."""
        if kind not in self._splits:
            local = not self.program.program.n_statistics
            fits = {"fresh": local, "released": self.is_closed, "kept": True}[kind]
            self._splits[kind] = split_merge.split_merge(self.program, kind) if fits else None
        return self._splits[kind]

    @property
    def is_closed(self) -> bool:
        """Whether the release of a record has a closed law with the record integrated out."""
        return isinstance(self.program.closed_graphs, tuple)

    @cached_property
    def laws(self) -> conjugacy.AtomLaws:
        """How the atoms are drawn."""
        return conjugacy.find_laws(self.program, self._derivatives)

    @property
    def holds(self) -> bool:
        """Whether the laws of the atoms are those that were found, now that the data may be others."""
        if not self.program.domain.still_holds:
            return False
        return "laws" not in self.__dict__ or conjugacy.still_hold(self.program, self.laws)

    @cached_property
    def _derivatives(self) -> conjugacy.Derivatives:
        return conjugacy.Derivatives(self.program)

    @cached_property
    def updates(self) -> list[Addressed]:
        """Updates of the atoms given labels and records."""
        found: list[Addressed] = []
        if self.laws.normal or self.laws.single:
            found.append(conjugate_atoms.compiled(self.program, self.laws))
        if self.laws.other:
            with explained(self.program.mixture):
                found.append(langevin.compiled(self.program, self._derivatives, self.laws.other))
        return found

    @property
    def n_learnt(self) -> int:
        """How many numbers the updates of the atoms learn while tuning."""
        return langevin.room_for(self.program, self.laws.other)

    @cached_property
    def transfer(self) -> tuple[Addressed, Addressed, Addressed]:
        """Load, store, refresh."""
        return transfer.kernels_of(self.program)


def lowered_mixture(program: RecordProgram, mixture: Mixture) -> LoweredMixture:
    """Return the lowered mixture behind the program of its records; the steps of one model share it."""
    key = id(program), id(mixture.labels)
    found = _LOWERED.get(key)
    if found is None or not found.holds:
        found = _LOWERED[key] = LoweredMixture(program, mixture)
    return found


class MixtureChain:
    """One mixture with the records behind its kernel."""

    def __init__(
        self,
        records: RecordChain,
        lowered: LoweredMixture,
        n_auxiliary: float,
        conditional: str,
        splits: bool = False,
        *,
        n_empty: int = _N_EMPTY,
        n_scans: int | None = None,
        scans_needed: bool = True,
    ):
        self.records, self.lowered, self.mixture = records, lowered, lowered.program.mixture
        mixture = self.mixture
        if n_auxiliary > 1 and records.program.n_statistics:
            raise ValueError(
                f"`n_auxiliary` must be 1, got {n_auxiliary}: a release depends on all records "
                f"{mixture.kernel.name} together, and auxiliary ones serve releases of each record by itself."
            )
        self.collapses = mixture.n <= _COLLAPSED_UP_TO and self.lowered.integrates_out
        program, inner = records.program, self.lowered.program
        self._under_base = records.under_base if isinstance(records, KernelChain) else np.zeros((2, 0))
        self._constants_then = np.full(inner.n_constants, np.nan)
        self.counts, self.learnt = np.zeros(mixture.max_components, np.int64), np.zeros(self.lowered.n_learnt)
        self.sweep = self._sweep_for(conditional)
        kinds = SPLIT_KINDS if splits else ()
        self.splits = [self.lowered.splits(kind) for kind in kinds]
        if n_scans is not None:
            self.splits = [self._scans(n_scans, scans_needed)]
        names = [program.model.rvs_to_values[rv].name for rv in (mixture.labels, *mixture.atoms)]
        self.names = [str(name) for name in names]
        self._functions = [
            program.central.releases, self.lowered.program.hoist, *self.lowered.transfer,
            self.lowered.joint(n_auxiliary) if n_auxiliary else None,
            self.lowered.labels(self.sweep, n_empty) if self.sweep else None,
            *self.splits,
        ]  # fmt: skip
        mixture_cycles.ready()
        self._updates = self.lowered.updates  # now, so that atoms which nothing can move are refused here
        self._move_sizes = np.array([m.sizes for m in records.moves], dtype=np.int64).reshape(-1, 4)
        self._sizes = np.array(
            [
                program.n_statistics, program.n_parameters, inner.n_constants, inner.n_columns, inner.width,
                inner.n_features,
            ],
            dtype=np.int64,
        )  # fmt: skip

    def _sweep_for(self, asked: str) -> str:
        """Return the sweep over labels that serves a mixture, where it depends on the mixture."""
        if self.records.program.block.releases:
            return "neal8" if asked == "collapsed" and not self.collapses else asked
        if asked == "auto":
            return "neal2" if self.lowered.integrates_out else "neal8"
        if asked in ("collapsed", "neal2") and not self.lowered.integrates_out:
            atoms = ", ".join(str(rv.name) for rv in self.mixture.atoms)
            fit = (
                "normal means with a known variance or a single inverse gamma one that they all scale with "
                "(columns with a variance each do not: one number per record then), or one number with a "
                "gamma, inverse gamma or beta law that fits the kernel"
            )
            if not (self.lowered.program.degree or self.lowered.laws.other):
                fit = (
                    "their laws given the records are known, but the kernel's log density is not one "
                    "polynomial in the same numbers of every record: an exposure differs between records"
                )
            raise ValueError(
                f"Neal's algorithms 2 and 3 need atoms that integrate out given the records, and {atoms} of "
                f"{self.mixture.labels.name} do not: {fit}. Use dp.Neal8, which takes any atoms."
            )
        return asked

    def _scans(self, n_scans: int, needed: bool) -> Addressed | None:
        try:
            return self.lowered.scans(n_scans)
        except NotImplementedError as reason:
            if needed:
                raise
            _log.info("No splits and merges of %s. %s", self.mixture.labels.name, reason)
            return None

    def inside(self, rng: np.random.Generator, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return atoms in the place of those that give records no law: nothing if there are none."""
        layout = self.records.program.parameters
        theta = layout.flatten(point)
        return layout.unflatten(theta, self.names) if start.inside(self.lowered.program, rng, theta) else {}

    @cached_property
    def _addresses(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Addresses that :func:`mixture_cycles` takes: of its functions, of updates of atoms, of moves."""
        moves = [move.addresses for move in self.records.moves]
        return (
            addresses_of(self._functions),
            addresses_of(self._updates),
            np.array(moves, dtype=np.intp).reshape(len(moves), len(moves[0]) if moves else 0),
        )

    def run(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        plan: Plan,
        tune: bool,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Run the cycles of a plan from a point; return what has moved, and the tally."""
        records, program = self.records, self.records.program
        if records.data.size != program.data.size:
            records.refresh_data()
        theta = program.parameters.flatten(point)
        program.records.pack(point, out=records.x)
        if isinstance(records, KernelChain) and not records.observed:
            self._under_base[:] = np.nan  # other steps have moved the records
        splits = [0 if f is None else n for f, n in zip(self.splits, plan.splits, strict=False)]
        tally, record_tally, full = np.zeros(N_TALLY), np.array([0.0, 1.0]), np.zeros(1, np.bool_)
        mixture_cycles(
            records.handle(rng), plan.cycles, self._sizes, np.array(splits, dtype=np.int64), plan.dealt,
            *self._addresses[:2],
            self._move_sizes, self._addresses[2], theta, records.data, records.x, records.totals, self.counts,
            self._under_base, self._constants_then, tune, self.learnt, full, tally, record_tally,
        )  # fmt: skip
        if full[0]:
            raise ValueError(
                f"All {self.mixture.max_components} slots of {self.mixture.labels.name} are occupied and a "
                "new cluster found none: raise max_components (and the shape of the atoms)."
            )
        if len(self._move_sizes):
            cycles = plan.cycles.tolist()
            sweeps = sum(map(cycles.count, SWEEPING))  # in a microsecond, where NumPy takes twenty
            tally[GIVEN_LABELS : GIVEN_LABELS + 2] = record_tally[0], sweeps * len(records.x)
        moved = program.parameters.unflatten(theta, self.names)
        self.lowered.just_drawn, self.lowered.atoms_tally = moved[self.names[-1]], tally
        return {**moved, **program.records.unpack(records.x)}, tally
