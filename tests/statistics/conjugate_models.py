"""Tables of categorical records: several children, public terms, random concentrations, other parameters.

Beside what every test model brings, each knows its exact posterior by enumeration of the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.random.basic import DirichletRV
from scipy import special, stats

import pymc_dp as dp
from tests.statistics import oracles
from tests.statistics.marginal import Marginal, from_log_density, from_mixture, gauss_panels
from tests.statistics.models import metropolis, normal_mean
from tests.statistics.stat_model import State, StatModel

__all__ = ["CONJUGATE_MODELS", "ConjugateModel", "conjugate_steps", "conjugate_update"]


class ConjugateModel(StatModel):
    """A model with tables, and its exact posterior."""

    def functionals(self, state: State) -> np.ndarray:
        """Products of every parameter with the mean records too: what links tables and counts."""
        products = np.outer(self.parameters(state), self._mean_records(state))
        return np.concatenate([super().functionals(state), products.ravel()])

    @property
    def functional_names(self) -> list[str]:
        count = self.parameters(self.draw_prior(np.random.default_rng(0))).size
        links = [f"link{j}_{name}" for j in range(count) for name in self.record_names]
        return [*super().functional_names, *links]

    def exact(self, release: State) -> dict[int, Marginal]:
        """Exact marginals, by position among the parameters."""
        raise NotImplementedError


def conjugate_update(model: pm.Model) -> dp.ConjugateUpdate:
    """The exact draw of all tables of a model, none of which is left to another step, and its sweeps."""
    claimed = dp.ConjugateUpdate._claimable(model)
    tables = [rv for rv in model.free_RVs if isinstance(rv.owner.op, DirichletRV)]
    assert tables and [model.values_to_rvs[v] for v in claimed] == tables
    return dp.ConjugateUpdate([*claimed, *dp.RecordImputation._claimable(model)])


def conjugate_steps(model: pm.Model) -> list:
    """Tables with their records, and the ancillary update for what is no table."""
    tables = conjugate_update(model)
    others = [v for v in dp.AncillaryUpdate._claimable(model) if v not in tables.vars]
    rest = [dp.AncillaryUpdate(others, n_cycles=2)] if others else []
    return [tables, *rest]


# --- enumeration ---------------------------------------------------------------------------------


def spread(per_record: Iterable[Iterable[tuple[tuple[int, ...], float]]]) -> tuple[np.ndarray, np.ndarray]:
    """Sums over records of what each may contribute, and the total weight of every sum.

    Each record gives its alternatives: (contribution, weight).
    """
    total: dict[tuple[int, ...], float] = {}
    for alternatives in per_record:
        before, total = total or {(): 1.0}, {}
        for (known, mass), (own, weight) in product(before.items(), list(alternatives)):
            key = tuple(a + b for a, b in zip(known, own)) if known else tuple(own)
            total[key] = total.get(key, 0.0) + mass * weight
    return np.array(list(total)), np.array(list(total.values()))


def log_dirichlet_evidence(alpha: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Log probability of one sequence of categories with these counts (last axis: categories)."""
    cells = special.gammaln(alpha + counts).sum(-1) - special.gammaln(alpha).sum(-1)
    return cells + special.gammaln(alpha.sum(-1)) - special.gammaln((alpha + counts).sum(-1))


def cells_of(alpha: np.ndarray, log_weight: np.ndarray) -> list[Marginal]:
    """Marginals of the cells under a mixture of Dirichlet laws; alpha (components, categories).

    The grid is dense at both ends, where densities of small concentrations have poles.
    """
    weight = np.exp(log_weight - log_weight.max())
    end = np.concatenate([[0.0], np.geomspace(1e-14, 0.02, 300)])
    grid = np.concatenate([end, np.linspace(0.02, 0.98, 800)[1:-1], 1 - end[::-1]])
    marginals = []
    for cell in alpha.T:
        # components that agree on this cell are one; those of no weight are none
        pairs, where = np.unique(np.stack([cell, alpha.sum(1) - cell]), axis=1, return_inverse=True)
        share = np.bincount(where.ravel(), weight)
        kept = share > 1e-13 * share.max()
        a, b = pairs[:, kept]
        with np.errstate(divide="ignore", invalid="ignore"):
            pdf = stats.beta.pdf(grid[:, None], a, b)
        pdf[~np.isfinite(pdf)] = 0.0
        mean = a / (a + b)
        variance = mean * (1 - mean) / (a + b + 1)
        cdf = special.betainc(a, b, grid[:, None])
        marginals.append(from_mixture(share[kept], mean, variance, grid, cdf, pdf))
    return marginals


# --- models --------------------------------------------------------------------------------------


