"""Mixtures for calibration and joint distribution tests: simulated here, declared in PyMC, with weak spots.

Concentration, discount, number of components and hyperparameters of the base are random; the steps under test
leave them, so that they are tested at many values. A random concentration of a Dirichlet process has an exact
update of its own.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special

import pymc_dp as dp
from tests.statistics.stat_model import State, StatModel

X = np.array([-1.2, -0.6, 0.0, 0.5, 0.9, 1.6])


def draw_labels(rng, n, slots, alpha, d):
    """Labels from the urn, one record after the other, in slots at random."""
    clusters = [0]
    for i in range(1, n):
        sizes = np.bincount(clusters)
        weights = np.append(sizes - d, max(alpha + d * len(sizes), 0.0))
        if d < 0 and len(sizes) == round(-alpha / d):
            weights[-1] = 0.0
        clusters.append(int(rng.choice(len(weights), p=weights / (i + alpha))))
    return rng.permutation(slots)[clusters]


class MixtureModel(StatModel):
    """Base: urn, labels and what is compared. Subclasses give base, kernel and release."""

    n, slots = 6, 8
    urn = "process"  # or "Pitman-Yor", "finite", "random number"
    record_names = ("y",)
    noise = "laplace"
    width = 4.0
    bounds: ClassVar[tuple[float, float] | None] = None
    # how the numbers of a slot are drawn: normal, scale, single
    laws: ClassVar[tuple[list[str], str | None, list[tuple[str, str]]]]
    # numbers of another law
    other: ClassVar[list[str]] = []

    @property
    def scale(self):
        """Of the noise."""
        return self.width / self.epsilon

    # -- to fill in: arrays of numpy -------------------------------------------------------------

    def draw_hyper(self, rng) -> State:
        """Hyperparameters of the base."""
        return {}

    def draw_base(self, rng, s: State, size: int) -> State:
        """Atoms of so many slots."""
        raise NotImplementedError

    def draw_records(self, rng, a: State) -> np.ndarray:
        """Records given each one's atoms."""
        raise NotImplementedError

    def log_kernel(self, y, a: State) -> np.ndarray:
        """Log density of each record given its atoms."""
        raise NotImplementedError

    def summaries(self, atoms: State) -> list[np.ndarray]:
        """Functions of the atoms that have moments, each with one number per slot."""
        raise NotImplementedError

    def squash(self, y):
        """Function of the records that has moments."""
        return np.tanh(y / 4)

    # -- to fill in: PyMC ------------------------------------------------------------------------

    def declare(self, labels) -> Any:
        """Hyperparameters, atoms and records."""
        raise NotImplementedError

    def release(self, y, state: State) -> None:
        """Mechanism of the records."""
        kind = {"laplace": dp.LaplaceMechanism, "gaussian": dp.GaussianMechanism}[self.noise]
        level = {"scale" if self.noise == "laplace" else "sigma": self.scale}
        kind("z", self.asked(y), **level, bounds=self.bounds, observed=state["z"])

    def asked(self, y):
        """The query, in PyMC."""
        return y

    # -- common ----------------------------------------------------------------------------------

    def draw_urn(self, rng) -> State:
        if self.urn == "process":
            return {"alpha": rng.gamma(2, 1)}
        if self.urn == "Pitman-Yor":  # the slice sampler takes no discount near 1
            return {"half": rng.beta(1, 2)}
        return {"alpha": rng.gamma(2, 0.5), **({"more": rng.poisson(1.5)} if "random" in self.urn else {})}

    def numbers_of_urn(self, s: State) -> tuple[float, float]:
        if self.urn == "process":
            return s["alpha"], 0.0
        if self.urn == "Pitman-Yor":
            return 0.6, 0.4 * s["half"]
        return s["alpha"] * (3 if self.urn == "finite" else 1 + s["more"]), -s["alpha"]

    def declare_labels(self):
        kw: dict[str, Any] = {"shape": self.n, "max_components": self.slots}
        if self.urn == "process":
            return dp.ChineseRestaurantProcess("labels", pm.Gamma("alpha", 2, 1), **kw)
        if self.urn == "Pitman-Yor":
            return dp.ChineseRestaurantProcess("labels", 0.6, 0.4 * pm.Beta("half", 1, 2), **kw)
        g = pm.Gamma("alpha", 2, 2)
        k = 3 if self.urn == "finite" else 1 + pm.Poisson("more", 1.5)
        return dp.ChineseRestaurantProcess("labels", g, n_components=k, **kw)

    def build(self, release: State) -> pm.Model:
        with pm.Model() as model:
            self.release(self.declare(self.declare_labels()), release)
        return model

    def of_records(self, s: State) -> State:
        """Atoms of each record's slot."""
        return {name: s[name][s["labels"]] for name in self.atom_names}

    def draw_model(self, rng):
        s = {**self.draw_urn(rng), **self.draw_hyper(rng)}
        s["labels"] = draw_labels(rng, self.n, self.slots, *self.numbers_of_urn(s))
        s |= self.draw_base(rng, s, self.slots)
        s["y"] = self.draw_records(rng, self.of_records(s))
        return s

    @cached_property
    def atom_names(self) -> list[str]:
        return list(self.draw_base(np.random.default_rng(0), self.draw_hyper(np.random.default_rng(0)), 1))

    def query(self, state):
        y = state["y"]
        return {"z": (y if self.bounds is None else np.clip(y, *self.bounds), self.noise, self.scale)}

    def gibbs(self, state, rng):
        """Escobar and West's update of the concentration, whose prior is Gamma(2, 1)."""
        if self.urn != "process":
            return state
        k = len(np.unique(state["labels"]))
        rate = 1 - np.log(rng.beta(state["alpha"] + 1, self.n))
        odds = (2 + k - 1) / (self.n * rate)
        return {**state, "alpha": rng.gamma(2 + k - (rng.random() * (1 + odds) > odds)) / rate}

    def log_joint(self, s: State) -> float:
        """Log density of labels, records and release, whatever the names of the slots."""
        alpha, d = self.numbers_of_urn(s)
        sizes = np.bincount(s["labels"])
        sizes = sizes[sizes > 0]
        value = np.log(alpha + d * np.arange(1, len(sizes))).sum() + special.gammaln(sizes - d).sum()
        return value + self.log_kernel(s["y"], self.of_records(s)).sum() - self._noise(s).sum()

    def quantities(self, s):
        """What calibration ranks; none knows of slots."""
        alpha, _ = self.numbers_of_urn(s)
        labels, a = s["labels"], self.of_records(s)
        sizes = np.bincount(labels)
        at = np.exp(self.log_kernel(s["y"][[0]], {k: v for k, v in s.items() if k in a}))
        return np.array(
            [
                alpha,
                len(np.unique(labels)),
                (sizes**2).sum(),
                labels[0] == labels[1],
                np.ravel(s["y"])[0],
                np.mean(s["y"]),
                *(f[labels].mean() for f in self.summaries({k: s[k] for k in a})),
                (at * np.bincount(labels, minlength=self.slots)).sum(),
                self.log_joint(s),
                *self._noise(s),
            ]
        )

    @property
    def quantity_names(self):
        s = self.draw_prior(np.random.default_rng(0))
        more = len(self.summaries({k: s[k] for k in self.atom_names}))
        return [
            "alpha", "k", "sizes^2", "same", "y0", "mean y", *(f"atom{j}" for j in range(more)), "density",
            "log joint", *(f"noise_{name}" for name in self.query(s)),
        ]  # fmt: skip

    def functionals(self, s):
        return np.array(list(self._named(s).values()), dtype=float)

    @property
    def functional_names(self):
        return list(self._named(self.draw_prior(np.random.default_rng(0))))

    def _named(self, s):
        c, k = s["labels"], len(np.unique(s["labels"]))
        sizes = np.bincount(c, minlength=self.slots)
        same, y = c[0] == c[1], self.squash(s["y"])
        alpha, d = self.numbers_of_urn(s)
        found = {
            "k": k, "k^2": k * k, "alpha k": k * np.log(alpha), "d k": k * d, "sizes^2": (sizes**2).sum(),
            "same": same, "label": c[0], "order": float(c[0] < c[1]), "slot 0": float(sizes[0] > 0),
            "y": y.mean(), "y0": np.ravel(y)[0], "y0^2": np.ravel(y)[0] ** 2, "y0 k": np.ravel(y)[0] * k,
            "y^2": (y**2).mean(), "y0 y1": np.ravel(y[0] * y[1])[0],
            "y y same": same * np.ravel(y[0] * y[1])[0],
            "log kernel": self.log_kernel(s["y"], self.of_records(s)).mean(),
        }  # fmt: skip
        is_free = sizes == 0
        for j, f in enumerate(self.summaries({name: s[name] for name in self.atom_names})):
            own, free = f[c], f[is_free]
            of_own, of_free = own.mean(), free.mean()
            found |= {
                f"own{j}": of_own, f"own{j}^2": (own**2).mean(), f"own{j} y": (own * y.T).mean(),
                f"own{j} y^2": (own * y.T**2).mean(), f"own{j} k": own[0] * k, f"own{j} same": own[0] * same,
                f"free{j}": of_free, f"free{j}^2": (free**2).mean(), f"free{j} y": of_free * found["y"],
                f"all{j}": f[0],
            }  # fmt: skip
            for name in self.hyper_names:
                found[f"own{j} {name}"] = of_own * np.tanh(s[name])
        for name, (q, _, scale) in self.query(s).items():
            noise = (s[name] - q) / scale
            found |= {f"noise {name}": np.abs(noise).mean(), f"noise {name} k": np.tanh(noise).mean() * k}
        return found

    @cached_property
    def hyper_names(self):
        return list(self.draw_hyper(np.random.default_rng(0)))


