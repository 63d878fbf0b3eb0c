"""Releases that were clipped, rounded and suppressed after the noise, for calibration and joint tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from tests.statistics.models import normal_mean
from tests.statistics.stat_model import StatModel


class Processed(StatModel):
    """Base: what is published of noisy values; suppressed entries are minus infinity."""

    published: Callable[[np.ndarray], np.ndarray]

    def _noise(self, state):
        """Published values beside queries, bounded: a suppressed one counts as -1, which no other is."""
        return np.array([np.mean(np.tanh((state[k] - q) / s)) for k, (q, _, s) in self.query(state).items()])


class ProcessedCounts(Processed):
    """Poisson counts, each with discrete Laplace noise; none below zero, only even ones, only from 2 on."""

    parameter_names = ("rate",)
    record_names = ("k",)
    n = 8

    def draw_model(self, rng):
        rate = rng.gamma(3, 1 / 1.2)
        return {"rate": rate, "k": rng.poisson(rate, self.n)}

    def query(self, state):
        return {"z": (state["k"].astype(float), "discrete laplace", 4 / self.epsilon)}

    def redraw_release(self, state, rng):
        q, _, scale = self.query(state)["z"]
        ups = rng.geometric(-np.expm1(-1 / scale), (2, self.n))
        z = np.maximum(q + ups[0] - ups[1], 0)
        y = 2 * np.rint(z / 2)
        return {**state, "z": np.where(y < 2, -np.inf, y)}

    def build(self, release):
        with pm.Model() as model:
            rate = pm.Gamma("rate", 3, 1.2)
            k = pm.Poisson("k", rate, shape=self.n)
            z = np.where(np.isneginf(release["z"]), np.nan, release["z"])
            observed = dp.postprocessed(z, clip=(0, None), round_to=2, suppress_below=2)
            noise = {"scale": 4 / self.epsilon, "sensitivity": 4}
            dp.DiscreteLaplaceMechanism("z", k, **noise, observed=observed)
        return model

    def gibbs(self, state, rng):
        return {**state, "rate": rng.gamma(3 + state["k"].sum(), 1 / (1.2 + self.n))}


class ProcessedSums(Processed):
    """A normal mean; two sums with Gaussian noise, suppressed first and then clipped."""

    parameter_names = ("mu",)
    record_names = ("x",)
    n = 9

    def draw_model(self, rng):
        mu = rng.normal(0.4, 1)
        return {"mu": mu, "x": rng.normal(mu, 1.0, self.n)}

    def query(self, state):
        t = np.stack([np.clip(state["x"], -2, 2), np.clip(state["x"], 0, 2)])
        return {"s": (t.sum(1), "gaussian", 6 / self.epsilon)}

    def redraw_release(self, state, rng):
        q, _, sigma = self.query(state)["s"]
        z = rng.normal(q, sigma)
        return {**state, "s": np.where(z < -3, -np.inf, np.clip(z, -2, 9))}

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0.4, 1)
            x = pm.Normal("x", mu, 1, shape=self.n)
            query = dp.record_sum(pt.stack([x, x], axis=1))
            observed = dp.postprocessed(
                release["s"], suppress_below=-3, clip=(-2, 9), order=("suppress_below", "clip")
            )
            bounds = ((-2.0, 0.0), (2.0, 2.0))
            dp.GaussianMechanism("s", query, sigma=6 / self.epsilon, bounds=bounds, observed=observed)
        return model

    def gibbs(self, state, rng):
        return {**state, "mu": normal_mean(rng, state["x"].sum(), self.n, 1.0, 0.4)}


PROCESSED_MODELS = (ProcessedCounts, ProcessedSums)
