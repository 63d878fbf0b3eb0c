"""Whole numbers in the law of records: exact posteriors by enumeration, and a model for joint tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special, stats

import pymc_dp as dp
from tests.statistics.models import normal_mean
from tests.statistics.stat_model import StatModel


@dataclass(frozen=True)
class WholeCase:
    """A model, the exact law of its whole numbers, and exact means of what else is unknown.

    ``probabilities``: of each tuple of values of ``names``, whose entries are numbers or arrays.
    """

    build: Callable[[], pm.Model]
    names: tuple[str, ...]
    probabilities: dict[tuple[int, ...], float]
    means: dict[str, float]


def _case(build, names, values, log_weights, **means):
    """Weights of the values, not normalised, and what is expected given each of them."""
    weights = np.exp(log_weights - special.logsumexp(log_weights))
    probabilities = {tuple(np.atleast_1d(v)): float(w) for v, w in zip(values, weights, strict=True)}
    return WholeCase(build, names, probabilities, {k: float(weights @ v) for k, v in means.items()})


PLACES, ODDS = np.array([-2.0, 0.0, 1.0, 4.0]), np.array([0.4, 0.3, 0.2, 0.1])


def one_of_four_places():
    """An entry of a list behind a sum with Laplace noise, beside a shift: on a grid of shifts."""
    n, scale, z = 50, 10.0, 60.0

    def build():
        with pm.Model() as model:
            k, a = pm.Categorical("k", ODDS), pm.Normal("a", 0, 1)
            y = pm.Normal("y", pt.as_tensor(PLACES)[k] + a, 1, shape=n)
            dp.LaplaceMechanism("z", dp.record_sum(y), scale=scale, observed=z)
        return model

    a, (node, weight) = np.linspace(-6, 6, 2401), np.polynomial.hermite.hermgauss(150)
    sums = n * (PLACES[:, None, None] + a[:, None]) + np.sqrt(2 * n) * node
    density = np.exp(-np.abs(z - sums) / scale) @ weight * stats.norm.pdf(a) * ODDS[:, None]
    return _case(build, ("k",), range(4), np.log(density.sum(1)), a=density @ a / density.sum(1))


def places_of_few_people():
    """The same behind precise releases of each of six people, where only steps given the records lead on."""
    sd, sigma, z = 1.5, 0.2, np.array([0.3, 1.9, -0.8, 1.1, 0.6, 2.4])

    def build():
        with pm.Model() as model:
            k, a = pm.Categorical("k", ODDS), pm.Normal("a", 0, 1)
            y = pm.Normal("y", pt.as_tensor(PLACES)[k] + a, sd, shape=6)
            dp.GaussianMechanism("z", y, sigma=sigma, observed=z)
        return model

    variance = sd**2 + sigma**2
    covariance = variance * np.eye(6) + 1
    log_weights = np.log(ODDS) + [
        stats.multivariate_normal.logpdf(z - m, np.zeros(6), covariance) for m in PLACES
    ]
    means = [(z - m).sum() / variance / (1 + 6 / variance) for m in PLACES]
    return _case(build, ("k",), range(4), log_weights, a=np.array(means))


def events_a_visit():
    """A number without an end that multiplies a rate, behind a whole-numbered sum."""
    n, scale, z, a, b = 12, 3.0, 55, 4.0, 2.0

    def build():
        with pm.Model() as model:
            j, rate = pm.Poisson("j", 2), pm.Gamma("rate", a, b)
            y = pm.Poisson("y", rate * (1 + j), shape=n)
            dp.DiscreteLaplaceMechanism("z", dp.record_sum(y), scale=scale, observed=z)
        return model

    j, total = np.arange(40)[:, None], np.arange(400)
    exposure = n * (1 + j)
    log_sums = stats.nbinom.logpmf(total, a, b / (b + exposure)) - np.abs(z - total) / scale
    log_weights = stats.poisson.logpmf(j[:, 0], 2) + special.logsumexp(log_sums, axis=1)
    given = np.exp(log_sums - special.logsumexp(log_sums, axis=1, keepdims=True))
    return _case(build, ("j",), j[:, 0], log_weights, rate=(given * (a + total) / (b + exposure)).sum(axis=1))


def _linear(z, design, prior, variance):
    """Log density of normal data under a normal linear model, and the mean of its coefficients."""
    covariance = design @ prior @ design.T + variance * np.eye(len(z))
    return (
        stats.multivariate_normal.logpdf(z, np.zeros(len(z)), covariance),
        prior @ design.T @ np.linalg.solve(covariance, z),
    )


def change_in_time():
    """When a mean changes, behind a release of each of twenty people, one a day."""
    n, sigma = 20, 1.2
    z = np.where(np.arange(n) < 12, -0.6, 1.1) + sigma * np.random.default_rng(3).normal(size=n)

    def build():
        with pm.Model() as model:
            tau = pm.DiscreteUniform("tau", 0, n)
            before, after = pm.Normal("before", 0, 2), pm.Normal("after", 0, 2)
            y = pm.Normal("y", pt.switch(pt.lt(np.arange(n), tau), before, after), 1, shape=n)
            dp.GaussianMechanism("z", y, sigma=sigma, observed=z)
        return model

    found = []
    for tau in range(n + 1):
        first = (np.arange(n) < tau).astype(float)
        found.append(_linear(z, np.stack([first, 1 - first], axis=1), 4 * np.eye(2), 1 + sigma**2))
    means = np.array([m for _, m in found])
    log_weights = np.array([log for log, _ in found])
    return _case(build, ("tau",), range(n + 1), log_weights, before=means[:, 0], after=means[:, 1])


def chosen_covariates():
    """Which of three covariates are in a regression, behind a noisy sum of products."""
    n, sigma, rng = 40, 4.0, np.random.default_rng(8)
    x = rng.normal(size=(n, 3))
    z = x.T @ x @ np.array([0.5, 0.0, 0.25]) + rng.normal(size=3) * sigma

    def build():
        with pm.Model() as model:
            b, chosen = pm.Normal("b", 0, 1, shape=3), pm.Bernoulli("chosen", 0.4, shape=3)
            y = pm.Normal("y", pt.dot(x, b * chosen), 1, shape=n)
            dp.GaussianMechanism("z", dp.record_sum(y[:, None] * x), sigma=sigma, observed=z)
        return model

    values, found = list(itertools.product([0, 1], repeat=3)), []
    for chosen in values:
        gram = x.T @ x
        covariance = gram + sigma**2 * np.eye(3) + gram @ np.diag(chosen) @ gram
        mean = np.diag(chosen) @ gram @ np.linalg.solve(covariance, z)
        prior = np.log(0.4) * sum(chosen) + np.log(0.6) * (3 - sum(chosen))
        found.append((prior + stats.multivariate_normal.logpdf(z, np.zeros(3), covariance), mean.sum()))
    log_weights, sums = np.array(found).T
    return _case(build, ("chosen",), values, log_weights, **{"b": sums / 3})


EXACT_WHOLE = (one_of_four_places, places_of_few_people, events_a_visit, change_in_time, chosen_covariates)


class WholeNumbers(StatModel):
    """An entry of a list and a number without an end in the mean of records, beside a shift."""

    parameter_names = ("k", "j", "a")
    record_names = ("y",)
    n, rate = 6, 1.5

    def mean(self, k, j, a):
        return PLACES[k] + 0.8 * j + a

    def draw_model(self, rng):
        k, j, a = rng.choice(4, p=ODDS), rng.poisson(self.rate), rng.normal()
        return {"k": k, "j": j, "a": a, "y": rng.normal(self.mean(k, j, a), 1, self.n)}

    def query(self, state):
        y = state["y"]
        return {
            "s": (np.clip(y, -3, 5).sum(), "laplace", 8 / self.epsilon),
            "w": (y, "gaussian", 4 / self.epsilon),
        }

    def build(self, release):
        with pm.Model() as model:
            k, j, a = pm.Categorical("k", ODDS), pm.Poisson("j", self.rate), pm.Normal("a", 0, 1)
            y = pm.Normal("y", pt.as_tensor(PLACES)[k] + 0.8 * j + a, 1, shape=self.n)
            clamped = dp.record_sum(dp.clamp(y, -3, 5))
            dp.LaplaceMechanism(
                "s", clamped, scale=8 / self.epsilon, observed=pm.Data("released s", release["s"])
            )
            dp.GaussianMechanism("w", y, sigma=4 / self.epsilon, observed=pm.Data("released w", release["w"]))
        return model

    def gibbs(self, state, rng):
        y, a, j = state["y"], state["a"], np.asarray(state["j"])
        k = self._chosen(rng, np.log(ODDS), [self.mean(k, j, a) for k in range(4)], y)
        prior = stats.poisson.logpmf(np.arange(40), self.rate)
        j = self._chosen(rng, prior, [self.mean(k, j, a) for j in range(40)], y)
        rest = y - self.mean(k, j, 0.0)
        return {**state, "k": k, "j": j, "a": normal_mean(rng, rest.sum(), self.n, 1.0)}

    def _chosen(self, rng, log_prior, means, y):
        logs = log_prior - 0.5 * ((y - np.array(means)[:, None]) ** 2).sum(axis=1)
        return rng.choice(len(logs), p=np.exp(logs - special.logsumexp(logs)))