def log_normal(y, mu, s2):
    return -0.5 * ((y - mu) ** 2 / s2 + np.log(2 * np.pi * s2))


class NormalInverseGamma(MixtureModel):
    """The conjugate base, below two hyperparameters; clamped."""

    bounds = (-4.0, 4.0)
    laws = (["mu"], "s2", [])

    def draw_hyper(self, rng):
        return {"m0": rng.normal(), "b": rng.gamma(3, 1 / 2)}

    def draw_base(self, rng, s, size):
        s2 = s["b"] / rng.gamma(3, size=size)
        return {"s2": s2, "mu": rng.normal(s["m0"], np.sqrt(4 * s2))}

    def draw_records(self, rng, a):
        return rng.normal(a["mu"], np.sqrt(a["s2"]))

    def log_kernel(self, y, a):
        return log_normal(y, a["mu"], a["s2"])

    def summaries(self, a):
        return [np.tanh(a["mu"] / 4), np.log(a["s2"])]

    def declare(self, labels):
        m0, b = pm.Normal("m0", 0, 1), pm.Gamma("b", 3, 2)
        s2 = pm.InverseGamma("s2", 3, b, shape=self.slots)
        mu = pm.Normal("mu", m0, 2 * pt.sqrt(s2), shape=self.slots)
        return pm.Normal("y", mu[labels], pt.sqrt(s2[labels]))


