"""Areas with effects of their own, each behind sums over its own people, for tests of updates by group."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from tests.statistics.models import metropolis, normal_mean
from tests.statistics.stat_model import StatModel

__all__ = ["AreaCounts", "Areas", "by_group"]


def by_group(model):
    return [dp.AncillaryUpdate(update="by_group", n_cycles=1)]


def by_area(area, values, n):
    return pt.zeros(n)[area].inc(values)


class Areas(StatModel):
    """Normal answers with a mean and a scale of each area, around common ones that are not known."""

    parameter_names = ("m", "tau", "a", "log_s")
    record_names = ("y",)
    area = np.array([0, 1, 2, 0, 1, 2, 2, 0, 1, 2])
    n = 3

    def draw_model(self, rng):
        m, tau = rng.normal(0, 1), abs(rng.normal(0, 0.8))
        a, log_s = rng.normal(m, tau, self.n), rng.normal(-0.3, 0.3, self.n)
        y = rng.normal(a[self.area], np.exp(log_s)[self.area])
        return {"m": m, "tau": tau, "a": a, "log_s": log_s, "y": y}

    def query(self, state):
        clipped = np.clip(state["y"], -2, 2)
        sums = [np.bincount(self.area, t, self.n) for t in (clipped, clipped**2)]
        return {name: (t, "laplace", 8 / self.epsilon) for name, t in zip(("z", "w"), sums, strict=True)}

    def build(self, release):
        with pm.Model() as model:
            m, tau = pm.Normal("m", 0, 1), pm.HalfNormal("tau", 0.8)
            a, log_s = pm.Normal("a", m, tau, shape=self.n), pm.Normal("log_s", -0.3, 0.3, shape=self.n)
            y = dp.clamp(pm.Normal("y", a[self.area], pt.exp(log_s)[self.area]), -2, 2)
            for name, values in (("z", y), ("w", y**2)):
                query = by_area(self.area, values, self.n)
                dp.LaplaceMechanism(name, query, scale=8 / self.epsilon, observed=release[name])
        return model

    def gibbs(self, state, rng):
        y, m, tau, a, log_s = (np.copy(state[k]) for k in ("y", "m", "tau", "a", "log_s"))
        for k in range(self.n):
            own = y[self.area == k]
            a[k] = normal_mean(rng, own.sum(), own.size, np.exp(log_s[k]), m, tau)
            scatter, size = ((own - a[k]) ** 2).sum(), own.size
            log_s[k] = metropolis(
                rng,
                log_s[k],
                lambda t, c=scatter, n=size: -n * t - 0.5 * c * np.exp(-2 * t) - 0.5 * ((t + 0.3) / 0.3) ** 2,
                0.5,
            )
        spread = ((a - m) ** 2).sum()
        log_tau = metropolis(
            rng,
            np.log(tau),
            lambda t: (1 - self.n) * t - 0.5 * spread * np.exp(-2 * t) - 0.5 * np.exp(2 * t) / 0.64,
            0.8,
        )
        m = normal_mean(rng, a.sum(), self.n, np.exp(log_tau))
        return {**state, "m": m, "tau": np.exp(log_tau), "a": a, "log_s": log_s}


class AreaCounts(StatModel):
    """Counts with a rate of each area; they jump along with it, so that there are no slopes to follow."""

    parameter_names = ("m", "a")
    record_names = ("c",)
    area = np.array([0, 0, 1, 1, 1, 2])
    n, spread = 3, 0.6

    def draw_model(self, rng):
        m = rng.normal(0, 0.7)
        a = rng.normal(m, self.spread, self.n)
        return {"m": m, "a": a, "c": rng.poisson(np.exp(a[self.area]))}

    def query(self, state):
        clipped = np.minimum(state["c"], 6).astype(float)
        return {"z": (np.bincount(self.area, clipped, self.n), "gaussian", 6 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            m = pm.Normal("m", 0, 0.7)
            a = pm.Normal("a", m, self.spread, shape=self.n)
            c = dp.clamp(pm.Poisson("c", pt.exp(a[self.area])), 0, 6)
            query = by_area(self.area, c, self.n)
            dp.GaussianMechanism("z", query, sigma=6 / self.epsilon, observed=release["z"])
        return model

    def gibbs(self, state, rng):
        totals, sizes = np.bincount(self.area, state["c"]), np.bincount(self.area)
        a = np.array(state["a"])
        for k in range(self.n):
            a[k] = metropolis(
                rng,
                a[k],
                lambda t, k=k: (
                    totals[k] * t - sizes[k] * np.exp(t) - 0.5 * ((t - state["m"]) / self.spread) ** 2
                ),
                0.7,
            )
        return {**state, "a": a, "m": normal_mean(rng, a.sum(), self.n, self.spread, 0.0, 0.7)}
