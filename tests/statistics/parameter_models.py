"""Tables whose parameters are random, of each family, behind noise of all four kinds."""

from __future__ import annotations

import numpy as np
import pymc as pm

import pymc_dp as dp
from tests.statistics.stat_model import StatModel


def whole_normal(rng, sigma, shape):
    """Draw from the discrete Gaussian law, by its probabilities."""
    k = np.arange(-int(12 * sigma) - 5, int(12 * sigma) + 6)
    weights = np.exp(-0.5 * (k / sigma) ** 2)
    return rng.choice(k, size=shape, p=weights / weights.sum())


def whole_laplace(rng, scale, shape):
    """Draw from the discrete Laplace law: a difference of two geometric numbers."""
    one, other = (rng.geometric(-np.expm1(-1 / scale), shape) for _ in range(2))
    return one - other


NOISES = {
    "laplace": lambda rng, scale, shape: rng.laplace(0, scale, shape),
    "normal": lambda rng, scale, shape: rng.normal(0, scale, shape),
    "whole laplace": whole_laplace,
    "whole normal": whole_normal,
}
MECHANISMS = {
    "laplace": lambda *args, scale, **kw: dp.LaplaceMechanism(*args, scale=scale, **kw),
    "normal": lambda *args, scale, **kw: dp.GaussianMechanism(*args, sigma=scale, **kw),
    "whole laplace": lambda *args, scale, **kw: dp.DiscreteLaplaceMechanism(*args, scale=scale, **kw),
    "whole normal": lambda *args, scale, **kw: dp.DiscreteGaussianMechanism(*args, sigma=scale, **kw),
}


class RandomTable(StatModel):
    """Rows, columns, cells and a corner of a table, each behind noise of its own kind."""

    record_names = ("c",)
    shape: tuple[int, ...]

    def levels(self, c):
        c = c.reshape(self.shape)
        return {
            "rows": (c.sum(axis=-1), "laplace", 2 / self.epsilon),
            "columns": (c.sum(axis=-2), "normal", 2 / self.epsilon),
            "cells": (c, "whole laplace", 3 / self.epsilon),
            "corner": (c[..., :1, :2].sum(), "whole normal", 2 / self.epsilon),
        }

    def query(self, state):
        return {
            k: (np.asarray(q), kind, s) for k, (q, kind, s) in self.levels(np.asarray(state["c"])).items()
        }

    def redraw_release(self, state, rng):
        state = dict(state)
        for name, (query, kind, scale) in self.query(state).items():
            noisy = query + NOISES[kind](rng, scale, np.shape(query))
            state[name] = noisy.astype("int32") if kind.startswith("whole") else noisy  # as PyMC's data
        return state

    def build(self, release):
        with pm.Model() as model:
            c = self.declare()
            for name, (query, kind, scale) in self.levels(c).items():
                data = pm.Data(f"{name} as released", np.asarray(release[name]))
                MECHANISMS[kind](name, query, scale=scale, observed=data)
        return model

    def declare(self):
        raise NotImplementedError

    def functionals(self, state):
        """Products of parameters with counts besides, which see a parameter that belongs to other counts."""
        v, x = self.parameters(state), np.ravel(state["c"]).astype(float)
        return np.concatenate([super().functionals(state), np.outer(v, x).ravel()])

    @property
    def functional_names(self):
        state = self.draw_prior(np.random.default_rng(0))
        n, k = self.parameters(state).size, np.size(state["c"])
        return [*super().functional_names, *(f"par{i}*cell{j}" for i in range(n) for j in range(k))]


class SharesOfATable(RandomTable):
    """Dirichlet probabilities of a table of 2 x 3 cells."""

    parameter_names = ("p",)
    shape = (2, 3)
    a = np.array([0.5, 1.5, 1, 2, 0.3, 1])

    def draw_model(self, rng):
        p = rng.dirichlet(self.a)
        return {"p": p, "c": rng.multinomial(9, p)}

    def declare(self):
        return pm.Multinomial("c", 9, pm.Dirichlet("p", self.a))

    def gibbs(self, state, rng):
        return {**state, "p": rng.dirichlet(self.a + state["c"])}


class RatesOfACube(RandomTable):
    """Gamma rates of the first axis of a table of 2 x 2 x 2 cells, with known exposures."""

    parameter_names = ("rate",)
    shape = (2, 2, 2)
    exposure = np.array([[[1.0, 0.5], [1.5, 0.5]], [[0.4, 2.0], [1.0, 0.7]]])

    def draw_model(self, rng):
        rate = rng.gamma(2.0, 1 / 1.5, size=2)
        return {"rate": rate, "c": rng.poisson(rate[:, None, None] * self.exposure)}

    def declare(self):
        return pm.Poisson("c", pm.Gamma("rate", 2.0, 1.5, shape=2)[:, None, None] * self.exposure)

    def gibbs(self, state, rng):
        s, e = np.sum(state["c"], axis=(1, 2)), self.exposure.sum(axis=(1, 2))
        return {**state, "rate": rng.gamma(2.0 + s) / (1.5 + e)}


class ChancesOfCells(RandomTable):
    """A beta probability for each column of a table of 2 x 3 cells."""

    parameter_names = ("q",)
    shape = (2, 3)
    n = np.array([[4, 2, 6], [3, 5, 1]])

    def draw_model(self, rng):
        q = rng.beta(0.8, 1.6, size=3)
        return {"q": q, "c": rng.binomial(self.n, q)}

    def declare(self):
        return pm.Binomial("c", self.n, pm.Beta("q", 0.8, 1.6, shape=3))

    def gibbs(self, state, rng):
        s = np.sum(state["c"], axis=0)
        return {**state, "q": rng.beta(0.8 + s, 1.6 + self.n.sum(axis=0) - s)}


RANDOM_TABLES = (SharesOfATable, RatesOfACube, ChancesOfCells)
