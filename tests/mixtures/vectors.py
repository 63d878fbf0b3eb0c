"""Mixtures of vectors: exact posteriors where everything is normal given a scale, and models to simulate.

Records of a cluster are N(mu, C) with mu ~ N(m, S); what is known of them has independent normal noise. Given
(C, S) the releases of a cluster are jointly normal, and (C, S) is summed over nodes. No code of the package
or of PyMC is used for the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special, stats

import pymc_dp as dp
from tests.mixtures import exact
from tests.mixtures.models import MixtureModel


def correlated(d, rho):
    """Covariance with unequal variances."""
    sd = np.linspace(0.7, 1.4, d)
    return np.outer(sd, sd) * (rho + (1 - rho) * np.eye(d))


@dataclass(frozen=True)
class Vectors:
    """What is known of n vectors, z (n, d), behind noise of sd sigma.

    weights (G,), cov and base (G, d, d): prior weights of the nodes, and C and S there.
    """

    z: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    base: np.ndarray
    weights: np.ndarray = field(default_factory=lambda: np.ones(1))
    sigma: float = 0.8

    def _joints(self, r):
        """Covariance of r records of a cluster at each node, (G, r d, r d)."""
        n_nodes, d = len(self.weights), len(self.mean)
        cov, base = (np.broadcast_to(v, (n_nodes, d, d)) for v in (self.cov, self.base))
        return [np.kron(np.eye(r), c) + np.kron(np.ones((r, r)), s) for c, s in zip(cov, base, strict=True)]

    def _nodes(self, block):
        """Log weight of each node given a block's releases, not normalised."""
        d, r = len(self.mean), len(block)
        noise = self.sigma**2 * np.eye(r * d)
        x = self.z[list(block)].ravel()
        return np.array(
            [
                np.log(w) + stats.multivariate_normal.logpdf(x, np.tile(self.mean, r), k + noise)
                for w, k in zip(self.weights, self._joints(r), strict=True)
            ]
        )

    def log_marginal(self, block):
        """Log density of the releases of a block that shares one atom."""
        return special.logsumexp(self._nodes(block))

    def posterior(self, alpha, d=0.0):
        """Posterior of the partition."""
        return exact.posterior(len(self.z), self.log_marginal, alpha, d)

    def record_moments(self, post):
        """Posterior means (n, d) and matrices of second moments (n, d, d) of the records."""
        n, d = self.z.shape
        mean, second = np.zeros((n, d)), np.zeros((n, d, d))
        for block, p in post.block_probabilities().items():
            r = len(block)
            nodes = special.softmax(self._nodes(block))
            for w, k in zip(nodes, self._joints(r), strict=True):
                gain = k @ np.linalg.inv(k + self.sigma**2 * np.eye(r * d))
                m = np.tile(self.mean, r)
                m = m + gain @ (self.z[list(block)].ravel() - m)
                v = k - gain @ k
                for j, i in enumerate(block):
                    part = slice(j * d, (j + 1) * d)
                    mean[i] += p * w * m[part]
                    second[i] += p * w * (v[part, part] + np.outer(m[part], m[part]))
        return mean, second

    def mean_density(self, post, x):
        """Posterior mean density of a further record at points x (X, d)."""
        total = len(self.z) + post.alpha
        clusters = 1 + post.labels.max(axis=1)
        found = (post.prob @ (post.alpha + post.d * clusters)) / total * self._predictive((), x)
        for block, p in post.block_probabilities().items():
            found += p * (len(block) - post.d) / total * self._predictive(block, x)
        return found

    def _predictive(self, block, x):
        """Density of one more record of a block, which has none for the base."""
        d, r = len(self.mean), len(block)
        nodes = special.softmax(self._nodes(block)) if block else self.weights
        density = np.zeros(len(x))
        for w, joint in zip(nodes, self._joints(r + 1), strict=True):
            known = joint[d:, d:] + self.sigma**2 * np.eye(r * d)
            gain = joint[:d, d:] @ np.linalg.inv(known) if block else np.zeros((d, 0))
            m = self.mean + gain @ (self.z[list(block)].ravel() - np.tile(self.mean, r))
            v = joint[:d, :d] - gain @ joint[d:, :d]
            density += w * stats.multivariate_normal.pdf(x, m, v)
        return density


