"""Mechanisms of a user's own: exact posteriors by quadrature, and a model for calibration and joint tests."""

from __future__ import annotations

import numpy as np
import pymc as pm
from scipy import stats

import pymc_dp as dp
from tests.custom_noise import (
    huber_logp,
    huber_logpdf,
    huber_random,
    plane_logp,
    plane_logpdf,
    staircase_logp,
    staircase_pdf,
    staircase_pieces,
)
from tests.statistics.marginal import from_log_density, gauss_panels
from tests.statistics.models import normal_mean
from tests.statistics.stat_model import StatModel

LOCAL_Z = np.array([0.4, -1.2, 2.9, 1.4, 0.1, -0.5])


def central_staircase():
    """A total of Bernoulli records: a sum over all totals."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 3)
        x = pm.Bernoulli("x", p, shape=12)
        dp.CustomMechanism("s", dp.record_sum(x), logp=staircase_logp, observed=7.9)
    return model


def central_staircase_exact():
    k = np.arange(13)
    noise = staircase_pdf(7.9 - k)

    def log_density(p):
        return np.log(stats.binom.pmf(k, 12, p[:, None]) @ noise) + stats.beta.logpdf(p, 2, 3)

    return {"p": from_log_density(log_density, 0.0, 1.0)}


def local_staircase():
    """Each normal record by itself: the mass of the normal law between any two steps."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.2, 1.0)
        y = pm.Normal("y", mu, 0.8, shape=LOCAL_Z.size)
        dp.CustomMechanism("z", y, logp=staircase_logp, observed=LOCAL_Z)
    return model


def local_staircase_exact():
    right, height = staircase_pieces(40)
    edges = np.concatenate([-right[::-1], right[1:]])
    height = np.concatenate([height[::-1], height])

    def log_density(mu):
        total = stats.norm.logpdf(mu, 0.2, 1.0)
        for z in LOCAL_Z:
            below = stats.norm.cdf(z - edges[:, None], mu, 0.8)
            total = total + np.log(height @ -np.diff(below, axis=0))
        return total

    return {"mu": from_log_density(log_density, -5.0, 5.0)}


def central_huber(logp=huber_logp, scale=2.0):
    """A sum of normal records, with noise of a known scale that is a parameter."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 1.5)
        x = pm.Normal("x", mu, 0.8, shape=10)
        dp.CustomMechanism("s", dp.record_sum(x), scale, logp=logp, observed=13.0)
    return model


def central_huber_exact():
    def log_density(mu):
        sd = 0.8 * np.sqrt(10)
        node, weight = gauss_panels(np.linspace(-9 * sd, 9 * sd, 400))
        node, weight = node.ravel(), weight.ravel() * stats.norm.pdf(node.ravel(), 0, sd)
        noise = np.exp(huber_logpdf(13.0 - 10 * mu[:, None] - node, 2.0))
        return np.log(noise @ weight) + stats.norm.logpdf(mu, 0.5, 1.5)

    # without looking for the ends of the posterior, which takes seven times the evaluations
    return {"mu": from_log_density(log_density, -7.0, 8.0, refine=False)}


def two_totals_in_the_plane():
    """Two totals behind one density of the pair: a sum over all pairs."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        q = pm.Beta("q", 1, 2)
        x = pm.Bernoulli("x", pm.math.stack([p, q]), shape=(8, 2))
        dp.CustomMechanism("s", dp.record_sum(x), 1.5, logp=plane_logp, observed=[5.2, 4.1])
    return model


def two_totals_in_the_plane_exact():
    k = np.arange(9)
    pairs = np.stack(np.meshgrid(k, k, indexing="ij"), axis=-1)
    noise = np.exp(plane_logpdf(np.array([5.2, 4.1]) - pairs, 1.5))
    priors = [stats.betabinom.pmf(k, 8, 2, 2), stats.betabinom.pmf(k, 8, 1, 2)]
    weights = [noise @ priors[1], noise.T @ priors[0]]

    def log_density(weight, a, b):
        return lambda p: np.log(stats.binom.pmf(k, 8, p[:, None]) @ weight) + stats.beta.logpdf(p, a, b)

    return {
        "p": from_log_density(log_density(weights[0], 2, 2), 0.0, 1.0),
        "q": from_log_density(log_density(weights[1], 1, 2), 0.0, 1.0),
    }


EXACT = [
    ("staircase noise on a total", central_staircase, central_staircase_exact),
    ("staircase noise on each record", local_staircase, local_staircase_exact),
    ("Huber noise on a sum", central_huber, central_huber_exact),
    ("one density for two totals", two_totals_in_the_plane, two_totals_in_the_plane_exact),
]


class CustomNoise(StatModel):
    """Huber noise on a sum and on each record: two releases by densities of the user's own."""

    parameter_names = ("mu",)
    record_names = ("x",)
    n = 8

    def draw_model(self, rng):
        mu = rng.normal(0.5, 1)
        return {"mu": mu, "x": rng.normal(mu, 1, self.n)}

    def query(self, state):
        x = state["x"]
        return {
            "s": (np.float64(x.sum()), "huber", 4 / self.epsilon),
            "z": (x, "huber", 1 + 2 / self.epsilon),
        }

    def redraw_release(self, state, rng):
        state = dict(state)
        for name, (query, _, scale) in self.query(state).items():
            state[name] = huber_random(query, scale, rng, np.shape(query))
        return state

    def build(self, release):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0.5, 1)
            x = pm.Normal("x", mu, 1, shape=self.n)
            scales = {name: scale for name, (_, _, scale) in self.query(release | {"x": np.zeros(1)}).items()}
            dp.CustomMechanism("s", dp.record_sum(x), scales["s"], logp=huber_logp, observed=release["s"])
            dp.CustomMechanism("z", x, scales["z"], logp=huber_logp, observed=release["z"])
        return model

    def gibbs(self, state, rng):
        return {**state, "mu": normal_mean(rng, state["x"].sum(), self.n, 1.0, 0.5)}