class KnownVariance(MixtureModel):
    """Normal means, with a hyperparameter; a Pitman-Yor process of random discount; unclamped."""

    urn, noise = "Pitman-Yor", "gaussian"
    laws = (["mu"], None, [])

    def draw_hyper(self, rng):
        return {"m0": rng.normal()}

    def draw_base(self, rng, s, size):
        return {"mu": rng.normal(s["m0"], 2, size)}

    def draw_records(self, rng, a):
        return rng.normal(a["mu"], 0.8)

    def log_kernel(self, y, a):
        return log_normal(y, a["mu"], 0.64)

    def summaries(self, a):
        return [np.tanh(a["mu"] / 3)]

    def declare(self, labels):
        m0 = pm.Normal("m0", 0, 1)
        mu = pm.Normal("mu", m0, 2, shape=self.slots)
        return pm.Normal("y", mu[labels], 0.8)


class PoissonGamma(MixtureModel):
    """Counts behind whole noise."""

    width = 3.0
    laws = ([], None, [("rate", "gamma")])

    def draw_hyper(self, rng):
        return {"b": rng.gamma(3, 1 / 3)}

    def draw_base(self, rng, s, size):
        return {"rate": rng.gamma(2, size=size) / s["b"]}

    def draw_records(self, rng, a):
        return rng.poisson(a["rate"])

    def log_kernel(self, y, a):
        return special.xlogy(y, a["rate"]) - a["rate"] - special.gammaln(y + 1)

    def summaries(self, a):
        return [np.log1p(a["rate"])]

    def squash(self, y):
        return np.log1p(y)

    def declare(self, labels):
        rate = pm.Gamma("rate", 2, pm.Gamma("b", 3, 3), shape=self.slots)
        return pm.Poisson("y", rate[labels])

    def release(self, y, state):
        dp.DiscreteLaplaceMechanism("z", y, scale=self.scale, observed=state["z"])

    def redraw_release(self, state, rng):
        up, down = np.floor(self.scale * rng.standard_exponential((2, self.n)))
        return {**state, "z": state["y"] + (up - down).astype(int)}


