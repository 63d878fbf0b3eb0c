"""Integrals over records and atoms of one cluster, beside closed forms and other quadratures."""

import itertools

import numpy as np
import pytest
from scipy import integrate, special, stats

from tests.mixtures import exact
from tests.mixtures.exact import Channel
from tests.mixtures.examples import BETA_Z, CHANNELS, MODELS, POISSON_Z, Z, every_block, line

EVERY_CHANNEL = pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
NEAR = np.array([0, -30, -10, -3, -1, 1, 3, 10, 30])  # in units of the noise: where adaptive rules look
NIG = {"m0": 1.0, "lam": 0.3, "a": 2.5, "b": 4.0}


# --- one record -------------------------------------------------------------------------------------------


@EVERY_CHANNEL
@pytest.mark.parametrize(("mu", "s2"), [(0.0, 1.0), (4.5, 0.3), (-9.0, 1.0), (3.0, 60.0)])
def test_normal_record_given_its_release(channel, mu, s2):
    for z in (-14.0, -5.0, 3.3):
        log_g, mean, var = exact.normal_given_release(z, mu, s2, channel)

        def moment(power, z=z, log_g=log_g, mean=mean, var=var):
            def density(y):
                log_f = -0.5 * ((y - mu) ** 2 / s2 + np.log(2 * np.pi * s2))
                return ((y - mean) / np.sqrt(var)) ** power * np.exp(channel.log_q(z, y) + log_f - log_g)

            near = z + NEAR * channel.scale
            kinks = np.clip([channel.lo, channel.hi, *near, mu], -70, 70)
            pieces = itertools.pairwise(np.unique([-80, *kinks, 80]))
            return sum(integrate.quad(density, *ends, epsabs=1e-12, limit=200)[0] for ends in pieces)

        assert moment(0) == pytest.approx(1, abs=1e-9)
        assert moment(1) == pytest.approx(0, abs=1e-6)
        assert moment(2) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_bounds_that_are_out_of_reach_change_nothing(name):
    mu, s2 = np.array([[-3.0], [0.0], [8.0]]), np.array([0.2, 3.0])
    free = exact.normal_given_release(2.0, mu, s2, Channel(name, 1.3))
    wide = exact.normal_given_release(2.0, mu, s2, Channel(name, 1.3, -200.0, 200.0))
    one_side = exact.normal_given_release(2.0, mu, s2, Channel(name, 1.3, hi=200.0))
    assert np.allclose(free, wide, rtol=1e-12) and np.allclose(free, one_side, rtol=1e-12)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.05, 0.4), (0.3, 7.0), (9.0, 2.5)])
@pytest.mark.parametrize("scale", [0.05, 0.5, 5.0])
def test_beta_record_given_its_release(a, b, scale):
    z = np.array([-0.4, 0.03, 0.6, 1.7])
    found = exact.beta_given_release(z, a, b, scale)[:, :, 0]
    for i, power in itertools.product(range(4), range(3)):
        at = np.clip(z[i], 0, 1)

        def rest(y, shift, i=i, power=power):
            return y**power * np.exp(-abs(z[i] - y) / scale) / (2 * scale) * shift(y)

        kw = {"weight": "alg", "epsabs": 0, "epsrel": 1e-11}
        total = 0.0
        if at > 0:
            end = (b - 1) * (at == 1)
            left = (lambda y: (1 - y) ** (b - 1),) if at < 1 else (np.ones_like,)
            total += integrate.quad(rest, 0, at, left, wvar=(a - 1, end), **kw)[0]
        if at < 1:
            end = (a - 1) * (at == 0)
            right = (lambda y: y ** (a - 1),) if at > 0 else (np.ones_like,)
            total += integrate.quad(rest, at, 1, right, wvar=(end, b - 1), **kw)[0]
        assert found[power, i] == pytest.approx(total / special.beta(a, b), rel=1e-7)


# --- clusters: every block against closed forms where there are some ----------------------------------------


@pytest.mark.parametrize("base", [{}, NIG], ids=["default base", "another base"])
def test_known_records_of_a_cluster_are_student(base):
    released = exact.normal_nig(Z, None, **base)
    m0, lam, a, b = ({"m0": 0.0, "lam": 0.1, "a": 3.0, "b": 3.0} | base).values()
    for block in every_block(6):
        y, r = Z[list(block)], len(block)
        shape = b / a * (np.eye(r) + 1 / lam)
        student = stats.multivariate_t.logpdf(y, np.full(r, m0), shape, df=2 * a)
        assert exact.nig_log_marginal(y, **base) == pytest.approx(student, abs=1e-11)
        assert released.log_marginal(block) == pytest.approx(student, abs=1e-10)


