"""An unknown number of people: exact posteriors by enumeration, a model for calibration and joint tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
from scipy import special, stats

import pymc_dp as dp
from tests.statistics.models import normal_mean
from tests.statistics.stat_model import StatModel


@dataclass(frozen=True)
class CountCase:
    """A model, the exact law of the number of people, and exact moments of what else is unknown."""

    build: Callable[[], pm.Model]
    probabilities: np.ndarray  # of N = 0, 1, ...
    means: dict[str, float]


def _given(log_weight, per_n):
    """Probabilities of N, and means over N of what is known given N (and k), from unnormalised weights."""
    weight = np.exp(log_weight - special.logsumexp(log_weight))
    return weight.reshape(len(weight), -1).sum(axis=1), {
        k: float((weight * v).sum()) for k, v in per_n.items()
    }


def few_bits():
    """Bernoulli records in 6 slots: every number of people and every total."""
    slots, s, c = 6, 2.6, 4.2

    def build():
        with pm.Model() as model:
            p = pm.Beta("p", 2, 3)
            people = pm.DiscreteUniform("people", 0, slots)
            x = pm.Bernoulli("x", p, shape=slots)
            dp.LaplaceMechanism("s", dp.record_sum(x, count=people), scale=1.0, observed=s)
            dp.LaplaceMechanism("c", people, scale=2.0, observed=c)
        return model

    n, k = np.arange(slots + 1)[:, None], np.arange(slots + 1)[None, :]
    with np.errstate(divide="ignore"):
        log_weight = stats.betabinom.logpmf(k, n, 2, 3) - np.abs(s - k) - np.abs(c - n) / 2
    p = (2 + k) / (5 + n)
    return CountCase(build, *_given(log_weight, {"p": p, "p^2": p * (3 + k) / (6 + n)}))


def thirty_bits():
    """Bernoulli records in 30 slots, counted with a random rate, and no release of their number."""
    slots = 30

    def build():
        with pm.Model() as model:
            p = pm.Beta("p", 4, 6)
            rate = pm.Gamma("rate", 4, 0.3)
            people = pm.Truncated("people", pm.Poisson.dist(rate), upper=slots)
            x = pm.Bernoulli("x", p, shape=slots)
            total = dp.record_sum(x, count=people)
            dp.DiscreteLaplaceMechanism("s", total, scale=1.5, observed=9)
        return model

    node, weight = np.polynomial.legendre.leggauss(400)
    rate = 60 * (node + 1)
    n, k = np.arange(slots + 1)[:, None], np.arange(slots + 1)[None, :]
    prior = stats.poisson.logpmf(n, rate) - stats.poisson.logcdf(slots, rate)
    log_rate = prior + stats.gamma.logpdf(rate, 4, scale=1 / 0.3) + np.log(weight)
    with np.errstate(divide="ignore"):
        log_weight = stats.betabinom.logpmf(k, n, 4, 6) - np.abs(9 - k) / 1.5
    log_weight = log_weight + special.logsumexp(log_rate, axis=1)[:, None]
    given = np.exp(log_rate - special.logsumexp(log_rate, axis=1, keepdims=True)) @ rate
    return CountCase(build, *_given(log_weight, {"p": (4 + k) / (10 + n), "rate": given[:, None] + 0 * k}))


def normal_mixtures():
    """As normal sums, by a law that is no function of noise: two components that are the same."""

    def law(mu, slots):
        parts = [pm.Normal.dist(mu, 1.2), pm.Normal.dist(mu, 1.2)]
        return pm.Mixture("x", [0.4, 0.6], parts, shape=slots)

    return normal_sums(law)


def normal_sums(law=lambda mu, slots: pm.Normal("x", mu, 1.2, shape=slots)):
    """A sum of normal records with normal noise, which is closed given their number."""
    slots, s, c, sigma = 40, 21.0, 14.5, 3.0

    def build():
        with pm.Model() as model:
            mu = pm.Normal("mu", 0.5, 1.5)
            people = pm.Binomial("people", slots, 0.3)
            x = law(mu, slots)
            dp.GaussianMechanism("s", dp.record_sum(x, count=people), sigma=sigma, observed=s)
            dp.GaussianMechanism("c", people, sigma=4.0, observed=c)
        return model

    n = np.arange(slots + 1)
    noise = n * 1.2**2 + sigma**2
    log_weight = stats.binom.logpmf(n, slots, 0.3) + stats.norm.logpdf(c, n, 4.0)
    log_weight = log_weight + stats.norm.logpdf(s, 0.5 * n, np.sqrt(noise + (1.5 * n) ** 2))
    precision = 1.5**-2 + n**2 / noise
    mean = (0.5 / 1.5**2 + n * s / noise) / precision
    return CountCase(build, *_given(log_weight, {"mu": mean, "mu^2": mean**2 + 1 / precision}))


def nothing_else_unknown():
    """The law of the records is known: their number alone is not."""
    slots, s = 25, 11.0

    def build():
        with pm.Model() as model:
            people = pm.DiscreteUniform("people", 3, slots)
            x = pm.Normal("x", 0.8, 1.0, shape=slots)
            dp.GaussianMechanism("s", dp.record_sum(x, count=people), sigma=2.0, observed=s)
        return model

    n = np.arange(slots + 1)
    log_weight = np.where(n >= 3, stats.norm.logpdf(s, 0.8 * n, np.sqrt(n + 4.0)), -np.inf)
    return CountCase(build, *_given(log_weight, {}))


EXACT_COUNTS = [few_bits, thirty_bits, normal_sums, normal_mixtures, nothing_else_unknown]


class UnknownCount(StatModel):
    """Normal records in slots, clamped sums of the first of them, and their number with noise."""

    parameter_names = ("mu", "people")
    record_names = ("x",)
    slots = 9

    def draw_model(self, rng):
        mu = rng.normal(0.3, 1)
        return {"mu": mu, "people": rng.integers(0, self.slots + 1), "x": rng.normal(mu, 1, self.slots)}

    def query(self, state):
        x, people = np.clip(state["x"], -0.5, 2), np.float64(state["people"])
        inside = np.arange(self.slots) < people
        return {
            "s": (np.float64(x[inside].sum()), "laplace", 4 / self.epsilon),
            "c": (people, "laplace", 2 / self.epsilon),
        }

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0.3, 1)
            people = pm.DiscreteUniform("people", 0, self.slots)
            x = pm.Normal("x", mu, 1, shape=self.slots)
            add_remove = {"epsilon": self.epsilon / 2, "neighbours": "add-remove"}
            total = dp.record_sum(x, count=people)
            dp.LaplaceMechanism("s", total, bounds=(-0.5, 2), observed=release["s"], **add_remove)
            dp.LaplaceMechanism("c", people, sensitivity=1, observed=release["c"], **add_remove)
        return model

    def gibbs(self, state, rng):
        return {**state, "mu": normal_mean(rng, state["x"].sum(), self.slots, 1.0, 0.3)}
