"""Drive step methods as plain transition kernels, without `pm.sample` and without compiling again.

Steps are built once per model; between calls only the release and the point change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.sampling import mcmc

import pymc_dp as dp
from pymc_dp.query.records import is_release
from pymc_dp.step_methods.record_step import RecordStep
from tests.statistics import harness
from tests.statistics.stat_model import State, StatModel


def _simplex_forward(x):
    return np.log(x[..., :-1]) - np.log(x).mean(-1, keepdims=True)


def _simplex_backward(v):
    v = np.concatenate([v, -v.sum(-1, keepdims=True)], axis=-1)
    e = np.exp(v - v.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _tiny(x):
    """Keep exact zeros, which simulators reach by underflow, inside the support."""
    return np.maximum(x, 1e-300)


# Written here once more, rather than compiled from PyMC, so that the tests do not share its code.
TRANSFORMS: dict[str | None, tuple[Callable, Callable]] = {
    None: (lambda x: x, lambda v: v),
    "log": (lambda x: np.log(_tiny(x)), np.exp),
    "logodds": (
        lambda x: np.log(_tiny(x)) - np.log(_tiny(1 - x)),
        lambda v: 1 / (1 + np.exp(-v)),
    ),
    "simplex": (lambda x: _simplex_forward(_tiny(x)), _simplex_backward),
}


class PointMap:
    """Between a state of natural values and PyMC's point of value variables."""

    def __init__(self, model: pm.Model):
        default = model.initial_point()
        self.entries = []
        for rv in model.free_RVs:
            transform = model.rvs_to_transforms[rv]
            value = model.rvs_to_values[rv].name
            name = None if transform is None else transform.name
            self.entries.append((rv.name, value, *TRANSFORMS[name], default[value]))

    def to_point(self, state: State) -> dict[str, np.ndarray]:
        return {
            value: np.asarray(forward(np.asarray(state[name])), dtype=like.dtype).reshape(like.shape)
            for name, value, forward, _, like in self.entries
        }

    def update(self, state: State, point: dict[str, np.ndarray]) -> State:
        moved = {name: backward(point[value]) for name, value, _, backward, _ in self.entries}
        return {**state, **moved}


class Shared:
    """A test model that declares one PyMC model: steps share what is compiled while one of them lives."""

    def __init__(self, model: StatModel):
        self.model, self.declared = model, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def build(self, release: State) -> pm.Model:
        """Return the model, which was declared with the first release that there was."""
        self.declared = self.declared or self.model.build(release)
        return self.declared


class StepKernel:
    """A transition kernel made of step methods, optionally after the model's own Gibbs update.

    Steps are tuned on one draw of the joint law and then frozen: the kernel does not depend on
    the states it is tested on.
    """

    def __init__(
        self,
        model: StatModel | Shared,
        make_steps: Callable[[pm.Model], Sequence[Any]],
        *,
        gibbs: bool,
        tune: int = 300,
        seed: int = 0,
    ):
        self.model, self.gibbs = model, gibbs
        rng = np.random.default_rng(seed)
        state = model.draw_prior(rng)
        self.names, self.observed = tuple(model.query(state)), {}
        self.pymc = model.build(state)
        with self.pymc:
            self.steps = list(make_steps(self.pymc))
        self.map = PointMap(self.pymc)
        for step, stream in zip(self.steps, rng.spawn(len(self.steps)), strict=True):
            step.setup_chain(stream, tune, 10**6)
            step.checked_at = []  # releases are not the model's own here, nor is what it says of a point
        for _ in range(tune):
            state = self.transition(state, rng)
        for step in self.steps:
            if hasattr(step, "stop_tuning"):
                step.stop_tuning()

    def transition(self, state: State, rng: np.random.Generator) -> State:
        if self.gibbs:  # first, so that the state shows what the steps did to the parameters
            state = self.model.gibbs(state, rng)
        observed = {name: state[name] for name in self.names}
        if any(value is not self.observed.get(name) for name, value in observed.items()):
            for step in self.steps:
                self._observe(step, observed)
            self.observed = observed  # along a chain it stays as it is
        point = self.map.to_point(state)
        for step in self.steps:
            point, _ = step.step(point)
        return self.map.update(state, point)

    def _observe(self, step: Any, observed: State) -> None:
        """Put releases and public outcomes into the step's data vector: nothing is compiled again."""
        releases = {rv.name for rv in self.pymc.observed_RVs if is_release(rv)}
        if isinstance(step, dp.TableImputation):  # which reads the data of the model anew
            for name, value in observed.items():
                self.pymc[f"{name} as released"].set_value(value)
            return
        if not isinstance(step, RecordStep):  # of parameters given records, to which a release adds nothing
            assert set(observed) == releases and not self.model.parameters_in_query
            return
        for chain in step.chains:
            chain.program.set_release(observed)
            of_records = {release.name for release in chain.program.block.releases}
            for name in set(observed) - of_records:
                chain.program.data.override(self.pymc.rvs_to_values[self.pymc[name]], observed[name])
            chain.refresh_data()

    def sample(self, state: State, draws: int, thin: int, rng: np.random.Generator) -> np.ndarray:
        """Quantities (draws, k) along a chain that starts at `state` and keeps its release."""
        out = []
        for _ in range(draws):
            for _ in range(thin):
                state = self.transition(state, rng)
            out.append(self.model.quantities(state))
        return np.asarray(out)

    def short_chains(
        self, *, seed: int, alpha: float, replicates: int | None = None, transitions: int | None = None
    ) -> harness.Verdict:
        """Compare the joint law after a few transitions with that of the simulator.

        As many chains and transitions as the model asks for, if not given.
        """
        return harness.geweke_replicated(
            self.model.draw_prior,
            self.transition,
            None,
            self.model.functionals,
            replicates=replicates or self.model.replicates,
            transitions=transitions or self.model.transitions,
            names=self.model.functional_names,
            seed=seed,
            alpha=alpha,
        )


def records_and_nuts(model: pm.Model) -> list[Any]:
    """Steps of ``pm.sample(step=[dp.RecordImputation()])``: NUTS for all parameters."""
    steps = mcmc.instantiate_steppers(model, *mcmc.assign_step_methods(model, [dp.RecordImputation()]))
    assert [type(s) for s in steps] == [dp.RecordImputation, pm.NUTS]
    return steps


def records_too(model: pm.Model, **options: Any) -> list[Any]:
    """The ancillary update with the records among its variables, as ``pm.sample`` makes it."""
    records, parameters = dp.RecordImputation._claimable(model), dp.AncillaryUpdate._claimable(model)
    return [dp.AncillaryUpdate([*parameters, *records], **options)]


def record_sweeps(
    step: Any, model: pm.Model, records: str, draws: int, seed: int = 3
) -> tuple[np.ndarray, float]:
    """Records along a chain of one step (draws, ...), and the lowest acceptance of any."""
    step.setup_chain(np.random.default_rng(seed), 0, draws)
    point, seen, lowest = model.initial_point(), [], 1.0
    for _ in range(draws):
        point, (stats,) = step.step(point)
        seen.append(point[records])
        lowest = min(lowest, stats["record_acceptance_min"])
    return np.array(seen), lowest