@dataclass(frozen=True)
class Example:
    """A small mixture of vectors.

    declare(labels, slots): the records. exact: the answers. cov(atoms): C by slot, (..., slots, d, d).
    unchanging: functions of the atoms, with their means under the base. laws: normal, scale, single, other.
    noise_is_data: whether its level is, so that examples that differ in that share what is compiled.
    """

    declare: Callable
    exact: Vectors
    cov: Callable
    unchanging: dict[str, tuple[Callable, float]]
    laws: tuple
    noise_is_data: bool = False

    @cached_property
    def points(self):
        z = self.exact.z
        return np.array([z[0], z.mean(axis=0), self.exact.mean])

    def density(self, x, atoms):
        """Of the kernel at one point, for atoms (..., slots)."""
        cov = self.cov(atoms)
        fits = np.linalg.eigvalsh(cov)[..., 0] > 0
        inside = np.where(fits[..., None, None], cov, np.eye(len(x)))
        return np.where(fits, np.exp(_log_normal(x, atoms["mu"], inside)), 0.0)

    def model(self, urn, slots):
        """In PyMC."""
        with pm.Model() as model:
            y = self.declare(urn.labels(len(self.exact.z), slots), slots)
            sigma = pm.Data("sigma", self.exact.sigma) if self.noise_is_data else self.exact.sigma
            dp.GaussianMechanism("z", y, sigma=sigma, observed=self.exact.z)
        return model


Z2 = np.array([[-1.6, -2.0], [-0.9, 0.4], [1.9, 1.2]])
Z5 = np.array([[-1.6, -2.0, 0.1, 0.6, -1.0], [-0.9, 0.4, -0.3, 0.0, 0.8], [1.9, 1.2, 0.9, 2.2, 0.4]])
MEAN = np.array([0.3, -0.2])


def _always(cov):
    return lambda atoms: cov


def _scaling(cov):
    return lambda atoms: atoms["s2"][..., None, None] * cov


def _correlation(r):
    return np.stack([np.stack([1 + 0 * r, r], axis=-1), np.stack([r, 1 + 0 * r], axis=-1)], axis=-2)


def _moments_of_means(mean, base):
    """First, second and mixed moments."""
    return {
        "mu0": (lambda a: a["mu"][..., 0], mean[0]),
        "mu1^2": (lambda a: a["mu"][..., 1] ** 2, mean[1] ** 2 + base[1, 1]),
        "mu0 mu1": (lambda a: a["mu"][..., 0] * a["mu"][..., 1], mean[0] * mean[1] + base[0, 1]),
    }


def _constant(labels, slots):
    mu = pm.Normal("mu", MEAN, [1.5, 2.0], shape=(slots, 2))
    return pm.MvNormal("y", mu[labels], correlated(2, 0.7))


def _public(labels, slots):
    """Numbers that are known when sampling begins only."""
    root = pm.Data("root", np.linalg.cholesky(correlated(2, -0.6)), shape=(2, 2))
    mu = pm.MvNormal("mu", MEAN, 3 * correlated(2, 0.5), shape=(slots, 2))
    return pm.MvNormal("y", mu[labels], chol=root)


def _five(labels, slots):
    mu = pm.MvNormal("mu", np.zeros(5), cov=2 * correlated(5, 0.3), shape=(slots, 5))
    return pm.MvNormal("y", mu[labels], tau=np.linalg.inv(correlated(5, 0.6)))


def _scaled(labels, slots):
    """A variance for each slot, with which the means scale."""
    s2 = pm.InverseGamma("s2", 3, 2, shape=slots)
    mu = pm.MvNormal("mu", MEAN, 3 * s2[:, None, None] * correlated(2, 0.5), shape=(slots, 2))
    return pm.MvNormal("y", mu[labels], s2[labels][:, None, None] * correlated(2, 0.7))


def _rescaled(labels, slots):
    """A variance for each slot that the means know nothing of, in the factor, whose law is unknown."""
    s2 = pm.LogNormal("s2", 0, 0.7, shape=slots)
    mu = pm.Normal("mu", MEAN, [1.5, 2.0], shape=(slots, 2))
    root = pt.sqrt(s2)[:, None, None] * np.linalg.cholesky(correlated(2, 0.7))
    return pm.MvNormal("y", mu[labels], chol=root[labels])


