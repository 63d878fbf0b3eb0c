"""Small mixtures with exact posteriors, and chains of their steps.

Concentration and discount are variables of the models, at values that a chain keeps: one compiled model
serves any urn. There are more slots than records, so that some are always free: their atoms, which have the
law of the base, and the slots themselves, which are all alike, are compared as well as the posterior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special, stats

import pymc_dp as dp
from tests.mixtures import exact
from tests.mixtures.examples import BETA_Z, CHANNELS, POISSON_Z, SCALE_Z, Z
from tests.mixtures.life import keep_alive
from tests.statistics import harness

BATCHES = 50
BETA_SCALE = 0.3
SCALE_NOISE = 0.8


@dataclass(frozen=True)
class Urn:
    """Concentration and discount, or concentration g of each of K components."""

    alpha: float
    d: float = 0.0
    components: int | None = None

    def __str__(self):
        if self.components:
            return f"{self.components} components of {self.alpha:g}"
        return f"alpha {self.alpha:g}" + (f", discount {self.d:g}" if self.d else "")

    def posterior(self, released):
        """Posterior of the partition."""
        if self.components is None:
            return released.posterior(self.alpha, self.d)
        labels = exact.partitions(len(released.log_g))
        labels = labels[labels.max(axis=1) < self.components]
        alpha, d = self.alpha * self.components, -self.alpha
        marginal = cache(released.log_marginal)
        rows = [exact.blocks(row) for row in labels]
        logs = np.array(
            [exact.log_eppf([len(b) for b in row], alpha, d) + sum(marginal(b) for b in row) for row in rows]
        )
        return exact.Posterior(labels, np.exp(logs - special.logsumexp(logs)), alpha, d)

    def labels(self, n, slots):
        """Declare the labels; the numbers of the urn are variables."""
        if self.components:
            alpha = pm.Gamma("alpha", 2, 2, default_transform=None, initval=0.987)
            return dp.ChineseRestaurantProcess(
                "labels", concentration=alpha, n_components=self.components, max_components=slots, shape=n
            )
        # above -discount, says the urn; what stands at its default would be jittered
        alpha = pm.Normal("alpha", 1, 1, initval=0.987)
        discount = pm.Uniform("discount", 0, 1, default_transform=None, initval=0.123)
        return dp.ChineseRestaurantProcess(
            "labels", concentration=alpha, discount=discount, max_components=slots, shape=n
        )


def _release(y, z, channel):
    bounds = None if np.isinf(channel.lo) else (channel.lo, channel.hi)
    if channel.name == "laplace":
        return dp.LaplaceMechanism("z", y, scale=channel.scale, bounds=bounds, observed=z)
    return dp.GaussianMechanism("z", y, sigma=channel.scale, bounds=bounds, observed=z)


def _nig(labels, slots, **known):
    s2 = pm.InverseGamma("s2", 3, 3, shape=slots)
    mu = pm.Normal("mu", 0, pt.sqrt(10 * s2), shape=slots)
    return pm.Normal("y", mu[labels], pt.sqrt(s2[labels]), **known)


def _nig_density(x, point):
    return stats.norm._pdf((x - point["mu"]) / np.sqrt(point["s2"])) / np.sqrt(point["s2"])


def _known(labels, slots, **known):
    mu = pm.Normal("mu", 0, 3, shape=slots)
    return pm.Normal("y", mu[labels], 1, **known)


def _poisson(labels, slots, **known):
    rate = pm.Gamma("rate", 2, 0.4, shape=slots)
    return pm.Poisson("y", rate[labels], **known)


def _beta(labels, slots, **known):
    a, b = (pm.Gamma(name, 2, 2, shape=slots) for name in ("a", "b"))
    return pm.Beta("y", a[labels], b[labels], **known)


def _scales(law):
    def declare(labels, slots, **known):
        s = pm.LogNormal("s", 0, 0.7, shape=slots)
        return law(s[labels], **known)

    return declare


# variance of the noise about records that are known through their noise only
NOISE = CHANNELS["gaussian"].scale ** 2


def _above(labels, slots, **known):
    tau2 = pm.Truncated("tau2", pm.InverseGamma.dist(3, 3), lower=NOISE, shape=slots)
    mu = pm.Normal("mu", 0, pt.sqrt(10 * tau2), shape=slots)
    return pm.Normal("y", mu[labels], pt.sqrt(tau2[labels]), **known)


def _noisy(labels, slots, **known):
    s2 = pm.InverseGamma("s2", 3, 3, shape=slots)
    mu = pm.Normal("mu", 0, pt.sqrt(10 * s2), shape=slots)
    return pm.Normal("y", mu[labels], pt.sqrt(s2[labels] + NOISE), **known)


def _mean_above(power):
    """Mean of a power of a precision that is at most 1 / NOISE."""
    mass = special.gammainc(3 + power, 3 / NOISE) / special.gammainc(3, 3 / NOISE)
    return special.gamma(3 + power) / special.gamma(3) / 3**power * mass


@dataclass(frozen=True)
class Kernel:
    """A kernel with its base.

    declare(labels, slots, **known): the record variable, observed or not. density(x, point): of the kernel,
    for atoms (..., slots).
    unchanging: functions of the atoms, with their means under the base.
    """

    declare: Callable
    density: Callable
    points: tuple[float, ...]
    unchanging: dict[str, tuple[Callable, float]]


NORMAL_POINTS = (-4.0, 0.0, 2.0, 7.0)
KERNELS = {
    "NIG": Kernel(
        _nig,
        _nig_density,
        NORMAL_POINTS,
        {
            "1/s2": (lambda p: 1 / p["s2"], 1.0),
            "1/s2^2": (lambda p: p["s2"] ** -2.0, 4 / 3),
            "mu/s": (lambda p: p["mu"] / np.sqrt(p["s2"]), 0.0),
            "mu^2/s2": (lambda p: p["mu"] ** 2 / p["s2"], 10.0),
        },
    ),
    "normal": Kernel(
        _known,
        lambda x, p: stats.norm._pdf(x - p["mu"]),
        NORMAL_POINTS,
        {"mu": (lambda p: p["mu"], 0.0), "mu^2": (lambda p: p["mu"] ** 2, 9.0)},
    ),
    "Poisson": Kernel(
        _poisson,
        lambda x, p: stats.poisson.pmf(x, p["rate"]),
        (0.0, 3.0, 12.0),
        {"rate": (lambda p: p["rate"], 5.0), "rate^2": (lambda p: p["rate"] ** 2, 37.5)},
    ),
    "NIG above": Kernel(
        _above,
        lambda x, p: stats.norm._pdf((x - p["mu"]) / np.sqrt(p["tau2"])) / np.sqrt(p["tau2"]),
        NORMAL_POINTS,
        {
            "1/tau2": (lambda p: 1 / p["tau2"], _mean_above(1)),
            "1/tau2^2": (lambda p: p["tau2"] ** -2.0, _mean_above(2)),
            "mu^2/tau2": (lambda p: p["mu"] ** 2 / p["tau2"], 10.0),
        },
    ),
    # no conjugate base
    "Beta": Kernel(
        _beta,
        lambda x, p: x ** (p["a"] - 1) * (1 - x) ** (p["b"] - 1) / special.beta(p["a"], p["b"]),
        (0.1, 0.5, 0.8),
        {
            "a": (lambda p: p["a"], 1.0),
            "b^2": (lambda p: p["b"] ** 2, 1.5),
            "ab": (lambda p: p["a"] * p["b"], 1.0),
        },
    ),
}


KERNELS["NIG behind noise"] = Kernel(_noisy, _nig_density, NORMAL_POINTS, KERNELS["NIG"].unchanging)
# laws that PyMC draws as functions of other draws
STANDARD = {"Weibull": stats.weibull_min(1.5).pdf, "half Cauchy": stats.halfcauchy.pdf}
for _name, _law in (
    ("Weibull", lambda s, **known: pm.Weibull("y", 1.5, s, **known)),
    ("half Cauchy", lambda s, **known: pm.HalfCauchy("y", s, **known)),
):
    KERNELS[_name] = Kernel(
        _scales(_law),
        lambda x, p, pdf=STANDARD[_name]: pdf(x / p["s"]) / p["s"],
        (0.2, 1.0, 4.0),
        {"log s": (lambda p: np.log(p["s"]), 0.0), "log^2 s": (lambda p: np.log(p["s"]) ** 2, 0.49)},
    )
KNOWN_POISSON, KNOWN_BETA = np.array([0, 2, 5, 5, 19]), np.array([0.02, 0.4, 0.9])
KNOWN = {
    "NIG": (Z, lambda z: exact.normal_nig(z, None)),
    "normal": (Z, lambda z: exact.normal_known(z, None)),
    "NIG above": (Z, lambda z: exact.normal_nig_above(z, NOISE)),
    "NIG behind noise": (Z, lambda z: exact.normal_nig(z, CHANNELS["gaussian"])),
    "Poisson": (KNOWN_POISSON, exact.poisson_known),
    "Beta": (KNOWN_BETA, exact.beta_known),
}


@cache
def released_by(kernel, channel, n):
    """Exact law of the releases, or of the known records, given atoms."""
    if channel == "known":
        y, make = KNOWN[kernel]
        return make(y[:n])
    if kernel == "Poisson":
        return exact.poisson_gamma(POISSON_Z[:n], 1.0)
    if kernel == "Beta":
        return exact.beta_gamma(BETA_Z[:n], BETA_SCALE)
    if kernel in STANDARD:
        return exact.scale_family(SCALE_Z[:n], SCALE_NOISE, STANDARD[kernel])
    make = exact.normal_nig if kernel == "NIG" else exact.normal_known
    return make(Z[:n], CHANNELS[channel])


def declared(kernel, channel, n, urn, slots=None):
    """The model in PyMC."""
    slots = slots or urn.components or n + 2
    with pm.Model() as model:
        known = {"observed": KNOWN[kernel][0][:n]} if channel == "known" else {}
        y = KERNELS[kernel].declare(urn.labels(n, slots), slots, **known)
        if known:
            return model
        if kernel == "Poisson":
            dp.DiscreteLaplaceMechanism("z", y, scale=1.0, observed=POISSON_Z[:n])
        elif kernel == "Beta":
            dp.LaplaceMechanism("z", y, scale=BETA_SCALE, observed=BETA_Z[:n])
        elif kernel in STANDARD:
            dp.LaplaceMechanism("z", y, scale=SCALE_NOISE, observed=SCALE_Z[:n])
        else:
            _release(y, Z[:n], CHANNELS[channel])
    return model


@cache
def _model(kernel, channel, n, components, slots):
    # one model for all values of concentration and discount, with the kernels that its steps share
    return declared(kernel, channel, n, Urn(1.0, components=components), slots)


def _natural(name, values):
    if name.endswith("_log__"):
        return name.removesuffix("_log__"), np.exp(values)
    if name.endswith("_logodds__"):
        return name.removesuffix("_logodds__"), special.expit(values)
    if name.endswith("_interval__"):
        return name.removesuffix("_interval__"), NOISE + np.exp(values)
    if name.endswith("_simplex__"):
        rows = np.concatenate([values, -values.sum(axis=-1, keepdims=True)], axis=-1)
        return name.removesuffix("_simplex__"), special.softmax(rows, axis=-1)
    return name, values


class Chain:
    """Draws of a model's steps: arrays (draw, ...) by the name of the value variable.

    Steps are kept for a model that other tests take, too, as it is: with nothing in it broken on purpose.
    """

    def __init__(self, model, sampler, urn, draws, seed, warm=500, keep=False):
        point = model.initial_point()
        for name, value in (("alpha", urn.alpha), ("discount", urn.d)):
            if name in point:
                point[name] = np.asarray(value, dtype=point[name].dtype)
        with model:
            self.steps = sampler()
        if keep:
            keep_alive(self.steps)
        for step, rng in zip(self.steps, np.random.default_rng(seed).spawn(len(self.steps)), strict=True):
            step.setup_chain(rng, warm, draws)
        self.model = model
        names = [v for v in point if v not in ("alpha", "discount")]
        kept = {name: np.empty((draws, *np.shape(point[name])), point[name].dtype) for name in names}
        for t in range(-warm, draws):
            if t == 0:
                for step in self.steps:
                    step.stop_tuning()
            for step in self.steps:
                point, _ = step.step(point)
            if t >= 0:
                for name in names:
                    kept[name][t] = point[name]
        natural = dict(_natural(name, values) for name, values in kept.items())
        self.labels, self.y = natural.pop("labels"), natural.pop("y", None)
        self.atoms = natural
        self.slots = next(iter(self.atoms.values())).shape[1]
        self.sizes = (self.labels[:, :, None] == np.arange(self.slots)).sum(axis=1)
        self.k = (self.sizes > 0).sum(axis=1)


def z_scores(values, expected, name=""):
    """Of means of columns (draw, k) by batch means, as normal scores."""
    values = np.asarray(values, dtype=float).reshape(len(values), -1)
    values = values[: len(values) // BATCHES * BATCHES]
    expected = np.broadcast_to(np.asarray(expected, dtype=float), values.shape[1:])
    means = values.reshape(BATCHES, -1, values.shape[1]).mean(axis=1)
    # a batch mean of what hardly ever happens has no variance to speak of: at least that of single draws
    error = np.maximum(means.std(axis=0, ddof=1), values.std(axis=0) / np.sqrt(len(values) / BATCHES))
    t = (means.mean(axis=0) - expected) / np.where(error > 0, error / np.sqrt(BATCHES), np.inf)
    t = np.where((error == 0) & (means[0] != expected), np.inf, t)
    z = np.sign(t) * stats.norm.isf(stats.t.sf(abs(t), BATCHES - 1))
    return {f"{name}{j}": float(v) for j, v in enumerate(np.clip(z, -99, 99))}


def slot_checks(chain):
    """Slots are alike: every record is in each with the same chance, and two in either order."""
    n = chain.labels.shape[1]
    one = chain.labels[:, :, None] == np.arange(chain.slots)
    order = [np.sign(chain.labels[:, i] - chain.labels[:, j]) for i, j in combinations(range(n), 2)]
    return z_scores(one, 1 / chain.slots, "slot") | z_scores(np.transpose(order), 0.0, "order")


def base_checks(chain, kernel):
    """Atoms of free slots have the law of the base."""
    free = chain.sizes == 0
    if not free.any():
        return {}
    columns = [
        np.where(free, function(chain.atoms) - mean, 0.0).sum(axis=1)
        for function, mean in kernel.unchanging.values()
    ]
    return z_scores(np.transpose(columns), 0.0, "base")


def compare(chain, kernel, released, post, alpha=1e-5):
    """Verdict on a chain by everything that is known of the posterior."""
    n = len(released.log_g)
    pmf = post.n_clusters()
    # errors of what hardly ever happens are hardly known
    often = 200 / len(chain.k)
    seen = np.flatnonzero((pmf > often) & (pmf < 1 - often))
    pairs = np.triu_indices(n, 1)
    together = post.coclustering()
    pairs = tuple(p[(together[pairs] > often) & (together[pairs] < 1 - often)] for p in pairs)
    same = chain.labels[:, pairs[0]] == chain.labels[:, pairs[1]]
    mean, sd = exact.record_moments(released, post)
    weights = (chain.sizes - post.d * (chain.sizes > 0)) / (n + post.alpha)
    free = chain.sizes == 0
    n_free = free.sum(axis=1)
    # of a new cluster: what the free slots have
    new = (post.alpha + post.d * chain.k) / (n + post.alpha)
    weights = weights + np.where(free, (new / np.maximum(n_free, 1))[:, None], 0.0)
    density = [(weights * kernel.density(x, chain.atoms)).sum(axis=1) for x in kernel.points]
    # where none is free at times, atoms tell nothing of a new cluster then
    told = not (new[n_free == 0] > 1e-9).any()
    checks = {
        **z_scores(chain.k[:, None] == 1 + seen, pmf[seen], "k"),
        **z_scores(chain.k, pmf @ np.arange(1, len(pmf) + 1), "mean k"),
        **z_scores(same, together[pairs], "same"),
        **(
            z_scores(
                np.transpose(density), exact.mean_density(released, post, np.array(kernel.points)), "density"
            )
            if told
            else {}
        ),
        **({} if chain.y is None else z_scores(chain.y, mean, "y")),
        **({} if chain.y is None else z_scores((chain.y - mean) ** 2, sd**2, "var y")),
        **slot_checks(chain),
        **base_checks(chain, kernel),
    }
    return harness.two_sample_z(checks, alpha)


def verdict_on(sampler, kernel, channel, urn, *, n=5, draws=40_000, seed=0, slots=None, model=None):
    """Run a sampler on a small mixture and compare it with the exact posterior."""
    slots = slots or urn.components or n + 2
    shared = _model(kernel, channel, n, urn.components, slots) if model is None else model
    released = released_by(kernel, channel, n)
    chain = Chain(shared, sampler, urn, draws, seed, keep=model is None)
    return compare(chain, KERNELS[kernel], released, urn.posterior(released))
