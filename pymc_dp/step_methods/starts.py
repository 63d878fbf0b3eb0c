"""Where a chain starts: parameters jittered, records drawn from their law there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pymc.model.core import Model

from pymc_dp.mixtures._arguments import check_start
from pymc_dp.mixtures.structure import is_labels
from pymc_dp.step_methods.block.layout import beyond_message

if TYPE_CHECKING:
    from pymc_dp.step_methods.record_step import RecordChain

# Shares of the jitter that are tried, one after the other: the last is the point that was given.
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.0)


def set_by_the_model(model: Model) -> set[str]:
    """Names of the value variables to which a model gives starting values of their own (``initval=``)."""
    return {
        str(model.rvs_to_values[rv].name)
        for rv, value in model.rvs_to_initial_values.items()
        if value is not None and not isinstance(value, str)
    }


def check_starting_labels(model: Model, initvals: Any) -> None:
    """Refuse ``initvals=``, of all chains or of each, whose labels are no slots of a mixture."""
    for rv in filter(is_labels, model.free_RVs):
        for given in [initvals] if isinstance(initvals, dict) else initvals or []:
            values = given or {}
            check_start(str(rv.name), values.get(rv.name, values.get(rv)), rv.owner.op.max_components)


class DispersedStart:
    """Starting values for the records, and for continuous parameters, that stand at the model's default.

    PyMC starts all chains of a mixed sampler at one point, without jitter. Where the records still stand
    there, parameters that nobody set are jittered by U(-1, 1) in value space, as PyMC does for NUTS alone
    (while tuning only), and the records are drawn from their law given the parameters.

    Parameters
    ----------
    chains : sequence of RecordChain
    point, default_point, initial_point : dict
        Where the chain stands, the model's default, and what the step was built with.
    kept : set of str
        Value variables that have starting values of their own.
    tune : bool
        Whether the chain tunes.
    rng : numpy.random.Generator
    """

    def __init__(
        self,
        chains: Sequence["RecordChain"],
        point: dict[str, np.ndarray],
        default_point: dict[str, np.ndarray],
        initial_point: dict[str, np.ndarray],
        kept: set[str],
        tune: bool,
        rng: np.random.Generator,
    ):
        self._point, self._default, self._initial = point, default_point, initial_point
        self._kept, self._tune, self._rng = kept, tune, rng
        self._waiting = [c for c in chains if all(map(self._untouched, c.program.records.names))]
        self._jitter: dict[str, np.ndarray] = {}
        self._jittered: set[int] = set()

    def _untouched(self, name: str) -> bool:
        return name not in self._kept and np.array_equal(self._point[name], self._default[name])

    def at(self, share: float) -> dict[str, np.ndarray] | str:
        """Return values with a share of the jitter, or why there are no records there."""
        moved: dict[str, np.ndarray] = {}
        for k, chain in enumerate(self._waiting):
            program = chain.program
            if k not in self._jittered:
                self._jittered.add(k)
                self._draw_jitter(program.parameters.names)
            near = {
                name: np.asarray(start + share * self._jitter[name], dtype=np.asarray(start).dtype)
                for name, start in self._default.items()
                if name in self._jitter and name in program.parameters.names
            }
            theta = program.parameters.flatten({**self._point, **moved, **near})
            names = ", ".join(program.names)
            if not program.have_law(theta):
                return f"the records {names} have no law at the starting values of their parameters"
            drawn = chain.draw(self._rng, theta)
            if np.isnan(drawn).any():
                return f"the records {names} have no law at the starting values of their parameters"
            if program.records.beyond(drawn):
                return beyond_message(program.records.beyond(drawn))
            moved |= {**near, **program.records.unpack(drawn)}
        return moved

    def _draw_jitter(self, names: Sequence[str]) -> None:
        for name in names:
            start: Any = np.asarray(self._default[name])
            untouched = self._untouched(name) and np.array_equal(self._initial[name], start)
            if self._tune and name not in self._jitter and start.dtype.kind == "f" and untouched:
                self._jitter[name] = self._rng.uniform(-1, 1, size=start.shape)