def _correlations(labels, slots):
    """A number of each slot that is no correlation one time in seven: the slot is then of no record."""
    r = pm.Normal("r", 0, 0.7, shape=slots)
    mu = pm.Normal("mu", MEAN, [1.5, 2.0], shape=(slots, 2))
    one = pt.ones_like(r)
    cov = pt.stack([pt.stack([one, r], axis=-1), pt.stack([r, one], axis=-1)], axis=-2)
    return pm.MvNormal("y", mu[labels], cov[labels])


def _inverse_gamma_nodes(a, b):
    u, log_w = exact._log_gamma_axis(a, b, 0.25)
    w = np.exp(log_w)
    return w / w.sum(), np.exp(-u)[:, None, None]


def _log_normal_nodes(sd):
    t, h = np.linspace(-8, 8, 81, retstep=True)
    return stats.norm.pdf(t) * h, np.exp(sd * t)[:, None, None]


def _nodes_inside(sd):
    """Of a normal number between -1 and 1, in a variable in which the density vanishes at both ends."""
    t, h = np.linspace(-7, 7, 101, retstep=True)
    r = np.tanh(t)
    return stats.norm.pdf(r, scale=sd) * (1 - r**2) * h, r


W_GAMMA, S_GAMMA = _inverse_gamma_nodes(3, 2)
W_NORMAL, S_NORMAL = _log_normal_nodes(0.7)
W_INSIDE, R_INSIDE = _nodes_inside(0.7)
DIAGONAL = np.diag([1.5**2, 2.0**2])
EXAMPLES = {
    "constant": Example(
        _constant,
        Vectors(Z2, MEAN, correlated(2, 0.7), DIAGONAL),
        _always(correlated(2, 0.7)),
        _moments_of_means(MEAN, DIAGONAL),
        ([0, 1], None, [], []),
        noise_is_data=True,
    ),
    "little noise": Example(
        _constant,
        Vectors(Z2, MEAN, correlated(2, 0.7), DIAGONAL, sigma=0.05),
        _always(correlated(2, 0.7)),
        _moments_of_means(MEAN, DIAGONAL),
        ([0, 1], None, [], []),
        noise_is_data=True,
    ),
    "public": Example(
        _public,
        Vectors(Z2, MEAN, correlated(2, -0.6), 3 * correlated(2, 0.5)),
        _always(correlated(2, -0.6)),
        _moments_of_means(MEAN, 3 * correlated(2, 0.5)),
        ([0, 1], None, [], []),
    ),
    "five": Example(
        _five,
        Vectors(Z5, np.zeros(5), correlated(5, 0.6), 2 * correlated(5, 0.3)),
        _always(correlated(5, 0.6)),
        _moments_of_means(np.zeros(5), 2 * correlated(5, 0.3)),
        ([0, 1, 2, 3, 4], None, [], []),
    ),
    "scaled": Example(
        _scaled,
        Vectors(Z2, MEAN, S_GAMMA * correlated(2, 0.7), S_GAMMA * 3 * correlated(2, 0.5), W_GAMMA),
        _scaling(correlated(2, 0.7)),
        {
            "1/s2": (lambda a: 1 / a["s2"], 1.5),
            "mu mu / s2": (
                lambda a: (a["mu"][..., 0] - MEAN[0]) * (a["mu"][..., 1] - MEAN[1]) / a["s2"],
                3 * correlated(2, 0.5)[0, 1],
            ),
        },
        ([1, 2], 0, [], []),
    ),
    "rescaled": Example(
        _rescaled,
        Vectors(Z2, MEAN, S_NORMAL * correlated(2, 0.7), DIAGONAL, W_NORMAL),
        _scaling(correlated(2, 0.7)),
        {"log s2": (lambda a: np.log(a["s2"]), 0.0), "log s2^2": (lambda a: np.log(a["s2"]) ** 2, 0.49)},
        ([1, 2], None, [], [0]),
    ),
    "correlations": Example(
        _correlations,
        Vectors(Z2, MEAN, _correlation(R_INSIDE), DIAGONAL, W_INSIDE),
        lambda a: _correlation(a["r"]),
        {"r": (lambda a: a["r"], 0.0), "r^2": (lambda a: a["r"] ** 2, 0.49)},
        ([1, 2], None, [], [0]),
    ),
}


