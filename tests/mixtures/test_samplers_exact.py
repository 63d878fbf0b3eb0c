"""Samplers of mixtures behind releases, beside posteriors by enumeration."""

from functools import cache
from zlib import crc32

import numpy as np
import pymc as pm
import pytest
from scipy import special, stats

import pymc_dp as dp
from tests.mixtures import exact, small
from tests.mixtures.samplers import (
    ALL_SAMPLERS,
    CLOSED_SAMPLERS,
    LOCAL_SAMPLERS,
    NORMAL_SAMPLERS,
    SAMPLERS,
)
from tests.mixtures.small import Urn, verdict_on
from tests.statistics import harness

# About 60 verdicts: this keeps the chance of a false alarm anywhere below one in a thousand.
ALPHA = 1e-5
# As many as planted errors need to be seen in test_samplers_power.py (two kinds of them: four times as many).
DRAWS = 10_000

FEW, ONE, MANY = Urn(0.5), Urn(1.0), Urn(5.0)
PITMAN_YOR, NEGATIVE = Urn(1.0, 0.3), Urn(-0.2, 0.5)
THREE = Urn(0.7, components=3)

# Kernel, channel, urns; samplers with each of the urns in turn. Of the privacy levels, little noise is
# for samplers that keep moving under it.
MODELS = [
    ("NIG", "laplace", (ONE, PITMAN_YOR, MANY)),
    ("NIG", "laplace", (THREE,)),
    ("NIG", "gaussian, clamped", (FEW, PITMAN_YOR)),
    ("normal", "laplace, clamped", (MANY, NEGATIVE, ONE)),
    ("normal", "gaussian", (PITMAN_YOR, FEW)),
    ("normal", "much noise", (ONE, MANY)),
    ("Poisson", "", (ONE, PITMAN_YOR, FEW)),
    ("Poisson", "", (THREE,)),
    ("Beta", "", (MANY, PITMAN_YOR)),
    ("normal", "little noise", (ONE, PITMAN_YOR)),
]
FOR_LITTLE_NOISE = (
    "conditional", "auto", "auto of 2", "closed", "auto closed", "kept splits", "released splits",
)  # fmt: skip
# what runs when not in full
SHORT = {("NIG", "laplace", "joint"), ("NIG", "laplace", "conditional"), ("NIG", "laplace", "slice")}


