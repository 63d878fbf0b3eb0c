"""What the step methods share: one block of records as a chain sees it, and the life of a step."""

from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from pymc.model.core import Model, modelcontext
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_value_vars_from_user_vars
from pytensor.graph.basic import Variable

from pymc_dp.lowering.addresses.native import compile_lowered, generator_handle
from pymc_dp.lowering.compiling.building import building, told_if_long
from pymc_dp.propriety import refuse_improper, refuse_runaway
from pymc_dp.query.records import RecordBlock, is_release
from pymc_dp.step_methods.discovery import record_blocks, table_blocks
from pymc_dp.step_methods.lengths import with_known_lengths
from pymc_dp.step_methods.model_density import impossible_terms, is_possible, is_possible_but_for
from pymc_dp.step_methods.near_ends import EVERY, FarCuts, NearEnds, watched
from pymc_dp.step_methods.release_values import check_releases
from pymc_dp.step_methods.slots import check_slots, refuse_beyond
from pymc_dp.step_methods.starts import SHARES, DispersedStart, set_by_the_model
from pymc_dp.step_methods.sweeps import kernels
from pymc_dp.step_methods.sweeps.fused import TRIES
from pymc_dp.step_methods.sweeps.moves import lowered

# Draws of tuning in which a precise release gains its full weight.
MAX_TEMPERED = 60
# Where that begins if the budget is not known.
_FIRST_POWER = 0.02
# Local records from which a sweep is worth several threads, and the parts it is then split into.
PARALLEL_FROM = 200_000
N_PARTS = 8
# Sweeps in which records that were drawn without a look at other terms may find to where these are possible.
_SETTLING = 20


def check_positive(name: str, value: Any, or_none: bool = False) -> None:
    """Refuse what is no positive integer."""
    if value is None and or_none:
        return
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and value >= 1):
        raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")


