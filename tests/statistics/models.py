"""Models for calibration and joint distribution tests: simulator, PyMC model, exact Gibbs update.

Each model exists twice, in numpy and in PyMC, written independently; the tests compare chains of
our steps on the second with draws of the first. A state is a dict of natural values: parameters,
records, releases.
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from tests.statistics.stat_model import StatModel

__all__ = ["EPSILONS", "MODELS", "metropolis", "normal_mean"]

EPSILONS = (0.1, 1.0, 10.0, 50.0)


def normal_mean(rng, total, n, sd, prior_mean=0.0, prior_sd=1.0):
    """Draw a normal mean given the sum of n records of known sd."""
    precision = 1 / prior_sd**2 + n / sd**2
    return rng.normal((prior_mean / prior_sd**2 + total / sd**2) / precision, precision**-0.5)


def metropolis(rng, x, log_density, step, updates=4):
    """A few random-walk Metropolis updates of one number."""
    current = log_density(x)
    for _ in range(updates):
        y = x + step * rng.normal()
        proposed = log_density(y)
        if np.log(rng.random()) < proposed - current:
            x, current = y, proposed
    return x


class ClampedNormal(StatModel):
    """Normal mean and log-sd; clamped sum and sum of squares, Laplace noise."""

    parameter_names = ("mu", "log_sd")
    record_names = ("x",)
    n = 10
    bounds = ((-2.0, 2.0), (0.0, 4.0))

    def draw_model(self, rng):
        mu, log_sd = rng.normal(0, 1), rng.normal(-0.3, 0.4)
        return {"mu": mu, "log_sd": log_sd, "x": rng.normal(mu, np.exp(log_sd), self.n)}

    def query(self, state):
        t = np.stack([np.clip(state["x"], -2, 2), np.clip(state["x"] ** 2, 0, 4)])
        return {"s": (t.sum(1), "laplace", 8 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 1)
            log_sd = pm.Normal("log_sd", -0.3, 0.4)
            x = pm.Normal("x", mu, pt.exp(log_sd), shape=self.n)
            query = dp.record_sum(pt.stack([x, x**2], axis=1))
            dp.LaplaceMechanism(
                "s", query, epsilon=self.epsilon, bounds=list(self.bounds), observed=release["s"]
            )
        return model

    def gibbs(self, state, rng):
        x, sd = state["x"], np.exp(state["log_sd"])
        mu = normal_mean(rng, x.sum(), self.n, sd)
        scatter = ((x - mu) ** 2).sum()

        def log_density(t):
            return -self.n * t - 0.5 * scatter * np.exp(-2 * t) - 0.5 * ((t + 0.3) / 0.4) ** 2

        return {**state, "mu": mu, "log_sd": metropolis(rng, state["log_sd"], log_density, 0.4)}


class BernoulliTotal(StatModel):
    """Bernoulli records, Laplace noise on their total."""

    parameter_names = ("p",)
    record_names = ("x",)
    n = 20
    replicates, transitions = 3000, 3

    def draw_model(self, rng):
        p = rng.beta(2, 3)
        return {"p": p, "x": rng.binomial(1, p, self.n)}

    def query(self, state):
        return {"s": (np.float64(state["x"].sum()), "laplace", 1 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            p = pm.Beta("p", 2, 3)
            x = pm.Bernoulli("x", p, shape=self.n)
            dp.LaplaceMechanism(
                "s", dp.record_sum(x), epsilon=self.epsilon, bounds=(0, 1), observed=release["s"]
            )
        return model

    def gibbs(self, state, rng):
        total = state["x"].sum()
        return {**state, "p": rng.beta(2 + total, 3 + self.n - total)}


class LocalHierarchy(StatModel):
    """Group means with a common centre; every record clamped and released with Laplace noise."""

    parameter_names = ("centre", "m")
    record_names = ("y",)
    group = np.repeat([0, 1, 2], 4)
    sd = 0.7

    def draw_model(self, rng):
        centre = rng.normal(0, 1)
        m = rng.normal(centre, 1, 3)
        return {"centre": centre, "m": m, "y": rng.normal(m[self.group], self.sd)}

    def query(self, state):
        return {"z": (np.clip(state["y"], -2.5, 2.5), "laplace", 5 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            centre = pm.Normal("centre", 0, 1)
            m = pm.Normal("m", centre, 1, shape=3)
            y = pm.Normal("y", m[self.group], self.sd)
            dp.LaplaceMechanism("z", y, epsilon=self.epsilon, bounds=(-2.5, 2.5), observed=release["z"])
        return model

    def gibbs(self, state, rng):
        totals = np.bincount(self.group, state["y"])
        m = normal_mean(rng, totals, 4, self.sd, state["centre"])
        return {**state, "m": m, "centre": normal_mean(rng, m.sum(), 3, 1.0)}


class ThreeCategories(StatModel):
    """Categorical records, Laplace noise on the three counts."""

    parameter_names = ("theta",)
    record_names = ("c",)
    replicates, transitions = 3000, 3
    n = 15
    prior = np.array([1.0, 2.0, 1.5])

    def draw_model(self, rng):
        theta = rng.dirichlet(self.prior)
        return {"theta": theta, "c": rng.choice(3, self.n, p=theta)}

    def query(self, state):
        counts = np.bincount(state["c"].astype(int), minlength=3).astype(float)
        return {"s": (counts, "laplace", 2 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            theta = pm.Dirichlet("theta", self.prior)
            c = pm.Categorical("c", theta, shape=self.n)
            one_hot = pt.cast(pt.eq(c[:, None], np.arange(3)), "float64")
            dp.LaplaceMechanism(
                "s",
                dp.record_sum(one_hot),
                epsilon=self.epsilon,
                sensitivity=2,
                observed=release["s"],
            )
        return model

    def gibbs(self, state, rng):
        counts = np.bincount(state["c"].astype(int), minlength=3)
        return {**state, "theta": rng.dirichlet(self.prior + counts)}


class Regression(StatModel):
    """Linear regression whose records are (x1, x2, y); the nine clamped statistics of Ju et al."""

    parameter_names = ("beta",)
    record_names = ("x", "y")
    n = 20
    clamp = 5.0

    def draw_model(self, rng):
        beta = rng.normal(0, 1, 3)
        x = rng.normal([0.4, -0.6], 1, (self.n, 2))
        return {"beta": beta, "x": x, "y": rng.normal(beta[0] + x @ beta[1:], np.sqrt(2))}

    def query(self, state):
        x1, x2 = (np.clip(state["x"], -self.clamp, self.clamp) / self.clamp).T
        y = np.clip(state["y"], -self.clamp, self.clamp) / self.clamp
        t = [y, x1 * y, x2 * y, y * y, x1, x2, x1 * x2, x1 * x1, x2 * x2]
        return {"s": (np.array([a.sum() for a in t]), "laplace", 13 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            beta = pm.Normal("beta", 0, 1, shape=3)
            x = pm.Normal("x", np.array([0.4, -0.6]), 1, shape=(self.n, 2))
            y = pm.Normal("y", beta[0] + x @ beta[1:], np.sqrt(2))
            zx = dp.clamp(x, -self.clamp, self.clamp) / self.clamp
            zy = dp.clamp(y, -self.clamp, self.clamp) / self.clamp
            a, b = zx[:, 0], zx[:, 1]
            t = pt.stack([zy, a * zy, b * zy, zy * zy, a, b, a * b, a * a, b * b], axis=1)
            dp.LaplaceMechanism(
                "s", dp.record_sum(t), epsilon=self.epsilon, sensitivity=13, observed=release["s"]
            )
        return model

    def gibbs(self, state, rng):
        design = np.column_stack([np.ones(self.n), state["x"]])
        precision = np.eye(3) + design.T @ design / 2
        root = np.linalg.cholesky(np.linalg.inv(precision))
        mean = np.linalg.solve(precision, design.T @ state["y"] / 2)
        return {**state, "beta": mean + root @ rng.normal(size=3)}


class LocalPoisson(StatModel):
    """Poisson counts, each clamped and released with Gaussian noise."""

    parameter_names = ("rate",)
    record_names = ("k",)
    n = 8

    def draw_model(self, rng):
        rate = rng.gamma(3, 1 / 1.5)
        return {"rate": rate, "k": rng.poisson(rate, self.n)}

    def query(self, state):
        return {"z": (np.clip(state["k"], 0, 6).astype(float), "gaussian", 6 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            rate = pm.Gamma("rate", 3, 1.5)
            k = pm.Poisson("k", rate, shape=self.n)
            dp.GaussianMechanism("z", k, sigma=6 / self.epsilon, bounds=(0, 6), observed=release["z"])
        return model

    def gibbs(self, state, rng):
        return {**state, "rate": rng.gamma(3 + state["k"].sum(), 1 / (1.5 + self.n))}


class Exponentials(StatModel):
    """Exponential records (a transformed variable in PyMC), Laplace noise on the clamped sum."""

    parameter_names = ("rate",)
    record_names = ("x",)
    n = 6

    def draw_model(self, rng):
        rate = rng.gamma(3, 1 / 2)
        return {"rate": rate, "x": rng.exponential(1 / rate, self.n)}

    def query(self, state):
        return {"s": (np.float64(np.clip(state["x"], 0, 2).sum()), "laplace", 2 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            rate = pm.Gamma("rate", 3, 2)
            x = pm.Exponential("x", rate, shape=self.n)
            query = dp.record_sum(dp.clamp(x, 0, 2))
            dp.LaplaceMechanism("s", query, epsilon=self.epsilon, sensitivity=2, observed=release["s"])
        return model

    def gibbs(self, state, rng):
        return {**state, "rate": rng.gamma(3 + self.n, 1 / (2 + state["x"].sum()))}


class TwoReleases(StatModel):
    """Three releases of the same records: sum (Laplace), sum of squares and rows (Gaussian)."""

    parameter_names = ("mu",)
    record_names = ("x",)
    n = 8

    def draw_model(self, rng):
        mu = rng.normal(0.5, 1)
        return {"mu": mu, "x": rng.normal(mu, 1, self.n)}

    def query(self, state):
        x = state["x"]
        return {
            "s": (np.float64(x.sum()), "laplace", 4 / self.epsilon),
            "q": (np.float64((np.clip(x, -3, 3) ** 2).sum()), "gaussian", 9 / self.epsilon),
            "w": (x, "gaussian", 1 + 4 / self.epsilon),
        }

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0.5, 1)
            x = pm.Normal("x", mu, 1, shape=self.n)
            dp.LaplaceMechanism("s", dp.record_sum(x), scale=4 / self.epsilon, observed=release["s"])
            dp.GaussianMechanism(
                "q", dp.record_sum(dp.clamp(x, -3, 3) ** 2), sigma=9 / self.epsilon,
                observed=release["q"],
            )  # fmt: skip
            dp.GaussianMechanism("w", x, sigma=1 + 4 / self.epsilon, observed=release["w"])
        return model

    def gibbs(self, state, rng):
        return {**state, "mu": normal_mean(rng, state["x"].sum(), self.n, 1.0, 0.5)}


class ParameterInQuery(StatModel):
    """A weight inside the query: the release itself informs the parameter beside the records."""

    parameter_names = ("mu", "weight")
    record_names = ("x",)
    parameters_in_query = True
    n = 8

    def draw_model(self, rng):
        mu = rng.normal(0, 1)
        return {"mu": mu, "weight": rng.normal(1, 0.5), "x": rng.normal(mu, 1, self.n)}

    def query(self, state):
        total = (state["weight"] * np.clip(state["x"], -2, 2)).sum()
        return {"s": (np.float64(total), "laplace", 4 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 1)
            weight = pm.Normal("weight", 1, 0.5)
            x = pm.Normal("x", mu, 1, shape=self.n)
            query = dp.record_sum(weight * dp.clamp(x, -2, 2))
            dp.LaplaceMechanism("s", query, scale=4 / self.epsilon, observed=release["s"])
        return model

    def gibbs(self, state, rng):
        total = np.clip(state["x"], -2, 2).sum()

        def log_density(a):
            return -0.5 * ((a - 1) / 0.5) ** 2 - abs(state["s"] - a * total) * self.epsilon / 4

        weight = metropolis(rng, state["weight"], log_density, 0.4)
        mu = normal_mean(rng, state["x"].sum(), self.n, 1.0)
        return {**state, "mu": mu, "weight": weight}


MODELS = (
    ClampedNormal,
    BernoulliTotal,
    LocalHierarchy,
    ThreeCategories,
    Regression,
    LocalPoisson,
    Exponentials,
    TwoReleases,
    ParameterInQuery,
)