def _rows():
    for k, (kernel, channel, urns) in enumerate(MODELS):
        for j, sampler in enumerate(ALL_SAMPLERS):
            if channel == "little noise" and sampler not in FOR_LITTLE_NOISE:
                continue
            if sampler in CLOSED_SAMPLERS and kernel == "Beta":
                continue
            if sampler in NORMAL_SAMPLERS and kernel not in ("NIG", "normal"):
                continue
            if k > 0 and (j + k) % 2:
                continue
            urn = urns[(j + k) // 2 % len(urns)]
            if sampler == "slice" and urn == NEGATIVE:
                urn = PITMAN_YOR  # with a discount of one half it runs out of sticks
            short = (kernel, channel, sampler) in SHORT and urns != (THREE,)
            marks = () if short else pytest.mark.statistical
            name = f"{kernel} {channel} {urn} {sampler}".replace("  ", " ")
            yield pytest.param(sampler, kernel, channel, urn, id=name, marks=marks)


def _seed(*parts):
    return crc32(" ".join(map(str, parts)).encode())


@pytest.mark.parametrize(("sampler", "kernel", "channel", "urn"), list(_rows()))
def test_posterior_is_exact(sampler, kernel, channel, urn):
    seed = _seed(sampler, kernel, channel, urn)
    draws = 2 * DRAWS if channel == "little noise" else DRAWS
    n = 3 if kernel == "Beta" else 5
    verdict = verdict_on(ALL_SAMPLERS[sampler], kernel, channel, urn, n=n, draws=draws, seed=seed)
    assert verdict.passed, verdict


@pytest.mark.statistical
def test_a_finite_mixture_by_slices():
    """Its weights have the Dirichlet law of counts to which each component adds more than one."""
    verdict = verdict_on(
        ALL_SAMPLERS["slice"], "NIG", "laplace", Urn(3.0, components=3), draws=40_000, seed=1
    )
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", ["joint", "conditional"])
@pytest.mark.parametrize("slots", [3, 4], ids="{} slots".format)
def test_as_many_slots_as_records_or_clusters(sampler, slots):
    """Nothing is free at times; axes of records and of slots have the same length, or the labels' limit."""
    urn, n = (ONE, 4) if slots == 4 else (Urn(1.5, components=3), 4)
    verdict = verdict_on(ALL_SAMPLERS[sampler], "normal", "laplace", urn, n=n, draws=DRAWS, seed=slots)
    assert verdict.passed, verdict
    verdict = verdict_on(
        ALL_SAMPLERS[sampler], "normal", "laplace", urn, n=n, draws=DRAWS, seed=3, slots=slots
    )
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", ["joint", "conditional"])
def test_numbers_of_the_urn_as_constants(sampler):
    """No discount at all, which the other models have as a number that is zero."""
    with pm.Model() as model:
        labels = dp.ChineseRestaurantProcess("labels", concentration=2.0, shape=5, max_components=7)
        y = small.KERNELS["normal"].declare(labels, 7)
        small._release(y, small.Z[:5], small.CHANNELS["laplace"])
    verdict = verdict_on(
        ALL_SAMPLERS[sampler], "normal", "laplace", Urn(2.0), draws=DRAWS, seed=4, model=model
    )
    assert verdict.passed, verdict


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_two_records(sampler):
    """The smallest urn: one other record, which may be alone."""
    for urn in (ONE, PITMAN_YOR if sampler == "slice" else NEGATIVE):
        verdict = verdict_on(ALL_SAMPLERS[sampler], "NIG", "laplace", urn, n=2, draws=DRAWS, seed=5)
        assert verdict.passed, verdict


# --- histograms of all records ------------------------------------------------------------------------------

EDGES = np.linspace(-6.0, 6.0, 5)
RELEASED = np.array([-5.0, -4.1, -3.3, 2.0, 4.0, 5.5, 5.9])
COUNTS = np.array([2.6, -0.4, 0.3, 1.9])
SMOOTHING = 0.2


def _smoothed(y):
    dp.SmoothedHistogramSample("z", y, n_bins=4, bounds=(-6, 6), smoothing=SMOOTHING, observed=RELEASED)


def _perturbed(y):
    dp.PerturbedHistogram("z", y, n_bins=4, bounds=(-6, 6), scale=0.7, observed=COUNTS)


HISTOGRAMS = {
    "smoothed": (_smoothed, exact.smoothed_histogram((RELEASED + 6) / 12, 4, SMOOTHING)),
    "perturbed": (_perturbed, exact.perturbed_histogram(COUNTS, 0.7)),
}


def declared_histogram(histogram, urn, n=4):
    """The model in PyMC."""
    with pm.Model() as model:
        y = small.KERNELS["normal"].declare(urn.labels(n, n + 1), n + 1)
        HISTOGRAMS[histogram][0](y)
    return model


shared_histogram = cache(declared_histogram)


@cache
def exact_histogram(histogram, urn, n=4):
    """Counts, and their probabilities with each number of clusters."""
    mu, h = 3 * np.linspace(-9, 9, 801), 18 / 800
    log_w = -0.5 * (mu / 3) ** 2 - 0.5 * np.log(2 * np.pi) + np.log(h)
    masses = np.diff(special.ndtr(EDGES[1:-1] - mu[:, None]), axis=1, prepend=0, append=1)
    return exact.histogram_posterior(n, log_w, masses, HISTOGRAMS[histogram][1], urn.alpha, urn.d)


def histogram_verdict(sampler, histogram, urn, draws, seed=6, n=4, model=None):
    """Joint law of the histogram of the records and of the number of clusters."""
    shared = shared_histogram(histogram, urn) if model is None else model
    chain = small.Chain(shared, sampler, urn, draws, seed, keep=model is None)
    counts, joint = exact_histogram(histogram, urn)
    bins = (chain.y[:, :, None] >= EDGES[1:-1]).sum(axis=2)
    found = (bins[:, :, None] == np.arange(4)).sum(axis=1)
    which = (found[:, None, :] == counts).all(axis=2)
    cells = which[:, :, None] & (chain.k[:, None, None] == 1 + np.arange(n))
    seen, often = (p * draws > 200 for p in (joint.ravel(), joint.sum(axis=1)))
    checks = {
        **small.z_scores(cells.reshape(draws, -1)[:, seen], joint.ravel()[seen], "counts and k"),
        **small.z_scores(which[:, often], joint.sum(axis=1)[often], "counts"),
        **small.z_scores(chain.k, joint.sum(axis=0) @ np.arange(1, n + 1), "mean k"),
        **small.slot_checks(chain),
        **small.base_checks(chain, small.KERNELS["normal"]),
    }
    return harness.two_sample_z(checks, ALPHA)


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("histogram", "urn"), [("smoothed", ONE), ("perturbed", PITMAN_YOR)])
def test_histograms_of_all_records(histogram, urn, sampler):
    verdict = histogram_verdict(SAMPLERS[sampler], histogram, urn, 2 * DRAWS)
    assert verdict.passed, verdict


@cache
def released_sum(n, urn, b, z):
    with pm.Model() as model:
        y = small.KERNELS["normal"].declare(urn.labels(n, 5), 5)
        dp.LaplaceMechanism("z", dp.record_sum(y), scale=b, observed=z)
    return model


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_release_of_the_sum(sampler):
    """One number of all records: given the partition, and for a normal base, it is normal plus noise."""
    n, urn, b, z = 4, ONE, 2.0, 9.0
    chain = small.Chain(released_sum(n, urn, b, z), SAMPLERS[sampler], urn, 2 * DRAWS, 7, keep=True)
    labels = exact.partitions(n)
    logs = np.empty(len(labels))
    for row, partition in enumerate(labels):
        sizes = np.bincount(partition)
        sd = np.sqrt(n + 9 * (sizes**2).sum())
        s, h = np.linspace(-12 * sd, 12 * sd, 20_001, retstep=True)
        density = stats.norm.pdf(s, scale=sd) @ np.exp(-abs(z - s) / b) * h / (2 * b)
        logs[row] = exact.log_eppf(sizes, urn.alpha) + np.log(density)
    prob = np.exp(logs - special.logsumexp(logs))
    pmf = np.bincount(labels.max(axis=1), weights=prob)
    same = prob @ (labels[:, 0] == labels[:, 1])
    checks = {
        **small.z_scores(chain.k[:, None] == 1 + np.arange(n), pmf, "k"),
        **small.z_scores(chain.labels[:, 0] == chain.labels[:, 1], same, "same"),
        **small.slot_checks(chain),
        **small.base_checks(chain, small.KERNELS["normal"]),
    }
    verdict = harness.two_sample_z(checks, ALPHA)
    assert verdict.passed, verdict


def test_every_sampler_is_in_the_table():
    groups = (SAMPLERS, LOCAL_SAMPLERS, CLOSED_SAMPLERS, NORMAL_SAMPLERS)
    assert set(FOR_LITTLE_NOISE) < set(ALL_SAMPLERS) == set().union(*groups)
