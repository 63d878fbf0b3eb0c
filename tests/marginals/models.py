"""Models whose records can be integrated out, each with the exact probability of its releases."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.polynomial.legendre import leggauss
from scipy import stats
from scipy.integrate import quad
from scipy.special import beta

import pymc_dp as dp

X = np.array([-1.0, 0.3, 2.0])
POINTS = [{"a": 0.4, "b": 1.3}, {"a": -2.0, "b": 0.2}]


def integral(function, low, high, breaks=(), panels=400):
    """Integrate a vectorised function by Gauss-Legendre panels between breaks."""
    node, weight = leggauss(20)
    edges = sorted({low, high, *(b for b in breaks if low < b < high)})
    total = 0.0
    for left, right in pairwise(edges):
        ends = np.linspace(left, right, panels + 1)
        half = 0.5 * np.diff(ends)[:, None]
        x = (0.5 * (ends[1:] + ends[:-1]))[:, None] + half * node
        total += float(np.sum(half * weight * function(x)))
    return total


def laplace(scale):
    return lambda z, q: stats.laplace.pdf(z, q, scale)


def gaussian(sigma):
    return lambda z, q: stats.norm.pdf(z, q, sigma)


def continuous(z, law, channel, bounds=(-np.inf, np.inf), span=(-60.0, 60.0)):
    """Integrate the release over a record with a density."""
    return integral(
        lambda y: law.pdf(y) * channel(z, np.clip(y, *bounds)), *span, breaks=(z, *np.nan_to_num(bounds))
    )


def summed(z, law, channel, bounds=(-np.inf, np.inf), top=400):
    """Add up the release over the values of a record."""
    k = np.arange(top)
    return float(np.sum(law.pmf(k) * channel(z, np.clip(k, *bounds))))


@dataclass(frozen=True)
class Case:
    """A model of parameters a (real) and b (positive), its records, and log p(releases | a, b)."""

    build: Any
    names: tuple[str, ...]
    log_density: Any


def _parameters():
    return pm.Normal("a", 0, 1), pm.HalfNormal("b", 1)


def _normal(mechanism, observed, **noise):
    def build():
        with pm.Model() as model:
            a, b = _parameters()
            y = pm.Normal("y", a * X, b)
            mechanism("z", y, observed=observed, **noise)
        return model

    return build


def _logs(observed, density):
    return lambda a, b: float(sum(np.log(density(i, z, a, b)) for i, z in enumerate(observed)))


Z = np.array([0.7, -1.4, 5.0])
BOUNDS = (-1.0, 1.5)
# noise scales that follow from the budgets below
SCALE, SIGMA = 2.5 / 2.0, 2.5 / np.sqrt(2 * 0.8)


def _clamped(channel, bounds):
    return _logs(Z, lambda i, z, a, b: continuous(z, stats.norm(a * X[i], b), channel, bounds))


def _mixture():
    with pm.Model() as model:
        a, b = _parameters()
        w = pt.stack([0.25, 0.75])
        y = pm.NormalMixture("y", w, pt.stack([a, a + 3]), sigma=b, shape=3)
        dp.LaplaceMechanism("z", y, epsilon=2, bounds=BOUNDS, observed=Z)
    return model


def _mixture_density(i, z, a, b):
    channel = laplace(SCALE)
    first, second = (continuous(z, stats.norm(m, b), channel, BOUNDS) for m in (a, a + 3))
    return 0.25 * first + 0.75 * second


def _two_kinds():
    with pm.Model() as model:
        a, b = _parameters()
        w = pt.stack([0.25, 0.75])
        y = pm.Mixture("y", w, [pm.Normal.dist(a, b), pm.Normal.dist(a, 2 * b)], shape=3)
        dp.GaussianMechanism("z", y, sigma=np.array([0.5, 1.0, 2.0]), observed=Z)
    return model


def _two_kinds_density(i, z, a, b):
    sigma = [0.5, 1.0, 2.0][i]
    return 0.25 * stats.norm.pdf(z, a, np.hypot(b, sigma)) + 0.75 * stats.norm.pdf(
        z, a, np.hypot(2 * b, sigma)
    )


COV = np.array([[1.0, 0.4], [0.4, 0.6]])
ROWS = np.array([[0.3, -0.2], [2.0, 1.0], [-1.0, 0.5]])


def _vectors():
    with pm.Model() as model:
        a, b = _parameters()
        y = pm.MvNormal("y", pt.stack([a, -a]), b * COV, shape=(3, 2))
        dp.GaussianMechanism("z", y, sigma=[0.5, 1.5], observed=ROWS)
    return model


def _vectors_log(a, b):
    law = stats.multivariate_normal([a, -a], b * COV + np.diag([0.25, 2.25]))
    return float(law.logpdf(ROWS).sum())


def _vector_mixture():
    with pm.Model() as model:
        a, b = _parameters()
        means = pt.stack([pt.stack([a, -a]), pt.stack([a + 2, a])])
        parts = pm.MvNormal.dist(means, b * COV)
        y = pm.Mixture("y", pt.stack([0.3, 0.7]), parts, shape=(3, 2))
        dp.GaussianMechanism("z", y, sigma=0.5, observed=ROWS)
    return model


def _vector_mixture_log(a, b):
    cov = b * COV + 0.25 * np.eye(2)
    parts = [stats.multivariate_normal(m, cov).pdf(ROWS) for m in ([a, -a], [a + 2, a])]
    return float(np.log(0.3 * parts[0] + 0.7 * parts[1]).sum())


REPORTS = np.array([0, 2, 1, 2, 2, 0, 2, 1])


def _probabilities(a, b):
    weights = np.exp([0.0, a, b])
    return weights / weights.sum()


def _response(mechanism, observed, **noise):
    def build():
        with pm.Model() as model:
            a, b = _parameters()
            p = pm.Deterministic("p", pm.math.softmax(pt.stack([0.0, a, b])))
            y = pm.Categorical("y", p, shape=len(observed))
            mechanism("z", y, observed=observed, **noise)
        return model

    return build


def _response_density(i, z, a, b):
    q = np.where(np.arange(3) == z, np.e, 1.0) / (np.e + 2)
    return float(q @ _probabilities(a, b))


ANSWERS = np.array([1, 0, 1])


def _answers(**noise):
    def build():
        with pm.Model() as model:
            a, b = _parameters()
            y = pm.Bernoulli("y", logit_p=a + b * X)
            dp.RandomizedResponse("z", y, observed=ANSWERS, **noise)
        return model

    return build


def _answers_density(p_truth, p_lie):
    def density(i, z, a, b):
        p = [1 / (1 + np.exp(a + b * X[i])), 1 / (1 + np.exp(-a - b * X[i]))]
        return sum(p[y] * (p_truth if y == z else p_lie) for y in (0, 1))

    return density


DEVICE = np.array([[4 / 6, 2 / 6], [1 / 6, 5 / 6]])
DEVICES = np.array([[[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], [[0.9, 0.1, 0], [0, 0.4, 0.6]], [[0.2, 0.8, 0]] * 2])
TOLD_BY = np.array([[0.6, 0.2, 0.1, 0.1], [0.0, 0.5, 0.3, 0.2], [0.3, 0.0, 0.1, 0.6]])


def _device_density(device):
    def density(i, z, a, b):
        p = 1 / (1 + np.exp(-a - b * X[i]))
        table = device if device.ndim == 2 else device[i]
        return float(np.array([1 - p, p]) @ table[:, z])

    return density


BITS = np.random.default_rng(3).integers(0, 2, (5, 3))


def _bits_density(i, z, a, b):
    own = np.e**0.5 / (1 + np.e**0.5)
    chance = [np.prod([own if bit == (j == k) else 1 - own for j, bit in enumerate(z)]) for k in range(3)]
    return float(np.array(chance) @ _probabilities(a, b))


def _yes():
    with pm.Model() as model:
        a, b = _parameters()
        y = pm.Bernoulli("y", logit_p=a + b * X)
        dp.LaplaceMechanism("z", y, scale=0.7, observed=Z)
    return model


def _yes_density(i, z, a, b):
    p = 1 / (1 + np.exp(-a - b * X[i]))
    q = laplace(0.7)
    return p * q(z, 1) + (1 - p) * q(z, 0)


TOSSES = np.array([3, 7, 0])


def _binomial():
    with pm.Model() as model:
        a, b = _parameters()
        n = np.array([2, 5, 4])
        y = pm.Binomial("y", n, pm.math.sigmoid(a + b))
        dp.DiscreteLaplaceMechanism("z", y, epsilon=1, bounds=(0, 4), observed=TOSSES)
    return model


def discrete_laplace(scale):
    return lambda z, q: np.tanh(0.5 / scale) * np.exp(-np.abs(z - q) / scale)


def discrete_gaussian(sigma):
    total = np.exp(-0.5 * (np.arange(-400, 401) / sigma) ** 2).sum()
    return lambda z, q: np.exp(-0.5 * ((z - q) / sigma) ** 2) / total


def _binomial_density(i, z, a, b):
    law = stats.binom([2, 5, 4][i], 1 / (1 + np.exp(-a - b)))
    return summed(z, law, discrete_laplace(4.0), (0, 4))


TOLD = np.array([6, 0, 10])


def _beta(bounds, shared):
    def build():
        with pm.Model() as model:
            a, b = _parameters()
            y = pm.Beta("y", pt.exp(a), b, shape=3) if shared else pm.Beta("y", pt.exp(a * X), b)
            dp.BinomialMechanism("z", y, n_trials=10, theta=0.3, bounds=bounds, observed=TOLD)
        return model

    return build


def _beta_density(bounds, first):
    lo, hi = bounds

    def density(i, z, a, b):
        alpha = first(a, i)

        def release(y):
            return stats.binom.pmf(z, 10, 0.5 + 0.3 * (2 * (y - lo) / (hi - lo) - 1))

        # poles of the beta density at its ends are the rule's own weights
        found = quad(release, 0, 1, weight="alg", wvar=(alpha - 1, b - 1), epsabs=0, epsrel=1e-12)[0]
        return found / beta(alpha, b)

    return density


COUNTS = np.array([4, -7, 0, 60, 4, 4])


def _whole(family, mechanism, shape=None, **noise):
    def build():
        with pm.Model() as model:
            a, b = _parameters()
            y = family(a, b, shape)
            mechanism("z", y, observed=COUNTS, **noise)
        return model

    return build


def _poisson(a, b, shape):
    return pm.Poisson("y", pt.exp(a) * 3, shape=6)


def _negative_binomial(a, b, shape):
    return pm.NegativeBinomial("y", mu=pt.exp(a) * 3 * pt.ones(6), alpha=b)


def _whole_log(law, channel):
    return _logs(COUNTS, lambda i, z, a, b: summed(z, law(a, b), channel))


def _central():
    with pm.Model() as model:
        a, b = _parameters()
        y = pm.Normal("y", a * X, b * np.array([1.0, 2.0, 0.5]))
        dp.GaussianMechanism("z", pt.stack([y.sum(), (X * y).mean()]), sigma=[0.5, 0.2], observed=[1.0, 2.0])
    return model


C = np.array([np.ones(3), X / 3])
SD = np.array([1.0, 2.0, 0.5])


def _central_log(a, b):
    cov = (C * (b * SD) ** 2) @ C.T + np.diag([0.25, 0.04])
    return float(stats.multivariate_normal(C @ (a * X), cov).logpdf([1.0, 2.0]))


def _mean():
    with pm.Model() as model:
        a, b = _parameters()
        y = pm.Normal("y", a, b, shape=4)
        dp.GaussianMechanism("z", 2 - y.mean(), sigma=0.3, observed=0.4)
    return model


def _two_releases():
    with pm.Model() as model:
        a, b = _parameters()
        y = pm.Normal("y", a * X, b)
        dp.LaplaceMechanism("z", y, epsilon=2, bounds=BOUNDS, observed=Z)
        dp.GaussianMechanism("w", y, sigma=0.9, observed=Z - 0.5)
    return model


def _two_density(i, z, a, b):
    def both(y):
        return (
            stats.norm.pdf(y, a * X[i], b)
            * stats.norm.pdf(z - 0.5, y, 0.9)
            * laplace(SCALE)(z, np.clip(y, *BOUNDS))
        )

    return integral(both, -60, 60, breaks=(z, *BOUNDS))


def _told_thrice():
    """An answer, another by a second device, and a noisy number that is clamped."""
    with pm.Model() as model:
        a, b = _parameters()
        y = pm.Binomial("y", 2, pm.math.sigmoid(a + b * X))
        dp.LaplaceMechanism("z", y, scale=0.7, bounds=(0.5, 2), observed=Z)
        dp.RandomizedResponse("v", y, p_answer=TOLD_BY, observed=np.array([1, 3, 1]))
        dp.UnaryEncoding("w", y, n_categories=3, epsilon=1, observed=BITS[:3])
    return model


def _told_thrice_density(i, z, a, b):
    own = np.e**0.5 / (1 + np.e**0.5)
    law = stats.binom.pmf(np.arange(3), 2, 1 / (1 + np.exp(-a - b * X[i])))
    first = [laplace(0.7)(z, np.clip(k, 0.5, 2)) for k in range(3)]
    bits = [np.prod([own if bit == (j == k) else 1 - own for j, bit in enumerate(BITS[i])]) for k in range(3)]
    return float(np.sum(law * first * TOLD_BY[:, [1, 3, 1][i]] * bits))


def _two_answers():
    """Of equal people, by devices of two kinds."""
    with pm.Model() as model:
        a, b = _parameters()
        y = pm.Bernoulli("y", logit_p=a - b, shape=3)
        dp.RandomizedResponse("z", y, p_truth=5 / 6, observed=ANSWERS)
        dp.RandomizedResponse("w", y, p_answer=DEVICE, observed=1 - ANSWERS)
    return model


def _two_answers_density(i, z, a, b):
    p = 1 / (1 + np.exp(b - a))
    return sum(
        chance * (5 / 6 if k == z else 1 / 6) * DEVICE[k, 1 - z] for k, chance in enumerate((1 - p, p))
    )


def _labels():
    with pm.Model() as model:
        a, b = _parameters()
        labels = dp.ChineseRestaurantProcess("labels", concentration=1.0, shape=3, max_components=4)
        mu = pm.Deterministic("mu", a + 2 * pt.arange(4))
        y = pm.Normal("y", mu[labels], b)
        dp.LaplaceMechanism("z", y, epsilon=2, bounds=BOUNDS, observed=Z)
    return model


def _labels_density(i, z, a, b):
    return continuous(z, stats.norm(a + 2 * [0, 2, 0][i], b), laplace(SCALE), BOUNDS)


CASES = {
    "normal, Laplace": Case(
        _normal(dp.LaplaceMechanism, Z, scale=SCALE), ("y",), _clamped(laplace(SCALE), (-np.inf, np.inf))
    ),
    "normal, Laplace, clamped": Case(
        _normal(dp.LaplaceMechanism, Z, epsilon=2, bounds=BOUNDS), ("y",), _clamped(laplace(SCALE), BOUNDS)
    ),
    "normal, Gaussian": Case(
        _normal(dp.GaussianMechanism, Z, sigma=SIGMA), ("y",), _clamped(gaussian(SIGMA), (-np.inf, np.inf))
    ),
    "normal, Gaussian, clamped": Case(
        _normal(dp.GaussianMechanism, Z, rho=0.8, bounds=BOUNDS), ("y",), _clamped(gaussian(SIGMA), BOUNDS)
    ),
    "mixture of normals": Case(_mixture, ("y",), _logs(Z, _mixture_density)),
    "mixture of two laws": Case(_two_kinds, ("y",), _logs(Z, _two_kinds_density)),
    "vectors": Case(_vectors, ("y",), _vectors_log),
    "mixture of vectors": Case(_vector_mixture, ("y",), _vector_mixture_log),
    "randomized response": Case(
        _response(dp.RandomizedResponse, REPORTS, epsilon=1), ("y",), _logs(REPORTS, _response_density)
    ),
    "answers": Case(_answers(p_truth=5 / 6), ("y",), _logs(ANSWERS, _answers_density(5 / 6, 1 / 6))),
    "answers, three categories": Case(
        _answers(p_truth=0.5, n_categories=3), ("y",), _logs(ANSWERS, _answers_density(0.5, 0.25))
    ),
    "answers of a device": Case(_answers(p_answer=DEVICE), ("y",), _logs(ANSWERS, _device_density(DEVICE))),
    "answers of several devices": Case(
        _answers(p_answer=DEVICES), ("y",), _logs(ANSWERS, _device_density(DEVICES))
    ),
    "categories told by a table": Case(
        _response(dp.RandomizedResponse, REPORTS, p_answer=TOLD_BY),
        ("y",),
        _logs(REPORTS, lambda i, z, a, b: float(_probabilities(a, b) @ TOLD_BY[:, z])),
    ),
    "unary encoding": Case(_response(dp.UnaryEncoding, BITS, epsilon=1), ("y",), _logs(BITS, _bits_density)),
    "Bernoulli, Laplace": Case(_yes, ("y",), _logs(Z, _yes_density)),
    "binomial, discrete Laplace, clamped": Case(_binomial, ("y",), _logs(TOSSES, _binomial_density)),
    "beta, tosses": Case(
        _beta((0, 1), True), ("y",), _logs(TOLD, _beta_density((0, 1), lambda a, i: np.exp(a)))
    ),
    "beta, tosses, wide bounds": Case(
        _beta((-0.5, 2), False), ("y",), _logs(TOLD, _beta_density((-0.5, 2), lambda a, i: np.exp(a * X[i])))
    ),
    "Poisson, discrete Laplace": Case(
        _whole(_poisson, dp.DiscreteLaplaceMechanism, scale=2.0),
        ("y",),
        _whole_log(lambda a, b: stats.poisson(3 * np.exp(a)), discrete_laplace(2.0)),
    ),
    "Poisson, discrete Gaussian": Case(
        _whole(_poisson, dp.DiscreteGaussianMechanism, sigma=3.0),
        ("y",),
        _whole_log(lambda a, b: stats.poisson(3 * np.exp(a)), discrete_gaussian(3.0)),
    ),
    "negative binomial, discrete Laplace": Case(
        _whole(_negative_binomial, dp.DiscreteLaplaceMechanism, scale=2.0),
        ("y",),
        _whole_log(lambda a, b: stats.nbinom(b, b / (b + 3 * np.exp(a))), discrete_laplace(2.0)),
    ),
    "two sums": Case(_central, ("y",), _central_log),
    "a mean": Case(_mean, ("y",), lambda a, b: float(stats.norm.logpdf(0.4, 2 - a, np.hypot(b / 2, 0.3)))),
    "two releases": Case(_two_releases, ("y",), _logs(Z, _two_density)),
    "few values told thrice": Case(_told_thrice, ("y",), _logs(Z, _told_thrice_density)),
    "two answers": Case(_two_answers, ("y",), _logs(ANSWERS, _two_answers_density)),
    "labels": Case(_labels, ("y",), _logs(Z, _labels_density)),
}
