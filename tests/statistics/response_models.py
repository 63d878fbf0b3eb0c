"""Categorical records released one by one through finite channels, for the statistical suites."""

from __future__ import annotations

import numpy as np
import pymc as pm

import pymc_dp as dp
from tests.statistics.stat_model import StatModel


def randomized_response(rng, category, k, epsilon):
    """Report of each category, drawn without the package."""
    truth = rng.random(len(category)) < np.exp(epsilon) / (np.exp(epsilon) + k - 1)
    others = rng.integers(0, k - 1, len(category))
    return np.where(truth, category, others + (others >= category))


def unary_encoding(rng, category, k, p, q):
    """Bits of each category, drawn without the package."""
    one = np.where(np.arange(k) == np.asarray(category)[:, None], p, q)
    return (rng.random(one.shape) < one).astype(int)


class Finite(StatModel):
    """Base: the noise of a release is how far its rows are from those of the records."""

    def _noise(self, state):
        return np.array([np.mean(state[k] != q) for k, (q, _, _) in self.query(state).items()])


class Responses(Finite):
    """Categories with one table of probabilities, randomized response."""

    parameter_names = ("theta",)
    record_names = ("c",)
    n = 12
    prior = np.array([1.0, 2.0, 1.5])

    def draw_model(self, rng):
        theta = rng.dirichlet(self.prior)
        return {"theta": theta, "c": rng.choice(3, self.n, p=theta)}

    def query(self, state):
        return {"z": (state["c"], "response", 1.0)}

    def redraw_release(self, state, rng):
        return {**state, "z": randomized_response(rng, state["c"].astype(int), 3, self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            theta = pm.Dirichlet("theta", self.prior)
            c = pm.Categorical("c", theta, shape=self.n)
            dp.RandomizedResponse("z", c, epsilon=self.epsilon, observed=release["z"])
        return model

    def gibbs(self, state, rng):
        counts = np.bincount(state["c"].astype(int), minlength=3)
        return {**state, "theta": rng.dirichlet(self.prior + counts)}


class Told(Responses):
    """Four answers with errors that differ, one of which rules a category out."""

    base = np.array([[4.0, 1.0, 2.0, 1.0], [0.0, 3.0, 1.0, 2.0], [1.0, 1.0, 1.0, 5.0]])

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        weights = self.base**self.epsilon
        self.table = weights / weights.sum(axis=1, keepdims=True)

    def query(self, state):
        return {"z": (state["c"], "answer", 1.0)}

    def redraw_release(self, state, rng):
        ends = self.table[state["c"].astype(int)].cumsum(axis=1)[:, :-1]
        return {**state, "z": (rng.random((self.n, 1)) > ends).sum(axis=1)}

    def build(self, release):
        with pm.Model() as model:
            theta = pm.Dirichlet("theta", self.prior)
            c = pm.Categorical("c", theta, shape=self.n)
            dp.RandomizedResponse("z", c, p_answer=self.table, observed=release["z"])
        return model


class GroupedBits(Finite):
    """Probabilities by a public group; bits and a report of every record."""

    parameter_names = ("table",)
    record_names = ("c",)
    group = np.repeat([1, 0, 1], [6, 5, 3])
    prior = np.array([[1.0, 2.0, 1.5], [2.0, 0.7, 1.0]])

    def draw_model(self, rng):
        table = np.stack([rng.dirichlet(a) for a in self.prior])
        return {"table": table, "c": (rng.random((14, 1)) > table[self.group].cumsum(1)[:, :-1]).sum(1)}

    def query(self, state):
        c = np.asarray(state["c"])
        bits = (np.arange(3) == c[:, None]).astype(int)
        return {"z": (bits, "bits", 1.0), "w": (c, "response", 1.0)}

    def redraw_release(self, state, rng):
        c = np.asarray(state["c"]).astype(int)
        bits = unary_encoding(rng, c, 3, 0.5, 1 / (1 + np.exp(self.epsilon)))
        return {**state, "z": bits, "w": randomized_response(rng, c, 3, 0.5)}

    def build(self, release):
        with pm.Model() as model:
            table = pm.Dirichlet("table", self.prior)
            c = pm.Categorical("c", table[self.group])
            dp.UnaryEncoding("z", c, epsilon=self.epsilon, variant="optimized", observed=release["z"])
            dp.RandomizedResponse("w", c, epsilon=0.5, observed=release["w"])
        return model

    def gibbs(self, state, rng):
        counts = np.zeros((2, 3))
        np.add.at(counts, (self.group, state["c"].astype(int)), 1)
        return {**state, "table": np.stack([rng.dirichlet(a) for a in self.prior + counts])}


class SoftmaxBits(Finite):
    """Probabilities by a softmax of normal scores, one of which is 0; bits of every record."""

    parameter_names = ("score",)
    record_names = ("c",)
    n = 10

    def draw_model(self, rng):
        score = rng.normal([0.5, -0.5], 1.0)
        return {"score": score, "c": rng.choice(3, self.n, p=self._shares(score))}

    @staticmethod
    def _shares(score):
        weight = np.exp(np.append(score, 0.0))
        return weight / weight.sum()

    def query(self, state):
        bits = (np.arange(3) == np.asarray(state["c"])[:, None]).astype(int)
        return {"z": (bits, "bits", 1.0)}

    def redraw_release(self, state, rng):
        p = 1 / (1 + np.exp(-self.epsilon / 2))  # symmetric: both kinds of bits are kept alike
        return {**state, "z": unary_encoding(rng, state["c"], 3, p, 1 - p)}

    def build(self, release):
        with pm.Model() as model:
            score = pm.Normal("score", [0.5, -0.5], 1.0)
            c = pm.Categorical("c", pm.math.softmax(pm.math.concatenate([score, [0.0]])), shape=self.n)
            dp.UnaryEncoding("z", c, epsilon=self.epsilon, variant="symmetric", observed=release["z"])
        return model

    def gibbs(self, state, rng):
        counts, score = np.bincount(np.asarray(state["c"]).astype(int), minlength=3), np.array(state["score"])

        def log_density(s):
            return counts @ np.log(self._shares(s)) - 0.5 * ((s - [0.5, -0.5]) ** 2).sum()

        for _ in range(4):
            proposal = score + 0.8 * rng.normal(size=2)
            if np.log(rng.random()) < log_density(proposal) - log_density(score):
                score = proposal
        return {**state, "score": score}


class LogitAnswers(Finite):
    """Yes or no with a hierarchical log-odds: parameters behind the parameter move along."""

    parameter_names = ("centre", "logit")
    record_names = ("c",)
    n = 10

    def draw_model(self, rng):
        centre = rng.normal(0, 1)
        logit = rng.normal(centre, 0.7)
        return {"centre": centre, "logit": logit, "c": rng.binomial(1, 1 / (1 + np.exp(-logit)), self.n)}

    def query(self, state):
        return {"z": (state["c"], "response", 1.0)}

    def redraw_release(self, state, rng):
        return {**state, "z": randomized_response(rng, np.asarray(state["c"]).astype(int), 2, self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            centre = pm.Normal("centre", 0, 1)
            logit = pm.Normal("logit", centre, 0.7)
            c = pm.Bernoulli("c", logit_p=logit, shape=self.n)
            dp.RandomizedResponse("z", c, epsilon=self.epsilon, observed=release["z"])
        return model

    def gibbs(self, state, rng):
        return {**state, "centre": rng.normal(state["logit"] / 1.49, (0.49 / 1.49) ** 0.5)}