class Regressions(MixtureModel):
    """Lines: a covariate of every record's own, and two atoms; a random number of components."""

    urn = "random number"
    laws = (["b0", "b1"], None, [])

    def draw_base(self, rng, s, size):
        return {"b0": rng.normal(0, 2, size), "b1": rng.normal(1, 1.5, size)}

    def draw_records(self, rng, a):
        return rng.normal(a["b0"] + a["b1"] * X, 0.7)

    def log_kernel(self, y, a):
        return log_normal(y, a["b0"] + a["b1"] * (X if len(y) > 1 else X[0]), 0.49)

    def summaries(self, a):
        return [np.tanh(a["b0"] / 3), np.tanh(a["b1"] / 2), np.tanh(a["b0"] * a["b1"] / 3)]

    def declare(self, labels):
        b0 = pm.Normal("b0", 0, 2, shape=self.slots)
        b1 = pm.Normal("b1", 1, 1.5, shape=self.slots)
        return pm.Normal("y", b0[labels] + b1[labels] * X, 0.7)

    def _named(self, s):
        a = self.of_records(s)
        return super()._named(s) | {"slope": (np.tanh(a["b1"]) * np.tanh(s["y"] / 3) * X).mean()}


class MatrixOfCoefficients(Regressions):
    """The same with one matrix of atoms, and variances that nothing scales with; three components."""

    urn, slots = "finite", 4
    laws = (["b 0", "b 1"], None, [("s2", "inverse gamma")])

    def draw_base(self, rng, s, size):
        return {"b": rng.normal([0, 1], [2, 1.5], (size, 2)), "s2": 2 / rng.gamma(3, size=size)}

    def draw_records(self, rng, a):
        return rng.normal(a["b"][:, 0] + a["b"][:, 1] * X, np.sqrt(a["s2"]))

    def log_kernel(self, y, a):
        return log_normal(y, a["b"][:, 0] + a["b"][:, 1] * (X if len(y) > 1 else X[0]), a["s2"])

    def summaries(self, a):
        b = a["b"].T
        return [np.tanh(b[0] / 3), np.tanh(b[1] / 2), np.log(a["s2"])]

    def declare(self, labels):
        b = pm.Normal("b", [0, 1], [2, 1.5], shape=(self.slots, 2))
        s2 = pm.InverseGamma("s2", 3, 2, shape=self.slots)
        return pm.Normal("y", b[labels, 0] + b[labels, 1] * X, pt.sqrt(s2[labels]))

    def _named(self, s):
        a = self.of_records(s)
        return MixtureModel._named(self, s) | {"slope": (np.tanh(a["b"][:, 1] * s["y"]) * X).mean()}