def _categories(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """One category for each row of probabilities."""
    return (rng.random(p.shape[:-1])[..., None] > p.cumsum(-1)[..., :-1]).sum(-1)


class RandomConcentration(ConjugateModel):
    """Two questions per person, a row of answers for each; the rows' concentration is unknown.

    Matrix records, noisy counts (Gaussian, central).
    """

    parameter_names = ("log_a", "p")
    record_names = ("c",)
    n = 5
    base = np.array([0.6, 1.0, 1.4])

    def draw_model(self, rng):
        log_a = rng.normal(0.3, 0.6)
        p = rng.dirichlet(np.exp(log_a) * self.base, 2)
        return {"log_a": log_a, "p": p, "c": _categories(rng, np.broadcast_to(p, (self.n, 2, 3)))}

    def query(self, state):
        counts = (np.asarray(state["c"])[..., None] == np.arange(3)).sum(0).astype(float)
        return {"s": (counts, "gaussian", 2 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            log_a = pm.Normal("log_a", 0.3, 0.6)
            p = pm.Dirichlet("p", pt.exp(log_a) * self.base, shape=(2, 3))
            c = pm.Categorical("c", p, shape=(self.n, 2))
            counts = dp.record_sum(pt.eq(c[..., None], np.arange(3)))
            sigma = pm.Data("sigma", 2 / self.epsilon)
            dp.GaussianMechanism("s", counts, sigma=sigma, observed=release["s"])
        return model

    def gibbs(self, state, rng):
        def log_density(log_a):
            alpha = np.exp(log_a) * self.base
            constant = special.gammaln(alpha.sum()) - special.gammaln(alpha).sum()
            return 2 * constant + (alpha * log_p).sum() - 0.5 * ((log_a - 0.3) / 0.6) ** 2

        log_p = np.log(np.maximum(state["p"], 1e-300))
        log_a = metropolis(rng, state["log_a"], log_density, 0.8)
        alpha = np.exp(log_a) * self.base + self.query(state)["s"][0]
        return {**state, "log_a": log_a, "p": np.stack([rng.dirichlet(row) for row in alpha])}

    def exact(self, release):
        counts, ways = spread([[(tuple(np.eye(3, dtype=int)[k]), 1.0) for k in range(3)]] * self.n)
        noise = oracles.noise_logpdf("gaussian", release["s"][:, None] - counts, 2 / self.epsilon).sum(-1)

        def by_counts(log_a):  # (question, log_a, counts)
            alpha = np.exp(log_a)[:, None, None] * self.base
            return log_dirichlet_evidence(alpha, counts) + np.log(ways) + noise[:, None]

        def log_density(log_a):
            each = special.logsumexp(by_counts(log_a), axis=-1)
            return each.sum(0) + stats.norm.logpdf(log_a, 0.3, 0.6)

        log_a, w = (a.ravel() for a in gauss_panels(np.linspace(0.3 - 3.9, 0.3 + 3.9, 14), 4))
        joint = np.log(w) + log_density(log_a)
        each = by_counts(log_a)
        each = each - special.logsumexp(each, axis=-1, keepdims=True) + joint[:, None]
        alpha = (np.exp(log_a)[:, None, None] * self.base + counts).reshape(-1, 3)
        rows = [m for question in each for m in cells_of(alpha, question.ravel())]
        return dict(enumerate([from_log_density(log_density, -3.9, 4.5), *rows]))


class SharedTable(ConjugateModel):
    """Three states in turn, one table for both changes; noisy sums of them and of a product (Laplace)."""

    parameter_names = ("table", "p")
    record_names = ("a", "b", "c")
    n = 6
    prior_p = np.array([1.5, 1.0])
    prior = np.array([[2.0, 1.0], [1.0, 1.5]])

    def draw_model(self, rng):
        p = rng.dirichlet(self.prior_p)
        table = np.stack([rng.dirichlet(row) for row in self.prior])
        a = rng.choice(2, self.n, p=p)
        b = _categories(rng, table[a])
        return {"p": p, "table": table, "a": a, "b": b, "c": _categories(rng, table[b])}

    @staticmethod
    def _rows(a, b, c):
        return np.stack([a, b, c, a * c], -1).astype(float)

    def query(self, state):
        rows = self._rows(*(np.asarray(state[k]) for k in self.record_names))
        return {"s": (rows.sum(0), "laplace", 4 / self.epsilon)}

    def build(self, release):
        with pm.Model() as model:
            p = pm.Dirichlet("p", self.prior_p)
            table = pm.Dirichlet("table", self.prior)
            a = pm.Categorical("a", p, shape=self.n)
            b = pm.Categorical("b", table[a])
            c = pm.Categorical("c", table[b])
            query = dp.record_sum(pt.stack([a, b, c, a * c], axis=1))
            scale = pm.Data("scale", 4 / self.epsilon)
            dp.LaplaceMechanism("s", query, scale=scale, observed=release["s"])
        return model

    def _counts(self, a, b, c):
        starts, moves = np.zeros(2), np.zeros((2, 2))
        np.add.at(starts, a, 1)
        np.add.at(moves, (a, b), 1)
        np.add.at(moves, (b, c), 1)
        return starts, moves

    def gibbs(self, state, rng):
        starts, moves = self._counts(*(np.asarray(state[k]).astype(int) for k in self.record_names))
        table = np.stack([rng.dirichlet(row) for row in self.prior + moves])
        return {**state, "p": rng.dirichlet(self.prior_p + starts), "table": table}

    def exact(self, release):
        def contribution(*path):
            starts, moves = self._counts(*path)
            return tuple(np.concatenate([starts, moves.ravel(), self._rows(*path)]).astype(int))

        paths = [(contribution(*path), 1.0) for path in product(range(2), repeat=3)]
        sums, ways = spread([paths] * self.n)
        alpha_p, alpha = self.prior_p + sums[:, :2], self.prior + sums[:, 2:6].reshape(-1, 2, 2)
        log_weight = (
            np.log(ways)
            + log_dirichlet_evidence(self.prior_p, sums[:, :2])
            + log_dirichlet_evidence(self.prior, sums[:, 2:6].reshape(-1, 2, 2)).sum(-1)
            + oracles.noise_logpdf("laplace", release["s"] - sums[:, 6:], 4 / self.epsilon).sum(-1)
        )
        rows = [alpha[:, 0], alpha[:, 1], alpha_p]
        marginals = [m for row in rows for m in cells_of(row, log_weight)]
        return dict(enumerate(marginals))


class PublicTerms(ConjugateModel):
    """A hidden class with a public categorical symptom; answers by public group and class, each released.

    A table with two axes of rows, one picked by a constant; local release (Laplace).
    """

    parameter_names = ("p", "table")
    record_names = ("c", "f")
    replicates = 2500
    n = 6
    group = np.array([0, 1, 1, 0, 1, 0])
    prior_p = np.array([2.0, 1.0])
    prior = np.array([[[1.0, 2.0, 1.0], [2.0, 1.0, 1.0]], [[1.5, 0.5, 1.0], [1.0, 1.0, 3.0]]])
    symptom = np.array([[0.8, 0.2], [0.3, 0.7]])

    def draw_model(self, rng):
        p = rng.dirichlet(self.prior_p)
        table = np.array([[rng.dirichlet(a) for a in rows] for rows in self.prior])
        c = rng.choice(2, self.n, p=p)
        return {"p": p, "table": table, "c": c, "f": _categories(rng, table[self.group, c])}

    def query(self, state):
        c, f = (np.asarray(state[k]).astype(int) for k in self.record_names)
        answers = (f[:, None] == np.arange(3)).astype(float)
        return {
            "z": (answers, "laplace", 2 / self.epsilon),
            "w": (self.symptom[c, 1], "public", 1.0),
        }

    def redraw_release(self, state, rng):
        queries = self.query(state)
        answers, _, scale = queries["z"]
        chance, *_ = queries["w"]
        z = answers + rng.laplace(0, scale, answers.shape)
        return {**state, "z": z, "w": (rng.random(self.n) < chance).astype(int)}

    def build(self, release):
        with pm.Model() as model:
            p = pm.Dirichlet("p", self.prior_p)
            table = pm.Dirichlet("table", self.prior)
            c = pm.Categorical("c", p, shape=self.n)
            f = pm.Categorical("f", table[self.group, c])
            pm.Categorical("w", pt.as_tensor(self.symptom)[c], observed=release["w"])
            scale = pm.Data("scale", 2 / self.epsilon)
            answers = pt.eq(f[:, None], np.arange(3))
            dp.LaplaceMechanism("z", answers, scale=scale, observed=release["z"])
        return model

    def _counts(self, c, f):
        classes, answers = np.zeros(2), np.zeros((2, 2, 3))
        np.add.at(classes, c, 1)
        np.add.at(answers, (self.group, c, f), 1)
        return classes, answers

    def gibbs(self, state, rng):
        c, f = (np.asarray(state[k]).astype(int) for k in self.record_names)
        classes, answers = self._counts(c, f)
        table = np.array([[rng.dirichlet(a) for a in rows] for rows in self.prior + answers])
        return {**state, "p": rng.dirichlet(self.prior_p + classes), "table": table}

    def exact(self, release):
        def alternatives(i):
            for c, f in product(range(2), range(3)):
                answers = np.zeros((2, 2, 3), dtype=int)
                answers[self.group[i], c, f] = 1
                deviation = release["z"][i] - (np.arange(3) == f)
                noise = oracles.noise_logpdf("laplace", deviation, 2 / self.epsilon).sum()
                own = (1 - c, c, *answers.ravel())
                yield own, self.symptom[c, int(release["w"][i])] * np.exp(noise)

        sums, weight = spread(alternatives(i) for i in range(self.n))
        counts_p, counts = sums[:, :2], sums[:, 2:].reshape(-1, 2, 2, 3)
        log_weight = np.log(weight) + log_dirichlet_evidence(self.prior_p, counts_p)
        log_weight += log_dirichlet_evidence(self.prior, counts).sum((1, 2))
        rows = [self.prior_p + counts_p]
        rows += [self.prior[g, c] + counts[:, g, c] for g, c in product(range(2), repeat=2)]
        marginals = [m for row in rows for m in cells_of(row, log_weight)]
        return dict(enumerate(marginals))


class MixedParameters(ConjugateModel):
    """Classes with normal values: a table beside class means, which are no Dirichlet variables.

    Two releases: the values one by one (Gaussian, unclamped), the size of a class (Laplace).
    """

    parameter_names = ("p", "m")
    record_names = ("c", "x")
    n = 6
    prior_p = np.array([1.5, 2.0])
    centre = np.array([-1.0, 1.5])

    def draw_model(self, rng):
        p, m = rng.dirichlet(self.prior_p), rng.normal(self.centre, 1.2)
        c = rng.choice(2, self.n, p=p)
        return {"p": p, "m": m, "c": c, "x": rng.normal(m[c], 0.8)}

    def query(self, state):
        return {
            "s": (np.float64(np.sum(state["c"])), "laplace", 1 / self.epsilon),
            "z": (np.asarray(state["x"]), "gaussian", 3 / self.epsilon),
        }

    def build(self, release):
        with pm.Model() as model:
            p = pm.Dirichlet("p", self.prior_p)
            m = pm.Normal("m", self.centre, 1.2)
            c = pm.Categorical("c", p, shape=self.n)
            x = pm.Normal("x", m[c], 0.8)
            scale = pm.Data("scale", 1 / self.epsilon)
            dp.LaplaceMechanism("s", dp.record_sum(c), scale=scale, observed=release["s"])
            dp.GaussianMechanism("z", x, sigma=3 * scale, observed=release["z"])
        return model

    def gibbs(self, state, rng):
        c = np.asarray(state["c"]).astype(int)
        size = np.bincount(c, minlength=2)
        total = np.bincount(c, state["x"], minlength=2)
        m = normal_mean(rng, total, size, 0.8, self.centre, 1.2)
        return {**state, "p": rng.dirichlet(self.prior_p + size), "m": m}

    def exact(self, release):
        z, variance = release["z"], 0.8**2 + (3 / self.epsilon) ** 2
        classes = np.array(list(product(range(2), repeat=self.n)))
        counts = np.stack([self.n - classes.sum(1), classes.sum(1)], 1)
        log_weight = log_dirichlet_evidence(self.prior_p, counts)
        log_weight += oracles.noise_logpdf("laplace", release["s"] - counts[:, 1], 1 / self.epsilon)
        means = []
        for k in range(2):
            own = classes == k
            precision = 1.2**-2 + own.sum(1) / variance
            centre = (self.centre[k] / 1.2**2 + own @ z / variance) / precision
            means.append((centre, precision**-0.5))
            # the law of a class's releases, by dividing prior and likelihood by posterior at 0
            log_weight += (own * stats.norm.logpdf(z, 0, variance**0.5)).sum(1)
            log_weight += stats.norm.logpdf(0, self.centre[k], 1.2)
            log_weight -= stats.norm.logpdf(0, centre, precision**-0.5)
        marginals = cells_of(self.prior_p + counts, log_weight)
        weight = np.exp(log_weight - log_weight.max())
        for centre, sd in means:
            grid = np.linspace((centre - 8 * sd).min(), (centre + 8 * sd).max(), 3001)[:, None]
            pieces = stats.norm.cdf(grid, centre, sd), stats.norm.pdf(grid, centre, sd)
            marginals.append(from_mixture(weight, centre, sd**2, grid[:, 0], *pieces))
        return dict(enumerate(marginals))


CONJUGATE_MODELS = (
    RandomConcentration,
    SharedTable,
    PublicTerms,
    MixedParameters,
)
