"""What the steps for labels and records of mixtures share."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from pymc.model.core import Model
from pymc.step_methods.compound import Competence
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable
from rich.progress import ProgressColumn, TextColumn
from rich.table import Column

from pymc_dp.mixtures._arguments import the_labels
from pymc_dp.mixtures.structure import Mixture, find_mixtures, is_labels
from pymc_dp.query.records import RecordBlock
from pymc_dp.step_methods.block.program import RecordProgram, shared_program
from pymc_dp.step_methods.discovery import model_of, record_blocks
from pymc_dp.step_methods.mixture.chain import MixtureChain, lowered_mixture
from pymc_dp.step_methods.mixture.counters import ACCEPTED, CONSIDERED, GIVEN_LABELS, MOVED, N_TALLY, PROPOSED
from pymc_dp.step_methods.mixture.cycles import ATOMS_ONLY, Plan
from pymc_dp.step_methods.mixture.known_records import KernelChain, KernelProgram, kernel_blocks
from pymc_dp.step_methods.mixture.released import check_closed
from pymc_dp.step_methods.near_ends import ATOMS, FarCuts, NearEnds
from pymc_dp.step_methods.record_step import RecordChain, RecordStep, RecordStepState
from pymc_dp.step_methods.starts import set_by_the_model

# Work that one draw is worth, in records: PyMC's own loop takes as long as a sweep over a few hundred. Fixed,
# so that draws are reproducible.
_WORK = 2_000
_MAX_CYCLES = 10
# Before a chain's first draw: sweeps over the records, the largest number of clusters that it starts with,
# and updates of their atoms, which begin at the same place.
_FIRST_SWEEPS, _MOST_STARTING, _FIRST_UPDATES = 5, 6, 200


def private_mixtures(model: Model) -> list[tuple[Mixture, RecordBlock]]:
    """Return the mixtures of a model whose kernel is a confidential record, with its block."""
    mixtures = find_mixtures(model)
    blocks = record_blocks(model) if mixtures else []
    return _large_enough([(m, block) for m in mixtures for block in blocks if m.kernel in block.records])


def plain_mixtures(model: Model) -> list[tuple[Mixture, RecordBlock]]:
    """Return the mixtures of a model whose kernel is none, with the block of its values."""
    return _large_enough(kernel_blocks(model))


def chain_of(
    model: Model, mixture: Mixture, block: RecordBlock, proposals: str, point: dict[str, Any], **kernels: Any
) -> MixtureChain:
    """Return a mixture and the records behind it as a chain sees them.

    The mixture is lowered first: what is refused, is refused before the moves of the records are compiled.
    """
    if kernels.get("n_auxiliary") == math.inf:
        check_closed(block, mixture.kernel)
    program = RecordProgram if block.releases else KernelProgram
    lowered = lowered_mixture(shared_program(block, lambda: program(model, block, point)), mixture)
    if block.releases:
        return MixtureChain(RecordChain(model, block, proposals, point), lowered, **kernels)
    return MixtureChain(KernelChain(model, block, point), lowered, **kernels)


def _large_enough(found: list[tuple[Mixture, RecordBlock]]) -> list[tuple[Mixture, RecordBlock]]:
    for mixture, block in found:
        if block.n != mixture.n:
            raise ValueError(_other_length(mixture, block.n))
        if min(mixture.n, mixture.max_components) < 2:
            raise ValueError(
                f"{mixture.labels.name} has {mixture.n} record(s) and {mixture.max_components} slot(s), and "
                "the samplers of mixtures need two of each: leave the labels out of the model, and use the "
                "atoms themselves."
            )
    return found


def _other_length(mixture: Mixture, n: int) -> str:
    return (
        f"{mixture.kernel.name} has {n} records, and {the_labels(mixture.labels.name)} are those of "
        f"{mixture.n}, as many as there were when they were declared: build the model again with the data of "
        "now."
    )


@dataclass_state
class MixtureStepState(RecordStepState):
    """What a chain needs to be continued."""

    rates: np.ndarray
    learnt: list[np.ndarray]


class MixtureStep(RecordStep):
    """A step that moves the labels of mixtures and the records behind them."""

    _lowered = ("chains", "_mixtures")
    _state_class = MixtureStepState
    _mixtures: list[MixtureChain]
    rates: np.ndarray
    learnt: list[np.ndarray]
    n_cycles: int | None
    proposals: str = "auto"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "n_clusters": (np.int64, []),
        "cluster_acceptance": (np.float64, []),
        "labels_moved": (np.float64, []),
        "record_acceptance": (np.float64, []),
    }

    # what the error says that this step has not found
    _needs: str = (
        "found no mixture of confidential records in this model: declare labels with "
        "dp.ChineseRestaurantProcess, a law of the records that picks atoms by them, and what was "
        "released of the records with a mechanism."
    )

    @classmethod
    def _mixtures_in(cls, model: Model) -> list[tuple[Mixture, RecordBlock]]:
        """Mixtures that the step can move, with the records of each."""
        return private_mixtures(model)

    @classmethod
    def _taken(cls, mixture: Mixture, block: RecordBlock) -> list[Any]:
        """Return the variables of a mixture that the step takes."""
        return [mixture.labels, *block.records]

    # kernels that a subclass runs: auxiliary records of joint sweeps (0 for none), conditional sweeps or not
    @property
    @abstractmethod
    def _kernels(self) -> dict[str, Any]:
        """Arguments of :class:`MixtureChain`."""

    @abstractmethod
    def _plan(self, m: int, n_cycles: int) -> Plan:
        """Which kernel each cycle of a draw runs for a mixture, and how many splits and merges."""

    def _cycles(self, m: int) -> int:
        """How many cycles a draw is worth."""
        return max(1, min(_WORK // self._mixtures[m].mixture.n, _MAX_CYCLES))

    def _build(self) -> None:
        self.chains, self._mixtures = [], []
        model, moving = self._sized()
        for mixture, block in self._mixtures_in(model):
            if mixture.labels not in moving:
                continue
            self._check_all(model, mixture, block)
            found = chain_of(model, mixture, block, self.proposals, self._default_point, **self._kernels)
            self.chains.append(found.records)
            self._mixtures.append(found)
        if not hasattr(self, "rates"):
            self.rates = np.zeros((len(self._mixtures), N_TALLY))
            self.learnt = [m.learnt for m in self._mixtures]
        for chain, learnt in zip(self._mixtures, self.learnt, strict=True):
            chain.learnt = learnt

    def _moved(self) -> set[str]:
        return super()._moved().union(*(mixture.names for mixture in self._mixtures))

    def _check_all(self, model: Model, mixture: Mixture, block: RecordBlock) -> None:
        taken = {v.name for v in self.vars}
        mine = [str(model.rvs_to_values[rv].name) for rv in self._taken(mixture, block)]
        missing = [name for name in mine if name not in taken]
        if missing:
            raise ValueError(
                f"{the_labels(mixture.labels.name, 'The')} and the records {', '.join(block.names)} have to "
                f"move together; `vars` leaves out {', '.join(missing)}."
            )

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Prepare for a new chain: forget what the last one learnt."""
        super().setup_chain(rng, tune, draws)
        if not all(chain.lowered.holds for chain in self._mixtures):
            self._build()  # with data of now, atoms have other laws
        self.rates = np.zeros_like(self.rates)
        self.learnt = [np.zeros_like(m.learnt) for m in self._mixtures]

    def _watched(self) -> list[NearEnds | FarCuts]:
        atoms = [ends for mixture in self._mixtures for ends in mixture.lowered.program.values.unsure]
        return [*super()._watched(), NearEnds(atoms, ATOMS)]

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Run the cycles of one draw; atoms move between them."""
        point = self._started(point)
        tally, clusters = np.zeros(N_TALLY), 0
        for m, mixture in enumerate(self._mixtures):
            mixture.learnt = self.learnt[m]
            n_cycles = self.n_cycles or self._cycles(m)
            moved, part = mixture.run(self.rng, point, self._plan(m, n_cycles), self.tune)
            point.update(moved)
            tally += part
            if self.tune:  # rates of the last draws count most
                self.rates[m] = 0.95 * self.rates[m] + part
            clusters += int(np.count_nonzero(mixture.counts))
        self.n_steps += 1
        return self._checked(point), [{"n_clusters": clusters, **self._rates_of(tally)}]

    def _rates_of(self, tally: np.ndarray) -> dict[str, Any]:
        return {
            "cluster_acceptance": tally[ACCEPTED] / tally[PROPOSED] if tally[PROPOSED] else np.nan,
            "labels_moved": tally[MOVED] / max(tally[CONSIDERED], 1.0),
            "record_acceptance": (tally[ACCEPTED] + tally[GIVEN_LABELS])
            / max(tally[PROPOSED] + tally[GIVEN_LABELS + 1], 1.0),
        }

    def _starts(self, point: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray] | str]:
        """Yield starting values, less and less dispersed, with labels and atoms to begin with."""
        within: dict[str, np.ndarray] = {}
        for mixture in self._mixtures:
            within |= mixture.inside(self.rng, {**point, **within})
        for values in super()._starts({**point, **within}):
            if not isinstance(values, str):
                values = {**within, **values}
                for m, mixture in enumerate(self._mixtures):
                    mixture.learnt = self.learnt[m]
                    values |= self._start(mixture, {**point, **values})
            yield values

    def _start(self, mixture: MixtureChain, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Starting labels where nobody set them: neighbouring records together, in one to six clusters.

        Records are moved towards their releases first, and atoms towards the records that start with them.
        Chains start with different numbers of clusters, because from one wide cluster to several narrow ones
        the way can be long.
        """
        name, kept = mixture.names[0], set_by_the_model(self.model)
        default = self._default_point[name]
        of_mixture = {*mixture.names, *mixture.records.program.records.names}
        given = {n for n in of_mixture if not np.array_equal(self._initial_point[n], self._default_point[n])}
        if (given | kept) & of_mixture or not np.array_equal(point[name], default):
            return {}
        records, program = mixture.records, mixture.records.program
        theta = program.parameters.flatten(point)
        x = program.records.pack(point)
        for _ in range(_FIRST_SWEEPS):
            for which in range(len(records.moves)):
                records.sweep(self.rng, theta, x, which)
        n, most = mixture.mixture.n, min(_MOST_STARTING, mixture.mixture.max_components)
        if mixture.mixture.labels.owner.op.finite:  # type: ignore[union-attr]
            most = len(np.unique(default))  # as many as there are components, up to three
        ends = np.sort(self.rng.integers(n, size=self.rng.integers(most)))
        slots = self.rng.permutation(mixture.mixture.max_components)
        labels = np.empty_like(default)
        labels[np.argsort(x[:, 0])] = slots[np.searchsorted(ends, np.arange(n), side="right")]
        point = {**point, **program.records.unpack(x), name: labels}
        point |= mixture.inside(self.rng, point)
        moved = mixture.run(self.rng, point, Plan(np.full(_FIRST_UPDATES, ATOMS_ONLY)), self.tune)[0]
        if any(np.isnan(v).any() for v in moved.values()):
            # atoms of a slot that nobody was in may be outside of the domain: stay in the default
            mixture.learnt[:] = 0.0
            return {}
        return moved

    @classmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        claimed = [
            model.rvs_to_values[rv]
            for mixture, block in cls._mixtures_in(model)
            for rv in cls._taken(mixture, block)
        ]
        if not claimed:
            raise ValueError(f"{cls.__name__} {cls._needs}")
        return claimed

    @classmethod
    def _wants(cls, var: Variable) -> bool:
        model = model_of(var)
        if model is None or not any(is_labels(rv) for rv in model.free_RVs):
            return False
        return any(var in cls._taken(*found) for found in cls._mixtures_in(model))

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step can move the variable."""
        return Competence.COMPATIBLE if MixtureStep._wants(var) else Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[ProgressColumn], dict[str, list[float]]]:
        columns: list[ProgressColumn] = [
            TextColumn("{task.fields[n_clusters]:d}", table_column=Column("Clusters", ratio=1)),
            TextColumn("{task.fields[labels_moved]:0.2f}", table_column=Column("Labels moved", ratio=1)),
        ]
        return columns, {"n_clusters": [0] * n_chains, "labels_moved": [0.0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Any]:
        def update(stats: dict[str, Any]) -> dict[str, Any]:
            return {"n_clusters": stats["n_clusters"], "labels_moved": stats["labels_moved"]}

        return (update,)
