"""One chain in blocks: begun or continued, and read again, by the same way at the end of each block."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from pymc.model.core import BaseModel
from pymc.sampling import mcmc

from pymc_dp.runs.checkpoint import Checkpoint
from pymc_dp.runs.states import refuse_unknown
from pymc_dp.runs.steps import Begun

# Names of arrays: values of a variable, statistics of a step.
_SAMPLES, _STATS = "samples", "stats"


class Chain:
    """A chain that stops at the end of each block, and goes on from what was written then.

    What a step holds beside its state (numbers that it keeps between draws for speed) is forgotten at the end
    of a block, in a run that is never killed too: so it makes no difference whether it was.

    Parameters
    ----------
    model : BaseModel
    made : Begun
        Steps and starting points.
    chain, tune, draws, block : int
    trace_vars : list of variables or None
        What is kept of each draw.
    """

    def __init__(
        self, model: BaseModel, made: Begun, chain: int, tune: int, draws: int, block: int, trace_vars: Any
    ):
        self._step, self._made, self.chain = made.step, made, chain
        self._tune, self._draws, self._block = tune, draws, block
        refuse_unknown(made.state)
        _, traces = mcmc.init_traces(
            backend=None, chains=1, expected_length=tune + draws, step=made.step, model=model,
            trace_vars=trace_vars, initial_point=made.starts[0], tune=tune,
        )  # fmt: skip
        self.trace: Any = traces[0]
        self.trace.chain = chain

    def run(self, checkpoint: Checkpoint, told: Callable[[int], None] | None = None) -> None:
        """Go on to the end, and keep each block; `told` hears how many draws there are."""
        total = self._tune + self._draws
        kept = self.read(checkpoint)
        done = 0 if kept is None else int(kept["done"])
        while done < total:
            point = self._begin() if kept is None else self._resume(kept)
            last = min(total, (done // self._block + 1) * self._block)
            for draw in range(done, last):
                if draw == self._tune:
                    self._step.stop_tuning()
                point, stats = self._step.step(point)
                self.trace.record(point, stats, in_warmup=draw < self._tune)
                if told is not None:
                    told(1)
            state = {"state": self._step.sampling_state, "point": list(point.items())}
            arrays = {name: values[done:last] for name, values in self._arrays().items()}
            checkpoint.keep(self.chain, done, last, arrays, total, self._block, state, kept)
            kept, done = checkpoint.chain(self.chain), last

    def read(self, checkpoint: Checkpoint) -> dict[str, Any] | None:
        """Fill the trace with the draws that are kept, and return where the chain stands."""
        kept = checkpoint.chain(self.chain)
        if kept is not None:
            self._fill(checkpoint.draws(self.chain, kept), int(kept["done"]))
        return kept

    def _begin(self) -> dict[str, np.ndarray]:
        self._step.sampling_state = self._made.state
        self._step.setup_chain(self._generator(), self._tune, self._draws)
        self._step.tune = self._tune > 0
        for name, value in (("reset_tuning", None), ("iter_count", 0)):
            if hasattr(self._step, name):
                self._step.reset_tuning() if value is None else setattr(self._step, name, value)
        return self._made.starts[self.chain]

    def _resume(self, kept: dict[str, Any]) -> dict[str, np.ndarray]:
        self._step.setup_chain(self._generator(), self._tune, self._draws)
        self._step.sampling_state = kept["state"]
        return dict(kept["point"])

    def _generator(self) -> np.random.Generator:
        """Return the chain's generator as it was: setting up a chain draws from it, or makes others of it."""
        return copy.deepcopy(self._made.generators[self.chain])

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return what is recorded, by name; objects, such as warnings of NUTS, are not kept."""
        samples = {f"{_SAMPLES}/{name}": values for name, values in self.trace.samples.items()}
        stats = {
            f"{_STATS}/{k}/{name}": values
            for k, found in enumerate(self.trace._stats)
            for name, values in found.items()
            if values.dtype.kind != "O"
        }
        return {name.replace("/", "|"): values for name, values in {**samples, **stats}.items()}

    def _fill(self, arrays: dict[str, np.ndarray], done: int) -> None:
        for name, values in self._arrays().items():
            values[:done] = arrays[name]
        self.trace.draw_idx = done