class GammaRates(MixtureModel):
    """Skewed records with a Gamma rate."""

    bounds = (0.0, 6.0)
    laws = ([], None, [("rate", "gamma")])

    def draw_hyper(self, rng):
        return {"b": rng.gamma(3, 1 / 3)}

    def draw_base(self, rng, s, size):
        return {"rate": rng.gamma(3, size=size) / s["b"]}

    def draw_records(self, rng, a):
        return rng.gamma(2.5, 1 / a["rate"])

    def log_kernel(self, y, a):
        return 2.5 * np.log(a["rate"]) + 1.5 * np.log(y) - a["rate"] * y - special.gammaln(2.5)

    def summaries(self, a):
        return [np.log(a["rate"])]

    def squash(self, y):
        return np.log(y)

    def declare(self, labels):
        rate = pm.Gamma("rate", 3, pm.Gamma("b", 3, 3), shape=self.slots)
        return pm.Gamma("y", 2.5, rate[labels])


class BinomialBeta(MixtureModel):
    """Whole records with a Beta probability, below a hyperparameter; finite."""

    urn, slots, width = "finite", 4, 3.0
    laws = ([], None, [("p", "beta")])

    def draw_hyper(self, rng):
        return {"a": rng.gamma(3, 1 / 2)}

    def draw_base(self, rng, s, size):
        return {"p": np.clip(rng.beta(s["a"], 1.5, size), 1e-12, 1 - 1e-12)}

    def draw_records(self, rng, a):
        return rng.binomial(3, a["p"])

    def log_kernel(self, y, a):
        return (
            special.xlogy(y, a["p"])
            + special.xlog1py(3 - y, -a["p"])
            - special.gammaln([y + 1, 4 - y]).sum(0)
        )

    def summaries(self, a):
        return [a["p"]]

    def squash(self, y):
        return y / 3

    def declare(self, labels):
        p = pm.Beta("p", pm.Gamma("a", 3, 2), 1.5, shape=self.slots)
        return pm.Binomial("y", 3, p[labels])


class BernoulliBeta(BinomialBeta):
    """Answers behind randomized response."""

    urn, slots = "process", 8

    def draw_records(self, rng, a):
        return rng.binomial(1, a["p"])

    def log_kernel(self, y, a):
        return np.log(np.where(y == 1, a["p"], 1 - a["p"]))

    def squash(self, y):
        return y

    def declare(self, labels):
        p = pm.Beta("p", pm.Gamma("a", 3, 2), 1.5, shape=self.slots)
        return pm.Bernoulli("y", p[labels])

    def release(self, y, state):
        dp.RandomizedResponse("z", y, epsilon=self.epsilon, observed=state["z"])

    def query(self, state):
        return {"z": (state["y"], "response", 1.0)}

    def redraw_release(self, state, rng):
        lie = rng.random(self.n) < 1 / (1 + np.exp(self.epsilon))
        return {**state, "z": np.where(lie, 1 - state["y"], state["y"])}


