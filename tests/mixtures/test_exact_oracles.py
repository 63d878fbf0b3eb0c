"""Exact posteriors of small mixtures, beside lists of everything, limits and an independent sampler."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special

from tests.mixtures import exact
from tests.mixtures.exact import Channel
from tests.mixtures.examples import CHANNELS, MODELS, Z, every_block, line

URNS = pytest.mark.parametrize(("alpha", "d"), [(0.5, 0), (3, 0), (1, 0.3), (0, 0.5), (-0.2, 0.6)])
# --- partitions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "bell"), [(1, 1), (2, 2), (3, 5), (4, 15), (5, 52), (6, 203)])
def test_every_partition_is_listed_once(n, bell):
    labels = exact.partitions(n)
    everything = {
        tuple(list(dict.fromkeys(row)).index(label) for label in row)
        for row in itertools.product(range(n), repeat=n)
    }
    assert len(everything) == len(labels) == bell
    assert everything == set(map(tuple, labels.tolist()))


@URNS
def test_prior_is_the_urn(alpha, d):
    """One record after the other joins a cluster or opens one."""
    for row in exact.partitions(5):
        p = 1.0
        for i in range(1, 5):
            k, size = max(row[:i]) + 1, np.sum(row[:i] == row[i])
            p *= (size - d if size else alpha + d * k) / (i + alpha)
        assert np.exp(exact.log_eppf(np.bincount(row), alpha, d)) == pytest.approx(p, rel=1e-12)


@URNS
def test_probabilities_under_no_information(alpha, d):
    post = exact.posterior(6, lambda block: 0.0, alpha, d)
    assert sum(np.exp(exact.log_eppf(np.bincount(row), alpha, d)) for row in post.labels) == pytest.approx(1)
    pair = (1 - d) / (1 + alpha)
    assert post.coclustering() == pytest.approx(np.where(np.eye(6), 1, pair))
    if d == 0:
        stirling = np.array([120, 274, 225, 85, 15, 1])  # unsigned, first kind
        expected = stirling * alpha ** np.arange(1, 7) / special.poch(alpha, 6)
        assert post.n_clusters() == pytest.approx(expected, rel=1e-12)


# --- posteriors ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def released():
    return exact.normal_nig(Z, CHANNELS["laplace, clamped"])


@URNS
def test_summaries_agree_with_each_other(released, alpha, d):
    post = released.posterior(alpha, d)
    pmf, same, blocks = post.n_clusters(), post.coclustering(), post.block_probabilities()
    assert post.prob.sum() == pytest.approx(1) and pmf.sum() == pytest.approx(1)
    assert np.all(np.diag(same) == pytest.approx(1)) and np.array_equal(same, same.T)
    assert np.linalg.eigvalsh(same).min() > -1e-12
    assert sum(blocks.values()) == pytest.approx(pmf @ np.arange(1, 7))
    for i, j in itertools.combinations_with_replacement(range(6), 2):
        assert same[i, j] == pytest.approx(sum(p for b, p in blocks.items() if i in b and j in b))
    order = np.array([3, 0, 5, 1, 4, 2])
    shuffled = replace(released, log_g=released.log_g[order]).posterior(alpha, d)
    assert shuffled.coclustering() == pytest.approx(same[np.ix_(order, order)])


def test_limits(released):
    assert released.posterior(1e-9).n_clusters()[0] == pytest.approx(1, abs=1e-6)
    assert released.posterior(1e9).n_clusters()[-1] == pytest.approx(1, abs=1e-6)
    assert released.posterior(1.0, 1 - 1e-9).n_clusters()[-1] == pytest.approx(1, abs=1e-6)
    blind = exact.normal_nig(Z, Channel("laplace", 1e9)).posterior(1.0).n_clusters()
    assert blind == pytest.approx(np.array([120, 274, 225, 85, 15, 1]) / 720, rel=1e-6)
    known = exact.posterior(6, lambda block: exact.nig_log_marginal(Z[list(block)]), 1.0)
    clear = exact.normal_nig(Z, Channel("laplace", 1e-4))
    assert clear.posterior(1.0).prob == pytest.approx(known.prob, rel=1e-5)
    mean, sd = exact.record_moments(clear, clear.posterior(1.0))
    assert mean == pytest.approx(Z, abs=1e-6)
    assert sd == pytest.approx(np.full(6, np.sqrt(2) * 1e-4), rel=1e-5)


@pytest.mark.parametrize(("alpha", "d"), [(0.7, 0.0), (1.0, 0.4)])
def test_labels_as_slots(released, alpha, d):
    """Every row of labels in n slots, weighed by the probability of its partition over its placements."""
    n = 4
    same, total = np.zeros((n, n)), 0.0
    for row in itertools.product(range(n), repeat=n):
        row = np.array(row)
        blocks = [np.flatnonzero(row == h) for h in np.unique(row)]
        log_p = exact.log_eppf([len(b) for b in blocks], alpha, d)
        log_p -= np.log(special.perm(n, len(blocks)))
        p = np.exp(log_p + sum(released.log_marginal(b) for b in blocks))
        total += p
        same += p * (row[:, None] == row)
    post = exact.posterior(n, released.log_marginal, alpha, d)
    assert post.coclustering() == pytest.approx(same / total, rel=1e-10)


def evidence(released, alpha, d):
    rows = exact.partitions(len(released.log_g))
    logs = [exact.log_eppf(np.bincount(row), alpha, d) for row in rows]
    marginal = {b: released.log_marginal(b) for b in every_block(len(released.log_g))}
    return special.logsumexp([p + sum(marginal[b] for b in exact.blocks(r)) for p, r in zip(logs, rows)])


@pytest.mark.parametrize("name", ["NIG, laplace, clamped", "normal, gaussian", "Poisson", "Beta"])
@pytest.mark.parametrize(("alpha", "d"), [(0.7, 0.0), (-0.1, 0.4)])
def test_mean_density_is_a_ratio_of_evidences(name, alpha, d):
    """A further record, known, is one row more."""
    make, z, channel = MODELS[name]
    released = make(z[:3], channel)
    x = np.array([1, 4]) if name == "Poisson" else np.array([0.1, 0.6])
    found = exact.mean_density(released, released.posterior(alpha, d), x)
    for at, density in zip(x, found):
        row = np.log(released.pdf(np.array([at])))
        more = replace(released, log_g=np.concatenate([released.log_g, row]))
        assert density == pytest.approx(np.exp(evidence(more, alpha, d) - evidence(released, alpha, d)))


def test_mean_density_is_a_density(released):
    x, w = line([])
    assert w @ exact.mean_density(released, released.posterior(1.0, 0.2), x) == pytest.approx(1, abs=1e-6)


def test_records_behind_poisson_and_beta_by_their_evidence():
    """The mean of a record is the evidence with y q in place of q, over the evidence; squares likewise."""
    for name in ("Poisson", "Beta"):
        make, z, scale = MODELS[name]
        released = make(z, scale)
        post = released.posterior(0.6, 0.1)
        mean, sd = exact.record_moments(released, post)
        for i, power in itertools.product(range(2), (1, 2)):
            factor = released.mean[i] if power == 1 else released.var[i] + released.mean[i] ** 2
            log_g = released.log_g.copy()
            log_g[i] += np.log(factor)
            ratio = np.exp(evidence(replace(released, log_g=log_g), 0.6, 0.1) - evidence(released, 0.6, 0.1))
            assert ratio == pytest.approx(mean[i] if power == 1 else sd[i] ** 2 + mean[i] ** 2)


def test_an_independent_sampler():
    """Private Neal 5 in C++, 4e7 sweeps: pmf of the number of clusters and mean density, with errors."""
    released = exact.normal_nig(np.array([7.97, -1.23, -2.79, -5.3, 2.92, 4.08]), Channel("laplace", 2.0))
    post = released.posterior(1.0)
    pmf = np.array([0.038684, 0.295025, 0.404634, 0.211012, 0.046921, 0.003725])
    error = np.array([7.0e-5, 1.38e-4, 1.05e-4, 9.7e-5, 4.7e-5, 1.1e-5])
    assert np.all(abs(post.n_clusters() - pmf) < 4 * error)
    density = np.array([0.0020542, 0.0770472, 0.1055377, 0.0936633, 0.0140376])
    error = np.array([3.6e-6, 4.4e-5, 5.55e-5, 5.03e-5, 1.85e-5])
    found = exact.mean_density(released, post, np.array([-9.0, -3.0, 0.0, 3.0, 7.5]))
    assert np.all(abs(found - density) < 4 * error)


# --- histograms of all records ------------------------------------------------------------------------------


@pytest.mark.parametrize("bins", [[1], [0, 2], [0, 0, 1, 3]])
def test_bins_by_adaptive_quadrature(bins):
    log_w, masses = exact.beta_bins(4)

    def density(root_a, root_b):  # of square roots, in which nothing is steep at zero
        a, b = root_a**2, root_b**2
        cdf = special.betainc(a, b, np.linspace(0, 1, 5))
        return 64 * (root_a * root_b) ** 3 * np.exp(-2 * (a + b)) * np.diff(cdf)[bins].prod()

    value, _ = integrate.nquad(density, [(0, 5)] * 2, opts={"epsabs": 1e-11, "epsrel": 1e-8})
    assert np.exp(log_w) @ masses[:, bins].prod(axis=1) == pytest.approx(value, rel=1e-7)


def test_histogram_that_tells_nothing():
    """Released values are uniform: the urn, and the records' own law, are what is left."""
    log_w, masses = exact.beta_bins(2)
    counts, joint = exact.histogram_posterior(4, log_w, masses, exact.smoothed_histogram([0.2], 2, 1.0), 0.8)
    expected = np.array([6, 11, 6, 1]) * 0.8 ** np.arange(1, 5) / special.poch(0.8, 4)
    assert joint.sum(axis=0) == pytest.approx(expected)
    assert counts.tolist() == [[i, 4 - i] for i in range(5)]
    assert joint.sum(axis=1) == pytest.approx(joint.sum(axis=1)[::-1])  # the base is symmetric


