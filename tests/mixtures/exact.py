"""Exact posteriors of small mixtures behind released data: every partition listed, every atom integrated.

Labels follow the two-parameter urn (concentration `alpha`, discount `d`; d = 0 is the Dirichlet process),
atoms are iid from the base, records are independent given the atoms, and only noisy versions of the records
are known. No sampler and nothing of the package is used here.

Atoms are integrated by the trapezoidal rule in variables in which the integrands are analytic and decay at
both ends, where the rule converges geometrically. `Released.error` says how far it has come.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special, stats

LOG_2PI = np.log(2 * np.pi)


@cache
def partitions(n):
    """All partitions of n things: labels (partitions, n) in order of appearance, the first label being 0."""
    rows = [(0,)]
    for _ in range(n - 1):
        rows = [(*row, new) for row in rows for new in range(max(row) + 2)]
    return np.array(rows)


def blocks(labels):
    """Blocks of one partition, as tuples of indices."""
    return [tuple(np.flatnonzero(labels == h).tolist()) for h in range(max(labels) + 1)]


def log_eppf(sizes, alpha, d=0.0):
    """Log prior probability of one partition whose blocks have these sizes; alpha > -d, 0 <= d < 1."""
    sizes = np.asarray(sizes)
    # The factor alpha of both products is left out, so that alpha may be zero or negative when d > 0.
    opened = np.log(alpha + d * np.arange(1, len(sizes))).sum()
    grown = (special.gammaln(sizes - d) - special.gammaln(1 - d)).sum()
    return opened + grown - (special.gammaln(alpha + sizes.sum()) - special.gammaln(alpha + 1))


@dataclass(frozen=True)
class Posterior:
    """Probabilities `prob` (partitions,) of the partitions `labels` (partitions, n)."""

    labels: np.ndarray
    prob: np.ndarray
    alpha: float
    d: float

    def n_clusters(self):
        """Pmf of the number of clusters, (n,): its first element is P(k = 1)."""
        return np.bincount(self.labels.max(axis=1), weights=self.prob, minlength=self.labels.shape[1])

    def coclustering(self):
        """Probabilities (n, n) that two records share a cluster."""
        return np.tensordot(self.prob, self.labels[:, :, None] == self.labels[:, None, :], 1)

    def block_probabilities(self):
        """Probability of each block of indices to be a cluster: {block: probability}."""
        found = defaultdict(float)
        for labels, p in zip(self.labels, self.prob):
            for block in blocks(labels):
                found[block] += p
        return dict(found)


def posterior(n, cluster_log_marginal, alpha, d=0.0):
    """Posterior of the partition of n records.

    `cluster_log_marginal(block)` is the log of the joint density of what is known of the records in a block,
    a tuple of indices, when these share one atom: `Released.log_marginal`, or a closed form.
    """
    labels = partitions(n)
    marginal = cache(cluster_log_marginal)
    rows = [blocks(row) for row in labels]
    logs = [log_eppf([len(b) for b in row], alpha, d) + sum(marginal(b) for b in row) for row in rows]
    return Posterior(labels, np.exp(logs - special.logsumexp(logs)), alpha, d)


@dataclass(frozen=True)
class Released:
    """What is known of n records, given each of G atoms.

    log_w (G,): log weights of the base at the nodes. log_g (n, G): log density of what was released of each
    record. mean, var (n, G): mean and variance of each record given its atom and its release.
    pdf(x): density of the kernel, (X, G). shape: nodes per axis of the rule, of product G.
    """

    shape: tuple
    log_w: np.ndarray
    log_g: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    pdf: Callable

    def log_marginal(self, block):
        """Log density of what was released of a block (indices) that shares one atom."""
        return special.logsumexp(self.log_w + self.log_g[list(block)].sum(axis=0))

    def weights(self, block):
        """Posterior of the atom of a block at the nodes, (G,); of an empty block, the base."""
        return np.exp(self.log_w + self.log_g[list(block)].sum(axis=0) - self.log_marginal(block))

    def posterior(self, alpha, d=0.0):
        """Posterior of the partition."""
        return posterior(len(self.log_g), self.log_marginal, alpha, d)

    def error(self):
        """Bound for the relative error of all cluster marginals that is due to the grid of atoms.

        It is the larger of the change when every second node is left out (the error left is about its square)
        and of what lies beyond the ends of an axis, the integrand falling on as between the last two nodes.
        """
        worst = 0.0
        axes = [i for i, size in enumerate(self.shape) if size > 1]
        n = len(self.log_g)
        for block in (b for r in range(n) for b in itertools.combinations(range(n), r + 1)):
            f = self.weights(block).reshape(self.shape)
            coarse = f[tuple(slice(None, None, 2) for _ in self.shape)].sum() * 2 ** len(axes)
            worst = max(worst, abs(coarse - 1))
            for axis in axes:
                profile = f.sum(axis=tuple(i for i in range(f.ndim) if i != axis))
                for last, before in (profile[:2], profile[:-3:-1]):
                    if last:
                        worst = max(worst, last**2 / (before - last) if last < before else np.inf)
        return worst


def mean_density(released, post, x):
    """Posterior mean density of a further record at x, (X,)."""
    total, clusters = len(released.log_g) + post.alpha, 1 + post.labels.max(axis=1)
    atoms = post.prob @ (post.alpha + post.d * clusters) / total * released.weights(())
    for block, p in post.block_probabilities().items():
        atoms += p * (len(block) - post.d) / total * released.weights(block)
    return np.concatenate([released.pdf(part) @ atoms for part in np.array_split(x, 1 + len(x) // 16)])


def record_moments(released, post):
    """Posterior means and standard deviations of the records, (n,) each."""
    atoms = np.zeros(released.mean.shape)
    for block, p in post.block_probabilities().items():
        atoms[list(block)] += p * released.weights(block)
    mean = (atoms * released.mean).sum(axis=1)
    var = (atoms * (released.var + (released.mean - mean[:, None]) ** 2)).sum(axis=1)
    return mean, np.sqrt(var)


def _axis(lo, hi, step):
    """Nodes, an odd number of them so that every second node too reaches both ends, and their distance."""
    nodes = np.linspace(lo, hi, 2 * int(np.ceil((hi - lo) / step / 2)) + 1)
    return nodes, nodes[1] - nodes[0]


def _log_gamma_axis(shape, rate, step):
    """Nodes in u = log of a Gamma variable, with log weights; 1e-20 of the mass lies beyond each end."""
    lo, hi = special.gammaincinv(shape, 1e-20), special.gammainccinv(shape, 1e-20)
    u, h = _axis(np.log(lo / rate), np.log(hi / rate), step)
    return u, shape * (u + np.log(rate)) - rate * np.exp(u) - special.gammaln(shape) + np.log(h)


@dataclass(frozen=True)
class Channel:
    """Laplace or Gaussian noise of this scale (Gaussian: sd) about the record clamped to [lo, hi]."""

    name: str
    scale: float
    lo: float = -np.inf
    hi: float = np.inf

    def log_q(self, z, y):
        """Log density of z given records y."""
        x = np.clip(y, self.lo, self.hi)
        if self.name == "laplace":
            return -abs(z - x) / self.scale - np.log(2 * self.scale)
        return _log_normal(z, x, self.scale**2)

    def pieces(self, z, mu, s2):
        """N(y | mu, s2) q(z | y) as pieces of normals in y: (log factor, mean, variance, lower, upper)."""
        lo, hi, b = self.lo, self.hi, self.scale
        if self.name == "laplace":
            at = np.clip(z, lo, hi)
            shift, tilt = s2 / b, s2 / (2 * b**2) - np.log(2 * b)
            yield (mu - z) / b + tilt, mu + shift, s2, lo, at
            yield (z - mu) / b + tilt, mu - shift, s2, at, hi
        else:
            total = s2 + b**2
            yield _log_normal(z, mu, total), (mu * b**2 + z * s2) / total, s2 * b**2 / total, lo, hi
        if np.isfinite(lo):
            yield self.log_q(z, lo), mu, s2, -np.inf, lo
        if np.isfinite(hi):
            yield self.log_q(z, hi), mu, s2, hi, np.inf


def _scaled_log_ndtr(x):
    """log Phi(x) + x^2/2, which keeps its digits far in the lower tail."""
    tail = np.log(special.erfcx(-np.minimum(x, 0) / np.sqrt(2)) / 2)
    return np.where(x > 0, special.log_ndtr(x) + x**2 / 2, tail)


def _piece(log_f, factor, mean, var, lower, upper):
    """Log integral of f over an interval, where f = exp(factor) N(mean, var), and mean and variance there."""
    sd = np.sqrt(var)
    a, b = (np.clip((end - mean) / sd, -1e100, 1e100) for end in (lower, upper))
    flip = a > -b  # to the lower tail, |high| <= |low|
    low, high, end = np.where(flip, -b, a), np.where(flip, -a, b), np.where(flip, lower, upper)
    with np.errstate(divide="ignore", invalid="ignore"):
        at_low, at_high = _scaled_log_ndtr(low), _scaled_log_ndtr(high)
        fall = (high - low) * (high + low) / 2
        part = np.log1p(-np.exp(at_low - at_high + fall))
        # In the tail the factor is huge and the mass is tiny: from f at the nearer end instead.
        tail = log_f(end) + 0.5 * (np.log(var) + LOG_2PI) + at_high
        log_mass = np.where(high > 0, factor + special.log_ndtr(high), tail) + part
        phi_high = np.exp(-0.5 * LOG_2PI - at_high - part)  # density over mass
        phi_low = np.exp(fall) * phi_high
        shift = phi_low - phi_high
        spread = 1 + np.where(fall > -1e4, low * phi_low, 0) - high * phi_high - shift**2
        # Far in the tail these differences have no digits left; their series are good to 2e-7.
        deep, gap = (high < -170) & (fall < -40), (2 / high**2 - 1) / high
        spread = np.where(deep, (1 - 6 / high**2) / high**2, spread)
        first = np.where(deep, end, mean) + sd * np.where(deep, -gap, shift) * np.where(flip, -1, 1)
    first, second = np.clip(first, lower, upper), np.clip(var * spread, 0, (upper - lower) ** 2 / 4)
    return log_mass, *(np.where(np.isfinite(log_mass), moment, 0) for moment in (first, second))


def normal_given_release(z, mu, s2, channel):
    """Log density of z, and mean and variance of y ~ N(mu, s2) given z; `channel=None` means that z is y."""
    z, mu, s2 = np.broadcast_arrays(z, mu, s2)
    if channel is None:
        return _log_normal(z, mu, s2), z, np.zeros(z.shape)
    pieces = [
        _piece(lambda y: _log_normal(y, mu, s2) + channel.log_q(z, y), *piece)
        for piece in channel.pieces(z, mu, s2)
    ]
    logs, means, variances = np.moveaxis(pieces, 1, 0)
    log_g = special.logsumexp(logs, axis=0)
    share = np.exp(logs - log_g)
    mean = (share * means).sum(axis=0)
    return log_g, mean, (share * (variances + (means - mean) ** 2)).sum(axis=0)


def _log_normal(x, mu, s2):
    return -0.5 * ((x - mu) ** 2 / s2 + np.log(s2) + LOG_2PI)


def _released_normal(z, mu, s2, log_w, channel):
    shape, (mu, s2, log_w) = mu.shape, (np.ravel(v) for v in np.broadcast_arrays(mu, s2, log_w))
    given = normal_given_release(np.asarray(z, dtype=float)[:, None], mu, s2, channel)
    return Released(shape, log_w, *given, lambda x: np.exp(_log_normal(x[:, None], mu, s2)))


def _standard_axis(ratio, n, fine):
    """Nodes for a standard normal prior, and log weights; ratio is the kernel's variance over the prior's.

    Whatever the channel, n kernels are smooth on the scale of the posterior under no noise.
    """
    t, h = _axis(-11, 11, 0.5 * np.sqrt(ratio / (ratio + n)) / fine)
    return t, -0.5 * (t**2 + LOG_2PI) + np.log(h)


def normal_nig(z, channel, m0=0.0, lam=0.1, a=3.0, b=3.0, fine=1):
    """Records N(mu, s2), base mu | s2 ~ N(m0, s2/lam), s2 ~ IG(a, b); z (n,)."""
    t, log_t = _standard_axis(lam, len(z), fine)
    u, log_u = _log_gamma_axis(a, b, 0.5 / max(np.sqrt(a + len(z)), 3) / fine)
    s2 = np.exp(-u)[:, None]  # the precision is Gamma(a, b)
    return _released_normal(z, m0 + np.sqrt(s2 / lam) * t, s2, log_u[:, None] + log_t, channel)


def normal_known(z, channel, m0=0.0, v0=9.0, s2=1.0, fine=1):
    """Records N(mu, s2) with s2 known, base mu ~ N(m0, v0); z (n,)."""
    t, log_w = _standard_axis(s2 / v0, len(z), fine)
    return _released_normal(z, m0 + np.sqrt(v0) * t, s2, log_w, channel)


def normal_nig_above(z, end, m0=0.0, lam=0.1, a=3.0, b=3.0, fine=1):
    """Known records as of `normal_nig`, with s2 ~ IG(a, b) restricted to [end, inf)."""
    t, log_t = _standard_axis(lam, len(z), fine)
    x, w = np.polynomial.legendre.leggauss(120 * fine)
    precision = 0.5 * (1 + x)[:, None] / end
    log_w = stats.gamma.logpdf(precision, a, scale=1 / b) - np.log(special.gammainc(a, b / end))
    log_w += np.log(0.5 * w / end)[:, None]
    return _released_normal(
        z, m0 + np.sqrt(1 / precision / lam) * t, 1 / precision + 0 * t, log_w + log_t, None
    )


def nig_above_log_marginal(y, end, m0=0.0, lam=0.1, a=3.0, b=3.0):
    """The same in closed form: of known records y (r,) of one cluster."""
    y, r = np.asarray(y, dtype=float), len(y)
    rate = b + 0.5 * ((y - np.mean(y)) ** 2).sum() + 0.5 * lam * r / (lam + r) * (np.mean(y) - m0) ** 2
    mass = np.log(special.gammainc(a + r / 2, rate / end)) - np.log(special.gammainc(a, b / end))
    return nig_log_marginal(y, m0, lam, a, b) + mass


def nig_log_marginal(y, m0=0.0, lam=0.1, a=3.0, b=3.0):
    """Log density of known records y (r,) of one cluster: a multivariate Student density."""
    y = np.asarray(y, dtype=float)
    r, mean = len(y), np.mean(y)
    rate = b + 0.5 * ((y - mean) ** 2).sum() + 0.5 * lam * r / (lam + r) * (mean - m0) ** 2
    log_rates = a * np.log(b) - (a + r / 2) * np.log(rate)
    log_norm = special.gammaln(a + r / 2) - special.gammaln(a) + 0.5 * np.log(lam / (lam + r))
    return log_norm + log_rates - 0.5 * r * LOG_2PI


def poisson_gamma(z, scale, shape=2.0, rate=0.4, fine=1):
    """Records Poisson(theta), base Gamma(shape, rate), discrete Laplace channel; integers z (n,).

    P(z | y) = (1 - r)/(1 + r) r^|z - y|, r = exp(-1/scale). Records above `top` are left out: of probability
    below 1e-17 under the base, times r^(top - max z).
    """
    z = np.asarray(z)
    log_theta, log_w = _log_gamma_axis(shape, rate, 0.05 / fine)
    theta = np.exp(log_theta)
    top = max(z.max(), 0) + int(stats.nbinom.isf(1e-17, shape, rate / (1 + rate)))
    y = np.arange(top + 1)
    q, f = np.tanh(0.5 / scale) * np.exp(-abs(z[:, None] - y) / scale), stats.poisson.pmf(y[:, None], theta)
    g = q @ f
    mean = (q * y) @ f / g
    var = (q * y**2) @ f / g - mean**2
    return Released(theta.shape, log_w, np.log(g), mean, var, lambda x: stats.poisson.pmf(x[:, None], theta))


def poisson_known(y, shape=2.0, rate=0.4, fine=1):
    """Known records of the same mixture."""
    log_theta, log_w = _log_gamma_axis(shape, rate, 0.05 / fine)
    return _known(y, log_theta.shape, log_w, stats.poisson(np.exp(log_theta)).logpmf)


def beta_known(y, shape=2.0, rate=2.0, fine=1):
    """Known records Beta(a, b), base a, b ~ iid Gamma(shape, rate)."""
    a, b, log_w = _beta_nodes(shape, rate, fine)
    return _known(y, a.shape, log_w, stats.beta(a.ravel(), b.ravel()).logpdf)


def _known(y, shape, log_w, log_pdf):
    y = np.asarray(y)[:, None]
    log_g = log_pdf(y)
    mean = np.broadcast_to(y, log_g.shape)
    return Released(shape, log_w, log_g, mean, 0.0 * mean, lambda x: np.exp(log_pdf(x[:, None])))


def _beta_nodes(shape, rate, fine):
    u, log_u = _log_gamma_axis(shape, rate, 0.2 / fine)
    a, b = np.meshgrid(np.exp(u), np.exp(u), indexing="ij")
    return a, b, (log_u[:, None] + log_u).ravel()


def beta_given_release(z, a, b, scale, order=24):
    """Density of z, and of z times y and y^2, for y ~ Beta(a, b) behind Laplace noise: (3, n, G).

    By parts, so that only the distribution function appears, which is bounded where the density is not:
    g = q(0) + q(1) - q(z') + (int_0^z' (1 - F) q + int_z'^1 F q)/scale, z' being z clamped to [0, 1]. The y
    are Gauss-Legendre nodes between the kinks of q, in a variable that lifts y^a at 0 and (1 - y)^b at 1.
    """
    z, a, b = np.asarray(z, dtype=float), np.ravel(a)[:, None], np.ravel(b)[:, None]
    at = np.clip(z, 0, 1)
    ends = np.unique(np.concatenate([[0, 0.5, 1], special.betaincinv(4, 4, at)]))
    x, w = np.polynomial.legendre.leggauss(order)
    half = np.diff(ends)[:, None] / 2
    v = (ends[:-1, None] + half * (1 + x)).ravel()
    y = special.betainc(4, 4, v)
    w = (half * w).ravel() * 140 * (v * (1 - v)) ** 3

    def q(y):
        return np.exp(-abs(z[:, None] - y) / scale) / (2 * scale)

    density = []
    cdf, factor = special.betainc(a, b, y), 1.0
    for power in range(3):
        below = y < at[:, None]
        inside = (q(y) * w * np.where(below, -1, 1)) @ cdf.T + (q(y) * w * below).sum(axis=1)[:, None]
        bare = q(np.array([0.0, 1.0])).sum(axis=1) - q(at[:, None])[:, 0]
        density.append(factor * (bare[:, None] + inside / scale))
        # y f(y | a, b) is a/(a + b) times f(y | a + 1, b), whose distribution function follows
        step = special.xlogy(a + power, y) + special.xlog1py(b, -y) - np.log(a + power)
        cdf = cdf - np.exp(step - special.betaln(a + power, b))
        factor = factor * ((a + power) / (a + b + power))[:, 0]
    return np.array(density)


def beta_gamma(z, scale, shape=2.0, rate=2.0, fine=1):
    """Records Beta(a, b), base a, b ~ iid Gamma(shape, rate), Laplace channel of scale >= .05; z (n,)."""
    a, b, log_w = _beta_nodes(shape, rate, fine)
    g, first, second = beta_given_release(z, a, b, scale, order=24 * fine)
    mean, kernel = first / g, stats.beta(a.ravel(), b.ravel())
    return Released(a.shape, log_w, np.log(g), mean, second / g - mean**2, lambda x: kernel.pdf(x[:, None]))


def scale_family(z, noise, pdf, sigma=0.7, fine=1):
    """Positive records x of density pdf(x / s) / s, base log s ~ N(0, sigma^2), Laplace channel; z (n,).

    Records are integrated out on the logarithmic axis, panel by panel between the kinks at the releases.
    """
    t, step = _axis(-9.0, 9.0, 0.15 / fine)
    s = np.exp(sigma * t)
    log_w = stats.norm._logpdf(t) + np.log(step)
    nodes, weights = np.polynomial.legendre.leggauss(20 * fine)
    rows = []
    for one in z:
        top = np.log(max(one, 0.0) + 60 * noise)
        ends = np.linspace(-40.0, top, 200)
        ends = np.unique(np.append(ends, np.log(one))) if one > 0 else ends
        half = np.diff(ends)[:, None] / 2
        x = np.exp((ends[:-1, None] + half * (1 + nodes)).ravel())
        mass = (half * weights).ravel() * x * np.exp(-abs(one - x) / noise) / (2 * noise)
        density = pdf(x / s[:, None]) / s[:, None]
        rows.append([density @ (mass * x**k) for k in range(3)])
    g, first, second = np.moveaxis(np.array(rows), 1, 0)
    mean = first / g
    return Released(s.shape, log_w, np.log(g), mean, second / g - mean**2, lambda x: pdf(x[:, None] / s) / s)


def beta_bins(m, shape=2.0, rate=2.0, fine=1):
    """For the same base: log weights (G,), and probabilities (G, m) of the m equal bins of [0, 1]."""
    a, b, log_w = _beta_nodes(shape, rate, fine)
    edges = np.arange(1, m) / m
    cdf = special.betainc(a.ravel()[:, None], b.ravel()[:, None], edges)
    return log_w, np.diff(cdf, axis=1, prepend=0, append=1)


def smoothed_histogram(w, m, delta):
    """Log density of released values w (r,) in [0, 1], as a function of the true counts (C, m)."""
    bins = np.minimum((np.asarray(w) * m).astype(int), m - 1)
    return lambda counts: np.log((1 - delta) * m * counts[:, bins] / counts[0].sum() + delta).sum(axis=1)


def perturbed_histogram(released, scale):
    """Log density of counts (m,) released with Laplace noise, as a function of the true counts (C, m)."""
    return lambda counts: (-abs(released - counts) / scale - np.log(2 * scale)).sum(axis=1)


def histogram_posterior(n, log_w, masses, log_release, alpha, d=0.0):
    """Joint posterior of the histogram and of the number of clusters, all m^n rows of bins being listed.

    Returns the possible counts (C, m) and the probabilities (C, n); column j belongs to j + 1 clusters.
    """
    w, m = np.exp(log_w), masses.shape[1]

    @cache
    def mass(bins):
        return w @ masses[:, bins].prod(axis=1)

    listed = [blocks(labels) for labels in partitions(n)]
    prior = [np.exp(log_eppf([len(b) for b in parts], alpha, d)) for parts in listed]
    joint = defaultdict(lambda: np.zeros(n))
    for row in itertools.product(range(m), repeat=n):
        counts = tuple(row.count(j) for j in range(m))
        for parts, p in zip(listed, prior):
            joint[counts][len(parts) - 1] += p * np.prod(
                [mass(tuple(sorted(row[i] for i in b))) for b in parts]
            )
    counts, table = (np.array(part) for part in zip(*sorted(joint.items(), key=lambda item: item[0])))
    logs = log_release(counts)
    table *= np.exp(logs - logs.max())[:, None]
    return counts, table / table.sum()