@pytest.mark.parametrize("sd", [None, 1e-3, 1.5, 30.0])
def test_normal_records_and_noise_are_normal(sd):
    released = exact.normal_known(Z, sd and Channel("gaussian", sd), m0=0.5, v0=9.0, s2=0.7)
    for block in every_block(6):
        r = len(block)
        cov = 9.0 + (0.7 + (sd or 0) ** 2) * np.eye(r)
        expected = stats.multivariate_normal.logpdf(Z[list(block)], np.full(r, 0.5), cov)
        assert released.log_marginal(block) == pytest.approx(expected, abs=1e-10)


def test_poisson_clusters_are_sums_of_gamma_poisson():
    shape, rate, scale = 1.5, 0.3, 2.0
    released = exact.poisson_gamma(POISSON_Z, scale, shape, rate)
    r, y = np.exp(-1 / scale), np.arange(120)
    q = (1 - r) / (1 + r) * r ** abs(POISSON_Z[:, None] - y)
    for block in every_block(6, largest=3):
        size = len(block)
        total = np.add.reduce(np.meshgrid(*[y] * size, indexing="ij"))
        log_f = special.gammaln(shape + total) - special.gammaln(shape) + shape * np.log(rate)
        log_f -= sum(np.meshgrid(*[special.gammaln(y + 1)] * size, indexing="ij"))
        joint = np.exp(log_f - (shape + total) * np.log(rate + size))
        for i in block:
            joint = np.tensordot(joint, q[i], (0, 0))
        assert released.log_marginal(block) == pytest.approx(np.log(joint), abs=1e-10)


# --- clusters: private ones, against integrals over the records rather than over the atoms ------------------


def student(y, base):
    """Density of known records of one cluster, y (r, ...)."""
    r, mean = len(y), y.mean(axis=0)
    rate = base["b"] + 0.5 * ((y - mean) ** 2).sum(axis=0)
    rate = rate + 0.5 * base["lam"] * r / (base["lam"] + r) * (mean - base["m0"]) ** 2
    a, lam = base["a"], base["lam"]
    log_norm = special.gammaln(a + r / 2) - special.gammaln(a) + 0.5 * np.log(lam / (lam + r))
    return np.exp(log_norm - r / 2 * np.log(2 * np.pi) + a * np.log(base["b"]) - (a + r / 2) * np.log(rate))


@EVERY_CHANNEL
def test_posterior_of_two_records_by_integrating_over_them(channel):
    z, alpha, d, x = np.array([-1.5, 6.5]), 0.8, 0.25, np.array([-4.0, 0.5, 7.0])
    released = exact.normal_nig(z, channel, **NIG)
    post = released.posterior(alpha, d)
    rules = [line([channel.lo, channel.hi, *(v + NEAR * channel.scale)]) for v in z]
    y = np.array(np.meshgrid(*[rule[0] for rule in rules], indexing="ij"))
    q = np.multiply.outer(*[w * np.exp(channel.log_q(v, nodes)) for v, (nodes, w) in zip(z, rules)])
    alone = [student(v[None], NIG) for v in y]
    apart, together = q * alone[0] * alone[1], q * student(y, NIG)
    for block, expected in {(0, 1): together.sum(), (0,): None, (1,): None}.items():
        if expected is None:
            i = block[0]
            nodes, w = rules[i]
            expected = w @ (np.exp(channel.log_q(z[i], nodes)) * student(nodes[None], NIG))
        assert released.log_marginal(block) == pytest.approx(np.log(expected), abs=1e-8)
    p_together, p_apart = (1 - d) / (1 + alpha) * together, (alpha + d) / (1 + alpha) * apart
    total = p_together.sum() + p_apart.sum()
    assert post.n_clusters()[0] == pytest.approx(p_together.sum() / total, rel=1e-8)
    mean, sd = exact.record_moments(released, post)
    for i in range(2):
        m = [(v * (p_together + p_apart)).sum() / total for v in (y[i], y[i] ** 2)]
        assert (mean[i], sd[i]) == pytest.approx((m[0], np.sqrt(m[1] - m[0] ** 2)), rel=1e-7)
    for at, found in zip(x, exact.mean_density(released, post, x)):
        third = np.full((1, *y[0].shape), at)
        joined = student(np.concatenate([y, third]), NIG) / student(y, NIG)
        to_each = sum(student(np.concatenate([y[[i]], third]), NIG) / alone[i] for i in range(2))
        base = student(third, NIG)
        f_together = ((2 - d) * joined + (alpha + d) * base) / (2 + alpha)
        f_apart = ((1 - d) * to_each + (alpha + 2 * d) * base) / (2 + alpha)
        assert found == pytest.approx((p_together * f_together + p_apart * f_apart).sum() / total, rel=1e-7)