@pytest.mark.parametrize("true", [(2, 0, 1), (0, 3, 1), (1, 1, 2)])
@pytest.mark.parametrize(("alpha", "d"), [(0.7, 0.0), (1.0, 0.4)])
def test_histogram_without_noise_is_known_bins(true, alpha, d):
    log_w, masses = exact.beta_bins(3)
    bins, n = np.repeat(range(3), true), sum(true)
    post = exact.posterior(
        n, lambda b: np.log(np.exp(log_w) @ masses[:, bins[list(b)]].prod(axis=1)), alpha, d
    )
    noise = exact.perturbed_histogram(np.array(true), 0.01)
    counts, joint = exact.histogram_posterior(n, log_w, masses, noise, alpha, d)
    assert counts[joint.sum(axis=1).argmax()].tolist() == list(true)
    assert joint.sum(axis=0) == pytest.approx(post.n_clusters(), rel=1e-9)


def test_two_records_in_two_bins():
    """By hand: three histograms, each with one cluster or two."""
    log_w, masses = exact.beta_bins(2)
    alpha, d, delta, w = 0.6, 0.2, 0.3, [0.1, 0.4, 0.9]
    both, split = [np.exp(log_w) @ masses[:, bins].prod(axis=1) for bins in ([0, 0], [0, 1])]
    together, apart = (1 - d) / (1 + alpha), (alpha + d) / (1 + alpha)
    prior = np.array([[both, 0.25], [2 * split, 0.5], [both, 0.25]]) * [together, apart]
    left = 0.7 * 2 * np.array([0.0, 0.5, 1.0]) + delta
    expected = prior * (left**2 * left[::-1])[:, None]
    release = exact.smoothed_histogram(w, 2, delta)
    counts, joint = exact.histogram_posterior(2, log_w, masses, release, alpha, d)
    assert counts.tolist() == [[0, 2], [1, 1], [2, 0]]
    assert joint == pytest.approx(expected / expected.sum(), rel=1e-10)
    released = np.array([0.4, 2.2])
    expected = prior * np.exp(-abs(released - counts).sum(axis=1) / 1.5)[:, None]
    _, joint = exact.histogram_posterior(2, log_w, masses, exact.perturbed_histogram(released, 1.5), alpha, d)
    assert joint == pytest.approx(expected / expected.sum(), rel=1e-10)