def _log_normal(y, mu, cov):
    """Log density of rows, with a covariance for each row or one for all."""
    gap = y - mu
    square = np.einsum("...j,...jk,...k", gap, np.linalg.inv(cov), gap)
    return -0.5 * (square + np.linalg.slogdet(cov)[1] + y.shape[-1] * np.log(2 * np.pi))


class VectorModel(MixtureModel):
    """Base: correlations among the functions that are compared."""

    def _named(self, s):
        a = self.of_records(s)
        y, gap = np.tanh(s["y"] / 3), np.tanh(s["y"] - a["mu"])
        mu = np.tanh(s["mu"] / 3)
        return super()._named(s) | {
            "columns": (y[:, 0] * y[:, 1]).mean(),
            "gaps": (gap[:, 0] * gap[:, 1]).mean(),
            "gap^2": (gap**2).mean(),
            "means": (mu[:, 0] * mu[:, 1]).mean(),
            "own means": (mu[s["labels"]][:, 0] * mu[s["labels"]][:, 1]).mean(),
        }


class OneCovariance(VectorModel):
    """A random covariance that all slots share, and a base with a hyperparameter; clamped."""

    bounds = (-4.0, 4.0)
    width = 8.0
    laws = ([0, 1], None, [])
    base_cov = 3 * correlated(2, 0.5)

    def draw_hyper(self, rng):
        return {"m0": rng.normal(), "b": rng.gamma(3, 1 / 3)}

    def draw_base(self, rng, s, size):
        return {"mu": rng.multivariate_normal([s["m0"], 0.5], self.base_cov, size)}

    def of_records(self, s):
        return {**super().of_records(s), "b": s["b"]}

    def draw_records(self, rng, a):
        return a["mu"] + np.sqrt(a["b"]) * rng.multivariate_normal([0, 0], correlated(2, 0.8), len(a["mu"]))

    def log_kernel(self, y, a):
        return _log_normal(y, a["mu"], a["b"] * correlated(2, 0.8))

    def summaries(self, a):
        return [np.tanh(a["mu"][:, 0] / 4), np.tanh(a["mu"][:, 1] / 4)]

    def declare(self, labels):
        m0, b = pm.Normal("m0", 0, 1), pm.Gamma("b", 3, 3)
        mu = pm.MvNormal("mu", pt.stack([m0, 0.5]), self.base_cov, shape=(self.slots, 2))
        return pm.MvNormal("y", mu[labels], b * correlated(2, 0.8), shape=(self.n, 2))


class CovarianceOfEachSlot(VectorModel):
    """Standard deviations of each slot around one correlation: Langevin moves; Gaussian noise."""

    noise = "gaussian"
    laws = ([2, 3], None, [])
    other = [0, 1]  # noqa: RUF012
    correlation = np.array([[1.0, 0.7], [0.7, 1.0]])

    def draw_base(self, rng, s, size):
        return {"sd": rng.gamma(4, 1 / 4, (size, 2)), "mu": rng.normal(0, 2, (size, 2))}

    def draw_records(self, rng, a):
        return a["mu"] + a["sd"] * rng.multivariate_normal([0, 0], self.correlation, len(a["mu"]))

    def log_kernel(self, y, a):
        return _log_normal(y, a["mu"], a["sd"][:, :, None] * self.correlation * a["sd"][:, None, :])

    def summaries(self, a):
        return [np.tanh(a["mu"][:, 0] / 4), np.log(a["sd"][:, 0]), np.log(a["sd"][:, 1])]

    def declare(self, labels):
        sd = pm.Gamma("sd", 4, 4, shape=(self.slots, 2))
        mu = pm.Normal("mu", 0, 2, shape=(self.slots, 2))
        cov = sd[:, :, None] * self.correlation * sd[:, None, :]
        return pm.MvNormal("y", mu[labels], cov[labels])