class LatentClasses(MixtureModel):
    """Categories with a row of probabilities for each slot, below a hyperparameter."""

    width = 3.0
    shapes = np.array([1.0, 0.6, 1.5])
    laws = ([], None, [(f"p {k}", "probability") for k in range(3)])

    def draw_hyper(self, rng):
        return {"a": rng.gamma(3, 1 / 2)}

    def draw_base(self, rng, s, size):
        return {"p": rng.dirichlet(self.shapes + s["a"], size)}

    def draw_records(self, rng, a):
        return (rng.random((self.n, 1)) > np.cumsum(a["p"], axis=1)[:, :2]).sum(axis=1)

    def log_kernel(self, y, a):
        which = np.broadcast_to(y, len(a["p"])).astype(int)  # of one record in every slot, too
        return np.log(a["p"][np.arange(len(which)), which])

    def summaries(self, a):
        return [a["p"][:, 0], a["p"][:, 2]]

    def squash(self, y):
        return y / 2

    def declare(self, labels):
        shapes = self.shapes + pm.Gamma("a", 3, 2)
        p = pm.Dirichlet("p", shapes, shape=(self.slots, 3))
        return pm.Categorical("y", p=p[labels])


class TwoColumns(MixtureModel):
    """Vectors as records; two means and a variance that scales both."""

    bounds = (-4.0, 4.0)
    width = 8.0
    laws = (["mu 0", "mu 1"], "s2", [])

    def draw_base(self, rng, s, size):
        s2 = 2 / rng.gamma(3, size=size)
        return {"s2": s2, "mu": rng.normal(0.5, np.sqrt(3 * s2[:, None]), (size, 2))}

    def draw_records(self, rng, a):
        return rng.normal(a["mu"], np.sqrt(a["s2"])[:, None])

    def log_kernel(self, y, a):
        return log_normal(y, a["mu"], a["s2"][:, None]).sum(axis=1)

    def summaries(self, a):
        return [np.tanh(a["mu"][:, 0] / 4), np.tanh(a["mu"][:, 1] / 4), np.log(a["s2"])]

    def declare(self, labels):
        s2 = pm.InverseGamma("s2", 3, 2, shape=self.slots)
        mu = pm.Normal("mu", 0.5, pt.sqrt(3 * s2)[:, None], shape=(self.slots, 2))
        return pm.Normal("y", mu[labels], pt.sqrt(s2[labels])[:, None])


class Precisions(MixtureModel):
    """Means and precisions that know nothing of each other, which are drawn one after the other."""

    urn = "Pitman-Yor"
    laws = (["mu"], None, [("tau", "gamma")])

    def draw_base(self, rng, s, size):
        return {"mu": rng.normal(0, 2, size), "tau": rng.gamma(2, size=size)}

    def draw_records(self, rng, a):
        return rng.normal(a["mu"], a["tau"] ** -0.5)

    def log_kernel(self, y, a):
        return log_normal(y, a["mu"], 1 / a["tau"])

    def summaries(self, a):
        return [np.tanh(a["mu"] / 3), np.log(a["tau"])]

    def declare(self, labels):
        mu = pm.Normal("mu", 0, 2, shape=self.slots)
        tau = pm.Gamma("tau", 2, 1, shape=self.slots)
        return pm.Normal("y", mu[labels], tau=tau[labels])


class HalfNormalScales(MixtureModel):
    """Standard deviations of no conjugate law, with means that have one; finite."""

    urn, slots = "finite", 4
    laws = (["mu"], None, [])
    other: ClassVar[list[str]] = ["sd"]

    def draw_base(self, rng, s, size):
        return {"mu": rng.normal(0, 2, size), "sd": np.abs(rng.normal(0, 1.5, size))}

    def draw_records(self, rng, a):
        return rng.normal(a["mu"], a["sd"])

    def log_kernel(self, y, a):
        return log_normal(y, a["mu"], a["sd"] ** 2)

    def summaries(self, a):
        return [np.tanh(a["mu"] / 3), a["sd"]]

    def declare(self, labels):
        mu = pm.Normal("mu", 0, 2, shape=self.slots)
        sd = pm.HalfNormal("sd", 1.5, shape=self.slots)
        return pm.Normal("y", mu[labels], sd[labels])


