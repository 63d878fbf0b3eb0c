"""Tables of counts for calibration and joint tests: at several levels, and with margins known exactly."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as dp
from tests.statistics.stat_model import StatModel


class CountsAtTwoLevels(StatModel):
    """Poisson counts with a random rate: noisy cells, and noisier or more precise rows and columns."""

    parameter_names = ("rate",)
    record_names = ("c",)
    weights = np.array([[1.0, 0.5, 2.0], [0.3, 1.0, 0.7]])

    def draw_model(self, rng):
        rate = rng.gamma(2, 1)
        return {"rate": rate, "c": rng.poisson(rate * self.weights)}

    def query(self, state):
        c = np.asarray(state["c"], dtype=float)
        return {
            "cells": (c, "laplace", 3 / self.epsilon),
            "rows": (c.sum(axis=1), "normal", 2 / self.epsilon),
            "columns": (c.sum(axis=0), "laplace", 1 / self.epsilon),
        }

    def build(self, release):
        with pm.Model() as model:
            rate = pm.Gamma("rate", 2, 1)
            c = pm.Poisson("c", rate * self.weights)
            self.release(c, release)
        return model

    def release(self, c, release):
        cells, rows, columns = (pm.Data(f"{k} as released", release[k]) for k in ("cells", "rows", "columns"))
        dp.LaplaceMechanism("cells", c, scale=3 / self.epsilon, observed=cells)
        dp.GaussianMechanism("rows", c.sum(axis=1), sigma=2 / self.epsilon, observed=rows)
        dp.LaplaceMechanism("columns", c.sum(axis=0), scale=1 / self.epsilon, observed=columns)

    def gibbs(self, state, rng):
        rate = rng.gamma(2 + np.sum(state["c"])) / (1 + self.weights.sum())
        return {**state, "rate": rate}


class TableWithMargins(StatModel):
    """Rows of a multinomial law whose columns add up to known numbers, cells behind noise."""

    parameter_names = ("p",)
    record_names = ("c",)
    n = np.array([4, 2, 6])

    def draw_model(self, rng):
        p = rng.beta(2, 2)
        return {"p": p, "c": np.stack([rng.multinomial(n, self.shares(p)) for n in self.n])}

    @staticmethod
    def shares(p):
        return np.array([p * p, 2 * p * (1 - p), (1 - p) ** 2])

    def query(self, state):
        return {"cells": (np.asarray(state["c"], dtype=float), "normal", 2 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            p = pm.Beta("p", 2, 2)
            shares = pt.stack([p * p, 2 * p * (1 - p), (1 - p) ** 2])
            c = pm.Multinomial("c", self.n, shares)
            dp.Invariant("columns", c.sum(axis=0), observed=np.sum(release["c"], axis=0))
            cells = pm.Data("cells as released", release["cells"])
            dp.GaussianMechanism("cells", c, sigma=2 / self.epsilon, observed=cells)
        return model

    def gibbs(self, state, rng):
        first, both, last = np.sum(state["c"], axis=0)
        return {**state, "p": rng.beta(2 + 2 * first + both, 2 + both + 2 * last)}


TABLE_MODELS = (CountsAtTwoLevels, TableWithMargins)


def imputed(model):
    return [dp.TableImputation(n_sweeps=5)]
