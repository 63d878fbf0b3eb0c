"""A hand-written data augmentation sampler of a normal mean, right or broken on purpose.

The independence sweep in a few lines of Python, with a conjugate update of the mean: what the
harness must pass, and, with one thing wrong in it, what it must reject.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass
class ToySampler:
    """n records N(mu, 1), mu ~ N(0, 1), release = sum + Laplace(scale)."""

    n: int = 8
    scale: float = 2.0
    ratio_power: float = 1.0  # 2: the log ratio doubled
    stale: bool = False  # the cached sum is not updated on acceptance

    def draw_prior(self, rng):
        mu = rng.normal()
        x = rng.normal(mu, 1.0, self.n)
        return self.redraw_release({"mu": mu, "x": x}, rng)

    def redraw_release(self, state, rng):
        return {**state, "s": state["x"].sum() + rng.laplace(0, self.scale)}

    def transition(self, state, rng):
        mu, x, s = state["mu"], state["x"].copy(), state["s"]
        total = x.sum()
        proposal = rng.normal(mu, 1.0, self.n)
        log_u = np.log(rng.random(self.n))
        for i in range(self.n):
            new = total - x[i] + proposal[i]
            if log_u[i] < self.ratio_power * (abs(s - total) - abs(s - new)) / self.scale:
                x[i] = proposal[i]
                total = total if self.stale else new
        mu = rng.normal(x.sum() / (self.n + 1), 1 / math.sqrt(self.n + 1))
        return {"mu": mu, "x": x, "s": s}

    def functionals(self, state):
        mu, x, s = state["mu"], state["x"], state["s"]
        total = x.sum()
        return np.array([mu, mu**2, x[0], x[0] ** 2, total**2, mu * s, abs(s - total)])

    names = ("mu", "mu2", "x0", "x02", "sum2", "mu*s", "noise")

    def quantities(self, state):
        total = state["x"].sum()
        return np.array([state["mu"], total, abs(state["s"] - total)])

    def run(self, s, draws, rng, start=None):
        """Draws (draws, 3) given the release `s`: mu, the records' sum, |release - sum|."""
        state = start or self.draw_prior(rng)
        state = {**state, "s": s}
        out = np.empty((draws, 3))
        for t in range(draws):
            state = self.transition(state, rng)
            out[t] = self.quantities(state)
        return out