class BetaShapes(MixtureModel):
    """Both shapes of a Beta kernel, below a hyperparameter."""

    width = 1.0
    laws = ([], None, [])
    other: ClassVar[list[str]] = ["a", "b"]

    def draw_hyper(self, rng):
        return {"rate": rng.gamma(3, 1 / 2)}

    def draw_base(self, rng, s, size):
        return {name: rng.gamma(2, size=size) / s["rate"] for name in ("a", "b")}

    def draw_records(self, rng, a):
        return np.clip(rng.beta(a["a"], a["b"]), 1e-12, 1 - 1e-12)

    def log_kernel(self, y, a):
        return (a["a"] - 1) * np.log(y) + (a["b"] - 1) * np.log1p(-y) - special.betaln(a["a"], a["b"])

    def summaries(self, a):
        return [np.log(a["a"]), np.log(a["b"])]

    def squash(self, y):
        return y

    def declare(self, labels):
        rate = pm.Gamma("rate", 3, 2)
        a, b = (pm.Gamma(name, 2, rate, shape=self.slots) for name in ("a", "b"))
        return pm.Beta("y", a[labels], b[labels])


class CutVariances(MixtureModel):
    """Variances from a lower end on, below a hyperparameter, with means whose law scales with them."""

    end = 1.5
    laws = (["mu"], "tau2", [])

    def draw_hyper(self, rng):
        return {"b": rng.gamma(3, 1 / 2)}

    def draw_base(self, rng, s, size):
        mass = special.gammainc(3, s["b"] / self.end)
        tau2 = s["b"] / special.gammaincinv(3, mass * rng.random(size))
        return {"tau2": np.maximum(tau2, self.end), "mu": rng.normal(0.5, np.sqrt(4 * tau2))}

    def draw_records(self, rng, a):
        return rng.normal(a["mu"], np.sqrt(a["tau2"]))

    def log_kernel(self, y, a):
        return log_normal(y, a["mu"], a["tau2"])

    def summaries(self, a):
        return [np.tanh(a["mu"] / 4), np.log(a["tau2"])]

    def declare(self, labels):
        law = pm.InverseGamma.dist(3, pm.Gamma("b", 3, 2))
        tau2 = pm.Truncated("tau2", law, lower=self.end, shape=self.slots, default_transform=None)
        mu = pm.Normal("mu", 0.5, 2 * pt.sqrt(tau2), shape=self.slots)
        return pm.Normal("y", mu[labels], pt.sqrt(tau2[labels]))


class PublicOutcomes(KnownVariance):
    """Something public depends on every record, beside the release."""

    urn, noise = "process", "laplace"

    def query(self, state):
        return {**super().query(state), "w": (0.7 * state["y"], "gaussian", 1.2)}

    def release(self, y, state):
        super().release(y, state)
        pm.Normal("w", 0.7 * y, 1.2, observed=state["w"])


class LatentParents(KnownVariance):
    """What is released depends on the records that are clustered."""

    urn, noise = "process", "laplace"
    record_names = ("y", "x")
    bounds = (-4.0, 4.0)

    def draw_model(self, rng):
        s = super().draw_model(rng)
        return {**s, "x": rng.normal(s["y"], 0.6)}

    def query(self, state):
        return {"z": (np.clip(state["x"], *self.bounds), self.noise, self.scale)}

    def asked(self, y):
        return pm.Normal("x", y, 0.6)

    def _named(self, s):
        d = s["x"] - s["y"]
        return super()._named(s) | {
            "x - y": d.mean(),
            "(x - y)^2": (d**2).mean(),
            "xy": np.tanh(s["x"] * s["y"])[0],
        }


class ReleasedSum(KnownVariance):
    """One number of all records: their moves depend on each other."""

    urn, noise = "process", "laplace"
    bounds = (-4.0, 4.0)
    width = 8.0

    def query(self, state):
        return {"z": (np.float64(np.clip(state["y"], *self.bounds).sum()), self.noise, self.scale)}

    def asked(self, y):
        return dp.record_sum(y)


