"""Imputation of confidential records beside any other step for the parameters."""

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Literal

import numpy as np
from pymc.model.core import Model, modelcontext
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_value_vars_from_user_vars
from pytensor.graph.basic import Variable
from rich.progress import ProgressColumn, TextColumn
from rich.table import Column

from pymc_dp.records import RecordBlock
from pymc_dp.step_methods import kernels
from pymc_dp.step_methods.discovery import (
    blocks_with,
    dispersed_start,
    model_of,
    record_blocks,
)
from pymc_dp.step_methods.fused import FusedSweep
from pymc_dp.step_methods.moves import lowered


@dataclass_state
class RecordImputationState(StepMethodState):
    """What a chain needs to be continued."""

    tune: bool
    started: bool
    n_steps: int


# Local records from which a sweep is worth several threads, and the parts it is then split into.
PARALLEL_FROM = 200_000
N_PARTS = 8


class RecordChain:
    """One block of records with its lowered functions, moves and work arrays.

    Not a step itself: :class:`RecordImputation` runs one for each block, and the ancillary update runs them
    between its own moves.
    """

    def __init__(self, model: Model, block: RecordBlock, proposals: str, initial_point: dict[str, Any]):
        self.program, self.moves = lowered(model, block, proposals, initial_point)
        self._sizes = [move.sizes for move in self.moves]
        self._addresses = [move.addresses for move in self.moves]
        self.x = np.zeros((self.program.n, self.program.records.width))
        self.totals = np.zeros(self.program.n_statistics)
        self.data = self.program.data.gather()

    def refresh_data(self) -> None:
        """Read releases and covariates again (``pm.set_data`` may have changed them)."""
        self.data = self.program.data.gather()

    def native(self, which: int) -> tuple[np.ndarray, np.ndarray]:
        """Sizes and addresses of a move, for :func:`kernels.sweep`."""
        return self._sizes[which], self._addresses[which]

    def draw(self, rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        """Draw all records from their law given the parameters, ignoring the releases."""
        self._sweep(rng, theta, self.x, 0, 1, prior_only=True)
        return self.x

    def sweep(
        self, rng: np.random.Generator, theta: np.ndarray, x: np.ndarray, which: int, n_sweeps: int = 1
    ) -> np.ndarray:
        """Sweep ``x`` in place with one of the moves; return sum, minimum, count of acceptances."""
        return self._sweep(rng, theta, x, which, n_sweeps, prior_only=False)

    def _sweep(
        self, rng: Any, theta: np.ndarray, x: np.ndarray, which: int, n_sweeps: int, prior_only: bool
    ) -> np.ndarray:
        if self.data.size != self.program.data.size:  # a function lowered later reads more data
            self.refresh_data()
        fused = self.moves[which].fused
        if fused is not None and not self.program.n_statistics and self.program.n >= PARALLEL_FROM:
            return self._sweep_in_parts(rng, fused, theta, x, n_sweeps, prior_only)
        tally = np.array([0.0, 1.0, 0.0])
        kernels.sweep(
            rng, n_sweeps, int(prior_only), *self.native(which), theta, self.data, x, self.totals, tally
        )  # fmt: skip
        return tally

    def _sweep_in_parts(
        self, rng: Any, fused: FusedSweep, theta: np.ndarray, x: np.ndarray, n_sweeps: int, prior_only: bool
    ) -> np.ndarray:
        """Sweep over local records on several cores.

        The number of parts is fixed and each has its own generator, so that draws do not depend on how many
        cores there are.
        """
        constants, columns = np.empty(fused.n_constants), np.empty((fused.n_columns, len(x)))
        kernels.hoist(fused.hoist.address, theta, self.data, constants, columns)
        ends = np.linspace(0, len(x), N_PARTS + 1).astype(int)
        seeds = rng.integers(0, 2**63, size=(N_PARTS, 2))
        tallies = np.tile([0.0, 1.0, 0.0], (N_PARTS, 1))

        def run(k: int) -> None:
            rows = slice(ends[k], ends[k + 1])
            kernels.sweep_part(
                np.random.Generator(np.random.PCG64(seeds[k])), fused.rows.address, n_sweeps, int(prior_only),
                theta, self.data, constants, np.ascontiguousarray(columns[:, rows]), x[rows], tallies[k],
            )  # fmt: skip

        with ThreadPoolExecutor() as pool:
            list(pool.map(run, range(N_PARTS)))
        return np.array([tallies[:, 0].sum(), tallies[:, 1].min(), tallies[:, 2].sum()])


class RecordImputation(BlockedStep):
    r"""Metropolis-within-Gibbs update of confidential records given their releases.

    For every record in turn a new value is proposed from the model, :math:`x_i^* \sim f(\cdot\mid\theta)`,
    and accepted with probability

    .. math:: \min\left\{1, \frac{q(s\mid x_1, \dots, x_i^*, \dots, x_n)}{q(s\mid x)}
              \cdot\frac{\text{other terms at } x_i^*}{\text{other terms at } x_i}\right\}.

    Under pure differential privacy, when nothing else in the model depends on the record, that is at least
    :math:`e^{-\epsilon}`. Records that are released themselves (local privacy) with a budget above 3 nats
    are drawn from their full conditional where it is closed, and otherwise proposed from the reversed
    channel in turn.

    ``pm.sample`` chooses this step by itself for the records behind observed mechanisms.

    Parameters
    ----------
    vars : list of variables, optional
        Record variables; all records of the model if left out.
    proposals : {"auto", "independence", "informed"}, default "auto"
        ``"independence"``: proposals from the model only. ``"informed"``: only proposals that look at the
        record's own release. ``"auto"``: an exact draw where there is one, otherwise both in turn.
    n_sweeps : int, default 1
        Sweeps over all records per draw.
    model : pymc.Model, optional
        Taken from the context if left out.
    rng : optional
        Seed or generator; PyMC sets one per chain.

    Raises
    ------
    ValueError
        If the model has no observed release, a query touches no record, records are not conditionally
        independent, or an argument is out of range.

    Notes
    -----
    One draw costs O(n d) for d statistics per record: about 60 ns per record and sweep for a central release
    of ten statistics of three variables, 20 to 40 ns for a local one. A query that is no sum over records
    costs O(n^2). ``sample_stats`` gets ``record_acceptance`` (mean acceptance probability of the draw) and
    ``record_acceptance_min`` (that of the worst record).

    References
    ----------
    Ju, Awan, Gong & Rao (2022), "Data Augmentation MCMC for Bayesian Inference from Privatized Data",
    algorithm 1 and proposition 3.1.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as dp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 2)
    ...     y = pm.Normal("y", mu, 1, shape=20)
    ...     z = dp.LaplaceMechanism("z", dp.record_sum(y), epsilon=1, bounds=(-3, 3), observed=8.0)
    ...     step = dp.RecordImputation()
    >>> [v.name for v in step.vars]
    ['y']
    """

    name = "record_imputation"
    default_blocked = True
    _state_class = RecordImputationState
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "record_acceptance": (np.float64, []),
        "record_acceptance_min": (np.float64, []),
    }

    def __new__(cls, vars: Any = None, *args: Any, model: Any = None, **kwargs: Any) -> Any:
        """Claim the variables when none were given."""
        model = modelcontext(model)
        return super().__new__(cls, _claim(vars, model), *args, model=model, **kwargs)

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        proposals: Literal["auto", "independence", "informed"] = "auto",
        n_sweeps: int = 1,
        model: Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        if proposals not in ("auto", "independence", "informed"):
            raise ValueError(f"`proposals` must be 'auto', 'independence' or 'informed', got {proposals!r}.")
        if not isinstance(n_sweeps, int | np.integer) or n_sweeps < 1:
            raise ValueError(f"`n_sweeps` must be a positive integer, got {n_sweeps!r}.")
        self.model = modelcontext(model)
        self.vars = _claim(vars, self.model)
        self.proposals, self.n_sweeps = proposals, int(n_sweeps)
        self._default_point = self.model.initial_point()
        self._initial_point = self._default_point if initial_point is None else initial_point
        self.tune, self.started, self.n_steps = True, False, 0
        self.rng = np.random.default_rng(rng)
        self._build()

        for chain in self._chains:
            _warn_general(chain.program.block)

    def _build(self) -> None:
        self._chains = [
            RecordChain(self.model, block, self.proposals, self._default_point)
            for block in blocks_with(self.model, self.vars)
        ]

    def __getstate__(self) -> dict[str, Any]:
        # machine code belongs to one process: a worker lowers the model again, from the disk cache
        return {k: v for k, v in self.__dict__.items() if k != "_chains"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._build()

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Prepare for a new chain: forget what the last one learnt, read the data again."""
        super().setup_chain(rng, tune, draws)
        self.started, self.n_steps, self.tune = False, 0, tune > 0
        for chain in self._chains:
            chain.refresh_data()

    def set_release(self, values: dict[str, Any]) -> None:
        """Use other release values of the same shapes, without compiling anything again.

        Parameters
        ----------
        values : dict
            Release name to value.
        """
        for chain in self._chains:
            chain.program.set_release(values)
            chain.refresh_data()

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Sweep over all records once (``n_sweeps`` times)."""
        point = dict(point)
        if not self.started:
            for chain in self._chains:
                chain.refresh_data()
            point.update(
                dispersed_start(
                    self._chains, point, self._default_point, self._initial_point, self.tune, self.rng
                )
            )
            self.started = True
        tallies, sizes = [], 0
        for chain in self._chains:
            program = chain.program
            theta = program.parameters.flatten(point)
            program.records.pack(point, out=chain.x)
            which = self.n_steps % len(chain.moves)
            tallies.append(chain.sweep(self.rng, theta, chain.x, which, self.n_sweeps))
            sizes += program.n * self.n_sweeps
            point.update(program.records.unpack(chain.x))
        self.n_steps += 1
        total = np.array(tallies)
        stats = {
            "record_acceptance": total[:, 0].sum() / sizes,
            "record_acceptance_min": total[:, 1].min(),
        }
        return point, [stats]

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Answer PyMC: whether this step wants the variable."""
        model = model_of(var)
        if model is None:
            return Competence.INCOMPATIBLE
        records = {rv for block in record_blocks(model) for rv in block.records}
        return Competence.IDEAL if var in records else Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[ProgressColumn], dict[str, list[float]]]:
        columns: list[ProgressColumn] = [
            TextColumn("{task.fields[record_acceptance]:0.2f}", table_column=Column("Record accept", ratio=1))
        ]
        return columns, {"record_acceptance": [0.0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Any]:
        def update(stats: dict[str, Any]) -> dict[str, Any]:
            return {"record_acceptance": stats["record_acceptance"]}

        return (update,)


def _claim(vars: Any, model: Model) -> list[Variable]:
    """Return the value variables of the given records, or of all records of the model."""
    if vars is None:
        claimed = [model.rvs_to_values[rv] for block in record_blocks(model) for rv in block.records]
        if not claimed:
            raise ValueError(
                "This model has no confidential records: declare what was released with a mechanism, for "
                "example dp.LaplaceMechanism('z', query, ..., observed=value)."
            )
        return claimed
    return get_value_vars_from_user_vars(vars if isinstance(vars, list | tuple) else [vars], model)


def _warn_general(block: RecordBlock) -> None:
    """Say which queries cost O(n) per record, and how to write them."""
    for release in block.releases:
        if release.kind == "general":
            warnings.warn(
                f"The query of {release.name} is no sum over records, so each record costs a pass over all "
                f"{block.n}. If it is a sum, write it as dp.record_sum(t), row i of t being what record i "
                "contributes.",
                UserWarning,
                stacklevel=4,
            )
