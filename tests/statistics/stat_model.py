"""What a model must bring to calibration and joint distribution tests."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pymc as pm

State = dict[str, Any]


class StatModel:
    """Base: draws of the joint law, functionals, and what subclasses fill in."""

    parameter_names: ClassVar[tuple[str, ...]]
    record_names: ClassVar[tuple[str, ...]]
    parameters_in_query: ClassVar[bool] = False
    # Short chains of a joint distribution test, and their transitions. These are enough for planted faults in
    # test_power.py, with p-values of 1e-12 and less; models whose faults are seen less well have more.
    replicates: ClassVar[int] = 1500
    transitions: ClassVar[int] = 2

    def __init__(self, epsilon: float):
        self.epsilon = epsilon

    def __repr__(self) -> str:
        return f"{type(self).__name__}-eps{self.epsilon:g}"

    # -- to fill in -------------------------------------------------------------------------------

    def draw_model(self, rng: np.random.Generator) -> State:
        """Parameters and records from their joint prior."""
        raise NotImplementedError

    def query(self, state: State) -> dict[str, tuple[np.ndarray, str, float]]:
        """Of every release: exact query, kind of noise, its scale."""
        raise NotImplementedError

    def build(self, release: State) -> pm.Model:
        """The same model in PyMC, with the release observed."""
        raise NotImplementedError

    def gibbs(self, state: State, rng: np.random.Generator) -> State:
        """A kernel for the parameters that leaves their law given the records invariant."""
        raise NotImplementedError

    # -- common -----------------------------------------------------------------------------------

    def redraw_release(self, state: State, rng: np.random.Generator) -> State:
        """State with a fresh release of its records."""
        state = dict(state)
        for name, (query, noise, scale) in self.query(state).items():
            draw = rng.laplace if noise == "laplace" else rng.normal
            state[name] = query + draw(0, scale, np.shape(query))
        return state

    def draw_prior(self, rng: np.random.Generator) -> State:
        """Parameters, records and release from their joint law."""
        return self.redraw_release(self.draw_model(rng), rng)

    def parameters(self, state: State) -> np.ndarray:
        return np.concatenate([np.ravel(state[name]) for name in self.parameter_names])

    def _first_records(self, state: State) -> np.ndarray:
        return np.concatenate([np.ravel(state[name][0]) for name in self.record_names])

    def _mean_records(self, state: State) -> np.ndarray:
        return np.array([np.mean(state[name]) for name in self.record_names])

    def _noise(self, state: State) -> np.ndarray:
        """Mean absolute noise of every release, in units of its scale."""
        return np.array(
            [np.mean(np.abs(state[k] - q)) / scale for k, (q, _, scale) in self.query(state).items()]
        )

    def _cross(self, state: State) -> np.ndarray:
        """Products of the first parameter with each release's mean, both bounded."""
        first = np.tanh(self.parameters(state)[0])
        return np.array([first * np.tanh(np.mean(state[k])) for k in self.query(state)])

    def functionals(self, state: State) -> np.ndarray:
        """What the joint distribution tests compare."""
        v, x, m = self.parameters(state), self._first_records(state), self._mean_records(state)
        return np.concatenate([v, v**2, x, x**2, m, v[0] * m, self._noise(state), self._cross(state)])

    @property
    def functional_names(self) -> list[str]:
        state = self.draw_prior(np.random.default_rng(0))
        v = [f"par{j}" for j in range(self.parameters(state).size)]
        x = [f"rec{j}" for j in range(self._first_records(state).size)]
        m = [f"mean_{name}" for name in self.record_names]
        z = list(self.query(state))
        return [
            *v, *(f"{a}^2" for a in v), *x, *(f"{a}^2" for a in x), *m, *(f"par0*{a}" for a in m),
            *(f"noise_{a}" for a in z), *(f"par0*{a}" for a in z),
        ]  # fmt: skip

    def quantities(self, state: State) -> np.ndarray:
        """What calibration ranks: parameters, mean records, noise (which needs the data)."""
        return np.concatenate([self.parameters(state), self._mean_records(state), self._noise(state)])

    @property
    def quantity_names(self) -> list[str]:
        state = self.draw_prior(np.random.default_rng(0))
        return [
            *(f"par{j}" for j in range(self.parameters(state).size)),
            *(f"mean_{name}" for name in self.record_names),
            *(f"noise_{name}" for name in self.query(state)),
        ]