class ReleasedHistogram(KnownVariance):
    """Values from a smoothed histogram of all records."""

    urn = "process"
    bins = 4

    @property
    def smoothing(self):
        """Weight of the uniform density."""
        return 1 / (1 + self.epsilon)

    def _counts(self, state):
        at = np.clip(((state["y"] + 4) / 8 * self.bins).astype(int), 0, self.bins - 1)
        return np.bincount(at, minlength=self.bins)

    def query(self, state):
        return {"z": (np.mean(np.clip(state["y"], -4, 4)), "histogram", 4.0)}

    def release(self, y, state):
        dp.SmoothedHistogramSample(
            "z", y, n_bins=self.bins, bounds=(-4, 4), smoothing=self.smoothing, observed=state["z"]
        )

    def redraw_release(self, state, rng):
        p = (1 - self.smoothing) * self._counts(state) / self.n + self.smoothing / self.bins
        at = rng.choice(self.bins, 7, p=p)
        return {**state, "z": -4 + 8 / self.bins * (at + rng.random(7))}


MODELS = [
    NormalInverseGamma, KnownVariance, PoissonGamma, Regressions, MatrixOfCoefficients, GammaRates,
    BinomialBeta, BernoulliBeta, TwoColumns, Precisions, HalfNormalScales, BetaShapes, PublicOutcomes,
    LatentParents, LatentClasses,
]  # fmt: skip
# normal records behind Laplace or Gaussian noise, each by itself, and discrete records
CLOSED_MODELS = [
    NormalInverseGamma, KnownVariance, Regressions, MatrixOfCoefficients, TwoColumns, PoissonGamma,
    BinomialBeta, BernoulliBeta, LatentClasses,
]  # fmt: skip
NORMAL_MODELS = CLOSED_MODELS[:5]
# of all records together: not for several auxiliary records
CENTRAL_MODELS = [ReleasedSum, ReleasedHistogram]


def laws_by_name(lowered):
    """Return a mixture's laws as ``laws`` and ``other`` of the models above write them.

    By name, since a model built anew (as ``pm.observe`` does) may list its variables in another order.
    """
    names, program = [], lowered.program
    for rv, shape in zip(program.mixture.atoms, program.atom_shapes, strict=True):
        names += [" ".join([rv.name, *map(str, index)]) for index in np.ndindex(shape)]
    laws = lowered.laws
    scale = None if laws.scale is None else names[laws.scale]
    single = sorted((names[k], law) for k, law in laws.single)
    return (sorted(names[k] for k in laws.normal), scale, single), sorted(names[k] for k in laws.other)


def known(model_type):
    """Return the same mixture with records that are data."""

    class Known(model_type):
        def build(self, release):
            with pm.Model() as model:
                self.declare(self.declare_labels())
            return pm.observe(model, {"y": release["y"]})

        def query(self, state):
            return {"y": (state["y"] - self.squash(state["y"]), "none", 1.0)}

        def redraw_release(self, state, rng):
            return state

    Known.__name__ = f"Known{model_type.__name__}"
    return Known


KNOWN_MODELS = [
    *map(known, (
        NormalInverseGamma, KnownVariance, PoissonGamma, Regressions, MatrixOfCoefficients, GammaRates,
        BinomialBeta, BernoulliBeta, TwoColumns, Precisions, HalfNormalScales, BetaShapes, CutVariances,
        LatentClasses,
    ))
]  # fmt: skip
# atoms that integrate out
CONJUGATE_MODELS = [
    m for m in KNOWN_MODELS
    if not m.other and (m.laws[0] == [] or m.laws[2] == [])
    and m.__name__ not in ("KnownMatrixOfCoefficients", "KnownLatentClasses")
]  # fmt: skip
