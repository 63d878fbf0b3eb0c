"""Exact posteriors of small privatized models.

Every function here answers one question, "what is the posterior of this parameter given this
release?", by a closed form, a finite sum or a quadrature whose error is far below any Monte Carlo
error a test can reach (1e-6). Only numpy and scipy are used, so that nothing of the package under
test can leak into its own answer.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import special, stats
from scipy.special import log_ndtr, logsumexp, ndtr

from tests.statistics.marginal import (
    Marginal,
    from_log_density,
    from_mixture,
    from_panels,
    gauss_panels,
)

__all__ = [
    "bernoulli_total",
    "category_counts",
    "clamped_normal_sum",
    "counts_local",
    "exponential_sum",
    "noise_logpdf",
    "normal_local",
    "normal_location_scale_two_releases",
    "normal_plus_noise_logpdf",
    "normal_sum",
    "normal_sum_two_releases",
]

# --- noise and its convolutions ------------------------------------------------------------------


def noise_logpdf(noise: str, deviation, scale) -> np.ndarray:
    """Log density of additive noise: "laplace" (scale b) or "gaussian" (standard deviation)."""
    deviation = np.asarray(deviation, dtype=float)
    if noise == "laplace":
        return -np.abs(deviation) / scale - np.log(2 * scale)
    if noise == "gaussian":
        return -0.5 * (deviation / scale) ** 2 - 0.5 * np.log(2 * np.pi) - np.log(scale)
    raise ValueError(f"noise must be 'laplace' or 'gaussian', not {noise!r}")


def _normal_laplace_half(u, k):
    """log of exp(k^2/2 - k u) erfc((k - u)/sqrt 2), with no overflow on either side."""
    v = (k - u) / np.sqrt(2)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        far = -0.5 * u**2 + np.log(special.erfcx(np.maximum(v, 0.0)))
        near = 0.5 * k**2 - k * u + np.log(special.erfc(np.minimum(v, 0.0)))
    return np.where(v > 0, far, near)


def normal_plus_noise_logpdf(noise, deviation, sd, scale):
    """Log density of N(0, sd^2) plus noise."""
    if noise == "gaussian":
        return noise_logpdf("gaussian", deviation, np.hypot(sd, scale))
    u, k = deviation / sd, sd / scale
    return np.logaddexp(_normal_laplace_half(u, k), _normal_laplace_half(-u, k)) - np.log(4 * scale)


def _log_ndtr_interval(a, b):
    """log(Phi(b) - Phi(a)), taken in the tail where it does not cancel; -inf unless a < b."""
    flip = a > 0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    high, low = log_ndtr(b), log_ndtr(a)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = high + np.log1p(-np.exp(np.minimum(low - high, 0.0)))
    return np.where(b > a, out, -np.inf)


def _clamped_normal_plus_noise_logpdf(noise, z, mean, sd, scale, low, high):
    """Log density of clamp(N(mean, sd^2), low, high) plus noise: two atoms and the part between."""
    atoms = [
        log_ndtr((low - mean) / sd) + noise_logpdf(noise, z - low, scale),
        log_ndtr((mean - high) / sd) + noise_logpdf(noise, z - high, scale),
    ]
    if noise == "gaussian":
        total = np.hypot(sd, scale)
        centre = mean + (z - mean) * (sd / total) ** 2
        spread = sd * scale / total
        inner = [
            noise_logpdf("gaussian", z - mean, total)
            + _log_ndtr_interval((low - centre) / spread, (high - centre) / spread)
        ]
    else:
        cut = np.clip(z, low, high)
        tilt = 0.5 * (sd / scale) ** 2 - np.log(2 * scale)
        left, right = mean + sd**2 / scale, mean - sd**2 / scale
        inner = [
            (mean - z) / scale + tilt + _log_ndtr_interval((low - left) / sd, (cut - left) / sd),
            (z - mean) / scale + tilt + _log_ndtr_interval((cut - right) / sd, (high - right) / sd),
        ]
    return logsumexp(np.stack(np.broadcast_arrays(*atoms, *inner)), axis=0)


# --- records summed ------------------------------------------------------------------------------


def normal_sum(release, n, sd, scale, *, noise="laplace", prior=(0.0, 1.0)) -> Marginal:
    """Mean mu of n normal records (known sd) from their noisy sum; prior mu ~ N(*prior)."""

    def log_density(mu):
        likelihood = normal_plus_noise_logpdf(noise, release - n * mu, np.sqrt(n) * sd, scale)
        return likelihood + stats.norm.logpdf(mu, *prior)

    return from_log_density(log_density, prior[0] - 9 * prior[1], prior[0] + 9 * prior[1])


def normal_sum_two_releases(releases, n, sd, scales, *, prior=(0.0, 1.0)) -> Marginal:
    """Mean of n normal records from two noisy sums of the *same* records.

    The first release carries Laplace noise of scale ``scales[0]``, the second Gaussian noise of sd
    ``scales[1]``. Given mu, the second release makes the sum normal with smaller variance, and the
    first is then normal-Laplace.
    """
    z1, z2 = releases
    b, sigma = scales
    spread = np.sqrt(n) * sd
    gain = spread**2 / (spread**2 + sigma**2)

    def log_density(mu):
        centre = n * mu + gain * (z2 - n * mu)
        second = noise_logpdf("gaussian", z2 - n * mu, np.hypot(spread, sigma))
        first = normal_plus_noise_logpdf("laplace", z1 - centre, spread * np.sqrt(1 - gain), b)
        return first + second + stats.norm.logpdf(mu, *prior)

    return from_log_density(log_density, prior[0] - 9 * prior[1], prior[0] + 9 * prior[1])


def normal_location_scale_two_releases(
    releases, n, scales, *, prior_mu=(0.0, 1.0), prior_log_sd=(0.0, 0.5), nodes=136
) -> dict[str, Marginal]:
    """(mu, log sd) of n >= 4 normal records from sum and sum of squares, Laplace noise on each.

    The sum S and the scatter Q = sum (x - mean)^2 are independent, S ~ N(n mu, n sd^2) and
    Q ~ sd^2 chi2(n - 1), and the sum of squares is S^2/n + Q: a two-dimensional integral for each
    point of a grid over (mu, log sd).
    """
    z1, z2 = releases
    b1, b2 = scales
    edges = [np.linspace(m - 8 * s, m + 8 * s, 15) for m, s in (prior_mu, prior_log_sd)]
    for last in (False, False, True):
        (mu, w_mu), (tau, w_tau) = ((a.ravel() for a in gauss_panels(e, 8)) for e in edges)
        table = _location_scale_log_likelihood(mu, tau, z1, z2, n, b1, b2)
        table += stats.norm.logpdf(mu, *prior_mu)[:, None] + stats.norm.logpdf(tau, *prior_log_sd)
        joint = np.exp(table - table.max()) * w_mu[:, None] * w_tau
        joint /= joint.sum()
        marginals = [
            from_panels(edge, mass, weight)
            for edge, mass, weight in (
                (edges[0], joint.sum(1), w_mu),
                (edges[1], joint.sum(0), w_tau),
            )
        ]
        if not last:
            edges = [_spread_panels(m, nodes // 8) for m in marginals]
    return dict(zip(("mu", "log_sd"), marginals, strict=True))


def _spread_panels(marginal: Marginal, panels: int, tail: float = 1e-11) -> np.ndarray:
    """Panel edges that equidistribute density^(1/4), so that tails are resolved as well as the
    centre.
    """
    f = marginal.cdf_values
    first = max(np.searchsorted(f, tail) - 2, 0)
    last = min(np.searchsorted(f, f[-1] - tail) + 2, f.size - 1)
    x, height = marginal.grid[first : last + 1], marginal.density[first : last + 1] ** 0.25
    height = np.maximum(height, 0.02 * height.max())
    share = np.concatenate([[0.0], np.cumsum(0.5 * (height[1:] + height[:-1]) * np.diff(x))])
    return np.interp(np.linspace(0, share[-1], panels + 1), share, x)


def _location_scale_log_likelihood(mu, tau, z1, z2, n, b1, b2):
    """log p(z1, z2 | mu, exp(tau)), shape (mu, tau)."""
    out = np.empty((mu.size, tau.size))
    k = n - 1
    log_constant = 0.5 * k * np.log(2) + special.gammaln(0.5 * k)
    for j, sigma in enumerate(np.exp(tau)):
        spread = np.sqrt(n) * sigma
        # z1's kink in S, z2's in Q, and the S at which the latter reaches the edge of Q's support.
        low = min(n * mu.min() - 9 * spread, z1 - 1e-9)
        high = max(n * mu.max() + 9 * spread, z1 + 1e-9)
        # Nothing outside 34 noise scales of z1 matters: exp(-34) of the rest.
        low, high = max(low, z1 - 34 * b1), min(high, z1 + 34 * b1)
        root = np.sqrt(n * max(z2, 0.0))
        breaks = np.unique([low, z1, high, *(r for r in (-root, root) if low < r < high)])
        pieces = np.ceil(np.maximum(np.diff(breaks) / min(0.7 * spread, 3 * b1), 2)).astype(int)
        pieces = np.minimum(pieces, 300)
        edges = np.concatenate(
            [np.linspace(a, c, p + 1)[:-1] for a, c, p in zip(breaks[:-1], breaks[1:], pieces)] + [[high]]
        )
        s, w = (a.ravel() for a in gauss_panels(edges, 8))
        q_low = 0.0
        q_high = k + 12 * np.sqrt(2 * k) + 50
        kink = np.clip((z2 - s**2 / n) / sigma**2, q_low, q_high)
        inner = 0.0
        for a, c in ((np.full_like(s, q_low), kink), (kink, np.full_like(s, q_high))):
            q_edges = a[:, None] + (c - a)[:, None] * np.linspace(0, 1, 9)
            q, wq = gauss_panels(q_edges, 8)
            value = np.exp(
                special.xlogy(k / 2 - 1, q)
                - q / 2
                - log_constant
                + noise_logpdf("laplace", z2 - s[:, None, None] ** 2 / n - sigma**2 * q, b2)
            )
            inner = inner + (value * wq).sum((1, 2))
        outer = noise_logpdf("laplace", z1 - s, b1) + np.log(np.maximum(inner, 1e-300)) + np.log(w)
        out[:, j] = logsumexp(outer + noise_logpdf("gaussian", s - n * mu[:, None], spread), axis=1)
    return out


def bernoulli_total(release, n, scale, *, noise="laplace", prior=(1.0, 1.0)) -> Marginal:
    """Success probability p ~ Beta(*prior) of n Bernoulli records from their noisy total."""
    total = np.arange(n + 1)
    log_weight = stats.betabinom.logpmf(total, n, *prior) + noise_logpdf(noise, release - total, scale)
    a, b = prior[0] + total, prior[1] + n - total
    return _beta_mixture(np.exp(log_weight - log_weight.max()), a, b)


def _beta_mixture(weight, a, b) -> Marginal:
    grid = np.linspace(0.0, 1.0, 2001)
    with np.errstate(divide="ignore", invalid="ignore"):
        pdf = stats.beta.pdf(grid[:, None], a, b)
    pdf[~np.isfinite(pdf)] = 0.0
    mean = a / (a + b)
    return from_mixture(
        weight,
        mean,
        mean * (1 - mean) / (a + b + 1),
        grid,
        special.betainc(a, b, grid[:, None]),
        pdf,
    )


def category_counts(releases, n, scale, *, noise="laplace", prior=(1.0, 1.0, 1.0)) -> list[Marginal]:
    """Probabilities ~ Dirichlet(prior) of three categories from noisy counts of n records, by
    enumeration.
    """
    prior = np.asarray(prior, dtype=float)
    releases = np.asarray(releases, dtype=float)
    counts = np.array([(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)])
    log_weight = (special.gammaln(counts + prior) - special.gammaln(counts + 1)).sum(1)
    log_weight += noise_logpdf(noise, releases - counts, scale).sum(1)
    weight = np.exp(log_weight - log_weight.max())
    a = counts + prior
    return [_beta_mixture(weight, a[:, j], a.sum(1) - a[:, j]) for j in range(3)]


def exponential_sum(release, n, scale, *, noise="laplace", prior=(2.0, 2.0)) -> Marginal:
    """Rate ~ Gamma(shape, rate) of n exponential records from their noisy sum (a gamma mixture
    over the sum).
    """
    a, b = prior
    # The heavy tail of the sum's marginal (power -a - 1) is cut by the noise, 45 scales (or 9 sds)
    # away.
    reach = 45 * scale if noise == "laplace" else 10 * scale
    low, high = max(0.0, release - reach), max(release, 0.0) + reach
    breaks = [low, release, high] if low < release else [low, high]
    edges = np.unique(np.concatenate([np.linspace(lo, hi, 200) for lo, hi in pairwise(breaks)]))
    s, w = (x.ravel() for x in gauss_panels(edges, 10))
    log_weight = (n - 1) * np.log(s) - (a + n) * np.log(b + s) + noise_logpdf(noise, release - s, scale)
    weight = w * np.exp(log_weight - log_weight.max())
    shape, rate = a + n, b + s
    top = (shape + 12 * np.sqrt(shape) + 60) / rate[weight > weight.max() * 1e-14].min()
    grid = np.linspace(0, top, 3001)
    cdf = special.gammainc(shape, np.outer(grid, rate))
    pdf = stats.gamma.pdf(grid[:, None], shape, scale=1 / rate)
    return from_mixture(weight, shape / rate, shape / rate**2, grid, cdf, pdf)


def clamped_normal_sum(
    release, n, scale, bounds, *, sd=1.0, noise="laplace", prior=(0.0, 1.0), cells=400
) -> Marginal:
    """Mean of n normal records from the noisy sum of their clamped values.

    The n-fold law of a clamped record (two atoms and a truncated normal between) is taken by
    trapezoid weights on a lattice that holds the atoms and the release (otherwise `ValueError`):
    then every kink lies on the lattice, the error has only even powers of the mesh, and three
    meshes extrapolate two of them away.
    """
    low, high = bounds
    position = (release - n * low) / (high - low) * cells
    if abs(position - round(position)) > 1e-9:
        raise ValueError(f"release must lie on the lattice n*low + k*(high - low)/{cells}; round it first")

    def density(mu, m):
        mesh = (high - low) / m
        x = low + mesh * np.arange(m + 1)
        mass = stats.norm.pdf(x, mu[:, None], sd) * mesh
        mass[:, [0, -1]] *= 0.5
        mass[:, 0] += ndtr((low - mu) / sd)
        mass[:, -1] += ndtr((mu - high) / sd)
        size = n * m + 1
        length = 1 << (size - 1).bit_length()
        total = np.fft.irfft(np.fft.rfft(mass, length) ** n, length)[:, :size]
        support = n * low + mesh * np.arange(size)
        return total @ np.exp(noise_logpdf(noise, release - support, scale))

    def log_density(mu):
        out = np.empty(mu.size)
        for rows in np.array_split(np.arange(mu.size), max(1, mu.size // 200)):
            coarse, middle, fine = (density(mu[rows], m) for m in (cells, 2 * cells, 4 * cells))
            first, second = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
            out[rows] = (16 * second - first) / 15
        return np.log(np.maximum(out, 1e-300)) + stats.norm.logpdf(mu, *prior)

    return from_log_density(
        log_density, prior[0] - 8 * prior[1], prior[0] + 8 * prior[1], panels=40, refine=False
    )


# --- records released one by one -----------------------------------------------------------------


def normal_local(z, sd, scale, *, noise="laplace", bounds=None, prior=(0.0, 1.0)) -> Marginal:
    """Mean of normal records (known sd), each released with its own noise, clamped to `bounds`
    first if given.
    """
    z = np.asarray(z, dtype=float)

    def log_density(mu):
        column = np.asarray(mu)[:, None]
        if bounds is None:
            each = normal_plus_noise_logpdf(noise, z - column, sd, scale)
        else:
            each = _clamped_normal_plus_noise_logpdf(noise, z, column, sd, scale, *bounds)
        return each.sum(1) + stats.norm.logpdf(mu, *prior)

    return from_log_density(log_density, prior[0] - 9 * prior[1], prior[0] + 9 * prior[1])


def counts_local(z, scale, *, family="poisson", noise="laplace", prior=(2.0, 1.0), largest=400) -> Marginal:
    """Parameter of count records, each released with its own noise, by summation over the counts.

    ``family="poisson"``: rate ~ Gamma(shape, rate); ``family="geometric"``: success probability ~
    Beta, counts from 1.
    """
    z = np.asarray(z, dtype=float)
    if family == "poisson":
        k = np.arange(largest)
        log_pmf = lambda t: k * np.log(t) - t - special.gammaln(k + 1)  # noqa: E731
        log_prior = lambda t: stats.gamma.logpdf(t, prior[0], scale=1 / prior[1])  # noqa: E731
        low, high = 1e-9, stats.gamma.isf(1e-14, prior[0], scale=1 / prior[1])
    elif family == "geometric":
        k = np.arange(1, largest)
        log_pmf = lambda t: np.log(t) + (k - 1) * np.log1p(-t)  # noqa: E731
        log_prior = lambda t: stats.beta.logpdf(t, *prior)  # noqa: E731
        low, high = 1e-9, 1 - 1e-9
    else:
        raise ValueError(f"family must be 'poisson' or 'geometric', not {family!r}")
    channel = np.exp(noise_logpdf(noise, z[:, None] - k, scale))

    def log_density(t):
        pmf = np.exp(log_pmf(np.asarray(t)[:, None]))
        return np.log(np.maximum(pmf @ channel.T, 1e-300)).sum(1) + log_prior(t)

    return from_log_density(log_density, low, high)