class RecordChain:
    """One block of records with its lowered functions, moves and work arrays.

    Not a step itself: :class:`RecordImputation` runs one for each block, and the ancillary update runs them
    between its own moves.
    """

    def __init__(self, model: Model, block: RecordBlock, proposals: str, initial_point: dict[str, Any]):
        self.program, self.moves = lowered(model, block, proposals, initial_point)
        self._sizes = [move.sizes for move in self.moves]
        self.x = self.program.first_records.copy()
        self.totals = np.zeros(self.program.n_statistics)
        self.data = self.program.data.gather()
        guarantees = [r.rv.owner.op.guarantee for r in self.program.of_kind("central", "function")]  # type: ignore[union-attr]
        spent = sum(1 / _FIRST_POWER if g is None else g.epsilon for g in guarantees)
        self.first_power = float(np.clip(1 / max(spent, 1.0), _FIRST_POWER, 1.0))
        self._rng: np.random.Generator | None = None
        kernels.run_sweep.ready()
        if any(move.fused is None for move in self.moves):
            kernels.vectorised_sweep.ready()
        self._handle: tuple[int, ...] = ()

    def refresh_data(self) -> None:
        """Read releases and covariates again (``pm.set_data`` may have changed them)."""
        self.data = self.program.data.gather()

    def native(self, which: int) -> tuple[np.ndarray, np.ndarray]:
        """Sizes and addresses of a move, for :func:`kernels.sweep`."""
        return self._sizes[which], self.moves[which].addresses

    def temper(self, power: float) -> None:
        """Raise the density of the central releases to a power from now on."""
        self.data[self.program.temper_at] = power

    def handle(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Addresses behind a generator, as native code takes it."""
        if rng is not self._rng:
            self._rng, self._handle = rng, generator_handle(rng)
        return self._handle

    def draw(self, rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        """Draw all records from their law given the parameters, ignoring the releases.

        Fused sweeps draw a record again where it is too large for a number; for others that is done here,
        since no sweep could move it: with an infinite total every ratio is no number. So are records that
        leave others without a law.
        """
        self.x[:] = self.program.first_records
        self._sweep(rng, theta, self.x, 0, 1, prior_only=True)
        for _ in range(TRIES if self.moves[0].fused is None else 0):
            lost = self._lost(theta)
            if not lost.any():
                break
            again = self.program.first_records.copy()
            self._sweep(rng, theta, again, 0, 1, prior_only=True)
            self.x[lost] = again[lost]
        return self.x

    def _lost(self, theta: np.ndarray) -> np.ndarray:
        """Which records are no numbers, contribute none to the queries, or leave a variable without a law."""
        t, w = np.empty((self.program.n, self.program.n_statistics)), np.empty(self.program.n)
        self.program.contribute.dispatcher(theta, self.data, self.x, t, w)
        return ~(np.isfinite(self.x).all(axis=1) & np.isfinite(t).all(axis=1) & (w > -np.inf))

    def sweep(
        self, rng: np.random.Generator, theta: np.ndarray, x: np.ndarray, which: int, n_sweeps: int = 1
    ) -> np.ndarray:
        """Sweep ``x`` in place with one move; return the acceptances and the lowest probability of one."""
        return self._sweep(rng, theta, x, which, n_sweeps, prior_only=False)

    def _sweep(
        self, rng: Any, theta: np.ndarray, x: np.ndarray, which: int, n_sweeps: int, prior_only: bool
    ) -> np.ndarray:
        if self.data.size != self.program.data.size:  # a function lowered later reads more data
            self.refresh_data()
        fused = self.moves[which].fused
        if fused is not None and not self.program.n_statistics and self.program.n >= PARALLEL_FROM:
            return self._sweep_in_parts(rng, fused, theta, x, n_sweeps, prior_only)
        tally = np.array([0.0, 1.0])
        kernels.run_sweep(
            self.handle(rng), n_sweeps, int(prior_only), *self.native(which),
            theta, self.data, x, self.totals, tally,
        )  # fmt: skip
        return tally

    def _sweep_in_parts(
        self, rng: Any, fused: Any, theta: np.ndarray, x: np.ndarray, n_sweeps: int, prior_only: bool
    ) -> np.ndarray:
        """Sweep over local records on several cores.

        The number of parts is fixed and each has its own generator, so that draws do not depend on how many
        cores there are.
        """
        constants, columns = np.empty(fused.n_constants), np.empty((fused.n_columns, len(x)))
        kernels.hoist(fused.hoist.address, theta, self.data, constants, columns)
        ends = np.linspace(0, len(x), N_PARTS + 1).astype(int)
        seeds = rng.integers(0, 2**63, size=(N_PARTS, 2))
        tallies, address = np.tile([0.0, 1.0], (N_PARTS, 1)), fused.rows.address

        def run(k: int) -> None:
            rows = slice(ends[k], ends[k + 1])
            part = np.random.Generator(np.random.PCG64(seeds[k]))
            kernels.sweep_part(
                generator_handle(part), address, n_sweeps, int(prior_only),
                theta, self.data, constants, np.ascontiguousarray(columns[:, rows]), x[rows], tallies[k],
            )  # fmt: skip

        with ThreadPoolExecutor() as pool:
            list(pool.map(run, range(N_PARTS)))
        return np.array([tallies[:, 0].sum(), tallies[:, 1].min()])


@dataclass_state
class RecordStepState(StepMethodState):
    """What a chain needs to be continued."""

    tune: bool
    started: bool
    n_steps: int
    n_tempered: int
    checked_at: list[int]


class RecordStep(BlockedStep):
    """A step that moves confidential records, alone or with parameters.

    Subclasses say which variables they take (:meth:`_claimable`) and lower the model in :meth:`_build`,
    which fills :attr:`chains`.
    """

    default_blocked = True
    _state_class = RecordStepState
    # what _build makes: machine code, which belongs to one process
    _lowered: tuple[str, ...] = ("chains",)
    chains: list[RecordChain]
    model: Model

    def __new__(cls, vars: Any = None, *args: Any, model: Any = None, **kwargs: Any) -> Any:
        """Claim the variables when none were given."""
        model = modelcontext(model)
        return super().__new__(cls, cls._claim(vars, model), *args, model=model, **kwargs)

    @classmethod
    @abstractmethod
    def _claimable(cls, model: Model) -> list[Variable]:
        """Return the value variables that the step takes when none are named; raise if there are none."""

    @classmethod
    def _claim(cls, vars: Any, model: Model) -> list[Variable]:
        if vars is None:
            return cls._claimable(model)
        return get_value_vars_from_user_vars(vars if isinstance(vars, list | tuple) else [vars], model)

    @abstractmethod
    def _build(self) -> None:
        """Lower the model."""

    def _moved(self) -> set[str]:
        """Return the names of the value variables that a draw changes, once the model is lowered."""
        return {name for chain in self.chains for name in chain.program.records.names}

    def _check_moved(self) -> None:
        """Refuse variables that the step was given and does not move: no other step would get them."""
        moved = self._moved()
        left = [str(self.model.values_to_rvs[v].name) for v in self.vars if v.name not in moved]
        if left:
            raise ValueError(
                f"{', '.join(left)} in `vars`: {type(self).__name__} does not move what is named here, and "
                "no other step would, so that it would keep its starting value. Take it out of `vars`, or "
                "leave the step out where nothing else is in them: pm.sample chooses steps for all variables "
                "that no given step takes."
            )

    @building()
    def _prepare(self, vars: Any, model: Any, rng: Any, initial_point: dict[str, Any] | None) -> None:
        self.model = modelcontext(model)
        self.vars = self._claim(vars, self.model)
        self._default_point = self.model.initial_point()
        self._initial_point = self._default_point if initial_point is None else initial_point
        self.rng = np.random.default_rng(rng)
        self.tune, self.started, self.n_steps, self.n_tempered = True, False, 0, 0
        self.checked_at: list[int] = []
        self._near: list[NearEnds | FarCuts] = []
        refuse_improper(self.model)
        check_releases(self.model)
        for block in record_blocks(self.model):
            check_slots(self.model, block, self._initial_point)
        with told_if_long():
            self._build()
            self._check_moved()
            compile_lowered()  # here, once, and not by every chain in a process of its own

    def _sized(self) -> tuple[Model, list[Variable]]:
        """Return the model with known lengths, and the random variables in it that the step moves."""
        model = with_known_lengths(self.model)
        return model, [model.named_vars[self.model.values_to_rvs[v].name] for v in self.vars]

    def __getstate__(self) -> dict[str, Any]:
        # a worker lowers the model again, from the disk cache
        return {k: v for k, v in self.__dict__.items() if k not in self._lowered}

    @building()
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._build()

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Prepare for a new chain: forget what the last one learnt, read the data again."""
        super().setup_chain(rng, tune, draws)
        check_releases(self.model)  # data may have been set since the step was made
        self.started, self.n_steps, self.tune = False, 0, tune > 0
        self.n_tempered = min(MAX_TEMPERED, tune // 5)
        self.checked_at = [tune, tune + draws]
        self._near = self._watched()
        for chain in self.chains:
            chain.refresh_data()

    def _started(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return a copy of the point, dispersed at the first step of a chain."""
        point = dict(point)
        if not self.started:
            for chain in self.chains:
                chain.refresh_data()
        for chain in self.chains:
            chain.temper(self._power(chain))
        if not self.started:
            point = self._possible_start(point)
            self.started = True
        return point

    @building()
    def _possible_start(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the most dispersed starting point at which the model's density is not zero.

        A jittered start that the whole model allows is taken; otherwise its jitter is halved, and left out at
        last.
        """
        for values in self._starts(point):
            if isinstance(values, str):
                reason = values
                continue
            start, possible = self._settled({**point, **values})
            if possible:
                return start
            terms = impossible_terms(self.model, start, but=self._met_by_others)
            reason = f"the density of {terms} is zero, or no number, there" + self._of_releases(terms)
        raise ValueError(
            f"No chain can start at the starting values, with records drawn from their law: {reason}. Give "
            "starting values at which all terms of the model are possible (initval= of a variable, or "
            "initvals= of pm.sample)."
        )

    def _of_releases(self, terms: str) -> str:
        """Say what else to look at where a release among some terms has no density."""
        released = [str(rv.name) for rv in self.model.observed_RVs if is_release(rv)]
        named = ", ".join(name for name in released if name in terms.split(", "))
        if not named:
            return ""
        return (
            f" (where {named} holds values that its mechanism never releases, starting values do not help: "
            "see whether observed= and pm.set_data gave what was released)"
        )

    def _starts(self, point: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray] | str]:
        """Yield starting values, less and less dispersed, or why there are no records there."""
        start = DispersedStart(
            self.chains, point, self._default_point, self._initial_point, set_by_the_model(self.model),
            self.tune, self.rng,
        )  # fmt: skip
        for share in SHARES:
            yield start.at(share)

    def _settled(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], bool]:
        """Sweep over the records while the model's density is zero: they accept whatever is possible.

        Return where that leads, and whether the model has a density there.
        """
        point = dict(point)
        for sweep in range(_SETTLING):
            if self._may_start(point):
                return point, True
            for chain in (c for c in self.chains if c.moves):
                program = chain.program
                program.records.pack(point, out=chain.x)
                chain.sweep(self.rng, program.parameters.flatten(point), chain.x, sweep % len(chain.moves))
                point.update(program.records.unpack(chain.x))
        return point, self._may_start(point)

    def _may_start(self, point: dict[str, np.ndarray]) -> bool:
        """Whether the model has a density at a point, or will have one once other steps have started, too."""
        if is_possible(self.model, point):
            return True
        others = self._met_by_others
        return bool(others) and is_possible_but_for(self.model, point, others)

    @property
    def _met_by_others(self) -> list[str]:
        """Names of what is known exactly of counts that another step moves, which meets it at its start."""
        own, values = set(self.vars), self.model.rvs_to_values
        return [
            known.name
            for tables in table_blocks(self.model)
            if own.isdisjoint(values[rv] for rv in tables.variables)
            for known in tables.invariants
        ]

    def _checked(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the point of a draw; after tuning and at the last draw, only if the model allows it."""
        if not self.tune and self.n_steps % EVERY == 0:
            for near in self._near:
                near.look(point)
        for chain in self.chains:
            refuse_beyond(self.model, chain.program.block, point)
        if self.n_steps not in self.checked_at:
            return point
        if self.n_steps == self.checked_at[-1]:
            for near in self._near:
                near.say()
        refuse_runaway(self.model, point)
        if not (is_possible(self.model, point) or (self.n_steps == 1 and self._may_start(point))):
            raise ValueError(
                f"The chain stands where the density of {impossible_terms(self.model, point)} is zero, or no "
                f"number, after {self.n_steps} draws: its draws are no draws of the posterior. Please report "
                "this model; other starting values (initval=), or step=[...] with other steps for the "
                "parameters, may help."
            )
        return point

    def _watched(self) -> list[NearEnds | FarCuts]:
        """Return what looks for numbers of this step's where densities have no digits."""
        mine = [rv for rv in self.model.free_RVs if self.model.rvs_to_values[rv] in self.vars]
        return watched(self.model, mine, [rv for c in self.chains for rv in c.program.block.records])

    def _power(self, chain: RecordChain) -> float:
        """Power of the releases' density at this draw: 1 but at the beginning of tuning.

        A precise release given dispersed starting points can pull a chain into a local maximum that it does
        not leave; its noise is therefore taken for larger at first, as under an epsilon of 1.

        Sweeps over records and updates of parameters given records or noise have the same target then. What
        other steps move (a noise level that is a parameter), and tables of probabilities that move with
        their records, have the full density at all times, so that there is no common law yet. No draw that
        counts depends on it: this ends after a fifth of the tuning, or where tuning does, and a chain that
        is continued knows how far it was.
        """
        if not self.tune or self.n_steps >= self.n_tempered:
            return 1.0
        return float(chain.first_power ** (1 - self.n_steps / self.n_tempered))
