"""Models with something unusual: skewed local records, public outcomes, latent parents, vectors, no sums."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from tests.statistics.models import metropolis, normal_mean
from tests.statistics.stat_model import StatModel

__all__ = ["SPECIAL_MODELS"]


class LocalGamma(StatModel):
    """Positive continuous records released one by one: proposals from the reversed channel."""

    parameter_names = ("rate",)
    record_names = ("y",)
    n = 5

    def draw_model(self, rng):
        rate = rng.gamma(3, 1 / 2)
        return {"rate": rate, "y": rng.gamma(2, 1 / rate, self.n)}

    def query(self, state):
        return {"z": (np.clip(state["y"], 0, 4), "laplace", 4 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            rate = pm.Gamma("rate", 3, 2)
            y = pm.Gamma("y", 2, rate, shape=self.n)
            dp.LaplaceMechanism("z", y, epsilon=self.epsilon, bounds=(0, 4), observed=release["z"])
        return model

    def gibbs(self, state, rng):
        return {**state, "rate": rng.gamma(3 + 2 * self.n, 1 / (2 + state["y"].sum()))}


class PublicOutcome(StatModel):
    """Every record has a public outcome: an ordinary likelihood term beside the release."""

    parameter_names = ("mu",)
    record_names = ("x",)
    n = 8

    def draw_model(self, rng):
        mu = rng.normal(0, 1)
        return {"mu": mu, "x": rng.normal(mu, 1, self.n)}

    def query(self, state):
        x = state["x"]
        return {
            "s": (np.float64(np.clip(x, -2, 2).sum()), "laplace", 4 / self.epsilon),
            "w": (0.5 * x, "gaussian", 1.0),
        }

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 1)
            x = pm.Normal("x", mu, 1, shape=self.n)
            pm.Normal("w", 0.5 * x, 1, observed=release["w"])
            dp.LaplaceMechanism(
                "s",
                dp.record_sum(x),
                epsilon=self.epsilon,
                bounds=(-2, 2),
                observed=release["s"],
            )
        return model

    def gibbs(self, state, rng):
        return {**state, "mu": normal_mean(rng, state["x"].sum(), self.n, 1.0)}


class LatentParent(StatModel):
    """Only a binary answer is released; the trait behind it is a record too."""

    parameter_names = ("mu",)
    record_names = ("x", "y")
    n = 8

    def draw_model(self, rng):
        mu = rng.normal(0, 1.5)
        x = rng.normal(mu, 1, self.n)
        return {"mu": mu, "x": x, "y": rng.binomial(1, 1 / (1 + np.exp(-2 * x)))}

    def query(self, state):
        return {"s": (np.float64(state["y"].sum()), "laplace", 1 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 1.5)
            x = pm.Normal("x", mu, 1, shape=self.n)
            y = pm.Bernoulli("y", logit_p=2 * x)
            dp.LaplaceMechanism(
                "s", dp.record_sum(y), epsilon=self.epsilon, bounds=(0, 1), observed=release["s"]
            )
        return model

    def gibbs(self, state, rng):
        return {**state, "mu": normal_mean(rng, state["x"].sum(), self.n, 1.0, 0.0, 1.5)}


class VectorRecords(StatModel):
    """Bivariate normal records, clamped sums."""

    parameter_names = ("m",)
    record_names = ("x",)
    n = 8
    cov = np.array([[1.0, 0.6], [0.6, 1.5]])

    def draw_model(self, rng):
        m = rng.normal(0, 1, 2)
        return {"m": m, "x": rng.multivariate_normal(m, self.cov, self.n)}

    def query(self, state):
        return {"s": (np.clip(state["x"], -2, 2).sum(0), "laplace", 8 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            m = pm.Normal("m", 0, 1, shape=2)
            x = pm.MvNormal("x", m, self.cov, shape=(self.n, 2))
            query = dp.record_sum(dp.clamp(x, -2, 2))
            dp.LaplaceMechanism("s", query, epsilon=self.epsilon, sensitivity=8, observed=release["s"])
        return model

    def gibbs(self, state, rng):
        inverse = np.linalg.inv(self.cov)
        covariance = np.linalg.inv(np.eye(2) + self.n * inverse)
        mean = covariance @ inverse @ state["x"].sum(0)
        return {**state, "m": rng.multivariate_normal(mean, covariance)}


class KinkedPrior(StatModel):
    """A Laplace prior: its log density has a constant second derivative, yet is not quadratic."""

    parameter_names = ("mu",)
    record_names = ("x",)
    n = 3

    def draw_model(self, rng):
        mu = rng.laplace(0, 0.4)
        return {"mu": mu, "x": rng.normal(mu, 2, self.n)}

    def query(self, state):
        return {"s": (np.float64(np.clip(state["x"], -4, 4).sum()), "laplace", 8 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Laplace("mu", 0, 0.4)
            x = pm.Normal("x", mu, 2, shape=self.n)
            dp.LaplaceMechanism(
                "s",
                dp.record_sum(x),
                epsilon=self.epsilon,
                bounds=(-4, 4),
                observed=release["s"],
            )
        return model

    def gibbs(self, state, rng):
        x = state["x"]

        def log_density(mu):
            return -abs(mu) / 0.4 - ((x - mu) ** 2).sum() / 8

        return {**state, "mu": metropolis(rng, state["mu"], log_density, 0.8)}


class ResidualQuery(StatModel):
    """Residuals are released: one parameter in the law of the records and in the query."""

    parameter_names = ("mu",)
    record_names = ("x",)
    n = 4

    def draw_model(self, rng):
        mu = rng.normal(0, 1)
        return {"mu": mu, "x": rng.normal(mu, 1, self.n)}

    def query(self, state):
        total = (state["x"] - 2 * state["mu"]).sum()
        return {"s": (np.float64(total), "laplace", 4 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 1)
            x = pm.Normal("x", mu, 1, shape=self.n)
            query = dp.record_sum(x - 2 * mu)
            dp.LaplaceMechanism("s", query, scale=4 / self.epsilon, observed=release["s"])
        return model

    def gibbs(self, state, rng):
        x, s = state["x"], state["s"]

        def log_density(mu):
            noise = s - (x - 2 * mu).sum()
            return -0.5 * mu**2 - 0.5 * ((x - mu) ** 2).sum() - abs(noise) * self.epsilon / 4

        return {**state, "mu": metropolis(rng, state["mu"], log_density, 0.5)}


class NaiveBayes(StatModel):
    """A class and a feature per record, tables with Dirichlet rows, noisy cross counts."""

    parameter_names = ("p", "table")
    record_names = ("c", "f")
    n = 12
    prior = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 1.0]])

    def draw_model(self, rng):
        p = rng.dirichlet([2.0, 1.0])
        table = np.stack([rng.dirichlet(a) for a in self.prior])
        c = rng.choice(2, self.n, p=p)
        return {
            "p": p,
            "table": table,
            "c": c,
            "f": (rng.random((self.n, 1)) > table[c].cumsum(1)[:, :-1]).sum(1),
        }

    def _counts(self, state):
        counts = np.zeros((2, 3))
        np.add.at(counts, (state["c"].astype(int), state["f"].astype(int)), 1)
        return counts

    def query(self, state):
        return {"s": (self._counts(state), "laplace", 2 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            p = pm.Dirichlet("p", np.array([2.0, 1.0]))
            table = pm.Dirichlet("table", self.prior)
            c = pm.Categorical("c", p, shape=self.n)
            f = pm.Categorical("f", table[c])
            is_class = pt.eq(c[:, None, None], np.arange(2)[:, None])
            is_feature = pt.eq(f[:, None, None], np.arange(3)[None, :])
            cells = pt.cast(pt.and_(is_class, is_feature), "float64")
            dp.LaplaceMechanism(
                "s",
                dp.record_sum(cells),
                epsilon=self.epsilon,
                sensitivity=2,
                observed=release["s"],
            )
        return model

    def gibbs(self, state, rng):
        counts = self._counts(state)
        table = np.stack([rng.dirichlet(a) for a in self.prior + counts])
        return {**state, "p": rng.dirichlet(np.array([2.0, 1.0]) + counts.sum(1)), "table": table}


class NeighbourProducts(StatModel):
    """Products of neighbours are released, no sum over records; a clamped sum and public outcomes too."""

    parameter_names = ("mu",)
    record_names = ("x",)
    n = 7
    replicates, transitions = 3000, 3

    def draw_model(self, rng):
        mu = rng.normal(0, 1)
        return {"mu": mu, "x": rng.normal(mu, 1, self.n)}

    def query(self, state):
        x = np.asarray(state["x"])
        y = np.clip(x, -2, 2)
        return {
            "s": ((y[1:] * y[:-1]).sum(), "laplace", 8 / self.epsilon),
            "t": (y.sum(), "laplace", 16 / self.epsilon),
            "w": (0.5 * x, "gaussian", 1.0),
        }

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 1)
            x = pm.Normal("x", mu, 1, shape=self.n)
            pm.Normal("w", 0.5 * x, 1, observed=release["w"])
            y = dp.clamp(x, -2, 2)
            products = (y[1:] * y[:-1]).sum()
            dp.LaplaceMechanism("s", products, scale=8 / self.epsilon, observed=release["s"])
            total = dp.record_sum(y)
            dp.LaplaceMechanism("t", total, scale=16 / self.epsilon, observed=release["t"])
        return model

    def gibbs(self, state, rng):
        return {**state, "mu": normal_mean(rng, state["x"].sum(), self.n, 1.0)}


class WalkingRecords(StatModel):
    """A panel: each record is a random walk; clamped sums over people at each time."""

    parameter_names = ("drift", "sigma")
    record_names = ("x",)
    n = 6
    steps = 2

    def draw_model(self, rng):
        drift, sigma = rng.normal(0, 0.5), abs(rng.normal(0, 1))
        start, noise = rng.normal(0, 1, (self.n, 1)), rng.normal(0, sigma, (self.n, self.steps))
        return {"drift": drift, "sigma": sigma, "x": self.series(drift, start, noise)}

    def series(self, drift, start, noise):
        return np.concatenate([start, drift + noise], axis=1).cumsum(axis=1)

    def residuals(self, state, drift):
        return np.diff(state["x"], axis=1) - drift

    def query(self, state):
        bound = 2 * (1 + self.steps)
        return {"s": (np.clip(state["x"], -2, 2).sum(0), "laplace", 2 * bound / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            x = self.law(pm.Normal("drift", 0, 0.5), pm.HalfNormal("sigma", 1))
            query = dp.record_sum(dp.clamp(x, -2, 2))
            dp.LaplaceMechanism(
                "s", query, epsilon=self.epsilon, sensitivity=4 * (1 + self.steps), observed=release["s"]
            )
        return model

    def law(self, drift, sigma):
        shape = (self.n, 1 + self.steps)
        return pm.GaussianRandomWalk("x", drift, sigma=sigma, init_dist=pm.Normal.dist(), shape=shape)

    def gibbs(self, state, rng):
        def log_density(drift, log_sigma):
            squares = (self.residuals(state, drift) ** 2).sum() / np.exp(2 * log_sigma)
            return -0.5 * (squares + (drift / 0.5) ** 2 + np.exp(2 * log_sigma)) + (
                (1 - self.n * self.steps) * log_sigma
            )

        log_sigma = np.log(max(state["sigma"], 1e-300))
        width = 0.6 * state["sigma"] / (self.n * self.steps) ** 0.5
        drift = metropolis(rng, state["drift"], lambda v: log_density(v, log_sigma), width)
        log_sigma = metropolis(rng, log_sigma, lambda v: log_density(drift, v), 0.3)
        return {**state, "drift": drift, "sigma": np.exp(log_sigma)}


class AutoregressiveRecords(WalkingRecords):
    """The same with autoregressions, whose coefficient takes the place of a drift."""

    def series(self, drift, start, noise):
        x = [start[:, 0]]
        for e in noise.T:
            x.append(drift * x[-1] + e)
        return np.stack(x, axis=1)

    def residuals(self, state, drift):
        x = state["x"]
        return x[:, 1:] - drift * x[:, :-1]

    def law(self, drift, sigma):
        start, shape = pm.Normal.dist(), (self.n, 1 + self.steps)
        return pm.AR("x", drift, sigma=sigma, init_dist=start, shape=shape)


SPECIAL_MODELS = (
    LocalGamma,
    PublicOutcome,
    LatentParent,
    VectorRecords,
    KinkedPrior,
    ResidualQuery,
    NaiveBayes,
    NeighbourProducts,
    WalkingRecords,
    AutoregressiveRecords,
)