@pytest.mark.parametrize("name", ["laplace, clamped", "gaussian"])
def test_two_records_by_adaptive_quadrature(name):
    channel, z = CHANNELS[name], np.array([-1.5, 6.5])
    v0, s2 = 9.0, 1.0
    released = exact.normal_known(z, channel, v0=v0, s2=s2)
    precision = np.linalg.inv(v0 + s2 * np.eye(2))
    norm = np.sqrt(np.linalg.det(precision)) / (2 * np.pi)

    def density(*y):
        y = np.array(y)
        return norm * np.exp(-0.5 * y @ precision @ y + channel.log_q(z, y).sum())

    options = [{"points": [-5, 5, v], "epsabs": 1e-11, "epsrel": 1e-7} for v in z]
    value, _ = integrate.nquad(density, [(-25, 25)] * 2, opts=options)
    assert released.log_marginal((0, 1)) == pytest.approx(np.log(value), abs=1e-6)


@pytest.mark.parametrize("size", [1, 2])
def test_beta_clusters_by_adaptive_quadrature(size):
    """Releases beyond an end of [0, 1] have a confluent hypergeometric density given the atom."""
    z, scale = np.array([1.4, -0.3])[:size], 0.5
    released = exact.beta_gamma(z, scale)

    def density(a, b):
        up = np.exp(-1.4 / scale) * special.hyp1f1(a, a + b, 1 / scale)
        down = np.exp(-0.3 / scale) * special.hyp1f1(a, a + b, -1 / scale) if size == 2 else 1.0
        return 16 * a * b * np.exp(-2 * (a + b)) * up * down / (2 * scale) ** size

    value, _ = integrate.nquad(density, [(0, 25)] * 2, opts={"epsabs": 0, "epsrel": 1e-8})
    assert released.log_marginal(range(size)) == pytest.approx(np.log(value), abs=1e-7)


def laguerre_atoms(shape, rate, order):
    """Atoms (a, b) of the Beta kernels' base, and weights, by Gauss's own rule for the Gamma density."""
    x, w = special.roots_genlaguerre(order, shape - 1)
    a, b = np.meshgrid(x / rate, x / rate, indexing="ij")
    return a.ravel(), b.ravel(), np.outer(w, w).ravel() / special.gamma(shape) ** 2


def test_beta_clusters_by_another_rule():
    released = exact.beta_gamma(BETA_Z, 0.3, shape=3.0, rate=2.5)
    a, b, w = laguerre_atoms(3.0, 2.5, 100)
    g = exact.beta_given_release(BETA_Z, a, b, 0.3, order=40)[0]
    for block in every_block(6):
        expected = np.log(w @ g[list(block)].prod(axis=0))
        assert released.log_marginal(block) == pytest.approx(expected, abs=1e-7)


# --- the grid -----------------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("name", MODELS)
def test_twice_the_resolution_changes_nothing(name):
    make, *arguments = MODELS[name]
    released, fine = make(*arguments), make(*arguments, fine=2)
    error = released.error()
    assert error < 1e-6
    assert released.log_marginal(()) == pytest.approx(0, abs=1e-12)
    for block in every_block(len(released.log_g)):
        change = abs(released.log_marginal(block) - fine.log_marginal(block))
        assert change < max(error, 1e-11) and change < 1e-9


def test_error_is_seen():
    """A coarse grid, and one that ends too early, say so."""
    z = Z[:3]
    assert exact.normal_nig(z, CHANNELS["laplace"], fine=0.3).error() > 1e-4
    assert exact.normal_known(z, None, m0=-60.0, v0=25.0).error() > 1e-4
